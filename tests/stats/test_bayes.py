"""Posteriors against closed forms, scipy and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from scipy.special import betaln

from robotrials.errors import InputError
from robotrials.stats import BetaPosterior, chance_better, difference_credible, success_posterior

COUNTS = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def closed_form(a: BetaPosterior, b: BetaPosterior) -> float:
    """P(a > b) as a finite sum, for a whole-number alpha of a."""
    terms = [
        betaln(b.alpha + i, a.beta + b.beta) - math.log(a.beta + i) - betaln(1 + i, a.beta) - betaln(b.alpha, b.beta)
        for i in range(round(a.alpha))
    ]
    return float(np.exp(terms).sum())


@given(COUNTS, COUNTS)
def test_chance_better_against_the_closed_form(first: tuple[int, int], second: tuple[int, int]) -> None:
    a, b = success_posterior(*first), success_posterior(*second)
    assert chance_better(a, b) == pytest.approx(closed_form(a, b), abs=1e-9)
    assert chance_better(a, b) + chance_better(b, a) == pytest.approx(1, abs=1e-9)


@given(COUNTS)
def test_posterior_against_scipy(count: tuple[int, int]) -> None:
    ours = success_posterior(*count)
    peer = scipy_stats.beta(count[0] + 1, count[1] - count[0] + 1)
    assert (ours.mean, ours.standard_deviation) == pytest.approx((peer.mean(), peer.std()))
    assert tuple(ours.credible(0.9)) == pytest.approx(peer.interval(0.9), abs=1e-10)
    x = np.linspace(0.01, 0.99, 7)
    assert ours.density(x) == pytest.approx(peer.pdf(x), rel=1e-9)
    assert ours.cumulative(x) == pytest.approx(peer.cdf(x), abs=1e-12)


def test_jeffreys_prior_and_margin_against_draws() -> None:
    a, b = success_posterior(18, 20, prior=(0.5, 0.5)), success_posterior(60, 100, prior=(0.5, 0.5))
    rng = np.random.default_rng(0)
    difference = a.draws(400_000, rng) - b.draws(400_000, rng)
    assert chance_better(a, b, by=0.1) == pytest.approx(np.mean(difference > 0.1), abs=0.003)
    assert tuple(difference_credible(a, b)) == pytest.approx(np.quantile(difference, [0.025, 0.975]), abs=0.003)


def test_draws_follow_the_seed() -> None:
    posterior = success_posterior(3, 10)
    one, again, other = (posterior.draws(5, np.random.default_rng(s)) for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match='n must be at least 1'):
        success_posterior(0, 0)
    with pytest.raises(InputError, match='at most'):
        success_posterior(3, 2)
    with pytest.raises(InputError, match='positive'):
        success_posterior(1, 2, prior=(0, 1))
    with pytest.raises(InputError, match='by'):
        chance_better(success_posterior(1, 2), success_posterior(1, 2), by=5)
