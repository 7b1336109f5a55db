"""Offline errors against closed-loop successes: the join by policy, Kendall's tau, and its interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats
from tests.cli.command import robotrials
from tests.measure.actions.test_misbehaving import Recorded

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.actions.compare import compare_offline, kendall_tau_b, rank_agreement
from robotrials.measure.actions.evaluate import ActionRun, read_runs, run_actions
from robotrials.measure.actions.prediction import FunctionPredictor
from robotrials.measure.actions.split import action_statistics, make_split
from robotrials.record import Episode, Outcome, Store


def test_tau_is_scipys_and_absent_where_there_is_no_order() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        x, y = rng.integers(0, 4, 6).astype(float), rng.integers(0, 4, 6).astype(float)
        wanted = scipy_stats.kendalltau(x, y).statistic
        found = kendall_tau_b(x, y)
        assert found is None if np.isnan(wanted) else found == pytest.approx(wanted)


def drawn(means: list[float], n: int, seed: int) -> dict[str, dict[object, float]]:
    rng = np.random.default_rng(seed)
    return {f'p{i}': {k: float(rng.normal(m, 1.0)) for k in range(n)} for i, m in enumerate(means)}


def test_clear_orders_agree_with_a_narrow_interval_and_noise_says_nothing() -> None:
    clear = rank_agreement(
        drawn([3, 2, 1, 0], 200, 1), drawn([0, 1, 2, 3], 200, 2), rng=np.random.default_rng(0), n_resamples=300
    )
    assert clear.tau == 1.0
    assert clear.interval is not None
    assert tuple(clear.interval) == (1.0, 1.0)
    turned = rank_agreement(
        drawn([0, 1, 2], 200, 1), drawn([0, 1, 2], 200, 2), rng=np.random.default_rng(0), n_resamples=300
    )
    assert turned.tau == -1.0
    unsure = rank_agreement(
        drawn([1, 1, 1, 1], 10, 1), drawn([0, 0, 0, 0], 10, 2), rng=np.random.default_rng(0), n_resamples=300
    )
    assert unsure.interval is not None
    assert unsure.interval.low < 0 < unsure.interval.high


def test_the_seed_changes_the_draw_and_nothing_else_does() -> None:
    errors, successes = drawn([1, 0.5, 0.4], 12, 1), drawn([0, 0.3, 0.2], 12, 2)
    ends = [
        rank_agreement(errors, successes, rng=np.random.default_rng(seed), n_resamples=40).interval for seed in range(6)
    ]
    again = rank_agreement(errors, successes, rng=np.random.default_rng(0), n_resamples=40).interval
    assert ends[0] == again
    assert len(set(ends)) > 1


def test_an_order_needs_two_policies_that_differ() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(NotEstimable, match='at least two'):
        rank_agreement({'a': {0: 1.0}}, {'a': {0: 1.0}}, rng=rng)
    same: dict[str, dict[object, float]] = {'a': {0: 1.0}, 'b': {0: 1.0}}
    with pytest.raises(NotEstimable, match='no order'):
        rank_agreement(same, {'a': {0: 1.0}, 'b': {0: 0.0}}, rng=rng)


@pytest.fixture
def runs(tmp_path: Path) -> list[ActionRun]:
    dataset = Recorded(6)
    split = make_split(dataset)  # type: ignore[arg-type]
    statistics = action_statistics(dataset.episodes('train'))
    for name, miss in (('good', 0.1), ('fair', 0.6), ('poor', 2.0), ('unrun', 1.0)):
        predictor = FunctionPredictor(name, lambda o, words, miss=miss: [float(words.split()[1]) + miss])  # type: ignore[misc]
        run_actions(dataset, predictor, tmp_path / 's', split=split, statistics=statistics)  # type: ignore[arg-type]
    return read_runs(tmp_path / 's')


def closed_loop(rates: dict[str, int]) -> list[Episode]:
    return [
        Episode(policy=p, task='t', outcome=Outcome.SUCCESS if k < n else Outcome.FAILURE, success=k < n, seed=k)
        for p, n in rates.items() for k in range(10)
    ]  # fmt: skip


def test_the_two_numbers_of_a_policy_stand_side_by_side(runs: list[ActionRun]) -> None:
    found = compare_offline(
        runs, closed_loop({'good': 9, 'fair': 6, 'poor': 1, 'elsewhere': 5}), rng=np.random.default_rng(0),
        n_resamples=200,
    )  # fmt: skip
    assert [(p.policy, round(p.offline_error, 6), p.success, p.n_offline, p.n_closed_loop) for p in found.pairs] == [
        ('fair', 0.36, 0.6, 6, 10), ('good', 0.01, 0.9, 6, 10), ('poor', 4.0, 0.1, 6, 10),
    ]  # fmt: skip
    assert found.pairs[1].success_interval is not None
    assert (found.offline_only, found.closed_loop_only) == (('unrun',), ('elsewhere',))
    assert found.agreement is not None
    assert found.agreement.tau == 1.0
    turned = compare_offline(runs, closed_loop({'good': 1, 'poor': 9}), rng=np.random.default_rng(0), n_resamples=50)
    assert turned.agreement is not None
    assert turned.agreement.tau == -1.0


def test_the_report_shows_both_numbers_and_their_agreement(runs: list[ActionRun], tmp_path: Path) -> None:
    store = Store.create(tmp_path / 'closed')
    store.append(closed_loop({'good': 9, 'fair': 6, 'poor': 1}))
    said = robotrials('actions', 'report', tmp_path / 's', '--closed-loop', tmp_path / 'closed', '--resamples', 50)
    assert 'Offline on made and in closed loop' in said
    assert "Kendall's tau-b of the two orders: 1.00" in ' '.join(said.split())


def test_without_an_order_the_reason_stands_in_its_place(runs: list[ActionRun]) -> None:
    alone = compare_offline(runs, closed_loop({'good': 9}), rng=np.random.default_rng(0))
    assert alone.agreement is None
    assert 'at least two policies' in alone.why_no_agreement
    with pytest.raises(InputError, match='one dataset'):
        compare_offline([], [], rng=np.random.default_rng(0))
