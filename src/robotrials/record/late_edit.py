"""Edits that were made after a trial was closed: its outcome was known to whoever made them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.record.edit import Edit
from robotrials.record.entry import EntryKind
from robotrials.record.ledger import Ledger
from robotrials.record.log import read_log

if TYPE_CHECKING:
    from robotrials.record.episode import Episode
    from robotrials.record.store import Store


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
    return a.strip().casefold() == b.strip().casefold()
