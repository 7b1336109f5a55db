"""Cells as the server knows them: workers that register, are heard of, and can be drained, stopped and resumed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from robotrials.errors import InputError
from robotrials.run.component import check_spec_fits
from robotrials.run.plan import TrialPlan
from robotrials.service.platform.access import Caller, Refusal, check_name, new_id, not_found
from robotrials.service.platform.client import check_public
from robotrials.service.platform.config import PlatformConfig, WorkerKeys
from robotrials.service.platform.link import host_spec_from_map
from robotrials.service.platform.table import LIVE, Lease, WorkerRow, note

if TYPE_CHECKING:
    from robotrials.service.platform.schema import HeartbeatIn, WorkerIn

PROTOCOL = 2
ADDRESS = re.compile(r'wss?://[A-Za-z0-9.\-_\[\]:]+(/[A-Za-z0-9._~\-/]*)?')
_WORKER = select(WorkerRow).where(WorkerRow.id == bindparam('worker_id'))
_LOCKED_WORKER = _WORKER.with_for_update()
_LIVE_LEASE = select(Lease).where(Lease.worker_id == bindparam('worker_id'), Lease.state.in_(LIVE))


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What a worker is told when it is heard of."""

    leases: tuple[str, ...]  # that still hold; an episode of any other is to be ended
    commands: tuple[str, ...]
    expires_at: float | None
    abandoned: str = ''  # a lease from before the worker's restart, of which it no longer speaks


def register(
    session: Session, caller: Caller, body: WorkerIn, *, keys: WorkerKeys, private: Sequence[str], now: float
) -> tuple[WorkerRow, list[str]]:
    """The worker of this name, with a new secret, and its leases that were not begun, which are void.

    One that was begun stays until the worker is heard of: an episode may lie finished in its spool.
    """
    name, address, key, spec = body.name, body.address, body.key, checked_spec(body.spec)
    check_name(name, 'name of a worker')
    if body.protocol != PROTOCOL:
        raise Refusal(409, 'protocol', f'protocol {body.protocol}, this server speaks {PROTOCOL}; upgrade one side')
    if not ADDRESS.fullmatch(address):
        raise Refusal(422, 'bad_address', f'address is {address[:60]!r}, wanted ws://HOST:PORT')
    try:
        check_public(urlsplit(address).hostname or '', allowed=private, what='address')
    except ValueError as error:  # an InputError is one, and so is an address that cannot be taken apart
        raise Refusal(422, 'private_address', str(error)) from error
    worker = session.scalar(select(WorkerRow).where(WorkerRow.name == name).with_for_update())
    if worker is not None and worker.user_id != caller.user_id:
        raise Refusal(409, 'exists', f'there is a worker named {name!r} of another user; give another name')
    if worker is not None and worker.key not in ('', key):
        raise Refusal(
            409, 'other_key', f'worker {name!r} registered with key {worker.key[:12]}, this is {key[:12]}; start it '
            'on its own folder, which has its key, or give it another name',
        )  # fmt: skip
    secret = keys.new()
    if worker is None:
        worker = WorkerRow(
            id=new_id('wrk'), name=name, user_id=caller.user_id, host=body.host, address=address,
            protocol=body.protocol,
            secret=secret, state='idle', wanted='run', note='', registered_at=now, heard_at=now, idle_since=now,
            busy_s=0.0, first_at=now, spec=spec, key=key,
        )  # fmt: skip
        session.add(worker)
        note(session, 'worker.register', worker.id, name=name, host=body.host, key=key)
        return worker, []
    worker.host, worker.address, worker.secret, worker.protocol = body.host, address, secret, body.protocol
    worker.spec, worker.key = spec, key
    worker.state, worker.registered_at, worker.heard_at, worker.idle_since = 'busy', now, now, None
    note(session, 'worker.register', worker.id, name=name, host=body.host, key=key, again=True)
    unbegun = session.scalars(select(Lease.id).where(Lease.worker_id == worker.id, Lease.state == 'granted'))
    return worker, list(unbegun)


def forget_foreign(session: Session, keys: WorkerKeys) -> None:
    """Have workers register anew whose secrets were not made with this server's key: nothing we sign would hold."""
    for worker in session.scalars(select(WorkerRow).where(WorkerRow.secret != '')):
        if not keys.knows(worker.secret):
            worker.secret, worker.state, worker.idle_since = '', 'lost', None
            note(session, 'worker.forget', worker.id, why='another key')


def find_worker(session: Session, worker_id: str, *, caller: Caller | None = None, lock: bool = False) -> WorkerRow:
    """A worker; for a worker's own requests it must be the caller's."""
    worker = session.scalar(_LOCKED_WORKER if lock else _WORKER, {'worker_id': worker_id})
    if worker is None or (caller is not None and worker.user_id != caller.user_id):
        raise not_found('worker')
    return worker


def heartbeat(
    session: Session, worker: WorkerRow, config: PlatformConfig, body: HeartbeatIn, *, now: float
) -> HeartbeatAnswer:
    """Note that a worker lives, renew the lease it is at, and tell it what is wanted of it."""
    if not worker.secret:
        raise Refusal(410, 'register', 'this server has another key than before; register again')
    state, lease_id, text = body.state, body.lease_id, body.note
    live = session.scalar(_LIVE_LEASE, {'worker_id': worker.id})
    if live is not None and live.id == lease_id and live.state == 'running' and live.expires_at > now:
        limit = (live.begun_at or now) + config.longest_episode_s
        live.expires_at = min(now + config.lease_s, limit)
        live.steps = live.steps if body.step is None else body.step
    known = 'busy' if live is not None and state == 'idle' else state
    if worker.state != known and {worker.state, known} - {'idle', 'busy'}:
        note(session, 'worker.state', worker.id, before=worker.state, after=known, note=text)
    if known == 'idle' and (worker.state != 'idle' or worker.idle_since is None):
        worker.idle_since = now
    elif known != 'idle':
        worker.idle_since = None
    worker.state, worker.heard_at, worker.note = known, now, text
    if worker.wanted == 'resume' and state in ('idle', 'busy'):
        worker.wanted = 'run'
    commands = {'drain': ('drain',), 'stop': ('stop',), 'resume': ('resume',)}.get(worker.wanted, ())
    if live is None:
        return HeartbeatAnswer((), commands, None)
    if live.state == 'running' and live.id != lease_id and (live.begun_at or now) < worker.registered_at:
        return HeartbeatAnswer((), commands, None, abandoned=live.id)
    holds = live.state == 'storing' or live.expires_at > now
    return HeartbeatAnswer((live.id,) if holds else (), commands, live.expires_at if holds else None)


def command(session: Session, worker: WorkerRow, wanted: str) -> None:
    """Drain, stop or resume a cell; an episode that a stop ends is uploaded by its worker."""
    if worker.wanted != wanted:
        note(session, f'worker.{wanted}', worker.id, before=worker.wanted)
        worker.wanted = wanted


def mark_lost(session: Session, config: PlatformConfig, *, now: float) -> list[str]:
    """Workers that were not heard of for too long."""
    silent = session.scalars(
        select(WorkerRow)
        .where(WorkerRow.state != 'lost', WorkerRow.heard_at <= now - config.lost_s)
        .with_for_update(skip_locked=True)
    ).all()
    for worker in silent:
        note(session, 'worker.state', worker.id, before=worker.state, after='lost')
        worker.state, worker.idle_since = 'lost', None
    return [worker.id for worker in silent]


def list_workers(session: Session) -> list[tuple[WorkerRow, Lease | None]]:
    """Every cell and the lease it is at."""
    live = {lease.worker_id: lease for lease in session.scalars(select(Lease).where(Lease.state.in_(LIVE)))}
    workers = session.scalars(select(WorkerRow).order_by(WorkerRow.name))
    return [(worker, live.get(worker.id)) for worker in workers]


# What cells say they can do. A benchmark that none of them can run is refused when it is declared.


def checked_spec(values: Mapping[str, Any] | None) -> str:
    """The spec of a cell's host as it is kept; '' if the cell does not say."""
    if values is None:
        return ''
    try:
        host_spec_from_map(values)
    except InputError as error:
        raise Refusal(422, 'bad_spec', str(error)) from error
    return json.dumps(values, sort_keys=True)


def check_runnable(session: Session, plan: TrialPlan) -> None:
    """Refuse a plan whose tasks or conditions no registered cell has, if any of them says what it has."""
    cells = select(WorkerRow.name, WorkerRow.spec).where(WorkerRow.host == plan.host.use, WorkerRow.spec != '')
    reasons = []
    for name, spec in session.execute(cells.order_by(WorkerRow.name)):
        try:
            check_spec_fits(plan, host_spec_from_map(json.loads(spec)))
            return
        except InputError as error:
            reasons.append(f'cell {name}: {error}')
    if reasons:
        raise Refusal(
            422, 'not_runnable',
            f'no registered cell can run this plan ({reasons[0]}); correct it, or declare it unchecked if the plan\'s '
            'host options make the difference or such a cell is still to come',
        )  # fmt: skip
