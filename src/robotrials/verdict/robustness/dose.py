"""Dose-response: success against severity, a trend test, and the severity at which half of the baseline is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.stats import Interval, wilson
from robotrials.verdict.robustness.trial import NOMINAL, ConditionTrial, split_conditions


@dataclass(frozen=True, slots=True)
class Dose:
    """Success at one severity; 0 is the baseline."""

    severity: float
    successes: int
    n: int
    interval: Interval

    @property
    def rate(self) -> float:
        return self.successes / self.n


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
                found.append(_response(policy, condition, graded, severities, level))
    return found


def _response(
    policy: str, condition: str, trials: Sequence[ConditionTrial], severities: Sequence[float], level: float
) -> DoseResponse:
    doses = []
    for severity in severities:
        cell = [t.success for t in trials if t.severity == severity]
        doses.append(Dose(severity, sum(cell), len(cell), wilson(sum(cell), len(cell), level)))
    z, p = trend_test([d.severity for d in doses], [d.successes for d in doses], [d.n for d in doses])
    return DoseResponse(policy, condition, tuple(doses), z, p, half_severity(doses))


def trend_test(severities: Sequence[float], successes: Sequence[int], n: Sequence[int]) -> tuple[float, float]:
    """Cochran and Armitage's test of a trend in proportions: z and its two-sided p; (0, 1) when nothing varies."""
    s, x, m = (np.asarray(v, dtype=np.float64) for v in (severities, successes, n))
    if len(s) < 2 or (m <= 0).any():
        raise NotEstimable('a trend needs at least two severities with trials each')
    total = m.sum()
    rate = x.sum() / total
    spread = rate * (1 - rate) * (np.sum(m * s**2) - np.sum(m * s) ** 2 / total)
    if spread <= 0:
        return 0.0, 1.0
    z = float(np.sum(s * (x - m * rate)) / math.sqrt(spread))
    return z, math.erfc(abs(z) / math.sqrt(2))


def falling_rates(doses: Sequence[Dose]) -> list[float]:
    """The closest rates that never rise with severity (pooled adjacent violators)."""
    blocks: list[list[float]] = []
    for dose in doses:
        blocks.append([float(dose.successes), float(dose.n), 1.0])
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
