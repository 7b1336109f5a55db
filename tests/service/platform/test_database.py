"""A write is durable when it returns, and those that wait at the same time share one sync."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from robotrials.service.platform.access import add_user
from robotrials.service.platform.config import Quota
from robotrials.service.platform.database import Database, ServerClock, SharedSync
from robotrials.service.platform.migration import migrate


@pytest.fixture
def database(tmp_path: Path):
    opened = Database(f'sqlite:///{tmp_path / "p.db"}', clock=ServerClock())
    migrate(opened.engine)
    yield opened
    opened.close()


def users_in(path: Path) -> list[str]:
    with sqlite3.connect(path) as opened:
        names = [row[0] for row in opened.execute('SELECT name FROM users ORDER BY name')]
    opened.close()
    return names


def add(database: Database, name: str, *, is_lazy: bool = False) -> None:
    with database.write(is_lazy=is_lazy) as session:
        add_user(session, name, quota=Quota(), now=1.0)


def test_what_the_disk_has_when_a_write_returns_holds_that_write(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of a machine that loses its power is the database and its log as they were at the last sync."""
    n_synced = 0

    def synced(self: SharedSync) -> None:
        nonlocal n_synced
        n_synced += 1
        for suffix in ('', '-wal'):
            shutil.copyfile(tmp_path / f'p.db{suffix}', tmp_path / f'disk.db{suffix}')

    monkeypatch.setattr(SharedSync, '_sync', synced)
    for n in range(3):
        add(database, f'user-{n}')
        (tmp_path / 'disk.db-shm').unlink(missing_ok=True)
        assert users_in(tmp_path / 'disk.db') == [f'user-{k}' for k in range(n + 1)]
    add(database, 'heard-of', is_lazy=True)
    assert n_synced == 3
    assert 'heard-of' in users_in(tmp_path / 'p.db')  # an end of the process loses nothing


def test_a_transaction_that_fails_is_neither_kept_nor_synced(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedSync, '_sync', lambda self: pytest.fail('synced'))
    with pytest.raises(ZeroDivisionError), database.write() as session:
        add_user(session, 'nobody', quota=Quota(), now=1.0)
        raise ZeroDivisionError
    assert users_in(tmp_path / 'p.db') == []


def test_all_who_come_while_a_sync_runs_are_served_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, begun, may_end, n_syncs = SharedSync('nowhere'), threading.Event(), threading.Event(), 0

    def slow(self: SharedSync) -> None:
        nonlocal n_syncs
        n_syncs += 1
        begun.set()
        assert may_end.wait(PATIENCE_S)

    class Turn:
        """A lock that says who has come to it."""

        def __init__(self) -> None:
            self.lock, self.came = threading.Lock(), threading.Semaphore(0)

        def __enter__(self) -> None:
            self.came.release()
            self.lock.acquire()

        def __exit__(self, *_raised: object) -> None:
            self.lock.release()

    turn = Turn()
    shared._turn = turn  # type: ignore[assignment]
    monkeypatch.setattr(SharedSync, '_sync', slow)
    first = threading.Thread(target=shared.wait)
    first.start()
    assert begun.wait(PATIENCE_S)
    others = [threading.Thread(target=shared.wait) for _ in range(20)]
    for thread in others:
        thread.start()
    assert all(turn.came.acquire(timeout=PATIENCE_S) for _ in range(21))
    may_end.set()
    for thread in [first, *others]:
        thread.join(PATIENCE_S)
    assert n_syncs == 2


def test_a_sync_that_failed_serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, calls = SharedSync('nowhere'), []

    def broken(self: SharedSync) -> None:
        calls.append(1)
        raise OSError(5, 'broken disk')

    monkeypatch.setattr(SharedSync, '_sync', broken)
    for n in (1, 2):
        with pytest.raises(OSError, match='broken disk'):
            shared.wait()
        assert len(calls) == n
