"""vla-eval's results: JSON of its three generations, SQLite recordings of its three, and folders of both.

A   to March 2026   success at the top of an episode, episode_id '<task>_ep<n>'
B   0.1 and 0.2     metrics, integer episode_id, shard files
C   0.3 on          as B with eval_id, sid, eid and the task's context beside; recordings in SQLite

Recordings are read in order and one episode at a time; their generation is told by their tables.

0.3 to 0.6   eval_metadata, episode_results, step_rows; write-ahead log, no task_idx
0.7          also run_metadata, eval_shards; task_idx in the context
0.8          also work_queue
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from robotrials.errors import InputError, RecordError
from robotrials.formats import kernel
from robotrials.formats.imported import (
    CERTAIN,
    FAULTS,
    LIBERO_STEP_CAPS,
    LIKELY,
    FieldGuess,
    ImportAccount,
    Imported,
    ImportOptions,
    Question,
    Recording,
    check_settable,
    given_up,
    head_of,
    known_rate_hz,
    libero_suite,
    listed,
    mapping_of,
    placed,
    refuse_unused,
    whole_option,
)
from robotrials.formats.rows import load_json
from robotrials.record.episode import Episode, Outcome
from robotrials.record.trajectory import Trajectory

TABLES = ('eval_metadata', 'episode_results', 'step_rows')
COLUMNS = ('sid', 'eid', 'eval_id', 'task_name', 'episode_id', 'status', 'metrics', 'steps', 'context',
           'failure_reason', 'failure_detail')  # fmt: skip
MOST_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class VlaEvalEpisode:
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
    """The recording, opened without writing beside it, as SQLite would where the harness keeps a log ahead (WAL)."""
    ahead = path.with_name(f'{path.name}-wal')
    if not ahead.exists() or not ahead.stat().st_size:
        database = sqlite3.connect(f'{path.resolve().as_uri()}?mode=ro&immutable=1', uri=True)
    else:
        database = sqlite3.connect(':memory:')
        with tempfile.TemporaryDirectory() as folder:
            for file in (path, ahead):
                shutil.copyfile(file, Path(folder) / file.name)
            with closing(sqlite3.connect(Path(folder) / path.name)) as source:
                source.backup(database)
    database.execute('PRAGMA trusted_schema = OFF')
    return database


def _tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@dataclass(frozen=True, slots=True)
class VlaRecording:
    """One recording file; connections are opened for each reading."""

    path: Path
    tables: frozenset[str]
    evaluations: tuple[tuple[str, Mapping[str, Any]], ...]  # their ids, and what is said of each

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

    def rows(self, eval_id: str) -> Iterator[VlaEvalEpisode]:
        """The episode rows of one evaluation, repeated ones too, in the order of writing."""
        query = f'SELECT rowid, {", ".join(COLUMNS)} FROM episode_results WHERE eval_id = ? ORDER BY rowid'
        try:
            with closing(_connect(self.path)) as database:
                for number, *values in database.execute(query, (eval_id,)):
                    yield self._row(number, dict(zip(COLUMNS, values, strict=True)))
        except sqlite3.Error as error:
            raise InputError(f'{self.path}: damaged ({error}); nothing was imported') from error

    def has_faults(self, eval_id: str) -> bool:
        """Whether an episode was given up for what is not the policy's; no row is decoded for that."""
        fine = ('', *POLICY_FAULTS)
        query = (
            f'SELECT 1 FROM episode_results WHERE eval_id = ? AND failure_reason NOT IN ({",".join("?" * len(fine))})'
        )
        try:
            with closing(_connect(self.path)) as database:
                return database.execute(f'{query} LIMIT 1', (eval_id, *fine)).fetchone() is not None
        except sqlite3.Error as error:
            raise InputError(f'{self.path}: damaged ({error}); nothing was imported') from error

    def _row(self, number: int, row: Mapping[str, Any]) -> VlaEvalEpisode:
        where = f'episode_results row {number}'
        metrics = _object(row['metrics'], f'{self.path} {where}: metrics')
        context = _object(row['context'], f'{self.path} {where}: context')
        start, task_index = context.get('episode_idx'), context.get('task_idx')
        success = metrics.get('success', {'success': True, 'fail': False}.get(str(row['status'])))
        return VlaEvalEpisode(
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
        if self._database is not None:
            self._database.text_factory = bytes  # most steps are read as they are stored

    def __enter__(self) -> StepReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def trajectory(self, row: VlaEvalEpisode, *, rate_hz: float | None, ledger: ImportAccount) -> Trajectory | None:
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

    def _texts(self, row: VlaEvalEpisode) -> list[Any]:
        """What the cells of the steps hold, texts as UTF-8."""
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

    def _columns(self, cells: list[Any], row: VlaEvalEpisode) -> tuple[dict[str, Any], list[str]]:
        """Fields that every step has as arrays (T,) or (T, K), and the names of the others."""
        plain = _plain_columns(cells)
        if plain is not None:
            return plain, []
        try:
            texts = [cell.decode() if isinstance(cell, bytes) else cell for cell in cells]
        except UnicodeDecodeError as error:
            raise InputError(f'{self._path}: damaged ({error}); nothing was imported') from error
        fast = _arrow_columns(texts)
        if fast is not None:
            return fast
        steps = [_object(text, f'{self._path} {row.where}: step_rows') for text in texts]
        columns = _columns(steps)
        return columns, sorted({name for step in steps for name in step} - columns.keys())


def _plain_columns(texts: list[Any]) -> dict[str, Any] | None:
    """The same where all steps have the fields of the first, all of them numbers, flat lists of them, true or false."""
    try:
        first = json.loads(texts[0])
        text = b'\n'.join([*texts, b''])
        keys = [f'"{name}"'.encode() for name in first]
    except (ValueError, TypeError, RecursionError):  # not JSON, or a cell that is no text
        return None
    kinds = [(type(value), value) for value in first.values()] if isinstance(first, dict) else []
    if not kinds or not all(kind in (bool, int, float) or (kind is list and value) for kind, value in kinds):
        return None
    widths = [-1 if kind is bool else len(value) if kind is list else 0 for kind, value in kinds]
    sizes = [len(texts) * max(width, 1) for width in widths]
    if 2 * sum(sizes) > len(text):  # a number has a digit, and something behind it
        return None
    values = np.empty(sum(sizes))
    letters, names = np.frombuffer(text, np.uint8), np.frombuffer(b''.join(keys), np.uint8)
    ends = np.cumsum([len(key) for key in keys])
    if not kernel.step_numbers(letters, names, ends, np.array(widths), values):
        return None
    columns = {}
    for name, width, size, end in zip(first, widths, sizes, itertools.accumulate(sizes), strict=True):
        column = values[end - size : end]  # component by component, as it will be stored
        columns[name] = column.astype(bool) if width < 0 else column.reshape(width, -1).T if width else column
    return columns


def _arrow_columns(texts: list[str]) -> tuple[dict[str, Any], list[str]] | None:
    """The same by Arrow's JSON reader, several times faster; None where the steps are too odd for it."""
    try:
        joined = '\n'.join(texts)
        table = pj.read_json(pa.BufferReader(joined.encode()), read_options=pj.ReadOptions(use_threads=False))
    except (pa.ArrowException, UnicodeError, TypeError):  # of a cell that is no text
        return None
    if table.num_rows != len(texts) or joined.count('\n') != len(texts) - 1:
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


# The harness writes success false for every one of them; only the last says anything of the policy.
RIG_FAULTS = ('server_unreachable', 'connection_closed', 'timeout', 'exception', 'env_start', 'env_step')
POLICY_FAULTS = ('model_act',)
SHARD = re.compile(r'^(?P<name>.+)_shard(?P<id>\d+)of(?P<total>\d+)\.json$')
INDEXED = re.compile(r'^(?P<task>.*)_ep(?P<index>\d+)$', re.DOTALL)
RUNS = ('policies', 'repeats')
FEWEST_ACTIONS = 5  # fewer may well be equal by chance


class VlaEvalFormat:
    """Result files and recordings of the vla-eval harness."""

    name = 'vla-eval'
    summary = 'vla-eval results: JSON (three generations), recording-*.sqlite (three generations), or a folder of them'

    def recognise(self, path: Path) -> float | None:
        if path.is_dir():
            return CERTAIN if any(self.recognise(file) for file in listed(path) if file.is_file()) else None
        if is_recording(path):
            return CERTAIN
        if path.suffix != '.json':
            return None
        head = head_of(path)
        if b'"tasks"' not in head or b'"episodes"' not in head or b'"benchmark"' not in head:
            return None
        return CERTAIN if b'"harness_version"' in head else LIKELY

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='vla-eval results', takes=('rate_hz', 'answers'))
        check_settable(options, 'vla-eval results', ('policy', 'benchmark', 'step_cap'))
        ledger = ImportAccount()
        files = _files(path, ledger)
        opened = _without_repeated([_open(file, options) for file in _without_copies(files, ledger)], ledger)
        runs = _named_runs(opened, ledger, options)
        question = Question(
            'runs', 'Two files hold the same policy and benchmark. Two policies, or repeats of one?', RUNS, RUNS[0]
        )
        doubled = any(run.suffix for run in runs) or any(run.repeat for run in runs)

        def recordings() -> Iterator[Recording]:
            for run in runs:
                yield from run.recordings(options, ledger, options.source_name(path))
            why = 'wall clock of the harness, shared by its shards, and not time of the robot'
            ledger.drop('elapsed_sec', None, why=why)

        return Imported(
            format=self.name,
            sources=tuple(files),
            recordings=recordings,
            ledger=ledger,
            guesses=tuple(_guesses(runs, options)),
            faults=FAULTS.answer(options),
            questions=(
                *((question,) if doubled and 'runs' not in options.answers else ()),
                *((FAULTS,) if 'faults' not in options.answers and any(map(_has_faults, runs)) else ()),
            ),
        )


VLA_EVAL = VlaEvalFormat()


def _has_faults(run: _RunFile) -> bool:
    if run.recording is not None:
        return run.recording.has_faults(run.eval_id)
    return any(row.failure_reason and row.failure_reason not in POLICY_FAULTS for row in run.rows())


def _guesses(runs: Sequence[_RunFile], options: ImportOptions) -> Iterator[FieldGuess]:
    for run in runs:
        rate, cap = _rate(run, options), _step_cap(run, options)
        times = f'{rate:g} steps per second' if rate else 'steps, no seconds'
        yield FieldGuess(
            'policy', run.path.name, f'{run.name}{run.suffix} on {run.benchmark}; {times}, cap {cap} steps'
        )


def _files(path: Path, ledger: ImportAccount) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = []
    for file in listed(path):
        if file.is_dir():
            ledger.drop(
                f'folder {file.name}', None, why='step files and videos are not read; the recording has the steps'
            )
        elif VLA_EVAL.recognise(file):
            files.append(file)
        elif not file.name.endswith(('-wal', '-shm')):
            ledger.drop(f'file {file.name}', None, why='neither a result file nor a recording of vla-eval')
    return files


@dataclass(frozen=True, slots=True, eq=False)
class _RunFile:
    """One file: what it says of the whole run, and how to get at its episodes."""

    path: Path
    name: str  # of the policy
    named_by: str
    benchmark: str
    meta: Mapping[str, Any]
    eval_id: str = ''
    recording: VlaRecording | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    suffix: str = ''  # keeps a second run of the same policy and benchmark apart
    repeat: int = 0
    repeated: frozenset[object] = frozenset()  # rows that another file holds too

    def rows(self) -> Iterator[VlaEvalEpisode]:
        return self.recording.rows(self.eval_id) if self.recording is not None else _json_rows(self.path, self.document)

    def recordings(self, options: ImportOptions, ledger: ImportAccount, source: str) -> Iterator[Recording]:
        _note_run(self, ledger)
        attempts: Counter[str] = Counter()
        played: dict[bytes, str] = {}
        n_rows = n_same = 0
        rate, cap = _rate(self, options), _step_cap(self, options)
        with StepReader(self.path if self.recording is not None else None) as reader:
            for row in self.rows():
                if self.repeated and _identity(self, row) in self.repeated:
                    ledger.drop('repeated rows', 1, why='another file holds the same episodes')
                    continue
                n_rows += 1
                try:
                    episode = _episode(row, self, options, ledger, source, rate=rate, cap=cap)
                except RecordError as error:
                    raise RecordError(f'{self.path} {row.where}: {error}; nothing was imported') from error
                if attempts[episode.episode_id]:
                    episode = episode.replace(attempt=attempts[episode.episode_id])
                attempts[episode.episode_id] += 1
                steps = reader.trajectory(row, rate_hz=rate, ledger=ledger) if episode.is_valid else None
                n_same += _is_played_again(steps, episode.episode_id, played)
                yield Recording(episode, steps)
        if n_same:
            ledger.hint(
                f'{self.path.name}: episodes that repeat the actions of another one of the run to the last bit: '
                f'{n_same}; were they run, or copied?'
            )
        if n_rows > len(attempts):
            ledger.note(
                f'{self.path.name}: {n_rows} rows for {len(attempts)} episodes; a repeated episode is kept as a '
                'further attempt, and the first valid one counts (the harness itself takes the last, or before 0.7 all)'
            )


def _is_played_again(steps: Trajectory | None, episode_id: str, played: dict[bytes, str]) -> bool:
    """Whether another episode took the very same actions; an arm that was always told the same says nothing."""
    actions = None if steps is None else steps.action_processed
    if actions is None or len(actions) < FEWEST_ACTIONS or not (actions != actions[0]).any():
        return False
    digest = hashlib.sha256(np.asfortranarray(actions).T.data).digest()  # as they lie, component by component
    return played.setdefault(digest, episode_id) != episode_id


def _open(path: Path, options: ImportOptions) -> list[_RunFile]:
    if is_recording(path):
        recording = VlaRecording.open(path)
        runs = []
        for eval_id, meta in recording.evaluations:
            name, named_by = _policy(path, meta, options)
            runs.append(_RunFile(path, name, named_by, _benchmark(meta, options), meta, eval_id, recording))
        return runs
    document = load_json(path)
    if not isinstance(document, dict) or not isinstance(document.get('tasks'), list):
        raise InputError(f'{path}: not a vla-eval result, wanted an object with a list "tasks"')
    name, named_by = _policy(path, document, options)
    eval_id = str(document.get('eval_id', ''))
    return [_RunFile(path, name, named_by, _benchmark(document, options), document, eval_id, None, document)]


def _policy(path: Path, meta: Mapping[str, Any], options: ImportOptions) -> tuple[str, str]:
    """The policy's name and who gives it: the user, the file's name (`<policy>__<suite>`), the server, or the file."""
    if 'policy' in options.defaults:
        return options.defaults['policy'], '--set'
    if '__' in path.name:
        return path.name.partition('__')[0], 'the file name'
    info = meta.get('server_info')
    if isinstance(info, dict) and info.get('model_server'):
        return str(info['model_server']), 'the model server (server_info)'
    shard = SHARD.match(path.name)
    return (shard['name'] if shard else path.stem), 'the file name, since no policy is recorded'


def _benchmark(meta: Mapping[str, Any], options: ImportOptions) -> str:
    if 'benchmark' in options.defaults:
        return options.defaults['benchmark']
    named = str(meta.get('benchmark') or '')
    suite = _suite(meta)
    return suite.replace('_', '-') if suite else named.rpartition(':')[2] or named


def _suite(meta: Mapping[str, Any]) -> str | None:
    """The LIBERO suite of a run; LIBERO-Plus and LIBERO-PRO share its names, and are other benchmarks."""
    config = mapping_of(meta.get('config'))
    text = ' '.join(str(v) for v in (meta.get('benchmark'), config.get('benchmark'), config.get('subname')) if v)
    if re.search(r'libero_?-?(plus|pro|mem)', text, re.IGNORECASE):
        return None
    return libero_suite(f'{text} {mapping_of(config.get("params")).get("suite", "")}')


def _without_copies(files: Iterable[Path], ledger: ImportAccount) -> list[Path]:
    """Leave out an aggregate that repeats a recording beside it, and shards that were merged."""
    kept: list[Path] = []
    recorded: set[str] = set()
    ordered = sorted(files, key=lambda f: (not is_recording(f), f.name))
    for file in ordered:
        if is_recording(file):
            recorded.update(eval_id for eval_id, _ in VlaRecording.open(file).evaluations)
        elif recorded and str(mapping_of(load_json(file)).get('eval_id', '')) in recorded:
            ledger.drop(f'file {file.name}', None, why='the recording beside it holds the same episodes')
            continue
        kept.append(file)
    return kept


def _without_repeated(opened: Sequence[Sequence[_RunFile]], ledger: ImportAccount) -> list[list[_RunFile]]:
    """Leave out runs that hold nothing but episodes of another file, such as a copy under another name.

    The harness gives every attempt an id of its own (sid and eid); results from before it did are compared as a whole.
    Of a run that repeats some of another's, the repeated rows are left out when it is read.
    """
    if sum(map(len, opened)) == 1:  # reading every row would find nothing
        return [list(runs) for runs in opened]
    seen: dict[object, str] = {}
    kept = []
    for runs in opened:
        fresh = []
        for run in runs:
            identities = [_identity(run, row) for row in run.rows()]
            known = {identity: seen[identity] for identity in identities if identity in seen}
            if identities and len(known) == len(set(identities)):
                twins = ', '.join(sorted(set(known.values())))
                ledger.drop(f'file {run.path.name}', len(identities), why=f'the same episodes are in {twins}')
                continue
            if known:
                run = replace(run, repeated=frozenset(known))
            seen.update((identity, run.path.name) for identity in identities if identity not in known)
            fresh.append(run)
        kept.append(fresh)
    return kept


def _identity(run: _RunFile, row: VlaEvalEpisode) -> object:
    """What a row is told from all others by; without an id of its own, everything that is said of it."""
    if all(row.key):
        return run.eval_id, *row.key
    return repr((run.benchmark, row.where, row.task, row.index, row.steps, row.wall, row.failure_reason, row.success))


def _named_runs(opened: Sequence[Sequence[_RunFile]], ledger: ImportAccount, options: ImportOptions) -> list[_RunFile]:
    """The runs; shards of one evaluation are one run, any other second run of a policy on a benchmark is kept apart."""
    seen: dict[tuple[str, str], list[str]] = {}
    named = []
    for run in (run for runs in opened for run in runs):
        shard = SHARD.match(run.path.name)
        identity = f'{shard["name"]}' if shard else f'{run.path.name}:{run.eval_id}'
        runs = seen.setdefault((run.name, run.benchmark), [])
        if identity not in runs:
            runs.append(identity)
        place = runs.index(identity)
        if place and options.answers.get('runs') == 'repeats':
            run = replace(run, repeat=place)
        elif place:
            run = replace(run, suffix=f'@{_mark(run)}')
            ledger.note(
                f'{run.path.name}: a second run of {run.name} on {run.benchmark}; it is kept apart as the policy '
                f'{run.name}{run.suffix} (--answer runs=repeats makes it repeats of one policy)'
            )
        named.append(run)
    _check_shards(named, ledger)
    return named


def _mark(run: _RunFile) -> str:
    """What tells a file from its twin: `b342038` of `oft__spatial.b342038.json`, else the evaluation's id."""
    parts = run.path.name.split('.')
    return parts[-2] if len(parts) > 2 else run.eval_id or run.path.stem


def _check_shards(runs: Sequence[_RunFile], ledger: ImportAccount) -> None:
    shards: dict[tuple[str, int], set[int]] = {}
    for run in runs:
        matched = SHARD.match(run.path.name)
        if matched:
            shards.setdefault((matched['name'], int(matched['total'])), set()).add(int(matched['id']))
    for (name, total), present in shards.items():
        missing = sorted(set(range(total)) - present)
        if missing:
            ledger.note(f'{name}: shards {", ".join(map(str, missing))} of {total} are missing; the run is partial')


def _note_run(run: _RunFile, ledger: ImportAccount) -> None:
    meta, config = run.meta, mapping_of(run.meta.get('config'))
    if run.named_by != '--set':
        ledger.note(f'policies are named after {run.named_by}; --set policy=NAME says otherwise')
    missing = mapping_of(meta.get('merge_info')).get('shards_missing')
    if missing:
        ledger.note(f'{run.path.name}: shards {", ".join(map(str, missing))} are missing; the run is partial')
    if meta.get('partial') or meta.get('queue_unfinished'):
        unfinished = meta.get('queue_unfinished')
        count = f', {len(unfinished)} work items unfinished' if isinstance(unfinished, list) else ''
        ledger.note(f'{run.path.name}: partial{count}')
    if mapping_of(meta.get('render')).get('divergent'):
        ledger.note(f'{run.path.name}: its shards rendered differently (render.divergent)')
    seed = mapping_of(config.get('params')).get('seed', meta.get('seed'))
    if seed is not None:
        ledger.note(f'seed {seed} is the seed of the whole run and not of an episode, so no episode has it')
    for text in run.recording.remarks(run.eval_id) if run.recording is not None else ():
        ledger.note(f'{run.path.name}: {text}')


def _json_rows(path: Path, document: Mapping[str, Any]) -> Iterator[VlaEvalEpisode]:
    for place, task in enumerate(document['tasks']):
        if not isinstance(task, dict) or not isinstance(task.get('episodes'), list):
            raise InputError(f'{path} tasks[{place}]: wanted an object with a list "episodes"; nothing was imported')
        for number, values in enumerate(task['episodes']):
            where = f'tasks[{place}].episodes[{number}]'
            if not isinstance(values, dict):
                raise InputError(f'{path} {where}: wanted an object; nothing was imported')
            name = str(values.get('task') or task.get('task') or '')
            yield _json_row(values, name, where)


def _json_row(values: Mapping[str, Any], task: str, where: str) -> VlaEvalEpisode:
    metrics = mapping_of(values.get('metrics'))
    success = metrics['success'] if 'success' in metrics else values.get('success')
    identity, start = values.get('episode_id'), values.get('episode_idx')
    matched = INDEXED.match(identity) if isinstance(identity, str) else None
    return VlaEvalEpisode(
        where=where,
        task=task,
        index=int(matched['index']) if matched else identity if isinstance(identity, int) else None,
        start=start if isinstance(start, int) else None,
        task_index=values['task_idx'] if isinstance(values.get('task_idx'), int) else None,
        success=success,
        metrics=metrics,
        steps=values.get('steps'),
        failure_reason=str(values.get('failure_reason') or ''),
        failure_detail=str(values.get('failure_detail') or ''),
        key=(str(values.get('sid') or ''), str(values.get('eid') or '')),
        wall=values.get('elapsed_sec'),
    )


def _rate(run: _RunFile, options: ImportOptions) -> float | None:
    return options.rate_hz or known_rate_hz(str(run.meta.get('benchmark') or '') or run.benchmark)


def _step_cap(run: _RunFile, options: ImportOptions) -> int | None:
    cap = whole_option(options, 'step_cap')
    if cap is not None:
        return cap
    declared = mapping_of(run.meta.get('config')).get('max_steps')
    suite = _suite(run.meta)
    return int(declared) if declared else LIBERO_STEP_CAPS.get(suite) if suite else None


def _episode(
    row: VlaEvalEpisode, run: _RunFile, options: ImportOptions, ledger: ImportAccount, source: str, *,
    rate: float | None, cap: int | None,
) -> Episode:  # fmt: skip
    outcome, success, reason = _verdict(row, cap, options)
    start = _start(row, run, ledger)
    is_valid = outcome is not Outcome.INVALID
    steps = _whole(row.steps, 'steps') if row.steps is not None and is_valid else None
    _count(row, outcome, ledger, steps=steps, rate=rate)
    labels = {'run': _mark(run)} | ({} if row.task_index is None else {'task_idx': str(row.task_index)})
    if start is None and row.index is not None:
        labels['episode_id'] = str(row.index)
    plain = Episode(
        policy=run.name + run.suffix, task=row.task, outcome=outcome, trial_id=f'import:{source}',
        benchmark=run.benchmark, instance=start, repeat=run.repeat, steps=steps, success=success, reason=reason,
        duration_s=steps / rate if steps is not None and rate else None,
        time_cap_s=cap / rate if cap and rate else None, labels=labels, instruction=row.task, **_score(row),
    )  # fmt: skip
    return plain if start is not None else placed(plain, row.task_index, row.index)


def _start(row: VlaEvalEpisode, run: _RunFile, ledger: ImportAccount) -> int | None:
    """The initial state: as recorded, or for LIBERO the index, since its runs walk a fixed list of them."""
    if row.start is not None:
        return row.start
    if _suite(run.meta) is None or row.index is None:
        if row.index is not None:
            ledger.hint('no initial state is recorded, so nothing can be paired; the index is kept as a label')
        return None
    if mapping_of(run.meta.get('config')).get('throughput_mode'):
        ledger.note('throughput mode: the index of an episode is not its initial state, so no initial state is taken')
        return None
    ledger.note("the initial state is the episode's index, since LIBERO runs walk a fixed list of initial states")
    return row.index


def _verdict(row: VlaEvalEpisode, cap: int | None, options: ImportOptions) -> tuple[Outcome, bool | None, str]:
    """What became of an episode. A time-out with its steps at the cap is the policy's; one without is not known."""
    lines = row.failure_detail.strip().splitlines()  # a traceback says it in its last line
    reason = ': '.join(filter(None, [row.failure_reason, lines[-1][:300] if lines else '']))
    if row.failure_reason in POLICY_FAULTS:
        return Outcome.FAILURE, False, reason
    at_cap = cap is not None and row.steps is not None and row.steps >= cap
    if row.failure_reason == 'timeout' and at_cap:
        return Outcome.TIMEOUT, False, 'step cap'
    if row.failure_reason or row.status == 'error':
        outcome, why = given_up(options, reason or 'error')
        return outcome, None if outcome is Outcome.INVALID else False, why
    if row.success is None:
        raise RecordError('no success, neither in the episode nor in its metrics')
    if isinstance(row.success, bool) or row.success in (0, 1):
        success = bool(row.success)
    else:
        raise RecordError(f'success is {row.success!r}, wanted true or false')
    if success:
        return Outcome.SUCCESS, True, ''
    return (Outcome.TIMEOUT if at_cap else Outcome.FAILURE), False, 'step cap' if at_cap else ''


def _score(row: VlaEvalEpisode) -> dict[str, Any]:
    if 'completed_subtasks' in row.metrics:
        return {'score': float(row.metrics['completed_subtasks']), 'max_score': 5.0}
    return {'score': float(row.metrics['score'])} if 'score' in row.metrics else {}


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value != int(value):
        raise RecordError(f'{name} is {value!r}, wanted a whole number')
    return int(value)


def _count(
    row: VlaEvalEpisode, outcome: Outcome, ledger: ImportAccount, *, steps: int | None, rate: float | None
) -> None:
    if outcome is Outcome.INVALID:
        reason = row.failure_reason or 'error'
        known = '' if reason in RIG_FAULTS or reason == 'error' else ', a reason that is not known'
        ledger.keep(f'episodes: invalid ({reason})', why=f'the rig broke{known}; the harness counts them as failures')
    else:
        ledger.keep(f'episodes: {outcome.value}')
    if outcome is Outcome.SUCCESS and steps == 0:
        ledger.hint('some successes take no step: true at the reset already, so they say nothing of the policy')
    if steps is not None and rate is None:
        ledger.hint('steps are kept as steps, so there is no time analysis; --rate-hz N turns them into seconds')
    elif steps is not None:
        ledger.note(f'steps are converted to seconds at {rate:g} steps per second')
