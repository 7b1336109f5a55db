"""Servers for tests, on sockets of this machine: one that speaks openpi's wire, and ones that go wrong on purpose."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from robotrials.errors import UnknownName
from robotrials.wire import pack, unpack

# Servers that go wrong on purpose, on raw sockets of this machine: one per transport, the same faults for each.

TRANSPORT_FAULTS = ('none', 'slow', 'silent', 'half', 'dying', 'oversized', 'rubbish', 'twice', 'drip')
MOST_S = 20.0  # no thread of a test outlives this

Answer = Callable[[bytes], bytes | str]


class FaultyServer:
    """Accepts connections and hands each to `converse` in a thread; `fault` shows at question number `at`."""

    def __init__(self, *, fault: str, at: int = 1, nap_s: float = 0.6) -> None:
        if fault not in TRANSPORT_FAULTS:
            raise UnknownName('server fault', fault, TRANSPORT_FAULTS)
        self.fault, self.at, self.nap_s = fault, at, nap_s
        self.n_questions = self.n_connections = 0
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port = int(self._listener.getsockname()[1])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        self._listener.settimeout(0.1)
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError, OSError):
                connection, _ = self._listener.accept()
                connection.settimeout(MOST_S)
                self.n_connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connection:
            self.converse(connection)

    def converse(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def reply(self, connection: socket.socket, whole: bytes, *, huge: bytes, rubbish: bytes) -> None:
        """Send an answer, or what the fault makes of it."""
        self.n_questions += 1
        fault = self.fault if self.n_questions == self.at else 'none'
        if fault == 'silent':
            self._stop.wait(MOST_S)
        elif fault == 'dying':
            raise EOFError
        elif fault == 'half':
            connection.sendall(whole[: len(whole) // 2])
            raise EOFError
        elif fault == 'oversized':
            connection.sendall(huge)
            self._pour(connection)
        elif fault == 'rubbish':
            connection.sendall(rubbish)
        elif fault == 'drip':
            self._drip(connection, whole)
        else:
            if fault == 'slow':
                time.sleep(self.nap_s)
            connection.sendall(whole * (2 if fault == 'twice' else 1))

    def _pour(self, connection: socket.socket) -> None:
        ends_s = time.monotonic() + MOST_S
        while time.monotonic() < ends_s and not self._stop.is_set():
            connection.sendall(bytes(1 << 20))

    def _drip(self, connection: socket.socket, whole: bytes) -> None:
        """A byte now and then, so that no single read ever times out."""
        for place in range(len(whole)):
            connection.sendall(whole[place : place + 1])
            if self._stop.wait(0.05):
                return

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self._listener.close()

    def __enter__(self) -> FaultyServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FaultyWebSocket(FaultyServer):
    """`greeting` frames on connecting; then `answer` to every question that it does not pass over with None."""

    def __init__(
        self, answer: Callable[[bytes], bytes | str | None], *, greeting: tuple[bytes, ...] = (), fault: str = 'none',
        at: int = 1, nap_s: float = 0.6,
    ) -> None:  # fmt: skip
        self._answer, self._greeting = answer, greeting
        super().__init__(fault=fault, at=at, nap_s=nap_s)

    @property
    def url(self) -> str:
        return f'ws://127.0.0.1:{self.port}'

    def converse(self, connection: socket.socket) -> None:
        from websockets.server import ServerProtocol

        protocol = ServerProtocol(max_size=None)
        for event in self._events(protocol, connection):
            if hasattr(event, 'path'):
                protocol.send_response(protocol.accept(event))
                self._flush(protocol, connection)
                for frame in self._greeting:
                    connection.sendall(websocket_frame(frame))
                continue
            if event.opcode == 8:
                return
            answer = self._answer(bytes(event.data)) if event.opcode in (1, 2) else None
            if answer is not None:
                huge = b'\x82\x7f' + (3 << 30).to_bytes(8, 'big')
                self.reply(connection, websocket_frame(answer), huge=huge, rubbish=websocket_frame(b'\xc1\xff\x00' * 9))

    def _events(self, protocol: Any, connection: socket.socket) -> Any:
        while data := connection.recv(1 << 20):
            protocol.receive_data(data)
            yield from protocol.events_received()

    def _flush(self, protocol: Any, connection: socket.socket) -> None:
        for data in protocol.data_to_send():
            connection.sendall(data)


class FaultyHttp(FaultyServer):
    """Answers the body of every POST; a GET gets 404, which says that somebody is there."""

    def __init__(
        self, answer: Answer, *, fault: str = 'none', at: int = 1, nap_s: float = 0.6, status: int = 200
    ) -> None:
        self._answer, self._status = answer, status
        super().__init__(fault=fault, at=at, nap_s=nap_s)

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self.port}'

    def converse(self, connection: socket.socket) -> None:
        stream = connection.makefile('rb')
        while line := stream.readline():
            length = 0
            while (header := stream.readline().strip()) != b'':
                name, _, value = header.partition(b':')
                length = int(value) if name.lower() == b'content-length' else length
            body = stream.read(length)
            if not line.startswith(b'POST'):
                connection.sendall(http_answer(b'', 404))
                continue
            answer = self._answer(body)
            whole = http_answer(answer.encode() if isinstance(answer, str) else answer, self._status)
            huge = b'HTTP/1.1 200 OK\r\nContent-Length: 3221225472\r\n\r\n'
            self.reply(connection, whole, huge=huge, rubbish=http_answer(b'{"a": [\xff', 200))


class FaultyZmq:
    """A ROUTER socket that answers requests, or not."""

    def __init__(
        self, answer: Callable[[bytes], bytes], *, fault: str = 'none', at: int = 1, nap_s: float = 0.6
    ) -> None:
        import zmq

        if fault not in TRANSPORT_FAULTS:
            raise UnknownName('server fault', fault, TRANSPORT_FAULTS)
        self._answer, self.fault, self.at, self.nap_s = answer, fault, at, nap_s
        self.n_questions = 0
        self._context: Any = zmq.Context.instance()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.port = self._socket.bind_to_random_port('tcp://127.0.0.1')
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f'tcp://127.0.0.1:{self.port}'

    def _serve(self) -> None:
        while not self._stop.is_set():
            if not self._socket.poll(50):
                continue
            *route, question = self._socket.recv_multipart()
            answer = self._answer(question)
            self.n_questions += 1
            self._reply(route, answer, self.fault if self.n_questions == self.at else 'none')

    def _reply(self, route: list[bytes], answer: bytes, fault: str) -> None:
        if fault == 'silent':
            return
        if fault == 'dying':
            self._socket.unbind(f'tcp://127.0.0.1:{self.port}')
            self._reopen()
            return
        if fault == 'slow':
            time.sleep(self.nap_s)
        if fault == 'rubbish':
            answer = b'\xc1\xff\x00' * 9
        if fault == 'oversized':
            answer = bytes(4 << 20)
        if fault == 'half':
            answer = answer[: len(answer) // 2]
        self._socket.send_multipart([*route, answer])

    def _reopen(self) -> None:
        """Close the socket, which hangs up on everybody, and listen again on the same port."""
        import zmq

        self._socket.close(0)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        ends_s = time.monotonic() + 5.0
        while True:
            try:
                self._socket.bind(f'tcp://127.0.0.1:{self.port}')
                return
            except zmq.ZMQError:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(0.02)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self._socket.close(0)

    def __enter__(self) -> FaultyZmq:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def websocket_frame(message: bytes | str) -> bytes:
    """One unfragmented frame from a server."""
    payload = message.encode() if isinstance(message, str) else message
    first = bytes([0x81 if isinstance(message, str) else 0x82])
    if len(payload) < 126:
        return first + bytes([len(payload)]) + payload
    if len(payload) < 1 << 16:
        return first + b'\x7e' + len(payload).to_bytes(2, 'big') + payload
    return first + b'\x7f' + len(payload).to_bytes(8, 'big') + payload


def http_answer(body: bytes, status: int) -> bytes:
    return f'HTTP/1.1 {status} Told\r\nContent-Length: {len(body)}\r\n\r\n'.encode() + body


# A small server that speaks openpi's wire, for tests: in a thread, on a free port of this machine.

Infer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class OpenPiServer:
    """Serves `infer`; an exception in it goes out as a text frame before the server hangs up, as with openpi's."""

    def __init__(self, infer: Infer, *, metadata: Mapping[str, Any] | None = None, port: int = 0) -> None:
        from websockets.sync.server import serve

        self._infer, self._metadata = infer, dict(metadata or {})
        self.raw_questions: list[bytes] = []
        self.authorizations: list[str | None] = []
        self._server = serve(
            self._handle, '127.0.0.1', port, compression=None, max_size=None,
            close_timeout=0.2,  # whoever is not reading any more does not answer the farewell
        )  # fmt: skip
        self.port = int(self._server.socket.getsockname()[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f'ws://127.0.0.1:{self.port}'

    def _handle(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        self.authorizations.append(connection.request.headers.get('Authorization'))
        connection.send(pack(self._metadata))
        while True:
            try:
                question = connection.recv()
                self.raw_questions.append(question)
                connection.send(pack(dict(self._infer(unpack(question)))))
            except ConnectionClosed:
                return
            except Exception:
                connection.send(traceback.format_exc())
                connection.close(code=1011, reason='Internal server error. Traceback included in previous frame.')
                return

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)

    def __enter__(self) -> OpenPiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
