"""Episode success: rates of every policy, by stratum, by task, and the mean over strata."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.timing.operation import Unit, row_units
from robotrials.record import Episode
from robotrials.record.rows import EpisodeRows, coded
from robotrials.stats import Estimate, Interval, Rate
from robotrials.stats.allowance import FEWEST_PER_CELL, MacroArm, Spread, macro_interval
from robotrials.stats.success_pair import unit_shares
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import success_of

if TYPE_CHECKING:
    from robotrials.stats.argument import BoolArray
    from robotrials.stats.success_pair import UnitShares
    from robotrials.verdict.analysis.frame import ComparisonFrame
    from robotrials.verdict.analysis.ranking import Ranking
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


ALL_STRATA = ''
Flag = Callable[[Episode], float]  # 0 is not flagged


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Counts of one kind of episode (successes, safe ones) by policy and stratum, and the mean over strata."""

    counts: Mapping[tuple[str, str], Rate]  # (policy, stratum or ALL_STRATA)
    by_task: Mapping[tuple[str, str], Rate]
    macro: Mapping[str, Estimate]  # policy -> equal-weight mean over the strata it is judged on


def count_rates(frame: ComparisonFrame, plan: AnalysisPlan, flag: Flag) -> Rates:
    """Rates of every policy with a valid episode; start states that repeat are one unit in the macro interval."""
    in_cells, in_tasks = _Tally(), _Tally()
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
class _Tally:
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
    done = {p: _done(ranking.scores[p].macro['missing_at_tau']) for p in ranking.order}
    success = {p: rates.macro[p] for p in ranking.order}
    divergent = tuple(p for p in ranking.order if p in single and _is_beyond(done[p], success[p]))
    return TwoStories(done, success, divergent, tuple(_reversed(done, success, ranking.order)))


def _done(missing: Estimate) -> Estimate:
    """F(tau) from 1 - F(tau)."""
    if missing.value is None:
        return missing
    interval = None
    if missing.interval is not None:
        interval = Interval(1.0 - missing.interval.high, 1.0 - missing.interval.low)
    return Estimate(1.0 - missing.value, interval, missing.note, n=missing.n)


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
