"""What every page has in common: templates, static files, and headers that keep a page to itself."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

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
    'Referrer-Policy': 'no-referrer',
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Permissions-Policy': 'camera=(), microphone=(), geolocation=()',
}
MOST_TOLD = 5
SAFE_METHODS = ('GET', 'HEAD', 'OPTIONS')


class Pages:
    """Templates of `trialist.web` and of further packages, each from its folder `template`; everything is escaped."""

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

    loader = ChoiceLoader([PackageLoader(name, 'template') for name in (*packages, 'trialist.web')])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals['static'] = static_url
    return made


@cache
def static_url(name: str) -> str:
    """The address of a static file; it changes with the file, so that it may be kept for ever."""
    content = resources.files('trialist.web').joinpath('static', *name.split('/')).read_bytes()
    return f'/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}'


def install_frame(app: FastAPI, *, is_local: bool = False) -> None:
    """Serve the static files, and guard every answer of an app.

    With `is_local` only this machine's own names are answered to: a page elsewhere can point a name of its own here.
    """
    from fastapi.exception_handlers import request_validation_exception_handler
    from fastapi.exceptions import RequestValidationError
    from starlette.staticfiles import StaticFiles

    folder = resources.files('trialist.web').joinpath('static')
    app.mount('/static', StaticFiles(directory=str(folder)), name='static')
    app.middleware('http')(_local_guard if is_local else _guard)
    if app.exception_handlers.get(RequestValidationError) is request_validation_exception_handler:
        app.exception_handler(RequestValidationError)(_tell_invalid)


async def _tell_invalid(request: Request, error: Any) -> Response:
    """What is wrong with a request and where; what was sent is not repeated, as it may be no JSON."""
    from starlette.responses import JSONResponse

    told = [f'{".".join(map(str, one["loc"]))}: {one["msg"]}' for one in error.errors()[:MOST_TOLD]]
    return JSONResponse({'error': '; '.join(told).encode('utf-8', 'replace').decode()}, status_code=422)


async def _guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    return await _guarded(request, answer)


async def _local_guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    from starlette.responses import PlainTextResponse

    if _host_name(request) not in ('localhost', '127.0.0.1', '::1', 'testserver'):
        return PlainTextResponse('wanted localhost: this page answers to this machine alone', status_code=421)
    return await _guarded(request, answer)


def _host_name(request: Request) -> str | None:
    try:
        return urlsplit(f'//{request.headers.get("host", "")}').hostname
    except ValueError:
        return None


async def _guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    from starlette.responses import PlainTextResponse

    if request.method not in SAFE_METHODS and _is_from_elsewhere(request):
        return PlainTextResponse('a page of another site may not change anything here', status_code=403)
    response = await answer(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if request.url.path.startswith('/static/') and request.url.query.startswith('v='):
        response.headers['Cache-Control'] = 'public, max-age=31536000, immutable'
    elif 'Cache-Control' not in response.headers:
        response.headers['Cache-Control'] = 'no-store'
    return response


def _is_from_elsewhere(request: Request) -> bool:
    """Whether a browser sent this for a page of another origin. Programs send neither header, and carry no cookie."""
    if request.headers.get('sec-fetch-site', 'none') in ('cross-site', 'same-site'):
        return True
    origin = request.headers.get('origin')
    return origin is not None and origin.partition('://')[2] != request.headers.get('host')


def serve_locally(
    app: FastAPI,
    *,
    port: int,
    host: str = '127.0.0.1',
    certificate: Path | None = None,
    private_key: Path | None = None,
) -> None:
    """Run an app until interrupted; over TLS where a certificate is given."""
    import uvicorn

    uvicorn.run(
        app, host=host, port=port, log_level='warning', timeout_graceful_shutdown=3,
        ssl_certfile=certificate, ssl_keyfile=private_key,
    )  # fmt: skip


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    import socket

    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])
