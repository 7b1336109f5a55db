"""Watching a trial: success or time-to-success of every policy, compared while episodes come in."""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.curve import check_tau, tau_of
from robotrials.measure.timing.operation import Unit, scene_of, stratum_of, unit_of
from robotrials.record import Episode, EventKind, Outcome
from robotrials.stats.dominance import different_matrix, holm, letter_groups
from robotrials.stats.interval import FloatArray, check_count, check_open_unit
from robotrials.verdict.planning.sequential import Decision, SequentialComparison, sequential_comparison

FollowUp = Callable[[str, str], Mapping[str, float]]  # two policies -> stratum -> seconds

# More than two policies at once: every pair watched, the family-wise error kept at every look.


@dataclass(frozen=True, slots=True)
class ArmPair:
    """One pair of arms: its own comparison at alpha / pairs, and its Holm-adjusted p-value and decision."""

    a: str
    b: str
    comparison: SequentialComparison
    adjusted_p_value: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class SequentialArms:
    """Every pair of arms; `letters` group what has not been told apart (arms in order of their mean, best first)."""

    pairs: tuple[ArmPair, ...]
    order: tuple[str, ...]
    letters: tuple[str, ...]

    @property
    def may_stop(self) -> bool:
        """Whether every pair is decided: one arm is better, or going on is futile."""
        return not self.unresolved

    @property
    def unresolved(self) -> tuple[tuple[str, str], ...]:
        """The pairs for which rollouts should go on; an arm in none of them may stop."""
        return tuple((p.a, p.b) for p in self.pairs if p.decision is Decision.CONTINUE)


def sequential_arms(
    arms: Mapping[str, ArrayLike],
    *,
    paired: bool,
    strata: ArrayLike | Mapping[str, ArrayLike] | None = None,
    tasks: Sequence[object] | None = None,
    alpha: float = 0.05,
    horizon: int | None = None,
    smallest_difference: float | None = None,
    score_range: tuple[float, float] = (0, 1),
) -> SequentialArms:
    """All pairs of arms by betting, with the chance of any false claim, at any time, at most alpha.

    The anytime p-value of a pair is 1 over its largest e-value, twice for two sides; it is a p-value at every stopping
    time, so that Holm's procedure on the p-values of one moment keeps the family-wise error whenever one stops.
    Intervals are at 1 - alpha / pairs and hold together.
    """
    names = list(arms)
    if len(names) < 2:
        raise InputError(f'wanted at least two arms, found {len(names)}')
    check_open_unit('alpha', alpha)
    every = list(itertools.combinations(names, 2))
    compared = {
        (a, b): sequential_comparison(
            arms[a], arms[b], paired=paired, strata=(strata[a], strata[b]) if isinstance(strata, Mapping) else strata,
            tasks=tasks, alpha=alpha / len(every), horizon=horizon, smallest_difference=smallest_difference,
            score_range=score_range,
        )
        for a, b in every
    }  # fmt: skip
    return _family(compared, {name: _mean(values) for name, values in arms.items()}, alpha)


def _family(
    compared: Mapping[tuple[str, str], SequentialComparison], means: Mapping[str, float], alpha: float
) -> SequentialArms:
    """All pairs of the policies in `means`, Holm over their anytime p-values."""
    adjusted = holm([c.p_value for c in compared.values()])
    pairs = tuple(
        ArmPair(a, b, c, float(p), _decision(c, float(p), alpha))
        for ((a, b), c), p in zip(compared.items(), adjusted, strict=True)
    )
    order = sorted(means, key=lambda name: -means[name])
    indices = [(order.index(p.a), order.index(p.b)) for p in pairs]
    different = different_matrix(indices, adjusted.tolist(), k=len(order), alpha=alpha)
    return SequentialArms(pairs, tuple(order), letter_groups(different))


def _decision(compared: SequentialComparison, adjusted: float, alpha: float) -> Decision:
    if adjusted <= alpha:
        best = max(compared.looks, key=lambda look: max(look.evidence_a, look.evidence_b))
        return Decision.A_BETTER if best.evidence_a > best.evidence_b else Decision.B_BETTER
    return compared.decision


def _mean(values: ArrayLike) -> float:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise InputError('an arm has no rollouts yet; leave it out until it has one')
    return float(array.mean())


# Repeats of a start state in a sequential trial: one unit each, so that they are not bet on as if independent.
# A unit's value must be fixed when it is bet on, and may not depend on what its runs showed so far. Either the first
# run of each start state counts and the rest wait, or, with a number of repeats declared beforehand, the mean of a
# unit once all of its runs are there.


@dataclass(frozen=True, slots=True, eq=False)
class UnitScores:
    """One score a unit in the order in which units were started, where each comes from, and the runs not used."""

    scores: FloatArray  # (units,)
    first: tuple[int, ...]  # the place of each unit's first run
    n_unused: int


def unit_scores(
    scores: Sequence[float] | FloatArray, units: Sequence[Hashable], *, repeats: int | None = None
) -> UnitScores:
    """Scores by unit (start state, session); a run without a unit (None) is one of its own.

    `repeats` is the declared number of runs a unit; without it the first run alone counts. Runs beyond the declared
    number are not used, because which unit gets them may depend on outcomes.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(units),):
        raise InputError(f'{len(units)} units for scores of shape {values.shape}, wanted one a run')
    wanted = 1 if repeats is None else check_count('repeats', repeats, least=1)
    runs: dict[Hashable, list[int]] = {}
    for place, unit in enumerate(units):
        runs.setdefault((place, None) if unit is None else (unit,), []).append(place)
    whole = [
        places[: 1 if key[-1] is None and len(key) == 2 else wanted]  # type: ignore[index, arg-type]
        for key, places in runs.items()
        if len(places) >= wanted or (len(key) == 2 and key[-1] is None)  # type: ignore[index, arg-type]
    ]
    means = np.array([values[places].mean() for places in whole])
    return UnitScores(means, tuple(places[0] for places in whole), len(values) - sum(len(p) for p in whole))


# Time to success as a bounded score, so that it can be watched while rollouts come in.


def promptness(
    placed_s: Sequence[float], *, tau_s: float, items: int = 1, watched_s: float = math.inf, is_over: bool = True
) -> float:
    """The mean over an episode's items of 1 - min(T, tau) / tau, T being the time from the start until each was placed.

    `placed_s`: when items were placed, seconds from the start. An item that was not placed scores 0: never is later
    than tau. `watched_s` is how long the episode was followed and `is_over` whether it ended by itself (all done, hard
    failure, safety stop); one that was cut off before tau with items left is NotEstimable: what it would have done by
    tau is not known.

    >>> promptness([30.0], tau_s=120), promptness([30.0, 60.0], tau_s=120, items=4), promptness([], tau_s=120)
    (0.75, 0.3125, 0.0)
    """
    if not (math.isfinite(tau_s) and tau_s > 0):
        raise InputError(f'tau_s must be a finite number of seconds over 0, found {tau_s!r}')
    items = check_count('items', items, least=1)
    times = sorted(placed_s)
    if len(times) > items or (times and not times[0] >= 0):
        raise InputError(f'wanted at most {items} times >= 0, found {len(times)} from {times[0] if times else None}')
    if not is_over and watched_s < tau_s and len(times) < items:
        raise NotEstimable(
            f'watched for {watched_s:g} s with items left, and tau is {tau_s:g} s: choose a tau within the time cap'
        )
    return sum(max(0.0, 1 - t / tau_s) for t in times) / items


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
    n_placed = episode.items_placed
    if n_placed is not None and n_placed > len(placed):
        raise InputError(f'episode {episode.episode_id}: {n_placed} items placed and {len(placed)} of them timed')
    items = episode.items or 1
    return promptness(
        sorted(placed)[:items], tau_s=tau_s, items=items, watched_s=episode.known_duration_s,
        is_over=episode.outcome is not Outcome.TIMEOUT or len(placed) + (episode.items_lost or 0) >= items,
    )  # fmt: skip


def watch_trial(
    episodes: Iterable[Episode], *, score: WatchedScore | str = WatchedScore.SUCCESS,
    tau_s: float | Mapping[str, float] | None = None, paired: bool = False, strata: Sequence[str] | None = None,
    alpha: float = 0.05, horizon: int | None = None, smallest_difference: float | None = None,
    unit: Unit | str = Unit.START, repeats: int | None = None, follow_up: FollowUp | None = None,
) -> WatchedTrial:  # fmt: skip
    """Compare all policies on the episodes so far; it may be asked at any time and as often as one likes.

    Episodes are taken in the order in which they were started (the order given, where some do not say). Strata that
    both policies of a pair have run count equally; declare those of the plan, so that early looks wait for all of
    them. `paired` matches episodes of one scene (seed, instance, repeat) that both have finished. `horizon` is the most
    episodes each policy will have. The chance of any false claim, at any time, over all pairs, is at most alpha.

    `follow_up` gives the seconds of each stratum up to which both policies of a pair were followed: successes count
    until then, and promptness, where no tau is given. Repeats of a start state (or of what `unit` says) are not
    independent: the first run of each counts, or, with the number of `repeats` that the plan declares, the mean of its
    runs once all are there.
    """
    kind = WatchedScore(score)
    if kind is WatchedScore.PROMPTNESS and tau_s is None and follow_up is None:
        raise InputError('promptness needs tau_s, within the time cap of the episodes')
    check_open_unit('alpha', alpha)
    everything = list(episodes)
    valid = [e for e in everything if e.is_valid]
    is_ordered = all(e.started_at is not None for e in valid)
    if is_ordered:
        valid.sort(key=_start)
    queues = {name: [e for e in valid if e.policy == name] for name in sorted({e.policy for e in valid})}
    if len(queues) < 2:
        raise InputError(f'wanted valid episodes of at least two policies, found {", ".join(queues) or "none"}')
    place = {e.key: k for k, e in enumerate(valid)}
    every, compared = list(itertools.combinations(queues, 2)), {}
    taus_s: dict[str, float] = {}
    scores: dict[str, list[UnitScores]] = {name: [] for name in queues}
    for a, b in every:
        until_s = {} if follow_up is None else follow_up(a, b)
        taus_s |= {s: min(t, taus_s.get(s, t)) for s, t in until_s.items()}
        pair = _shared(queues[a], queues[b], strata)
        if not all(pair):
            continue  # nothing that both have run: who looks better is not asked
        if paired:
            pair = _matched(pair, (a, b), place)
        values = [
            unit_scores(
                [_value(e, kind, tau_s, until_s) for e in queue], [_unit(e, Unit(unit)) for e in queue], repeats=repeats
            )
            for queue in pair
        ]
        labels = [[stratum_of(queue[k]) for k in own.first] for queue, own in zip(pair, values, strict=True)]
        named = tuple(strata) if strata is not None else tuple(sorted({*labels[0], *labels[1]}))
        compared[a, b] = sequential_comparison(
            values[0].scores, values[1].scores, paired=paired, alpha=alpha / len(every), horizon=horizon,
            strata=(labels[0], labels[1]) if len(named) > 1 else None, tasks=named if len(named) > 1 else None,
            smallest_difference=smallest_difference,
        )  # fmt: skip
        scores[a].append(values[0])
        scores[b].append(values[1])
    if not compared:
        raise InputError(f'no two of {", ".join(queues)} have run a stratum in common yet')
    means = {
        name: _mean(np.concatenate([own.scores for own in own_arms])) for name, own_arms in scores.items() if own_arms
    }
    arms = _family(compared, means, alpha)
    used = min(min(p.comparison.looks[-1].n_a if p.comparison.looks else 0 for p in arms.pairs), len(valid))
    return WatchedTrial(
        arms=arms,
        score=kind,
        tau_s=tau_s if tau_s is not None or kind is WatchedScore.SUCCESS else taus_s,
        n_episodes={name: len(queue) for name, queue in queues.items()},
        n_invalid=len(everything) - len(valid),
        n_waiting=len(valid) - used * len(queues),
        strata=tuple(strata) if strata is not None else tuple(sorted({stratum_of(e) for e in valid})),
        is_ordered=is_ordered,
        n_repeats=sum(max((own.n_unused for own in own_arms), default=0) for own_arms in scores.values()),
    )


def _shared(a: list[Episode], b: list[Episode], strata: Sequence[str] | None) -> list[list[Episode]]:
    """Both queues in the strata that both have run, or in those that are declared."""
    kept = set(strata) if strata is not None else {stratum_of(e) for e in a} & {stratum_of(e) for e in b}
    return [[e for e in queue if stratum_of(e) in kept] for queue in (a, b)]


def _unit(episode: Episode, unit: Unit) -> Hashable:
    label = unit_of(episode, unit)
    return None if label is None else (stratum_of(episode), label)


def _value(
    episode: Episode, kind: WatchedScore, tau_s: float | Mapping[str, float] | None, until_s: Mapping[str, float]
) -> float:
    stratum = stratum_of(episode)
    if kind is WatchedScore.SUCCESS:
        if not episode.is_success or stratum not in until_s:
            return float(episode.is_success)
        return float(episode.known_duration_s <= until_s[stratum] * (1 + 1e-9))
    return episode_promptness(episode, tau_s=tau_of(until_s if tau_s is None else tau_s, stratum))


def _start(episode: Episode) -> dt.datetime:
    assert episode.started_at is not None
    return episode.started_at


def _matched(
    pair: Sequence[list[Episode]], names: tuple[str, str], place: Mapping[tuple[str, int], int]
) -> list[list[Episode]]:
    """Both policies' episodes of the scenes that both have finished, in the order of the later start."""
    by_scene: list[dict[Hashable, Episode]] = [{}, {}]
    for name, queue, own in zip(names, pair, by_scene, strict=True):
        for episode in queue:
            scene = (stratum_of(episode), scene_of(episode))
            if scene[1] is None:
                raise InputError(f'episode {episode.episode_id} has neither seed nor instance, so it has no scene')
            if scene in own:
                raise InputError(f'{name} has two episodes of the scene {scene}; give them repeats')
            own[scene] = episode
    matched = [(episode, by_scene[1][scene]) for scene, episode in by_scene[0].items() if scene in by_scene[1]]
    if not matched:
        raise InputError(f'no scene has been finished by both {" and ".join(names)} yet; wait, or compare unpaired')
    matched.sort(key=lambda found: max(place[e.key] for e in found))
    return [[match[k] for match in matched] for k in (0, 1)]
