"""The one client of chat models: any OpenAI-compatible endpoint, with retries, a rate limit, a cache and a bill.

What comes back is a `ChatReply`, which says whether the model answered, refused, was filtered or was cut off; or a
`ChatFault`, which says what broke on the way. A broken way is never blamed on the model, nor the model on the way.
"""

from __future__ import annotations

import base64
import datetime as dt
import email.utils
import enum
import hashlib
import http.client
import json
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError, SetupError
from robotrials.value import dataclass
from robotrials.wire.array import WireLimits
from robotrials.wire.request import HttpAnswer, HttpLink, proxy_of

LONGEST_WAIT_S = 60.0
LIMITS = WireLimits(max_bytes=16 * 1024 * 1024)  # of an answer
DETAILS = ('', 'auto', 'low', 'high')
FILTER_WORDS = ('content_filter', 'content_policy', 'responsibleaipolicyviolation', 'content management policy')


class ChatFaultKind(enum.StrEnum):
    """What broke between us and the model."""

    CONNECTION = 'connection'  # nobody there, or the connection ended
    TIMEOUT = 'timeout'
    TRUNCATED = 'truncated'  # the body ended before its stated length
    TOO_LONG = 'too_long'  # a body of more than 16 MiB
    NOT_UTF8 = 'not_utf8'
    NOT_JSON = 'not_json'
    NOT_CHAT = 'not_chat'  # JSON, but without choices[0].message
    RATE_LIMIT = 'rate_limit'
    SERVER = 'server'  # 5xx
    REQUEST = 'request'  # the server finds fault with the request (400, 413, 422)


RETRIED = frozenset(ChatFaultKind) - {ChatFaultKind.REQUEST, ChatFaultKind.NOT_CHAT}
RETRIED_STATUS = frozenset({408, 409, 425, 500, 502, 503, 504})


class ChatFault(RigError):  # noqa: N818 - reads as the fact it states
    """The endpoint or the way to it broke; nothing is known about what the model would have said."""

    def __init__(self, kind: ChatFaultKind, message: str, *, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.wait_s = wait_s


class ReplyState(enum.StrEnum):
    ANSWERED = 'answered'
    EMPTY = 'empty'
    REFUSED = 'refused'  # the model says that it will not
    FILTERED = 'filtered'  # a content filter stepped in, before or after the model
    CUT_OFF = 'cut_off'  # the token limit ended the answer


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What the model said, and how it ended."""

    state: ReplyState
    text: str
    detail: str = ''  # the refusal, or what the filter says
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ChatImage:
    """An image of a message, encoded."""

    data: bytes
    media_type: str

    @property
    def url(self) -> str:
        return f'data:{self.media_type};base64,{base64.b64encode(self.data).decode()}'


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message: texts and images in order."""

    role: str
    parts: tuple[str | ChatImage, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What was asked and what it cost; `cost` is None while the price is unknown."""

    requests: int = 0
    cached: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    faults: Mapping[str, int] = field(default_factory=dict)  # attempts that broke, by kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Where the model is and how to ask it. Prices are for a million tokens, in any one currency."""

    url: str  # such as http://127.0.0.1:8000/v1
    model: str
    api_key: str = field(default='', repr=False)
    temperature: float | None = 0.0  # None leaves the field out, for models that take none
    token_limit: int | None = 256
    token_limit_name: str = 'max_tokens'  # or max_completion_tokens
    image_detail: str = ''  # auto, low or high; '' leaves it to the server
    system: str | None = None  # in place of the caller's system text; '' sends none
    system_role: str = 'system'  # or developer
    extra: Mapping[str, Any] = field(default_factory=dict)  # further fields of the request
    timeout_s: float = 60.0  # for a whole attempt
    retries: int = 5
    first_wait_s: float = 1.0
    requests_per_minute: float | None = None
    cache: Path | None = None
    prompt_price: float | None = None
    completion_price: float | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(('http://', 'https://')):
            raise InputError(f'the endpoint is {self.url!r}, wanted an http:// or https:// address ending in /v1')
        if self.image_detail not in DETAILS:
            raise InputError(f'image_detail is {self.image_detail!r}, wanted one of auto, low, high')
        if not self.timeout_s > 0 or self.retries < 0:
            raise InputError(f'timeout_s is {self.timeout_s} and retries {self.retries}, wanted > 0 and >= 0')


class ChatClient:
    """Asks one model. Safe to use from several threads; the usage is counted over all of them."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._sleep = sleep
        self._clock = clock
        self._lock = threading.Lock()
        self._next_start = 0.0
        self._usage = Usage()
        self._faults: Counter[str] = Counter()

    @property
    def usage(self) -> Usage:
        with self._lock:
            used, s = replace(self._usage, faults=dict(self._faults)), self.settings
        if s.prompt_price is None or s.completion_price is None:
            return used
        return replace(
            used, cost=(used.prompt_tokens * s.prompt_price + used.completion_tokens * s.completion_price) / 1e6
        )

    def ask(
        self, messages: Sequence[ChatMessage], *, is_usable: Callable[[ChatReply], bool] = lambda _: True
    ) -> ChatReply:
        """The model's reply; from the cache if this very request was answered before.

        Only a reply that `is_usable` is kept: what a caller cannot use must not come back the next time.
        """
        request = self.request(messages)
        place = self._cache_place(request)
        known = _read_cached(place)
        if known is not None and is_usable(known):
            self._count(cached=1)
            return known
        reply = self._post(request)
        self._count(
            requests=1, prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens
        )  # fmt: skip
        if place is not None and is_usable(reply):
            _write_whole(place, json.dumps({
                'model': self.settings.model, 'state': reply.state, 'text': reply.text, 'detail': reply.detail,
                'prompt_tokens': reply.prompt_tokens, 'completion_tokens': reply.completion_tokens,
            }))  # fmt: skip
        return reply

    def request(self, messages: Sequence[ChatMessage]) -> bytes:
        """The body of the request: canonical JSON, so that the same question has the same cache key."""
        s = self.settings
        turns = [m for m in messages if m.role != 'system']
        parts = [part for m in messages if m.role == 'system' for part in m.parts if isinstance(part, str)]
        system = s.system if s.system is not None else '\n\n'.join(parts)
        body: dict[str, Any] = {'model': s.model, 'messages': [_message(m, s.image_detail) for m in turns]}
        if system:
            body['messages'].insert(0, {'role': s.system_role, 'content': system})
        if s.temperature is not None:
            body['temperature'] = s.temperature
        if s.token_limit is not None:
            body[s.token_limit_name] = s.token_limit
        return json.dumps({**body, **s.extra}, sort_keys=True, separators=(',', ':')).encode()

    def _cache_place(self, request: bytes) -> Path | None:
        if self.settings.cache is None:
            return None
        key = hashlib.sha256(self.settings.url.encode() + b'\n' + request).hexdigest()
        return self.settings.cache / key[:2] / f'{key}.json'

    def _post(self, request: bytes) -> ChatReply:
        waited = self.settings.first_wait_s
        for attempt in range(self.settings.retries + 1):
            self._wait_for_turn()
            try:
                return self._send(request)
            except ChatFault as fault:
                with self._lock:
                    self._faults[fault.kind.value] += 1
                if fault.kind not in RETRIED:
                    raise
                if attempt == self.settings.retries:
                    tried = f'no answer after {attempt + 1} attempts; the last: {fault}'
                    raise ChatFault(fault.kind, f'{self.settings.url}: {tried}') from fault
                self._count(retries=1)
                self._sleep(min(fault.wait_s if fault.wait_s is not None else waited, LONGEST_WAIT_S))
                waited *= 2
        raise AssertionError('unreachable')

    def _wait_for_turn(self) -> None:
        if self.settings.requests_per_minute is None:
            return
        with self._lock:
            start = max(self._clock(), self._next_start)
            self._next_start = start + 60.0 / self.settings.requests_per_minute
            pause = start - self._clock()
        if pause > 0:
            self._sleep(pause)

    def _send(self, request: bytes) -> ChatReply:
        headers = {'User-Agent': 'robotrials'}  # without one, some gateways refuse to answer
        if self.settings.api_key:
            headers['Authorization'] = f'Bearer {self.settings.api_key}'
        path, url = '/chat/completions', f'{self.settings.url.rstrip("/")}/chat/completions'
        link = HttpLink(self.settings.url, headers=headers, limits=LIMITS, proxy=proxy_of(url))
        try:
            answer = link.post(path, request, timeout_s=self.settings.timeout_s)
        except (RigError, NoAnswer, AnswerError) as error:
            raise _fault_on_the_way(error) from error
        finally:
            link.close()  # threads share a client, and no connection
        return parse_reply(answer.body, url) if answer.status < 300 else _of_status(answer, url)

    def _count(self, **more: int) -> None:
        with self._lock:
            self._usage = replace(self._usage, **{k: getattr(self._usage, k) + v for k, v in more.items()})


# --- messages out


def _message(message: ChatMessage, detail: str) -> dict[str, Any]:
    """A message of one text is sent as that text, which servers without eyes understand too."""
    if len(message.parts) == 1 and isinstance(message.parts[0], str):
        return {'role': message.role, 'content': message.parts[0]}
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, str):
            parts.append({'type': 'text', 'text': part})
        else:
            parts.append(
                {'type': 'image_url', 'image_url': {'url': part.url, **({'detail': detail} if detail else {})}}
            )
    return {'role': message.role, 'content': parts}


# --- bodies in


def _fault_on_the_way(error: RigError | NoAnswer | AnswerError) -> ChatFault:
    """What kept an answer from coming, by what the link names as its cause."""
    cause = error.__cause__
    if isinstance(error, AnswerError):
        return ChatFault(ChatFaultKind.TOO_LONG, str(error))
    if isinstance(cause, http.client.IncompleteRead):
        return ChatFault(ChatFaultKind.TRUNCATED, str(error))
    if isinstance(cause, TimeoutError):
        return ChatFault(ChatFaultKind.TIMEOUT, str(error))
    if cause is None:  # a redirect, or a header that cannot be sent: the next attempt would end alike
        return ChatFault(ChatFaultKind.REQUEST, str(error))
    return ChatFault(ChatFaultKind.CONNECTION, f'no connection ({cause})')


def _of_status(answer: HttpAnswer, url: str) -> ChatReply:
    """A reply if the status is that of a content filter; else the fault or the set-up error that it stands for."""
    body = answer.text(20_000).strip()
    summary = f'{answer.status} {answer.reason}: {body[:300]}'
    wait_s = _retry_after_s(answer.headers.get('Retry-After', ''))
    if answer.status == 429:
        raise ChatFault(ChatFaultKind.RATE_LIMIT, summary, wait_s=wait_s)
    if answer.status in RETRIED_STATUS or answer.status >= 500:
        raise ChatFault(ChatFaultKind.SERVER, summary, wait_s=wait_s)
    if answer.status in (401, 403) and not _is_filtered(body):
        raise SetupError(f'{url}: the server refuses the key ({answer.status}): {body[:300]}')
    if answer.status == 404:
        raise SetupError(f'{url}: the server answers {summary}; is this the address, and the name of the model?')
    if _is_filtered(body):
        return ChatReply(ReplyState.FILTERED, '', body[:300])
    raise ChatFault(ChatFaultKind.REQUEST, f'{url}: the server answers {summary}')


def _is_filtered(body: str) -> bool:
    return any(word in body.lower() for word in FILTER_WORDS)


def _retry_after_s(text: str) -> float | None:
    """Seconds to wait, from a number or an HTTP date; None where the header says neither."""
    try:
        seconds = float(text)
        return seconds if 0 <= seconds < 1e6 else None
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    now = dt.datetime.now(when.tzinfo or dt.UTC)
    return max(0.0, (when - now).total_seconds()) if when.tzinfo else None


def parse_reply(body: bytes, url: str) -> ChatReply:
    """The reply in the body of a successful answer; ChatFault where the body is none."""
    try:
        answer = json.loads(body.decode('utf-8'))
    except UnicodeDecodeError as error:
        raise ChatFault(ChatFaultKind.NOT_UTF8, f'{url}: an answer that is not UTF-8 (byte {error.start})') from error
    except (ValueError, RecursionError) as error:
        raise ChatFault(ChatFaultKind.NOT_JSON, f'{url}: an answer that is not JSON ({error})') from error
    choices = answer.get('choices') if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get('message') if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise ChatFault(ChatFaultKind.NOT_CHAT, f'{url}: an answer without choices[0].message: {str(answer)[:200]}')
    text, refusal = _content(message, url)
    used = answer.get('usage')
    prompt, completion = (_tokens(used, name) for name in ('prompt_tokens', 'completion_tokens'))
    return ChatReply(_state(choice, text, refusal), text, refusal, prompt, completion)


def _state(choice: Any, text: str, refusal: str) -> ReplyState:
    finish = choice.get('finish_reason')
    if finish == 'content_filter':
        return ReplyState.FILTERED
    if refusal:
        return ReplyState.REFUSED
    if finish == 'length':
        return ReplyState.CUT_OFF
    return ReplyState.ANSWERED if text.strip() else ReplyState.EMPTY


def _content(message: Mapping[str, Any], url: str) -> tuple[str, str]:
    """Text and refusal of a message, whose content is a text, nothing, or a list of parts."""
    content, refusal = message.get('content'), message.get('refusal')
    refused = [refusal] if isinstance(refusal, str) and refusal else []
    if content is None or isinstance(content, str):
        return content or '', ''.join(refused)
    if not isinstance(content, list):
        raise ChatFault(
            ChatFaultKind.NOT_CHAT, f'{url}: the content is a {type(content).__name__}, wanted text or parts'
        )
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get('text'), str):
            texts.append(part['text'])
        elif isinstance(part, dict) and isinstance(part.get('refusal'), str):
            refused.append(part['refusal'])
    return ''.join(texts), ' '.join(refused)


def _tokens(used: Any, name: str) -> int:
    count = used.get(name) if isinstance(used, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


# --- the cache


def _read_cached(place: Path | None) -> ChatReply | None:
    """A kept reply; a file that is none (half written, of another kind) is as good as no file."""
    if place is None:
        return None
    try:
        row = json.loads(place.read_text(encoding='utf-8'))
        state = ReplyState(row.get('state', ReplyState.ANSWERED))
        return ChatReply(state, str(row['text']), str(row.get('detail', '')))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write_whole(path: Path, text: str) -> None:
    """Write a reply, whole or not at all.

    Not `record.folder.write_durably`: nothing here imports the record, and a reply that is lost is asked for again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{path.name}.{uuid.uuid4().hex}')
    draft.write_text(text, encoding='utf-8')
    os.replace(draft, path)
