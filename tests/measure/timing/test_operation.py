"""What an episode's events become (PhAIL, section 3.1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError, RecordError
from robotrials.measure.timing import Cause, Operations, cohorts, operations, operations_by_stratum, pool
from robotrials.record import Episode, Event, EventKind, Outcome
from robotrials.testing import paper_like_cohort

INF = float('inf')


def episode(
    outcome: str = 'timeout', duration_s: float = 100.0, *events: tuple[float, str] | Event, **more: Any
) -> Episode:
    made = tuple(e if isinstance(e, Event) else Event(e[0], EventKind(e[1])) for e in events)
    fields: dict[str, Any] = {'policy': 'p', 'task': 't', 'outcome': Outcome(outcome), 'duration_s': duration_s}
    return Episode(**fields | more, events=made)


def rows(*episodes: Episode, **more: Any) -> list[tuple[float, bool, str]]:
    found = operations(episodes, **more)
    assert found.cause is not None
    return list(zip(found.durations_s.tolist(), found.observed.tolist(), [c.value for c in found.cause], strict=True))


def test_placements_are_timed_from_the_previous_placement_and_the_rest_is_a_censored_tail() -> None:
    made = episode('timeout', 100, (10, 'placement'), (25, 'placement'), items=5)
    assert rows(made) == [(10, True, 'placement'), (15, True, 'placement'), (75, False, 'tail')]


def test_no_tail_when_every_item_is_placed_or_lost() -> None:
    made = episode('failure', 40, (10, 'placement'), (30, 'drop_outside'), items=2)
    assert rows(made) == [(10, True, 'placement'), (INF, True, 'drop_outside')]


def test_lost_and_uncollected_items_are_ghosts_and_the_tail_stays_when_items_remain() -> None:
    made = episode('timeout', 90, (20, 'drop_outside'), (30, 'placement'), (90, 'drop_uncollected'), items=4)
    assert rows(made) == [
        (30, True, 'placement'), (INF, True, 'drop_outside'), (INF, True, 'drop_uncollected'), (60, False, 'tail'),
    ]  # fmt: skip


def test_a_safety_stop_ghost_replaces_the_tail() -> None:
    made = episode('safety_stop', 50, (20, 'placement'), (50, 'safety_stop'), items=3)
    assert rows(made) == [(20, True, 'placement'), (INF, True, 'safety_stop')]


def test_a_timeout_is_censored_and_never_infinite() -> None:
    assert rows(episode('timeout', 300, items=10)) == [(300, False, 'tail')]


def test_zero_successes_are_censored_at_the_real_duration_and_keep_their_ghosts() -> None:
    made = episode('timeout', 80, (5, 'drop_outside'), items=3, time_cap_s=90)
    assert rows(made) == [(INF, True, 'drop_outside'), (80, False, 'tail')]


@pytest.mark.parametrize(
    ('flag', 'wanted'), [(True, (INF, True, 'failure')), (False, (12, False, 'tail')), (None, (INF, True, 'failure'))]
)
def test_a_failure_is_a_ghost_unless_the_record_says_that_it_could_be_mended(flag: bool | None, wanted: object) -> None:
    assert rows(episode('failure', 12, is_unrecoverable=flag)) == [wanted]


@pytest.mark.parametrize(
    ('duration_s', 'flag', 'wanted'),
    [
        (12.0, None, (INF, True, 'failure')),
        (12.0, False, (12.0, False, 'tail')),
        (60.0, None, (60.0, False, 'tail')),
        (59.9, None, (59.9, False, 'tail')),  # a control step before the cap
        (60.0, True, (INF, True, 'failure')),
    ],
)
def test_a_failure_at_the_time_cap_is_a_time_out(duration_s: float, flag: bool | None, wanted: object) -> None:
    assert rows(episode('failure', duration_s, is_unrecoverable=flag, time_cap_s=60.0)) == [wanted]


def test_what_was_lost_before_the_cap_is_told_from_what_the_clock_ended() -> None:
    made = [episode('timeout', d, time_cap_s=60.0) for d in (60.0, 20.0)] + [
        episode('timeout', 30.0),
        episode('success', 9.0),
    ]
    found = operations([*made, episode('failure', 5.0, is_unrecoverable=False, time_cap_s=60.0)])
    assert found.lost is not None
    assert found.lost.tolist() == [False, True, False, False, True]


def test_single_operation_hosts_are_the_case_of_one() -> None:
    assert rows(episode('success', 7.5)) == [(7.5, True, 'placement')]
    assert rows(episode('success', 7.5, items=1, items_placed=1)) == [(7.5, True, 'placement')]
    assert rows(episode('timeout', 20)) == [(20, False, 'tail')]
    assert rows(episode('safety_stop', 3)) == [(INF, True, 'safety_stop')]
    assert rows(episode('failure', 9, (8, 'drop_outside'))) == [(INF, True, 'drop_outside')]


def test_a_batch_of_items_costs_its_elapsed_time_once_or_in_shares() -> None:
    made = episode('success', 30, Event(12, EventKind.PLACEMENT, count=3), items=3)
    assert [r[0] for r in rows(made)] == [12, 0, 0]
    assert [r[0] for r in rows(made, batch='share')] == [4, 4, 4]


def test_untimed_losses_are_ghosts_and_untimed_placements_are_refused() -> None:
    assert rows(episode('timeout', 60, items=3, items_placed=0, items_lost=2)) == [
        (INF, True, 'drop_outside'), (INF, True, 'drop_outside'), (60, False, 'tail'),
    ]  # fmt: skip
    with pytest.raises(InputError, match=r'counted but not timed: .* has 2 placed and 1 timed'):
        rows(episode('timeout', 60, (5, 'placement'), items=3, items_placed=2))
    with pytest.raises(InputError, match='the outcome is success but items_placed is 0'):
        rows(episode('success', 60, items=1, items_placed=0))
    with pytest.raises(InputError, match='placed all of 4 items, with no event'):
        rows(episode('success', 60, items=4))


def test_more_placed_and_lost_than_items_is_refused() -> None:
    with pytest.raises(InputError, match='more than items = 2'):
        rows(episode('failure', 60, (5, 'placement'), (9, 'drop_outside'), (11, 'drop_outside'), items=2))


def test_the_record_refuses_bad_episodes_before_they_are_timed() -> None:
    with pytest.raises(RecordError, match='duration_s is -1'):
        episode('timeout', -1)
    with pytest.raises(RecordError, match='duration_s is nan'):
        episode('timeout', math.nan)
    with pytest.raises(RecordError, match='after the end'):
        episode('timeout', 10, (11, 'placement'))
    with pytest.raises(RecordError, match='more than items'):
        episode('success', 10, (1, 'placement'), (2, 'placement'), items=1)


def test_invalid_episodes_are_counted_and_not_scored() -> None:
    found = operations([episode('invalid', 3), episode('timeout', 20), episode('success', 5)])
    assert found.n_invalid == 1
    assert found.n_episodes == 2
    assert found.episode.tolist() == [1, 2]
    assert found.cluster.tolist() == [0, 1]


def test_operations_can_be_made_from_plain_arrays() -> None:
    found = Operations([1.0, INF], [True, True], [0, 4])  # type: ignore[arg-type]
    assert found.n_episodes == 2
    assert found.n_ghosts == 1
    with pytest.raises(InputError, match='no causes'):
        found.count(Cause.TAIL)


def test_strata_fall_back_to_the_task_and_pool_renumbers_episodes() -> None:
    cells = operations_by_stratum([episode('success', 1, stratum='b'), episode('success', 2), episode('timeout', 3)])
    assert list(cells) == ['b', 't']
    pooled = pool(cells)
    assert pooled.cluster.tolist() == [0, 1, 2]
    assert pooled.n_episodes == 3


@given(st.integers(0, 2**32))
def test_times_of_an_episode_add_up_to_its_duration(seed: int) -> None:
    """Placements and the tail share out the episode; ghosts take the rest. No operation is lost or made up."""
    for made in paper_like_cohort(np.random.default_rng(seed), objects=['o'])[::40]:
        found = operations([made])
        finite = found.durations_s[np.isfinite(found.durations_s)]
        assert finite.sum() <= made.duration_s + 1e-9
        if not found.observed.all():
            assert finite.sum() == pytest.approx(made.duration_s)
        assert made.items is not None
        assert found.n_operations <= made.items


def test_a_policy_can_not_be_reference_and_model_at_once() -> None:
    with pytest.raises(InputError, match='is_reference'):
        cohorts([episode('success', 1), episode('success', 2, is_reference=True)])


@pytest.mark.parametrize(
    ('outcome', 'wanted'),
    [
        ('timeout', [(INF, True, 'drop_outside'), (60, False, 'tail')]),
        ('safety_stop', [(INF, True, 'drop_outside'), (INF, True, 'safety_stop')]),
        ('failure', [(INF, True, 'drop_outside')]),
    ],
)
def test_without_a_count_of_items_a_loss_ends_the_episode_only_if_it_failed(outcome: str, wanted: object) -> None:
    """A timeout was working when watching stopped, whatever was dropped on the way."""
    assert rows(episode(outcome, 60, (5, 'drop_outside'))) == wanted


def test_episodes_may_come_from_a_generator_and_nothing_else_is_taken_for_one() -> None:
    made = [episode('timeout', 20), episode('success', 5)]
    assert operations(e for e in made).durations_s.tolist() == [20, 5]
    with pytest.raises(InputError, match='single Episode'):
        operations(made[0])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r'episodes\[1\] is dict'):
        operations([made[0], {}])  # type: ignore[list-item]
