"""How operations end: cumulative incidence of success and of every way to fail (Aalen and Johansen 1978).

Ends compete: an operation that dropped its item can no longer time out. The incidence of a cause by t is the chance to
have ended by it by then; all incidences and the chance to be under way still add up to 1. The restricted mean time
lost to a cause is the area under its incidence up to tau (Andersen 2013); tau less all of them is the mean time that an
operation is under way.

Also how completion depends on a label, such as the side a camera stands on, with a balance check (PhAIL, Appendix G).
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.timing.curve import Cohort, check_tau, n_blocks, success_curve, tau_of
from robotrials.measure.timing.operation import (
    DROP_KINDS,
    Cause,
    FloatArray,
    IntArray,
    Unit,
    at_caps,
    by_stratum,
    ends_at_cap,
    final_failures,
    is_final_failure,
    is_one_run_each,
    is_safety_stopped,
    is_unfinished,
    row_units,
    unit_of,
)
from robotrials.record import Episode, EventKind, Outcome
from robotrials.record.rows import EpisodeRows, coded, lacks, pick
from robotrials.stats import Interval, resample_counts
from robotrials.stats.interval import FEWEST_PER_CELL, MacroArm, Spread, macro_interval
from robotrials.stats.matching import units_of
from robotrials.value import dataclass

MOST_TIMES = 400  # of the grid on which influences are integrated


class OperationEnd(enum.StrEnum):
    """How an operation ended."""

    SUCCESS = 'success'
    DROP = 'drop'
    SAFETY_STOP = 'safety stop'
    FAILURE = 'failure'
    TIME_OUT = 'time-out'
    LOST = 'lost'  # watching stopped before the time cap: censored


ENDS = tuple(OperationEnd)
CAUSES = ENDS[:-1]
CENSORED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Endings:
    """Operations of one cell with the time since their start (the last placement) and how each ended."""

    times_s: FloatArray  # (n,)
    cause: IntArray  # (n,) the place in CAUSES, or CENSORED
    unit: IntArray  # (n,) 0 to n_units - 1
    n_units: int

    def __post_init__(self) -> None:
        if not (self.times_s.shape == self.cause.shape == self.unit.shape):
            raise InputError('times_s, cause and unit need one entry per operation')
        bad = np.flatnonzero(~np.isfinite(self.times_s) | (self.times_s < 0))
        if len(bad):
            raise InputError(f'times_s[{bad[0]}] is {self.times_s[bad[0]]}, wanted a finite time >= 0')

    def count(self, end: OperationEnd) -> int:
        code = CENSORED if end is OperationEnd.LOST else CAUSES.index(end)
        return int(np.count_nonzero(self.cause == code))


def endings(episodes: Iterable[Episode], *, unit: Unit | str = Unit.START) -> Endings:
    """How the operations of these episodes ended; INVALID episodes are left out."""
    kind = Unit(unit)
    if isinstance(episodes, EpisodeRows) and is_one_run_each(episodes):
        runs = episodes.at(np.flatnonzero(~episodes.ended(Outcome.INVALID)))
        units = units_of(row_units(runs, kind), len(runs))
        ends = _row_ends(runs)
        return Endings(runs.floats('duration_s'), np.where(ends < len(CAUSES), ends, CENSORED), units.codes, units.n)
    rows: list[tuple[float, int, int]] = []
    codes: dict[Hashable, int] = {}
    for place, episode in enumerate(episodes):
        if not episode.is_valid:
            continue
        label = unit_of(episode, kind)
        code = codes.setdefault((place, None) if label is None else label, len(codes))
        rows.extend((t, CENSORED if end is OperationEnd.LOST else CAUSES.index(end), code) for t, end in _ends(episode))
    return Endings(
        np.array([r[0] for r in rows], dtype=np.float64), np.array([r[1] for r in rows], dtype=np.int64),
        np.array([r[2] for r in rows], dtype=np.int64), len(codes),
    )  # fmt: skip


def places_by_end(episodes: Iterable[Episode]) -> Mapping[OperationEnd, Sequence[int] | IntArray]:
    """The places of the valid episodes in which an operation ended so; an episode may be under several ends."""
    if isinstance(episodes, EpisodeRows) and is_one_run_each(episodes):
        valid = np.flatnonzero(~episodes.ended(Outcome.INVALID))
        codes = _row_ends(episodes.at(valid))
        return {end: valid[codes == code] for code, end in enumerate(ENDS) if (codes == code).any()}
    places: dict[OperationEnd, list[int]] = {}
    for place, episode in enumerate(episodes):
        for end in {end for _, end in _ends(episode)} if episode.is_valid else ():
            places.setdefault(end, []).append(place)
    return places


def endings_by_stratum(episodes: Iterable[Episode], *, unit: Unit | str = Unit.START) -> dict[str, Endings]:
    """Stratum -> Endings, strata sorted by name; strata without an operation are left out."""
    cells = {name: endings(group, unit=unit) for name, group in by_stratum(episodes).items()}
    return {name: cell for name, cell in cells.items() if len(cell.times_s)}


def _ends(episode: Episode) -> Iterable[tuple[float, OperationEnd]]:
    """Placements and drops in their order, then how the operation under way ended; times since the last placement."""
    placed, lost, last_s = 0, 0, 0.0
    for event in episode.events:
        if event.kind is EventKind.PLACEMENT:
            yield from ((event.t_s - last_s if item == 0 else 0.0, OperationEnd.SUCCESS) for item in range(event.count))
            placed, last_s = placed + event.count, event.t_s
        elif event.kind in DROP_KINDS:
            yield from ((event.t_s - last_s, OperationEnd.DROP) for _ in range(event.count))
            lost += event.count
    rest_s = max(episode.known_duration_s - last_s, 0.0)
    if placed == 0 and episode.outcome is Outcome.SUCCESS:
        yield rest_s, OperationEnd.SUCCESS
        placed = 1
    untimed = max((episode.items_lost or 0) - lost, 0)
    yield from ((rest_s, OperationEnd.DROP) for _ in range(untimed))
    if is_unfinished(episode, placed=placed, lost=lost + untimed):
        yield rest_s, _last_end(episode)


def _row_ends(runs: EpisodeRows) -> IntArray:
    """(n,) the place in ENDS of valid rows that are one run each, as `_ends` has them."""
    is_so = {
        OperationEnd.SUCCESS: runs.ended(Outcome.SUCCESS), OperationEnd.SAFETY_STOP: runs.ended(Outcome.SAFETY_STOP),
        OperationEnd.FAILURE: final_failures(runs), OperationEnd.TIME_OUT: at_caps(runs),
    }  # fmt: skip
    return np.select(list(is_so.values()), [ENDS.index(end) for end in is_so], ENDS.index(OperationEnd.LOST))


def _last_end(episode: Episode) -> OperationEnd:
    if is_safety_stopped(episode):
        return OperationEnd.SAFETY_STOP
    if is_final_failure(episode):
        return OperationEnd.FAILURE
    return OperationEnd.TIME_OUT if ends_at_cap(episode) else OperationEnd.LOST


@dataclass(frozen=True, slots=True)
class CauseIncidence:
    """The incidence of one cause at the asked times, and the time lost to it up to tau, with the rule's intervals."""

    cause: OperationEnd
    chance: tuple[float, ...]
    band: tuple[Interval | None, ...]  # pointwise
    by_tau: float  # the incidence at each stratum's own tau
    by_tau_interval: Interval | None
    time_lost_s: float
    time_lost_interval: Interval | None
    n_operations: int


@dataclass(frozen=True, slots=True)
class Incidence:
    """Macro cumulative incidences over strata of equal weight."""

    times_s: tuple[float, ...]
    tau_s: float  # the largest, where strata have their own
    causes: Mapping[OperationEnd, CauseIncidence]
    under_way: tuple[float, ...]  # 1 less all incidences
    under_way_at_tau: float
    n_units: int
    n_lost: int  # censored operations
    level: float
    withheld: str = ''  # why there are no intervals


def cumulative_incidence(
    cells: Mapping[str, Endings] | Endings, *, times_s: Sequence[float], tau_s: float | Mapping[str, float],
    level: float = 0.95,
) -> Incidence:  # fmt: skip
    """Aalen-Johansen incidences at `times_s` and time lost up to `tau_s` (one for all strata, or one per stratum).

    Both are means over strata. Intervals take units (start states) as independent, and allow for ends that were not
    seen: none has no width.
    """
    named = {'': cells} if isinstance(cells, Endings) else dict(cells)
    parts = list(named.values())
    if not parts or not all(len(p.times_s) for p in parts):
        raise NotEstimable('no operation was given: there is no incidence of nothing')
    taus = np.array([tau_of(tau_s, stratum) for stratum in named])
    for tau in taus:
        check_tau(float(tau))
    asked = [np.array([*times_s, tau], dtype=np.float64) for tau in taus]
    curves = [Curves.of(part) for part in parts]
    few = min(part.n_units for part in parts)
    withheld = '' if few >= FEWEST_PER_CELL else f'{few} units in a cell; at least {FEWEST_PER_CELL} are needed'
    causes = {
        end: _cause(k, end, parts, curves, asked, taus, level=level, has_intervals=not withheld)
        for k, end in enumerate(CAUSES)
    }
    under_way = 1.0 - np.sum([(*causes[end].chance, causes[end].by_tau) for end in CAUSES], axis=0)
    *before, last = np.maximum(under_way, 0.0).tolist()
    return Incidence(
        tuple(float(t) for t in times_s), float(taus.max()), causes, tuple(before), last,
        sum(p.n_units for p in parts), sum(p.count(OperationEnd.LOST) for p in parts), level, withheld,
    )  # fmt: skip


def _cause(
    k: int, end: OperationEnd, parts: Sequence[Endings], curves: Sequence[Curves], asked: Sequence[FloatArray],
    taus: FloatArray, *, level: float, has_intervals: bool,
) -> CauseIncidence:  # fmt: skip
    """The last of the asked times of each stratum is its tau."""
    values = np.array([c.at(k, at) for c, at in zip(curves, asked, strict=True)])
    lost = [c.time_lost(k, float(tau)) for c, tau in zip(curves, taus, strict=True)]
    band: list[Interval | None] = [None] * values.shape[1]
    area: Interval | None = None
    if has_intervals:
        moved = [
            c.influence(k, part, at, float(tau)) for c, part, at, tau in zip(curves, parts, asked, taus, strict=True)
        ]
        ones = np.ones(len(taus))
        band = [_rule_interval(values[:, t], [m[:, t] for m in moved], ones, level) for t in range(values.shape[1])]
        area = _rule_interval(np.array(lost), [m[:, -1] for m in moved], taus, level)
    *chance, by_tau = values.mean(axis=0).tolist()
    return CauseIncidence(
        end, tuple(chance), tuple(band[:-1]), by_tau, band[-1], float(np.mean(lost)), area,
        sum(p.count(end) for p in parts),
    )  # fmt: skip


def _rule_interval(values: FloatArray, influences: Sequence[FloatArray], high: FloatArray, level: float) -> Interval:
    n = np.array([float(len(m)) for m in influences])
    variances = np.array([float(np.sum(m**2)) for m in influences]) * n / (n - 1)
    arm = MacroArm(values, np.zeros(len(n)), high, n)
    return macro_interval(arm, Spread(variances / len(n) ** 2, n - 1), level=level)


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """One cell's product-limit steps at its distinct times."""

    times_s: FloatArray  # (m,)
    at_risk: FloatArray  # (m,)
    ended: FloatArray  # (m, causes)
    before: FloatArray  # (m,) chance to be under way just before
    incidence: FloatArray  # (m, causes)

    @classmethod
    def of(cls, cell: Endings) -> Curves:
        times, place = np.unique(cell.times_s, return_inverse=True)
        ended = np.zeros((len(times), len(CAUSES)))
        seen = cell.cause >= 0
        np.add.at(ended, (place[seen], cell.cause[seen]), 1.0)
        leaving = np.bincount(place, minlength=len(times)).astype(np.float64)
        at_risk = np.cumsum(leaving[::-1])[::-1]
        stay = np.cumprod(1.0 - ended.sum(axis=1) / at_risk)
        before = np.concatenate([[1.0], stay[:-1]])
        return cls(times, at_risk, ended, before, np.cumsum(before[:, None] * ended / at_risk[:, None], axis=0))

    def at(self, k: int, asked: FloatArray) -> FloatArray:
        steps = np.concatenate([[0.0], self.incidence[:, k]])
        return steps[np.searchsorted(self.times_s, asked, side='right')]

    def time_lost(self, k: int, tau_s: float) -> float:
        """The area under a cause's incidence up to tau."""
        jumps = np.diff(self.incidence[:, k], prepend=0.0)
        return math.fsum((jumps * np.maximum(tau_s - self.times_s, 0.0)).tolist())

    def influence(self, k: int, cell: Endings, asked: FloatArray, tau_s: float) -> FloatArray:
        """(units, asked + 1): by how much each unit moves the incidence at each time, and the time lost (last column).

        The derivative by an operation's weight (the infinitesimal jackknife), summed within units.
        """
        total = np.zeros((cell.n_units, len(asked) + 1))
        if not self.ended[:, k].any():
            return total  # nobody moves what never happens
        inside = self.times_s[self.times_s < tau_s]
        grid = inside if len(inside) <= MOST_TIMES else np.quantile(inside, np.linspace(0, 1, MOST_TIMES))
        widths = np.diff(np.concatenate([grid, [tau_s]]))
        # Some operations at a time, so that many of them need no large table.
        for some in np.array_split(np.arange(len(cell.times_s)), n_blocks(len(asked), len(cell.times_s))):
            columns = self._operation_influence(k, cell.times_s[some], cell.cause[some], asked, grid, widths)
            np.add.at(total, cell.unit[some], columns)
        return total

    def _operation_influence(
        self, k: int, times_s: FloatArray, cause: IntArray, asked: FloatArray, grid: FloatArray, widths: FloatArray
    ) -> FloatArray:
        n, d, dk, before = self.at_risk, self.ended.sum(axis=1), self.ended[:, k], self.before
        stay = np.divide(d, n * (n - d), out=np.zeros_like(n), where=n > d)
        log_before = np.concatenate([[0.0], np.cumsum(stay)])  # of log S just before each time, and after all
        own = np.searchsorted(self.times_s, times_s)
        seen = cause >= 0
        log_after = np.where(seen, log_before[own] - 1.0 / n[own], log_before[own + 1])
        # Up to its end an operation moves S through what it survived, and dilutes every hazard by 1/n.
        drift = np.concatenate([[0.0], np.cumsum(before * dk / n * (log_before[:-1] - 1.0 / n))])
        steps = np.concatenate([[0.0], self.incidence[:, k]])
        by = np.searchsorted(self.times_s, asked, side='right')
        stop = np.minimum(by[None, :], own[:, None] + 1)
        later = steps[by][None, :] - steps[stop]
        jump = np.where(cause == k, before[own] / n[own], 0.0)
        moved: FloatArray = drift[stop] + later * log_after[:, None] + (by[None, :] > own[:, None]) * jump[:, None]
        # The same summed over the grid: running sums of what it is before an operation's end, and of what from then on.
        by = np.searchsorted(self.times_s, grid, side='right')
        end = np.searchsorted(by, own + 1)
        past = np.concatenate([[0.0], np.cumsum(drift[by] * widths)])
        rest_s, rest = (
            np.concatenate([np.cumsum(values[::-1])[::-1], [0.0]]) for values in (widths, steps[by] * widths)
        )
        lost = (
            past[end] + (drift[own + 1] + jump) * rest_s[end] + log_after * (rest[end] - steps[own + 1] * rest_s[end])
        )
        return np.column_stack([moved, lost])


# How it failed: drops, safety stops and timeouts, by operation and by episode (PhAIL, Appendix F).

DROPS = (Cause.DROP_OUTSIDE, Cause.DROP_UNCOLLECTED)


@dataclass(frozen=True, slots=True)
class FailureModes:
    """Counts for one policy; rates are derived from them."""

    policy: str
    n_episodes: int
    n_invalid: int
    n_operations: int
    operations_by_cause: Mapping[Cause, int]
    episodes_by_outcome: Mapping[Outcome, int]
    n_assists: int
    hard_failure: float | None  # the curve's plateau gap; None when every operation is censored
    missing_at_tau: float  # 1 - F(tau)
    tau_s: float
    n_safety_stops: int  # episodes that a safety stop ended, by outcome or by event
    n_dropping: int  # episodes with at least one item dropped and lost

    def operation_rate(self, *causes: Cause) -> float:
        """Operations that ended by any of `causes`, over all operations."""
        return sum(self.operations_by_cause[c] for c in causes) / self.n_operations

    @property
    def drop_rate(self) -> float:
        return self.operation_rate(*DROPS)

    @property
    def ghost_share(self) -> float:
        """All ghosts over all operations."""
        return self.drop_rate + self.operation_rate(Cause.SAFETY_STOP, Cause.FAILURE)

    @property
    def safety_stop_rate(self) -> float:
        """Episodes ended by a safety stop over valid episodes: the intervention rate."""
        return self.n_safety_stops / self.n_episodes

    @property
    def dropping_rate(self) -> float:
        """Episodes with a drop over valid episodes."""
        return self.n_dropping / self.n_episodes

    def episode_rate(self, outcome: Outcome) -> float:
        """Episodes with this outcome, over valid episodes."""
        return self.episodes_by_outcome[outcome] / self.n_episodes


def failure_modes(cohort: Cohort, *, tau_s: float = 240.0) -> FailureModes:
    """The decomposition of one policy's failures, all strata together."""
    pooled = cohort.pooled
    curve = success_curve(pooled.durations_s, pooled.observed)
    dropped = {k for k, cause in zip(pooled.cluster.tolist(), pooled.cause or (), strict=True) if cause in DROPS}
    try:
        hard: float | None = curve.hard_failure
    except NotEstimable:
        hard = None
    codes, ended = coded(cohort.episodes, 'outcome')
    outcomes = Counter({outcome: n for (outcome,), n in zip(ended, np.bincount(codes).tolist(), strict=True)})
    n_invalid = outcomes[Outcome.INVALID]
    eventful = pick(cohort.episodes, np.flatnonzero(~lacks(cohort.episodes, 'events')))
    assists = (
        e.count for episode in eventful if episode.is_valid for e in episode.events if e.kind is EventKind.ASSIST
    )
    return FailureModes(
        policy=cohort.policy,
        n_episodes=len(cohort.episodes) - n_invalid,
        n_invalid=n_invalid,
        n_operations=pooled.n_operations,
        operations_by_cause={cause: pooled.count(cause) for cause in Cause},
        episodes_by_outcome={o: outcomes[o] for o in Outcome if o is not Outcome.INVALID},
        n_assists=sum(assists),
        hard_failure=hard,
        missing_at_tau=1.0 - float(curve.at(tau_s)),
        tau_s=tau_s,
        n_safety_stops=cohort.n_safety_stops,
        n_dropping=len(dropped),
    )


BALANCE_LIMIT = 0.08  # the paper calls a split within 8 points of even balanced


@dataclass(frozen=True, slots=True)
class LabelShare:
    """Items placed over items, among one policy's episodes with one value of the label."""

    value: str
    n_episodes: int
    n_placed: int
    n_items: int
    interval: Interval | None  # None where every resample gives the same share, which proves nothing

    @property
    def completion(self) -> float:
        return self.n_placed / self.n_items


@dataclass(frozen=True, slots=True)
class LabelSensitivity:
    """One policy's completion by a label's values; with two values, their difference."""

    policy: str
    label: str
    shares: tuple[LabelShare, ...]  # most complete first
    difference: float | None  # first minus second, when there are exactly two values
    difference_interval: Interval | None
    n_unlabelled: int

    @property
    def imbalance(self) -> float:
        """How far the largest share of episodes is from an even split."""
        counts = [s.n_episodes for s in self.shares]
        return max(counts) / sum(counts) - 1 / len(counts)

    @property
    def is_balanced(self) -> bool:
        return self.imbalance <= BALANCE_LIMIT


def label_reader(label: str) -> Callable[[Episode], str | None]:
    """A label's value by its key; 'a=b' says whether two agree ('same') or not ('opposite'), 'a*b' crosses them."""
    operator = next((sign for sign in '*=' if sign in label), '')
    if not operator:
        return lambda e: e.labels.get(label)
    first, _, second = label.partition(operator)

    def read(episode: Episode) -> str | None:
        value, other = episode.labels.get(first), episode.labels.get(second)
        if value is None or other is None:
            return None
        if operator == '*':
            return f'{value} x {other}'
        return 'same' if value == other else 'opposite'

    return read


def items_of(episode: Episode) -> tuple[int, int] | None:
    """Items placed and items; a host without items has one, done or not. None when the placed count is unknown."""
    timed = sum(e.count for e in episode.events if e.kind is EventKind.PLACEMENT)
    if episode.items is None and episode.items_placed is None and not timed:
        return int(episode.outcome is Outcome.SUCCESS), 1
    if episode.items is None:
        return None
    placed = timed if episode.items_placed is None else episode.items_placed
    if not placed and episode.outcome is Outcome.SUCCESS and episode.items == 1:
        placed = 1
    return placed, episode.items


def label_sensitivity(
    cohort: Cohort, *, label: str, rng: np.random.Generator, n_resamples: int = 2000, level: float = 0.95
) -> LabelSensitivity:
    """Completion by the label's values with episode-bootstrap intervals, and how evenly episodes are split."""
    read = label_reader(label)
    groups: dict[str, list[tuple[int, int]]] = {}
    unlabelled = 0
    for episode in cohort.valid:
        value, items = read(episode), items_of(episode)
        if value is None or items is None:
            unlabelled += 1
        else:
            groups.setdefault(value, []).append(items)
    if not groups:
        known = sorted({k for e in cohort.valid for k in e.labels})
        raise UnknownName(f'label of {cohort.policy} with counted items', label, known)
    draws = {v: _ratio_draws(rows, n_resamples, rng) for v, rows in sorted(groups.items())}
    shares = sorted((_share(v, groups[v], draws[v], level) for v in draws), key=lambda s: -s.completion)
    gap, gap_interval = None, None
    if len(shares) == 2:
        gap = shares[0].completion - shares[1].completion
        gap_interval = _percentile(draws[shares[0].value] - draws[shares[1].value], level)
    return LabelSensitivity(cohort.policy, label, tuple(shares), gap, gap_interval, unlabelled)


def _share(value: str, rows: Sequence[tuple[int, int]], draws: np.ndarray, level: float) -> LabelShare:
    placed, items = (sum(r[k] for r in rows) for k in (0, 1))
    if items == 0:
        raise InputError(f'label value {value!r}: its episodes have no items')
    return LabelShare(value, len(rows), placed, items, _percentile(draws, level))


def _ratio_draws(rows: Sequence[tuple[int, int]], n_resamples: int, rng: np.random.Generator) -> np.ndarray:
    counts = resample_counts(len(rows), n_resamples=n_resamples, rng=rng)
    totals = counts @ np.array(rows)
    with np.errstate(invalid='ignore', divide='ignore'):
        return np.asarray(totals[:, 0] / totals[:, 1], dtype=np.float64)


def _percentile(draws: np.ndarray, level: float) -> Interval | None:
    low, high = np.quantile(draws[np.isfinite(draws)], [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high)) if low < high else None


def check_label(by_policy: Mapping[str, Cohort], label: str) -> list[Cohort]:
    """The cohorts with at least one episode that carries the label; none at all is an error with the near name."""
    read = label_reader(label)
    carrying = [c for c in by_policy.values() if any(read(e) is not None for e in c.valid)]
    if not carrying:
        raise UnknownName('label', label, sorted({k for c in by_policy.values() for e in c.valid for k in e.labels}))
    return carrying
