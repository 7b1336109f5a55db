"""What is under way, where others can see it: phases of a worker, living workers, started episodes, an alarm clock."""

from __future__ import annotations

import enum
import hashlib
import mmap
import os
import re
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import BinaryIO, Self

from robotrials.errors import NoAnswer, StoreError
from robotrials.record import Store
from robotrials.record.folder import Folder
from robotrials.record.part import EntryKind
from robotrials.run.plan import WatchdogOptions

# What a worker is doing and since when, where its parent can see it even if the worker no longer answers.

_NUMBERS = 3
_SIZE = 8 * _NUMBERS


class WorkerPhase(enum.IntEnum):
    IDLE = 0
    START = 1  # loading hosts and policies
    HOST = 2
    POLICY = 3
    STORE = 4


class PhaseBoard:
    """Three numbers in a mapped file: the phase, the monotonic time at which it began, and the episode's own time.

    Each is written in one piece, the time before the phase: whoever reads in between sees the old phase begin anew,
    never a new one that began long ago. (`struct.pack_into` would not do: it clears the whole buffer first.)
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._memory = mmap.mmap(file.fileno(), _SIZE)
        self._numbers = memoryview(self._memory).cast('d')

    @classmethod
    def create(cls) -> PhaseBoard:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the board
        file.truncate(_SIZE)
        return cls(file)

    def enter(self, phase: WorkerPhase, episode_s: float = 0.0) -> None:
        numbers = self._numbers
        numbers[1] = time.monotonic()
        numbers[2] = episode_s
        numbers[0] = phase

    def read(self) -> tuple[WorkerPhase, float, float]:
        """The phase, for how many seconds it has lasted, and how far the episode has come, in its own seconds."""
        phase, since, episode_s = self._numbers
        return WorkerPhase(int(phase)), time.monotonic() - since, episode_s

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()
        self.file.close()


class NoBoard(PhaseBoard):
    """For a run inside the caller's own process, which nobody watches."""

    def __init__(self) -> None:
        pass

    def enter(self, phase: WorkerPhase, episode_s: float = 0.0) -> None:
        pass

    def close(self) -> None:
        pass


# The watchdog of a run inside the caller's own process: the system's alarm clock interrupts a call that hangs.


class AlarmBoard(NoBoard):
    """Sets the alarm whenever the loop turns to a host or a policy; a context that leaves the signal as it was.

    A call that Python can interrupt ends as a fault of whoever was called. What never returns to Python (a loop in
    compiled code) can only be cut by ending a process: such runs want workers. Outside the main thread, and where
    somebody else uses the alarm, nobody watches.
    """

    def __init__(self, limits: WatchdogOptions) -> None:
        self._limits_s = {
            WorkerPhase.START: limits.start_s,
            WorkerPhase.HOST: limits.host_s,
            WorkerPhase.POLICY: limits.policy_s,
        }
        self._phase = WorkerPhase.IDLE
        self._is_set = False

    def __enter__(self) -> Self:
        is_free = threading.current_thread() is threading.main_thread()
        if is_free and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
            signal.signal(signal.SIGALRM, self._ring)
            self._is_set = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_set:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            self._is_set = False

    def enter(self, phase: WorkerPhase, episode_s: float = 0.0) -> None:
        self._phase = phase
        if self._is_set:
            signal.setitimer(signal.ITIMER_REAL, self._limits_s.get(phase, 0.0))

    def _ring(self, number: int, frame: FrameType | None) -> None:
        limit_s = self._limits_s.get(self._phase)
        if limit_s is None:
            return  # the call came back just now
        if self._phase is WorkerPhase.POLICY:
            raise NoAnswer(f'no answer within {limit_s:g} s')
        if self._phase is WorkerPhase.HOST:
            raise NoAnswer(f'the host did not come back within {limit_s:g} s')  # by which a hang is known
        raise TimeoutError(f'the host did not come back within {limit_s:g} s')


# Marks of living workers: empty files in the store that name a process, so that a new run can wait for old workers.
# A lock that workers inherit would do the same, but whatever a policy starts would inherit it too, and keep it.

MARK_NAME = re.compile(r'^\.run\.worker-(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)\.lock$')
WAIT_S = 5.0


def mark_worker(root: Path, pid: int) -> Callable[[], None]:
    """Say which machine a worker is on, its process and when that began; gives what takes the mark away again."""
    name = f'.run.worker-{_machine()}-{pid}-{_started(pid) or 0}.lock'
    (root / name).touch()
    return lambda: Folder(root).remove(name)


def await_old_workers(root: Path) -> None:
    """Wait until the workers of a run that was killed are gone, and end those that are not; they are ours."""
    for name in Folder(root).names(''):
        match = MARK_NAME.match(name)
        if match is None or match['machine'] != _machine():
            continue
        pid, start = int(match['pid']), int(match['start'])
        deadline = time.monotonic() + WAIT_S
        while start and _started(pid) == start:
            if time.monotonic() > deadline:
                raise StoreError(f'{root}: worker {pid} of an earlier run does not end; end it and run again')
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        Folder(root).remove(name)


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _started(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; None if there is no such process, or it is only a name still."""
    try:
        fields = Path(f'/proc/{pid}/stat').read_text(encoding='utf-8', errors='replace').rpartition(')')[2].split()
    except OSError:
        return None
    return None if fields[0] in 'ZX' else int(fields[19])


# Marks of episodes under way: an attempt that was begun and never finished leaves a trace, however it was stopped.

FOLDER = 'begun'
Key = tuple[str, int]


def mark_begun(root: Path, key: Key) -> None:
    """Say that an attempt is under way. Not synced: it has to outlive a killed process, not a power cut."""
    folder = Folder(root)
    folder.make(FOLDER)
    folder.mark(f'{FOLDER}/{_name(key)}')


def mark_ended(root: Path, key: Key) -> None:
    """Say that an attempt is on record."""
    Folder(root).remove(f'{FOLDER}/{_name(key)}')


def log_interrupted(
    store: Store, arms: Mapping[str, str], *, by: str = '', marks: Path | None = None, spooled: Collection[Key] = ()
) -> int:  # fmt: skip
    """Log the attempts of earlier runs that were begun and never stored, by arm, and take their marks away.

    arms: for every episode id that this run is about, what stands for its arm. marks: where marks are, if not in the
    store. spooled: what is kept and not yet in the store.
    """
    root = marks or store.path
    marked = [key for name in Folder(root).names(FOLDER) if (key := _key(name)) is not None and key[0] in arms]
    if not marked:
        return 0
    lost = set(marked) - set(spooled) - _stored(store, {episode_id for episode_id, _ in marked})
    if lost:
        count = Counter(arms[episode_id] for episode_id, _ in lost)
        body = {'event': 'interrupted', 'arms': dict(count), 'keys': [f'{i}-{a}' for i, a in sorted(lost)]}
        store.log(EntryKind.INTERRUPTED, by=by, body=body)
    for key in marked:
        mark_ended(root, key)
    return len(lost)


def interrupted_counts(store: Store) -> Counter[str]:
    """How many attempts of each arm were begun and never finished, over all runs; by what stood for the arm."""
    counts: Counter[str] = Counter()
    for _, entry in store.ledger().entries:
        if entry.kind is EntryKind.INTERRUPTED:
            counts.update({str(arm): int(n) for arm, n in entry.body.get('arms', {}).items()})
    return counts


def _stored(store: Store, ids: Collection[str]) -> set[Key]:
    where = {'episode_id': sorted(ids)}
    return {e.key for e in store.episodes(attempts='all', dropped=True, events=False, where=where)}


def _name(key: Key) -> str:
    return f'{key[0]}-{key[1]}'


def _key(name: str) -> Key | None:
    episode_id, _, attempt = name.rpartition('-')
    return (episode_id, int(attempt)) if episode_id and attempt.isdigit() else None
