"""What was edited after a trial was closed, and what the numbers were before."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.verdict.analysis.selection import Selection


@dataclass(frozen=True, slots=True)
class Tally:
    """What a policy came to: episodes that are valid, those that succeeded, and how long those took together."""

    n: int
    n_success: int
    success_s: float

    @property
    def words(self) -> str:
        mean = f', {self.success_s / self.n_success:.1f} s on average' if self.n_success and self.success_s else ''
        return f'{self.n_success} of {self.n} succeeded{mean}'


@dataclass(frozen=True, slots=True)
class AfterClosing:
    """Edits after closing, and what each policy that they changed came to, at the closing and now."""

    editors: tuple[str, ...]  # 'ana, approved by kim' for every edit
    changes: dict[str, tuple[Tally, Tally]]

    @property
    def sentence(self) -> str:
        """In words; empty where nobody has edited anything since."""
        if not self.editors:
            return ''
        n = len(self.editors)
        who = '; '.join(f'{name} ({count})' for name, count in sorted(Counter(self.editors).items()))
        told = f'POST-CLOSING: {n} edit{"" if n == 1 else "s"} after the trial was closed: {who}.'
        if not self.changes:
            return f'{told} No success and no time of one changed.'
        moved = [f'{policy}: {a.words} at the closing, {b.words} now' for policy, (a, b) in self.changes.items()]
        return f'{told} {"; ".join(moved)}.'


def after_closing(selection: Selection) -> AfterClosing:
    """The edits of a selection's store that came after the closing, and what they changed in the selection."""
    store = selection.store
    late = () if store is None else store.late_edits()
    if store is None or not late:
        return AfterClosing((), {})
    then = _tallies(dataclasses.replace(store, at_closing=True).episodes(where=selection.where, events=False))
    now = _tallies(store.episodes(where=selection.where, events=False))
    none = Tally(0, 0, 0.0)
    policies = sorted({p for p in (*then, *now) if then.get(p, none) != now.get(p, none)})
    editors = tuple(f'{edit.by}, approved by {edit.approved_by or "nobody"}' for edit in late)
    return AfterClosing(editors, {p: (then.get(p, none), now.get(p, none)) for p in policies})


def _tallies(episodes: Iterable[Episode]) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for episode in episodes:
        if episode.is_valid:
            held = tallies.get(episode.policy, Tally(0, 0, 0.0))
            is_success = episode.is_success
            seconds = (episode.duration_s or 0.0) if is_success else 0.0
            tallies[episode.policy] = Tally(held.n + 1, held.n_success + is_success, held.success_s + seconds)
    return tallies
