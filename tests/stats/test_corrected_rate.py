"""A rate corrected for a scorer's errors, against worked examples, the definitions, and simulated worlds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.stats.corrected_rate import ScorerErrors, StratumWord, prediction_powered, rogan_gladen, stratified_rate
from robotrials.stats.proportion import wilson


def test_the_corrected_rate_inverts_the_scorer() -> None:
    """A true rate p seen through sensitivity and specificity comes back exactly."""
    errors = ScorerErrors(90, 100, 80, 100)
    for true in (0.0, 0.25, 0.5, 1.0):
        seen = round(1000 * (true * 0.9 + (1 - true) * 0.2))
        assert rogan_gladen(seen, 1000, errors).value == pytest.approx(true)


def test_a_perfect_scorer_of_many_labels_changes_nothing() -> None:
    estimate = rogan_gladen(30, 100, ScorerErrors(10**6, 10**6, 10**6, 10**6))
    assert estimate.value == pytest.approx(0.3)
    assert estimate.interval is not None
    assert tuple(estimate.interval) == pytest.approx(tuple(wilson(30, 100)), abs=2e-3)


def test_lang_and_reiczigel_by_hand() -> None:
    """The interval term by term, n = 100, x = 30, Se 45/50, Sp 40/50, z = 1.959964."""
    z = 1.959963984540054
    n, q = 100 + z**2, (30 + z**2 / 2) / (100 + z**2)
    se, sp = 46 / 52, 41 / 52
    p = (q + sp - 1) / (se + sp - 1)
    shift = 2 * z**2 * (p * se * (1 - se) / 52 - (1 - p) * sp * (1 - sp) / 52)
    root = np.sqrt(q * (1 - q) / n + p**2 * se * (1 - se) / 52 + (1 - p) ** 2 * sp * (1 - sp) / 52)
    estimate = rogan_gladen(30, 100, ScorerErrors(45, 50, 40, 50))
    assert estimate.interval is not None
    wanted = (max(0.0, p + shift - z * root / (se + sp - 1)), p + shift + z * root / (se + sp - 1))
    assert tuple(estimate.interval) == pytest.approx(wanted)


def test_fewer_labels_make_a_wider_interval() -> None:
    widths = []
    for n in (20, 200, 2000):
        interval = rogan_gladen(60, 100, ScorerErrors(9 * n // 10, n, 9 * n // 10, n)).interval
        assert interval is not None
        widths.append(interval.high - interval.low)
    assert widths == sorted(widths, reverse=True)


def test_a_scorer_at_chance_corrects_nothing() -> None:
    estimate = rogan_gladen(30, 100, ScorerErrors(50, 100, 50, 100))
    assert estimate.value is None
    assert 'chance' in estimate.note


def test_one_stratum_is_the_plain_correction() -> None:
    errors = ScorerErrors(90, 100, 80, 100)
    plain, alone = rogan_gladen(40, 100, errors), stratified_rate([StratumWord('x', 100, 40, 3, errors)])
    assert alone.value == pytest.approx(plain.value)
    assert alone.interval is not None
    assert plain.interval is not None
    assert tuple(alone.interval) == pytest.approx(tuple(plain.interval))


def test_a_stratum_without_known_errors_leaves_bounds() -> None:
    known = StratumWord('x', 50, 25, 0, ScorerErrors(100, 100, 100, 100))
    wide = stratified_rate([known, StratumWord('y', 50, 10, 30, None)])
    assert wide.value is None
    assert wide.interval is not None
    assert wide.interval.low <= 0.35
    assert wide.interval.high >= 0.65
    assert 'y' in wide.note


@pytest.mark.study
def test_the_interval_over_strata_covers_the_true_rate() -> None:
    """400 worlds, two strata that are seen unlike, silence that depends on success; a rate or bounds, both cover."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        words, true = [], 0.0
        for name, rate, sens, spec in (('x', 0.8, 0.97, 0.98), ('y', 0.4, 0.75, 0.98)):
            n, n_known = 30, 80
            labels = rng.random(n_known) < 0.6
            yes = np.where(labels, rng.random(n_known) < sens, rng.random(n_known) > spec)
            errors = ScorerErrors(
                int(yes[labels].sum()), int(labels.sum()), int((~yes[~labels]).sum()), int((~labels).sum())
            )
            own = rng.random(n) < rate
            said = np.where(own, rng.random(n) < sens, rng.random(n) > spec)
            words.append(StratumWord(name, n, int(said.sum()), int((own & ~said).sum()), errors))
            true += rate / 2
        interval = stratified_rate(words).interval
        assert interval is not None
        covered += interval.low <= true <= interval.high
    assert covered >= 0.93 * 400


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40), st.lists(st.booleans(), max_size=60))
def test_prediction_powered_stays_a_rate(pairs: list[tuple[bool, bool]], rest: list[bool]) -> None:
    estimate = prediction_powered([t for t, _ in pairs], [float(f) for _, f in pairs], [float(g) for g in rest])
    assert estimate.value is not None
    assert estimate.interval is not None
    assert 0 <= estimate.interval.low <= estimate.value <= estimate.interval.high <= 1


def test_prediction_powered_with_unit_weight_is_the_papers_estimator() -> None:
    """theta = mean f(unlabelled) + mean(Y - f) where the scorer is as good as the tuning can use."""
    rng = np.random.default_rng(3)
    y = rng.random(400) < 0.6
    rest = (rng.random(200_000) < 0.6).astype(float)
    estimate = prediction_powered(y.tolist(), y.astype(float).tolist(), rest.tolist())
    assert estimate.value == pytest.approx(float(rest.mean()), abs=2e-3)


def test_without_unlabelled_units_the_labels_are_the_rate() -> None:
    estimate = prediction_powered([True, False, True], [0.0, 0.0, 0.0], [])
    assert estimate.value == pytest.approx(2 / 3)
    assert estimate.interval == wilson(2, 3)


def test_unlike_lengths_are_refused() -> None:
    with pytest.raises(InputError, match='as many labels'):
        prediction_powered([True], [1.0, 0.0], [])


@pytest.mark.study
@pytest.mark.parametrize('true', [0.3, 0.6, 0.9, 0.97])
@pytest.mark.parametrize(('sens', 'spec'), [(0.95, 0.9), (0.99, 0.99), (0.8, 0.95)])
def test_intervals_cover_the_truth_in_simulated_worlds(true: float, sens: float, spec: float) -> None:
    """20 episodes of a policy, errors measured on 80 of others; 60 labelled of 200 for prediction-powered."""
    rng = np.random.default_rng([round(1000 * true), round(1000 * sens)])
    covered = powered = 0
    worlds = 4000
    for _ in range(worlds):
        n_true = int(np.clip(rng.binomial(80, 0.7), 1, 79))
        errors = ScorerErrors(rng.binomial(n_true, sens), n_true, rng.binomial(80 - n_true, spec), 80 - n_true)
        x = rng.binomial(20, true * sens + (1 - true) * (1 - spec))
        interval = rogan_gladen(int(x), 20, errors).interval
        covered += interval is None or interval.contains(true)
        y = rng.random(200) < true
        f = np.where(y, rng.random(200) < sens, rng.random(200) > spec).astype(float)
        other = prediction_powered(y[:60].tolist(), f[:60].tolist(), f[60:].tolist()).interval
        powered += other is not None and other.contains(true)
    assert covered / worlds > 0.935
    assert powered / worlds > 0.93
