"""One policy of one store, ready to be set against another: which policy is meant, and whether its name is open."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robotrials.errors import InputError, StoreError, UnknownName
from robotrials.verdict.analysis.selection import asked_for
from robotrials.verdict.planning.analysis_plan import declared_analysis

if TYPE_CHECKING:
    from robotrials.record import Episode, Store
    from robotrials.record.select import Where
    from robotrials.verdict.planning.analysis_plan import DeclaredAnalysis


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """A policy's counted episodes in a store, INVALID ones included."""

    store: Store
    policy: str
    episodes: tuple[Episode, ...]

    @property
    def valid(self) -> tuple[Episode, ...]:
        return tuple(e for e in self.episodes if e.is_valid)

    @property
    def n_invalid(self) -> int:
        return len(self.episodes) - len(self.valid)


def read_arms(store: Store, *, where: Where | None = None) -> dict[str, Arm]:
    """Policy -> Arm, by name; a trial that is still blinded is refused."""
    check_open(store)
    groups: dict[str, list[Episode]] = {}
    for episode in store.episodes(where=where or None):
        groups.setdefault(episode.policy, []).append(episode)
    if not groups:
        raise InputError(f'{store.path}: no episode {asked_for(where)}')
    return {name: Arm(store, name, tuple(groups[name])) for name in sorted(groups)}


def declared_for(store: Store, other: Store) -> DeclaredAnalysis:
    """The analysis that two stores are compared under: declared for the first, else the other, else the defaults."""
    first = declared_analysis(store.trial.plan, store.path)
    if first.is_declared:
        return first
    second = declared_analysis(other.trial.plan, other.path)
    return second if second.is_declared else first


def check_open(store: Store) -> None:
    """Raise StoreError for a trial whose arms still go by codes: a verdict on them would unblind it."""
    if is_blinded(store):
        raise StoreError(
            f'{store.path}: this trial is still blinded, and comparing its arms would open it; end it first with '
            '`robotrials close`'
        )


def is_blinded(store: Store) -> bool:
    """Whether the store is of a trial whose arms still go by codes."""
    if not store.trial.plan or store.trial.trial_id in store.unblindings().by_trial:
        return False
    try:
        return bool(json.loads(store.trial.plan).get('blinding', {}).get('enabled', False))
    except (json.JSONDecodeError, AttributeError):
        return False  # a plan that is not the runner's says nothing about codes


class AmbiguousArmError(InputError):
    """Several policies could be meant, and none was named."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


def choose_arm(arms: dict[str, Arm], policy: str | None, *, what: str, like: str | None = None) -> Arm:
    """The named arm; else the one called `like`; else the only one that is no reference. `what` it is for is named."""
    if policy is not None:
        if policy not in arms:
            raise UnknownName('policy', policy, arms)
        return arms[policy]
    if like is not None and like in arms:
        return arms[like]
    tested = [a for a in arms.values() if not _is_reference(a.episodes)]
    candidates = tested or list(arms.values())
    if len(candidates) == 1:
        return candidates[0]
    path = next(iter(arms.values())).store.path
    names = ', '.join(a.policy for a in candidates)
    raise AmbiguousArmError(
        what, f'{path}: wanted one policy as the {what}, found {len(candidates)} ({names}); name one'
    )


def _is_reference(episodes: Iterable[Episode]) -> bool:
    return all(e.is_reference for e in episodes)


def check_distinct(new: Arm, reference: Arm) -> None:
    """Refuse an arm that is set against itself."""
    if new.store.trial.store_id == reference.store.trial.store_id and new.policy == reference.policy:
        raise InputError(
            f'{new.store.path} and {reference.store.path} are the same store, and {new.policy!r} cannot be compared '
            'with itself; give the store of the other version, or another policy'
        )
