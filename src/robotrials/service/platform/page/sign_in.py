"""Signing in with a token, and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from robotrials.service.platform.page.drawn import draw
from robotrials.service.platform.page.visit import (
    COOKIE,
    TRIES_PER_MINUTE,
    ACheckedForm,
    AForm,
    AVisitor,
    begin_visit,
    end_visit,
)
from robotrials.service.platform.refusal import Refusal
from robotrials.service.platform.route.common import ThePlatform

router = APIRouter(include_in_schema=False)


@router.get('/sign-in')
def ask(visitor: AVisitor, then: str = '/') -> Response:
    return draw('sign_in.html.j2', visitor, title='Sign in', then=_own_address(then))


@router.post('/sign-in')
def sign_in(request: Request, visitor: AVisitor, form: AForm, platform: ThePlatform) -> Response:
    then = _own_address(form.text('then'))
    address = request.client.host if request.client else ''
    try:
        platform.limiter.take(f'sign-in {address}', per_minute=TRIES_PER_MINUTE)
        cookie = begin_visit(platform, form.text('token'))
    except Refusal as refusal:
        message = 'That is no token of this server.' if refusal.code == 'no_token' else str(refusal)
        return draw(
            'sign_in.html.j2', visitor, status=refusal.status, title='Sign in', then=then, problem=message
        )  # fmt: skip
    answer = RedirectResponse(then, status_code=303)
    answer.set_cookie(
        COOKIE, cookie, max_age=int(platform.config.sign_in_s), httponly=True, samesite='strict', path='/',
        secure=request.url.scheme == 'https',
    )  # fmt: skip
    return answer


@router.post('/sign-out')
def sign_out(request: Request, visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    end_visit(platform, request.cookies.get(COOKIE, ''), visitor.require())
    answer = RedirectResponse('/sign-in', status_code=303)
    answer.delete_cookie(COOKIE, path='/', httponly=True, samesite='strict')
    return answer


def _own_address(then: str) -> str:
    """Where to go next: only a path of this server."""
    is_own = then.startswith('/') and not then.startswith(('//', '/\\')) and then.isprintable() and '\\' not in then
    return then if is_own and len(then) < 2000 else '/'
