"""One endpoint of a non-inferiority gate: success, speed or safety of two arms against a margin."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import MeanCell, ratio_noninferiority
from robotrials.stats.success_rule import SuccessContrast
from robotrials.verdict.planning import MoreEpisodes, more_episodes, more_for_margin, time_standing

if TYPE_CHECKING:
    from robotrials.measure.timing.unit import UnitMeans
    from robotrials.stats import RatioNonInferiority
    from robotrials.stats.argument import FloatArray
    from robotrials.stats.unseen import UnseenRule
    from robotrials.verdict.analysis.contrast import Contrast

ENDPOINTS = ('success', 'speed', 'safety')
FAR_CAP = 4.0


class Finding(enum.StrEnum):
    """What an endpoint's data say; 'no worse' goes first, since a difference may be real and within the margin."""

    NO_WORSE = 'no worse'
    WORSE = 'worse'
    SHORT = 'not enough episodes'
    MISSING = 'missing'


@dataclass(frozen=True, slots=True)
class GateEndpoint:
    """One endpoint. Rates have a difference and are good when large; times have a ratio and are good when small."""

    name: str
    measure: str
    finding: Finding
    margin: float
    is_required: bool = True
    new: float | None = None
    reference: float | None = None
    estimate: float | None = None  # difference of rates, or ratio of times
    low: float | None = None  # one-sided bounds: of being worse by the margin, and of being no worse at all
    high: float | None = None
    contrast: Contrast | None = None  # with the p-value of the margin
    p_worse: float | None = None  # of being no worse at all
    more: MoreEpisodes | None = None
    note: str = ''

    @property
    def is_ratio(self) -> bool:
        return self.name == 'speed'

    @property
    def p_value(self) -> float | None:
        """Of being worse by the margin or more."""
        return None if self.contrast is None else self.contrast.p_margin

    @property
    def taus_s(self) -> Mapping[str, float] | None:
        """Cell -> tau, of times."""
        return self.contrast.taus_s if self.is_ratio and self.contrast is not None else None

    @property
    def is_paired(self) -> bool:
        return self.contrast is not None and self.contrast.is_matched

    @property
    def limit(self) -> float:
        """What the bound must clear: -margin for a difference, 1 + margin for a ratio."""
        return 1 + self.margin if self.is_ratio else -self.margin

    @property
    def bound(self) -> float | None:
        """The one-sided bound that decides."""
        return self.high if self.is_ratio else self.low


@dataclass(frozen=True, slots=True)
class Levels:
    """Error rates: of passing an endpoint that is worse by the margin, and of failing one that is no worse."""

    alpha: float = 0.05
    alpha_worse: float = 0.05
    power: float = 0.8


def missing_endpoint(name: str, measure: str, margin: float, note: str) -> GateEndpoint:
    return GateEndpoint(name, measure, Finding.MISSING, margin, note=note)


def rate_endpoint(name: str, measure: str, found: Contrast, *, margin: float, levels: Levels) -> GateEndpoint:
    """A rate of the candidate (arm a) against the baseline's, by its contrast; the margin is tested by R."""
    assert isinstance(found.rule, SuccessContrast)
    p_margin, p_worse = found.rule.p_not_worse(margin), found.p_behind(found.a)
    made = GateEndpoint(
        name, measure, Finding.SHORT, margin, new=found.values[0], reference=found.values[1], estimate=found.estimate,
        contrast=replace(found, p_margin=p_margin), p_worse=p_worse, note=found.note,
    )  # fmt: skip
    rule = found.rule.rule
    if p_margin is None:
        more = _more_for_margin(rule, found, margin, levels)
        return replace(made, note=found.rule.margin_withheld, more=more)
    finding = _finding(p_margin, p_worse, levels)
    return replace(
        made, finding=finding, low=rule.bound(levels.alpha, is_lower=True),
        high=rule.bound(levels.alpha_worse, is_lower=False),
        more=_more_for_margin(rule, found, margin, levels) if finding is Finding.SHORT else None,
    )  # fmt: skip


def _finding(p_margin: float | None, p_worse: float | None, levels: Levels) -> Finding:
    if p_margin is not None and p_margin <= levels.alpha:
        return Finding.NO_WORSE
    return Finding.WORSE if p_worse is not None and p_worse <= levels.alpha_worse else Finding.SHORT


def _more_for_margin(rule: UnseenRule, found: Contrast, margin: float, levels: Levels) -> MoreEpisodes | None:
    """Episodes to add, start states run as often each as those that are there."""
    runs = [max(1.0, n / u) if u else 1.0 for n, u in zip(found.n_episodes, found.n_units, strict=True)]
    units = np.array([[c.n_a / runs[0], c.n_b / runs[1]] for c in found.cells])
    rates = np.array([[c.value_a, c.value_b] for c in found.cells])
    more = more_for_margin(
        rule, units, rates, margin=margin, is_matched=bool(found.n_matched), alpha=levels.alpha, power=levels.power
    )
    return _in_episodes(more, found)


def speed_endpoint(found: Contrast, *, margin: float, levels: Levels) -> GateEndpoint:
    """The restricted mean time to success up to each cell's own tau, macro over the cells, as a ratio."""
    tau_s = max(found.taus_s.values())  # what a failure not seen yet may cost
    measure = f'RMST({tau_words(found.taus_s)})'
    try:
        cells = time_cells(found)
        ratio = ratio_noninferiority(
            cells, margin=margin, cap=tau_s, alpha=levels.alpha, alpha_worse=levels.alpha_worse
        )
    except (NotEstimable, InputError) as error:
        return missing_endpoint('speed', measure, margin, str(error))
    p_worse = found.p_behind(found.a)
    finding = _finding(ratio.p_value, p_worse, levels)
    more = None
    if finding is Finding.SHORT:
        standing = time_standing(cells, margin=margin, cap=tau_s, alpha=levels.alpha)
        more = _in_episodes(more_episodes(standing, alpha=levels.alpha, power=levels.power), found)
    return GateEndpoint(
        'speed', measure, finding, margin, new=ratio.new, reference=ratio.reference, estimate=ratio.ratio,
        low=ratio.low, high=ratio.high, p_worse=p_worse, contrast=replace(found, p_margin=ratio.p_value), more=more,
        note=_cap_note(ratio, tau_s) if finding is Finding.SHORT else found.note,
    )  # fmt: skip


def _in_episodes(more: MoreEpisodes | None, found: Contrast) -> MoreEpisodes | None:
    """Start states to be added as episodes, run as often each as those that are there."""
    if more is None:
        return None
    repeats = max(n / max(u, 1) for n, u in zip(found.n_episodes, found.n_units, strict=True))
    new, reference, per_cell = (math.ceil(repeats * n) for n in (more.new, more.reference, more.per_cell))
    return MoreEpisodes(new, reference, per_cell, more.power)


def _cap_note(found: RatioNonInferiority, tau_s: float) -> str:
    """A hint where the cap, and not the pace, is what makes a mean time uncertain."""
    longest = max(found.new, found.reference)
    if tau_s <= FAR_CAP * longest:
        return ''
    return (
        f'a failure not seen yet would count {tau_s:g} s against a mean of {longest:.3g} s, and most of the bound is '
        'that; a shorter tau, chosen before looking, asks about pace'
    )


def time_cells(found: Contrast) -> list[MeanCell]:
    """The contrast's restricted means of each cell with the (co)variances that leaving out one unit at a time gives."""
    assert found.seconds is not None
    first, second = found.seconds.arms
    made = []
    for name, new in first.cells.items():
        reference = second.cells[name]
        for who, side in (('candidate', new), ('baseline', reference)):
            if side.n_units < 2:
                raise NotEstimable(f'{name}: {side.n_units} start state of the {who}, and a mean time needs at least 2')
        covariance = _covariance(new, reference) if found.seconds.is_paired else None
        made.append(
            MeanCell(
                new.value, reference.value, new.variance, reference.variance, new.n_units, reference.n_units, covariance
            )
        )  # fmt: skip
    return made


def _covariance(new: UnitMeans, reference: UnitMeans) -> float:
    moved: dict[object, float] = dict(zip(reference.labels, reference.influence.tolist(), strict=True))
    second: FloatArray = np.array([moved[label] for label in new.labels])
    return float(new.influence @ second)


def tau_words(taus_s: Mapping[str, float]) -> str:
    """`60 s`, or `20 s to 120 s by cell`."""
    low, high = min(taus_s.values()), max(taus_s.values())
    return f'{high:g} s' if low == high else f'{low:g} s to {high:g} s by cell'


def check_required(names: Sequence[str]) -> None:
    for name in names:
        if name not in ENDPOINTS:
            raise InputError(f'no endpoint {name!r}; known: {", ".join(ENDPOINTS)}')


def check_margins(margins: Mapping[str, float]) -> None:
    """Margins are shares between 0 and 1: 5 points are 0.05, 10 % slower is 0.10."""
    for name, value in margins.items():
        if not (math.isfinite(value) and 0 < value < 1):
            raise InputError(f'the margin of {name} is {value}, wanted a share between 0 and 1 (5 points are 0.05)')
