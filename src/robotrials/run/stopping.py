"""Stopping early, by the rule that the plan declared: every comparison decided, at the promised error."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robotrials.record import Episode, EventKind, Outcome
from robotrials.run.plan import Scenes, StoppingScore, TrialPlan
from robotrials.run.schedule import Slot

RoundKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a trial ended before its last episode; policies are not named."""

    after_slots: int
    reason: str


def stopping_score(plan: TrialPlan, episode: Episode) -> float:
    """What the rule compares: 1 for a success, or the episode's promptness.

    An episode that timed out was watched to its cap, and tau is at most that; any other end is final.
    """
    if plan.stopping.score is StoppingScore.SUCCESS:
        return float(episode.outcome is Outcome.SUCCESS)
    from robotrials.verdict.planning import promptness

    items = episode.items or 1
    placed = [e.t_s for e in episode.events if e.kind is EventKind.PLACEMENT for _ in range(e.count)]
    if not placed and items == 1 and episode.outcome is Outcome.SUCCESS:
        placed = [episode.known_duration_s]
    return promptness(placed[:items], tau_s=_tau_s(plan, episode), items=items)


def _tau_s(plan: TrialPlan, episode: Episode) -> float:
    """The declared tau, or the episode's own time cap, which is that of its cell."""
    if plan.stopping.tau_s is not None:
        return plan.stopping.tau_s
    return episode.time_cap_s or min(cell.time_cap_s for cell in plan.cells())


def decide_stop(plan: TrialPlan, slots: Sequence[Slot], scores: Mapping[int, float]) -> Stop | None:
    """Whether the rule ends the trial, from the valid episodes' scores (by slot number), in the slots' order.

    Each policy is compared with the reference (all pairs, if there is none), by an anytime-valid test at alpha divided
    by the number of comparisons; cells are strata of equal weight. The trial ends when every comparison is decided.
    """
    from robotrials.verdict.planning import Decision

    pairs = _pairs(plan)
    alpha = plan.stopping.alpha / len(pairs)
    decisions = [_decision(plan, slots, scores, pair=pair, alpha=alpha) for pair in pairs]
    if any(decision is None or decision == Decision.CONTINUE for decision in decisions):
        return None
    futile = 'going on would hardly show the smallest difference'
    kinds = sorted({futile if d == Decision.FUTILE else 'a difference' for d in decisions if d})
    return Stop(len(slots), f'every comparison is decided after {len(slots)} slots: {", ".join(kinds)}')


def _pairs(plan: TrialPlan) -> list[tuple[str, str]]:
    names = sorted(plan.policies)
    if plan.reference:
        return [(name, plan.reference) for name in names if name != plan.reference]
    return list(itertools.combinations(names, 2))


def _decision(
    plan: TrialPlan, slots: Sequence[Slot], scores: Mapping[int, float], *, pair: tuple[str, str], alpha: float
) -> str | None:
    from robotrials.verdict.planning import sequential_comparison

    arms = {name: _outcomes(slots, scores, name) for name in pair}
    a, b = arms[pair[0]], arms[pair[1]]
    paired = plan.scenes is Scenes.MATCHED
    if paired:
        shared = [key for key in a if key in b]
        a, b = {key: a[key] for key in shared}, {key: b[key] for key in shared}
    if not a or not b:
        return None
    cells = len(plan.cells())
    strata: object = None
    if cells > 1:
        strata = [key[0] for key in a] if paired else ([key[0] for key in a], [key[0] for key in b])
    smallest = plan.stopping.smallest_difference
    horizon = plan.episodes_in_a_cell() * plan.repeats if cells == 1 and smallest is not None else None
    comparison = sequential_comparison(
        list(a.values()),
        list(b.values()),
        paired=paired,
        strata=strata,  # type: ignore[arg-type]  # labels, or a pair of them
        tasks=[cell.name for cell in plan.cells()] if cells > 1 else None,
        alpha=alpha,
        horizon=horizon,
        smallest_difference=smallest,
    )
    return comparison.looks[-1].decision if comparison.looks else None


def _outcomes(slots: Sequence[Slot], scores: Mapping[int, float], policy: str) -> dict[RoundKey, float]:
    return {
        (slot.cell.name, slot.instance, slot.repeat): scores[slot.number]
        for slot in slots
        if slot.policy == policy and slot.number in scores
    }
