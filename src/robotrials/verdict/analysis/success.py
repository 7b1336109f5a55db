"""Episode success: rates of every policy, by stratum, by task, and the mean over strata."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.timing.operation import Unit
from robotrials.record import Episode
from robotrials.stats import Estimate, Rate
from robotrials.stats.allowance import FEWEST_PER_CELL, MacroArm, Spread, macro_interval
from robotrials.stats.success_pair import unit_shares

if TYPE_CHECKING:
    from robotrials.stats.success_pair import UnitShares
    from robotrials.verdict.analysis.frame import ComparisonFrame
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan

ALL_STRATA = ''
Flag = Callable[[Episode], bool]


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
        cells = judged_cells(frame, policy)

        def noted(episode: Episode, policy: str = policy) -> bool:
            is_flagged = bool(flag(episode))
            for key in ((policy, frame.stratum_of(episode)), (policy, ALL_STRATA)):
                in_cells.add(key, is_flagged)
            in_tasks.add((policy, episode.task), is_flagged)
            return is_flagged

        macro[policy] = macro_rate(shares_of(frame, cells, plan, noted), plan.level)
    return Rates(in_cells.rates(plan.level), in_tasks.rates(plan.level), macro)


@dataclass(frozen=True, slots=True)
class _Tally:
    """How many episodes of each (policy, stratum or task) there are, and how many of them are flagged."""

    n: Counter[tuple[str, str]] = field(default_factory=Counter)
    flagged: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, key: tuple[str, str], is_flagged: bool) -> None:
        self.n[key] += 1
        self.flagged[key] += is_flagged

    def rates(self, level: float) -> dict[tuple[str, str], Rate]:
        return {key: Rate(self.flagged[key], n, level) for key, n in self.n.items()}


def judged_cells(frame: ComparisonFrame, policy: str) -> Mapping[str, Sequence[Episode]]:
    """The strata that a policy is judged on: the ranked ones, or all that it has when it stands apart."""
    is_apart = policy in frame.apart or not frame.strata
    return frame.cells[policy] if is_apart else frame.ranked_cells(policy)


def shares_of(
    frame: ComparisonFrame, cells: Mapping[str, Sequence[Episode]], plan: AnalysisPlan, flag: Flag
) -> dict[str, UnitShares]:
    """Stratum -> the share of flagged episodes of each unit."""
    unit = Unit(plan.unit)
    shares = {}
    for stratum, group in cells.items():
        rows = [(flag(e), frame.unit_label(e, unit)) for e in group]
        shares[stratum] = unit_shares([row[0] for row in rows], [row[1] for row in rows])
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
