"""Running a server as a process: uvicorn, logs, and an end that lets requests finish."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import resource
import socket
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TextIO

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from robotrials.errors import InputError
from robotrials.service.platform.app import create_app
from robotrials.service.platform.config import PlatformConfig
from robotrials.service.platform.private import keep_private
from robotrials.service.platform.server import Platform

# Logs as JSON, one object a line. A request is logged by its route, never by who asked for what.
# Ids of submissions beside ids of workers would tell whoever reads the log which policy runs where.

NAME = 'robotrials.service.platform'


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec='milliseconds')
        values = {'at': at, 'level': record.levelname.lower(), 'event': record.getMessage()}
        values |= getattr(record, 'fields', {})
        if record.exc_info:
            values['error'] = self.formatException(record.exc_info)
        return json.dumps(values, ensure_ascii=True)


def log_to(stream: TextIO | None = None, *, level: int = logging.INFO) -> logging.Logger:
    """Send the platform's and uvicorn's logs to a stream (stderr unless given), one JSON object a line."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (NAME, 'uvicorn.error'):
        logger = logging.getLogger(name)
        logger.handlers[:], logger.propagate = [handler], False
        logger.setLevel(level)
    logging.getLogger('uvicorn.access').handlers[:] = []
    logging.getLogger('uvicorn.access').propagate = False
    return logging.getLogger(NAME)


# The server's outer wall: how long a connection may take to say what it wants, and how many one address may have.
# uvicorn waits for ever for the end of a request's head or body. A thousand connections that say half a line would
# take every descriptor of the process, and nobody else would get an answer.

HEAD_S = 10.0  # to say anything, and again for the head of a request
BODY_S = 30.0  # for a body, and a second more for every LEAST_BYTES_S of it
LEAST_BYTES_S = 20_000
READ_S = 60.0  # in which a client has to read something of what it is sent
LOOK_S = 1.0
SPARE_DESCRIPTORS = 200  # of the process, for stores, the database and calls of our own


@dataclass(eq=False)
class Gate:
    """Who is connected. A full house lets go of whoever has kept it waiting longest."""

    per_address: int
    total: int
    counts: Counter[str] = field(default_factory=Counter)
    inside: set[WalledProtocol] = field(default_factory=set)

    def admit(self, protocol: WalledProtocol) -> bool:
        if self.counts[protocol.address] >= self.per_address:
            return False
        if len(self.inside) >= self.total:
            idle = [p for p in self.inside if p.is_waiting]
            if not idle:
                return False
            min(idle, key=lambda p: p.since_s).hang_up()
        self.counts[protocol.address] += 1
        self.inside.add(protocol)
        return True

    def leave(self, protocol: WalledProtocol) -> None:
        if protocol in self.inside:
            self.inside.discard(protocol)
            self.counts[protocol.address] -= 1
            if not self.counts[protocol.address]:
                del self.counts[protocol.address]


class WalledProtocol(H11Protocol):
    """uvicorn's own protocol with deadlines for head, body and reading."""

    gate: Gate  # of the server; set by `walled`

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.address = str((transport.get_extra_info('peername') or ('',))[0])
        self.since_s = self.loop.time()  # since it is in its present state
        self._n_body = 0
        self._unread = 0
        self._state = ''
        self._is_admitted = self.gate.admit(self)
        super().connection_made(transport)
        if not self._is_admitted:
            transport.abort()
            return
        self._look = self.loop.call_later(LOOK_S, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_admitted:
            self.gate.leave(self)
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_admitted:
            return
        self._n_body += len(data)
        super().data_received(data)

    @property
    def is_waiting(self) -> bool:
        """Whether it is the client's turn, and nothing is lost by hanging up on it."""
        return self._state_now() != 'answer'

    def hang_up(self) -> None:
        self.gate.leave(self)
        self.transport.abort()

    def _state_now(self) -> str:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request, whatever uvicorn declares
        if cycle is not None and not cycle.response_complete:
            return 'body' if cycle.more_body else 'answer'
        if self.conn.trailing_data[0]:
            return 'head'  # a part of one
        return 'new' if cycle is None else 'kept'

    def _check(self) -> None:
        """Look once a second which state the connection is in, and for how long."""
        if self.transport.is_closing():
            return
        now, state, unread = self.loop.time(), self._state_now(), self.transport.get_write_buffer_size()
        is_read = state == 'answer' and (not unread or unread < self._unread)
        if state != self._state or is_read:
            self._state, self.since_s, self._n_body = state, now, 0
        self._unread = unread
        if now - self.since_s > self._limit_s(state):
            self.transport.abort()
            return
        self._look = self.loop.call_later(LOOK_S, self._check)

    def _limit_s(self, state: str) -> float:
        if state == 'body':
            return BODY_S + self._n_body / LEAST_BYTES_S
        return {'answer': READ_S, 'kept': self.timeout_keep_alive + HEAD_S}.get(state, HEAD_S)


def walled(*, per_address: int, total: int) -> type[WalledProtocol]:
    """The protocol of one server, with its own gate."""
    most = max(16, min(total, raise_descriptors() - SPARE_DESCRIPTORS))
    return type('ServerProtocol', (WalledProtocol,), {'gate': Gate(per_address, most)})


def raise_descriptors() -> int:
    """Take as many file descriptors as the system lets this process have; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft if soft != resource.RLIM_INFINITY else 1 << 16


__all__ = ['Gate', 'WalledProtocol', 'walled']


KEEP_ALIVE_S = 30
BACKLOG = 2048


class DrainingServer(uvicorn.Server):
    """Tells the platform of its end at once, so that pages which listen on do not hold it up."""

    def __init__(self, config: uvicorn.Config, *, platform: Platform) -> None:
        super().__init__(config)
        self._platform = platform

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._platform.is_draining = True
        super().handle_exit(sig, frame)


def run_server(config: PlatformConfig, *, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT: then nothing new is taken, requests under way are finished, and leases stay.

    Workers go on with their episodes while there is no server, and upload when it is back.
    """
    log_to()
    keep_private()
    listening = _listening(host, port)  # who connects from now on waits, and is not refused
    platform = Platform(config)
    first = platform.write_first_token()
    if first is not None:
        tell(f'token of the first admin: in {first}; take it from there and remove the file')
    app = create_app(config, platform=platform)
    settings = uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(config.drain_s), server_header=False,
        http=walled(per_address=config.connections_per_address, total=config.connections),
    )  # fmt: skip
    address, chosen = listening.getsockname()[:2]
    tell(f'listening on http://{address}:{chosen}')
    DrainingServer(settings, platform=platform).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    """The open port: had before anything is made or told, so that a busy one costs nobody the first admin's token."""
    if not 0 <= port <= 65535:
        raise InputError(f'port is {port}, wanted 0 to 65535')
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f'{host}:{port} cannot be listened on ({error.strerror}); give another --port or --host'
        ) from error
