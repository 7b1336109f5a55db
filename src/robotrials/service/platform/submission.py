"""Submissions: one policy of one user on one benchmark, taken once however often it is sent."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from robotrials.errors import InputError
from robotrials.run.plan import PolicyEntry
from robotrials.service.platform.access import Caller, Refusal, check_name, new_id, not_found
from robotrials.service.platform.benchmark import add_jobs, cancel_jobs, find_benchmark, start_trial, submission_plan
from robotrials.service.platform.config import DialRules
from robotrials.service.platform.dial import check_dial
from robotrials.service.platform.table import LIVE, BenchmarkRow, JobRow, Lease, Submission, User, note
from robotrials.value import read_table

if TYPE_CHECKING:
    from robotrials.service.platform.schema import SubmissionIn

DAY_S = 86_400.0
OPEN_STATES = ('waiting', 'queued')
OVER_STATES = ('finished', 'cancelled', 'void')
_SUBMISSION = select(Submission).where(Submission.id == bindparam('submission_id'))
_LOCKED_SUBMISSION = _SUBMISSION.with_for_update(of=Submission)


def submit(
    session: Session, caller: Caller, request: SubmissionIn, *, rules: DialRules, now: float, private: Sequence[str]
) -> tuple[Submission, bool]:
    """The submission, and whether it is new. The same key with the same content is the same submission."""
    dial = None if request.dial is None else request.dial.model_dump(exclude_none=True)
    values = json.dumps([request.benchmark, request.name, request.card, dial], sort_keys=True)
    # Without a fingerprint: of a submission that was made in a browser, for a client to resume.
    content = bare_content = hashlib.sha256(values.encode()).hexdigest()
    if request.fingerprint:
        content = hashlib.sha256(f'{bare_content} {request.fingerprint}'.encode()).hexdigest()
    earlier = _with_key(session, caller.user_id, request.client_key)
    if earlier is not None:
        if earlier.content not in (content, bare_content):
            raise Refusal(
                409, 'key_taken', 'this client_key was used for another submission (another policy, option, name or '
                'benchmark); repeat it as it was, or give this one a new name and key',
            )  # fmt: skip
        earlier.content = content  # the first client to say what it runs settles it
        return earlier, False
    check_name(request.name, 'name of a submission')
    entry = _checked_entry(request.card, dial, rules, private)
    # PostgreSQL: submissions of one user, and those that may start a trial, come one after the other.
    user = session.scalars(select(User).where(User.id == caller.user_id).with_for_update()).one()
    earlier = _with_key(session, caller.user_id, request.client_key)
    if earlier is not None:
        return submit(session, caller, request, rules=rules, now=now, private=private)
    benchmark = find_benchmark(session, request.benchmark, lock=True, near=True)
    if benchmark.state not in ('open', 'collecting'):
        raise Refusal(409, 'benchmark_closed', f'benchmark {benchmark.name} is {benchmark.state}: it takes no more')
    _check_quota(session, user, now=now)
    submission = Submission(
        id=new_id('sub'), benchmark_id=benchmark.id, user_id=user.id, client_key=request.client_key,
        content=content, name=request.name, policy=f'{user.name}/{request.name}',
        code=f'arm-{secrets.token_hex(4)}', kind='client' if dial is None else 'dial',
        dial='' if dial is None else json.dumps(dial, sort_keys=True),
        card=json.dumps(dict(entry.card), sort_keys=True), plan=submission_plan(benchmark), priority=0,
        state='waiting' if benchmark.mode == 'trial' else 'queued', created_at=now, asked_at=None, finished_at=None,
        opened_at=None,
    )  # fmt: skip
    submission.benchmark, submission.user = benchmark, user
    session.add(submission)
    try:
        session.flush()
    except IntegrityError as error:
        session.rollback()
        raise Refusal(409, 'name_taken', f'you have a submission named {request.name!r} on this benchmark') from error
    jobs = add_jobs(session, submission, now=now) if benchmark.mode == 'open' else 0
    note(session, 'submission.accept', submission.id, benchmark=benchmark.id, user=user.id, jobs=jobs)
    _start_if_full(session, benchmark, now=now)
    return submission, True


def _with_key(session: Session, user_id: str, client_key: str) -> Submission | None:
    return session.scalar(select(Submission).where(Submission.user_id == user_id, Submission.client_key == client_key))


def _start_if_full(session: Session, benchmark: BenchmarkRow, *, now: float) -> None:
    if benchmark.mode != 'trial' or benchmark.arms is None:
        return
    waiting = select(func.count()).select_from(Submission)
    n = session.scalar(waiting.where(Submission.benchmark_id == benchmark.id, Submission.state == 'waiting'))
    if n == benchmark.arms:
        start_trial(session, benchmark, now=now)


def _checked_entry(
    card: Mapping[str, Any], dial: Mapping[str, Any] | None, rules: DialRules, private: Sequence[str]
) -> PolicyEntry:
    """What was asked for as a policy's entry; a dialled one may only be a wire, at an address that is allowed."""
    try:
        entry = read_table(PolicyEntry, {'use': 'client', 'card': card, **(dial or {})}, where='submission')
    except InputError as error:
        raise Refusal(422, 'bad_submission', str(error)) from error
    if dial is not None:
        try:
            check_dial(entry, allowed=rules.allow, private=private)
        except InputError as error:
            raise Refusal(422, 'bad_dial', str(error)) from error
    return entry


def _check_quota(session: Session, user: User, *, now: float) -> None:
    mine = select(func.count()).select_from(Submission).where(Submission.user_id == user.id)
    n_open = session.scalar(mine.where(Submission.state.in_(OPEN_STATES))) or 0
    if n_open >= user.open_submissions:
        raise Refusal(429, 'quota', f'{n_open} submissions are open, and that is the quota', retry_after_s=60.0)
    recent = select(func.count(), func.min(Submission.created_at)).where(
        Submission.user_id == user.id, Submission.created_at > now - DAY_S
    )
    n_today, first = session.execute(recent).one()
    if n_today >= user.submissions_per_day:
        raise Refusal(429, 'quota', f'{n_today} submissions in a day: the quota', retry_after_s=first + DAY_S - now)


def find_submission(session: Session, caller: Caller, submission_id: str, *, lock: bool = False) -> Submission:
    """The caller's own submission, or for an admin anyone's; another's does not exist for the caller."""
    submission = session.scalar(_LOCKED_SUBMISSION if lock else _SUBMISSION, {'submission_id': submission_id})
    if submission is None or (submission.user_id != caller.user_id and not caller.is_admin):
        raise not_found('submission')
    return submission


def list_submissions(session: Session, caller: Caller) -> list[Submission]:
    """The caller's own, newest first; for an admin all."""
    query = select(Submission).order_by(Submission.created_at.desc(), Submission.id)
    return list(session.scalars(query if caller.is_admin else query.where(Submission.user_id == caller.user_id)))


def job_counts(session: Session, submission_id: str) -> dict[str, int]:
    """State -> how many jobs are in it."""
    rows = session.execute(
        select(JobRow.state, func.count()).where(JobRow.submission_id == submission_id).group_by(JobRow.state)
    )
    return {row[0]: row[1] for row in rows}


def cancel(session: Session, submission: Submission, *, now: float) -> list[str]:
    """Stop a submission; gives the leases under way, whose attempts have failed. What was done stays on record."""
    if submission.state not in OPEN_STATES:
        raise Refusal(409, 'not_open', f'this submission is {submission.state}')
    n = cancel_jobs(session, submission, reason='cancelled by its submitter', now=now)
    submission.state, submission.finished_at = 'cancelled', now
    note(session, 'submission.cancel', submission.id, jobs=n)
    return _live_leases(session, submission)


def cancel_absent(
    session: Session, *, absence_s: float, since: float, now: float, quarantined: Collection[str] = ()
) -> list[str]:
    """Cancel what was begun and then left: otherwise a submitter who is losing stays away, and no board says so.

    A server that started at `since` gives everybody a day to come back, and nobody is absent from a benchmark that is
    set apart.
    """
    if now - since < min(absence_s, DAY_S):
        return []
    begun = select(JobRow.submission_id).join(Lease, Lease.job_id == JobRow.id).where(Lease.state != 'unclaimed')
    busy = select(JobRow.submission_id).where(
        JobRow.state.in_(('leased', 'running')) | (JobRow.updated_at > now - absence_s)
    )
    absent = session.scalars(
        select(Submission)
        .where(
            Submission.state == 'queued', Submission.kind == 'client', Submission.id.in_(begun),
            Submission.id.not_in(busy), func.coalesce(Submission.asked_at, 0.0) <= now - absence_s,
            Submission.benchmark_id.not_in(quarantined),
        )
        .with_for_update(of=Submission, skip_locked=True)
    ).all()  # fmt: skip
    for submission in absent:
        reason = f'its client stayed away for {absence_s / 3600:g} hours'
        n = cancel_jobs(session, submission, reason=reason, now=now)
        submission.state, submission.finished_at, submission.reason = 'cancelled', now, reason
        note(session, 'submission.absent', submission.id, jobs=n)
    return [submission.id for submission in absent]


def void(session: Session, submission: Submission, *, by: str, why: str, now: float) -> list[str]:
    """Take a whole submission out of account, for everyone to see; gives the leases under way.

    Only whole: an operator who could void an episode could choose which ones count. It stays on record and on the
    board, with who did it and why, also when its results had been seen.
    """
    if submission.state == 'void':
        raise Refusal(409, 'void', 'this submission is void already')
    seen = ', after its results were open' if submission.opened_at is not None else ''
    reason = f'voided by {by}{seen}: {why}'
    cancel_jobs(session, submission, reason=reason, now=now)
    submission.state, submission.reason = 'void', reason
    submission.finished_at = submission.finished_at or now
    note(session, 'submission.void', submission.id, by=by, why=why, after_opening=bool(seen))
    return _live_leases(session, submission)


def _live_leases(session: Session, submission: Submission) -> list[str]:
    live = select(Lease.id).join(JobRow, JobRow.id == Lease.job_id)
    return list(
        session.scalars(
            live.where(JobRow.submission_id == submission.id, Lease.state.in_(LIVE), Lease.state != 'storing')
        )
    )


def finish_if_done(session: Session, submission_id: str, *, now: float) -> bool:
    """Mark a submission finished when none of its jobs is left."""
    submission = session.scalars(
        select(Submission).where(Submission.id == submission_id).with_for_update(of=Submission)
    ).one()
    left = session.scalar(
        select(func.count())
        .select_from(JobRow)
        .where(JobRow.submission_id == submission_id, JobRow.state.in_(('queued', 'leased', 'running')))
    )
    if submission.state != 'queued' or left:
        return False
    submission.state, submission.finished_at = 'finished', now
    note(session, 'submission.finish', submission.id, jobs=job_counts(session, submission_id))
    return True
