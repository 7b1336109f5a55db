"""Who is refused, with which code, and that nothing was changed by it."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import func, select
from tests.service.platform.service import PLAN, Service, registration

from robotrials.service.platform.table import AuditEntry, Base, Token

ID = 'sub_' + '0' * 20
# Every route, with the scopes that may use it.
ROUTES = [
    ('POST', '/submissions', {'submitter', 'admin'}),
    ('GET', '/submissions', {'submitter', 'admin'}),
    ('GET', f'/submissions/{ID}', {'submitter', 'admin'}),
    ('POST', f'/submissions/{ID}/cancel', {'submitter', 'admin'}),
    ('POST', f'/submissions/{ID}/lease', {'submitter', 'admin'}),
    ('GET', f'/submissions/{ID}/score', {'submitter', 'admin'}),
    ('GET', f'/submissions/{ID}/episodes', {'submitter', 'admin'}),
    ('GET', f'/submissions/{ID}/episodes/{"0" * 24}/bundle', {'submitter', 'admin'}),
    ('PUT', f'/submissions/{ID}/priority', {'admin'}),
    ('POST', '/workers', {'worker'}),
    ('POST', f'/workers/{ID}/heartbeat', {'worker'}),
    ('POST', f'/workers/{ID}/next', {'worker'}),
    ('POST', f'/workers/{ID}/stop', {'operator', 'admin'}),
    ('GET', '/workers', {'operator', 'admin'}),
    ('GET', '/queue', {'operator', 'admin'}),
    ('GET', f'/leases/{ID}/job', {'worker'}),
    ('POST', f'/leases/{ID}/result', {'worker'}),
    ('POST', f'/leases/{ID}/fault', {'worker'}),
    ('POST', '/users', {'admin'}),
    ('GET', '/users', {'admin'}),
    ('PUT', '/users/kim/quota', {'admin'}),
    ('POST', '/users/kim/disable', {'admin'}),
    ('POST', '/tokens', {'admin'}),
    ('GET', '/tokens', {'admin'}),
    ('POST', f'/tokens/{ID}/revoke', {'admin'}),
    ('POST', '/benchmarks', {'admin'}),
    ('GET', '/benchmarks', {'admin', 'submitter', 'operator', 'reader'}),
    ('GET', '/benchmarks/reach', {'admin', 'submitter', 'operator', 'reader'}),
    ('GET', '/benchmarks/reach/leaderboard', {'admin', 'submitter', 'operator', 'reader'}),
    ('POST', '/benchmarks/reach/start', {'admin'}),
    ('POST', '/benchmarks/reach/void', {'operator', 'admin'}),
    ('POST', '/benchmarks/reach/close', {'admin'}),
    ('GET', '/audit', {'admin'}),
    ('GET', '/audit/check', {'admin'}),
]
SCOPES = ('admin', 'submitter', 'worker', 'operator', 'reader')


def state_of(service: Service) -> dict[str, int]:
    """How many rows each table has, and where the trail ends."""
    with service.platform.database.read() as session:
        return {
            table.name: session.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.sorted_tables
        }


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()['error']['code']


def test_the_list_of_routes_is_whole(service: Service) -> None:
    described = service.ok('GET', '/openapi.json')['paths']
    n_described = sum(len(methods) for methods in described.values())
    assert n_described == len(ROUTES)


NO_TOKENS = [None, '', 'tlt_', 'tlt_' + 'x' * 43, 'Basic abc', 'tlt_\x00', "tlt_' OR '1'='1"]


def test_without_a_good_token_every_route_is_shut(service: Service) -> None:
    before = state_of(service)
    asked = [(m, p, None) for m, p, _ in ROUTES] + [('GET', '/submissions', token) for token in NO_TOKENS]
    for method, path, token in asked:
        answer = service.ask(method, path, token)
        assert code(answer) == (401, 'no_token'), (method, path)
        assert answer.headers['WWW-Authenticate'] == 'Bearer'
    assert state_of(service) == before


def test_every_route_refuses_every_scope_but_its_own(service: Service) -> None:
    tokens = {scope: service.token(f'u-{scope}', scope) for scope in SCOPES}
    before = state_of(service)
    for method, path, allowed in ROUTES:
        for scope in sorted(set(SCOPES) - allowed):
            assert code(service.ask(method, path, tokens[scope])) == (403, 'wrong_scope'), (method, path, scope)
    assert state_of(service) == before


def test_expired_revoked_and_disabled_tokens_are_refused(service: Service) -> None:
    short = service.token('kim', 'submitter', lives_s=60)
    assert service.ask('GET', '/submissions', short).status_code == 200
    service.clock.pass_(61)
    assert code(service.ask('GET', '/submissions', short)) == (401, 'token_expired')
    other = service.token('kim', 'submitter')
    token_id = service.ok('GET', '/tokens', service.admin)[-1]['id']
    service.ok('POST', f'/tokens/{token_id}/revoke', service.admin)
    assert code(service.ask('GET', '/submissions', other)) == (401, 'token_revoked')
    third = service.token('lee', 'submitter')
    service.ok('POST', '/users/lee/disable', service.admin)
    assert code(service.ask('GET', '/submissions', third)) == (401, 'token_revoked')


def test_a_token_is_stored_hashed_and_never_told_again(service: Service) -> None:
    token = service.token('kim', 'submitter')
    with service.platform.database.read() as session:
        rows = [(t.sha256, t.label, t.id) for t in session.scalars(select(Token))]
        trail = ' '.join(e.detail for e in session.scalars(select(AuditEntry)))
    assert hashlib.sha256(token.encode()).hexdigest() in {sha for sha, _, _ in rows}
    everything = repr(rows) + trail + service.ask('GET', '/tokens', service.admin).text
    assert token not in everything


def test_another_users_submission_does_not_exist(service: Service) -> None:
    service.benchmark()
    kim, lee = service.token('kim', 'submitter'), service.token('lee', 'submitter')
    submission = service.submit(kim)
    before = state_of(service)
    for method, path, allowed in ROUTES:
        if f'/submissions/{ID}' in path and 'submitter' in allowed:
            answer = service.ask(method, path.replace(ID, submission), lee)
            assert code(answer) == (404, 'not_found'), path
    assert service.ok('GET', '/submissions', lee) == []
    assert state_of(service) == before


def test_another_users_worker_and_lease_do_not_exist(service: Service) -> None:
    service.benchmark()
    kim, thief = service.token('kim', 'submitter'), service.token('thief', 'worker')
    submission, worker = service.submit(kim), service.worker()
    lease = service.lease(submission, kim)
    assert lease is not None
    lease_id = lease['lease_id']
    job = worker.job(lease_id)
    assert code(service.ask('GET', f'/leases/{lease_id}/job', thief)) == (404, 'not_found')
    stolen = service.ask('POST', f'/leases/{lease_id}/result', thief, content=worker.bundle(job))
    assert code(stolen) == (404, 'not_found')
    assert code(service.ask('POST', f'/leases/{lease_id}/fault', thief, {'reason': 'x'})) == (404, 'not_found')
    beat = service.ask('POST', f'/workers/{worker.worker_id}/heartbeat', thief, {'state': 'idle'})
    assert code(beat) == (404, 'not_found')
    body = registration(worker.name)
    assert code(service.ask('POST', '/workers', thief, body)) == (409, 'exists')


NAUGHTY = [
    '../../etc/passwd', '..', '.', 'a/b', 'a\\b', '', ' ', "'; DROP TABLE users; --", '" OR 1=1', 'x' * 64, 'ä',
    'a\x00b', 'a\nb', '%00', '<script>',
]  # fmt: skip


def test_names_that_could_be_paths_or_sql_are_refused(service: Service) -> None:
    service.benchmark()
    kim, cells = service.token('kim', 'submitter'), service.token('cells', 'worker')
    before, files = state_of(service), sorted(service.platform.config.folder.rglob('*'))
    for name in NAUGHTY:
        worker = registration(name, address='ws://127.0.0.1:9')
        for path, token, body in (
            ('/users', service.admin, {'name': name}),
            ('/benchmarks', service.admin, {'name': name, 'plan': PLAN}),
            ('/submissions', kim, {'client_key': 'k', 'benchmark': 'reach', 'name': name}),
            ('/submissions', kim, {'client_key': 'k', 'benchmark': name, 'name': 'x'}),
            ('/workers', cells, worker),
        ):
            answer = service.ask('POST', path, token, body)
            assert code(answer) == (422, 'invalid_request'), (path, answer.text)
        asked = quote(name, safe='').replace('.', '%2E')
        for path in (
            (f'/benchmarks/{asked}', f'/submissions/{asked}', f'/benchmarks/{asked}/leaderboard') if name else ()
        ):
            assert service.ask('GET', path, service.admin).status_code in (404, 422), path
    assert state_of(service) == before
    assert sorted(service.platform.config.folder.rglob('*')) == files


def test_sql_metacharacters_in_free_text_are_only_text(each_service: Service) -> None:
    service = each_service
    nasty = "Robert'); DROP TABLE submissions;-- %s :x \\"
    service.benchmark()
    kim, worker = service.token('kim', 'submitter', label=nasty), service.worker()
    service.submit(kim, card={'notes': nasty})
    worker.beat('out_of_service', note=nasty)
    operator = service.token('olga', 'operator')
    assert service.ok('GET', '/workers', operator)[0]['note'] == nasty
    assert nasty in {t['label'] for t in service.ok('GET', '/tokens', service.admin)}
    asked = service.ok('GET', '/benchmarks/reach/leaderboard', operator, params={'task': nasty})
    assert asked['rows'] == []
    assert service.ok('GET', '/audit/check', service.admin)['is_whole']


def test_bodies_past_their_limit_are_refused_as_they_come_in(service: Service) -> None:
    kim = service.token('kim', 'submitter')
    large = b'x' * (service.platform.config.most_body_bytes + 1)
    before = state_of(service)
    assert code(service.ask('POST', '/submissions', kim, content=large)) == (413, 'too_large')

    def chunks() -> Any:
        for _ in range(20):
            yield b'x' * (service.platform.config.most_body_bytes // 10)

    assert code(service.ask('POST', '/submissions', kim, content=chunks())) == (413, 'too_large')
    assert state_of(service) == before


MALFORMED = [b'', b'{', b'null', b'[]', b'"x"', b'{"name": 1}', b'\xff\xfe', b'{"a":' * 5000, b'{"name": NaN}']


def test_malformed_bodies_are_refused(service: Service) -> None:
    headers = {'Authorization': f'Bearer {service.admin}', 'Content-Type': 'application/json'}
    before = state_of(service)
    for path, content in itertools.product(('/users', '/tokens', '/benchmarks'), MALFORMED):
        answer = service.client.post(f'/api/v1{path}', content=content, headers=headers)
        assert answer.status_code in (400, 422), (path, answer.text)
        assert 'error' in answer.json()
    assert state_of(service) == before


DIALS: list[tuple[dict[str, Any], str]] = [
    ({'use': 'os:system', 'options': {'url': 'ws://ok:1'}}, 'bad_dial'),
    ({'use': 'function', 'options': {'url': 'ws://ok:1'}}, 'bad_dial'),
    ({'use': 'openpi', 'options': {'url': 'ws://elsewhere:1'}}, 'bad_dial'),
    ({'use': 'openpi', 'options': {'url': 'ws://ok'}}, 'bad_dial'),
    ({'use': 'openpi', 'options': {'url': 'file:///etc/passwd'}}, 'bad_dial'),
    ({'use': 'openpi', 'options': {'url': 'ws://ok:1', 'api_key_variable': 'HOME'}}, 'bad_dial'),
    ({'use': 'openpi', 'options': {'url': 'ws://ok:1', 'answer_timeout_s': 1e9}}, 'bad_dial'),
    ({'use': 'openpi', 'options': {}}, 'bad_dial'),
    ({'use': 'openpi', 'options': {'url': 'ws://ok:1@elsewhere:1'}}, 'bad_dial'),
]


def test_only_allowed_wires_and_addresses_are_dialled(service: Service) -> None:
    object.__setattr__(service.platform.config.dial, 'allow', ('ok:*',))
    service.benchmark()
    kim = service.token('kim', 'submitter')
    for dial, wanted in DIALS:
        body = {'client_key': 'k', 'benchmark': 'reach', 'name': 'mine', 'dial': dial}
        assert service.ask('POST', '/submissions', kim, body).json()['error']['code'] == wanted
    assert service.ok('GET', '/submissions', kim) == []


BAD_PLANS = [
    ('host = "point-mass"', 'host = "os:system"'),
    ('seed = 11', 'seed = -1'),
    ('seed = 11', 'seed = '),
    ('items = 2', 'itmes = 2'),
    ('time_cap_s = 4.0', 'time_cap_s = 4.0\nscenes = "independent"'),
    ('episodes_per_cell = 2', 'episodes_per_cell = 900000'),
    ('[analysis]', '[policies.x]\nuse = "seek"\n[analysis]'),
]


def test_a_plan_that_is_none_is_refused_with_why(service: Service) -> None:
    for change in BAD_PLANS:
        answer = service.ask('POST', '/benchmarks', service.admin, {'name': 'b', 'plan': PLAN.replace(*change)})
        assert code(answer) == (422, 'bad_plan')
        assert len(answer.json()['error']['message']) > 10
    assert service.ok('GET', '/benchmarks', service.admin) == []


def test_quotas_and_rates_answer_429_with_when_to_ask_again(service: Service) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    quota = {'open_submissions': 1, 'submissions_per_day': 2, 'requests_per_minute': 100000}
    service.ok('PUT', '/users/kim/quota', service.admin, quota)
    first = service.submit(kim, 'a')
    body = {'client_key': 'b', 'benchmark': 'reach', 'name': 'b'}
    refused = service.ask('POST', '/submissions', kim, body)
    assert code(refused) == (429, 'quota')
    assert int(refused.headers['Retry-After']) >= 1
    service.ok('POST', f'/submissions/{first}/cancel', kim)
    service.ok('POST', f'/submissions/{service.submit(kim, "c")}/cancel', kim)
    assert code(service.ask('POST', '/submissions', kim, body)) == (429, 'quota')
    service.clock.pass_(86_401)
    assert service.ask('POST', '/submissions', kim, body).status_code == 201
    service.ok('PUT', '/users/kim/quota', service.admin, quota | {'requests_per_minute': 6})
    answers = [service.ask('GET', '/submissions', kim) for _ in range(3)]
    refused = next(a for a in answers if a.status_code == 429)
    assert code(refused) == (429, 'too_many_requests')
    assert int(refused.headers['Retry-After']) >= 1


def test_logs_and_metrics_name_nobody(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level('INFO', logger='robotrials.service.platform')
    service.benchmark()
    kim = service.token('zebrafinch', 'submitter')
    submission, worker = service.submit(kim, 'quokka'), service.worker()
    lease = service.lease(submission, kim)
    assert lease is not None
    worker.finish(lease['lease_id'])
    logged = repr(
        [(r.getMessage(), r.__dict__.get('fields')) for r in caplog.records if r.name == 'robotrials.service.platform']
    )
    assert "/submissions/{submission_id}/lease'" in logged
    metrics = service.client.get('/metrics').text
    for word in ('zebrafinch', 'quokka', submission, lease['lease_id'], kim):
        assert word not in logged
        assert word not in metrics
    assert 'trialist_jobs{state="done"} 1.0' in metrics


def test_what_a_worker_is_told_names_no_policy(service: Service) -> None:
    service.benchmark()
    kim = service.token('zebrafinch', 'submitter')
    submission, worker = service.submit(kim, 'quokka', card={'notes': 'okapi'}), service.worker()
    lease = service.lease(submission, kim)
    assert lease is not None
    told = service.ask('GET', f'/leases/{lease["lease_id"]}/job', worker.token).text
    assert not any(word in told for word in ('zebrafinch', 'quokka', 'okapi', submission))
