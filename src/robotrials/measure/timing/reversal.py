"""Strata that point the other way: "better on average over these strata" is not "better in each"."""

from __future__ import annotations

from dataclasses import dataclass

from robotrials.measure.timing.better import Better, oriented_difference
from robotrials.measure.timing.unit import ArmMeans
from robotrials.stats.allowance import FEWEST_PER_CELL, MacroDifference
from robotrials.stats.interaction import reversal_p_value
from robotrials.stats.interval import Interval


@dataclass(frozen=True, slots=True)
class StratumAdvantage:
    """One stratum's difference, > 0 in favour of a, with the rule's interval."""

    stratum: str
    difference: float
    interval: Interval | None
    n_units: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reversal:
    """Every stratum's advantage, those that point against the mean, and the test that some truly do.

    A p-value above alpha licenses nothing: with four strata and 20 episodes per cell a real reversal of one third is
    found in about 1 % of trials.
    """

    strata: tuple[StratumAdvantage, ...]
    reversed: tuple[StratumAdvantage, ...]
    p_value: float | None
    withheld: str = ''


def reversal(found: Better) -> Reversal:
    """What single strata say of a comparison."""
    rules = stratum_differences_of(found)
    advantages = tuple(
        StratumAdvantage(
            stratum=stratum,
            difference=rule.difference,
            interval=rule.interval(found.level) if _is_judged(found, stratum) else None,
            n_units=(found.arms[0].cells[stratum].n_units, found.arms[1].cells[stratum].n_units),
        )
        for stratum, rule in rules.items()
    )
    against = tuple(s for s in advantages if s.difference * found.difference < 0)
    withheld = found.withheld or ('' if len(rules) > 1 else 'one stratum: nothing can point the other way')
    p_value = None if withheld else reversal_p_value(list(rules.values()))
    return Reversal(advantages, against, p_value, withheld)


def _is_judged(found: Better, stratum: str) -> bool:
    parts = [arm.cells[stratum] for arm in found.arms]
    return all(part.n_units >= FEWEST_PER_CELL and part.n_followed > 0 for part in parts)


def stratum_differences_of(found: Better) -> dict[str, MacroDifference]:
    """The rule in each stratum alone."""
    return {
        s: oriented_difference(
            _alone(found.arms[0], s), _alone(found.arms[1], s), found.endpoint, is_paired=found.is_paired
        )
        for s in found.arms[0].cells
        if all(arm.cells[s].n_followed > 0 and arm.cells[s].n_units > 1 for arm in found.arms)
    }


def _alone(arm: ArmMeans, stratum: str) -> ArmMeans:
    return ArmMeans({stratum: arm.cells[stratum]}, arm.unit)
