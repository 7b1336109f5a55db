from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.actions.server import Answer, chat_answer, serve

from trialist.actions.endpoint import ChatEndpoint, EndpointSettings
from trialist.actions.prompt import Prompt
from trialist.errors import InputError, RigError, SetupError

PROMPT = Prompt('system', ('hello',))


class Script:
    """Answers one after the other, the last one for ever; remembers the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.lock = threading.Lock()

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        with self.lock:
            self.requests.append(json.loads(body))
            self.headers.append(dict(request.headers))
            self.paths.append(request.path)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def settings(url: str, **changes: Any) -> EndpointSettings:
    return EndpointSettings(**{'url': f'{url}/v1', 'model': 'm', 'timeout_s': 5.0, 'first_wait_s': 0.01, **changes})


def test_a_request_is_what_openai_compatible_servers_expect() -> None:
    script = Script(chat_answer('[1]'))
    with serve(script) as url:
        assert ChatEndpoint(settings(url, api_key='k')).ask(PROMPT) == '[1]'
    assert script.paths == ['/v1/chat/completions']
    assert script.headers[0]['Authorization'] == 'Bearer k'
    assert script.requests[0] == {
        'model': 'm', 'temperature': 0.0, 'max_tokens': 256,
        'messages': [{'role': 'system', 'content': 'system'},
                     {'role': 'user', 'content': [{'type': 'text', 'text': 'hello'}]}],
    }  # fmt: skip


def test_rate_limits_and_server_faults_are_retried_with_growing_waits() -> None:
    slept: list[float] = []
    script = Script((429, {'Retry-After': '7'}, b''), (500, {}, b''), (200, {}, b'not json'), chat_answer('[1]'))
    with serve(script) as url:
        endpoint = ChatEndpoint(settings(url, first_wait_s=1.0), sleep=slept.append)
        assert endpoint.ask(PROMPT) == '[1]'
    assert slept == [7.0, 2.0, 4.0]
    assert (endpoint.usage.requests, endpoint.usage.retries) == (1, 3)


def test_a_server_that_never_answers_well_is_a_broken_rig() -> None:
    with serve(Script((503, {}, b''))) as url:
        endpoint = ChatEndpoint(settings(url, retries=2), sleep=lambda _: None)
        with pytest.raises(RigError, match=r'no answer after 3 attempts; the last: 503'):
            endpoint.ask(PROMPT)


def test_a_timeout_is_retried() -> None:
    calls = []

    def slow(request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        calls.append(1)
        if len(calls) == 1:
            time.sleep(0.5)
        return chat_answer('[2]')

    with serve(slow) as url:
        assert ChatEndpoint(settings(url, timeout_s=0.2), sleep=lambda _: None).ask(PROMPT) == '[2]'
    assert len(calls) == 2


def test_a_refused_key_stops_at_once() -> None:
    script = Script((401, {}, b'bad key'))
    with serve(script) as url, pytest.raises(SetupError, match='refuses the key'):
        ChatEndpoint(settings(url)).ask(PROMPT)
    assert len(script.requests) == 1


def test_nobody_listening_is_a_broken_rig() -> None:
    with pytest.raises(RigError, match='no connection'):
        ChatEndpoint(settings('http://127.0.0.1:9', retries=1), sleep=lambda _: None).ask(PROMPT)
    with pytest.raises(InputError, match='wanted an http'):
        ChatEndpoint(settings('localhost'))


def test_an_empty_content_is_an_empty_answer_and_a_foreign_one_a_fault() -> None:
    with serve(Script(chat_answer(None))) as url:
        assert ChatEndpoint(settings(url)).ask(PROMPT) == ''
    with serve(Script((200, {}, b'{"error": "x"}'))) as url, pytest.raises(RigError, match='without choices'):
        ChatEndpoint(settings(url)).ask(PROMPT)


def test_the_cache_answers_the_same_request_once(tmp_path: Path) -> None:
    script = Script(chat_answer('[1]'))
    with serve(script) as url:
        first = ChatEndpoint(settings(url, cache=tmp_path))
        first.ask(PROMPT)
        again = ChatEndpoint(settings(url, cache=tmp_path))
        assert again.ask(PROMPT) == '[1]'
        assert (again.usage.requests, again.usage.cached) == (0, 1)
        again.ask(Prompt('system', ('other',)))
        ChatEndpoint(settings(url, cache=tmp_path, model='other')).ask(PROMPT)
    assert len(script.requests) == 3


def test_the_cost_is_counted_from_tokens_and_unknown_without_prices() -> None:
    with serve(Script(chat_answer('[1]', prompt_tokens=1000, completion_tokens=20))) as url:
        endpoint = ChatEndpoint(settings(url, prompt_price=2.5, completion_price=10.0))
        endpoint.ask(PROMPT)
        endpoint.ask(PROMPT)
        assert endpoint.usage.cost == pytest.approx(2 * (1000 * 2.5 + 20 * 10) / 1e6)
        free = ChatEndpoint(settings(url))
        free.ask(PROMPT)
        assert free.usage.cost is None


def test_the_rate_limit_spaces_requests() -> None:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with serve(Script(chat_answer('[1]'))) as url:
        endpoint = ChatEndpoint(settings(url, requests_per_minute=30), sleep=sleep, clock=lambda: now[0])
        for _ in range(4):
            endpoint.ask(PROMPT)
    assert slept == [2.0, 2.0, 2.0]


def test_a_key_is_not_shown() -> None:
    assert 'secret' not in repr(EndpointSettings(url='http://x', model='m', api_key='secret'))
