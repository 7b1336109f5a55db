"""A WebSocket in lock-step, as a client or on an accepted connection: no thread of its own, a deadline on every call,
frames bounded before they are read.

The protocol is that of the `websockets` package; the socket is ours, because the package's own client has no deadline
on sending, follows redirects, and waits for the other side when it closes.

The client side of rosbridge: ROS topics and services as JSON over a WebSocket, without ROS.

Every call has a deadline and every message a bound. Of a topic only the newest message is kept, with a count of how
many came, so that whoever waits for news knows it from what was there before.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
from robotrials.wire.array import LIMITS, WireLimits, check_depth
from robotrials.wire.link import Deadline, Link, keep_trying, split_url

CLOSE_S = 0.2
MAX_FRAGMENTS = 10_000


class WebSocket:
    """One open connection. `url` is part of every message, so that a fault says whose it is."""

    _peer = 'server'

    def __init__(self, url: str, protocol: Any, link: Link) -> None:
        self.url = url
        self._protocol, self._link = protocol, link
        self._messages: deque[bytes | str] = deque()
        self._fragments: list[bytes] = []
        self._is_text = False
        self._open_state = _websockets()[0].OPEN

    def send(self, message: bytes, *, timeout_s: float) -> None:
        """Send one binary message; RigError if the other side hung up or does not read."""
        if self.is_stale():
            raise AnswerError(f'{self.url}: the {self._peer} sent more than it was asked for')
        self._send(self._protocol.send_binary, message, timeout_s)

    def send_text(self, message: str, *, timeout_s: float) -> None:
        """Send one text message, whatever waits to be read: for peers that speak without being asked."""
        self._check_open()
        self._send(self._protocol.send_text, message.encode(), timeout_s)

    def _send(self, send: Callable[[bytes], None], message: bytes, timeout_s: float) -> None:
        deadline = Deadline.after(timeout_s)
        if self._protocol.state is not self._open_state:
            raise RigError(f'{self.url}: the connection is closing')
        try:
            send(message)
            self._flush(deadline)
        except TimeoutError as error:
            raise RigError(f'{self.url}: the question was not read within {timeout_s:g} s') from error
        except OSError as error:
            raise RigError(f'{self.url}: the connection was lost ({error})') from error

    def receive(self, *, timeout_s: float) -> bytes | str:
        """The next message: bytes, or text."""
        deadline = Deadline.after(timeout_s)
        try:
            while not self._messages:
                self._check_open()
                self._feed(deadline)
                self._take_events()
        except TimeoutError as error:
            raise NoAnswer(f'{self.url}: no answer within {timeout_s:g} s') from error
        except OSError as error:
            raise RigError(f'{self.url}: the connection was lost ({error})') from error
        return self._messages.popleft()

    def is_stale(self) -> bool:
        """Whether a message is there that nobody asked for; RigError if the connection is gone."""
        while not self._messages and self._link.is_readable():
            try:
                self._feed(Deadline.after(CLOSE_S))
                self._take_events()
            except OSError as error:
                raise RigError(f'{self.url}: the connection was lost ({error})') from error
            self._check_open()
        return bool(self._messages)

    def close(self) -> None:
        """Say goodbye if that takes no time, and let go."""
        try:
            if self._protocol.state is self._open_state:
                self._protocol.send_close(1000)
                self._flush(Deadline.after(CLOSE_S))
        except OSError:
            pass  # the other side does not listen, which is its right
        finally:
            self._link.close()

    def _feed(self, deadline: Deadline) -> None:
        data = self._link.receive(deadline=deadline)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._flush(deadline)

    def _flush(self, deadline: Deadline) -> None:
        for data in self._protocol.data_to_send():
            if data:  # the empty one asks for a half-close, and we close whole
                self._link.send(data, deadline=deadline)

    def _check_open(self) -> None:
        protocol = self._protocol
        cause = protocol.parser_exc
        if cause is not None and type(cause).__name__ == 'PayloadTooBig':
            raise AnswerError(f'{self.url}: an answer too long to take ({cause})')
        if protocol.state is not self._open_state:
            close = protocol.close_rcvd
            reason = f'close {close.code} {close.reason}'.strip() if close is not None else str(cause or 'no goodbye')
            raise RigError(f'{self.url}: the {self._peer} hung up ({reason})')

    def _take_events(self) -> None:
        for event in self._protocol.events_received():
            opcode = getattr(event, 'opcode', None)
            if opcode is None or opcode > 2:  # the handshake's response; ping, pong and close answer themselves
                continue
            if opcode == 1 or opcode == 2:
                self._is_text = opcode == 1
            self._fragments.append(bytes(event.data))
            if len(self._fragments) > MAX_FRAGMENTS:
                raise AnswerError(f'{self.url}: an answer in more than {MAX_FRAGMENTS} pieces')
            if event.fin:
                self._finish_message()

    def _finish_message(self) -> None:
        whole = self._fragments[0] if len(self._fragments) == 1 else b''.join(self._fragments)
        self._fragments = []
        self._messages.append(whole.decode('utf-8', errors='replace') if self._is_text else whole)


class WebSocketLink(WebSocket):
    """A connection that we opened."""

    def __init__(
        self, url: str, *, deadline: Deadline, headers: Mapping[str, str] | None = None, limits: WireLimits = LIMITS
    ) -> None:
        parts, host, port = split_url(url, ('ws', 'wss'))
        client, uri = _websockets()
        protocol = client.ClientProtocol(uri.parse_uri(url), max_size=limits.max_bytes)
        super().__init__(url, protocol, Link.connect(host, port, deadline=deadline, tls=parts.scheme == 'wss'))
        with undone_by(self._link.close):
            self._shake_hands(headers or {}, deadline)

    def _shake_hands(self, headers: Mapping[str, str], deadline: Deadline) -> None:
        request = self._protocol.connect()
        for name, value in headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        self._flush(deadline)
        while not self._protocol.events and self._protocol.handshake_exc is None:
            self._feed(deadline)
        error = self._protocol.handshake_exc
        if error is not None:
            response = getattr(error, 'response', None)
            status = getattr(response, 'status_code', None)
            if status is not None and 300 <= status < 400:
                raise RigError(f'{self.url}: answered with a redirect (HTTP {status}), which is not followed')
            if status in (401, 403):
                raise SetupError(f'{self.url}: refused (HTTP {status}); is the key right?')
            raise ConnectionError(f'no WebSocket handshake: {error}')
        self._take_events()


class AcceptedWebSocket(WebSocket):
    """A connection that somebody opened to us; `head` is its request, up to the empty line, as it was read."""

    _peer = 'client'

    def __init__(self, where: str, link: Link, head: bytes, *, deadline: Deadline, limits: WireLimits = LIMITS) -> None:
        _websockets()
        from websockets.server import ServerProtocol

        super().__init__(where, ServerProtocol(max_size=limits.max_bytes), link)
        self._protocol.receive_data(head)
        asked = self._protocol.events_received()
        if asked:
            self._protocol.send_response(self._protocol.accept(asked[0]))
        self._flush(deadline)
        if self._protocol.state is not self._open_state:
            raise InputError(f'{where}: not a WebSocket handshake ({self._protocol.handshake_exc})')


def _websockets() -> tuple[Any, Any]:
    lack = f'websockets is not installed; {install_hint("wire")}'
    return load_optional('websockets.client', lack), load_optional('websockets.uri', lack)


def check_url(url: str) -> None:
    """Raise InputError unless `url` is one of a WebSocket."""
    split_url(url, ('ws', 'wss'))
    _, uri = _websockets()
    try:
        uri.parse_uri(url)
    except Exception as error:
        raise InputError(f'url is {url!r}, wanted ws://HOST:PORT or wss://...: {error}') from error


SEND_S = 5.0


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest message of a topic, how many came since it was subscribed to, and when this one did."""

    message: Mapping[str, Any]
    count: int
    at_s: float  # of time.monotonic()


class RosbridgeLink:
    """One connection to a rosbridge server."""

    def __init__(self, url: str, *, timeout_s: float, limits: WireLimits = LIMITS) -> None:
        check_url(url)
        self.url, self._limits = url, limits
        self._link = keep_trying(
            lambda deadline: WebSocketLink(url, deadline=deadline, limits=limits), what=url, timeout_s=timeout_s
        )
        self._numbers = itertools.count(1)
        self._heard: dict[str, Heard] = {}
        self._replies: dict[str, Mapping[str, Any]] = {}
        self._waited: str | None = None

    def advertise(self, topic: str, kind: str) -> None:
        self._tell({'op': 'advertise', 'topic': topic, 'type': kind})

    def subscribe(self, topic: str, kind: str) -> None:
        """Ask for a topic's newest messages; the server drops what we have no time for."""
        self._tell({'op': 'subscribe', 'topic': topic, 'type': kind, 'queue_length': 1})

    def publish(self, topic: str, message: Mapping[str, Any]) -> None:
        self._tell({'op': 'publish', 'topic': topic, 'msg': message})

    def call_service(self, service: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]:
        """What a service answers; RemoteError if it says that it failed, NoAnswer if it says nothing."""
        number = f'call:{next(self._numbers)}'
        self._waited = number
        self._tell({'op': 'call_service', 'service': service, 'args': arguments, 'id': number})
        deadline = Deadline.after(timeout_s)
        while number not in self._replies:
            self._take(deadline, f'service {service} within {timeout_s:g} s')
        self._waited = None
        reply = self._replies.pop(number)
        values = reply.get('values')
        if reply.get('result') is not True:
            raise RemoteError(f'{self.url}: service {service} failed: {str(values)[:300]}')
        return values if isinstance(values, dict) else {}

    def listen(self) -> None:
        """Read everything that waits."""
        while self._link.is_stale():
            self._take(Deadline.after(SEND_S), 'what was announced')

    def heard(self, topic: str) -> Heard | None:
        """The newest message of a topic that was read."""
        return self._heard.get(topic)

    def count(self, topic: str) -> int:
        """How many messages of a topic were read."""
        heard = self._heard.get(topic)
        return heard.count if heard is not None else 0

    def await_news(self, topic: str, *, after: int, timeout_s: float) -> Mapping[str, Any]:
        """The newest message of a topic of which more than `after` came; NoAnswer if it stays silent."""
        deadline = Deadline.after(timeout_s)
        while True:
            self.listen()
            heard = self._heard.get(topic)
            if heard is not None and heard.count > after:
                return heard.message
            self._take(deadline, f'topic {topic} within {timeout_s:g} s')

    def close(self) -> None:
        self._link.close()

    # --- inside

    def _tell(self, message: Mapping[str, Any]) -> None:
        try:
            text = json.dumps(message, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f'{self.url}: cannot be sent: {error}') from error
        self._link.send_text(text, timeout_s=SEND_S)

    def _take(self, deadline: Deadline, wanted: str) -> None:
        """Read one message and put it where it belongs."""
        try:
            left_s = deadline.left_s()
        except TimeoutError as error:
            raise NoAnswer(f'{self.url}: silence: nothing of {wanted}') from error
        try:
            text = self._link.receive(timeout_s=left_s)
        except NoAnswer as error:
            raise NoAnswer(f'{self.url}: silence: nothing of {wanted}') from error
        message = self._parsed(text)
        op = message.get('op')
        if op == 'publish' and isinstance(message.get('topic'), str) and isinstance(message.get('msg'), dict):
            topic = message['topic']
            before = self._heard.get(topic)
            self._heard[topic] = Heard(message['msg'], before.count + 1 if before is not None else 1, time.monotonic())
        elif op == 'service_response':
            if message.get('id') == self._waited and self._waited is not None:
                self._replies[self._waited] = message
        elif op == 'status':
            if message.get('level') == 'error':
                raise RigError(f'{self.url}: rosbridge says: {str(message.get("msg"))[:300]}')
        else:
            raise AnswerError(f'{self.url}: a message of op {str(op)[:40]!r}, which is not a known rosbridge operation')

    def _parsed(self, text: bytes | str) -> dict[str, Any]:
        if len(text) > self._limits.max_bytes:
            raise AnswerError(
                f'{self.url}: a message of {len(text)} bytes, more than the {self._limits.max_bytes} allowed'
            )
        try:
            message = json.loads(text, parse_constant=_refuse)
            check_depth(message, self._limits)
        except (ValueError, RecursionError) as error:
            raise AnswerError(f'{self.url}: a message that is not JSON ({error})') from error
        if not isinstance(message, dict):
            raise AnswerError(f'{self.url}: a message of type {type(message).__name__}, wanted an object')
        return message


def _refuse(name: str) -> float:
    raise ValueError(f'{name}, which is not a number in JSON')
