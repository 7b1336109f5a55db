"""A vision-language model as a predictor: the prompt for a moment, the answer parsed or invalid."""

from __future__ import annotations

import ast
import functools
import itertools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.formats.dataset import RecordedObservation
from robotrials.formats.space import ActionSpace, FloatArray
from robotrials.formats.video import EncodedImage, encode_image
from robotrials.measure.actions.prediction import (
    Invalid,
    InvalidReason,
    Prediction,
    PredictorContext,
    eight_bit,
    primary_image,
    with_float_images,
)
from robotrials.measure.actions.split import ActionStatistics, check_no_leak
from robotrials.wire.chat import ChatClient, ChatImage, ChatMessage, ChatReply, ChatSettings, ReplyState, Usage

# The prompt that asks a vision-language model for an action (MultiNet section 4.1).

MOST_NUMBERS = 256  # of one observation: more are no proprioception, and would drown the rest


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system text, and a user message of texts and images in order."""

    system: str
    parts: tuple[str | ChatImage, ...]

    @property
    def text(self) -> str:
        """The prompt for people: images as a word."""
        pieces = [p if isinstance(p, str) else f'<{p.media_type}, {len(p.data)} bytes>' for p in self.parts]
        return '\n\n'.join([self.system, *pieces])


@dataclass(frozen=True, slots=True, eq=False)
class WorkedExample:
    """A worked example for a k-shot prompt; it has to come from a training episode."""

    episode_id: str
    observation: RecordedObservation
    instruction: str
    action: FloatArray


def build_prompt(
    observation: RecordedObservation,
    instruction: str,
    *,
    space: ActionSpace,
    statistics: ActionStatistics | None = None,
    environment: str = '',
    task: str = '',
    shots: Sequence[WorkedExample] = (),
    image: str | None = None,
    digits: int = 4,
) -> Prompt:
    """The prompt for one timestep.

    It holds the floating-point observations by name, the primary image (or `image`), the instruction, each action
    dimension in words with its range and its training minimum, maximum and mean, the environment and task where given,
    and worked examples. What is unknown is left out; no number is made up.
    """
    if statistics is not None and statistics.size != space.size:
        raise InputError(f'statistics of {statistics.size} dimensions for an action space of {space.size}')
    parts: list[str | ChatImage] = []
    described = [f'Environment: {environment}'] if environment else []
    described += [f'Task: {task}'] if task else []
    if described:
        parts.append('\n'.join(described))
    parts.append(_space_text(space, statistics, digits))
    for number, shot in enumerate(shots, start=1):
        parts += _situation(shot.observation, shot.instruction, image, digits, title=f'Example {number}')
        parts.append(f'Action: [{", ".join(_prompt_number(v, digits) for v in np.asarray(shot.action).tolist())}]')
    parts += _situation(observation, instruction, image, digits, title='Now' if shots else '')
    parts.append(
        f'Answer with the action alone: one list of {space.size} numbers in square brackets, and no other text.'
    )
    return Prompt('You control a robot. You are shown one moment and name the next action.', tuple(parts))


def check_shots(shots: Sequence[WorkedExample], evaluated: Sequence[str], statistics: ActionStatistics | None) -> None:
    """Refuse worked examples or statistics that come from an evaluated episode."""
    leaked = sorted({s.episode_id for s in shots} & set(evaluated))
    if leaked:
        raise InputError(f'the worked example from {leaked[0]} is of an evaluated episode; take training episodes')
    if statistics is not None:
        check_no_leak(statistics, evaluated)


def _space_text(space: ActionSpace, statistics: ActionStatistics | None, digits: int) -> str:
    lines = [f'The action is a list of {space.size} numbers:']
    for i, d in enumerate(space.dimensions):
        line = f'{i + 1}. {d.name}' + (f': {d.description}' if d.description != d.name else '')
        if d.low is not None and d.high is not None:
            line += f'; from {_prompt_number(d.low, digits)} to {_prompt_number(d.high, digits)}'
        if statistics is not None:
            ends = (statistics.minimum[i], statistics.maximum[i], statistics.mean[i])
            line += '; in training: min {}, max {}, mean {}'.format(*(_prompt_number(v, digits) for v in ends))
        lines.append(line)
    return '\n'.join(lines)


def _situation(
    observation: RecordedObservation, instruction: str, image: str | None, digits: int, *, title: str
) -> list[str | ChatImage]:
    observation = with_float_images(observation)
    lines = [f'{title}:'] if title else []
    if instruction:
        lines.append(f'Instruction: {instruction}')
    if observation.state:
        lines.append('Observation:')
        lines += [f'- {name}: {_numbers(observation.state[name], digits)}' for name in sorted(observation.state)]
    parts: list[str | ChatImage] = ['\n'.join(lines)] if lines else []
    chosen = image or primary_image(observation)
    if chosen is not None:
        parts.append(_prompt_image(observation, chosen))
    return parts


def _prompt_image(observation: RecordedObservation, name: str) -> ChatImage:
    recorded = observation.images.get(name)
    if isinstance(recorded, EncodedImage) and recorded.dtype == 'uint8':
        return ChatImage(recorded.data, recorded.media_type)
    pixels = observation.image(name)
    return ChatImage(encode_image(eight_bit(pixels) if pixels.dtype.kind == 'f' else pixels), 'image/png')


def _numbers(values: FloatArray, digits: int) -> str:
    flat = np.asarray(values).ravel()
    if flat.size > MOST_NUMBERS:
        return f'{flat.size} numbers, not shown'
    return f'[{", ".join(_prompt_number(v, digits) for v in flat.tolist())}]'


def _prompt_number(value: float, digits: int) -> str:
    return f'{value:.{digits}g}'


# An answer in words as an action, or the reason why it is none (MultiNet section 4.1).

LONGEST_ANSWER = 20_000
FENCE = re.compile(r'^```[\w-]*\s*\n?(.*?)\n?\s*```$', re.DOTALL)
LIST = re.compile(r'\[[^\[\]]*\]')


def parse_action(text: str, size: int, *, lenient: bool = False) -> Prediction:
    """The action of `size` numbers that `text` states, or `Invalid`.

    The whole answer has to be one list of numbers (a code fence around it is no text). `lenient` also takes the only
    list of numbers inside other text; the paper does not.
    """
    stripped = text.strip()
    if not stripped:
        return Invalid(InvalidReason.EMPTY)
    if len(stripped) > LONGEST_ANSWER:
        return Invalid(InvalidReason.MIXED_TEXT, f'{len(stripped)} characters')
    fenced = FENCE.match(stripped)
    body = fenced[1].strip() if fenced else stripped
    if body.startswith('[') and body.endswith(']'):
        return _from_list(body, size)
    inside = LIST.findall(body)
    if lenient and len(inside) == 1:
        return _from_list(inside[0], size)
    if inside:
        return Invalid(InvalidReason.MIXED_TEXT, _shortened(body))
    return Invalid(InvalidReason.NO_LIST, _shortened(body))


def _from_list(body: str, size: int) -> Prediction:
    values = _literal(body)
    if values is None:
        nested = body[1:].lstrip().startswith('[')
        several = InvalidReason.NOT_SCALAR if nested else InvalidReason.MIXED_TEXT
        return Invalid(several if body.count('[') > 1 else InvalidReason.TEXT_ELEMENT, _shortened(body))
    for value in values:
        fault = _fault(value)
        if fault is not None:
            return Invalid(fault, _shortened(repr(value)))
    if len(values) != size:
        return Invalid(InvalidReason.WRONG_SIZE, f'{len(values)} numbers, wanted {size}')
    return np.array([float(v) for v in values])


def _literal(body: str) -> list[Any] | None:
    try:
        parsed = json.loads(body)
    except (json.JSONDecodeError, RecursionError):
        try:
            # Also 1. and .5 and a trailing comma, which JSON does not know.
            parsed = ast.literal_eval(body)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    return parsed if isinstance(parsed, list) else None


def _fault(value: Any) -> InvalidReason | None:
    if isinstance(value, str):
        return InvalidReason.TEXT_ELEMENT
    if isinstance(value, bool) or not isinstance(value, int | float):
        return InvalidReason.NOT_SCALAR
    try:
        return None if math.isfinite(float(value)) else InvalidReason.NOT_FINITE
    except OverflowError:
        return InvalidReason.NOT_FINITE


def _shortened(text: str, most: int = 80) -> str:
    flat = ' '.join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + '…'


# A prompt put to a chat model, and its reply as text or as the named reason why there is none.

REASONS = {
    ReplyState.REFUSED: InvalidReason.REFUSED,
    ReplyState.FILTERED: InvalidReason.CONTENT_FILTER,
    ReplyState.EMPTY: InvalidReason.EMPTY,
}


def prompt_messages(prompt: Prompt) -> tuple[ChatMessage, ...]:
    """The messages of a prompt."""
    return ChatMessage('system', (prompt.system,)), ChatMessage('user', prompt.parts)


def ask_action(client: ChatClient, prompt: Prompt, *, size: int, lenient: bool = False) -> Prediction:
    """The action that the model states, or why it states none; ChatFault where the way to the model broke."""
    return action_of(client.ask(prompt_messages(prompt)), size=size, lenient=lenient)


def action_of(reply: ChatReply, *, size: int, lenient: bool = False) -> Prediction:
    """The action of a reply. An answer that was cut off counts if it is a whole action all the same."""
    if reply.state in REASONS:
        return Invalid(REASONS[reply.state], reply.detail[:80])
    action = parse_action(reply.text, size, lenient=lenient)
    if reply.state is ReplyState.CUT_OFF and isinstance(action, Invalid):
        return Invalid(InvalidReason.CUT_OFF, action.detail)
    return action


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
        shots: Sequence[WorkedExample] = (),
        image: str | None = None,
        lenient: bool = False,
        concurrency: int = 4,
        name: str = '',
    ) -> None:
        self.name, self.concurrency = name or client.settings.model, concurrency
        self._client, self._size, self._lenient = client, space.size, lenient
        self._prompt = functools.partial(
            build_prompt, space=space, statistics=statistics, environment=environment, task=task, shots=tuple(shots),
            image=image,
        )  # fmt: skip

    @property
    def usage(self) -> Usage:
        return self._client.usage

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        prompt = self._prompt(observation, instruction)
        return ask_action(self._client, prompt, size=self._size, lenient=self._lenient)


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


def take_shots(context: PredictorContext, count: int) -> list[WorkedExample]:
    """One moment from each of the first training episodes, at a seeded place."""
    rng = np.random.default_rng(context.seed)
    shots = []
    for episode in itertools.islice(context.training(), count):
        step = int(rng.integers(episode.n_steps))
        shots.append(
            WorkedExample(
                episode.episode_id, episode.observation(step), episode.instruction(step), episode.actions[step]
            )
        )
    if len(shots) < count:
        raise InputError(f'{count} worked examples asked for, the training split has {len(shots)} episodes')
    check_shots(shots, sorted(context.evaluated_ids), context.statistics)
    return shots
