"""A ZeroMQ request socket with deadlines; one that timed out is replaced, because it can never be used again."""

from __future__ import annotations

from typing import Any

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError, SetupError, install_hint
from robotrials.wire.limit import LIMITS, WireLimits


class RequestLink:
    """Question and answer with one server; ZeroMQ connects by itself, so a missing server shows as silence."""

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
        zmq, socket = self._zmq, self._open()
        wait_ms = max(1, int(timeout_s * 1000))
        if not socket.poll(wait_ms, zmq.POLLOUT):
            raise RigError(f'{self.url}: no server took the question within {timeout_s:g} s')
        socket.send(question, zmq.NOBLOCK)
        ready = dict(self._poller.poll(wait_ms))
        if socket not in ready:
            if self._monitor in ready:
                most = self._limits.max_bytes
                raise RigError(f'{self.url}: the server hung up, or its answer was over {most} bytes')
            raise NoAnswer(f'{self.url}: no answer within {timeout_s:g} s')
        answer: bytes = socket.recv(zmq.NOBLOCK)
        if socket.getsockopt(zmq.RCVMORE):
            raise AnswerError(f'{self.url}: an answer of several parts, wanted one')
        return answer

    def _open(self) -> Any:
        if self._socket is None:
            zmq = self._zmq
            socket = self._context.socket(zmq.REQ)
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


def _zmq() -> Any:
    try:
        import zmq
    except ModuleNotFoundError as error:
        raise SetupError(f'pyzmq is not installed; {install_hint("wire")}') from error
    return zmq
