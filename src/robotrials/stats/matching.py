"""Start states as units: which runs repeat a start, and which starts two arms share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.allowance import Spread
from robotrials.stats.argument import FloatArray, IntArray

Pairing = Literal['auto', 'paired', 'independent']
FEWEST_PER_PART = 2  # starts, for a variance of the shared or of the other ones
PAIRINGS = ('auto', 'paired', 'independent')


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Runs of one cell by unit: (runs,) codes 0..n-1, and the label of each unit (None: a run without a start)."""

    codes: IntArray
    labels: tuple[Hashable | None, ...]

    @property
    def n(self) -> int:
        return len(self.labels)

    @property
    def has_repeats(self) -> bool:
        return self.n < len(self.codes)

    @property
    def weights(self) -> FloatArray:
        """(runs,) that add up to 1 in every unit."""
        weights: FloatArray = 1.0 / np.bincount(self.codes, minlength=self.n)[self.codes]
        return weights

    def means(self, values: FloatArray) -> FloatArray:
        """(units,) the mean of each unit's runs."""
        if not self.has_repeats:
            return values
        return unit_sums(self, values * self.weights)


def unit_sums(units: Units, values: FloatArray) -> FloatArray:
    """(units,) the sum of each unit's (runs,) values."""
    return np.bincount(units.codes, weights=values, minlength=units.n).astype(np.float64)


def units_of(starts: Sequence[Hashable | None] | None, n_runs: int) -> Units:
    """Units in order of appearance; a run without a start is a unit of its own."""
    if starts is None:
        return Units(np.arange(n_runs), (None,) * n_runs)
    if len(starts) != n_runs:
        raise InputError(f'wanted one start per run, found {n_runs} runs and {len(starts)} starts')
    places: dict[Hashable, int] = {}
    labels: list[Hashable | None] = []
    codes = np.empty(n_runs, dtype=np.int64)
    for run, start in enumerate(starts):
        if start is None or start not in places:
            if start is not None:
                places[start] = len(labels)
            codes[run] = len(labels)
            labels.append(start)
        else:
            codes[run] = places[start]
    return Units(codes, tuple(labels))


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Units of one stratum: those that both arms share, side by side, and the others of each arm."""

    shared_a: IntArray
    shared_b: IntArray
    rest_a: IntArray
    rest_b: IntArray

    @property
    def n_shared(self) -> int:
        return len(self.shared_a)

    @property
    def smaller_rest(self) -> int:
        return min(len(self.rest_a), len(self.rest_b))

    @property
    def n_compared(self) -> int:
        """Shared starts and the smaller rest: what the stratum counts towards N*."""
        return self.n_shared + self.smaller_rest

    @property
    def share(self) -> float:
        """f: the weight of the shared starts."""
        return self.n_shared / self.n_compared


def match_units(a: Units, b: Units, pairing: Pairing) -> Match:
    """Which units are compared with themselves and which with each other.

    'auto' uses every unit: too few of a part (2) join or leave it, because a single one shows no variance. A lone
    shared start counts as two independent ones; a lone remainder is left out. 'paired' keeps the shared ones only.
    """
    if pairing not in PAIRINGS:
        raise InputError(f'pairing must be one of {", ".join(PAIRINGS)}, found {pairing!r}')
    every_a, every_b, none = np.arange(a.n), np.arange(b.n), np.empty(0, dtype=np.int64)
    if pairing == 'independent':
        return Match(none, none, every_a, every_b)
    places = {label: place for place, label in enumerate(b.labels) if label is not None}
    pairs = [(place, places[label]) for place, label in enumerate(a.labels) if label is not None and label in places]
    shared_a = np.array([x for x, _ in pairs], dtype=np.int64)
    shared_b = np.array([y for _, y in pairs], dtype=np.int64)
    if pairing == 'paired':
        return Match(shared_a, shared_b, none, none)
    rest_a, rest_b = np.setdiff1d(every_a, shared_a), np.setdiff1d(every_b, shared_b)
    if min(len(rest_a), len(rest_b)) < FEWEST_PER_PART and len(pairs) >= FEWEST_PER_PART:
        return Match(shared_a, shared_b, none, none)
    if 0 < len(pairs) < FEWEST_PER_PART and min(len(rest_a), len(rest_b)) > 0:
        return Match(none, none, every_a, every_b)
    return Match(shared_a, shared_b, rest_a, rest_b)


def mean_term(values: FloatArray) -> tuple[float, float]:
    """The variance of a mean of units, and its degrees of freedom; one unit shows none."""
    n = len(values)
    return (float(np.var(values, ddof=1)) / n if n > 1 else 0.0), max(n - 1.0, 1.0)


def linked_spread(parts: Iterable[tuple[Sequence[Hashable | None], FloatArray]]) -> Spread:
    """The variance where one unit (a session, an operator) reaches over strata and arms.

    `parts` are labels and (units,) values of every cell, already scaled so that the macro quantity is the sum of the
    cells' means: a unit's moves in all cells are added before they are squared.
    """
    total: dict[Hashable, float] = {}
    for cell, (labels, values) in enumerate(parts):
        n = len(values)
        moves = (values - values.mean()) / n * np.sqrt(n / max(n - 1.0, 1.0))
        for place, (label, move) in enumerate(zip(labels, moves.tolist(), strict=True)):
            key = (cell, place) if label is None else ('unit', label)
            total[key] = total.get(key, 0.0) + move
    return Spread(np.array([sum(move**2 for move in total.values())]), np.array([max(len(total) - 1.0, 1.0)]))


def distinct_units(cells: Iterable[Units]) -> int:
    """Units of one arm over all strata, one that reaches over several counted once."""
    labels = [(label, place if label is None else 0, c if label is None else 0)
              for c, units in enumerate(cells) for place, label in enumerate(units.labels)]  # fmt: skip
    return len(set(labels))
