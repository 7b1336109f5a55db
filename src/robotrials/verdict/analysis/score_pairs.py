"""Pairs on the host's bounded score, by the same rule as times: means over strata with an allowance."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from robotrials.measure.timing.operation import FloatArray, Unit
from robotrials.record import Episode
from robotrials.stats.allowance import FEWEST_PER_CELL, MacroArm, MacroDifference, Spread, macro_difference
from robotrials.verdict.analysis.absent import Absent
from robotrials.verdict.analysis.frame import ComparisonFrame
from robotrials.verdict.analysis.needed import needed_units
from robotrials.verdict.analysis.success import is_matched, start_labels
from robotrials.verdict.analysis.verdict import PairVerdict
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

Units = Mapping[str, Mapping[Hashable, float]]  # stratum -> unit -> mean score as a share of the largest


def score_pairs(frame: ComparisonFrame, plan: AnalysisPlan) -> tuple[tuple[str, ...], list[PairVerdict]] | Absent:
    """Every pair's difference of macro scores, as shares of the largest score; absent where a score is missing."""
    ranked = {p: frame.ranked_cells(p) for p in frame.policies}
    groups = [group for cells in ranked.values() for group in cells.values()]
    if missing := sum(e.score is None or not e.max_score for group in groups for e in group):
        n = sum(map(len, groups))
        return Absent(f'{missing} of {n} episodes have no score with a max_score', 'record both')
    units = {p: _units(frame, cells, plan) for p, cells in ranked.items()}
    means = {p: float(np.mean([np.mean(list(u.values())) for u in own.values()])) for p, own in units.items()}
    order = tuple(sorted(frame.policies, key=lambda p: (-means[p], p)))
    starts = {p: start_labels(frame, p, plan) for p in frame.policies}
    pairs = []
    for k, a in enumerate(frame.policies):
        for b in frame.policies[k + 1 :]:
            paired = is_matched(starts[a], starts[b], plan)
            n_pairs = len(frame.policies) * (len(frame.policies) - 1) // 2
            pairs.append(_pair(a, b, units, plan, paired=paired, n_pairs=n_pairs))
    return order, pairs


def _units(
    frame: ComparisonFrame, cells: Mapping[str, Sequence[Episode]], plan: AnalysisPlan
) -> dict[str, dict[Hashable, float]]:
    unit = Unit(plan.unit)
    found: dict[str, dict[Hashable, float]] = {}
    for stratum, group in cells.items():
        runs: dict[Hashable, list[float]] = {}
        for place, episode in enumerate(group):
            label = frame.unit_label(episode, unit)
            runs.setdefault((place, None) if label is None else label, []).append(_share(episode))
        found[stratum] = {label: float(np.mean(values)) for label, values in runs.items()}
    return found


def _share(episode: Episode) -> float:
    return (episode.score or 0.0) / (episode.max_score or 1.0)


def _pair(a: str, b: str, units: Mapping[str, Units], plan: AnalysisPlan, *, paired: bool, n_pairs: int) -> PairVerdict:
    first, second = units[a], units[b]
    if paired:
        shared = {s: [x for x in first[s] if x in second[s]] for s in first}
        first, second = ({s: {x: arm[s][x] for x in names} for s, names in shared.items()} for arm in (first, second))
    rule = _rule(first, second, paired=paired)
    fewest = min(len(u) for arm in (first, second) for u in arm.values())
    sizes = (sum(map(len, first.values())), sum(map(len, second.values())))
    withheld = '' if fewest >= FEWEST_PER_CELL else f'{fewest} units in a stratum; {FEWEST_PER_CELL} are needed'
    interval = None if withheld else rule.interval(plan.level)
    return PairVerdict(
        endpoint=EndpointName.SCORE, policy_a=a, policy_b=b, difference=rule.difference, interval=interval,
        p_value=None if withheld else rule.p_value, test='jackknife-t with allowance', is_paired=paired,
        n_units=sizes, unit=plan.unit, withheld=withheld, unit_text='points',
        needed=None if withheld else needed_units(
            difference=rule.difference, interval=interval, variance=rule.variance,
            moved=rule.moved_low if rule.difference > 0 else rule.moved_high,
            per_cell=sum(sizes) / (2 * len(first)), alpha=plan.alpha / n_pairs,
        ),
    )  # fmt: skip


def _rule(a: Units, b: Units, *, paired: bool) -> MacroDifference:
    strata = list(a)

    def arm(units: Units) -> MacroArm:
        n = np.array([float(len(units[s])) for s in strata])
        means = np.array([np.mean(list(units[s].values())) for s in strata])
        return MacroArm(means, np.zeros(len(strata)), np.ones(len(strata)), n)

    rows: list[FloatArray]
    if paired:
        rows = [np.array([a[s][x] - b[s][x] for x in a[s]]) for s in strata]
    else:
        rows = [np.array(list(units[s].values())) for units in (a, b) for s in strata]
    terms = np.array([np.var(r, ddof=1) / len(r) if len(r) > 1 else 0.0 for r in rows]) / len(strata) ** 2
    dof = np.array([max(len(r) - 1.0, 1.0) for r in rows])
    return macro_difference(arm(b), arm(a), Spread(terms, dof))
