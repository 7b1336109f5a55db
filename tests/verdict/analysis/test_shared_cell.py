"""What two arms have in common: cells, scenes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests.verdict.analysis.pair import rollouts

from robotrials.errors import InputError
from robotrials.measure.timing import rmst, success_curve
from robotrials.measure.timing.operation import operations
from robotrials.record import Outcome
from robotrials.stats import ArmCounts, PairCounts
from robotrials.verdict.analysis.endpoint import design_effect, is_success, rate_cells, time_cells
from robotrials.verdict.analysis.shared_cell import share_cells, start_clusters


def arms(**options: object) -> tuple[list, list]:
    rng = np.random.default_rng(0)
    return rollouts(rng, 'a', 0.8, n=6), rollouts(rng, 'b', 0.8, n=6, **options)  # type: ignore[arg-type]


def test_shared_seeds_are_paired_and_others_are_not() -> None:
    a, b = arms()
    assert share_cells(a, b).is_paired
    assert not share_cells(a, b, pairing='independent').is_paired
    a, b = arms(first_seed=100)
    assert not share_cells(a, b).is_paired
    with pytest.raises(InputError, match='no pairs in block, spoon, towel'):
        share_cells(a, b, pairing='paired')


def test_pairs_come_in_the_same_order_of_scenes() -> None:
    a, b = arms()
    shared = share_cells(a, list(reversed(b)))
    assert all(x.seed == y.seed for c in shared.cells for x, y in zip(c.new, c.reference, strict=True))


def test_a_few_episodes_without_a_partner_are_left_out_and_counted() -> None:
    rng = np.random.default_rng(1)
    a, b = rollouts(rng, 'a', 0.8, n=20), rollouts(rng, 'b', 0.8, n=20)
    shared = share_cells(a[1:], b)
    assert shared.is_paired
    assert shared.n_unpaired == (0, 1)
    assert not share_cells(a[:40], b[:20] + b[30:]).is_paired


def test_instances_pair_arms_that_drew_their_own_seeds() -> None:
    a, b = arms()
    a = [e.replace(instance=e.seed, seed=None, episode_id='') for e in a]
    b = [e.replace(instance=e.seed, seed=1000 + (e.seed or 0), episode_id='') for e in b]
    assert share_cells(a, b).is_paired


def test_only_shared_strata_tasks_and_conditions_are_compared() -> None:
    rng = np.random.default_rng(2)
    a = rollouts(rng, 'a', 0.8, n=4) + rollouts(rng, 'a', 0.8, n=4, condition='dim')
    b = rollouts(rng, 'b', 0.8, n=4, strata=('spoon', 'towel', 'cup')) + rollouts(rng, 'b', 0.8, n=4, condition='glare')
    shared = share_cells(a, b)
    assert [c.name for c in shared.cells] == ['spoon, nominal', 'towel, nominal']
    assert shared.only_new == ('block, dim (pick)', 'block, nominal (pick)', 'spoon, dim (pick)', 'towel, dim (pick)')
    assert 'cup, nominal (pick)' in shared.only_reference
    with pytest.raises(InputError, match='no cell in common'):
        share_cells(a, rollouts(rng, 'b', 0.8, n=4, task='pour'))


def test_severities_of_a_condition_are_cells_of_their_own() -> None:
    rng = np.random.default_rng(3)
    made = [
        [
            e
            for severity in (0.5, 1.0)
            for e in rollouts(
                rng,
                p,
                0.8,
                n=2,
                strata=('cup',),
                condition='dim',
                condition_parameters={'severity': severity},
                first_seed=int(10 * severity),
            )
        ]
        + rollouts(rng, p, 0.8, n=2, strata=('cup',))
        for p in ('a', 'b')
    ]
    assert [c.name for c in share_cells(*made).cells] == ['cup, dim at 0.5', 'cup, dim at 1', 'cup, nominal']


def test_suites_with_the_same_task_names_stay_apart() -> None:
    rng = np.random.default_rng(4)
    sides = [
        [e for suite in ('goal', 'spatial') for e in rollouts(rng, p, 0.8, n=2, strata=('',), benchmark=suite)]
        for p in ('a', 'b')
    ]
    assert [c.name for c in share_cells(*sides).cells] == ['goal/pick', 'spatial/pick']


def test_different_time_caps_are_refused_with_the_cell() -> None:
    a, b = arms(cap_s=90.0)
    with pytest.raises(InputError, match='block: time caps differ, 60 s against 90 s'):
        share_cells(a, b)


def test_invalid_episodes_are_in_no_cell() -> None:
    a, b = arms()
    broken = [e.replace(outcome=Outcome.INVALID) for e in a[:3]]
    shared = share_cells([*broken, *a[3:]], b)
    assert shared.n_new == len(a) - 3
    with pytest.raises(InputError, match='nothing valid'):
        share_cells([e.replace(outcome=Outcome.INVALID) for e in a], b)


def test_an_unknown_pairing_is_refused() -> None:
    with pytest.raises(InputError, match="pairing is 'both'"):
        share_cells(*arms(), pairing='both')


def test_counts_of_cells_are_those_of_the_episodes() -> None:
    shared = share_cells(*arms())
    paired = rate_cells(shared.cells, is_success, is_paired=True)
    single = rate_cells(shared.cells, is_success, is_paired=False)
    for cell, pairs, counts in zip(shared.cells, paired, single, strict=True):
        assert isinstance(pairs, PairCounts)
        assert isinstance(counts, ArmCounts)
        assert pairs.both + pairs.only_new == counts.new == sum(map(is_success, cell.new))
        assert pairs.both + pairs.only_reference == counts.reference


def test_repeats_of_a_start_have_a_design_effect() -> None:
    """Four identical repeats of each start carry one episode each: the variance is about four times as large."""
    rng = np.random.default_rng(5)
    sides = []
    for policy in ('a', 'b'):
        once = rollouts(rng, policy, 0.6, n=60, strata=('cup',))
        sides.append([e.replace(repeat=k, episode_id='') for e in once for k in range(4)])
    shared = share_cells(*sides, pairing='independent')
    assert design_effect(shared.cells, is_success, is_paired=False) == pytest.approx(4.0, rel=0.05)
    assert start_clusters(shared.cells[0].new[::4]) is None
    alone = share_cells(*(side[::4] for side in sides))
    assert design_effect(alone.cells, is_success, is_paired=True) == 1.0


def test_time_cells_are_restricted_means_with_jackknife_variances() -> None:
    """Without censoring before tau the restricted mean is a mean of min(T, tau), and its variance s^2 / n."""
    shared = share_cells(*arms())
    made = time_cells(shared.cells, tau_s=60.0, is_paired=True)
    for cell, found in zip(shared.cells, made, strict=True):
        sides = [np.array([min(e.duration_s, 60.0) for e in side]) for side in (cell.new, cell.reference)]
        timed = operations(cell.new)
        assert found.new == pytest.approx(sides[0].mean())
        assert found.new == pytest.approx(rmst(success_curve(timed.durations_s, timed.observed), 60.0))
        expected = np.cov(*sides) / len(sides[0])
        got = (found.variance_new, found.variance_reference, found.covariance)
        assert got == pytest.approx((expected[0, 0], expected[1, 1], expected[0, 1]))
