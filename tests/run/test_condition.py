"""Conditions in a declared trial: drawn for every start state, alike for every policy, brought about and recorded."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.plans import FAST, SLOW, make_plan

from robotrials.errors import InputError, UnknownName
from robotrials.record import Episode, Store
from robotrials.run import Chunk, Observation, Setup, run_trial
from robotrials.run.conditions import condition_parameters, draw_condition, read_condition
from robotrials.run.conditions.condition import Latency
from robotrials.run.conditions.instruction import Instruction
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import ConditionEntry, LoopOptions, plan_from_json
from robotrials.testing.policy import PointMassHost, SeekPolicy
from robotrials.value import read_table

WORDS = 'put the red block on the plate'


class Witness(SeekPolicy):
    """Seeks, and notes what it was told and shown."""

    def start(self, setup: Setup, *, seed: int) -> Any:
        self.setup, self.seen = setup, list[Observation]()
        inner, seen = super().start(setup, seed=seed), self.seen

        class Noting:
            def act(self, observation: Observation) -> Chunk:
                seen.append(observation)
                return inner.act(observation)

        return Noting()


def rolled(name: str, *, severity: float = 1.0, host: Any = None, loop: Any = None, words: str = '') -> Any:
    drawn = draw_condition(name, severity, seed=3, instruction='')
    setup = Setup(
        task='reach',
        seed=3,
        items=2,
        instruction=words,
        condition=name,
        condition_parameters=condition_parameters(drawn),
    )
    policy = Witness()
    options = read_table(LoopOptions, loop or {}, where='loop')
    rollout = run_episode(
        host or PointMassHost(), policy, setup, order=Order(time_cap_s=60.0, policy_seed=1, loop=options)
    )
    return rollout, policy


def latencies(rollout: Rollout) -> np.ndarray:
    assert rollout.trajectory is not None
    parts = [getattr(rollout.trajectory, f'{p}_latency_s') for p in ('network', 'inference', 'transport')]
    return np.array(parts)


def test_a_latency_is_charged_and_recorded_and_the_policy_acts_on_what_it_saw_before() -> None:
    late, policy = rolled('latency')
    plain = run_episode(
        PointMassHost(),
        Witness(),
        Setup(task='reach', seed=3, items=2),
        order=Order(time_cap_s=60.0, policy_seed=1),
    )
    condition = read_condition('latency', late.condition_parameters)
    assert isinstance(condition, Latency)
    found = latencies(late)
    assert late.trajectory is not None
    age_s = late.trajectory.extra['observation_age_s']
    acted = np.flatnonzero(np.isfinite(found[0]))
    seen_at = np.round(acted - age_s[acted] * 20).astype(int)  # the step of the observation behind each answer
    assert set(seen_at) <= {round(o.t_s * 20) for o in policy.seen}
    assert (np.diff(seen_at) > 0).all()
    for row, step in zip(acted, seen_at, strict=True):
        wanted = condition.delay(int(step))
        np.testing.assert_allclose(found[:, row], [wanted.network_s, wanted.inference_s, wanted.transport_s])
        assert row - step >= np.ceil(wanted.total_s * 20 - 1e-6)  # more where the policy was busy when it arrived
    assert len(acted) <= len(policy.seen) < late.n_steps
    assert late.duration_s > 2 * plain.duration_s
    assert late.labels['latency_resolution_s'] == '0.05'  # the point mass has no substeps
    assert plain.trajectory is not None
    assert plain.trajectory.network_latency_s is None


def test_a_latency_condition_adds_to_what_the_plan_injects() -> None:
    alone, _ = rolled('latency', severity=0.2)
    both, _ = rolled('latency', severity=0.2, loop={'latency': {'mode': 'injected', 'inference_s': 0.5}})
    np.testing.assert_allclose(np.nanmin(latencies(both)[1]) - 0.5, np.nanmin(latencies(alone)[1]), atol=0.05)
    assert np.nanmin(latencies(both)[1]) > 0.5


def test_a_latency_condition_holds_in_wall_clock_time() -> None:
    drawn = Latency(severity=0.5, seed=1, network_s=0.06, inference_s=0.06, transport_s=0.03, jitter=0.0)
    setup = Setup(task='reach', seed=3, condition='latency', condition_parameters=condition_parameters(drawn))
    policy = Witness(speed_m_s=20.0)
    loop = LoopOptions(clock='wall')  # type: ignore[arg-type]
    done = run_episode(PointMassHost(), policy, setup, order=Order(time_cap_s=1.0, policy_seed=1, loop=loop))
    found = latencies(done)
    first = int(np.flatnonzero(np.isfinite(found[0]))[0])
    assert done.trajectory is not None
    assert done.trajectory.time_s[first] >= 0.15
    assert np.nansum(found[:, first]) >= 0.15


def test_frames_are_disturbed_on_their_way_to_the_policy() -> None:
    noisy, policy = rolled('sensor_noise', host=PointMassHost(camera_px=16))
    assert noisy.applied_by == {'sensor_noise': 'frames'}
    assert len(np.unique(policy.seen[0].images['top'])) > 10  # the host draws black and white
    again, same = rolled('sensor_noise', host=PointMassHost(camera_px=16))
    assert (policy.seen[1].images['top'] == same.seen[1].images['top']).all()
    assert again.n_steps == noisy.n_steps


def test_a_picture_that_is_shown_again_keeps_its_noise() -> None:
    class Still(PointMassHost):
        def _observe(self) -> Observation:
            made = super()._observe()
            self._kept = getattr(self, '_kept', None) or made
            return Observation(made.t_s, made.state, self._kept.images)

    _, policy = rolled('sensor_noise', host=Still(camera_px=16))
    assert policy.seen[0].images['top'] is not None
    assert (policy.seen[0].images['top'] == policy.seen[3].images['top']).all()
    assert policy.seen[3].t_s > policy.seen[0].t_s


def test_the_policy_hears_other_words_and_no_number_of_the_condition() -> None:
    done, policy = rolled('instruction+latency', severity=0.9, words=WORDS)
    said = done.condition_parameters['instruction.text']
    assert policy.setup.instruction == said != WORDS
    assert done.condition_parameters['instruction.canonical'] == WORDS
    assert policy.setup.condition_parameters == {}
    assert done.applied_by == {'instruction': 'words', 'latency': 'clock'}


def test_words_are_needed_for_a_paraphrase() -> None:
    done, _ = rolled('instruction')
    assert done.fault is not None
    assert 'needs words to paraphrase' in done.fault.summary + done.fault.text


def test_what_neither_host_nor_loop_can_bring_about_is_refused() -> None:
    with pytest.raises(InputError, match='nobody can bring about layout'):
        rolled('layout+latency')
    with pytest.raises(InputError, match='no camera frames'):
        rolled('light')

    class Deaf:
        spec = PointMassHost().spec

        def reset(self, task: str, *, seed: int) -> Observation:
            raise AssertionError

        step = outcome = reset

    with pytest.raises(InputError, match='no prepare'):
        run_episode(
            Deaf(),  # type: ignore[arg-type]
            SeekPolicy(),
            Setup(task='reach', seed=1, condition='drift', condition_parameters={'x_m_s': 1.0}),
            order=Order(time_cap_s=1.0, policy_seed=1),
        )


# --- in a plan


def robust_plan(**changes: Any) -> Any:
    return make_plan(
        host={'use': 'point-mass', 'options': {'camera_px': 8}},
        tasks=[{'name': 'reach', 'items': 2, 'instruction': WORDS}],
        conditions=[
            'nominal',
            {'name': 'latency', 'severity': [0.1, 0.5]},
            {'name': 'light+instruction', 'severity': 0.8},
            {'name': 'chaos', 'severity': 0.5, 'kinds': ['sensor_noise', 'latency', 'instruction']},
            {'name': 'drift', 'parameters': {'x_m_s': 0.01}},
        ],
        **{'episodes_per_cell': 3, 'blinding': {'enabled': False}, **changes},
    )


def by_cell(store: Path) -> dict[tuple[str, float | None], list[Episode]]:
    cells = defaultdict(list)
    for e in Store.open(store).episodes():
        severities = [v for k, v in e.condition_parameters.items() if k.rsplit('.', 1)[-1] == 'severity']
        cells[e.condition, max(severities, default=None)].append(e)
    return cells


def test_a_plan_draws_each_condition_for_each_start_state_alike_for_every_policy(tmp_path: Path) -> None:
    done = run_trial(robust_plan(), tmp_path / 'a', workers=0)
    assert (done.n_valid, done.n_total) == (36, 36)
    cells = by_cell(tmp_path / 'a')
    assert set(cells) == {
        ('nominal', None), ('latency', 0.1), ('latency', 0.5), ('light+instruction', 0.8), ('chaos', 0.5),
        ('drift', None),
    }  # fmt: skip
    for (name, severity), episodes in cells.items():
        assert {e.seed for e in episodes} == {e.seed for e in cells['nominal', None]}
        for policy in (FAST, SLOW):
            assert len([e for e in episodes if e.policy == policy]) == 3
        if severity is not None:
            drawn = {(e.seed, str(dict(e.condition_parameters))) for e in episodes}
            assert len(drawn) == 3, name  # one draw a start state, whoever meets it
            for e in episodes:
                condition = read_condition(name, e.condition_parameters)
                assert condition is not None
                assert (condition.seed, condition.severity) == (e.seed, severity)
    said = [read_condition(e.condition, e.condition_parameters) for e in cells['light+instruction', 0.8]]
    parts = [p for c in said for p in c.parts if isinstance(p, Instruction)]  # type: ignore[union-attr]
    assert all(p.canonical == WORDS != p.text for p in parts)
    assert cells['chaos', 0.5][0].labels['condition_applied'] == (
        'sensor_noise: frames, instruction: words, latency: clock'
    )


def test_a_ladder_keeps_the_direction_of_its_draw(tmp_path: Path) -> None:
    run_trial(robust_plan(), tmp_path / 'a', workers=0)
    cells = by_cell(tmp_path / 'a')
    weak = {e.seed: e.condition_parameters['network_s'] for e in cells['latency', 0.1]}
    for e in cells['latency', 0.5]:
        np.testing.assert_allclose(e.condition_parameters['network_s'], 5 * float(weak[e.seed]))


def test_an_interrupted_trial_of_conditions_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run_trial(robust_plan(), tmp_path / 'whole', workers=0)
    run_trial(robust_plan(), tmp_path / 'parts', workers=0, stop_after=10)
    done = run_trial(robust_plan(), tmp_path / 'parts', workers=0)
    assert (done.n_run, done.n_valid) == (26, 36)
    a, b = ({e.key: e for e in Store.open(tmp_path / p).episodes()} for p in ('whole', 'parts'))
    assert {k: e.replace(provenance_id='') for k, e in a.items()} == {
        k: e.replace(provenance_id='') for k, e in b.items()
    }


def test_a_plan_refuses_what_can_not_be_brought_about_before_the_first_episode(tmp_path: Path) -> None:
    for condition, told in (
        ({'name': 'layout', 'severity': 1.0}, 'nobody can bring about layout'),
        ({'name': 'light', 'severity': 1.0}, 'no camera frames'),
    ):
        with pytest.raises(InputError, match=told):
            run_trial(make_plan(conditions=['nominal', condition]), tmp_path / condition['name'], workers=0)
    with pytest.raises(UnknownName, match='did you mean'):
        run_trial(make_plan(conditions=['nominal', {'name': 'latencey', 'severity': 1.0}]), tmp_path / 'y', workers=0)


def test_declared_severities_are_checked() -> None:
    for bad, told in (
        ({'severity': 1.5}, 'at most 1'),
        ({'severity': [0.5, 0.2]}, 'must rise'),
        ({'severity': []}, 'wanted above 0'),
        ({'severity': 0.5, 'parameters': {'sd_rad': 0.1}}, 'either a severity or parameters'),
        ({'severity': 0.5, 'kinds': ['light']}, 'parts of chaos'),
    ):
        with pytest.raises(InputError, match=told):
            make_plan(conditions=[{'name': 'latency', **bad}])
    with pytest.raises(InputError, match='declared twice'):
        make_plan(conditions=[{'name': 'latency', 'severity': [0.2, 0.5]}, {'name': 'latency', 'severity': 0.5}])


def test_a_plan_without_drawn_conditions_keeps_its_hash_and_one_with_them_reads_back() -> None:
    plain = make_plan(conditions=['nominal', {'name': 'drift', 'parameters': {'x_m_s': 1.0}}]).as_json()
    assert 'severity' not in plain
    assert '"scene":' not in plain
    plan = robust_plan()
    assert plan_from_json(plan.as_json()) == plan
    assert plan.conditions[1].rungs() == (
        ConditionEntry('latency', severity=0.1),
        ConditionEntry('latency', severity=0.5),
    )


def test_tasks_of_one_scene_share_their_start_states(tmp_path: Path) -> None:
    tasks = [{'name': n, 'items': 1, 'scene': 'both'} for n in ('here', 'there')] + [{'name': 'alone', 'items': 1}]
    run_trial(make_plan(tasks=tasks), tmp_path / 'a', workers=0)
    found = defaultdict(dict)
    for e in Store.open(tmp_path / 'a').episodes():
        found[e.task][e.instance] = (e.seed, e.labels.get('scene'))
    assert found['here'] == found['there']
    assert found['here'][2][1] == 'both/2'
    assert found['alone'][2] != found['here'][2]
    assert found['alone'][2][1] is None
