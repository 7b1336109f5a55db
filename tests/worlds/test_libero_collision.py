"""Starts on LIBERO without things or arm in each other, on a small scene that has what is asked of its environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.run.conditions import Layout, RobotState
from robotrials.worlds.libero.start import TOUCH_M, CollisionCheck, Start, changed_state

mujoco = pytest.importorskip('mujoco')
BOXES = ('soup', 'milk', 'butter')
SIDE_M = 0.06


def scene(side_m: float, *, basket_at: str = '0.5 0 0.03') -> Any:
    """Three boxes that may stand in one square region, a basket that stays, and a post with a beam that swings up and
    down and another that folds back onto it as the arm, on a table.
    """
    boxes = ''.join(
        f'<body name="{name}_main" pos="{0.1 * number} 0.3 0.03"><freejoint name="{name}_joint0"/>'
        f'<geom type="box" size="{SIDE_M / 2} {SIDE_M / 2} 0.03"/></body>'
        for number, name in enumerate(BOXES)
    )
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><compiler angle="radian"/><worldbody><body name="table"><geom type="plane" size="2 2 0.1"/></body>'
        f'{boxes}'
        f'<body name="basket_main" pos="{basket_at}"><geom type="box" size="0.05 0.05 0.03"/></body>'
        '<body name="robot0_base" pos="-0.5 0 0.08"><geom type="cylinder" size="0.05 0.08"/>'
        '<body name="beam" pos="0 0 0.07"><joint name="lift" axis="0 1 0" range="-1 1"/>'
        '<geom type="capsule" fromto="0.1 0 0 0.25 0 0" size="0.01"/><body name="end" pos="0.25 0 0">'
        '<joint name="fold" axis="0 0 1" range="-3 3.1"/><geom type="capsule" fromto="0.02 0 0 0.25 0 0" size="0.01"/>'
        '</body></body></body></worldbody></mujoco>'
    )
    wrapped = SimpleNamespace(
        _model=model, body_name2id=lambda name: model.body(name).id,
        get_joint_qpos_addr=lambda name: (int(model.joint(name).qposadr[0]), 0),
    )  # fmt: skip
    region = {'target': 'table', 'ranges': [(-side_m / 2, -side_m / 2, side_m / 2, side_m / 2)]}
    return SimpleNamespace(
        sim=SimpleNamespace(model=wrapped), workspace_offset=(0.0, 0.0, 0.0),
        objects_dict={n: SimpleNamespace(root_body=f'{n}_main', joints=[f'{n}_joint0']) for n in BOXES},
        fixtures_dict={'basket': SimpleNamespace(root_body='basket_main')},
        robots=[SimpleNamespace(
            robot_model=SimpleNamespace(root_body='robot0_base'),
            _ref_joint_pos_indexes=[int(model.joint(name).qposadr[0]) for name in ('lift', 'fold')],
            _ref_joint_indexes=[model.joint(name).id for name in ('lift', 'fold')],
        )],
        parsed_problem={'initial_state': [('on', name, 'middle') for name in BOXES], 'regions': {'middle': region}},
    )  # fmt: skip


def nominal(env: Any) -> Any:
    model = env.sim.model._model
    return np.concatenate([[0.0], model.qpos0, np.zeros(model.nv)])


def places(state: Any) -> Any:
    return state[1:22].reshape(3, 7)[:, :2]


def in_each_other(xy: Any) -> bool:
    """Whether two of the boxes overlap by more than a touch: they are never turned, so that their sides decide."""
    return any(np.abs(xy[a] - xy[b]).max() < SIDE_M - TOUCH_M for a, b in ((0, 1), (0, 2), (1, 2)))


def first_draw(seed: int, side_m: float) -> Any:
    """What is drawn if nobody looks; the nominal places do not matter at severity 1."""
    rng = np.random.default_rng([seed, 0x11BE])
    return np.array([(rng.uniform([-side_m / 2] * 2, [side_m / 2] * 2), rng.uniform())[0] for _ in BOXES])


def test_no_layout_places_things_into_each_other_and_good_ones_stay_as_they_were_drawn() -> None:
    env, n_redrawn = scene(0.3), 0
    for seed in range(60):
        state = changed_state(env, nominal(env), Start(layout=Layout.draw(1.0, seed=seed)))
        xy, drawn = places(state), first_draw(seed, 0.3)
        assert not in_each_other(xy)
        assert np.abs(xy).max() <= 0.15
        assert np.array_equal(np.delete(state, [1, 2, 8, 9, 15, 16]), np.delete(nominal(env), [1, 2, 8, 9, 15, 16]))
        if in_each_other(drawn):
            n_redrawn += 1
        else:
            np.testing.assert_allclose(xy, drawn, atol=1e-12)
    assert 5 < n_redrawn < 55, 'this scene was to show both'


def test_what_stays_is_not_run_into_either() -> None:
    env = scene(0.3, basket_at='0.1 0.1 0.03')
    for seed in range(20):
        xy = places(changed_state(env, nominal(env), Start(layout=Layout.draw(1.0, seed=seed))))
        assert (np.abs(xy - (0.1, 0.1)).max(axis=1) >= 0.05 + SIDE_M / 2 - 0.001).all()


def test_no_room_is_an_error_that_names_the_two() -> None:
    env = scene(0.05)
    with pytest.raises(InputError, match=r'no collision-free layout of 3 objects in 200 draws; (soup|milk|butter) and'):
        changed_state(env, nominal(env), Start(layout=Layout.draw(1.0, seed=1)))


def test_things_that_touch_from_the_start_may_go_on_touching() -> None:
    env = scene(0.3)
    state = nominal(env)
    state[8:10] = (SIDE_M - 0.004, 0.3)  # the second box, 4 mm inside the first
    check = CollisionCheck(env, state)
    assert check.clashes(state) == []
    state[8] -= 0.002
    assert check.clashes(state) == [('soup', 'milk')]
    state[8] = SIDE_M
    assert check.clashes(state) == []


ARM = slice(22, 24)  # of the flat state: lift and fold


def started(env: Any, seed: int, severity: float = 1.0, layout: Layout | None = None) -> Any:
    return changed_state(env, nominal(env), Start(layout=layout, robot_state=RobotState.draw(severity, seed=seed)))


def first_angles(seed: int) -> Any:
    """Where the arm starts if nobody looks; its limits are farther away than any draw."""
    drawn = RobotState.draw(1.0, seed=seed).initial_joints([0.0, 0.0], lower_rad=[-1, -3], upper_rad=[1, 3.1])
    return np.asarray(drawn)


def lowest_m(angles: Any) -> float:
    """The lowest point of the arm above the table: its elbow or its tip, by hand."""
    lift, fold = angles
    return float(0.15 - np.sin(lift) * max(0.25, 0.25 + 0.25 * np.cos(fold)) - 0.01)


def test_the_arm_starts_above_the_table_and_good_draws_stay_as_they_were() -> None:
    env, n_redrawn = scene(0.3), 0
    for seed in range(100):
        state, drawn = started(env, seed), first_angles(seed)
        assert lowest_m(state[ARM]) > -TOUCH_M
        assert np.array_equal(np.delete(state, ARM), np.delete(nominal(env), ARM))
        if lowest_m(drawn) < -TOUCH_M:
            n_redrawn += 1
        else:
            np.testing.assert_array_equal(state[ARM], drawn)
    assert 3 < n_redrawn < 50, 'this scene was to show both'


def test_the_arm_does_not_start_in_a_thing_that_stands_where_the_condition_put_it() -> None:
    env = scene(0.3)
    for seed in range(20):
        state = started(env, seed, layout=Layout.draw(1.0, seed=seed))
        assert CollisionCheck(env, nominal(env)).clashes(state) == []
    state = nominal(env)
    state[1:3] = (-0.2, 0.0)
    state[ARM] = (0.25, 0.0)
    assert CollisionCheck(env, nominal(env)).clashes(state) == [('the arm', 'soup')]


def test_the_arm_may_not_lie_in_itself() -> None:
    env = scene(0.3)
    state = nominal(env)
    state[ARM] = (0.0, 3.05)
    assert CollisionCheck(env, nominal(env)).clashes(state) == [('the arm', 'its own links')]


def test_no_free_start_of_the_arm_is_an_error_that_names_what_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    env = scene(0.3)
    monkeypatch.setattr(CollisionCheck, 'clashes', lambda self, state: [('the arm', 'basket')])
    with pytest.raises(InputError, match=r'severity 1: no safe start .* most often the arm and basket lay in each'):
        started(env, 1)
