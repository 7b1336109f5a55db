"""The win probability against brute force, scipy's Brunner-Munzel and the rule's own published numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from robotrials.errors import InputError
from robotrials.stats import WinDesign, fewest_for_claim, win_arm, win_contrast
from robotrials.stats.matching import UnseenRule, unseen_p_values, unseen_reach

INF = math.inf


def _score(x: float, y: float) -> float:
    return 1.0 if x < y else 0.5 if x == y else 0.0


def _brute(a, b):
    """P, and both placement variances, of (units of runs of items) by every comparison."""
    share = np.array([
        [np.mean([_score(x[k], y[k]) for x in i for y in j for k in range(len(x))]) for j in b] for i in a
    ])  # fmt: skip
    p, q = share.mean(axis=1), share.mean(axis=0)
    return share.mean(), p.var(ddof=1) / len(p), q.var(ddof=1) / len(q)


def _draw(rng, n, items=1):
    times = rng.integers(1, 8, (n, items)).astype(float)
    return np.where(rng.random((n, items)) < 0.2, INF, times)


@pytest.mark.parametrize('items', [1, 3])
def test_placements_are_those_of_every_comparison(items: int) -> None:
    rng = np.random.default_rng(items)
    sizes = ((5, 4), (6, 9), (3, 3))
    cells = [(_draw(rng, n, items), _draw(rng, m, items)) for n, m in sizes]
    found = win_contrast([win_arm(x) for x, _ in cells], [win_arm(y) for _, y in cells])
    brute = [_brute(x[:, None, :], y[:, None, :]) for x, y in cells]
    assert found.design is WinDesign.INDEPENDENT
    assert found.per_stratum == pytest.approx([p for p, _, _ in brute])
    assert found.probability == pytest.approx(np.mean([p for p, _, _ in brute]))
    assert found.evidence.spread.variance == pytest.approx(sum(v + w for _, v, w in brute) / 9)
    assert found.evidence.n_star == 9


def test_repeats_of_a_start_are_one_unit() -> None:
    rng = np.random.default_rng(3)
    runs = {arm: [[rng.integers(1, 9, 1).astype(float) for _ in range(r)] for r in (3, 1, 2, 4)] for arm in 'ab'}
    arms = [
        win_arm(
            np.concatenate([np.stack(unit) for unit in runs[arm]]),
            [f'{arm}{k}' for k, unit in enumerate(runs[arm]) for _ in unit],
        )
        for arm in 'ab'
    ]
    found = win_contrast([arms[0]], [arms[1]])
    p, v, w = _brute(runs['a'], runs['b'])
    assert found.n_units == (4, 4)
    assert (found.probability, found.evidence.spread.variance) == (pytest.approx(p), pytest.approx(v + w))


def test_one_stratum_has_brunner_and_munzels_estimate_and_degrees() -> None:
    """Brunner and Munzel (2000) in scipy: the same statistic but for the continuity correction."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=14), rng.normal(0.8, 2, size=11)
    found = win_contrast([win_arm(x - x.min() + 1)], [win_arm(y - x.min() + 1)])
    rule = found.evidence
    test = stats.brunnermunzel(x, y)
    assert rule.gap / math.sqrt(rule.spread.variance) == pytest.approx(test.statistic)
    p = 2 * stats.t.sf(abs(test.statistic), rule.degrees)
    assert p == pytest.approx(test.pvalue)


def test_p_value_is_the_closed_form_and_the_reach_inverts_it() -> None:
    rng = np.random.default_rng(6)
    for _ in range(200):
        n_star = float(rng.integers(6, 500))
        variance = float(rng.choice([0.0, rng.random() * 0.25 / n_star, rng.random() / n_star]))
        degrees, gap = float(rng.integers(2, 80)), float(rng.uniform(0, 0.5))
        k = variance * n_star**2
        t = (
            2 * stats.t.sf((gap - 0.6 / n_star) / math.sqrt(variance), degrees)
            if variance
            else 2.0 * (gap < 0.6 / n_star)
        )
        hidden = stats.gamma.sf(k + gap * n_star, k + 1) * (1 + k / (k + 10) / 2 * max(0.0, 1 - 8 * k / n_star))
        p = float(unseen_p_values(gap, variance, degrees, n_star))
        assert p == pytest.approx(min(1.0, max(t, hidden)), rel=1e-9)
        if 1e-9 < p < 0.6:
            assert float(unseen_reach(variance, degrees, n_star, p)) == pytest.approx(gap, rel=1e-6)


@pytest.mark.parametrize(('tests', 'least'), [(1, 6), (6, 10), (15, 12), (28, 13)])
def test_complete_separation_is_a_claim_from_n_star_on(tests: int, least: int) -> None:
    """6 per policy with one hypothesis, 12 with 15; one fewer is withheld."""
    assert fewest_for_claim(tests) == least
    a, b = np.arange(1.0, least + 1), np.arange(1.0, least + 1) + 100
    found = win_contrast([win_arm(a)], [win_arm(b)], n_tests=tests)
    assert found.p_value is not None
    assert found.p_value * tests <= 0.05
    fewer = win_contrast([win_arm(a[1:])], [win_arm(b[1:])], n_tests=tests)
    assert fewer.p_value is None
    assert str(least) in fewer.withheld


def test_ten_against_ten_apart_is_resolved_and_so_says_the_interval() -> None:
    found = win_contrast([win_arm(np.arange(1.0, 11))], [win_arm(np.arange(20.0, 30))])
    assert found.probability == 1.0
    assert found.p_value == pytest.approx(math.exp(-5))
    assert found.interval.low == pytest.approx(1 - math.log(20) / 10)
    assert found.interval.high == 1.0


def test_few_units_in_one_cell_withhold_everything() -> None:
    a, b = [win_arm(np.arange(1.0, 21)), win_arm([1.0, 2])], [win_arm(np.arange(31.0, 51)), win_arm([8.0, 9])]
    found = win_contrast(a, b)
    assert (found.p_value, found.interval, found.p_one_sided('a')) == (None, None, None)
    assert 'at least 3' in found.withheld


def test_matched_starts_by_the_exact_sign_test() -> None:
    starts = [f's{k}' for k in range(12)]
    b = np.arange(1.0, 13)
    a = b - np.array([0.5] * 9 + [-0.5] + [0.0] * 2)
    found = win_contrast([win_arm(a[:6], starts[:6]), win_arm(a[6:], starts[6:])],
                         [win_arm(b[:6], starts[:6]), win_arm(b[6:], starts[6:])])  # fmt: skip
    oracle = stats.binomtest(9, 10, 0.5)
    assert (found.design, found.wins, found.losses, found.ties) == (WinDesign.MATCHED_SIGN, 9, 1, 2)
    assert found.p_value == pytest.approx(oracle.pvalue)
    assert tuple(found.interval) == pytest.approx(tuple(oracle.proportion_ci(0.95, method='exact')))
    assert found.p_one_sided('a') == pytest.approx(stats.binomtest(9, 10, 0.5, alternative='greater').pvalue)


@pytest.mark.parametrize(('tests', 'least'), [(1, 6), (15, 10)])
def test_fewest_matched_starts(tests: int, least: int) -> None:
    """6 starts with one hypothesis and 10 with 15."""

    def contrast(n):
        starts = tuple(range(n))
        return win_contrast([win_arm(np.ones(n), starts)], [win_arm(np.full(n, 2.0), starts)], n_tests=tests)

    assert contrast(least).p_value * tests <= 0.05
    assert contrast(least - 1).withheld


def test_matched_starts_of_unequal_cells_or_with_repeats_are_judged_by_r() -> None:
    """Pooling the sign test over unequal cells errs without limit, where strata point in different directions."""
    rng = np.random.default_rng(7)
    a = [win_arm(rng.random(n), tuple(range(n))) for n in (20, 5)]
    b = [win_arm(rng.random(n), tuple(range(n))) for n in (20, 5)]
    unequal = win_contrast(a, b)
    wins = [
        [_score(x, y) for x, y in zip(p.times_s[:, 0], q.times_s[:, 0], strict=True)] for p, q in zip(a, b, strict=True)
    ]
    assert unequal.design is WinDesign.MATCHED_SHARES
    assert unequal.probability == pytest.approx(np.mean([np.mean(w) for w in wins]))
    variance = sum(np.var(w, ddof=1) / len(w) for w in wins) / 4
    assert unequal.evidence.spread.variance == pytest.approx(variance)
    assert unequal.evidence.n_star == 10
    starts = tuple(k for k in range(8) for _ in range(2))
    repeated = win_contrast([win_arm(rng.random(16), starts)], [win_arm(rng.random(16), starts)])
    assert (repeated.design, repeated.n_matched, repeated.n_units) == (WinDesign.MATCHED_SHARES, 8, (8, 8))


def test_shared_and_other_starts_are_both_used() -> None:
    rng = np.random.default_rng(8)
    x, y = rng.random(10), rng.random(12)
    found = win_contrast([win_arm(x, tuple(range(10)))], [win_arm(y, tuple(range(4, 16)))])
    same = [_score(x[k], y[k - 4]) for k in range(4, 10)]
    rest = _brute(x[:4, None, None], y[6:, None, None])
    f = 6 / 10
    assert (found.design, found.n_matched, found.n_units) == (WinDesign.PART_SHARED, 6, (10, 12))
    assert found.probability == pytest.approx(f * np.mean(same) + (1 - f) * rest[0])
    variance = f**2 * np.var(same, ddof=1) / 6 + (1 - f) ** 2 * (rest[1] + rest[2])
    assert found.evidence.spread.variance == pytest.approx(variance)
    assert found.evidence.n_star == 10
    assert win_contrast(
        [win_arm(x, tuple(range(10)))], [win_arm(y, tuple(range(4, 16)))], pairing='paired'
    ).n_units == (6, 6)


def test_times_within_float_noise_are_level() -> None:
    a = np.array([0.1 + 0.2, 1.1 * 3, 5.0, 6.0, 7.0, 8.0])
    b = np.array([0.3, 3.3000000000000003, 5.0, 6.0, 7.0, 8.0])
    found = win_contrast([win_arm(a)], [win_arm(b)])
    assert found.probability == 0.5
    assert win_contrast([win_arm(a, 'abcdef')], [win_arm(b, 'abcdef')]).ties == 6


def test_the_other_way_round_is_the_mirror_image() -> None:
    rng = np.random.default_rng(9)
    a, b = [win_arm(_draw(rng, 7)) for _ in range(3)], [win_arm(_draw(rng, 9)) for _ in range(3)]
    there, back = win_contrast(a, b), win_contrast(b, a)
    assert back.probability == pytest.approx(1 - there.probability)
    assert back.p_value == pytest.approx(there.p_value)
    assert back.interval.low == pytest.approx(1 - there.interval.high)
    assert back.p_one_sided('b') == pytest.approx(there.p_one_sided('a'))


def test_fewer_lost_items_win() -> None:
    fewer = win_contrast([win_arm(np.zeros(8))], [win_arm([1, 2, 1, 3, 1, 1, 2, 2])])
    assert fewer.probability == 1.0
    assert fewer.p_value == pytest.approx(math.exp(-4))


# --- loss before the follow-up ---


def _kaplan_meier(times, ends):
    """{time: mass} and what is left, by the textbook."""
    survival, mass = 1.0, {}
    for t in sorted({x for x in times if x < INF}):
        at_risk = sum(1 for x, e in zip(times, ends, strict=True) if min(x, e) >= t)
        done = sum(1 for x in times if x == t)
        mass[t] = survival * done / at_risk
        survival -= mass[t]
    return mass, survival


def _curve_win(x, ends_x, y, ends_y):
    (of_x, left_x), (of_y, left_y) = _kaplan_meier(x, ends_x), _kaplan_meier(y, ends_y)
    wins = sum(m * n * _score(s, t) for (s, m), (t, n) in itertools.product(of_x.items(), of_y.items()))
    return wins + (1 - left_x) * left_y + left_x * left_y / 2


def test_lost_runs_are_compared_by_curves_with_each_unit_left_out() -> None:
    rng = np.random.default_rng(10)
    cells = []
    for n in (9, 12):
        times = rng.integers(1, 30, n).astype(float)
        ends = np.where(rng.random(n) < 0.4, rng.integers(1, 30, n), INF)
        times = np.where(times > ends, INF, times)
        cells.append((times, np.where(np.isinf(times), ends, INF)))
    (x, ends_x), (y, ends_y) = cells
    found = win_contrast([win_arm(x, followed_s=ends_x)], [win_arm(y, followed_s=ends_y)])
    drop = np.delete
    left_x = [_curve_win(drop(x, k), drop(ends_x, k), y, ends_y) for k in range(9)]
    left_y = [_curve_win(x, ends_x, drop(y, k), drop(ends_y, k)) for k in range(12)]
    variance = 8 / 9 * np.sum((left_x - np.mean(left_x)) ** 2) + 11 / 12 * np.sum((left_y - np.mean(left_y)) ** 2)
    assert (found.design, found.assumes_loss_uninformative) == (WinDesign.LOSSY, True)
    assert found.probability == pytest.approx(_curve_win(x, ends_x, y, ends_y))
    assert found.evidence.spread.variance == pytest.approx(variance)
    assert found.evidence.n_star == min(np.isinf(ends_x).sum(), np.isinf(ends_y).sum())
    assert found.p_whatever_lost >= found.p_value


def test_without_loss_the_curves_are_the_placements() -> None:
    from robotrials.stats.win import _cells, _lossy

    rng = np.random.default_rng(11)
    a, b = [win_arm(_draw(rng, 7)) for _ in range(3)], [win_arm(_draw(rng, 9)) for _ in range(3)]
    plain, curves = win_contrast(a, b), _lossy(_cells(a, b, 'auto'), level=0.95, n_tests=1)
    assert curves.p_value == pytest.approx(plain.p_value)
    assert curves.p_whatever_lost == pytest.approx(plain.p_value)


def test_a_claim_whatever_became_of_the_lost_counts_them_against_it() -> None:
    a = win_arm([1.0, 2, 3, 4, 5, 6, 7, INF], followed_s=[INF] * 7 + [0.5])
    b = win_arm(np.arange(20.0, 28))
    found = win_contrast([a], [b])
    worst = win_contrast([win_arm([1.0, 2, 3, 4, 5, 6, 7, INF])], [b])
    assert found.p_whatever_lost == pytest.approx(worst.p_value)


def test_a_few_undecided_matched_pairs_count_against_the_claim() -> None:
    starts = tuple(range(20))
    a = win_arm([*np.arange(1.0, 20), INF], starts, [INF] * 19 + [3.0])
    b = win_arm(np.arange(1.0, 21) + 0.5, starts)
    found = win_contrast([a], [b])
    assert (found.design, found.wins, found.losses) == (WinDesign.MATCHED_SIGN, 19, 0)
    assert found.p_value == pytest.approx(stats.binomtest(19, 20, 0.5).pvalue)
    assert not found.assumes_loss_uninformative


def test_lost_runs_of_several_items_are_judged_in_the_worst_case() -> None:
    rng = np.random.default_rng(12)
    times = np.cumsum(rng.random((10, 3)), axis=1)
    cut = times.copy()
    cut[0, 1:] = INF
    lost = win_arm(cut, followed_s=[times[0, 0] + 0.01] + [INF] * 9)
    found = win_contrast([lost], [win_arm(times + 2)])
    worst = win_contrast([win_arm(cut)], [win_arm(times + 2)])
    assert found.p_value == pytest.approx(worst.p_value)
    assert not found.assumes_loss_uninformative


def test_too_many_lost_withhold() -> None:
    a = win_arm([1.0, 2] + [INF] * 8, followed_s=[INF] * 2 + [0.5] * 8)
    assert 'at least 3' in win_contrast([a], [win_arm(np.arange(1.0, 11))]).withheld


# --- sessions, and what is refused ---


def test_sessions_that_reach_over_strata_are_counted_once() -> None:
    """With one session per value the linked variance is that of the sums over strata."""
    rng = np.random.default_rng(13)
    x, y = rng.random((2, 8)), rng.random((2, 8)) + 0.3
    labels = [f'day{k}' for k in range(8)]
    found = win_contrast([win_arm(r, labels) for r in x], [win_arm(r, [f'other{k}' for k in range(8)]) for r in y],
                         is_linked=True)  # fmt: skip
    moves = np.zeros((2, 8))
    for s in range(2):
        share = np.array([[_score(i, j) for j in y[s]] for i in x[s]])
        for arm, axis in ((0, 1), (1, 0)):
            placed = share.mean(axis=axis)
            moves[arm] += (placed - placed.mean()) / 8 / 2
    assert found.evidence.spread.variance == pytest.approx(8 / 7 * (moves**2).sum())
    assert (found.n_units, found.evidence.n_star) == ((8, 8), 8)


@pytest.mark.parametrize('arms', [
    ([win_arm([1.0])], []), ([], []),
    ([win_arm(np.ones((3, 2)))], [win_arm(np.ones((3, 1)))]),
    ([win_arm([1.0, 2], 'ab')], [win_arm([1.0, 2], 'cd')]),
])  # fmt: skip
def test_arms_that_cannot_be_compared_are_refused(arms) -> None:
    with pytest.raises(InputError):
        win_contrast(*arms, pairing='paired')


def test_nan_is_refused() -> None:
    with pytest.raises(InputError, match='NaN'):
        win_arm([1.0, math.nan])
    with pytest.raises(InputError, match=r'N\*'):
        UnseenRule(0.5, None, 0.0, 0.5)  # type: ignore[arg-type]
