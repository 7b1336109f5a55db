"""Annotations in a store: laid over, never written over; and what an analysis believes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.measure.annotate.telemetries import ZONES, Grip, telemetry_of

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.annotate import (
    LabelStanding,
    Settings,
    agreements,
    read_zones,
    scan,
    status_of,
    statuses,
    with_marks,
)
from robotrials.measure.annotate.calibrate import read_settings, settings_text
from robotrials.record import Annotation, Episode, Event, EventKind, EventSource, Outcome, Store, Trajectory
from robotrials.record.maintain import merge_stores
from robotrials.record.verify import verify_store
from robotrials.verdict.analysis import analyse
from robotrials.verdict.analysis.labels import label_robustness

ZONE_TABLE = {
    name: {'center_m': [0.5, y_m], 'size_m': [0.3, 0.26]} for name, y_m in (('source', 0.18), ('target', -0.18))
}


def recorded(policy: str, number: int, *, pace_s: float, placed: int = 2) -> tuple[Episode, Trajectory]:
    """What a lab without a simulator has: counts by the operator, telemetry, no times."""
    grips = [Grip(1 + k * pace_s, 2.5 + k * pace_s) for k in range(2)]
    telemetry = telemetry_of(*grips, noise=0.003, seed=number)
    n = len(telemetry.time_s)
    pose = np.concatenate([telemetry.tool_m, np.tile([1.0, 0, 0, 0], (n, 1))], axis=1)
    episode = Episode(
        policy=policy, task='pick', outcome=Outcome.TIMEOUT, duration_s=20.0, time_cap_s=20.0, items=4,
        items_placed=placed, seed=number, instance=number,
    )  # fmt: skip
    return episode, Trajectory(
        time_s=telemetry.time_s, ee_pose=pose, gripper_command=telemetry.command, gripper_position=telemetry.opening
    )


@pytest.fixture
def store(tmp_path) -> Store:
    made = Store.create(tmp_path / 's')
    for policy, pace_s in (('fast', 3.0), ('slow', 7.0)):
        for number in range(6):
            episode, trajectory = recorded(policy, number, pace_s=pace_s, placed=1 if number == 5 else 2)
            made.append([episode], trajectories={episode.key: trajectory})
    return made


def detect(store: Store) -> None:
    store.annotate(scan(store.trajectories(), ZONES))


def review(store: Store, by: str, *, shift_s: float = 0.0) -> None:
    told = []
    for status in statuses(store.episodes(), store.annotations()):
        if status.standing is LabelStanding.WAITING or shift_s:
            n = status.episode.items_placed or 0
            events = tuple(Event(2.6 + 3 * k + shift_s, EventKind.PLACEMENT, EventSource.REVIEWER) for k in range(n))
            told.append(
                Annotation(
                    episode_id=status.episode.episode_id,
                    attempt=0,
                    source=EventSource.REVIEWER,
                    by=by,
                    events=events,
                    count=n,
                )
            )
    store.annotate(told)


def test_agreement_validates_and_the_rest_waits(store: Store) -> None:
    before = list(store.episodes())
    assert {s.standing for s in statuses(before, store.annotations())} == {LabelStanding.NOT_SCANNED}
    detect(store)
    told = statuses(store.episodes(), store.annotations())
    assert [s.standing for s in told].count(LabelStanding.VALIDATED) == 10
    waiting = [s for s in told if s.standing is LabelStanding.WAITING]
    assert [s.why for s in waiting] == ['the detector counts 2, the operator 1'] * 2
    assert list(store.episodes()) == before  # nothing that was recorded has changed


def test_an_analysis_takes_believed_marks_and_says_what_is_missing(store: Store) -> None:
    with pytest.raises(NotEstimable):
        from robotrials.verdict.analysis.selection import present

        present(analyse(store).times)
    detect(store)
    review(store, 'ann')
    ranking = analyse(store).ranking
    assert ranking.order == ('fast', 'slow')  # type: ignore[union-attr]
    marked = [with_marks(e, store.annotations()[e.key]) for e in store.episodes()]
    assert all(sum(v.count for v in e.events) == e.items_placed for e in marked)


def test_streams_are_compared_and_the_easy_one_is_named(store: Store) -> None:
    detect(store)
    review(store, 'ann')
    found = label_robustness(store, n_trials=3)
    assert [s.stream for s in found.streams] == ['all episodes', 'auto-validated', 'reviewed']
    assert found.streams[1].is_same is True
    assert found.n_waiting == 0
    assert [j.n_trials for j in found.jitters] == [3, 3, 3]
    assert 'fast < slow' in found.statement
    assert found == label_robustness(store, n_trials=3)


def test_the_operators_count_is_the_truth(store: Store) -> None:
    detect(store)
    status = next(s for s in statuses(store.episodes(), store.annotations()) if s.standing is LabelStanding.WAITING)
    two = tuple(Event(t, EventKind.PLACEMENT, EventSource.REVIEWER) for t in (2.6, 5.6))
    store.annotate([Annotation(episode_id=status.episode.episode_id, attempt=0, source=EventSource.REVIEWER, by='ann',
                               events=two, count=2)])  # fmt: skip
    again = status_of(status.episode, store.annotations()[status.episode.key])
    assert again.standing is LabelStanding.WAITING
    assert 'settle items_placed' in again.why
    store.edit(status.episode.episode_id, 'set', field='items_placed', value=2, by='ann', why='counted on the film')
    corrected = next(e for e in store.episodes() if e.episode_id == status.episode.episode_id)
    assert status_of(corrected, store.annotations()[corrected.key]).standing is LabelStanding.REVIEWED


def test_an_operator_who_counts_none_is_checked_like_any_other(tmp_path) -> None:
    """PhAIL, Appendix E: every episode in which the two counts differ is reviewed, and none of them drops out."""
    made = Store.create(tmp_path / 's')
    for number in range(4):
        episode, trajectory = recorded('p', number, pace_s=3.0, placed=0 if number < 2 else 2)
        made.append([episode], trajectories={episode.key: trajectory})
    episode, trajectory = recorded('p', 9, pace_s=3.0, placed=0)
    still = dataclasses.replace(trajectory, gripper_command=np.ones(trajectory.n_steps))
    made.append([episode], trajectories={episode.key: still})
    before = [s.standing for s in statuses(made.episodes(), made.annotations())]
    assert before.count(LabelStanding.TIMED) == 3
    detect(made)
    told = {s.episode.instance: s for s in statuses(made.episodes(), made.annotations())}
    assert [told[n].standing for n in (0, 1)] == [LabelStanding.WAITING] * 2
    assert told[0].why == 'the detector counts 2, the operator 0'
    assert told[9].standing is LabelStanding.VALIDATED
    assert label_robustness(made, n_trials=1).streams[0].n_episodes == 5
    assert label_robustness(made, n_trials=1).n_waiting == 0
    review(made, 'ann')
    told = {s.episode.instance: s for s in statuses(made.episodes(), made.annotations())}
    assert told[0].standing is LabelStanding.REVIEWED


def test_bins_that_change_places_follow_the_label(tmp_path) -> None:
    """PhAIL, Appendix G: the outbound tote stands left or right."""
    episode, trajectory = recorded('p', 0, pace_s=3.0)
    (left, right) = (episode.replace(labels={'tote_side': side}) for side in ('left', 'right'))
    zones = dataclasses.replace(ZONES, swapped_when=('tote_side', 'right'))
    told = scan([(left, trajectory), (right, trajectory), (episode, trajectory)], zones)
    assert [a.count for a in told] == [2, 0, None]
    assert 'no label tote_side' in told[2].note
    (tmp_path / 'cell.toml').write_text(settings_text(zones, Settings()))
    assert read_settings(tmp_path / 'cell.toml') == (zones, Settings())
    with pytest.raises(InputError, match='wanted one label'):
        read_zones({**ZONE_TABLE, 'swapped_when': 'right'}, where='cell.toml')
    with pytest.raises(UnknownName, match='swapped_when'):
        read_zones({**ZONE_TABLE, 'swap_when': {'tote_side': 'right'}}, where='cell.toml')


def test_two_reviewers_are_compared(store: Store) -> None:
    with pytest.raises(NotEstimable, match='no two reviewers'):
        agreements(store.annotations())
    detect(store)
    review(store, 'ann', shift_s=0.0001)
    review(store, 'bob', shift_s=0.2)
    (found,) = agreements(store.annotations())
    assert (found.n_episodes, found.n_counts_agree) == (12, 12)
    assert found.apart_s == pytest.approx(0.2, abs=0.001)
    assert found.kappa == 1.0


def test_annotations_survive_a_merge_and_bad_ones_are_refused(store: Store, tmp_path) -> None:
    episode = next(iter(store.episodes()))
    with pytest.raises(InputError, match='no episode nowhere'):
        store.annotate([Annotation(episode_id='nowhere', attempt=0, source=EventSource.REVIEWER, by='ann')])
    late = (Event(99.0, EventKind.PLACEMENT, EventSource.REVIEWER),)
    with pytest.raises(InputError, match='a mark at 99 s'):
        store.annotate([Annotation(episode_id=episode.episode_id, attempt=0, source=EventSource.REVIEWER, by='ann',
                                   events=late)])  # fmt: skip
    with pytest.raises(InputError, match='source host'):
        Annotation(episode_id='x', attempt=0, source=EventSource.REVIEWER, by='a',
                   events=(Event(1.0, EventKind.PLACEMENT),))  # fmt: skip
    detect(store)
    copy = Store.create(tmp_path / 'copy')
    merge_stores(copy.path, store.path)
    assert copy.annotations() == store.annotations()
    assert verify_store(copy.path).is_clean


def test_an_episode_that_cannot_be_read_waits(tmp_path) -> None:
    made = Store.create(tmp_path / 's')
    episode, _ = recorded('p', 0, pace_s=3.0)
    made.append([episode])
    made.annotate(scan([(episode, None)], ZONES))
    status = status_of(episode, made.annotations()[episode.key])
    assert (status.standing, status.why) == (LabelStanding.WAITING, 'no telemetry was recorded')


def test_an_episode_of_one_operation_is_timed_by_its_end() -> None:
    episode, _ = recorded('p', 0, pace_s=3.0)
    single = episode.replace(items=None, items_placed=None, events=())
    assert status_of(single, []).standing is LabelStanding.TIMED
    assert status_of(single.replace(items=4), []).standing is LabelStanding.WAITING
    assert status_of(single.replace(duration_s=None), []).standing is LabelStanding.WAITING
