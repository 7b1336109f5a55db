"""The page frame: headers, static files, escaping, and that nothing comes from elsewhere."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
import urllib.request
from importlib import resources

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.patience import PATIENCE_S

from robotrials.errors import InputError
from robotrials.service.frame import Pages, install_frame, listen, serve_locally, static_url

STATIC = resources.files('robotrials.service').joinpath('static')


def client(*, is_local: bool = True) -> TestClient:
    app = FastAPI()
    install_frame(app, is_local=is_local)

    @app.get('/')
    def home():
        return Pages().page('error.html.j2', title='<b>bold</b>', message='a & b')

    @app.post('/change')
    def change():
        return {}

    return TestClient(app)


def test_a_page_is_escaped_and_guarded() -> None:
    answer = client().get('/')
    assert '&lt;b&gt;bold&lt;/b&gt;' in answer.text
    assert "script-src 'self'" in answer.headers['content-security-policy']
    assert 'unsafe' not in answer.headers['content-security-policy']
    assert answer.headers['cache-control'] == 'no-store'
    assert not re.search(r'(src|href)="https?:', answer.text)
    assert not re.search(r'<script>|style="| on\w+="', answer.text)


def test_static_files_are_named_by_their_content() -> None:
    answer = client().get(static_url('frame.css'))
    assert answer.status_code == 200
    assert 'immutable' in answer.headers['cache-control']
    assert client().get('/static/../frame.py').status_code == 404


def test_an_address_that_leads_nowhere_is_told_as_a_page_to_a_person_alone() -> None:
    answer = client().get('/episodes/3f2a', headers={'accept': 'text/html'})
    assert (answer.status_code, answer.headers['content-type']) == (404, 'text/html; charset=utf-8')
    assert '/episodes/3f2a: there is no such page here' in answer.text
    assert client().get('/episodes/3f2a').json() == {'detail': 'Not Found'}


@pytest.mark.parametrize(
    ('headers', 'status'),
    [
        ({}, 200),
        ({'origin': 'http://testserver', 'sec-fetch-site': 'same-origin'}, 200),
        ({'origin': 'http://elsewhere.example'}, 403),
        ({'sec-fetch-site': 'cross-site'}, 403),
    ],
)
def test_another_site_changes_nothing(headers: dict[str, str], status: int) -> None:
    assert client().post('/change', headers=headers).status_code == status


def test_a_local_page_answers_to_this_machine_alone() -> None:
    assert client().get('/', headers={'host': 'elsewhere.example'}).status_code == 421
    assert client().get('/', headers={'host': 'localhost:8000'}).status_code == 200
    assert client(is_local=False).get('/', headers={'host': 'lab.example'}).status_code == 200


def test_vendored_files_are_those_of_the_table() -> None:
    vendor = STATIC.joinpath('vendor')
    rows = re.findall(r'^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$', vendor.joinpath('README.md').read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {f.name for f in vendor.iterdir() if f.name != 'README.md'}
    for name, digest in rows:
        assert hashlib.sha256(vendor.joinpath(name).read_bytes()).hexdigest() == digest, name


def test_the_colours_are_those_of_the_report() -> None:
    page = resources.files('robotrials.show').joinpath('template')
    report, dark = page.joinpath('page.css').read_text(), page.joinpath('dark.css').read_text()
    frame = STATIC.joinpath('frame.css').read_text()
    light = re.findall(r'--[\w-]+: [^;]+;', report.split('@media')[0])
    assert light
    assert all(colour in frame for colour in [*light, *re.findall(r'--[\w-]+: [^;]+;', dark)])


def test_an_address_takes_callers_before_its_pages_are_served() -> None:
    app = FastAPI()
    install_frame(app, is_local=True)
    listener = listen(0)
    port = listener.getsockname()[1]
    answers: list[int] = []

    @app.get('/')
    def home():
        return {}

    def call() -> None:
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/', timeout=PATIENCE_S) as answer:
            answers.append(answer.status)

    with socket.create_connection(('127.0.0.1', port), timeout=PATIENCE_S):
        pass
    caller = threading.Thread(target=call)
    caller.start()
    threading.Thread(target=serve_locally, args=(app, listener), daemon=True).start()
    caller.join(timeout=PATIENCE_S)
    assert answers == [200]


def test_a_port_that_is_taken_is_said_with_what_to_do() -> None:
    with listen(0) as taken, pytest.raises(InputError, match=r'\(Address already in use\); give another --port'):
        listen(taken.getsockname()[1])
    with pytest.raises(InputError, match='wanted 0 to 65535'):
        listen(65536)


def test_the_parts_of_an_answer_do_not_wait_for_each_other() -> None:
    with listen(0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
