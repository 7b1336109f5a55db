"""The curve, against lifelines, R-style brute force and its own laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from lifelines.utils import restricted_mean_survival_time

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing import rmst, success_curve
from robotrials.measure.timing.curve import clustered_variance, macro_curve

INF = float('inf')
# lifelines can't hold infinity: ghosts become censored far beyond every other time, which is the same estimator.
FAR_S = 1e9


@st.composite
def censored_data(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    times = rng.exponential(30, n)
    if draw(st.booleans()):
        times = np.ceil(times / 5) * 5
    observed = rng.random(n) < rng.random()
    ghost = rng.random(n) < 0.15
    return np.where(ghost, INF, times), observed | ghost


def lifelines_fit(times: np.ndarray, observed: np.ndarray) -> KaplanMeierFitter:
    finite = np.isfinite(times)
    return KaplanMeierFitter().fit(np.where(finite, times, FAR_S), observed & finite)


@given(censored_data())
def test_curve_equals_lifelines_with_ties_and_infinities(data: tuple[np.ndarray, np.ndarray]) -> None:
    times, observed = data
    asked = np.linspace(0, 200, 101)
    theirs = 1.0 - lifelines_fit(times, observed).survival_function_at_times(asked).to_numpy()
    assert np.max(np.abs(success_curve(times, observed).at(asked) - theirs)) <= 1e-12


@given(censored_data(), st.floats(1, 300))
def test_rmst_equals_lifelines(data: tuple[np.ndarray, np.ndarray], tau_s: float) -> None:
    times, observed = data
    theirs = restricted_mean_survival_time(lifelines_fit(times, observed), t=tau_s)
    assert rmst(success_curve(times, observed), tau_s) == pytest.approx(theirs, rel=1e-10, abs=1e-10)


@given(censored_data())
def test_greenwood_equals_lifelines(data: tuple[np.ndarray, np.ndarray]) -> None:
    times, observed = data
    fit = lifelines_fit(times, observed)
    curve = success_curve(times, observed)
    inside = curve.times_s[curve.at_risk > curve.n_success]
    cumulative = fit._cumulative_sq_.reindex(inside).to_numpy().ravel()
    survival = 1.0 - np.atleast_1d(curve.at(inside))
    assert np.allclose(curve.greenwood_variance(inside), survival**2 * cumulative, atol=1e-12)


@given(censored_data())
def test_curve_rises_and_stays_a_probability(data: tuple[np.ndarray, np.ndarray]) -> None:
    curve = success_curve(*data)
    assert np.all(np.diff(curve.chance) >= -1e-15)
    assert np.all((curve.chance >= 0) & (curve.chance <= 1))
    assert curve.at(INF) == curve.plateau


@given(censored_data())
def test_integer_weights_are_repeats(data: tuple[np.ndarray, np.ndarray]) -> None:
    times, observed = data
    weights = np.arange(len(times)) % 3
    if weights.sum() == 0:
        return
    repeated = success_curve(np.repeat(times, weights), np.repeat(observed, weights))
    weighted = success_curve(times, observed, weights=weights)
    asked = np.linspace(0, 200, 50)
    assert np.allclose(weighted.at(asked), repeated.at(asked), atol=1e-12)


def test_without_censoring_the_curve_is_the_empirical_distribution() -> None:
    curve = success_curve([1, 2, 2, INF], [True] * 4)
    assert curve.at([0.5, 1, 2, 1e6]) == pytest.approx([0, 0.25, 0.75, 0.75])
    assert curve.hard_failure == pytest.approx(0.25)
    assert curve.ghost_share == 0.25
    assert curve.median_s == 2
    assert curve.quantile(0.8) is None


def test_a_ghost_is_charged_tau() -> None:
    assert rmst(success_curve([10, INF], [True, True]), 240) == pytest.approx((10 + 240) / 2)


def test_all_infinite_is_certain_failure() -> None:
    curve = success_curve([INF, INF], [True, True])
    assert curve.hard_failure == 1
    assert curve.at(1e9) == 0
    assert curve.median_s is None
    assert rmst(curve, 60) == 60


def test_all_censored_has_no_estimable_hard_failure() -> None:
    curve = success_curve([5, 9], [False, False])
    assert curve.followed_to_s == 9
    assert rmst(curve, 9) == 9
    with pytest.raises(NotEstimable, match='every operation is censored'):
        _ = curve.hard_failure


@pytest.mark.parametrize(
    ('times', 'observed', 'message'),
    [
        ([1, -2], [True, True], r'durations_s\[1\] is -2'),
        ([float('nan')], [True], r'durations_s\[0\] is nan'),
        ([INF], [False], 'inf but not observed'),
        ([1, 2], [True], 'wanted the same'),
        ([1, 2], [2, 0], 'true or false'),
    ],
)
def test_bad_times_are_refused(times: list[float], observed: list[bool], message: str) -> None:
    with pytest.raises(InputError, match=message):
        success_curve(times, observed)


def test_no_operation_is_not_estimable() -> None:
    with pytest.raises(NotEstimable, match='no operation'):
        success_curve([], [])


@pytest.mark.parametrize('tau_s', [0, -1, INF, float('nan')])
def test_tau_must_be_finite_and_positive(tau_s: float) -> None:
    with pytest.raises(InputError, match='tau_s'):
        rmst(success_curve([1], [True]), tau_s)


def test_numbers_at_risk_keep_ghosts_for_ever() -> None:
    curve = success_curve([1, 2, 3, INF], [True, False, True, True])
    assert list(curve.at_risk_at([0, 1, 1.5, 2, 2.5, 3, 4])) == [4, 4, 3, 3, 2, 2, 1]


def test_macro_curve_gives_each_stratum_the_same_weight() -> None:
    few, many = success_curve([1], [True]), success_curve([3] * 9, [True] * 9)
    assert macro_curve({'few': few, 'many': many}).at(2) == pytest.approx(0.5)
    assert macro_curve({'few': few, 'many': many}, weights={'few': 3, 'many': 1}).at(2) == pytest.approx(0.75)


def test_clustered_variance_of_singletons_is_greenwood_to_first_order() -> None:
    rng = np.random.default_rng(1)
    times, observed = rng.exponential(10, 400), rng.random(400) < 0.7
    asked = np.array([2.0, 5.0, 10.0])
    ours = clustered_variance(times, observed, np.arange(400), asked)
    assert ours == pytest.approx(success_curve(times, observed).greenwood_variance(asked), rel=0.02)


def test_clustered_variance_equals_the_numerical_derivative() -> None:
    """The infinitesimal jackknife is the squared derivative of F in each episode's weight."""
    rng = np.random.default_rng(2)
    episode = np.repeat(np.arange(12), 3)
    times, observed = np.ceil(rng.exponential(10, 36)), rng.random(36) < 0.7
    times[::11], observed[::11] = INF, True
    asked = np.array([3.0, 8.0, 15.0])
    step = 1e-6
    slopes = []
    for e in range(12):
        up, down = (success_curve(times, observed, weights=1.0 + s * step * (episode == e)).at(asked) for s in (1, -1))
        slopes.append((np.asarray(up) - np.asarray(down)) / (2 * step))
    assert clustered_variance(times, observed, episode, asked) == pytest.approx(
        np.sum(np.square(slopes), axis=0), rel=1e-5
    )


def test_clustered_variance_is_the_same_a_few_times_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    times, observed, episode = rng.exponential(10, 90), rng.random(90) < 0.7, np.repeat(np.arange(30), 3)
    asked = np.linspace(1, 25, 17)
    whole = clustered_variance(times, observed, episode, asked)
    monkeypatch.setattr('robotrials.measure.timing.curve.MOST_NUMBERS', 200)
    np.testing.assert_allclose(clustered_variance(times, observed, episode, asked), whole, rtol=1e-12)
