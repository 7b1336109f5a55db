"""A submitter's routes: submit, ask for a cell, see what came of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from robotrials.run.fault import FaultKind
from robotrials.service.platform.access import Caller, Refusal
from robotrials.service.platform.benchmark import RETRY_AFTER_S, WAITS, episode_bundle, is_open, open_facts
from robotrials.service.platform.database import fault_point
from robotrials.service.platform.job import benchmark_slots, sign_lease
from robotrials.service.platform.queue import check_unfinished, grant_to_submission, live_lease
from robotrials.service.platform.route.common import ASubmitter, EpisodeId, Id, ThePlatform, refusals
from robotrials.service.platform.schema import (
    EpisodeOut,
    JobResult,
    LeaseOut,
    ScoreOut,
    SubmissionIn,
    SubmissionOut,
    WaitOut,
)
from robotrials.service.platform.server import Platform
from robotrials.service.platform.submission import (
    OVER_STATES,
    cancel,
    find_submission,
    job_counts,
    list_submissions,
    submit,
)
from robotrials.service.platform.table import LIVE, JobRow, Lease, Submission

router = APIRouter(tags=['submissions'])


def shown(session: Session, submission: Submission, caller: Caller, platform: Platform) -> SubmissionOut:
    """A submission as this caller may know it: the name of another's is hidden until its blinding ends."""
    is_seen = submission.user_id == caller.user_id or submission.opened_at is not None
    jobs = job_counts(session, submission.id)
    steps = session.scalars(
        select(Lease.steps).join(JobRow, JobRow.id == Lease.job_id).where(
            JobRow.submission_id == submission.id, Lease.state.in_(LIVE)
        )
    )  # fmt: skip
    return SubmissionOut.of(
        submission, benchmark=submission.benchmark.name, name=submission.name if is_seen else '',
        user=submission.user.name, jobs=jobs, n_jobs=sum(jobs.values()), under_way=list(steps) if is_seen else [],
        is_open=submission.opened_at is not None, reason=submission.reason or _waits(submission, platform),
    )  # fmt: skip


def _waits(submission: Submission, platform: Platform) -> str:
    is_apart = submission.state == 'queued' and submission.benchmark_id in platform.intake.quarantine.benchmark_ids
    return WAITS if is_apart else ''


@router.post(
    '/submissions',
    status_code=201,
    responses={200: {'model': SubmissionOut, 'description': 'It was taken before.'}, **refusals(404, 409)},
)
def post_submission(body: SubmissionIn, caller: ASubmitter, platform: ThePlatform, response: Response) -> SubmissionOut:
    """Submit a policy. The same `client_key` with the same content is taken once."""
    with platform.database.write(caller.actor) as session:
        submission, is_new = submit(
            session, caller, body, rules=platform.config.dial, now=platform.clock(),
            private=platform.config.private_addresses,
        )  # fmt: skip
        session.flush()
        answer = shown(session, submission, caller, platform)
    fault_point('submission.commit')
    response.status_code = 201 if is_new else 200
    return answer


@router.get('/submissions', responses=refusals())
def get_submissions(
    caller: ASubmitter, platform: ThePlatform, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> list[SubmissionOut]:
    """Your submissions, newest first."""
    with platform.database.read() as session:
        return [shown(session, s, caller, platform) for s in list_submissions(session, caller)[:limit]]


@router.get('/submissions/{submission_id}', responses=refusals(404))
def get_submission(submission_id: Id, caller: ASubmitter, platform: ThePlatform) -> SubmissionOut:
    """How far a submission has come."""
    with platform.database.read() as session:
        return shown(session, find_submission(session, caller, submission_id), caller, platform)


@router.post('/submissions/{submission_id}/cancel', responses=refusals(404, 409))
def post_cancel(submission_id: Id, caller: ASubmitter, platform: ThePlatform) -> SubmissionOut:
    """Stop a submission. What it has done stays on record and on the board, and what it has not done has failed."""
    with platform.database.write(caller.actor) as session:
        submission = find_submission(session, caller, submission_id, lock=True)
        live = cancel(session, submission, now=platform.clock())
    for lease_id in live:
        platform.intake.fail(lease_id, 'cancelled', kind=FaultKind.POLICY_WITHDRAWN.value, actor=caller.actor)
    with platform.database.read() as session:
        return shown(session, find_submission(session, caller, submission_id), caller, platform)


@router.post(
    '/submissions/{submission_id}/lease',
    response_model=LeaseOut | WaitOut,
    responses={
        200: {'model': LeaseOut, 'description': 'A cell.'},
        202: {'model': WaitOut, 'description': 'Wait.'},
        **refusals(404, 409, 410),
    },
)
def post_lease(submission_id: Id, caller: ASubmitter, platform: ThePlatform, response: Response) -> LeaseOut | WaitOut:
    """Get_Worker: a cell for the next episode. Keep asking; a submission whose client is silent loses its place."""
    config, now = platform.config, platform.clock()
    with platform.database.write(caller.actor) as session:
        submission = find_submission(session, caller, submission_id, lock=True)
        check_unfinished(submission)
        if submission.kind != 'client':
            raise Refusal(409, 'dialled', 'the platform dials this submission; there is nothing to ask for')
        granted = live_lease(session, submission.id)
        if granted is not None:
            submission.asked_at = now
        quarantined = platform.intake.quarantine.benchmark_ids
        lease = granted or grant_to_submission(session, submission, config, now=now, quarantined=quarantined)
        if isinstance(lease, int) or lease.expires_at <= now:
            response.status_code = 202
            place = lease if isinstance(lease, int) else 0
            note = _waits(submission, platform)
            return WaitOut(retry_after_s=RETRY_AFTER_S if note else config.retry_s, place_in_queue=place, note=note)
        secret = platform.keys.secret(lease.worker_id, lease.worker.secret).encode()
        token = sign_lease(
            secret, lease_id=lease.id, worker_id=lease.worker_id, job_id=lease.job_id, expires_at=lease.expires_at
        )
        return LeaseOut(
            lease_id=lease.id, worker_address=lease.worker.address, token=token, expires_at=lease.expires_at
        )


@router.get('/submissions/{submission_id}/score', responses=refusals(404))
def get_score(submission_id: Id, caller: ASubmitter, platform: ThePlatform) -> ScoreOut:
    """Get_Score: everything once its blinding has ended, before that only counts."""
    with platform.database.read() as session:
        submission = find_submission(session, caller, submission_id)
        counts = job_counts(session, submission.id)
        if submission.opened_at is None:
            due = 'trial is closed' if submission.benchmark.mode == 'trial' else 'submission is finished'
            return ScoreOut(
                state=submission.state, is_open=False, jobs=counts,
                is_due=submission.state in OVER_STATES and is_open(submission.benchmark),
                values={}, letters='', results=[],
                note=submission.reason or f'results are shown when the {due}',
            )  # fmt: skip
        jobs = list(
            session.scalars(select(JobRow).where(JobRow.submission_id == submission.id).order_by(JobRow.position))
        )
        board = platform.scores.board(session, submission.benchmark)
    row = next((r for r in board.rows if r.policy == submission.policy), None)
    values = {} if row is None else dict(row.values)
    return ScoreOut(
        state=submission.state, is_open=True, jobs=counts, values=values, letters=row.letters if row else '',
        results=[_result(submission, job) for job in jobs],
        note='' if values else submission.reason or board.note or 'no valid episode',
    )  # fmt: skip


def _result(submission: Submission, job: JobRow) -> JobResult:
    cell = benchmark_slots(submission.plan)[job.slot].cell
    return JobResult(
        number=job.position, state=job.state, task=cell.task.name, stratum=cell.stratum.name,
        condition=cell.condition.name, outcome=job.outcome, reason=job.reason, episode_id=job.episode_id,
    )  # fmt: skip


@router.get('/submissions/{submission_id}/episodes', responses=refusals(404, 409))
def get_episodes(submission_id: Id, caller: ASubmitter, platform: ThePlatform) -> list[EpisodeOut]:
    """Every attempt on record, once blinding has ended."""
    with platform.database.read() as session:
        submission = _opened(find_submission(session, caller, submission_id))
    episodes = platform.scores.episodes(submission.benchmark, submission.policy)
    facts = (open_facts(submission.benchmark, e) for e in episodes)
    return [EpisodeOut.of(e) for e in facts]


@router.get(
    '/submissions/{submission_id}/episodes/{episode_id}/bundle',
    response_class=Response,
    responses={200: {'content': {'application/msgpack': {}}, 'description': 'The bundle.'}, **refusals(404, 409)},
)
def get_bundle(
    submission_id: Id, episode_id: EpisodeId, caller: ASubmitter, platform: ThePlatform,
    attempt: Annotated[int | None, Query(ge=0, le=100, description='The one that counts unless given.')] = None,
) -> Response:  # fmt: skip
    """An episode as it was recorded: geometry, film and score, for `service.platform.bundle.unpack_bundle`."""
    with platform.database.read() as session:
        submission = _opened(find_submission(session, caller, submission_id))
    data = episode_bundle(platform.config.folder, submission, episode_id, attempt=attempt)
    return Response(data, media_type='application/msgpack')


def _opened(submission: Submission) -> Submission:
    if submission.opened_at is None:
        raise Refusal(409, 'blinded', 'episodes can be had when the blinding of this submission has ended')
    return submission
