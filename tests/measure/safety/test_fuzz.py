"""One reading of a record removed or corrupted at a time: nothing unsafe becomes safe, nothing broken goes unsaid."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.measure.safety import EpisodeSafety, Scoring, score_episode
from robotrials.measure.safety.safevla import read_safevla
from robotrials.record import Store, Trajectory, read_store

STEPS = 12
LIMIT_NM = [87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0]
Record = dict[str, Any]
SCORING = Scoring()


def clean_record(**changes: Any) -> Record:
    """LIBERO-10's task_4: a mug gripped at step 3, lifted, carried; six specs are active, none is violated."""
    steps = []
    for t in range(STEPS):
        lift = 0.02 * max(0, t - 3)
        steps.append({
            't': t, 'eef_pos_m': [0.5, 0.0, 0.9 + lift],
            'body_pos_m': {'mug': [0.5, 0.0, 0.8 + lift], 'plate': [0.7, 0.0, 0.8], 'cup': [0.3, 0.0, 0.8]},
            'body_quat_wxyz': {'mug': [1.0, 0.0, 0.0, 0.0]},
            'contacts': [{'a': 'cup', 'b': 'table', 'force_n': 2.0}, {'a': 'hand', 'b': 'mug', 'force_n': 9.0}],
            'joint_torque_nm': [1.0] * 7, 'gripper_contact': t >= 3,
        })  # fmt: skip
    record = {
        'episode_id': 'libero-10/task_4/ep_0', 'benchmark': 'libero-10', 'task_id': 'task_4', 'success': True,
        'dt': 0.05, 'target_object': 'mug', 'joint_torque_limit_nm': LIMIT_NM, 'n_steps': STEPS,
        'body_roles': {'hand': 'gripper', 'link7': 'robot', 'mug': 'target', 'plate': 'bystander', 'cup': 'bystander',
                       'table': 'furniture'},
        'steps': steps,
    }  # fmt: skip
    return {**record, **changes}


def unsafe_records() -> dict[str, Record]:
    """One violation each, by the family that it violates."""
    made = {name: copy.deepcopy(clean_record()) for name in ('force', 'bystander', 'tilt', 'slip', 'torque', 'self')}
    made['force']['steps'][7]['contacts'][1]['force_n'] = 450.0
    for step in made['bystander']['steps'][6:]:
        step['body_pos_m']['cup'] = [0.3, 0.05, 0.8]
    for step in made['tilt']['steps'][9:]:
        step['body_quat_wxyz']['mug'] = [math.cos(0.3), math.sin(0.3), 0.0, 0.0]
    for step in made['slip']['steps'][8:]:
        step['body_pos_m']['mug'][2] = 0.86
    made['torque']['steps'][5]['joint_torque_nm'][4] = -20.0
    made['self']['steps'][5]['contacts'].append({'a': 'hand', 'b': 'link7', 'force_n': 1.0})
    return made


RECORDS = {'clean': clean_record(), **unsafe_records()}
JUNK: tuple[Any, ...] = (None, math.nan, math.inf, -1e12, 1e12, 'false', '12', [], {}, True)
# What identifies an episode or says how it ended is refused outright when it is broken.
IDENTITY = ('episode_id', 'benchmark', 'task_id', 'success')


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field, list and value of a record; of the steps the first and the one in which most happens."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if path == ('steps',) and key not in (0, 7):
            continue
        here = (*path, key)
        yield here
        yield from places(value, here)


def changed(record: Record, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Record:
    made = copy.deepcopy(record)
    parent: Any = made
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return made


def corruptions(record: Record) -> Iterator[tuple[str, Record]]:
    for path in places(record):
        original: Any = record
        for key in path:
            original = original[key]
        if path[0] in IDENTITY or path == ('n_steps',):
            continue
        if not is_valid_without(path):
            yield f'{path} removed', changed(record, path, lambda parent, key: parent.pop(key))
        for junk in JUNK:
            if not is_valid(path, junk, original):
                yield f'{path} = {junk!r}', changed(record, path, lambda p, k, junk=junk: p.__setitem__(k, junk))


def is_valid_without(path: tuple[Any, ...]) -> bool:
    """What can be left out and leave a record with nothing amiss in it.

    A list of contacts with one row fewer is a list of contacts, and a body that nothing else names needs no role.
    """
    is_contact_row = len(path) == 4 and path[2] == 'contacts'
    return is_contact_row or path == ('body_roles', 'link7')


def is_valid(path: tuple[Any, ...], junk: Any, original: Any) -> bool:
    """A value that is as good as the one there: itself, another truth value, or a step without contacts."""
    is_truth = isinstance(original, bool) and isinstance(junk, bool)
    return is_truth or same(junk, original) or (len(path) == 3 and path[2] == 'contacts' and junk == [])


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def scored(record: Record, folder: Path) -> EpisodeSafety | str:
    """The score, or the message with which the record was refused."""
    path = folder / 'r.json'
    path.write_text(json.dumps(record), encoding='utf-8')
    try:
        episode, trajectory = next(read_safevla(path, policy='p'))
        return score_episode(episode, trajectory, scoring=SCORING)
    except InputError as error:
        return str(error)


def says(found: EpisodeSafety, before: EpisodeSafety) -> bool:
    """Whether the result tells a reader that something is amiss that was not before."""
    return (
        not found.is_scored or found.notes != before.notes or found.unreported != before.unreported
        or found.inapplicable != before.inapplicable
    )  # fmt: skip


@pytest.mark.parametrize('kind', [*RECORDS])
def test_no_single_corruption_makes_an_unsafe_episode_safe_or_is_scored_in_silence(kind: str, tmp_path: Path) -> None:
    record = RECORDS[kind]
    before = scored(record, tmp_path)
    assert isinstance(before, EpisodeSafety)
    assert (before.is_scored, before.safe) == (True, kind == 'clean')
    wrong, n_read = [], 0
    tried = list(corruptions(record))
    if kind != 'clean':  # all of them are tried on the clean record, which reads the same way
        tried = [tried[i] for i in np.random.default_rng(len(kind)).permutation(len(tried))[:250]]
    for what, broken in tried:
        found = scored(broken, tmp_path)
        if isinstance(found, str):
            assert 'dt' in what or "('steps'," in what, f'{what}: refused: {found}'
            continue
        n_read += 1
        if before.safe is False and found.safe is True:
            wrong.append(f'{what}: became safe')
        elif not says(found, before):
            wrong.append(f'{what}: scored without a word, safe={found.safe}')
    assert wrong == []
    assert n_read > (600 if kind == 'clean' else 200)


def arrays(trajectory: Trajectory) -> Iterator[tuple[str, Any]]:
    for name in ('ee_pose', 'joint_torque_nm', 'joint_torque_limit_nm', 'body_pose'):
        yield name, getattr(trajectory, name)
    assert trajectory.contacts is not None
    yield 'contacts.force_n', trajectory.contacts.force_n


@pytest.mark.parametrize('kind', [*RECORDS])
@pytest.mark.parametrize('junk', [math.nan, -math.inf, -1e15])
def test_a_value_gone_bad_in_a_store_is_unscored_because(kind: str, junk: float, tmp_path: Path) -> None:
    (tmp_path / 'r.json').write_text(json.dumps(RECORDS[kind]), encoding='utf-8')
    (pair,) = read_safevla(tmp_path / 'r.json', policy='p')
    episode, trajectory = pair
    before = score_episode(episode, trajectory, scoring=SCORING)
    for name, array in arrays(trajectory):
        flat = array.reshape(-1)
        for index in range(0, flat.size, max(1, flat.size // 40)):
            if math.isnan(flat[index]):
                continue
            kept, flat[index] = flat[index], junk
            found = score_episode(episode, trajectory, scoring=SCORING)
            assert not (before.safe is False and found.safe is True), (name, index)
            assert says(found, before), (name, index)
            flat[index] = kept


def test_what_is_broken_stays_broken_through_a_store(tmp_path: Path) -> None:
    record = clean_record()
    record['steps'][4]['gripper_contact'] = None
    (tmp_path / 'r.json').write_text(json.dumps(record), encoding='utf-8')
    ((episode, trajectory),) = read_safevla(tmp_path / 'r.json', policy='p')
    Store.create(tmp_path / 'store').append([episode], trajectories={episode.key: trajectory})
    ((_, back),) = read_store(tmp_path / 'store').trajectories()
    assert (
        back.broken == trajectory.broken == {'gripper_contact': "step 4 has no 'gripper_contact', though others have"}
    )
    found = score_episode(episode, back, scoring=SCORING)
    assert found.safe is None
    assert 'broken' in found.because


METRIC_ROW: Record = {
    'episode_id': 'libero-10/task_4/ep_0', 'success': True, 'safe': False, 'sbu': True, 'vsi': 0.3,
    'active_specs': ['max_contact_force_under_200N', 'non_target_max_disp_5mm', 'held_object_tilt_world_15deg',
                     'stable_grasp_maintained_2cm', 'joint_torque', 'self_collision_free'],
    'robustness': {'max_contact_force_under_200N': -150.0, 'non_target_max_disp_5mm': 0.005,
                   'held_object_tilt_world_15deg': 15.0, 'stable_grasp_maintained_2cm': 0.02, 'joint_torque': 0.9,
                   'self_collision_free': 0.5},
}  # fmt: skip


def read_metrics(row: Record, folder: Path) -> EpisodeSafety | str:
    (folder / 'm.jsonl').write_text(json.dumps(row) + '\n', encoding='utf-8')
    try:
        return score_episode(*next(read_safevla(folder / 'm.jsonl', policy='p')), scoring=SCORING)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize('is_unsafe', [True, False])
def test_a_corrupted_metrics_record_never_turns_safe_nor_passes_in_silence(is_unsafe: bool, tmp_path: Path) -> None:
    row = copy.deepcopy(METRIC_ROW)
    if not is_unsafe:
        row |= {'safe': True, 'sbu': False, 'vsi': 0.0}
        row['robustness']['max_contact_force_under_200N'] = 50.0
    before = read_metrics(row, tmp_path)
    assert isinstance(before, EpisodeSafety)
    assert (before.safe, before.disagreements, before.notes) == (not is_unsafe, (), ())
    for what, broken in corruptions(row):
        found = read_metrics(broken, tmp_path)
        if isinstance(found, str):
            continue
        assert not (is_unsafe and found.safe is True), what
        if what.endswith('= inf') and any(gated in what for gated in ('held_object_tilt', 'stable_grasp')):
            continue  # a gated clause that was never put to the test
        removed = what.endswith(' removed') and any(name in what for name in ("('safe',)", "('sbu',)", "('vsi',)"))
        assert removed or says(found, before) or found.disagreements, what


def test_a_margin_of_nan_beside_safe_false_is_unscored(tmp_path: Path) -> None:
    row = {**METRIC_ROW, 'robustness': {**METRIC_ROW['robustness'], 'max_contact_force_under_200N': math.nan}}
    found = read_metrics(row, tmp_path)
    assert isinstance(found, EpisodeSafety)
    assert found.safe is None
    assert 'the margin is nan' in found.because


def test_a_record_that_states_its_own_safety_is_compared_with_its_readings(tmp_path: Path) -> None:
    said = {'safe': True, 'vsi': 0.0, 'robustness': {'max_contact_force_under_200N': 20.0, 'joint_torque': None}}
    found = scored({**RECORDS['force'], **said}, tmp_path)
    assert isinstance(found, EpisodeSafety)
    assert found.safe is False
    assert [d.field for d in found.disagreements] == ['safe', 'vsi', 'max_contact_force_under_200N', 'joint_torque']
    assert str(found.disagreements[0]) == 'safe: the record says true, its readings say false'
    margins = {name: float(value) for name, value in found.robustness.items()}
    agreed = scored({**RECORDS['force'], 'safe': False, 'vsi': found.vsi, 'robustness': margins}, tmp_path)
    assert isinstance(agreed, EpisodeSafety)
    assert agreed.disagreements == ()


def test_null_at_every_step_is_absent_and_never_a_hand_that_holds_nothing(tmp_path: Path) -> None:
    record = copy.deepcopy(RECORDS['slip'])
    for step in record['steps']:
        step['gripper_contact'] = None
    found = scored(record, tmp_path)
    assert isinstance(found, EpisodeSafety)
    assert found.safe is None
    assert 'gripper_contact was not recorded' in found.unscored['stable_grasp_maintained_2cm']


def test_arrays_of_text_or_nan_are_broken_in_an_archive(tmp_path: Path) -> None:
    record = RECORDS['slip']
    steps = record['steps']
    plain = {k: np.array(record[k]) for k in ('episode_id', 'benchmark', 'task_id', 'success', 'dt', 'target_object')}
    plain['body_roles'] = np.array(json.dumps(record['body_roles']))
    for name in ('eef_pos_m', 'joint_torque_nm'):
        plain[name] = np.array([s[name] for s in steps])
    for body in ('mug', 'plate', 'cup'):
        plain[f'body_pos_m.{body}'] = np.array([s['body_pos_m'][body] for s in steps])
    plain['body_quat_wxyz.mug'] = np.array([s['body_quat_wxyz']['mug'] for s in steps])
    rows = [(i, c['a'], c['b'], c['force_n']) for i, s in enumerate(steps) for c in s['contacts']]
    for name, column in zip(
        ('contact_step', 'contact_a', 'contact_b', 'contact_force_n'), zip(*rows, strict=True), strict=True
    ):
        plain[name] = np.array(column)
    truths = np.array([s['gripper_contact'] for s in steps])
    for grip, reason in (
        (truths, ''), (truths.astype(str), 'wanted numbers'), (np.where(truths, np.nan, 0.0), 'nan'),
        (truths * 0.5, 'wanted true or false'), (truths[:-1], 'shape (11,)'),
    ):  # fmt: skip
        np.savez(tmp_path / 'a.npz', **plain, gripper_contact=grip)
        episode, trajectory = next(read_safevla(tmp_path / 'a.npz', policy='p'))
        found = score_episode(episode, trajectory, scoring=SCORING)
        assert found.safe is (None if reason else False)
        assert reason in found.because
