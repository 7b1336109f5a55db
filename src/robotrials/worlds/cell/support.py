"""What is to be moved starts on a block instead of on the stage."""

from __future__ import annotations

import dataclasses

from robotrials.errors import InputError
from robotrials.run.conditions import Support
from robotrials.worlds.cell.layout import Spot
from robotrials.worlds.cell.pose import yaw_pose
from robotrials.worlds.cell.scene import STAGE_TOP_M, Fixture
from robotrials.worlds.cell.state import heading
from robotrials.worlds.cell.task import Layout

RIM_M = 0.004  # the support reaches so far beyond the item


def add_support(layout: Layout, condition: Support) -> Layout:
    """The layout with a support under every item that has a goal; it stays where it is."""
    if layout.is_order or layout.on_belt:
        raise InputError(f'task {layout.task}: items in a bin or on a belt have no support of their own to change')
    poses, supports = dict(layout.poses), []
    for name in dict.fromkeys(goal.item for goal in layout.goals):
        at = layout.poses[name].copy()
        spot = Spot(float(at[0]), float(at[1]), heading(at[3:].tolist()))
        box = layout.scene.item_types[name].box_m
        half = (box[0] / 2 + RIM_M, box[1] / 2 + RIM_M, condition.height_m / 2)
        place = yaw_pose(spot.x_m, spot.y_m, STAGE_TOP_M, yaw_rad=spot.yaw_rad)
        supports.append(
            Fixture(f'support_{name}', (((0.0, 0.0, condition.height_m / 2), half),), tuple(place.tolist()))
        )
        at[2] += condition.height_m
        poses[name] = at
    scene = dataclasses.replace(layout.scene, fixtures=(*layout.scene.fixtures, *supports))
    return dataclasses.replace(layout, poses=poses, scene=scene)
