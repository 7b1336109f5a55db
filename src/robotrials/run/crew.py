"""The parent's side of the workers: starting them, hearing from them, and ending those that no longer answer.

A `Crew` is several workers on one errand, whatever carries them: processes here, actors on a Ray cluster. Each worker
has a station of `robotrials.run.station`, which runs one episode at a time.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Generic, Self, TypeVar

from robotrials.errors import InputError, RobotrialsError, SetupError, WriteError
from robotrials.run.environment.worker import end_with_parent
from robotrials.run.fault import Fault, FaultKind
from robotrials.run.mark import PhaseBoard, WorkerPhase, mark_worker
from robotrials.run.plan import WatchdogOptions
from robotrials.run.schedule import SlotAttempt
from robotrials.run.station import Finished

if TYPE_CHECKING:
    from collections.abc import Mapping

    from robotrials.run.plan import PolicyEntry


# A worker process: one station that runs the slots it is told, and ends when its parent does.
# Started by `robotrials.run.crew` with three inherited file descriptors: the connection to the parent, the phase
# board, and a file for its stack when it hangs.


@dataclass(frozen=True, slots=True)
class Errand:
    """All that a worker has to know; it works out the rest from the plan."""

    plan: str
    store: Path
    provenance_id: str
    operator: str
    import_path: tuple[str, ...]
    arms: Path | None = None  # of an operator's plan
    served: Mapping[str, PolicyEntry] = field(
        default_factory=dict
    )  # policies that all workers share, as they are reached
    is_spooled: bool = False  # episodes wait until their block is whole
    spooled_as: str = ''
    is_replacement: bool = False  # of a worker that was ready: everything could be opened before


def main() -> None:
    """Serve until told to stop or left alone; the arguments are the descriptors of connection, board and trace."""
    connection_fd, board_fd, trace_fd = (int(argument) for argument in sys.argv[1:4])
    trace = os.fdopen(trace_fd, 'wb', buffering=0)
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)
    connection: Connection = Connection(connection_fd)
    errand = connection.recv()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at the keyboard is for the parent, who ends us
    _leave_with_parent(os.getppid())
    from robotrials.record import Store
    from robotrials.run.blinding import read_arms
    from robotrials.run.mark import PhaseBoard, WorkerPhase
    from robotrials.run.plan import plan_from_json
    from robotrials.run.schedule import spool_of
    from robotrials.run.station import Context, TrialStation

    board = PhaseBoard(os.fdopen(board_fd, 'r+b'))
    board.enter(WorkerPhase.START)
    plan = plan_from_json(errand.plan)
    arms = read_arms(plan, errand.arms) if errand.arms is not None else None
    context = Context.of(plan, provenance_id=errand.provenance_id, operator=errand.operator, arms=arms)
    store = Store.open(errand.store)
    spool = spool_of(store, is_concealed=errand.is_spooled, whole=errand.spooled_as)
    station = TrialStation(context, store, board=board, served=errand.served, spool=spool)
    try:
        station.check(is_replacement=errand.is_replacement)
    except (Exception, SystemExit) as error:
        connection.send(InputError(context.blinding.scrub(str(error))))  # without policies' names
        return
    board.enter(WorkerPhase.IDLE)
    connection.send(None)
    slots = context.slots()
    try:
        while (slot := connection.recv()) is not None:
            number, attempt = slot
            try:
                finished = station.run(slots[number], attempt)
            except RobotrialsError as error:
                refused = WriteError if isinstance(error, WriteError) else InputError
                connection.send(refused(context.blinding.scrub(str(error))))
                os._exit(1)
            connection.send(finished)
            if finished.is_poisoned:
                os._exit(0)
    except (EOFError, OSError):  # the parent is gone, or something closed our descriptors
        os._exit(1)
    station.close()


def _leave_with_parent(parent: int) -> None:
    """End this process when its parent ends, also while a policy or host keeps it busy."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.05)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name='parent watch').start()
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


POLL_S = 0.05
STORE_LIMIT_S = 300.0
STOP_S = 10.0
HANG_UP_S = 1.0
START_TRIES = 3
TRACE_S = 1.0


class Worker(abc.ABC):
    """A worker as its crew sees it, here or on another machine, and what it is at."""

    def __init__(self) -> None:
        self.task: SlotAttempt | None = None
        self.is_ready = False
        self.is_gone = False  # it hung up, or its machine is lost

    @abc.abstractmethod
    def give(self, task: SlotAttempt) -> None:
        """Send it an episode to run."""


AnyWorker = TypeVar('AnyWorker', bound=Worker)


class Crew(abc.ABC, Generic[AnyWorker]):
    """Several workers on one errand: who is idle, who has finished what, who was lost at what."""

    start_hint = ''  # what to do about workers that end before they are ready

    def __init__(self, errand: Errand, *, size: int) -> None:
        self._errand = errand
        self._failed_starts = 0
        self.workers: list[AnyWorker] = []
        for _ in range(size):
            self.hire()

    @abc.abstractmethod
    def hire(self) -> None:
        """Start one more worker."""

    @abc.abstractmethod
    def listen(self) -> list[tuple[AnyWorker, Finished]]:
        """What workers have to say now, after a short wait; one that cannot start ends the run."""

    @abc.abstractmethod
    def losses(self) -> list[tuple[AnyWorker, Fault]]:
        """Workers that died, hang or are out of reach, with the fault to record."""

    @abc.abstractmethod
    def dismiss(self, worker: AnyWorker) -> float:
        """Let one worker go; how far its episode had come, in seconds of the episode."""

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(self, *exception: object) -> None: ...

    def idle(self) -> list[AnyWorker]:
        return [w for w in self.workers if w.is_ready and w.task is None and not w.is_gone]

    def replace(self, worker: AnyWorker) -> float:
        """Another worker in place of this one; how far its episode had come."""
        episode_s = self.dismiss(worker)
        self.hire()
        return episode_s

    def _is_ready(self, worker: AnyWorker) -> None:
        """A worker has opened everything: whoever comes after it is a replacement."""
        worker.is_ready = True
        self._failed_starts = 0
        self._errand = dataclasses.replace(self._errand, is_replacement=True)

    def _has_ended(self, worker: AnyWorker) -> None:
        """Count a worker that ended before it was ready; some in a row end the run."""
        if worker.is_ready:
            return
        self._failed_starts += 1
        if self._failed_starts >= START_TRIES:
            raise SetupError(
                f'workers ended {START_TRIES} times in a row before host and policies were open; {self.start_hint}'
            )


class ProcessWorker(Worker):
    """One worker process."""

    def __init__(self, errand: Errand, *, log: Path | None) -> None:
        super().__init__()
        self.board = PhaseBoard.create()
        self.board.enter(WorkerPhase.START)
        ours, theirs = Pipe()
        self.connection: Connection = ours
        self._trace = tempfile.TemporaryFile()  # noqa: SIM115 - where the worker writes what it is at, when asked
        inherited = (theirs.fileno(), self.board.file.fileno(), self._trace.fileno())
        output: BinaryIO | int = subprocess.DEVNULL if log is None else log.open('ab')
        try:
            self.process = subprocess.Popen(
                [sys.executable, '-c', _script(errand.import_path), *map(str, inherited)],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        finally:
            theirs.close()
            if not isinstance(output, int):
                output.close()
        self._unmark = mark_worker(errand.store, self.process.pid)
        with contextlib.suppress(OSError):  # it ended at once: that shows when it is listened to
            self.connection.send(errand)

    def give(self, task: SlotAttempt) -> None:
        self.task = task
        with contextlib.suppress(OSError):
            self.connection.send((task.slot.number, task.attempt))

    def overdue(self, limits: WatchdogOptions) -> Fault | None:
        """The fault to record if the worker has been in one call for too long."""
        phase, seconds, _ = self.board.read()
        if phase is WorkerPhase.HOST and seconds > limits.host_s:
            return Fault(FaultKind.HOST_HANG, f'no return within {limits.host_s:g} s')
        if phase is WorkerPhase.POLICY and seconds > limits.policy_s:
            return Fault(FaultKind.POLICY_HANG, f'no answer within {limits.policy_s:g} s')
        if phase is WorkerPhase.START and seconds > limits.start_s:
            return Fault(FaultKind.WORKER_DEATH, f'host and policies did not open within {limits.start_s:g} s')
        if phase is WorkerPhase.STORE and seconds > STORE_LIMIT_S:
            return Fault(FaultKind.WORKER_DEATH, f'the store did not take the episode within {STORE_LIMIT_S:g} s')
        return None

    def stack(self) -> str:
        """Where the worker's threads are now, as far as it can still say."""
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + TRACE_S
        while time.monotonic() < deadline and not os.fstat(self._trace.fileno()).st_size:
            time.sleep(0.01)
        self._trace.seek(0)
        return self._trace.read().decode(errors='replace')

    def end(self) -> str:
        """How the process ended; one that only hung up is ended now."""
        try:
            code = self.process.wait(timeout=HANG_UP_S)
            return f'ended with signal {-code}' if code < 0 else f'ended with exit code {code}'
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return 'closed its connection and went on'

    def kill(self) -> float:
        """End the process now; how far its episode had come, in seconds of the episode."""
        self.process.kill()
        self.process.wait()
        self._unmark()
        episode_s = self.board.read()[2]
        self.connection.close()
        self.board.close()
        self._trace.close()
        return episode_s

    def stop(self) -> None:
        """Ask the process to end, and see to it that it does."""
        try:
            self.connection.send(None)
            self.process.wait(timeout=STOP_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()


class ProcessCrew(Crew[ProcessWorker]):
    """Worker processes on this machine."""

    start_hint = 'run `robotrials plan TRIAL.toml --check`, or give run a --worker-log to see what they printed'

    def __init__(self, errand: Errand, *, size: int, limits: WatchdogOptions, log: Path | None) -> None:
        self._limits, self._log = limits, log
        super().__init__(errand, size=size)

    def hire(self) -> None:
        self.workers.append(ProcessWorker(self._errand, log=self._log))

    def reassign(self, errand: Errand) -> None:
        """Start all workers anew, none of which is at work, on another errand."""
        self._errand = errand
        for worker in list(self.workers):
            self.workers.remove(worker)
            worker.stop()
            self.hire()

    def listen(self) -> list[tuple[ProcessWorker, Finished]]:
        by_connection = {w.connection: w for w in self.workers if not w.is_gone}
        said: list[tuple[ProcessWorker, Finished]] = []
        for connection in wait(list(by_connection), timeout=POLL_S):
            worker = by_connection[connection]  # type: ignore[index]  # wait gives back what it was given
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                worker.is_gone = True
                continue
            if isinstance(message, RobotrialsError):  # it cannot start, or cannot go on
                raise message
            if isinstance(message, Finished):
                said.append((worker, message))
            else:
                self._is_ready(worker)
        return said

    def losses(self) -> list[tuple[ProcessWorker, Fault]]:
        lost: list[tuple[ProcessWorker, Fault]] = []
        for worker in self.workers:
            if not worker.is_gone and worker.connection.poll():
                continue  # what it still said comes first
            # A process may end while a child of its own keeps the connection open.
            worker.is_gone = worker.is_gone or worker.process.poll() is not None
            fault = worker.overdue(self._limits)
            if fault is not None and not worker.is_gone:
                fault = dataclasses.replace(fault, text=f'{fault.reason}\n{worker.stack()}')
            if worker.is_gone:
                # Whoever could undo an episode by ending the process would do so before every failure. A process that
                # ends in the host's turn, or while it loads or stores, is a broken rig.
                is_policys = worker.task is not None and worker.board.read()[0] is WorkerPhase.POLICY
                kind = FaultKind.POLICY_EXIT if is_policys else FaultKind.WORKER_DEATH
                fault = Fault(kind, f'the process {worker.end()}')
            if fault is not None:
                lost.append((worker, fault))
        return lost

    def dismiss(self, worker: ProcessWorker) -> float:
        self.workers.remove(worker)
        episode_s = worker.kill()
        self._has_ended(worker)
        return episode_s

    def close(self) -> None:
        workers, self.workers = self.workers, []
        for worker in workers:
            worker.stop()

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()
        for worker in self.workers:
            worker.kill()
        self.workers = []


def _script(import_path: tuple[str, ...]) -> str:
    return f'import sys; sys.path[:] = {list(import_path)!r}; from robotrials.run.crew import main; main()'
