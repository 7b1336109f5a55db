"""A worker's routes, and an operator's."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import func, select

from robotrials.service.platform.access import Refusal, not_found
from robotrials.service.platform.cells import command, find_worker, heartbeat, list_workers, register
from robotrials.service.platform.client import press
from robotrials.service.platform.job import Job as JobOrder
from robotrials.service.platform.queue import Settled, begin, grant_to_worker, own_lease, queue_order
from robotrials.service.platform.route.common import AnOperator, AWorker, BenchmarkName, Id, ThePlatform, refusals
from robotrials.service.platform.schema import (
    CellOut,
    FaultIn,
    HeartbeatIn,
    HeartbeatOut,
    JobOut,
    NextOut,
    QueueEntry,
    QueueOut,
    VoidIn,
    WorkerIn,
    WorkerRegistered,
)
from robotrials.service.platform.submission import void
from robotrials.service.platform.table import BenchmarkRow, JobRow, Submission

router = APIRouter()


@router.post('/workers', tags=['workers'], responses=refusals(409))
def post_worker(body: WorkerIn, caller: AWorker, platform: ThePlatform) -> WorkerRegistered:
    """Register a cell. The same name is the same worker, with a new secret; leases it no longer speaks of end."""
    with platform.database.write(caller.actor) as session:
        private, now = platform.config.private_addresses, platform.clock()
        worker, unbegun = register(session, caller, body, keys=platform.keys, private=private, now=now)
        answer = WorkerRegistered(
            worker_id=worker.id,
            secret=platform.keys.secret(worker.id, worker.secret),
            heartbeat_s=platform.config.heartbeat_s,
            lease_s=platform.config.lease_s,
            now=platform.clock(),
            most_bundle_bytes=platform.config.most_bundle_bytes,
            dial_allow=list(platform.config.dial.allow),
            private_addresses=list(platform.config.private_addresses),
        )
    for lease_id in unbegun:
        platform.intake.fail(lease_id, 'its worker started anew', actor=caller.actor)
    return answer


@router.post('/workers/{worker_id}/heartbeat', tags=['workers'], responses=refusals(404))
def post_heartbeat(worker_id: Id, body: HeartbeatIn, caller: AWorker, platform: ThePlatform) -> HeartbeatOut:
    """Say that a worker lives; renews the lease it is at. Send one at once when the cell is ready again."""
    with platform.database.write(caller.actor, is_lazy=True) as session:
        worker = find_worker(session, worker_id, caller=caller, lock=True)
        heard = heartbeat(session, worker, platform.config, body, now=platform.clock())
    if heard.abandoned:
        platform.intake.fail(heard.abandoned, 'its worker started anew', actor=caller.actor)
    return HeartbeatOut.model_validate({
        'leases': heard.leases, 'commands': heard.commands, 'expires_at': heard.expires_at, 'now': platform.clock(),
    })  # fmt: skip


@router.post(
    '/workers/{worker_id}/next',
    tags=['workers'],
    response_model=NextOut,
    responses={204: {'description': 'Nothing to dial now.'}, **refusals(404)},
)
def post_next(worker_id: Id, caller: AWorker, platform: ThePlatform) -> NextOut | Response:
    """The next episode of a submission that the platform dials, for an idle worker."""
    if platform.is_draining:
        return Response(status_code=204)
    with platform.database.write(caller.actor) as session:
        worker = find_worker(session, worker_id, caller=caller, lock=True)
        lease = grant_to_worker(
            session, worker, platform.config, now=platform.clock(), quarantined=platform.intake.quarantine.benchmark_ids
        )
        if lease is None:
            return Response(status_code=204)
        order = begin(session, caller, lease.id, platform.config, now=platform.clock())
        return NextOut(lease_id=lease.id, job=_order(order), expires_at=lease.expires_at)


@router.get('/leases/{lease_id}/job', tags=['workers'], responses=refusals(404, 410))
def get_job(lease_id: Id, caller: AWorker, platform: ThePlatform) -> JobOut:
    """The job of a lease; from now on it runs, and an attempt is used."""
    with platform.database.write(caller.actor) as session:
        return _order(begin(session, caller, lease_id, platform.config, now=platform.clock()))


@router.post(
    '/leases/{lease_id}/result',
    tags=['workers'],
    responses=refusals(404, 409, 410),
    openapi_extra={
        'requestBody': {
            'required': True,
            'description': 'A bundle, signed for this lease (robotrials.service.platform.bundle: sign_bundle).',
            'content': {'application/octet-stream': {'schema': {'type': 'string', 'format': 'binary'}}},
        }
    },
)
async def post_result(lease_id: Id, request: Request, caller: AWorker, platform: ThePlatform) -> Settled:
    """Upload what came of an attempt. The same again is fine; for a lease that is over it is kept aside."""
    data = await request.body()
    settled = await run_in_threadpool(platform.intake.accept, caller, lease_id, data)
    platform.metrics.ended.labels('result').inc()
    return settled


@router.post('/leases/{lease_id}/fault', tags=['workers'], responses=refusals(404, 410))
def post_fault(lease_id: Id, body: FaultIn, caller: AWorker, platform: ThePlatform) -> Settled:
    """Give a job back because the rig broke: the attempt is INVALID, and the job is requeued once."""
    with platform.database.read() as session:
        own_lease(session, caller, lease_id)
    settled = platform.intake.fail(lease_id, body.reason, kind=body.kind, actor=caller.actor)
    if settled is None:
        raise Refusal(410, 'lease_over', 'this lease is over')
    platform.metrics.ended.labels('fault').inc()
    return settled


def _order(order: JobOrder) -> JobOut:
    return JobOut.model_validate(order.as_json())


@router.get('/workers', tags=['operation'], responses=refusals())
def get_workers(caller: AnOperator, platform: ThePlatform) -> list[CellOut]:
    """Every cell, and what it is at, by code."""
    now = platform.clock()
    with platform.database.read() as session:
        cells = []
        for worker, lease in list_workers(session):
            submission = lease.job.submission if lease is not None else None
            running_s = None if lease is None else now - lease.granted_at
            busy_s = worker.busy_s + (running_s or 0.0)
            cells.append(
                CellOut.of(
                    worker, heartbeat_age_s=max(0.0, now - worker.heard_at), running_s=running_s,
                    utilisation=min(1.0, busy_s / max(now - worker.first_at, 1e-9)), step=lease.steps if lease else 0,
                    code=submission.code if submission else '',
                    benchmark=submission.benchmark.name if submission else '',
                )
            )  # fmt: skip
        return cells


@router.get('/queue', tags=['operation'], responses=refusals())
def get_queue(caller: AnOperator, platform: ThePlatform) -> QueueOut:
    """Who waits, in order, by code; and jobs by state."""
    with platform.database.read() as session:
        quarantined = platform.intake.quarantine.benchmark_ids
        offers = queue_order(session, platform.config, now=platform.clock(), quarantined=quarantined)
        known = {
            s.id: s
            for s in session.scalars(select(Submission).where(Submission.id.in_([o.submission_id for o in offers])))
        }
        waiting = [
            QueueEntry(place=place, benchmark=known[o.submission_id].benchmark.name, kind=o.kind,
                       code=known[o.submission_id].code)
            for place, o in enumerate(offers)
        ]  # fmt: skip
        counts = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
        return QueueOut(waiting=waiting, jobs={row[0]: row[1] for row in counts})


@router.post('/workers/{worker_id}/{wanted}', tags=['operation'], responses=refusals(404))
def post_command(
    worker_id: Id, wanted: Literal['drain', 'stop', 'resume'], caller: AnOperator, platform: ThePlatform
) -> dict[str, str]:
    """Drain a cell (it ends its episode first), stop it at once, or let it go on."""
    with platform.database.write(caller.actor) as session:
        worker = find_worker(session, worker_id, lock=True)
        command(session, worker, wanted)
        address, secret = worker.address, platform.keys.secret(worker.id, worker.secret)
    if wanted == 'drain':
        return {'wanted': wanted}
    # The next heartbeat says it too; a stop must not wait for one.
    is_told = press(
        address, secret.encode(), worker_id=worker_id, word=wanted, now_s=platform.clock(),
        private=platform.config.private_addresses,
    )  # fmt: skip
    return {'wanted': wanted, 'told': 'now' if is_told else 'with its next heartbeat'}


@router.post('/benchmarks/{name}/void', tags=['operation'], responses=refusals(404, 409))
def post_void(name: BenchmarkName, body: VoidIn, caller: AnOperator, platform: ThePlatform) -> dict[str, str]:
    """Void a whole submission, by its code: it does not count, and the board shows who did it and why."""
    with platform.database.write(caller.actor) as session:
        of_code = select(Submission).join(BenchmarkRow, BenchmarkRow.id == Submission.benchmark_id).where(
            BenchmarkRow.name == name, Submission.code == body.code
        )  # fmt: skip
        submission = session.scalar(of_code.with_for_update(of=Submission))
        if submission is None:
            raise not_found('submission')
        live = void(session, submission, by=caller.user, why=body.why, now=platform.clock())
        reason = submission.reason
    for lease_id in live:
        platform.intake.fail(lease_id, 'its submission was voided', actor=caller.actor)
    platform.intake.open_finished()
    return {'code': body.code, 'state': 'void', 'reason': reason}
