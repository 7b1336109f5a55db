"""Which rows of the tables count, and reading them with filters pushed down to the files."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robotrials.errors import InputError, RecordError, StoreError, UnknownName
from robotrials.record.blinding import Unblindings
from robotrials.record.edit import Edits
from robotrials.record.episode import Episode, Event, Outcome
from robotrials.record.part import PRUNED_BY, PartInfo, checked_source, id_codes, id_hashes, naming_damage, row_groups
from robotrials.record.schema import (
    EPISODE_FIELDS,
    EPISODE_MIGRATIONS,
    EPISODE_SCHEMA,
    JSON_FIELDS,
    SCHEMA_VERSION,
    column_values,
    episodes_from_arrow,
    migrate,
)
from robotrials.value import dataclass

Key = tuple[str, int]
Where = Mapping[str, Any]
BATCH_ROWS = 8192
SMALL_ROWS = 4096
FEW_IDS = 1000  # up to here episodes are looked for one by one
KEY_COLUMNS = ('episode_id', 'attempt', 'outcome')  # what decides which attempt counts


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that do not count: (part number, key) pairs, and keys that one part has several times."""

    excluded: frozenset[tuple[int, Key]]
    repeated: frozenset[tuple[int, Key]] = frozenset()

    def keeps(self, part_number: int, key: Key, *, shown: set[Key]) -> bool:
        """Whether a row counts; `shown` are the repeated keys of this part that came before it."""
        if self.excluded and (part_number, key) in self.excluded:
            return False
        if self.repeated and (part_number, key) in self.repeated:
            if key in shown:
                return False
            shown.add(key)
        return True


def check_where(where: Where | None) -> None:
    """Refuse a filter on a field that episodes do not have, with the near name."""
    for name, wanted in (where or {}).items():
        if name not in EPISODE_FIELDS or name in JSON_FIELDS:
            raise UnknownName('field to filter by', name, [n for n in EPISODE_FIELDS if n not in JSON_FIELDS])
        field = EPISODE_SCHEMA.field(name)
        try:
            values = [v for v in _values(wanted) if v is not None]
            pa.array(values, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        except (pa.ArrowException, OverflowError, TypeError, UnicodeEncodeError) as error:
            raise InputError(f'a filter wants {name} as {field.type}, found {wanted!r} ({error})') from error


def prune_parts(
    parts: Sequence[PartInfo], where: Where | None, *, edits: Edits, unblindings: Unblindings | None = None
) -> list[PartInfo]:
    """The parts that may hold a row that matches, as far as the log tells without opening them.

    All attempts of an episode share the fields that are looked at, so which attempt counts does not change.
    """
    opened = unblindings if unblindings is not None and unblindings.by_trial else None
    edited = _edited_fields(edits)
    ids = named_ids(where, edits)
    codes = id_codes(ids) if ids else ()
    asked = {
        name: set(_values(wanted))
        for name, wanted in (_blinded(where, opened) or {}).items()
        if name in PRUNED_BY and name not in edited
    }
    return [
        p
        for p in parts
        if all(name not in p.values or not wanted.isdisjoint(p.values[name]) for name, wanted in asked.items())
        and (ids is None or (rows := p.candidates(codes)) is None or len(rows))
    ]


def _edited_fields(edits: Edits) -> set[str]:
    return {edit.field for rows in edits.by_episode.values() for edit in rows}


def named_ids(where: Where | None, edits: Edits) -> list[str] | None:
    """The few ids that a filter names; None where it names none or many, or where edits of an older log changed ids."""
    if 'episode_id' not in (where or {}) or 'episode_id' in _edited_fields(edits):
        return None
    ids = [str(value) for value in _values((where or {})['episode_id']) if value is not None]
    return ids if len(ids) <= FEW_IDS else None


def rows_named(part: PartInfo, ids: Sequence[str]) -> pa.Table:
    """The rows with these ids as they were recorded: of an indexed part, only the row groups they are in are read."""
    wanted, places = pa.array(ids, pa.string()), part.candidates(id_codes(ids))
    with naming_damage(part.path):
        if places is not None:
            tables = row_groups(part.path, part.logged, rows=places)
        else:
            tables = _tables(part, expression=pc.field('episode_id').isin(wanted))
        named = [table.filter(pc.is_in(table['episode_id'], wanted)) for table in tables]
        return pa.concat_tables(named).unify_dictionaries()


def select_attempts(
    sources: Sequence[PartInfo] | Sequence[pa.Table], edits: Edits, *, every: bool = False
) -> Selection:
    """Of several rows with one id, the one that counts is the first valid attempt, or else the last attempt.

    That a later, luckier attempt can't replace a valid one is the point: a rerun is for a broken rig. `every` takes all
    attempts; a row that stands in the tables twice, because two stores that had it were merged, is taken once anyway.
    `sources` are parts, or their rows where they were read already, with at least `KEY_COLUMNS`; the rows of several
    parts in their order may be one table.
    """
    excluded: set[tuple[int, Key]] = set()
    repeated: set[tuple[int, Key]] = set()
    for rows in _repeated_ids(sources).values():
        kept: dict[Key, int] = {}
        for part_number, key, _ in rows:
            if key not in kept:
                kept[key] = part_number
            elif kept[key] == part_number:
                repeated.add((part_number, key))
            else:
                excluded.add((part_number, key))
        if not every:
            counted = counted_attempt({key: outcome for _, key, outcome in reversed(rows)}, edits)
            excluded.update((part_number, key) for key, part_number in kept.items() if key != counted)
    return Selection(frozenset(excluded), frozenset(repeated))


def counted_attempt(outcomes: Mapping[Key, str], edits: Edits) -> Key:
    """Of the attempts of one episode, given with their recorded outcomes, the one that counts."""
    keys = sorted(outcomes, key=lambda key: key[1])
    present = [key for key in keys if not edits.is_dropped(*key)] or keys
    for key in present:
        outcome = outcomes[key]
        for edit in edits.by_episode.get(key[0], ()):
            if edit.concerns(*key) and edit.field == 'outcome':
                outcome = str(edit.value)
        if outcome != Outcome.INVALID:
            return key
    return present[-1]


def _repeated_ids(sources: Sequence[PartInfo] | Sequence[pa.Table]) -> dict[str, list[tuple[int, Key, str]]]:
    """The rows of every id that stands in the tables more than once, in part order.

    One pass over 64-bit hashes (8 bytes an episode) finds the few candidates; only those are read as text.
    """
    if len(sources) == 1 and isinstance(sources[0], pa.Table):
        ids = sources[0]['episode_id']
        if len(pc.unique(ids)) == len(ids):
            return {}
    hashes = [id_hashes(_columns_of(source, ['episode_id'])['episode_id']) for source in sources]
    every = np.sort(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)
    repeated = np.unique(every[1:][every[1:] == every[:-1]])
    found: dict[str, list[tuple[int, Key, str]]] = {}
    for number, source in enumerate(sources):
        rows = np.flatnonzero(np.isin(hashes[number], repeated)) if len(repeated) else ()
        if len(rows) == 0:
            continue
        table = _columns_of(source, KEY_COLUMNS).take(rows)
        columns = [column_values(table[name]) for name in KEY_COLUMNS]
        for episode_id, attempt, outcome in zip(*columns, strict=True):
            found.setdefault(episode_id, []).append((number, (episode_id, attempt), outcome))
    return {episode_id: rows for episode_id, rows in found.items() if len(rows) > 1}


def _columns_of(source: PartInfo | pa.Table, names: Sequence[str]) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    with naming_damage(source.path):
        return column_table(source, list(names))


def read_part_episodes(
    part: PartInfo,
    events: Mapping[Key, tuple[Event, ...]],
    *,
    edits: Edits,
    where: Where | None,
    unblindings: Unblindings | None = None,
    tables: Iterable[pa.Table] | None = None,
) -> Iterator[Episode]:
    """Stream the episodes of one part in bounded memory, unblinded, edits applied, filtered as asked.

    `tables` are its rows where they were read already: all that may match.
    """
    opened = unblindings if unblindings is not None and unblindings.by_trial else None
    expression = where_expression(_blinded(where, opened))
    if expression is not None and edits.by_episode:
        expression = expression | pc.field('episode_id').isin(list(edits.by_episode))
    start = 0
    try:
        for rows in _tables(part, expression=expression) if tables is None else tables:
            table = migrate(rows, part.schema_version, migrations=EPISODE_MIGRATIONS, where=str(part.path))
            for episode in episodes_from_arrow(table, events):
                edited = edits.apply(opened.apply(episode) if opened is not None else episode)
                if where is None or _matches(edited, where):
                    yield edited
            start += rows.num_rows
    except RecordError as error:
        among = ' (among the filtered rows)' if where is not None else ''
        raise StoreError(f'{part.path} after row {start}{among}: {error}') from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        raise StoreError(f'{part.path}: damaged or gone ({error}); run: robotrials store verify') from error


def _tables(part: PartInfo, *, columns: list[str] | None = None, expression: Any = None) -> Iterator[pa.Table]:
    """The rows of a part whose bytes were checked, in bounded memory; older schemas are filtered after migration."""
    source = checked_source(part.path, part.logged)
    if part.schema_version < SCHEMA_VERSION:
        expression = None
    if part.n_rows <= SMALL_ROWS:
        # Starting a scan takes longer than reading a small part does.
        table = pq.ParquetFile(source).read(columns=columns, use_threads=False)
        yield table if expression is None else table.filter(expression)
        return
    import pyarrow.dataset as ds  # only large parts are scanned

    scanner = (
        ds.ParquetFileFormat()
        .make_fragment(source)
        .scanner(columns=columns, filter=expression, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1)
    )
    for batch in scanner.to_batches():
        yield pa.Table.from_batches([batch])


def column_table(part: PartInfo, columns: list[str] | None = None) -> pa.Table:
    """Columns of a part as they were recorded, all at once; every column unless some are named."""
    file = pq.ParquetFile(checked_source(part.path, part.logged))
    return file.read(columns=columns, use_threads=part.n_rows > SMALL_ROWS)


def part_keys(part: PartInfo) -> set[tuple[str, int]]:
    """The id and attempt of every row of a part."""
    table = column_table(part, ['episode_id', 'attempt'])
    return set(zip(table['episode_id'].to_pylist(), table['attempt'].to_pylist(), strict=True))


def _values(wanted: Any) -> list[Any]:
    many = isinstance(wanted, Collection) and not isinstance(wanted, str)
    return [v.value if isinstance(v, enum.Enum) else v for v in (wanted if many else [wanted])]


def _blinded(where: Where | None, opened: Unblindings | None) -> Where | None:
    """The filter as it holds for rows that were recorded under codes; what codes hide is filtered after reading."""
    if where is None or opened is None:
        return where
    coded = {name: wanted for name, wanted in where.items() if name != 'is_reference'}
    if 'policy' in coded:
        names = _values(coded['policy'])
        coded['policy'] = names + opened.codes(names)
    return coded


def where_expression(where: Where | None) -> Any:
    """The filter for Arrow; None where there is none."""
    expression = None
    for name, wanted in (where or {}).items():
        values = _values(wanted)
        term = pc.field(name).isin([v for v in values if v is not None])
        if None in values:
            term = term | pc.field(name).is_null()
        expression = term if expression is None else expression & term
    return expression


def _matches(episode: Episode, where: Where) -> bool:
    return all(getattr(episode, name) in _values(wanted) for name, wanted in where.items())
