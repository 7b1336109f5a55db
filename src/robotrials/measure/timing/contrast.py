"""Scalar differences as competing tests: macro RMST and F(t) differences by resampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.measure.timing.curve import check_tau
from robotrials.measure.timing.ks import TIE_SLACK, PValueRule, match_scenes, p_value_of
from robotrials.measure.timing.operation import Operations
from robotrials.measure.timing.reference import shared_strata
from robotrials.measure.timing.resample import NullMethod, contrast_trials, pair_layout, stream_seed
from robotrials.stats.argument import check_count


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
    both, _ = shared_strata(a, b, missing=missing)
    first, second = {s: a[s] for s in both}, {s: b[s] for s in both}
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
