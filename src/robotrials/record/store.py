"""The store: a folder that many processes may write to and any number may read.

    trial.json        what this store is, and the plan it follows
    log/              the commit log: what was added, by whom, and the digest of every file; edits, looks and closings
    episodes/         parts of the episode table
    events/           parts of the event table
    trajectories/     parts with one row an episode
    provenance/       where episodes came from, one JSON file for each distinct origin
    media/            videos, depth files, texts of faults
    quarantine/       what a repair set aside

Writing never touches what is there, and counts once it is logged. Reading checks what it reads against the log, applies
the edits, and picks the one attempt of an episode that counts.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import hashlib
import itertools
import json
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robotrials.errors import InputError, RecordError, RobotrialsError, StoreError, WriteError, near_miss
from robotrials.old_name import STORE_FORMAT
from robotrials.record.blinding import (
    SEALED_FOLDER,
    SMALL_ROWS,
    Unblindings,
    Where,
    all_rows,
    blinded_episode,
    blinded_provenance,
    blinded_trajectory,
    board_opening,
    check_blinded_where,
    check_duplicates,
    check_where,
    counted_attempt,
    is_blinded_plan,
    named_ids,
    prune_parts,
    read_part_episodes,
    read_unblindings,
    rows_named,
    select_attempts,
    with_sealed,
)
from robotrials.record.bucket import CachedPath, forget_copies
from robotrials.record.episode import Episode, Provenance, enum_member, provenance_from_json
from robotrials.record.folder import LEASES, PENDING, Folder, inside, is_file_inside, is_inside, sole_entry, store_root
from robotrials.record.ledger import (
    Annotation,
    Edit,
    EditOperation,
    Edits,
    Ledger,
    Look,
    check_approved,
    check_edit,
    check_within,
    glance,
    late_places,
    now,
    read_ledger,
)
from robotrials.record.log import (
    LOG,
    Commit,
    Finding,
    FindingKind,
    add_entry,
    check_logged,
    commit,
    is_logged,
    log_entry,
    read_log,
)
from robotrials.record.part import (
    ADVICE,
    Entry,
    EntryKind,
    LoggedFile,
    PartInfo,
    encode_hashes,
    id_codes,
    id_hashes,
    naming_damage,
    open_part,
    part_metadata,
    part_values,
    read_companion,
    row_groups,
    write_table,
)
from robotrials.record.rows import (
    EVENT_SCHEMA,
    SCHEMA_VERSION,
    episodes_to_arrow,
    events_by_episode,
    events_to_arrow,
    migrate,
)
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.record.trajectory import Trajectory


FORMAT = STORE_FORMAT
FOLDERS = ('episodes', 'events', 'trajectories', 'provenance', 'media')
TRAJECTORY_ROW_GROUP = 256
TRAJECTORIES_A_PART = 512
WRITER_THREADS = 4
MOST_OPENED = 64
TIDY_EVERY = 128  # entries of the log
MOST_TOLD = 8

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
    is_logged: bool = False  # a commit log was begun with the store: without one, everything may be missing


@dataclass(frozen=True, slots=True)
class Store:
    """One store. Open it with `read_store` or `Store.open`, make it with `Store.create`."""

    path: Path
    trial: TrialInfo
    skip_damaged: bool = False  # leave out what is damaged, and say so in `missing`, instead of raising
    skipped: list[Finding] = field(default_factory=list, compare=False, repr=False)
    is_view: bool = False  # while its trial is blinded and open, show only what may be seen then
    at_closing: bool = False  # without the edits that were made after a trial was closed
    board: str = ''  # who looks at an open trial by arm, as its board
    board_key: str = ''  # of a concealed trial: the file with which the board can tell arms apart

    @classmethod
    def create(
        cls, path: Path | str, *, trial_id: str = '', title: str = '', plan_hash: str = '', plan: str = ''
    ) -> Store:
        """Make a new store; opens it instead if the same trial's store is already there."""
        root = store_root(path)
        if isinstance(root, CachedPath):
            _forget_older(root)
        if root.exists() and not root.is_dir():
            raise StoreError(f'{root}: a file; wanted a folder for the store')
        if root.exists() and not (root / 'trial.json').exists() and any(map(_is_foreign, root.iterdir())):
            raise StoreError(f'{root}: not empty and not a store; give an empty or new folder')
        folder = Folder(root)
        for name in FOLDERS:
            folder.make(name)
        trial = TrialInfo(
            store_id=uuid.uuid4().hex,
            created_at=dt.datetime.now(dt.UTC).isoformat(timespec='seconds'),
            trial_id=trial_id,
            title=title,
            plan_hash=plan_hash,
            plan=plan,
            is_logged=True,
        )
        if not (root / 'trial.json').exists():
            folder.create('trial.json', begin_log(root, trial).encode())
        store = cls.open(root)
        if (store.trial.trial_id, store.trial.plan_hash) != (trial_id, plan_hash):
            other = store.trial.trial_id or store.trial.plan_hash
            raise StoreError(f'{root}: already the store of another trial ({other!r}); give another folder')
        return store

    @classmethod
    def open(cls, path: Path | str, *, skip_damaged: bool = False) -> Store:
        """Open a store that exists; `skip_damaged` reads what can be read, and names the rest in `missing`."""
        root = store_root(path)
        return cls(root, _read_trial(root), skip_damaged)

    # --- writing

    def append(
        self, episodes: Iterable[Episode], *, trajectories: Mapping[Key, Trajectory] | None = None,
        media: Mapping[str, bytes | Path] | None = None, by: str = '',
    ) -> None:  # fmt: skip
        """Add episodes durably: when this returns they are all there; if it does not, none is.

        `trajectories` holds them by `episode.key`; `media` files by their name in media/.
        """
        batch = list(episodes)
        given = dict(trajectories or {})
        if not batch:
            raise InputError('no episodes to append')
        _check_batch(batch, given)
        check_logged(self.path)
        trial_ids, keys = {e.trial_id for e in batch}, {e.key for e in batch}
        self.check_open(trial_ids)
        checked = self.check_new(keys)

        def check() -> None:  # again: another process may have written meanwhile
            self.check_open(trial_ids)
            self.check_new(keys, but=checked)

        keyed = [(e.key, given[e.key]) for e in batch if e.key in given]
        chunks = [keyed[i : i + TRAJECTORIES_A_PART] for i in range(0, len(keyed), TRAJECTORIES_A_PART)]
        tables = episodes_to_arrow(batch), events_to_arrow(batch)
        with commit(self.path) as under_way:
            under_way.announce(f'media/{check_media_name(name)}' for name in media or {})
            for name, content in (media or {}).items():
                under_way.add_file(f'media/{name}', content)
            names = write_trajectories(under_way, chunks)
            place = {key: number for number, chunk in enumerate(chunks, start=1) for key, _ in chunk}
            index = [place.get(e.key, 0) for e in batch] if keyed else []
            part = write_episodes(self.path, under_way, *tables, trajectories=names, index=index)
            under_way.finish(EntryKind.APPEND, {'parts': [part.as_json()]}, by=by, check=check)
        if len(self.ledger().entries) % TIDY_EVERY == 0 and not isinstance(self.path, CachedPath):
            from robotrials.record.maintain import tidy_store

            tidy_store(self)

    def check_open(self, trial_ids: Collection[str] = ()) -> None:
        """Refuse to add episodes to a store whose trial was closed, or of a trial that was."""
        closed = self.unblindings().by_trial
        for trial_id in (self.trial.trial_id, *sorted(trial_ids)):
            if (closing := closed.get(trial_id)) is not None:
                raise StoreError(
                    f'{self.path}: trial {trial_id[:12]} was closed by {closing.by} at {closing.at}, so no episode was '
                    'added; declare a new trial, and give its episodes a store of their own'
                )

    def check_new(self, wanted: Collection[Key], *, but: Collection[str] = ()) -> frozenset[str]:
        """Refuse attempts that are there already: two rows of one attempt are a clash that nobody can resolve.

        `but` names parts that were looked at before; the names of all that are known now are returned.
        """
        parts = self.parts()
        fresh = [part for part in parts if part.path.name not in but]
        codes = id_codes({episode_id for episode_id, _ in wanted}) if fresh else frozenset()
        for part in fresh:
            rows = part.candidates(codes)
            if rows is not None and not len(rows):
                continue
            try:
                table = pa.concat_tables(row_groups(part.path, part.logged, choose=_key_columns, rows=rows))
            except StoreError:
                continue  # damaged: what it holds cannot be told, and a run must not stop for it
            keys = zip(table['episode_id'].to_pylist(), table['attempt'].to_pylist(), strict=True)
            if (there := next((key for key in keys if key in wanted), None)) is not None:
                raise StoreError(
                    f'{self.path}: episode {there[0]} attempt {there[1]} is there already, in {part.path.name}; '
                    'nothing was added. A rerun is another attempt, and a correction an edit'
                )
        return frozenset(part.path.name for part in parts)

    def write_provenance(self, provenance: Provenance) -> str:
        """Keep a provenance once, and give its id for `Episode.provenance_id`."""
        identity = provenance.provenance_id
        name = f'provenance/{identity}.json'
        if self.ledger().file(name) is None:
            content = json.dumps(provenance.as_json(), indent=1).encode() + b'\n'
            with commit(self.path) as under_way:
                under_way.add_file(name, content)
                under_way.finish(EntryKind.PROVENANCE)
        return identity

    def add_media(self, name: str, content: bytes | Path, *, by: str = '') -> Path:
        """Keep a file under `name` in media/, logged with its digest; the same again is fine, other content is not."""
        target = f'media/{check_media_name(name)}'
        with commit(self.path) as under_way:
            under_way.announce([target])
            under_way.add_file(target, content)
            if self.ledger().file(target) is None:
                under_way.finish(EntryKind.MEDIA, by=by)
        return self.path / target

    def edit(
        self, episode_id: str, operation: EditOperation | str, *, by: str, why: str, attempt: int | None = None,
        field: str = '', value: Any = None, approved_by: str = '',
    ) -> Edit:  # fmt: skip
        """Log one edit of one attempt, after checking that it leaves the episode valid.

        Without `attempt` it is about the attempt that counts now; `undrop` about the one that was dropped last. Once
        the trial is closed it needs a second name, of whoever approves it.
        """
        chosen = enum_member(EditOperation, operation, 'operation')
        recorded = {e.attempt: e for e in self._recorded_with(episode_id)}
        if not recorded or (attempt is not None and attempt not in recorded):
            which = f' attempt {attempt}' if attempt is not None else ''
            raise InputError(f'{self.path}: no episode {episode_id}{which}; `robotrials store ls` lists them')
        if attempt is None:
            attempt = self._meant_attempt(chosen, list(recorded.values()))
        edit = Edit(
            episode_id=episode_id, operation=chosen, by=by, why=why, at=now(), attempt=attempt, field=field,
            value=value, approved_by=approved_by,
        )  # fmt: skip
        if field == 'provenance_id' and value and not self.has_file(f'provenance/{value}.json'):
            raise InputError(f'{self.path}: no provenance {value!r} in provenance/')
        check_logged(self.path)
        with sole_entry(self.path):
            check_edit(edit, recorded[attempt], before=self.ledger().edits)
            check_approved(self, recorded[attempt], edit)
            log_entry(self.path, EntryKind.EDIT, by=by, body={'edits': [edit.as_json()]})
        return edit

    def _meant_attempt(self, operation: EditOperation, recorded: Sequence[Episode]) -> int:
        edits = self.edits()
        dropped = [
            e.attempt
            for e in edits.by_episode.get(recorded[0].episode_id, ())
            if e.operation is EditOperation.DROP and e.attempt is not None and edits.is_dropped(e.episode_id, e.attempt)
        ]
        if operation is EditOperation.UNDROP and dropped:
            return dropped[-1]
        return counted_attempt({e.key: e.outcome.value for e in recorded}, edits)[1]

    def annotate(self, annotations: Iterable[Annotation], *, by: str = '') -> tuple[Annotation, ...]:
        """Log accounts of what happened in episodes, all of them or none; nothing that is there changes."""
        given = list(annotations)
        wanted = {a.episode_id for a in given}
        rows = self.episodes(where={'episode_id': wanted}, attempts='all', dropped=True, events=False)
        known = {e.key: e for e in rows}
        for annotation in given:
            if annotation.key not in known:
                which = f'{annotation.episode_id} attempt {annotation.attempt}'
                raise InputError(f'{self.path}: no episode {which}; `robotrials store ls` lists them')
            check_within(annotation, known[annotation.key].duration_s)
        logged = tuple(dataclasses.replace(a, at=now()) for a in given)
        if logged:
            log_entry(self.path, EntryKind.ANNOTATION, by=by, body={'annotations': [a.as_json() for a in logged]})
        return logged

    def annotations(self) -> dict[Key, tuple[Annotation, ...]]:
        """Every annotation by the attempt it is about, in the order they were made."""
        by_attempt: dict[Key, list[Annotation]] = {}
        for annotation in self.ledger().annotations:
            by_attempt.setdefault(annotation.key, []).append(annotation)
        return {key: tuple(rows) for key, rows in by_attempt.items()}

    def log_look(
        self, verb: str, *, by: str = '', options: Mapping[str, Any] | None = None, seen: str = '', role: str = ''
    ) -> bool:
        """Put on record that somebody looked at results, and at what; False where the store can't be written to."""
        body = {'verb': verb, 'options': dict(options or {}), 'seen': seen, 'role': role}
        try:
            log_entry(self.path, EntryKind.LOOK, by=by, body=body)
        except WriteError:
            return False
        except StoreError:
            if self.ledger().is_logged:
                raise
            return False  # a store of an older version
        return True

    def log(self, kind: EntryKind, *, by: str = '', body: Mapping[str, Any] | None = None) -> Entry:
        """Log something else: that a run began or ended, what was interrupted."""
        return log_entry(self.path, kind, by=by, body=body)

    # --- reading

    def file(self, name: str) -> Path:
        """Where a file of the store lies, or would; StoreError if its name or a link in its way leads elsewhere."""
        return inside(self.path, name)

    def has_file(self, name: str) -> bool:
        """Whether there is a file of this name, inside the store."""
        return is_file_inside(self.path, name)

    def has_film(self, video: str) -> bool:
        """Whether media/ has this film: a file, or a folder of images; a link among them would lead elsewhere."""
        name = f'media/{video}'
        if not video or self.has_file(name):
            return bool(video)
        try:
            images = [f'{name}/{path.name}' for path in self.file(name).iterdir()]
        except (StoreError, OSError):  # a name or a link that leads out of the store, or nothing there
            return False
        return bool(images) and all(map(self.has_file, images))

    def ledger(self) -> Ledger:
        """What the commit log says is in the store."""
        ledger = read_ledger(self.path)
        if self.trial.is_logged and not ledger.is_logged and not self.skip_damaged:
            raise StoreError(f'{self.path / LOG}: the commit log is gone; run: robotrials store verify')
        damage = [f for f in ledger.damage if f.is_loss] if ledger.damage and not self.skip_damaged else []
        if damage:
            raise StoreError(f'{damage[0].path}: {damage[0].detail}; {ADVICE}')
        return ledger

    @property
    def is_blinded(self) -> bool:
        """Whether this is a view of a trial that is blinded and still open."""
        return self.is_view and is_blinded_plan(self.trial) and self.trial.trial_id not in self.unblindings().by_trial

    def head(self) -> str:
        """The id of the last entry of the log, which stands for all before it; '' in a store without a log.

        Joined by + where writers have worked side by side and nobody has since.
        """
        return '+'.join(read_log(self.path).heads())

    def looks(self) -> tuple[Look, ...]:
        """Every look at results that is on record, in order."""
        return self.ledger().looks

    def edits(self) -> Edits:
        """The overlay as it stands, or as it stood at the closing."""
        ledger = self.ledger()
        late = late_places(self, ledger) if self.at_closing else frozenset()
        return Edits.of(edit for number, edit in enumerate(ledger.edits) if number not in late)

    def late_edits(self) -> tuple[Edit, ...]:
        """The edits that were made after the trial of their episode was closed."""
        ledger = self.ledger()
        return tuple(ledger.edits[number] for number in sorted(late_places(self, ledger)))

    def unblindings(self) -> Unblindings:
        """The openings of the closed trials in this store."""
        return read_unblindings(self.path)

    def openings(self) -> Unblindings:
        """What tells arms apart for this reader: the closings and, for a board with the key, codes of an open trial."""
        known = self.unblindings()
        if not (self.board and self.board_key and self.is_blinded):
            return known
        own = board_opening(self.trial.trial_id, self.trial.plan, Path(self.board_key))
        return known if own is None else Unblindings({**known.by_trial, own.trial_id: own})

    def parts(self) -> list[PartInfo]:
        """The episodes parts that count, oldest first."""
        return list(self.ledger().parts)

    def missing(self) -> tuple[Finding, ...]:
        """What was recorded and can't be had, as far as a glance at the files tells, and what this reader skipped.

        Empty for a sound store. `robotrials store verify` looks at every byte.
        """
        known = glance(self.path, self.trial)
        return (*known, *(f for f in dict.fromkeys(self.skipped) if f.path not in {k.path for k in known}))

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
        for part, episodes in self.recorded_parts(where=where):
            for name in part.trajectories:
                yield from self.trajectories_in(name, part.files.get(f'trajectories/{name}'), episodes, signals=signals)

    def recorded_parts(self, *, where: Where | None = None) -> Iterator[tuple[PartInfo, dict[Key, Episode]]]:
        """The parts that have trajectories, with those of their counted episodes that match."""
        if not any(part.trajectories for part in self.parts()):
            return  # a table of outcomes: no episode need be built
        streamed = self._stream(where, attempts='counted', dropped=False, events=True)
        for _, group in itertools.groupby(streamed, key=lambda row: id(row[0])):  # a part at a time, however many
            rows = list(group)
            if rows[0][0].trajectories:
                yield rows[0][0], {episode.key: episode for _, episode in rows}

    def trajectories_in(
        self, name: str, logged: LoggedFile | None, episodes: Mapping[Key, Episode], *,
        signals: Sequence[str] | None = None, seen: list[Key] | None = None,
    ) -> Iterator[tuple[Episode, Trajectory]]:  # fmt: skip
        """These episodes with their trajectories, of one file; `seen` is given the keys of all its rows."""
        is_blinded, is_plain = self.is_blinded, not self.hides_columns
        for key, trajectory in self._trajectories_in(name, logged, signals):
            if seen is not None:
                seen.append(key)
            if key in episodes:
                yield episodes[key], trajectory if is_plain else self._visible(trajectory, key, is_blinded=is_blinded)

    @property
    def hides_columns(self) -> bool:
        """Whether what is shown of a trajectory depends on who asks: a blinded trial, or columns that were sealed."""
        return self.is_blinded or (self.path / 'media' / SEALED_FOLDER).exists()

    def trajectory(self, episode: Episode, *, signals: Sequence[str] | None = None) -> Trajectory | None:
        """The trajectory of one episode, or None if none was recorded."""
        codes = id_codes([episode.episode_id])
        for part in self.parts():
            for name in self._candidates(part, episode.key, codes) if part.trajectories else ():
                try:
                    own = self._one_trajectory(name, part.files.get(f'trajectories/{name}'), episode.key, signals)
                except StoreError as error:
                    self._skip(error, self.path / 'trajectories' / name)
                    continue
                if own is not None:
                    return self._visible(own, episode.key, is_blinded=self.is_blinded)
        return None

    def _visible(self, trajectory: Trajectory, key: Key, *, is_blinded: bool) -> Trajectory:
        """A trajectory with what was sealed while its trial was open, or without what may not be seen."""
        return blinded_trajectory(trajectory) if is_blinded else with_sealed(self, trajectory, key)

    def _candidates(self, part: PartInfo, key: Key, codes: Collection[str]) -> Sequence[str]:
        """The trajectories parts in which an episode's row may be: one where the part has an index."""
        places = part.candidates(codes)
        if places is not None and not len(places):
            return ()
        keys = pa.concat_tables(row_groups(part.path, part.logged, choose=_key_columns, rows=places))
        with naming_damage(part.path):
            matching = np.flatnonzero(pc.equal(keys['episode_id'], key[0]).to_numpy()).tolist()
            of_attempt = [r for r in matching if keys['attempt'][r].as_py() == key[1]]
            rows = of_attempt if places is None else places[of_attempt].tolist()
            values = part_metadata(open_part(part.path, part.logged), part.path) if rows else {}
        if not rows:
            return ()
        if 'index' not in values:
            return part.trajectories
        names, numbers = values['trajectories'], decode_index(values['index'])
        chosen = [names[numbers[r] - 1] for r in rows if numbers[r]]
        return [name for name in chosen if name in part.trajectories]

    def _one_trajectory(
        self, name: str, logged: LoggedFile | None, key: Key, signals: Sequence[str] | None
    ) -> Trajectory | None:
        from robotrials.record.column import columns_for, trajectories_from_arrow

        path = self.path / 'trajectories' / name
        for group, keys in enumerate(row_groups(path, logged, choose=_key_columns)):
            columns = keys['episode_id'].to_pylist(), keys['attempt'].to_pylist()
            row = next((row for row, pair in enumerate(zip(*columns, strict=True)) if pair == key), None)
            if row is not None:
                choose = (lambda available: columns_for(signals, available)) if signals is not None else None
                (table,) = row_groups(path, logged, choose=choose, wanted=[group])
                return next(t for _, t in trajectories_from_arrow(table.slice(row, 1)))
        return None

    def _trajectories_in(
        self, name: str, logged: LoggedFile | None, signals: Sequence[str] | None
    ) -> Iterator[tuple[Key, Trajectory]]:
        from robotrials.record.column import columns_for, trajectories_from_arrow

        choose = (lambda available: columns_for(signals, available)) if signals is not None else None
        path = self.path / 'trajectories' / name
        try:
            for table in row_groups(path, logged, choose=choose):
                yield from trajectories_from_arrow(table)
        except StoreError as error:
            self._skip(error, path)

    def _skip(self, error: StoreError, path: Path) -> None:
        """Raise, or note what is left out."""
        if not self.skip_damaged:
            raise error
        self.skipped.append(Finding(FindingKind.DAMAGED, path, str(error).removeprefix(f'{path}: ')))

    def provenance(self, provenance_id: str) -> Provenance:
        """The origin that an episode's `provenance_id` names."""
        name = f'provenance/{provenance_id}.json'
        path = inside(self.path, name)
        if not path.exists():
            raise StoreError(f'{path}: missing; an episode names this provenance; run: robotrials store verify')
        try:
            content = path.read_bytes()
            logged = self.ledger().file(name)
            if logged is not None and hashlib.sha256(content).hexdigest() != logged.sha256:
                raise StoreError(f'{path}: damaged (its bytes are not what was written); run: robotrials store verify')
            provenance = provenance_from_json(json.loads(content), where=str(path))
            return blinded_provenance(provenance) if self.is_blinded else provenance
        except (ValueError, TypeError, AttributeError) as error:
            if isinstance(error, RobotrialsError):
                raise
            raise StoreError(f'{path}: not a provenance record ({error}); run: robotrials store verify') from error

    def _stream(
        self, where: Where | None, *, attempts: str, dropped: bool, events: bool
    ) -> Iterator[tuple[PartInfo, Episode]]:
        if attempts not in ('counted', 'all'):
            raise InputError(f"attempts is {attempts!r}, wanted 'counted' or 'all'")
        check_where(where)
        is_blinded = self.is_blinded
        if is_blinded:
            check_blinded_where(where, board=bool(self.board))
        parts, edits, unblindings = self.parts(), self.edits(), self.openings()
        if self.skip_damaged:
            parts = [part for part in parts if self._is_readable(part)]
        parts = prune_parts(parts, where, edits=edits, unblindings=unblindings)
        ids = named_ids(where, edits)
        tables = None if ids is None else [rows_named(part, ids) for part in parts]
        if where is None and len(parts) == 1 and parts[0].n_rows <= SMALL_ROWS:
            tables = [all_rows(parts[0])]  # opened and hashed once, for the attempts and the episodes
        selection = select_attempts(tables or parts, edits, every=attempts == 'all')
        if not self.skip_damaged:
            check_duplicates(parts, selection.duplicates)
        for number, part in enumerate(parts):
            seen: set[Key] = set()
            event_rows = _PartEvents(self, part, where) if events else {}
            rows = None if tables is None else [tables[number]]
            for episode in read_part_episodes(
                part, event_rows, edits=edits, where=where, unblindings=unblindings, tables=rows
            ):
                if selection.keeps(number, episode.key, shown=seen) and (dropped or not edits.is_dropped(*episode.key)):
                    yield part, blinded_episode(episode, board=bool(self.board)) if is_blinded else episode

    def _is_readable(self, part: PartInfo) -> bool:
        """Whether a part and its events can be read whole; an episode without its events would be scored wrongly."""
        for folder, path in (('events', self.path / 'events' / part.events), ('episodes', part.path)):
            try:
                if folder == 'events':
                    self._events_of(part)
                else:
                    sum(1 for _ in self.recorded(part))
            except (StoreError, RecordError) as error:
                self._skip(StoreError(f'{error} ({part.n_rows} episodes)'), path)
                return False
        return True

    def recorded(self, part: PartInfo) -> Iterator[Episode]:
        """The episodes of one part as they were recorded: every attempt, no edits."""
        return read_part_episodes(part, self._events_of(part), edits=Edits({}), where=None)

    def _events_of(self, part: PartInfo, ids: Sequence[str] | None = None) -> dict[Key, Any]:
        """The events of a part's episodes, or of those with these ids."""
        if not part.events:
            return {}
        path = self.path / 'events' / part.events
        table = read_companion(path, part.logged_events)
        with naming_damage(path):
            if ids is not None:
                table = table.filter(pc.is_in(table['episode_id'], pa.array(ids, pa.string())))
            return events_by_episode(migrate(table, part.schema_version, schema=EVENT_SCHEMA, where=str(path)))

    def _recorded_with(self, episode_id: str) -> list[Episode]:
        where = {'episode_id': episode_id}
        none = Edits({})
        parts = [
            p for p in prune_parts(self.parts(), where, edits=none) if not self.skip_damaged or self._is_readable(p)
        ]
        return [e for p in parts for e in read_part_episodes(p, self._events_of(p), edits=none, where=where)]


class _PartEvents(Mapping[Key, tuple[Any, ...]]):
    """The events of a part, read when the first of its episodes asks: a part without a matching row is left alone."""

    def __init__(self, store: Store, part: PartInfo, where: Where | None) -> None:
        self._store, self._part = store, part
        named = (where or {}).get('episode_id')
        many = isinstance(named, Collection) and not isinstance(named, str)
        self._ids = None if named is None else [str(i) for i in (named if many else [named])]

    @cached_property
    def _read(self) -> dict[Key, Any]:
        return self._store._events_of(self._part, self._ids)

    def __getitem__(self, key: Key) -> tuple[Any, ...]:
        return tuple(self._read[key])

    def __iter__(self) -> Iterator[Key]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read) if self._part.events else 0


def write_trajectories(under_way: Commit, chunks: Sequence[Sequence[tuple[Key, Trajectory]]]) -> list[str]:
    """Put trajectories into the store; nobody sees them until an episodes part names them."""
    from robotrials.record.column import trajectories_to_arrow

    def write(keyed: Sequence[tuple[Key, Trajectory]]) -> str:
        table = trajectories_to_arrow([key for key, _ in keyed], [trajectory for _, trajectory in keyed])
        meta = {'schema_version': SCHEMA_VERSION}
        return under_way.add_part(
            'trajectories', lambda sink: write_table(table, sink, metadata=meta, row_group_size=TRAJECTORY_ROW_GROUP)
        )

    if len(chunks) <= 1:
        return [write(chunk) for chunk in chunks]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=WRITER_THREADS) as pool:
        return list(pool.map(write, chunks))


def write_episodes(
    root: Path, under_way: Commit, episodes: pa.Table, events: pa.Table, *, trajectories: Sequence[str] = (),
    replaces: Sequence[str] = (), index: Sequence[int] = (),
) -> PartInfo:  # fmt: skip
    """The events part and the episodes part that names its companions; `index`: row -> trajectories part, from 1."""
    version = {'schema_version': SCHEMA_VERSION}
    events_name = ''
    if events.num_rows:
        events_name = under_way.add_part('events', lambda sink: write_table(events, sink, metadata=version))
    meta = {
        **version,
        'n_events': events.num_rows,
        'events': events_name,
        'trajectories': list(trajectories),
        'replaces': list(replaces),
        **({'index': encode_index(index)} if index else {}),
    }
    name = under_way.add_part('episodes', lambda sink: write_table(episodes, sink, metadata=meta))
    return PartInfo(
        path=root / 'episodes' / name,
        n_rows=episodes.num_rows,
        schema_version=SCHEMA_VERSION,
        n_events=events.num_rows,
        events=events_name,
        trajectories=tuple(trajectories),
        replaces=tuple(replaces),
        values=part_values(episodes),
        ids=encode_hashes(id_hashes(episodes['episode_id'])),
    )


def encode_index(numbers: Sequence[int]) -> str:
    """Numbers of parts as text: a few bytes for thousands of rows, because neighbours share a part."""
    return base64.b85encode(zlib.compress(np.asarray(numbers, '<u4').tobytes())).decode()


def decode_index(text: str) -> list[int]:
    """The inverse of `encode_index`."""
    numbers: list[int] = np.frombuffer(zlib.decompress(base64.b85decode(text)), '<u4').tolist()
    return numbers


def begin_log(root: Path, trial: TrialInfo) -> str:
    """The first entry of a new store's log, which holds its whole description; the text of trial.json.

    A creation that was killed in between left the entry: then the store is the one that was begun.
    """
    begun = list(read_ledger(root).trials.values()) if is_logged(root) else []
    if begun:
        return begun[0]
    text = json.dumps(dataclasses.asdict(trial), indent=1) + '\n'
    add_entry(root, EntryKind.CREATE, body={'trial': {'store_id': trial.store_id, 'text': text}})
    return text


def check_media_name(name: str) -> str:
    """A name in media/, with forward slashes, that stays inside it."""
    if not is_inside(name):
        raise InputError(f'{name!r}: wanted the name of a file in media/, such as a/wrist.mp4')
    return name


def _key_columns(available: Sequence[str]) -> list[str]:
    return ['episode_id', 'attempt']


def read_store(path: Path | str, *, skip_damaged: bool | None = None) -> Store:
    """Open a store for reading, which writes nothing; `skip_damaged` reads what can be read (see `missing`)."""
    skips = _reading.skip_damaged if skip_damaged is None else skip_damaged
    store = dataclasses.replace(
        Store.open(path, skip_damaged=skips), is_view=True, board=_reading.board, board_key=_reading.board_key
    )
    if _reading.on_open is not None and store.path not in {s.path for s in _reading.opened}:
        _reading.on_open(store)
    _reading.opened.append(store)
    del _reading.opened[:-MOST_OPENED]
    return store


@dataclass(slots=True)
class _Reading:
    """How this process reads stores, and which it has read: for the command line, which says what they lack."""

    skip_damaged: bool = False
    board: str = ''
    board_key: str = ''
    on_open: Callable[[Store], None] | None = None
    opened: list[Store] = field(default_factory=list)


_reading = _Reading()


def read_as(
    *, skip_damaged: bool = False, board: str = '', board_key: str = '',
    on_open: Callable[[Store], None] | None = None,
) -> None:  # fmt: skip
    """How `read_store` reads from now on: leaving out what is damaged, and open trials by arm for a named board.

    board_key: of a sealed trial, its arms.json. `on_open` is told of every store before anything of it is shown: a verb
    that looks as a board logs that there.
    """
    _reading.skip_damaged, _reading.board, _reading.on_open = skip_damaged, board, on_open
    _reading.board_key = board_key
    _reading.opened.clear()


def opened_stores() -> list[Store]:
    """The stores that `read_store` opened last, each once, with all that was skipped in them."""
    stores: dict[Path, Store] = {}
    for store in _reading.opened:
        stores.setdefault(store.path, store).skipped.extend(store.skipped if store is not stores[store.path] else ())
    return list(stores.values())


def _is_foreign(path: Path) -> bool:
    """Whether a file in a folder without a trial.json was there before us; a killed creation leaves only its draft."""
    return path.name not in (*FOLDERS, LOG, PENDING, LEASES) and not path.name.startswith('.trial.json.')


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


def _forget_older(root: CachedPath) -> None:
    """Remove local copies of another store that was at this address before."""
    copy = root.local / 'trial.json'
    if copy.exists():
        try:
            same = copy.read_bytes() == bytes(root.bucket.read(f'{root.key}/trial.json'))
        except FileNotFoundError:
            same = False
        if not same:
            forget_copies(root)


def _no_folder(root: Path) -> str:
    """Why there is no store at a path that is no folder, and what to do about it."""
    if root.exists():
        return (
            f'{root}: a file; wanted the folder of a store; robotrials import {root} --to FOLDER makes one from a table'
        )
    beside = _stores_in(root.parent)
    advice = (
        near_miss(str(root), beside, most=MOST_TOLD) if beside else '`robotrials import` or `robotrials run` makes one'
    )
    what = 'no such file or folder' if root.suffix else 'no such folder'
    return f'{root}: {what}; wanted a store; {advice}'


def _stores_in(folder: Path) -> list[str]:
    return [] if isinstance(folder, CachedPath) else sorted(str(p.parent) for p in folder.glob('*/trial.json'))


def _read_trial(root: Path) -> TrialInfo:
    path = root / 'trial.json'
    if isinstance(root, CachedPath):
        _forget_older(root)
    if not root.is_dir():
        raise StoreError(_no_folder(root))
    if not inside(root, 'trial.json').exists():
        stores = ', '.join(_stores_in(root)[:MOST_TOLD])
        advice = f'stores in it: {stores}' if stores else '`robotrials import` makes one from a table'
        raise StoreError(f'{root}: no trial.json in it, so not a store; {advice}')
    try:
        values = json.loads(path.read_text(encoding='utf-8'))
        version = int(values['schema_version'])
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f'{path}: not readable as a trial description ({error})') from error
    if values.get('format') != FORMAT:
        raise StoreError(f'{path}: format is {values.get("format")!r}, wanted {FORMAT!r}')
    if version > SCHEMA_VERSION:
        raise StoreError(
            f'{path}: schema version {version}, this robotrials reads up to {SCHEMA_VERSION}; upgrade robotrials'
        )
    known = {f.name for f in dataclasses.fields(TrialInfo)}
    try:
        return TrialInfo(**{k: v for k, v in values.items() if k in known})
    except TypeError as error:
        raise StoreError(f'{path}: not a whole trial description ({error})') from error


@dataclass(frozen=True, slots=True, eq=False)
class OpenedSource:
    """Episodes to ask, and where they came from in the user's own words."""

    store: Store
    name: str
    told: str = ''  # how a file was read in a line, and a line for each thing assumed; else nothing


def is_store(path: Path | str) -> bool:
    """Whether a path is a store, or an address of one."""
    root = store_root(path)
    return isinstance(root, CachedPath) or (root / 'trial.json').exists()
