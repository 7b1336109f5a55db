"""An action space: what each number of an action means."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName

FloatArray = NDArray[np.floating[Any]]


class DimensionKind(enum.StrEnum):
    POSITION = 'position'
    ANGLE = 'angle'
    QUATERNION = 'quaternion'
    VELOCITY = 'velocity'
    ANGULAR_VELOCITY = 'angular_velocity'
    TORQUE = 'torque'
    GRIPPER = 'gripper'
    TERMINATE = 'terminate'
    COEFFICIENT = 'coefficient'  # gains and damping ratios of a controller
    UNKNOWN = 'unknown'


@dataclass(frozen=True, slots=True)
class Dimension:
    """One number of an action. An unknown end of its range is None, an unknown unit or meaning is empty."""

    name: str
    kind: DimensionKind = DimensionKind.UNKNOWN
    unit: str = ''
    low: float | None = None
    high: float | None = None
    meaning: str = ''

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError('a dimension of an action space needs a name')
        try:
            object.__setattr__(self, 'kind', DimensionKind(self.kind))
        except ValueError as error:
            raise UnknownName('kind of action dimension', self.kind, [k.value for k in DimensionKind]) from error
        for end in (self.low, self.high):
            if end is not None and not math.isfinite(end):
                raise InputError(f'the range of {self.name} must be finite or unknown (None), found {end}')
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise InputError(f'the range of {self.name} is {self.low} to {self.high}; wanted low < high')

    @property
    def description(self) -> str:
        """The dimension in words, for a prompt or a table."""
        words = self.meaning or (f'{self.kind.value.replace("_", " ")}' if self.kind != 'unknown' else self.name)
        return f'{words} in {self.unit}' if self.unit else words


@dataclass(frozen=True, slots=True)
class ActionSpace:
    """The dimensions of an action, in order."""

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        names = self.names
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise InputError(f'an action space names {", ".join(twice)} more than once')

    @classmethod
    def from_names(cls, names: Iterable[str]) -> ActionSpace:
        """A space whose kinds are guessed from the names, as `rotation_delta[0]`; what fits nothing is unknown."""
        return cls(tuple(Dimension(name, guess_kind(name)) for name in names))

    @property
    def size(self) -> int:
        return len(self.dimensions)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.dimensions)

    def indices(self, *kinds: DimensionKind) -> tuple[int, ...]:
        """Where the dimensions of these kinds are."""
        return tuple(i for i, d in enumerate(self.dimensions) if d.kind in kinds)

    def without(self, *kinds: DimensionKind) -> ActionSpace:
        return ActionSpace(tuple(d for d in self.dimensions if d.kind not in kinds))

    def select(self, indices: Sequence[int]) -> ActionSpace:
        return ActionSpace(tuple(self.dimensions[i] for i in indices))

    def with_ranges(self, low: FloatArray, high: FloatArray) -> ActionSpace:
        """The same space with ranges filled in where they were unknown and the two ends differ."""
        filled = []
        for d, a, b in zip(self.dimensions, np.asarray(low).tolist(), np.asarray(high).tolist(), strict=True):
            new_low, new_high = (a if d.low is None else d.low), (b if d.high is None else d.high)
            filled.append(dataclasses.replace(d, low=new_low, high=new_high) if new_low < new_high else d)
        return ActionSpace(tuple(filled))

    def ranges(self) -> tuple[FloatArray, FloatArray]:
        """Low and high of every dimension, (D,) each; raises where one is unknown."""
        unknown = [d.name for d in self.dimensions if d.low is None or d.high is None]
        if unknown:
            raise InputError(f'the range of {", ".join(unknown)} is unknown; give it in the action space')
        return np.array([d.low for d in self.dimensions]), np.array([d.high for d in self.dimensions])

    def as_json(self) -> list[dict[str, Any]]:
        rows = [{**dataclasses.asdict(d), 'kind': d.kind.value} for d in self.dimensions]
        return [{k: v for k, v in row.items() if v not in (None, '')} for row in rows]


def space_from_json(rows: Any, *, where: str) -> ActionSpace:
    """Parse what `as_json` wrote: a list of objects with name, kind, unit, low, high, meaning."""
    if not isinstance(rows, list):
        raise InputError(f'{where}: wanted a list of dimensions, found {type(rows).__name__}')
    known = {f.name for f in dataclasses.fields(Dimension)}
    dimensions = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or not set(row) <= known:
            raise InputError(
                f'{where}: dimension {number} is {row!r}, wanted an object with {", ".join(sorted(known))}'
            )
        try:
            dimensions.append(Dimension(**row))
        except (TypeError, InputError) as error:
            raise InputError(f'{where}: dimension {number}: {error}') from error
    return ActionSpace(tuple(dimensions))


def read_space(path: Path | str) -> ActionSpace:
    """An action space from a JSON file."""
    target = Path(path)
    try:
        return space_from_json(json.loads(target.read_text(encoding='utf-8')), where=str(target))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f'{target}: not readable as an action space ({error})') from error


KIND_PATTERNS: tuple[tuple[str, DimensionKind], ...] = (
    (r'terminat|\bterm\b', DimensionKind.TERMINATE),
    (r'torque|effort', DimensionKind.TORQUE),
    (r'grip|finger', DimensionKind.GRIPPER),
    (r'ang(ular)?[_ ]?vel|rot(ation)?_?vel', DimensionKind.ANGULAR_VELOCITY),
    (r'vel', DimensionKind.VELOCITY),
    (r'quat', DimensionKind.QUATERNION),
    (r'rot|ang|roll|pitch|yaw|rpy|euler|joint|orient', DimensionKind.ANGLE),
    (r'gain|damp|coeff', DimensionKind.COEFFICIENT),
    (r'world_vector|pos|trans|displacement|xyz|(^|[._])[xyz]($|\[)|waypoint', DimensionKind.POSITION),
)


def guess_kind(name: str) -> DimensionKind:
    """The kind that a dimension's name suggests."""
    for pattern, kind in KIND_PATTERNS:
        if re.search(pattern, name.lower()):
            return kind
    return DimensionKind.UNKNOWN


PAPER_WORDS: Mapping[str, DimensionKind] = {
    'pos': DimensionKind.POSITION, 'pose': DimensionKind.UNKNOWN, 'ang': DimensionKind.ANGLE,
    'quat': DimensionKind.QUATERNION, 'vel': DimensionKind.VELOCITY, 'ang vel': DimensionKind.ANGULAR_VELOCITY,
    'grip': DimensionKind.GRIPPER, 'grip torque': DimensionKind.TORQUE, 'term': DimensionKind.TERMINATE,
    'gain coeff': DimensionKind.COEFFICIENT, 'damping ratio coeff': DimensionKind.COEFFICIENT,
}  # fmt: skip


def parse_action_type(text: str) -> ActionSpace | None:
    """The space that MultiNet's tables write as `7D (3 pos, 3 ang, 1 grip)`; None where the table doesn't say.

    The tables list kinds, not the order of the numbers: use it to know a space's make-up, never to index an action.
    """
    match = re.fullmatch(r'(\d+)D(?: \((.+)\))?', text.strip())
    if match is None or match[2] is None or re.fullmatch(r'\d+ .+', match[2]) is None:
        return None
    dimensions: list[Dimension] = []
    for part in match[2].split(','):
        count, _, word = part.strip().partition(' ')
        word, _, place = word.partition(' for ')
        if not count.isdigit() or word not in PAPER_WORDS:
            return None
        stem = f'{place or ""} {word}'.strip().replace(' ', '_')
        dimensions += [Dimension(f'{stem}[{i}]', PAPER_WORDS[word]) for i in range(int(count))]
    if len(dimensions) != int(match[1]):
        raise InputError(f'{text!r} names {len(dimensions)} dimensions, and says {match[1]}')
    return ActionSpace(tuple(dimensions))


def flatten_action(
    action: Mapping[str, Any] | NDArray[Any], *, floating_only: bool = False, name: str = 'action'
) -> tuple[FloatArray, ActionSpace]:
    """An action recorded as a dictionary of columns (T, ...) as one (T, D) array: keys sorted, then row-major.

    `floating_only` leaves out booleans and integers, as MultiNet does (section 4.1); Bridge's gripper is a boolean.
    """
    columns: list[NDArray[Any]] = []
    names: list[str] = []
    for key, leaf in _sorted_leaves(action, '' if isinstance(action, Mapping) else name):
        if leaf.dtype.kind not in ('f' if floating_only else 'fiub'):
            continue
        flat = leaf.reshape(len(leaf), -1)
        columns.append(flat.astype(np.float64))
        names += [key] if leaf.ndim == 1 or flat.shape[1] == 1 else [f'{key}[{i}]' for i in range(flat.shape[1])]
    if not columns:
        kind = 'floating-point ' if floating_only else 'numeric '
        raise InputError(f'{name}: no {kind}part in it; found {_describe(action)}')
    return np.concatenate(columns, axis=1), ActionSpace.from_names(names)


def _sorted_leaves(action: Any, prefix: str) -> list[tuple[str, NDArray[Any]]]:
    if not isinstance(action, Mapping):
        return [(prefix, np.asarray(action))]
    leaves = []
    for key in sorted(action):
        leaves += _sorted_leaves(action[key], f'{prefix}/{key}' if prefix else key)
    return leaves


def _describe(action: Any) -> str:
    return ', '.join(f'{key or "action"} ({leaf.dtype})' for key, leaf in _sorted_leaves(action, '')) or 'nothing'
