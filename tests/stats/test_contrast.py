"""Contrasts of success rates against Newcombe's intervals, a score test written here, and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import chi2, norm

from robotrials.errors import InputError
from robotrials.stats import newcombe, newcombe_paired, rate_contrast


def cell(successes: int, n: int, prefix: str = '') -> tuple[list[bool], list[str]]:
    return [i < successes for i in range(n)], [f'{prefix}{i}' for i in range(n)]


def contrast(cells: list[tuple[list[bool], list[str]]], weights: list[float]):
    return rate_contrast([c[0] for c in cells], [c[1] for c in cells], weights)


@given(st.integers(0, 30), st.integers(0, 25))
def test_two_independent_rates_are_newcombes_interval(x: int, y: int) -> None:
    found = contrast([cell(x, 30, 'a'), cell(y, 25, 'b')], [1, -1])
    low, high = newcombe(x, 30, y, 25)
    assert max(-1, found.interval.low) == pytest.approx(low, abs=1e-12)
    assert min(1, found.interval.high) == pytest.approx(high, abs=1e-12)


@given(st.tuples(*[st.integers(0, 12)] * 4).filter(lambda t: sum(t) > 0))
def test_two_paired_rates_are_newcombes_paired_interval(table: tuple[int, int, int, int]) -> None:
    pairs = [p for p, n in zip(((1, 1), (1, 0), (0, 1), (0, 0)), table, strict=True) for _ in range(n)]
    scenes = [str(i) for i in range(len(pairs))]
    found = rate_contrast([[bool(p[k]) for p in pairs] for k in (0, 1)], [scenes, scenes], [1, -1])
    low, high = newcombe_paired(*table)
    assert max(-1, found.interval.low) == pytest.approx(low, abs=1e-9)
    assert min(1, found.interval.high) == pytest.approx(high, abs=1e-9)


def score_test(x: np.ndarray, n: np.ndarray, weights: np.ndarray) -> float:
    """Likelihood-ratio p-value of weights . p = 0 for independent binomials: the rates are fitted under it by force."""

    def loss(p: np.ndarray) -> float:
        return -float((x * np.log(p) + (n - x) * np.log1p(-p)).sum())

    free = np.clip(x / n, 1e-9, 1 - 1e-9)
    held = minimize(
        loss, np.full(len(x), x.sum() / n.sum()), bounds=[(1e-6, 1 - 1e-6)] * len(x), method='SLSQP',
        constraints={'type': 'eq', 'fun': lambda p: float(weights @ p)}, options={'ftol': 1e-12, 'maxiter': 400},
    )  # fmt: skip
    return float(chi2.sf(max(0.0, 2 * (held.fun - loss(free))), 1))


@pytest.mark.parametrize(
    ('counts', 'weights'),
    [
        ([38, 12, 30, 33], [-1, -1, 1, 1]), ([39, 20, 31, 30], [-1, -1, 1, 1]), ([36, 30, 34, 33], [-1, -1, 1, 1]),
        ([38, 8, 33, 30, 29], [-2, -1, 1, 1, 1]), ([30, 25, 20, 22], [-1, -1, 1, 1]), ([35, 6, 28, 27], [-1, -1, 1, 1]),
    ],
)  # fmt: skip
def test_the_p_value_is_near_a_likelihood_ratio_test(counts: list[int], weights: list[float]) -> None:
    found = contrast([cell(x, 40, str(i)) for i, x in enumerate(counts)], weights)
    oracle = score_test(np.array(counts), np.full(len(counts), 40), np.array(weights, dtype=float))
    assert norm.isf(found.p_value / 2) == pytest.approx(norm.isf(oracle / 2), abs=0.35)


@given(st.lists(st.integers(0, 20), min_size=3, max_size=5))
def test_the_p_value_agrees_with_the_interval(counts: list[int]) -> None:
    weights = [1.0, -1.0, *[0.5] * (len(counts) - 2)]
    found = contrast([cell(x, 20, str(i)) for i, x in enumerate(counts)], weights)
    assert (found.p_value < 0.05) == (not found.interval.low <= 0 <= found.interval.high)


def test_repeated_start_states_count_as_fewer_trials() -> None:
    """Four trials that always agree are one; four that do not care about the start state are four."""
    same = [i < 10 for i in range(20) for _ in range(4)]
    scenes = [str(i) for i in range(20) for _ in range(4)]
    apart = [(i + k) % 2 == 0 for i in range(20) for k in range(4)]
    once, wide, narrow = (
        rate_contrast([values], [names], [1.0]).interval.width
        for values, names in ((same[::4], scenes[::4]), (same, scenes), (apart, scenes))
    )
    assert wide == pytest.approx(once, rel=0.03)
    assert narrow == pytest.approx(rate_contrast([apart], [[str(i) for i in range(80)]], [1.0]).interval.width)
    sure = rate_contrast([[True] * 80], [scenes], [1.0])
    assert sure.interval.low == pytest.approx(rate_contrast([[True] * 20], [scenes[::4]], [1.0]).interval.low)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match='same cells'):
        rate_contrast([[True]], [['a']], [1.0, 2.0])
    with pytest.raises(InputError, match='cell 0'):
        rate_contrast([[]], [[]], [1.0])


def false_alarms(
    *, parts: int, base: float, joint: float, scenes: int, repeats: int, share: float, draws: int, seed: int
) -> float:
    """How often an interaction is found at 5 % where there is none; `share` of the spread is the start states' own."""
    rng = np.random.default_rng(seed)
    rates = [base, joint, *[base - (base - joint) / parts] * parts]
    names = [str(s) for s in range(scenes) for _ in range(repeats)]
    wrong = 0
    for _ in range(draws):
        hard = np.repeat(rng.standard_normal(scenes), repeats)
        values = [
            (np.sqrt(share) * hard + np.sqrt(1 - share) * rng.standard_normal(len(hard)) < norm.ppf(p)).tolist()
            for p in rates
        ]
        found = rate_contrast(values, [names] * len(rates), [1 - parts, -1.0, *[1.0] * parts])
        wrong += found.p_value <= 0.05
    return wrong / draws


def test_no_interaction_is_seldom_found() -> None:
    assert false_alarms(parts=2, base=0.9, joint=0.4, scenes=20, repeats=1, share=0.5, draws=200, seed=3) <= 0.09


@pytest.mark.study
@pytest.mark.parametrize('parts', [2, 4, 9])
@pytest.mark.parametrize(('scenes', 'repeats'), [(20, 1), (40, 1), (20, 3)])
@pytest.mark.parametrize(('base', 'joint'), [(0.98, 0.6), (0.9, 0.3), (0.7, 0.4), (0.98, 0.9)])
def test_the_level_holds_on_a_grid(parts: int, scenes: int, repeats: int, base: float, joint: float) -> None:
    """At most 0.07 at a nominal 0.05 (400 draws have a standard error of 0.011), also with start states that matter."""
    for share in (0.0, 0.6):
        rate = false_alarms(
            parts=parts, base=base, joint=joint, scenes=scenes, repeats=repeats, share=share, draws=400, seed=parts
        )
        assert rate <= 0.05 + 3 * 0.011, (share, rate)
