"""Compound against single conditions: is chaos worse than the sum of its parts?

The interaction is measured on the scale of the success rate: the drop under the compound minus the sum of the drops
under each of its parts alone, at the same dose. It is tested against zero with the start states that cells share
(`robotrials.stats.rate_contrast`), and Holm's correction over all policies and doses. Every task counts the same under
every condition: where the mix of tasks differs between cells, each task is a cell of its own.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robotrials.errors import UnknownName
from robotrials.stats import Interval, holm, rate_contrast
from robotrials.verdict.robustness.dose import shared_splits
from robotrials.verdict.robustness.trial import NOMINAL, ConditionTrial, policies_of, split_conditions

ENOUGH = 20  # start states in every cell; below it the test has next to no power and its level is not known


class CompoundVerdict(enum.StrEnum):
    WORSE = 'worse than the sum'
    BETTER = 'less than the sum'
    UNRESOLVED = 'no interaction shown'
    FLOOR = 'at the floor'  # the single drops alone already take everything: nothing could be worse
    CANNOT_SAY = 'cannot say'


@dataclass(frozen=True, slots=True)
class CompoundEffect:
    """One policy at one dose: the drop under the compound against the drops of its parts; None where it cannot say."""

    policy: str
    compound: str
    severity: float | None
    singles: tuple[str, ...]
    baseline_rate: float | None
    compound_rate: float
    additive_rate: float | None  # the baseline minus every single drop, not below zero
    multiplicative_rate: float | None  # the baseline times every single share that is left
    excess_drop: float | None  # drop of the compound minus the sum of single drops
    interval: Interval | None
    p_value: float | None
    p_value_holm: float | None
    verdict: CompoundVerdict
    reason: str = ''  # why it cannot say


def compound_effects(
    trials: Sequence[ConditionTrial],
    *,
    compound: str = 'chaos',
    singles: Sequence[str] | None = None,
    baseline: str = NOMINAL,
    level: float = 0.95,
) -> list[CompoundEffect]:
    """Compare the drop under `compound` with the sum of the drops of its parts, for every policy and dose.

    The parts are those that the episodes record, at the severities that they record; `singles` names them where the
    record does not. A verdict needs the baseline, the compound and every part alone at its dose on at least `ENOUGH`
    start states; otherwise it is "cannot say", with the reason. A part that only some of the compound's episodes had
    (over- or under-exposure) counts for as much.
    """
    before, altered = split_conditions(trials, baseline=baseline)
    if compound not in altered:
        raise UnknownName('compound condition in the store', compound, altered)
    for name in singles or ():
        if name not in altered:
            raise UnknownName('condition in the store', name, altered)
    effects = []
    for policy in policies_of(trials):
        own = [t for t in before if t.policy == policy]
        alone = {name: [t for t in rows if t.policy == policy] for name, rows in altered.items() if name != compound}
        joint = [t for t in altered[compound] if t.policy == policy]
        for severity in sorted({t.severity for t in joint}, key=lambda s: -1.0 if s is None else s):
            rung = [t for t in joint if t.severity == severity]
            effects.append(_effect(own, rung, alone, singles))
    tested = [e.p_value for e in effects if e.p_value is not None]
    adjusted: list[float] = holm(tested).tolist() if tested else []
    rest = iter(adjusted)
    return [_judged(e, next(rest) if e.p_value is not None else None, level) for e in effects]


def _judged(effect: CompoundEffect, p_value_holm: float | None, level: float) -> CompoundEffect:
    if p_value_holm is None or effect.verdict is CompoundVerdict.FLOOR or effect.excess_drop is None:
        return effect
    verdict = CompoundVerdict.UNRESOLVED
    if p_value_holm <= 1 - level:
        verdict = CompoundVerdict.WORSE if effect.excess_drop > 0 else CompoundVerdict.BETTER
    return replace(effect, p_value_holm=float(p_value_holm), verdict=verdict)


def _effect(
    base: Sequence[ConditionTrial],
    joint: Sequence[ConditionTrial],
    alone: Mapping[str, Sequence[ConditionTrial]],
    singles: Sequence[str] | None,
) -> CompoundEffect:
    shares, reason = _shares(joint, singles)
    cells = {
        name: [t for t in alone.get(name, ()) if _is_same_dose(t.severity, severity)]
        for name, (severity, _) in shares.items()
    }
    reason = reason or _lacking(base, joint, cells, shares, alone)
    first = joint[0]
    effect = CompoundEffect(
        first.policy, first.condition, first.severity, tuple(shares), _rate(base) if base else None, _rate(joint),
        None, None, None, None, None, None, CompoundVerdict.CANNOT_SAY, reason,
    )  # fmt: skip
    if reason:
        return effect
    weights = [share for _, share in shares.values()]
    every, tasks = _by_task([base, joint, *cells.values()])
    contrast = rate_contrast(
        [[t.success for t in cell] for cell in every],
        [[t.scene for t in cell] for cell in every],
        [w / tasks for w in (1 - sum(weights), -1.0, *weights) for _ in range(tasks)],
    )
    rate, _, *single = (
        sum(_rate(cell) for cell in every[k : k + tasks]) / tasks for k in range(0, len(every), tasks)
    )  # fmt: skip
    additive = rate - sum(w * (rate - p) for w, p in zip(weights, single, strict=True))
    left = [min(p / rate, 1.0) ** w for w, p in zip(weights, single, strict=True)] if rate else [0.0]
    effect = replace(
        effect,
        additive_rate=max(0.0, additive),
        multiplicative_rate=rate * float(np.prod(left)),
        excess_drop=contrast.estimate,
        interval=contrast.interval,
    )
    if additive <= 0:
        return replace(effect, verdict=CompoundVerdict.FLOOR, reason='the single drops sum to the whole baseline')
    return replace(effect, p_value=contrast.p_value, verdict=CompoundVerdict.UNRESOLVED)


def _by_task(cells: Sequence[Sequence[ConditionTrial]]) -> tuple[list[Sequence[ConditionTrial]], int]:
    """The cells as they are where all have the same mix of tasks, else cut into those tasks that all have."""
    cut: list[dict[str, list[ConditionTrial]]] = [{} for _ in cells]
    for own, cell in zip(cut, cells, strict=True):
        for trial in cell:
            own.setdefault(trial.placement.split, []).append(trial)
    tasks = shared_splits(cut)
    is_even = all(len(own) == len(tasks) and len({len(rows) for rows in own.values()}) == 1 for own in cut)
    if is_even:
        return list(cells), 1
    return [own[task] for own in cut for task in tasks], len(tasks)


def _shares(
    joint: Sequence[ConditionTrial], singles: Sequence[str] | None
) -> tuple[dict[str, tuple[float | None, float]], str]:
    """Severity of every part, and the share of the compound's trials that had it; or why they are not known."""
    if singles is not None:
        return dict.fromkeys(singles, (joint[0].severity, 1.0)), ''
    if not all(t.parts for t in joint):
        return {}, f'the record does not say what {joint[0].condition} is made of'
    doses: dict[str, set[float]] = {}
    for trial in joint:
        for name, severity in trial.parts:
            doses.setdefault(name, set()).add(severity)
    for name, severities in doses.items():
        if len(severities) > 1:
            return dict.fromkeys(doses, (None, 1.0)), f'{name} has several severities within {joint[0].condition}'
    n = len(joint)
    return {name: (next(iter(dose)), sum(name in dict(t.parts) for t in joint) / n) for name, dose in doses.items()}, ''


def _lacking(
    base: Sequence[ConditionTrial],
    joint: Sequence[ConditionTrial],
    cells: Mapping[str, Sequence[ConditionTrial]],
    shares: Mapping[str, tuple[float | None, float]],
    alone: Mapping[str, Sequence[ConditionTrial]],
) -> str:
    """What is missing for a verdict, or nothing."""
    if not cells:
        return f'{joint[0].condition} has no parts to compare with'
    absent = []
    for name, cell in cells.items():
        if not cell:
            others = sorted({f'{t.severity:g}' for t in alone.get(name, ()) if t.severity is not None})
            dose = shares[name][0]
            at = '' if dose is None else f' at {dose:g}'
            absent.append(f'{name}{at}' + (f' (only at {", ".join(others)})' if others else ''))
    if absent:
        return f'not run alone: {", ".join(absent)}'
    counts = {'the baseline': base, joint[0].condition: joint, **cells}
    splits = [dict.fromkeys(t.placement.split for t in cell) for cell in counts.values()]
    if not shared_splits(splits):
        return f'no task was run under the baseline, {joint[0].condition} and each of its parts'
    few = [f'{name} has {n}' for name, cell in counts.items() if (n := len({t.scene for t in cell})) < ENOUGH]
    return f'{ENOUGH} start states in every cell are needed: {", ".join(few)}' if few else ''


def _is_same_dose(a: float | None, b: float | None) -> bool:
    return a is b if a is None or b is None else math.isclose(a, b, abs_tol=1e-9)


def _rate(cell: Sequence[ConditionTrial]) -> float:
    return sum(t.success for t in cell) / len(cell)
