"""The client of chat models: what it sends, what it retries, what it keeps, and how every failure is named."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.measure.actions.server import Answer, chat_answer, serve

from robotrials.errors import InputError, RigError, SetupError
from robotrials.measure.actions.prediction import Invalid
from robotrials.measure.actions.vlm import Prompt, ask_action, chat_settings, prompt_messages
from robotrials.wire.chat import (
    ChatClient,
    ChatFault,
    ChatFaultKind,
    ChatImage,
    ChatMessage,
    ChatReply,
    ChatSettings,
    ReplyState,
)

PROMPT = prompt_messages(Prompt('system', ('hello',)))


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


def settings(url: str, **changes: Any) -> ChatSettings:
    return ChatSettings(**{'url': f'{url}/v1', 'model': 'm', 'timeout_s': 30.0, 'first_wait_s': 0.01, **changes})


def client(url: str, **changes: Any) -> ChatClient:
    return ChatClient(settings(url, **changes), sleep=lambda _: None)


def body(value: object, code: int = 200, **headers: str) -> Answer:
    return code, headers, json.dumps(value).encode()


def message(finish: str = 'stop', **fields: Any) -> Answer:
    return body({'choices': [{'finish_reason': finish, 'message': fields}]})


def test_a_request_is_what_openai_compatible_servers_expect() -> None:
    script = Script(chat_answer('[1]'))
    with serve(script) as url:
        reply = client(url, api_key='k').ask(PROMPT)
    assert (reply.state, reply.text) == (ReplyState.ANSWERED, '[1]')
    assert script.paths == ['/v1/chat/completions']
    assert script.headers[0]['Authorization'] == 'Bearer k'
    assert script.requests[0] == {
        'model': 'm', 'temperature': 0.0, 'max_tokens': 256,
        'messages': [{'role': 'system', 'content': 'system'}, {'role': 'user', 'content': 'hello'}],
    }  # fmt: skip


def test_every_field_of_the_request_can_be_chosen_or_left_out() -> None:
    image = ChatMessage('user', ('look', ChatImage(b'x', 'image/png')))
    asked = ChatClient(settings(
        'http://x', temperature=None, token_limit=9, token_limit_name='max_completion_tokens', image_detail='low',
        system='be brief', system_role='developer', extra={'seed': 3},
    )).request([*PROMPT[:1], image])  # fmt: skip
    told = json.loads(asked)
    assert told['messages'][0] == {'role': 'developer', 'content': 'be brief'}
    assert told['messages'][1]['content'][1] == {
        'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,eA==', 'detail': 'low'},
    }  # fmt: skip
    assert (told['max_completion_tokens'], told['seed']) == (9, 3)
    assert told.keys() == {'model', 'messages', 'max_completion_tokens', 'seed'}
    bare = json.loads(ChatClient(settings('http://x', token_limit=None, system='')).request(PROMPT))
    assert [m['role'] for m in bare['messages']] == ['user']
    assert 'max_tokens' not in bare


def test_the_options_of_a_predictor_are_those_of_the_request() -> None:
    made = chat_settings({
        'url': 'http://x/v1', 'model': 'm', 'token_limit': 'none', 'temperature': 'none', 'image_detail': 'high',
        'system': 'act', 'token_limit_name': 'n', 'system_role': 'developer', 'rpm': '30',
    })  # fmt: skip
    assert (made.token_limit, made.temperature, made.image_detail) == (None, None, 'high')
    assert (made.system, made.token_limit_name, made.system_role, made.requests_per_minute) == (
        'act', 'n', 'developer', 30.0,
    )  # fmt: skip
    for wrong in ({'temperature': 'hot'}, {'retries': '-1'}, {'image_detail': 'huge'}):
        with pytest.raises(InputError, match='wanted'):
            chat_settings({'url': 'http://x', 'model': 'm', **wrong})


def test_rate_limits_and_server_faults_are_retried_with_growing_waits() -> None:
    slept: list[float] = []
    script = Script((429, {'Retry-After': '7'}, b''), (500, {}, b''), (200, {}, b'not json'), chat_answer('[1]'))
    with serve(script) as url:
        asking = ChatClient(settings(url, first_wait_s=1.0), sleep=slept.append)
        assert asking.ask(PROMPT).text == '[1]'
    assert slept == [7.0, 2.0, 4.0]
    assert (asking.usage.requests, asking.usage.retries) == (1, 3)
    assert asking.usage.faults == {'rate_limit': 1, 'server': 1, 'not_json': 1}


def test_a_date_to_come_back_at_is_waited_for_and_nonsense_is_not() -> None:
    slept: list[float] = []
    later = email.utils.format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=20), usegmt=True)
    script = Script((429, {'Retry-After': later}, b''), (429, {'Retry-After': 'soon'}, b''), chat_answer('[1]'))
    with serve(script) as url:
        ChatClient(settings(url, first_wait_s=1.0), sleep=slept.append).ask(PROMPT)
    assert 10 < slept[0] <= 20
    assert slept[1] == 2.0


BROKEN: list[tuple[str, ChatFaultKind, Answer]] = [
    ('half a body', ChatFaultKind.TRUNCATED, (200, {'Content-Length': '5000'}, b'{"choices": [')),
    ('bytes that are no text', ChatFaultKind.NOT_UTF8, (200, {}, b'{"choices": "\xff\xfe"}')),
    ('a web page', ChatFaultKind.NOT_JSON, (200, {}, b'<html>busy</html>')),
    ('nested without end', ChatFaultKind.NOT_JSON, (200, {}, b'[' * 100_000)),
    ('an empty body', ChatFaultKind.NOT_JSON, (200, {}, b'')),
    ('too many requests', ChatFaultKind.RATE_LIMIT, (429, {}, b'{"error": {"message": "slow down"}}')),
    ('an internal error', ChatFaultKind.SERVER, (500, {}, b'oops')),
    ('a gateway', ChatFaultKind.SERVER, (529, {}, b'overloaded')),
    ('a body without choices', ChatFaultKind.NOT_CHAT, body({'error': 'x'})),
    ('a list', ChatFaultKind.NOT_CHAT, body([1])),
    ('no choice', ChatFaultKind.NOT_CHAT, body({'choices': []})),
    ('a choice without a message', ChatFaultKind.NOT_CHAT, body({'choices': [{'text': 'x'}]})),
    ('content that is a number', ChatFaultKind.NOT_CHAT, message(content=3)),
    ('a prompt that is too long', ChatFaultKind.REQUEST, (400, {}, b'{"error": {"code": "context_length_exceeded"}}')),
    ('an unknown field', ChatFaultKind.REQUEST, (422, {}, b'unsupported parameter: max_tokens')),
]


@pytest.mark.parametrize(('what', 'kind', 'answer'), BROKEN, ids=[what for what, _, _ in BROKEN])
def test_every_broken_answer_is_a_named_fault(what: str, kind: ChatFaultKind, answer: Answer) -> None:
    with serve(Script(answer)) as url:
        asking = client(url, retries=1)
        with pytest.raises(ChatFault) as raised:
            asking.ask(PROMPT)
    assert raised.value.kind is kind
    assert isinstance(raised.value, RigError)
    assert sum(asking.usage.faults.values()) == asking.usage.faults[kind.value] > 0


FILTERED = b'{"error": {"code": "content_filter", "message": "The response was filtered"}}'
NAMED: list[tuple[str, Answer, str]] = [
    ('a content filter before the model', (400, {}, FILTERED), 'content_filter'),
    ('a content filter after it', message('content_filter', content='[1'), 'content_filter'),
    ('a refusal', message(content=None, refusal='I cannot control robots'), 'refused'),
    ('a refusal in parts', message(content=[{'type': 'refusal', 'refusal': 'no'}]), 'refused'),
    ('nothing', message(content=None), 'empty'),
    ('a tool call', message('tool_calls', content=None, tool_calls=[{}]), 'empty'),
    ('an answer cut off', message('length', content='[1, 2, '), 'cut_off'),
    ('thoughts cut off', message('length', content='Let me think'), 'cut_off'),
    ('words', message(content='move left'), 'no_list'),
]


@pytest.mark.parametrize(('what', 'answer', 'reason'), NAMED, ids=[what for what, _, _ in NAMED])
def test_what_the_model_or_its_filter_does_is_a_named_invalid_answer(what: str, answer: Answer, reason: str) -> None:
    with serve(Script(answer)) as url:
        asking = client(url, retries=0)
        found = ask_action(asking, Prompt('s', ('p',)), size=1)
    assert isinstance(found, Invalid)
    assert found.reason == reason
    assert asking.usage.faults == {}


@pytest.mark.parametrize(
    'answer',
    [
        message(content=[{'type': 'text', 'text': '[1'}, {'type': 'text', 'text': ', 2]'}]),
        message(content=['[1, 2]']), message('length', content='[1, 2]'),
        message(content=[{'type': 'reasoning', 'summary': []}, {'type': 'output_text', 'text': '[1, 2]'}]),
    ],
)  # fmt: skip
def test_content_in_parts_is_put_together(answer: Answer) -> None:
    with serve(Script(answer)) as url:
        found = ask_action(client(url), Prompt('s', ('p',)), size=2)
    np.testing.assert_array_equal(found, [1, 2])


def test_a_server_that_never_answers_well_is_a_broken_rig() -> None:
    with (
        serve(Script((503, {}, b''))) as url,
        pytest.raises(RigError, match=r'no answer after 3 attempts; the last: 503'),
    ):
        client(url, retries=2).ask(PROMPT)


def slow(first_s: float) -> Callable[[BaseHTTPRequestHandler, bytes], Answer]:
    calls: list[int] = []

    def respond(request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        calls.append(1)
        if len(calls) == 1:
            time.sleep(first_s)
        return chat_answer('[2]')

    return respond


def test_a_timeout_is_retried() -> None:
    with serve(slow(2.0)) as url:
        asking = client(url, timeout_s=1.0)
        assert asking.ask(PROMPT).text == '[2]'
    assert asking.usage.faults == {'timeout': 1}


@pytest.mark.parametrize(('code', 'reason'), [(401, 'refuses the key'), (403, 'refuses the key'), (404, 'the address')])
def test_a_refused_key_or_a_wrong_address_stops_at_once(code: int, reason: str) -> None:
    script = Script((code, {}, b'no'))
    with serve(script) as url, pytest.raises(SetupError, match=reason):
        client(url).ask(PROMPT)
    assert len(script.requests) == 1


def test_nobody_listening_is_a_broken_rig() -> None:
    with pytest.raises(RigError, match='no connection'):
        client('http://127.0.0.1:9', retries=1).ask(PROMPT)
    with pytest.raises(InputError, match='wanted an http'):
        settings('localhost')


def test_the_cache_answers_the_same_request_once(tmp_path: Path) -> None:
    script = Script(chat_answer('[1]'))
    with serve(script) as url:
        client(url, cache=tmp_path).ask(PROMPT)
        again = client(url, cache=tmp_path)
        assert again.ask(PROMPT).text == '[1]'
        assert (again.usage.requests, again.usage.cached) == (0, 1)
        again.ask([ChatMessage('user', ('other',))])
        client(url, cache=tmp_path, model='other').ask(PROMPT)
        client(url, cache=tmp_path, temperature=1.0).ask(PROMPT)
    assert len(script.requests) == 4


def test_what_cannot_be_used_is_not_kept_and_a_damaged_file_is_asked_again(tmp_path: Path) -> None:
    def is_usable(reply: ChatReply) -> bool:
        return reply.text.startswith('[')

    with serve(Script(chat_answer('sorry'), chat_answer('[1]'))) as url:
        asking = client(url, cache=tmp_path)
        assert asking.ask(PROMPT, is_usable=is_usable).text == 'sorry'
        assert not list(tmp_path.rglob('*.json'))
        assert asking.ask(PROMPT, is_usable=is_usable).text == '[1]'
        (kept,) = tmp_path.rglob('*.json')
        kept.write_text('[]')
        assert asking.ask(PROMPT, is_usable=is_usable).text == '[1]'
        assert (asking.usage.requests, asking.usage.cached) == (3, 0)


def test_the_cost_is_counted_from_tokens_and_unknown_without_prices() -> None:
    with serve(Script(chat_answer('[1]', prompt_tokens=1000, completion_tokens=20))) as url:
        asking = client(url, prompt_price=2.5, completion_price=10.0)
        asking.ask(PROMPT)
        asking.ask(PROMPT)
        assert asking.usage.cost == pytest.approx(2 * (1000 * 2.5 + 20 * 10) / 1e6)
        free = client(url)
        free.ask(PROMPT)
        assert free.usage.cost is None
    with serve(Script(body({'choices': [{'message': {'content': 'x'}}], 'usage': {'prompt_tokens': 'many'}}))) as url:
        assert client(url).ask(PROMPT).prompt_tokens == 0


def test_the_rate_limit_spaces_requests() -> None:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with serve(Script(chat_answer('[1]'))) as url:
        asking = ChatClient(settings(url, requests_per_minute=30), sleep=sleep, clock=lambda: now[0])
        for _ in range(4):
            asking.ask(PROMPT)
    assert slept == [2.0, 2.0, 2.0]


def test_a_key_is_not_shown() -> None:
    assert 'secret' not in repr(settings('http://x', api_key='secret'))
