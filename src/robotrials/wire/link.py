"""A socket on which every call has a deadline, however slowly the other side reads or writes."""

from __future__ import annotations

import io
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, BinaryIO, TypeVar
from urllib.parse import SplitResult, urlsplit

from robotrials.errors import InputError, RigError, undone_by
from robotrials.value import dataclass
from robotrials.wire.array import LIMITS, WireLimits, check_size, pack, unpack

T = TypeVar('T')
READ_BYTES = 1 << 16  # larger buffers are mapped anew for every read
KEPT_SHARE = 0.98  # a time-out that the kernel has may be longer than the rest of a deadline by so much
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
TLS_SCHEMES = ('wss', 'https')


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment after which nothing is waited for any more."""

    at_s: float  # of time.monotonic()

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def left_s(self) -> float:
        """Seconds left; TimeoutError once there are none."""
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.at_s


class Link:
    """A stream socket (TCP, TLS or local). Timeouts are TimeoutError, a lost peer is ConnectionError.

    On Linux the kernel keeps the deadline of a plain socket: one call sends everything, where Python's own time-outs
    wake up for every buffer that empties.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._by_kernel = sys.platform == 'linux' and not isinstance(connection, ssl.SSLSocket)
        # For TCP the kernel's time is that of the whole call; for a local socket it starts anew with every buffer.
        self._piece = 1 << 15 if connection.family == socket.AF_UNIX else None
        self._limits_s: dict[int, float] = {}  # as the kernel has them
        if self._by_kernel:
            connection.settimeout(None)

    @classmethod
    def connect(cls, host: str, port: int, *, deadline: Deadline, tls: bool = False) -> Link:
        """Connect; OSError (and so ConnectionError and TimeoutError) if it does not work."""
        link = cls(socket.create_connection((host, port), timeout=deadline.left_s()))
        with undone_by(link.close):
            link._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return link.secured(host, deadline=deadline) if tls else link

    def secured(self, host: str, *, deadline: Deadline) -> Link:
        """The same connection under TLS, once the host has shown its certificate."""
        self._socket.settimeout(deadline.left_s())
        return Link(ssl.create_default_context().wrap_socket(self._socket, server_hostname=host))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes | memoryview, *, deadline: Deadline) -> None:
        """Send all of it."""
        if not self._by_kernel:
            self._socket.settimeout(deadline.left_s())
            self._socket.sendall(data)
            return
        rest = memoryview(data)
        while rest:
            self._limit(socket.SO_SNDTIMEO, deadline)
            try:
                rest = rest[self._socket.send(rest[: self._piece]) :]
            except BlockingIOError as error:
                raise TimeoutError from error

    def receive(self, *, deadline: Deadline, most: int = READ_BYTES) -> bytes:
        """Some bytes, as soon as there are any; b'' once the other side has finished."""
        if not self._by_kernel:
            self._socket.settimeout(deadline.left_s())
            return self._socket.recv(most)
        self._limit(socket.SO_RCVTIMEO, deadline)
        try:
            return self._socket.recv(most)
        except BlockingIOError as error:
            raise TimeoutError from error

    def receive_into(self, buffer: memoryview, *, deadline: Deadline) -> int:
        if not self._by_kernel:
            self._socket.settimeout(deadline.left_s())
            return self._socket.recv_into(buffer)
        self._limit(socket.SO_RCVTIMEO, deadline)
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError as error:
            raise TimeoutError from error

    def _limit(self, option: int, deadline: Deadline) -> None:
        left_s = deadline.left_s()
        if KEPT_SHARE * self._limits_s.get(option, 0.0) <= left_s <= self._limits_s.get(option, 0.0):
            return  # as good as set; the call would cost as much as a short message
        whole, part = divmod(left_s, 1.0)
        # A time of zero would mean none, and a million microseconds are refused.
        spared = struct.pack('ll', int(whole), min(int(part * 1e6) + 1, 999_999))
        self._socket.setsockopt(socket.SOL_SOCKET, option, spared)
        self._limits_s[option] = left_s

    def is_readable(self) -> bool:
        """Whether something (bytes, or the end) is waiting to be read."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        ready = select.poll()  # select() takes no descriptor above 1023
        ready.register(self._socket, select.POLLIN)
        return bool(ready.poll(0))

    def close(self) -> None:
        """Let go at once, without waiting for the other side."""
        self._socket.close()


class DeadlineReader(io.RawIOBase):
    """A link as a file to read from, for parsers that want one; `deadline` may be moved between messages."""

    def __init__(self, link: Link, deadline: Deadline) -> None:
        self._link, self.deadline = link, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer is a memoryview here
        return self._link.receive_into(memoryview(buffer), deadline=self.deadline)


def split_url(url: str, schemes: tuple[str, ...]) -> tuple[SplitResult, str, int]:
    """A URL's parts, host and port; InputError names what was wanted."""
    wanted = f'wanted {" or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)}'
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f'url is {url!r} ({error}), {wanted}') from error
    if parts.scheme not in schemes or not parts.hostname:
        raise InputError(f'url is {url!r}, {wanted}')
    if parts.username or parts.password:
        raise InputError('url holds a user or password; name an environment variable with the key instead')
    if port is None:
        port = 443 if parts.scheme in TLS_SCHEMES else 80
    return parts, parts.hostname, port


# --- waiting for a server

Waiting = Callable[[str, float, float], None]
_WAITING: ContextVar[Waiting | None] = ContextVar('robotrials_waiting', default=None)


@contextmanager
def shown_waiting(show: Waiting) -> Iterator[None]:
    """Inside this, `show(what, waited_s, limit_s)` is told of every wait for a server that is not there yet."""
    token = _WAITING.set(show)
    try:
        yield
    finally:
        _WAITING.reset(token)


def keep_trying(attempt: Callable[[Deadline], T], *, what: str, timeout_s: float) -> T:
    """The result of `attempt`, repeated with growing pauses while it raises OSError: servers take long to load."""
    deadline, started_s, pause_s = Deadline.after(timeout_s), time.monotonic(), FIRST_PAUSE_S
    while True:
        try:
            return attempt(deadline)
        except OSError as error:
            left_s = deadline.at_s - time.monotonic()
            if left_s <= 0:
                why = str(error) or type(error).__name__
                raise RigError(f'{what} did not answer within {timeout_s:g} s ({why}); is it running?') from error
        show = _WAITING.get()
        if show is not None:
            show(what, time.monotonic() - started_s, timeout_s)
        time.sleep(min(pause_s, max(0.0, left_s)))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


# Frames on a byte stream: magic, version, length, message. A stranger, a cut or an overlong message is named.

MAGIC = b'TRLW'
VERSION = 1
HEADER = struct.Struct('>4sBI')


def write_frame(stream: BinaryIO, value: object) -> None:
    """Send one message."""
    stream.write(encode_frame(value))
    stream.flush()


def encode_frame(value: object, *, limits: WireLimits = LIMITS) -> bytes:
    """One message with its header."""
    body = pack(value)
    check_size(len(body), limits)
    return HEADER.pack(MAGIC, VERSION, len(body)) + body


def read_frame(stream: BinaryIO) -> Any:
    """The next message; EOFError if the stream ends between two."""
    header = stream.read(HEADER.size)
    if not header:
        raise EOFError
    if len(header) < HEADER.size:
        raise InputError(f'the stream ended inside a header, after {len(header)} bytes')
    return unpack(_exactly(stream, read_header(header)))


def read_header(header: bytes, *, limits: WireLimits = LIMITS) -> int:
    """How many bytes follow a header, if it is one of ours and of an allowed length."""
    magic, version, length = HEADER.unpack(header)
    if magic != MAGIC:
        raise InputError(f'a frame begins with {magic!r}, wanted {MAGIC!r}: the other side speaks something else')
    if version != VERSION:
        raise InputError(f'a frame of wire version {version}, this robotrials speaks {VERSION}; upgrade one of the two')
    if length > limits.max_bytes:
        raise InputError(f'a frame announces {length} bytes, more than the {limits.max_bytes} allowed')
    return int(length)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        part = stream.read(min(missing, 1 << 20))  # what was announced is not allocated before it comes
        if not part:
            raise InputError(f'the stream ended inside a message: {length - missing} of {length} bytes')
        parts.append(part)
        missing -= len(part)
    return b''.join(parts)
