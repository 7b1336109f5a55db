"""Which features a store has as a LeRobotDataset: what all its episodes share, and what is left out and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.export import check_some
from robotrials.formats.imported import Ledger
from robotrials.formats.lerobot_frame import StoredSignal
from robotrials.formats.rollout import EE_NAMES, GRIPPER_NAME
from robotrials.old_name import LEROBOT_PREFIX
from robotrials.record import Episode, Trajectory
from robotrials.record.column import recorded_signals

# Statistics of a dataset's features, as LeRobot and openpi keep them: min, max, mean, std, count and quantiles.
# Per episode, quantiles are exact. Over the dataset they come from histograms of 5,000 bins between the known
# extremes, so that memory does not grow with the data; they are right to a 5,000th of the range.

QUANTILES = {'q01': 0.01, 'q10': 0.10, 'q50': 0.50, 'q90': 0.90, 'q99': 0.99}
BINS = 5000


def episode_statistics(values: Array) -> dict[str, list[float]]:
    """The statistics of one vector feature (T, K), of its finite numbers; a component that has none is NaN."""
    rows = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    known = ~np.isnan(rows).all(axis=0)
    stats: dict[str, Array] = {
        name: np.full(rows.shape[1], np.nan) for name in ('min', 'max', 'mean', 'std', *QUANTILES)
    }
    if known.any():
        some = rows[:, known]
        for name, function in (('min', np.nanmin), ('max', np.nanmax), ('mean', np.nanmean), ('std', np.nanstd)):
            stats[name][known] = function(some, axis=0)
        levels = np.nanquantile(some, list(QUANTILES.values()), axis=0)
        for level, name in enumerate(QUANTILES):
            stats[name][known] = levels[level]
    return {**{name: value.tolist() for name, value in stats.items()}, 'count': [len(values)]}


def image_statistics(frames: Array) -> dict[str, Any]:
    """The statistics of sampled frames (N, height, width, 3) of uint8, by channel, in 0..1 and shaped (3, 1, 1)."""
    flat = frames.reshape(-1, frames.shape[-1]) / 255.0
    stats = episode_statistics(flat)
    shaped = {name: [[[v]] for v in values] for name, values in stats.items() if name != 'count'}
    return {**shaped, 'count': [len(frames)]}


@dataclass(slots=True)
class Extremes:
    """The least and greatest of each number of a feature."""

    low: Array | None = None
    high: Array | None = None

    def add(self, values: Array) -> None:
        finite = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
        low, high = np.fmin.reduce(finite, axis=0), np.fmax.reduce(finite, axis=0)
        self.low = low if self.low is None else np.fmin(self.low, low)
        self.high = high if self.high is None else np.fmax(self.high, high)


@dataclass(slots=True)
class Running:
    """Statistics of one feature over all episodes, given its extremes."""

    low: Array
    high: Array
    count: int = 0
    total: Array = field(init=False)
    squares: Array = field(init=False)
    histogram: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.low = np.nan_to_num(np.atleast_1d(self.low))
        self.high = np.nan_to_num(np.atleast_1d(self.high))
        size = len(self.low)
        self.total, self.squares = np.zeros(size), np.zeros(size)
        self.histogram = np.zeros((size, BINS), dtype=np.int64)

    def add(self, values: Array) -> None:
        """Take in (T, K) more; numbers that are not finite are left out."""
        rows = values.astype(np.float64)
        middle = (self.low + self.high) / 2
        centred = np.where(np.isfinite(rows), rows - middle, 0.0)
        self.count += len(rows)
        self.total += centred.sum(axis=0)
        self.squares += (centred**2).sum(axis=0)
        span = np.where(self.high > self.low, self.high - self.low, 1.0)
        place = np.clip(((centred + middle - self.low) / span * BINS).astype(np.int64), 0, BINS - 1)
        for k in range(place.shape[1]):
            self.histogram[k] += np.bincount(place[:, k], minlength=BINS)

    def statistics(self) -> dict[str, list[float]]:
        mean = self.total / self.count
        std = np.sqrt(np.maximum(0.0, self.squares / self.count - mean**2))
        stats = {'min': self.low, 'max': self.high, 'mean': mean + (self.low + self.high) / 2, 'std': std}
        quantiles = {name: np.array([self._quantile(k, q) for k in range(len(mean))]) for name, q in QUANTILES.items()}
        listed = {name: value.tolist() for name, value in {**stats, **quantiles}.items()}
        return {**listed, 'count': [self.count]}

    def _quantile(self, k: int, level: float) -> float:
        counts = np.cumsum(self.histogram[k])
        target = level * counts[-1]
        at = int(np.searchsorted(counts, target))
        before = counts[at - 1] if at else 0
        share = (target - before) / max(1, counts[at] - before)
        return float(self.low[k] + (at + share) / BINS * (self.high[k] - self.low[k]))


STATE, ACTION = 'observation.state', 'action'
STATE_SIGNALS = ('ee_pose', 'joint_position_rad', 'gripper_position')
ACTION_SIGNALS = ('action_raw', 'action_processed')
NEXT = {
    'reward': ('next.reward', 'float32'), 'done': ('next.done', 'bool'), 'extra/next.success': ('next.success', 'bool')
}  # fmt: skip
RATE_TOLERANCE = 1e-3
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One feature with numbers, and the signals it is made of."""

    key: str
    dtype: str
    names: tuple[str, ...]
    signals: tuple[str, ...]

    def values(self, signals: Mapping[str, Array]) -> Array:
        """(T, K)"""
        parts = [np.asarray(signals[name]).reshape(len(signals[name]), -1) for name in self.signals]
        return np.concatenate(parts, axis=1).astype(self.dtype)

    def feature(self) -> dict[str, Any]:
        return {'dtype': self.dtype, 'shape': [len(self.names)], 'names': list(self.names)}


@dataclass(frozen=True, slots=True)
class Plan:
    """The features of the dataset to be written."""

    fps: float
    columns: tuple[Column, ...]
    stored: tuple[StoredSignal, ...]
    cameras: Mapping[str, tuple[int, int]]  # name -> (height, width)
    extremes: Mapping[str, Extremes]
    n_episodes: int


@dataclass(slots=True)
class _Survey:
    episodes: int = 0
    shapes: dict[str, set[tuple[int, str, int]]] = field(default_factory=dict)  # (width, dtype, rank)
    counts: dict[str, int] = field(default_factory=dict)
    cameras: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    camera_counts: dict[str, int] = field(default_factory=dict)
    films: dict[str, float] = field(default_factory=dict)  # camera -> the smallest share of steps it shows
    rates: list[float] = field(default_factory=list)
    extremes: dict[str, Extremes] = field(default_factory=dict)
    jitter_s: float = 0.0

    def add(self, trajectory: Trajectory) -> None:
        self.episodes += 1
        for name, values in signals_of(trajectory).items():
            flat = np.asarray(values).reshape(len(values), -1)
            self.shapes.setdefault(name, set()).add((flat.shape[1], str(values.dtype), values.ndim))
            self.counts[name] = self.counts.get(name, 0) + 1
            if len(self.shapes[name]) == 1:
                self.extremes.setdefault(name, Extremes()).add(flat)
        for camera in trajectory.scene.cameras:
            if camera.video_steps:
                share = min(1.0, len(set(camera.video_steps) - {0}) / trajectory.n_steps)
                self.films[camera.name] = min(self.films.get(camera.name, 1.0), share)
            if camera.video:
                self.cameras.setdefault(camera.name, set()).add((camera.height_px, camera.width_px))
                self.camera_counts[camera.name] = self.camera_counts.get(camera.name, 0) + 1
        rate = trajectory.scene.control_rate_hz or _rate(trajectory.time_s)
        if rate is not None:
            self.rates.append(rate)
            regular = np.arange(trajectory.n_steps) / rate
            self.jitter_s = max(self.jitter_s, float(np.abs(trajectory.time_s - trajectory.time_s[0] - regular).max()))


def _rate(time_s: Array) -> float | None:
    return float(1.0 / np.median(np.diff(time_s))) if len(time_s) > 1 else None


def signals_of(trajectory: Trajectory) -> dict[str, Array]:
    """The recorded signals that have one row per step; contacts have none."""
    steps = trajectory.n_steps
    found = recorded_signals(trajectory)
    return {
        name: values
        for name, values in found.items()
        if len(values) == steps
        and not name.startswith(('contacts/', 'frame_hash/'))
        and name != 'joint_torque_limit_nm'
    }


def make_plan(rollouts: Iterable[tuple[Episode, Trajectory]], ledger: Ledger, *, rate_hz: float | None) -> Plan:
    """Look at every episode once, and decide."""
    survey = _Survey()
    has_contacts = False
    for _, trajectory in rollouts:
        survey.add(trajectory)
        has_contacts = has_contacts or trajectory.contacts is not None
    check_some(survey.episodes)
    if has_contacts:
        ledger.drop('contacts', None, why='as many per step as there are; LeRobot features have one shape')
    common = _common(survey, ledger)
    columns = _columns(common)
    stored = tuple(s for column in columns for s in _stored(column, common))
    rounded = [s.signal for s in stored if s.dtype == 'float64' and s.key in (STATE, ACTION, 'next.reward')]
    if rounded:
        ledger.drop(f'digits of {", ".join(rounded)}', None, why='LeRobot keeps them as float32')
    fps = _fps(survey, rate_hz)
    if survey.jitter_s > 1e-4:
        ledger.note(
            f'steps lie up to {survey.jitter_s * 1000:.1f} ms off the grid of {fps:g} Hz that LeRobot wants; the '
            f'recorded times are in {LEROBOT_PREFIX}time_s'
        )
    extremes = {c.key: _joined([survey.extremes[name] for name in c.signals]) for c in columns}
    return Plan(fps, columns, stored, _cameras(survey, ledger), extremes, survey.episodes)


def _common(survey: _Survey, ledger: Ledger) -> dict[str, tuple[int, str, int]]:
    common = {}
    for name, shapes in survey.shapes.items():
        if survey.counts[name] < survey.episodes:
            lacking = survey.episodes - survey.counts[name]
            ledger.drop(f'signal {name}', None, why=f'{lacking} of {survey.episodes} episodes lack it')
        elif len({width for width, _, _ in shapes}) > 1:
            widths = ' and '.join(str(w) for w in sorted({width for width, _, _ in shapes}))
            ledger.drop(f'signal {name}', None, why=f'of {widths} numbers in different episodes')
        else:
            common[name] = max(shapes)
            ledger.keep(f'signal {name}', None)
    return common


def _columns(common: Mapping[str, tuple[int, str, int]]) -> tuple[Column, ...]:
    columns: list[Column] = []
    used: set[str] = set()
    state = [name for name in STATE_SIGNALS if name in common]
    if state and f'extra/{STATE}' not in common:
        names = [part for name in state for part in _part_names(name, common[name][0])]
        columns.append(Column(STATE, 'float32', tuple(names), tuple(state)))
        used.update(state)
    action = next((name for name in ACTION_SIGNALS if name in common), None)
    if action is not None:
        columns.append(Column(ACTION, 'float32', _part_names(action, common[action][0]), (action,)))
        used.add(action)
    for name, (width, dtype, _) in common.items():
        if name in NEXT and width == 1:
            columns.append(Column(*NEXT[name], (NEXT[name][0],), (name,)))
        elif name not in used:
            columns.append(Column(_key(name, columns), _dtype(dtype), _part_names(name, width), (name,)))
    return tuple(columns)


def _key(signal: str, taken: Iterable[Column]) -> str:
    """A signal that came from a LeRobotDataset gets its feature's name back; LeRobot allows no slash in a name."""
    own = signal.removeprefix('extra/')
    if signal.startswith('extra/observation.') and '%' not in own and own not in {c.key for c in taken}:
        return own
    return LEROBOT_PREFIX + signal.replace('/', '.')


def _dtype(dtype: str) -> str:
    return dtype if dtype in ('float32', 'float64', 'int32', 'int64', 'bool') else 'float64'


def _part_names(signal: str, width: int) -> tuple[str, ...]:
    if signal == 'ee_pose':
        return EE_NAMES
    if signal == 'joint_position_rad':
        return tuple(f'joint_{i}.rad' for i in range(width))
    if signal == 'gripper_position':
        return (GRIPPER_NAME,)
    return tuple(f'{signal}_{i}' for i in range(width)) if width > 1 else (signal,)


def _stored(column: Column, common: Mapping[str, tuple[int, str, int]]) -> list[StoredSignal]:
    stored, first = [], 0
    for name in column.signals:
        width, dtype, rank = common[name]
        stored.append(StoredSignal(name, column.key, first, first + width, dtype, rank))
        first += width
    return stored


def _joined(parts: list[Extremes]) -> Extremes:
    low = np.concatenate([np.atleast_1d(p.low) for p in parts if p.low is not None])
    high = np.concatenate([np.atleast_1d(p.high) for p in parts if p.high is not None])
    return Extremes(low, high)


def _fps(survey: _Survey, rate_hz: float | None) -> float:
    if rate_hz is not None:
        return _whole(rate_hz)
    if not survey.rates:
        raise InputError('every episode has one step, so no rate is known; wanted --rate-hz')
    low, high = min(survey.rates), max(survey.rates)
    if high > low * (1 + RATE_TOLERANCE):
        raise InputError(
            f'episodes of {low:g} to {high:g} Hz; a LeRobotDataset has one rate: choose some with --where, or state '
            'one with --rate-hz'
        )
    return _whole(float(np.median(survey.rates)))


def _whole(rate_hz: float) -> float:
    nearest = round(rate_hz)
    return float(nearest) if nearest and abs(rate_hz - nearest) <= RATE_TOLERANCE * rate_hz else rate_hz


def _cameras(survey: _Survey, ledger: Ledger) -> dict[str, tuple[int, int]]:
    cameras = {}
    for name, sizes in survey.cameras.items():
        if survey.camera_counts[name] < survey.episodes:
            lacking = survey.episodes - survey.camera_counts[name]
            ledger.drop(f'camera {name}', None, why=f'{lacking} of {survey.episodes} episodes have no video of it')
        elif len(sizes) > 1:
            ledger.drop(f'camera {name}', None, why='its size differs between episodes')
        else:
            cameras[name] = next(iter(sizes))
            share = survey.films.get(name, 1.0)
            why = '' if share > 0.99 else f'a frame for {100 * share:.0f} % of the steps; the others show the last one'
            ledger.keep(f'camera {name}', None, why=why)
            if why:
                ledger.hint(
                    f'camera {name} was filmed more rarely than the policy acted; export --redraw draws every step, '
                    'where the host can and its states were kept'
                )
    return cameras
