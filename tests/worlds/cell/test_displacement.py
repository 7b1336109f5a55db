"""Starts at a stated distance from others, and on a support: the numbers asked for are the numbers found."""

import math

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.run.conditions import Displacement, Support, condition_parameters, read_condition
from robotrials.run.seam import Setup
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.task import draw_layout


@pytest.fixture(scope='module')
def host():
    made = TabletopHost()
    yield made
    made.close()


def start(host, condition=None, *, task='single_block', seed=5):
    stated = {}
    if condition is not None:
        stated = {'condition': condition.kind, 'condition_parameters': condition_parameters(condition)}
    host.prepare(Setup(task=task, seed=seed, **stated))
    host.reset(task, seed=seed)
    return dict(host.signals()['body_pose']), np.array(host.scene().target_center_m)


@pytest.mark.parametrize('distance_m', [0.02, 0.06])
def test_every_piece_stands_the_stated_distance_away(host, distance_m):
    poses, goal = start(host)
    moved, moved_goal = start(host, Displacement.of(distance_m, seed=1))
    (name,) = poses
    assert np.linalg.norm(moved[name][:2] - poses[name][:2]) == pytest.approx(distance_m, abs=0.002)
    assert np.linalg.norm(moved_goal - goal) == pytest.approx(distance_m, abs=1e-6)


def test_the_jitter_stays_within_its_bounds_and_the_seed_changes_the_draw(host):
    poses, _ = start(host)
    (name,) = poses
    shifts = set()
    for seed in range(4):
        moved, _ = start(host, Displacement.of(0.0, jitter_m=0.0025, turn_rad=math.radians(15), seed=seed))
        gap = moved[name][:2] - poses[name][:2]
        assert (np.abs(gap) < 0.0035).all()  # settling moves a block by a fraction of a millimetre
        shifts.add(tuple(np.round(gap, 6)))
    assert len(shifts) == 4


def test_no_displacement_is_the_start_itself(host):
    assert Displacement.of(0.0, seed=1).severity == 0
    poses, goal = start(host)
    moved, moved_goal = start(host, Displacement.of(0.0, seed=1))
    assert all((moved[name] == poses[name]).all() for name in poses)
    assert (moved_goal == goal).all()


def test_a_support_lifts_what_is_to_be_moved_and_nothing_else(host):
    poses, goal = start(host, task='choose_red')
    lifted, lifted_goal = start(host, Support.of(0.04), task='choose_red')
    rise = {name: lifted[name][2] - poses[name][2] for name in poses}
    assert rise['red_block'] == pytest.approx(0.04, abs=1e-3)
    assert rise['green_block'] == pytest.approx(0.0, abs=1e-3)
    assert (lifted_goal == goal).all()


def test_a_support_is_refused_where_items_have_none(host):
    with pytest.raises(InputError, match='no support'):
        start(host, Support.of(0.04), task='bin_to_bin')


def test_records_give_the_condition_back():
    for made in (Displacement.of(0.05, jitter_m=0.001, turn_rad=0.1, seed=3), Support.of(0.02, seed=1)):
        assert read_condition(made.kind, condition_parameters(made)) == made


@pytest.mark.parametrize('distance_m', [-0.1, math.nan, math.inf])
def test_a_distance_that_is_none_is_refused(distance_m):
    with pytest.raises(InputError, match='distance_m'):
        Displacement.of(distance_m, seed=0)


def test_a_layout_without_room_at_that_distance_is_an_error(host):
    assert draw_layout('single_block', seed=5).poses
    with pytest.raises(InputError, match='no collision-free layout'):
        start(host, Displacement.of(0.9, seed=1))
