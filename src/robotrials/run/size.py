"""What a plan amounts to: episodes, time, and what it will be able to tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from robotrials.errors import InputError
from robotrials.run.plan import Scenes, TrialPlan

POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """Sizes of a plan. Half-widths are of Wilson 95 % intervals at a rate of 0.5, the widest there is."""

    n_cells: int
    n_policies: int
    episodes_per_cell: int
    episodes_per_policy: int
    n_episodes: int
    longest_s: float  # every episode at its cap, with the declared turnaround
    half_width_per_cell: float
    half_width_per_policy: float
    resolvable_difference: float | None  # of two policies over all cells, power 0.8 at 0.05; None: none at this size
    resolvable_basis: str


def summarize_plan(plan: TrialPlan) -> PlanSummary:
    """The size, the longest duration and the precision of a plan."""
    cells, per_cell = plan.cells(), plan.episodes_in_a_cell() * plan.repeats
    per_policy = per_cell * len(cells)
    total = per_policy * len(plan.policies)
    capped_s = sum(cell.time_cap_s for cell in cells) * per_cell * len(plan.policies)
    difference, basis = _resolvable(plan, plan.episodes_in_a_cell() * len(cells))
    return PlanSummary(
        n_cells=len(cells),
        n_policies=len(plan.policies),
        episodes_per_cell=per_cell,
        episodes_per_policy=per_policy,
        n_episodes=total,
        longest_s=capped_s + total * (plan.turnaround_s or 0.0),
        half_width_per_cell=_half_width(per_cell),
        half_width_per_policy=_half_width(per_policy),
        resolvable_difference=difference,
        resolvable_basis=basis,
    )


def _half_width(n: int) -> float:
    from robotrials.stats import wilson

    # At odd n no count is exactly half; the two beside it have equal widths.
    interval = wilson(n // 2, n)
    return (interval.high - interval.low) / 2


def episodes_for_power(plan: TrialPlan) -> int:
    """Start states per cell that the declared power target needs, for a comparison of two policies over all cells.

    The size is that of the test that will judge. Matched scenes: McNemar's, which needs the discordance. Independent
    scenes: that of two rates, which needs the worse policy's.
    """
    from robotrials.verdict.planning import pairs_size, success_size

    target = plan.power
    if target is None:
        raise InputError('the plan has no [power] target')
    if plan.scenes is Scenes.MATCHED:
        if target.discordance is None:
            raise InputError(
                '[power] with matched scenes wants discordance: the share of scenes two policies differ on'
            )
        pairs = pairs_size(target.difference, target.discordance, power=target.power, alpha=target.alpha)
        return math.ceil(pairs / len(plan.cells()))
    if target.success_rate is None:
        raise InputError('[power] with independent scenes wants success_rate: that of the worse policy')
    rate = target.success_rate
    return success_size(
        rate, rate + target.difference, strata=len(plan.cells()), power=target.power, alpha=target.alpha
    )


def _resolvable(plan: TrialPlan, n: int) -> tuple[float | None, str]:
    """The smallest true difference that N start states a policy would show with power 0.8 at 0.05, two-sided."""
    from robotrials.verdict.planning import pairs_power, success_power

    if plan.scenes is Scenes.MATCHED:
        stated = plan.power.discordance if plan.power is not None else None
        discordance = 0.25 if stated is None else stated
        enough = _bisect(lambda d: pairs_power(d, discordance, n=n) >= POWER, 1e-4, discordance)
        return enough, f'paired, discordance {discordance:g}' + ('' if stated is not None else ' assumed')
    strata = len(plan.cells())
    enough = _bisect(
        lambda d: success_power(0.5 - d / 2, 0.5 + d / 2, per_cell=n // strata, strata=strata) >= POWER, 1e-4, 0.999
    )
    return enough, 'unpaired, rates around 0.5'


def _bisect(suffices: Callable[[float], bool], low: float, high: float) -> float | None:
    if not suffices(high):
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high
