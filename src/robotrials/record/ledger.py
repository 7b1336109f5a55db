"""What the commit log says is in a store: files that must be there, parts that count, edits, looks, closings."""

from __future__ import annotations

import dataclasses
import datetime as dt
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError, StoreError
from robotrials.record.edit import Edit, edit_from_json, read_edits
from robotrials.record.entry import Entry, EntryKind, LoggedFile
from robotrials.record.folder import check_folders
from robotrials.record.log import LOG, Log, is_logged, read_log
from robotrials.record.part import PartInfo, listed_parts, part_from_json
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.record.edit import Annotation
    from robotrials.record.episode import Episode
    from robotrials.record.log import Finding
    from robotrials.record.store import Store, TrialInfo


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
    from robotrials.record.edit import annotation_from_json
    from robotrials.record.log import Finding, FindingKind

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
            told = entry.body.get('annotations', ())
            annotations += [annotation_from_json(v, where=f'entry {name[:12]}') for v in told]
            lost.update(entry.body.get('lost', {}))
            mended.update(entry.body.get('mended', ()))
            if 'trial' in entry.body:
                trials[str(entry.body['trial']['store_id'])] = str(entry.body['trial']['text'])
            if entry.kind is EntryKind.LOOK:
                looks.append(_look(entry))
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


def _look(entry: Entry) -> Look:
    body = entry.body
    return Look(
        verb=str(body.get('verb', '')), by=entry.by, at=entry.at, options=dict(body.get('options', {})),
        seen=str(body.get('seen', '')), role=str(body.get('role', '')),
    )  # fmt: skip


# What a store lacks, told from the log and the names and sizes of its files; `verify` reads every byte.


def glance(root: Path, trial: TrialInfo) -> tuple[Finding, ...]:
    """Files that are gone or cut, entries of the log that are gone or damaged, and what repairs have set aside."""
    from robotrials.record.log import Finding, FindingKind

    ledger = read_ledger(root)
    if not ledger.is_logged:
        if trial.is_logged:
            return (Finding(FindingKind.MISSING, root / LOG, 'the commit log is gone: anything may be missing'),)
        return ()
    return (*ledger.damage, *_absent(root, ledger), *known_losses(root, ledger))


def _absent(root: Path, ledger: Ledger) -> Iterator[Finding]:
    from robotrials.record.log import Finding, FindingKind

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
    from robotrials.record.log import Finding, FindingKind

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
