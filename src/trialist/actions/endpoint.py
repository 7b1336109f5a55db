"""A chat model behind an OpenAI-compatible endpoint: retries, a rate limit, a cache on disk and a cost count."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trialist.actions.prompt import Prompt
from trialist.errors import InputError, RigError, SetupError

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What was asked and what it cost; `cost` is None while the price is unknown."""

    requests: int = 0
    cached: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Where the model is and how to ask it. Prices are for a million tokens, in any one currency."""

    url: str  # such as http://127.0.0.1:8000/v1
    model: str
    api_key: str = field(default='', repr=False)
    temperature: float = 0.0
    max_tokens: int = 256
    timeout_s: float = 60.0
    retries: int = 5
    first_wait_s: float = 1.0
    requests_per_minute: float | None = None
    cache: Path | None = None
    prompt_price: float | None = None
    completion_price: float | None = None


class ChatEndpoint:
    """Asks one model. Safe to use from several threads; the usage is counted over all of them."""

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not settings.url.startswith(('http://', 'https://')):
            raise InputError(f'the endpoint is {settings.url!r}, wanted an http:// or https:// address ending in /v1')
        self.settings = settings
        self._sleep = sleep
        self._clock = clock
        self._lock = threading.Lock()
        self._next_start = 0.0
        self._usage = Usage()

    @property
    def usage(self) -> Usage:
        with self._lock:
            used, s = self._usage, self.settings
        if s.prompt_price is None or s.completion_price is None:
            return used
        return replace(
            used, cost=(used.prompt_tokens * s.prompt_price + used.completion_tokens * s.completion_price) / 1e6
        )

    def ask(self, prompt: Prompt) -> str:
        """The model's answer; from the cache if this very request was answered before."""
        body = {'model': self.settings.model, 'messages': prompt.messages(), 'temperature': self.settings.temperature,
                'max_tokens': self.settings.max_tokens}  # fmt: skip
        request = json.dumps(body, sort_keys=True, separators=(',', ':')).encode()
        place = self._cache_place(request)
        if place is not None and place.exists():
            self._count(cached=1)
            return str(json.loads(place.read_text(encoding='utf-8'))['text'])
        answer = self._post(request)
        text = _answer_text(answer, self.settings.url)
        used = answer.get('usage') or {}
        self._count(
            requests=1,
            prompt_tokens=int(used.get('prompt_tokens') or 0),
            completion_tokens=int(used.get('completion_tokens') or 0),
        )
        if place is not None:
            _write_whole(place, json.dumps({'model': self.settings.model, 'text': text, 'usage': used}))
        return text

    def _cache_place(self, request: bytes) -> Path | None:
        if self.settings.cache is None:
            return None
        key = hashlib.sha256(self.settings.url.encode() + b'\n' + request).hexdigest()
        return self.settings.cache / key[:2] / f'{key}.json'

    def _post(self, request: bytes) -> dict[str, Any]:
        waited = self.settings.first_wait_s
        for attempt in range(self.settings.retries + 1):
            self._wait_for_turn()
            try:
                return self._send(request)
            except _RetryError as error:
                if attempt == self.settings.retries:
                    tried = f'{attempt + 1} attempts'
                    raise RigError(f'{self.settings.url}: no answer after {tried}; the last: {error}') from error
                self._count(retries=1)
                self._sleep(min(error.wait_s if error.wait_s is not None else waited, LONGEST_WAIT_S))
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

    def _send(self, request: bytes) -> dict[str, Any]:
        headers = {'Content-Type': 'application/json'}
        if self.settings.api_key:
            headers['Authorization'] = f'Bearer {self.settings.api_key}'
        url = f'{self.settings.url.rstrip("/")}/chat/completions'
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data=request, headers=headers), timeout=self.settings.timeout_s
            ) as answer:
                parsed = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise _http_fault(error, url) from error
        except json.JSONDecodeError as error:
            raise _RetryError(f'an answer that is not JSON ({error})') from error
        except (urllib.error.URLError, OSError) as error:
            raise _RetryError(f'no connection ({getattr(error, "reason", error)})') from error
        if not isinstance(parsed, dict):
            raise _RetryError(f'an answer that is no JSON object: {type(parsed).__name__}')
        return parsed

    def _count(self, **more: int) -> None:
        with self._lock:
            self._usage = replace(self._usage, **{k: getattr(self._usage, k) + v for k, v in more.items()})


class _RetryError(Exception):
    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def _http_fault(error: urllib.error.HTTPError, url: str) -> Exception:
    told = error.read(500).decode('utf-8', 'replace').strip()
    if error.code in RETRIED:
        after = error.headers.get('Retry-After', '')
        return _RetryError(
            f'{error.code} {error.reason}', float(after) if after.replace('.', '', 1).isdigit() else None
        )
    if error.code in (401, 403):
        return SetupError(f'{url}: the server refuses the key ({error.code}): {told}')
    return SetupError(f'{url}: the server answers {error.code} {error.reason}: {told}')


def _answer_text(answer: dict[str, Any], url: str) -> str:
    try:
        content = answer['choices'][0]['message']['content']
    except (KeyError, IndexError, TypeError) as error:
        raise RigError(f'{url}: an answer without choices[0].message.content: {str(answer)[:200]}') from error
    return '' if content is None else str(content)


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{path.name}.{uuid.uuid4().hex}')
    draft.write_text(text, encoding='utf-8')
    os.replace(draft, path)
