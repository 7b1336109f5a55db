"""Layouts: drawn from a seed, free of collisions, refused when they can't be; tasks and their words."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.worlds.cell.item import (
    ORDER_ITEMS,
    Spot,
    StartRegion,
    block,
    order_item,
    overlap,
    place_apart,
    rectangle,
)
from robotrials.worlds.cell.panda import yaw_pose
from robotrials.worlds.cell.referee import box_overlap
from robotrials.worlds.cell.task import TASKS, beside, draw_layout, find_task


def test_unknown_tasks_and_objects_suggest_the_near_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'bin_to_bin'"):
        find_task('bin_2_bin')
    with pytest.raises(UnknownName, match="did you mean 'scissors'"):
        draw_layout('bin_to_bin', seed=0, stratum='scisors')
    with pytest.raises(UnknownName, match="did you mean 'battery'"):
        order_item('batery')


@pytest.mark.parametrize('stratum', list(ORDER_ITEMS))
def test_items_of_an_order_start_apart(stratum: str) -> None:
    for seed in range(5):
        layout = draw_layout('bin_to_bin', seed=seed, stratum=stratum)
        item = order_item(stratum)
        corners = [
            rectangle(Spot(p[0], p[1], 2 * math.atan2(p[6], p[3])), item.box_m[0] / 2, item.box_m[1] / 2)
            for p in layout.poses.values()
        ]
        assert not any(overlap(a, b) for a, b in itertools.combinations(corners, 2))


def test_the_seed_alone_draws_the_layout() -> None:
    first, again, other = (draw_layout('bin_to_bin', seed=s) for s in (3, 3, 4))
    for name in first.poses:
        np.testing.assert_array_equal(first.poses[name], again.poses[name])
    assert any(not np.array_equal(first.poses[n], other.poses[n]) for n in first.poses)


def test_a_layout_with_no_room_is_refused() -> None:
    with pytest.raises(InputError, match='no collision-free placement of 6 x block in 100 x 100 mm'):
        place_apart([block()] * 6, StartRegion((0.5, 0.0), (0.1, 0.1)), rng=np.random.default_rng(0))
    with pytest.raises(InputError, match='items is 40'):
        draw_layout('bin_to_bin', seed=0, items=40)


def test_the_splits_have_the_published_numbers_of_instances() -> None:
    """RADAR, Table 1: 4, 10, 10 and 8 trials."""
    names = ('single_block', 'two_block', 'three_block', 'spatial')
    assert [TASKS[n].instances for n in names] == [4, 10, 10, 8]
    for name in names:
        words = {draw_layout(name, seed=0, instance=i).instruction for i in range(TASKS[name].instances)}
        assert len(words) == TASKS[name].instances


def test_relations_turn_with_the_viewer() -> None:
    anchor = Spot(0.5, 0.0, 0.0)
    robot = beside(anchor, 'behind')
    camera = beside(anchor, 'behind', viewer_yaw_rad=math.pi)
    assert robot.x_m > anchor.x_m > camera.x_m
    assert beside(anchor, 'to the left of').y_m > 0 > beside(anchor, 'to the left of', viewer_yaw_rad=math.pi).y_m


def test_spatial_goals_follow_the_grippers_own_heading() -> None:
    layout = draw_layout('spatial', seed=2, instance=3)
    assert layout.instruction == 'put the yellow block behind the cylinder as seen from the gripper'
    away = layout.goals[0].pose[:2] - layout.poses['cylinder'][:2]
    assert math.atan2(away[1], away[0]) == pytest.approx(layout.gripper_yaw_rad)


def test_scale_blocks_subtend_the_same_angle() -> None:
    layout = draw_layout('scale', seed=1)
    camera = np.array([1.20, 0.0, 0.66])
    kinds = layout.scene.item_types
    angles = {n: kinds[n].box_m[0] / np.linalg.norm(camera - [*layout.poses[n][:2], 0.032]) for n in layout.poses}
    assert angles['small_block'] == pytest.approx(angles['large_block'], rel=1e-6)
    assert kinds['large_block'].box_m[0] > 1.15 * kinds['small_block'].box_m[0]


@pytest.mark.parametrize('shift_m', [0.0, 0.01, 0.03])
def test_overlap_of_shifted_cubes_is_the_closed_form(shift_m: float) -> None:
    size = (0.04, 0.04, 0.04)
    share = (0.04 - shift_m) / 0.04
    found = box_overlap(yaw_pose(shift_m, 0, 0), yaw_pose(0, 0, 0), size_m=size)
    assert found == pytest.approx(share / (2 - share), abs=1e-9)


def test_overlap_knows_the_turns_of_a_cube() -> None:
    size = (0.04, 0.04, 0.04)
    turned = yaw_pose(0, 0, 0, yaw_rad=math.pi / 2 + 0.01)
    assert box_overlap(turned, yaw_pose(0, 0, 0), size_m=size, turns=4) > 0.95
    assert box_overlap(yaw_pose(1, 0, 0), yaw_pose(0, 0, 0), size_m=size) == 0.0
