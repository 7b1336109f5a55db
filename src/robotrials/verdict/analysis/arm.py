"""One policy of one store, ready to be set against another: which policy is meant, and whether its name is open."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from robotrials.errors import InputError, StoreError, UnknownName
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
from robotrials.record import EventKind, Outcome
from robotrials.record.rows import EpisodeRows, column, distinct, pick
from robotrials.value import dataclass
from robotrials.verdict.analysis.selection import (
    asked_for,
    one_name,
    projected_episodes,
    ranked_episodes,
    stratum_names,
    with_one_name,
)
from robotrials.verdict.planning.analysis_plan import declared_analysis

if TYPE_CHECKING:
    from robotrials.measure.safety import EpisodeSafety, Registry, Scoring
    from robotrials.record import Episode, Store
    from robotrials.record.blinding import Where
    from robotrials.stats.interval import BoolArray, FloatArray
    from robotrials.stats.matching import Labels as UnitNames
    from robotrials.verdict.analysis.selection import ComparisonFrame
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan, DeclaredAnalysis


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """A policy's counted episodes in a store, INVALID ones included."""

    store: Store
    policy: str
    episodes: tuple[Episode, ...]

    @property
    def valid(self) -> tuple[Episode, ...]:
        return tuple(e for e in self.episodes if e.is_valid)

    @property
    def n_invalid(self) -> int:
        return len(self.episodes) - len(self.valid)


def read_arms(store: Store, *, where: Where | None = None) -> dict[str, Arm]:
    """Policy -> Arm, by name; a trial that is still blinded is refused."""
    check_open(store)
    groups: dict[str, list[Episode]] = {}
    for episode in store.episodes(where=where or None):
        groups.setdefault(episode.policy, []).append(episode)
    if not groups:
        raise InputError(f'{store.path}: no episode {asked_for(where)}')
    return {name: Arm(store, name, tuple(groups[name])) for name in sorted(groups)}


def declared_for(store: Store, other: Store) -> DeclaredAnalysis:
    """The analysis that two stores are compared under: declared for the first, else the other, else the defaults."""
    first = declared_analysis(store.trial.plan, store.path)
    if first.is_declared:
        return first
    second = declared_analysis(other.trial.plan, other.path)
    return second if second.is_declared else first


def check_open(store: Store) -> None:
    """Raise StoreError for a trial whose arms still go by codes: a verdict on them would unblind it."""
    if is_blinded(store):
        raise StoreError(
            f'{store.path}: this trial is still blinded, and comparing its arms would open it; end it first with '
            '`robotrials close`'
        )


def is_blinded(store: Store) -> bool:
    """Whether the store is of a trial whose arms still go by codes."""
    if not store.trial.plan or store.trial.trial_id in store.unblindings().by_trial:
        return False
    try:
        return bool(json.loads(store.trial.plan).get('blinding', {}).get('enabled', False))
    except (json.JSONDecodeError, AttributeError):
        return False  # a plan that is not the runner's says nothing about codes


class AmbiguousArmError(InputError):
    """Several policies could be meant, and none was named."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


def choose_arm(arms: dict[str, Arm], policy: str | None, *, what: str, like: str | None = None) -> Arm:
    """The named arm; else the one called `like`; else the only one that is no reference. `what` it is for is named."""
    if policy is not None:
        if policy not in arms:
            raise UnknownName('policy', policy, arms)
        return arms[policy]
    if like is not None and like in arms:
        return arms[like]
    tested = [a for a in arms.values() if not _is_reference(a.episodes)]
    candidates = tested or list(arms.values())
    if len(candidates) == 1:
        return candidates[0]
    path = next(iter(arms.values())).store.path
    names = ', '.join(a.policy for a in candidates)
    raise AmbiguousArmError(
        what, f'{path}: wanted one policy as the {what}, found {len(candidates)} ({names}); name one'
    )


def _is_reference(episodes: Iterable[Episode]) -> bool:
    return all(e.is_reference for e in episodes)


def check_distinct(new: Arm, reference: Arm) -> None:
    """Refuse an arm that is set against itself."""
    if new.store.trial.store_id == reference.store.trial.store_id and new.policy == reference.policy:
        raise InputError(
            f'{new.store.path} and {reference.store.path} are the same store, and {new.policy!r} cannot be compared '
            'with itself; give the store of the other version, or another policy'
        )


# One arm of a contrast: its valid episodes cut into cells, and what of them every contrast needs, worked out once.
# A cell is a stratum (benchmark, task, object) under one condition. Everything that could depend on who asks is
# decided here: which condition is compared, how a cell is called, whether a seed is a start state, how long a run was
# watched.

EDGE = 1 + 1e-9  # a run that is done at the very end of the follow-up is done
Labels = dict[Hashable, Hashable]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One arm; `missing` are runs of declared cells that came to nothing, which count as failures at their starts."""

    name: str
    cells: Mapping[str, Sequence[Episode]]
    unit: Unit
    left_out: Mapping[str, int] = field(default_factory=dict)  # why -> episodes that no contrast of this arm sees
    missing: Mapping[str, Sequence[Episode]] = field(default_factory=dict)
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
        return replace(self, cells=kept, missing={c: g for c, g in self.missing.items() if c in cells})

    def where(self, is_kept: Callable[[Episode], bool], why: str) -> Side:
        """The same arm with some episodes left out, told as `why`."""
        cells: dict[str, Sequence[Episode]] = {
            c: pick(group, [place for place, e in enumerate(group) if is_kept(e)]) for c, group in self.cells.items()
        }
        gone = self.n_episodes - sum(map(len, cells.values()))
        left = dict(self.left_out) | ({why: gone} if gone else {})
        return replace(self, cells={c: g for c, g in cells.items() if g}, left_out=left, _kept={})

    @property
    def every(self) -> list[Episode]:
        return [e for group in self.cells.values() for e in group]

    def starts(self, cell: str) -> UnitNames:
        """The unit of each run of a cell; None: a run is a unit of its own."""

        def read() -> UnitNames:
            group, missing = self.cells.get(cell, ()), self.missing.get(cell, ())
            if isinstance(group, EpisodeRows) and not missing:
                return row_units(group, self.unit)
            units = [unit_of(e, self.unit) for e in (*group, *missing)]
            return tuple(None if label is None else self.labels.setdefault(label, label) for label in units)

        return self._once(('starts', cell), read)  # type: ignore[return-value]

    def operations(self, cell: str) -> Operations:
        kept = self._once(('operations', cell), lambda: operations(self.cells[cell], unit=self.unit, known=self.labels))
        assert isinstance(kept, Operations)
        return kept

    def caps_s(self, cell: str) -> dict[float, float]:
        """The time caps of a cell's runs, and the share of runs that had each; empty where one does not say."""
        caps = column(self.cells.get(cell, ()), 'time_cap_s')
        return {} if np.isnan(caps).any() else {cap: n / len(caps) for cap, n in Counter(caps.tolist()).items()}

    def n_untimed(self, cell: str) -> int:
        return int(np.isnan(column(self.cells.get(cell, ()), 'duration_s')).sum())

    def shares(self, cell: str, value: Callable[[Episode], float]) -> FloatArray:
        """(runs,) a value in [0, 1] of each run; a run that is missing has 0."""
        group = self.cells.get(cell, ())
        if isinstance(group, EpisodeRows) and value is success_of:
            own = group.successes().astype(np.float64)
        else:
            own = np.array([float(value(e)) for e in group], dtype=np.float64)
        return np.concatenate([own, np.zeros(len(self.missing.get(cell, ())))])

    def fewest_items(self, cell: str) -> int:
        items = column(self.cells.get(cell, ()), 'items')
        return int(np.where(items > 0, items, 1.0).min(initial=np.inf)) if len(items) else 1

    def race(self, cell: str, *, items: int, until_s: float) -> tuple[FloatArray, FloatArray]:
        """(runs, items) seconds to the k-th item, infinite where none by `until_s`; (runs,) when a run was lost."""
        group = self.cells.get(cell, ())
        if isinstance(group, EpisodeRows) and items == 1 and is_one_run_each(group):
            never = np.full(len(self.missing.get(cell, ())), np.inf)
            times, followed = (np.concatenate([own, never]) for own in _row_race(group, until_s))
            return times[:, None], followed
        rows = [_race(e, items, until_s) for e in group]
        rows += [([np.inf] * items, np.inf)] * len(self.missing.get(cell, ()))
        return np.array([r[0] for r in rows]).reshape(len(rows), items), np.array([r[1] for r in rows])

    def lost_items(self, cell: str) -> FloatArray:
        """(runs,) how many items each run lost for good: dropped, or under way at a stop or a failure."""
        lasted = self.operations(cell)
        never: BoolArray = np.isinf(lasted.durations_s)
        return np.bincount(lasted.cluster[never], minlength=lasted.n_episodes).astype(np.float64)


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
        made = {('operations', c): cell for c, cell in known.get(policy, {}).items() if c in kept and named is own}
        sides[policy] = Side(policy, kept, Unit(plan.unit), labels=frame.labels, _kept=dict(made))
    return sides


def _by_condition(cells: Mapping[str, Sequence[Episode]]) -> dict[str, Sequence[Episode]]:
    from robotrials.record.episode import conditions_by_severity

    named = conditions_by_severity(e for group in cells.values() for e in group)
    groups: dict[str, list[Episode]] = {}
    for stratum, group in cells.items():
        for episode in group:
            groups.setdefault(f'{stratum}, {named(episode)}', []).append(episode)
    return {name: groups[name] for name in sorted(groups)}


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
    from robotrials.record.episode import conditions_by_severity

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
    views = [projected_episodes(side, plan) for side in valid]
    every = [e for side in views for e in side]
    strata = stratum_names(every, plan.stratify_by)
    several = is_condition_cell and len(distinct(every, 'condition')) > 1
    condition = conditions_by_severity(every)
    labels: Labels = {}
    sides = []
    for name, side, out in zip(names, views, left, strict=True):
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
        lacking = '; '.join(', '.join(list(side.cells)[:6]) or 'nothing valid' for side in sides)
        raise InputError(f'the two have no cell in common (task, stratum, condition); they have: {lacking}')
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


# The safety of the episodes that two arms are compared on.

MOST_UNSCORED = 0.1
Scores: TypeAlias = 'Mapping[tuple[str, int], EpisodeSafety]'


def arm_safety(arm: Arm, compared: Sequence[Episode], *, scoring: Scoring) -> Scores | str:
    """The safety of the compared episodes by key, or why there is none.

    A few episodes may be left out; where more than one in ten cannot be scored, what is left stands for nothing.
    """
    from robotrials.record.projection import projected  # heavy, and most comparisons have no trajectory
    from robotrials.verdict.analysis.safety import facts_projection

    wanted = {e.key for e in compared}
    scores = {
        episode.key: facts.safety
        for episode, facts in projected(arm.store, facts_projection(scoring), where={'policy': arm.policy})
        if episode.key in wanted and facts.safety is not None
    }
    if not scores:
        return 'no trajectory was recorded'
    unscored = [s for s in scores.values() if not s.is_scored]
    n_left_out = len(wanted) - len(scores) + len(unscored)
    if n_left_out > MOST_UNSCORED * len(wanted):
        reason = _reason(unscored[0]) if unscored else 'no trajectory was recorded'
        return f'{n_left_out} of {len(wanted)} episodes cannot be scored ({reason})'
    return {key: score for key, score in scores.items() if score.is_scored}


def tell_apart(*sides: tuple[str, Scores | str]) -> str:
    """Why safety is missing, side by side; said once where the reason is the same."""
    reasons = {who: why for who, why in sides if isinstance(why, str)}
    if len(reasons) == len(sides) and len(set(reasons.values())) == 1:
        return f'{" and ".join(reasons)}: {next(iter(reasons.values()))}'
    return '; '.join(f'{who}: {why}' for who, why in reasons.items())


def arm_caveats(registry: Registry, *sides: Scores | str) -> tuple[str, ...]:
    """What the registry says of its own entries for the benchmarks that were scored."""
    return registry.caveats(score.benchmark for side in sides if not isinstance(side, str) for score in side.values())


def _reason(score: EpisodeSafety) -> str:
    return score.reason or '; '.join(f'{spec}: {why}' for spec, why in list(score.unscored.items())[:2])


def scored_sides(a: Side, b: Side, first: Scores, second: Scores) -> tuple[Side, Side]:
    """Both arms with only their scored episodes."""
    why = 'their safety cannot be scored'
    return a.where(lambda e: e.key in first, why), b.where(lambda e: e.key in second, why)
