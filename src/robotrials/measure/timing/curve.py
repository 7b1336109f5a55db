"""Success curves (Kaplan-Meier, with an atom at infinity; PhAIL, section 3.1), and the cohorts they are drawn from.

A cohort is the episodes of one policy, cut into the cells (strata) that scores and tests work on. Means over units come
with what they are when each unit (start state, episode, session) is left out.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.timing.operation import (
    BatchRule,
    Cause,
    FloatArray,
    IntArray,
    Operations,
    Unit,
    checked_times,
    is_safety_stopped,
    operations_by_stratum,
    pool,
)
from robotrials.record import Episode, Outcome
from robotrials.record.rows import EpisodeRows, ended, pick
from robotrials.stats.interval import FEWEST_PER_CELL, MacroArm, Spread
from robotrials.stats.matching import Labels
from robotrials.stats.success_rule import stratified_exact
from robotrials.value import dataclass

MOST_NUMBERS = 1_000_000  # of a table that is worked through: 8 MB, and a few times that for what it is made of


@dataclass(frozen=True, slots=True, eq=False)
class SuccessCurve:
    """F(t) = P(T <= t), a right-continuous step function that is held flat after the last finite time.

    `times_s` are the distinct finite times at which something succeeded or was censored. Counts are sums of weights.
    """

    times_s: FloatArray  # (k,)
    chance: FloatArray  # (k,) F at each time
    at_risk: FloatArray  # (k,) still unfinished just before each time, ghosts included
    n_success: FloatArray  # (k,)
    n_censored: FloatArray  # (k,)
    n_ghosts: float

    @property
    def n_operations(self) -> float:
        return float(self.n_success.sum() + self.n_censored.sum() + self.n_ghosts)

    @property
    def plateau(self) -> float:
        """F at the last finite time: the largest chance the data show."""
        return float(self.chance[-1]) if len(self.chance) else 0.0

    @property
    def hard_failure(self) -> float:
        """The gap between the plateau and 1. NotEstimable when every operation is censored: no end was ever seen.

        Without ghosts it is an upper bound, since the rest may yet have succeeded after watching stopped.
        """
        if not self.n_success.sum() and not self.n_ghosts:
            raise NotEstimable('every operation is censored: no success and no hard failure was seen')
        return 1.0 - self.plateau

    @property
    def ghost_share(self) -> float:
        """Ghosts over operations: a plain count, which censoring biases downward."""
        return self.n_ghosts / self.n_operations

    @property
    def followed_to_s(self) -> float:
        """The time up to which the data determine F: infinite when only ghosts, or nothing, is left after the end."""
        if self.n_ghosts or self.plateau >= 1.0 - 1e-12:
            return float('inf')
        return float(self.times_s[-1])

    def at(self, t_s: ArrayLike) -> FloatArray | float:
        """F at one time, or at each of an array of times; flat after the last finite time, also at infinity."""
        asked = np.asarray(t_s, dtype=np.float64)
        if np.isnan(asked).any():
            raise InputError('t_s holds NaN, wanted times in seconds')
        steps = np.concatenate([[0.0], self.chance])
        values = steps[np.searchsorted(self.times_s, asked, side='right')]
        return float(values) if asked.ndim == 0 else values

    def quantile(self, level: float) -> float | None:
        """The first time with F >= level; None when the curve never gets there ("not reached")."""
        if not 0 < level < 1:
            raise InputError(f'level is {level}, wanted a number between 0 and 1')
        reached = np.flatnonzero(self.chance >= level - 1e-12)
        return float(self.times_s[reached[0]]) if len(reached) else None

    @property
    def median_s(self) -> float | None:
        return self.quantile(0.5)

    def at_risk_at(self, t_s: ArrayLike) -> FloatArray:
        """Operations still unfinished just before each time (ghosts stay for ever)."""
        asked = np.atleast_1d(np.asarray(t_s, dtype=np.float64))
        return np.concatenate([self.at_risk, [self.n_ghosts]])[np.searchsorted(self.times_s, asked, side='left')]

    @property
    def greenwood_sums(self) -> FloatArray:
        """(k + 1,) the sum of d / (n (n - d)) before each time, and over all."""
        left = self.at_risk - self.n_success
        terms = np.divide(self.n_success, self.at_risk * left, out=np.zeros_like(left), where=left > 0)
        return np.concatenate([[0.0], np.cumsum(terms)])

    def greenwood_variance(self, t_s: ArrayLike) -> FloatArray:
        """Greenwood's variance of F at each time; it takes operations as independent."""
        total = self.greenwood_sums
        asked = np.atleast_1d(np.asarray(t_s, dtype=np.float64))
        index = np.searchsorted(self.times_s, asked, side='right')
        survival = 1.0 - np.concatenate([[0.0], self.chance])[index]
        return np.asarray(survival**2 * total[index], dtype=np.float64)


def success_curve(durations_s: ArrayLike, observed: ArrayLike, *, weights: ArrayLike | None = None) -> SuccessCurve:
    """Kaplan-Meier chance of success by time. `inf` observed is a ghost; unobserved is censored at its duration.

    durations_s, observed and weights are (n,). Censored at a tie counts as still at risk there.
    """
    times, seen = checked_times(durations_s, observed)
    if len(times) == 0:
        raise NotEstimable('no operation was given: there is no curve of nothing')
    weight = np.ones_like(times) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != times.shape or not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise InputError(f'weights must be {len(times)} finite numbers >= 0, one per operation')
    if not weight.sum() > 0:
        raise NotEstimable('every weight is 0: there is no curve of nothing')
    finite = np.isfinite(times)
    unique, place = np.unique(times[finite], return_inverse=True)
    kept, flag = weight[finite], seen[finite]
    n_success = np.bincount(place, weights=kept * flag, minlength=len(unique)).astype(np.float64)
    n_censored = np.bincount(place, weights=kept * ~flag, minlength=len(unique)).astype(np.float64)
    n_ghosts = float(weight[~finite].sum())
    leaving = (n_success + n_censored)[::-1]
    at_risk = np.cumsum(leaving)[::-1] + n_ghosts
    ratio = np.divide(n_success, at_risk, out=np.zeros_like(at_risk), where=at_risk > 0)
    chance = np.asarray(1.0 - np.cumprod(1.0 - np.minimum(ratio, 1.0)), dtype=np.float64)
    return SuccessCurve(unique, chance, at_risk, n_success, n_censored, n_ghosts)


def rmst(curve: SuccessCurve, tau_s: float) -> float:
    """Restricted mean time-to-success in seconds: the integral of 1 - F up to tau_s, so a ghost is charged tau_s."""
    check_tau(tau_s)
    inside = curve.times_s[curve.times_s < tau_s]
    edges = np.concatenate([[0.0], inside, [tau_s]])
    survival = 1.0 - np.concatenate([[0.0], curve.chance[: len(inside)]])
    return float(np.sum(survival * np.diff(edges)))


def check_tau(tau_s: float) -> None:
    """Raise InputError unless tau_s is a finite number of seconds above 0."""
    if not (np.isfinite(tau_s) and tau_s > 0):
        raise InputError(f'tau_s is {tau_s}, wanted a finite number of seconds > 0')


def macro_curve(curves: Mapping[str, SuccessCurve], *, weights: Mapping[str, float] | None = None) -> SuccessCurve:
    """The average of the strata's F with equal (or given) weights: each stratum counts the same, whatever its size.

    At-risk numbers and counts are sums over strata, so they describe the data and not the averaged curve.
    """
    if not curves:
        raise NotEstimable('no stratum was given: there is no average of no curve')
    share = np.array([1.0 if weights is None else weights.get(name, np.nan) for name in curves])
    if not np.all(np.isfinite(share)) or np.any(share < 0) or not share.sum() > 0:
        raise InputError(f'weights must be numbers >= 0 for each of {", ".join(curves)}, not all 0; found {weights}')
    times = np.unique(np.concatenate([c.times_s for c in curves.values()]))
    chance = sum(w * np.atleast_1d(c.at(times)) for w, c in zip(share / share.sum(), curves.values(), strict=True))
    return SuccessCurve(
        times_s=times,
        chance=np.asarray(chance, dtype=np.float64).reshape(len(times)),
        at_risk=np.sum([c.at_risk_at(times) for c in curves.values()], axis=0).reshape(len(times)),
        n_success=_counts_at(times, curves, 'n_success'),
        n_censored=_counts_at(times, curves, 'n_censored'),
        n_ghosts=float(sum(c.n_ghosts for c in curves.values())),
    )


def _counts_at(times: FloatArray, curves: Mapping[str, SuccessCurve], name: str) -> FloatArray:
    total = np.zeros(len(times))
    for curve in curves.values():
        np.add.at(total, np.searchsorted(times, curve.times_s), getattr(curve, name))
    return total


def clustered_variance(
    durations_s: ArrayLike, observed: ArrayLike, episode: IntArray | Sequence[int], t_s: ArrayLike
) -> FloatArray:
    """Variance of F at each time with operations clustered in episodes: the infinitesimal jackknife."""
    cluster = np.unique(np.asarray(episode), return_inverse=True)[1]
    asked = np.atleast_1d(np.asarray(t_s, dtype=np.float64))
    # Times are independent of each other: a few at a time, so that many operations need no large table.
    parts = np.array_split(asked, n_blocks(len(cluster), len(asked)))
    squares = [(episode_influence(durations_s, observed, cluster, some) ** 2).sum(axis=0) for some in parts]
    return np.asarray(np.concatenate(squares), dtype=np.float64)


def n_blocks(rows: int, columns: int) -> int:
    """Into how many parts a table of so many numbers is cut, of which one at a time is held; at most one per column."""
    return max(1, min(columns, -(-rows * columns // MOST_NUMBERS)))


def episode_influence(
    durations_s: ArrayLike, observed: ArrayLike, cluster: IntArray, t_s: ArrayLike, *, n_episodes: int | None = None
) -> FloatArray:
    """(episodes, times): by how much each episode moves F; their squares sum to the clustered variance.

    `cluster` numbers each operation's episode from 0. An operation's derivative of log S(t) is the sum of d/(n (n - d))
    over the times u <= t that it was at risk and did not succeed, less 1/n at its own success; derivatives are summed
    within each episode.
    """
    times, seen = checked_times(durations_s, observed)
    curve = success_curve(times, seen)
    asked = np.atleast_1d(np.asarray(t_s, dtype=np.float64))
    own = np.searchsorted(curve.times_s, times)
    n_own = np.concatenate([curve.at_risk, [1.0]])[own]
    stayed = curve.greenwood_sums
    succeeded = (seen & np.isfinite(times))[:, None] & (times[:, None] <= asked[None, :])
    until = np.where(seen, own, own + 1)[:, None]
    by_then = np.searchsorted(curve.times_s, asked, side='right')[None, :]
    slope = stayed[np.minimum(np.minimum(until, by_then), len(curve.times_s))] - succeeded / n_own[:, None]
    influence: FloatArray = -(1.0 - np.atleast_1d(curve.at(asked)))[None, :] * slope
    totals = np.zeros((int(cluster.max()) + 1 if n_episodes is None else n_episodes, len(asked)))
    if np.array_equal(cluster, np.arange(len(totals))):
        return influence  # one operation each: nothing to add up
    np.add.at(totals, cluster, influence)
    return totals


CENTRES = (Unit.SESSION, Unit.OPERATOR)


class Endpoint(enum.StrEnum):
    """A bounded quantity of a cell that the rule can compare."""

    RMST = 'rmst_s'  # 0 to tau
    CHANCE = 'chance'  # F(tau), 0 to 1
    HARD_FAILURE = 'hard_failure'  # 1 - F at the last finite time, 0 to 1


@dataclass(frozen=True, slots=True, eq=False)
class UnitMeans:
    """One policy's endpoint in one stratum, and the same with each unit left out."""

    value: float
    left_out: FloatArray  # (units,)
    labels: Labels  # (units,)
    low: float
    high: float
    n_followed: int  # units that were watched to the end of an operation, or to tau

    @property
    def n_units(self) -> int:
        return len(self.left_out)

    @property
    def influence(self) -> FloatArray:
        """(units,) whose squares sum to the jackknife variance of the value."""
        n = self.n_units
        return np.asarray(np.sqrt((n - 1) / n) * (self.left_out.mean() - self.left_out))

    @property
    def variance(self) -> float:
        return float(np.sum(self.influence**2))


def unit_means(cell: Operations, tau_s: float, endpoint: Endpoint = Endpoint.RMST) -> UnitMeans:
    """The endpoint of a cell by the jackknife over its units (exact: every unit is really left out)."""
    from robotrials.measure.timing.resample import scalar_jackknife, sort_cell

    check_tau(tau_s)
    whole = cell.by_unit()
    table = scalar_jackknife(sort_cell(whole), tau_s=tau_s)
    column = {
        Endpoint.RMST: table[:, 0], Endpoint.CHANCE: table[:, 1], Endpoint.HARD_FAILURE: 1.0 - table[:, 3],
    }[endpoint]  # fmt: skip
    ended = whole.observed if endpoint is Endpoint.HARD_FAILURE else whole.observed | (whole.durations_s >= tau_s)
    return UnitMeans(
        value=float(column[-1]),
        left_out=np.ascontiguousarray(column[:-1]),
        labels=whole.units if whole.units is not None else tuple(range(whole.n_episodes)),
        low=0.0,
        high=tau_s if endpoint is Endpoint.RMST else 1.0,
        n_followed=int(np.count_nonzero(np.bincount(whole.episode[ended]))),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ArmMeans:
    """One policy's cells, stratum by stratum, in the order of the strata."""

    cells: Mapping[str, UnitMeans]
    unit: Unit

    @property
    def macro(self) -> MacroArm:
        parts = list(self.cells.values())
        return MacroArm(
            means=np.array([p.value for p in parts]),
            low=np.array([p.low for p in parts]),
            high=np.array([p.high for p in parts]),
            n_units=np.array([float(p.n_followed) for p in parts]),
            is_linked=self.unit in CENTRES,
        )

    @property
    def n_units(self) -> int:
        if self.unit in CENTRES:
            return len({label for part in self.cells.values() for label in _told_apart(part)})
        return sum(part.n_units for part in self.cells.values())

    @property
    def spread(self) -> Spread:
        """The jackknife variance of the macro mean."""
        return _linked([self]) if self.unit in CENTRES else independent_spread([self])

    def problem(self) -> str:
        """Why the rule cannot judge this arm; empty when it can."""
        for stratum, part in self.cells.items():
            if part.n_units < FEWEST_PER_CELL:
                is_one_start = self.unit is Unit.START and part.n_units == 1 and part.labels[0] is not None
                hint = ' (every episode has the same seed and instance)' if is_one_start else ''
                return f'{_counted(part.n_units, self.unit)} in {stratum}{hint}; at least {FEWEST_PER_CELL} are needed'
            if part.n_followed == 0:
                return f'no operation of {stratum} was followed to its end'
        if self.unit in CENTRES and self.n_units < FEWEST_PER_CELL:
            return f'{_counted(self.n_units, self.unit)}; at least {FEWEST_PER_CELL} are needed'
        return ''


def _counted(n: int, unit: Unit) -> str:
    return f'{n} {unit}{"" if n == 1 else "s"}'


def _told_apart(part: UnitMeans) -> list[Hashable]:
    """Labels with a place for a unit that has none, so that such units stay separate."""
    return [(id(part), place) if label is None else label for place, label in enumerate(part.labels)]


def arm_means(
    cells: Mapping[str, Operations], tau_s: float | Mapping[str, float], endpoint: Endpoint = Endpoint.RMST
) -> ArmMeans:
    """Each stratum's endpoint; `tau_s` is one number, or one per stratum."""
    if not cells:
        raise InputError('no stratum was given: there is no mean of nothing')
    units = {cell.unit for cell in cells.values()}
    if len(units) > 1:
        raise InputError(f'strata have different units ({", ".join(sorted(units))}); build them with one unit')
    return ArmMeans({s: unit_means(c, tau_of(tau_s, s), endpoint) for s, c in cells.items()}, units.pop())


def tau_of(tau_s: float | Mapping[str, float], stratum: str) -> float:
    """The time up to which a stratum is judged."""
    if not isinstance(tau_s, Mapping):
        return float(tau_s)
    if stratum not in tau_s:
        raise InputError(f'tau_s has no time for stratum {stratum!r}; it has: {", ".join(sorted(tau_s)) or "none"}')
    return float(tau_s[stratum])


def independent_spread(arms: list[ArmMeans]) -> Spread:
    """The variance of a sum of macro means over arms that share no unit: one term per cell."""
    parts = [part for arm in arms for part in arm.cells.values()]
    strata = len(arms[0].cells)
    terms = np.array([part.variance for part in parts]) / strata**2
    return Spread(terms, np.array([max(part.n_units - 1.0, 1.0) for part in parts]))


def matched_spread(first: ArmMeans, second: ArmMeans) -> Spread:
    """The variance of second - first where both have the same units, stratum by stratum: one term per stratum."""
    terms, dof = [], []
    for stratum, part in first.cells.items():
        other = second.cells[stratum]
        moved = other.influence[_places_in(other.labels, part.labels)] - part.influence
        terms.append(float(np.sum(moved**2)))
        dof.append(max(part.n_units - 1.0, 1.0))
    return Spread(np.array(terms) / len(terms) ** 2, np.array(dof))


def _places_in(labels: Labels, wanted: Labels) -> slice | list[int]:
    """Where each of the wanted labels stands among these."""
    if labels == wanted:
        return slice(None)
    place = {label: k for k, label in enumerate(labels)}
    return [place[label] for label in wanted]


def contrast_spread(first: ArmMeans, second: ArmMeans, *, is_paired: bool) -> Spread:
    """The variance of the macro difference, by what its units share."""
    if first.unit in CENTRES:
        return _linked([first, second])
    return matched_spread(first, second) if is_paired else independent_spread([first, second])


def _linked(arms: list[ArmMeans]) -> Spread:
    """The variance where one unit may reach over strata and arms: each unit's moves are added before squaring."""
    total: dict[Hashable, float] = {}
    for sign, arm in zip((-1.0, 1.0), arms, strict=False):
        for part in arm.cells.values():
            for label, moved in zip(_told_apart(part), part.influence.tolist(), strict=True):
                total[label] = total.get(label, 0.0) + sign * moved / len(arm.cells)
    return Spread(np.array([sum(v**2 for v in total.values())]), np.array([max(len(total) - 1.0, 1.0)]))


def matched_cells(
    a: Mapping[str, Operations], b: Mapping[str, Operations]
) -> tuple[dict[str, Operations], dict[str, Operations]]:
    """Within each stratum the episodes of the units that both policies ran; strata without any are left out."""
    first, second = {}, {}
    for stratum in a:
        if _is_matched(a[stratum], b[stratum]):
            first[stratum], second[stratum] = a[stratum], b[stratum]
            continue
        left, right = (_episodes_of(cells[stratum]) for cells in (a, b))
        common = [label for label in left if label in right]
        if common:
            first[stratum] = a[stratum].take([place for label in common for place in left[label]])
            second[stratum] = b[stratum].take([place for label in common for place in right[label]])
    return first, second


def _is_matched(a: Operations, b: Operations) -> bool:
    """Whether both cells have the same units in the same order, each once."""
    labels = a.units
    return labels is not None and labels == b.units and None not in labels and a.n_units == len(labels)


def _episodes_of(cell: Operations) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for place, label in enumerate(cell.units or ()):
        if label is not None:
            places.setdefault(label, []).append(place)
    return places


def followed_to(cell: Operations) -> float:
    """Until when a cell's curve is known, in seconds; infinite where its last finite operation was a success.

    A ghost does not lengthen it: what was censored may still have succeeded, and a ghost never does.
    """
    finite = np.isfinite(cell.durations_s)
    watched = cell.durations_s[finite & ~cell.observed]
    done = cell.durations_s[finite & cell.observed]
    if len(watched) == 0 or (len(done) and done.max() > watched.max()):
        return float('inf')
    return float(watched.max())


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """One policy's episodes, and their operations stratum by stratum."""

    policy: str
    is_reference: bool
    episodes: Sequence[Episode]  # INVALID ones included
    cells: Mapping[str, Operations]  # strata with at least one operation

    @property
    def valid(self) -> Sequence[Episode]:
        return pick(self.episodes, np.flatnonzero(~ended(self.episodes, Outcome.INVALID)))

    @property
    def n_episodes(self) -> int:
        return len(self.episodes) - self.n_invalid

    @property
    def n_invalid(self) -> int:
        return int(ended(self.episodes, Outcome.INVALID).sum())

    @property
    def n_safety_stops(self) -> int:
        if isinstance(self.episodes, EpisodeRows) and not self.episodes.has_events:
            return int(self.episodes.ended(Outcome.SAFETY_STOP).sum())
        return sum(e.is_valid and is_safety_stopped(e) for e in self.episodes)

    @property
    def followed_to_s(self) -> float:
        """From when on some stratum's curve is only held flat: nobody watched longer, and not all had succeeded."""
        return min((success_curve(c.durations_s, c.observed).followed_to_s for c in self.cells.values()), default=inf)

    @property
    def pooled(self) -> Operations:
        """All strata as one cell."""
        if not self.cells:
            raise NotEstimable(f'{self.policy}: none of {len(self.episodes)} episodes gives an operation')
        return pool(self.cells)


def cohorts(episodes: Iterable[Episode], *, batch: BatchRule | str = BatchRule.ELAPSED) -> dict[str, Cohort]:
    """Policy -> Cohort, references first and then by name."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.policy, []).append(episode)
    made = [_cohort(policy, group, BatchRule(batch)) for policy, group in groups.items()]
    return {c.policy: c for c in sorted(made, key=lambda c: (not c.is_reference, c.policy))}


def _cohort(policy: str, group: list[Episode], batch: BatchRule) -> Cohort:
    flags = {e.is_reference for e in group}
    if len(flags) > 1:
        raise InputError(f'{policy}: some episodes say is_reference and some do not; correct one of them')
    cells = operations_by_stratum(group, batch=batch)
    return Cohort(policy, flags.pop(), tuple(group), {s: c for s, c in cells.items() if c.n_operations})


def find_cohort(by_policy: Mapping[str, Cohort], policy: str) -> Cohort:
    """The cohort of this name, or an error with the near one."""
    if policy not in by_policy:
        raise UnknownName('policy', policy, by_policy)
    return by_policy[policy]


# Common follow-up: both arms of a stratum are judged only as far as both were watched.
# Identical policies run under caps of 60 and 120 s are "different" in most trials when each is taken as far as it was
# run. Cut at the common follow-up, curves, tests and counts hold. Random loss (censoring before the cap) that differs
# between the arms is another matter: shuffling labels is then no longer exact, so the KS test is refused.

LOSS_LEVEL = 0.2  # an unequal loss that is missed at this level does little harm


@dataclass(frozen=True, slots=True, eq=False)
class CommonFollowUp:
    """Both arms cut at the time to which both were watched, stratum by stratum."""

    a: Mapping[str, Operations]
    b: Mapping[str, Operations]
    tau_s: Mapping[str, float]
    shortened: tuple[str, ...]  # strata whose tau the follow-up cut
    loss_p_value: float  # of equal loss before the cap in both arms
    n_lost: tuple[int, int]  # units of each arm with an operation that was lost before the cap

    @property
    def ks_refused(self) -> str:
        """Why a test that shuffles labels would not hold; empty when it does."""
        if self.loss_p_value > LOSS_LEVEL:
            return ''
        return (
            f'operations were lost before the time cap in {self.n_lost[0]} and {self.n_lost[1]} units: unequal loss '
            '(p = {:.2g}) would pass for a difference of the curves'.format(self.loss_p_value)
        )


def common_follow_up(
    a: Mapping[str, Operations], b: Mapping[str, Operations], tau_s: float | Mapping[str, float]
) -> CommonFollowUp:
    """Cut both arms in each stratum at the smaller of tau and what both were followed to."""
    ends = {s: min(tau_of(tau_s, s), followed_to(a[s]), followed_to(b[s])) for s in a}
    counts = {s: (_lost_units(a[s], ends[s]), _lost_units(b[s], ends[s])) for s in a}
    test = stratified_exact([(x, a[s].n_units, y, b[s].n_units) for s, (x, y) in counts.items()])
    return CommonFollowUp(
        a={s: cut(a[s], ends[s]) for s in a},
        b={s: cut(b[s], ends[s]) for s in a},
        tau_s=ends,
        shortened=tuple(s for s in a if ends[s] < tau_of(tau_s, s)),
        loss_p_value=test.p_value,
        n_lost=(sum(x for x, _ in counts.values()), sum(y for _, y in counts.values())),
    )


def cut(cell: Operations, at_s: float) -> Operations:
    """The cell as if watching had stopped at `at_s`: what was not done by then is censored there."""
    later = cell.durations_s > at_s
    durations_s = np.where(later, at_s, cell.durations_s)
    lost = None if cell.lost is None else cell.lost & ~later
    cause = cell.cause
    if cause is not None and later.any():
        causes = np.array(cause, dtype=object)
        causes[later] = Cause.TAIL
        cause = tuple(causes.tolist())
    return replace(cell, durations_s=durations_s, observed=cell.observed & ~later, lost=lost, cause=cause)


def _lost_units(cell: Operations, at_s: float) -> int:
    """Units with an operation that something else than the clock cut off before `at_s`."""
    if cell.lost is None:
        return 0
    gone = cell.lost & (cell.durations_s < at_s)
    return len(set(cell.unit_codes[cell.cluster[gone]].tolist()))
