"""An action space: what each number of an action means.

The statistics that policies normalise by: one value, and how openpi, OpenVLA and LeRobot spell it.

openpi: `norm_stats.json`, {"norm_stats": {"state", "actions"}}. OpenVLA: `dataset_statistics.json`, {DATASET:
{"action", "proprio", "num_transitions", "num_trajectories"}}, with a mask of what is normalised. LeRobot:
`meta/stats.json`, {"observation.state", "action", ...}.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    action: Mapping[str, Any] | NDArray[Any], *, floating_only: bool = False
) -> tuple[FloatArray, ActionSpace]:
    """An action recorded as a dictionary of columns (T, ...) as one (T, D) array: keys sorted, then row-major.

    `floating_only` leaves out booleans and integers, as MultiNet does (section 4.1); Bridge's gripper is a boolean.
    """
    columns: list[NDArray[Any]] = []
    names: list[str] = []
    for key, leaf in _sorted_leaves(action, '' if isinstance(action, Mapping) else 'action'):
        if leaf.dtype.kind not in ('f' if floating_only else 'fiub'):
            continue
        flat = leaf.reshape(len(leaf), -1)
        columns.append(flat.astype(np.float64))
        names += [key] if leaf.ndim == 1 or flat.shape[1] == 1 else [f'{key}[{i}]' for i in range(flat.shape[1])]
    if not columns:
        kind = 'floating-point ' if floating_only else 'numeric '
        leaves = ', '.join(f'{key or "action"} ({leaf.dtype})' for key, leaf in _sorted_leaves(action, ''))
        raise InputError(f'action: no {kind}part in it; found {leaves or "nothing"}')
    return np.concatenate(columns, axis=1), ActionSpace.from_names(names)


def _sorted_leaves(action: Any, prefix: str) -> list[tuple[str, NDArray[Any]]]:
    if not isinstance(action, Mapping):
        return [(prefix, np.asarray(action))]
    leaves = []
    for key in sorted(action):
        leaves += _sorted_leaves(action[key], f'{prefix}/{key}' if prefix else key)
    return leaves


NUMBERS = ('mean', 'std', 'min', 'max', 'q01', 'q99')
STATE_KEYS = ('state', 'proprio', 'observation.state')
ACTION_KEYS = ('actions', 'action')
COUNTS = ('num_transitions', 'num_trajectories')


@dataclass(frozen=True, slots=True)
class VectorStatistics:
    """Numbers per dimension; what a file does not give is absent."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    min: tuple[float, ...] = ()
    max: tuple[float, ...] = ()
    q01: tuple[float, ...] = ()
    q99: tuple[float, ...] = ()
    mask: tuple[bool, ...] = ()  # False: this dimension is not normalised, such as a gripper's

    def given(self) -> dict[str, list[float]]:
        """The numbers that are there."""
        return {name: list(getattr(self, name)) for name in NUMBERS if getattr(self, name)}


@dataclass(frozen=True, slots=True)
class NormStats:
    """Statistics of what goes into a policy and of what comes out of it."""

    vectors: Mapping[str, VectorStatistics]  # 'state', 'action', and a file's other features by their names
    dataset: str = ''
    counts: Mapping[str, int] = field(default_factory=dict)

    def vector(self, key: str, *, where: str) -> VectorStatistics:
        """The statistics under any of its names: `actions` and `action` are the same."""
        name = _common_name(key)
        if name not in self.vectors:
            raise InputError(f'{where}: no statistics of {key!r}; it has {", ".join(self.vectors) or "none"}')
        return self.vectors[name]


def read_norm_stats(path: Path, *, dataset: str = '') -> NormStats:
    """A statistics file of openpi, OpenVLA or LeRobot; `dataset` chooses one of several in a file of OpenVLA's."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise InputError(f'{path}: no file of statistics ({error})') from error
    return norm_stats_of(content, where=str(path), dataset=dataset)


def norm_stats_of(content: Any, *, where: str, dataset: str = '') -> NormStats:
    """The same from parsed JSON."""
    tables = content.get('norm_stats', content) if isinstance(content, dict) else None
    if not isinstance(tables, dict) or not tables:
        raise InputError(f'{where}: no file of statistics: wanted a JSON object as openpi, OpenVLA or LeRobot write it')
    name = ''
    if not any(_is_vector(value) for value in tables.values()):
        inside = {k: v for k, v in tables.items() if isinstance(v, dict) and any(map(_is_vector, v.values()))}
        if not inside:
            raise InputError(f'{where}: no statistics in it; wanted mean and std, or q01 and q99, for each feature')
        if dataset and dataset not in inside:
            raise UnknownName(f'dataset in {where}', dataset, inside)
        if len(inside) > 1 and not dataset:
            raise InputError(f'{where}: statistics of {", ".join(inside)}; wanted one: choose a dataset by its name')
        name = dataset or next(iter(inside))
        tables = inside[name]
    vectors = {
        _common_name(key): _vector(value, where=f'{where}: {key}') for key, value in tables.items() if _is_vector(value)
    }
    counts = {key: int(tables[key]) for key in COUNTS if isinstance(tables.get(key), int)}
    return NormStats(vectors, name, counts)


def _common_name(key: str) -> str:
    return 'state' if key in STATE_KEYS else 'action' if key in ACTION_KEYS else key


def _is_vector(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(name), list) for name in NUMBERS)


def _vector(value: Mapping[str, Any], *, where: str) -> VectorStatistics:
    try:
        numbers = {name: _flat(value[name]) for name in NUMBERS if value.get(name) is not None}
        mask = tuple(bool(m) for m in value.get('mask') or ())
    except (TypeError, ValueError) as error:
        raise InputError(f'{where}: wanted lists of numbers ({error})') from error
    lengths = {len(v) for v in (*numbers.values(), mask) if v}
    if len(lengths) > 1:
        raise InputError(f'{where}: {min(lengths)} and {max(lengths)} numbers; wanted one for each dimension')
    return VectorStatistics(**numbers, mask=mask)


def _flat(values: Any) -> tuple[float, ...]:
    """Pictures have a number per channel, in nested lists."""
    if isinstance(values, list):
        return tuple(number for value in values for number in _flat(value))
    return (float(values),)


def to_openpi(stats: NormStats) -> dict[str, Any]:
    """The content of `norm_stats.json`: state and actions, mean, std and what quantiles there are."""
    parts = {}
    for name, spelled in (('state', 'state'), ('action', 'actions')):
        if name in stats.vectors:
            given = stats.vectors[name].given()
            parts[spelled] = {key: given[key] for key in ('mean', 'std', 'q01', 'q99') if key in given}
    return {'norm_stats': parts}


def to_openvla(stats: NormStats) -> dict[str, Any]:
    """The content of `dataset_statistics.json`; without a mask every dimension is normalised."""
    parts: dict[str, Any] = {}
    for name, spelled in (('action', 'action'), ('state', 'proprio')):
        if name in stats.vectors:
            vector = stats.vectors[name]
            given = vector.given()
            width = len(next(iter(given.values()), []))
            parts[spelled] = {**given, **({'mask': list(vector.mask) or [True] * width} if name == 'action' else {})}
    return {stats.dataset or 'robotrials': {**parts, **stats.counts}}


def to_lerobot(stats: NormStats) -> dict[str, Any]:
    """The content of `meta/stats.json`; LeRobot knows no mask."""
    spelled = {'state': 'observation.state'}
    return {spelled.get(name, name): vector.given() for name, vector in stats.vectors.items()}


SPELLINGS: Mapping[str, Callable[[NormStats], dict[str, Any]]] = {
    'openpi': to_openpi, 'openvla': to_openvla, 'lerobot': to_lerobot,
}  # fmt: skip


def spell(stats: NormStats, name: str) -> dict[str, Any]:
    """The content of a file that `name` reads; a mask that it cannot say is refused, never lost."""
    if name not in SPELLINGS:
        raise UnknownName('spelling of statistics', name, SPELLINGS)
    if name != 'openvla' and not all(all(vector.mask) for vector in stats.vectors.values()):
        raise InputError(
            f'{name} normalises every dimension, and these statistics leave some alone (mask); nothing was written'
        )
    return SPELLINGS[name](stats)
