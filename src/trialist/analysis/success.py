"""Episode success: rates of every policy, and every pair tested as the data's design allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trialist.analysis.frame import ComparisonFrame
from trialist.episodes import Episode
from trialist.planning.analysis_plan import AnalysisPlan, Pairing
from trialist.stats import Estimate, Rate
from trialist.stats.allowance import FEWEST_PER_CELL, MacroArm, Spread, macro_interval
from trialist.stats.noninferiority import PairCounts
from trialist.stats.success_pair import (
    SuccessPair,
    UnitShares,
    clustered_success,
    independent_success,
    paired_success,
    unit_shares,
)
from trialist.timing.operation import Unit, unit_of

ALL_STRATA = ''
MATCHED_SHARE = 0.5  # of the start states: below that, pairing would throw too much away
Flag = Callable[[Episode], bool]
Stream = Callable[..., np.random.Generator]


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Counts of one kind of episode (successes, safe ones) by policy and stratum, and the mean over strata."""

    counts: Mapping[tuple[str, str], Rate]  # (policy, stratum or ALL_STRATA)
    by_task: Mapping[tuple[str, str], Rate]
    macro: Mapping[str, Estimate]  # policy -> equal-weight mean over the strata it is judged on


def count_rates(frame: ComparisonFrame, plan: AnalysisPlan, flag: Flag) -> Rates:
    """Rates of every policy with a valid episode; start states that repeat are one unit in the macro interval."""
    counts: dict[tuple[str, str], list[bool]] = {}
    by_task: dict[tuple[str, str], list[bool]] = {}
    for policy in frame.everyone:
        for stratum, episodes in judged_cells(frame, policy).items():
            for episode in episodes:
                for key in ((policy, stratum), (policy, ALL_STRATA)):
                    counts.setdefault(key, []).append(flag(episode))
                by_task.setdefault((policy, episode.task), []).append(flag(episode))
    macro = {p: macro_rate(shares_of(judged_cells(frame, p), plan, flag), plan.level) for p in frame.everyone}
    return Rates(_rates(counts, plan.level), _rates(by_task, plan.level), macro)


def judged_cells(frame: ComparisonFrame, policy: str) -> Mapping[str, Sequence[Episode]]:
    """The strata that a policy is judged on: the ranked ones, or all that it has when it stands apart."""
    is_apart = policy in frame.apart or not frame.strata
    return frame.cells[policy] if is_apart else frame.ranked_cells(policy)


def _rates(counts: Mapping[tuple[str, str], Sequence[bool]], level: float) -> dict[tuple[str, str], Rate]:
    return {key: Rate(int(sum(flags)), len(flags), level) for key, flags in counts.items()}


def shares_of(cells: Mapping[str, Sequence[Episode]], plan: AnalysisPlan, flag: Flag) -> dict[str, UnitShares]:
    """Stratum -> the share of flagged episodes of each unit."""
    unit = Unit(plan.unit)
    return {s: unit_shares([flag(e) for e in group], [unit_of(e, unit) for e in group]) for s, group in cells.items()}


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


def start_labels(cells: Mapping[str, Sequence[Episode]], plan: AnalysisPlan) -> dict[str, frozenset[Hashable]]:
    """Stratum -> the start states that were run."""
    unit = Unit(plan.unit)
    return {s: frozenset(unit_of(e, unit) for e in group) for s, group in cells.items()}


def is_matched(a: Mapping[str, frozenset[Hashable]], b: Mapping[str, frozenset[Hashable]], plan: AnalysisPlan) -> bool:
    """Whether start states decide the test: all recorded, and mostly the same for both policies.

    In every stratum at least half of the smaller arm's starts are the other's too, and over all strata at least half of
    the larger arm's: a few starts that one policy lost to a broken rig do not make arms independent.
    """
    if plan.pairing is not Pairing.AUTO:
        return plan.pairing is Pairing.PAIRED
    if Unit(plan.unit) is not Unit.START or a.keys() != b.keys():
        return False
    n_common, n_larger = 0, 0
    for stratum in a:
        labels = a[stratum], b[stratum]
        if None in labels[0] | labels[1]:
            return False
        common = len(labels[0] & labels[1])
        if common < MATCHED_SHARE * min(map(len, labels)):
            return False
        n_common, n_larger = n_common + common, n_larger + max(map(len, labels))
    return n_common > 0 and n_common >= MATCHED_SHARE * n_larger


def compare_rates(
    ours: Mapping[str, UnitShares], theirs: Mapping[str, UnitShares], *, n_episodes: int, plan: AnalysisPlan,
    rng: np.random.Generator, paired: bool,
) -> SuccessPair:  # fmt: skip
    """The difference of macro rates, by the test that the design of the data calls for."""
    n_units = sum(len(p.shares) for arm in (ours, theirs) for p in arm.values())
    if n_units != n_episodes:
        return clustered_success(
            ours, theirs, paired=paired, level=plan.level, n_resamples=max(plan.resamples, 9_999), rng=rng
        )
    if paired:
        return paired_success(_pair_counts(ours, theirs), level=plan.level)
    tables = [
        (int(ours[s].shares.sum()), len(ours[s].shares), int(theirs[s].shares.sum()), len(theirs[s].shares))
        for s in ours
    ]
    return independent_success(tables, level=plan.level)


def _pair_counts(a: Mapping[str, UnitShares], b: Mapping[str, UnitShares]) -> list[PairCounts]:
    found = []
    for stratum in a:
        own, other = (_by_label(arm[stratum]) for arm in (a, b))
        both = [(own[x], other[x]) for x in own if x in other]
        tally = [sum(pair == wanted for pair in both) for wanted in ((1, 1), (1, 0), (0, 1), (0, 0))]
        if both:
            found.append(PairCounts(*tally))
    return found


def _by_label(part: UnitShares) -> dict[Hashable, int]:
    return {x: round(v) for x, v in zip(part.labels, part.shares.tolist(), strict=True) if x is not None}
