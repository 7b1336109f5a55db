"""Recordings into a store: all of a source or nothing, in bounded memory, and again without adding anything twice."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robotrials.errors import InputError, StoreError, UnknownName
from robotrials.formats import kernel
from robotrials.formats.bulk import NotPlainError
from robotrials.formats.catalog import candidates, open_source
from robotrials.formats.imported import (
    FieldGuess,
    Imported,
    ImportOptions,
    Question,
    Recording,
    import_command,
    source_hash,
)
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.record.addition import Addition
from robotrials.record.blinding import column_table, part_keys
from robotrials.record.episode import ImportRecord, Provenance
from robotrials.record.folder import Disk, replaced_disk, write_durably
from robotrials.record.part import id_hashes, repeated_hashes
from robotrials.record.rows import EPISODE_SCHEMA, EVENT_SCHEMA, SCHEMA_VERSION, episodes_to_arrow, events_to_arrow
from robotrials.record.store import OpenedSource, is_store
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.record import Trajectory


EPISODES_PER_BATCH = 4096
TRAJECTORIES_PER_PART = 256
HELD_BYTES = 8 << 20  # of tables in memory until the commit; writing and reading back the others costs little
STEPS_PER_PART = 1 << 18  # long episodes fill a part before it has many
ROLLOUT = ('policy', 'task', 'condition', 'seed', 'instance', 'duration_s', 'steps')  # what copies of one share
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Intake:
    """What an import came to."""

    added: int
    already_there: int
    provenance_id: str = ''
    is_read_anew: bool = False  # the same bytes had been imported before, and were now read as other episodes
    n_alike: int = 0  # of the added, those that an episode of another source equals to the last digit of its time


def import_into(path: Path, imported: Imported, *, command: str = '') -> Intake:
    """Add a source to the store at `path`, which is made if it is not there, and left as it was when anything fails."""
    had_folder, had_store = path.exists(), (path / 'trial.json').exists()
    store = Store.open(path) if had_store else Store.create(path)
    try:
        return add_recordings(store, imported, command=command)
    except BaseException:
        if not had_store:
            shutil.rmtree(path)
        if had_folder:
            path.mkdir(exist_ok=True)
        raise


def add_recordings(store: Store, imported: Imported, *, command: str = '') -> Intake:
    """Append what the store lacks. The commit is one file that appears at the end; an error before it adds nothing."""
    parts = store.parts()
    checked = frozenset(part.path.name for part in parts)
    there = {key for part in parts for key in part_keys(part)}
    if imported.tables is not None and not there:
        try:
            return _take(store, imported, command, checked, lambda draft: _by_column(draft, imported))
        except NotPlainError:
            pass  # row by row says what is wrong, or how it is meant
    return _take(store, imported, command, checked, lambda draft: _by_row(draft, imported, there))


def _by_column(draft: _Draft, imported: Imported) -> int:
    assert imported.tables is not None
    for table in imported.tables():
        draft.add_table(table)
    if draft.count and draft.repeated():
        raise NotPlainError('starts are repeated')
    return 0


def _by_row(draft: _Draft, imported: Imported, there: set[Key]) -> int:
    same: dict[Key, int] = {}
    for recording in imported.recordings():
        key = recording.episode.key
        if key in there:
            _note_again(key, recording.episode, same)
        else:
            draft.add(recording)
            if there:
                draft.note_rollout(recording.episode)
    _check_same(draft.addition.store, same)
    if draft.count:
        draft.check_ids()
    return len(same)


def _take(
    store: Store, imported: Imported, command: str, checked: frozenset[str], fill: Callable[[_Draft], int]
) -> Intake:
    draft = _Draft(Addition(store, checked))
    try:
        same = fill(draft)
        if not draft.count:
            return Intake(0, same)
        provenance = describe(imported, command=command)
        is_read_anew = not same and _has_source(store, provenance)
        n_alike = 0 if same else draft.count_alike()
        identity = store.write_provenance(provenance)
        draft.commit(identity)
    except BaseException:
        draft.addition.discard()
        raise
    finally:
        draft.close()
    return Intake(draft.count, same, identity, is_read_anew, n_alike)


def _has_source(store: Store, provenance: Provenance) -> bool:
    """Whether a source with the same bytes was imported into the store before."""
    assert provenance.imported is not None
    for path in (store.path / 'provenance').glob('*.json'):
        with contextlib.suppress(StoreError):  # a warning is not worth an import: `store verify` names what is damaged
            record = store.provenance(path.stem).imported
            if record is not None and record.sha256 == provenance.imported.sha256:
                return True
    return False


def describe(imported: Imported, *, command: str = '') -> Provenance:
    """The provenance of imported episodes: the source's hash, and the account of what was kept and dropped."""
    names = [path.name for path in imported.sources]
    listed = ', '.join(names[:20]) + (f' and {len(names) - 20} more' if len(names) > 20 else '')
    record = ImportRecord(
        format=imported.format,
        source=listed,
        sha256=imported.sha256 or source_hash(imported.sources),
        kept=tuple(map(str, imported.ledger.kept)),
        dropped=tuple(map(str, imported.ledger.dropped)),
        notes=tuple(imported.ledger.notes),
    )
    return dataclasses.replace(imported.origin, command=command, imported=record)


def _content(episode: Episode) -> int:
    """A hash of all that an episode says but for where it came from: a source that grew has another provenance."""
    values = [getattr(episode, f.name) for f in dataclasses.fields(episode) if f.name != 'provenance_id']
    return hash(tuple(tuple(v.items()) if hasattr(v, 'items') else v for v in values))


def _note_again(key: Key, episode: Episode, same: dict[Key, int]) -> None:
    if key in same:
        raise StoreError(_twice(key, episode))
    same[key] = _content(episode)


def _twice(key: Key, episode: Episode) -> str:
    return (
        f'two episodes of the source share the id {key[0]} and attempt {key[1]} ({episode.policy}, {episode.task}, '
        f'seed {episode.seed}, instance {episode.instance}); nothing was added. Give rollouts of one cell different '
        'seeds, instances or repeats, and reruns different attempts'
    )


def _check_same(store: Store, same: dict[Key, int]) -> None:
    for part in store.parts() if same else ():
        for episode in store.recorded(part):
            if episode.key in same and same[episode.key] != _content(episode):
                raise StoreError(
                    f'episode {episode.episode_id} attempt {episode.attempt} ({episode.policy}, {episode.task}) is in '
                    f'{store.path} with other content; nothing was added. Import into a new store, or edit it there'
                )


@dataclass(slots=True)
class _Draft:
    """Episodes on their way: many are spilled to a file of their own, trajectories and media are handed on at once."""

    addition: Addition
    count: int = 0
    _batch: list[Episode] = field(default_factory=list)
    _steps: list[tuple[Key, Trajectory]] = field(default_factory=list)
    _n_steps: int = 0
    _events: list[pa.Table] = field(default_factory=list)
    _held: list[pa.Table] = field(default_factory=list)  # the first, up to HELD_BYTES; the others are in the file
    _n_bytes: int = 0
    _path: Path | None = None
    _sink: pa.NativeFile | None = None
    _hashes: list[NDArray[np.uint64]] = field(default_factory=list)  # of the ids of each batch
    _keys: list[NDArray[np.uint64]] = field(default_factory=list)  # of ids and attempts
    _rollouts: dict[tuple[Any, ...], int] = field(default_factory=dict)  # what was done -> how often

    def add(self, recording: Recording) -> None:
        episode = recording.episode
        self.count += 1
        self._batch.append(episode)
        if recording.trajectory is not None:
            self._steps.append((episode.key, recording.trajectory))
            self._n_steps += len(recording.trajectory.time_s)
        for name, source in recording.media.items():
            self.addition.add_media(
                name, partial(shutil.copyfile, source) if isinstance(source, Path) else source.write
            )
        if len(self._batch) >= EPISODES_PER_BATCH:
            self._spill()
        if len(self._steps) >= TRAJECTORIES_PER_PART or self._n_steps >= STEPS_PER_PART:
            self._write_steps()

    def _spill(self) -> None:
        if not self._batch:
            return
        events = events_to_arrow(self._batch)
        if events.num_rows:
            self._events.append(events)
        table = episodes_to_arrow(self._batch)
        self._batch.clear()
        self._write_spill(table)

    def add_table(self, table: pa.Table) -> None:
        self.count += table.num_rows
        self._write_spill(table)

    def _write_spill(self, table: pa.Table) -> None:
        self._n_bytes += table.nbytes
        if self._n_bytes <= HELD_BYTES:
            self._held.append(table)
        else:
            if self._sink is None:
                self._path = self.addition.spill_path()
                self._sink = pa.OSFile(str(self._path), 'wb')
            with pa.ipc.new_stream(self._sink, table.schema) as writer:  # one each: columns need not be the same
                writer.write_table(table)
        hashed = id_hashes(table['episode_id'], hash_rows=_hash_rows)
        self._hashes.append(hashed)
        if 'attempt' in table.column_names:
            hashed = hashed ^ (table['attempt'].to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        self._keys.append(hashed)

    def _write_steps(self) -> None:
        if self._steps:
            self.addition.add_trajectories(self._steps)
            self._steps.clear()
            self._n_steps = 0

    def repeated(self) -> set[Key]:
        """The keys that several episodes of the source have: 8 bytes per episode find suspects, then text decides."""
        self._spill()
        self._write_steps()
        suspects = repeated_hashes(self._keys)
        seen: set[Key] = set()
        twice: set[Key] = set()
        for table, hashed in zip(self._tables(), self._keys, strict=True) if len(suspects) else ():
            whole = _completed(table, _default_columns(table.num_rows))
            for row in np.flatnonzero(np.isin(hashed, suspects)).tolist():
                key = (whole['episode_id'][row].as_py(), whole['attempt'][row].as_py())
                (twice if key in seen else seen).add(key)
        return twice

    def check_ids(self) -> None:
        """Raise StoreError, naming them, where two episodes of the source share an id."""
        twice = self.repeated()
        if twice:
            raise StoreError(self._named_twice(min(twice)))

    def _named_twice(self, key: Key) -> str:
        places, number = [], 0
        for table in self._tables():
            for row, own in enumerate(zip(*(table[n].to_pylist() for n in ('episode_id', 'attempt')), strict=True)):
                if own == key:
                    places.append((number + row + 1, table['policy'][row], table['task'][row]))
            number += table.num_rows
        (first, policy, task), (second, *_) = places[:2]
        return (
            f'episodes {first} and {second} of the source share the id {key[0]} and attempt {key[1]} '
            f'({policy}, {task}); nothing was added. Give rollouts of one cell different seeds, instances or repeats, '
            'and reruns different attempts'
        )

    def note_rollout(self, episode: Episode) -> None:
        """Keep what a copy of the episode would share with it. A success alone: caps give failures one time."""
        rollout = tuple(getattr(episode, name) for name in ROLLOUT)
        if episode.outcome is Outcome.SUCCESS and (episode.duration_s, episode.steps) != (None, None):
            self._rollouts[rollout] = self._rollouts.get(rollout, 0) + 1

    def count_alike(self) -> int:
        """How many added episodes the store has from another source; 0 where less than half of them are alike.

        Measured times seldom agree to the last digit, and those of a whole table never do by chance.
        """
        recorded: set[tuple[Any, ...]] = set()
        for part in self.addition.store.parts() if self._rollouts else ():
            if part.schema_version == SCHEMA_VERSION:
                columns = column_table(part, list(ROLLOUT)).columns
                recorded.update(zip(*(column.to_pylist() for column in columns), strict=True))
        n_alike = sum(n for rollout, n in self._rollouts.items() if rollout in recorded)
        return n_alike if 2 * n_alike > sum(self._rollouts.values()) else 0

    def _tables(self) -> Iterator[pa.Table]:
        yield from self._held
        if self._sink is None:
            return
        self._sink.close()
        with pa.OSFile(str(self._path)) as source:
            while source.tell() < source.size():
                with pa.ipc.open_stream(source) as reader:
                    yield reader.read_all()

    def commit(self, provenance_id: str) -> None:
        events = pa.concat_tables(self._events).unify_dictionaries() if self._events else EVENT_SCHEMA.empty_table()
        defaults = _default_columns(max(map(len, self._hashes)), provenance_id=provenance_id)
        tables = (_completed(table, defaults) for table in self._tables())
        self.addition.finish(tables, events, hashes=self._hashes)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


# The mapping file: how one source was read, so that the next one of its kind is read alike.


def _hash_rows(letters: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """FNV-1a of each row of letters, as `record.part.fnv1a` gives it."""
    hashes = np.empty(len(letters), np.int64)
    kernel.fnv1a(letters, hashes)
    return hashes.view(np.uint64)


def _default_columns(n_rows: int, *, provenance_id: str = '') -> dict[str, pa.Array]:
    """What the columns of the record hold in rows that say nothing of them; every row has an id."""
    texts = {'condition': 'nominal', 'condition_parameters': '{}', 'labels': '{}', 'provenance_id': provenance_id}
    zeros = pa.repeat(pa.scalar(0, pa.int32()), n_rows)  # `pa.array` of numpy's would import `numpy.ma`
    nulls = {kind: pa.nulls(n_rows, kind) for kind in {c.type for c in EPISODE_SCHEMA if c.nullable}}
    columns = {}
    for column in EPISODE_SCHEMA:
        if pa.types.is_dictionary(column.type):
            text = pa.array([texts.get(column.name, '')])
            columns[column.name] = pa.DictionaryArray.from_arrays(zeros, text, safe=False)
        elif column.nullable:
            columns[column.name] = nulls[column.type]
        elif column.name != 'episode_id':
            columns[column.name] = pa.repeat(False, n_rows) if pa.types.is_boolean(column.type) else zeros
    return columns


def _completed(table: pa.Table, defaults: Mapping[str, pa.Array]) -> pa.Table:
    """The rows in the record's schema; `defaults`, of at least as many rows, are for columns that it does not have."""
    given = set(table.column_names) - {'provenance_id'}
    columns = [table[n] if n in given else defaults[n].slice(0, table.num_rows) for n in EPISODE_SCHEMA.names]
    return pa.table(columns, schema=EPISODE_SCHEMA)


KEYS = ('format', 'map', 'set', 'answers', 'group_by', 'rate_hz', 'values', 'blank')
TEXTS = {'map': 'columns', 'set': 'defaults', 'answers': 'answers', 'values': 'values'}  # key -> field of the options


def mapping_beside(path: Path) -> Path:
    """Where the mapping of a source lies that every verb takes: `results.csv.map.json` beside `results.csv`."""
    whole = path if path.name not in ('', '..') else path.resolve()
    return whole.with_name(f'{whole.name or "root"}.map.json')


def as_mapped(path: Path, options: ImportOptions, *, kind: str = '') -> tuple[str, ImportOptions]:
    """The format and the options of a source, with those of the mapping file beside it where there is one."""
    beside = mapping_beside(path)
    return read_mapping(beside, kind=kind, options=options) if beside.is_file() else (kind, options)


def write_mapping(path: Path, imported: Imported) -> None:
    """Write how `imported` was read: its guesses and what the user said."""
    options = imported.resolved
    if options is None:
        raise InputError(f'--save-map: a source of format {imported.format} has no mapping to save')
    known = dataclasses.asdict(options) | {'format': imported.format}
    values = {key: known[TEXTS.get(key, key)] for key in KEYS}
    write_durably(path, json.dumps(values, indent=1, ensure_ascii=False) + '\n')


def read_mapping(path: Path, *, kind: str, options: ImportOptions) -> tuple[str, ImportOptions]:
    """The format and options that a file holds; what the user says besides wins."""
    try:
        values = json.loads(path.read_text(encoding='utf-8'))
    except FileNotFoundError as error:
        raise InputError(f'{path}: no such file; --save-map writes one') from error
    except (ValueError, RecursionError) as error:
        raise InputError(f'{path}: not a mapping file ({error}); --save-map writes one') from error
    if not isinstance(values, dict):
        raise InputError(f'{path}: not a mapping file, wanted a JSON object; --save-map writes one')
    for key in values:
        if key not in KEYS:
            raise UnknownName(f'entry of the mapping file {path}', key, KEYS)
    rate = values.get('rate_hz')
    if rate is not None and not isinstance(rate, int | float):
        raise InputError(f'{path}: rate_hz is {rate!r}, wanted a number or null')
    texts: dict[str, Any] = {f: {**_texts(path, values, key), **getattr(options, f)} for key, f in TEXTS.items()}
    joined = ImportOptions(
        **texts,
        group_by=options.group_by or tuple(map(str, values.get('group_by') or ())),
        rate_hz=options.rate_hz if options.rate_hz is not None else rate,
        source=options.source,
        blank=options.blank or str(values.get('blank') or ''),
    )
    return kind or str(values.get('format', '')), joined


def _texts(path: Path, values: dict[str, Any], key: str) -> dict[str, str]:
    texts = values.get(key) or {}
    if not isinstance(texts, dict) or not all(isinstance(v, str) for v in texts.values()):
        raise InputError(f'{path}: {key} wants a JSON object of texts, found {texts!r}')
    return texts


# A file or folder of a known format, opened for asking: read as `robotrials import` would, and kept nowhere.
# It becomes a store in a folder of its own among the system's temporary files, which goes when the process ends. So
# every question has the same numbers on a file as on the store that it would be imported into, filters and
# trajectories included, and a dataset larger than memory can be asked.

MOST_FIELDS = 8  # in the line that tells the guess


def open_for_asking(
    path: Path | str, options: ImportOptions | None = None, *, command: str = '',
    ask: Callable[[Sequence[Question]], dict[str, str]] | None = None,
) -> OpenedSource:  # fmt: skip
    """A store as it is; a file or folder of a known format as a store that is gone when the process ends.

    A mapping file beside it (`formats.mapping`) is obeyed; `ask` answers what the source leaves open.
    """
    given = options or ImportOptions()
    source = Path(path)
    if is_store(path) or not source.exists() or (source.is_dir() and not candidates(source)):
        if given != ImportOptions() and is_store(path):
            raise InputError(f'{path}: a store, whose columns are named already; leave out what maps columns')
        return OpenedSource(read_store(path), str(path))  # which says what else a path may be
    kind, given = as_mapped(source, given)
    imported = open_source(source, given, name=kind)
    still_open = [q for q in imported.questions if q.key not in given.answers]
    if still_open and ask is not None:
        given = dataclasses.replace(given, answers={**given.answers, **ask(still_open)})
        imported = open_source(source, given, name=kind)
    imported.settle(source, given, is_asking=True)
    guess = [told_in_a_line(source, imported)] if imported.guesses else []
    mapped = [f'as {mapping_beside(source)} says'] if mapping_beside(source).is_file() else []
    store = _scratch(imported, command)  # which is what completes the ledger
    hints = _with_command(imported.ledger.hints, source, given, is_offered=bool(imported.doubts))
    return OpenedSource(store, str(path), told='\n'.join([*guess, *mapped, *hints]))


FIXABLE_HINT = re.compile(
    r'(?P<what>.*?)(?: (?P<cap>--set .+) makes them time-outs|; if (?P<so>.+): (?P<map>--map .+))'
)


def _with_command(hints: Sequence[str], source: Path, given: ImportOptions, *, is_offered: bool) -> Iterator[str]:
    """The hints with what follows them: options of an import, which a verb that asks does not have.

    The first becomes a command, unless one `is_offered` already: two imports would be two stores.
    """
    for hint in hints:
        fixable = None if hint.startswith('Try: ') else FIXABLE_HINT.fullmatch(hint)
        if fixable is None:
            yield hint
            continue
        condition = f'{fixable["what"]} If so' if fixable['cap'] else f'{fixable["what"]}. If {fixable["so"]}'
        option = fixable['cap'] or fixable['map']
        if is_offered:
            yield f'{condition}, add {option} to the import.'
            continue
        name, _, value = shlex.split(option)[1].partition('=')
        if fixable['cap']:
            options = dataclasses.replace(given, defaults={**given.defaults, name: value})
        else:
            options = dataclasses.replace(given, columns={**given.columns, name: value})
        yield f'{condition}, import {"them as time-outs" if fixable["cap"] else "it as such"}.'
        yield f'Try: {import_command(source, options)}'
        is_offered = True


def told_in_a_line(path: Path, imported: Imported) -> str:
    """What was guessed: `my.csv read as table: policy from model, task from task, success from ok`."""
    known = [(g.field, column_name(g)) for g in imported.guesses if g.field != 'labels']
    fields = [
        f'rows are {source}' if name == '(rows)' else name if name == source else f'{name} from {source}'
        for name, source in known
    ]
    more = len(fields) - MOST_FIELDS
    listed = fields[:MOST_FIELDS] + ([f'and {more} more'] if more > 0 else [])
    return f'{path} read as {imported.format}' + (f': {", ".join(listed)}' if listed else '')


def column_name(guess: FieldGuess) -> str:
    """Where a field comes from, a column by its bare name."""
    is_column = guess.source.startswith("column '")
    return guess.source.removeprefix("column '").removesuffix("'") if is_column else guess.source


class _Hasty(Disk):
    """A disk for what need not outlive the process."""

    def sync(self, handle: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


def _scratch(imported: Imported, command: str) -> Store:
    folder = Path(tempfile.mkdtemp(prefix='robotrials-'))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    read = imported.recordings

    def without_media() -> Iterator[Recording]:
        return (dataclasses.replace(recording, media={}) for recording in read())

    with replaced_disk(_Hasty()):
        import_into(folder / 'store', dataclasses.replace(imported, recordings=without_media), command=command)
    return read_store(folder / 'store')
