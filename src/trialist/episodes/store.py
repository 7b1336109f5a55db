"""The store: a folder that many processes may write to and any number may read.

    trial.json        what this store is, and the plan it follows
    episodes/         parts of the episode table; a part that is there is whole, and so are its companions
    events/           parts of the event table
    trajectories/     parts with one row an episode
    provenance/       where episodes came from, one JSON file for each distinct origin
    media/            videos and depth files
    edits.jsonl       the append-only overlay
    unblinding/       for each closed trial, which policy each code stood for

Writing never touches what is there. Reading applies the edits and picks the one attempt of an episode that counts.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from trialist.episodes.column import columns_for, trajectories_from_arrow, trajectories_to_arrow
from trialist.episodes.edit import Edit, EditOperation, Edits, check_edit, now, read_edits, write_edit
from trialist.episodes.episode import Episode
from trialist.episodes.event import enum_member
from trialist.episodes.part import (
    PartInfo,
    live_parts,
    naming_damage,
    read_companion,
    row_groups,
    sync_folder,
    write_part,
    write_table,
)
from trialist.episodes.provenance import Provenance, provenance_from_json
from trialist.episodes.schema import (
    EVENT_MIGRATIONS,
    SCHEMA_VERSION,
    episodes_to_arrow,
    events_by_episode,
    events_to_arrow,
    migrate,
)
from trialist.episodes.select import Selection, Where, check_where, read_part_episodes, select_attempts
from trialist.episodes.trajectory import Trajectory
from trialist.episodes.unblinding import Unblindings, read_unblindings
from trialist.errors import InputError, StoreError, TrialistError

FORMAT = 'trialist-store'
FOLDERS = ('episodes', 'events', 'trajectories', 'provenance', 'media')
TRAJECTORY_ROW_GROUP = 256
TRAJECTORIES_A_PART = 512
WRITER_THREADS = 4

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInfo:
    """What a store is a record of: the plan and its hash, or where the episodes were imported from."""

    store_id: str
    created_at: str
    trial_id: str = ''
    title: str = ''
    plan_hash: str = ''
    plan: str = ''  # the plan's text, as declared
    schema_version: int = SCHEMA_VERSION
    format: str = FORMAT


@dataclass(frozen=True, slots=True)
class Store:
    """One store. Open it with `read_store` or `Store.open`, make it with `Store.create`."""

    path: Path
    trial: TrialInfo

    @classmethod
    def create(
        cls, path: Path | str, *, trial_id: str = '', title: str = '', plan_hash: str = '', plan: str = ''
    ) -> Store:
        """Make a new store; opens it instead if the same trial's store is already there."""
        root = Path(path)
        if root.exists() and not root.is_dir():
            raise StoreError(f'{root}: a file; wanted a folder for the store')
        if root.exists() and not (root / 'trial.json').exists() and any(map(_is_foreign, root.iterdir())):
            raise StoreError(f'{root}: not empty and not a store; give an empty or new folder')
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        trial = TrialInfo(
            store_id=uuid.uuid4().hex,
            created_at=dt.datetime.now(dt.UTC).isoformat(timespec='seconds'),
            trial_id=trial_id,
            title=title,
            plan_hash=plan_hash,
            plan=plan,
        )
        _write_once(root / 'trial.json', json.dumps(dataclasses.asdict(trial), indent=1))
        store = cls.open(root)
        if (store.trial.trial_id, store.trial.plan_hash) != (trial_id, plan_hash):
            found = store.trial.trial_id or store.trial.plan_hash
            raise StoreError(f'{root}: already the store of another trial ({found!r}); give another folder')
        return store

    @classmethod
    def open(cls, path: Path | str) -> Store:
        """Open a store that exists."""
        root = Path(path)
        return cls(root, _read_trial(root))

    # --- writing

    def append(self, episodes: Iterable[Episode], *, trajectories: Mapping[Key, Trajectory] | None = None) -> None:
        """Add episodes durably: when this returns they are all there; if it does not, none is.

        `trajectories` holds them by `episode.key`.
        """
        batch = list(episodes)
        given = dict(trajectories or {})
        if not batch:
            raise InputError('no episodes to append')
        _check_batch(batch, given)
        keyed = [(e.key, given[e.key]) for e in batch if e.key in given]
        chunks = [keyed[i : i + TRAJECTORIES_A_PART] for i in range(0, len(keyed), TRAJECTORIES_A_PART)]
        with ThreadPoolExecutor(max_workers=WRITER_THREADS) as pool:
            names = list(pool.map(self.write_trajectories, chunks))
        self.write_episodes(episodes_to_arrow(batch), events_to_arrow(batch), trajectories=names)

    def write_trajectories(self, keyed: Sequence[tuple[Key, Trajectory]]) -> str:
        """Put trajectories into the store; nobody sees them until an episodes part names them."""
        table = trajectories_to_arrow([key for key, _ in keyed], [trajectory for _, trajectory in keyed])
        meta = {'schema_version': SCHEMA_VERSION}
        return write_part(
            self.path,
            'trajectories',
            lambda p: write_table(table, p, metadata=meta, row_group_size=TRAJECTORY_ROW_GROUP),
        )

    def write_episodes(
        self, episodes: pa.Table, events: pa.Table, *, trajectories: Sequence[str] = (), replaces: Sequence[str] = ()
    ) -> str:
        """The commit: the events part first, then the episodes part that names its companions."""
        version = {'schema_version': SCHEMA_VERSION}
        events_name = ''
        if events.num_rows:
            events_name = write_part(self.path, 'events', lambda p: write_table(events, p, metadata=version))
        meta = {
            **version,
            'n_events': events.num_rows,
            'events': events_name,
            'trajectories': list(trajectories),
            'replaces': list(replaces),
        }
        return write_part(self.path, 'episodes', lambda p: write_table(episodes, p, metadata=meta))

    def write_provenance(self, provenance: Provenance) -> str:
        """Keep a provenance once, and give its id for `Episode.provenance_id`."""
        identity = provenance.provenance_id
        _write_once(self.path / 'provenance' / f'{identity}.json', json.dumps(provenance.as_json(), indent=1))
        return identity

    def edit(
        self, episode_id: str, operation: EditOperation | str, *, by: str, why: str, attempt: int | None = None,
        field: str = '', value: Any = None,
    ) -> Edit:  # fmt: skip
        """Append one edit to the overlay, after checking that it names an episode and leaves it valid."""
        chosen = enum_member(EditOperation, operation, 'operation')
        edit = Edit(
            episode_id=episode_id, operation=chosen, by=by, why=why, at=now(), attempt=attempt, field=field, value=value
        )
        edits = read_edits(self.path / 'edits.jsonl')
        found = [e for e in self._recorded_with(episode_id) if edit.concerns(*e.key)]
        if not found:
            which = f' attempt {attempt}' if attempt is not None else ''
            raise InputError(f'{self.path}: no episode {episode_id}{which}; `trialist store ls` lists them')
        if field == 'provenance_id' and value and not (self.path / 'provenance' / f'{value}.json').is_file():
            raise InputError(f'{self.path}: no provenance {value!r} in provenance/')
        for episode in found:
            check_edit(edit, episode, before=edits)
        write_edit(self.path / 'edits.jsonl', edit)
        return edit

    # --- reading

    def edits(self) -> Edits:
        """The overlay as it stands."""
        return Edits.of(read_edits(self.path / 'edits.jsonl'))

    def unblindings(self) -> Unblindings:
        """The openings of the closed trials in this store."""
        return read_unblindings(self.path)

    def parts(self) -> list[PartInfo]:
        """The episodes parts that count, oldest first."""
        return live_parts(self.path)

    def episodes(
        self, *, where: Where | None = None, attempts: str = 'counted', dropped: bool = False, events: bool = True
    ) -> Iterator[Episode]:
        """Stream the episodes, edits applied; those of a closed trial under their policies' names.

        `attempts='counted'` gives the one attempt of each id that counts: the first that was valid, or the last one if
        none was. `'all'` gives every attempt. `where` filters by fields: a value, or a collection of them. `dropped`
        includes episodes that an edit dropped. `events=False` reads the tables alone.
        """
        for _, episode in self._stream(where, attempts=attempts, dropped=dropped, events=events):
            yield episode

    def count(self) -> int:
        """How many rows the tables hold, all attempts and dropped ones included."""
        return sum(part.n_rows for part in self.parts())

    def trajectories(
        self, *, where: Where | None = None, signals: Sequence[str] | None = None
    ) -> Iterator[tuple[Episode, Trajectory]]:
        """Stream the counted episodes that have a trajectory, with it; `signals` limits what is read."""
        wanted: dict[str, dict[Key, Episode]] = {}
        for part, episode in self._stream(where, attempts='counted', dropped=False, events=True):
            for name in part.trajectories:
                wanted.setdefault(name, {})[episode.key] = episode
        for name, episodes in wanted.items():
            for key, trajectory in self._trajectories_in(name, signals):
                if key in episodes:
                    yield episodes[key], trajectory

    def trajectory(self, episode: Episode, *, signals: Sequence[str] | None = None) -> Trajectory | None:
        """The trajectory of one episode, or None if none was recorded."""
        for part in self.parts():
            for name in part.trajectories:
                keys = pa.concat_tables(
                    list(row_groups(self.path, 'trajectories', name, choose=_key_columns))
                ).to_pydict()
                if episode.key in zip(keys['episode_id'], keys['attempt'], strict=True):
                    return next(t for key, t in self._trajectories_in(name, signals) if key == episode.key)
        return None

    def _trajectories_in(self, name: str, signals: Sequence[str] | None) -> Iterator[tuple[Key, Trajectory]]:
        choose = (lambda available: columns_for(signals, available)) if signals is not None else None
        for table in row_groups(self.path, 'trajectories', name, choose=choose):
            yield from trajectories_from_arrow(table)

    def provenance(self, provenance_id: str) -> Provenance:
        """The origin that an episode's `provenance_id` names."""
        path = self.path / 'provenance' / f'{provenance_id}.json'
        if not path.exists():
            raise StoreError(f'{path}: missing; an episode names this provenance; run: trialist store verify')
        try:
            return provenance_from_json(json.loads(path.read_text(encoding='utf-8')), where=str(path))
        except (ValueError, TypeError, AttributeError) as error:
            if isinstance(error, TrialistError):
                raise
            raise StoreError(f'{path}: not a provenance record ({error}); run: trialist store verify') from error

    def _stream(
        self, where: Where | None, *, attempts: str, dropped: bool, events: bool
    ) -> Iterator[tuple[PartInfo, Episode]]:
        if attempts not in ('counted', 'all'):
            raise InputError(f"attempts is {attempts!r}, wanted 'counted' or 'all'")
        check_where(where)
        parts, edits, unblindings = self.parts(), self.edits(), self.unblindings()
        selection = select_attempts(parts, edits) if attempts == 'counted' else Selection.everything()
        for number, part in enumerate(parts):
            event_rows = self._events_of(part) if events else {}
            for episode in read_part_episodes(part, event_rows, edits=edits, where=where, unblindings=unblindings):
                if selection.keeps(number, episode.key) and (dropped or not edits.is_dropped(*episode.key)):
                    yield part, episode

    def recorded(self, part: PartInfo) -> Iterator[Episode]:
        """The episodes of one part as they were recorded: every attempt, no edits."""
        return read_part_episodes(part, self._events_of(part), edits=Edits({}), where=None)

    def _events_of(self, part: PartInfo) -> dict[Key, Any]:
        if not part.events:
            return {}
        path = self.path / 'events' / part.events
        table = read_companion(self.path, 'events', part.events)
        with naming_damage(path):
            return events_by_episode(migrate(table, part.schema_version, migrations=EVENT_MIGRATIONS, where=str(path)))

    def _recorded_with(self, episode_id: str) -> list[Episode]:
        where = {'episode_id': episode_id}
        none = Edits({})
        return [e for p in self.parts() for e in read_part_episodes(p, self._events_of(p), edits=none, where=where)]


def _key_columns(available: Sequence[str]) -> list[str]:
    return ['episode_id', 'attempt']


def read_store(path: Path | str) -> Store:
    """Open a store for reading."""
    return Store.open(path)


def _is_foreign(path: Path) -> bool:
    """Whether a file in a folder without a trial.json was there before us; a killed creation leaves only its draft."""
    return path.name not in FOLDERS and not path.name.startswith('.trial.json.')


def _check_batch(batch: Sequence[Episode], trajectories: Mapping[Key, Trajectory]) -> None:
    keys = [e.key for e in batch]
    if len(set(keys)) != len(keys):
        twice = next(k for k in keys if keys.count(k) > 1)
        raise InputError(
            f'episode {twice[0]} attempt {twice[1]} is twice in one batch; give rollouts of one cell different seeds, '
            'instances or repeats, and reruns different attempts'
        )
    orphans = set(trajectories) - set(keys)
    if orphans:
        raise InputError(f'a trajectory is keyed {min(orphans)}, which is none of the {len(keys)} episodes given')


def _write_once(path: Path, text: str) -> None:
    """Write a file unless it exists, whole or not at all, also when several processes try."""
    if path.exists():
        return
    draft = path.with_name(f'.{path.name}.{uuid.uuid4().hex}')
    try:
        with draft.open('w', encoding='utf-8') as stream:
            stream.write(text + '\n')
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def _read_trial(root: Path) -> TrialInfo:
    path = root / 'trial.json'
    if not root.is_dir():
        raise StoreError(f'{root}: no such folder; wanted a store')
    if not path.exists():
        raise StoreError(f'{root}: no trial.json in it, so not a store; `trialist import` makes one from a table')
    try:
        values = json.loads(path.read_text(encoding='utf-8'))
        version = int(values['schema_version'])
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f'{path}: not readable as a trial description ({error})') from error
    if values.get('format') != FORMAT:
        raise StoreError(f'{path}: format is {values.get("format")!r}, wanted {FORMAT!r}')
    if version > SCHEMA_VERSION:
        raise StoreError(
            f'{path}: schema version {version}, this trialist reads up to {SCHEMA_VERSION}; upgrade trialist'
        )
    known = {f.name for f in dataclasses.fields(TrialInfo)}
    try:
        return TrialInfo(**{k: v for k, v in values.items() if k in known})
    except TypeError as error:
        raise StoreError(f'{path}: not a whole trial description ({error})') from error
