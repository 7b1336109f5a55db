"""The release detector: moments at which the gripper let something go, and what was going on at each.

Commanded edges, gated by how long the gripper was closed (hold) and whether its measure had come to rest (plateau); and
slumps, where the measure falls from the held band into the closed band with nothing commanded: an item was lost.
"""

from __future__ import annotations

import csv
import dataclasses
import enum
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.record import Annotation, Episode, Event, EventKind, EventSource, Trajectory

# What a release detector reads: the commanded and the measured gripper, and where the tool was.

FloatArray = NDArray[np.float64]
SLACK = 0.05  # of the travel: a command beyond it is on another scale
SIGNALS = ('time_s', 'ee_pose', 'gripper_command', 'gripper_position')


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """One episode at the rate of its recording; openings run from 0 (closed) to 1 (open)."""

    time_s: FloatArray  # (T,)
    command: FloatArray  # (T,)
    opening: FloatArray  # (T,)
    tool_m: FloatArray  # (T, 3)

    def __post_init__(self) -> None:
        length = len(self.time_s)
        for name, shape in (('command', (length,)), ('opening', (length,)), ('tool_m', (length, 3))):
            size = np.shape(getattr(self, name))
            if size != shape:
                raise InputError(f'{name} has shape {size}, wanted {shape}')
        if length < 2 or not np.isfinite(self.time_s).all() or np.any(np.diff(self.time_s) <= 0):
            raise InputError('time_s must have at least two times, finite and rising')

    @property
    def dt_s(self) -> float:
        return float(np.median(np.diff(self.time_s)))


def read_telemetry(trajectory: Trajectory) -> Telemetry:
    """The telemetry of a trajectory; NotEstimable says what was not recorded.

    Single readings that are missing (NaN) keep the last value before them: a sensor that skips a beat has not moved.
    """
    signals: dict[str, Any] = {name: getattr(trajectory, name) for name in SIGNALS}
    absent = [name for name, value in signals.items() if value is None]
    if absent:
        raise NotEstimable(f'releases cannot be detected: {", ".join(absent)} was not recorded')
    tool = np.asarray(signals['ee_pose'], dtype=np.float64)[:, :3]
    columns = [np.asarray(signals[n], dtype=np.float64) for n in ('gripper_command', 'gripper_position')]
    kept = [_carried(column, name) for column, name in zip((*columns, *tool.T), (*SIGNALS[2:], *'xyz'), strict=True)]
    low, high = kept[0].min(), kept[0].max()
    if low < -SLACK or high > 1 + SLACK:
        raise NotEstimable(
            f'releases cannot be detected: gripper_command runs from {low:g} to {high:g}, wanted an opening from 0 '
            '(closed) to 1 (open)'
        )
    return Telemetry(np.asarray(signals['time_s'], dtype=np.float64), kept[0], kept[1], np.stack(kept[2:], axis=1))


def _carried(values: FloatArray, name: str) -> FloatArray:
    fine = np.isfinite(values)
    if fine.mean() < 0.5:
        raise NotEstimable(f'releases cannot be detected: most readings of {name} are missing')
    last = np.maximum.accumulate(np.where(fine, np.arange(len(values)), -1))
    return values[np.where(last < 0, int(np.argmax(fine)), last)]


# Zones: where items come from and where they belong, as boxes seen from above.

OUTSIDE = 'outside'
LONGEST_M = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A rectangle on the table, in metres, parallel to the robot's axes."""

    center_m: tuple[float, float]
    size_m: tuple[float, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, 'center_m', _two(self.center_m, 'center_m'))
        object.__setattr__(self, 'size_m', _two(self.size_m, 'size_m'))
        if min(self.size_m) <= 0:
            raise InputError(f'size_m is {self.size_m}, wanted two lengths > 0')

    def depth_m(self, point: Sequence[float]) -> float:
        """How far inside a point lies from the nearest edge; below 0 outside."""
        gaps = [s / 2 - abs(p - c) for p, c, s in zip(point, self.center_m, self.size_m, strict=False)]
        if min(gaps) >= 0:
            return min(gaps)
        return -math.hypot(*(min(g, 0.0) for g in gaps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """The two bins of an order-picking task. They change places in episodes with the label `swapped_when`."""

    source: Zone
    target: Zone
    swapped_when: tuple[str, str] | None = None  # such as ('tote_side', 'right')

    def of(self, labels: Mapping[str, str]) -> Zones:
        """The bins as they stood in an episode with these labels; NotEstimable without the label that decides."""
        if self.swapped_when is None:
            return self
        name, value = self.swapped_when
        if name not in labels:
            raise NotEstimable(f'where the target was is not known: the episode has no label {name}')
        return swapped(self) if labels[name] == value else self

    def place(self, point: Sequence[float]) -> tuple[str, float]:
        """The zone over which a point lies, and how deep within it (or how far from the nearest zone)."""
        depths = {name: getattr(self, name).depth_m(point) for name in ('target', 'source')}
        best = max(depths, key=lambda name: depths[name])
        return (best if depths[best] >= 0 else OUTSIDE), depths[best]


def _two(values: object, name: str) -> tuple[float, float]:
    if isinstance(values, Sequence) and len(values) == 2:
        numbers = tuple(float(v) for v in values if _is_length(v))
        if len(numbers) == 2:
            return (numbers[0], numbers[1])
    raise InputError(f'{name} is {values!r:.200}, wanted two numbers of at most {LONGEST_M:g}, in metres')


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LONGEST_M


def swapped(zones: Zones) -> Zones:
    """The bins changed over, as in sessions with the tote on the other side."""
    return Zones(source=zones.target, target=zones.source)


def read_zones(values: object, *, where: str) -> Zones:
    """Zones from a `[zones]` table: source and target, each with center_m and size_m; `swapped_when` is one label."""
    if not isinstance(values, Mapping):
        raise InputError(f'{where}: zones is {values!r:.200}, wanted a table with source and target')
    read = {}
    for name in values:
        if name not in ('source', 'target', 'swapped_when'):
            raise UnknownName(f'entry of zones in {where}', name, ('source', 'target', 'swapped_when'))
    for name in ('source', 'target'):
        table = values.get(name)
        if not isinstance(table, Mapping) or set(table) != {'center_m', 'size_m'}:
            raise InputError(f'{where}: zones.{name} is {table!r}, wanted center_m and size_m, two numbers each')
        try:
            read[name] = Zone(center_m=table['center_m'], size_m=table['size_m'])
        except InputError as error:
            raise InputError(f'{where}: zones.{name}: {error}') from error
    zones = Zones(source=read['source'], target=read['target'])
    label = values.get('swapped_when')
    if label is None:
        return zones
    if not isinstance(label, Mapping) or len(label) != 1 or not all(isinstance(v, str) for v in label.values()):
        raise InputError(f'{where}: zones.swapped_when is {label!r}, wanted one label, as {{ tote_side = "right" }}')
    ((name, value),) = label.items()
    return replace(zones, swapped_when=(str(name), str(value)))


MOST_SMOOTHED = 500  # steps either side


class ReleaseKind(enum.StrEnum):
    RELEASE = 'release'  # the gripper was told to open
    SLUMP = 'slump'  # it closed further by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorOptions:
    """Named thresholds; openings are shares of the gripper's travel."""

    closed_command: float = 0.2  # commanded at most so far open, the gripper is to grip
    open_rise: float = 0.1  # a command this far above the grip's is an opening
    closed_band: float = 0.05  # measured at most so far open, nothing is between the fingers
    hold_s: float = 0.3  # a shorter grip carries nothing
    plateau_s: float = 0.2  # the measure must have been at rest for so long
    plateau_band: float = 0.03  # within this much
    debounce_s: float = 0.15  # an edge that is taken back sooner is none

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            top = 60.0 if field.name.endswith('_s') else 1.0
            if not 0 <= value <= top:
                raise InputError(f'{field.name} is {value}, wanted 0 to {top:g}')


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCandidate:
    """One moment and its features. `grip` is the measured opening while it held; `ledger` counts as it went on."""

    t_s: float
    kind: ReleaseKind
    zone: str
    zone_depth_m: float
    grasp_zone: str
    hold_s: float
    displacement_m: float
    height_m: float
    grip: float
    has_plateau: bool
    is_empty: bool
    ledger: int = 0  # items in the target zone before this moment, by this account


def detect_releases(
    telemetry: Telemetry, zones: Zones, options: DetectorOptions | None = None
) -> list[ReleaseCandidate]:
    """The candidates of one episode, in order of time, with the running ledger of the target zone."""
    chosen = options or DetectorOptions()
    candidates: list[ReleaseCandidate] = []
    for start, end in _grips(telemetry, chosen):
        candidates.extend(_of_grip(telemetry, zones, chosen, start, end))
    ledger, counted = 0, []
    for candidate in sorted(candidates, key=lambda c: c.t_s):
        counted.append(dataclasses.replace(candidate, ledger=ledger))
        if not candidate.is_empty:
            ledger += (candidate.zone == 'target') - (candidate.grasp_zone == 'target')
            ledger = max(ledger, 0)
    return counted


def _grips(telemetry: Telemetry, options: DetectorOptions) -> list[tuple[int, int | None]]:
    """Each run of steps for which the gripper was told to grip: first step, and the step that opened it (or None)."""
    is_grip = _debounced(telemetry.command <= options.closed_command, telemetry.time_s, options.debounce_s)
    edges = np.flatnonzero(np.diff(is_grip.astype(np.int8))) + 1
    starts = [0, *edges] if is_grip[0] else list(edges)
    pairs = []
    for start, end in zip(starts[::2], [*starts[1::2], None], strict=False):
        if end is None or telemetry.command[end] >= telemetry.command[start:end].min() + options.open_rise:
            pairs.append((int(start), None if end is None else int(end)))
    return pairs


def _debounced(flags: NDArray[np.bool_], time_s: FloatArray, shortest_s: float) -> NDArray[np.bool_]:
    """The flags without runs that are shorter than so many seconds, the first and the last excepted."""
    kept = flags.copy()
    edges = np.flatnonzero(np.diff(kept.astype(np.int8))) + 1
    for start, end in itertools.pairwise(edges):
        if time_s[end] - time_s[start] < shortest_s:
            kept[start:end] = kept[start - 1]
    return kept


def _of_grip(
    telemetry: Telemetry, zones: Zones, options: DetectorOptions, start: int, end: int | None
) -> list[ReleaseCandidate]:
    """A slump if what was held was lost, else the release at the end; a grip that lasts to the end gives neither."""
    last = len(telemetry.time_s) if end is None else end
    opening = _smooth(telemetry.opening[start:last], telemetry.dt_s)
    window = max(2, round(min(options.plateau_s / telemetry.dt_s, len(opening) + 1)))
    slump = _slump(opening, window, options)
    if slump is not None:
        grip = float(np.median(opening[slump // 2 : slump]))
        return [_candidate(telemetry, zones, options, ReleaseKind.SLUMP, start, start + slump, grip, True)]
    if end is None:
        return []
    late = opening[len(opening) // 2 :]  # closing is over; what was held was carried
    drift = abs(np.median(late[: max(1, len(late) // 2)]) - np.median(late[len(late) // 2 :]))
    has_plateau = len(opening) >= window and bool(drift <= options.plateau_band)
    grip = float(np.median(late[len(late) // 2 :]))
    return [_candidate(telemetry, zones, options, ReleaseKind.RELEASE, start, end, grip, has_plateau)]


def _smooth(values: FloatArray, dt_s: float) -> FloatArray:
    """A running median over about a fifth of a second: wild readings go, edges stay where they are."""
    half = max(1, round(min(0.1 / dt_s, MOST_SMOOTHED)))
    padded = np.pad(values, half, mode='edge')
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1))


def _slump(opening: FloatArray, window: int, options: DetectorOptions) -> int | None:
    """The step at which a grip that had come to rest fell into the closed band for good; None if it never did."""
    held = opening > options.closed_band
    if len(opening) < 2 * window or held[-window:].any() or not held.any():
        return None
    fallen = int(np.flatnonzero(held)[-1]) + 1
    before = opening[:fallen]
    if len(before) < window:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(before, window)
    drift = np.abs(np.median(windows[:, : window // 2], axis=1) - np.median(windows[:, window // 2 :], axis=1))
    at_rest = (drift <= options.plateau_band) & (np.median(windows, axis=1) > options.closed_band)
    return fallen if at_rest.any() else None


def _candidate(
    telemetry: Telemetry, zones: Zones, options: DetectorOptions, kind: ReleaseKind, start: int, at: int,
    grip: float, has_plateau: bool,
) -> ReleaseCandidate:  # fmt: skip
    place, origin = telemetry.tool_m[at], telemetry.tool_m[start]
    zone, depth_m = zones.place(place[:2].tolist())
    hold_s = float(telemetry.time_s[at] - telemetry.time_s[start])
    return ReleaseCandidate(
        t_s=float(telemetry.time_s[at]),
        kind=kind,
        zone=zone,
        zone_depth_m=depth_m,
        grasp_zone=zones.place(origin[:2].tolist())[0],
        hold_s=hold_s,
        displacement_m=float(np.linalg.norm(place[:2] - origin[:2])),
        height_m=float(place[2]),
        grip=grip,
        has_plateau=has_plateau,
        is_empty=grip <= options.closed_band or hold_s < options.hold_s,
    )


# What became of each candidate: a transparent rule set with named thresholds.

FURTHEST_M = 10.0


class ReleaseVerdict(enum.StrEnum):
    SUCCESS = 'success'  # an item was placed
    FAILURE = 'failure'  # an item was lost, or taken out of the target again
    NEUTRAL = 'neutral'  # nothing was carried, or it was put back
    UNKNOWN = 'unknown'  # a person has to look


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    edge_m: float = 0.02  # nearer than this to the edge of a zone, it cannot be said on which side an item fell
    least_displacement_m: float = 0.05  # carried less far, an item was not carried over

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not 0 <= value <= FURTHEST_M:
                raise InputError(f'{field.name} is {value}, wanted 0 to {FURTHEST_M:g}')


@dataclass(frozen=True, slots=True)
class JudgedRelease:
    """A candidate, its verdict and the reason in words."""

    candidate: ReleaseCandidate
    verdict: ReleaseVerdict
    why: str


def judge(candidates: Iterable[ReleaseCandidate], options: RuleOptions | None = None) -> list[JudgedRelease]:
    """The rules, applied to each candidate by itself."""
    chosen = options or RuleOptions()
    return [JudgedRelease(candidate, *_rule(candidate, chosen)) for candidate in candidates]


def _rule(candidate: ReleaseCandidate, options: RuleOptions) -> tuple[ReleaseVerdict, str]:
    at_edge = abs(candidate.zone_depth_m) < options.edge_m
    if candidate.is_empty:
        return ReleaseVerdict.NEUTRAL, 'nothing was held'
    if candidate.kind is ReleaseKind.SLUMP:
        if candidate.zone == 'source':
            return ReleaseVerdict.NEUTRAL, 'slipped out over the source'
        if candidate.zone == 'target' or at_edge:
            place = 'target' if candidate.zone == 'target' else 'edge of a zone'
            return ReleaseVerdict.UNKNOWN, f'slipped out over the {place}'
        return ReleaseVerdict.FAILURE, 'slipped out between the zones'
    if not candidate.has_plateau:
        return ReleaseVerdict.UNKNOWN, 'the grip had not come to rest'
    if at_edge:
        return ReleaseVerdict.UNKNOWN, f'let go at the edge of a zone ({candidate.zone})'
    if candidate.zone == OUTSIDE:
        return ReleaseVerdict.FAILURE, 'let go outside both zones'
    if candidate.grasp_zone == 'target':
        moved = candidate.zone == 'target'
        return (
            (ReleaseVerdict.NEUTRAL, 'moved within the target')
            if moved
            else (ReleaseVerdict.FAILURE, 'taken out of the target')
        )
    if candidate.zone == 'source':
        return ReleaseVerdict.NEUTRAL, 'put back'
    if candidate.displacement_m < options.least_displacement_m:
        return ReleaseVerdict.UNKNOWN, 'hardly moved'
    return ReleaseVerdict.SUCCESS, 'let go over the target'


# Bin weights: a scale under the target bin says when an item came to lie in it.


MOST_ITEMS = 1000  # that one step can put down


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """What one item weighs, and when a reading has come to rest."""

    item_kg: float
    settle_s: float = 0.3  # a step counts once the reading has stood still for so long
    tolerance: float = 0.35  # a step may differ from a whole number of items by this share of one

    def __post_init__(self) -> None:
        if not (math.isfinite(self.item_kg) and self.item_kg > 0):
            raise InputError(f'item_kg is {self.item_kg}, wanted > 0')
        if not (0 < self.tolerance < 0.5 and self.settle_s > 0):
            size = f'tolerance is {self.tolerance} and settle_s {self.settle_s}'
            raise InputError(f'{size}, wanted 0 < tolerance < 0.5 and settle_s > 0')


@dataclass(frozen=True, slots=True)
class WeightStep:
    """A lasting change of the weight: at its beginning, by so many items (below 0: taken out)."""

    t_s: float
    items: int


def weight_steps(time_s: Sequence[float], weight_kg: Sequence[float], options: ScaleOptions) -> list[WeightStep]:
    """The lasting changes of a weight, each timed at the first reading that left the old level."""
    times, weights = np.asarray(time_s, dtype=np.float64), np.asarray(weight_kg, dtype=np.float64)
    if times.shape != weights.shape or times.ndim != 1 or len(times) < 2:
        raise InputError(f'time_s has shape {times.shape} and weight_kg {weights.shape}, wanted the same (n,), n > 1')
    if np.any(np.diff(times) <= 0) or not np.isfinite(times).all():
        raise InputError('time_s must be finite and rise')
    fine = np.isfinite(weights)
    times, weights = times[fine], weights[fine]
    levels = _levels(times, weights, options)
    if not levels:
        reason = f'{len(times)} of {len(fine)} readings are numbers'
        raise InputError(f'the weight never stood still for {options.settle_s:g} s ({reason})')
    steps = []
    for (_, before), (start, after) in itertools.pairwise(levels):
        items = (after - before) / options.item_kg
        if not abs(items) <= MOST_ITEMS:
            reason = f'the weight changed from {before:g} to {after:g} kg at {times[start]:.2f} s'
            raise InputError(
                f'{reason}, more than {MOST_ITEMS} items at once; check item_kg and the unit of the readings'
            )
        if abs(items - round(items)) > options.tolerance:
            raise InputError(
                f'the weight changed by {after - before:.4f} kg at {times[start]:.2f} s, which is {items:.2f} items; '
                'check item_kg, or whether something else was put on the scale'
            )
        if round(items):
            steps.append(WeightStep(float(times[start]), round(items)))
    return steps


def _levels(times: FloatArray, weights: FloatArray, options: ScaleOptions) -> list[tuple[int, float]]:
    """The levels at which the weight stood still: the reading that first left the level before, and the weight."""
    band = 0.25 * options.item_kg
    levels: list[tuple[int, float]] = []
    start, left = 0, 0
    for now in range(len(times)):
        if abs(weights[now] - weights[start]) > band:
            if levels and abs(weights[start] - levels[-1][1]) <= band:
                left = now
            start = now
        if times[now] - times[start] >= options.settle_s:
            level = float(np.median(weights[start : now + 1]))
            if not levels or abs(level - levels[-1][1]) > band:
                levels.append((left if levels else 0, level))
            left = now + 1
    return levels


def weigh(episode: Episode, time_s: Sequence[float], weight_kg: Sequence[float], options: ScaleOptions) -> Annotation:
    """The placements of an episode by the scale, as an annotation of source `sensor`.

    An item taken out again takes back the last placement: only what stays was placed.
    """
    marks: list[float] = []
    for step in weight_steps(time_s, weight_kg, options):
        if step.items > 0:
            marks += [step.t_s] * step.items
        else:
            marks = marks[: step.items]
    events = tuple(
        Event(t_s, EventKind.PLACEMENT, EventSource.SENSOR, marks.count(t_s)) for t_s in dict.fromkeys(marks)
    )
    return Annotation(
        episode_id=episode.episode_id, attempt=episode.attempt, source=EventSource.SENSOR, by='bin scale',
        events=events, count=len(marks), details={'item_kg': options.item_kg},
    )  # fmt: skip


def read_weights(path: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Episode -> times and weights, from a CSV with the columns episode_id, t_s and weight_kg."""
    readings: dict[str, tuple[list[float], list[float]]] = {}
    try:
        with path.open(newline='', encoding='utf-8-sig') as file:
            rows = csv.DictReader(file)
            missing = {'episode_id', 't_s', 'weight_kg'} - set(rows.fieldnames or ())
            if missing:
                raise InputError(f'no column {", ".join(sorted(missing))}; found: {", ".join(rows.fieldnames or ())}')
            for row in rows:
                if None in row or None in row.values():
                    raise InputError(f'more or fewer fields than the {len(rows.fieldnames or ())} of the first line')
                times_s, weights_kg = readings.setdefault(row['episode_id'], ([], []))
                times_s.append(float(row['t_s']))
                weights_kg.append(float(row['weight_kg'] or 'nan'))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f'{path}: cannot be read ({error})') from error
    except (csv.Error, ValueError) as error:
        raise InputError(f'{path}: line {rows.line_num}: {error}') from error
    if not readings:
        raise InputError(f'{path}: no readings below its first line')
    return readings
