"""The statistics that policies normalise by: one value, and how openpi, OpenVLA and LeRobot spell it.

openpi: `norm_stats.json`, {"norm_stats": {"state", "actions"}}. OpenVLA: `dataset_statistics.json`, {DATASET:
{"action", "proprio", "num_transitions", "num_trajectories"}}, with a mask of what is normalised. LeRobot:
`meta/stats.json`, {"observation.state", "action", ...}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, UnknownName

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
