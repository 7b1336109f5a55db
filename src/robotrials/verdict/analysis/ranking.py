"""What each policy did alone: success rates, times and curves, and the order they give."""

from __future__ import annotations

import itertools
import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing import Cohort, operations, rmst, success_curve
from robotrials.measure.timing.curve import check_tau, followed_to
from robotrials.measure.timing.operation import Unit, row_units
from robotrials.record import Episode
from robotrials.record.rows import EpisodeRows, coded, column, join
from robotrials.stats import Estimate, Interval, Rate
from robotrials.stats.interval import FEWEST_PER_CELL, MacroArm, Spread, macro_interval
from robotrials.stats.success_rule import unit_shares
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import success_of
from robotrials.verdict.analysis.selection import SEPARATOR, Absent, present

if TYPE_CHECKING:
    from robotrials.measure.timing import CohortScore, FailureModes, Operations, RelativeScore, Scale
    from robotrials.measure.timing.operation import FloatArray
    from robotrials.stats.interval import BoolArray
    from robotrials.stats.success_rule import UnitShares
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.selection import ComparisonFrame
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


if TYPE_CHECKING:
    Stream = Callable[..., np.random.Generator]
    Keep = Callable[[str, Callable[[], Any], Callable[[], Sequence[type]]], Any]

ALL_STRATA = ''
MOST_STEPS = 256


@dataclass(frozen=True, slots=True, eq=False)
class PolicyCurve:
    """One policy's chance of success by time with its pointwise band; the equal-weight mean when over all strata."""

    policy: str
    stratum: str  # ALL_STRATA is the mean over them
    times_s: FloatArray
    chance: FloatArray
    low: FloatArray | None  # None where nothing succeeded: no band exists
    high: FloatArray | None
    n_episodes: int
    n_operations: int


@dataclass(frozen=True, eq=False)
class Ranking:
    """Every policy's time to success under one condition; what takes resamples is worked out when asked for, once."""

    condition: str  # '' where the conditions of the source are pooled
    times: Times
    reference: str | None
    order: tuple[str, ...]  # lowest macro RMST first; neither the reference nor those of `apart` are among them
    apart: Mapping[str, str]  # policies that are not ranked, and why
    strata: tuple[str, ...]
    unscored: Mapping[str, int]  # policies none of whose episodes is valid, and how many they have
    cautions: tuple[str, ...]
    plan: AnalysisPlan
    stream: Stream  # of every quantity its own, so that no digit depends on when it is asked for
    keep: Keep  # what it takes to resample, under what it is made from

    @property
    def tau_s(self) -> float:
        return self.times.tau_s

    @property
    def policies(self) -> tuple[str, ...]:
        """All scored policies: the reference, those ranked, those apart."""
        return (*((self.reference,) if self.reference else ()), *self.order, *self.apart)

    @cached_property
    def means_s(self) -> Mapping[str, Estimate]:
        """The macro RMST of every policy with its interval, which takes no resamples."""
        from robotrials.measure.timing.scalar import mean_time

        return {
            name: mean_time(c, scale=self.times.scale(tuple(c.cells)), level=self.plan.level)
            for name, c in self.times.cohorts.items() if c.cells
        }  # fmt: skip

    @cached_property
    def scores(self) -> Mapping[str, CohortScore]:
        """Every scalar of every policy, in the strata that it is judged on."""
        scores: Mapping[str, CohortScore] = self.keep('scores', self._scores, _score_classes)
        return scores

    def _scores(self) -> Mapping[str, CohortScore]:
        from robotrials.measure.timing.scalar import score_cohort

        return {
            name: score_cohort(
                c, scale=self.times.scale(tuple(c.cells)), n_resamples=self.plan.resamples,
                rng=self.stream('score', name), level=self.plan.level,
            )
            for name, c in self.times.cohorts.items() if c.cells
        }  # fmt: skip

    @cached_property
    def relative(self) -> Mapping[str, RelativeScore]:
        """HRT of everyone who shares a stratum with the reference."""
        from robotrials.measure.timing.scalar import hrt

        return self._against_reference('hrt', hrt)

    @cached_property
    def areas(self) -> Mapping[str, RelativeScore]:
        """AUC against the reference."""
        from robotrials.measure.timing.scalar import auc

        return self._against_reference('auc', auc)

    def _against_reference(self, kind: str, compute: Callable[..., RelativeScore]) -> dict[str, RelativeScore]:
        return {
            cohort.policy: compute(
                cohort.cells, anchor.cells, tau_s=self.times.taus_s, n_resamples=self.plan.resamples,
                rng=self.stream(kind, cohort.policy, anchor.policy), level=self.plan.level, missing='drop',
            )
            for cohort, anchor in _beside_reference(self.times, self.reference)
        }  # fmt: skip


def _score_classes() -> tuple[type, ...]:
    from robotrials.measure.timing.scalar import CohortScore

    return CohortScore, Estimate, Interval


def rank_policies(frame: ComparisonFrame, times: Times, plan: AnalysisPlan, stream: Stream, keep: Keep) -> Ranking:
    """The order of policies, and on request their scores in the strata that each is judged on."""
    for cohort, anchor in _beside_reference(times, frame.reference):
        for stratum in cohort.cells.keys() & anchor.cells.keys():  # what nobody watched is refused here, not on request
            check_tau(min(times.taus_s[stratum], *(followed_to(c.cells[stratum]) for c in (cohort, anchor))))
    return Ranking(
        condition=frame.condition, times=times, reference=frame.reference,
        order=order_by_time(frame, times), apart=frame.apart, strata=frame.strata, unscored=frame.unscored,
        cautions=frame.cautions, plan=plan, stream=stream, keep=keep,
    )  # fmt: skip


def _beside_reference(times: Times, reference: str | None) -> list[tuple[Cohort, Cohort]]:
    """Everyone who shares a stratum with the reference, and the reference."""
    if reference is None:
        return []
    anchor = times.cohorts[reference]
    others = (c for name, c in times.cohorts.items() if name != anchor.policy)
    return [(c, anchor) for c in others if c.cells.keys() & anchor.cells.keys()]


def order_by_time(frame: ComparisonFrame, times: Times) -> tuple[str, ...]:
    """The ranked policies, lowest macro RMST first: their values alone, without the resamples of their scores."""
    values = {}
    for policy in frame.policies:
        cells = times.cohorts[policy].cells
        if cells:
            curves = {s: success_curve(c.durations_s, c.observed) for s, c in cells.items()}
            values[policy] = math.fsum(rmst(curve, times.taus_s[s]) for s, curve in curves.items()) / len(cells)
    return tuple(sorted(values, key=lambda policy: (values[policy], policy)))


def policy_failures(times: Times) -> tuple[FailureModes, ...]:
    """How operations and episodes of every policy failed."""
    from robotrials.measure.timing import failure_modes

    return tuple(failure_modes(c, tau_s=times.scale(tuple(c.cells)).tau_s) for c in times.cohorts.values() if c.cells)


def policy_curves(times: Times, strata: Sequence[str], level: float) -> dict[str, tuple[PolicyCurve, ...]]:
    """Curves by stratum, ALL_STRATA (the mean over those that are ranked) first."""
    cohorts = [c for c in times.cohorts.values() if c.cells]
    panels = {ALL_STRATA: [_curve(c, ALL_STRATA, c.cells, times, level) for c in cohorts]}
    if len(strata) > 1:
        for stratum in strata:
            having = [c for c in cohorts if stratum in c.cells]
            panels[stratum] = [_curve(c, stratum, {stratum: c.cells[stratum]}, times, level) for c in having]
    return {stratum: tuple(curves) for stratum, curves in panels.items()}


def _curve(cohort: Cohort, stratum: str, cells: Mapping[str, Operations], times: Times, level: float) -> PolicyCurve:
    """F at its own steps up to tau (at most MOST_STEPS of them), and its pointwise band clustered by unit."""
    from robotrials.measure.timing import BandKind, macro_band

    units = {s: c.by_unit() for s, c in cells.items()}
    curves = [success_curve(c.durations_s, c.observed) for c in units.values()]
    steps = np.unique(np.concatenate([c.times_s[c.n_success > 0] for c in curves]))
    drawn = _thinned(steps[steps <= max(times.taus_s[s] for s in cells)])
    chance = np.mean([np.atleast_1d(c.at(drawn)) for c in curves], axis=0)
    low, high = None, None
    if len(drawn):
        band = macro_band(units, kind=BandKind.CLUSTERED, level=level, grid_s=drawn)
        low, high = band.low, band.high
    return PolicyCurve(
        cohort.policy, stratum, drawn, np.asarray(chance, dtype=np.float64), low, high,
        sum(c.n_episodes for c in cells.values()), sum(c.n_operations for c in cells.values()),
    )  # fmt: skip


def _thinned(times: FloatArray) -> FloatArray:
    if len(times) <= MOST_STEPS:
        return times
    return times[np.unique(np.linspace(0, len(times) - 1, MOST_STEPS).round().astype(np.int64))]


# Times to success of every policy, and how far they are judged: one tau per stratum, by one written rule.

THRESHOLDS_S = (30.0, 60.0)
LONGEST_S = 1e9  # 30 years: beyond, squares of times overflow


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Each policy's operations by stratum, and the time up to which each stratum is judged."""

    cohorts: Mapping[str, Cohort]  # ranked policies and the reference in the ranked strata, others in what they have
    taus_s: Mapping[str, float]  # stratum -> tau
    reason: str  # why these taus
    short: Mapping[str, str]  # strata that were not followed to the declared tau, and what was used instead

    @property
    def tau_s(self) -> float:
        """The largest tau: as far as any curve is drawn."""
        return max(self.taus_s.values())

    @property
    def tau_text(self) -> str:
        """The taus in words: `240 s`, or `60 s to 240 s by stratum`."""
        return seconds_text(self.taus_s, by='stratum')

    def scale(self, strata: Sequence[str]) -> Scale:
        """The times that scores of these strata are asked at."""
        return self.scale_of({s: self.taus_s[s] for s in strata})

    @staticmethod
    def scale_of(taus: Mapping[str, float]) -> Scale:
        """The times that scores of cells with these taus are asked at."""
        from robotrials.measure.timing.scalar import Scale

        least = min(taus.values())
        inside = tuple(t for t in THRESHOLDS_S if t < least)
        if len(set(taus.values())) == 1:
            return Scale(tau_s=least, thresholds_s=inside)
        return Scale(tau_s=max(taus.values()), taus_s=taus, thresholds_s=inside)


def seconds_text(times_s: Mapping[str, float], *, by: str = 'cell') -> str:
    """`60 s`, or `20 s to 120 s by cell`."""
    low, high = min(times_s.values()), max(times_s.values())
    return f'{high:g} s' if low == high else f'{low:g} s to {high:g} s by {by}'


def build_times(frame: ComparisonFrame, plan: AnalysisPlan, *, store: str = '') -> Times | Absent:
    """Operations of every policy; absent, with the reason, where an episode has no time.

    `store` is the folder that the episodes can be corrected in.
    """
    valid = join([group for cells in frame.cells.values() for group in cells.values()])
    lasted = column(valid, 'duration_s')
    untimed = np.isnan(lasted)
    if n_untimed := int(untimed.sum()):
        remedy = 'record durations'
        if n_steps := int((untimed & ~np.isnan(column(valid, 'steps'))).sum()):
            remedy = f'{n_steps} of them have control steps: give the control rate when you import them'
        where = command = ''
        if n_untimed < len(valid):  # a slip in the data, so it can be mended
            first = valid[int(np.argmax(untimed))]
            start = f'episode {first.episode_id}' if first.seed is None else f'seed {first.seed}'
            it, nth = ('it', '') if n_untimed == 1 else ('them', 'first: ')
            where = f' ({nth}{first.policy}, {first.task}, {start})'
            if not n_steps:
                remedy = f'fill {it} in or leave {it} out'
                command = shlex.join(['robotrials', 'store', 'ls', store, '--where', 'duration_s=']) if store else ''
        return Absent(
            f'{n_untimed} of {len(valid)} valid episodes {"has" if n_untimed == 1 else "have"} no duration{where}',
            remedy,
            command,
        )
    if lasted.max(initial=0.0) > LONGEST_S:
        absurd = valid[int(np.argmax(lasted))]
        offender = f'episode {absurd.episode_id} ({absurd.policy}, {absurd.task}) lasted {absurd.known_duration_s:g} s'
        return Absent(f'{offender}, which no trial does', 'correct its duration_s')
    try:
        cohorts = {policy: _cohort(policy, frame, plan) for policy in frame.everyone}
        taus, reason, short = choose_taus(cohorts, frame, plan)
    except (InputError, NotEstimable) as error:
        return Absent(str(error))
    return Times(cohorts, taus, reason, short)


def _cohort(policy: str, frame: ComparisonFrame, plan: AnalysisPlan) -> Cohort:
    is_ranked = policy in frame.policies or policy == frame.reference
    groups = frame.ranked_cells(policy) if is_ranked and frame.strata else frame.cells[policy]
    cells = {s: operations(group, unit=Unit(plan.unit), known=frame.labels) for s, group in groups.items()}
    episodes = join([*groups.values(), *([frame.invalid[policy]] if policy in frame.invalid else [])])
    return Cohort(policy, policy == frame.reference, episodes, {s: c for s, c in cells.items() if c.n_operations})


def choose_taus(
    cohorts: Mapping[str, Cohort], frame: ComparisonFrame, plan: AnalysisPlan
) -> tuple[dict[str, float], str, dict[str, str]]:
    """Stratum -> tau, why, and where follow-up was shorter than declared, for scores of all policies side by side."""
    strata = sorted({s for c in cohorts.values() for s in c.cells})
    taus = {
        s: cell_tau(s, [(c.cells[s], frame.cells[p][s]) for p, c in cohorts.items() if s in c.cells], plan)
        for s in strata
    }
    short = {s: t.short for s, t in taus.items() if t.short}
    return {s: t.tau_s for s, t in taus.items()}, '; '.join(sorted({t.reason for t in taus.values()})), short


@dataclass(frozen=True, slots=True)
class CellTau:
    """Up to when the arms of a cell are judged, and why."""

    tau_s: float
    reason: str
    short: str = ''  # where the arms were not followed as far as that


def cell_tau(cell: str, arms: Sequence[tuple[Operations, Sequence[Episode]]], plan: AnalysisPlan) -> CellTau:
    """The declared tau; undeclared the arms' smallest time cap; without caps, as far as every arm is still observed.

    Arms that were not all followed to it are judged as far as they were.
    """
    followed = min(followed_to(arm) for arm, _ in arms)
    if plan.tau_s is not None:
        wanted, reason = declared_tau(cell, arms[0][1][0], plan.tau_s), 'as given'
    else:
        wanted, reason = _default_tau(arms, followed)
    if followed >= wanted * (1 - 1e-9) or followed <= 0:
        return CellTau(wanted, reason)
    return CellTau(followed, reason, f'followed to {followed:g} s, not to {wanted:g} s')


def declared_tau(cell: str, first: Episode, taus_s: float | Mapping[str, float]) -> float:
    """A tau for all, or the one of this cell by any of its names."""
    if not isinstance(taus_s, Mapping):
        return taus_s
    parts = (first.benchmark, first.task, first.stratum)
    joined = [SEPARATOR.join(filter(None, chosen)) for chosen in (parts, parts[1:], parts[::2], parts[:2])]
    for key in (cell, cell.rsplit(', ', 1)[0], first.stratum, first.task, first.benchmark, *joined):
        if key in taus_s:
            return taus_s[key]
    raise InputError(f'tau_s has no time for stratum {cell!r}; it has: {", ".join(sorted(taus_s))}')


def _default_tau(arms: Sequence[tuple[Operations, Sequence[Episode]]], followed: float) -> tuple[float, str]:
    caps_s = np.concatenate([column(group, 'time_cap_s') for _, group in arms])
    if not np.isnan(caps_s).all():
        return float(np.nanmin(caps_s)), "each stratum's smallest time cap"
    if math.isfinite(followed) and followed > 0:
        return two_digits_down(followed), 'the largest time at which every arm was still observed, rounded down'
    longest = max(float(c.durations_s[np.isfinite(c.durations_s)].max(initial=0.0)) for c, _ in arms)
    if longest > 0:
        return longest, 'the longest operation'
    lasted = max(float(column(group, 'duration_s').max()) for _, group in arms)
    return (lasted, 'the longest episode') if lasted > 0 else (1.0, 'no episode lasted longer than 0 s')


def two_digits_down(value: float) -> float:
    """64.05 becomes 64, 0.0377 becomes 0.037."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.floor(value / step + 1e-9) * step, 12)


Flag = Callable[[Episode], float]  # 0 is not flagged


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Counts of one kind of episode (successes, safe ones) by policy and stratum, and the mean over strata."""

    counts: Mapping[tuple[str, str], Rate]  # (policy, stratum or ALL_STRATA)
    by_task: Mapping[tuple[str, str], Rate]
    macro: Mapping[str, Estimate]  # policy -> equal-weight mean over the strata it is judged on


def count_rates(frame: ComparisonFrame, plan: AnalysisPlan, flag: Flag) -> Rates:
    """Rates of every policy with a valid episode; start states that repeat are one unit in the macro interval."""
    in_cells, in_tasks = _SuccessTally(), _SuccessTally()
    macro: dict[str, Estimate] = {}
    for policy in frame.everyone:
        flags = {s: flagged(group, flag) for s, group in judged_cells(frame, policy).items()}
        for stratum, group in judged_cells(frame, policy).items():
            for name in (stratum, ALL_STRATA):
                in_cells.add((policy, name), len(group), int(flags[stratum].sum()))
            codes, tasks = coded(group, 'task')
            n, hits = (np.bincount(codes, weights).tolist() for weights in (None, flags[stratum]))
            for (task,), count, hit in zip(tasks, n, hits, strict=True):
                in_tasks.add((policy, task), count, int(hit))
        macro[policy] = macro_rate(shares_of(frame, judged_cells(frame, policy), plan, flags), plan.level)
    return Rates(in_cells.rates(plan.level), in_tasks.rates(plan.level), macro)


@dataclass(frozen=True, slots=True)
class _SuccessTally:
    """How many episodes of each (policy, stratum or task) there are, and how many of them are flagged."""

    n: Counter[tuple[str, str]] = field(default_factory=Counter)
    flagged: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, key: tuple[str, str], n: int, n_flagged: int) -> None:
        self.n[key] += n
        self.flagged[key] += n_flagged

    def rates(self, level: float) -> dict[tuple[str, str], Rate]:
        return {key: Rate(self.flagged[key], n, level) for key, n in self.n.items()}


def judged_cells(frame: ComparisonFrame, policy: str) -> Mapping[str, Sequence[Episode]]:
    """The strata that a policy is judged on: the ranked ones, or all that it has when it stands apart."""
    is_apart = policy in frame.apart or not frame.strata
    return frame.cells[policy] if is_apart else frame.ranked_cells(policy)


def flagged(group: Sequence[Episode], flag: Flag) -> BoolArray:
    """(n,) which episodes are flagged; success is read off columns where there are any."""
    if isinstance(group, EpisodeRows) and flag is success_of:
        return group.successes()
    return np.array([bool(flag(e)) for e in group], dtype=np.bool_)


def shares_of(
    frame: ComparisonFrame, cells: Mapping[str, Sequence[Episode]], plan: AnalysisPlan, flags: Mapping[str, BoolArray]
) -> dict[str, UnitShares]:
    """Stratum -> the share of flagged episodes of each unit."""
    unit = Unit(plan.unit)
    shares = {}
    for stratum, group in cells.items():
        labels = (
            row_units(group, unit) if isinstance(group, EpisodeRows) else [frame.unit_label(e, unit) for e in group]
        )
        shares[stratum] = unit_shares(flags[stratum], labels)
    return shares


def macro_rate(shares: Mapping[str, UnitShares], level: float) -> Estimate:
    """The equal-weight mean over strata with the rule's interval; one stratum of single runs has Wilson's."""
    if not shares:
        return Estimate(None, note='no stratum')
    parts = list(shares.values())
    means = np.array([p.shares.mean() for p in parts])
    n = sum(len(p.shares) for p in parts)
    value = math.fsum(means.tolist()) / len(means)
    if len(parts) == 1 and set(parts[0].shares.tolist()) <= {0.0, 1.0}:
        return Estimate(value, Rate(round(parts[0].shares.sum()), n, level).interval, n=n)
    fewest = min(len(p.shares) for p in parts)
    if fewest < FEWEST_PER_CELL:
        return Estimate(value, note=f'no interval: {fewest} units in a stratum, {FEWEST_PER_CELL} are needed', n=n)
    arm = MacroArm(means, np.zeros(len(parts)), np.ones(len(parts)), np.array([float(len(p.shares)) for p in parts]))
    terms = np.array([np.var(p.shares, ddof=1) / len(p.shares) for p in parts]) / len(parts) ** 2
    spread = Spread(terms, np.array([len(p.shares) - 1.0 for p in parts]))
    return Estimate(value, macro_interval(arm, spread, level=level), n=n)


# Where operations done by tau and episode success tell different stories of the same policies.


@dataclass(frozen=True, slots=True)
class TwoStories:
    """Policies of which F(tau) and the episode success rate say different things; both empty: they agree.

    `apart` are policies whose two shares lie beyond each other's intervals. It is asked only where an episode is one
    operation: with several, an episode succeeds less often than an operation by definition. `reversed` are pairs that
    the two put in opposite orders, at least one of them beyond an interval.
    """

    done: Mapping[str, Estimate]  # macro F(tau): operations done by tau
    success: Mapping[str, Estimate]  # macro episode success
    apart: tuple[str, ...] = ()
    reversed: tuple[tuple[str, str], ...] = ()  # (ahead by F(tau), ahead by episode success)

    @property
    def is_divided(self) -> bool:
        return bool(self.apart or self.reversed)


def two_stories(ranking: Ranking, rates: Rates, *, single: Sequence[str]) -> TwoStories:
    """Compare the two shares of every ranked policy; `single` names those whose episodes are one operation each."""
    # F(tau) from 1 - F(tau)
    done = {p: ranking.scores[p].macro['missing_at_tau'].scaled(-1.0).shifted(1.0) for p in ranking.order}
    success = {p: rates.macro[p] for p in ranking.order}
    divergent = tuple(p for p in ranking.order if p in single and _is_beyond(done[p], success[p]))
    return TwoStories(done, success, divergent, tuple(_reversed(done, success, ranking.order)))


def _is_beyond(a: Estimate, b: Estimate) -> bool:
    """Whether each value lies outside the other's interval; without intervals nothing is said."""
    return _is_outside(a, b) and _is_outside(b, a)


def _is_outside(value: Estimate, other: Estimate) -> bool:
    if value.value is None or other.interval is None:
        return False
    return not other.interval.low <= value.value <= other.interval.high


def _reversed(
    done: Mapping[str, Estimate], success: Mapping[str, Estimate], policies: Sequence[str]
) -> list[tuple[str, str]]:
    pairs = []
    for a, b in itertools.combinations(policies, 2):
        gaps = [_gap(shares[a], shares[b]) for shares in (done, success)]
        is_clear = any(_is_beyond(shares[a], shares[b]) for shares in (done, success))
        if gaps[0] * gaps[1] < 0 and is_clear:
            pairs.append((a, b) if gaps[0] > 0 else (b, a))
    return pairs


def _gap(a: Estimate, b: Estimate) -> float:
    return 0.0 if a.value is None or b.value is None else a.value - b.value


@dataclass(frozen=True, slots=True, eq=False)
class CurvePoint:
    """One placement: how long it took, the chance of success by then, and when in its episode it was."""

    took_s: float
    chance: float
    episode: Episode
    at_s: float


def curve_points(analysis: Analysis) -> list[tuple[PolicyCurve, tuple[CurvePoint, ...]]] | Absent:
    """Each policy's curve over all strata, as in every report of this analysis, with the placements up to its tau."""
    if isinstance(analysis.curves, Absent):
        return analysis.curves
    times, frame = present(analysis.times), present(analysis.frame)
    rows = []
    for curve in analysis.curves[ALL_STRATA]:
        points = []
        for stratum, cell in times.cohorts[curve.policy].cells.items():
            own = frame.cells[curve.policy][stratum]
            for place in np.flatnonzero(cell.observed & (cell.durations_s <= curve.times_s.max(initial=-1.0))):
                took_s = float(cell.durations_s[place])
                step = int(np.searchsorted(curve.times_s, took_s + 1e-12, side='right')) - 1
                same = np.flatnonzero(cell.episode[: place + 1] == cell.episode[place])
                chance = float(curve.chance[step]) if step >= 0 else 0.0
                at_s = float(cell.durations_s[same].sum())
                points.append(CurvePoint(took_s, chance, own[int(cell.episode[place])], at_s))
        rows.append((curve, tuple(sorted(points, key=lambda p: (p.took_s, p.episode.key)))))
    return rows
