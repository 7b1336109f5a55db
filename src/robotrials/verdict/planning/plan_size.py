"""A whole plan's rollouts: policies x tasks x conditions, with the price of many comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from robotrials.errors import InputError
from robotrials.stats.argument import check_count, check_open_unit
from robotrials.stats.sample_size import wilson_sample_size
from robotrials.verdict.planning.success_size import margin_size, pairs_size, success_size

Claim = Literal['overall', 'per_cell']
Contrast = Literal['all_pairs', 'against_reference']


@dataclass(frozen=True, slots=True)
class PlanSize:
    """What one design costs over a plan; a cell is one (policy, task, condition)."""

    design: str
    comparisons: int
    alpha_each: float
    per_cell: int
    per_policy: int
    total: int


def plan_size(
    design: str,
    sample_size: Callable[[float], int],
    *,
    policies: int,
    tasks: int = 1,
    conditions: int = 1,
    claim: Claim = 'per_cell',
    contrast: Contrast = 'all_pairs',
    alpha: float = 0.05,
    comparisons: int | None = None,
) -> PlanSize:
    """The rollouts of a plan in which `sample_size(alpha_each)` gives the rollouts of one arm in one comparison.

    Bonferroni over comparisons (counted from the plan unless given). 'per_cell' makes every comparison in every
    (task, condition) and needs that many rollouts in each cell; 'overall' compares policies on the mean over cells and
    spreads the rollouts over them.
    """
    policies, cells = check_count('policies', policies, least=1), _cells(tasks, conditions)
    pairs = math.comb(policies, 2) if contrast == 'all_pairs' else policies - 1
    if contrast not in ('all_pairs', 'against_reference') or claim not in ('overall', 'per_cell'):
        raise InputError(f'unknown contrast {contrast!r} or claim {claim!r}')
    counted = max(1, pairs) * (cells if claim == 'per_cell' else 1)
    comparisons = counted if comparisons is None else check_count('comparisons', comparisons, least=1)
    alpha_each = check_open_unit('alpha', alpha) / comparisons
    n = sample_size(alpha_each)
    per_cell = n if claim == 'per_cell' else math.ceil(n / cells)
    return PlanSize(design, comparisons, alpha_each, per_cell, per_cell * cells, per_cell * cells * policies)


def plan_sizes(
    success_rate: float,
    difference: float,
    *,
    discordance: float,
    policies: int,
    tasks: int = 1,
    conditions: int = 1,
    claim: Claim = 'per_cell',
    contrast: Contrast = 'all_pairs',
    power: float = 0.8,
    alpha: float = 0.05,
) -> tuple[PlanSize, ...]:
    """One row per design: an interval of +- difference, unpaired and paired tests of it, non-inferiority by it.

    Tests of a difference are sized by the rule that will judge them, over as many strata as it will have. Tests pay
    for their comparisons by Bonferroni; the interval describes each rate alone, at 1 - alpha.
    """
    p, d = success_rate, difference
    better = p + d if p + d <= 1 else p - d
    shape = {'policies': policies, 'tasks': tasks, 'conditions': conditions}
    strata = _cells(tasks, conditions) if claim == 'overall' else 1
    designs: list[tuple[str, Callable[[float], int], int | None]] = [
        ('interval of each rate (Wilson)', lambda a: wilson_sample_size(d, p, level=1 - a), 1),
        ('unpaired difference',
         lambda a: strata * success_size(p, better, strata=strata, power=power, alpha=a), None),
        ('paired difference (McNemar)', lambda a: pairs_size(d, discordance, power=power, alpha=a), None),
        ('unpaired non-inferiority',
         lambda a: strata * margin_size(p, p, margin=d, strata=strata, power=power, alpha=a), None),
    ]  # fmt: skip
    return tuple(
        plan_size(name, size, **shape, claim=claim, contrast=contrast, alpha=alpha, comparisons=comparisons)
        for name, size, comparisons in designs
    )


def _cells(tasks: int, conditions: int) -> int:
    return check_count('tasks', tasks, least=1) * check_count('conditions', conditions, least=1)
