"""One arm of a contrast: its valid episodes cut into cells, and what of them every contrast needs, worked out once.

A cell is a stratum (benchmark, task, object) under one condition. Everything that could depend on who asks is decided
here: which condition is compared, how a cell is called, whether a seed is a start state, how long a run was watched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.timing import Operations, operations
from robotrials.measure.timing.operation import (
    CAP_SLACK,
    Unit,
    final_failures,
    is_final_failure,
    is_one_run_each,
    is_safety_stopped,
    is_unfinished,
    row_units,
    scene_of,
    unit_of,
)
from robotrials.record import Episode, EventKind, Outcome
from robotrials.record.rows import EpisodeRows, column, distinct, pick
from robotrials.stats.argument import BoolArray, FloatArray
from robotrials.stats.matching import Labels as UnitNames
from robotrials.stats.matching import NumberedLabels
from robotrials.verdict.analysis.frame import ComparisonFrame, projected_episodes, ranked_episodes, stratum_names
from robotrials.verdict.analysis.task_name import one_name, with_one_name
from robotrials.verdict.planning.analysis_plan import AnalysisPlan
from robotrials.verdict.robustness import conditions_by_severity

EDGE = 1 + 1e-9  # a run that is done at the very end of the follow-up is done
Labels = dict[Hashable, Hashable]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One arm; `missing` are runs of declared cells that were never made, which count as failures."""

    name: str
    cells: Mapping[str, Sequence[Episode]]
    unit: Unit
    left_out: Mapping[str, int] = field(default_factory=dict)  # why -> episodes that no contrast of this arm sees
    missing: Mapping[str, int] = field(default_factory=dict)
    labels: Labels = field(default_factory=dict)
    _kept: dict[Hashable, object] = field(default_factory=dict)

    def _once(self, key: Hashable, compute: Callable[[], object]) -> object:
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]

    @property
    def n_episodes(self) -> int:
        return sum(map(len, self.cells.values()))

    def only(self, *cells: str) -> Side:
        """The same arm in some of its cells, with what is worked out of them."""
        kept = {c: self.cells[c] for c in cells if c in self.cells}
        return replace(self, cells=kept, missing={c: n for c, n in self.missing.items() if c in cells})

    def where(self, is_kept: Callable[[Episode], bool], why: str) -> Side:
        """The same arm with some episodes left out, told as `why`."""
        found: dict[str, Sequence[Episode]] = {
            c: pick(group, [place for place, e in enumerate(group) if is_kept(e)]) for c, group in self.cells.items()
        }
        gone = self.n_episodes - sum(map(len, found.values()))
        left = dict(self.left_out) | ({why: gone} if gone else {})
        return replace(self, cells={c: g for c, g in found.items() if g}, left_out=left, _kept={})

    @property
    def every(self) -> list[Episode]:
        return [e for group in self.cells.values() for e in group]

    def starts(self, cell: str) -> UnitNames:
        """The unit of each run of a cell; None: a run is a unit of its own."""

        def read() -> UnitNames:
            group = self.cells.get(cell, ())
            if isinstance(group, EpisodeRows):
                own_units = row_units(group, self.unit)
                none = np.full(self.missing.get(cell, 0), -1)
                return NumberedLabels(np.concatenate([own_units.numbers, none]), own_units.label_of)
            found = [unit_of(e, self.unit) for e in self.cells.get(cell, ())]
            own = [None if label is None else self.labels.setdefault(label, label) for label in found]
            return (*own, *([None] * self.missing.get(cell, 0)))

        return self._once(('starts', cell), read)  # type: ignore[return-value]

    def operations(self, cell: str) -> Operations:
        found = self._once(
            ('operations', cell), lambda: operations(self.cells[cell], unit=self.unit, known=self.labels)
        )
        assert isinstance(found, Operations)
        return found

    def caps_s(self, cell: str) -> frozenset[float]:
        """The time caps of a cell's runs; empty where one does not say."""
        caps = np.unique(column(self.cells.get(cell, ()), 'time_cap_s'))
        return frozenset() if np.isnan(caps).any() else frozenset(caps.tolist())

    def n_untimed(self, cell: str) -> int:
        return int(np.isnan(column(self.cells.get(cell, ()), 'duration_s')).sum())

    def shares(self, cell: str, value: Callable[[Episode], float]) -> FloatArray:
        """(runs,) a value in [0, 1] of each run; a run that is missing has 0."""
        group = self.cells.get(cell, ())
        if isinstance(group, EpisodeRows) and value is success_of:
            own = group.successes().astype(np.float64)
        else:
            own = np.array([float(value(e)) for e in group], dtype=np.float64)
        return np.concatenate([own, np.zeros(self.missing.get(cell, 0))])

    def fewest_items(self, cell: str) -> int:
        items = column(self.cells.get(cell, ()), 'items')
        return int(np.where(items > 0, items, 1.0).min(initial=np.inf)) if len(items) else 1

    def race(self, cell: str, *, items: int, until_s: float) -> tuple[FloatArray, FloatArray]:
        """(runs, items) seconds to the k-th item, infinite where none by `until_s`; (runs,) when a run was lost."""
        group = self.cells.get(cell, ())
        if isinstance(group, EpisodeRows) and items == 1 and is_one_run_each(group):
            never = np.full(self.missing.get(cell, 0), np.inf)
            times, followed = (np.concatenate([own, never]) for own in _row_race(group, until_s))
            return times[:, None], followed
        rows = [_race(e, items, until_s) for e in group]
        rows += [([np.inf] * items, np.inf)] * self.missing.get(cell, 0)
        return np.array([r[0] for r in rows]).reshape(len(rows), items), np.array([r[1] for r in rows])

    def lost_items(self, cell: str) -> FloatArray:
        """(runs,) how many items each run lost for good: dropped, or under way at a stop or a failure."""
        found = self.operations(cell)
        never: BoolArray = np.isinf(found.durations_s)
        return np.bincount(found.cluster[never], minlength=found.n_episodes).astype(np.float64)


def success_of(episode: Episode) -> float:
    """What an episode scores on success, which columns say too."""
    return float(episode.is_success)


def _row_race(rows: EpisodeRows, until_s: float) -> tuple[FloatArray, FloatArray]:
    """`_race` of rows that are one run each."""
    lasted, is_done = rows.floats('duration_s'), rows.ended(Outcome.SUCCESS)
    times = np.where(is_done & (lasted <= until_s * EDGE), lasted, np.inf)
    is_watched = is_done | (lasted >= until_s * (1 - CAP_SLACK))
    is_known = is_watched | rows.ended(Outcome.SAFETY_STOP) | final_failures(rows)
    return times, np.where(is_known, np.inf, lasted)


def _race(episode: Episode, items: int, until_s: float) -> tuple[list[float], float]:
    placed = sorted(e.t_s for e in episode.events if e.kind is EventKind.PLACEMENT for _ in range(e.count))
    if not placed and episode.outcome is Outcome.SUCCESS and episode.items in (None, 1):
        placed = [episode.known_duration_s]
    done = [t if t <= until_s * EDGE else np.inf for t in placed[:items]]
    times = [*done, *([np.inf] * (items - len(done)))]
    return times, _followed_s(episode, len(placed), times, until_s)


def _followed_s(episode: Episode, n_placed: int, times: Sequence[float], until_s: float) -> float:
    """When a run was lost to watching before `until_s` with items left; infinite where its fate up to then is known."""
    lasted = episode.known_duration_s
    if all(t < np.inf for t in times) or lasted >= until_s * (1 - CAP_SLACK):
        return np.inf
    lost = sum(e.count for e in episode.events if e.kind in (EventKind.DROP_OUTSIDE, EventKind.DROP_UNCOLLECTED))
    lost = max(lost, episode.items_lost or 0)
    if not is_unfinished(episode, placed=n_placed, lost=lost) or is_safety_stopped(episode):
        return np.inf
    return np.inf if is_final_failure(episode) else lasted


def frame_sides(
    frame: ComparisonFrame, plan: AnalysisPlan, known: Mapping[str, Mapping[str, Operations]]
) -> dict[str, Side]:
    """The ranked policies of a frame, each once: contrasts of all pairs share what is worked out, and what is known."""
    sides = {}
    for policy in frame.policies:
        own = frame.cells[policy]
        named = own if frame.condition or frame.n_conditions < 2 else _by_condition(own)
        kept = {c: g for c, g in named.items() if not plan.strata or _stratum(c, own) in plan.strata}
        made = {('operations', c): found for c, found in known.get(policy, {}).items() if c in kept and named is own}
        sides[policy] = Side(policy, kept, Unit(plan.unit), labels=frame.labels, _kept=dict(made))
    return sides


def _by_condition(cells: Mapping[str, Sequence[Episode]]) -> dict[str, Sequence[Episode]]:
    named = conditions_by_severity(e for group in cells.values() for e in group)
    found: dict[str, list[Episode]] = {}
    for stratum, group in cells.items():
        for episode in group:
            found.setdefault(f'{stratum}, {named(episode)}', []).append(episode)
    return {name: found[name] for name in sorted(found)}


def _stratum(cell: str, strata: Iterable[str]) -> str:
    return next((s for s in strata if cell == s or cell.startswith(f'{s}, ')), cell)


def two_sides(
    a: Sequence[Episode], b: Sequence[Episode], plan: AnalysisPlan, *, names: tuple[str, str],
    is_condition_cell: bool = True,
) -> tuple[Side, Side]:  # fmt: skip
    """Two arms from anywhere: two policies of a store, of two stores, one policy before and after.

    Compared is the baseline condition where both were run under it, else every condition that both have, each a cell of
    its own. With `is_condition_cell` false the condition is what differs between the arms, and names no cell.
    """
    valid: list[Sequence[Episode]] = [[e for e in side if e.is_valid] for side in (a, b)]
    if tasks := one_name(
        (e.benchmark, e.task) for side in valid for e in side
    ):  # two stores may name a task differently
        valid = [list(with_one_name(side, tasks)) for side in valid]
    left: list[dict[str, int]] = [{}, {}]
    if is_condition_cell:
        conditions = [{c for (c,) in distinct(side, 'condition')} for side in valid]
        if plan.baseline in conditions[0] & conditions[1]:
            for place, side in enumerate(valid):
                valid[place] = list(ranked_episodes(side, plan.baseline)[0])
                if n := len(side) - len(valid[place]):
                    left[place][f'run under another condition than {plan.baseline}'] = n
    shown = [projected_episodes(side, plan) for side in valid]
    every = [e for side in shown for e in side]
    strata = stratum_names(every, plan.stratify_by)
    several = is_condition_cell and len(distinct(every, 'condition')) > 1
    condition = conditions_by_severity(every)
    labels: Labels = {}
    sides = []
    for name, side, out in zip(names, shown, left, strict=True):
        cells: dict[str, list[Episode]] = {}
        for episode in side:
            stratum = strata[episode.benchmark, episode.task, episode.stratum]
            if plan.strata and stratum not in plan.strata:
                why = 'in a stratum that the plan does not name'
                out[why] = out.get(why, 0) + 1
                continue
            cells.setdefault(f'{stratum}, {condition(episode)}' if several else stratum, []).append(episode)
        sides.append(Side(name, {c: cells[c] for c in sorted(cells)}, Unit(plan.unit), out, labels=labels))
    if not set(sides[0].cells) & set(sides[1].cells):
        told = '; '.join(', '.join(list(side.cells)[:6]) or 'nothing valid' for side in sides)
        raise InputError(f'the two have no cell in common (task, stratum, condition); they have: {told}')
    return sides[0], sides[1]


def n_identical(a: Side, b: Side) -> tuple[int, int]:
    """Scenes that came out the same for both arms to the last digit, and scenes that both ran."""
    same = matched = 0
    for cell in a.cells:
        others = {scene: e for e in b.cells.get(cell, ()) if (scene := scene_of(e)) is not None}
        for episode in a.cells[cell]:
            scene = scene_of(episode)
            twin = None if scene is None else others.get(scene)
            if twin is not None:
                matched += 1
                same += _ending(episode) == _ending(twin)
    return same, matched


def _ending(episode: Episode) -> tuple[object, ...]:
    return episode.outcome, episode.success, episode.duration_s
