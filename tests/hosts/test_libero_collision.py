"""Layouts on LIBERO without things in each other, on a small scene that has what is asked of its environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trialist.conditions import Layout
from trialist.errors import InputError
from trialist.hosts.libero.collision import TOUCH_M, CollisionCheck
from trialist.hosts.libero.start import Start, changed_state

mujoco = pytest.importorskip('mujoco')
BOXES = ('soup', 'milk', 'butter')
SIDE_M = 0.06


def scene(side_m: float, *, basket_at: str = '0.5 0 0.03') -> Any:
    """Three boxes that may stand in one square region, a basket that stays, and a post as the arm, on a table."""
    boxes = ''.join(
        f'<body name="{name}_main" pos="{0.1 * number} 0.3 0.03"><freejoint name="{name}_joint0"/>'
        f'<geom type="box" size="{SIDE_M / 2} {SIDE_M / 2} 0.03"/></body>'
        for number, name in enumerate(BOXES)
    )
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><worldbody><body name="table"><geom type="plane" size="2 2 0.1"/></body>{boxes}'
        f'<body name="basket_main" pos="{basket_at}"><geom type="box" size="0.05 0.05 0.03"/></body>'
        '<body name="robot0_base" pos="-0.5 0 0.2"><geom type="cylinder" size="0.05 0.2"/></body></worldbody></mujoco>'
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
        robots=[SimpleNamespace(robot_model=SimpleNamespace(root_body='robot0_base'))],
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
