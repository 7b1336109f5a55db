"""E[IoU] by a scorer that errs: the definition, what unscored ends may do, and simulated worlds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.stats import Estimate
from robotrials.stats.corrected_rate import (
    ScorerErrors,
    SplitOverlap,
    StratumWord,
    expected_overlap,
    mean_overlap,
    stratified_rate,
)

PERFECT = ScorerErrors(10**6, 10**6, 10**6, 10**6)


def test_a_perfect_scorer_gives_the_tables_expectation() -> None:
    """Mean over splits of SR x mean IoU of successes, as RADAR's tables are computed."""
    splits = [
        SplitOverlap(StratumWord('a', 4, 3, 0, PERFECT), (0.9, 0.8, 0.7), (0.0,) * 5),
        SplitOverlap(StratumWord('b', 4, 0, 0, PERFECT), (), ()),
    ]
    assert expected_overlap(splits).value == pytest.approx((0.75 * 0.8 + 0.0) / 2)
    assert expected_overlap([]).value is None


def test_a_known_error_in_overlap_is_taken_away() -> None:
    errors = (0.09, 0.1, 0.11)
    assert mean_overlap((0.7, 0.8), errors).value == pytest.approx(0.65)
    assert mean_overlap((0.7, 0.8), errors[:2]).value == pytest.approx(0.75)  # too few are known
    one = mean_overlap((0.7,), errors).interval
    assert one is not None
    assert tuple(one) == (0.0, 1.0)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.booleans())
def test_unscored_ends_lower_the_low_end_and_raise_the_high_one(yes: int, no: int, dark: int, is_success: bool) -> None:
    """Turning one scored end into an unscored one never narrows what the expectation may be."""
    if not (yes if is_success else no):
        return

    def reach(yes: int, dark: int) -> Estimate:
        word = StratumWord('a', n, yes, dark, None)
        return expected_overlap([SplitOverlap(word, (0.8,) * yes, ())])

    n = yes + no + dark
    before, after = reach(yes, dark), reach(yes - is_success, dark + 1)
    assert before.interval is not None
    assert after.interval is not None
    assert after.value is None
    assert after.interval.high >= before.interval.high - 1e-12
    if not is_success:
        assert after.interval.low == pytest.approx(before.interval.low)
    assert after.interval.low <= after.interval.high


def world(
    rng: np.random.Generator, rate: float, n: int, scorer: tuple[float, float, float, float]
) -> list[SplitOverlap]:
    """Two splits of one policy, and twice as many episodes of others whose truth is known."""
    sensitivity, specificity, silent, bias = scorer
    splits = []
    for name in 'ab':
        true, others = rng.random(n) < rate, rng.random(2 * n) < 0.5
        dark, others_dark = rng.random(n) < silent, rng.random(2 * n) < silent
        said, others_said = (
            ~unseen & np.where(t, rng.random(len(t)) < sensitivity, rng.random(len(t)) >= specificity)
            for t, unseen in ((true, dark), (others, others_dark))
        )
        overlap = np.clip(rng.normal(0.8, 0.08, n), 0.3, 1.0) + bias + rng.normal(0, 0.03, n)
        errors = ScorerErrors(
            int((others_said & others).sum()), int(others.sum()), int((~others_said & ~others).sum()),
            int((~others).sum()),
        )  # fmt: skip
        missed = bias + rng.normal(0, 0.03, int((others_said & others).sum()))
        word = StratumWord(name, n, int(said.sum()), int(dark.sum()), errors)
        splits.append(SplitOverlap(word, tuple(overlap[said]), tuple(missed)))
    return splits


@pytest.mark.parametrize('rate', [0.0, 0.5, 1.0])
@pytest.mark.parametrize('scorer', [(1.0, 1.0, 0.0, 0.0), (0.9, 0.98, 0.1, 0.05), (0.95, 0.95, 0.2, -0.1)])
def test_intervals_cover_the_truth_at_the_edges_too(rate: float, scorer: tuple[float, float, float, float]) -> None:
    """95 % intervals of E[IoU] and of the rate over two strata, in 150 worlds each; 0.90 is 2.8 errors below."""
    rng = np.random.default_rng([int(10 * rate), int(100 * scorer[0])])
    covered = {'overlap': 0, 'rate': 0}
    for _ in range(150):
        splits = world(rng, rate, 30, scorer)
        for name, estimate, truth in (
            ('overlap', expected_overlap(splits), 0.8 * rate),
            ('rate', stratified_rate([s.word for s in splits]), rate),
        ):
            assert estimate.interval is not None
            covered[name] += estimate.interval.low - 1e-9 <= truth <= estimate.interval.high + 1e-9
    assert min(covered.values()) >= 0.9 * 150
