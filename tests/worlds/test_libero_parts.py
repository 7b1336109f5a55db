"""The parts of the LIBERO host that need no simulator."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.measure.safety import load_registry
from robotrials.record.footage import PoseGoal
from robotrials.run import Observation, Setup
from robotrials.run.conditions import condition_parameters, draw_condition
from robotrials.worlds.arm.signal import Cast, axis_angle, held_things
from robotrials.worlds.arm.watch import check_watchers
from robotrials.worlds.libero.goal import Region, pose_goals, turning_point
from robotrials.worlds.libero.host import _written
from robotrials.worlds.libero.scripted import Grasp, ScriptedLiberoPolicy, ScriptTarget
from robotrials.worlds.libero.start import Start, goal_atoms
from robotrials.worlds.libero.suite import (
    HUB_METADATA,
    LAYOUTS,
    SUITES,
    WANTED,
    assets_hash,
    assets_note,
    find_assets,
    find_suite,
    task_number,
)


def test_the_four_suites_are_those_of_the_safety_registry() -> None:
    registry = load_registry()
    for suite in list(SUITES.values())[:4]:
        assert set(registry.tasks(suite.id)) == set(suite.tasks)
    assert find_suite('LIBERO-Long') is find_suite('libero-10')
    assert find_suite('libero_object').step_cap == 280
    assert task_number(find_suite('libero-90'), 'task_89') == 89
    with pytest.raises(UnknownName, match='did you mean'):
        find_suite('libero-objects')
    with pytest.raises(UnknownName, match='no task of libero-goal'):
        task_number(find_suite('libero-goal'), 'task_10')


def test_goals_are_read_however_they_are_nested() -> None:
    flat = [['on', 'bowl', 'plate']]
    assert goal_atoms(flat) == flat
    assert goal_atoms([['and', ['in', 'a', 'b'], ['open', 'c']]]) == [['in', 'a', 'b'], ['open', 'c']]


def test_goals_become_goals_over_poses() -> None:
    table = Region(np.array([0.1, 0.2, 0.9]), np.eye(3), np.array([0.05, 0.1, 0.007]))
    stove = replace(table, parent='flat_stove_1')
    quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    basket = Region(
        np.array([0.4, 0.0, 0.1]), np.eye(3), np.array([0.05, 0.06, 0.07]), 'basket_1', 'basket_1',
        np.array([0.4, 0.0, 0.0]), quarter,
    )  # fmt: skip
    regions = {'front_region': table, 'cook_region': stove, 'contain_region': basket}
    knob = PoseGoal(object='flat_stove_1_button', kind='above', limit=0.5)

    def goals(*atoms: str) -> tuple[PoseGoal, ...]:
        words = [atom.split() for atom in atoms]
        return pose_goals(words, regions=regions, limits={('turnon', 'flat_stove_1'): [knob]})

    on, turned = goals('On bowl_1 plate_1', 'Turnon flat_stove_1')
    assert (on.object, on.kind, on.other, on.limit) == ('bowl_1', 'over', 'plate_1', 0.03)
    assert (turned.object, turned.kind, turned.limit) == ('flat_stove_1_button', 'above', 0.5)
    (pushed,) = goals('on plate_1 front_region')
    assert pushed.place is not None
    assert not pushed.other
    low_m, high_m = pushed.place.center_m[2] - pushed.place.size_m[2] / 2, pushed.place.size_m[2]
    assert low_m == pytest.approx(0.9 + 0.007 - 0.005), 'an origin may be 5 mm below the top of the region'
    assert high_m == pytest.approx(0.105)
    at, touching = goals('on pot_1 cook_region')
    assert (at.kind, touching.kind, touching.other) == ('at', 'touching', 'flat_stove_1')
    (inside,) = goals('in soup_1 contain_region')
    assert inside.place is not None
    assert inside.other == 'basket_1'
    assert inside.place.center_m == pytest.approx((0.0, 0.0, 0.095)), 'in the coordinates of the basket'
    assert inside.place.size_m == pytest.approx((0.1, 0.12, 0.15))
    with pytest.raises(InputError, match='cannot be judged by cameras'):
        goals('stack a b')


def test_where_a_joints_predicate_turns_is_found_by_asking_it() -> None:
    kind, value = turning_point(lambda q: q < -0.14, -0.16, 0.01) or ('', 0.0)
    assert (kind, value) == ('below', pytest.approx(-0.14, abs=1e-6))
    kind, value = turning_point(lambda q: q > 0.3, 0.0, 2.0) or ('', 0.0)
    assert (kind, value) == ('above', pytest.approx(0.3, abs=1e-6))
    assert turning_point(lambda q: True, 0.0, 1.0) is None


def test_watching_cameras_are_named_once_and_bring_the_masks() -> None:
    assert check_watchers(['front', 'top'], has_oracle_masks=True) == ('front', 'top')
    with pytest.raises(UnknownName, match='no watching camera'):
        check_watchers(['gallery'], has_oracle_masks=False)
    with pytest.raises(InputError, match='twice'):
        check_watchers(['top', 'top'], has_oracle_masks=False)
    with pytest.raises(InputError, match='name some in watchers'):
        check_watchers([], has_oracle_masks=True)


def test_a_thing_is_held_by_two_fingers() -> None:
    cast = Cast((), np.zeros(0, dtype=np.int64), {}, ('soup',), '', {'soup': 1, 'milk': 2})
    left, tip = 'gripper0_leftfinger', 'gripper0_finger_joint1_tip'
    right = 'gripper0_rightfinger'
    assert held_things([(left, 'soup', 3.0), ('soup', right, 3.0)], cast) == {'soup'}
    assert held_things([(left, 'soup', 3.0), (tip, 'soup', 3.0)], cast) == set(), 'both are of one finger'
    assert held_things([(left, 'soup', 3.0), (right, 'milk', 3.0), (left, right, 1.0)], cast) == set()


def test_starts_follow_the_condition() -> None:
    plain = Setup(task='task_0', seed=4, instance=2)
    assert Start.of(plain) == Start(instance=2, seed=4)
    assert Start.of(Setup(task='task_0', seed=4, condition='fresh_start')).is_fresh
    moved = Start.of(Setup(task='task_0', seed=4, condition='camera_pose', condition_parameters={'shift_m': 0.1}))
    assert moved.camera == {'shift_m': 0.1, 'turn_deg': 3.0}
    both = draw_condition('layout+robot_state', 0.5, seed=4)
    drawn = Start.of(
        Setup(task='task_0', seed=4, condition='layout+robot_state', condition_parameters=condition_parameters(both))
    )
    assert drawn.layout is not None
    assert drawn.robot_state is not None
    for wrong in ({'shift_m': -1.0}, {'zoom': 1.0}):
        with pytest.raises(InputError):
            Start.of(Setup(task='task_0', seed=4, condition='camera_pose', condition_parameters=wrong))
    with pytest.raises(InputError, match='give a severity'):
        Start.of(Setup(task='task_0', seed=4, condition='layout'))
    light = draw_condition('light', 0.5, seed=4)
    with pytest.raises(UnknownName):
        Start.of(Setup(task='task_0', seed=4, condition='light', condition_parameters=condition_parameters(light)))


def test_the_rotation_vector_is_the_one_of_published_evaluations() -> None:
    half = 0.35
    np.testing.assert_allclose(axis_angle(np.array([0.0, 0.0, np.sin(half), np.cos(half)])), [0.0, 0.0, 0.7])
    np.testing.assert_array_equal(axis_angle(np.array([0.0, 0.0, 0.0, 1.0])), [0.0, 0.0, 0.0])


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    folder = tmp_path / 'assets'
    for name in WANTED:
        (folder / name).mkdir(parents=True)
        (folder / name / 'mesh.obj').write_text(name)
    return folder


def test_assets_are_found_hashed_and_judged(assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_assets(str(tmp_path)) == find_assets(str(assets)) == assets
    monkeypatch.setenv('ROBOTRIALS_LIBERO_ASSETS', str(tmp_path))
    assert find_assets() == assets
    with pytest.raises(SetupError, match='ROBOTRIALS_LIBERO_ASSETS'):
        find_assets(str(tmp_path / 'nowhere'))
    before = assets_hash(assets)
    assert assets_note(assets, before) == 'not known to be the original assets (5 files changed or of unknown origin)'
    assert 'stand-in assets' in assets_note(assets, '42b6d6208e3237ec')
    for name in WANTED:  # as the hub's client keeps its account of a download
        served = assets / HUB_METADATA / name / 'mesh.obj.metadata'
        served.parent.mkdir(parents=True)
        content = name.encode()
        blob = hashlib.sha1(b'blob %d\0' % len(content) + content, usedforsecurity=False).hexdigest()
        tag = hashlib.sha256(content).hexdigest() if name == 'scenes' else blob
        served.write_text(f'revision\n{tag}\n1.0\n')
    assert assets_hash(assets) == before, 'the account of a download is no asset'
    assert assets_note(assets, before) == ''
    (assets / 'scenes' / 'mesh.obj').write_text('painted over')
    assert assets_hash(assets) != before
    assert '1 files changed' in assets_note(assets, assets_hash(assets))


def test_the_baseline_grasps_across_the_narrow_side_or_by_the_rim() -> None:
    can = ScriptTarget(np.array([0.1, -0.2, 0.04, 1, 0, 0, 0, -0.03, -0.05, -0.04, 0.03, 0.05, 0.04], dtype=float))
    grasp = Grasp.of(can)
    np.testing.assert_allclose(grasp.point_m[:2], [0.1, -0.2])
    assert abs(abs(grasp.yaw_rad) - np.pi / 2) < 1e-9, 'the fingers close along x, the narrow side'
    assert can.bottom_m < grasp.point_m[2] < can.top_m
    bowl = ScriptTarget(np.array([0.0, 0.0, 0.9, 1, 0, 0, 0, -0.06, -0.06, 0.0, 0.06, 0.06, 0.05], dtype=float))
    rim = Grasp.of(bowl)
    assert 0.045 < rim.point_m[1] < 0.06
    with pytest.raises(InputError, match='privileged'):
        ScriptedLiberoPolicy().start(Setup(task='task_0', seed=0), seed=0).act(Observation(0.0, np.zeros(8)))
    with pytest.raises(UnknownName):
        ScriptedLiberoPolicy(manner='sloppy')
    assert len(LAYOUTS['privileged']) == 34


@pytest.mark.parametrize('trap', ['link', 'open to others'])
def test_a_folder_that_somebody_else_prepared_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path / 'tmp'))
    (tmp_path / 'tmp').mkdir()
    (tmp_path / 'theirs').mkdir()
    usual = _written('a: 1\n')
    assert (usual.stat().st_mode & 0o777, _written('a: 1\n')) == (0o700, usual)
    (usual / 'config.yaml').unlink()
    if trap == 'link':
        usual.rmdir()
        usual.symlink_to(tmp_path / 'theirs')
    else:
        usual.chmod(0o777)
    other = _written('a: 1\n')
    assert other != usual
    assert (other / 'config.yaml').read_text() == 'a: 1\n'
    assert not list(usual.iterdir())
