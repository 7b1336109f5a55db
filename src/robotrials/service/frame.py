"""What every page has in common: templates, static files, and headers that keep a page to itself."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from robotrials.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from jinja2 import Environment
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, Response

CONTENT_POLICY = '; '.join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:",
        "media-src 'self' blob:", "connect-src 'self'", "font-src 'self'", "manifest-src 'self'", "worker-src 'self'",
        "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
    )
)  # fmt: skip
HEADERS = {
    'Content-Security-Policy': CONTENT_POLICY,
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'same-origin',  # with no-referrer a browser says Origin: null of our own forms
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Permissions-Policy': 'camera=(), microphone=(), geolocation=()',
}
MOST_TOLD = 5
OWN_NAMES = ('localhost', '127.0.0.1', '::1', 'testserver')
SAFE_METHODS = ('GET', 'HEAD', 'OPTIONS')


class Pages:
    """Templates of this room and of further packages, each from its folder `template`; everything is escaped."""

    def __init__(self, *packages: str, values: Mapping[str, Any] | None = None) -> None:
        self._packages, self._values = packages, dict(values or {})

    @property
    def environment(self) -> Environment:
        return _environment(self._packages)

    def text(self, template: str, **values: Any) -> str:
        """A filled-in template, such as a part of a page that a script asks for."""
        return self.environment.get_template(template).render(**{**self._values, **values})

    def page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        from starlette.responses import HTMLResponse

        return HTMLResponse(self.text(template, **values), status_code=status)


@cache
def _environment(packages: tuple[str, ...]) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(name, 'template') for name in (*packages, 'robotrials.service')])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals['static'] = static_url
    return made


@cache
def static_url(name: str) -> str:
    """The address of a static file; it changes with the file, so that it may be cached forever."""
    content = resources.files('robotrials.service').joinpath('static', *name.split('/')).read_bytes()
    return f'/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}'


def install_frame(app: FastAPI, *, is_local: bool = False) -> None:
    """Serve the static files, and guard every answer of an app.

    With `is_local` only this machine's own names are answered to: a page elsewhere can point a name of its own here.
    """
    from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.staticfiles import StaticFiles

    folder = resources.files('robotrials.service').joinpath('static')
    app.mount('/static', StaticFiles(directory=str(folder)), name='static')
    app.add_middleware(Guard, is_local=is_local)
    if app.exception_handlers.get(RequestValidationError) is request_validation_exception_handler:
        app.exception_handler(RequestValidationError)(_tell_invalid)
    if app.exception_handlers.get(HTTPException) is http_exception_handler:
        app.exception_handler(HTTPException)(_tell_absent)


async def _tell_absent(request: Request, error: Any) -> Response:
    """An address that leads nowhere, as a page where a person asks, and otherwise as FastAPI tells it."""
    from fastapi.exception_handlers import http_exception_handler

    if error.status_code != 404 or 'text/html' not in request.headers.get('accept', ''):
        return await http_exception_handler(request, error)
    message = f'{request.url.path}: there is no such page here; the address may be cut short.'
    return Pages().page('error.html.j2', status=404, title='Not found', message=message)


async def _tell_invalid(request: Request, error: Any) -> Response:
    """What is wrong with a request and where; what was sent is not repeated, as it may be no JSON."""
    from starlette.responses import JSONResponse

    problems = [f'{".".join(map(str, e["loc"]))}: {e["msg"]}' for e in error.errors()[:MOST_TOLD]]
    return JSONResponse({'error': '; '.join(problems).encode('utf-8', 'replace').decode()}, status_code=422)


class Guard:
    """Keeps every answer of an app to itself, and other sites from changing anything."""

    def __init__(self, app: Any, *, is_local: bool = False) -> None:
        self._app, self._is_local = app, is_local

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.datastructures import MutableHeaders
        from starlette.requests import Request

        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return

        async def guarded(message: Any) -> None:
            if message['type'] == 'http.response.start':
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope['path'].startswith('/static/') and scope['query_string'].startswith(b'v='):
                    headers['Cache-Control'] = 'public, max-age=31536000, immutable'
                else:
                    headers.setdefault('Cache-Control', 'no-store')
            await send(message)

        refused = self._refused(Request(scope))
        await (self._app if refused is None else refused)(scope, receive, guarded)

    def _refused(self, request: Request) -> Response | None:
        from starlette.responses import PlainTextResponse

        if self._is_local and _host_name(f'//{request.headers.get("host", "")}') not in OWN_NAMES:
            return PlainTextResponse('wanted localhost: this page answers to this machine alone', status_code=421)
        if request.method not in SAFE_METHODS and _is_from_elsewhere(request):
            return PlainTextResponse('a page of another site may not change anything here', status_code=403)
        return None


def _host_name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _is_from_elsewhere(request: Request) -> bool:
    """Whether a browser sent this for a page of another origin. Programs send neither header, and carry no cookie."""
    site = request.headers.get('sec-fetch-site')
    if site is not None:
        return site not in ('same-origin', 'none')
    origin = request.headers.get('origin')
    return origin is not None and origin.partition('://')[2] != request.headers.get('host')


def listen(port: int, *, host: str = '127.0.0.1', backlog: int | None = None) -> socket.socket:
    """A socket that keeps callers waiting until it is served, so that its address can be told first; port 0: any."""
    if not 0 <= port <= 65535:
        raise InputError(f'port is {port}, wanted 0 to 65535')
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InputError(
            f'{host}:{port} cannot be listened on ({reason}); give another --port (0: any free one) or --host'
        ) from error
    # Connections inherit it. asyncio sets it only on sockets of its own making, and an answer's head and body are two
    # pieces: the second would wait until the client has acknowledged the first, for which clients take 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve_locally(
    app: FastAPI, listener: socket.socket, *, certificate: Path | None = None, private_key: Path | None = None
) -> None:
    """Run an app on what `listen` gave until interrupted; over TLS where a certificate is given."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level='warning', timeout_graceful_shutdown=3, ssl_certfile=certificate, ssl_keyfile=private_key
    )
    with contextlib.suppress(KeyboardInterrupt), listener:
        uvicorn.Server(config).run(sockets=[listener])
