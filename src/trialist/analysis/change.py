"""Before and after: what changed between two stores, policy by policy and cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trialist.analysis.arm import Arm, check_distinct, read_arms, selection_of
from trialist.analysis.arm_safety import arm_safety, scored_cells, tell_apart
from trialist.analysis.endpoint import Flag, design_effect, is_success, rate_cells, shared_tau
from trialist.analysis.option import ReportOptions
from trialist.analysis.shared_cell import CellPair, SharedCells, share_cells
from trialist.episodes import Episode, Store
from trialist.episodes.select import Where
from trialist.errors import InputError, NotEstimable, UnknownName
from trialist.safety import EpisodeSafety, Scoring
from trialist.stats import Interval, holm, paired_wald, rate_difference_interval, two_sample_wald
from trialist.timing import NullMethod, Operations, scalar_tests
from trialist.timing.estimate import Draws, difference, estimate, jointly, macro_mean, resampled_cells
from trialist.timing.operation import operations, stratum_of
from trialist.timing.resample import PLATEAU, RMST

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
    tau_s: float
    no_safety: str = ''  # why safety could not be compared


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
    n_resamples: int
    seed: int
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
    before: Store, after: Store, options: ReportOptions | None = None, *, names: Mapping[str, str] | None = None,
    where: Where | None = None, pairing: str = 'auto',
) -> StoreChange:  # fmt: skip
    """What changed for every policy that both stores have, on the cells that both ran.

    `names` maps policies of the store before to those of the store after, where they were renamed; without it the same
    names are meant. Intervals are at 1 - alpha; p-values are corrected by Holm over all policies and metrics, those of
    single cells over all policies, cells and metrics.
    """
    chosen = options or ReportOptions()
    if names is None and before.trial.store_id == after.trial.store_id:
        raise InputError(
            f'{before.path} and {after.path} are the same store, and nothing in it can be compared with itself; give '
            'the store of the other version'
        )
    old, new = read_arms(before, where=where), read_arms(after, where=where)
    mapping = _mapping(old, new, names)
    found: list[PolicyChange] = []
    incomparable: dict[str, str] = {}
    streams = np.random.default_rng(chosen.seed).spawn(len(mapping))
    for (old_name, new_name), rng in zip(mapping.items(), streams, strict=True):
        try:
            found.append(_policy_change(old[old_name], new[new_name], chosen, pairing=pairing, rng=rng))
        except (InputError, NotEstimable) as error:
            incomparable[new_name] = str(error)
    if not found:
        told = '; '.join(f'{name}: {why}' for name, why in incomparable.items())
        raise InputError(f'{before.path} and {after.path} can not be compared: {told}')
    return StoreChange(
        before=str(before.path), after=str(after.path),
        plan_hashes=(before.trial.plan_hash, after.trial.plan_hash), policies=_corrected(found),
        incomparable=incomparable, appeared=_presence(new, old, set(mapping.values())),
        disappeared=_presence(old, new, set(mapping)), alpha=chosen.alpha, n_resamples=chosen.n_resamples,
        seed=chosen.seed, selection=selection_of(where),
    )  # fmt: skip


def _mapping(old: Mapping[str, Arm], new: Mapping[str, Arm], names: Mapping[str, str] | None) -> dict[str, str]:
    if names is None:
        names = {name: name for name in old if name in new}
        if not names:
            raise InputError(
                f'no policy is in both stores: {", ".join(old)} before, {", ".join(new)} after; set one against '
                'another with trialist gate --policy NEW --baseline-policy OLD, or say which became which in Python '
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


def _policy_change(
    before: Arm, after: Arm, options: ReportOptions, *, pairing: str, rng: np.random.Generator
) -> PolicyChange:
    check_distinct(after, before)
    shared = share_cells(after.episodes, before.episodes, pairing=pairing)
    tau_s = options.tau_s if options.tau_s is not None else shared_tau(shared)[0]
    scope = _Scope(after.policy, shared, options, tau_s)
    safety, no_safety = _safety_shifts(before, after, scope)
    return PolicyChange(
        policy=after.policy,
        policy_before=before.policy,
        means=(_success_shift(scope), *_timing_shifts(scope, rng), *safety),
        cells=tuple(s for cell in shared.cells for s in _cell_shifts(scope.within(cell), rng)),
        cell_names=tuple(c.name for c in shared.cells),
        only_before=shared.only_reference,
        only_after=shared.only_new,
        is_paired=shared.is_paired,
        n_before=shared.n_reference,
        n_after=shared.n_new,
        n_invalid=(before.n_invalid, after.n_invalid),
        tau_s=tau_s,
        no_safety=no_safety,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Scope:
    """What a shift is about: one policy's shared cells, or one of them."""

    policy: str
    shared: SharedCells
    options: ReportOptions
    tau_s: float
    cell: str = ''

    def within(self, cell: CellPair) -> _Scope:
        return replace(self, shared=replace(self.shared, cells=(cell,)), cell=cell.name)

    def shift(self, metric: str, before: float | None, after: float | None, gap: float | None) -> Shift:
        moved = 0.0 if gap is not None and abs(gap) < ROUNDING else gap
        return Shift(
            self.policy, metric, self.cell, before, after, moved, n_before=self.shared.n_reference,
            n_after=self.shared.n_new,
        )  # fmt: skip


def _success_shift(scope: _Scope) -> Shift:
    return _rate_shift('success', scope, is_success)


def _rate_shift(metric: str, scope: _Scope, flag: Flag) -> Shift:
    cells, paired = scope.shared.cells, scope.shared.is_paired
    counts = rate_cells(cells, flag, is_paired=paired)
    effect = design_effect(cells, flag, is_paired=paired)
    gap, low, high, p = rate_difference_interval(counts, level=scope.options.level, design_effect=effect)
    after, before = (float(np.mean([np.mean([flag(e) for e in s]) for s in side])) for side in _sides(cells))
    return replace(scope.shift(metric, before, after, gap), interval=Interval(low, high), p_value=p)


def _sides(cells: Sequence[CellPair]) -> tuple[list[tuple[Episode, ...]], list[tuple[Episode, ...]]]:
    return [c.new for c in cells], [c.reference for c in cells]


def _timing_shifts(scope: _Scope, rng: np.random.Generator) -> list[Shift]:
    """Restricted mean and hard failure, by resampling episodes (matched ones together)."""
    cells = scope.shared.cells
    new, old = ({c.name: operations(side) for c, side in zip(cells, s, strict=True)} for s in _sides(cells))
    if any(cell.n_operations == 0 for side in (new, old) for cell in side.values()):
        note = 'a cell holds no operation to be timed'
        return [replace(scope.shift('rmst_s', None, None, None), note=note)]
    after, before = _draws(new, old, scope, rng)
    p_value = _rmst_p_value(new, old, scope, rng)
    shifts = [_drawn_shift('rmst_s', scope, before[0], after[0], p_value)]
    if all(cell.observed.any() for side in (new, old) for cell in side.values()):
        shifts.append(_drawn_shift('hard_failure', scope, before[1], after[1], None))
    return shifts


def _draws(
    new: Mapping[str, Operations], old: Mapping[str, Operations], scope: _Scope, rng: np.random.Generator
) -> tuple[tuple[Draws, Draws], tuple[Draws, Draws]]:
    """(RMST, hard failure) macro over cells, of each side; pairs are drawn by the same streams."""
    seeds = rng.integers(0, 2**63, size=2)
    made = []
    for side, seed in ((new, seeds[0]), (old, seeds[0] if scope.shared.is_paired else seeds[1])):
        drawn = resampled_cells(side, n_resamples=scope.options.n_resamples, rng=np.random.default_rng(int(seed)))
        scalars = [cell.scalars(scope.tau_s) for cell in drawn.values()]
        lost = [jointly(lambda plateau: 1.0 - plateau, [s[PLATEAU]]) for s in scalars]
        made.append((macro_mean([s[RMST] for s in scalars]), macro_mean(lost)))
    return made[0], made[1]


def _rmst_p_value(
    new: Mapping[str, Operations], old: Mapping[str, Operations], scope: _Scope, rng: np.random.Generator
) -> float | None:
    if all(cell.n_episodes < 2 for side in (new, old) for cell in side.values()):
        return None
    method = NullMethod.PAIRED_SWAP if scope.shared.is_paired else NullMethod.PERMUTATION
    tests = scalar_tests(
        new, old, tau_s=scope.tau_s, thresholds_s=(), n_resamples=scope.options.n_resamples, rng=rng, method=method
    )
    return tests['rmst_s'].p_value


def _drawn_shift(metric: str, scope: _Scope, before: Draws, after: Draws, p_value: float | None) -> Shift:
    found = estimate(difference(after, before), level=scope.options.level)
    shift = scope.shift(metric, before.value, after.value, found.value)
    if found.percentile is not None and found.percentile.width == 0:
        return replace(shift, p_value=p_value, note='no interval: it does not vary in these episodes')
    return replace(shift, interval=found.percentile, p_value=p_value, note=found.note)


def _cell_shifts(scope: _Scope, rng: np.random.Generator) -> list[Shift]:
    """Success and restricted mean of one cell."""
    return [_success_shift(scope), *(s for s in _timing_shifts(scope, rng) if s.metric == 'rmst_s')]


def _safety_shifts(before: Arm, after: Arm, scope: _Scope) -> tuple[list[Shift], str]:
    """Safe episodes, unsafe successes and severity; or why they can't be told."""
    scoring = Scoring() if scope.options.registry is None else Scoring(scope.options.registry)
    new, old = _sides(scope.shared.cells)
    scores = [
        arm_safety(arm, [e for cell in side for e in cell], scoring=scoring)
        for arm, side in ((after, new), (before, old))
    ]
    first, second = scores
    if isinstance(first, str) or isinstance(second, str):
        return [], tell_apart(('before', second), ('after', first))
    scored, score_of = scored_cells(scope.shared, first, second)
    if not scored.cells:
        return [], 'no cell has scored episodes of both'
    inner = replace(scope, shared=scored)

    def is_safe(episode: Episode) -> bool:
        return bool(score_of[id(episode)].safe)

    def is_unsafe_success(episode: Episode) -> bool:
        return bool(score_of[id(episode)].sbu)

    shifts = [_rate_shift('safety', inner, is_safe), _rate_shift('sbu', inner, is_unsafe_success)]
    return [*shifts, _severity_shift(inner, score_of)], ''


def _severity_shift(scope: _Scope, score_of: Mapping[int, EpisodeSafety]) -> Shift:
    cells = scope.shared.cells
    values = [[np.array([score_of[id(e)].vsi or 0.0 for e in s]) for s in side] for side in _sides(cells)]
    after, before = (float(np.mean([v.mean() for v in side])) for side in values)
    shift = scope.shift('vsi', before, after, after - before)
    labels = [np.repeat(np.arange(len(cells)), [len(v) for v in side]) for side in values]
    first, second = (np.concatenate(side) for side in values)
    try:
        if scope.shared.is_paired:
            found = paired_wald(first - second, scope.options.level, strata=labels[0])
        else:
            found = two_sample_wald(
                first, second, strata_a=labels[0], strata_b=labels[1], level=scope.options.level
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
