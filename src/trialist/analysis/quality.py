"""What the data are worth: balance, invalid episodes, edits, order, and which facts and signals are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trialist.analysis.arm import is_blinded
from trialist.episodes import Edit, Episode, Store, Unblinding
from trialist.episodes.select import Where
from trialist.timing.operation import scene_of, stratum_of

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


def check_quality(store: Store, episodes: Sequence[Episode], *, where: Where | None = None) -> DataQuality:
    """The quality of a store whose counted episodes are these: all, or those that match `where`."""
    valid = [e for e in episodes if e.is_valid]
    strata = tuple(sorted({stratum_of(e) for e in valid}))
    positions, p_value = _order(valid)
    openings = tuple(store.unblindings().by_trial.values())
    n_scenes, n_shared = _scenes(valid)
    n_superseded, n_dropped, edits = _uncounted(store, episodes, where)
    return DataQuality(
        arms=_arms(episodes, strata, positions), strata=strata, conditions=Counter(e.condition for e in valid),
        invalid_reasons=Counter(e.reason or 'no reason recorded' for e in episodes if not e.is_valid),
        n_superseded=n_superseded, n_dropped=n_dropped, edits=edits,
        facts=tuple(Presence(name, sum(map(has, valid)), len(valid)) for name, has in FACTS.items()),
        order_p_value=p_value, n_scenes=n_scenes, n_shared_scenes=n_shared, openings=openings,
        is_open=bool(store.trial.plan_hash) and store.trial.trial_id not in store.unblindings().by_trial,
        is_blinded=is_blinded(store), was_blinded=any(o.policies != {n: n for n in o.policies} for o in openings),
    )  # fmt: skip


def _uncounted(store: Store, episodes: Sequence[Episode], where: Where | None) -> tuple[int, int, tuple[Edit, ...]]:
    """Attempts that another one replaced, attempts that edits dropped, and the edits, of what matches."""
    edits = store.edits()
    every = tuple(edit for found in edits.by_episode.values() for edit in found)
    if where is None and store.count() == len(episodes):
        return 0, 0, every
    attempts = [e.key for e in store.episodes(where=where, attempts='all', dropped=True, events=False)]
    if where is not None:
        matching = {name for name, _ in attempts}
        every = tuple(e for e in every if e.episode_id in matching)
    n_dropped = sum(edits.is_dropped(*key) for key in attempts)
    return max(0, len(attempts) - n_dropped - len(episodes)), n_dropped, every


def _arms(episodes: Sequence[Episode], strata: Sequence[str], positions: Mapping[str, float]) -> tuple[ArmQuality, ...]:
    valid, invalid = Counter[tuple[str, str]](), Counter[str]()
    is_reference: dict[str, bool] = {}
    for episode in episodes:
        is_reference[episode.policy] = episode.is_reference
        if episode.is_valid:
            valid[episode.policy, stratum_of(episode)] += 1
        else:
            invalid[episode.policy] += 1
    arms = []
    for policy in sorted(is_reference, key=lambda name: (not is_reference[name], name)):
        cells = [valid[policy, stratum] for stratum in strata] or [0]
        arms.append(
            ArmQuality(
                policy, is_reference[policy], sum(cells), invalid[policy], sum(n > 0 for n in cells), min(cells),
                max(cells), positions.get(policy),
            )
        )  # fmt: skip
    return tuple(arms)


def _order(valid: Sequence[Episode]) -> tuple[dict[str, float], float | None]:
    """Each policy's mean place in the order of starts, and the Kruskal-Wallis p-value that all places are alike."""
    from scipy.special import chdtrc

    timed = sorted((e.started_at.timestamp(), e.policy) for e in valid if e.started_at is not None)
    if len(timed) < len(valid) or len(timed) < 2:
        return {}, None
    _, ranks, ties = np.unique([at for at, _ in timed], return_inverse=True, return_counts=True)
    if len(ties) == 1:
        return {}, None  # one time for all says nothing about their order
    shared = np.cumsum(ties) - (ties + 1) / 2  # what started together shares a place
    places: dict[str, list[float]] = {name: [] for _, name in timed}
    for place, (_, policy) in zip(shared[ranks].tolist(), timed, strict=True):
        places[policy].append(place)
    n = len(timed)
    middle = (n - 1) / 2
    statistic = sum(len(v) * (np.mean(v) - middle) ** 2 for v in places.values()) * 12 / (n * (n + 1))
    statistic /= 1 - float(np.sum(ties.astype(np.float64) ** 3 - ties)) / (float(n) ** 3 - n)
    p_value = float(chdtrc(len(places) - 1, statistic)) if len(places) > 1 else None
    return {name: float(np.mean(v)) / (n - 1) for name, v in places.items()}, p_value


def _scenes(valid: Sequence[Episode]) -> tuple[int, int]:
    met: dict[object, set[str]] = {}
    for episode in valid:
        scene = scene_of(episode)
        if scene is not None:
            met.setdefault(scene, set()).add(episode.policy)
    policies = {e.policy for e in valid}
    return len(met), sum(found == policies for found in met.values())
