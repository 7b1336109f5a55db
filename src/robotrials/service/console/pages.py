"""The console's page and the few addresses behind it. The page is a shell: what it shows comes from `/api/state`."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robotrials.errors import RobotrialsError, StoreError
from robotrials.old_name import CONSOLE_PREFIX
from robotrials.service.console.access import install_access
from robotrials.service.console.action import Action, Refusal
from robotrials.service.console.desk import Answer, Desk
from robotrials.service.frame import Pages, install_frame, static_url

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
