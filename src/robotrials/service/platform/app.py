"""The application: the REST interface, pages, health and metrics.

uvicorn.run(create_app(read_config('FOLDER')))

Running a server as a process: uvicorn, logs, and an end that lets requests finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
import math
import resource
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TextIO

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from robotrials import __version__
from robotrials.errors import RobotrialsError, WriteError
from robotrials.service.frame import listen
from robotrials.service.platform.access import Refusal
from robotrials.service.platform.config import PlatformConfig, keep_private
from robotrials.service.platform.database import DISK_FULL, disk_full
from robotrials.service.platform.page import error_page, install_pages
from robotrials.service.platform.route import admin, cell, submission
from robotrials.service.platform.server import Platform

PREFIX = '/api/v1'
CODES = {404: 'not_found', 405: 'method_not_allowed', 400: 'bad_request'}
log = logging.getLogger('robotrials.service.platform')


def create_app(
    config: PlatformConfig, *, platform: Platform | None = None, routers: Sequence[APIRouter] = ()
) -> FastAPI:
    """The application on a folder; `routers` are further routes beside the REST interface and the pages."""
    server = platform or Platform(config)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        server.begin_sweeping()
        log.info('started', extra={'fields': {'version': __version__, 'recovered': server.n_recovered}})
        yield
        server.is_draining = True
        log.info('stopped')
        server.close()

    app = FastAPI(
        title='robotrials platform', version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url=f'{PREFIX}/openapi.json',
        description='Submit a policy, wait for a cell, be evaluated blind. Errors: {"error": {"code", "message"}}.',
    )  # fmt: skip
    app.state.platform = server
    for module in (submission, cell, admin):
        app.include_router(module.router, prefix=PREFIX)
    for router in routers:
        app.include_router(router)
    _add_health(app, server)
    _add_handlers(app)
    app.add_middleware(BodyLimit, config=config)
    app.add_middleware(Observed, platform=server)
    install_pages(app)
    return app


def _add_health(app: FastAPI, platform: Platform) -> None:
    @app.get('/healthz', include_in_schema=False)
    def healthz() -> PlainTextResponse:
        """The process answers."""
        return PlainTextResponse('ok\n')

    @app.get('/readyz', include_in_schema=False)
    def readyz() -> PlainTextResponse:
        """The database answers, and the server is not about to end."""
        if platform.is_draining:
            return PlainTextResponse('draining\n', status_code=503)
        try:
            platform.database.check()
        except DBAPIError as error:
            platform.outage.note(error)
            return PlainTextResponse('the database does not answer\n', status_code=503)
        return PlainTextResponse('ready\n')

    @app.get('/metrics', include_in_schema=False)
    def metrics() -> Response:
        return Response(platform.metrics.text(platform.database), media_type='text/plain; version=0.0.4')


def problem(status: int, code: str, message: str, *, retry_after_s: float | None = None) -> JSONResponse:
    headers = {} if retry_after_s is None else {'Retry-After': str(max(1, math.ceil(retry_after_s)))}
    if status == 401:
        headers['WWW-Authenticate'] = 'Bearer'
    return JSONResponse({'error': {'code': code, 'message': message}}, status, headers)


def _told(request: Request, status: int, code: str, message: str, *, retry_after_s: float | None = None) -> Response:
    """A refusal as JSON, or as a page to whoever looks at pages."""
    wants_page = 'text/html' in request.headers.get('accept', '') or 'hx-request' in request.headers
    if wants_page and not request.url.path.startswith(f'{PREFIX}/'):
        return error_page(request, status, message)
    return problem(status, code, message, retry_after_s=retry_after_s)


def _add_handlers(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    def _refused(request: Request, refusal: Refusal) -> Response:
        if refusal.code == DISK_FULL:
            app.state.platform.outage.note_full(refusal.__cause__ or refusal)
        return _told(request, refusal.status, refusal.code, str(refusal), retry_after_s=refusal.retry_after_s)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        problems = [f'{".".join(str(p) for p in e["loc"][1:]) or e["loc"][0]}: {e["msg"]}' for e in error.errors()[:5]]
        return _told(request, 422, 'invalid_request', '; '.join(problems).encode('utf-8', 'backslashreplace').decode())

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        answer = _told(request, error.status_code, CODES.get(error.status_code, 'refused'), str(error.detail))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(WriteError)
    def _full(request: Request, error: WriteError) -> Response:
        app.state.platform.outage.note_full(error)
        refusal = disk_full()
        return _told(request, refusal.status, refusal.code, str(refusal), retry_after_s=refusal.retry_after_s)

    @app.exception_handler(RobotrialsError)
    def _ours(request: Request, error: RobotrialsError) -> Response:
        log.error('refused by the record', exc_info=error)
        return _told(request, 500, 'record', 'the record could not be read or written; the log of the server says why')

    @app.exception_handler(Exception)
    def _any(_request: Request, error: Exception) -> JSONResponse:
        log.error('failed', exc_info=error)
        return problem(500, 'internal', 'the server failed; its log says why')

    @app.exception_handler(DBAPIError)
    def _outage(request: Request, error: DBAPIError) -> Response:
        if not isinstance(error, OperationalError | InterfaceError):
            # It answers, and does not take what was asked: nobody may feign an outage, after which leases are renewed.
            return _any(request, error)
        app.state.platform.outage.note(error)
        return _told(request, 503, 'database', 'the database does not answer; ask again', retry_after_s=5.0)

    @app.exception_handler(MemoryError)
    def _starved(request: Request, error: MemoryError) -> Response:
        log.error('out of memory', extra={'fields': {'path': request.url.path, 'why': str(error)}})
        message = 'the server has not enough memory for this now; nothing was changed; send it again later'
        return _told(request, 503, 'memory', message, retry_after_s=10.0)


Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class BodyLimit:
    """Refuses bodies past their limit as they come in, whatever their header says."""

    def __init__(self, app: Any, *, config: PlatformConfig) -> None:
        self._app, self._config = app, config

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        is_bundle = scope['path'].startswith(f'{PREFIX}/leases/') and scope['path'].endswith('/result')
        limit = self._config.most_bundle_bytes if is_bundle else self._config.most_body_bytes
        declared = dict(scope['headers']).get(b'content-length', b'0')
        n_bytes, is_too_large = 0, declared.isdigit() and int(declared) > limit

        async def counted() -> dict[str, Any]:
            nonlocal n_bytes, is_too_large
            message = await receive()
            n_bytes += len(message.get('body', b''))
            if n_bytes > limit:
                is_too_large = True
                return {'type': 'http.disconnect'}
            return message

        async def withheld(message: dict[str, Any]) -> None:
            if not is_too_large:
                await send(message)

        if not is_too_large:
            with contextlib.suppress(ClientDisconnect):
                await self._app(scope, counted, withheld)
        if is_too_large:
            answer = problem(413, 'too_large', f'a body of more than {limit} bytes')
            await answer(scope, receive, send)  # type: ignore[arg-type]  # ASGI's own types


class Observed:
    """Counts and logs requests by route."""

    def __init__(self, app: Any, *, platform: Platform) -> None:
        self._app, self._platform = app, platform

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        began_s, status = time.perf_counter(), 500

        async def noted(message: dict[str, Any]) -> None:
            nonlocal status
            if message['type'] == 'http.response.start':
                status = message['status']
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            took_s = time.perf_counter() - began_s
            route = getattr(scope.get('route'), 'path', 'unknown')
            metrics = self._platform.metrics
            metrics.requests.labels(scope['method'], route, str(status)).inc()
            metrics.request_s.labels(route).observe(took_s)
            fields = {'method': scope['method'], 'route': route, 'status': status, 'took_ms': round(1000 * took_s, 2)}
            log.info('request', extra={'fields': fields})


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
# uvicorn waits forever for the end of a request's head or body. A thousand connections that say half a line would
# take every descriptor of the process, and nobody else would get an answer.

HEAD_S = 10.0  # to say anything, and again for the head of a request
BODY_S = 30.0  # for a body, and a second more for every LEAST_BYTES_S of it
LEAST_BYTES_S = 20_000
READ_S = 60.0  # in which a client has to read something of what it is sent
LOOK_S = 1.0
SPARE_DESCRIPTORS = 200  # of the process, for stores, the database and calls of our own


@dataclass(eq=False)
class ConnectionGate:
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

    gate: ConnectionGate  # of the server; set by `walled`

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
    return type('ServerProtocol', (WalledProtocol,), {'gate': ConnectionGate(per_address, most)})


def raise_descriptors() -> int:
    """Take as many file descriptors as the system lets this process have; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft if soft != resource.RLIM_INFINITY else 1 << 16


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
    # Who connects from now on waits, and is not refused. Before anything is made or told: a busy port must not cost the
    # first admin's token.
    listening = listen(port, host=host, backlog=BACKLOG)
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
