"""Distractors in the cell: objects that share the target's colour or its shape, laid where they are in nobody's way."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run.conditions import Distractor, DistractorObject
from robotrials.run.conditions.condition import generator
from robotrials.worlds.cell import pose
from robotrials.worlds.cell.item import COLORS, ItemType, Shape
from robotrials.worlds.cell.layout import place_apart
from robotrials.worlds.cell.scene import FLOOR_M, STAGE_TOP_M
from robotrials.worlds.cell.spread import fixture_rectangle, goal_rectangle, item_rectangle
from robotrials.worlds.cell.task import Layout

FloatArray = NDArray[np.floating[Any]]
Rgb = tuple[int, int, int]
SHAPES = ('block', 'cylinder')
ROOM_M = 0.028  # about the task's own items: an open hand passes
DENSITY_KG_M3 = 620.0


def add_distractors(layout: Layout, condition: Distractor, *, attempt: int = 0) -> Layout:
    """The layout with the condition's objects; no word of the instruction fits one of them. InputError without room."""
    objects = distractors_for(layout, condition)
    if not objects:
        return layout
    names = [f'distractor_{i}' for i in range(len(objects))]
    kinds = [distractor_type(o) for o in objects]
    rng = generator('distractor', condition.seed, 1, attempt)
    spots = place_apart(kinds, layout.region, rng=rng, clearance_m=0.006, taken=_taken(layout))
    floor_m = STAGE_TOP_M + (FLOOR_M if layout.is_order else 0.0)
    poses = {
        name: pose.yaw_pose(s.x_m, s.y_m, floor_m + kind.half_height_m, yaw_rad=s.yaw_rad)
        for name, kind, s in zip(names, kinds, spots, strict=True)
    }
    items = (*layout.scene.items, *zip(names, kinds, strict=True))
    return dataclasses.replace(
        layout,
        scene=dataclasses.replace(layout.scene, items=items),
        poses={**layout.poses, **poses},
        distractors=tuple(names),
    )


def distractors_for(layout: Layout, condition: Distractor) -> tuple[DistractorObject, ...]:
    """The objects of a condition for the (first) target, with nothing that the instruction could also mean."""
    types = layout.scene.item_types
    target = types[layout.goals[0].item]
    others = [t for name, t in types.items() if name != layout.goals[0].item]
    shape = shape_of(target)
    named = {shape_of(t) for t in others} - {shape}
    seen = {t.rgba for t in others}
    colors = tuple(_rgb(c) for c in COLORS.values() if c not in seen)
    shapes = tuple(s for s in SHAPES if s not in named)
    return condition.objects(_rgb(target.rgba), shape, shapes=shapes, colors_rgb=colors)


def shape_of(item: ItemType) -> str:
    return 'cylinder' if item.shapes[0].kind == 'cylinder' else 'block'


def distractor_type(thing: DistractorObject) -> ItemType:
    """The object as an item of the cell."""
    x, y, z = thing.size_m
    rgba = ' '.join(f'{v / 255:.4f}' for v in thing.color_rgb) + ' 1'
    if thing.shape == 'cylinder':
        radius = min(x, y) / 2
        mass = DENSITY_KG_M3 * np.pi * radius**2 * z
        shape, box = Shape('cylinder', (radius, z / 2), mass_kg=float(mass)), (2 * radius, 2 * radius, z)
    else:
        shape, box = Shape('box', (x / 2, y / 2, z / 2), mass_kg=DENSITY_KG_M3 * x * y * z), thing.size_m
    return ItemType(
        name=f'{thing.shape} distractor', shapes=(shape,), box_m=box, grip_width_m=box[1], friction=0.8, rgba=rgba
    )


def _taken(layout: Layout) -> Sequence[FloatArray]:
    room_m = 0.008 if layout.is_order else ROOM_M
    taken = [item_rectangle(layout, name, clearance_m=room_m) for name in layout.poses]
    taken += [fixture_rectangle(f) for f in layout.scene.fixtures]
    return taken if layout.is_order else taken + [goal_rectangle(g) for g in layout.goals]


def _rgb(rgba: str) -> Rgb:
    red, green, blue = (round(255 * float(v)) for v in rgba.split()[:3])
    return red, green, blue
