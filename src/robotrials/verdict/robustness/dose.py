"""Dose-response: success against severity, a trend test, and the severity at which half of the baseline is lost.

Every task counts the same at every severity, and the trend is tested within tasks, so that another mix of tasks at one
of them shows no effect. Tasks that were not run at all severities are left out.
"""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import NotEstimable, UnknownName
from robotrials.record.episode import NOMINAL
from robotrials.stats import Interval, holm, rate_contrast, wilson
from robotrials.value import dataclass
from robotrials.verdict.robustness.trial import ConditionTrial, policies_of, split_conditions


@dataclass(frozen=True, slots=True)
class Dose:
    """Success at one severity, the mean over tasks; 0 is the baseline."""

    severity: float
    successes: int
    n: int
    rate: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class DoseResponse:
    """One policy under one condition at rising severities."""

    policy: str
    condition: str
    doses: tuple[Dose, ...]
    trend_z: float  # Cochran and Armitage; negative when success falls with severity
    p_value: float  # two-sided
    half_severity: float | None  # where a falling curve crosses half of the baseline's rate; None if it doesn't


def dose_responses(
    trials: Sequence[ConditionTrial], *, baseline: str = NOMINAL, level: float = 0.95
) -> list[DoseResponse]:
    """A curve for every policy and condition that was run at two severities or more beside the baseline."""
    before, altered = split_conditions(trials, baseline=baseline)
    responses = []
    for condition, rows in altered.items():
        for policy in dict.fromkeys(t.policy for t in rows):
            graded = [t for t in [*before, *rows] if t.policy == policy and t.severity is not None]
            severities = sorted({t.severity for t in graded if t.severity is not None})
            if len([s for s in severities if s > 0]) >= 2:
                with contextlib.suppress(NotEstimable):  # no task at every severity: there is no curve
                    responses.append(_response(policy, condition, graded, severities, level))
    return responses


def _response(
    policy: str, condition: str, trials: Sequence[ConditionTrial], severities: Sequence[float], level: float
) -> DoseResponse:
    cells: dict[float, dict[str, list[ConditionTrial]]] = {severity: {} for severity in severities}
    for trial in trials:
        if trial.severity is not None:
            cells[trial.severity].setdefault(trial.placement.split, []).append(trial)
    tasks = shared_splits(list(cells.values()))
    doses = (
        [_dose(severity, [cells[severity][task] for task in tasks], level) for severity in severities] if tasks else []
    )
    if not doses:
        raise NotEstimable(f'{condition}: {policy} ran no task at every severity, so that no dose can be compared')
    tables = [
        ([sum(t.success for t in cells[s][task]) for s in severities], [len(cells[s][task]) for s in severities])
        for task in tasks
    ]
    z, p = trend_test(severities, [x for x, _ in tables], [n for _, n in tables])
    return DoseResponse(policy, condition, tuple(doses), z, p, half_severity(doses))


def shared_splits(cells: Sequence[Mapping[str, object]]) -> list[str]:
    """The tasks (splits) that every cell has, in order of appearance."""
    return [name for name in cells[0] if all(name in cell for cell in cells)]


def _dose(severity: float, tasks: Sequence[Sequence[ConditionTrial]], level: float) -> Dose:
    hits, n = sum(t.success for task in tasks for t in task), sum(map(len, tasks))
    if len({len(task) for task in tasks}) == 1:  # the mean over tasks is that over trials
        return Dose(severity, hits, n, hits / n, wilson(hits, n, level))
    effect = rate_contrast(
        [[t.success for t in task] for task in tasks], [[t.scene for t in task] for task in tasks],
        [1 / len(tasks)] * len(tasks), level=level,
    )  # fmt: skip
    return Dose(severity, hits, n, effect.estimate, effect.interval)


def trend_test(severities: ArrayLike, successes: ArrayLike, n: ArrayLike) -> tuple[float, float]:
    """Cochran and Armitage's test of a trend in proportions within tasks: z and its two-sided p.

    `successes` and `n` are (severities,) or (tasks, severities); excess and variance are summed over tasks. (0, 1) when
    nothing varies.
    """
    s = np.asarray(severities, dtype=np.float64)
    x, m = (np.atleast_2d(np.asarray(v, dtype=np.float64)) for v in (successes, n))
    if len(s) < 2 or (m <= 0).any():
        raise NotEstimable('a trend needs at least two severities with trials each')
    total = m.sum(axis=1)
    rate = x.sum(axis=1) / total
    spread = float(np.sum(rate * (1 - rate) * (np.sum(m * s**2, axis=1) - np.sum(m * s, axis=1) ** 2 / total)))
    if spread <= 0:
        return 0.0, 1.0
    z = float(np.sum(s * (x - m * rate[:, None]))) / math.sqrt(spread)
    return z, math.erfc(abs(z) / math.sqrt(2))


def falling_rates(doses: Sequence[Dose]) -> list[float]:
    """The closest rates that never rise with severity (pooled adjacent violators)."""
    blocks: list[list[float]] = []
    for dose in doses:
        blocks.append([dose.rate * dose.n, float(dose.n), 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] < blocks[-1][0] / blocks[-1][1]:
            x, n, k = blocks.pop()
            blocks[-1] = [blocks[-1][0] + x, blocks[-1][1] + n, blocks[-1][2] + k]
    return [x / n for x, n, k in blocks for _ in range(int(k))]


def half_severity(doses: Sequence[Dose]) -> float | None:
    """Where the falling rates cross half of the first, by straight lines between severities."""
    rates = falling_rates(doses)
    half = rates[0] / 2
    if rates[0] == 0:
        return None
    for i in range(1, len(rates)):
        if rates[i] <= half:
            a, b = doses[i - 1].severity, doses[i].severity
            return a + (b - a) * (rates[i - 1] - half) / (rates[i - 1] - rates[i])
    return None


# Compound against single conditions: is chaos worse than the sum of its parts?
# The interaction is measured on the scale of the success rate: the drop under the compound minus the sum of the drops
# under each of its parts alone, at the same dose. It is tested against zero with the start states that cells share
# (`robotrials.stats.rate_contrast`), and Holm's correction over all policies and doses. Every task counts the same
# under every condition: where the mix of tasks differs between cells, each task is a cell of its own.

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
