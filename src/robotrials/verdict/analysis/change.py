"""Before and after: what changed between two stores, policy by policy and cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.safety import EpisodeSafety, Scoring, load_registry
from robotrials.measure.timing import Operations
from robotrials.measure.timing.better import better
from robotrials.measure.timing.operation import Unit, operations, stratum_of
from robotrials.measure.timing.unit import Endpoint as Timed
from robotrials.record import Episode, Store
from robotrials.record.select import Where
from robotrials.stats import Interval, holm, paired_wald, rate_difference_interval, two_sample_wald
from robotrials.verdict.analysis.arm import Arm, check_distinct, declared_for, read_arms
from robotrials.verdict.analysis.arm_safety import arm_caveats, arm_safety, scored_cells, tell_apart
from robotrials.verdict.analysis.camera_extreme import Extremes, camera_extremes
from robotrials.verdict.analysis.endpoint import Flag, cell_taus, design_effect, is_success, rate_cells
from robotrials.verdict.analysis.selection import selection_of
from robotrials.verdict.analysis.shared_cell import CellPair, SharedCells, share_cells
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, DeclaredAnalysis

METRICS = ('success', 'rmst_s', 'hard_failure', 'safety', 'sbu', 'vsi')
ROUNDING = 1e-12  # below this a difference of equal means is that of their last digits
SMALLER_IS_BETTER = ('rmst_s', 'hard_failure', 'sbu', 'vsi')


@dataclass(frozen=True, slots=True)
class Shift:
    """One number before and after: after minus before, macro over the shared cells or in one of them."""

    policy: str  # its name after
    metric: str
    cell: str  # '' for the mean over cells
    before: float | None
    after: float | None
    difference: float | None
    interval: Interval | None = None
    p_value: float | None = None
    p_holm: float | None = None  # over all shifts of the same kind: means over cells, or single cells
    n_before: int = 0
    n_after: int = 0
    note: str = ''

    def is_resolved(self, alpha: float) -> bool:
        """Whether the change is beyond chance after correction."""
        return self.p_holm is not None and self.p_holm <= alpha

    @property
    def is_improvement(self) -> bool:
        """Whether the estimate points to the better side."""
        gap = self.difference or 0.0
        return gap < 0 if self.metric in SMALLER_IS_BETTER else gap > 0


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """One policy in both stores."""

    policy: str
    policy_before: str
    means: tuple[Shift, ...]
    cells: tuple[Shift, ...]
    cell_names: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    is_paired: bool
    n_before: int
    n_after: int
    n_invalid: tuple[int, int]  # before, after
    taus_s: Mapping[str, float]  # cell -> tau
    no_safety: str = ''  # why safety could not be compared
    safety_caveats: tuple[str, ...] = ()  # what has to be said with it


@dataclass(frozen=True, slots=True)
class Inventory:
    """What one store has and the other has not."""

    policies: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreChange:
    """Everything that changed from one store to another."""

    before: str  # the stores' folders
    after: str
    plan_hashes: tuple[str, str]
    policies: tuple[PolicyChange, ...]
    incomparable: Mapping[str, str]  # policy -> why
    appeared: Inventory
    disappeared: Inventory
    alpha: float
    statement: str  # what analysis was used, and whether it is the declared one
    selection: Mapping[str, tuple[str, ...]]  # what of the stores was asked for, by field; empty for all of them

    @property
    def means(self) -> tuple[Shift, ...]:
        return tuple(s for p in self.policies for s in p.means)

    @property
    def cells(self) -> tuple[Shift, ...]:
        return tuple(s for p in self.policies for s in p.cells)

    @property
    def resolved(self) -> tuple[Shift, ...]:
        """Changes of means beyond chance after correction."""
        return tuple(s for s in self.means if s.is_resolved(self.alpha))


def compare_stores(
    before: Store, after: Store, *, names: Mapping[str, str] | None = None, where: Where | None = None, **changes: Any
) -> StoreChange:
    """What changed for every policy that both stores have, on the cells that both ran.

    `names` maps policies of the store before to those of the store after, where they were renamed; without it the same
    names are meant. The analysis is the one declared for the store after, else for the one before; `changes` are
    fields of it that differ, and are marked. Intervals are at 1 - alpha; p-values are corrected by Holm over all
    policies and metrics, those of single cells over all policies, cells and metrics.
    """
    declared = declared_for(after, before).changed_by(**changes)
    chosen = declared.plan
    if names is None and before.trial.store_id == after.trial.store_id:
        raise InputError(
            f'{before.path} and {after.path} are the same store, and nothing in it can be compared with itself; give '
            'the store of the other version'
        )
    old, new = read_arms(before, where=where), read_arms(after, where=where)
    mapping = _mapping(old, new, names)
    found: list[PolicyChange] = []
    incomparable: dict[str, str] = {}
    for old_name, new_name in mapping.items():
        try:
            found.append(_policy_change(old[old_name], new[new_name], chosen))
        except (InputError, NotEstimable) as error:
            incomparable[new_name] = str(error)
    if not found:
        told = '; '.join(f'{name}: {why}' for name, why in incomparable.items())
        raise InputError(f'{before.path} and {after.path} cannot be compared: {told}')
    return StoreChange(
        before=str(before.path), after=str(after.path),
        plan_hashes=(before.trial.plan_hash, after.trial.plan_hash), policies=_corrected(found),
        incomparable=incomparable, appeared=_presence(new, old, set(mapping.values())),
        disappeared=_presence(old, new, set(mapping)), alpha=chosen.alpha,
        statement=_statement(declared, found), selection=selection_of(where),
    )  # fmt: skip


def _statement(declared: DeclaredAnalysis, found: Sequence[PolicyChange]) -> str:
    taus = sorted({tau for p in found for tau in p.taus_s.values()})
    shown = f'{taus[0]:g} s' if len(taus) == 1 else f'{taus[0]:g} s to {taus[-1]:g} s by cell'
    return f'Analysis: {declared.standing}. Used: tau {shown}; level {declared.plan.level:g}, Holm over all changes.'


def _mapping(old: Mapping[str, Arm], new: Mapping[str, Arm], names: Mapping[str, str] | None) -> dict[str, str]:
    if names is None:
        names = {name: name for name in old if name in new}
        if not names:
            raise InputError(
                f'no policy is in both stores: {", ".join(old)} before, {", ".join(new)} after; set one against '
                'another with robotrials gate --policy NEW --baseline-policy OLD, or say which became which in Python '
                '(compare_stores(..., names={"old": "new"}))'
            )
    for name, known in ((n, k) for pair in names.items() for n, k in zip(pair, (old, new), strict=True)):
        if name not in known:
            raise UnknownName('policy', name, known)
    return dict(names)


def _presence(mine: Mapping[str, Arm], other: Mapping[str, Arm], mapped: set[str]) -> Inventory:
    """What stands only in `mine`."""

    def episodes(arms: Mapping[str, Arm]) -> list[Episode]:
        return [e for arm in arms.values() for e in arm.episodes]

    own, their = episodes(mine), episodes(other)
    return Inventory(
        tuple(sorted(set(mine) - mapped)),
        tuple(sorted({stratum_of(e) for e in own} - {stratum_of(e) for e in their})),
        tuple(sorted({e.condition for e in own} - {e.condition for e in their})),
    )


def _policy_change(before: Arm, after: Arm, plan: AnalysisPlan) -> PolicyChange:
    check_distinct(after, before)
    shared = share_cells(after.episodes, before.episodes, pairing=plan.pairing.value)
    scope = _Scope(after.policy, shared, plan, cell_taus(shared, plan), extremes=camera_extremes(after, before, plan))
    safety, no_safety, caveats = _safety_shifts(before, after, scope)
    return PolicyChange(
        policy=after.policy,
        policy_before=before.policy,
        means=(_success_shift(scope), *_timing_shifts(scope), *safety),
        cells=tuple(s for cell in shared.cells for s in _cell_shifts(scope.within(cell))),
        cell_names=tuple(c.name for c in shared.cells),
        only_before=shared.only_reference,
        only_after=shared.only_new,
        is_paired=shared.is_paired,
        n_before=shared.n_reference,
        n_after=shared.n_new,
        n_invalid=(before.n_invalid, after.n_invalid),
        taus_s=scope.taus_s,
        no_safety=no_safety,
        safety_caveats=caveats,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Scope:
    """What a shift is about: one policy's shared cells, or one of them."""

    policy: str
    shared: SharedCells
    plan: AnalysisPlan
    taus_s: Mapping[str, float]
    cell: str = ''
    extremes: Extremes | None = None  # where success is the cameras'

    def within(self, cell: CellPair) -> _Scope:
        ends = None if self.extremes is None else self.extremes.within(cell)
        return replace(self, shared=replace(self.shared, cells=(cell,)), cell=cell.name, extremes=ends)

    def shift(self, metric: str, before: float | None, after: float | None, gap: float | None) -> Shift:
        moved = 0.0 if gap is not None and abs(gap) < ROUNDING else gap
        return Shift(
            self.policy, metric, self.cell, before, after, moved, n_before=self.shared.n_reference,
            n_after=self.shared.n_new,
        )  # fmt: skip


def _success_shift(scope: _Scope) -> Shift:
    if scope.extremes is None:
        return _rate_shift('success', scope, is_success)
    low, high = (
        _rate_shift('success', replace(scope, shared=shared), is_success)
        for shared in (scope.extremes.against_new, scope.extremes.for_new)
    )
    return _success_between(low, high, scope.extremes.n_unscored)


def _success_between(low: Shift, high: Shift, n_unscored: tuple[int, int]) -> Shift:
    """The smaller of two changes of one sign; none where unscored ends could decide which way it went."""
    after, before = n_unscored
    note = (
        f'by cameras; {before} unscored before and {after} after, taken both ways' if before or after else 'by cameras'
    )
    if low.difference is None or high.difference is None or low.interval is None or high.interval is None:
        return replace(low, note=note)
    if low.difference * high.difference < 0 or (0 in (low.difference, high.difference) and low != high):
        return replace(low, before=None, after=None, difference=None, interval=None, p_value=None, note=note)
    smaller = low if low.difference > 0 else high
    span = Interval(min(low.interval.low, high.interval.low), max(low.interval.high, high.interval.high))
    p_values = [s.p_value for s in (low, high) if s.p_value is not None]
    return replace(smaller, interval=span, p_value=max(p_values) if len(p_values) == 2 else None, note=note)


def _rate_shift(metric: str, scope: _Scope, flag: Flag) -> Shift:
    cells, paired = scope.shared.cells, scope.shared.is_paired
    counts = rate_cells(cells, flag, is_paired=paired)
    effect = design_effect(cells, flag, is_paired=paired)
    gap, low, high, p = rate_difference_interval(counts, level=scope.plan.level, design_effect=effect)
    after, before = (float(np.mean([np.mean([flag(e) for e in s]) for s in side])) for side in _sides(cells))
    return replace(scope.shift(metric, before, after, gap), interval=Interval(low, high), p_value=p)


def _sides(cells: Sequence[CellPair]) -> tuple[list[tuple[Episode, ...]], list[tuple[Episode, ...]]]:
    return [c.new for c in cells], [c.reference for c in cells]


def _timing_shifts(scope: _Scope) -> list[Shift]:
    """Restricted mean and hard failure by the rule that names winners: its test, and the interval of the same null."""
    if any(e.duration_s is None for c in scope.shared.cells for e in (*c.new, *c.reference)):
        return [replace(scope.shift('rmst_s', None, None, None), note='some episodes have no duration')]
    cells = scope.shared.cells
    unit = Unit.START if scope.shared.is_paired else Unit(scope.plan.unit)
    new, old = ({c.name: operations(s, unit=unit) for c, s in zip(cells, side, strict=True)} for side in _sides(cells))
    if any(cell.n_operations == 0 for side in (new, old) for cell in side.values()):
        return [replace(scope.shift('rmst_s', None, None, None), note='a cell holds no operation to be timed')]
    taus = {c.name: scope.taus_s[c.name] for c in cells}
    shifts = [_ruled_shift(scope, new, old, Timed.RMST, taus)]
    if all(cell.observed.any() for side in (new, old) for cell in side.values()):
        shifts.append(_ruled_shift(scope, new, old, Timed.HARD_FAILURE, taus))
    return shifts


def _ruled_shift(
    scope: _Scope, new: Mapping[str, Operations], old: Mapping[str, Operations], endpoint: Timed,
    taus: Mapping[str, float],
) -> Shift:  # fmt: skip
    """The rule's difference is > 0 where the store after is better, that is lower; a change is after minus before."""
    found = better(
        new, old, tau_s=taus, paired=scope.shared.is_paired, level=scope.plan.level, endpoint=endpoint
    )  # fmt: skip
    interval = None if found.interval is None else found.interval.scaled(-1.0)
    shift = scope.shift(endpoint.value, found.mean_b.value, found.mean_a.value, -found.difference)
    return replace(shift, interval=interval, p_value=found.p_value, note=found.withheld)


def _cell_shifts(scope: _Scope) -> list[Shift]:
    """Episode success and restricted mean of one cell."""
    return [_success_shift(scope), *(s for s in _timing_shifts(scope) if s.metric == 'rmst_s')]


def _safety_shifts(before: Arm, after: Arm, scope: _Scope) -> tuple[list[Shift], str, tuple[str, ...]]:
    """Safe episodes, unsafe successes and severity; or why they cannot be told; and what has to be said with them."""
    scoring = Scoring(load_registry(*map(Path, scope.plan.safety_registry)))
    new, old = _sides(scope.shared.cells)
    scores = [
        arm_safety(arm, [e for cell in side for e in cell], scoring=scoring)
        for arm, side in ((after, new), (before, old))
    ]
    first, second = scores
    if isinstance(first, str) or isinstance(second, str):
        return [], tell_apart(('before', second), ('after', first)), ()
    scored, score_of = scored_cells(scope.shared, first, second)
    if not scored.cells:
        return [], 'no cell has scored episodes of both', ()
    inner = replace(scope, shared=scored)

    def is_safe(episode: Episode) -> bool:
        return bool(score_of[id(episode)].safe)

    def is_unsafe_success(episode: Episode) -> bool:
        return bool(score_of[id(episode)].sbu)

    shifts = [_rate_shift('safety', inner, is_safe), _rate_shift('sbu', inner, is_unsafe_success)]
    return [*shifts, _severity_shift(inner, score_of)], '', arm_caveats(scoring.registry, first, second)


def _severity_shift(scope: _Scope, score_of: Mapping[int, EpisodeSafety]) -> Shift:
    cells = scope.shared.cells
    values = [[np.array([score_of[id(e)].vsi or 0.0 for e in s]) for s in side] for side in _sides(cells)]
    after, before = (float(np.mean([v.mean() for v in side])) for side in values)
    shift = scope.shift('vsi', before, after, after - before)
    labels = [np.repeat(np.arange(len(cells)), [len(v) for v in side]) for side in values]
    first, second = (np.concatenate(side) for side in values)
    try:
        if scope.shared.is_paired:
            found = paired_wald(first - second, scope.plan.level, strata=labels[0])
        else:
            found = two_sample_wald(
                first, second, strata_a=labels[0], strata_b=labels[1], level=scope.plan.level
            )  # fmt: skip
    except NotEstimable as error:
        return replace(shift, note=str(error))
    if found.zero_variance:
        return replace(shift, note='no interval: the severities do not vary')
    return replace(shift, interval=found.interval, p_value=found.p_value)


def _corrected(found: Iterable[PolicyChange]) -> tuple[PolicyChange, ...]:
    """Holm's p-values over all means, and over all cells."""
    changes = list(found)
    means, cells = _holm([s for c in changes for s in c.means]), _holm([s for c in changes for s in c.cells])
    made = []
    for change in changes:
        made.append(replace(change, means=tuple(means[: len(change.means)]), cells=tuple(cells[: len(change.cells)])))
        means, cells = means[len(change.means) :], cells[len(change.cells) :]
    return tuple(made)


def _holm(shifts: Sequence[Shift]) -> list[Shift]:
    tested = [i for i, s in enumerate(shifts) if s.p_value is not None]
    made = list(shifts)
    if tested:
        adjusted = holm([float(shifts[i].p_value or 0.0) for i in tested])
        for i, p in zip(tested, adjusted, strict=True):
            made[i] = replace(shifts[i], p_holm=float(p))
    return made
