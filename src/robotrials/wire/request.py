"""ZeroMQ sockets with deadlines: question and answer, and zerorpc. One that timed out is replaced: it is of no use."""

from __future__ import annotations

import uuid
from typing import Any

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError, SetupError, install_hint
from robotrials.wire.array import pack, unpack
from robotrials.wire.limit import LIMITS, WireLimits
from robotrials.wire.link import Deadline


class RequestLink:
    """Question and answer with one server; ZeroMQ connects by itself, so a missing server shows as silence."""

    kind = 'REQ'

    def __init__(self, url: str, *, limits: WireLimits = LIMITS) -> None:
        if not url.startswith(('tcp://', 'ipc://')):
            raise InputError(f'url is {url!r}, wanted tcp://HOST:PORT')
        self.url = url
        self._limits = limits
        self._zmq = _zmq()
        self._context = self._zmq.Context.instance()
        self._socket: Any = None
        self._monitor: Any = None
        self._poller: Any = None

    def ask(self, question: bytes, *, timeout_s: float) -> bytes:
        """One exchange. RigError if the question could not be handed over, NoAnswer if nothing came in time."""
        try:
            return self._ask(question, timeout_s)
        except BaseException:
            self._drop()
            raise

    def _ask(self, question: bytes, timeout_s: float) -> bytes:
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
        try:
            deadline = Deadline.after(timeout_s)
            question = pack([{'message_id': number, 'v': 3}, name, list(given)])
            self._hand_over([b'', question], timeout_s)
            while True:
                answer_to, event, values = self._event(self._receive(deadline, timeout_s))
                if answer_to == number and event in ('OK', 'ERR'):
                    break  # others are heartbeats, or answers to a call that was given up
        except BaseException:
            self._drop()
            raise
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
            raise AnswerError(f'{self.url}: an answer that is no event of zerorpc ({error})') from error


def _zmq() -> Any:
    try:
        import zmq
    except ModuleNotFoundError as error:
        raise SetupError(f'pyzmq is not installed; {install_hint("wire")}') from error
    return zmq
