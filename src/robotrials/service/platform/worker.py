"""A worker: runs one cell around the clock for a server.

The episode runs in the main thread, where its alarm clock can interrupt it. Beside it, one thread sends heartbeats and
hears the server's commands, and the port lets clients in. What is finished goes to the spool first, then to the server.
"""

from __future__ import annotations

import contextlib
import enum
import faulthandler
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from robotrials.errors import AnswerError, InputError, RobotrialsError, WriteError
from robotrials.record.log import load_key, make_key, public_half
from robotrials.run.fault import FaultKind
from robotrials.run.seam import HostSpec
from robotrials.service.platform.bundle import BUNDLE_LIMITS, SIGNED_BYTES, sign_bundle
from robotrials.service.platform.client import UNREACHABLE, Api, ApiError
from robotrials.service.platform.job import (
    IMPOSSIBLE,
    NOT_BEGUN,
    TURNED_AWAY,
    Job,
    LeaseClaim,
    LeaseGuard,
    job_from_json,
)
from robotrials.service.platform.link import (
    VERSION,
    ClientLink,
    ErrorCode,
    MessageType,
    encode,
    encode_error,
    spec_to_map,
)
from robotrials.service.platform.worker_episode import Attempt, CellOptions, CellStation, NotBegun, error_code
from robotrials.service.platform.worker_port import BundleSpool, WorkerPort
from robotrials.worlds.wrapper import Interrupts

log = logging.getLogger('robotrials.worker')
MOST_HOST_FAULTS = 3  # in a row; then the cell is out of service
ASK_S = 1.0  # between two questions for work to dial
FROZEN_S = 120.0  # without a heartbeat's turn: compiled code holds the interpreter
KEY = 'cell.key'  # in the worker's folder: what its results are signed with
PAUSE_S = (0.5, 15.0)  # first and longest, while the server does not answer


class WorkerState(enum.StrEnum):
    IDLE = 'idle'
    BUSY = 'busy'
    DRAINING = 'draining'
    OUT_OF_SERVICE = 'out_of_service'


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker is run."""

    server: str
    token: str
    name: str
    cell: CellOptions
    folder: Path
    listen: tuple[str, int] = ('127.0.0.1', 0)
    address: str = ''  # ws://... by which clients reach it; made of `listen` unless given
    stop_secret: str = ''
    restarts_on_hang: bool = True


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """Work that was let in: a job under a lease, with its client or without one."""

    lease_id: str
    job: Job
    link: ClientLink | None


class CellWorker:
    """One worker process."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._api = Api(options.server, options.token)
        self._spool = BundleSpool(options.folder)
        with contextlib.suppress(FileExistsError):
            make_key(options.folder / KEY)
        self._key = load_key(options.folder / KEY)
        self._interrupts = Interrupts()
        self._station = CellStation(options.cell, name=options.name, interrupts=self._interrupts)
        self._inbox: queue.Queue[LeasedJob] = queue.Queue(maxsize=1)
        self._lock = threading.Lock()
        self._lease: str | None = None  # of the errand that was let in
        self._fault = ''  # why the cell is out of service; empty while it is not
        self._host_faults = 0
        self._last_job: Job | None = None
        self._leaving = threading.Event()  # finish what is under way, then end
        self._draining = threading.Event()  # finish what is under way, then take nothing until resumed
        self._gone = threading.Event()
        self._guard: LeaseGuard | None = None
        self._worker_id = ''
        self._heartbeat_s = 2.0
        self._ahead_s = 0.0  # the server's clock before ours: tokens expire by the server's
        self._asked_s = 0.0
        self._spec: HostSpec | None = None

    # --- the life of a worker

    def run(self) -> None:
        """Serve until told to leave."""
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGINT, self._leave)
        self._send_waiting()
        self._spec = self._station.describe()
        host, port = self._options.listen
        listening = WorkerPort(
            self, interrupts=self._interrupts, host=host, port=port, stop_secret=self._options.stop_secret
        )
        self._address = self._options.address or f'ws://{host}:{listening.port}/eval'
        self._register()
        beat = threading.Thread(target=self._beat, daemon=True, name='heartbeat')
        beat.start()
        try:
            while not self._leaving.is_set():
                self._serve_once()
        finally:
            listening.close()
            self._gone.set()
            faulthandler.cancel_dump_traceback_later()
            beat.join(self._heartbeat_s + 5.0)
            self._station.leave()
            with contextlib.suppress(RobotrialsError):
                self._heartbeat()
        log.info('worker %s has left', self._options.name)

    def _serve_once(self) -> None:
        errand: LeasedJob | None = None
        try:
            errand = self._inbox.get(timeout=0.2)
        except queue.Empty:
            errand = self._next_dialled() if self._is_free else None
        if errand is None:
            return
        try:
            self._run(errand)
        finally:
            with self._lock:
                self._lease = None
            self._interrupts.lost.clear()
        with contextlib.suppress(RobotrialsError):  # the next one in turn says it too
            self._heartbeat()

    def _run(self, errand: LeasedJob) -> None:
        """One job to its upload."""
        job, link = errand.job, errand.link
        self._last_job = job
        try:
            attempt = self._station.run(job, link)
        except NotBegun as error:
            self._not_begun(errand, error)
            return
        log.info('lease %s: %s after %d steps', errand.lease_id, attempt.episode.outcome, attempt.n_steps)
        if link is not None:
            link.close(_farewell(job, attempt))
        self._judge(attempt)
        signed = sign_bundle(attempt.bundle, self._key, lease_id=errand.lease_id)
        try:
            self._spool.put(errand.lease_id, signed)
        except WriteError as error:
            self._upload_from_memory(errand.lease_id, signed, error)
        self._send_waiting()

    def _not_begun(self, errand: LeasedJob, error: NotBegun) -> None:
        log.warning('lease %s: not begun: %s', errand.lease_id, error)
        if errand.link is not None:
            errand.link.refuse(error.code, str(error))
        self._give_back(errand.lease_id, IMPOSSIBLE if error.is_plans else 'host crash', str(error))
        if not error.is_plans and error.code not in (ErrorCode.EMERGENCY_STOP, ErrorCode.LEASE_VOID):
            self._count_host_fault(str(error))

    def _judge(self, attempt: Attempt) -> None:
        """Whether the cell may go on: not after a reset that did not come about, nor after faults in a row."""
        fault = attempt.fault
        if attempt.reset_fault:
            self._take_out(attempt.reset_fault)
        elif fault is not None and not fault.kind.is_the_policys:
            self._count_host_fault(fault.reason)
        else:
            self._host_faults = 0

    def _count_host_fault(self, reason: str) -> None:
        self._host_faults += 1
        if self._host_faults >= MOST_HOST_FAULTS:
            self._take_out(f'{self._host_faults} faults of the cell in a row; the last: {reason}')
        elif self._last_job is not None and (problem := self._station.check(self._last_job)):
            self._take_out(f'the cell does not pass its check: {problem}')

    def _take_out(self, reason: str) -> None:
        log.error('out of service: %s', reason)
        self._fault = self._fault or reason

    # --- sending what is finished

    def _send_waiting(self) -> None:
        """Send what waits, until it is sent, refused for good, or the worker is told to leave.

        A worker that starts does this before it registers: that voids the leases of an earlier life.
        """
        pause_s = PAUSE_S[0]
        while True:
            done = self._spool.flush(self._upload)
            for kind in ('late', 'refused'):
                for lease_id in getattr(done, kind):
                    log.warning('lease %s: the upload is %s: %s', lease_id, kind, done.trouble)
            if not done.waiting:
                return
            log.warning('the upload waits: %s', done.trouble)
            if self._leaving.wait(pause_s):
                self._spool.flush(self._upload)
                return  # it stays in the spool for the next start
            pause_s = min(2 * pause_s, PAUSE_S[1])

    def _upload(self, lease_id: str, bundle: bytes) -> None:
        self._api.post_bytes(f'/leases/{lease_id}/result', bundle)

    def _upload_from_memory(self, lease_id: str, bundle: bytes, error: WriteError) -> None:
        """Our own disk is full: the server may still take it; then somebody has to make room."""
        self._take_out(f'the spool cannot be written to: {error}')
        try:
            self._upload(lease_id, bundle)
        except (ApiError, *UNREACHABLE) as unsent:
            log.error('lease %s: lost, neither disk nor server takes it: %s', lease_id, unsent)
            self._give_back(lease_id, 'host crash', str(error))

    def _give_back(self, lease_id: str, kind: str, reason: str) -> None:
        try:
            self._api.post(
                f'/leases/{lease_id}/fault', {'kind': kind, 'reason': reason[:500].replace('\0', ' ') or kind}
            )
        except (ApiError, AnswerError, *UNREACHABLE) as error:
            log.warning('lease %s: could not be given back, it will expire: %s', lease_id, error)

    # --- work to do

    @property
    def _is_free(self) -> bool:
        with self._lock:
            is_free = self._lease is None
        return is_free and not self._fault and not self._is_closing and not self._interrupts.stop.is_set()

    @property
    def _is_closing(self) -> bool:
        return self._leaving.is_set() or self._draining.is_set()

    def _next_dialled(self) -> LeasedJob | None:
        """Work for a policy that is to be dialled, if the server has some."""
        if time.monotonic() - self._asked_s < ASK_S or not self._worker_id:
            return None
        self._asked_s = time.monotonic()
        try:
            status, answer = self._api.post(f'/workers/{self._worker_id}/next')
            if status != 200 or not answer:
                return None
            lease_id, job = str(answer['lease_id']), job_from_json(answer['job'])
        except (RobotrialsError, KeyError, TypeError) as error:
            log.warning('no work: %s', error)
            return None
        if not self._claim(lease_id):
            self._give_back(lease_id, NOT_BEGUN, 'the worker was taken meanwhile')
            return None
        return self._begun(lease_id, None, job)

    def _begun(self, lease_id: str, link: ClientLink | None, job: Job | None = None) -> LeasedJob:
        """Tell the server that a lease is taken up; ApiError if it is void."""
        _, answer = self._api.get(f'/leases/{lease_id}/job')
        return LeasedJob(lease_id, job_from_json(answer) if job is None else job, link)

    def _claim(self, lease_id: str) -> bool:
        if not self._is_free:
            return False
        with self._lock:
            if self._lease is not None:
                return False
            self._lease = lease_id
        self._interrupts.lost.clear()
        return True

    # --- the desk of the port

    def admit(self, token: str) -> LeaseClaim:
        guard = self._guard
        if guard is None:
            raise InputError('not registered yet')
        return guard.admit(token, now_s=time.time() + self._ahead_s)

    def take(self, claim: LeaseClaim, link: ClientLink) -> tuple[ErrorCode, str] | None:
        """Take a client in, if the cell is free and the server still holds the lease.

        A cell that turns a client away gives the lease back itself: from the server's side, a client that never came
        would look the same, and has failed. Not so a lease that was taken up here: with two tokens for one lease, a
        client could come twice at once to be turned away, until it is sent to the cell that it likes.
        """
        with self._lock:
            if self._lease == claim.lease_id:
                return ErrorCode.BUSY, 'the episode of this lease is under way here'
        away = self._turned_away(claim.lease_id)
        if away is not None:
            self._give_back(claim.lease_id, TURNED_AWAY, away[1])
            return away
        refused: tuple[ErrorCode, str] | None = None
        try:
            self._inbox.put_nowait(self._begun(claim.lease_id, link))
        except ApiError as error:
            refused = ErrorCode.LEASE_VOID, f'the server does not hold this lease: {error}'
        except (RobotrialsError, queue.Full) as error:
            refused = ErrorCode.SERVER_UNREACHABLE, f'the server cannot be asked about this lease: {error}'
        if refused is not None:
            with self._lock:
                self._lease = None
        return refused

    def _turned_away(self, lease_id: str) -> tuple[ErrorCode, str] | None:
        """Why the cell cannot take this lease up; None once it has."""
        if self._fault or self._interrupts.stop.is_set():
            return ErrorCode.OUT_OF_SERVICE, 'this cell is out of service; ask the server for another'
        if self._is_closing:
            return ErrorCode.DRAINING, 'this worker takes nothing more; ask the server for another'
        if not self._claim(lease_id):
            return ErrorCode.BUSY, 'an episode is under way here; ask the server for another lease'
        return None

    def state(self) -> Mapping[str, object]:
        return {'state': self._state().value, 'note': self._note(), 'waiting': len(self._spool.leases())}

    def stop(self, why: str) -> None:
        """The emergency stop: now, whatever is under way, until resumed."""
        if self._interrupts.stop.is_set():
            return  # told again
        self._interrupts.stop.set()
        self._take_out(why)
        self._station.stop_now()

    def resume(self) -> None:
        """Back into service, if the cell passes its check at its next episode."""
        self._interrupts.stop.clear()
        self._draining.clear()
        self._fault, self._host_faults = '', 0
        log.info('back in service')

    # --- the server's view

    def _state(self) -> WorkerState:
        if self._fault or self._interrupts.stop.is_set():
            return WorkerState.OUT_OF_SERVICE
        if self._is_closing:
            return WorkerState.DRAINING
        with self._lock:
            return WorkerState.IDLE if self._lease is None else WorkerState.BUSY

    def _note(self) -> str:
        return self._fault[:500].replace('\0', ' ')

    def _register(self) -> None:
        """Tell the server that we are here; patiently, since it may start after us."""
        pause_s = PAUSE_S[0]
        while not self._leaving.is_set():
            try:
                self._register_once()
                return
            except ApiError as error:
                if not error.is_passing:
                    raise InputError(f'the server does not take this worker: {error}') from error
                log.warning('not registered yet: %s', error)
            except UNREACHABLE as error:
                log.warning('not registered yet: %s', error)
            self._leaving.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S[1])

    def _register_once(self) -> None:
        body: dict[str, object] = {
            'name': self._options.name, 'host': self._options.cell.host, 'address': self._address, 'protocol': VERSION,
            'key': public_half(self._key),
        }  # fmt: skip
        if self._spec is not None:
            body['spec'] = spec_to_map(self._spec)
        _, answer = self._api.post('/workers', body)
        try:
            self._worker_id = str(answer['worker_id'])
            self._guard = LeaseGuard(str(answer['secret']).encode(), worker_id=self._worker_id)
            self._heartbeat_s = float(answer['heartbeat_s'])
            self._ahead_s = float(answer['now']) - time.time()
            self._station.dial_allow = tuple(map(str, answer.get('dial_allow', ())))
            self._station.private_addresses = tuple(map(str, answer.get('private_addresses', ())))
            most_bytes = int(answer.get('most_bundle_bytes', BUNDLE_LIMITS.max_bytes))
            self._station.most_bundle_bytes = most_bytes - SIGNED_BYTES
        except (KeyError, TypeError, ValueError) as error:
            raise AnswerError(f'{self._api.server}: a registration without {error}') from error
        log.info('worker %s registered as %s at %s', self._options.name, self._worker_id, self._address)

    def _beat(self) -> None:
        while not self._gone.wait(self._heartbeat_s):
            # Runs without the interpreter: if nothing else does any more, the process ends, to be started again.
            faulthandler.dump_traceback_later(FROZEN_S, exit=True)
            board = self._station.board
            if board is not None and board.is_hanging:
                self._escape()
            try:
                self._heartbeat()
            except ApiError as error:
                log.warning('heartbeat refused: %s', error)
                if error.status in (404, 410):  # the server does not know us: it was set up anew
                    with contextlib.suppress(RobotrialsError):
                        self._register_once()
            except RobotrialsError as error:
                log.warning('heartbeat lost: %s', error)
            except Exception:  # without this thread the cell is lost, and its episodes with it
                log.exception('heartbeat failed')

    def _heartbeat(self) -> None:
        with self._lock:
            lease = self._lease
        waiting = self._spool.leases()
        body: dict[str, object] = {'state': self._state().value, 'note': self._note()}
        if renewed := lease or (waiting[0] if waiting else None):
            body |= {'lease_id': renewed, 'step': self._station.n_steps}
        _, answer = self._api.post(f'/workers/{self._worker_id}/heartbeat', body, timeout_s=5.0)
        if not isinstance(answer, Mapping):
            raise AnswerError('a heartbeat was answered with nothing')
        if isinstance(now := answer.get('now'), int | float):
            self._ahead_s = now - time.time()
        for command in answer.get('commands', ()):
            self._obey(str(command))
        valid = answer.get('leases')
        with self._lock:
            is_lost = lease is not None and valid is not None and lease not in valid and lease == self._lease
        if is_lost and lease not in waiting:
            log.warning('lease %s is void: the episode is broken off', lease)
            self._interrupts.lost.set()

    def _obey(self, command: str) -> None:
        log.info('the server says: %s', command)
        if command == 'stop':
            self.stop('emergency stop')
        elif command == 'resume':
            self.resume()
        elif command == 'drain':
            self._draining.set()
        else:
            log.warning('an unknown command of the server: %s', command)

    def _escape(self) -> None:
        """A call into compiled code never came back: give the job back, and start this process anew."""
        log.error('a call hangs; the worker starts anew')
        with self._lock:
            lease = self._lease
        if lease is not None:
            board = self._station.board
            is_policys = board is not None and board.is_asking
            kind = FaultKind.POLICY_HANG if is_policys else FaultKind.HOST_HANG
            whom = 'policy' if is_policys else 'host'
            self._give_back(lease, kind.value, f'a call into the {whom} never came back')
        if self._options.restarts_on_hang:
            os.execv(sys.executable, sys.orig_argv)
        os._exit(70)

    def _leave(self, number: int, frame: FrameType | None) -> None:
        if self._leaving.is_set():
            os._exit(1)  # told twice
        log.info('draining: what is under way is finished first')
        self._leaving.set()


def _farewell(job: Job, attempt: Attempt) -> bytes:
    """The last word to a client: how it ended, as far as blinding lets it be told."""
    if attempt.fault is not None:
        # What a broken host says may tell task and scene, which come again.
        is_hidden = job.blinded and not attempt.fault.kind.is_the_policys
        reason = f'{attempt.fault.kind}: the cell broke' if is_hidden else attempt.fault.reason
        return encode_error(error_code(attempt.fault), reason)
    outcome, reason = attempt.episode.outcome.value, attempt.episode.reason
    if job.blinded:
        outcome = reason = ''
    return encode(MessageType.END, outcome=outcome, reason=reason, n_steps=attempt.n_steps)
