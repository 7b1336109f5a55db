"""Policies of a trial as predictors of recorded actions: in process and behind a wire, by steps and by chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.build import make_lerobot
from tests.servers import OpenPiServer

from robotrials.errors import InputError, RigError, UnknownName
from robotrials.formats.dataset import RecordedEpisode, open_dataset
from robotrials.formats.dataset import RecordedObservation as Recorded
from robotrials.measure.actions.evaluate import prepare, read_runs, run_actions
from robotrials.measure.actions.prediction import Invalid
from robotrials.measure.actions.split import action_statistics, make_split
from robotrials.policies.offline import OfflinePolicy, open_offline
from robotrials.run import ActionConvention, Chunk, Gripper, HostSpec, Observation, PolicySpec, Setup
from robotrials.run.plan import PolicyEntry
from robotrials.run.seam import ControlMode, Frame, Target

CONVENTION = ActionConvention(
    control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.BASE, gripper=Gripper.OPEN_IS_ONE
)
Answer = Callable[[Observation], Any]


class Scripted:
    """A policy in process: what it answers is a function of what it is shown."""

    def __init__(self, answer: Answer, *, chunk_length: int = 4) -> None:
        self.spec = PolicySpec(name='scripted', action=CONVENTION, chunk_length=chunk_length)
        self.answer, self.setups = answer, list[Setup]()
        self.asked_at: list[float] = []

    def start(self, setup: Setup, *, seed: int) -> Scripted:
        self.setups.append(setup)
        return self

    def act(self, observation: Observation) -> Chunk:
        self.asked_at.append(observation.t_s)
        return Chunk(self.answer(observation))


class FittedScripted(Scripted):
    """One that has to be told the shapes first."""

    def fit(self, host: HostSpec) -> None:
        self.host = host


def fitted_policy() -> FittedScripted:
    return FittedScripted(lambda _: np.zeros((4, 4)))


def counted(observation: Observation) -> np.ndarray:
    """Four actions whose first number is the step that each is for."""
    step = round(observation.t_s)
    return np.column_stack([np.arange(step, step + 4), np.zeros((4, 3))])


MOMENT = Recorded({'state': np.arange(3.0)}, {})


@pytest.mark.parametrize(('horizon', 'asked'), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (4, [0, 4])])
def test_one_question_per_step_or_one_per_chunk(horizon: int, asked: list[int]) -> None:
    policy = Scripted(counted)
    predictor = OfflinePolicy(policy, name='p', horizon=horizon)
    predictor.start('e', 'go')
    said = [predictor.predict(MOMENT, 'go') for _ in range(5)]
    assert [float(np.asarray(row)[0]) for row in said] == [0, 1, 2, 3, 4]
    assert policy.asked_at == asked
    assert predictor.n_questions == len(asked)
    predictor.start('f', 'go')
    predictor.predict(MOMENT, 'go')
    assert policy.asked_at[-1] == 0
    assert [s.task for s in policy.setups] == ['e', 'f']


def test_a_new_instruction_is_asked_for_at_once() -> None:
    policy = Scripted(counted)
    predictor = OfflinePolicy(policy, name='p', horizon=4)
    predictor.start('e', 'go')
    for words in ('go', 'go', 'stop'):
        predictor.predict(MOMENT, words)
    assert [s.instruction for s in policy.setups] == ['go', 'stop']
    assert policy.asked_at == [0, 2]


def test_a_horizon_longer_than_an_answer_and_state_that_is_not_there_are_refused() -> None:
    with pytest.raises(InputError, match='answers with 4 actions'):
        OfflinePolicy(Scripted(counted), name='p', horizon=5)
    with pytest.raises(InputError, match='at least 1'):
        OfflinePolicy(Scripted(counted), name='p', horizon=0)
    predictor = OfflinePolicy(Scripted(counted), name='p', state=['stat'])
    predictor.start('e', '')
    with pytest.raises(UnknownName, match="did you mean 'state'"):
        predictor.predict(MOMENT, '')


@pytest.mark.parametrize(
    ('answer', 'reason'),
    [
        (np.zeros((4, 3)), 'wrong_size'), (np.zeros(4), 'wrong_size'), (np.zeros((0, 4)), 'wrong_size'),
        (np.full((4, 4), np.nan), 'not_finite'), (np.full((4, 4), 'x'), 'text_element'),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_action_is_a_named_invalid_answer(answer: np.ndarray, reason: str) -> None:
    predictor = OfflinePolicy(Scripted(lambda _: answer), name='p', horizon=4)
    predictor.start('e', '')
    found = predictor.predict(MOMENT, '')
    assert isinstance(found, Invalid)
    assert found.reason == reason


def test_a_policy_that_fails_once_is_asked_again_and_twice_is_a_broken_rig() -> None:
    calls: list[int] = []

    def flaky(observation: Observation) -> np.ndarray:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError('hung up')
        return counted(observation)

    predictor = OfflinePolicy(Scripted(flaky), name='p')
    predictor.start('e', '')
    assert np.asarray(predictor.predict(MOMENT, '')).shape == (4,)

    def broken(observation: Observation) -> np.ndarray:
        raise ZeroDivisionError('oops')

    predictor = OfflinePolicy(Scripted(broken), name='p')
    predictor.start('e', '')
    with pytest.raises(RigError, match='ZeroDivisionError: oops'):
        predictor.predict(MOMENT, '')


def test_images_are_shown_as_eight_bit_rgb_under_the_policys_names() -> None:
    seen: list[Observation] = []

    def look(observation: Observation) -> np.ndarray:
        seen.append(observation)
        return np.zeros((1, 4))

    predictor = OfflinePolicy(Scripted(look), name='p', cameras={'front': 'image', 'hand': 'depth'}, state=[])
    predictor.start('e', '')
    shown = Recorded({}, {'image': np.zeros((6, 8, 3), np.uint8), 'depth': np.full((6, 8, 1), 0.5, np.float32)})
    predictor.predict(shown, '')
    assert {name: (image.shape, image.dtype) for name, image in seen[0].images.items()} == {
        'front': ((6, 8, 3), np.uint8), 'hand': ((6, 8, 3), np.uint8),
    }  # fmt: skip
    assert len(seen[0].state) == 0


def test_time_goes_by_the_control_rate() -> None:
    policy = Scripted(lambda _: np.zeros((1, 4)))
    predictor = OfflinePolicy(policy, name='p', control_rate_hz=10.0)
    predictor.start('e', '')
    for _ in range(3):
        predictor.predict(MOMENT, '')
    np.testing.assert_allclose(policy.asked_at, [0.0, 0.1, 0.2])


def test_a_policy_that_has_to_be_fitted_is_told_the_shapes_of_the_dataset() -> None:
    sample = RecordedEpisode(
        dataset='d', split='train', index=0, actions=np.zeros((2, 4)), state={'state': np.zeros((2, 3))},
        images={'image': [np.zeros((6, 8, 3), np.uint8)] * 2},
    )  # fmt: skip
    entry = PolicyEntry(use='tests.policies.test_offline:fitted_policy')
    made = open_offline(entry, name='p', sample=sample, cameras={'front': 'image'}, rate_hz=10.0)
    host = made._policy.host  # type: ignore[attr-defined]
    assert (host.images, host.state_width, host.control_rate_hz) == ({'front': (6, 8)}, 3, 10.0)
    wider = RecordedEpisode(dataset='d', split='train', index=0, actions=np.zeros((2, 7)))
    with pytest.raises(InputError, match='gives actions of 4 numbers, those of d have 7'):
        open_offline(entry, name='p', sample=wider)


OPENPI: dict[str, Any] = {
    'observation': {'images': {'observation/image': 'image'}, 'state': {'observation/state': [0, 3]}},
    'action': {
        'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'base', 'gripper': 'open_is_one'},
        'chunk_length': 4,
    },
}


def test_an_answer_that_a_wire_refuses_is_the_policys_and_not_the_rigs(tmp_path: Path) -> None:
    dataset = open_dataset(make_lerobot(tmp_path / 'data', 'v2.1', episodes=2))
    sample = next(iter(make_split(dataset, test_share=0.5).test_episodes(dataset)))
    with OpenPiServer(lambda question: {'actions': np.full((4, 4), np.nan)}) as server:
        entry = PolicyEntry(use='openpi', options={**OPENPI, 'url': server.url})
        predictor = open_offline(entry, name='p', sample=sample)
        predictor.start('e', 'go')
        found = predictor.predict(sample.observation(0), 'go')
        predictor.close()
    assert isinstance(found, Invalid)
    assert found.reason.value == 'not_finite'


def test_a_served_policy_is_scored_offline_through_its_plan(tmp_path: Path) -> None:
    """openpi's wire: the recorded moments go out as a robot's would, and the answers are scored as actions."""
    dataset = open_dataset(make_lerobot(tmp_path / 'data', 'v2.1', episodes=6))
    split = make_split(dataset, test_share=0.34)
    asked: list[Mapping[str, Any]] = []

    def infer(question: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(question)
        return {'actions': np.tile([*np.asarray(question['observation/state']) * 0.1, 1.0], (4, 1))}

    with OpenPiServer(infer) as server:
        options = ''.join(f'{key} = {_toml(value)}\n' for key, value in {**OPENPI, 'url': server.url}.items())
        plan = tmp_path / 'trial.toml'
        plan.write_text(
            'seed = 1\nepisodes_per_cell = 1\ntime_cap_s = 5\ntasks = [{name = "reach"}]\nhost = {use = "point-mass"}\n'
            f'[policies.mine]\nuse = "openpi"\n[policies.mine.options]\n{options}'
        )
        for horizon in (1, 4):
            spec = f'policy,plan={plan},policy=mine,horizon={horizon}'
            predictor, statistics = prepare(dataset, split, spec)
            done = run_actions(dataset, predictor, tmp_path / f's{horizon}', split=split, statistics=statistics)
            assert (done.evaluated, done.faults, done.invalid) == (2, 0, 0)
            predictor.close()  # type: ignore[attr-defined]
    (by_step,), (by_chunk,) = (read_runs(tmp_path / f's{horizon}') for horizon in (1, 4))
    assert by_step.model == by_chunk.model == 'mine'
    n_steps = sum(e.n_steps for e in by_step.episodes)
    assert len(asked) == n_steps + sum(-(-e.n_steps // 4) for e in by_chunk.episodes)
    recorded = next(iter(split.test_episodes(dataset)))
    first = next(e for e in by_step.episodes if e.episode_id == recorded.episode_id)
    np.testing.assert_allclose(first.predicted[:, :3], recorded.state['state'] * 0.1, rtol=1e-6)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return '{' + ', '.join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + '}'
    return f'"{value}"' if isinstance(value, str) else str(value)


def test_a_server_that_hangs_up_is_a_counted_fault(tmp_path: Path) -> None:
    dataset = open_dataset(make_lerobot(tmp_path / 'data', 'v2.1', episodes=4))
    split = make_split(dataset, test_share=0.25)

    def infer(question: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ValueError('out of memory')

    sample = next(iter(split.train_episodes(dataset)))
    statistics = action_statistics(split.train_episodes(dataset))
    with OpenPiServer(infer) as server:
        entry = PolicyEntry(use='openpi', options={**OPENPI, 'url': server.url})
        predictor = open_offline(entry, name='p', sample=sample)
        done = run_actions(dataset, predictor, tmp_path / 's', split=split, statistics=statistics)
        predictor.close()
    assert (done.evaluated, done.faults) == (0, 1)
