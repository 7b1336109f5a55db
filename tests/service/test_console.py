"""The console over HTTP: blinded assignments, each action once, refusals, undo, the stop, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tests.patience import PATIENCE_S
from tests.service.consoles import CAP_S, ITEMS, NAMES, account, action, lab_plan, make_desk, sealed
from tests.service.postgres import free_port
from tests.service.serving import served
from typer.testing import CliRunner

from robotrials.cli.option import full_app
from robotrials.errors import InputError, RigError, StoreError
from robotrials.record import Episode, EventKind, EventSource, Outcome, Store, read_store
from robotrials.record.counted import visible_features
from robotrials.record.verify import verify_store
from robotrials.run.arm_limit import ArmStop, stop_by_command, stop_by_url
from robotrials.run.blinding import Allocation, Arms
from robotrials.run.closing import close_trial
from robotrials.run.engine import open_tasks
from robotrials.run.mark import interrupted_counts
from robotrials.service.console import access_key, create_console
from robotrials.service.console.account import Action
from robotrials.service.console.desk import Desk
from robotrials.service.explorer import create_explorer
from robotrials.service.review import create_review
from robotrials.stats.guess import Guessing, guess_classes


@pytest.fixture
def trial(tmp_path: Path) -> Allocation:
    return sealed(tmp_path / 'sealed')


@pytest.fixture
def desk(trial: Allocation, tmp_path: Path) -> Desk:
    return make_desk(trial.operator_plan, tmp_path / 's')


@pytest.fixture
def client(desk: Desk) -> TestClient:
    return TestClient(create_console(desk))


def first(client: TestClient) -> dict[str, Any]:
    return dict(client.get('/api/state').json()['assignments'][0])


def open_keys(desk: Desk) -> list[str]:
    """Every assignment that is left, which no page is told."""
    _, tasks = open_tasks(desk.context, desk.store, desk._slots)
    return ['{}/{}'.format(*desk.context.planned(t.slot, t.attempt).key) for t in tasks]


def stored(desk: Desk) -> list[Episode]:
    return list(Store.open(desk.store.path).episodes(attempts='all', dropped=True))


def post(client: TestClient, sent: dict[str, Any]) -> Any:
    return client.post('/api/actions', json=sent)


def test_an_assignment_says_what_to_set_up_and_not_who_acts(client: TestClient, trial: Allocation) -> None:
    state = client.get('/api/state').json()
    assert (state['n_valid'], state['n_total']) == (0, 12)
    (shown,) = state['assignments']
    assert shown['code'] not in trial.codes.values(), 'what stands for an arm is for one episode'
    assert shown['object'] in ('spoon', 'towel')
    assert set(shown['labels']) == {'camera_side', 'tote_side'}
    assert (shown['items'], shown['time_cap_s']) == (ITEMS, CAP_S)
    seen = []
    while assignments := client.get('/api/state').json()['assignments']:
        seen += assignments
        post(client, action('record', assignments[0]['key'], account=account()))
    assert len(seen) == 12
    assert len({a['code'] for a in seen}) == 12
    arms = Arms(trial.operator_plan.policies, trial.rotation)
    behind = [arms.entry_of(trial.operator_plan, a['code'])[0] for a in seen]
    assert {c: behind.count(c) for c in behind} == dict.fromkeys(trial.codes.values(), 4)
    human = {code for a, code in zip(seen, behind, strict=True) if a['is_human']}
    assert human == {trial.codes[NAMES[2]]}


def test_nothing_of_what_comes_next_is_told(client: TestClient, desk: Desk) -> None:
    """Neither in an answer, nor while an episode is under way: no code of an assignment ahead."""
    state = client.get('/api/state').json()
    assert len(state['assignments']) == 1
    key = state['assignments'][0]['key']
    post(client, action('draft', key, revision=1, account=account(duration_s=None, label=None)))
    state = client.get('/api/state').json()
    assert state['assignments'] == []
    assert [d['key'] for d in state['drafts']] == [key]
    others = {
        planned.episode_id for slot in desk._slots if (planned := desk.context.planned(slot)).episode_id not in key
    }
    assert len(others) == 11
    assert not any(episode_id in json.dumps(state) for episode_id in others)


@pytest.mark.parametrize('is_sealed', [True, False])
def test_no_page_and_no_answer_names_a_policy_before_closing(tmp_path: Path, is_sealed: bool) -> None:
    plan = sealed(tmp_path / 'sealed').operator_plan if is_sealed else lab_plan(blinding={'secret': 'x' * 16})
    desk = make_desk(plan, tmp_path / 's')
    client = TestClient(create_console(desk))
    key = first(client)['key']
    said = [post(client, action('draft', key, revision=1, account=account())).text]
    said += [post(client, action('record', key, account=account(note='' if is_sealed else f'like {NAMES[0]}'))).text]
    said += [client.get(path).text for path in ('/', '/worker.js', '/api/state', '/static/console.js')]
    if not is_sealed:
        assert NAMES[0] not in stored(desk)[0].reason  # even what an operator guesses is not in the open record
    said += _other_pages(desk)
    assert len(said) == 11
    for name in (*NAMES, 'zebrafinch', 'quokka', 'openpi', 'groot'):
        assert all(name not in text for text in said)


def _other_pages(desk: Desk) -> list[str]:
    """What the explorer and the review say of the same store."""
    store = read_store(desk.store.path)
    path = '{}/{}'.format(*stored(desk)[0].key)
    explorer = TestClient(create_explorer(store))
    review = TestClient(create_review(store, by='ann', everything=True))
    answers = [explorer.get(p) for p in ('/', f'/episode/{path}', f'/data/episode/{path}')]
    answers += [review.get(p) for p in (f'/review/{path}', f'/data/episode/{path}')]
    assert [a.status_code for a in answers] == [200] * 5
    return [a.text for a in answers]


def test_a_record_becomes_one_episode_however_often_it_is_sent(client: TestClient, desk: Desk) -> None:
    sent = action('record', first(client)['key'], account=account(marks=[{'t_s': 4.0, 'kind': 'placement'}]))
    answers = [post(client, sent) for _ in range(3)]
    assert [a.status_code for a in answers] == [200] * 3
    assert len({a.text for a in answers}) == 1
    (episode,) = stored(desk)
    assert episode.outcome is Outcome.SUCCESS
    assert (episode.items, episode.items_placed, episode.items_lost) == (3, 3, 0)
    assert episode.operator == 'kim'
    assert episode.duration_s == 21.5
    assert [(e.t_s, e.kind, e.source) for e in episode.events] == [(4.0, EventKind.PLACEMENT, EventSource.OPERATOR)]
    assert episode.started_at is not None
    assert client.get('/api/state').json()['n_valid'] == 1
    assert verify_store(desk.store.path).is_clean


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({'counts': {'placed': -1, 'source': 4, 'lost': 0}}, 'placed', 'less than none'),
    ({'counts': {'placed': 2, 'source': 0, 'lost': 0}, 'label': 'timeout'}, 'source', '= 2, and there were 3 items'),
    ({'counts': {'placed': 3, 'source': 1, 'lost': 0}}, 'source', '= 4, and there were 3 items'),
    ({'counts': {'placed': 4, 'source': None, 'lost': None}}, 'placed', 'placed = 4, and there were 3 items'),
    ({'counts': {'placed': 2, 'source': 1, 'lost': 0}}, 'placed', 'a success places all 3 items, and 2 are counted'),
    ({'counts': {'placed': 3, 'source': None, 'lost': 0}}, 'source', 'count these too'),
    ({'counts': {'placed': 1, 'source': 1, 'lost': 1}, 'label': 'safety'}, 'placed', '2 placements were marked and 1'),
    ({'marks': [{'t_s': 1.0, 'kind': 'drop_outside'}]}, 'lost', '1 losses were marked and 0 counted'),
    ({'label': 'timeout', 'duration_s': 30.0}, 'label', 'all 3 items are placed: that is a success'),
    ({'counts': {'placed': 2, 'source': 1, 'lost': 0}, 'label': 'timeout'}, 'label', '8.5 s were left'),
    ({'stop': {'t_s': 3.0}}, 'label', 'you stopped the arm'),
    ({'label': None}, 'label', 'say how it ended'),
    ({'duration_s': None}, 'clock', 'the clock still runs'),
    ({'duration_s': 31.0}, 'clock', '31.0 s is more than the time cap of 30 s'),
]  # fmt: skip
ALLOWED: list[dict[str, Any]] = [
    {},
    {'counts': {'placed': 2, 'source': 1, 'lost': 0}, 'label': 'timeout', 'duration_s': 30.0},
    {'counts': {'placed': 2, 'source': 0, 'lost': 1}, 'label': 'timeout'},  # nothing was left to do
    {'counts': {'placed': 2, 'source': 1, 'lost': 0}, 'label': 'safety', 'stop': {'t_s': 21.5, 'confirmed': True}},
    {'counts': {}, 'label': 'fault', 'duration_s': 0.0, 'marks': []},
]


@pytest.mark.parametrize(('change', 'field', 'why'), REFUSED)
def test_what_cannot_be_is_refused_beside_its_field(
    client: TestClient, desk: Desk, change: dict[str, Any], field: str, why: str
) -> None:
    answer = post(client, action('record', first(client)['key'], account=account(**change)))
    assert answer.status_code == 400
    assert answer.json()['field'] == field
    assert why in answer.json()['error']
    assert stored(desk) == []
    assert any(e['kind'] == 'refused' for e in desk.journal.entries)  # what was seen is not lost


@pytest.mark.parametrize('change', ALLOWED)
def test_what_can_be_is_stored(client: TestClient, desk: Desk, change: dict[str, Any]) -> None:
    assert post(client, action('record', first(client)['key'], account=account(**change))).status_code == 200
    assert len(stored(desk)) == 1
    assert verify_store(desk.store.path).is_clean


@pytest.mark.parametrize(
    'change', [{'kind': 'nonsense'}, {'id': 'x'}, {'key': '../../etc'}, {'more': 1}, {'account': {'started_ms': -1}}]
)
def test_what_is_no_action_is_refused(client: TestClient, desk: Desk, change: dict[str, Any]) -> None:
    sent = {**action('record', first(client)['key'], account=account()), **change}
    assert post(client, sent).status_code == 422
    assert stored(desk) == []


def test_a_system_fault_is_invalid_and_run_again_at_the_end_of_its_block(client: TestClient, desk: Desk) -> None:
    key = first(client)['key']
    post(client, action('record', key, account=account(label='fault', counts={}, note='gripper jammed')))
    (episode,) = stored(desk)
    assert episode.outcome is Outcome.INVALID
    assert episode.reason == 'operator: system fault: gripper jammed'
    after = played(client)
    episode_id = key.partition('/')[0]
    assert after[0] != f'{episode_id}/1'  # at the end of its block
    assert f'{episode_id}/1' in after


def played(client: TestClient) -> list[str]:
    """Play the trial to its end; the keys in the order in which they were handed out."""
    keys = []
    while assignments := client.get('/api/state').json()['assignments']:
        keys.append(assignments[0]['key'])
        post(client, action('record', keys[-1], account=account()))
    return keys


@pytest.mark.parametrize('counts', [{'placed': 1}, {'placed': 9, 'source': 9, 'lost': 9}, {}])
def test_a_system_fault_asks_for_no_counts_and_keeps_none(
    client: TestClient, desk: Desk, counts: dict[str, int]
) -> None:
    sent = action('record', first(client)['key'], account=account(label='fault', counts=counts))
    assert post(client, sent).status_code == 200
    (episode,) = stored(desk)
    assert (episode.items_placed, episode.items_lost) == (None, None)


def test_undo_drops_the_last_episode_with_who_and_why_and_offers_it_again(client: TestClient, desk: Desk) -> None:
    key = first(client)['key']
    post(client, action('record', key, account=account()))
    assert post(client, action('undo', key, why=' ')).json()['field'] == 'why'
    sent = action('undo', key, why='wrong object in the tote')
    assert [post(client, sent).status_code for _ in range(2)] == [200, 200]
    edits = [e for rows in desk.store.edits().by_episode.values() for e in rows]
    assert [(e.operation.value, e.by, e.why, e.attempt) for e in edits] == [
        ('drop', 'kim', 'wrong object in the tote', 0)
    ]
    assert key.replace('/0', '/1') in open_keys(desk)
    assert post(client, action('undo', key, why='again')).status_code == 409
    assert post(client, action('record', key, account=account())).status_code == 409
    assert post(client, action('record', key.replace('/0', '/1'), account=account())).status_code == 200
    assert [e.attempt for e in Store.open(desk.store.path).episodes()] == [1]
    assert verify_store(desk.store.path).is_clean


def test_two_windows_cannot_save_one_assignment_twice(client: TestClient, desk: Desk) -> None:
    key = first(client)['key']
    sent = [action('record', key, account=account(duration_s=d)) for d in (20.0, 21.0)]
    answers: list[int] = []
    threads = [threading.Thread(target=lambda s=s: answers.append(post(client, s).status_code)) for s in sent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, 409]
    assert len(stored(desk)) == 1


def test_an_episode_under_way_is_offered_to_whoever_comes_next(
    client: TestClient, desk: Desk, trial: Allocation
) -> None:
    key = first(client)['key']
    sent = action('draft', key, revision=2, account=account(duration_s=None, label=None))
    assert post(client, sent).json() == {'kept': True, 'is_ended': False}
    assert post(client, {**sent, 'revision': 1}).json() == {'kept': False, 'is_ended': False}
    desk.journal.close()
    again = make_desk(trial.operator_plan, desk.store.path)
    (draft,) = again.state()['drafts']
    assert (draft['id'], draft['key'], draft['revision']) == (sent['id'], key, 2)
    assert draft['assignment']['key'] == key
    assert key not in [a['key'] for a in again.state()['assignments']]
    other = TestClient(create_console(again))
    post(other, {**sent, 'kind': 'record', 'account': account(label='fault', counts={})})
    assert again.state()['drafts'] == []
    assert post(other, {**sent, 'revision': 3}).json() == {'kept': False, 'is_ended': True}
    assert [e.outcome for e in stored(again)] == [Outcome.INVALID]


def test_a_start_that_is_undone_is_on_record(client: TestClient, desk: Desk) -> None:
    sent = action('draft', first(client)['key'], revision=1, account=account(duration_s=None))
    post(client, sent)
    assert post(client, {'kind': 'withdraw', 'id': sent['id'], 'key': sent['key']}).status_code == 200
    assert sum(interrupted_counts(desk.store).values()) == 1
    assert first(client)['key'] == sent['key']


def test_a_power_cut_between_journal_and_store_is_made_good(desk: Desk, trial: Allocation) -> None:
    key = desk.state()['assignments'][0]['key']
    sent = action('record', key, account=account())
    desk.journal.add('asked', {**sent, 'revision': 0, 'why': ''})
    with open(desk.journal.path, 'ab') as torn:
        torn.write(b'{"kind": "asked", "bo')
    desk.journal.close()
    again = make_desk(trial.operator_plan, desk.store.path)
    assert len(stored(again)) == 1
    client = TestClient(create_console(again))
    assert post(client, sent).json()['key'] == key
    assert len(stored(again)) == 1
    again.journal.close()
    assert len(stored(make_desk(trial.operator_plan, desk.store.path))) == 1


def test_a_power_cut_between_store_and_answer_stores_nothing_twice(desk: Desk, trial: Allocation) -> None:
    client = TestClient(create_console(desk))
    sent = action('record', first(client)['key'], account=account())
    told = post(client, sent).json()
    desk.journal.close()
    *lines, last = desk.journal.path.read_bytes().splitlines(keepends=True)
    assert json.loads(last)['kind'] == 'answered'
    desk.journal.path.write_bytes(b''.join(lines))
    again = make_desk(trial.operator_plan, desk.store.path)
    assert post(TestClient(create_console(again)), sent).json() == told
    assert len(stored(again)) == 1


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_however_actions_come_each_counts_once(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp('any')
    plan = sealed(folder / 'sealed').operator_plan
    desk = make_desk(plan, folder / 's')
    keys = open_keys(desk)[:3]
    ways: list[dict[str, Any]] = [account(), account(label='fault', counts={})]
    records = [action('record', key, account=data.draw(st.sampled_from(ways))) for key in keys]
    drafts = [{**r, 'kind': 'draft', 'revision': 1} for r in records]
    for sent in data.draw(st.lists(st.sampled_from([*records, *drafts, None]), max_size=8)) + records:
        if sent is None:  # the server is killed
            desk.journal.close()
            desk = make_desk(plan, folder / 's')
        else:
            desk.act(Action.model_validate(sent))
    assert sorted('{}/{}'.format(*e.key) for e in stored(desk)) == sorted(keys)
    assert desk.state()['drafts'] == []
    assert verify_store(desk.store.path).is_clean


def test_what_others_edit_is_seen(client: TestClient, desk: Desk) -> None:
    key = first(client)['key']
    post(client, action('record', key, account=account()))
    assert client.get('/api/state').json()['n_valid'] == 1
    Store.open(desk.store.path).edit(key.partition('/')[0], 'drop', by='lee', why='the camera was covered')
    assert client.get('/api/state').json()['n_valid'] == 0


def test_a_task_without_items_wants_no_counts(tmp_path: Path) -> None:
    plan = sealed(tmp_path / 'sealed', strata=[{'name': 'door'}]).operator_plan
    desk = make_desk(plan, tmp_path / 's')
    client = TestClient(create_console(desk))
    shown = first(client)
    assert (shown['items'], shown['object']) == (None, 'door')
    assert post(client, action('record', shown['key'], account=account(counts={}, marks=[]))).status_code == 200
    assert [(e.outcome, e.items_placed) for e in stored(desk)] == [(Outcome.SUCCESS, None)]


def test_a_damaged_journal_is_named(desk: Desk, trial: Allocation) -> None:
    desk.journal.path.write_text('nonsense\n')
    with pytest.raises(StoreError, match=r'journal\.jsonl line 1'):
        make_desk(trial.operator_plan, desk.store.path)


def test_the_stop_works_while_something_is_being_saved(trial: Allocation, tmp_path: Path) -> None:
    desk = make_desk(trial.operator_plan, tmp_path / 's', stop=lambda: ArmStop(True, 'brakes on'))
    client = TestClient(create_console(desk))
    key = first(client)['key']
    with desk._lock:  # a save that takes for ever
        waiting = [threading.Thread(target=client.get, args=('/api/state',)) for _ in range(3)]
        for thread in waiting:
            thread.start()
        answer = client.post('/api/stop', json={'key': key, 't_s': 3.25})
    for thread in waiting:
        thread.join()
    assert answer.json() == {'confirmed': True, 'told': 'brakes on'}
    (entry,) = [e for e in desk.journal.entries if e['kind'] == 'stop']
    assert (entry['body']['key'], entry['body']['t_s'], entry['body']['by']) == (key, 3.25, 'kim')


def test_a_stop_is_a_safety_stop_by_the_operator(client: TestClient, desk: Desk) -> None:
    counts = {'placed': 1, 'source': 2, 'lost': 0}
    given = account(label='safety', duration_s=7.0, stop={'t_s': 7.0, 'confirmed': False}, counts=counts, marks=[])
    post(client, action('record', first(client)['key'], account=given))
    (episode,) = stored(desk)
    assert episode.outcome is Outcome.SAFETY_STOP
    assert [(e.t_s, e.kind, e.source) for e in episode.events] == [(7.0, EventKind.SAFETY_STOP, EventSource.OPERATOR)]
    assert episode.labels['arm_stop'] == 'not confirmed'


def test_stop_hooks_say_whether_they_were_confirmed(tmp_path: Path) -> None:
    python = sys.executable
    assert stop_by_command(f'{python} -c "print(7)"')() == ArmStop(True, '7')
    failed = stop_by_command(f'{python} -c "raise SystemExit(3)"')()
    assert not failed.is_confirmed
    assert 'exit code 3' in failed.told
    assert not stop_by_command(f'{python} -c "import time; time.sleep(60)"', patience_s=0.3)().is_confirmed
    leaves = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(40)'])"
    assert stop_by_command(f'{python} -c "{leaves}"', patience_s=30.0)().is_confirmed  # it ended; what it left goes on
    gone = tmp_path / 'stop-arm'
    gone.write_text('#!/bin/sh\n')
    gone.chmod(0o700)
    stop = stop_by_command(str(gone))
    gone.unlink()
    assert 'could not be run' in stop().told
    assert not stop_by_url(f'http://127.0.0.1:{free_port()}/stop', patience_s=2.0)().is_confirmed
    with pytest.raises(InputError):
        stop_by_command(' ')


def test_a_stop_that_could_never_work_is_refused_before_the_first_episode(tmp_path: Path) -> None:
    plain = tmp_path / 'notes.txt'
    plain.write_text('no program')
    for command in (str(tmp_path / 'none'), str(plain), 'no-such-program-anywhere now'):
        with pytest.raises(InputError, match='no such program, or not executable; nothing would stop the arm'):
            stop_by_command(command)
    with pytest.raises(InputError, match='wanted a program and its arguments'):
        stop_by_command('stop "arm')
    with pytest.raises(InputError, match="the address that stops the arm: url is 'foo'"):
        stop_by_url('foo')


def test_a_hook_that_raises_is_not_confirmed(trial: Allocation, tmp_path: Path) -> None:
    def broken() -> ArmStop:
        raise ZeroDivisionError

    client = TestClient(create_console(make_desk(trial.operator_plan, tmp_path / 's', stop=broken)))
    assert client.post('/api/stop', json={}).json()['confirmed'] is False


def test_without_the_key_every_request_is_refused(desk: Desk) -> None:
    key = access_key(desk.journal.path.parent)
    assert access_key(desk.journal.path.parent) == key  # a restart keeps it: a phone may have something to send
    app = create_console(desk, key=key)
    stranger = TestClient(app, base_url='http://192.168.0.7:8766')
    for path in ('/', '/worker.js', '/api/state', '/static/console.js', '/?key=wrong', '/nothing'):
        assert stranger.get(path).status_code == 401
    assert stranger.post('/api/stop', json={}).status_code == 401
    assert stranger.get('/', headers={'cookie': 'trialist-console=x'}).status_code == 401
    answer = stranger.get(f'/?key={key}')
    assert answer.status_code == 200
    assert 'httponly' in answer.headers['set-cookie'].lower()
    assert 'samesite=strict' in answer.headers['set-cookie'].lower()
    assert stranger.get('/api/state').status_code == 200
    elsewhere = {'origin': 'http://evil.example', 'sec-fetch-site': 'cross-site'}
    assert stranger.post('/api/stop', json={}, headers=elsewhere).status_code == 403
    local = TestClient(create_console(desk), base_url='http://evil.example')
    assert local.get('/api/state').status_code == 421


def test_a_console_wants_an_operator_a_blinded_plan_and_an_open_trial(trial: Allocation, tmp_path: Path) -> None:
    with pytest.raises(InputError, match='--operator'):
        make_desk(trial.operator_plan, tmp_path / 'a', operator='')
    with pytest.raises(InputError, match='blinding is off'):
        make_desk(lab_plan(blinding={'enabled': False}), tmp_path / 'b')
    make_desk(trial.operator_plan, tmp_path / 'c')
    close_trial(trial.operator_plan, tmp_path / 'c', by='lee', why='test', early=True, allocation=trial)
    with pytest.raises(StoreError, match='closed'):
        make_desk(trial.operator_plan, tmp_path / 'c')


def test_a_trial_that_is_closed_meanwhile_is_refused_before_anything_is_written(
    trial: Allocation, desk: Desk, client: TestClient
) -> None:
    key = first(client)['key']
    close_trial(trial.operator_plan, desk.store.path, by='lee', why='test', early=True, allocation=trial)
    state = client.get('/api/state').json()
    assert (state['assignments'], state['is_over']) == ([], True)
    assert 'closed by lee' in state['stopped']
    head = desk.store.head()
    for kind in ('draft', 'record'):
        answer = post(client, action(kind, key, account=account(), revision=1))
        assert answer.status_code == 409
        assert 'closed by lee' in answer.json()['error']
    assert desk.store.head() == head
    assert verify_store(desk.store.path).is_clean


def test_a_whole_trial_by_console_closes_with_the_person_as_reference(trial: Allocation, tmp_path: Path) -> None:
    desk = make_desk(trial.operator_plan, tmp_path / 's')
    client = TestClient(create_console(desk))
    for _ in range(12):
        post(client, action('record', first(client)['key'], account=account()))
    assert client.get('/api/state').json()['is_over']
    close_trial(trial.operator_plan, tmp_path / 's', by='lee', allocation=trial)
    episodes = list(Store.open(tmp_path / 's').episodes())
    assert {e.policy for e in episodes if e.is_reference} == {NAMES[2]}


def command(*words: str) -> Any:
    return CliRunner().invoke(full_app(), ['console', *words, '--no-browser'])


def test_the_command_opens_the_operators_page_of_a_platform(tmp_path: Path) -> None:
    platform = FastAPI()

    @platform.get('/healthz')
    def health() -> dict[str, str]:
        return {'status': 'ok'}

    with served(platform) as address:
        told = command(address)
        assert (told.exit_code, told.output) == (0, f'{address}/cells\n')
    for target in (address, f'http://127.0.0.1:{free_port()}'):
        assert isinstance(command(target).exception, RigError)


def test_the_command_wants_a_plan_that_it_can_know(trial: Allocation, tmp_path: Path) -> None:
    store = str(tmp_path / 'new')
    assert 'no store yet; give the plan' in str(command(store, '--operator', 'kim').exception)
    open_plan = lab_plan(blinding={'secret': 'x' * 16})
    make_desk(open_plan, tmp_path / 'new')
    assert 'does not hold its whole plan' in str(command(store, '--operator', 'kim').exception)
    make_desk(trial.operator_plan, tmp_path / 'sealed-store')
    sealed_store, arms = str(tmp_path / 'sealed-store'), ('--arms', str(tmp_path / 'sealed' / 'arms.json'))
    assert '--arms arms.json' in str(command(sealed_store, '--operator', 'kim').exception)
    told = command(sealed_store, *arms)  # it holds its plan; all that is missing is who
    assert '--operator' in str(told.exception)
    hooks = ('--stop-command', 'x', '--stop-url', 'http://127.0.0.1:1/')
    assert 'found both' in str(command(sealed_store, *arms, *hooks).exception)


def start(store: Path, plan: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, '-m', 'robotrials.cli', 'console', str(store), '--plan', str(plan), '--operator', 'kim',
               '--arms', str(plan.with_name('arms.json')),
               '--port', str(port), '--no-browser', '--stop-command', f'{sys.executable} -c "print(1)"']  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            ask(port, '/api/state')
            return server
        except OSError:
            time.sleep(0.1)
    server.kill()
    raise AssertionError(f'the console did not start: {server.wait()}')


def ask(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f'http://127.0.0.1:{port}{path}', data, {'content-type': 'application/json'})
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def test_a_killed_server_resumes_the_episode_under_way(tmp_path: Path) -> None:
    sealed(tmp_path / 'sealed')
    plan, store, port = tmp_path / 'sealed' / 'operator.json', tmp_path / 's', free_port()
    server = start(store, plan, port)
    try:
        record = action('record', ask(port, '/api/state')['assignments'][0]['key'], account=account())
        ask(port, '/api/actions', record)
        second = ask(port, '/api/state')['assignments'][0]['key']
        draft = action('draft', second, revision=4, account=account(duration_s=None, label=None))
        ask(port, '/api/actions', draft)
        assert ask(port, '/api/stop', {'key': second, 't_s': 1.0})['confirmed'] is True
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    server = start(store, plan, port)
    try:
        state = ask(port, '/api/state')
        assert [d['id'] for d in state['drafts']] == [draft['id']]
        assert len(state['drafts'][0]['account']['marks']) == 2
        assert state['n_valid'] == 1
        ask(port, '/api/actions', record)
        ask(port, '/api/actions', {**draft, 'kind': 'record', 'account': account()})
        assert ask(port, '/api/state')['n_valid'] == 2
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    assert len(list(Store.open(store).episodes())) == 2
    assert verify_store(store).is_clean


def test_an_assignment_is_tried_no_more_often_than_planned_and_in_order(client: TestClient, desk: Desk) -> None:
    episode_id = first(client)['key'].partition('/')[0]
    fault = account(label='fault', counts={}, marks=[])
    ahead = client.post('/api/actions', json=action('record', f'{episode_id}/7', account=account()))
    assert ahead.status_code == 409
    assert 'not the next' in ahead.json()['error']
    for attempt in range(desk.context.plan.faults.attempts):
        assert client.post('/api/actions', json=action('record', f'{episode_id}/{attempt}', account=fault)).is_success
    again = action('record', f'{episode_id}/{desk.context.plan.faults.attempts}', account=account())
    answer = client.post('/api/actions', json=again)
    assert answer.status_code == 409
    assert 'given up' in answer.json()['error']
    assert not any(e.is_valid for e in desk.store.episodes(attempts='all'))
    assert again['id'] in desk.journal.path.read_text()


@pytest.mark.parametrize('body', ['', '[]', '{"t_s": NaN}', '{"t_s": -1}', '{"key": 3}', '\xff'])
def test_no_request_to_stop_is_refused_for_its_form(desk: Desk, body: str) -> None:
    desk._stop = lambda: ArmStop(True, 'held')
    answer = TestClient(create_console(desk)).post('/api/stop', content=body.encode('latin-1'))
    assert answer.json() == {'confirmed': True, 'told': 'held'}


@pytest.mark.parametrize('note', ['\ud800', float('nan')])
def test_a_body_that_is_no_json_is_named_and_not_repeated(client: TestClient, note: object) -> None:
    body = json.dumps(action('record', first(client)['key'], account=account(note=note)))
    answer = client.post('/api/actions', content=body, headers={'content-type': 'application/json'})
    assert answer.status_code == 422
    assert 'account.note' in answer.json()['error']


@pytest.mark.parametrize('body', [{}, 3, {'key': 3}, {'key': 'x'}])
@pytest.mark.parametrize('kind', ['draft', 'answered'])
def test_a_damaged_journal_is_named_by_its_line(desk: Desk, kind: str, body: object) -> None:
    desk.journal.path.write_text(json.dumps({'kind': kind, 'at': '', 'body': body}) + '\n')
    with pytest.raises(StoreError, match=r'journal\.jsonl line 1: not an entry'):
        make_desk(desk.context.plan, desk.store.path)


# --- guessing

N_GUESSED = 200


def operated(desk: Desk, client: TestClient, *, differ: bool) -> tuple[list[dict[str, float]], list[str]]:
    """Run a trial to its end; what the operator sees of each episode, as numbers, and what stands for its arm.

    Pages, their sizes and how long they take, the assignment, ids, order and the journal. With `differ` one arm is
    slower, as a planted tell.
    """
    rng = np.random.default_rng(11)
    plan, blinding = desk.context.plan, desk.context.blinding
    behind = Arms(plan.policies, blinding.rotation)
    seen: list[dict[str, float]] = []
    codes: list[str] = []
    while assignments := (state := client.get('/api/state')).json()['assignments']:
        shown = assignments[0]
        code = behind.entry_of(plan, shown['code'])[0]
        slow_s = 6.0 if differ and code == min(plan.policies) else 0.0
        began_ms = round(1_790_000_000_000 + 60_000 * len(seen) + 20_000 * rng.random())
        own: dict[str, float] = {}
        placed = ITEMS if differ else int(rng.integers(ITEMS + 1))
        ended: dict[str, Any] = {
            'duration_s': CAP_S,
            'label': 'timeout',
            'counts': {'placed': placed, 'source': ITEMS - placed, 'lost': 0},
        }
        if placed == ITEMS:
            ended |= {'label': 'success', 'duration_s': 8.0 + 10.0 * rng.random() + slow_s}
        own['size of the state'] = float(len(state.content))
        for name, value in {**shown, **shown['labels']}.items():
            own[f'assignment {name}'] = float(zlib.crc32(str(value).encode()))
            own[f'assignment {name} length'] = float(len(str(value)))
        draft = action('draft', shown['key'], revision=1, account=account(duration_s=None, label=None, marks=[]))
        for kind, sent in (
            ('draft', draft),
            ('record', {**draft, 'kind': 'record', 'account': account(started_ms=began_ms, marks=[], **ended)}),
        ):
            before_s = time.perf_counter()
            answer = post(client, sent)
            assert answer.status_code == 200, answer.text
            own[f'{kind} took'] = time.perf_counter() - before_s
            own[f'{kind} answer'] = float(len(answer.content))
        own['page took'] = page_s(client)
        own['journal'] = float(desk.journal.path.stat().st_size) / (len(seen) + 1)
        seen.append(own)
        codes.append(code)
    return seen, codes


def page_s(client: TestClient) -> float:
    began_s = time.perf_counter()
    assert client.get('/').status_code == 200
    return time.perf_counter() - began_s


def guessed(desk: Desk, seen: list[dict[str, float]], codes: list[str], *, behaviour: bool) -> Guessing:
    """A classifier's guesses of the arm from all that pages said, and from every file that the store has."""
    keys, names, files = visible_features(Store.open(desk.store.path), behaviour=behaviour)
    assert len(keys) == len(seen) == N_GUESSED
    pages = sorted({name for own in seen for name in own})
    values = np.hstack([np.array([[own[name] for name in pages] for own in seen]), files])
    arms = np.array([sorted(set(codes)).index(code) for code in codes])
    return guess_classes(values, arms, names=(*pages, *names), rng=np.random.default_rng(0))


@pytest.mark.study
@pytest.mark.parametrize('differ', [False, True])
def test_the_operator_of_200_episodes_guesses_the_arm_at_chance(tmp_path: Path, differ: bool) -> None:
    """And a tell that is planted in the durations is found by the same guesser: it can see what it looks for."""
    policies = {name: {'use': 'openpi', 'options': {'url': f'ws://{name}:8000'}} for name in NAMES[:2]}
    trial = sealed(tmp_path / 'sealed', policies=policies, reference='', episodes_per_cell=N_GUESSED // 4)
    desk = make_desk(trial.operator_plan, tmp_path / 's')
    seen, codes = operated(desk, TestClient(create_console(desk)), differ=differ)
    guessing = guessed(desk, seen, codes, behaviour=differ)
    print(f'{guessing.n_right} of {guessing.n} right ({guessing.share.low:.2f} to {guessing.share.high:.2f}), best: '
          f'{guessing.telling}')  # fmt: skip
    by_luck = int(binom.ppf(0.999, N_GUESSED, 0.5))
    assert (guessing.n_right > by_luck) == differ
