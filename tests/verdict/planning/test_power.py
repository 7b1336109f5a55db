"""The bridge model's power, its design effect, its debiasing, and the N it asks for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing import NullMethod, Operations, clustered_variance, operations, operations_by_stratum
from robotrials.testing.scene import OBJECTS, PAPER_LIKE, cell_episodes, null_pair
from robotrials.verdict.planning import (
    AssumedCell,
    AssumedCurve,
    assumed_operations,
    bridge_power,
    calibrate_design_effect,
    design_effect,
    detection_rate,
    lognormal_curve,
)
from robotrials.verdict.planning.bridge import simulate_bridges, stratum_models

PROFILES = {p.name: p for p in PAPER_LIKE}
TAU_S = 120.0


def population(policy: str, n_episodes: int, rng: np.random.Generator) -> dict[str, Operations]:
    return {o: operations(cell_episodes(rng, PROFILES[policy], o, n_episodes=n_episodes)) for o in OBJECTS}


def flat(times: np.ndarray, per_episode: int = 1) -> Operations:
    return Operations(
        times, np.ones(len(times), dtype=bool), np.repeat(np.arange(len(times) // per_episode), per_episode)
    )


def test_one_stratum_has_the_textbook_critical_value() -> None:
    """sup|bridge| exceeds 1.358 with chance 0.05 (Kolmogorov); sqrt(N) D is sqrt(2) times that for two arms."""
    times = np.random.default_rng(0).random(4000)
    models = stratum_models({'s': flat(times)}, {'s': flat(times)}, tau_s=None, rng=np.random.default_rng(0))
    bridges = simulate_bridges(models, 20_000, rng=np.random.default_rng(1), method=NullMethod.PERMUTATION)
    # A grid of 120 times sees a little less of the supremum than a continuous bridge.
    assert bridges.critical(1.0, alpha=0.05, n=math.inf) / math.sqrt(2) == pytest.approx(1.358, abs=0.07)
    four = simulate_bridges(models * 4, 5_000, rng=np.random.default_rng(1), method=NullMethod.PERMUTATION)
    assert four.critical(1.0, alpha=0.05, n=math.inf) < bridges.critical(1.0, alpha=0.05, n=math.inf)


def test_design_effect_of_independent_operations_is_one() -> None:
    cell = AssumedCell(lognormal_curve(30.0), operations_per_episode=5)
    drawn = assumed_operations(cell, 2000, rng=np.random.default_rng(0))
    assert design_effect(drawn) == pytest.approx(1.0, abs=0.06)


def test_design_effect_of_identical_operations_is_their_number() -> None:
    times = np.repeat(np.random.default_rng(0).exponential(20, 800), 4)
    assert design_effect(flat(times, 4)) == pytest.approx(4.0, abs=0.05)


def test_design_effect_is_one_plus_m_less_one_times_the_indicator_correlation() -> None:
    cell = AssumedCell(lognormal_curve(30.0), operations_per_episode=3, correlation=0.6)
    drawn = assumed_operations(cell, 4000, rng=np.random.default_rng(1))
    times = drawn.durations_s.reshape(-1, 3)
    grid = np.quantile(times, np.linspace(0.01, 0.99, 99))
    hits = (times[:, :, None] <= grid).astype(float)
    hits -= hits.mean(axis=(0, 1))
    between = sum((hits[:, i] * hits[:, j]).mean(axis=0) for i, j in ((0, 1), (0, 2), (1, 2))) / 3
    rho = between.sum() / (hits**2).mean(axis=(0, 1)).sum()
    assert design_effect(drawn) == pytest.approx(1 + 2 * rho, rel=0.03)


def test_the_estimated_design_effect_of_a_paper_like_cohort_is_near_the_published_calibration() -> None:
    """Appendix H calibrates D = 2.25 where the raw-time correlation would give over 3."""
    found = population('groot', 150, np.random.default_rng(0))
    assert 1.8 < np.mean([design_effect(c, tau_s=TAU_S) for c in found.values()]) < 3.0


def test_influences_sum_to_the_clustered_variance_and_to_nothing() -> None:
    from robotrials.measure.timing.curve import episode_influence

    cell = population('act', 30, np.random.default_rng(2))['spoons']
    grid = np.array([10.0, 40.0, 90.0])
    found = episode_influence(cell.durations_s, cell.observed, cell.cluster, grid, n_episodes=cell.n_episodes)
    wanted = clustered_variance(cell.durations_s, cell.observed, cell.cluster, grid)
    assert (found**2).sum(axis=0) == pytest.approx(wanted)
    assert found.sum(axis=0) == pytest.approx(0, abs=1e-12)


def test_power_rises_with_n_and_the_needed_n_is_where_it_crosses() -> None:
    rng = np.random.default_rng(0)
    a, b = population('groot', 200, rng), population('act', 200, rng)
    found = bridge_power(a, b, rng=rng, tau_s=TAU_S, per_cell=range(5, 61, 5))
    assert np.all(np.diff(found.power) >= -0.005)
    below, above = (found.per_cell[found.power < 0.8].max(), found.per_cell[found.power >= 0.8].min())
    assert below <= found.needed.n <= above
    assert found.needed.interval is not None
    assert found.needed.interval.contains(found.needed.n)


def test_equal_curves_need_infinitely_many_and_reject_at_alpha() -> None:
    cell = AssumedCell(lognormal_curve(30.0, ceiling=0.9), operations_per_episode=4, correlation=0.4)
    found = bridge_power({'s': cell}, {'s': cell}, rng=np.random.default_rng(0), per_cell=[10, 100], n_bridges=10_000)
    assert math.isinf(found.needed.n)
    assert found.needed.interval is None, 'an assumption has no sampling error'
    assert found.power == pytest.approx([0.05, 0.05], abs=0.01)


def test_a_null_pilot_is_not_taken_for_an_effect() -> None:
    """Plugging in says that every null pilot can be resolved; debiased, most need infinitely many."""
    endless, plugged = 0, []
    for seed in range(12):
        a, b = (operations_by_stratum(e) for e in null_pair(np.random.default_rng(seed)))
        debiased = bridge_power(a, b, rng=np.random.default_rng(0), per_cell=(), tau_s=TAU_S, n_bridges=500)
        plain = bridge_power(a, b, rng=np.random.default_rng(0), per_cell=(), tau_s=TAU_S, n_bridges=500, debias='none')
        assert debiased.needed.interval is not None
        endless += math.isinf(debiased.needed.n)
        plugged.append(plain.needed.n)
        assert debiased.null_effect == pytest.approx(0.13, abs=0.04), 'the paper: about 0.137 at such a pilot'
    assert endless >= 4
    assert max(plugged) < 250


def test_debiasing_orders_none_before_deconvolved_before_subtracted() -> None:
    rng = np.random.default_rng(3)
    a, b = population('groot', 25, rng), population('act', 25, rng)
    n = {
        how: bridge_power(a, b, rng=np.random.default_rng(0), per_cell=(), tau_s=TAU_S, debias=how).needed.n
        for how in ('none', 'deconvolve', 'subtract')
    }
    assert n['none'] < n['deconvolve'] < n['subtract']
    with pytest.raises(InputError, match='deconvolve'):
        bridge_power(a, b, rng=rng, debias='wish')


def test_the_same_seed_gives_the_same_power_and_another_seed_another() -> None:
    rng = np.random.default_rng(0)
    a, b = population('groot', 20, rng), population('act', 20, rng)
    runs = [bridge_power(a, b, rng=np.random.default_rng(s), per_cell=[15], n_bridges=400).power[0] for s in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_matched_scenes_need_fewer_episodes() -> None:
    """Both policies slowed by the same scene: pairing takes the scene's part of the noise away."""
    rng = np.random.default_rng(0)
    scene = rng.normal(0, 1, 80)
    arms = [
        {'s': replace(flat(np.exp(3 + shift + scene + 0.3 * rng.normal(size=80))), scenes=tuple(range(80)))}
        for shift in (0.0, 0.3)
    ]
    paired = bridge_power(*arms, rng=np.random.default_rng(0), per_cell=(), method='paired_swap', n_bridges=2000).needed
    unpaired = bridge_power(*arms, rng=np.random.default_rng(0), per_cell=(), n_bridges=2000).needed
    assert paired.n < 0.6 * unpaired.n


def test_power_from_assumed_curves_is_the_rate_at_which_fresh_data_reject() -> None:
    """No pilot: the model against a detection study that draws its episodes from the same curves."""
    fast, slow = ({'s': AssumedCell(lognormal_curve(m, ceiling=0.95), 4, 0.5)} for m in (30.0, 42.0))
    model = bridge_power(fast, slow, rng=np.random.default_rng(0), per_cell=[15, 30], tau_s=TAU_S)
    study = detection_rate(
        {'fast': fast, 'slow': slow}, rng=np.random.default_rng(1), per_cell=[15, 30], metrics=['ks'], n_trials=600,
        n_resamples=99, tau_s=TAU_S,
    )  # fmt: skip
    rates = study.rates(('fast', 'slow'), 'ks')
    assert model.power == pytest.approx([rates[15], rates[30]], abs=0.06)


def test_the_model_follows_detection_rates_with_the_estimated_design_effect() -> None:
    """A small version of the study below: one pair, three N; 0.03 and three standard errors of a rate."""
    rng = np.random.default_rng(0)
    cells = {name: population(name, 150, rng) for name in ('groot', 'act')}
    study = detection_rate(cells, rng=rng, per_cell=[8, 14, 20], metrics=['ks'], n_trials=500, n_resamples=99)
    pairs = {'groot act': (cells['groot'], cells['act'])}
    rates = {'groot act': study.rates(('groot', 'act'), 'ks')}
    fit = calibrate_design_effect(pairs, rates, fit_on=[14, 20], rng=rng, tau_s=120.0, n_bridges=4000)
    assert fit.design_effect == pytest.approx(fit.estimated, rel=0.25)
    assert fit.judged_gap is not None
    assert max(fit.fitted_gap, fit.judged_gap) < 0.03 + 3 * math.sqrt(0.25 / 500)
    with pytest.raises(InputError, match='to fit on'):
        calibrate_design_effect(pairs, rates, fit_on=[7], rng=rng, n_bridges=200)


@pytest.mark.study
def test_bridge_power_is_within_three_points_of_the_detection_rate() -> None:
    """Three close pairs, N = 5..30, 2,000 outer trials; D fitted at N = 25 and 30 and judged at 5, 10, 15, 20."""
    rng = np.random.default_rng(0)
    cells = {name: population(name, 300, rng) for name in ('openpi', 'groot', 'act')}
    study = detection_rate(cells, rng=rng, metrics=['ks'], n_trials=2000, n_resamples=200)
    pairs = {f'{a} {b}': (cells[a], cells[b]) for a, b in study.pairs}
    rates = {f'{a} {b}': study.rates((a, b), 'ks') for a, b in study.pairs}
    fit = calibrate_design_effect(pairs, rates, fit_on=[25, 30], rng=rng, tau_s=120.0, n_bridges=20_000)
    for name, n, rate, model, fitted in fit.rows:
        print(f'{name:14s} N {n:2d} rate {rate:.3f} model {model:.3f} {"fitted" if fitted else "judged"}')
    print(f'D fitted {fit.design_effect:.2f}, estimated {fit.estimated:.2f}')
    print(f'largest gap: fitted {fit.fitted_gap:.3f}, judged {fit.judged_gap:.3f}')
    assert fit.judged_gap is not None
    # 0.03 and three standard errors of a rate from 2,000 trials.
    assert max(fit.fitted_gap, fit.judged_gap) < 0.03 + 3 * math.sqrt(0.25 / 2000)


@pytest.mark.study
@pytest.mark.parametrize('pilot', [5, 12, 38])
def test_the_interval_of_the_needed_n_covers_the_true_one(pilot: int) -> None:
    rng = np.random.default_rng(pilot)
    a, b = population('groot', 1000, rng), population('act', 1000, rng)
    true = bridge_power(a, b, rng=rng, per_cell=(), tau_s=TAU_S, debias='none', n_bridges=20_000).needed.n
    trials, covered, estimates, plugged = 100, 0, [], []
    for _ in range(trials):
        a, b = population('groot', pilot, rng), population('act', pilot, rng)
        seed = int(rng.integers(2**31))
        found = bridge_power(a, b, rng=np.random.default_rng(seed), per_cell=(), tau_s=TAU_S, n_bridges=1000).needed
        assert found.interval is not None
        covered += found.interval.contains(true)
        estimates.append(found.n)
        plain = bridge_power(
            a, b, rng=np.random.default_rng(seed), per_cell=(), tau_s=TAU_S, n_bridges=500, debias='none'
        )  # fmt: skip
        plugged.append(plain.needed.n)
    middle, naive = (float(np.quantile(x, 0.5, method='nearest')) for x in (estimates, plugged))
    print(
        f'pilot {pilot}: true N {true:.0f}, median estimate {middle:.0f}, plug-in {naive:.0f}, '
        f'covered {covered / trials:.3f}'
    )
    assert covered / trials > 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)
    assert naive < true < 2.5 * middle


@settings(max_examples=40)
@given(st.floats(2, 200), st.floats(0.1, 2), st.floats(0.05, 1), st.integers(0, 2**32))
def test_an_assumed_curve_and_its_quantile_are_inverse(median: float, spread: float, ceiling: float, seed: int) -> None:
    curve = lognormal_curve(median, spread=spread, ceiling=ceiling)
    level = np.random.default_rng(seed).random(20)
    times = curve.quantile(level)
    assert np.all(np.isinf(times) == (level > ceiling))
    inside = np.isfinite(times)
    assert curve.at(times[inside]) == pytest.approx(level[inside], abs=1e-9)
    assert float(curve.at(median)) == pytest.approx(ceiling / 2, abs=0.01)


def test_drawn_operations_have_the_assumed_curve() -> None:
    cell = AssumedCell(AssumedCurve(np.array([10.0, 60.0]), np.array([0.3, 0.8])), 3, 0.5, watched_s=40.0)
    drawn = assumed_operations(cell, 4000, rng=np.random.default_rng(0))
    from robotrials.measure.timing import success_curve

    found = success_curve(drawn.durations_s, drawn.observed)
    assert found.at(np.array([5.0, 10.0, 35.0])) == pytest.approx(cell.curve.at([5.0, 10.0, 35.0]), abs=0.02)
    assert drawn.durations_s[~drawn.observed] == pytest.approx(40.0)
    assert drawn.n_ghosts / drawn.n_operations == pytest.approx(0.2, abs=0.02)


def test_nonsense_is_refused() -> None:
    cell = AssumedCell(lognormal_curve(30.0))
    pilot = population('act', 10, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match='times_s'):
        AssumedCurve(np.array([2.0, 1.0]), np.array([0.1, 0.2]))
    with pytest.raises(InputError, match='never fall'):
        AssumedCurve(np.array([1.0, 2.0]), np.array([0.3, 0.2]))
    with pytest.raises(InputError, match='correlation'):
        AssumedCell(lognormal_curve(30.0), correlation=1.0)
    with pytest.raises(InputError, match='same on both sides'):
        bridge_power({'x': cell}, {'y': cell}, rng=rng)
    with pytest.raises(NotEstimable, match='matched scenes'):
        bridge_power({'x': cell}, {'x': cell}, rng=rng, method='paired_swap')
    with pytest.raises(InputError, match='design_effect'):
        bridge_power(pilot, pilot, rng=rng, design_effect=-1.0)
    with pytest.raises(InputError, match='n_bridges'):
        bridge_power(pilot, pilot, rng=rng, n_bridges=10)
    with pytest.raises(NotEstimable, match='no success'):
        bridge_power(pilot, pilot, rng=rng, tau_s=1e-6)


def test_the_example_in_the_document_is_true() -> None:
    import doctest
    from pathlib import Path

    page = Path(__file__).resolve().parents[3] / 'docs' / 'concepts' / 'power.md'
    result = doctest.testfile(str(page), module_relative=False, encoding='utf-8')
    assert result.attempted > 0
    assert result.failed == 0
