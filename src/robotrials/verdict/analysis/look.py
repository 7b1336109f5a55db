"""Looks at an open trial: how many there were, and whether a rule declared in the plan allows acting on them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robotrials.record import Store
    from robotrials.verdict.analysis.selection import Selection


@dataclass(frozen=True, slots=True)
class InterimLooks:
    """What is on record of looks at results before closing."""

    n: int
    is_open: bool  # this analysis is such a look
    rule: str  # the declared stopping rule; empty where none allows stopping by results

    @property
    def sentence(self) -> str:
        """In words; empty where nobody looked and the trial is closed."""
        if not self.n and not self.is_open:
            return ''
        allowed = (
            f'the declared rule ({self.rule}) allows stopping by `robotrials watch`, and by nothing else'
            if self.rule
            else 'no declared rule allows stopping by results'
        )
        counted = f'{self.n} interim look{"" if self.n == 1 else "s"} on record'
        told = f'The trial is open, so this is an interim look; {counted}' if self.is_open else counted.capitalize()
        return f'{told}; {allowed}.'


def interim_looks(selection: Selection) -> InterimLooks:
    """The looks of the trial that the episodes are from."""
    store = selection.store
    if store is None:
        return InterimLooks(0, False, '')
    return InterimLooks(len(store.looks()), is_open_trial(store), _rule(store.trial.plan))


def is_open_trial(store: Store) -> bool:
    """Whether a look at this store is an interim one: it is of a declared trial that was not closed."""
    return bool(store.trial.plan_hash) and store.trial.trial_id not in store.unblindings().by_trial


def _rule(plan: str) -> str:
    try:
        rule = json.loads(plan).get('stopping', {}).get('rule', '') if plan else ''
    except (json.JSONDecodeError, AttributeError):
        return ''
    return '' if rule == 'none' else str(rule)
