"""Bin weights: a scale under the target bin says when an item came to lie in it."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.annotate.detector import FloatArray
from robotrials.record import Annotation, Episode, Event, EventKind, EventSource

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
            found = f'tolerance is {self.tolerance} and settle_s {self.settle_s}'
            raise InputError(f'{found}, wanted 0 < tolerance < 0.5 and settle_s > 0')


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
        found = f'{len(times)} of {len(fine)} readings are numbers'
        raise InputError(f'the weight never stood still for {options.settle_s:g} s ({found})')
    steps = []
    for (_, before), (start, after) in itertools.pairwise(levels):
        items = (after - before) / options.item_kg
        if not abs(items) <= MOST_ITEMS:
            found = f'the weight changed from {before:g} to {after:g} kg at {times[start]:.2f} s'
            raise InputError(
                f'{found}, more than {MOST_ITEMS} items at once; check item_kg and the unit of the readings'
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
    found: dict[str, tuple[list[float], list[float]]] = {}
    try:
        with path.open(newline='', encoding='utf-8-sig') as file:
            rows = csv.DictReader(file)
            missing = {'episode_id', 't_s', 'weight_kg'} - set(rows.fieldnames or ())
            if missing:
                raise InputError(f'no column {", ".join(sorted(missing))}; found: {", ".join(rows.fieldnames or ())}')
            for row in rows:
                if None in row or None in row.values():
                    raise InputError(f'more or fewer fields than the {len(rows.fieldnames or ())} of the first line')
                times_s, weights_kg = found.setdefault(row['episode_id'], ([], []))
                times_s.append(float(row['t_s']))
                weights_kg.append(float(row['weight_kg'] or 'nan'))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f'{path}: cannot be read ({error})') from error
    except (csv.Error, ValueError) as error:
        raise InputError(f'{path}: line {rows.line_num}: {error}') from error
    if not found:
        raise InputError(f'{path}: no readings below its first line')
    return found
