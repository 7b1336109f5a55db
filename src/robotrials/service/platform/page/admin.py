"""Administration: users, tokens, quotas, benchmarks, and the audit trail."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from robotrials.service.platform.access import Refusal, Scope
from robotrials.service.platform.config import Strategy
from robotrials.service.platform.page.submission import first_problem
from robotrials.service.platform.page.visit import ACheckedForm, AVisitor, Form, Visitor, draw
from robotrials.service.platform.route import admin as rest
from robotrials.service.platform.route.common import BenchmarkName, Id, ThePlatform, UserName
from robotrials.service.platform.schema import BenchmarkIn, CloseIn, QuotaIn, TokenIn, UserIn
from robotrials.service.platform.server import Platform
from robotrials.service.platform.table import check_trail, read_trail, trail_length

router = APIRouter(include_in_schema=False)
PAGE_ROWS = 100
DAY_S = 86_400.0
BACK = '/admin'


@router.get('/admin')
def admin(visitor: AVisitor, platform: ThePlatform) -> Response:
    return _page(visitor, platform)


def _page(visitor: Visitor, platform: Platform, *, status: int = 200, **values: Any) -> Response:
    caller = visitor.require(Scope.ADMIN)
    values = {'problem': '', 'issued': None, 'typed': Form(()), **values}
    return draw(
        'admin.html.j2', visitor, status=status, title='Administration', users=rest.get_users(caller, platform),
        tokens=rest.get_tokens(caller, platform), benchmarks=rest.get_benchmarks(caller, platform),
        scopes=list(Scope), strategies=[s for s in Strategy if s is not Strategy.BLINDED_ROTATION],
        default=platform.config.strategy, now=platform.clock(), **values,
    )  # fmt: skip


def _refused(visitor: Visitor, platform: Platform, error: Refusal | ValidationError, form: Form) -> Response:
    """The page again, with what was wrong and what was typed."""
    message = str(error) if isinstance(error, Refusal) else first_problem(error)
    status = error.status if isinstance(error, Refusal) else 422
    return _page(visitor, platform, status=status, problem=message, typed=form)


@router.post('/admin/users')
def add_user(visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    caller = visitor.require(Scope.ADMIN)
    try:
        rest.post_user(UserIn(name=form.text('name')), caller, platform)
    except (Refusal, ValidationError) as error:
        return _refused(visitor, platform, error, form)
    return RedirectResponse(BACK, status_code=303)


@router.post('/admin/users/{name}/quota')
def set_quota(name: UserName, visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    caller = visitor.require(Scope.ADMIN)
    try:
        quota = QuotaIn(**{field: form.whole(field) for field in QuotaIn.model_fields})
        rest.put_quota(name, quota, caller, platform)
    except (Refusal, ValidationError) as error:
        return _refused(visitor, platform, error, form)
    return RedirectResponse(BACK, status_code=303)


@router.post('/admin/users/{name}/disable')
def disable_user(name: UserName, visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    rest.post_disable(name, visitor.require(Scope.ADMIN), platform)
    return RedirectResponse(BACK, status_code=303)


@router.post('/admin/tokens')
def issue_token(visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    """The token is in this answer and nowhere else."""
    caller = visitor.require(Scope.ADMIN)
    try:
        days = form.whole('days') if form.text('days') else None
        body = TokenIn.model_validate(
            {'user': form.text('user'), 'scopes': form.every('scope'), 'label': form.text('label'),
             'lives_s': None if days is None else days * DAY_S}
        )  # fmt: skip
        issued = rest.post_token(body, caller, platform)
    except (Refusal, ValidationError) as error:
        return _refused(visitor, platform, error, form)
    return _page(visitor, platform, issued=issued)


@router.post('/admin/tokens/{token_id}/revoke')
def revoke_token(token_id: Id, visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    rest.post_revoke(token_id, visitor.require(Scope.ADMIN), platform)
    return RedirectResponse(BACK, status_code=303)


@router.post('/admin/benchmarks')
def declare(visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    caller = visitor.require(Scope.ADMIN)
    try:
        body = BenchmarkIn.model_validate(
            {'name': form.text('name'), 'plan': form.text('plan').replace('\r\n', '\n'), 'mode': form.text('mode'),
             'arms': form.whole('arms') if form.text('arms') else None, 'reference': form.text('reference'),
             'strategy': form.text('strategy') or None, 'unchecked': form.text('unchecked') == 'yes'}
        )  # fmt: skip
        rest.post_benchmark(body, caller, platform)
    except (Refusal, ValidationError) as error:
        return _refused(visitor, platform, error, form)
    return RedirectResponse(BACK, status_code=303)


@router.post('/admin/benchmarks/{name}/start')
def start(name: BenchmarkName, visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    try:
        rest.post_start(name, visitor.require(Scope.ADMIN), platform)
    except Refusal as error:
        return _refused(visitor, platform, error, form)
    return RedirectResponse(BACK, status_code=303)


@router.post('/admin/benchmarks/{name}/close')
def close(name: BenchmarkName, visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    """Closing cannot be taken back, so the benchmark's name has to be typed again."""
    caller = visitor.require(Scope.ADMIN)
    try:
        if form.text('again') != name:
            raise Refusal(422, 'not_sure', f'type {name} to close it; closing cannot be undone')
        rest.post_close(name, CloseIn(why=form.text('why')), caller, platform)
    except (Refusal, ValidationError) as error:
        return _refused(visitor, platform, error, form)
    return RedirectResponse(f'/benchmark/{name}', status_code=303)


@router.get('/admin/audit')
def audit(request: Request, visitor: AVisitor, platform: ThePlatform) -> Response:
    """The newest entries first, a page at a time; on asking, the whole chain is recomputed."""
    visitor.require(Scope.ADMIN)
    before = request.query_params.get('before', '')
    if before and not (before.isdecimal() and len(before) < 15):
        raise Refusal(422, 'bad_page', f'before is {before[:20]!r}, wanted the number of an entry')
    with platform.database.read() as session:
        last = min(int(before) - 1, trail_length(session)) if before else trail_length(session)
        first = max(0, last - PAGE_ROWS)
        entries = read_trail(session, after=first, limit=max(0, last - first)) if last > first else []
        check = check_trail(session) if request.query_params.get('check') else None
    rows = [{'entry': e, 'detail': json.loads(e.detail)} for e in reversed(entries)]
    return draw(
        'audit.html.j2', visitor, title='Audit trail', rows=rows, check=check, earlier=first + 1 if first else None
    )
