"""One endpoint of a non-inferiority gate: success, speed or safety of two arms against a margin."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.operation import Unit as TimingUnit
from robotrials.measure.timing.operation import operations
from robotrials.measure.timing.unit import UnitMeans, unit_means
from robotrials.record import Episode
from robotrials.stats import (
    ArmCounts,
    MeanCell,
    NonInferiority,
    PairCounts,
    RatioNonInferiority,
    clustered_covariance,
    noninferiority,
    ratio_noninferiority,
)
from robotrials.stats.argument import FloatArray
from robotrials.verdict.analysis.frame import SEPARATOR
from robotrials.verdict.analysis.shared_cell import CellPair, SharedCells, start_clusters
from robotrials.verdict.planning import MoreEpisodes, more_episodes, rate_standing, time_standing
from robotrials.verdict.planning.analysis_plan import AnalysisPlan

Flag = Callable[[Episode], bool]
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
    low: float | None = None
    high: float | None = None
    p_value: float | None = None  # of being worse by the margin or more
    p_worse: float | None = None  # of being no worse at all
    n_new: int = 0
    n_reference: int = 0
    is_paired: bool = False
    more: MoreEpisodes | None = None
    tau_s: float | None = None
    note: str = ''

    @property
    def is_ratio(self) -> bool:
        return self.name == 'speed'

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


def rate_endpoint(
    name: str, measure: str, shared: SharedCells, *, flag: Flag, margin: float, levels: Levels, note: str = ''
) -> GateEndpoint:
    """A rate of episodes for which `flag` is true, macro over the cells."""
    counts = rate_cells(shared.cells, flag, is_paired=shared.is_paired)
    effect = design_effect(shared.cells, flag, is_paired=shared.is_paired)
    found = noninferiority(
        counts, margin=margin, alpha=levels.alpha, alpha_worse=levels.alpha_worse, design_effect=effect
    )
    finding = _finding(found)
    more = None
    if finding is Finding.SHORT:
        standing = rate_standing(counts, margin=margin, design_effect=effect)
        more = more_episodes(standing, alpha=levels.alpha, power=levels.power)
    if effect > 1:
        note = '; '.join(filter(None, [note, f'repeats of a start are alike: design effect {effect:.2f}']))
    return GateEndpoint(
        name, measure, finding, margin, new=found.new, reference=found.reference, estimate=found.difference,
        low=found.low, high=found.high, p_value=found.p_value, p_worse=found.p_worse, n_new=shared.n_new,
        n_reference=shared.n_reference, is_paired=shared.is_paired, more=more, note=note,
    )  # fmt: skip


def success_endpoint(shared: SharedCells, *, margin: float, levels: Levels) -> GateEndpoint:
    """The success rate, by the host's own predicate or else by the outcome."""
    return rate_endpoint('success', 'episode success', shared, flag=is_success, margin=margin, levels=levels)


def is_success(episode: Episode) -> bool:
    return episode.is_success


def speed_endpoint(shared: SharedCells, *, tau_s: float, margin: float, levels: Levels) -> GateEndpoint:
    """The restricted mean time to success up to tau_s, macro over the cells, as a ratio."""
    measure = f'RMST({tau_s:g} s)'
    try:
        cells = time_cells(shared.cells, tau_s=tau_s, is_paired=shared.is_paired)
        found = ratio_noninferiority(
            cells, margin=margin, cap=tau_s, alpha=levels.alpha, alpha_worse=levels.alpha_worse
        )
    except (NotEstimable, InputError) as error:
        return missing_endpoint('speed', measure, margin, str(error))
    finding = _finding(found)
    more = None
    if finding is Finding.SHORT:
        standing = time_standing(cells, margin=margin, cap=tau_s, alpha=levels.alpha)
        more = _in_episodes(more_episodes(standing, alpha=levels.alpha, power=levels.power), shared)
    return GateEndpoint(
        'speed', measure, finding, margin, new=found.new, reference=found.reference, estimate=found.ratio,
        low=found.low, high=found.high, p_value=found.p_value, p_worse=found.p_worse, n_new=shared.n_new,
        n_reference=shared.n_reference, is_paired=shared.is_paired, more=more, tau_s=tau_s,
        note=_cap_note(found, tau_s) if finding is Finding.SHORT else '',
    )  # fmt: skip


def _in_episodes(more: MoreEpisodes | None, shared: SharedCells) -> MoreEpisodes | None:
    """Start states to be added as episodes, run as often each as those that are there."""
    if more is None:
        return None
    repeats = max(shared.n_new / shared.n_starts[0], shared.n_reference / shared.n_starts[1])
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


def _finding(found: NonInferiority | RatioNonInferiority) -> Finding:
    if found.is_shown:
        return Finding.NO_WORSE
    return Finding.WORSE if found.is_worse else Finding.SHORT


def rate_cells(cells: Sequence[CellPair], flag: Flag, *, is_paired: bool) -> Sequence[ArmCounts] | Sequence[PairCounts]:
    """The counts of each cell, for independent arms or for pairs."""
    if not is_paired:
        return [
            ArmCounts(sum(map(flag, c.new)), len(c.new), sum(map(flag, c.reference)), len(c.reference)) for c in cells
        ]
    pairs = [[(flag(a), flag(b)) for a, b in zip(c.new, c.reference, strict=True)] for c in cells]
    kinds = ((True, True), (True, False), (False, True), (False, False))
    return [PairCounts(*(cell.count(kind) for kind in kinds)) for cell in pairs]


def design_effect(cells: Sequence[CellPair], flag: Flag, *, is_paired: bool) -> float:
    """By what episodes of one start state being alike multiplies the variance; 1 where no start was run twice.

    Where a side never varies, failures may still come by whole start states: its episodes then count as its starts.
    """
    clustered = plain = 0.0
    unseen = 1.0
    for cell in cells:
        sides = [np.array([float(flag(e)) for e in side]) for side in (cell.new, cell.reference)]
        influences = [(x - x.mean()) / len(x) for x in sides]
        labels = [start_clusters(side) for side in (cell.new, cell.reference)]
        if is_paired:
            influences, labels = [influences[0] - influences[1]], labels[:1]
        for influence, label in zip(influences, labels, strict=True):
            if len(influence) < 2:
                continue
            if label is not None and not influence.any():
                unseen = max(unseen, len(label) / len(set(label)))
            plain += clustered_covariance(influence, influence)[0]
            clustered += clustered_covariance(influence, influence, label)[0]
    return max(unseen, clustered / plain) if plain > 0 else unseen


def time_cells(cells: Sequence[CellPair], *, tau_s: float, is_paired: bool) -> list[MeanCell]:
    """Restricted means of each cell with the (co)variances that leaving out one start state at a time gives.

    Units are start states, each with all its repeats; an episode whose start is not recorded is one of its own.
    """
    made = []
    for cell in cells:
        new, reference = (_units(side, who, cell.name, tau_s) for side, who in _named_sides(cell))
        if is_paired:
            moved = dict(zip(reference.labels, reference.influence, strict=True))
            second = np.array([moved[label] for label in new.labels])
            v1, v2, covariance = clustered_covariance(_influence(new), _scaled(second))
            made.append(MeanCell(new.value, reference.value, v1, v2, new.n_units, reference.n_units, covariance))
        else:
            v1, v2 = (clustered_covariance(x, x)[0] for x in (_influence(new), _influence(reference)))
            made.append(MeanCell(new.value, reference.value, v1, v2, new.n_units, reference.n_units))
    return made


def _named_sides(cell: CellPair) -> tuple[tuple[Sequence[Episode], str], tuple[Sequence[Episode], str]]:
    return (cell.new, 'candidate'), (cell.reference, 'baseline')


def _units(episodes: Sequence[Episode], who: str, cell: str, tau_s: float) -> UnitMeans:
    timed = operations(episodes, unit=TimingUnit.START)
    if timed.n_operations == 0:
        raise NotEstimable('none of the episodes holds an operation to be timed')
    found = unit_means(timed, tau_s)
    if found.n_units < 2:
        raise NotEstimable(f'{cell}: {found.n_units} start state of the {who}, and a mean time needs at least 2')
    return found


def _influence(found: UnitMeans) -> FloatArray:
    return _scaled(found.influence)


def _scaled(influence: FloatArray) -> FloatArray:
    """What each unit adds to the mean: `clustered_covariance` multiplies squares by n / (n - 1)."""
    n = len(influence)
    moved: FloatArray = influence * np.sqrt((n - 1) / n)
    return moved


def shared_tau(shared: SharedCells) -> tuple[float, str]:
    """A cap for restricted means when none is given, and where it comes from: the time that both arms were given."""
    everyone = [e for c in shared.cells for e in (*c.new, *c.reference)]
    caps = [e.time_cap_s for e in everyone if e.time_cap_s is not None]
    if len(caps) == len(everyone):
        return min(caps), 'the time cap on record'
    longest = min(max(e.known_duration_s for c in shared.cells for e in side(c)) for side in (_new, _reference))
    if longest <= 0 or not math.isfinite(longest):
        raise InputError('no episode lasted longer than 0 s; declare tau')
    return longest, 'the longest time that both arms were observed; without time caps on record, declare tau'


def cell_taus(shared: SharedCells, plan: AnalysisPlan) -> dict[str, float]:
    """Cell -> tau: the declared one (of its stratum, where each has its own), else what both arms were given."""
    if plan.tau_s is None or not isinstance(plan.tau_s, Mapping):
        tau_s = shared_tau(shared)[0] if plan.tau_s is None else plan.tau_s
        return {c.name: tau_s for c in shared.cells}
    return {c.name: _declared_tau(c, plan.tau_s) for c in shared.cells}


def _declared_tau(cell: CellPair, taus_s: Mapping[str, float]) -> float:
    first = cell.new[0]
    keys = [cell.name, first.stratum, first.task, first.benchmark]
    joined = [SEPARATOR.join(filter(None, parts)) for parts in (
        (first.benchmark, first.task, first.stratum), (first.task, first.stratum), (first.benchmark, first.stratum),
        (first.benchmark, first.task),
    )]  # fmt: skip
    for key in (*keys, *joined):
        if key in taus_s:
            return taus_s[key]
    raise InputError(f'tau_s has no time for {cell.name!r}; it has: {", ".join(sorted(taus_s))}')


def _new(cell: CellPair) -> Sequence[Episode]:
    return cell.new


def _reference(cell: CellPair) -> Sequence[Episode]:
    return cell.reference


def check_required(names: Sequence[str]) -> None:
    for name in names:
        if name not in ENDPOINTS:
            raise InputError(f'no endpoint {name!r}; known: {", ".join(ENDPOINTS)}')


def check_margins(margins: Mapping[str, float]) -> None:
    """Margins are shares between 0 and 1: 5 points are 0.05, 10 % slower is 0.10."""
    for name, value in margins.items():
        if not (math.isfinite(value) and 0 < value < 1):
            raise InputError(f'the margin of {name} is {value}, wanted a share between 0 and 1 (5 points are 0.05)')
