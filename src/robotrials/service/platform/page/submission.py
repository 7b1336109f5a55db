"""Submissions: the list, a form to submit, and one submission's page with its progress and, once open, its results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi import Response as PlainResponse
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from pydantic import ValidationError
from sqlalchemy import select

from robotrials.measure.timing import FailureModes
from robotrials.measure.timing.incidence import CAUSES, Incidence
from robotrials.service.platform.access import Caller, Refusal, Scope
from robotrials.service.platform.client import default_key
from robotrials.service.platform.dial import WIRES
from robotrials.service.platform.page.visit import COOKIE, PAGES, ACheckedForm, AVisitor, Form, draw, find_visitor
from robotrials.service.platform.queue import queue_order
from robotrials.service.platform.route.common import Id, ThePlatform
from robotrials.service.platform.route.submission import get_score, post_cancel, post_submission, shown
from robotrials.service.platform.schema import DialIn, SubmissionIn, SubmissionOut
from robotrials.service.platform.score import Value, finite, from_rate, read_standings
from robotrials.service.platform.server import Platform
from robotrials.service.platform.submission import find_submission, list_submissions
from robotrials.service.platform.table import BenchmarkRow
from robotrials.stats import Interval, Rate, wilson
from robotrials.verdict.analysis import Absent, Analysis, PolicyCurve

# Live parts of pages: server-sent events, each a piece of page, sent when it has changed.

LOOK_S = 1.0
LONGEST_LOOKS = 600  # the browser comes again by itself; who was signed out meanwhile does not get in
QUIET_LOOKS = 15
MOST_STREAMS = 200
Parts = Iterable[tuple[str, str]]


class Streams:
    """How many pages listen: each looks once a second, so there is a limit."""

    def __init__(self) -> None:
        self.n = 0

    def open(self, request: Request, platform: Platform, look: Callable[[], Parts]) -> StreamingResponse:
        """The parts that `look` gives (name, HTML), over and over while the visitor is signed in."""
        if self.n >= MOST_STREAMS:
            raise Refusal(503, 'too_many_pages', 'too many pages are listening; load this one again later')
        cookie = request.cookies.get(COOKIE, '')

        def seen() -> list[tuple[str, str]]:
            return [] if find_visitor(platform, cookie).caller is None else list(look())

        return StreamingResponse(
            self._told(platform, seen), media_type='text/event-stream', headers={'X-Accel-Buffering': 'no'}
        )

    async def _told(self, platform: Platform, seen: Callable[[], list[tuple[str, str]]]) -> AsyncIterator[str]:
        sent: dict[str, str] = {}
        self.n += 1
        try:
            for number in range(LONGEST_LOOKS):
                if platform.is_draining:
                    return
                parts = await run_in_threadpool(seen)
                if not parts:
                    return
                for name, text in parts:
                    if sent.get(name) != text:
                        sent[name] = text
                        yield event(name, text)
                if number % QUIET_LOOKS == 0:
                    yield ': here\n\n'
                await asyncio.sleep(LOOK_S)
        finally:
            self.n -= 1


def event(name: str, text: str) -> str:
    lines = ''.join(f'data: {line}\n' for line in text.splitlines() or [''])
    return f'event: {name}\n{lines}\n'


STREAMS = Streams()


# One policy in depth, as its submission's page shows it: cells, curves, and how it fails. Read from the analysis.


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """Episodes of one task, object and condition."""

    task: str
    stratum: str
    condition: str
    success: Value
    n_invalid: int
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRow:
    """One way in which operations end: how many by tau, and the time that it costs."""

    end: str
    by_tau: Value
    time_lost_s: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDetail:
    cells: tuple[CellRow, ...]
    curves: tuple[PolicyCurve, ...]  # over all strata first
    curves_note: str  # why there are none
    tau_text: str
    tau_s: float
    ends: tuple[EndRow, ...]
    failures: FailureModes | None
    attempts: Mapping[str, int]  # episode -> the attempt that counts

    def drawn_curves(self) -> list[dict[str, object]]:
        """The curves as a script draws them."""
        return [
            {'title': c.stratum or 'all objects', 'tau_s': self.tau_s, 'times': c.times_s.tolist(),
             'chance': c.chance.tolist(),
             'low': None if c.low is None else c.low.tolist(), 'high': None if c.high is None else c.high.tolist()}
            for c in self.curves
        ]  # fmt: skip


def policy_detail(analysis: Analysis, policy: str) -> PolicyDetail:
    """What an analysis says of one policy."""
    panels, failures, times = analysis.curves, analysis.failures, analysis.times
    curves: tuple[PolicyCurve, ...] = ()
    if not isinstance(panels, Absent):
        curves = tuple(c for panel in panels.values() for c in panel if c.policy == policy)
    return PolicyDetail(
        cells=_cells(analysis, policy), curves=curves,
        curves_note=panels.reason if isinstance(panels, Absent) else '',
        tau_text='' if isinstance(times, Absent) else times.tau_text,
        tau_s=0.0 if isinstance(times, Absent) else times.tau_s, ends=_ends(analysis, policy),
        failures=None if isinstance(failures, Absent) else next((f for f in failures if f.policy == policy), None),
        attempts={e.episode_id: e.attempt for e in analysis.episodes if e.policy == policy},
    )  # fmt: skip


def _cells(analysis: Analysis, policy: str) -> tuple[CellRow, ...]:
    by_cameras = analysis.by_cameras
    groups: dict[tuple[str, str, str], list[tuple[str, bool, bool | None]]] = {}
    for e in analysis.episodes:
        if e.policy == policy:
            key = e.task, e.stratum, e.condition
            success = e.is_success if by_cameras is None else by_cameras.get(e.key)
            groups.setdefault(key, []).append((e.outcome.value, e.is_valid, success))
    rows = []
    for (task, stratum, condition), episodes in sorted(groups.items()):
        valid = [success for _, is_valid, success in episodes if is_valid]
        rows.append(
            CellRow(
                task=task,
                stratum=stratum,
                condition=condition,
                n_invalid=len(episodes) - len(valid),
                success=_rate(valid, analysis.plan.level),
                outcomes=dict(sorted(Counter(outcome for outcome, _, _ in episodes).items())),
            )
        )
    return tuple(rows)


def _rate(successes: Sequence[bool | None], level: float) -> Value:
    """A share of successes; with an unscored end (None) only what it can be at the least and at the most."""
    n, unscored = len(successes), successes.count(None)
    if not n:
        return Value(n=0, note='no valid episode')
    count = successes.count(True)
    if not unscored:
        return from_rate(Rate(count, n, level))
    low, high = wilson(count, n, level).low, wilson(count + unscored, n, level).high
    return Value(low=low, high=high, n=n, note=f'{unscored} of {n} episodes could not be scored from cameras')


def _ends(analysis: Analysis, policy: str) -> tuple[EndRow, ...]:
    incidences = analysis.incidences
    own = None if isinstance(incidences, Absent) else incidences.get(policy)
    if not isinstance(own, Incidence):
        return ()
    return tuple(
        EndRow(
            end=cause.value.replace('_', ' '),
            by_tau=_value(own.causes[cause].by_tau, own.causes[cause].by_tau_interval),
            time_lost_s=_value(own.causes[cause].time_lost_s, own.causes[cause].time_lost_interval),
        )
        for cause in CAUSES
    )


def _value(value: float, interval: Interval | None) -> Value:
    return Value(
        value=finite(value), low=None if interval is None else finite(interval.low),
        high=None if interval is None else finite(interval.high),
    )  # fmt: skip


router = APIRouter(include_in_schema=False)
MOST_LISTED = 500


@router.get('/submissions')
def submissions(visitor: AVisitor, platform: ThePlatform) -> Response:
    return _listed(visitor, platform)


def _listed(visitor: AVisitor, platform: Platform, *, problem: str = '', typed: Form | None = None) -> Response:
    caller = visitor.require(Scope.SUBMITTER, Scope.ADMIN)
    with platform.database.read() as session:
        rows = [shown(session, s, caller, platform) for s in list_submissions(session, caller)[:MOST_LISTED]]
        taking = select(BenchmarkRow).where(BenchmarkRow.state.in_(('open', 'collecting'))).order_by(BenchmarkRow.name)
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
    submission: SubmissionOut = progress['submission']
    results = _results(caller, platform, submission_id) if submission.is_open else None
    return draw(
        'submission.html.j2', visitor, title=submission.name or 'A blinded submission',
        server=str(request.base_url)[:-1], results=results, is_mine=submission.user == caller.user, **progress,
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
        facts = shown(session, submission, caller, platform)
        quarantined = platform.intake.quarantine.benchmark_ids
        offers = (
            queue_order(session, platform.config, now=now, quarantined=quarantined) if facts.state == 'queued' else []
        )
        place = next((n for n, offer in enumerate(offers) if offer.submission_id == submission_id), None)
        heard_s = None if submission.asked_at is None else max(0.0, now - submission.asked_at)
        is_trial = submission.benchmark.mode == 'trial'
    done = facts.jobs.get('done', 0) + facts.jobs.get('invalid', 0)
    is_waited = facts.kind == 'client' and facts.state == 'queued' and not facts.under_way
    return {
        'submission': facts, 'n_over': done, 'place': place, 'is_trial': is_trial, 'heard_s': heard_s,
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
