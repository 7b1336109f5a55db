"""The prompt that asks a vision-language model for an action (MultiNet section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.formats.dataset import RecordedObservation
from robotrials.formats.image import EncodedImage, encode_image
from robotrials.formats.space import ActionSpace, FloatArray
from robotrials.measure.actions.statistic import ActionStatistics, check_no_leak
from robotrials.measure.actions.view import eight_bit, primary_image, with_float_images
from robotrials.wire.chat import ChatImage

MOST_NUMBERS = 256  # of one observation: more are no proprioception, and would drown the rest


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system text, and a user message of texts and images in order."""

    system: str
    parts: tuple[str | ChatImage, ...]

    @property
    def text(self) -> str:
        """The prompt for people: images as a word."""
        told = [p if isinstance(p, str) else f'<{p.media_type}, {len(p.data)} bytes>' for p in self.parts]
        return '\n\n'.join([self.system, *told])


@dataclass(frozen=True, slots=True, eq=False)
class Shot:
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
    shots: Sequence[Shot] = (),
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
        parts.append(f'Action: [{", ".join(_number(v, digits) for v in np.asarray(shot.action).tolist())}]')
    parts += _situation(observation, instruction, image, digits, title='Now' if shots else '')
    parts.append(
        f'Answer with the action alone: one list of {space.size} numbers in square brackets, and no other text.'
    )
    return Prompt('You control a robot. You are shown one moment and name the next action.', tuple(parts))


def check_shots(shots: Sequence[Shot], evaluated: Sequence[str], statistics: ActionStatistics | None) -> None:
    """Refuse worked examples or statistics that come from an evaluated episode."""
    leaked = sorted({s.episode_id for s in shots} & set(evaluated))
    if leaked:
        raise InputError(f'the worked example from {leaked[0]} is of an evaluated episode; take training episodes')
    if statistics is not None:
        check_no_leak(statistics, evaluated)


def _space_text(space: ActionSpace, statistics: ActionStatistics | None, digits: int) -> str:
    lines = [f'The action is a list of {space.size} numbers:']
    for i, d in enumerate(space.dimensions):
        told = f'{i + 1}. {d.name}' + (f': {d.description}' if d.description != d.name else '')
        if d.low is not None and d.high is not None:
            told += f'; from {_number(d.low, digits)} to {_number(d.high, digits)}'
        if statistics is not None:
            ends = (statistics.minimum[i], statistics.maximum[i], statistics.mean[i])
            told += '; in training: min {}, max {}, mean {}'.format(*(_number(v, digits) for v in ends))
        lines.append(told)
    return '\n'.join(lines)


def _situation(
    observation: RecordedObservation, instruction: str, image: str | None, digits: int, *, title: str
) -> list[str | ChatImage]:
    observation = with_float_images(observation)
    lines = [f'{title}:'] if title else []
    if instruction:
        lines.append(f'Instruction: {instruction}')
    if observation.state:
        lines.append('RecordedObservation:')
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
    return f'[{", ".join(_number(v, digits) for v in flat.tolist())}]'


def _number(value: float, digits: int) -> str:
    return f'{value:.{digits}g}'
