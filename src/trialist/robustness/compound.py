"""Compound against single conditions: is chaos worse than the sum of its parts?"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trialist.errors import NotEstimable, UnknownName
from trialist.robustness.trial import NOMINAL, ConditionTrial, policies_of, split_conditions
from trialist.stats import Interval


class CompoundVerdict(enum.StrEnum):
    WORSE = 'worse than the sum'
    BETTER = 'less than the sum'
    UNRESOLVED = 'unresolved'
    FLOOR = 'at the floor'  # the single drops alone already take everything: nothing could be worse


@dataclass(frozen=True, slots=True)
class CompoundEffect:
    """One policy: the drop under the compound against the drops of single conditions."""

    policy: str
    compound: str
    singles: tuple[str, ...]
    baseline_rate: float
    compound_rate: float
    additive_rate: float  # the baseline minus every single drop, not below zero
    multiplicative_rate: float  # the baseline times every single share that is left
    excess_drop: float  # drop of the compound minus the sum of single drops
    interval: Interval
    verdict: CompoundVerdict


def compound_effects(
    trials: Sequence[ConditionTrial],
    *,
    compound: str = 'chaos',
    singles: Sequence[str] | None = None,
    baseline: str = NOMINAL,
    n_resamples: int,
    rng: np.random.Generator,
    level: float = 0.95,
) -> list[CompoundEffect]:
    """Compare the drop under `compound` with the sum of single drops, by bootstrap.

    Where every cell has the same scenes they are drawn for all cells at once, else trials within each cell. `singles`
    are by default all other conditions without a `+` sign between kinds. At the floor, where the single drops sum to
    more than the baseline has, no verdict is possible.
    """
    before, altered = split_conditions(trials, baseline=baseline)
    if compound not in altered:
        raise UnknownName('compound condition in the store', compound, altered)
    names = [c for c in altered if c != compound and not _is_joined(c)] if singles is None else list(singles)
    for name in names:
        if name not in altered:
            raise UnknownName('condition in the store', name, altered)
    if not names:
        raise NotEstimable(f'{compound!r} has no single conditions beside it to compare with')
    # A part of a ladder is compared at the compound's own severity, where it was run at it.
    severity = {t.severity for t in altered[compound]}
    at_dose = {n: [t for t in altered[n] if t.severity in severity] or altered[n] for n in names}
    found = []
    for policy in policies_of(trials):
        cells = [[t for t in rows if t.policy == policy] for rows in (before, altered[compound])]
        parts = {n: [t for t in at_dose[n] if t.policy == policy] for n in names}
        known = {n: cell for n, cell in parts.items() if cell}
        if all(cells) and known:
            found.append(_effect(policy, compound, cells, known, n_resamples, rng, level))
    return found


def _effect(
    policy: str,
    compound: str,
    cells: Sequence[Sequence[ConditionTrial]],
    parts: Mapping[str, Sequence[ConditionTrial]],
    n_resamples: int,
    rng: np.random.Generator,
    level: float,
) -> CompoundEffect:
    every = [*cells, *parts.values()]
    base, joint, *single = (sum(t.success for t in c) / len(c) for c in every)
    additive = base - sum(base - p for p in single)
    left = base * float(np.prod([min(p / base, 1.0) for p in single])) if base else 0.0
    draws = _draw_rates(every, n_resamples, rng)
    excess = (draws[0] - draws[1]) - sum(draws[0] - d for d in draws[2:])
    low, high = np.quantile(excess, [(1 - level) / 2, (1 + level) / 2])
    interval = Interval(float(low), float(high))
    if additive <= 0:
        verdict = CompoundVerdict.FLOOR
    elif interval.low > 0:
        verdict = CompoundVerdict.WORSE
    elif interval.high < 0:
        verdict = CompoundVerdict.BETTER
    else:
        verdict = CompoundVerdict.UNRESOLVED
    return CompoundEffect(
        policy, compound, tuple(parts), base, joint, max(0.0, additive), left, additive - joint, interval, verdict
    )


def _draw_rates(
    cells: Sequence[Sequence[ConditionTrial]], n_resamples: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Resampled success rates (B,) of each cell: the same scenes for all where they share them."""
    scenes = sorted({t.scene for t in cells[0]})
    if any({t.scene for t in cell} != set(scenes) for cell in cells):
        # A resampled cell of n trials is a binomial draw at its own rate.
        counts = [(sum(t.success for t in cell), len(cell)) for cell in cells]
        return [rng.binomial(n, k / n, n_resamples) / n for k, n in counts]
    index = {scene: i for i, scene in enumerate(scenes)}
    drawn = rng.multinomial(len(scenes), np.full(len(scenes), 1 / len(scenes)), n_resamples).astype(float)
    rates = []
    for cell in cells:
        weight = drawn[:, [index[t.scene] for t in cell]]
        rates.append(weight @ np.array([float(t.success) for t in cell]) / weight.sum(axis=1))
    return rates


def _is_joined(name: str) -> bool:
    """`light+latency` is joined; `exposure+` is not."""
    return '+' in name.replace('exposure+', 'exposure')
