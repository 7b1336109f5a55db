"""Means over units: a cell's value, and what it is with each unit (start state, episode, session) left out."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.timing.curve import check_tau
from robotrials.measure.timing.operation import FloatArray, Operations, Unit
from robotrials.stats.allowance import FEWEST_PER_CELL, MacroArm, Spread
from robotrials.stats.matching import Labels
from robotrials.value import dataclass

CENTRES = (Unit.SESSION, Unit.OPERATOR)


class Endpoint(enum.StrEnum):
    """A bounded quantity of a cell that the rule can compare."""

    RMST = 'rmst_s'  # 0 to tau
    CHANCE = 'chance'  # F(tau), 0 to 1
    HARD_FAILURE = 'hard_failure'  # 1 - F at the last finite time, 0 to 1


@dataclass(frozen=True, slots=True, eq=False)
class UnitMeans:
    """One policy's endpoint in one stratum, and the same with each unit left out."""

    value: float
    left_out: FloatArray  # (units,)
    labels: Labels  # (units,)
    low: float
    high: float
    n_followed: int  # units that were watched to the end of an operation, or to tau

    @property
    def n_units(self) -> int:
        return len(self.left_out)

    @property
    def influence(self) -> FloatArray:
        """(units,) whose squares sum to the jackknife variance of the value."""
        n = self.n_units
        moved: FloatArray = np.sqrt((n - 1) / n) * (self.left_out.mean() - self.left_out)
        return moved

    @property
    def variance(self) -> float:
        return float(np.sum(self.influence**2))


def unit_means(cell: Operations, tau_s: float, endpoint: Endpoint = Endpoint.RMST) -> UnitMeans:
    """The endpoint of a cell by the jackknife over its units (exact: every unit is really left out)."""
    from robotrials.measure.timing.jackknife import scalar_jackknife
    from robotrials.measure.timing.resample import sort_cell

    check_tau(tau_s)
    whole = cell.by_unit()
    table = scalar_jackknife(sort_cell(whole), tau_s=tau_s)
    column = {
        Endpoint.RMST: table[:, 0], Endpoint.CHANCE: table[:, 1], Endpoint.HARD_FAILURE: 1.0 - table[:, 3],
    }[endpoint]  # fmt: skip
    ended = whole.observed if endpoint is Endpoint.HARD_FAILURE else whole.observed | (whole.durations_s >= tau_s)
    return UnitMeans(
        value=float(column[-1]),
        left_out=np.ascontiguousarray(column[:-1]),
        labels=whole.units if whole.units is not None else tuple(range(whole.n_episodes)),
        low=0.0,
        high=tau_s if endpoint is Endpoint.RMST else 1.0,
        n_followed=int(np.count_nonzero(np.bincount(whole.episode[ended]))),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ArmMeans:
    """One policy's cells, stratum by stratum, in the order of the strata."""

    cells: Mapping[str, UnitMeans]
    unit: Unit

    @property
    def macro(self) -> MacroArm:
        parts = list(self.cells.values())
        return MacroArm(
            means=np.array([p.value for p in parts]),
            low=np.array([p.low for p in parts]),
            high=np.array([p.high for p in parts]),
            n_units=np.array([float(p.n_followed) for p in parts]),
            is_linked=self.unit in CENTRES,
        )

    @property
    def n_units(self) -> int:
        if self.unit in CENTRES:
            return len({label for part in self.cells.values() for label in _told_apart(part)})
        return sum(part.n_units for part in self.cells.values())

    @property
    def spread(self) -> Spread:
        """The jackknife variance of the macro mean."""
        if self.unit in CENTRES:
            return _linked([self])
        return independent_spread([self])

    def problem(self) -> str:
        """Why the rule cannot judge this arm; empty when it can."""
        for stratum, part in self.cells.items():
            if part.n_units < FEWEST_PER_CELL:
                is_one_start = self.unit is Unit.START and part.n_units == 1 and part.labels[0] is not None
                hint = ' (every episode has the same seed and instance)' if is_one_start else ''
                return f'{_counted(part.n_units, self.unit)} in {stratum}{hint}; at least {FEWEST_PER_CELL} are needed'
            if part.n_followed == 0:
                return f'no operation of {stratum} was followed to its end'
        if self.unit in CENTRES and self.n_units < FEWEST_PER_CELL:
            return f'{_counted(self.n_units, self.unit)}; at least {FEWEST_PER_CELL} are needed'
        return ''


def _counted(n: int, unit: Unit) -> str:
    return f'{n} {unit}{"" if n == 1 else "s"}'


def _told_apart(part: UnitMeans) -> list[Hashable]:
    """Labels with a place for a unit that has none, so that such units stay separate."""
    return [(id(part), place) if label is None else label for place, label in enumerate(part.labels)]


def arm_means(
    cells: Mapping[str, Operations], tau_s: float | Mapping[str, float], endpoint: Endpoint = Endpoint.RMST
) -> ArmMeans:
    """Each stratum's endpoint; `tau_s` is one number, or one per stratum."""
    if not cells:
        raise InputError('no stratum was given: there is no mean of nothing')
    units = {cell.unit for cell in cells.values()}
    if len(units) > 1:
        raise InputError(f'strata have different units ({", ".join(sorted(units))}); build them with one unit')
    return ArmMeans({s: unit_means(c, tau_of(tau_s, s), endpoint) for s, c in cells.items()}, units.pop())


def tau_of(tau_s: float | Mapping[str, float], stratum: str) -> float:
    """The time up to which a stratum is judged."""
    if not isinstance(tau_s, Mapping):
        return float(tau_s)
    if stratum not in tau_s:
        raise InputError(f'tau_s has no time for stratum {stratum!r}; it has: {", ".join(sorted(tau_s)) or "none"}')
    return float(tau_s[stratum])


def independent_spread(arms: list[ArmMeans]) -> Spread:
    """The variance of a sum of macro means over arms that share no unit: one term per cell."""
    parts = [part for arm in arms for part in arm.cells.values()]
    strata = len(arms[0].cells)
    terms = np.array([part.variance for part in parts]) / strata**2
    return Spread(terms, np.array([max(part.n_units - 1.0, 1.0) for part in parts]))


def matched_spread(first: ArmMeans, second: ArmMeans) -> Spread:
    """The variance of second - first where both have the same units, stratum by stratum: one term per stratum."""
    terms, dof = [], []
    for stratum, part in first.cells.items():
        other = second.cells[stratum]
        moved = other.influence[_places_in(other.labels, part.labels)] - part.influence
        terms.append(float(np.sum(moved**2)))
        dof.append(max(part.n_units - 1.0, 1.0))
    return Spread(np.array(terms) / len(terms) ** 2, np.array(dof))


def _places_in(labels: Labels, wanted: Labels) -> slice | list[int]:
    """Where each of the wanted labels stands among these."""
    if labels == wanted:
        return slice(None)
    place = {label: k for k, label in enumerate(labels)}
    return [place[label] for label in wanted]


def contrast_spread(first: ArmMeans, second: ArmMeans, *, is_paired: bool) -> Spread:
    """The variance of the macro difference, by what its units share."""
    if first.unit in CENTRES:
        return _linked([first, second])
    return matched_spread(first, second) if is_paired else independent_spread([first, second])


def _linked(arms: list[ArmMeans]) -> Spread:
    """The variance where one unit may reach over strata and arms: each unit's moves are added before squaring."""
    total: dict[Hashable, float] = {}
    for sign, arm in zip((-1.0, 1.0), arms, strict=False):
        for part in arm.cells.values():
            for label, moved in zip(_told_apart(part), part.influence.tolist(), strict=True):
                total[label] = total.get(label, 0.0) + sign * moved / len(arm.cells)
    return Spread(np.array([sum(v**2 for v in total.values())]), np.array([max(len(total) - 1.0, 1.0)]))


def matched_cells(
    a: Mapping[str, Operations], b: Mapping[str, Operations]
) -> tuple[dict[str, Operations], dict[str, Operations]]:
    """Within each stratum the episodes of the units that both policies ran; strata without any are left out."""
    first, second = {}, {}
    for stratum in a:
        if _is_matched(a[stratum], b[stratum]):
            first[stratum], second[stratum] = a[stratum], b[stratum]
            continue
        left, right = (_episodes_of(cells[stratum]) for cells in (a, b))
        common = [label for label in left if label in right]
        if common:
            first[stratum] = a[stratum].take([place for label in common for place in left[label]])
            second[stratum] = b[stratum].take([place for label in common for place in right[label]])
    return first, second


def _is_matched(a: Operations, b: Operations) -> bool:
    """Whether both cells have the same units in the same order, each once."""
    labels = a.units
    return labels is not None and labels == b.units and None not in labels and a.n_units == len(labels)


def _episodes_of(cell: Operations) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for place, label in enumerate(cell.units or ()):
        if label is not None:
            places.setdefault(label, []).append(place)
    return places


def followed_to(cell: Operations) -> float:
    """Until when a cell's curve is known, in seconds; infinite where its last finite operation was a success.

    A ghost does not lengthen it: what was censored may still have succeeded, and a ghost never does.
    """
    finite = np.isfinite(cell.durations_s)
    watched = cell.durations_s[finite & ~cell.observed]
    done = cell.durations_s[finite & cell.observed]
    if len(watched) == 0 or (len(done) and done.max() > watched.max()):
        return float('inf')
    return float(watched.max())
