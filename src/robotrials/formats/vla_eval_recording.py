"""vla-eval's SQLite recordings, read in order and one episode at a time; the generation is told by the tables.

0.3 to 0.6   eval_metadata, episode_results, step_rows; write-ahead log, no task_idx
0.7          also run_metadata, eval_shards; task_idx in the context
0.8          also work_queue
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from robotrials.errors import InputError, RecordError
from robotrials.formats.imported import Ledger, head_of
from robotrials.record.trajectory import Trajectory

TABLES = ('eval_metadata', 'episode_results', 'step_rows')
COLUMNS = ('sid', 'eid', 'eval_id', 'task_name', 'episode_id', 'status', 'metrics', 'steps', 'context',
           'failure_reason', 'failure_detail')  # fmt: skip
MOST_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeRow:
    """One episode as the harness recorded it, whatever the generation."""

    where: str
    task: str
    index: int | None  # the run's number of the episode
    start: int | None  # the initial state, where recorded
    task_index: int | None
    success: Any
    metrics: Mapping[str, Any]
    steps: Any
    failure_reason: str = ''
    failure_detail: str = ''
    status: str = ''
    key: tuple[str, str] = ('', '')  # sid, eid
    wall: Any = None  # elapsed_sec, which tells runs apart that have no ids


def is_recording(path: Path) -> bool:
    """Whether a file is an SQLite database with the harness's tables."""
    if not head_of(path).startswith(b'SQLite format 3\x00'):
        return False
    try:
        with closing(_connect(path)) as database:
            return set(TABLES) <= _tables(database)
    except (sqlite3.Error, InputError):
        return False


def _connect(path: Path) -> sqlite3.Connection:
    database = _database(path)
    database.execute('PRAGMA trusted_schema = OFF')
    return database


def _database(path: Path) -> sqlite3.Connection:
    """The recording, opened without writing beside it, as SQLite would where the harness keeps a log ahead (WAL)."""
    ahead = path.with_name(f'{path.name}-wal')
    if not ahead.exists() or not ahead.stat().st_size:
        return sqlite3.connect(f'{path.resolve().as_uri()}?mode=ro&immutable=1', uri=True)
    copy = sqlite3.connect(':memory:')
    with tempfile.TemporaryDirectory() as folder:
        for file in (path, ahead):
            shutil.copyfile(file, Path(folder) / file.name)
        source = sqlite3.connect(Path(folder) / path.name)
        source.backup(copy)
        source.close()
    return copy


def _tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@dataclass(frozen=True, slots=True)
class VlaRecording:
    """One recording file; connections are opened for each reading."""

    path: Path
    tables: frozenset[str]
    _evaluations: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())

    @classmethod
    def open(cls, path: Path) -> VlaRecording:
        """Check that the file has the harness's tables and columns."""
        try:
            with closing(_connect(path)) as database:
                tables = _tables(database)
                if not set(TABLES) <= tables:
                    missing = ', '.join(sorted(set(TABLES) - tables))
                    raise InputError(f'{path}: no table {missing}, so not a recording of vla-eval')
                there = {row[1] for row in database.execute('PRAGMA table_info(episode_results)')}
                if not set(COLUMNS) <= there:
                    missing = ', '.join(sorted(set(COLUMNS) - there))
                    raise InputError(f'{path}: episode_results has no column {missing}; a version that is not known')
                rows = database.execute('SELECT eval_id, metadata FROM eval_metadata ORDER BY rowid').fetchall()
        except sqlite3.Error as error:
            raise InputError(f'{path}: not a readable recording ({error}); is its -wal file missing?') from error
        return cls(path, frozenset(tables), tuple((str(i), _object(m, f'{path} eval_metadata {i}')) for i, m in rows))

    def evaluations(self) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The evaluations in the file: their ids and what is said of each."""
        return self._evaluations

    def rows(self, eval_id: str) -> Iterator[EpisodeRow]:
        """The episode rows of one evaluation, repeated ones too, in the order of writing."""
        query = f'SELECT rowid, {", ".join(COLUMNS)} FROM episode_results WHERE eval_id = ? ORDER BY rowid'
        try:
            with closing(_connect(self.path)) as database:
                for number, *values in database.execute(query, (eval_id,)):
                    yield self._row(number, dict(zip(COLUMNS, values, strict=True)))
        except sqlite3.Error as error:
            raise InputError(f'{self.path}: damaged ({error}); nothing was imported') from error

    def _row(self, number: int, row: Mapping[str, Any]) -> EpisodeRow:
        where = f'episode_results row {number}'
        metrics = _object(row['metrics'], f'{self.path} {where}: metrics')
        context = _object(row['context'], f'{self.path} {where}: context')
        start, task_index = context.get('episode_idx'), context.get('task_idx')
        success = metrics.get('success', {'success': True, 'fail': False}.get(str(row['status'])))
        return EpisodeRow(
            where=where,
            task=str(row['task_name'] or ''),
            index=row['episode_id'] if isinstance(row['episode_id'], int) else None,
            start=start if isinstance(start, int) else None,
            task_index=task_index if isinstance(task_index, int) else None,
            success=success,
            metrics=metrics,
            steps=row['steps'],
            failure_reason=str(row['failure_reason'] or ''),
            failure_detail=str(row['failure_detail'] or ''),
            status=str(row['status'] or ''),
            key=(str(row['sid']), str(row['eid'])),
        )

    def remarks(self, eval_id: str) -> Iterator[str]:
        """What is unfinished."""
        try:
            with closing(_connect(self.path)) as database:
                if 'work_queue' in self.tables:
                    query = 'SELECT COUNT(*), SUM(done = 0) FROM work_queue WHERE eval_id = ?'
                    total, left = database.execute(query, (eval_id,)).fetchone()
                    if left:
                        yield f'partial: {left} of {total} work items were not done'
                if 'eval_shards' in self.tables:
                    query = 'SELECT COUNT(*), MAX(num_shards), SUM(complete = 0) FROM eval_shards WHERE eval_id = ?'
                    there, total, open_ = database.execute(query, (eval_id,)).fetchone()
                    if there and (there < total or open_):
                        yield f'partial: {there} of {total} shards, {open_ or 0} of them not complete'
        except sqlite3.Error as error:
            raise InputError(f'{self.path}: damaged ({error}); nothing was imported') from error


class StepReader:
    """The recorded steps of episodes, through one connection; a reader of no file gives none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._database = None if path is None else _connect(path)

    def __enter__(self) -> StepReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def trajectory(self, row: EpisodeRow, *, rate_hz: float | None, ledger: Ledger) -> Trajectory | None:
        """The recorded steps of one episode, or None where there are none or no rate tells their time."""
        texts = self._texts(row)
        if not texts:
            return None
        if rate_hz is None:
            ledger.drop('episodes without their steps', why='no control rate tells the time of a step (--rate-hz N)')
            return None
        columns, other = self._columns(texts, row)
        ledger.keep('episodes with recorded steps')
        for name in other:
            ledger.drop(f'steps: {name}', why='not a number, or not in every step')
        known = {name: columns.pop(theirs) for name, theirs in _ours(columns).items()}
        try:
            return Trajectory(time_s=np.arange(1, len(texts) + 1) / rate_hz, **known, extra=columns)
        except RecordError as error:
            raise RecordError(f'{self._path} {row.where}: step_rows: {error}') from error

    def _texts(self, row: EpisodeRow) -> list[str]:
        if self._database is None:
            return []
        query = 'SELECT fields FROM step_rows WHERE sid = ? AND eid = ? ORDER BY step_id LIMIT ?'
        try:
            texts = [text for (text,) in self._database.execute(query, (*row.key, MOST_STEPS + 1))]
        except sqlite3.Error as error:
            raise InputError(f'{self._path}: damaged ({error}); nothing was imported') from error
        if len(texts) > MOST_STEPS:
            raise InputError(f'{self._path} {row.where}: more than {MOST_STEPS:,} steps in one episode')
        return texts

    def _columns(self, texts: list[str], row: EpisodeRow) -> tuple[dict[str, Any], list[str]]:
        """Fields that every step has as arrays (T,) or (T, K), and the names of the others."""
        fast = _arrow_columns(texts)
        if fast is not None:
            return fast
        steps = [_object(text, f'{self._path} {row.where}: step_rows') for text in texts]
        columns = _columns(steps)
        return columns, sorted({name for step in steps for name in step} - columns.keys())


def _arrow_columns(texts: list[str]) -> tuple[dict[str, Any], list[str]] | None:
    """The same by Arrow's JSON reader, several times faster; None where the steps are too odd for it."""
    if not all(isinstance(text, str) for text in texts) or any('\n' in text for text in texts):
        return None
    joined = '\n'.join(texts).encode()
    try:
        table = pj.read_json(pa.BufferReader(joined), read_options=pj.ReadOptions(use_threads=False))
    except (pa.ArrowException, UnicodeError):
        return None
    if table.num_rows != len(texts):
        return None
    columns = {name: _array(table.column(name)) for name in table.column_names}
    other = sorted(name for name, array in columns.items() if array is None)
    return {name: array for name, array in columns.items() if array is not None}, other


def _array(column: pa.ChunkedArray) -> Any:
    """A column as (T,) or (T, K), or None where it is no matrix of finite numbers."""
    if column.null_count:
        return None
    width = None
    if pa.types.is_list(column.type):
        flat = pa.concat_arrays([chunk.flatten() for chunk in column.chunks])
        widths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(widths) != 1 or flat.null_count:
            return None
        width = widths[0]
    else:
        flat = column.combine_chunks()
    if pa.types.is_boolean(flat.type):
        return flat.to_numpy(zero_copy_only=False) if width is None else None
    if not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)):
        return None
    values = flat.to_numpy().astype(float)
    if not np.isfinite(values).all():
        return None
    return values if width is None else values.reshape(-1, width)


def _ours(columns: Mapping[str, Any]) -> dict[str, str]:
    """Which of the record's columns the harness's fields are, where their shapes fit."""
    wanted = (('action_processed', 'action', 2), ('reward', 'reward', 1), ('done', 'done', 1))
    return {ours: theirs for ours, theirs, width in wanted if theirs in columns and columns[theirs].ndim == width}


def _columns(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Fields that every step has, as arrays (T,) or (T, K); others have no place in a trajectory."""
    columns = {}
    for name in steps[0]:
        values = [step.get(name) for step in steps]
        try:
            array = np.asarray(values, dtype=float)
        except (TypeError, ValueError):
            continue
        if array.ndim in (1, 2) and np.isfinite(array).all():
            columns[name] = array.astype(bool) if all(isinstance(v, bool) for v in values) else array
    return columns


def _object(text: Any, where: str) -> dict[str, Any]:
    if text is None or text == '':
        return {}
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f'{where}: not JSON ({error}); nothing was imported') from error
    if not isinstance(value, dict):
        raise InputError(f'{where}: wanted a JSON object, found {type(value).__name__}; nothing was imported')
    return value
