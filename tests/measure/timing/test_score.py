"""Scalars and their intervals: identities of Table 1, the reference, published numbers, coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.timing import (
    Cohort,
    Operations,
    Scale,
    auc,
    cohorts,
    completion,
    curve_auc,
    find_cohort,
    hrt,
    ks_distance,
    macro_band,
    mtbf,
    operations,
    rmst,
    score_cohort,
    success_curve,
    uph_of_rmst,
    uph_of_successes,
)
from robotrials.record import Episode, Outcome
from robotrials.stats import wilson
from robotrials.testing import PAPER_LIKE, cell_episodes, paper_like_cohort

INF = float('inf')


@pytest.fixture(scope='module')
def found() -> dict[str, Cohort]:
    return cohorts(paper_like_cohort(np.random.default_rng(1)))


def cell(times: list[float], observed: list[bool]) -> Operations:
    return Operations(np.array(times), np.array(observed), np.arange(len(times)))


def test_the_generator_is_shaped_like_the_published_cohort(found: dict[str, Cohort]) -> None:
    """4 policies and a reference, 4 objects, 32-46 episodes per cell, about 4.4 placements, ghosts, timeouts."""
    assert list(found) == ['human', 'act', 'groot', 'openpi', 'smolvla']
    for name in ('act', 'groot', 'openpi'):
        cohort = found[name]
        assert len(cohort.cells) == 4
        assert all(32 <= c.n_episodes <= 46 for c in cohort.cells.values())
        placed = np.mean([e.items_placed or 0 for e in cohort.valid])
        assert 3.5 < placed < 5.3
        timeouts = np.mean([e.outcome is Outcome.TIMEOUT for e in cohort.valid])
        assert 0.6 < timeouts < 0.92
        assert 0.02 < cohort.pooled.n_ghosts / cohort.pooled.n_operations < 0.12


def test_table_1_identities(found: dict[str, Cohort]) -> None:
    pooled = found['act'].pooled
    curve = success_curve(pooled.durations_s, pooled.observed)
    tau = 240.0
    assert completion(curve, tau) == curve.at(tau)
    assert uph_of_rmst(curve, tau) == pytest.approx(3600 / rmst(curve, tau))
    assert mtbf(curve, tau) == pytest.approx(rmst(curve, tau) / (1 - float(curve.at(tau))))
    # E[T | T <= tau] by its own integral: tau - (integral of F) / F(tau)
    grid = np.linspace(0, tau, 240_001)
    mean_success = tau - np.mean(np.asarray(curve.at(grid))) * tau / float(curve.at(tau))
    assert uph_of_successes(curve, tau) == pytest.approx(3600 / mean_success, rel=1e-4)
    # RMST splits into successes and what is charged tau, so the two UPH differ unless all succeed
    moment = 3600 / uph_of_successes(curve, tau) * float(curve.at(tau))
    assert rmst(curve, tau) == pytest.approx(moment + tau * (1 - float(curve.at(tau))))
    assert uph_of_successes(curve, tau) > uph_of_rmst(curve, tau)


def test_pp_plot_identities_numerically(found: dict[str, Cohort]) -> None:
    """Area under the P-P curve = AUC; largest distance to the diagonal = KS / sqrt 2 (Figure 2)."""
    a, b = (success_curve(c.durations_s, c.observed) for c in (found['act'].pooled, found['human'].pooled))
    times = np.union1d(a.times_s, b.times_s)
    fa, fb = (np.concatenate([[0.0], np.asarray(c.at(times)), [1.0]]) for c in (a, b))
    area = np.sum(np.diff(fb) * (fa[1:] + fa[:-1]) / 2)
    assert area == pytest.approx(curve_auc(a, b), abs=1e-12)
    distance = np.max(np.abs(fa - fb)) / np.sqrt(2)
    assert distance == pytest.approx(ks_distance(a, b)[0] / np.sqrt(2), abs=1e-12)


def test_scores_of_a_cell_equal_the_plain_functionals(found: dict[str, Cohort]) -> None:
    score = score_cohort(found['groot'], n_resamples=50, rng=np.random.default_rng(0), scale=Scale(episode_tau_s=300.0))
    for stratum, own in found['groot'].cells.items():
        curve = success_curve(own.durations_s, own.observed)
        shown = {name: e.value for name, e in score.cells[stratum].items()}
        assert shown['rmst_s'] == pytest.approx(rmst(curve, 240), abs=1e-10)
        assert shown['chance_30s'] == pytest.approx(curve.at(30), abs=1e-12)
        assert shown['median_s'] == curve.median_s
        assert shown['uph_of_successes'] == pytest.approx(uph_of_successes(curve, 300))
        assert shown['uph_of_rmst'] == pytest.approx(uph_of_rmst(curve, 300))
        assert shown['completion'] == pytest.approx(completion(curve, 300))
        assert shown['mtbf_s'] == pytest.approx(mtbf(curve, 300))
        assert shown['hard_failure'] == pytest.approx(curve.hard_failure)
    macro = np.mean([score.cells[s]['rmst_s'].value for s in score.cells])
    assert score.macro['rmst_s'].value == pytest.approx(macro)
    pooled = found['groot'].pooled
    assert score.pooled['rmst_s'].value == pytest.approx(rmst(success_curve(pooled.durations_s, pooled.observed), 240))


def test_intervals_hold_their_estimate_and_are_seeded(found: dict[str, Cohort]) -> None:
    scores = [
        score_cohort(found['openpi'], n_resamples=400, rng=np.random.default_rng(seed), threads=threads)
        for seed, threads in ((0, 1), (0, 2), (1, 2))
    ]
    for kind in ('macro', 'pooled'):
        for name, e in getattr(scores[0], kind).items():
            assert e.value is not None, name
            assert e.percentile is not None
            assert e.percentile.contains(e.value)
            assert e.bca is not None
            assert e.bca.contains(e.value)
    ends = [s.macro['rmst_s'].percentile for s in scores]
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]


def test_hrt_is_the_macro_of_cell_ratios_and_its_interval_resamples_the_reference() -> None:
    """With two reference episodes the reference is the noisier side: leaving it fixed would give a narrow interval."""
    rng = np.random.default_rng(0)
    model = {s: cell(list(rng.exponential(50, 200)), [True] * 200) for s in 'ab'}
    few = {s: cell([5.0, 15.0], [True, True]) for s in 'ab'}
    result = hrt(model, few, n_resamples=500, rng=rng)
    ratios = [10.0 / rmst(success_curve(model[s].durations_s, model[s].observed), 240) for s in 'ab']
    assert result.value == pytest.approx(np.mean(ratios))
    assert result.macro.percentile is not None
    assert result.macro.percentile.width > 0.5 * np.mean(ratios)


def test_reference_scores_refuse_or_drop_lonely_strata() -> None:
    rng = np.random.default_rng(0)
    a, b = {'x': cell([1, 2], [True] * 2), 'y': cell([1, 3], [True] * 2)}, {'x': cell([2, 2], [True] * 2)}
    with pytest.raises(InputError, match='only one of the two: y'):
        hrt(a, b, rng=rng)
    assert hrt(a, b, rng=rng, missing='drop').dropped == ('y',)
    with pytest.raises(InputError, match='no stratum has operations of both'):
        auc({'x': a['x']}, {'z': a['x']}, rng=rng)


def test_a_cohort_is_found_by_name(found: dict[str, Cohort]) -> None:
    assert find_cohort(found, 'openpi').policy == 'openpi'
    with pytest.raises(UnknownName, match="did you mean 'openpi'"):
        find_cohort(found, 'opnpi')


@pytest.mark.parametrize(
    ('times', 'observed', 'reasons'),
    [
        (
            [50.0, 60.0], [False, False],
            {'hard_failure': 'censored', 'median_s': 'not reached', 'uph_of_successes': 'no success'},
        ),
        ([INF, INF], [True, True], {'median_s': 'not reached', 'uph_of_successes': 'no success'}),
    ],
)  # fmt: skip
def test_what_can_not_be_estimated_is_absent_with_a_reason(
    times: list[float], observed: list[bool], reasons: dict[str, str]
) -> None:
    outcome = Outcome.TIMEOUT if not observed[0] else Outcome.SAFETY_STOP
    episodes = [Episode(policy='p', task='t', outcome=outcome, duration_s=50.0 + i, seed=i) for i in range(len(times))]
    score = score_cohort(cohorts(episodes)['p'], n_resamples=20, rng=np.random.default_rng(0))
    for name, reason in reasons.items():
        assert score.macro[name].value is None
        assert reason in score.macro[name].note
    assert score.macro['rmst_s'].value == 240


def test_a_single_episode_scores_without_a_made_up_interval() -> None:
    episodes = [Episode(policy='p', task='t', outcome=Outcome.SUCCESS, duration_s=5.0)]
    score = score_cohort(cohorts(episodes)['p'], n_resamples=20, rng=np.random.default_rng(0))
    assert score.macro['rmst_s'].value == pytest.approx(5)
    assert score.macro['rmst_s'].bca is None or score.macro['rmst_s'].bca.width == 0


def test_only_invalid_episodes_are_not_estimable() -> None:
    episodes = [Episode(policy='p', task='t', outcome=Outcome.INVALID, duration_s=5.0)]
    with pytest.raises(NotEstimable, match='none of 1 episodes'):
        score_cohort(cohorts(episodes)['p'], rng=np.random.default_rng(0))


def test_published_wilson_intervals() -> None:
    """Appendix H: 7/10 gives [0.40, 0.89]; 14/20 gives [0.48, 0.85], where the paper prints 0.86."""
    assert tuple(round(x, 2) for x in wilson(7, 10)) == (0.40, 0.89)
    assert tuple(round(x, 2) for x in wilson(14, 20)) == (0.48, 0.85)
    assert tuple(round(x, 4) for x in wilson(14, 20)) == (0.4810, 0.8545)


def coverage(n_trials: int, *, n_resamples: int, seed: int) -> tuple[float, float, float]:
    """Share of intervals (percentile, BCa, simultaneous band) that hold the truth of one cell of the generator."""
    profile = PAPER_LIKE[2]
    rng = np.random.default_rng(seed)
    huge = operations(cell_episodes(rng, profile, 'spoons', n_episodes=40_000 if n_trials > 300 else 12_000))
    limit = success_curve(huge.durations_s, huge.observed)
    truth = rmst(limit, 240.0)
    held = np.zeros(3)
    for _ in range(n_trials):
        made = cell_episodes(rng, profile, 'spoons', n_episodes=40)
        score = score_cohort(cohorts(made)[profile.name], n_resamples=n_resamples, rng=rng, threads=1)
        e = score.pooled['rmst_s']
        assert e.percentile is not None
        assert e.bca is not None
        held[0] += e.percentile.contains(truth)
        held[1] += e.bca.contains(truth)
        grid = np.linspace(10, 200, 20)
        band = macro_band(
            {'': operations(made)}, kind='simultaneous', rng=rng, n_resamples=n_resamples, grid_s=grid, threads=1
        )
        true_chance = np.asarray(limit.at(grid))
        held[2] += bool(np.all((band.low <= true_chance) & (true_chance <= band.high)))
    percentile, bca, band_share = held / n_trials
    return float(percentile), float(bca), float(band_share)


def test_intervals_cover_the_truth() -> None:
    percentile, bca, band = coverage(120, n_resamples=300, seed=4)
    assert percentile > 0.86
    assert bca > 0.86
    assert band > 0.84


@pytest.mark.study
def test_intervals_cover_the_truth_over_2000_trials() -> None:
    percentile, bca, band = coverage(2000, n_resamples=1000, seed=5)
    print(f'coverage at 95 %: RMST percentile {percentile:.4f}, BCa {bca:.4f}; simultaneous band {band:.4f}')
    assert 0.91 < percentile < 0.97
    assert 0.92 < bca < 0.975
    assert 0.90 < band < 0.985


def test_clustered_bands_are_wider_than_greenwood_when_operations_cluster(found: dict[str, Cohort]) -> None:
    own = found['act'].pooled
    plain, clustered = (macro_band({'': own}, kind=k) for k in ('greenwood', 'clustered'))
    assert np.mean(clustered.high - clustered.low) > 1.3 * np.mean(plain.high - plain.low)
    boot = macro_band({'': own}, kind='bootstrap', rng=np.random.default_rng(0))
    assert np.mean(boot.high - boot.low) == pytest.approx(np.mean(clustered.high - clustered.low), rel=0.1)
    everywhere = macro_band(found['act'].cells, kind='simultaneous', rng=np.random.default_rng(0))
    assert np.all(everywhere.low <= everywhere.high)
    with pytest.raises(InputError, match='pass rng'):
        macro_band({'': own}, kind='bootstrap')


def test_the_macro_time_between_failures_is_a_ratio_of_means() -> None:
    """A policy that loses one of eight items in one stratum and none in the other had an infinite mean of ratios."""
    made = []
    for stratum, lost in (('cup', 0), ('bowl', 2)):
        for k in range(8):
            outcome = 'failure' if k < lost else 'success'
            made.append(
                Episode(
                    policy='p', task='t', stratum=stratum, outcome=outcome, duration_s=10.0, seed=k, time_cap_s=60.0
                )
            )
    found = score_cohort(cohorts(made)['p'], scale=Scale(tau_s=60.0), n_resamples=50, rng=np.random.default_rng(0))
    assert found.cells['cup']['mtbf_s'].value == INF
    assert found.macro['mtbf_s'].value == pytest.approx(((10 + (6 * 10 + 2 * 60) / 8) / 2) / 0.125)


def test_the_chance_to_beat_a_reference_has_an_interval_that_three_episodes_can_bear() -> None:
    """Complete separation: resampling had no width at all; two episodes per cell have no interval."""

    def cells(start: float, n: int) -> dict[str, Operations]:
        return {s: Operations(start + np.arange(n, dtype=float), np.ones(n, dtype=bool), np.arange(n)) for s in 'xy'}

    found = auc(cells(1.0, 3), cells(50.0, 3), n_resamples=50, rng=np.random.default_rng(0)).macro
    assert found.value == 1.0
    assert found.interval is not None
    assert tuple(found.interval) == pytest.approx((1 - math.log(20) / 6, 1.0))
    few = auc(cells(1.0, 2), cells(50.0, 3), n_resamples=50, rng=np.random.default_rng(0)).macro
    assert few.interval is None
    assert 'at least 3' in few.note
