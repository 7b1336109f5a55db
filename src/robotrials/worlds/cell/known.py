"""What is known of a drawn scene beforehand, without its poses later on: for scores from cameras alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from robotrials.record.rgbd import BoxGoal, KnownBox, KnownObject, KnownScene, RegionGoal
from robotrials.worlds.cell import pose
from robotrials.worlds.cell.item import ItemType
from robotrials.worlds.cell.measure import ROBOT_BODIES
from robotrials.worlds.cell.reset import Start
from robotrials.worlds.cell.scene import (
    BIN_INNER_M,
    FLOOR_HEIGHT_M,
    FLOOR_M,
    TARGET_CENTER_M,
    WALL_HEIGHT_M,
    load_mujoco,
)


def known_scene(start: Start) -> KnownScene:
    """The drawn layout and what stands fixed: table, bins, fixtures."""
    layout = start.layout
    items = layout.scene.item_types
    objects = tuple(_known_object(name, item, layout.poses[name]) for name, item in items.items())
    goals: tuple[BoxGoal, ...] = ()
    region = None
    if layout.is_order:
        wanted = tuple(g.item for g in layout.goals)
        low = [c - inner / 2 for c, inner in zip(TARGET_CENTER_M, BIN_INNER_M, strict=True)]
        high = [c + inner / 2 for c, inner in zip(TARGET_CENTER_M, BIN_INNER_M, strict=True)]
        region = RegionGoal(objects=wanted, low_m=(*low, FLOOR_M), high_m=(*high, WALL_HEIGHT_M + 0.02))
    else:
        goals = tuple(BoxGoal(object=g.item, box=_known_box(g.item, g.pose, items[g.item].box_m)) for g in layout.goals)
    return KnownScene(
        objects=objects, goals=goals, region=region, threshold=layout.threshold, fixed=tuple(_fixed(start)),
        floor_z_m=FLOOR_HEIGHT_M,
    )  # fmt: skip


def _known_object(name: str, item: ItemType, at: Any) -> KnownObject:
    red, green, blue = (round(255 * float(c)) for c in item.rgba.split()[:3])
    is_box = len(item.shapes) == 1 and item.shapes[0].kind == 'box'
    return KnownObject(
        name=name, color_rgb=(red, green, blue), start=_known_box(name, at, item.box_m), is_box=is_box
    )  # fmt: skip


def _known_box(name: str, at: Any, size_m: Any) -> KnownBox:
    turn = pose.matrix_from_quaternion(np.asarray(at)[3:])
    return KnownBox(
        name=name, center_m=_numbers(np.asarray(at)[:3]), size_m=_numbers(size_m), rotation=_numbers(turn.ravel())
    )


def _fixed(start: Start) -> list[KnownBox]:
    """Every box of a body that neither moves nor is an item."""
    mujoco = load_mujoco()
    model, data = start.scene.model, start.data
    skipped = ROBOT_BODIES | set(start.scene.item_body)
    found = []
    for index in range(model.ngeom):
        body = model.body(int(model.geom_bodyid[index])).name
        if body in skipped or model.geom_type[index] != mujoco.mjtGeom.mjGEOM_BOX or 'finger' in body:
            continue
        if body.endswith('_half') or body.startswith('link'):
            continue
        found.append(
            KnownBox(
                name=body, center_m=_numbers(data.geom_xpos[index]), size_m=_numbers(2 * model.geom_size[index]),
                rotation=_numbers(data.geom_xmat[index]),
            )
        )  # fmt: skip
    return found


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
