"""One question, one answer: over HTTP, and over ZeroMQ.

ZeroMQ sockets with deadlines: question and answer, and zerorpc. One that timed out is replaced: it is of no use.

The HTTP client: one connection to one server, a deadline over the whole exchange, bounded answers, no redirects.
"""

from __future__ import annotations

import base64
import http.client
import io
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from types import SimpleNamespace
from typing import Any, cast

from robotrials.errors import (
    AnswerError,
    InputError,
    NoAnswer,
    RemoteError,
    RigError,
    SetupError,
    install_hint,
    load_optional,
    undone_by,
)
from robotrials.wire.array import LIMITS, WireLimits, pack, unpack
from robotrials.wire.link import Deadline, DeadlineReader, Link, split_url


class RequestLink:
    """Question and answer with one server; ZeroMQ connects by itself, so a missing server shows as silence."""

    kind = 'REQ'

    def __init__(self, url: str, *, limits: WireLimits = LIMITS) -> None:
        if not url.startswith(('tcp://', 'ipc://')):
            raise InputError(f'url is {url!r}, wanted tcp://HOST:PORT')
        self.url = url
        self._limits = limits
        self._zmq = load_optional('zmq', f'pyzmq is not installed; {install_hint("wire")}')
        self._context = self._zmq.Context.instance()
        self._socket: Any = None
        self._monitor: Any = None
        self._poller: Any = None

    def ask(self, question: bytes, *, timeout_s: float) -> bytes:
        """One exchange. RigError if the question could not be handed over, NoAnswer if nothing came in time."""
        with undone_by(self._drop):
            deadline = Deadline.after(timeout_s)
            self._hand_over([question], timeout_s)
            parts = self._receive(deadline, timeout_s)
            if len(parts) != 1:
                raise AnswerError(f'{self.url}: an answer of several parts, wanted one')
            return parts[0]

    def _hand_over(self, parts: list[bytes], timeout_s: float) -> None:
        zmq, socket = self._zmq, self._open()
        if not socket.poll(max(1, int(timeout_s * 1000)), zmq.POLLOUT):
            raise RigError(f'{self.url}: no server took the question within {timeout_s:g} s')
        socket.send_multipart(parts, zmq.NOBLOCK)

    def _receive(self, deadline: Deadline, timeout_s: float) -> list[bytes]:
        zmq, socket = self._zmq, self._socket
        try:
            ready = dict(self._poller.poll(max(1, int(deadline.left_s() * 1000))))
        except TimeoutError:
            ready = {}
        if socket in ready:
            parts: list[bytes] = socket.recv_multipart(zmq.NOBLOCK)
            return parts
        if self._monitor in ready:
            most = self._limits.max_bytes
            raise RigError(f'{self.url}: the server hung up, or its answer was over {most} bytes')
        raise NoAnswer(f'{self.url}: no answer within {timeout_s:g} s')

    def _open(self) -> Any:
        if self._socket is None:
            zmq = self._zmq
            socket = self._context.socket(getattr(zmq, self.kind))
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IMMEDIATE, 1)  # a question waits for a connection, not in a queue
            socket.setsockopt(zmq.MAXMSGSIZE, self._limits.max_bytes)
            socket.setsockopt(zmq.RCVHWM, 4)
            self._monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            self._poller = zmq.Poller()
            self._poller.register(socket, zmq.POLLIN)
            self._poller.register(self._monitor, zmq.POLLIN)
            socket.connect(self.url)
            self._socket = socket
        return self._socket

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)
            self._socket = None

    def close(self) -> None:
        self._drop()


class ZeroRpcLink(RequestLink):
    """Calls of a zerorpc server (version 3 of its protocol: github.com/0rpc/zerorpc-python, doc/protocol.md).

    An event is [header, name, arguments] in msgpack after an empty part. While a call runs, the server sends heartbeats
    and expects none: zerorpc 0.6.3 answers a call of twelve seconds to a client that sends none.
    """

    kind = 'DEALER'

    def call(self, name: str, *given: object, timeout_s: float) -> Any:
        """What a method of the server returns; RemoteError with the error's name and text if it raised."""
        number = uuid.uuid4().hex
        with undone_by(self._drop):
            deadline = Deadline.after(timeout_s)
            question = pack([{'message_id': number, 'v': 3}, name, list(given)])
            self._hand_over([b'', question], timeout_s)
            while True:
                answer_to, event, values = self._event(self._receive(deadline, timeout_s))
                if answer_to == number and event in ('OK', 'ERR'):
                    break  # others are heartbeats, or answers to a call that was given up
        if event == 'OK' and len(values) == 1:
            return values[0]
        if event == 'ERR' and len(values) == 3:
            raise RemoteError(f'{self.url}: {name} raised {str(values[0])[:80]}: {str(values[1])[:300]}')
        raise AnswerError(f'{self.url}: {name} was answered with {len(values)} values as {event}')

    def _event(self, parts: list[bytes]) -> tuple[str, str, list[Any]]:
        try:
            header, name, values = unpack(parts[-1], limits=self._limits)
            answer_to = header['response_to']
            return answer_to.decode() if isinstance(answer_to, bytes) else str(answer_to), str(name), list(values or [])
        except (InputError, TypeError, ValueError, KeyError, AttributeError, UnicodeDecodeError) as error:
            raise AnswerError(f'{self.url}: an answer that is not a zerorpc event ({error})') from error


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back: a status that is no redirect, and the whole body."""

    status: int
    body: bytes
    reason: str
    headers: Message

    def text(self, most: int = 2000) -> str:
        """The beginning of the body, for messages."""
        return self.body[: 4 * most].decode('utf-8', errors='replace')[:most]


class HttpLink:
    """Requests to one server over a connection that is kept while the server keeps it."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, limits: WireLimits = LIMITS, proxy: str = ''
    ) -> None:
        parts, self._host, self._port = split_url(url, ('http', 'https'))
        self.url = url.rstrip('/')
        self._base, self._is_tls = parts.path.rstrip('/'), parts.scheme == 'https'
        self._headers, self._limits = dict(headers or {}), limits
        self._proxy = _Proxy(proxy) if proxy else None
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
        message = self._encode(method, path, body, content_type)
        with undone_by(self.close):
            try:
                link = self._open(deadline)
                link.send(message, deadline=deadline)
            except OSError as error:
                raise RigError(f'{where}: could not be asked ({type(error).__name__}: {error})') from error
            try:
                return self._read(link, method, deadline, where)
            except TimeoutError as error:
                raise NoAnswer(f'{where}: no answer within {timeout_s:g} s') from error
            except (OSError, http.client.HTTPException) as error:
                cause = f'{type(error).__name__}: {error}'
                raise RigError(f'{where}: the connection broke before the answer was whole ({cause})') from error

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _open(self, deadline: Deadline) -> Link:
        if self._link is not None and self._link.is_readable():
            self.close()  # the server hung up meanwhile, or said something nobody asked for
        if self._link is None:
            if self._proxy is not None and self._is_tls:
                self._link = self._proxy.tunnel(self._host, self._port, deadline=deadline)
            else:
                host, port = (self._host, self._port) if self._proxy is None else self._proxy.address
                self._link = Link.connect(host, port, deadline=deadline, tls=self._is_tls)
        return self._link

    def _encode(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        host = _authority(self._host, self._port)
        target, headers = f'{self._base}{path}', self._headers
        if self._proxy is not None and not self._is_tls:  # which forwards what it can read
            target, headers = f'http://{host}{target}', {**headers, **self._proxy.headers}
        lines = [f'{method} {target} HTTP/1.1', f'Host: {host}', 'Accept-Encoding: identity']
        lines += [f'{name}: {value}' for name, value in headers.items()]
        if body is not None:
            lines += [f'Content-Type: {content_type}', f'Content-Length: {len(body)}']
        if any('\r' in line or '\n' in line for line in lines):
            raise RigError(f'{self.url}: a line break in a header')
        try:
            return '\r\n'.join(lines).encode('latin-1') + b'\r\n\r\n' + (body or b'')
        except UnicodeEncodeError:  # whose text is not said: it may be a key
            raise RigError(f'{self.url}: an address or a header with a letter that HTTP cannot send') from None

    def _read(self, link: Link, method: str, deadline: Deadline, where: str) -> HttpAnswer:
        answer = _answer_head(link, deadline, method)
        if 300 <= answer.status < 400:
            raise RigError(f'{where}: answered with a redirect (HTTP {answer.status}), which is not followed')
        most = self._limits.max_bytes
        if (answer.length or 0) > most:
            raise AnswerError(f'{where}: an answer of {answer.length} bytes, more than the {most} allowed')
        parts, size = [], 0
        while part := _piece(answer):
            parts.append(part)
            size += len(part)
            if size > most:
                raise AnswerError(f'{where}: an answer of more than the {most} bytes allowed')
        if answer.length:
            raise http.client.IncompleteRead(b'', answer.length)
        if answer.will_close:
            self.close()
        return HttpAnswer(answer.status, b''.join(parts), answer.reason, answer.headers)


def _piece(answer: http.client.HTTPResponse) -> bytes:
    """What comes next of a body, up to 256 KiB; b'' at its end."""
    try:
        return answer.read(1 << 18)
    except ValueError as error:
        raise http.client.HTTPException(f'a chunk without a length ({error})') from error


def _authority(host: str, port: int) -> str:
    return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'


def proxy_of(url: str) -> str:
    """The proxy that this machine's settings (HTTPS_PROXY, NO_PROXY, ...) name for a server; '' for none."""
    parts, _, _ = split_url(url, ('http', 'https'))
    by_scheme = {} if urllib.request.proxy_bypass(parts.netloc) else urllib.request.getproxies()
    return by_scheme.get(parts.scheme) or by_scheme.get('all', '')


class _Proxy:
    """A server by which others are reached: it forwards plain requests, and bytes to servers that speak TLS."""

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url if '://' in url else f'http://{url}')
            host, port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise SetupError(f'the proxy is not an address ({error}), wanted http://HOST:PORT') from error
        if parts.scheme != 'http' or not host:
            raise SetupError(f'the proxy is {parts.scheme}://{host or ""}, wanted http://HOST:PORT')
        self.address = host, port
        user = f'{urllib.parse.unquote(parts.username or "")}:{urllib.parse.unquote(parts.password or "")}'
        token = base64.b64encode(user.encode()).decode()
        self.headers = {'Proxy-Authorization': f'Basic {token}'} if parts.username else {}

    def tunnel(self, host: str, port: int, *, deadline: Deadline) -> Link:
        """A connection under TLS with a server behind it."""
        link = Link.connect(*self.address, deadline=deadline)
        with undone_by(link.close):
            where = _authority(host, port)
            lines = [f'CONNECT {where} HTTP/1.1', f'Host: {where}', *(f'{n}: {v}' for n, v in self.headers.items())]
            link.send('\r\n'.join(lines).encode('latin-1') + b'\r\n\r\n', deadline=deadline)
            try:
                answer = _answer_head(link, deadline, 'CONNECT')
            except http.client.HTTPException as error:
                raise ConnectionError(f'the proxy {self.address[0]} does not speak HTTP ({error!r})') from error
            if answer.status != 200:
                raise ConnectionError(f'the proxy {self.address[0]} answers {answer.status} {answer.reason}')
            return link.secured(host, deadline=deadline)


def _answer_head(link: Link, deadline: Deadline, method: str) -> http.client.HTTPResponse:
    """An answer whose head has been read; of a socket, its reader wants nothing but `makefile`."""
    stream = io.BufferedReader(DeadlineReader(link, deadline), 1 << 16)
    answer = http.client.HTTPResponse(cast('Any', SimpleNamespace(makefile=lambda mode: stream)), method=method)
    answer.begin()
    return answer
