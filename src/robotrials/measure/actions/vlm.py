"""A vision-language model as a predictor: a prompt for each moment, an answer parsed or invalid."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from robotrials.errors import InputError
from robotrials.formats.dataset import RecordedObservation
from robotrials.formats.space import ActionSpace
from robotrials.measure.actions.endpoint import ask_action
from robotrials.measure.actions.prediction import Prediction
from robotrials.measure.actions.predictor import PredictorContext
from robotrials.measure.actions.prompt import Shot, build_prompt, check_shots
from robotrials.measure.actions.statistic import ActionStatistics
from robotrials.wire.chat import ChatClient, ChatSettings, Usage

NONE = 'none'


class VlmPredictor:
    """Asks a chat model at every moment, without memory of earlier ones."""

    def __init__(
        self,
        client: ChatClient,
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
        self._client = client
        self._space = space
        self._statistics = statistics
        self._environment = environment
        self._task = task
        self._shots = tuple(shots)
        self._image = image
        self._lenient = lenient
        self._concurrency = concurrency
        self._name = name or client.settings.model

    @property
    def name(self) -> str:
        return self._name

    @property
    def concurrency(self) -> int:
        return self._concurrency

    @property
    def usage(self) -> Usage:
        return self._client.usage

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        prompt = build_prompt(
            observation, instruction, space=self._space, statistics=self._statistics, environment=self._environment,
            task=self._task, shots=self._shots, image=self._image,
        )  # fmt: skip
        return ask_action(self._client, prompt, size=self._space.size, lenient=self._lenient)


OPTIONS = (
    'url', 'model', 'key_env', 'cache', 'concurrency', 'rpm', 'retries', 'timeout', 'shots', 'image', 'environment',
    'task', 'lenient', 'name', 'prompt_price', 'completion_price', 'token_limit', 'token_limit_name', 'temperature',
    'image_detail', 'system', 'system_role',
)  # fmt: skip


def make_vlm(context: PredictorContext) -> VlmPredictor:
    """Options: url and model (required); key_env, cache, concurrency, rpm, retries, timeout, shots, image, environment,
    task, lenient, name, prompt_price, completion_price (a million tokens); and of the request token_limit (none: no
    limit), token_limit_name (max_tokens or max_completion_tokens), temperature (none: not sent), image_detail (auto,
    low, high), system (another system text; empty: none) and system_role (system or developer).
    """
    o = context.option
    unknown = sorted(set(context.options) - set(OPTIONS))
    if unknown:
        raise InputError(f'vlm knows no option {unknown[0]!r}; known: {", ".join(sorted(OPTIONS))}')
    shots = take_shots(context, _whole('shots', o('shots', '0')))
    return VlmPredictor(
        ChatClient(chat_settings(context.options)), space=context.space, statistics=context.statistics,
        environment=o('environment', ''), task=o('task', ''), shots=shots, image=o('image', '') or None,
        lenient=o('lenient', 'no') in ('yes', 'true', '1'), concurrency=_whole('concurrency', o('concurrency', '4')),
        name=o('name', ''),
    )  # fmt: skip


def chat_settings(options: Mapping[str, str]) -> ChatSettings:
    """How to ask the model, from options in words."""
    for name in ('url', 'model'):
        if name not in options:
            raise InputError(f'the predictor needs {name}=...; found the options {sorted(options) or "none"}')

    def number(name: str, default: str = NONE) -> float | None:
        text = options.get(name, default)
        return None if text == NONE else _number(name, text)

    limit = number('token_limit', '256')
    return ChatSettings(
        url=options['url'], model=options['model'],
        api_key=os.environ.get(options.get('key_env', 'OPENAI_API_KEY'), ''),
        timeout_s=_number('timeout', options.get('timeout', '60')),
        retries=_whole('retries', options.get('retries', '5')),
        requests_per_minute=number('rpm'), cache=Path(options['cache']) if 'cache' in options else None,
        prompt_price=number('prompt_price'), completion_price=number('completion_price'),
        token_limit=None if limit is None else int(limit), temperature=number('temperature', '0'),
        token_limit_name=options.get('token_limit_name', 'max_tokens'), image_detail=options.get('image_detail', ''),
        system=options.get('system'), system_role=options.get('system_role', 'system'),
    )  # fmt: skip


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f'{name} is {text!r}, wanted a number') from None


def _whole(name: str, text: str) -> int:
    if not text.isdigit():
        raise InputError(f'{name} is {text!r}, wanted a whole number')
    return int(text)


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
