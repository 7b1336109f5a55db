"""What the log of a store adds up to: files that must be there, parts that count, edits, looks and closings.

Edits are entries of the commit log, and are applied in its order: an edit made in the knowledge of another comes after
it; of two that were made side by side, the one with the later time (then the larger id) comes later. The later one
wins, field by field. An edit that would break the record's rules where it stands is set aside, and named by `verify`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError, RecordError, StoreError, UnknownName
from robotrials.record.episode import Episode, Event, EventSource, enum_member
from robotrials.record.folder import check_folders
from robotrials.record.log import LOG, Finding, FindingKind, Log, is_logged, read_log
from robotrials.record.part import Entry, EntryKind, LoggedFile, PartInfo, listed_parts, part_from_json
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.record.store import Store, TrialInfo


IDENTITY_FIELDS = ('trial_id', 'episode_id', 'attempt', 'events')
REQUIRED_FIELDS = ('policy', 'task', 'outcome', 'duration_s', 'is_reference', 'condition', 'repeat')


class EditOperation(enum.StrEnum):
    SET = 'set'
    DROP = 'drop'
    UNDROP = 'undrop'


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Set a field of an episode, drop the episode from every analysis, or take the drop back."""

    episode_id: str
    operation: EditOperation
    by: str
    why: str
    at: str
    attempt: int | None = None  # None: every attempt (in the log of older versions only)
    field: str = ''
    value: Any = None
    approved_by: str = ''  # a second person, without whom nothing is edited once the trial is closed

    def concerns(self, episode_id: str, attempt: int) -> bool:
        return self.episode_id == episode_id and self.attempt in (None, attempt)

    def sets(self, episode_id: str, attempt: int) -> bool:
        return self.operation is EditOperation.SET and self.concerns(episode_id, attempt)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the commit log."""
        fields = {k: v for k, v in asdict(self).items() if k == 'value' or v not in (None, '')}
        try:
            text = json.dumps(fields, ensure_ascii=False, default=_plain, allow_nan=False)
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f'the edit {fields} holds half of a character; wanted whole Unicode text') from error
        except ValueError as error:
            raise InputError(f'the edit {fields} holds a number that is none ({error})') from error
        return dict(json.loads(text))


@dataclass(frozen=True, slots=True)
class Edits:
    """All edits of a store, in order, found by episode."""

    by_episode: Mapping[str, tuple[Edit, ...]]

    @classmethod
    def of(cls, edits: Iterable[Edit]) -> Edits:
        grouped: dict[str, list[Edit]] = {}
        for edit in edits:
            grouped.setdefault(edit.episode_id, []).append(edit)
        return cls({key: tuple(value) for key, value in grouped.items()})

    def apply(self, episode: Episode) -> Episode:
        """The episode as edited; drops do not change it, and what can't stand with the rest is left out."""
        if episode.episode_id not in self.by_episode:
            return episode
        return self._applied(episode)[0]

    def set_aside(self, episode: Episode) -> list[tuple[Edit, Exception]]:
        """The edits of an episode that can't stand with those before them, and why."""
        return self._applied(episode)[1]

    def _applied(self, episode: Episode) -> tuple[Episode, list[tuple[Edit, Exception]]]:
        settings = [e for e in self.by_episode.get(episode.episode_id, ()) if e.sets(*episode.key)]
        if not settings:
            return episode, []
        try:
            return episode.replace(**{e.field: e.value for e in settings}), []
        except (RecordError, TypeError, ValueError, AttributeError):
            pass
        aside: list[tuple[Edit, Exception]] = []
        for edit in settings:
            try:
                episode = episode.replace(**{edit.field: edit.value})
            except (RecordError, TypeError, ValueError, AttributeError) as error:
                aside.append((edit, error))
        return episode, aside

    def sets(self, episode_id: str, attempt: int, field: str) -> bool:
        """Whether an edit sets this field of an attempt."""
        edits = self.by_episode.get(episode_id, ())
        return any(e.field == field and e.sets(episode_id, attempt) for e in edits)

    def is_dropped(self, episode_id: str, attempt: int) -> bool:
        dropped = False
        for edit in self.by_episode.get(episode_id, ()):
            if edit.concerns(episode_id, attempt) and edit.operation is not EditOperation.SET:
                dropped = edit.operation is EditOperation.DROP
        return dropped


def check_edit(edit: Edit, episode: Episode, *, before: Sequence[Edit] = ()) -> None:
    """Refuse an edit that names no such field, touches the identity, or leaves an episode that breaks the rules.

    `episode` is as it was recorded, `before` the edits already made.
    """
    if not edit.by.strip() or not edit.why.strip():
        raise InputError('an edit says who and why: both `by` and `why` must be given')
    if edit.operation is not EditOperation.SET:
        if edit.field or edit.value is not None:
            raise InputError(f'{edit.operation} takes no field, found {edit.field!r}; `set` changes a field')
        return
    known = sorted(set(Episode.__dataclass_fields__) - set(IDENTITY_FIELDS))
    if edit.field in IDENTITY_FIELDS:
        raise InputError(f'{edit.field} is part of the identity and cannot be edited; drop the episode instead')
    if edit.field not in known:
        raise UnknownName('field of an episode', edit.field, known)
    if edit.value in (None, '') and edit.field in REQUIRED_FIELDS:
        raise InputError(f'{edit.episode_id}: {edit.field} cannot be taken away; wanted a value')
    aside = [(e, error) for e, error in Edits.of([*before, edit]).set_aside(episode) if e is edit]
    if aside:
        raise InputError(f'{edit.episode_id}: setting {edit.field} to {edit.value!r}: {aside[0][1]}') from aside[0][1]


def _plain(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise InputError(f'{value!r} cannot be written to the log of edits')


def read_edits(path: Path) -> list[Edit]:
    """The edits of an older version's log; a last line without its newline was never acknowledged and is left out."""
    return [edit for edit in listed_edits(path) if isinstance(edit, Edit)]


def listed_edits(path: Path) -> list[Edit | StoreError]:
    """Every line of an older version's log, as an edit or as what is wrong with it: a bad line costs only itself."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b'\n')[:-1]
    return [_parsed(line, where=f'{path} line {number}') for number, line in enumerate(lines, start=1)]


def _parsed(line: bytes, *, where: str) -> Edit | StoreError:
    try:
        return edit_from_json(json.loads(line.decode('utf-8')), where=where)
    except StoreError as error:
        return error
    except (ValueError, RecursionError) as error:
        return StoreError(f'{where}: not an edit ({error}); wanted one JSON object a line')


def edit_from_json(values: Mapping[str, Any], *, where: str) -> Edit:
    """The inverse of `Edit.as_json`."""
    try:
        given = dict(values)
        operation = enum_member(EditOperation, given.pop('operation'), 'operation')
        if given.get('field') == 'started_at' and given.get('value') is not None:
            given['value'] = dt.datetime.fromisoformat(given['value'])
        if not all(
            isinstance(given.get(name, ''), str) for name in ('episode_id', 'field', 'by', 'why', 'at', 'approved_by')
        ):
            raise TypeError('ids, fields, names, reasons and times must be text')
        return Edit(operation=operation, **given)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f'{where}: not an edit ({error})') from error


def now() -> str:
    """The time of an edit: UTC, to the second."""
    return dt.datetime.now(dt.UTC).isoformat(timespec='seconds')


# Annotations: what a detector, a reviewer or a sensor says happened in an episode, laid over the recording.
# They are entries of the commit log. None replaces another or the recording: a reader chooses whom to believe
# (`robotrials.measure.annotate`).

MOST_EVENTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One account of one attempt. `count` is how many items it says were placed; `by` is who, or which tool."""

    episode_id: str
    attempt: int
    source: EventSource
    by: str
    events: tuple[Event, ...] = ()
    count: int | None = None
    note: str = ''
    details: Mapping[str, Any] = field(default_factory=dict)  # plain values: thresholds, candidates
    at: str = ''  # set when it is logged

    def __post_init__(self) -> None:
        object.__setattr__(self, 'source', enum_member(EventSource, self.source, 'source'))
        if not str(self.by).strip():
            raise InputError('an annotation wants the name of whoever made it (by)')
        for name in ('by', 'note'):
            value: object = getattr(self, name)
            if not isinstance(value, str) or value != _encodable(value):
                raise InputError(f'{name} is {value!r:.60}, wanted text that can be written as UTF-8')
        if len(self.events) > MOST_EVENTS:
            raise InputError(f'an annotation has {len(self.events)} events, wanted at most {MOST_EVENTS}')
        if self.count is not None and (type(self.count) is not int or self.count < 0):
            raise InputError(f'count is {self.count!r}, wanted a whole number from 0 on')
        for event in self.events:
            if event.source is not self.source:
                raise InputError(f'an event of source {event.source} in an annotation of source {self.source}')
        ordered = tuple(sorted(self.events, key=lambda e: e.t_s))
        object.__setattr__(self, 'events', ordered)

    @property
    def key(self) -> tuple[str, int]:
        return (self.episode_id, self.attempt)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the commit log."""
        return {
            'episode_id': self.episode_id, 'attempt': self.attempt, 'source': self.source.value, 'by': self.by,
            'at': self.at, 'count': self.count, 'note': self.note, 'details': dict(self.details),
            'events': [{'t_s': e.t_s, 'kind': e.kind.value, 'count': e.count, 'name': e.name} for e in self.events],
        }  # fmt: skip


def annotation_from_json(values: Any, *, where: str) -> Annotation:
    """The annotation of an entry's body; what is not one is named."""
    try:
        source = EventSource(values['source'])
        events = tuple(
            Event(float(e['t_s']), e['kind'], source, int(e.get('count', 1)), str(e.get('name', '')))
            for e in values['events']
        )
        count = values.get('count')
        return Annotation(
            episode_id=str(values['episode_id']), attempt=_whole(values['attempt']), source=source,
            by=_encodable(values['by']), at=str(values.get('at', '')), count=count, events=events,
            note=_encodable(values.get('note', '')), details=dict(values.get('details', {})),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecordError) as error:
        raise StoreError(f'{where}: an annotation cannot be read ({error})') from error


def _encodable(value: object) -> str:
    return str(value).encode('utf-8', 'replace').decode()


def _whole(value: object) -> int:
    if type(value) is not int:
        raise InputError(f'{value!r:.60} where a whole number was wanted')
    return value


def check_within(annotation: Annotation, duration_s: float | None) -> None:
    """Refuse events after the end of the episode."""
    end_s = math.inf if duration_s is None else duration_s
    late = next((e for e in annotation.events if e.t_s > end_s + 1e-6), None)
    if late is not None:
        raise InputError(f'{annotation.episode_id}: a mark at {late.t_s:g} s, and the episode ended at {end_s:g} s')


EDITS = 'edits.jsonl'  # of older versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Somebody looked at results: which verb, when, with which options, and what was seen."""

    verb: str
    by: str
    at: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seen: str = ''
    role: str = ''  # as whom: the board, or nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The sum of all entries. Without a log, what lies in the folders."""

    is_logged: bool
    parts: tuple[PartInfo, ...]  # that count, oldest first
    files: Mapping[str, LoggedFile] = field(default_factory=dict)  # every file that was ever logged
    retired: frozenset[str] = frozenset()  # of these, what a compaction has replaced
    lost: Mapping[str, str] = field(default_factory=dict)  # file -> what a repair said of it
    has_losses: bool = False  # a repair has set something aside, whether or not it has come back since
    mended: frozenset[str] = frozenset()  # log entries that a repair knows to be lost
    edits: tuple[Edit, ...] = ()
    edit_entries: tuple[str, ...] = ()  # the entry that each edit is from
    annotations: tuple[Annotation, ...] = ()
    looks: tuple[Look, ...] = ()
    closings: tuple[Entry, ...] = ()
    entries: tuple[tuple[str, Entry], ...] = ()  # in order
    trials: Mapping[str, str] = field(default_factory=dict)  # store id -> trial.json as it was made
    damage: tuple[Finding, ...] = ()  # of the log itself

    def file(self, name: str) -> LoggedFile | None:
        return self.files.get(name)

    def wanted(self) -> set[str]:
        """The files that must be there."""
        return self.files.keys() - self.retired - self.lost.keys()

    def retired_before(self, when: dt.datetime) -> set[str]:
        """What a compaction replaced before `when`, by the time of its entry, and nothing newer names."""
        rows = [(entry.at, part) for _, entry in self.entries for part in entry.body.get('parts', ())]
        old = {
            name for at, part in rows if dt.datetime.fromisoformat(at) < when for name in part.get('replaces', ())
        }  # fmt: skip
        named: dict[bool, set[str]] = {True: set(), False: set()}
        for _, part in rows:
            companions = [f'trajectories/{name}' for name in part.get('trajectories', ())]
            companions += [f'events/{part["events"]}'] if part.get('events') else []
            named[part['name'] in old].update(companions)
        return ({f'episodes/{name}' for name in old} | (named[True] - named[False])) & self.retired


def read_ledger(root: Path, *, fresh: bool = False) -> Ledger:
    """The ledger of a store as its log stands."""
    check_folders(root)
    if not is_logged(root):
        return _unlogged(root)
    log = read_log(root, fresh=fresh)
    with log.guard:
        ledger: Ledger | None = log.state
        if ledger is not None and log.added:
            ledger = _extended(root, ledger, log.added)
        if ledger is None:
            ledger = _summed(root, log)
        log.added.clear()
        # Whether something lost has come back shows in the folder, not in the log.
        log.state = None if ledger.has_losses else ledger
    return ledger


def _extended(root: Path, ledger: Ledger, added: Sequence[tuple[str, Entry]]) -> Ledger | None:
    """The ledger with entries that follow all others, where they only add parts: else None, and all are summed anew."""
    if any(entry.kind is not EntryKind.APPEND or entry.body.keys() - {'parts'} for _, entry in added):
        return None
    files, parts = dict(ledger.files), list(ledger.parts)
    for _, entry in added:
        own = {file.name: file for file in entry.files}
        files.update(own)
        parts += [part_from_json(root, values, own) for values in entry.body.get('parts', ())]
    parts.sort(key=lambda part: part.path.name)
    return dataclasses.replace(ledger, parts=tuple(parts), files=files, entries=(*ledger.entries, *added))


def _place(root: Path, log: Log, name: str, entry: Entry) -> Path:
    """Where an entry lies that cannot be read: a repair sets that file aside, and only accounts can be spared."""
    alone = (file for file, ids in log.sources.items() if ids == (name,) and entry.kind is EntryKind.ANNOTATION)
    return root / LOG / next(alone, '')


def _unlogged(root: Path) -> Ledger:
    infos = listed_parts(root)
    replaced = {name for info in infos for name in info.replaces}
    parts = tuple(info for info in infos if info.path.name not in replaced)
    return Ledger(is_logged=False, parts=parts, edits=tuple(read_edits(root / EDITS)))


def _summed(root: Path, log: Log) -> Ledger:
    order = log.ordered()
    files = {file.name: file for _, entry in order for file in entry.files}
    parts: dict[str, PartInfo] = {}
    edits: list[Edit] = []
    edit_entries: list[str] = []
    annotations: list[Annotation] = []
    lost: dict[str, str] = {}
    mended: set[str] = set()
    trials: dict[str, str] = {}  # of this store and of those merged into it, as they were created
    looks: list[Look] = []
    damage = list(log.damage)
    for name, entry in order:
        try:
            for values in entry.body.get('parts', ()):
                parts[values['name']] = part_from_json(root, values, files)
            edits += [edit_from_json(v, where=f'entry {name[:12]}') for v in entry.body.get('edits', ())]
            edit_entries += [name] * (len(edits) - len(edit_entries))
            listed = entry.body.get('annotations', ())
            annotations += [annotation_from_json(v, where=f'entry {name[:12]}') for v in listed]
            lost.update(entry.body.get('lost', {}))
            mended.update(entry.body.get('mended', ()))
            if 'trial' in entry.body:
                trials[str(entry.body['trial']['store_id'])] = str(entry.body['trial']['text'])
            if entry.kind is EntryKind.LOOK:
                body = entry.body
                looks.append(
                    Look(
                        verb=str(body.get('verb', '')), by=entry.by, at=entry.at, options=dict(body.get('options', {})),
                        seen=str(body.get('seen', '')), role=str(body.get('role', '')),
                    )
                )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError, StoreError) as error:
            damage.append(
                Finding(
                    FindingKind.DAMAGED, _place(root, log, name, entry), f'entry {name[:12]} ({entry.kind}): {error}'
                )
            )
    for parent, children in sorted(log.dangling().items()):
        if parent not in mended:
            detail = f'entry {parent[:12]} of the log is gone; entry {children[0][:12]} names it'
            damage.append(Finding(FindingKind.MISSING, root / LOG, detail))
    gone_still = {name: why for name, why in lost.items() if not (root / name).exists()}
    replaced = {name for part in parts.values() for name in part.replaces}
    live = [
        _without_lost(part, gone_still)
        for name, part in sorted(parts.items())
        if name not in replaced and not _is_lost(part, gone_still)
    ]
    kept = {n for p in parts.values() if p.path.name not in replaced for n in _companions(p)}
    gone = {n for p in parts.values() if p.path.name in replaced for n in _companions(p)} - kept
    return Ledger(
        is_logged=True,
        parts=tuple(live),
        files=files,
        retired=frozenset({f'episodes/{name}' for name in replaced} | gone),
        lost={name: why for name, why in lost.items() if name in gone_still},
        has_losses=bool(lost),
        mended=frozenset(mended),
        edits=tuple(edits),
        edit_entries=tuple(edit_entries),
        annotations=tuple(annotations),
        looks=tuple(looks),
        closings=tuple(entry for _, entry in order if entry.kind is EntryKind.CLOSE),
        entries=tuple(order),
        trials=trials,
        damage=tuple(damage),
    )


def _companions(part: PartInfo) -> list[str]:
    events = [f'events/{part.events}'] if part.events else []
    return [*events, *(f'trajectories/{name}' for name in part.trajectories)]


def _is_lost(part: PartInfo, lost: Mapping[str, str]) -> bool:
    """An episode without its events would be scored as if nothing had happened in it: it is lost with them."""
    return f'episodes/{part.path.name}' in lost or f'events/{part.events}' in lost


def _without_lost(part: PartInfo, lost: Mapping[str, str]) -> PartInfo:
    if not lost:
        return part
    kept = tuple(name for name in part.trajectories if f'trajectories/{name}' not in lost)
    return dataclasses.replace(part, trajectories=kept)


# What a store lacks, told from the log and the names and sizes of its files; `verify` reads every byte.


def glance(root: Path, trial: TrialInfo) -> tuple[Finding, ...]:
    """Files that are gone or cut, entries of the log that are gone or damaged, and what repairs have set aside."""
    ledger = read_ledger(root)
    if not ledger.is_logged:
        if trial.is_logged:
            return (Finding(FindingKind.MISSING, root / LOG, 'the commit log is gone: anything may be missing'),)
        return ()
    return (*ledger.damage, *_absent(root, ledger), *known_losses(root, ledger))


def _absent(root: Path, ledger: Ledger) -> Iterator[Finding]:
    for name in sorted(ledger.wanted()):
        path = root / name
        try:
            n_bytes = path.stat().st_size
        except OSError:
            yield Finding(FindingKind.MISSING, path, what_it_held(ledger, name))
            continue
        if n_bytes != ledger.files[name].n_bytes:
            held = what_it_held(ledger, name)
            yield Finding(FindingKind.DAMAGED, path, f'{n_bytes} bytes of {ledger.files[name].n_bytes}; {held}')


def known_losses(root: Path, ledger: Ledger) -> Iterator[Finding]:
    """What repairs have set aside, as they said it."""
    for name, detail in sorted(ledger.lost.items()):
        yield Finding(FindingKind.LOST, root / name, detail)


def what_it_held(ledger: Ledger, name: str) -> str:
    """What the log knows of a file, for whoever has to do without it."""
    folder, _, file = name.partition('/')
    for part in ledger.parts:
        if folder == 'episodes' and part.path.name == file:
            return f'it held {part.n_rows} episodes'
        if folder == 'events' and part.events == file:
            return f'it held the {part.n_events} events of {part.n_rows} episodes, which are lost with them'
        if folder == 'trajectories' and file in part.trajectories:
            return f'it held trajectories of episodes in {part.path.name}'
    return 'the log names it'


# Edits that were made after a trial was closed: its outcome was known to whoever made them.


def late_places(store: Store, ledger: Ledger) -> frozenset[int]:
    """Which edits of the ledger, by number, the closing of their episode's trial does not know of.

    What counts is whether the closing names the edit among the entries before it, not what its time says: a clock can
    be set. So an edit of a copy that was merged in afterwards is late too.
    """
    if not ledger.edits or not ledger.closings:
        return frozenset()
    before: dict[str, set[str]] = {}  # trial -> entries that its first closing knows of
    log = read_log(store.path)
    for name, entry in ledger.entries:
        if entry.kind is EntryKind.CLOSE:
            before.setdefault(str(entry.body['unblinding']['trial_id']), log.ancestors(name))
    trials = _trials(store, {edit.episode_id for edit in ledger.edits})
    late = set()
    for number, (edit, entry_name) in enumerate(zip(ledger.edits, ledger.edit_entries, strict=True)):
        closings = [before[t] for t in (store.trial.trial_id, trials.get(edit.episode_id, '')) if t in before]
        if any(entry_name not in known for known in closings):
            late.add(number)
    return frozenset(late)


def _trials(store: Store, ids: set[str]) -> dict[str, str]:
    """The trial of each episode."""
    plain = dataclasses.replace(store, is_view=False, at_closing=False)
    rows = plain.episodes(where={'episode_id': sorted(ids)}, attempts='all', dropped=True, events=False)
    return {episode.episode_id: episode.trial_id for episode in rows}


def check_approved(store: Store, episode: Episode, edit: Edit) -> None:
    """Once a trial is closed, an edit needs somebody who approves it beside whoever makes it."""
    closed = store.unblindings().by_trial
    closing = closed.get(episode.trial_id) or closed.get(store.trial.trial_id)
    if closing is None:
        return
    if _same(edit.approved_by, ''):
        raise InputError(
            f'{store.path}: the trial was closed by {closing.by} at {closing.at}; an edit after closing needs a second '
            'name, of whoever approves it (--approved-by), and is shown with every number from then on'
        )
    if _same(edit.approved_by, edit.by):
        raise InputError(f'{edit.by} cannot approve an edit of {edit.by}; wanted a second person')


def _same(a: str, b: str) -> bool:
    """Whether two names read the same: case, width, spaces and what cannot be seen make no second person."""
    plain = [''.join(c for c in unicodedata.normalize('NFKC', name) if c.isprintable()) for name in (a, b)]
    return ' '.join(plain[0].casefold().split()) == ' '.join(plain[1].casefold().split())
