"""Scalar differences as competing tests: macro RMST and F(t) differences by resampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robotrials.measure.timing.better import Better, oriented_difference
from robotrials.measure.timing.curve import check_tau
from robotrials.measure.timing.curve_test import TIE_SLACK, PValueRule, match_scenes, p_value_of
from robotrials.measure.timing.operation import Operations
from robotrials.measure.timing.reference import shared_strata
from robotrials.measure.timing.resample import NullMethod, contrast_trials, pair_layout, stream_seed
from robotrials.measure.timing.unit import ArmMeans
from robotrials.stats.allowance import FEWEST_PER_CELL
from robotrials.stats.argument import check_count
from robotrials.stats.interaction import reversal_p_value
from robotrials.stats.interval import Interval
from robotrials.value import dataclass


@dataclass(frozen=True, slots=True)
class ScalarTest:
    """A macro-averaged difference a - b, and its two-sided resampling p-value."""

    difference: float
    p_value: float
    n_resamples: int
    method: NullMethod


def scalar_tests(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, tau_s: float = 240.0,
    thresholds_s: Sequence[float] = (30.0, 60.0), n_resamples: int = 1000, rng: np.random.Generator,
    method: NullMethod | str = NullMethod.PERMUTATION, rule: PValueRule | str = PValueRule.PLUS_ONE,
    missing: str = 'refuse', threads: int | None = None,
) -> dict[str, ScalarTest]:  # fmt: skip
    """Name -> test: 'rmst_s' at tau and 'chance_<t>s' at each threshold, all on the same resamples as each other."""
    for value in (tau_s, *thresholds_s):
        check_tau(value)
    method = NullMethod(method)
    n_resamples = check_count('n_resamples', n_resamples, least=1)
    shared, _ = shared_strata(a, b, missing=missing)
    first, second = {s: a[s] for s in shared}, {s: b[s] for s in shared}
    if method is NullMethod.PAIRED_SWAP:
        first, second = match_scenes(first, second)
    layout = pair_layout(first, second)
    ordered = sorted(thresholds_s)
    observed, null = contrast_trials(
        layout, layout.own_units(), n_a=layout.n_a, n_b=layout.n_b, n_resamples=n_resamples, method=method,
        seed=stream_seed(rng), tau_s=tau_s, thresholds_s=ordered, threads=threads,
    )  # fmt: skip
    seen = observed[0].mean(axis=0)
    extreme = np.count_nonzero(np.abs(null[0]) >= np.abs(seen) * (1 - TIE_SLACK) - TIE_SLACK, axis=0)
    names = ['rmst_s', *(f'chance_{t:g}s' for t in ordered)]
    return {
        name: ScalarTest(float(seen[k]), p_value_of(int(extreme[k]), n_resamples, rule), n_resamples, method)
        for k, name in enumerate(names, start=1)
    }


# Strata that point the other way: "better on average over these strata" is not "better in each".


@dataclass(frozen=True, slots=True)
class StratumAdvantage:
    """One stratum's difference, > 0 in favour of a, with the rule's interval."""

    stratum: str
    difference: float
    interval: Interval | None
    n_units: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reversal:
    """Every stratum's advantage, those that point against the mean, and the test that some truly do.

    A p-value above alpha licenses nothing: with four strata and 20 episodes per cell a real reversal of one third is
    found in about 1 % of trials.
    """

    strata: tuple[StratumAdvantage, ...]
    reversed: tuple[StratumAdvantage, ...]
    p_value: float | None
    withheld: str = ''


def reversal(comparison: Better) -> Reversal:
    """What single strata say of a comparison."""
    rules, advantages = [], []
    for stratum in comparison.arms[0].cells:
        first, second = (ArmMeans({stratum: arm.cells[stratum]}, arm.unit) for arm in comparison.arms)
        cells = (first.cells[stratum], second.cells[stratum])
        if all(cell.n_followed > 0 and cell.n_units > 1 for cell in cells):
            rule = oriented_difference(first, second, comparison.endpoint, is_paired=comparison.is_paired)
            is_judged = all(cell.n_units >= FEWEST_PER_CELL for cell in cells)
            interval = rule.interval(comparison.level) if is_judged else None
            n_units = (cells[0].n_units, cells[1].n_units)
            rules.append(rule)
            advantages.append(StratumAdvantage(stratum, rule.difference, interval, n_units))
    against = tuple(s for s in advantages if s.difference * comparison.difference < 0)
    withheld = comparison.withheld or ('' if len(rules) > 1 else 'one stratum: nothing can point the other way')
    p_value = None if withheld else reversal_p_value(rules)
    return Reversal(tuple(advantages), against, p_value, withheld)
