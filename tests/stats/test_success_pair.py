"""The stratified exact test against every arrangement, and what a coarse lattice gives away."""

from __future__ import annotations

import itertools
import math
import time
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robotrials.stats import stratified_exact, success_rule
from robotrials.stats.success_rule import conditional_null

counts = st.integers(1, 7).flatmap(
    lambda n: st.integers(1, 7).flatmap(
        lambda m: st.tuples(st.integers(0, n), st.just(n), st.integers(0, m), st.just(m))
    )
)


def enumerated(rows: list[tuple[int, int, int, int]]) -> dict[Fraction, float]:
    """The chance of every macro difference given the totals: hypergeometric by big integers, values as fractions."""
    chances = {Fraction(0): 1.0}
    for x, n, y, m in rows:
        summed: dict[Fraction, float] = defaultdict(float)
        for k in range(max(0, x + y - m), min(n, x + y) + 1):
            chance = math.comb(n, k) * math.comb(m, x + y - k) / math.comb(n + m, x + y)
            move = (Fraction(k, n) - Fraction(x + y - k, m)) / len(rows)
            for value, before in chances.items():
                summed[value + move] += before * chance
        chances = summed
    return dict(sorted(chances.items()))


def random_rows(sizes: list[int], n_strata: int, seed: int) -> list[tuple[int, int, int, int]]:
    rng = np.random.default_rng(seed)
    drawn = rng.choice(sizes, (n_strata, 2)).tolist()
    return [(int(rng.binomial(n, 0.6)), n, int(rng.binomial(m, 0.4)), m) for n, m in drawn]


def test_fishers_tea_lady() -> None:
    """Fisher (1935): 3 of 4 cups right; p = 17/70."""
    assert stratified_exact([(3, 4, 1, 4)], alternative='greater').p_value == pytest.approx(17 / 70)


@settings(max_examples=40, deadline=None)
@given(counts)
def test_one_stratum_is_fishers_test_of_scipy(row: tuple[int, int, int, int]) -> None:
    x, n, y, m = row
    for side in ('greater', 'less'):
        wanted = stats.fisher_exact([[x, n - x], [y, m - y]], alternative=side).pvalue
        assert stratified_exact([row], alternative=side).p_value == pytest.approx(wanted)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(st.lists(counts, min_size=2, max_size=3))
def test_strata_are_those_of_every_arrangement(rows: list[tuple[int, int, int, int]]) -> None:
    """Brute force: every way in which each stratum's successes can fall on the arms."""
    observed = math.fsum(x / n - y / m for x, n, y, m in rows)
    ranges = [range(max(0, x + y - m), min(n, x + y) + 1) for x, n, y, m in rows]
    upper = lower = 0.0
    for split in itertools.product(*ranges):
        chance = math.prod(
            math.comb(n, k) * math.comb(m, x + y - k) / math.comb(n + m, x + y)
            for k, (x, n, y, m) in zip(split, rows, strict=True)
        )
        gap = math.fsum(k / n - (x + y - k) / m for k, (x, n, y, m) in zip(split, rows, strict=True))
        upper, lower = upper + chance * (gap >= observed - 1e-9), lower + chance * (gap <= observed + 1e-9)
    assert stratified_exact(rows).p_value == pytest.approx(min(1.0, 2 * min(upper, lower)))


@pytest.mark.parametrize('most_work', [success_rule.MOST_WORK, 0], ids=['lattice', 'listed'])
@pytest.mark.parametrize(
    ('sizes', 'n_strata'), [([9], 6), ([9, 10], 5), ([12, 18], 5), ([7, 11, 13], 3), ([1, 5, 23], 4)]
)
def test_the_null_distribution_is_that_of_every_arrangement(
    sizes: list[int], n_strata: int, most_work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Support, chances and tails to 1e-12, on the common lattice and by listing alike."""
    monkeypatch.setattr(success_rule, 'MOST_WORK', most_work)
    for seed in range(4):
        rows = random_rows(sizes, n_strata, seed)
        wanted, found = enumerated(rows), conditional_null(rows)
        assert found.values == pytest.approx([float(value) for value in wanted], abs=1e-12)
        assert found.chances == pytest.approx(list(wanted.values()), rel=1e-12)
        observed = sum((Fraction(x, n) - Fraction(y, m) for x, n, y, m in rows), Fraction()) / len(rows)
        assert found.observed == pytest.approx(float(observed), abs=1e-15)
        upper = math.fsum(chance for value, chance in wanted.items() if value >= observed)
        assert found.p_value('greater') == pytest.approx(upper, rel=1e-12)
        assert found.p_value('greater', mid_p=True) == pytest.approx(upper - wanted[observed] / 2, rel=1e-12)


def test_a_coarse_lattice_gives_nearly_the_exact_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows([29, 30], 12, seed=5)
    exact = stratified_exact(rows).p_value
    monkeypatch.setattr(success_rule, 'MOST_WORK', 0)
    monkeypatch.setattr(success_rule, 'MOST_LISTED', 0)
    rounded = conditional_null(rows)
    assert rounded.p_value() == pytest.approx(exact, rel=0.05)
    assert rounded.p_value() != exact
    assert rounded.chances.sum() == pytest.approx(1.0, abs=1e-12)


def test_far_tails_keep_their_relative_accuracy() -> None:
    """Against exact integers: a p-value of 1e-60 is right in its digits, not lost below the largest chance."""
    rows = [(95, 100, 20, 100), (90, 101, 15, 100)]
    wanted = enumerated(rows)
    observed = sum((Fraction(x, n) - Fraction(y, m) for x, n, y, m in rows), Fraction()) / 2
    tail = math.fsum(chance for value, chance in wanted.items() if value >= observed)
    assert tail < 1e-45
    assert conditional_null(rows).p_value('greater') == pytest.approx(tail, rel=1e-11)


def test_strata_of_two_sizes_take_hundredths_of_a_second() -> None:
    """40 strata of 31 and 32 episodes, as a table of 10,000 rows has them, once took over a second."""
    rows = random_rows([31, 32], 40, seed=1)
    costs_s = []
    for _ in range(4):
        began_s = time.process_time()
        conditional_null(rows)
        costs_s.append(time.process_time() - began_s)
    assert min(costs_s) < 0.3
