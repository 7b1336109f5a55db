"""Calls to the server's HTTP API: JSON in and out, a deadline on each, the server's error codes as exceptions."""

from __future__ import annotations

import json
import threading
from typing import Any

from robotrials.errors import AnswerError, NoAnswer, RigError, RobotrialsError
from robotrials.wire import WireLimits
from robotrials.wire.http import HttpLink

PREFIX = '/api/v1'
CALL_S = 10.0
UPLOAD_S = 120.0
ANSWER_LIMITS = WireLimits(max_bytes=256 << 20)  # a bundle may come back
UNREACHABLE = (RigError, NoAnswer)


class ApiError(RobotrialsError):
    """The server understood, and refused; `status` is HTTP's and `code` the server's own."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f'{message} (HTTP {status}, {code})')
        self.status, self.code = status, code

    @property
    def is_passing(self) -> bool:
        """Whether the same call may work later: too many calls, a server in trouble, a full disk."""
        return self.status in (408, 429) or self.status >= 500


class Api:
    """One server, one token. Safe to use from several threads, each on a connection of its own."""

    def __init__(self, server: str, token: str) -> None:
        self.server = server.rstrip('/')
        self._headers = {'Authorization': f'Bearer {token}', 'Accept': 'application/json'}
        self._links = threading.local()
        HttpLink(self.server)  # an address that is none is refused here

    def get(self, path: str, *, timeout_s: float = CALL_S) -> tuple[int, Any]:
        return self._call('GET', path, None, timeout_s=timeout_s)

    def post(self, path: str, body: object = None, *, timeout_s: float = CALL_S) -> tuple[int, Any]:
        data = json.dumps(body if body is not None else {}, allow_nan=False).encode()
        return self._call('POST', path, data, timeout_s=timeout_s)

    def post_bytes(self, path: str, data: bytes, *, timeout_s: float = UPLOAD_S) -> tuple[int, Any]:
        return self._call('POST', path, data, timeout_s=timeout_s, content_type='application/octet-stream')

    def get_bytes(self, path: str, *, timeout_s: float = UPLOAD_S) -> bytes:
        answer = self._link().request('GET', f'{PREFIX}{path}', timeout_s=timeout_s)
        if answer.status != 200:
            raise _refusal(answer.status, answer.body)
        return answer.body

    def close(self) -> None:
        """Let go of this thread's connection; the next call opens another."""
        self._link().close()

    def _call(
        self, method: str, path: str, data: bytes | None, *, timeout_s: float, content_type: str = 'application/json'
    ) -> tuple[int, Any]:
        """Status and JSON of an answer below 400; ApiError above, RigError or NoAnswer if there was none."""
        answer = self._link().request(
            method, f'{PREFIX}{path}', body=data, timeout_s=timeout_s, content_type=content_type
        )
        if answer.status >= 400:
            raise _refusal(answer.status, answer.body)
        if not answer.body:
            return answer.status, None
        try:
            return answer.status, json.loads(answer.body)
        except ValueError as error:
            raise AnswerError(f'{self.server}{PREFIX}{path}: the answer is not JSON ({error})') from error

    def _link(self) -> HttpLink:
        link: HttpLink | None = getattr(self._links, 'link', None)
        if link is None:
            link = self._links.link = HttpLink(self.server, headers=self._headers, limits=ANSWER_LIMITS)
        return link


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        error = json.loads(body)['error']
        return ApiError(status, str(error['code']), str(error['message']))
    except (ValueError, KeyError, TypeError):
        return ApiError(status, 'unknown', body[:200].decode('utf-8', errors='replace') or 'no reason given')
