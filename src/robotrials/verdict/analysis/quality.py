"""What the data are worth: balance, invalid episodes, edits, order, and which facts and signals are missing."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.timing.operation import scene_of, stratum_of
from robotrials.stats.rank import kruskal_wallis, midranks
from robotrials.verdict.analysis.arm import is_blinded

if TYPE_CHECKING:
    from robotrials.record import Edit, Episode, Store, Unblinding
    from robotrials.record.select import Where
    from robotrials.verdict.analysis.selection import Selection

# What an episode may record beside the required fields; an analysis that wants one says so where it is missing.
FACTS: Mapping[str, Callable[[Episode], bool]] = {
    'time cap': lambda e: e.time_cap_s is not None,
    'start time': lambda e: e.started_at is not None,
    'seed or instance': lambda e: e.seed is not None or e.instance is not None,
    "host's own success": lambda e: e.success is not None,
    'items': lambda e: e.items is not None,
    'timed events': lambda e: bool(e.events),
    'instruction': lambda e: bool(e.instruction),
    'operator': lambda e: bool(e.operator),
    'provenance': lambda e: bool(e.provenance_id),
}


@dataclass(frozen=True, slots=True)
class ArmQuality:
    """What there is of one policy."""

    policy: str
    is_reference: bool
    n_valid: int
    n_invalid: int
    n_strata: int
    smallest_cell: int  # valid episodes in the stratum that has fewest, of all strata of the trial
    largest_cell: int
    mean_position: float | None  # mean place in the order of starts: 0 first, 1 last; None without start times

    @property
    def invalid_share(self) -> float:
        return self.n_invalid / (self.n_valid + self.n_invalid)


@dataclass(frozen=True, slots=True)
class Presence:
    """How many valid episodes have a fact, or a signal in their trajectory."""

    name: str
    n_present: int
    n: int


@dataclass(frozen=True, slots=True)
class DataQuality:
    """The state of a store's data, before any score."""

    arms: tuple[ArmQuality, ...]
    strata: tuple[str, ...]
    conditions: Mapping[str, int]  # valid episodes under each
    invalid_reasons: Mapping[str, int]
    n_superseded: int  # attempts that another attempt of the same episode replaced
    n_dropped: int
    edits: tuple[Edit, ...]
    facts: tuple[Presence, ...]
    order_p_value: float | None  # Kruskal and Wallis: do policies differ in when they were run?
    n_scenes: int  # start states, where they are recorded
    n_shared_scenes: int  # those that every policy met
    openings: tuple[Unblinding, ...]
    is_open: bool  # a declared trial that was not closed
    is_blinded: bool  # the same, with policies under codes
    was_blinded: bool  # closed, and until then policies were under codes

    @property
    def is_balanced(self) -> bool:
        """Whether every policy has the same number of valid episodes in every stratum, and has any."""
        return bool(self.strata) and len({n for arm in self.arms for n in (arm.smallest_cell, arm.largest_cell)}) == 1


def check_quality(selection: Selection) -> DataQuality:
    """The quality of the selected episodes, and of the store that they are from."""
    episodes, store, where = selection.episodes, selection.store, selection.where
    tally = _Tally()
    for episode in episodes:
        tally.add(episode)
    strata = tuple(sorted({stratum for _, stratum in tally.valid}))
    positions, p_value = tally.order()
    openings = () if store is None else tuple(store.unblindings().by_trial.values())
    n_superseded, n_dropped, edits = (0, 0, ()) if store is None else _uncounted(store, len(episodes), where)
    is_open = (
        store is not None
        and bool(store.trial.plan_hash)
        and store.trial.trial_id not in {*store.unblindings().by_trial}
    )
    return DataQuality(
        arms=tally.arms(strata, positions), strata=strata, conditions=tally.conditions,
        invalid_reasons=tally.invalid_reasons, n_superseded=n_superseded, n_dropped=n_dropped, edits=edits,
        facts=tuple(Presence(name, tally.facts[name], tally.n_valid) for name in FACTS),
        order_p_value=p_value, n_scenes=len(tally.scenes), n_shared_scenes=tally.n_shared_scenes, openings=openings,
        is_open=is_open, is_blinded=store is not None and is_blinded(store),
        was_blinded=any(o.policies != {n: n for n in o.policies} for o in openings),
    )  # fmt: skip


def _uncounted(store: Store, n_counted: int, where: Where | None) -> tuple[int, int, tuple[Edit, ...]]:
    """Attempts that another one replaced, attempts that edits dropped, and the edits, of what matches."""
    edits = store.edits()
    if where is None and store.count() == n_counted:
        return 0, 0, tuple(edit for found in edits.by_episode.values() for edit in found)
    n_attempts, n_dropped, matching = 0, 0, set()
    for episode in store.episodes(where=where, attempts='all', dropped=True, events=False):
        n_attempts += 1
        n_dropped += edits.is_dropped(*episode.key)
        if episode.episode_id in edits.by_episode:
            matching.add(episode.episode_id)
    every = tuple(
        edit for found in edits.by_episode.values() for edit in found if where is None or edit.episode_id in matching
    )
    return max(0, n_attempts - n_dropped - n_counted), n_dropped, every


@dataclass(slots=True)
class _Tally:
    """Counts of one pass over the episodes, none of which is kept."""

    valid: Counter[tuple[str, str]] = field(default_factory=Counter)  # (policy, stratum)
    invalid: Counter[str] = field(default_factory=Counter)
    is_reference: dict[str, bool] = field(default_factory=dict)
    conditions: Counter[str] = field(default_factory=Counter)
    invalid_reasons: Counter[str] = field(default_factory=Counter)
    facts: Counter[str] = field(default_factory=Counter)
    codes: dict[str, int] = field(default_factory=dict)  # policy with a valid episode -> its number
    scenes: dict[object, int] = field(default_factory=dict)  # scene -> a bit for each policy that met it
    starts: tuple[array[float], array[int]] = field(default_factory=lambda: (array('d'), array('l')))  # (time, policy)

    @property
    def n_valid(self) -> int:
        return self.valid.total()

    @property
    def n_shared_scenes(self) -> int:
        """Scenes that every policy met."""
        everyone = (1 << len(self.codes)) - 1
        return sum(met == everyone for met in self.scenes.values())

    def add(self, episode: Episode) -> None:
        self.is_reference[episode.policy] = episode.is_reference
        if not episode.is_valid:
            self.invalid[episode.policy] += 1
            self.invalid_reasons[episode.reason or 'no reason recorded'] += 1
            return
        self.valid[episode.policy, stratum_of(episode)] += 1
        self.conditions[episode.condition] += 1
        self.facts.update(name for name, has in FACTS.items() if has(episode))
        code = self.codes.setdefault(episode.policy, len(self.codes))
        scene = scene_of(episode)
        if scene is not None:
            self.scenes[scene] = self.scenes.get(scene, 0) | 1 << code
        if episode.started_at is not None:
            self.starts[0].append(episode.started_at.timestamp())
            self.starts[1].append(code)

    def arms(self, strata: Sequence[str], positions: Mapping[str, float]) -> tuple[ArmQuality, ...]:
        arms = []
        for policy in sorted(self.is_reference, key=lambda name: (not self.is_reference[name], name)):
            cells = [self.valid[policy, stratum] for stratum in strata] or [0]
            arms.append(
                ArmQuality(
                    policy, self.is_reference[policy], sum(cells), self.invalid[policy], sum(n > 0 for n in cells),
                    min(cells), max(cells), positions.get(policy),
                )
            )  # fmt: skip
        return tuple(arms)

    def order(self) -> tuple[dict[str, float], float | None]:
        """Each policy's mean place in the order of starts, and the Kruskal-Wallis p-value that all places are alike."""
        times_s, codes = np.array(self.starts[0]), np.array(self.starts[1])
        if len(times_s) < self.n_valid or len(np.unique(times_s)) < 2:
            return {}, None  # one time for all says nothing about their order
        names = list(self.codes)
        order = np.lexsort((np.argsort(np.argsort(names))[codes], times_s))
        ranks = midranks(times_s) - 1  # what started together shares a place
        found = dict.fromkeys(codes[order].tolist())
        places = {names[code]: ranks[order][codes[order] == code] for code in found}
        p_value = kruskal_wallis(list(places.values())) if len(places) > 1 else None
        return {name: float(np.mean(v)) / (len(times_s) - 1) for name, v in places.items()}, p_value
