"""The application: the REST interface, pages, health and metrics.

uvicorn.run(create_app(read_config('FOLDER')))
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from robotrials import __version__
from robotrials.errors import RobotrialsError, WriteError
from robotrials.service.platform.config import PlatformConfig
from robotrials.service.platform.database import DISK_FULL, disk_full
from robotrials.service.platform.page import error_page, install_pages
from robotrials.service.platform.refusal import Refusal
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
