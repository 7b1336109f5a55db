"""A vision-language model as a predictor: a prompt for each moment, an answer parsed or invalid."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trialist.actions.endpoint import ChatEndpoint, EndpointSettings, Usage
from trialist.actions.parse import parse_action
from trialist.actions.prediction import Prediction
from trialist.actions.predictor import PredictorContext
from trialist.actions.prompt import Shot, build_prompt, check_shots
from trialist.actions.statistic import ActionStatistics
from trialist.errors import InputError
from trialist.formats.dataset import Observation
from trialist.formats.space import ActionSpace


class VlmPredictor:
    """Asks a chat model at every moment, without memory of earlier ones."""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        *,
        space: ActionSpace,
        statistics: ActionStatistics | None = None,
        environment: str = '',
        task: str = '',
        shots: Sequence[Shot] = (),
        image: str | None = None,
        lenient: bool = False,
        concurrency: int = 4,
        name: str = '',
    ) -> None:
        self._endpoint = endpoint
        self._space = space
        self._statistics = statistics
        self._environment = environment
        self._task = task
        self._shots = tuple(shots)
        self._image = image
        self._lenient = lenient
        self._concurrency = concurrency
        self._name = name or endpoint.settings.model

    @property
    def name(self) -> str:
        return self._name

    @property
    def concurrency(self) -> int:
        return self._concurrency

    @property
    def usage(self) -> Usage:
        return self._endpoint.usage

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: Observation, instruction: str) -> Prediction:
        prompt = build_prompt(
            observation, instruction, space=self._space, statistics=self._statistics, environment=self._environment,
            task=self._task, shots=self._shots, image=self._image,
        )  # fmt: skip
        return parse_action(self._endpoint.ask(prompt), self._space.size, lenient=self._lenient)


def make_vlm(context: PredictorContext) -> VlmPredictor:
    """Options: url and model (required); key_env, cache, concurrency, rpm, retries, timeout, shots, image, environment,
    task, lenient, name, prompt_price, completion_price (a million tokens).
    """
    o = context.option
    known = {
        'url', 'model', 'key_env', 'cache', 'concurrency', 'rpm', 'retries', 'timeout', 'shots', 'image', 'environment',
        'task', 'lenient', 'name', 'prompt_price', 'completion_price',
    }  # fmt: skip
    unknown = sorted(set(context.options) - known)
    if unknown:
        raise InputError(f'vlm knows no option {unknown[0]!r}; known: {", ".join(sorted(known))}')
    settings = EndpointSettings(
        url=o('url'),
        model=o('model'),
        api_key=os.environ.get(o('key_env', 'OPENAI_API_KEY'), ''),
        timeout_s=float(o('timeout', '60')),
        retries=int(o('retries', '5')),
        requests_per_minute=float(o('rpm')) if 'rpm' in context.options else None,
        cache=Path(o('cache')) if 'cache' in context.options else None,
        prompt_price=float(o('prompt_price')) if 'prompt_price' in context.options else None,
        completion_price=float(o('completion_price')) if 'completion_price' in context.options else None,
    )
    shots = take_shots(context, int(o('shots', '0')))
    return VlmPredictor(
        ChatEndpoint(settings), space=context.space, statistics=context.statistics, environment=o('environment', ''),
        task=o('task', ''), shots=shots, image=o('image', '') or None,
        lenient=o('lenient', 'no') in ('yes', 'true', '1'), concurrency=int(o('concurrency', '4')), name=o('name', ''),
    )  # fmt: skip


def take_shots(context: PredictorContext, count: int) -> list[Shot]:
    """One moment from each of the first training episodes, at a seeded place."""
    rng = np.random.default_rng(context.seed)
    shots = []
    for episode in itertools.islice(context.training(), count):
        step = int(rng.integers(episode.n_steps))
        shots.append(
            Shot(episode.episode_id, episode.observation(step), episode.instruction(step), episode.actions[step])
        )
    if len(shots) < count:
        raise InputError(f'{count} worked examples asked for, the training split has {len(shots)} episodes')
    check_shots(shots, sorted(context.evaluated_ids), context.statistics)
    return shots
