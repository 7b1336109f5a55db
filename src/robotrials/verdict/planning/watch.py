"""Watching a trial: success or time-to-success of every policy, compared while episodes come in."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from robotrials.errors import InputError
from robotrials.measure.timing.curve import check_tau
from robotrials.measure.timing.operation import Unit, scene_of, stratum_of, unit_of
from robotrials.measure.timing.unit import tau_of
from robotrials.record import Episode, EventKind, Outcome
from robotrials.verdict.planning.arms import SequentialArms, sequential_arms
from robotrials.verdict.planning.promptness import promptness
from robotrials.verdict.planning.repeat import unit_scores


class WatchedScore(enum.StrEnum):
    SUCCESS = 'success'  # the host's own predicate, or the outcome where there is none
    PROMPTNESS = 'promptness'  # 1 - min(T, tau) / tau, mean over the episode's items


@dataclass(frozen=True, slots=True)
class WatchedTrial:
    """What may be said at this moment, and what it rests on."""

    arms: SequentialArms
    score: WatchedScore
    tau_s: float | Mapping[str, float] | None  # one for all strata, or one each
    n_episodes: Mapping[str, int]  # valid ones, by policy
    n_invalid: int
    n_waiting: int  # valid, and without a partner yet
    strata: tuple[str, ...]
    is_ordered: bool  # whether every episode says when it was started
    n_repeats: int = 0  # further runs of a unit that was counted, or runs of one that is not complete

    @property
    def may_stop(self) -> bool:
        """Whether every pair is decided: one is better, or going on is futile."""
        return self.arms.may_stop


def episode_promptness(episode: Episode, *, tau_s: float) -> float:
    """The episode's `promptness`; without a number of items it is that of the first placement.

    A success without placement events counts as placed at the end. An episode that timed out before tau is
    NotEstimable; any other end is final: what was not placed by then is not placed by tau.
    """
    check_tau(tau_s)
    placed = [e.t_s for e in episode.events if e.kind is EventKind.PLACEMENT for _ in range(e.count)]
    if not placed and episode.outcome is Outcome.SUCCESS and episode.items in (None, 1):
        placed = [episode.known_duration_s]
    told = episode.items_placed
    if told is not None and told > len(placed):
        raise InputError(f'episode {episode.episode_id}: {told} items placed and {len(placed)} of them timed')
    items = episode.items or 1
    return promptness(
        sorted(placed)[:items], tau_s=tau_s, items=items, watched_s=episode.known_duration_s,
        is_over=episode.outcome is not Outcome.TIMEOUT or len(placed) + (episode.items_lost or 0) >= items,
    )  # fmt: skip


def watch_trial(
    episodes: Iterable[Episode], *, score: WatchedScore | str = WatchedScore.SUCCESS,
    tau_s: float | Mapping[str, float] | None = None, paired: bool = False, strata: Sequence[str] | None = None,
    alpha: float = 0.05, horizon: int | None = None, smallest_difference: float | None = None,
    unit: Unit | str = Unit.START, repeats: int | None = None,
) -> WatchedTrial:  # fmt: skip
    """Compare all policies on the episodes so far; it may be asked at any time and as often as one likes.

    Episodes are taken in the order in which they were started (the order given, where some do not say). Strata count
    equally; declare those of the plan, so that early looks wait for all of them. `paired` matches episodes of one
    scene (seed, instance, repeat) and uses the scenes that every policy has finished. `horizon` is the most episodes
    each policy will have. The chance of any false claim, at any time, over all pairs, is at most alpha.

    Repeats of a start state (or of what `unit` says) are not independent: the first run of each counts, or, with the
    number of `repeats` that the plan declares, the mean of its runs once all are there.
    """
    kind = WatchedScore(score)
    if kind is WatchedScore.PROMPTNESS and tau_s is None:
        raise InputError('promptness needs tau_s, within the time cap of the episodes')
    everything = list(episodes)
    valid = [e for e in everything if e.is_valid]
    is_ordered = all(e.started_at is not None for e in valid)
    if is_ordered:
        valid.sort(key=_start)
    queues = {name: [e for e in valid if e.policy == name] for name in sorted({e.policy for e in valid})}
    if len(queues) < 2:
        raise InputError(f'wanted valid episodes of at least two policies, found {", ".join(queues) or "none"}')
    compared = _matched(queues, {e.key: place for place, e in enumerate(valid)}) if paired else queues
    scores = {
        name: unit_scores(
            [_value(e, kind, tau_s) for e in queue], [_unit(e, Unit(unit)) for e in queue], repeats=repeats
        )
        for name, queue in compared.items()
    }
    values = {name: found.scores for name, found in scores.items()}
    labels = {name: [stratum_of(compared[name][k]) for k in found.first] for name, found in scores.items()}
    named = tuple(strata) if strata is not None else tuple(sorted({x for queue in labels.values() for x in queue}))
    arms = sequential_arms(
        values, paired=paired, strata=labels if len(named) > 1 else None, tasks=named if len(named) > 1 else None,
        alpha=alpha, horizon=horizon, smallest_difference=smallest_difference,
    )  # fmt: skip
    used = min(min(p.comparison.looks[-1].n_a if p.comparison.looks else 0 for p in arms.pairs), len(valid))
    return WatchedTrial(
        arms=arms,
        score=kind,
        tau_s=tau_s,
        n_episodes={name: len(queue) for name, queue in queues.items()},
        n_invalid=len(everything) - len(valid),
        n_waiting=len(valid) - used * len(queues),
        strata=named,
        is_ordered=is_ordered,
        n_repeats=sum(found.n_unused for found in scores.values()),
    )


def _unit(episode: Episode, unit: Unit) -> Hashable:
    label = unit_of(episode, unit)
    return None if label is None else (stratum_of(episode), label)


def _value(episode: Episode, kind: WatchedScore, tau_s: float | Mapping[str, float] | None) -> float:
    if kind is WatchedScore.SUCCESS or tau_s is None:
        return float(episode.is_success)
    return episode_promptness(episode, tau_s=tau_of(tau_s, stratum_of(episode)))


def _start(episode: Episode) -> dt.datetime:
    assert episode.started_at is not None
    return episode.started_at


def _matched(queues: Mapping[str, list[Episode]], place: Mapping[tuple[str, int], int]) -> dict[str, list[Episode]]:
    """Each policy's episodes of the scenes that all policies have finished, in the order of their last start."""
    by_scene: dict[Hashable, dict[str, Episode]] = {}
    for name, queue in queues.items():
        for episode in queue:
            scene = (stratum_of(episode), scene_of(episode))
            if scene[1] is None:
                raise InputError(f'episode {episode.episode_id} has neither seed nor instance, so it has no scene')
            if name in by_scene.setdefault(scene, {}):
                raise InputError(f'{name} has two episodes of the scene {scene}; give them repeats')
            by_scene[scene][name] = episode
    complete = [found for found in by_scene.values() if len(found) == len(queues)]
    if not complete:
        raise InputError('no scene has been finished by every policy yet; wait, or compare unpaired')
    complete.sort(key=lambda found: max(place[e.key] for e in found.values()))
    return {name: [found[name] for found in complete] for name in queues}
