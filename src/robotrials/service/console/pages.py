"""The console's page and the few addresses behind it. The page is a shell: what it shows comes from `/api/state`."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robotrials.errors import InputError, RobotrialsError, StoreError
from robotrials.old_name import CONSOLE_PREFIX
from robotrials.service.console.account import Action, Refusal
from robotrials.service.console.desk import Answer, Desk
from robotrials.service.frame import Pages, install_frame, static_url

# Who may use a console that other machines can reach: whoever has the key that was printed with its address.

KEY_BYTES = 24
SHORTEST_KEY = 16
COOKIE_AGE_S = 30 * 86_400


def access_key(folder: Path) -> str:
    """The key of this console; it outlives a restart, so that a phone with unsent episodes can still send them."""
    path = folder / 'access-key'
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_text(encoding='ascii', errors='replace').strip()
        if len(key) < SHORTEST_KEY:
            raise InputError(
                f'{path}: wanted a key, found {len(key)} characters; remove the file for a new one'
            ) from None
        return key
    with os.fdopen(handle, 'w', encoding='ascii') as stream:
        key = secrets.token_urlsafe(KEY_BYTES)
        stream.write(key + '\n')
        stream.flush()
        os.fsync(stream.fileno())
    return key


def install_access(app: FastAPI, key: str, *, cookie: str, is_secure: bool) -> None:
    """Refuse every request without the key, in the address once and in a cookie from then on."""
    from starlette.responses import PlainTextResponse

    def fits(given: str) -> bool:
        return hmac.compare_digest(given.encode(), key.encode())

    @app.middleware('http')
    async def check(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        is_new = fits(request.query_params.get('key', ''))
        if not is_new and not fits(request.cookies.get(cookie, '')):
            refusal = 'wanted the access key: open the address that `robotrials console` printed, with its key'
            return PlainTextResponse(refusal, status_code=401)
        response = await answer(request)
        if is_new:
            response.set_cookie(cookie, key, max_age=COOKIE_AGE_S, httponly=True, samesite='strict', secure=is_secure)
        return response


PAGES = Pages('robotrials.service.console')
VERSIONED = ('icon.svg', 'frame.css', 'console.css', 'theme.js', 'console.js', 'console.webmanifest')
MODULES = tuple(
    f'/static/console-{name}.js' for name in ('rules', 'box', 'view')
)  # imported by name, so without a version


class GivenStopRequest(BaseModel):
    model_config = ConfigDict(extra='forbid')
    key: str = Field(default='', max_length=80)  # of the episode under way, if any
    t_s: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)


def create_console(desk: Desk, *, key: str = '', is_secure: bool = False) -> FastAPI:
    """The console of a desk. Without a `key` it answers to this machine alone; with one, to whoever has it."""
    app = FastAPI(title='robotrials console', docs_url=None, redoc_url=None, openapi_url=None)
    name = desk.journal.path.stem
    space = hashlib.sha256(f'{desk.context.trial_id} {name}'.encode()).hexdigest()[:12]
    if key:
        install_access(app, key, cookie=f'{CONSOLE_PREFIX}-{space}', is_secure=is_secure)
    install_frame(app, is_local=not key)
    shell: dict[str, Any] = {
        'title': 'Console', 'store': desk.store.path.name, 'operator': desk.context.operator, 'space': space,
        'has_stop': desk.has_stop,
    }  # fmt: skip

    @app.exception_handler(RobotrialsError)
    async def tell(request: Request, error: Exception) -> Response:
        status = 503 if isinstance(error, StoreError) else 400
        field = ''
        if isinstance(error, Refusal):
            status, field = (409 if error.is_conflict else 400), error.field
        return JSONResponse({'error': str(error), 'field': field}, status_code=status)

    @app.get('/')
    def page() -> HTMLResponse:
        return PAGES.page('console.html.j2', **shell)

    @app.get('/worker.js')
    def worker() -> Response:
        files = ['/', *MODULES, *map(static_url, VERSIONED)]
        version = hashlib.sha256(PAGES.text('console.html.j2', **shell).encode() + _modules()).hexdigest()[:12]
        text = PAGES.text('worker.js.j2', files=files, name=f'{CONSOLE_PREFIX}-{space}-', version=version)
        return Response(text, media_type='text/javascript', headers={'Cache-Control': 'no-cache'})

    @app.get('/api/state')
    def state() -> Answer:
        return desk.state()

    @app.post('/api/actions')
    def act(action: Action) -> Answer:
        return desk.act(action)

    @app.post('/api/stop')
    async def stop(request: Request) -> Answer:
        given = _stop_request(await request.body())
        # A thread outside the pool that serves the other addresses: however many of those wait, this one runs.
        return await asyncio.to_thread(desk.stop_arm, key=given.key, t_s=given.t_s)

    return app


def _stop_request(body: bytes) -> GivenStopRequest:
    """Of which episode and when, as far as it can be read: no request to stop the arm is refused for its form."""
    try:
        return GivenStopRequest.model_validate_json(body)
    except ValidationError:
        return GivenStopRequest()


def _modules() -> bytes:
    return b''.join(static_url(path.removeprefix('/static/')).encode() for path in MODULES)
