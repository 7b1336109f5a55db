"""The database: SQLite in WAL mode or PostgreSQL behind one door, with one kind of write transaction.

On SQLite a write begins with BEGIN IMMEDIATE, so that it is alone from its first read on; on PostgreSQL writers lock
the rows they grant, and pass over those that others hold (SKIP LOCKED).

A write is durable when it returns. SQLite would sync its log inside every commit, where nobody else can write: here it
is synced after the commit, once for all who wait. Writes reach the log in their order, so what is synced has everything
before it, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from robotrials.errors import SetupError, install_hint
from robotrials.service.platform.access import Refusal
from robotrials.service.platform.config import close_to_others
from robotrials.service.platform.table import write_notes

BUSY_MS = 20_000
CONNECT_S = 10  # for each address of a PostgreSQL server
WRITERS = 4  # at a time, on PostgreSQL
FULL_CODES = ('53100', '53200')  # PostgreSQL: disk full, out of memory
log = logging.getLogger('robotrials.service.platform')


class ServerClock:
    """The server's time in Unix seconds; it never jumps while the server runs, whatever is done to the system's."""

    def __init__(self) -> None:
        self._start_s, self._monotonic_s = time.time(), time.monotonic()

    def __call__(self) -> float:
        return self._start_s + time.monotonic() - self._monotonic_s


class Database:
    """An engine and its transactions."""

    def __init__(self, url: str, *, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.is_sqlite = url.startswith('sqlite')
        # SQLite has one writer, and lets others sleep and try again: threads that queue here waste no time on that. On
        # PostgreSQL the lock on the audit trail is passed from thread to thread, and who has it needs the interpreter
        # for each of its statements: with dozens of threads after the interpreter, all of them wait for that one.
        self._turn = threading.BoundedSemaphore(1 if self.is_sqlite else WRITERS)
        try:
            if self.is_sqlite:
                _make_private(url)
            self.engine = _sqlite_engine(url) if self.is_sqlite else _postgres_engine(url)
        except ModuleNotFoundError as error:
            raise SetupError(f'PostgreSQL needs {error.name}; {install_hint("platform")}') from error
        self._check_answers()
        self._sync = SharedSync(f'{self.engine.url.database}-wal') if self.is_sqlite else None

    @contextlib.contextmanager
    def write(self, actor: str = 'server', *, is_lazy: bool = False) -> Iterator[Session]:
        """A transaction that may write: all of it, with its notes in the audit trail, or nothing.

        A lazy one survives the end of the process, and may be lost with the power: for heartbeats, which come again.
        """
        with _told_if_full(), self._turn, Session(self.engine, expire_on_commit=False) as session:
            session.info['actor'] = actor
            if is_lazy and not self.is_sqlite:
                session.execute(text('SET LOCAL synchronous_commit = off'))
            if self.is_sqlite:
                session.connection(execution_options={'immediate': True})
            yield session
            session.flush()
            write_notes(session, now=self.clock())
            session.commit()
        if self._sync is not None and not is_lazy:
            self._sync.wait()

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads, and sees one state of everything."""
        with Session(self.engine, expire_on_commit=False) as session:
            if not self.is_sqlite:
                session.connection(execution_options={'isolation_level': 'REPEATABLE READ'})
            yield session

    def _check_answers(self) -> None:
        try:
            self.check()
        except DBAPIError as error:
            self.close()
            remedy = (
                'wanted a folder that can be written to, and in it the database of a server or none'
                if self.is_sqlite
                else 'is it running, and are its address, user, password and name right?'
            )
            why = ' '.join(str(error.orig).split())
            raise SetupError(
                f'{self.engine.url.render_as_string()}: the database does not open ({why}); {remedy}'
            ) from error

    def check(self) -> None:
        """Raise unless the database answers."""
        with self.engine.connect() as connection:
            connection.execute(text('SELECT 1'))

    def close(self) -> None:
        self.engine.dispose()


class Outage:
    """A database that does not answer, or a full disk: one line at its begin and one at its end, however many ask."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._guard = clock, threading.Lock()
        self._since: dict[str, float] = {}  # what began when

    def note(self, error: DBAPIError) -> None:
        self._begin('the database does not answer', ' '.join(str(error.orig).split()))

    def note_full(self, error: BaseException) -> None:
        self._begin('the disk is full', str(error))

    def _begin(self, what: str, why: str) -> None:
        with self._guard:
            is_new = what not in self._since
            self._since.setdefault(what, self._clock())
        if is_new:
            log.error(what, extra={'fields': {'why': why}})

    @property
    def begun(self) -> frozenset[str]:
        """What is out of order now."""
        with self._guard:
            return frozenset(self._since)

    def over(self, begun: frozenset[str]) -> None:
        """End what had begun before it was tried again; what began meanwhile has not been tried yet."""
        with self._guard:
            ended = {what: self._since.pop(what) for what in begun & self._since.keys()}
        words = {
            'the database does not answer': 'the database answers again',
            'the disk is full': 'the disk has room again',
        }
        for what, since in ended.items():
            log.warning(words[what], extra={'fields': {'after_s': round(self._clock() - since, 1)}})


class SharedSync:
    """Syncs a file for all who wait: whoever comes while one sync runs is served by the next, with everyone else."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._n_begun = self._n_done = 0

    def wait(self) -> None:
        """Return once a sync is done that began after this call."""
        wanted = self._n_begun + 1
        with self._turn:
            if self._n_done >= wanted:
                return
            self._n_begun = number = self._n_begun + 1
            self._sync()
            self._n_done = number

    def _sync(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY)  # SQLite keeps its locks on its other files
        except FileNotFoundError:
            return  # the last connection has closed, and has brought the log into the database
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_private(url: str) -> None:
    """The file of a SQLite database, readable by its own account alone; what cannot be made is told when it opens."""
    file = make_url(url).database
    if file and file != ':memory:':
        with contextlib.suppress(OSError):
            close_to_others(Path(file))


def _postgres_engine(url: str) -> Engine:
    return create_engine(
        url, pool_size=20, max_overflow=20, pool_pre_ping=True, pool_timeout=BUSY_MS / 1000,
        connect_args={'connect_timeout': CONNECT_S},
    )  # fmt: skip


def _sqlite_engine(url: str) -> Engine:
    engine = create_engine(
        url, pool_size=20, max_overflow=20, connect_args={'timeout': BUSY_MS / 1000, 'check_same_thread': False}
    )

    @event.listens_for(engine, 'connect')
    def _connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        cursor = connection.cursor()
        mode = cursor.execute('PRAGMA journal_mode=WAL').fetchone()[0]
        synchronous = 'NORMAL' if mode == 'wal' else 'FULL'  # without a log each commit has to sync by itself
        for pragma in (f'synchronous={synchronous}', 'foreign_keys=ON', f'busy_timeout={BUSY_MS}'):
            cursor.execute(f'PRAGMA {pragma}')
        cursor.close()

    @event.listens_for(engine, 'begin')
    def _begin(connection: Any) -> None:
        immediate = connection.get_execution_options().get('immediate', False)
        connection.exec_driver_sql('BEGIN IMMEDIATE' if immediate else 'BEGIN')

    return engine


@contextlib.contextmanager
def _told_if_full() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        full = getattr(error.orig, 'sqlstate', '') in FULL_CODES or 'disk is full' in str(error.orig)
        if full:
            raise disk_full() from error
        busy = isinstance(error, OperationalError) and 'database is locked' in str(error.orig)
        if busy:
            raise Refusal(
                503, 'busy', 'the database is busy; nothing was changed; ask again', retry_after_s=1.0
            ) from error
        raise


DISK_FULL = 'disk_full'


def disk_full() -> Refusal:
    return Refusal(
        507, DISK_FULL, 'the server has no room left; nothing was changed; send it again later', retry_after_s=10.0
    )


# Places where a test kills the server, to prove that what it had promised survives.
# `ROBOTRIALS_FAULT_POINT=result.accepted` makes a server kill itself (SIGKILL) when it comes by that place.

VARIABLE = 'ROBOTRIALS_FAULT_POINT'
POINTS = (
    'submission.commit',
    'result.spooled',
    'result.accepted',
    'result.stored',
    'result.settled',
    'expiry.accepted',
    'expiry.stored',
)

_hook: Callable[[str], None] | None = None


def set_hook(hook: Callable[[str], None] | None) -> None:
    """Call `hook` with the name of every place that is passed; None is the variable of the environment again."""
    global _hook
    _hook = hook


def fault_point(name: str) -> None:
    """Nothing, unless a test wants the server to end here."""
    if _hook is not None:
        _hook(name)
    elif os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
