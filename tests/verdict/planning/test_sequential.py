"""Sequential comparison: e-processes by their definition, error and coverage by simulation, looks by example."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.verdict.planning import (
    Decision,
    barnard_power,
    sequential_arms,
    sequential_comparison,
    sequential_power,
)
from robotrials.verdict.planning.betting import betting_prior, log_capital, lower_bound, pair_blocks, walk_bounds

ALPHA = 0.05


def stopping(d: np.ndarray, *, alpha: float = ALPHA, horizon: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """First look at which each row of differences (trials, n) in -1, 0, 1 is decided for a, and for b; n + 1 if never.

    Written apart from the package: capital by repeated multiplication, one share at a time.
    """
    prior = betting_prior(alpha / 2, horizon=horizon)
    first = []
    for signed in (d, -d):
        capital = sum(w * np.cumprod(1 + c * signed, axis=1) for c, w in zip(prior.shares, prior.weights, strict=True))
        crossed = capital >= 2 / alpha
        first.append(np.where(crossed.any(1), crossed.argmax(1) + 1, d.shape[1] + 1))
    return first[0], first[1]


def differences(rng: np.random.Generator, pa: float, pb: float, trials: int, n: int) -> np.ndarray:
    return (rng.random((trials, n)) < pa).astype(int) - (rng.random((trials, n)) < pb).astype(int)


@pytest.mark.parametrize('p', [0.1, 0.5, 0.9])
@pytest.mark.parametrize('horizon', [None, 200])
def test_error_is_at_most_alpha_when_policies_are_equal(p: float, horizon: int | None) -> None:
    trials = 1000
    a, b = stopping(differences(np.random.default_rng(int(10 * p)), p, p, trials, 200), horizon=horizon)
    rejected = np.mean(np.minimum(a, b) <= 200)
    assert rejected <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / trials)


def test_error_is_at_most_alpha_when_tasks_differ_but_cancel() -> None:
    """Two tasks, one 40 points for a and one 40 points for b: the mean over tasks is 0, in rounds of both."""
    rng = np.random.default_rng(3)
    trials, n = 1000, 200
    d = np.empty((trials, n), dtype=int)
    d[:, ::2] = differences(rng, 0.9, 0.5, trials, n // 2)
    d[:, 1::2] = differences(rng, 0.5, 0.9, trials, n // 2)
    prior = betting_prior(ALPHA / 2, horizon=n)
    capital = [
        sum(w * np.cumprod(1 + c * s, 1) for c, w in zip(prior.shares, prior.weights, strict=True)) for s in (d, -d)
    ]
    crossed = (np.maximum(*capital)[:, 1::2] >= 2 / ALPHA).any(1)  # looks after whole rounds only
    assert crossed.mean() <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / trials)


def test_a_rounds_factor_is_an_e_value_whatever_the_strata() -> None:
    """The exact expectation of a round's capital, over all outcomes of three strata whose differences cancel."""
    means = np.array([0.5, -0.2, -0.3])
    for share in (0.1, 0.5, 0.98):
        total = 0.0
        for outcome in itertools.product((-1, 1), repeat=3):
            chance = np.prod([(1 + o * m) / 2 for o, m in zip(outcome, means, strict=True)])
            total += chance * np.prod([1 + share * o for o in outcome])
        assert total <= 1 + 1e-12


def test_the_public_function_decides_when_the_definition_says() -> None:
    rng = np.random.default_rng(5)
    for pa, pb in ((0.8, 0.5), (0.4, 0.75), (0.5, 0.5)):
        a, b = (rng.random(150) < pa).astype(int), (rng.random(150) < pb).astype(int)
        first_a, first_b = stopping((a - b)[None, :])
        ours = sequential_comparison(a, b, paired=False)
        stopped = ours.stopped_at
        if min(first_a[0], first_b[0]) > 150:
            assert stopped is None
            assert ours.decision is Decision.CONTINUE
        else:
            assert stopped is not None
            assert stopped.blocks == min(first_a[0], first_b[0])
            assert stopped.decision is (Decision.A_BETTER if first_a[0] < first_b[0] else Decision.B_BETTER)


def test_capital_falls_as_the_claim_rises_and_the_bound_is_where_it_crosses() -> None:
    values, counts = np.array([-1.0, 0.0, 0.5, 1.0]), np.array([[4.0, 9.0, 5.0, 12.0]])
    prior = betting_prior(0.025)
    claims = np.linspace(-0.99, 0.99, 50)
    capital = log_capital(values, np.repeat(counts, 50, axis=0), claims, prior)
    assert (np.diff(capital) < 0).all()
    bound = lower_bound(values, counts, alpha=0.025, prior=prior)
    assert log_capital(values, counts, bound, prior)[0] == pytest.approx(math.log(40), abs=1e-6)


def test_the_confidence_sequence_holds_at_every_look_together() -> None:
    rng = np.random.default_rng(6)
    missed = 0
    for _ in range(150):
        a, b = rng.random(60) < 0.75, rng.random(60) < 0.55
        looks = sequential_comparison(a, b, paired=False, alpha=0.1).looks
        missed += any(look.interval.excludes(0.2) for look in looks)
    assert missed / 150 <= 0.1 + 3 * math.sqrt(0.09 / 150)


def test_the_interval_excludes_zero_exactly_when_the_evidence_suffices() -> None:
    rng = np.random.default_rng(7)
    looks = sequential_comparison(rng.random(120) < 0.8, rng.random(120) < 0.5, paired=False).looks
    for look in looks:
        assert (look.interval.low > 1e-9) == (look.evidence_a >= 40)
        assert (look.interval.high < -1e-9) == (look.evidence_b >= 40)


def test_swapping_the_arms_swaps_the_verdict() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.random(150) < 0.8, rng.random(150) < 0.4
    one, other = sequential_comparison(a, b, paired=True), sequential_comparison(b, a, paired=True)
    assert (one.decision, other.decision) == (Decision.A_BETTER, Decision.B_BETTER)
    assert tuple(one.interval) == pytest.approx(tuple(other.interval.scaled(-1)))
    assert one.p_value == pytest.approx(other.p_value)


def test_pairing_ignores_when_rollouts_finish_and_keeps_the_surplus_waiting() -> None:
    blocks = pair_blocks([1, 0, 1, 1, 1], [0, 0, 1], paired=False)
    assert blocks.differences.tolist() == [1, 0, 0]
    assert (blocks.waiting_a, blocks.waiting_b) == (2, 0)
    strata = (['x', 'x', 'y', 'y', 'y'], ['y', 'x', 'y'])
    blocks = pair_blocks([1, 0, 0, 1, 1], [0, 1, 1], paired=False, strata=strata)
    assert blocks.differences.tolist() == [0, 0]
    assert (blocks.rounds, blocks.waiting_a, blocks.waiting_b) == (1, 3, 1)


def test_declared_tasks_hold_the_first_look_until_each_was_run() -> None:
    strata = (['x', 'x'], ['x', 'x'])
    assert pair_blocks([1, 1], [0, 0], paired=False, strata=strata).rounds == 2
    waiting = sequential_comparison([1, 1], [0, 0], paired=False, strata=strata, tasks=['x', 'y'])
    assert (waiting.looks, waiting.waiting_a, waiting.waiting_b) == ((), 2, 2)
    with pytest.raises(UnknownName, match='known: x1, y1'):
        pair_blocks([1], [0], paired=True, strata=['y2'], tasks=['x1', 'y1'])
    with pytest.raises(InputError, match='strata must give'):
        pair_blocks([1], [0], paired=True, tasks=['x'])


def test_stratified_differences_are_means_over_tasks() -> None:
    rng = np.random.default_rng(17)
    strata = np.tile(['x', 'y', 'z'], 60)
    a, b = rng.random(180) < 0.8, rng.random(180) < 0.45
    ours = sequential_comparison(a, b, paired=True, strata=strata, horizon=180)
    assert [look.blocks for look in ours.looks[:3]] == [3, 6, 9]
    assert ours.decision is Decision.A_BETTER
    assert ours.looks[-1].difference == pytest.approx(a.mean() - b.mean())


def test_a_decision_on_continuous_scores_does_not_depend_on_the_looks() -> None:
    """A crossing between two looks counts at the next: more data never takes a decision back."""
    rng = np.random.default_rng(18)
    a, b = rng.random(120), rng.random(120) * 0.6
    whole = sequential_comparison(a, b, paired=False, looks=range(1, 121))
    assert whole.stopped_at is not None
    first = whole.stopped_at.blocks
    later = sequential_comparison(a, b, paired=False, looks=[first - 1, first + 5])
    assert [look.decision for look in later.looks] == [Decision.CONTINUE, Decision.A_BETTER]


def test_declared_unequal_allocation_uses_whole_blocks() -> None:
    blocks = pair_blocks([1, 0, 1, 1, 0], [0, 1, 1], paired=False, allocation=(2, 1))
    assert blocks.differences.tolist() == [0.5, 0.0]
    assert (blocks.waiting_a, blocks.waiting_b) == (1, 1)


def test_error_with_unequal_allocation_is_at_most_alpha() -> None:
    rng = np.random.default_rng(9)
    trials, rejected = 80, 0
    for _ in range(trials):
        a, b = rng.random(160) < 0.5, rng.random(80) < 0.5
        ours = sequential_comparison(a, b, paired=False, allocation=(2, 1), horizon=80)
        rejected += ours.decision in (Decision.A_BETTER, Decision.B_BETTER)
    assert rejected / trials <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / trials)


def test_no_looks_before_a_complete_round() -> None:
    ours = sequential_comparison([1, 1], [], paired=False)
    assert (ours.looks, ours.decision, ours.interval, ours.waiting_a) == ((), Decision.CONTINUE, None, 2)


def test_bounded_scores_scale_back_to_their_units() -> None:
    """CALVIN's 0..5 tasks in a row; the same data as fractions give a fifth of every difference."""
    rng = np.random.default_rng(10)
    a, b = rng.integers(2, 6, 80), rng.integers(0, 5, 80)
    whole = sequential_comparison(a, b, paired=False, score_range=(0, 5))
    share = sequential_comparison(a / 5, b / 5, paired=False)
    assert whole.decision is Decision.A_BETTER
    assert tuple(whole.interval) == pytest.approx([5 * x for x in share.interval])
    assert whole.looks[-1].difference == pytest.approx(a.mean() - b.mean())


def test_continuous_scores_are_looked_at_in_steps() -> None:
    rng = np.random.default_rng(11)
    ours = sequential_comparison(rng.random(200), rng.random(200) * 0.6, paired=False)
    assert len(ours.looks) == 50
    assert ours.decision is Decision.A_BETTER
    assert len(sequential_comparison(rng.random(90), rng.random(90), paired=False, looks=[30, 60, 90, 120]).looks) == 3


def test_equal_policies_stop_for_futility() -> None:
    rng = np.random.default_rng(12)
    ours = sequential_comparison(
        rng.random(400) < 0.5, rng.random(400) < 0.5, paired=False, horizon=400, smallest_difference=0.2
    )
    assert ours.decision is Decision.FUTILE
    assert ours.stopped_at is not None
    assert ours.stopped_at.blocks < 400
    walk = sequential_comparison(
        rng.random(400) < 0.5,
        rng.random(400) < 0.5,
        paired=False,
        horizon=400,
        smallest_difference=0.2,
        method='sign_walk',
    )
    assert walk.stopped_at is not None
    assert walk.stopped_at.blocks < 400


def test_futility_stops_few_trials_that_would_have_won() -> None:
    rng = np.random.default_rng(13)
    kept = 0
    for _ in range(30):
        a, b = rng.random(200) < 0.75, rng.random(200) < 0.5
        ours = sequential_comparison(a, b, paired=False, horizon=200, smallest_difference=0.25)
        kept += ours.decision is Decision.A_BETTER
    assert kept / 30 > 0.85


def test_the_horizon_ends_the_trial() -> None:
    ours = sequential_comparison([1, 0] * 10, [0, 1] * 10, paired=False, horizon=20)
    assert ours.decision is Decision.FUTILE
    assert 'horizon' in ours.reason


def test_walk_bounds_spend_at_most_alpha_by_enumeration() -> None:
    """Every one of the 2^14 sign sequences of fourteen disagreements within a horizon of 20."""
    at = np.array([1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 19, 20])
    bounds = walk_bounds(at, horizon=20, alpha=0.1)
    leads = np.cumsum(np.array(list(itertools.product([-1, 1], repeat=14))), axis=1)
    crossed = np.abs(leads) >= bounds
    assert 0.04 < crossed.any(1).mean() <= 0.1
    for k, n in enumerate(at):
        assert crossed[:, : k + 1].any(1).mean() <= 0.1 * (n / 20) ** 2 + 1e-12


@pytest.mark.study
def test_the_sign_walk_errs_at_most_alpha_and_is_sharper_than_betting() -> None:
    rng = np.random.default_rng(14)
    won = {'null': 0, 'sign_walk': 0, 'betting': 0}
    for _ in range(200):
        b = rng.random(60) < 0.5
        won['null'] += walk_decides(rng.random(60) < 0.5, b)
        won['sign_walk'] += walk_decides(rng.random(60) < 0.8, b)
    first, _ = stopping(differences(rng, 0.8, 0.5, 1000, 60), horizon=60)
    assert won['null'] / 200 <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 200)
    assert won['sign_walk'] / 200 > np.mean(first <= 60) - 0.05
    assert won['sign_walk'] / 200 > barnard_power(0.8, 0.5, n1=60, n2=60) - 0.15


def walk_decides(a: np.ndarray, b: np.ndarray) -> bool:
    return sequential_comparison(a, b, paired=True, horizon=60, looks=[60], method='sign_walk').decision in (
        Decision.A_BETTER,
        Decision.B_BETTER,
    )


@pytest.mark.parametrize('method', ['betting', 'sign_walk'])
def test_simulated_designs_stop_where_the_comparison_does(method: str) -> None:
    """The simulation's own paths, run through the public function one by one, give the same decisions and lengths."""
    design = sequential_power(0.8, 0.5, horizon=60, trials=40, rng=np.random.default_rng(19), method=method)
    uniform = np.random.default_rng(19).random((40, 60))
    signs = np.where(uniform < 0.4, 1, np.where(uniform < 0.5, -1, 0))
    won, blocks = 0, []
    for row in signs:
        ours = sequential_comparison(row == 1, row == -1, paired=True, horizon=60, method=method)
        won += ours.decision is Decision.A_BETTER
        blocks.append(ours.stopped_at.blocks if ours.stopped_at else 60)
    assert design.a_better == won
    assert design.mean_blocks == pytest.approx(np.mean(blocks))


def test_simulated_designs_err_at_most_alpha_and_matching_helps() -> None:
    rng = np.random.default_rng(20)
    null = sequential_power(0.5, 0.5, horizon=100, trials=600, rng=rng, method='sign_walk')
    assert null.power_interval.low <= 0.05
    alone = sequential_power(0.7, 0.5, horizon=100, trials=300, rng=rng)
    matched = sequential_power(0.7, 0.5, horizon=100, trials=300, rng=rng, discordance=0.25)
    assert matched.power > alone.power + 0.1
    assert matched.mean_blocks < alone.mean_blocks
    with pytest.raises(InputError, match=r'allow a discordance of 0\.2 to 0\.8'):
        sequential_power(0.7, 0.5, horizon=100, trials=10, rng=rng, discordance=0.1)


def test_a_decision_is_kept_once_made() -> None:
    ours = sequential_comparison([1] * 20 + [0] * 60, [0] * 20 + [1] * 60, paired=True)
    assert ours.stopped_at is not None
    assert ours.stopped_at.decision is Decision.A_BETTER
    assert ours.decision is Decision.A_BETTER


def test_three_arms_with_letters() -> None:
    rng = np.random.default_rng(15)
    arms = {'weak': rng.random(200) < 0.3, 'good': rng.random(200) < 0.85, 'fair': rng.random(200) < 0.8}
    ours = sequential_arms(arms, paired=False, horizon=200)
    assert ours.order[2] == 'weak'
    assert ours.letters == ('a', 'a', 'b')
    decided = {(p.a, p.b): p.decision for p in ours.pairs}
    assert decided['weak', 'good'] is Decision.B_BETTER
    assert decided['weak', 'fair'] is Decision.B_BETTER


def test_family_wise_error_of_three_equal_arms() -> None:
    rng = np.random.default_rng(16)
    wrong = 0
    for _ in range(50):
        arms = {name: rng.random(60) < 0.5 for name in 'abc'}
        ours = sequential_arms(arms, paired=False, horizon=60)
        wrong += any(p.adjusted_p_value <= 0.05 for p in ours.pairs)
    assert wrong / 50 <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 50)


@pytest.mark.parametrize(
    ('keywords', 'said'),
    [
        ({'b': [1, 0, 1]}, 'one a for each b'),
        ({'b': [2, 0]}, 'outside score_range'),
        ({'b': [math.nan, 0]}, 'nan'),
        ({'alpha': 5}, 'alpha'),
        ({'horizon': 0}, 'horizon'),
        ({'smallest_difference': 2}, 'smallest_difference'),
        ({'score_range': (1, 0)}, 'score_range'),
        ({'strata': ['x']}, 'strata'),
        ({'method': 'sign_walk'}, 'needs a horizon'),
        ({'method': 'sprt'}, 'method'),
        ({'method': 'sign_walk', 'horizon': 9, 'strata': ['x', 'y']}, 'one stratum'),
        ({'looks': [0]}, 'looks'),
    ],
)
def test_bad_input_is_refused(keywords: dict[str, object], said: str) -> None:
    arguments = {'a': [1, 0], 'b': [0, 1], 'paired': True, **keywords}
    with pytest.raises(InputError, match=said):
        sequential_comparison(**arguments)  # type: ignore[arg-type]


def test_one_arm_is_not_a_comparison() -> None:
    with pytest.raises(InputError, match='two arms'):
        sequential_arms({'a': [1, 0]}, paired=False)
