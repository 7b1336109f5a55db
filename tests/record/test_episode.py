"""The record's types refuse what can't have happened, and say which field."""

from __future__ import annotations

import datetime as dt
import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from robotrials.errors import NotEstimable, RecordError
from robotrials.record import Contacts, Episode, Event, EventKind, Outcome, Trajectory
from robotrials.record.rows import episodes_from_arrow, episodes_to_arrow
from robotrials.testing import strategies


def episode(**changes: object) -> Episode:
    values = {'policy': 'act', 'task': 'pick', 'outcome': Outcome.SUCCESS, 'duration_s': 10.0, **changes}
    return Episode(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ('changes', 'field'),
    [
        ({'duration_s': -2.0}, 'duration_s is -2.0, wanted'),
        ({'duration_s': math.nan}, 'duration_s is nan'),
        ({'duration_s': math.inf}, 'duration_s is inf'),
        ({'policy': ''}, 'policy is empty'),
        ({'task': ''}, 'task is empty'),
        ({'outcome': 'won'}, "outcome is 'won', wanted one of: success, failure, timeout, safety_stop, invalid"),
        ({'time_cap_s': 0.0}, 'time_cap_s'),
        ({'items': -1}, 'items is -1'),
        ({'items': 2.5}, 'items is 2.5'),
        ({'attempt': -1}, 'attempt'),
        ({'items': 3, 'items_placed': 2, 'items_lost': 2}, 'more than items = 3'),
        ({'score': 6.0, 'max_score': 5.0}, 'score is 6.0'),
        ({'score': math.nan}, 'score is nan'),
        ({'started_at': dt.datetime(2026, 1, 1)}, 'time zone'),
        ({'events': (Event(11.0, EventKind.PLACEMENT),)}, 'after the end'),
        ({'items': 1, 'events': (Event(1.0, 'placement'), Event(2.0, 'placement'))}, '2 placements'),
        ({'items_placed': 1, 'events': (Event(1.0, 'placement', count=2),)}, '2 placements'),
        ({'condition_parameters': {'lux': math.nan}}, "condition_parameters['lux']"),
        ({'labels': {'side': 3}}, "labels['side']"),
    ],
)
def test_an_impossible_episode_is_refused_by_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(RecordError, match=field.replace('[', r'\[').replace(']', r'\]')):
        episode(**changes)


@pytest.mark.parametrize(
    ('arguments', 'field'),
    [
        ((-1.0, 'placement'), 't_s'),
        ((math.nan, 'placement'), 't_s'),
        ((1.0, 'wave'), 'kind is'),
        ((1.0, 'grasp', 'cat'), 'source is'),
    ],
)
def test_an_impossible_event_is_refused_by_field(arguments: tuple[float, str], field: str) -> None:
    with pytest.raises(RecordError, match=field):
        Event(*arguments)  # type: ignore[arg-type]
    with pytest.raises(RecordError, match='count'):
        Event(1.0, EventKind.PLACEMENT, count=0)


@pytest.mark.parametrize(
    ('column', 'wrong'),
    [
        ('duration_s', -2.0), ('duration_s', math.nan), ('duration_s', math.inf), ('policy', ''), ('task', ''),
        ('outcome', 'won'), ('time_cap_s', 0.0), ('attempt', -1), ('steps', -1), ('items', 2), ('items_lost', -1),
        ('score', 6.0), ('score', math.nan), ('seed', -(2**63)), ('condition_parameters', '{"lux": []}'),
        ('labels', '{"n": 1}'), ('labels', '[1]'),
    ],
)  # fmt: skip
def test_one_bad_row_among_many_is_named(column: str, wrong: object) -> None:
    """Many rows are checked by whole columns; a column that breaks a rule is looked at row by row."""
    counts = {'items': 4, 'items_placed': 2, 'items_lost': 1}
    many = [episode(seed=k, score=1.0, max_score=5.0, time_cap_s=20.0, labels={'b': 'x'}, **counts) for k in range(100)]
    table = episodes_to_arrow(many)
    assert [e.replace() for e in many] == episodes_from_arrow(table, {})
    rows = table[column].to_pylist()
    rows[70] = wrong
    at, kind = table.column_names.index(column), table.schema.field(column).type
    with pytest.raises(RecordError, match=f'row 70: .*{column.removesuffix("_lost")}'):
        episodes_from_arrow(table.set_column(at, column, pa.array(rows, kind)), {})


def test_events_are_kept_in_time_order() -> None:
    kept = episode(events=(Event(5.0, EventKind.PLACEMENT), Event(1.0, EventKind.GRASP))).events
    assert [e.t_s for e in kept] == [1.0, 5.0]


def test_an_invalid_episode_and_its_rerun_share_an_id() -> None:
    first = episode(seed=3, outcome=Outcome.INVALID)
    rerun = episode(seed=3, attempt=1, started_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert first.episode_id == rerun.episode_id
    assert first.key != rerun.key


@pytest.mark.parametrize(
    'changes',
    [
        {'trial_id': 'b'}, {'policy': 'b'}, {'benchmark': 'b'}, {'task': 'b'}, {'stratum': 'b'}, {'condition': 'b'},
        {'condition_parameters': {'lux': 3}}, {'seed': 4}, {'instance': 4}, {'repeat': 1},
    ],
)  # fmt: skip
def test_everything_that_makes_a_rollout_another_changes_its_id(changes: dict[str, object]) -> None:
    assert episode(**changes).episode_id != episode().episode_id


def test_the_id_is_the_same_on_every_machine() -> None:
    assert episode(seed=7, condition_parameters={'b': 2, 'a': 1.5}).episode_id == '238ac2ec15d926771213f014'


@given(strategies.episodes())
def test_an_episode_survives_pickling_and_replacing(drawn: Episode) -> None:
    assert pickle.loads(pickle.dumps(drawn)) == drawn
    assert drawn.replace(reason='x').episode_id == drawn.episode_id


@pytest.mark.parametrize(
    ('columns', 'named'),
    [
        ({'ee_pose': np.zeros((3, 6))}, r'ee_pose has shape \(3, 6\), wanted \(3, 7\)'),
        ({'reward': np.zeros(2)}, r'reward has shape \(2,\), wanted \(3,\)'),
        ({'time_s': np.array([0.0, 0.2, 0.1])}, 'strictly increasing'),
        ({'time_s': np.zeros(0)}, 'at least one step'),
        ({'bodies': ('cube',), 'body_pose': np.zeros((3, 2, 7))}, 'body_pose'),
        ({'extra': {'grip': np.zeros(4)}}, 'grip has shape'),
        ({'contacts': Contacts.from_steps([[], []])}, 'contacts cover 2 steps'),
        ({'joint_torque_nm': np.zeros((3, 7)), 'joint_torque_limit_nm': np.zeros(6)}, 'joint_torque_limit_nm'),
    ],
)
def test_a_trajectory_with_shapes_that_disagree_is_refused_by_column(columns: dict[str, object], named: str) -> None:
    with pytest.raises(RecordError, match=named):
        Trajectory(**{'time_s': np.arange(3.0), **columns})  # type: ignore[arg-type]


def test_contacts_come_back_by_step() -> None:
    steps = [[('hand', 'cube', 2.0)], [], [('cube', 'table', 1.0), ('hand', 'cube', 3.0)]]
    contacts = Contacts.from_steps(steps)
    assert [contacts.at(i) for i in range(3)] == steps
    with pytest.raises(RecordError, match='outside'):
        Contacts(('hand',), np.array([0, 1]), np.array([0]), np.array([1]), np.array([1.0]))


def test_a_body_that_was_not_recorded_is_named() -> None:
    with pytest.raises(RecordError, match="body 'cup'"):
        Trajectory(time_s=np.arange(2.0)).body('cup')


def test_a_phase_has_a_name_and_nothing_else_has_one() -> None:
    reach = Event(0.5, EventKind.PHASE, name='reach')
    assert Episode(policy='p', task='t', outcome=Outcome.SUCCESS, duration_s=2.0, events=(reach,)).events == (reach,)
    with pytest.raises(RecordError, match='wanted the name of the phase'):
        Event(0.5, EventKind.PHASE)
    with pytest.raises(RecordError, match='wanted none for an event of kind grasp'):
        Event(0.5, EventKind.GRASP, name='reach')


def test_an_absent_duration_is_a_state_and_never_a_number() -> None:
    bare = Episode(policy='p', task='t', outcome=Outcome.SUCCESS, steps=120)
    assert bare.duration_s is None
    assert bare.is_success
    with pytest.raises(NotEstimable, match=r'has no duration_s.*control rate'):
        _ = bare.known_duration_s
    with pytest.raises(RecordError, match='steps is -1'):
        bare.replace(steps=-1)
