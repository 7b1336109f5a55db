"""Two success rates: exact within strata, by pairs and by start states; tests and intervals of one null."""

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
from statsmodels.stats.contingency_tables import mcnemar

from robotrials.errors import InputError
from robotrials.stats import (
    PairCounts,
    UnitShares,
    clustered_success,
    independent_success,
    paired_success,
    stratified_exact,
    success_pair,
    unit_shares,
)
from robotrials.stats.success_pair import conditional_null, discordant_null

counts = st.integers(1, 7).flatmap(
    lambda n: st.integers(1, 7).flatmap(
        lambda m: st.tuples(st.integers(0, n), st.just(n), st.integers(0, m), st.just(m))
    )
)


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


@settings(max_examples=30, deadline=None)
@given(st.lists(counts, min_size=1, max_size=3), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_test_and_interval_agree_and_swapping_arms_turns_the_sign(
    rows: list[tuple[int, int, int, int]], level: float
) -> None:
    found = independent_success(rows, level=level)
    assert found.interval is not None
    assert found.interval.excludes(0.0) == found.is_resolved
    assert found.interval.width > 0
    swapped = independent_success([(y, m, x, n) for x, n, y, m in rows], level=level)
    assert swapped.p_value == pytest.approx(found.p_value)
    assert swapped.difference == pytest.approx(-found.difference)


def test_all_of_twenty_has_an_interval_with_width() -> None:
    found = independent_success([(20, 20, 20, 20)])
    assert found.interval is not None
    assert found.interval.low < -0.1 < 0.1 < found.interval.high
    assert found.p_value == 1.0


def test_the_paired_test_is_mcnemars() -> None:
    """Exact, against statsmodels; the first is Agresti's (1990) table of approval ratings in two surveys."""
    for both, only_a, only_b, neither in ((794, 86, 150, 570), (5, 6, 1, 2), (3, 4, 0, 0)):
        wanted = mcnemar([[both, only_a], [only_b, neither]], exact=True).pvalue
        found = paired_success([PairCounts(both, only_a, only_b, neither)])
        assert found.p_value is not None
        assert found.p_value >= wanted - 1e-12
        assert found.p_value == pytest.approx(max(wanted, found.p_value))
        assert found.difference == pytest.approx((only_a - only_b) / (both + only_a + only_b + neither))
    strong = paired_success([PairCounts(794, 150, 86, 570)])
    assert strong.interval is not None
    assert strong.interval.low > 0.02


def test_the_size_of_the_paired_test_is_kept_with_strata() -> None:
    """Every table of 2 strata x 4 pairs at several discordances, by enumeration."""
    tables = [(b, c) for b in range(5) for c in range(5 - b)]
    rejected = []
    for key in itertools.combinations_with_replacement(tables, 2):
        p = paired_success([PairCounts(0, *x, 4 - sum(x)) for x in key]).p_value
        assert p is not None
        rejected += [key, key[::-1]][: 1 + (key[0] != key[1])] if p <= 0.05 else []
    assert rejected
    for rates in ((0.2, 0.6), (0.5, 0.5), (0.9, 0.1)):
        total = sum(
            math.prod(
                stats.multinomial.pmf([b, c, 4 - b - c], 4, [r / 2, r / 2, 1 - r])
                for (b, c), r in zip(key, rates, strict=True)
            )
            for key in rejected
        )
        assert total <= 0.05


def test_repeats_of_a_start_are_one_unit() -> None:
    """Six starts of which all five repeats agree say what six episodes say, not thirty."""
    hits = [1] * 15 + [0] * 15
    starts = [k // 5 for k in range(30)]
    first, second = unit_shares(hits, starts), unit_shares([1 - h for h in hits], starts)
    assert len(first.shares) == 6
    found = clustered_success({'s': first}, {'s': second}, paired=False)
    assert found.n_units == (6, 6)
    assert found.p_value == 1.0
    alone = unit_shares(hits, [None] * 30)
    assert len(alone.shares) == 30


def test_matched_starts_are_paired_by_their_name_and_never_by_place() -> None:
    rng = np.random.default_rng(5)
    level = rng.random(24)
    names = [f'scene {k}' for k in range(24)]
    a = UnitShares(np.round(level * 0.5 + 0.4, 1), tuple(names))
    order = rng.permutation(24)
    b = UnitShares(np.round(level * 0.5, 1)[order], tuple(names[k] for k in order))
    paired = clustered_success({'s': a}, {'s': b}, paired=True, rng=np.random.default_rng(0))
    loose = clustered_success({'s': a}, {'s': b}, paired=False, rng=np.random.default_rng(0))
    assert paired.p_value is not None
    assert loose.p_value is not None
    assert paired.p_value < loose.p_value
    assert paired.interval is not None
    assert loose.interval is not None
    assert paired.interval.width < loose.interval.width


def test_two_starts_in_a_cell_withhold_the_verdict_with_the_reason() -> None:
    few = UnitShares(np.array([1.0, 0.0]), (None, None))
    found = clustered_success({'s': few}, {'s': few}, paired=False, rng=np.random.default_rng(0))
    assert found.interval is None
    assert '2 start states in a cell' in found.withheld


def test_named_tests_are_as_named() -> None:
    rows = [(12, 20, 5, 20), (15, 20, 9, 20)]
    exact, mid, score = (
        independent_success(rows, test=t).p_value
        for t in ('stratified exact', 'stratified mid-p', 'Miettinen-Nurminen')
    )
    assert exact is not None
    assert mid is not None
    assert score is not None
    assert score <= mid <= exact
    with pytest.raises(InputError, match='matched or repeated'):
        independent_success(rows, test='exact McNemar')


def test_many_strata_of_other_sizes_are_tested_on_a_lattice() -> None:
    """40 strata of 40 sizes have too many values to list; the test of a rounded difference is as exact."""
    rng = np.random.default_rng(0)
    rows = [(int(rng.binomial(n, 0.6)), n, int(rng.binomial(n + 3, 0.5)), n + 3) for n in range(11, 51)]
    exact, score = stratified_exact(rows), independent_success(rows, test='Miettinen-Nurminen')
    assert score.p_value is not None
    assert exact.p_value == pytest.approx(score.p_value, rel=0.25)
    swapped = stratified_exact([(y, m, x, n) for x, n, y, m in rows])
    assert swapped.p_value == pytest.approx(exact.p_value)
    huge = independent_success([(9000, 12_500, 8900, 12_500), (7000, 12_500, 6800, 12_500)])
    assert huge.p_value is not None
    assert 0 < huge.p_value < 0.05


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


@pytest.mark.parametrize('most_work', [success_pair.MOST_WORK, 0], ids=['lattice', 'listed'])
@pytest.mark.parametrize(
    ('sizes', 'n_strata'), [([9], 6), ([9, 10], 5), ([12, 18], 5), ([7, 11, 13], 3), ([1, 5, 23], 4)]
)
def test_the_null_distribution_is_that_of_every_arrangement(
    sizes: list[int], n_strata: int, most_work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Support, chances and tails to 1e-12, on the common lattice and by listing alike."""
    monkeypatch.setattr(success_pair, 'MOST_WORK', most_work)
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


def test_pairs_of_other_numbers_of_starts_are_fair_coins_within_each_stratum() -> None:
    pairs = [PairCounts(3, 4, 1, 2), PairCounts(5, 2, 2, 3), PairCounts(0, 3, 0, 8)]
    chances: dict[Fraction, float] = defaultdict(float)
    for split in itertools.product(*(range(c.only_new + c.only_reference + 1) for c in pairs)):
        gap, chance = Fraction(), 1.0
        for k, c in zip(split, pairs, strict=True):
            apart = c.only_new + c.only_reference
            gap += Fraction(2 * k - apart, c.n * len(pairs))
            chance *= math.comb(apart, k) / 2**apart
        chances[gap] += chance
    found = discordant_null(pairs)
    assert found.values == pytest.approx([float(value) for value in sorted(chances)], abs=1e-12)
    assert found.chances == pytest.approx([chances[value] for value in sorted(chances)], rel=1e-12)


def test_a_coarse_lattice_gives_nearly_the_exact_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows([29, 30], 12, seed=5)
    exact = stratified_exact(rows).p_value
    monkeypatch.setattr(success_pair, 'MOST_WORK', 0)
    monkeypatch.setattr(success_pair, 'MOST_LISTED', 0)
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
    conditional_null(rows)
    began = time.process_time()
    conditional_null(rows)
    assert time.process_time() - began < 0.3
