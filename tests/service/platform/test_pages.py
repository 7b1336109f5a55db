"""The platform's pages over HTTP: signing in, what each scope sees, forms that others cannot send, and blinding."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.service.platform.service import PLAN, Service, TestClient, WorkerMoves, make_service

from robotrials.record import Event, EventKind, EventSource, Outcome
from robotrials.service.platform.page.board import ordered
from robotrials.service.platform.page.submission import STREAMS
from robotrials.service.platform.page.visit import COOKIE

SUCCESSES = itertools.repeat(Outcome.SUCCESS)
HTML = {'accept': 'text/html'}
TWO_CELLS = PLAN.replace('episodes_per_cell = 2', 'episodes_per_cell = 3\nstrata = ["cup", "plate"]')


class Visit:
    """A browser: it keeps its cookie, and sends forms as a page of ours does."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        self.client = TestClient(service.client.app, raise_server_exceptions=False, follow_redirects=False)
        if token is not None:
            answer = self.send('/sign-in', token=token, then='/')
            assert answer.status_code == 303, answer.text

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers={**HTML, **headers})

    def page(self, path: str) -> str:
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[-600:])
        return str(answer.text)

    def key(self) -> str:
        found = re.search(r'name="form_key" value="([0-9a-f]{64})"', self.page('/sign-in'))
        return found[1] if found else ''

    def send(self, path: str, *, fields: list[tuple[str, str]] | None = None, **values: str) -> Any:
        body = urlencode([*(fields or []), *values.items()])
        headers = {**HTML, 'content-type': 'application/x-www-form-urlencoded', 'sec-fetch-site': 'same-origin'}
        return self.client.post(path, content=body, headers=headers)

    def do(self, path: str, *, fields: list[tuple[str, str]] | None = None, **values: str) -> Any:
        return self.send(path, fields=fields, form_key=self.key(), **values)


def run(service: Service, token: str, name: str, worker: WorkerMoves, outcomes: Iterator[Outcome] = SUCCESSES) -> str:
    """A submission that has run to its end; its placements are timed."""
    submission = service.submit(token, name)
    while (answer := service.ask('POST', f'/submissions/{submission}/lease', token)).status_code == 200:
        job = worker.job(answer.json()['lease_id'])
        outcome = next(outcomes)
        n_placed = 2 if outcome is Outcome.SUCCESS else 0
        events = [Event(0.5 + 0.7 * n, EventKind.PLACEMENT, EventSource.SENSOR) for n in range(n_placed)]
        data = worker.bundle(job, outcome, events=tuple(events))
        assert worker.upload(answer.json()['lease_id'], data).status_code == 200
        worker.beat()
    service.platform.sweep()
    return submission


# --- signing in


def test_a_token_is_pasted_once_and_becomes_a_cookie_for_pages_alone(service: Service) -> None:
    visit = Visit(service)
    answer = visit.send('/sign-in', token=service.admin, then='/cells')
    assert answer.status_code == 303
    assert answer.headers['location'] == '/cells'
    cookie = answer.headers['set-cookie']
    assert {'HttpOnly', 'SameSite=strict', 'Path=/'} <= {part.strip() for part in cookie.split(';')}
    assert service.admin not in cookie
    assert 'cell' in visit.page('/cells')
    assert visit.client.get('/api/v1/workers').status_code == 401
    assert visit.do('/sign-out').status_code == 303
    assert visit.get('/cells').status_code == 303


def test_signing_out_ends_the_cookie_itself(service: Service) -> None:
    visit, thief = Visit(service, service.admin), Visit(service)
    thief.client.cookies.set(COOKIE, visit.client.cookies[COOKIE])
    assert thief.get('/admin').status_code == 200
    visit.do('/sign-out')
    assert thief.get('/admin').status_code == 303


def test_the_cookie_is_secure_where_the_page_is(service: Service) -> None:
    client = TestClient(service.client.app, base_url='https://lab.example', follow_redirects=False)
    headers = {'content-type': 'application/x-www-form-urlencoded'}
    answer = client.post('/sign-in', content=urlencode({'token': service.admin}), headers=headers)
    assert 'Secure' in answer.headers['set-cookie']


@pytest.mark.parametrize('token', ['', 'tlt_nonsense', 'x' * 5000, "tlt_' OR 1=1 --"])
def test_a_wrong_token_opens_nothing(service: Service, token: str) -> None:
    answer = Visit(service).send('/sign-in', token=token)
    assert answer.status_code == 401
    assert 'That is not a token of this server.' in answer.text
    assert 'set-cookie' not in answer.headers


def test_a_revoked_or_expired_token_ends_its_visits(service: Service) -> None:
    kim = service.token('kim', 'submitter', lives_s=60.0)
    visit = Visit(service, kim)
    assert visit.get('/submissions').status_code == 200
    service.clock.pass_(61.0)
    assert visit.get('/submissions').headers['location'] == '/sign-in?then=%2Fsubmissions'
    other = Visit(service, service.token('kim', 'submitter'))
    service.ok('POST', '/users/kim/disable', service.admin)
    assert other.get('/submissions').status_code == 303


def test_a_visit_ends_by_itself(service: Service) -> None:
    visit = Visit(service, service.admin)
    service.clock.pass_(service.platform.config.sign_in_s + 1)
    assert visit.get('/admin').status_code == 303


@pytest.mark.parametrize('then', ['//elsewhere.example', 'https://elsewhere.example', '/\\elsewhere.example', 'x', ''])
def test_signing_in_leads_nowhere_else(service: Service, then: str) -> None:
    assert Visit(service).send('/sign-in', token=service.admin, then=then).headers['location'] == '/'


# --- forms


def test_a_form_that_is_not_ours_changes_nothing(service: Service) -> None:
    visit = Visit(service, service.admin)
    assert visit.send('/admin/users', name='mallory').status_code == 403
    assert visit.send('/admin/users', name='mallory', form_key='0' * 64).status_code == 403
    elsewhere = {'origin': 'https://elsewhere.example', 'content-type': 'application/x-www-form-urlencoded'}
    body = urlencode({'name': 'mallory', 'form_key': visit.key()})
    assert visit.client.post('/admin/users', content=body, headers=elsewhere).status_code == 403
    cross = {'sec-fetch-site': 'cross-site', 'content-type': 'application/x-www-form-urlencoded'}
    assert visit.client.post('/admin/users', content=body, headers=cross).status_code == 403
    assert visit.client.post('/admin/users', json={'name': 'mallory', 'form_key': visit.key()}).status_code == 422
    assert 'mallory' not in visit.page('/admin')
    assert visit.do('/admin/users', name='mallory').status_code == 303
    assert 'mallory' in visit.page('/admin')


def test_one_visitors_key_is_not_anothers(service: Service) -> None:
    one, two = Visit(service, service.admin), Visit(service, service.admin)
    assert one.send('/admin/users', name='mallory', form_key=two.key()).status_code == 403


def test_every_page_keeps_to_itself(service: Service) -> None:
    service.benchmark()
    visit = Visit(service, service.admin)
    for path in ('/', '/sign-in', '/benchmark/reach', '/submissions', '/cells', '/admin', '/admin/audit', '/nonsense'):
        answer = visit.get(path)
        assert "default-src 'none'" in answer.headers['content-security-policy']
        assert 'unsafe' not in answer.headers['content-security-policy']
        assert answer.headers['cache-control'] == 'no-store'
        assert not re.search(r'(src|href|action)="(https?:)?//', answer.text)
        assert not re.search(r'<script>|style="| on\w+="', answer.text)
        forms = re.findall(r'<form[^>]*method="post".*?</form>', answer.text, re.DOTALL)
        assert all('name="form_key"' in form for form in forms if 'action="/sign-in"' not in form)


def test_what_was_typed_is_text(service: Service) -> None:
    visit = Visit(service, service.admin)
    for path in ('/benchmark/<script>alert(1)</script>', '/benchmark/reach?sort=<b>', '/admin/audit?before=<b>'):
        answer = visit.get(path)
        assert answer.status_code in (404, 422)
        assert '<b>' not in answer.text
        assert '<script>alert' not in answer.text
    answer = visit.do('/admin/benchmarks', name='x', plan='</textarea><b>', mode='open')
    assert answer.status_code == 422
    assert '&lt;/textarea&gt;&lt;b&gt;' in answer.text


# --- scopes

MAY = {
    'reader': {'/', '/benchmark/reach'},
    'submitter': {'/', '/benchmark/reach', '/submissions', '/submission/{mine}'},
    'operator': {'/', '/benchmark/reach', '/cells'},
    'worker': {'/'},
    'admin': {'/', '/benchmark/reach', '/submissions', '/submission/{mine}', '/cells', '/admin', '/admin/audit'},
}
EVERY = sorted(set().union(*MAY.values()))


@pytest.mark.parametrize('scope', sorted(MAY))
def test_a_scope_sees_its_own_pages(service: Service, scope: str) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    mine = service.submit(kim)
    user = 'kim' if scope == 'submitter' else scope
    visit = Visit(service, service.token(user, scope))
    for path in EVERY:
        status = visit.get(path.format(mine=mine)).status_code
        assert status == (200 if path in MAY[scope] else 403), (scope, path)
    nav = set(re.findall(r'href="(/[a-z/]*)"', visit.page('/').partition('<main')[0])) - {'/'}
    assert nav <= MAY[scope]


def test_who_is_not_signed_in_sees_open_leaderboards_if_the_server_says_so(tmp_path: Path) -> None:
    for is_public in (False, True):
        with make_service(tmp_path / f'p{is_public}', public_leaderboards=is_public) as service:
            service.benchmark()
            service.benchmark('secret', mode='trial')
            visit = Visit(service)
            wanted = 200 if is_public else 303
            assert visit.get('/').status_code == wanted
            assert visit.get('/benchmark/reach').status_code == wanted
            assert visit.get('/benchmark/secret').status_code == 303
            assert 'secret' not in visit.get('/').text
            for path in ('/submissions', '/cells', '/admin', '/cells/live'):
                assert visit.get(path).status_code == 303
            assert visit.client.post('/cells/stop').status_code in (401, 422)


def test_another_users_submission_does_not_exist(service: Service) -> None:
    service.benchmark()
    kim, lee = service.token('kim', 'submitter'), service.token('lee', 'submitter')
    worker = service.worker()
    theirs = run(service, lee, 'theirs', worker)
    visit = Visit(service, kim)
    for path in ('', '/live', '/explore/', '/explore/figures'):
        assert visit.get(f'/submission/{theirs}{path}').status_code == 404
    assert visit.do(f'/submission/{theirs}/cancel').status_code == 404
    assert theirs not in visit.page('/benchmark/reach')
    assert theirs in Visit(service, lee).page('/benchmark/reach')


# --- leaderboard and submissions


@pytest.fixture(scope='module')
def raced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two finished policies, one of which fails half of its episodes."""
    with make_service(tmp_path_factory.mktemp('raced') / 'platform') as service:
        service.benchmark(plan=TWO_CELLS)
        kim, worker = service.token('kim', 'submitter'), service.worker()
        run(service, kim, 'good', worker)
        run(service, kim, 'bad', worker, itertools.cycle([Outcome.SUCCESS, Outcome.FAILURE]))
        yield service


def test_a_leaderboard_says_what_the_interface_says(raced: Service) -> None:
    board = raced.ok('GET', '/benchmarks/reach/leaderboard', raced.admin)
    text = Visit(raced, raced.admin).page('/benchmark/reach')
    rows = re.findall(r'<tr><td data-label="group">.*?</tr>', text, re.DOTALL)
    assert [re.search(r'kim/\w+', row)[0] for row in rows] == [row['policy'] for row in board['rows']]  # type: ignore[index]
    for row, told in zip(rows, board['rows'], strict=True):
        success = told['values']['success']
        assert f'<strong>{100 * success["value"]:.0f} %</strong>' in row
        assert f'{100 * success["low"]:.0f} to {100 * success["high"]:.0f}' in row
        assert f'>{told["letters"] or "–"}</span>' in row


def test_columns_sort_either_way_and_what_is_missing_comes_last(raced: Service) -> None:
    visit = Visit(raced, raced.admin)

    def order(query: str) -> list[str]:
        return re.findall(r'>(kim/\w+)</a>', visit.page(f'/benchmark/reach{query}').partition('</table>')[0])

    assert order('?sort=-success') == ['kim/good', 'kim/bad']
    assert order('?sort=success') == ['kim/bad', 'kim/good']
    assert order('?sort=policy') == ['kim/bad', 'kim/good']
    assert 'aria-sort="descending"' in visit.page('/benchmark/reach?sort=-success')
    with raced.platform.database.read() as session:
        from robotrials.service.platform.benchmark import find_benchmark

        board = raced.platform.scores.board(session, find_benchmark(session, 'reach'))
    for sort in ('hrt', '-hrt'):  # nobody has one: the order stays
        assert [row.policy for row in ordered(board, sort)] == [row.policy for row in board.rows]


def test_a_leaderboard_is_filtered_by_the_same_analysis(raced: Service) -> None:
    visit = Visit(raced, raced.admin)
    whole = raced.ok('GET', '/benchmarks/reach/leaderboard?stratum=cup', raced.admin)
    text = visit.page('/benchmark/reach?stratum=cup')
    assert 'value="cup" selected' in text
    for row in whole['rows']:
        assert f'<strong>{100 * row["values"]["success"]["value"]:.0f} %</strong>' in text
    assert visit.get('/benchmark/reach?stratum=spoon').status_code == 422
    assert visit.get('/benchmark/reach?sort=-nonsense').status_code == 422


def test_a_policy_is_submitted_in_the_browser_and_run_from_the_shell(service: Service) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    visit = Visit(service, kim)
    answer = visit.do('/submissions', benchmark='reach', name='mine')
    assert answer.status_code == 303
    page = visit.page(answer.headers['location'])
    assert 'robotrials submit reach --server http://testserver --name mine' in page
    body = {'client_key': 'reach/mine', 'benchmark': 'reach', 'name': 'mine'}
    again = service.ask('POST', '/submissions', kim, body)
    assert again.status_code == 200, 'the shell goes on with the same submission'
    assert f'/submission/{again.json()["id"]}' == answer.headers['location']
    for wrong in ({'benchmark': 'reach', 'name': 'a b'}, {'benchmark': 'nowhere', 'name': 'x'}):
        refused = visit.do('/submissions', **wrong)
        assert refused.status_code == 422
        assert 'role="alert"' in refused.text
    dialled = visit.do('/submissions', benchmark='reach', name='far', address='ws://gpu:8000', wire='openpi')
    assert 'is not among the addresses' in dialled.text
    assert visit.do(answer.headers['location'] + '/cancel').status_code == 303
    assert 'cancelled' in visit.page(answer.headers['location'])


def test_an_open_submission_has_everything_and_its_episodes(raced: Service) -> None:
    kim = raced.token('kim', 'submitter')
    visit = Visit(raced, kim)
    (bad,) = (s['id'] for s in raced.ok('GET', '/submissions', kim) if s['name'] == 'bad')
    page = visit.page(f'/submission/{bad}')
    for heading in ('Scores', 'Chance of success by time', 'By design cell', 'How it fails', 'Episodes'):
        assert f'<h2>{heading}</h2>' in page
    curves = json.loads(re.search(r'data-curve-values>(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert {c['title'] for c in curves} == {'all objects', 'cup', 'plate'}
    links = re.findall(rf'/submission/{bad}/explore/episode/[0-9a-f]+/\d+', page)
    assert len(links) == 6
    episode = visit.page(links[0])
    assert f'data-base="/submission/{bad}/explore"' in episode
    data = visit.client.get(links[0].replace('/episode/', '/data/episode/')).json()
    assert data['facts']['policy'] == 'kim/bad'


def test_an_explorer_reaches_nothing_but_its_own_submission(raced: Service) -> None:
    kim = raced.token('kim', 'submitter')
    visit = Visit(raced, kim)
    ids = {s['name']: s['id'] for s in raced.ok('GET', '/submissions', kim)}
    listed = visit.page(f'/submission/{ids["bad"]}/explore/')
    assert 'kim/good' not in listed
    (theirs, *_) = raced.ok('GET', f'/submissions/{ids["good"]}/episodes', kim)
    key = f'{theirs["episode_id"]}/{theirs["attempt"]}'
    for path in (f'/episode/{key}', f'/data/episode/{key}', '/media/../trial.json', '/media/episodes/x-0/film.mp4'):
        assert visit.get(f'/submission/{ids["bad"]}/explore{path}').status_code in (400, 404)
    media = raced.platform.config.folder / 'stores' / 'reach' / 'media' / 'episodes'
    (own, *_) = raced.ok('GET', f'/submissions/{ids["bad"]}/episodes', kim)
    for episode in (own, theirs):
        folder = media / f'{episode["episode_id"]}-{episode["attempt"]}'
        folder.mkdir(parents=True)
        (folder / 'top.mp4').write_bytes(b'film')
    base = f'/submission/{ids["bad"]}/explore/media/episodes'
    assert visit.get(f'{base}/{own["episode_id"]}-0/top.mp4').status_code == 200
    assert visit.get(f'{base}/{theirs["episode_id"]}-0/top.mp4').status_code == 400
    around = f'{base}/{own["episode_id"]}-0/%2e%2e/{theirs["episode_id"]}-0/top.mp4'
    assert visit.get(around).status_code in (400, 404)


# --- cells


def test_an_operator_drains_stops_and_resumes(service: Service) -> None:
    worker = service.worker()
    visit = Visit(service, service.token('olga', 'operator'))
    for wanted in ('drain', 'stop', 'resume'):
        assert visit.do(f'/cells/{worker.worker_id}/{wanted}').status_code == 303
        assert worker.beat('out_of_service')['commands'] == [wanted]
    assert visit.do('/cells/stop').status_code == 303
    assert worker.beat('out_of_service')['commands'] == ['stop']
    assert 'stopped by an operator' in visit.page('/cells')
    assert visit.do(f'/cells/{worker.worker_id}/explode').status_code == 422
    reader = Visit(service, service.token('ann', 'reader'))
    assert reader.do('/cells/stop').status_code == 403


def test_a_silent_cell_shows_how_long(service: Service) -> None:
    service.worker()
    service.clock.pass_(150.0)
    text = Visit(service, service.admin).page('/cells')
    assert '<dd class="late">2 min ago</dd>' in text


# --- administration


def test_an_admin_looks_after_users_tokens_and_benchmarks(service: Service) -> None:
    visit = Visit(service, service.admin)
    visit.do('/admin/users', name='kim')
    issued = visit.do('/admin/tokens', user='kim', fields=[('scope', 'submitter'), ('scope', 'reader')], days='30')
    assert issued.status_code == 200
    token = re.search(r'tlt_[\w-]{43}', issued.text)[0]  # type: ignore[index]
    assert token not in visit.page('/admin')
    assert service.ask('GET', '/submissions', token).status_code == 200
    (row,) = (t for t in service.ok('GET', '/tokens', service.admin) if t['user'] == 'kim')
    assert row['expires_at'] == service.clock.now + 30 * 86_400
    quota = {'open_submissions': '3', 'submissions_per_day': '4', 'requests_per_minute': '500'}
    assert visit.do('/admin/users/kim/quota', **quota).status_code == 303
    assert visit.do('/admin/users/kim/quota', **{**quota, 'open_submissions': '-1'}).status_code == 422
    (kim,) = (u for u in service.ok('GET', '/users', service.admin) if u['name'] == 'kim')
    assert kim['quota'] == {k: int(v) for k, v in quota.items()}
    assert visit.do('/admin/benchmarks', name='reach', plan=PLAN, mode='trial', arms='2').status_code == 303
    assert visit.do('/admin/benchmarks', name='reach', plan=PLAN, mode='open').status_code == 409
    assert visit.do('/admin/benchmarks/reach/start').status_code == 409
    assert visit.do('/admin/benchmarks/reach/close', again='not-reach').status_code == 422
    assert service.ok('GET', '/benchmarks/reach', service.admin)['state'] == 'collecting'
    assert visit.do('/admin/benchmarks/reach/close', again='reach').status_code == 303
    assert service.ok('GET', '/benchmarks/reach', service.admin)['state'] == 'closed'
    assert visit.do(f'/admin/tokens/{row["id"]}/revoke').status_code == 303
    assert service.ask('GET', '/submissions', token).status_code == 401
    audit = visit.page('/admin/audit?check=yes')
    assert 'The chain is intact' in audit
    for action in ('user.add', 'token.issue', 'token.sign_in', 'user.quota', 'benchmark.close', 'token.revoke'):
        assert action in audit


def test_the_audit_trail_is_turned_page_by_page(service: Service) -> None:
    visit = Visit(service, service.admin)
    for n in range(120):
        service.ask('POST', '/users', service.admin, {'name': f'user-{n}'})
    seen, path = [], '/admin/audit'
    while path:
        text = visit.page(path)
        seen += [int(n) for n in re.findall(r'<tr><td class="n">(\d+)</td>', text)]
        following = re.search(r'href="(/admin/audit\?before=\d+)"', text)
        path = following[1] if following else ''
    assert seen == list(range(len(seen), 0, -1))
    assert len(seen) > 120


# --- blinding

NAMES = ('velvet-otter', 'amber-falcon')


@pytest.fixture(scope='module')
def blinded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, str], WorkerMoves]]:
    with make_service(tmp_path_factory.mktemp('blinded') / 'platform') as service:
        yield service, *begin_blinded(service)


def begin_blinded(service: Service) -> tuple[dict[str, str], WorkerMoves]:
    """A trial under way with two arms of different users, and an open benchmark with an unfinished submission."""
    service.benchmark('trial', mode='trial', arms=2)
    service.benchmark('open')
    worker = service.worker()
    tokens = {'kim': service.token('kim', 'submitter'), 'lee': service.token('lee', 'submitter')}
    arms = {user: service.submit(tokens[user], name, 'trial') for user, name in zip(tokens, NAMES, strict=True)}
    service.submit(tokens['kim'], 'velvet-otter', 'open')
    for number, user in enumerate([*tokens, *tokens, *tokens]):
        lease = service.lease(arms[user], tokens[user])
        if lease is not None and number < 2:
            worker.finish(lease['lease_id'])
        elif lease is not None:
            worker.job(lease['lease_id'])
            worker.beat('busy', lease['lease_id'], step=3)
            break
    service.platform.sweep()
    return arms, worker


def crawl(visit: Visit) -> dict[str, str]:
    """Every page that can be reached from the start, and what it says."""
    seen: dict[str, str] = {}
    wanted = ['/', '/submissions', '/cells', '/admin', '/admin/audit', '/benchmark/trial', '/benchmark/open']
    while wanted:
        path = wanted.pop()
        if path in seen or path.startswith('/static/'):
            continue
        answer = visit.get(path)
        seen[path] = answer.text + str(dict(answer.headers))
        wanted += [p.replace('&amp;', '&') for p in re.findall(r'(?:href|hx-get)="(/[^"#]*)"', answer.text)]
        assert len(seen) < 300
    return seen


def streamed(visit: Visit, path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a live part tells at its first look."""
    monkeypatch.setattr('robotrials.service.platform.page.submission.LONGEST_LOOKS', 1)
    monkeypatch.setattr('robotrials.service.platform.page.submission.LOOK_S', 0.0)
    answer = visit.get(path)
    return str(answer.text) if answer.status_code == 200 else ''


@pytest.mark.parametrize('scope', ['operator', 'worker', 'reader', 'admin'])
def test_nobody_learns_which_policy_runs(blinded: Any, scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page, every live part, and every answer of the interface that this scope gets, without the names."""
    service, arms, worker = blinded
    token = service.token(f'the-{scope}', scope)
    visit = Visit(service, token)
    told = crawl(visit)
    told |= {f'{arm}/live': streamed(visit, f'/submission/{arm}/live', monkeypatch) for arm in arms.values()}
    told['cells/live'] = streamed(visit, '/cells/live', monkeypatch)
    if scope in ('operator', 'admin'):
        assert 'event: queue' in told['cells/live']
        assert re.search(r'arm-[0-9a-f]{8}', told['cells/live'] + told['/cells'])
    paths = service.ok('GET', '/openapi.json')['paths']
    for path, methods in paths.items():
        if 'get' not in methods or (scope == 'admin' and path.startswith('/api/v1/submissions')):
            continue  # an admin's own list says who submitted what; it has no codes
        names = {'name': 'trial', 'submission_id': arms['kim'], 'worker_id': worker.worker_id}
        filled = re.sub(r'\{(\w+)\}', lambda m, names=names: names.get(m[1], 'lea_' + '0' * 20), path)
        told[filled] = service.client.get(filled, headers={'Authorization': f'Bearer {token}'}).text
    told['/metrics'] = service.client.get('/metrics').text
    assert len(told) > 15
    leaks = {(path, name) for path, text in told.items() for name in NAMES if name in text}
    assert leaks == set()
    if scope == 'admin':
        codes = set(re.findall(r'arm-[0-9a-f]{8}', ''.join(t for p, t in told.items() if 'submission' in p)))
        assert not codes, 'a submission is never shown beside its code'


def test_an_owner_sees_progress_and_no_results_until_the_trial_is_closed(service: Service) -> None:
    arms, worker = begin_blinded(service)
    visit = Visit(service, service.token('kim', 'submitter'))
    page = visit.page(f'/submission/{arms["kim"]}')
    assert 'velvet-otter' in page
    assert 'amber-falcon' not in page
    assert 'Results are shown when the trial is closed.' in page
    for word in ('Scores', 'How it fails', 'explore/episode', 'success'):
        assert word not in page.partition('<main')[2]
    assert visit.get(f'/submission/{arms["kim"]}/explore/').status_code == 409
    assert 'blinded until it is closed' in visit.page('/benchmark/trial')
    worker.beat('idle')
    service.clock.pass_(3600.0)
    service.platform.sweep()
    boss = Visit(service, service.admin)
    assert boss.do('/admin/benchmarks/trial/close', again='trial', why='enough seen').status_code == 303
    board = visit.page('/benchmark/trial')
    assert {'kim/velvet-otter', 'lee/amber-falcon'} <= set(re.findall(r'\w+/\w+-\w+', board))
    assert 'Scores' in visit.page(f'/submission/{arms["kim"]}')
    assert visit.get(f'/submission/{arms["kim"]}/explore/').status_code == 200


# --- live parts


def test_a_live_part_ends_with_the_visit(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.worker()
    visit = Visit(service, service.token('olga', 'operator'))
    text = streamed(visit, '/cells/live', monkeypatch)
    assert re.findall(r'^event: (\S+)$', text, re.MULTILINE)[0] == 'queue'
    assert all(line.startswith(('event: ', 'data: ', ': ')) or not line for line in text.splitlines())
    assert STREAMS.n == 0
    monkeypatch.setattr('robotrials.service.platform.page.submission.MOST_STREAMS', 0)
    assert visit.get('/cells/live').status_code == 503
    service.platform.is_draining = True
    monkeypatch.setattr('robotrials.service.platform.page.submission.MOST_STREAMS', 1)
    assert visit.get('/cells/live').text == ''
