"""A whole trial in one value: `build_report` reads a store once and asks every scoring room what it can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trialist.analysis.arm import selection_of
from trialist.analysis.card import KnownPolicy, known_policies
from trialist.analysis.option import Absent, ReportOptions
from trialist.analysis.quality import DataQuality, Presence, check_quality
from trialist.analysis.ranking import Ranking, rank_policies
from trialist.analysis.robustness import RobustnessPart, robustness_part
from trialist.analysis.safety import SafetyPart, pass_trajectories, safety_part
from trialist.episodes import Episode, Provenance, Store, TrialInfo
from trialist.episodes.select import Where
from trialist.errors import NotEstimable


@dataclass(frozen=True, slots=True, eq=False)
class TrialReport:
    """Everything that is known of a trial. A part that the store can't give is `Absent`, with the reason."""

    source: str  # the store's folder
    trial: TrialInfo
    options: ReportOptions
    episodes: tuple[Episode, ...]
    quality: DataQuality
    ranking: Ranking | Absent
    safety: SafetyPart | Absent
    robustness: RobustnessPart | Absent
    n_trajectories: int
    signals: tuple[Presence, ...]  # over the episodes with a trajectory
    provenance: tuple[tuple[Provenance, int], ...]  # each origin, and how many episodes it has
    known_policies: Mapping[str, KnownPolicy]
    every_policy: tuple[str, ...]  # of the whole store, whichever part of it is reported: they fix the colours
    marked_reference: str | None  # the policy that the whole store marks as its reference
    selection: Mapping[str, tuple[str, ...]]  # what of the store was asked for, by field; empty for all of it


def build_report(store: Store, options: ReportOptions | None = None, *, where: Where | None = None) -> TrialReport:
    """The report of a store, or of the episodes of it that match `where`."""
    chosen = options or ReportOptions()
    episodes = tuple(store.episodes(where=where))
    if not episodes:
        if where:
            asked = ', '.join(f'{name}={value}' for name, values in selection_of(where).items() for value in values)
            raise NotEstimable(f'{store.path}: no episode matches {asked}; see what there is with `trialist store ls`')
        raise NotEstimable(f'{store.path}: no episode in this store; run or import some first')
    streams = np.random.default_rng(chosen.seed).spawn(3)
    taken, condition = ranked_episodes(episodes, chosen.baseline)
    ranked = {e.key for e in taken}
    passed = pass_trajectories(store, episodes, chosen, where=where)
    quality = check_quality(store, episodes, where=where)
    everyone = episodes if where is None else tuple(store.episodes(events=False))
    origins = _origins(store, episodes)
    return TrialReport(
        source=str(store.path), trial=store.trial, options=chosen, episodes=episodes,
        quality=quality,
        ranking=rank_policies(taken, chosen, rng=streams[0], condition=condition),
        safety=safety_part([s for s in passed.safety if (s.episode_id, s.attempt) in ranked], chosen, rng=streams[1]),
        robustness=robustness_part(episodes, chosen, rng=streams[2], swaps=passed.swaps, starts=passed.starts),
        n_trajectories=passed.n_trajectories,
        signals=tuple(Presence(name, n, passed.n_trajectories) for name, n in sorted(passed.signals.items())),
        every_policy=tuple(sorted({e.policy for e in everyone})),
        marked_reference=next((e.policy for e in everyone if e.is_reference), None),
        provenance=origins, known_policies=known_policies([o for o, _ in origins], quality.openings),
        selection=selection_of(where),
    )  # fmt: skip


def ranked_episodes(episodes: Sequence[Episode], baseline: str) -> tuple[list[Episode], str]:
    """The episodes that policies are ranked by: those of the baseline condition where there is one.

    The second value names the condition; it is '' where several are taken together because none is the baseline.
    """
    conditions = {e.condition for e in episodes}
    if len(conditions) == 1:
        return list(episodes), conditions.pop()
    if baseline in conditions:
        return [e for e in episodes if e.condition == baseline], baseline
    return list(episodes), ''


def _origins(store: Store, episodes: Sequence[Episode]) -> tuple[tuple[Provenance, int], ...]:
    counts: dict[str, int] = {}
    for episode in episodes:
        if episode.provenance_id:
            counts[episode.provenance_id] = counts.get(episode.provenance_id, 0) + 1
    return tuple((store.provenance(name), n) for name, n in counts.items())
