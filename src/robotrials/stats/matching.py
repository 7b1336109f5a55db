"""Start states as units: which runs repeat a start, and which starts two arms share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Literal, overload

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.allowance import Spread
from robotrials.stats.argument import FloatArray, IntArray
from robotrials.value import dataclass

Pairing = Literal['auto', 'paired', 'independent']
FEWEST_PER_PART = 2  # starts, for a variance of the shared or of the other ones
PAIRINGS = ('auto', 'paired', 'independent')


class NumberedLabels(Sequence[Hashable | None]):
    """Labels by number: equal numbers of one numbering are equal labels, and a label is made only for who looks at it.

    `label_of` makes the label of a number and is what tells numberings apart; -1 is no label.
    """

    def __init__(self, numbers: IntArray, label_of: Callable[[int], Hashable]) -> None:
        self.numbers, self.label_of = numbers, label_of

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Hashable | None: ...
    @overload
    def __getitem__(self, place: slice) -> NumberedLabels: ...
    def __getitem__(self, place: int | slice) -> Hashable | NumberedLabels | None:
        if isinstance(place, slice):
            return NumberedLabels(self.numbers[place], self.label_of)
        number = int(self.numbers[place])
        return None if number < 0 else self.label_of(number)

    def __iter__(self) -> Iterator[Hashable | None]:
        return (None if number < 0 else self.label_of(number) for number in self.numbers.tolist())

    def __contains__(self, label: object) -> bool:
        return bool((self.numbers < 0).any()) if label is None else any(label == own for own in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumberedLabels) and other.label_of is self.label_of:
            return np.array_equal(self.numbers, other.numbers)
        return isinstance(other, tuple | NumberedLabels) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    @functools.cached_property
    def codes(self) -> IntArray:
        """(runs,) the unit of each, in order of appearance; one without a label is a unit of its own."""
        numbers = np.where(self.numbers < 0, -1 - np.arange(len(self)), self.numbers)
        _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        if len(first) == len(numbers):
            return np.arange(len(numbers))
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return rank[inverse]


Labels = tuple[Hashable | None, ...] | NumberedLabels


def has_label(labels: Labels) -> bool:
    """Whether any of them is known."""
    return bool((labels.numbers >= 0).any()) if isinstance(labels, NumberedLabels) else any(
        label is not None for label in labels
    )  # fmt: skip


def take_labels(labels: Labels, places: Sequence[int] | IntArray) -> Labels:
    """The labels at these places."""
    if isinstance(labels, NumberedLabels):
        return NumberedLabels(labels.numbers[np.asarray(places, dtype=np.int64)], labels.label_of)
    return tuple(labels[place] for place in places)


def join_labels(parts: Sequence[Labels]) -> Labels:
    """Several groups of labels, one after the other."""
    numbered = [part for part in parts if isinstance(part, NumberedLabels)]
    if numbered and len(numbered) == len(parts) and len({part.label_of for part in numbered}) == 1:
        return NumberedLabels(np.concatenate([part.numbers for part in numbered]), numbered[0].label_of)
    return tuple(label for part in parts for label in part)


def shared_places(a: Labels, b: Labels) -> tuple[IntArray, IntArray]:
    """Where labels that both have stand in each, in the order of a; of labels that repeat in one, the last place."""
    if isinstance(a, NumberedLabels) and isinstance(b, NumberedLabels) and a.label_of is b.label_of:
        if a == b and not (a.numbers < 0).any() and len(np.unique(a.numbers)) == len(a):
            return np.arange(len(a)), np.arange(len(a))
        where_a, where_b = (np.flatnonzero(own.numbers >= 0)[::-1] for own in (a, b))
        _, x, y = np.intersect1d(a.numbers[where_a], b.numbers[where_b], return_indices=True)
        x, y = where_a[x], where_b[y]
        order = np.argsort(x)
        return x[order], y[order]
    places = [{label: place for place, label in enumerate(own) if label is not None} for own in (a, b)]
    pairs = sorted((place, places[1][label]) for label, place in places[0].items() if label in places[1])
    return np.array([x for x, _ in pairs], dtype=np.int64), np.array([y for _, y in pairs], dtype=np.int64)


def same_labels(a: Labels | None, b: Labels | None) -> bool:
    """Whether two arms have the same labels, all of them known."""
    if isinstance(a, NumberedLabels) and isinstance(b, NumberedLabels) and a.label_of is b.label_of:
        return bool((a.numbers >= 0).all()) and np.array_equal(np.unique(a.numbers), np.unique(b.numbers))
    first, second = frozenset(a or (None,)), frozenset(b or (None,))
    return None not in first and first == second


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Runs of one cell by unit: (runs,) codes 0..n-1, and the label of each unit (None: a run without a start)."""

    codes: IntArray
    labels: Labels

    @property
    def n(self) -> int:
        return len(self.labels)

    @property
    def has_repeats(self) -> bool:
        return self.n < len(self.codes)

    @property
    def weights(self) -> FloatArray:
        """(runs,) that add up to 1 in every unit."""
        return 1.0 / np.bincount(self.codes, minlength=self.n)[self.codes]

    def means(self, values: FloatArray) -> FloatArray:
        """(units,) the mean of each unit's runs."""
        if not self.has_repeats:
            return values
        return unit_sums(self, values * self.weights)


def unit_sums(units: Units, values: FloatArray) -> FloatArray:
    """(units,) the sum of each unit's (runs,) values."""
    return np.bincount(units.codes, weights=values, minlength=units.n).astype(np.float64)


def units_of(starts: Labels | None, n_runs: int) -> Units:
    """Units in order of appearance; a run without a start is a unit of its own."""
    if starts is None:
        return Units(np.arange(n_runs), (None,) * n_runs)
    if len(starts) != n_runs:
        raise InputError(f'wanted one start per run, found {n_runs} runs and {len(starts)} starts')
    if isinstance(starts, NumberedLabels):
        codes = starts.codes
        return Units(codes, take_labels(starts, np.unique(codes, return_index=True)[1]))
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
    def counts(self) -> tuple[int, int, int]:
        """Units compared: shared ones, and the others of a and of b."""
        return (self.n_shared, len(self.rest_a), len(self.rest_b)) if self.smaller_rest else (self.n_shared, 0, 0)

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
    shared_a, shared_b = shared_places(a.labels, b.labels)
    n_shared = len(shared_a)
    if pairing == 'paired':
        return Match(shared_a, shared_b, none, none)
    rest_a, rest_b = np.delete(every_a, shared_a), np.delete(every_b, shared_b)
    if min(len(rest_a), len(rest_b)) < FEWEST_PER_PART and n_shared >= FEWEST_PER_PART:
        return Match(shared_a, shared_b, none, none)
    if 0 < n_shared < FEWEST_PER_PART and min(len(rest_a), len(rest_b)) > 0:
        return Match(none, none, every_a, every_b)
    return Match(shared_a, shared_b, rest_a, rest_b)


def compared_units(matches: Iterable[Match]) -> tuple[int, int]:
    """How many units of each arm are compared over all strata."""
    counts = [match.counts for match in matches]
    return sum(shared + rest for shared, rest, _ in counts), sum(shared + rest for shared, _, rest in counts)


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
