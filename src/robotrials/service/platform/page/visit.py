"""Who looks at a page: a browser that showed a token once, and has a cookie since.

The cookie is good for pages alone; the REST interface wants the token itself. A form carries a word that only a page of
ours could know, beside what the frame checks of every request that changes something.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup
from sqlalchemy import delete

from robotrials.old_name import SIGN_IN_COOKIE
from robotrials.service.frame import Pages
from robotrials.service.platform.access import Caller, Refusal, Scope, caller_with, identify
from robotrials.service.platform.route.common import ThePlatform
from robotrials.service.platform.server import Platform
from robotrials.service.platform.table import SignIn, note

COOKIE = SIGN_IN_COOKIE
FORM = 'application/x-www-form-urlencoded'
MOST_FIELDS = 100
TRIES_PER_MINUTE = 60  # at signing in, from one address
LOOKS_PER_MINUTE = 600  # of those who are not signed in, from one address


@dataclass(frozen=True, slots=True)
class Visitor:
    """Nobody in particular, or who signed in."""

    caller: Caller | None = None
    form_key: str = ''

    def may(self, *any_of: str) -> bool:
        return self.caller is not None and bool(self.caller.scopes & {Scope(s) for s in any_of})

    def require(self, *any_of: Scope) -> Caller:
        """The caller with one of these scopes; any that is signed in if none is named."""
        if self.caller is None:
            raise Refusal(401, 'signed_out', 'sign in with a token first')
        if any_of:
            self.caller.require(*any_of)
        return self.caller


def begin_visit(platform: Platform, token: str) -> str:
    """Sign in: the text of a new cookie."""
    now = platform.clock()
    with platform.database.read() as session:
        caller = identify(session, token, now=now)
    cookie = secrets.token_urlsafe(32)
    with platform.database.write(caller.actor) as session:
        session.execute(delete(SignIn).where(SignIn.expires_at <= now))
        session.add(
            SignIn(
                sha256=_sha256(cookie), token_id=caller.token_id, created_at=now,
                expires_at=now + platform.config.sign_in_s,
            )
        )  # fmt: skip
        note(session, 'token.sign_in', caller.token_id)
    return cookie


def end_visit(platform: Platform, cookie: str, caller: Caller) -> None:
    """Sign out: the cookie is good for nothing from now on."""
    with platform.database.write(caller.actor) as session:
        session.execute(delete(SignIn).where(SignIn.sha256 == _sha256(cookie)))
        note(session, 'token.sign_out', caller.token_id)


def find_visitor(platform: Platform, cookie: str) -> Visitor:
    """Who has this cookie, while it and the token behind it are good."""
    if not cookie or len(cookie) > 200:
        return Visitor()
    now = platform.clock()
    with platform.database.read() as session:
        sign_in = session.get(SignIn, _sha256(cookie))
        if sign_in is None or sign_in.expires_at <= now:
            return Visitor()
        try:
            caller = caller_with(sign_in.token, now=now)
        except Refusal:
            return Visitor()
    return Visitor(caller, _sha256(f'form {cookie}'))


def visitor_of(request: Request, platform: ThePlatform) -> Visitor:
    """Who looks; counted against their rate."""
    visitor = find_visitor(platform, request.cookies.get(COOKIE, ''))
    if visitor.caller is not None:
        platform.limiter.take(visitor.caller.user_id, per_minute=visitor.caller.requests_per_minute)
    else:
        address = request.client.host if request.client else ''
        platform.limiter.take(f'visitor {address}', per_minute=LOOKS_PER_MINUTE)
    return visitor


AVisitor = Annotated[Visitor, Depends(visitor_of)]


@dataclass(frozen=True, slots=True)
class Form:
    """What was typed into a form."""

    fields: tuple[tuple[str, str], ...]

    def text(self, name: str) -> str:
        return next((value.strip() for key, value in self.fields if key == name), '')

    def every(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key == name]

    def whole(self, name: str) -> int:
        text = self.text(name)
        if not text.isdecimal() or len(text) > 9:
            raise Refusal(422, 'bad_form', f'{name.replace("_", " ")} is {text[:20]!r}, wanted a whole number')
        return int(text)


async def read_form(request: Request) -> Form:
    if request.headers.get('content-type', '').partition(';')[0].strip() != FORM:
        raise Refusal(422, 'bad_form', 'wanted the fields of a form')
    try:
        fields = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise Refusal(422, 'bad_form', 'the form cannot be read') from error
    if any('\x00' in value for _, value in fields):
        raise Refusal(422, 'bad_form', 'the form has characters that cannot be stored')
    return Form(tuple(fields))


AForm = Annotated[Form, Depends(read_form)]


def checked_form(visitor: AVisitor, form: AForm) -> Form:
    """A form of somebody who is signed in, from a page of ours."""
    visitor.require()
    if not hmac.compare_digest(form.text('form_key').encode(), visitor.form_key.encode()):
        raise Refusal(403, 'stale_form', 'this form was not filled in on a page of this server; load the page again')
    return form


ACheckedForm = Annotated[Form, Depends(checked_form)]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# What all pages of the platform are drawn with: templates, and how numbers and times are written.


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of a leaderboard: its title, the glossary's key, and how its numbers are written."""

    title: str
    definition: str
    is_share: bool = True  # between 0 and 1: an interval can be drawn to scale
    is_percent: bool = True

    def text(self, value: float | None) -> str:
        if value is None:
            return '–'
        return f'{100 * value:.0f} %' if self.is_percent else f'{value:.2f}'

    def span(self, low: float | None, high: float | None) -> str:
        if low is None or high is None:
            return 'no interval'
        return f'{100 * low:.0f} to {100 * high:.0f}' if self.is_percent else f'{low:.2f} to {high:.2f}'


MEASURES = {
    'hrt': Measure('HRT', 'hrt', is_share=False),
    'success': Measure('SR', 'success'),
    'safety': Measure('Safety', 'safety'),
    'sbu': Measure('SBU', 'sbu'),
    'vsi': Measure('VSI', 'vsi', is_share=False, is_percent=False),
    'expected_iou': Measure('E[IoU]', 'expected-iou', is_percent=False),
}


def duration(seconds: float) -> str:
    """A span of time in its largest fitting unit."""
    for unit, size in (('d', 86_400.0), ('h', 3600.0), ('min', 60.0)):
        if seconds >= 2 * size:
            return f'{seconds / size:.0f} {unit}'
    return f'{max(0.0, seconds):.0f} s'


def moment(unix_s: float | None) -> str:
    if unix_s is None:
        return '–'
    return dt.datetime.fromtimestamp(unix_s, dt.UTC).strftime('%Y-%m-%d %H:%M UTC')


def missing_notes(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Why some numbers are not there -> the titles of those numbers."""
    notes: dict[str, list[str]] = {}
    for name, measure in MEASURES.items():
        for row in rows:
            value = row.get(name)
            if value is not None and value.value is None and value.note:
                titles = notes.setdefault(value.note, [])
                titles += [measure.title] if measure.title not in titles else []
    return notes


PAGES = Pages(
    'robotrials.service.platform.page',
    values={
        'measures': MEASURES, 'duration': duration, 'moment': moment, 'missing_notes': missing_notes, 'problem': '',
    },
)  # fmt: skip


def draw(template: str, visitor: Visitor, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page for a visitor; `key` goes into each of its forms."""
    key = Markup('<input type="hidden" name="form_key" value="{}">').format(visitor.form_key)
    return PAGES.page(template, status=status, visitor=visitor, key=key, **values)


# Signing in with a token, and out.

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
        message = 'That is not a token of this server.' if refusal.code == 'no_token' else str(refusal)
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
