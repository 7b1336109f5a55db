"""Dose-response: success against severity, a trend test, and the severity at which half of the baseline is lost.

Every task counts the same at every severity, and the trend is tested within tasks, so that another mix of tasks at one
of them shows no effect. Tasks that were not run at all severities are left out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import NotEstimable
from robotrials.stats import Interval, rate_contrast, wilson
from robotrials.verdict.robustness.trial import NOMINAL, ConditionTrial, split_conditions


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
    found = []
    for condition, rows in altered.items():
        for policy in dict.fromkeys(t.policy for t in rows):
            graded = [t for t in [*before, *rows] if t.policy == policy and t.severity is not None]
            severities = sorted({t.severity for t in graded if t.severity is not None})
            if len([s for s in severities if s > 0]) >= 2:
                with contextlib.suppress(NotEstimable):  # no task at every severity: there is no curve
                    found.append(_response(policy, condition, graded, severities, level))
    return found


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
    found = rate_contrast(
        [[t.success for t in task] for task in tasks], [[t.scene for t in task] for task in tasks],
        [1 / len(tasks)] * len(tasks), level=level,
    )  # fmt: skip
    return Dose(severity, hits, n, found.estimate, found.interval)


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
