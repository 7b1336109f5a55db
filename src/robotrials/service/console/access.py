"""Who may use a console that other machines can reach: whoever has the key that was printed with its address."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

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
            told = 'wanted the access key: open the address that `robotrials console` printed, with its key'
            return PlainTextResponse(told, status_code=401)
        response = await answer(request)
        if is_new:
            response.set_cookie(cookie, key, max_age=COOKIE_AGE_S, httponly=True, samesite='strict', secure=is_secure)
        return response
