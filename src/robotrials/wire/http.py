"""The HTTP client: one connection to one server, a deadline over the whole exchange, bounded answers, no redirects."""

from __future__ import annotations

import http.client
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robotrials.errors import AnswerError, NoAnswer, RigError
from robotrials.wire.limit import LIMITS, WireLimits
from robotrials.wire.link import Deadline, DeadlineReader, Link, split_url


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back: a status that is no redirect, and the whole body."""

    status: int
    body: bytes

    def text(self, most: int = 2000) -> str:
        """The beginning of the body, for messages."""
        return self.body[: 4 * most].decode('utf-8', errors='replace')[:most]


class HttpLink:
    """Requests to one server over a connection that is kept while the server keeps it."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, limits: WireLimits = LIMITS) -> None:
        parts, self._host, self._port = split_url(url, ('http', 'https'))
        self.url = url.rstrip('/')
        self._base, self._is_tls = parts.path.rstrip('/'), parts.scheme == 'https'
        self._headers, self._limits = dict(headers or {}), limits
        self._link: Link | None = None

    def get(self, path: str, *, timeout_s: float) -> HttpAnswer:
        return self.request('GET', path, timeout_s=timeout_s)

    def post(self, path: str, body: bytes, *, timeout_s: float, content_type: str = 'application/json') -> HttpAnswer:
        return self.request('POST', path, body=body, timeout_s=timeout_s, content_type=content_type)

    def request(
        self, method: str, path: str, *, timeout_s: float, body: bytes | None = None, content_type: str = ''
    ) -> HttpAnswer:
        """One exchange. RigError if the question or the answer got lost on the way, NoAnswer if none came in time."""
        deadline = Deadline.after(timeout_s)
        where = f'{self.url}{path}'
        try:
            link = self._open(deadline)
            link.send(self._encode(method, path, body, content_type), deadline=deadline)
        except OSError as error:
            self.close()
            raise RigError(f'{where}: could not be asked ({type(error).__name__}: {error})') from error
        try:
            return self._read(link, method, deadline, where)
        except TimeoutError as error:
            self.close()
            raise NoAnswer(f'{where}: no answer within {timeout_s:g} s') from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            cause = f'{type(error).__name__}: {error}'
            raise RigError(f'{where}: the connection broke before the answer was whole ({cause})') from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _open(self, deadline: Deadline) -> Link:
        if self._link is not None and self._link.is_readable():
            self.close()  # the server hung up meanwhile, or said something nobody asked for
        if self._link is None:
            self._link = Link.connect(self._host, self._port, deadline=deadline, tls=self._is_tls)
        return self._link

    def _encode(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        host = f'[{self._host}]' if ':' in self._host else self._host
        lines = [f'{method} {self._base}{path} HTTP/1.1', f'Host: {host}:{self._port}', 'Accept-Encoding: identity']
        lines += [f'{name}: {value}' for name, value in self._headers.items()]
        if body is not None:
            lines += [f'Content-Type: {content_type}', f'Content-Length: {len(body)}']
        if any('\r' in line or '\n' in line for line in lines):
            raise RigError(f'{self.url}: a line break in a header')
        return '\r\n'.join(lines).encode('latin-1') + b'\r\n\r\n' + (body or b'')

    def _read(self, link: Link, method: str, deadline: Deadline, where: str) -> HttpAnswer:
        stream: Any = _Stream(link, deadline)
        answer = http.client.HTTPResponse(stream, method=method)
        answer.begin()
        if 300 <= answer.status < 400:
            raise RigError(f'{where}: answered with a redirect (HTTP {answer.status}), which is not followed')
        most = self._limits.max_bytes
        if (answer.length or 0) > most:
            raise AnswerError(f'{where}: an answer of {answer.length} bytes, more than the {most} allowed')
        parts, size = [], 0
        while part := answer.read(1 << 18):
            parts.append(part)
            size += len(part)
            if size > most:
                raise AnswerError(f'{where}: an answer of more than the {most} bytes allowed')
        if answer.length:
            raise http.client.IncompleteRead(b'', answer.length)
        if answer.will_close:
            self.close()
        return HttpAnswer(answer.status, b''.join(parts))


class _Stream:
    """The little of a socket that `http.client.HTTPResponse` wants."""

    def __init__(self, link: Link, deadline: Deadline) -> None:
        self._link, self._deadline = link, deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(DeadlineReader(self._link, self._deadline), 1 << 16)
