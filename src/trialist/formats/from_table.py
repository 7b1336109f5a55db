"""Episodes from anyone's table: CSV, TSV, JSONL, JSON or Parquet, with a guess at which column is which."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trialist.episodes.episode import Episode
from trialist.episodes.event import Event, EventKind
from trialist.episodes.field import PARSERS, parse_field
from trialist.errors import InputError, RecordError, UnknownName

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    'policy': ('policy', 'model', 'method', 'arm', 'agent', 'checkpoint', 'policy_name', 'model_name', 'algorithm'),
    'task': ('task', 'task_name', 'env', 'environment', 'env_name', 'task_id', 'task_suite', 'skill'),
    'outcome': ('outcome', 'status', 'result', 'verdict', 'eval_outcome'),
    'success': ('success', 'is_success', 'succeeded', 'success_flag', 'task_success', 'successful', 'done_success'),
    'duration_s': (
        'duration_s', 'duration', 'time_s', 'time', 'elapsed', 'elapsed_s', 'seconds', 'episode_time', 'wall_time',
        'completion_time', 'time_to_success', 'duration_sec', 'duration_seconds', 'episode_duration', 'rollout_time',
    ),
    'steps': ('steps', 'n_steps', 'num_steps', 'episode_length', 'episode_steps', 'control_steps'),
    'time_cap_s': ('time_cap_s', 'time_cap', 'timeout', 'timeout_s', 'max_time', 'time_limit', 'time_limit_s', 'cap_s'),
    'stratum': ('stratum', 'object', 'object_type', 'object_name', 'suite', 'item', 'category'),
    'benchmark': ('benchmark', 'benchmark_name'),
    'condition': ('condition', 'perturbation', 'disturbance', 'variant'),
    'seed': ('seed', 'random_seed', 'rng_seed'),
    'instance': (
        'instance', 'init_state', 'init_state_id', 'initial_state', 'trial', 'trial_index', 'sample', 'sample_id',
        'episode', 'episode_index', 'rollout', 'rollout_id', 'run',
    ),
    'repeat': ('repeat', 'repetition', 'rep'),
    'attempt': ('attempt', 'retry'),
    'items': ('items', 'n_items', 'total_items', 'num_items', 'items_total'),
    'items_placed': ('items_placed', 'placed', 'successful_items', 'n_placed', 'num_success', 'n_success'),
    'items_lost': ('items_lost', 'lost', 'items_outside', 'dropped_outside', 'n_lost'),
    'score': ('score', 'return', 'progress', 'task_score', 'completed_subtasks'),
    'max_score': ('max_score', 'score_max'),
    'is_reference': ('is_reference', 'reference', 'is_human', 'human'),
    'session': ('session', 'session_id', 'day'),
    'operator': ('operator', 'evaluator', 'annotator', 'user'),
    'block': ('block', 'block_id'),
    'started_at': ('started_at', 'start_time', 'timestamp', 'started', 'datetime', 'date'),
    'reason': ('reason', 'failure_reason', 'notes', 'note', 'comment', 'comments'),
    'instruction': ('instruction', 'language', 'prompt', 'language_instruction', 'task_description'),
    'placement_times_s': ('placement_times_s', 'placement_times', 'success_times', 'place_times', 'place_timestamps'),
    'drop_times_s': ('drop_times_s', 'drop_times', 'drops', 'drop_timestamps'),
}  # fmt: skip
TIME_LISTS: Mapping[str, EventKind] = {
    'placement_times_s': EventKind.PLACEMENT,
    'drop_times_s': EventKind.DROP_OUTSIDE,
}
DURATIONS = ('duration_s', 'time_cap_s')
UNITS: Mapping[str, float] = {'s': 1.0, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9, 'min': 60.0}
FIELDS = (*PARSERS, *TIME_LISTS)
FORMATS = ('.csv', '.tsv', '.jsonl', '.ndjson', '.json', '.parquet')


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """Which column feeds which field, in what unit of time; columns that feed none become labels."""

    columns: Mapping[str, str]  # field -> column
    scale: Mapping[str, float] = field(default_factory=dict)  # field -> seconds a unit
    labels: tuple[str, ...] = ()


def from_table(
    path: Path | str,
    *,
    columns: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> list[Episode]:
    """Every row of a table as an episode; a bad row is named by file, row and field, and then nothing is imported.

    `columns` maps a field to a column where the guess is wrong; `defaults` sets fields for all rows. `source` (default:
    the file's name) is part of the ids, so that the same table imported again, or grown, adds nothing twice.
    """
    table = Path(path)
    rows = read_rows(table)
    if not rows:
        raise InputError(f'{table}: no rows; wanted one row an episode')
    guessed = guess_columns(list(dict.fromkeys(name for row in rows for name in row)), columns=columns)
    chosen = drop_misfits(guessed, rows, sure=columns or {})
    given = {name: _parse_default(name, value) for name, value in (defaults or {}).items()}
    _check_enough(table, chosen, given)
    if 'episode_id' not in chosen.columns:
        given = {'trial_id': f'import:{source if source is not None else table.name}', **given}
    return _number_repeats(list(_parse_rows(table, rows, chosen, given)), {*chosen.columns, *given})


def _parse_default(name: str, value: Any) -> Any:
    if check_field(name) in TIME_LISTS:
        raise InputError(f'{name} can not be the same for every row; wanted a column, --map {name}=COLUMN')
    return parse_field(name, value)


def guess_columns(header: Sequence[str], *, columns: Mapping[str, str] | None = None) -> ColumnMap:
    """A column for each field by its usual names and units (`duration_ms`); what `columns` says goes first."""
    chosen = {check_field(name): column for name, column in (columns or {}).items()}
    for name, column in chosen.items():
        if column not in header:
            raise UnknownName(f'column (for {name})', column, header)
    scale = {name: _unit(column)[1] for name, column in chosen.items() if name in DURATIONS}
    plain = {c: _normal(c) for c in header if c not in chosen.values()}
    for name in (n for n in FIELDS if n not in chosen):
        for synonym in SYNONYMS.get(name, (name,)):
            found = [c for c in plain if c not in chosen.values() and _fits(plain[c], synonym, name)]
            if found:
                chosen[name] = found[0]
                if name in DURATIONS:
                    scale[name] = _unit(plain[found[0]])[1]
                break
    labels = tuple(c for c in header if c not in chosen.values())
    return ColumnMap(chosen, {n: s for n, s in scale.items() if s != 1.0}, labels)


# Fields whose usual column names also mean other things: a guess whose values do not parse is taken back.
LOOSE_FIELDS = ('seed', 'instance', 'repeat', 'attempt', 'started_at', 'is_reference', 'score')


def drop_misfits(guessed: ColumnMap, rows: Sequence[Mapping[str, Any]], *, sure: Mapping[str, str]) -> ColumnMap:
    """Take back guesses that the values contradict (`episode` with `ep_003` is no number); they become labels."""
    doubtful = [*LOOSE_FIELDS, *(['outcome'] if 'success' in guessed.columns else [])]
    misfits = {
        name
        for name in doubtful
        if name in guessed.columns and name not in sure and not _parses(name, guessed.columns[name], rows)
    }
    kept = {name: column for name, column in guessed.columns.items() if name not in misfits}
    return ColumnMap(kept, guessed.scale, (*guessed.labels, *(guessed.columns[name] for name in misfits)))


def _parses(name: str, column: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    try:
        for row in rows:
            parse_field(name, row.get(column))
    except RecordError:
        return False
    return True


def check_field(name: str) -> str:
    """The name, if episodes have such a field."""
    if name not in FIELDS:
        raise UnknownName('field of an episode', name, FIELDS)
    return name


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table file as mappings; CSV, TSV, JSONL, JSON (a list of objects) or Parquet."""
    if not path.exists():
        raise InputError(f'{path}: no such file')
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f'{path}: wanted a table ending in {", ".join(FORMATS)}, found {path.suffix!r}')
    if suffix == '.parquet':
        return _read_parquet(path)
    try:
        # As it is: a name with a line break in it must come back as it was.
        with path.open(encoding='utf-8-sig', newline='') as stream:
            text = stream.read()
    except UnicodeDecodeError as error:
        raise InputError(f'{path}: not UTF-8 text (byte {error.start}); save it as UTF-8') from error
    except OSError as error:
        raise InputError(f'{path}: can not be read ({error.strerror}); wanted a file with a table') from error
    if suffix in ('.csv', '.tsv'):
        return _read_separated(path, text, '\t' if suffix == '.tsv' else _separator(text))
    return _read_json(path, text, lines=suffix != '.json')


def _separator(text: str) -> str:
    head = re.split(r'[\r\n]', text, maxsplit=1)[0]
    return max(',;\t', key=head.count)


def _read_separated(path: Path, text: str, separator: str) -> list[dict[str, Any]]:
    reader = csv.reader(io.StringIO(text, newline=''), delimiter=separator)
    try:
        return _rows_of(path, reader)
    except csv.Error as error:
        raise InputError(f'{path} line {reader.line_num}: not a table ({error}); is a quotation mark open?') from error


def _rows_of(path: Path, reader: Iterator[list[str]]) -> list[dict[str, Any]]:
    # An index written without a heading (as data frames do) gets its place as a name.
    header = [name.strip() or f'column {place}' for place, name in enumerate(next(reader, []), start=1)]
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError(f'{path}: the column {twice!r} is there twice')
    rows = []
    for number, values in enumerate(reader, start=1):
        if not any(v.strip() for v in values):
            continue
        if len(values) != len(header):
            raise InputError(f'{path} row {number}: {len(values)} cells, wanted {len(header)} as in the header')
        rows.append(dict(zip(header, (v.strip(' \t') for v in values), strict=True)))
    return rows


def _read_json(path: Path, text: str, *, lines: bool) -> list[dict[str, Any]]:
    try:
        values = [json.loads(line) for line in text.split('\n') if line.strip()] if lines else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f'{path}: not JSON ({error})') from error
    if not isinstance(values, list) or not all(isinstance(row, dict) for row in values):
        raise InputError(f'{path}: wanted {"one JSON object a line" if lines else "a JSON list of objects"}')
    return values


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f'{path}: not a readable Parquet file ({error})') from error
    return rows


def _normal(name: str) -> str:
    return re.sub(r'[^a-z0-9]+', '_', re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name).lower()).strip('_')


def _unit(name: str) -> tuple[str, float]:
    """The name without its unit of time, and the seconds in that unit."""
    stem, _, unit = _normal(name).rpartition('_')
    return (stem, UNITS[unit]) if stem and unit in UNITS else (_normal(name), 1.0)


def _fits(normal: str, synonym: str, name: str) -> bool:
    if normal == synonym:
        return True
    stem = _unit(normal)[0]
    return name in DURATIONS and stem != normal and stem in (synonym, synonym.removesuffix('_s'))


def _check_enough(path: Path, chosen: ColumnMap, given: Mapping[str, Any]) -> None:
    have = {*chosen.columns, *given}
    for name in ('policy', 'task', 'duration_s'):
        if name not in have:
            seen = ', '.join([*chosen.columns.values(), *chosen.labels])
            raise InputError(
                f'{path}: no column for {name} among: {seen}. '
                f'Name it with --map {name}=COLUMN, or give one value for all rows with --set {name}=VALUE'
            )
    if not have & {'outcome', 'success'}:
        raise InputError(f'{path}: no column for outcome or success; name one with --map success=COLUMN')


def _parse_rows(
    path: Path, rows: Sequence[Mapping[str, Any]], chosen: ColumnMap, given: Mapping[str, Any]
) -> Iterator[Episode]:
    problems = []
    for number, row in enumerate(rows, start=1):
        try:
            yield _episode(row, chosen, given)
        except RecordError as error:
            problems.append(f'{path} row {number}: {error}')
    if problems:
        shown = '\n'.join(problems[:10])
        more = f'\n... and {len(problems) - 10} more' if len(problems) > 10 else ''
        raise RecordError(f'{shown}{more}\nnothing was imported')


def _episode(row: Mapping[str, Any], chosen: ColumnMap, given: Mapping[str, Any]) -> Episode:
    values: dict[str, Any] = {}
    for name, column in chosen.columns.items():
        if name not in TIME_LISTS:
            value = parse_field(name, row.get(column))
            if value is not None:
                values[name] = value * chosen.scale.get(name, 1.0) if name in chosen.scale else value
    values = {**given, **values}
    values['events'] = (*values.get('events', ()), *_timed_events(row, chosen))
    values['labels'] = {**_labels_of(row, chosen), **values.get('labels', {})}
    values.setdefault('outcome', _outcome_of(values))
    if values['outcome'] is None:
        raise RecordError('neither outcome nor success is given')
    for name in ('policy', 'task', 'duration_s'):
        if name not in values:
            raise RecordError(f'{name} is empty, wanted a value')
    return Episode(**values)


def _timed_events(row: Mapping[str, Any], chosen: ColumnMap) -> Iterator[Event]:
    for name, kind in TIME_LISTS.items():
        value = row.get(chosen.columns[name]) if name in chosen.columns else None
        if value is None:
            continue
        if isinstance(value, str):
            times: Iterable[Any] = re.split(r'[;,\s]+', value.strip('[]() '))
        else:
            times = value if isinstance(value, list | tuple) else [value]
        for text in times:
            try:
                if text != '':
                    yield Event(float(text), kind)
            except (TypeError, ValueError) as error:
                raise RecordError(f'{name} has {text!r}, wanted seconds such as 3.2;7.9') from error


def _labels_of(row: Mapping[str, Any], chosen: ColumnMap) -> dict[str, str]:
    return {c: str(row[c]) for c in chosen.labels if row.get(c) not in (None, '')}


def _outcome_of(values: Mapping[str, Any]) -> str | None:
    """Without an outcome column: a success, a timeout where the time cap was reached, else a failure."""
    success = values.get('success')
    if success is None:
        return None
    if success:
        return 'success'
    cap, lasted = values.get('time_cap_s'), values.get('duration_s')
    is_cut = cap is not None and lasted is not None and lasted >= cap - 1e-9
    return 'timeout' if is_cut else 'failure'


def _number_repeats(episodes: Iterable[Episode], known: Set[str]) -> list[Episode]:
    """Number the rows that would share an id by their order: as instances, or as repeats of given starts."""
    if 'episode_id' in known:
        return list(episodes)
    field_name = 'repeat' if known & {'seed', 'instance'} else 'instance'
    seen: dict[tuple[str, int], int] = {}
    numbered = []
    for episode in episodes:
        count = seen.get(episode.key, 0)
        seen[episode.key] = count + 1
        if field_name == 'instance' or count:
            episode = episode.replace(episode_id='', **{field_name: count})
        numbered.append(episode)
    return numbered
