"""Histories: a policy that wants earlier moments is shown them, whenever it is asked.

GR00T is on no registry: the server here is written from its protocol (`delta_indices` of `get_modality_config`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.policies.wires import GOOD, HOST, WIRES, ask, groot_answer, policy_of
from tests.servers import FaultyZmq

from robotrials.errors import InputError
from robotrials.record import Outcome
from robotrials.run import Action, Host, HostSpec, Observation, Setup
from robotrials.run.loop import Order, run_episode
from robotrials.service.platform.link import policy_spec_from_map, spec_to_map
from robotrials.wire.array import unpack_groot

DROID = (-3, 0)  # DROID's configuration has -15 and 0


class Counting(Host):
    """Every picture and number of an observation is the number of its control step."""

    @property
    def spec(self) -> HostSpec:
        return HOST

    def reset(self, task: str, *, seed: int) -> Observation:
        self._step = 0
        return self._seen()

    def step(self, action: Action) -> Observation:
        self._step += 1
        return self._seen()

    def outcome(self) -> Outcome | None:
        return Outcome.SUCCESS if self._step >= 9 else None

    def _seen(self) -> Observation:
        images = {name: np.full((*size, 3), self._step, np.uint8) for name, size in HOST.images.items()}
        return Observation(self._step / 10, np.full(8, float(self._step)), images)


def run_with(video: tuple[object, ...], **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    questions: list[dict[str, Any]] = []

    def answer(question: bytes) -> bytes:
        asked = unpack_groot(question)
        if asked['endpoint'] == 'get_action':
            questions.append(asked['data']['observation'])
        return groot_answer(question, GOOD, video=video)

    with FaultyZmq(answer) as serving:
        policy = policy_of('groot', serving.url, **options)
        try:
            rollout = run_episode(
                Counting(), policy, Setup(task='t', seed=0), order=Order(time_cap_s=2.0, policy_seed=0)
            )
        finally:
            policy.close()
    return rollout, questions


def test_two_moments_of_video_are_sent_and_the_first_steps_are_padded_with_the_first() -> None:
    """Asked at steps 0, 2, 4, ...: frames between two questions are kept all the same."""
    rollout, questions = run_with(DROID)
    assert rollout.outcome is Outcome.SUCCESS
    assert [q['video']['exterior'].shape for q in questions] == [(1, 2, 8, 8, 3)] * 5
    moments = [q['video']['wrist'][0, :, 0, 0, 0].tolist() for q in questions]
    assert moments == [[0, 0], [0, 2], [1, 4], [3, 6], [5, 8]]
    assert [q['state']['arm'].shape for q in questions] == [(1, 1, 8)] * 5, 'of the state the present alone is wanted'
    assert rollout.labels['history'] == 'steps -3, 0; the first observation stands in before it'


def test_one_moment_is_as_before() -> None:
    rollout, questions = run_with((0,))
    assert questions[0]['video']['wrist'].shape == (1, 1, 8, 8, 3)
    assert 'history' not in rollout.labels


@pytest.mark.parametrize('video', [(0, 1), (0, -3), ('now',), (True, 0)])
def test_moments_that_cannot_be_shown_are_refused_before_the_first_episode(video: tuple[object, ...]) -> None:
    with pytest.raises(InputError, match=r'moments of video\..*, as the server wants them, are'):
        run_with(video)


def test_a_mapping_that_contradicts_the_server_is_refused() -> None:
    observation = {**WIRES['groot'].options['observation'], 'moments': {'video.wrist': [-5, 0]}}
    with pytest.raises(InputError, match=r'moments of video.wrist are \[-5, 0\], the server wants \[-3, 0\]'):
        run_with(DROID, observation=observation)
    with pytest.raises(InputError, match='which is neither a picture nor a vector'):
        run_with(DROID, observation={**observation, 'moments': {'video.nowhere': [-3, 0]}})


def test_whoever_keeps_no_moments_is_told() -> None:
    with FaultyZmq(lambda question: groot_answer(question, GOOD, video=DROID)) as serving:
        policy = policy_of('groot', serving.url)
        assert policy.spec.moments == (-3,)
        with pytest.raises(InputError, match=r'video\.exterior is to show control step -3'):
            ask(policy)
        with pytest.raises(InputError, match='a platform shows the present alone'):
            policy_spec_from_map(spec_to_map(policy.spec))
        policy.close()
