"""The rule for success: its tests against scipy, its sizes by enumeration, its intervals in step with its tests."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from robotrials.errors import InputError
from robotrials.stats import SuccessRule, success_arm, success_contrast
from robotrials.stats.proportion import binomial_pmf_table
from robotrials.stats.success_rule import boschloo_p_values
from robotrials.stats.trials import success_trials

RATES = np.linspace(0.005, 0.995, 199)


def _arm(hits: int, n: int, starts=None):
    return success_arm([1] * hits + [0] * (n - hits), starts)


def _contrast(*tables: tuple[int, int, int, int], **options):
    return success_contrast([_arm(x, n) for x, n, _, _ in tables], [_arm(y, m) for _, _, y, m in tables], **options)


# --- which test, by the design ---


@pytest.mark.parametrize(('sizes', 'shared', 'repeats', 'test'), [
    ([(10, 7)], 0, 1, SuccessRule.BOSCHLOO),
    ([(120, 120)], 0, 1, SuccessRule.MID_P),
    ([(120, 90)], 0, 1, SuccessRule.MID_P),
    ([(10, 10)] * 3, 0, 1, SuccessRule.MID_P),
    ([(10, 10), (9, 9)], 0, 1, SuccessRule.UNSEEN),
    ([(10, 30)] * 4, 0, 1, SuccessRule.UNSEEN),
    ([(10, 10)] * 3, 10, 1, SuccessRule.MCNEMAR_MID_P),
    ([(10, 10)], 10, 1, SuccessRule.MCNEMAR_MID_P),
    ([(20, 20), (5, 5)], -1, 1, SuccessRule.UNSEEN_PAIRED),
    ([(10, 10)] * 3, 5, 1, SuccessRule.PART_SHARED_MID_P),
    ([(10, 12)] * 3, 5, 1, SuccessRule.UNSEEN_PART_SHARED),
    ([(10, 10)] * 3, 0, 2, SuccessRule.UNSEEN),
    ([(10, 10)] * 3, 10, 2, SuccessRule.UNSEEN_PAIRED),
])  # fmt: skip
def test_the_design_chooses_the_test(sizes, shared: int, repeats: int, test: SuccessRule) -> None:
    rng = np.random.default_rng(1)

    def arm(n: int, side: str):
        same = n if shared < 0 else shared
        starts = [f'{k}' if k < same else f'{side}{k}' for k in range(n) for _ in range(repeats)]
        return success_arm(rng.random(n * repeats) < 0.9, starts)

    found = success_contrast([arm(n, 'a') for n, _ in sizes], [arm(m, 'b') for _, m in sizes])
    assert found.test is test


def test_more_than_70_percent_discordant_pairs_take_the_exact_test() -> None:
    starts = tuple(range(10))
    found = success_contrast([success_arm([1] * 8 + [0, 1], starts)], [success_arm([0] * 8 + [0, 1], starts)])
    assert found.test is SuccessRule.MCNEMAR_EXACT
    assert found.p_value == pytest.approx(stats.binomtest(8, 8, 0.5).pvalue)


# --- oracles ---


@pytest.mark.parametrize(('x', 'n', 'y', 'm'), [(8, 10, 3, 10), (6, 7, 5, 12), (17, 20, 8, 15), (0, 9, 4, 8)])
def test_one_stratum_is_scipys_boschloo_doubled(x: int, n: int, y: int, m: int) -> None:
    table = [[x, y], [n - x, m - y]]
    sides = [stats.boschloo_exact(table, alternative=side, n=64).pvalue for side in ('greater', 'less')]
    found = _contrast((x, n, y, m))
    assert found.p_value == pytest.approx(min(1.0, 2 * min(sides)), abs=1e-5)
    assert (found.p_one_sided('a'), found.p_one_sided('b')) == pytest.approx(sides, abs=1e-5)


def _brute_mid_p(tables) -> float:
    """Twice the smaller mid-p tail of the sum of a's successes, by every way to deal each stratum's successes."""
    laws = []
    for x, n, y, m in tables:
        law = stats.hypergeom(n + m, x + y, n)
        laws.append([(k, law.pmf(k)) for k in range(max(0, x + y - m), min(n, x + y) + 1)])
    seen = sum(x for x, _, _, _ in tables)
    chances: dict[int, float] = {}
    for ways in itertools.product(*laws):
        total = sum(k for k, _ in ways)
        chances[total] = chances.get(total, 0.0) + float(np.prod([p for _, p in ways]))
    above, below = (sum(p for k, p in chances.items() if sign * (k - seen) > 0) for sign in (1, -1))
    return 2 * (min(above, below) + chances[seen] / 2)


def test_equal_cells_are_1_2_times_the_doubled_mid_p() -> None:
    tables = [(8, 10, 4, 10), (9, 10, 7, 10), (5, 10, 5, 10)]
    found = _contrast(*tables)
    assert found.p_value == pytest.approx(1.2 * _brute_mid_p(tables))
    assert found.difference == pytest.approx((0.4 + 0.2 + 0.0) / 3)
    assert found.per_stratum == pytest.approx((0.4, 0.2, 0.0))


def test_matched_starts_are_mcnemars_mid_p() -> None:
    starts = tuple(range(20))
    a, b = [1] * 14 + [0] * 2 + [1] * 4, [1] * 6 + [0] * 8 + [1] * 2 + [1] * 4
    found = success_contrast([success_arm(a, starts)], [success_arm(b, starts)])
    exact = stats.binomtest(8, 10, 0.5).pvalue
    assert found.test is SuccessRule.MCNEMAR_MID_P
    assert found.p_value == pytest.approx(exact - stats.binom.pmf(8, 10, 0.5))
    assert found.difference == pytest.approx(0.3)


def test_shared_starts_are_fair_coins_beside_the_others() -> None:
    a = success_arm([1, 1, 1, 0, 1] + [1] * 4 + [0], [*range(5), *'vwxyz'])
    b = success_arm([0, 0, 1, 0, 1] + [1] * 2 + [0] * 3, [*range(5), *'lmnop'])
    found = success_contrast([a], [b])
    coins = {0: 0.25, 1: 0.5, 2: 0.25}
    law = stats.hypergeom(10, 6, 5)
    chances: dict[int, float] = {}
    for c, k in itertools.product(coins, range(1, 6)):
        chances[c + k] = chances.get(c + k, 0.0) + coins[c] * law.pmf(k)
    above = sum(p for k, p in chances.items() if k > 2 + 4) + chances[6] / 2
    assert found.test is SuccessRule.PART_SHARED_MID_P
    assert found.p_value == pytest.approx(2 * 1.2 * above)
    assert found.difference == pytest.approx(0.5 * 0.4 + 0.5 * 0.4)


def test_unequal_counts_are_judged_by_r_on_the_difference() -> None:
    """Macro-equal but opposite strata: tests that condition on totals err in .69 of trials (60 and 3 per cell)."""
    found = _contrast((54, 60, 42, 60), (2, 3, 3, 3))
    rates = [(0.9, 60), (0.7, 60), (2 / 3, 3), (1.0, 3)]
    variance = sum(p * (1 - p) / (n - 1) for p, n in rates) / 4
    assert found.rule.value == pytest.approx((0.2 - 1 / 3) / 2)
    assert found.rule.spread.variance == pytest.approx(variance)
    assert found.rule.n_star == 6
    assert found.p_value > 0.5


def test_repeats_are_shares_of_their_start() -> None:
    starts = [k for k in range(6) for _ in range(2)]
    a = success_arm([1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1], [f'a{k}' for k in starts])
    b = success_arm([0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0], [f'b{k}' for k in starts])
    found = success_contrast([a], [b])
    x, y = np.array([1, 1, 0.5, 1, 1, 1]), np.array([0, 0.5, 0, 0.5, 0, 0])
    assert found.n_units == (6, 6)
    assert found.rule.spread.variance == pytest.approx(x.var(ddof=1) / 6 + y.var(ddof=1) / 6)


# --- sizes, enumerated ---


def _size(region, n: int, m: int) -> float:
    a, b = binomial_pmf_table(n, RATES), binomial_pmf_table(m, RATES)
    return float(np.einsum('ri,ij,rj->r', a, region.astype(float), b).max())


@pytest.mark.parametrize(('n', 'm'), [(3, 3), (5, 20), (10, 10), (10, 30), (33, 30), (60, 60), (100, 100)])
@pytest.mark.parametrize('alpha', [0.05, 0.05 / 15])
def test_boschloo_doubled_holds_its_level(n: int, m: int, alpha: float) -> None:
    above, below = boschloo_p_values(n, m)
    assert _size(2 * np.minimum(above, below) <= alpha, n, m) <= alpha + 1e-6


@pytest.mark.parametrize(('n', 'm'), [(101, 101), (90, 130), (60, 200)])
@pytest.mark.parametrize('alpha', [0.05, 0.05 / 15])
def test_mid_p_of_one_large_stratum_holds_its_level(n: int, m: int, alpha: float) -> None:
    """Whose arms may be unequal: with one stratum the null is one common rate."""
    x, y = (k.ravel() for k in np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing='ij'))
    a, b = ((np.arange(size) < hits[:, None]) for size, hits in ((n, x), (m, y)))
    p = success_trials([a], [b]).p_value.reshape(n + 1, m + 1)
    assert _size(p <= alpha, n, m) <= alpha


def test_mid_p_of_equal_cells_holds_under_opposite_strata() -> None:
    """Two strata of 8 v 8, every pair of rates of .05 .. .95 with equal macro rates, enumerated."""
    n = 8
    counts = np.array(list(itertools.product(range(n + 1), repeat=4)))
    bits = np.arange(n)[None, :]
    a, b = ([bits < counts[:, [k]] for k in ks] for ks in ((0, 1), (2, 3)))
    rejected = (success_trials(a, b).p_value <= 0.05).reshape((n + 1,) * 4)
    worst = 0.0
    grid = np.linspace(0.05, 0.95, 10)
    law = binomial_pmf_table(n, grid)
    for i, j, k in itertools.product(range(10), repeat=3):
        other = grid[i] + grid[j] - grid[k]
        if not 0 <= other <= 1:
            continue
        last = binomial_pmf_table(n, np.array([other]))[0]
        worst = max(worst, float(np.einsum('abcd,a,b,c,d->', rejected, law[i], law[j], law[k], last, optimize=True)))
    assert 0.02 < worst <= 0.05


@pytest.mark.parametrize('n', [6, 20, 77, 200])
def test_mcnemars_mid_p_holds_while_pairs_disagree_in_half_at_most(n: int) -> None:
    """Given the start two equal policies disagree with chance 2p(1 - p) <= 1/2; in all pairs the size would be .077."""
    ahead, behind = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing='ij')
    inside = ahead + behind <= n
    a = np.arange(n) < ahead[inside][:, None]
    b = (np.arange(n) >= ahead[inside][:, None]) & (np.arange(n) < (ahead + behind)[inside][:, None])
    p = success_trials([a], [b], n_shared=[n]).p_value
    for alpha in (0.05, 0.05 / 15):
        rejected = p <= alpha
        sizes = []
        for share in (0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5):
            law = stats.multinomial(n, [share / 2, share / 2, 1 - share])
            rest = n - ahead[inside] - behind[inside]
            chance = law.pmf(np.stack([ahead[inside], behind[inside], rest], axis=1))
            sizes.append(float(chance[rejected].sum()))
        assert max(sizes) <= alpha


# --- intervals and margins ---


@pytest.mark.parametrize('sizes', [(3,), (4,), (5,), (8,), (3, 4), (8, 9), (3, 15), (3, 4, 4, 4)])
def test_starts_that_a_coin_decides_for_either_policy_are_no_claim(sizes: tuple[int, ...]) -> None:
    """Matched starts with repeats or in unequal cells, of which half only a solves and half only b, all or one cell.

    The null holds. With one comparison for a start that turns, R claimed in .25 (3 starts), .06 (8) and, where the
    other cells agree, .25 of trials.
    """
    rng = np.random.default_rng(7)
    for n_turning in (1, len(sizes)):
        first = [rng.random((8_000, n, 1)) < (0.5 if c < n_turning else 2.0) for c, n in enumerate(sizes)]
        second = [~x if c < n_turning else x for c, x in enumerate(first)]
        arms = [[np.repeat(x, 2, axis=2) for x in arm] for arm in (first, second)]
        found = success_trials(arms[0], arms[1], n_shared=sizes)
        assert (found.p_value <= 0.05).mean() <= 0.055


def test_sessions_that_decide_for_either_policy_are_no_claim() -> None:
    starts = [f's{k}' for k in range(4) for _ in range(5)]
    a, b = success_arm([1] * 20, starts), success_arm([0] * 20, starts)
    turned = success_contrast([a], [b], is_linked=True)
    assert turned.p_value is not None
    assert turned.p_value > 0.125, 'four sessions agree by chance in 2 of 16 trials'
    own = success_contrast([a], [success_arm([0] * 20, [f't{s}' for s in starts])], is_linked=True)
    assert own.p_value is not None
    assert own.p_value < 0.05, 'sessions of one policy each move one rate'


def test_interval_excludes_zero_exactly_when_the_test_rejects() -> None:
    for x, y in itertools.product(range(11), repeat=2):
        for level in (0.9, 0.95, 0.99):
            found = _contrast((x, 10, y, 10), level=level)
            assert (found.p_value <= 1 - level) == found.interval.excludes(0.0)
            assert found.interval.low <= found.difference <= found.interval.high
            assert found.interval.low != 0.0 or x == y == 0


@pytest.mark.parametrize(('n', 'least'), [(10, 0.94), (20, 0.935)])
def test_interval_covers(n: int, least: float) -> None:
    """Enumerated over rates; Miettinen and Nurminen's own has .90 at 10 per arm."""
    ends = np.array([[tuple(_contrast((x, n, y, n)).interval) for y in range(n + 1)] for x in range(n + 1)])
    rates = np.linspace(0.02, 0.98, 25)
    law = binomial_pmf_table(n, rates)
    covered = [
        law[i] @ ((ends[:, :, 0] <= p - q + 1e-12) & (p - q - 1e-12 <= ends[:, :, 1])) @ law[j]
        for (i, p), (j, q) in itertools.product(enumerate(rates), repeat=2)
    ]
    assert min(covered) >= least


def test_margins_are_judged_by_r() -> None:
    found = _contrast((95, 100, 94, 100), (97, 100, 97, 100))
    assert found.p_not_worse(0.10) < 0.01
    assert found.p_within(0.10) == pytest.approx(max(found.rule.p_above(-0.1), found.rule.p_below(0.1)))
    assert found.p_within(0.10) >= found.p_not_worse(0.10)
    assert found.p_not_worse(0.01) > 0.05
    assert _contrast((2, 2, 1, 2)).p_not_worse(0.1) is None
    with pytest.raises(InputError, match='margin'):
        found.p_within(5)


def test_arms_without_the_same_strata_or_outcomes_are_refused() -> None:
    with pytest.raises(InputError, match='strata'):
        success_contrast([_arm(1, 2)], [])
    with pytest.raises(InputError, match='between 0 and 1'):
        success_arm([0.0, np.nan])
