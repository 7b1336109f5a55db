"""Tests of difference: macro KS and its calibration, logrank, competing scalars."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.statistics import logrank_test
from scipy import stats as scipy_stats

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing import (
    Cohort,
    NullMethod,
    Operations,
    cohorts,
    ks_distance,
    logrank,
    macro_ks,
    operations_by_stratum,
    scalar_tests,
    success_curve,
)
from robotrials.measure.timing.curve_test import example_curves, find_cycle, sup_sign
from robotrials.testing import effect_pair, null_pair, paper_like_cohort
from robotrials.verdict.planning import null_calibration

INF = float('inf')


def cell(times: object, observed: object = None, episode: object = None) -> Operations:
    t = np.asarray(times, dtype=float)
    seen = np.ones(len(t), dtype=bool) if observed is None else np.asarray(observed)
    return Operations(t, seen, np.arange(len(t)) if episode is None else np.asarray(episode))


@pytest.fixture(scope='module')
def found() -> dict[str, Cohort]:
    return cohorts(paper_like_cohort(np.random.default_rng(1)))


def test_ks_equals_scipy_without_censoring() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.exponential(10, 40), rng.exponential(14, 55)
    result = macro_ks({'s': cell(x)}, {'s': cell(y)}, n_resamples=999, rng=rng)
    assert result.statistic == pytest.approx(scipy_stats.ks_2samp(x, y).statistic, abs=1e-12)


def test_permutation_p_value_agrees_with_the_exact_test_for_single_operations() -> None:
    """Without clusters or ties the label permutation is the exact two-sample KS test."""
    rng = np.random.default_rng(3)
    x, y = rng.exponential(10, 15), rng.exponential(22, 18)
    exact = scipy_stats.ks_2samp(x, y, method='exact').pvalue
    result = macro_ks({'s': cell(x)}, {'s': cell(y)}, n_resamples=20_000, rng=rng)
    assert result.p_value == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000))


def test_macro_is_the_equal_weight_mean_of_strata(found: dict[str, Cohort]) -> None:
    result = macro_ks(found['act'].cells, found['groot'].cells, n_resamples=10, rng=np.random.default_rng(0))
    assert result.statistic == pytest.approx(np.mean(list(result.per_stratum.values())))
    assert list(result.per_stratum) == sorted(found['act'].cells)


def test_p_value_conventions_are_named(found: dict[str, Cohort]) -> None:
    result = macro_ks(found['openpi'].cells, found['smolvla'].cells, n_resamples=99, rng=np.random.default_rng(0))
    assert result.n_exceeding == 0
    assert {k.value: v for k, v in result.p_values.items()} == {'plus_one': 0.01, 'plain': 0.0}
    assert result.p_value == 0.01


def test_the_seed_changes_the_draw_and_nothing_else(found: dict[str, Cohort]) -> None:
    a, b = found['act'].cells, found['groot'].cells
    first, again, other = (macro_ks(a, b, n_resamples=400, rng=np.random.default_rng(s)) for s in (0, 0, 1))
    assert first.null_mean == again.null_mean
    assert first.null_mean != other.null_mean
    assert first.statistic == other.statistic


def test_lonely_strata_are_refused_or_dropped_by_name() -> None:
    a, b = {'x': cell([1, 2, 3]), 'y': cell([1, 2, 3])}, {'x': cell([1, 2, 5])}
    with pytest.raises(InputError, match='only one of the two: y'):
        macro_ks(a, b, n_resamples=9, rng=np.random.default_rng(0))
    assert macro_ks(a, b, n_resamples=9, rng=np.random.default_rng(0), missing='drop').dropped == ('y',)


def test_an_empty_cell_is_refused() -> None:
    with pytest.raises(InputError, match='only one of the two: y'):
        macro_ks(
            {'x': cell([1, 2]), 'y': cell([])}, {'x': cell([1, 2]), 'y': cell([3])}, n_resamples=9,
            rng=np.random.default_rng(0),
        )  # fmt: skip


def test_one_episode_a_side_can_not_be_tested() -> None:
    with pytest.raises(InputError, match='one episode per policy'):
        macro_ks({'x': cell([1])}, {'x': cell([9])}, n_resamples=9, rng=np.random.default_rng(0))


@pytest.mark.parametrize('observed', [[False] * 4, [True] * 4])
def test_all_censored_or_all_infinite_arms_do_not_differ(observed: list[bool]) -> None:
    times = [INF] * 4 if observed[0] else [5.0] * 4
    result = macro_ks(
        {'x': cell(times, observed)}, {'x': cell(times, observed)}, n_resamples=19, rng=np.random.default_rng(0)
    )
    assert result.statistic == 0
    assert result.p_value == 1


def test_pairs_are_swapped_within_scenes_and_unmatched_episodes_are_counted() -> None:
    first, second = effect_pair(np.random.default_rng(5), slowdown=1.6)
    a, b = operations_by_stratum(first), operations_by_stratum(second)
    paired = macro_ks(a, b, n_resamples=300, rng=np.random.default_rng(0), method='paired_swap')
    assert paired.n_episodes[0] == paired.n_episodes[1]
    assert paired.n_unmatched == abs(len(first) - len(second)) or paired.n_unmatched > 0
    assert paired.p_value < 0.05
    with pytest.raises(InputError, match='scenes cannot be matched'):
        macro_ks(
            {'x': cell([1, 2])}, {'x': cell([1, 2])}, n_resamples=9, rng=np.random.default_rng(0), method='paired_swap'
        )


def test_pairing_helps_when_scenes_decide() -> None:
    """Scene difficulty shared by both arms, a small constant slowdown: the paired test sees it, the unpaired can't."""
    rng = np.random.default_rng(2)
    scene = rng.exponential(60, 40)
    scenes = tuple(range(40))
    fast, slow = (
        Operations(scene * factor, np.ones(40, dtype=bool), np.arange(40), scenes=scenes) for factor in (1.0, 1.25)
    )
    unpaired, paired = (
        macro_ks({'s': fast}, {'s': slow}, n_resamples=2000, rng=rng, method=m) for m in ('permutation', 'paired_swap')
    )
    assert paired.p_value < unpaired.p_value


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_classical_logrank_equals_lifelines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = []
    for scale in (20, 30):
        times = np.ceil(rng.exponential(scale, 40) / 3) * 3
        ghost = rng.random(40) < 0.1
        made.append((np.where(ghost, INF, times), ghost | (rng.random(40) < 0.7)))
    theirs = logrank_test(
        *(np.where(np.isfinite(t), t, 1e9) for t, _ in made),
        event_observed_A=made[0][1] & np.isfinite(made[0][0]), event_observed_B=made[1][1] & np.isfinite(made[1][0]),
    )  # fmt: skip
    ours = logrank({'s': cell(*made[0])}, {'s': cell(*made[1])}).classical
    assert ours.statistic == pytest.approx(theirs.test_statistic, rel=1e-10)
    assert ours.p_value == pytest.approx(theirs.p_value, rel=1e-9, abs=1e-12)


def test_stratified_logrank_adds_strata_and_pooled_merges_them() -> None:
    rng = np.random.default_rng(0)
    a, b = ({s: cell(rng.exponential(m, 30)) for s, m in (('x', 10), ('y', 100))} for _ in range(2))
    parts = [logrank({s: a[s]}, {s: b[s]}).classical for s in 'xy']
    whole = logrank(a, b).classical
    assert whole.excess == pytest.approx(sum(p.excess for p in parts))
    assert whole.variance == pytest.approx(sum(p.variance for p in parts))
    merged = logrank(a, b, stratified=False).classical
    both = [np.concatenate([c['x'].durations_s, c['y'].durations_s]) for c in (a, b)]
    theirs = logrank_test(*both, event_observed_A=np.ones(60), event_observed_B=np.ones(60))
    assert merged.statistic == pytest.approx(theirs.test_statistic, rel=1e-10)


def test_robust_logrank_is_calibrated_where_the_classical_is_not() -> None:
    """Perfectly repeated operations: the classical test counts each five times."""
    rng = np.random.default_rng(1)
    rejected = np.zeros(2)
    for _ in range(400):
        a, b = (cell(np.repeat(rng.exponential(10, 30), 5), None, np.repeat(np.arange(30), 5)) for _ in range(2))
        found = logrank({'s': a}, {'s': b})
        rejected += [found.classical.p_value < 0.05, found.robust.p_value < 0.05]
    assert rejected[0] / 400 > 0.25
    assert rejected[1] / 400 < 0.09


def test_logrank_without_a_shared_success_is_not_estimable() -> None:
    with pytest.raises(NotEstimable, match='nothing to compare'):
        logrank({'s': cell([5.0], [False])}, {'s': cell([6.0], [False])})


def test_scalar_tests_report_the_plain_differences(found: dict[str, Cohort]) -> None:
    a, b = found['act'].cells, found['groot'].cells
    tests = scalar_tests(a, b, n_resamples=200, rng=np.random.default_rng(0))
    chances = [[float(success_curve(c[s].durations_s, c[s].observed).at(30)) for s in a] for c in (a, b)]
    gap = np.mean(chances[0]) - np.mean(chances[1])
    assert tests['chance_30s'].difference == pytest.approx(gap)
    assert set(tests) == {'rmst_s', 'chance_30s', 'chance_60s'}


def test_sup_signs_cycle() -> None:
    """Appendix I: A over B on [1, 5), B over C on [20, 50), C over A from 50 s, each curve with hard failures."""
    curves = example_curves()
    for (first, second), time_s in zip(('AB', 'BC', 'CA'), (1, 20, 50), strict=True):
        assert ks_distance(curves[first], curves[second])[1] > 0, f'{first} is on top at their supremum'
        found = sup_sign(first, curves[first], name_b=second, b=curves[second])
        assert found is not None
        assert (found.upper, found.time_s) == (first, time_s)
    assert all(c.hard_failure > 0 for c in curves.values())
    cycle = find_cycle(curves)
    assert cycle is not None
    assert {e.upper for e in cycle} == set('ABC')


def test_ordered_curves_have_no_sup_sign_cycle() -> None:
    ordered = {n: success_curve([t, t + 1], [True, True]) for n, t in (('x', 1), ('y', 2), ('z', 3))}
    assert find_cycle(ordered) is None


def type_one(n_trials: int, n_resamples: int, seed: int, method: NullMethod) -> dict[float, float]:
    """Share of rejections over fresh null pairs of the generator."""
    rng = np.random.default_rng(seed)
    p_values = []
    for _ in range(n_trials):
        a, b = (operations_by_stratum(e) for e in null_pair(rng))
        p_values.append(macro_ks(a, b, n_resamples=n_resamples, rng=rng, method=method, threads=1).p_value)
    return {alpha: float(np.mean(np.array(p_values) <= alpha)) for alpha in (0.01, 0.05, 0.10)}


def test_the_default_test_keeps_its_level_on_fresh_null_data() -> None:
    rates = type_one(150, 99, 3, NullMethod.PERMUTATION)
    assert rates[0.05] < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)
    assert rates[0.10] < 0.10 + 3 * np.sqrt(0.10 * 0.90 / 150)


@pytest.mark.study
@pytest.mark.parametrize('method', [NullMethod.PERMUTATION, NullMethod.POOLED_BOOTSTRAP])
def test_type_one_error_over_2000_trials(method: NullMethod) -> None:
    """The default is nominal within Monte-Carlo error; the published test is let be what it is."""
    rates = type_one(2000, 499, 7, method)
    for alpha, rate in rates.items():
        half = 1.96 * np.sqrt(alpha * (1 - alpha) / 2000)
        print(f'{method}: Pr(p <= {alpha}) = {rate:.4f} +- {1.96 * np.sqrt(rate * (1 - rate) / 2000):.4f}')
        if method is NullMethod.PERMUTATION:
            assert abs(rate - alpha) < 1.7 * half
        else:
            assert rate < alpha + 0.06


def test_null_calibration_covers_the_three_setups(found: dict[str, Cohort]) -> None:
    result = null_calibration(
        found,
        rng=np.random.default_rng(0),
        label='tote_side',
        pairs=[('openpi', 'groot')],
        n_trials=200,
        n_resamples=99,
    )
    assert [(r.setup.value, r.name) for r in result.rows] == [
        ('same_policy', 'act'), ('same_policy', 'groot'), ('same_policy', 'openpi'), ('same_policy', 'smolvla'),
        ('reference', 'human'), ('permutation', 'openpi ↔ groot'),
    ]  # fmt: skip
    for row in result.rows:
        rate, interval = row.rejection(0.10)
        assert 0.02 < rate < 0.19
        assert interval.contains(rate)
        assert 0.4 < row.mean_p < 0.6


def test_the_published_test_is_anticonservative_on_small_cells(found: dict[str, Cohort]) -> None:
    """Table 8's finding, its mean p below one half, and that label permutation mends it."""
    means = {}
    for method in ('pooled_bootstrap', 'permutation'):
        result = null_calibration(
            {'smolvla': found['smolvla']}, rng=np.random.default_rng(0), setups=['same_policy'], n_trials=400,
            n_resamples=199, method=method,
        )  # fmt: skip
        means[method] = result.rows[0].mean_p
    assert means['pooled_bootstrap'] < 0.45
    assert means['permutation'] > 0.46


def test_too_few_episodes_to_calibrate_is_said() -> None:
    few = cohorts(paper_like_cohort(np.random.default_rng(0), objects=['o'])[:40])
    with pytest.raises(NotEstimable, match='no scenario could be run'):
        null_calibration({k: v for k, v in few.items() if v.n_episodes < 30}, rng=np.random.default_rng(0))
