"""A submission from its acceptance to the leaderboard, over the REST interface."""

from __future__ import annotations

import itertools

import pytest
import typer
from tests.service.platform.service import Service

from robotrials.cli import submit as submit_command
from robotrials.record import Outcome, read_store
from robotrials.service.platform.bundle import unpack_bundle
from robotrials.service.platform.client import Submitter
from robotrials.service.platform.job import LeaseGuard

SUCCESSES = itertools.repeat(Outcome.SUCCESS)


def test_an_open_submission_is_run_opened_and_ranked(each_service: Service) -> None:
    service = each_service
    service.benchmark()
    kim, lee = service.token('kim', 'submitter'), service.token('lee', 'submitter')
    first, second = service.submit(kim, 'fast'), service.submit(lee, 'slow')
    worker = service.worker()
    lease = service.lease(first, kim)
    assert lease is not None
    claim = LeaseGuard(worker.secret.encode(), worker_id=worker.worker_id).admit(lease['token'], now_s=service.clock())
    assert (claim.lease_id, claim.expires_at) == (lease['lease_id'], lease['expires_at'])
    assert service.lease(first, kim)['lease_id'] == lease['lease_id']  # asked again, given again
    assert service.lease(second, lee) is None
    worker.finish(lease['lease_id'])
    assert service.ok('GET', f'/submissions/{first}', kim)['jobs'] == {'done': 1, 'queued': 1}
    score = service.ok('GET', f'/submissions/{first}/score', kim)
    assert not score['is_open']
    assert score['values'] == {}
    assert score['results'] == []
    service.run_all(first, kim, worker, SUCCESSES)
    service.run_all(second, lee, worker, itertools.repeat(Outcome.FAILURE))
    board = service.ok('GET', '/benchmarks/reach/leaderboard', kim)
    rates = {row['policy']: row['values']['success']['value'] for row in board['rows']}
    assert rates == {'kim/fast': 1.0, 'lee/slow': 0.0}
    score = service.ok('GET', f'/submissions/{first}/score', kim)
    assert score['values']['success']['value'] == 1.0
    assert [r['outcome'] for r in score['results']] == ['success', 'success']
    store = read_store(service.platform.config.folder / 'stores' / 'reach')
    assert sorted(e.policy for e in store.episodes()) == ['kim/fast'] * 2 + ['lee/slow'] * 2
    assert service.ok('GET', '/audit/check', service.admin)['is_whole']


def test_a_score_that_is_about_to_open_says_so_and_the_client_waits_for_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    submission, worker = service.submit(kim, 'fast'), service.worker()
    path = f'/submissions/{submission}/score'
    assert not service.ok('GET', path, kim)['is_due'], 'it still runs'
    intake = service.platform.intake
    with monkeypatch.context() as patched:
        patched.setattr(type(intake), 'open_finished', lambda self: 0)
        service.run_all(submission, kim, worker, SUCCESSES)
        between = service.ok('GET', path, kim)
    assert (between['state'], between['is_due'], between['values']) == ('finished', True, {})
    answers = iter([between, between])

    class Api:
        def get(self, asked: str, *, timeout_s: float) -> tuple[int, object]:
            if (told := next(answers, None)) is None:
                intake.open_finished()
                told = service.ok('GET', asked, kim)
            return 200, told

    client = Submitter('http://127.0.0.1:1', 'token')
    monkeypatch.setattr(client, '_api', Api())
    monkeypatch.setattr('robotrials.service.platform.client.OPENING_S', 0.0)
    score = client.score(submission)
    assert (score['is_due'], score['values']['success']['value']) == (False, 1.0)


def test_every_submission_meets_the_same_start_states(service: Service) -> None:
    service.benchmark()
    worker, starts = service.worker(), []
    for user in ('kim', 'lee'):
        token = service.token(user, 'submitter')
        submission = service.submit(token)
        met = []
        while (answer := service.ask('POST', f'/submissions/{submission}/lease', token)).status_code == 200:
            lease_id = answer.json()['lease_id']
            episode = worker.job(lease_id).planned()
            met.append((episode.task, episode.seed, episode.instance))
            worker.finish(lease_id)
        starts.append(sorted(met))
    assert starts[0] == starts[1]
    assert len(starts[0]) == 2


def test_a_submitter_downloads_own_episodes_once_open(service: Service) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    submission, worker = service.submit(kim), service.worker()
    assert service.ask('GET', f'/submissions/{submission}/episodes', kim).json()['error']['code'] == 'blinded'
    service.run_all(submission, kim, worker, SUCCESSES)
    episodes = service.ok('GET', f'/submissions/{submission}/episodes', kim)
    assert len(episodes) == 2
    path = f'/submissions/{submission}/episodes/{episodes[0]["episode_id"]}/bundle'
    bundle = unpack_bundle(service.ask('GET', path, kim).content)
    assert bundle.episode.episode_id == episodes[0]['episode_id']
    assert bundle.episode.policy == 'kim/mine'


def test_submitting_again_with_the_same_key_is_the_same_submission(each_service: Service) -> None:
    service = each_service
    service.benchmark()
    kim = service.token('kim', 'submitter')
    body = {'client_key': 'k', 'benchmark': 'reach', 'name': 'mine', 'card': {'notes': 'a'}}
    first = service.ask('POST', '/submissions', kim, body)
    again = service.ask('POST', '/submissions', kim, body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()['id'] == again.json()['id']
    other = service.ask('POST', '/submissions', kim, body | {'name': 'other'})
    assert (other.status_code, other.json()['error']['code']) == (409, 'key_taken')
    assert len(service.ok('GET', '/submissions', kim)) == 1


def test_a_name_stands_for_one_policy_from_the_first_client_that_says_what_it_runs(service: Service) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    body = {'client_key': 'k', 'benchmark': 'reach', 'name': 'mine'}
    ids, statuses = [], []
    for fingerprint in ('', 'aa', 'aa', 'bb', ''):  # in a browser, its client, the same again, another policy
        answer = service.ask('POST', '/submissions', kim, body | {'fingerprint': fingerprint})
        statuses.append(answer.status_code)
        ids.append(answer.json().get('id'))
    assert statuses == [201, 200, 200, 409, 409]
    assert len(set(ids[:3])) == 1
    assert 'another policy' in answer.json()['error']['message']


def test_a_mistyped_benchmark_is_told_the_near_name(service: Service) -> None:
    service.benchmark()
    body = {'client_key': 'k', 'benchmark': 'raech', 'name': 'mine'}
    refused = service.ask('POST', '/submissions', service.token('kim', 'submitter'), body)
    assert refused.status_code == 404
    assert refused.json()['error']['message'].startswith("no benchmark named 'raech': did you mean 'reach'?")


def test_a_trial_shows_nothing_until_it_is_closed(each_service: Service) -> None:
    service = each_service
    service.benchmark(mode='trial', arms=2)
    tokens = [service.token(user, 'submitter') for user in ('kim', 'lee')]
    subs = [service.submit(token) for token in tokens]
    assert service.ok('GET', '/benchmarks/reach', tokens[0])['state'] == 'running'
    late = {'client_key': 'x', 'benchmark': 'reach', 'name': 'late'}
    assert service.ask('POST', '/submissions', tokens[0], late).json()['error']['code'] == 'benchmark_closed'
    worker, operator = service.worker(), service.token('olga', 'operator')
    for _ in range(20):
        for sub, token in zip(subs, tokens, strict=True):
            answer = service.ask('POST', f'/submissions/{sub}/lease', token)
            if answer.status_code == 200:
                seen = service.ask('GET', '/workers', operator).text + service.ask('GET', '/queue', operator).text
                assert not any(word in seen for word in ('kim', 'lee', 'mine', *subs))
                worker.finish(answer.json()['lease_id'])
    states = [service.ok('GET', f'/submissions/{s}', t) for s, t in zip(subs, tokens, strict=True)]
    assert [s['state'] for s in states] == ['finished', 'finished']
    assert service.ok('GET', f'/submissions/{subs[0]}/score', tokens[0])['values'] == {}
    assert service.ask('GET', f'/submissions/{subs[0]}/episodes', tokens[0]).json()['error']['code'] == 'blinded'
    board = service.ok('GET', '/benchmarks/reach/leaderboard', operator)
    assert board['rows'] == []
    assert 'blinded' in board['note']
    service.ok('POST', '/benchmarks/reach/close', service.admin, {})
    board = service.ok('GET', '/benchmarks/reach/leaderboard', operator)
    assert sorted(row['policy'] for row in board['rows']) == ['kim/mine', 'lee/mine']
    assert service.ok('GET', f'/submissions/{subs[0]}/score', tokens[0])['values']['success']['value'] == 1.0


def test_a_dialled_submission_wants_an_address_that_is_allowed(service: Service) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    dial = {'use': 'openpi', 'options': {'url': 'ws://gpu-box:8000'}}
    body = {'client_key': 'd', 'benchmark': 'reach', 'name': 'dialled', 'dial': dial}
    assert service.ask('POST', '/submissions', kim, body).json()['error']['code'] == 'bad_dial'


def test_cancelling_frees_the_cell_and_leaves_a_record(service: Service) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    submission, worker = service.submit(kim), service.worker()
    lease = service.lease(submission, kim)
    assert lease is not None
    job = worker.job(lease['lease_id'])
    cancelled = service.ok('POST', f'/submissions/{submission}/cancel', kim)
    assert cancelled['jobs'] == {'cancelled': 1, 'done': 1}  # the one under way has failed
    assert worker.beat('busy', lease['lease_id'])['leases'] == []
    late = worker.upload(lease['lease_id'], worker.bundle(job))
    assert late.status_code == 410
    store = read_store(service.platform.config.folder / 'stores' / 'reach')
    (episode,) = store.episodes(attempts='all')
    assert (episode.outcome, episode.reason) == (Outcome.FAILURE, 'policy withdrawn: cancelled')


def test_a_cancelled_submission_ends_the_command_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ROBOTRIALS_TOKEN', 'tlt_x')
    given = {'server': 'http://127.0.0.1:9', 'name': 'mine', 'policy': 'seek'}
    monkeypatch.setattr(submit_command, '_act', lambda *_, **__: {'state': 'finished'})
    submit_command.submit('reach', **given)
    monkeypatch.setattr(submit_command, '_act', lambda *_, **__: {'state': 'cancelled', 'note': 'no such task'})
    with pytest.raises(typer.Exit) as ended:
        submit_command.submit('reach', **given)
    assert ended.value.exit_code == 1
