"""Submissions: the list, a form to submit, and one submission's page with its progress and, once open, its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi import Response as PlainResponse
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from sqlalchemy import select

from robotrials.service.platform.access import Caller, Scope
from robotrials.service.platform.client import default_key
from robotrials.service.platform.dial import WIRES
from robotrials.service.platform.page.drawn import PAGES, draw
from robotrials.service.platform.page.live import STREAMS
from robotrials.service.platform.page.visit import ACheckedForm, AVisitor, Form
from robotrials.service.platform.policy_detail import policy_detail
from robotrials.service.platform.queue import queue_order
from robotrials.service.platform.refusal import Refusal
from robotrials.service.platform.route.common import Id, ThePlatform
from robotrials.service.platform.route.submission import get_score, post_cancel, post_submission, shown
from robotrials.service.platform.schema import DialIn, SubmissionIn, SubmissionOut
from robotrials.service.platform.server import Platform
from robotrials.service.platform.standing import read_standings
from robotrials.service.platform.submission import find_submission, list_submissions
from robotrials.service.platform.table import Benchmark
from robotrials.verdict.analysis import Absent

router = APIRouter(include_in_schema=False)
MOST_LISTED = 500


@router.get('/submissions')
def submissions(visitor: AVisitor, platform: ThePlatform) -> Response:
    return _listed(visitor, platform)


def _listed(visitor: AVisitor, platform: Platform, *, problem: str = '', typed: Form | None = None) -> Response:
    caller = visitor.require(Scope.SUBMITTER, Scope.ADMIN)
    with platform.database.read() as session:
        rows = [shown(session, s, caller, platform) for s in list_submissions(session, caller)[:MOST_LISTED]]
        taking = select(Benchmark).where(Benchmark.state.in_(('open', 'collecting'))).order_by(Benchmark.name)
        benchmarks = [b.name for b in session.scalars(taking)]
    return draw(
        'submissions.html.j2', visitor, status=422 if problem else 200, title='Submissions', rows=rows, wires=WIRES,
        benchmarks=benchmarks, problem=problem, typed=typed or Form(()), dials=bool(platform.config.dial.allow),
        is_submitter=Scope.SUBMITTER in caller.scopes,
    )  # fmt: skip


@router.post('/submissions')
def submit(visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    caller = visitor.require(Scope.SUBMITTER)
    benchmark, name, address = form.text('benchmark'), form.text('name'), form.text('address')
    try:
        body = SubmissionIn(
            client_key=default_key(benchmark, name), benchmark=benchmark, name=name,
            dial=DialIn(use=form.text('wire'), options={'url': address}, execute=None) if address else None,
        )  # fmt: skip
        made = post_submission(body, caller, platform, PlainResponse())
    except ValidationError as error:
        return _listed(visitor, platform, problem=first_problem(error), typed=form)
    except Refusal as refusal:
        return _listed(visitor, platform, problem=str(refusal), typed=form)
    return RedirectResponse(f'/submission/{made.id}', status_code=303)


def first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    return f'{".".join(map(str, first["loc"]))}: {first["msg"]}'


@router.get('/submission/{submission_id}')
def one(submission_id: Id, request: Request, visitor: AVisitor, platform: ThePlatform) -> Response:
    caller = visitor.require(Scope.SUBMITTER, Scope.ADMIN)
    progress = _progress(caller, platform, submission_id)
    told: SubmissionOut = progress['submission']
    results = _results(caller, platform, submission_id) if told.is_open else None
    return draw(
        'submission.html.j2', visitor, title=told.name or 'A blinded submission', server=str(request.base_url)[:-1],
        results=results, is_mine=told.user == caller.user, **progress,
    )  # fmt: skip


@router.get('/submission/{submission_id}/live')
def live(submission_id: Id, request: Request, visitor: AVisitor, platform: ThePlatform) -> Response:
    caller = visitor.require(Scope.SUBMITTER, Scope.ADMIN)
    with platform.database.read() as session:
        find_submission(session, caller, submission_id)
    return STREAMS.open(request, platform, lambda: _parts(caller, platform, submission_id))


def _parts(caller: Caller, platform: Platform, submission_id: str) -> Iterator[tuple[str, str]]:
    progress = _progress(caller, platform, submission_id)
    yield 'progress', PAGES.text('progress_part.html.j2', **progress)
    if progress['submission'].is_open:
        yield 'opened', 'yes'


def _progress(caller: Caller, platform: Platform, submission_id: str) -> dict[str, Any]:
    """How far a submission has come: counts, its place in the queue, and whether its client is there."""
    now = platform.clock()
    with platform.database.read() as session:
        submission = find_submission(session, caller, submission_id)
        told = shown(session, submission, caller, platform)
        apart = platform.intake.quarantine.apart
        offers = queue_order(session, platform.config, now=now, apart=apart) if told.state == 'queued' else []
        place = next((n for n, offer in enumerate(offers) if offer.submission_id == submission_id), None)
        heard_s = None if submission.asked_at is None else max(0.0, now - submission.asked_at)
        is_trial = submission.benchmark.mode == 'trial'
    done = told.jobs.get('done', 0) + told.jobs.get('invalid', 0)
    is_waited = told.kind == 'client' and told.state == 'queued' and not told.under_way
    return {
        'submission': told, 'n_over': done, 'place': place, 'is_trial': is_trial, 'heard_s': heard_s,
        'is_away': is_waited and (heard_s is None or heard_s > platform.config.presence_s),
    }  # fmt: skip


def _results(caller: Caller, platform: Platform, submission_id: str) -> dict[str, Any]:
    """Scores, curves, cells and failures of one open submission, all from the analysis behind the leaderboard."""
    score = get_score(submission_id, caller, platform)
    with platform.database.read() as session:
        submission = find_submission(session, caller, submission_id)
        standings = read_standings(session, submission.benchmark)
    analysis = platform.scores.analysis(submission.benchmark, standings)
    detail = None
    if not isinstance(analysis, Absent) and submission.policy in standings.policies:
        detail = policy_detail(analysis, submission.policy)
    reasons = Counter((r.outcome or r.state, r.reason) for r in score.results if r.reason)
    return {'score': score, 'detail': detail, 'reasons': reasons.most_common(), 'policy': submission.policy}


@router.post('/submission/{submission_id}/cancel')
def cancel(submission_id: Id, visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    post_cancel(submission_id, visitor.require(Scope.SUBMITTER, Scope.ADMIN), platform)
    return RedirectResponse(f'/submission/{submission_id}', status_code=303)
