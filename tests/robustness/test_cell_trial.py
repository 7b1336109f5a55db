"""A robustness trial in the embedded cell: a condition hurts the policy that reads what it disturbs, and no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from trialist.conditions import Condition, condition_parameters, draw_condition
from trialist.episodes import Episode, Outcome
from trialist.errors import InputError
from trialist.robustness import condition_trials, drops_from_baseline

pytest.importorskip('mujoco')
from trialist.hosts.disturbed import DisturbedHost
from trialist.hosts.tabletop.host import TabletopHost
from trialist.policies.scripted import ScriptedPolicy
from trialist.policies.sighted import SightedPolicy, heard_color
from trialist.run.seam import Setup

CAMERA_EVERY_STEPS = 20
TASK = 'two_block'
CAP_STEPS = 240
READ_BY_EYES = ('light', 'exposure-', 'exposure+', 'background', 'sensor_noise')


class SlowCameras(TabletopHost):
    """The cell with cameras at 1 Hz: between pictures the last ones are shown."""

    def pictures(self) -> Mapping[str, Any]:
        start = self._begun()
        if getattr(self, '_shown_for', None) is not start or self._steps % CAMERA_EVERY_STEPS == 0:
            self._shown, self._shown_for = super().pictures(), start
        return self._shown


@pytest.fixture(scope='module')
def cell() -> Iterator[DisturbedHost]:
    host = SlowCameras(state='privileged', cameras=('front', 'side'), image_size=(240, 320))
    host.reset('single_block', seed=0)
    yield DisturbedHost(host)
    host.close()


def begin(cell: DisturbedHost, policy: Any, seed: int, condition: Condition | None) -> tuple[Any, Any]:
    name = 'nominal' if condition is None else condition.kind
    parameters = {} if condition is None else condition_parameters(condition)
    cell.prepare(Setup(task=TASK, seed=seed, condition=name, condition_parameters=parameters))
    observation = cell.reset(TASK, seed=seed)
    told = cell.said(cell.instruction())
    return observation, policy.start(Setup(task=TASK, seed=seed, instruction=told), seed=seed)


def run_episode(cell: DisturbedHost, policy: Any, seed: int, condition: Condition | None) -> Episode:
    observation, session = begin(cell, policy, seed, condition)
    steps = 0
    while cell.outcome() is None and steps < CAP_STEPS:
        observation = cell.step(session.act(observation).actions[0])
        steps += 1
    return Episode(
        policy=policy.spec.name, task=TASK, seed=seed, duration_s=steps / 20, outcome=cell.outcome() or Outcome.TIMEOUT,
        condition='nominal' if condition is None else condition.kind,
        condition_parameters={} if condition is None else condition_parameters(condition),
    )  # fmt: skip


def drawn(cell: DisturbedHost, name: str, seed: int) -> Condition:
    cell.prepare(Setup(task=TASK, seed=seed))
    cell.reset(TASK, seed=seed)
    return draw_condition(name, 1.0, seed=seed, instruction=cell.instruction())


def test_a_sighted_policy_places_what_it_sees(cell: DisturbedHost) -> None:
    assert run_episode(cell, SightedPolicy(temper='reference'), 3, None).outcome is Outcome.SUCCESS


@pytest.mark.parametrize('name', READ_BY_EYES)
def test_what_is_laid_over_frames_reaches_the_policy_and_leaves_the_world(cell: DisturbedHost, name: str) -> None:
    plain, _ = begin(cell, SightedPolicy(), 3, None)
    changed, _ = begin(cell, SightedPolicy(), 3, drawn(cell, name, 3))
    assert (plain.state == changed.state).all()
    assert all((plain.images[c] != changed.images[c]).any() for c in plain.images)
    is_moved = any(
        (plain.cameras[c].world_from_camera != changed.cameras[c].world_from_camera).any() for c in plain.cameras
    )
    assert is_moved == (name == 'sensor_noise')


def test_a_paraphrase_is_heard_and_a_literal_policy_misses_it(cell: DisturbedHost) -> None:
    assert heard_color('Put the crimson cube onto the plate', 'lexicon') == 'red'
    assert heard_color('Put the crimson cube onto the plate', 'literal') is None
    assert heard_color('Put the red block behind the blue block', 'literal') == 'red'


def test_a_condition_that_the_cell_can_not_bring_about_is_refused(cell: DisturbedHost) -> None:
    friction = draw_condition('disturbance', 1.0, seed=1)
    with pytest.raises(InputError, match='nobody can bring about disturbance'):
        begin(cell, SightedPolicy(), 1, friction)


@pytest.mark.study
def test_conditions_hurt_who_reads_them(cell: DisturbedHost) -> None:
    """Sensor noise at full severity moves what the eyes see; the privileged script does not look."""
    episodes = trial(cell, ('sensor_noise',), seeds=range(500, 508))
    drops = drops_from_baseline(condition_trials(episodes), n_resamples=500, rng=np.random.default_rng(0))
    found = {(d.policy, d.condition): d for d in drops}
    assert found['sighted reference', 'sensor_noise'].success_drop >= 0.5
    assert found['scripted reference', 'sensor_noise'].success_drop == 0.0


def trial(cell: DisturbedHost, names: tuple[str, ...], *, seeds: range) -> list[Episode]:
    policies = (ScriptedPolicy(temper='reference'), SightedPolicy(temper='reference', hearing='literal'))
    return [
        run_episode(cell, policy, seed, None if name == 'nominal' else drawn(cell, name, seed))
        for seed in seeds
        for name in ('nominal', *names)
        for policy in policies
    ]


def belief_error_m(cell: DisturbedHost, policy: Any, seed: int, condition: Condition | None) -> float:
    """How far the policy's belief is from its object after the first look; infinite when it sees none."""
    observation, session = begin(cell, policy, seed, condition)
    session.act(observation)
    if session.believed is None:
        return float('inf')
    truth = cell.signals()['body_pose'][cell.scene().target_object]
    return float(np.linalg.norm(session.believed[:3] - truth[:3]))


def test_plain_rgb_eyes_lose_in_the_dark_what_hue_eyes_keep(cell: DisturbedHost) -> None:
    dark = drawn(cell, 'exposure-', 501)
    assert belief_error_m(cell, SightedPolicy(seeing='rgb'), 501, None) < 0.01
    assert belief_error_m(cell, SightedPolicy(seeing='rgb'), 501, dark) > 0.01
    assert belief_error_m(cell, SightedPolicy(seeing='hue'), 501, dark) < 0.01


def test_sensor_noise_misleads_both(cell: DisturbedHost) -> None:
    noise = drawn(cell, 'sensor_noise', 501)
    for seeing in ('rgb', 'hue'):
        assert belief_error_m(cell, SightedPolicy(seeing=seeing), 501, noise) > 0.01
