"""Before and after: what changed between two stores, policy by policy and cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.safety import Scoring, load_registry
from robotrials.measure.timing.better import better
from robotrials.measure.timing.curve import Endpoint as Timed
from robotrials.measure.timing.operation import stratum_of
from robotrials.stats import Interval, holm
from robotrials.verdict.analysis.arm import (
    arm_caveats,
    arm_safety,
    check_distinct,
    declared_for,
    read_arms,
    scored_sides,
    tell_apart,
    two_sides,
)
from robotrials.verdict.analysis.cameras import extreme_contrast, told_by_cameras
from robotrials.verdict.analysis.contrast import contrast, design_word
from robotrials.verdict.analysis.ranking import seconds_text
from robotrials.verdict.analysis.selection import selection_of
from robotrials.verdict.planning.analysis_plan import EndpointName, SuccessSource

if TYPE_CHECKING:
    from robotrials.measure.safety import EpisodeSafety
    from robotrials.record import Episode, Store
    from robotrials.record.blinding import Where
    from robotrials.verdict.analysis.arm import Arm, Side
    from robotrials.verdict.analysis.cameras import Silence
    from robotrials.verdict.analysis.contrast import Contrast, LeftOut
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan, DeclaredAnalysis

CLAIMED = ('success', 'faster', 'lost', 'safety')  # in one list; the others are told with it and are no claims
ROUNDING = 1e-12  # below this a difference of equal means is that of their last digits
SMALLER_IS_BETTER = ('rmst_s', 'lost', 'hard_failure', 'sbu', 'vsi')


@dataclass(frozen=True, slots=True, eq=False)
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
    p_holm: float | None = None  # over all claims of the same kind: means over cells, or single cells
    n_before: int = 0
    n_after: int = 0
    note: str = ''
    contrast: Contrast | None = None  # after (arm a) against before (arm b)

    def is_resolved(self, alpha: float) -> bool:
        """Whether the change is beyond chance after correction."""
        return self.p_holm is not None and self.p_holm <= alpha

    @property
    def is_improvement(self) -> bool:
        """Whether the estimate points to the better side."""
        if self.metric == 'lost' and self.contrast is not None:
            return self.contrast.advantage > 0  # by how often fewer are lost, which is what was tested
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
    left_out: tuple[LeftOut, ...]
    design: str  # paired, independent, or some of each
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
    policies and endpoints, those of single cells over all policies, cells and endpoints.
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
    rows: list[PolicyChange] = []
    incomparable: dict[str, str] = {}
    for old_name, new_name in mapping.items():
        try:
            rows.append(_policy_change(old[old_name], new[new_name], chosen))
        except (InputError, NotEstimable) as error:
            incomparable[new_name] = str(error)
    if not rows:
        reasons = '; '.join(f'{name}: {why}' for name, why in incomparable.items())
        raise InputError(f'{before.path} and {after.path} cannot be compared: {reasons}')
    return StoreChange(
        before=str(before.path), after=str(after.path),
        plan_hashes=(before.trial.plan_hash, after.trial.plan_hash), policies=_corrected(rows),
        incomparable=incomparable, appeared=_presence(new, old, set(mapping.values())),
        disappeared=_presence(old, new, set(mapping)), alpha=chosen.alpha,
        statement=_statement(declared, rows), selection=selection_of(where),
    )  # fmt: skip


def _statement(declared: DeclaredAnalysis, changes: Sequence[PolicyChange]) -> str:
    taus = {f'{p.policy} {cell}': tau for p in changes for cell, tau in p.taus_s.items()}
    tau_text = f'tau {seconds_text(taus)}; ' if taus else ''
    return f'Analysis: {declared.standing}. Used: {tau_text}level {declared.plan.level:g}, Holm over all changes.'


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
    by_cameras = [told_by_cameras(arm, plan) for arm in (after, before)]
    new, old = two_sides(
        by_cameras[0][0], by_cameras[1][0], plan, names=(f'{after.policy} after', f'{before.policy} before')
    )
    scope = _Scope(after.policy, new, old, plan, unscored=(by_cameras[0][1], by_cameras[1][1]))
    safety, no_safety, caveats = _safety_shifts(before, after, scope)
    success = _success_shift(scope)
    cells = [c for c in new.cells if c in old.cells]
    return PolicyChange(
        policy=after.policy,
        policy_before=before.policy,
        means=(success, *_timing_shifts(scope), *safety),
        cells=tuple(s for cell in cells for s in _cell_shifts(scope.within(cell))),
        cell_names=tuple(cells),
        left_out=() if success.contrast is None else success.contrast.left_out,
        design='' if success.contrast is None else design_word(success.contrast),
        n_before=old.only(*cells).n_episodes,
        n_after=new.only(*cells).n_episodes,
        n_invalid=(before.n_invalid, after.n_invalid),
        taus_s=next((s.contrast.taus_s for s in _timing_shifts(scope) if s.contrast is not None), {}),
        no_safety=no_safety,
        safety_caveats=caveats,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Scope:
    """What a shift is about: one policy after (arm a) and before (arm b) in all shared cells, or in one of them."""

    policy: str
    new: Side
    old: Side
    plan: AnalysisPlan
    cell: str = ''
    unscored: Silence = (frozenset(), frozenset())  # ends that cameras left open

    def within(self, cell: str) -> _Scope:
        return replace(self, new=self.new.only(cell), old=self.old.only(cell), cell=cell)

    def missing(self, metric: str, note: str) -> Shift:
        return Shift(self.policy, metric, self.cell, None, None, None, note=note)

    def shift(self, metric: str, effect: Contrast) -> Shift:
        """Of a rate: after minus before."""
        after, before = effect.values
        return Shift(
            self.policy, metric, self.cell, before, after, _rounded(effect.estimate), effect.interval, effect.p_value,
            n_before=effect.n_episodes[1], n_after=effect.n_episodes[0], note=effect.note or effect.withheld,
            contrast=effect,
        )  # fmt: skip


def _rounded(gap: float) -> float:
    return 0.0 if abs(gap) < ROUNDING else gap


def _success_shift(scope: _Scope) -> Shift:
    try:
        if scope.plan.success is not SuccessSource.RECONSTRUCTION:
            return scope.shift(
                'success', contrast(scope.new, scope.old, endpoint=EndpointName.SUCCESS, plan=scope.plan)
            )
        effect = extreme_contrast(scope.new, scope.old, scope.plan, unscored=scope.unscored)
    except NotEstimable as error:
        return scope.missing('success', str(error))
    after, before = (
        sum(e.key in scope.unscored[k] for e in side.every) for k, side in enumerate((scope.new, scope.old))
    )
    shift = replace(
        scope.shift('success', effect), note=f'by cameras; {before} unscored before and {after} after, taken both ways'
    )
    if effect.p_value is None:
        return replace(shift, before=None, after=None, difference=None, interval=None)
    return shift


def _timing_shifts(scope: _Scope) -> list[Shift]:
    """Whether it is faster, how many seconds that comes to, whether it loses fewer items, and hard failure."""
    try:
        effect = contrast(scope.new, scope.old, endpoint=EndpointName.TIME, plan=scope.plan)
    except (NotEstimable, InputError) as error:
        return [scope.missing('faster', str(error))]
    seconds = effect.seconds_ahead
    assert seconds is not None
    counts = {'n_before': effect.n_episodes[1], 'n_after': effect.n_episodes[0]}
    span = effect.interval and effect.interval.shifted(-effect.null)
    first = Shift(
        scope.policy, 'faster', scope.cell, effect.null, effect.estimate, _rounded(effect.advantage), span,
        effect.p_value, note=effect.note or effect.withheld, contrast=effect, **counts,
    )  # fmt: skip
    after, before = effect.values
    mean = Shift(
        scope.policy, 'rmst_s', scope.cell, before, after, _rounded(-(seconds.value or 0.0)),
        None if seconds.interval is None else seconds.interval.scaled(-1.0), note=seconds.note, contrast=effect,
        **counts,
    )  # fmt: skip
    shifts = [first, mean]
    if effect.n_items > 1:
        lost = contrast(scope.new, scope.old, endpoint=EndpointName.LOST, plan=scope.plan)
        shifts.append(
            Shift(
                scope.policy, 'lost', scope.cell, lost.values[1], lost.values[0],
                _rounded(lost.values[0] - lost.values[1]), None, lost.p_value, note=lost.note or lost.withheld,
                contrast=lost, **counts,
            )
        )  # fmt: skip
    cells = [{c.name: side.operations(c.name) for c in effect.cells} for side in (scope.new, scope.old)]
    if not all(cell.observed.any() for side in cells for cell in side.values()):
        return shifts
    assert effect.seconds is not None
    hard = better(
        *cells,
        tau_s=effect.taus_s,
        paired=effect.seconds.is_paired,
        level=scope.plan.level,
        endpoint=Timed.HARD_FAILURE,
    )
    interval = None if hard.interval is None else hard.interval.scaled(-1.0)
    shifts.append(
        Shift(
            scope.policy, Timed.HARD_FAILURE.value, scope.cell, hard.mean_b.value, hard.mean_a.value,
            _rounded(-hard.difference), interval, n_before=mean.n_before, n_after=mean.n_after, note=hard.withheld,
        )
    )  # fmt: skip
    return shifts


def _cell_shifts(scope: _Scope) -> list[Shift]:
    """Episode success, who was first and the restricted mean of one cell."""
    return [_success_shift(scope), *(s for s in _timing_shifts(scope) if s.metric in ('faster', 'rmst_s'))]


def _safety_shifts(before: Arm, after: Arm, scope: _Scope) -> tuple[list[Shift], str, tuple[str, ...]]:
    """Safe episodes, unsafe successes and severity; or why they cannot be told; and what has to be said with them."""
    scoring = Scoring(load_registry(*map(Path, scope.plan.safety_registry)))
    cells = [c for c in scope.new.cells if c in scope.old.cells]
    first, second = (
        arm_safety(arm, side.only(*cells).every, scoring=scoring)
        for arm, side in ((after, scope.new), (before, scope.old))
    )
    if isinstance(first, str) or isinstance(second, str):
        return [], tell_apart(('before', second), ('after', first)), ()
    new, old = scored_sides(scope.new, scope.old, first, second)
    if not set(new.cells) & set(old.cells):
        return [], 'no cell has scored episodes of both', ()

    def shift(metric: str, read: Callable[[EpisodeSafety], float]) -> Shift:
        values = (lambda e: read(first[e.key]), lambda e: read(second[e.key]))
        safety = contrast(new, old, endpoint=EndpointName.SAFETY, plan=scope.plan, value=values)
        return scope.shift(metric, safety)

    shifts = [
        shift('safety', lambda s: float(bool(s.safe))), shift('sbu', lambda s: float(bool(s.sbu))),
        shift('vsi', lambda s: s.vsi or 0.0),
    ]  # fmt: skip
    return shifts, '', arm_caveats(scoring.registry, first, second)


def _corrected(uncorrected: Iterable[PolicyChange]) -> tuple[PolicyChange, ...]:
    """Holm's p-values over all means, and over all cells."""
    changes = list(uncorrected)
    means, cells = _holm([s for c in changes for s in c.means]), _holm([s for c in changes for s in c.cells])
    made = []
    for change in changes:
        made.append(replace(change, means=tuple(means[: len(change.means)]), cells=tuple(cells[: len(change.cells)])))
        means, cells = means[len(change.means) :], cells[len(change.cells) :]
    return tuple(made)


def _holm(shifts: Sequence[Shift]) -> list[Shift]:
    tested = [i for i, s in enumerate(shifts) if s.p_value is not None and s.metric in CLAIMED]
    made = list(shifts)
    if tested:
        adjusted = holm([float(shifts[i].p_value or 0.0) for i in tested])
        for i, p in zip(tested, adjusted, strict=True):
            made[i] = replace(shifts[i], p_holm=float(p))
    return made
