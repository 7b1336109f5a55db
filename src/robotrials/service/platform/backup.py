"""Backup and restore: the rows of one moment, then the stores, in one tar file.

The database is read first and the stores after it, so that the stores in a backup have at least every episode that its
rows speak of. What they have beyond that was run meanwhile: restoring settles the jobs that it belongs to, so that
nothing is run under an attempt that is on record. Rows are JSON, whatever the database: a backup of
SQLite can be restored into PostgreSQL, and the other way round.
"""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select, text
from sqlalchemy.orm import Session

from robotrials.errors import InputError, StoreError, UnknownName
from robotrials.old_name import BACKUP_FORMAT
from robotrials.record import Episode, Store
from robotrials.record.folder import put_durably
from robotrials.service.platform.access import Scope, add_user, issue_token
from robotrials.service.platform.benchmark import ATTEMPTS, store_path
from robotrials.service.platform.config import FILE, PlatformConfig, make_private_folder, read_config
from robotrials.service.platform.database import Database, ServerClock
from robotrials.service.platform.lease import ENDING
from robotrials.service.platform.migration import current_revision, known_revisions, migrate
from robotrials.service.platform.submission import finish_if_done
from robotrials.service.platform.table import Base, BenchmarkRow, JobRow, Lease, Submission, User, check_trail, note

FORMAT = BACKUP_FORMAT
HEAD = 'backup.json'
FOLDERS = ('spool', 'late', 'stores')
PAGE = 1000


def write_backup(config: PlatformConfig, archive: Path) -> tuple[int, int]:
    """Write everything of a server into a new tar file; how many rows and files."""
    if not config.folder.is_dir():
        raise InputError(f"{config.folder}: no such folder; wanted a server's")
    if archive.exists():
        raise InputError(f'{archive}: is there already; a backup overwrites nothing')
    database = Database(config.url, clock=ServerClock())
    try:
        with put_durably(archive) as draft, tarfile.open(draft, mode='w') as tar:
            n_rows = _add_rows(tar, database)
            n_files = sum(1 for _ in _add_files(tar, config.folder))
            tar.close()
    finally:
        database.close()
    return n_rows, n_files


def _add_rows(tar: tarfile.TarFile, database: Database) -> int:
    n_rows = 0
    with database.read() as session:
        head = {'format': FORMAT, 'revision': current_revision(database.engine), 'trail': check_trail(session).head}
        _add(tar, HEAD, json.dumps(head).encode())
        for table in Base.metadata.sorted_tables:
            lines = [json.dumps(dict(row._mapping), ensure_ascii=True) for row in session.execute(select(table))]
            n_rows += len(lines)
            _add(tar, f'tables/{table.name}.jsonl', '\n'.join(lines).encode())
    return n_rows


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _add_files(tar: tarfile.TarFile, folder: Path) -> Iterator[str]:
    """The files of a folder; those that go while we look (drafts, results that were just settled) are not missed."""
    files = [folder / FILE] if (folder / FILE).is_file() else []
    for name in FOLDERS:
        files += sorted(p for p in (folder / name).rglob('*') if p.is_file())
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False)
            yield path.name


def read_backup(folder: Path, archive: Path, *, database: str | None) -> tuple[int, int]:
    """Make a server's folder, and fill an empty database, from a backup; how many rows and files."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f'{folder}: not empty; a backup is restored into a new folder')
    try:
        tar = tarfile.open(archive)  # noqa: SIM115 - closed below
    except (OSError, tarfile.TarError) as error:
        why = 'not a tar file' if isinstance(error, tarfile.TarError) else error.strerror
        raise InputError(
            f'{archive}: cannot be read as a backup ({why}); wanted what `robotrials serve backup` wrote'
        ) from error
    with tar:
        head = _head(tar, archive)
        make_private_folder(folder)
        members = [m for m in tar.getmembers() if m.name == FILE or m.name.split('/')[0] in FOLDERS]
        tar.extractall(folder, members=members, filter='data')
        config = read_config(folder, database=database)
        opened = Database(config.url, clock=ServerClock())
        try:
            migrate(opened.engine)
            return _fill(opened, tar, head, archive, config), len(members)
        finally:
            opened.close()


def _head(tar: tarfile.TarFile, archive: Path) -> dict[str, Any]:
    try:
        head = json.loads(_read(tar, HEAD))
        if head['format'] != FORMAT:
            raise KeyError(head['format'])
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{archive}: not a backup of a platform's server ({error})") from error
    if head['revision'] not in known_revisions():
        raise StoreError(
            f'{archive}: a backup at revision {head["revision"]}, which this robotrials does not know: upgrade it'
        )
    return dict(head)


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    stream = tar.extractfile(name)
    if stream is None:
        raise KeyError(name)
    return stream.read()


def _rows(tar: tarfile.TarFile, name: str) -> list[dict[str, Any]]:
    """The rows of a table; none of one that an older server did not have.

    Revisions so far add tables, and columns with a default, so older rows fit the newest tables as they are. One that
    changes rows has to change those of older backups here, too.
    """
    if name not in tar.getnames():
        return []
    return [json.loads(line) for line in _read(tar, name).decode().splitlines()]


def _fill(database: Database, tar: tarfile.TarFile, head: dict[str, Any], archive: Path, config: PlatformConfig) -> int:
    """Put the rows in, in one transaction, and see that the audit trail ends where it did."""
    n_rows = 0
    with database.write() as session:
        for table in Base.metadata.sorted_tables:
            if session.scalar(select(func.count()).select_from(table)):
                raise InputError(f'the database is not empty: it has rows in {table.name}; give an empty one')
        for table in Base.metadata.sorted_tables:
            rows = _rows(tar, f'tables/{table.name}.jsonl')
            for start in range(0, len(rows), PAGE):
                session.execute(insert(table), rows[start : start + PAGE])
            n_rows += len(rows)
        _set_counters(session, database)
        trail = check_trail(session)
        if not trail.is_whole or trail.head != head['trail']:
            raise StoreError(f'{archive}: its audit trail is not whole (entry {trail.broken_at}: {trail.why})')
        for benchmark in session.scalars(select(BenchmarkRow)):
            _settle_run_meanwhile(session, config, benchmark, now=database.clock())
    return n_rows


def _settle_run_meanwhile(session: Session, config: PlatformConfig, benchmark: BenchmarkRow, *, now: float) -> None:
    """Settle waiting jobs by what the store has of them beyond the rows."""
    stored = {e.key: e for e in _recorded(config, benchmark)}
    if not stored:
        return
    for job in session.scalars(
        select(JobRow).where(JobRow.benchmark_id == benchmark.id, JobRow.state == 'queued')
    ).all():
        while job.state == 'queued' and (episode := stored.get((job.episode_id, job.attempt))) is not None:
            job.outcome, job.reason, job.updated_at = episode.outcome.value, episode.reason, now
            if episode.is_valid:
                job.state = 'done'
            elif job.attempt + 1 < ATTEMPTS:
                job.attempt += 1
            else:
                job.state = 'invalid'
            note(session, 'job.restore', job.id, episode=episode.episode_id, state=job.state, attempt=job.attempt)
    session.flush()
    for submission_id in session.scalars(select(Submission.id).where(Submission.benchmark_id == benchmark.id)).all():
        finish_if_done(session, submission_id, now=now)


def _set_counters(session: Session, database: Database) -> None:
    """PostgreSQL counts ids apart from the rows that have them."""
    if not database.is_sqlite:
        session.execute(
            text(
                "SELECT setval(pg_get_serial_sequence('late_results', 'id'), "
                '(SELECT COALESCE(MAX(id), 0) + 1 FROM late_results), false)'
            )
        )


# What whoever has a server's folder can do without the server: tokens, and a check of everything.

DAY_S = 86_400.0


def issue_offline(config: PlatformConfig, *, user: str, scopes: Iterable[str], days: float | None) -> str:
    """A token's text; the user is added if new."""
    if days is not None and not days > 0:
        raise InputError(f'days is {days}, wanted > 0')
    known = [s.value for s in Scope]
    for scope in scopes:
        if scope not in known:
            raise UnknownName('scope', scope, known)
    make_private_folder(config.folder)
    database = Database(config.url, clock=ServerClock())
    try:
        migrate(database.engine)
        with database.write('command line') as session:
            now = database.clock()
            owner = session.scalar(select(User).where(User.name == user))
            if owner is None:
                owner = add_user(session, user, quota=config.quota, now=now)
            lives_s = None if days is None else days * DAY_S
            wanted = [Scope(s) for s in scopes]
            return issue_token(session, owner, wanted, label='command line', now=now, lives_s=lives_s)[1]
    finally:
        database.close()


def check_offline(config: PlatformConfig, *, tell: Callable[[str], None]) -> list[str]:
    """What does not fit together: in the audit trail, or between queue and stores. Best asked while no server runs."""
    database = Database(config.url, clock=ServerClock())
    try:
        with database.read() as session:
            trail = check_trail(session)
            problems = [] if trail.is_whole else [f'audit: entry {trail.broken_at}: {trail.why}']
            tell(f'audit: {trail.n_entries} entries, head {trail.head}')
            for benchmark in session.scalars(select(BenchmarkRow).order_by(BenchmarkRow.name)):
                rows = session.execute(
                    select(JobRow.episode_id, Lease.attempt, Lease.state)
                    .join(Lease, Lease.job_id == JobRow.id)
                    .where(JobRow.benchmark_id == benchmark.id, Lease.state.in_(('done', 'failed', *ENDING)))
                )
                settled = [(row[0], row[1], row[2]) for row in rows]
                recorded = Counter(e.key for e in _recorded(config, benchmark))
                tell(f'{benchmark.name}: {len(settled)} attempts, {sum(recorded.values())} on record')
                problems += _compared(benchmark.name, settled, recorded)
            return problems
    finally:
        database.close()


def _recorded(config: PlatformConfig, benchmark: BenchmarkRow) -> Iterator[Episode]:
    """Every attempt in the store, as often as it lies there."""
    path = store_path(config.folder, benchmark)
    if (path / 'trial.json').exists():
        store = Store.open(path)
        yield from (episode for part in store.parts() for episode in store.recorded(part))


def _compared(name: str, settled: Iterable[tuple[str, int, str]], recorded: Counter[tuple[str, int]]) -> list[str]:
    rows = [((episode_id, attempt), state) for episode_id, attempt, state in settled]
    ended = {key for key, state in rows if state not in ENDING}
    known = {key for key, _ in rows}
    problems = [f'{name}: {key[0]} attempt {key[1]} was settled and is not on record' for key in ended - set(recorded)]
    problems += [
        f'{name}: {key[0]} attempt {key[1]} is on record, and no lease led to it' for key in set(recorded) - known
    ]
    return problems + [
        f'{name}: {key[0]} attempt {key[1]} is {n} times on record' for key, n in recorded.items() if n > 1
    ]
