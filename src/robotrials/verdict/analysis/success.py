"""Episode success: rates of every policy, by stratum, by task, and the mean over strata."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from robotrials.measure.timing.operation import Unit, row_units
from robotrials.record import Episode
from robotrials.record.rows import EpisodeRows, coded
from robotrials.stats import Estimate, Rate
from robotrials.stats.allowance import FEWEST_PER_CELL, MacroArm, Spread, macro_interval
from robotrials.stats.argument import BoolArray
from robotrials.stats.success_pair import UnitShares, unit_shares
from robotrials.verdict.analysis.frame import ComparisonFrame
from robotrials.verdict.analysis.side import success_of
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
