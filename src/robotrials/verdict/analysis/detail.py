"""Details behind the headline: strata, curve shapes, how operations end, labels, and the episodes behind a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.geometry import recorded_placement, score_recorded_pose
from robotrials.measure.timing import Cohort, label_sensitivity, logrank_pairs, macro_curve, success_curve
from robotrials.measure.timing.curve import common_follow_up
from robotrials.measure.timing.curve_test import example_curves, find_cycle, pp_trace, qq_trace, trade_off_trace
from robotrials.measure.timing.incidence import cumulative_incidence, endings, label_reader, places_by_end
from robotrials.measure.timing.operation import Unit
from robotrials.record import Outcome
from robotrials.record.episode import conditions_by_severity, recorded_severity
from robotrials.record.rows import IntArray, column, ended, join, kinds, pick
from robotrials.record.trajectory import frame_times
from robotrials.stats import Estimate, Interval, Rate
from robotrials.stats.dominance import adjusted_p_values
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import success_of
from robotrials.verdict.analysis.cameras import has_truth
from robotrials.verdict.analysis.contrast import TIMED
from robotrials.verdict.analysis.endpoint_pairs import EndpointPairs, too_few
from robotrials.verdict.analysis.ranking import ALL_STRATA, flagged, judged_cells
from robotrials.verdict.analysis.selection import Absent, or_absent, present, projected_episodes, stratum_names

if TYPE_CHECKING:
    from robotrials.measure.geometry import Box, PlacementScore
    from robotrials.measure.timing import LabelSensitivity, LogrankPair, SuccessCurve
    from robotrials.measure.timing.curve_test import PPTrace, QQTrace, SupSign, TradeOffTrace
    from robotrials.measure.timing.incidence import Incidence, OperationEnd
    from robotrials.record import Camera, Episode, Store, Trajectory
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.cameras import CameraPart
    from robotrials.verdict.analysis.endpoint_pairs import Comparisons, TimeComparison
    from robotrials.verdict.analysis.ranking import Times
    from robotrials.verdict.analysis.selection import ComparisonFrame, Selection
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


# Shapes of success curves: steps, P-P and Q-Q against the reference, UPH against MTBF, sup-sign cycles.

SWEEP_LOW_S = 30.0  # UPH against MTBF starts here, or at a quarter of tau where that is earlier
Key = tuple[str, str]  # policy, stratum (ALL_STRATA is the mean over them)


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """Three curves whose KS signs cycle, so that none is first."""

    curves: Mapping[str, SuccessCurve]
    edges: tuple[SupSign, SupSign, SupSign]
    is_example: bool  # constructed, because no three policies of the data cycle


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """Curves of every policy in every stratum that it is judged on, and what is drawn of them."""

    curves: Mapping[Key, SuccessCurve]
    pp: Mapping[Key, PPTrace]  # against the reference; empty where there is none
    qq: Mapping[Key, QQTrace]
    trade_off: Mapping[Key, TradeOffTrace]
    cycle: Cycle
    reference: str | None
    taus_s: Mapping[str, float]

    def strata_of(self, policy: str) -> tuple[str, ...]:
        """The strata in which a policy has a curve."""
        return tuple(s for p, s in self.curves if p == policy and s != ALL_STRATA)


@dataclass(frozen=True, slots=True, eq=False)
class PairShape:
    """The P-P plot of two policies, averaged over strata, and P(T_a < T_b) as their comparison has it."""

    policy_a: str
    policy_b: str
    trace: PPTrace
    auc: Estimate

    def seen_from(self, policy: str) -> PairShape:
        """The same with the sides changed."""
        if policy == self.policy_a:
            return self
        trace = replace(
            self.trace, reference=self.trace.model, model=self.trace.reference, auc=1.0 - self.trace.auc,
            ks_point=(self.trace.ks_point[1], self.trace.ks_point[0]),
        )  # fmt: skip
        return PairShape(self.policy_b, self.policy_a, trace, self.auc.scaled(-1.0).shifted(1.0))


def curve_shapes(frame: ComparisonFrame, times: Times) -> Shapes:
    """Every shape that needs no random number."""
    curves: dict[Key, SuccessCurve] = {}
    for policy, cohort in times.cohorts.items():
        own = {s: success_curve(c.durations_s, c.observed) for s, c in cohort.cells.items()}
        curves |= {(policy, s): curve for s, curve in own.items()}
        if own:
            curves[policy, ALL_STRATA] = macro_curve(own)
    models = [p for p in (*frame.policies, *frame.apart) if (p, ALL_STRATA) in curves]
    pp, qq = _against_reference(curves, models, frame.reference, times.taus_s)
    return Shapes(
        curves=curves, pp=pp, qq=qq, trade_off=_trade_offs(curves, models, times), cycle=_cycle(curves, frame.policies),
        reference=frame.reference, taus_s=times.taus_s,
    )  # fmt: skip


def _against_reference(
    curves: Mapping[Key, SuccessCurve], models: Sequence[str], reference: str | None, taus_s: Mapping[str, float]
) -> tuple[dict[Key, PPTrace], dict[Key, QQTrace]]:
    pp: dict[Key, PPTrace] = {}
    qq: dict[Key, QQTrace] = {}
    for (policy, stratum), curve in curves.items():
        anchor = curves.get((reference or '', stratum))
        if stratum == ALL_STRATA or policy not in models or anchor is None:
            continue
        pp[policy, stratum] = pp_trace(curve, anchor, tau_s=taus_s[stratum])
        if curve.plateau > 0 and anchor.plateau > 0:
            qq[policy, stratum] = qq_trace(curve, anchor)
    return pp, qq


def _trade_offs(curves: Mapping[Key, SuccessCurve], models: Sequence[str], times: Times) -> dict[Key, TradeOffTrace]:
    traces: dict[Key, TradeOffTrace] = {}
    for policy in models:
        own = {s: curve for (p, s), curve in curves.items() if p == policy and s != ALL_STRATA}
        asked = {ALL_STRATA: list(own.values()), **{s: [curve] for s, curve in own.items()}}
        for stratum, parts in asked.items():
            end_s = min(times.taus_s[s] for s in own) if stratum == ALL_STRATA else times.taus_s[stratum]
            traces[policy, stratum] = trade_off_trace(parts, low_s=min(SWEEP_LOW_S, end_s / 4), high_s=end_s)
    return traces


def _cycle(curves: Mapping[Key, SuccessCurve], policies: Sequence[str]) -> Cycle:
    own = {p: curves[p, ALL_STRATA] for p in policies if (p, ALL_STRATA) in curves}
    cycle = find_cycle(own)
    if cycle is not None:
        return Cycle(own, cycle, is_example=False)
    example = example_curves()
    made = find_cycle(example)
    assert made is not None  # it was constructed to
    return Cycle(example, made, is_example=True)


def pair_shapes(pairs: Sequence[TimeComparison], shapes: Shapes) -> tuple[PairShape, ...]:
    """P-P plots of every pair; the AUC is that of the comparison, moved back from a difference to a chance."""
    built = []
    for pair in pairs:
        own, other = shapes.curves[pair.policy_a, ALL_STRATA], shapes.curves[pair.policy_b, ALL_STRATA]
        centred = pair.advantages.get('auc_between', Estimate(None, note='not estimable'))
        trace = pp_trace(own, other, tau_s=min(pair.better.tau_s.values()))
        built.append(PairShape(pair.policy_a, pair.policy_b, trace, centred.shifted(0.5)))
    return tuple(built)


# How operations end: incidences of success and of every way to fail, macro over the strata that a policy is judged on.
# Ends compete, so the share of operations that a drop or a safety stop ended by a time is an Aalen-Johansen incidence,
# not one less a Kaplan-Meier curve of its own.

N_TIMES = 24  # of the grid that incidences are given on, evenly up to the largest tau; the end comes last


def incidence_classes() -> tuple[type, ...]:
    """What incidences are built of, for whoever keeps them."""
    from robotrials.measure.timing.incidence import CauseIncidence, Incidence, OperationEnd

    return Incidence, CauseIncidence, OperationEnd, Interval, Absent


def policy_incidences(frame: ComparisonFrame, times: Times, plan: AnalysisPlan) -> dict[str, Incidence | Absent]:
    """Policy -> its incidences; absent where no operation was recorded."""
    grid = np.linspace(0.0, times.tau_s, N_TIMES + 1)[1:].tolist()
    return {policy: or_absent(partial(_incidence, policy, frame, times, plan, grid)) for policy in frame.everyone}


def _incidence(policy: str, frame: ComparisonFrame, times: Times, plan: AnalysisPlan, grid: list[float]) -> Incidence:
    cells = {s: endings(group, unit=Unit(plan.unit)) for s, group in judged_cells(frame, policy).items()}
    timed = {s: cell for s, cell in cells.items() if len(cell.times_s)}
    taus = {s: times.taus_s[s] for s in timed}
    longest = max((float(cell.times_s.max()) for cell in timed.values()), default=0.0)
    return cumulative_incidence(timed, times_s=[*grid, max(longest, grid[-1])], tau_s=taus, level=plan.level)


@dataclass(frozen=True, slots=True)
class StratumPair:
    """Two policies in one stratum: mean times, > 0 in favour of a, and the p-value of who is faster there."""

    policy_a: str
    policy_b: str
    stratum: str
    difference_s: float
    interval: Interval | None  # None where the stratum has too few units
    p_value: float | None
    p_bonferroni: float | None  # both corrected over all pairs x strata
    p_holm: float | None
    n_units: tuple[int, int]

    def seen_from(self, policy: str) -> StratumPair:
        """The same from the side of `policy`."""
        if policy == self.policy_a:
            return self
        return replace(
            self, policy_a=self.policy_b, policy_b=self.policy_a, difference_s=-self.difference_s + 0.0,
            interval=None if self.interval is None else self.interval.scaled(-1.0),
            n_units=(self.n_units[1], self.n_units[0]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordedCell:
    """How many valid episodes of one policy a stratum has under all conditions, and how long they took together."""

    policy: str
    stratum: str
    n_episodes: int
    duration_s: float | None  # None where some episode has no duration


@dataclass(frozen=True, slots=True)
class TaskSuccess:
    """Episode success of one policy in one task under one condition."""

    policy: str
    task: str
    condition: str
    rate: Rate


class Detail:
    """Parts of an analysis that go beyond the headline; each is worked out when it is asked for, once."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._labels: dict[str, tuple[LabelSensitivity, ...]] = {}

    @cached_property
    def strata(self) -> tuple[StratumPair, ...] | Absent:
        """Every pair in every stratum alone."""
        pairs = self._analysis.pairs
        if isinstance(pairs, Absent):
            return pairs
        if isinstance(self._analysis.times, Absent):
            return self._analysis.times
        return stratum_pairs(pairs)

    @cached_property
    def logranks(self) -> tuple[LogrankPair, ...] | Absent:
        """Logrank tests of every pair on its common follow-up."""
        times = self._analysis.times
        if isinstance(times, Absent):
            return times
        frame = present(self._analysis.frame)
        lonely = too_few(frame)
        return or_absent(lambda: logrank_pairs(followed_pairs(frame, times))) if lonely is None else lonely

    @cached_property
    def shapes(self) -> Shapes | Absent:
        """Curves as steps, and against the reference: P-P, Q-Q, and UPH against MTBF."""
        times = self._analysis.times
        return times if isinstance(times, Absent) else curve_shapes(present(self._analysis.frame), times)

    @cached_property
    def pair_shapes(self) -> tuple[PairShape, ...] | Absent:
        """P-P plots of every pair, with the macro AUC of the comparison."""
        pairs = self._analysis.pairs
        if isinstance(pairs, Absent):
            return pairs
        if isinstance(self.shapes, Absent):
            return self.shapes
        return pair_shapes(pairs.times, self.shapes)

    def labels(self, label: str | None) -> tuple[LabelSensitivity, ...]:
        """Completion of every policy by a label of its episodes; `a=b` asks whether two labels agree."""
        if label is None:
            raise InputError(f'wanted a label of the episodes; they have: {", ".join(self.known_labels) or "none"}')
        if label not in self._labels:
            self._labels[label] = _by_label(self._analysis, label)
        return self._labels[label]

    @property
    def known_labels(self) -> tuple[str, ...]:
        """Labels that episodes carry."""
        return tuple(sorted({key for e in self._analysis.episodes for key in e.labels}))

    @cached_property
    def recorded(self) -> tuple[RecordedCell, ...]:
        """Episodes and time of every policy in every stratum."""
        return recorded_cells(self._analysis)

    @cached_property
    def task_success(self) -> tuple[TaskSuccess, ...] | Absent:
        """Episode success by policy, task and condition, in that order; INVALID episodes tested no policy."""
        return task_success(self._analysis)


def stratum_pairs(pairs: Comparisons) -> tuple[StratumPair, ...]:
    """Each stratum's difference of mean times with its interval, and the p-value of its own contrast."""
    rows: list[StratumPair] = []
    for pair in pairs.times:
        timed = next(e for e in pairs.endpoints.values() if isinstance(e, EndpointPairs) and e.endpoint in TIMED)
        cells = {c.name: c for c in timed.pair(pair.policy_a, pair.policy_b).contrast.cells}
        rows += [
            StratumPair(
                pair.policy_a, pair.policy_b, s.stratum, s.difference, s.interval, cells[s.stratum].p_value, None, None,
                s.n_units,
            )
            for s in pair.reversal.strata
        ]  # fmt: skip
    p_values = [row.p_value for row in rows]
    by_all, stepped = (adjusted_p_values(p_values, kind) for kind in ('bonferroni', 'holm'))
    return tuple(replace(row, p_bonferroni=by_all[k], p_holm=stepped[k]) for k, row in enumerate(rows))


def followed_pairs(frame: ComparisonFrame, times: Times) -> Iterator[tuple[Cohort, Cohort]]:
    """Every pair of ranked policies, cut at the time to which both were followed."""
    from robotrials.verdict.analysis.endpoint_pairs import pairs_of

    for a, b in pairs_of(frame):
        first, second = times.cohorts[a], times.cohorts[b]
        shared = [s for s in first.cells if s in second.cells]
        follow = common_follow_up(
            {s: first.cells[s] for s in shared}, {s: second.cells[s] for s in shared},
            {s: times.taus_s[s] for s in shared},
        )  # fmt: skip
        yield replace(first, cells=follow.a), replace(second, cells=follow.b)


def _by_label(analysis: Analysis, label: str) -> tuple[LabelSensitivity, ...]:
    frame, plan = present(analysis.frame), analysis.plan
    tested = [p for p in frame.everyone if p != frame.reference] or list(frame.everyone)
    read = label_reader(label)
    rows = []
    for policy in tested:
        episodes = tuple(e for group in frame.cells[policy].values() for e in group)
        if any(read(e) is not None for e in episodes):
            cohort = Cohort(policy, False, episodes, {})
            rows.append(
                label_sensitivity(
                    cohort, label=label, rng=analysis.stream('label', label, policy), n_resamples=plan.resamples,
                    level=plan.level,
                )
            )  # fmt: skip
    if not rows:
        raise UnknownName('label', label, analysis.detail.known_labels)
    return tuple(rows)


CONDITION = ('condition', 'condition_parameters')


def recorded_cells(analysis: Analysis) -> tuple[RecordedCell, ...]:
    valid = pick(analysis.episodes, np.flatnonzero(~ended(analysis.episodes, Outcome.INVALID)))
    names = stratum_names(valid, analysis.plan.stratify_by)
    codes, first = kinds(valid, 'policy', 'benchmark', 'task', 'stratum')
    cells, durations_s = [(e.policy, names[e.benchmark, e.task, e.stratum]) for e in first], column(valid, 'duration_s')
    recorded = []
    for key in sorted(set(cells)):
        own = durations_s[np.array([cell == key for cell in cells])[codes]]
        recorded.append(RecordedCell(*key, len(own), None if np.isnan(own).any() else sum(own.tolist())))
    return tuple(recorded)


def task_success(analysis: Analysis) -> tuple[TaskSuccess, ...] | Absent:
    plan: AnalysisPlan = analysis.plan
    valid = pick(analysis.episodes, np.flatnonzero(~ended(analysis.episodes, Outcome.INVALID)))
    is_success = flagged(projected_episodes(valid, plan, analysis.by_cameras), success_of)
    codes, first = kinds(valid, 'policy', 'task', *CONDITION)
    named = conditions_by_severity(first)
    counts: dict[tuple[str, str, str], tuple[int, int]] = {}
    sizes, successes = np.bincount(codes).tolist(), np.bincount(codes[is_success], minlength=len(first)).tolist()
    for e, n, k in zip(first, sizes, successes, strict=True):
        key = e.policy, e.task, named(e)
        held, of = counts.get(key, (0, 0))
        counts[key] = held + k, of + n
    if not counts:
        return Absent('no valid episode', 'a success rate needs one')
    return tuple(TaskSuccess(*key, Rate(*pair, plan.level)) for key, pair in sorted(counts.items()))


@dataclass(frozen=True, eq=False)
class EpisodesBehind:
    """Looks episodes up for whoever shows a number."""

    selection: Selection
    baseline: str

    def placements(
        self, frame: ComparisonFrame, times: Times, policy: str, stratum: str = ALL_STRATA
    ) -> list[tuple[float, Episode]]:
        """A policy's placements in one stratum or in all: how long each took, and its episode."""
        distances: list[tuple[float, Episode]] = []
        for name, cell in times.cohorts[policy].cells.items():
            if stratum in (ALL_STRATA, name):
                placed = np.flatnonzero(cell.observed)
                behind = pick(frame.cells[policy][name], cell.episode[placed].tolist())
                distances += zip(cell.durations_s[placed].tolist(), behind, strict=True)
        return distances

    def by_end(self, frame: ComparisonFrame, policy: str) -> Mapping[OperationEnd, Sequence[Episode]]:
        """A policy's ranked episodes by how their operations ended; one episode may be under several ends."""
        own = join(list(frame.cells[policy].values()))
        return {end: pick(own, places) for end, places in places_by_end(own).items()}

    @cached_property
    def _conditioned(self) -> Mapping[tuple[str, str, str, float | None], list[IntArray]]:
        """(policy, condition, its name as tables have it, severity) -> places of the valid episodes.

        The name has the severity in it where the condition was run at several.
        """
        codes, first = kinds(self.selection.episodes, 'policy', *CONDITION, 'outcome')
        named = conditions_by_severity(e for e in first if e.is_valid)
        places: dict[tuple[str, str, str, float | None], list[IntArray]] = {}
        for code, e in enumerate(first):
            if e.is_valid:
                key = e.policy, e.condition, named(e), recorded_severity(e, baseline=self.baseline)
                places.setdefault(key, []).append(np.flatnonzero(codes == code))
        return places

    def under(self, policy: str, condition: str, severity: float | None = None) -> Sequence[Episode]:
        """A policy's episodes under a condition as a table names it; or at one severity of it, 0 being the baseline."""
        places = [
            place
            for (own, recorded, name, rung), group in self._conditioned.items()
            if own == policy
            and (condition in (recorded, name) if severity is None else recorded in (condition, self.baseline)
                 and rung == severity)
            for place in group
        ]  # fmt: skip
        return pick(self.selection.episodes, np.sort(np.concatenate([np.arange(0), *places])))

    def confused(self, part: CameraPart) -> dict[tuple[bool, bool | None], list[Episode]]:
        """(success by the host, by the cameras or None) -> episodes whose truth the host knows."""
        by_ends: dict[tuple[bool, bool | None], list[Episode]] = {}
        for episode in self.selection.episodes:
            if episode.key in part.scores and has_truth(episode):
                ends = (bool(episode.is_success), part.scores[episode.key].success)
                by_ends.setdefault(ends, []).append(episode)
        return by_ends


# What of the trajectories can be looked at: films, and where objects came to lie.


@dataclass(frozen=True, slots=True, eq=False)
class Film:
    """One camera's film of an episode, with the control step and the time that each frame shows."""

    episode: Episode
    path: Path
    name: str  # in the store's media/
    camera: str
    steps: NDArray[np.int64]  # (N,); 0 is the reset, and row k of the trajectory is the world after step k + 1
    times_s: NDArray[np.floating[Any]]  # (N,), rising
    is_sampled: bool  # filmed at a rate of its own; else there is one frame per row

    def frame_at(self, time_s: float) -> int:
        """The frame that is shown at a time: the last that is not later."""
        return max(int(np.searchsorted(self.times_s, time_s + 1e-9, side='right')) - 1, 0)

    def frame_of_step(self, step: int) -> int:
        """The frame that is shown when a control step is done."""
        return max(int(np.searchsorted(self.steps, step, side='right')) - 1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where one episode's object came to lie, where it should have, and the score of it."""

    episode: Episode
    result: Box
    target: Box
    score: PlacementScore


def names_films(selection: Selection) -> bool:
    """Whether any trajectory names a film, which may be there or not."""
    if selection.store is None:
        return False
    recorded = selection.store.trajectories(where=selection.where, signals=())
    return any(camera.video for _, trajectory in recorded for camera in trajectory.scene.cameras)


def find_films(selection: Selection) -> tuple[Film, ...]:
    """Every film that is there of every valid episode: all cameras, in the episodes' order."""
    if selection.store is None:
        return ()
    films: dict[tuple[str, int], list[Film]] = {}
    media = selection.store.path / 'media'
    for episode, trajectory in selection.store.trajectories(where=selection.where, signals=()):
        for camera in trajectory.scene.cameras if episode.is_valid else ():
            if selection.store.has_film(camera.video):
                film = _film(episode, trajectory, camera, path=media / camera.video)
                films.setdefault(episode.key, []).append(film)
    return tuple(film for e in selection.episodes for film in films.get(e.key, ())) if films else ()


def films_of(store: Store, episode: Episode, trajectory: Trajectory) -> tuple[tuple[Film, Camera], ...]:
    """The films of one episode that are there, with their cameras."""
    media = store.path / 'media'
    there = [c for c in trajectory.scene.cameras if store.has_film(c.video)]
    return tuple((_film(episode, trajectory, c, path=media / c.video), c) for c in there)


def _film(episode: Episode, trajectory: Trajectory, camera: Camera, *, path: Path) -> Film:
    rows = np.arange(1, trajectory.n_steps + 1)
    steps = np.array(camera.video_steps or rows, dtype=np.int64)
    return Film(
        episode, path, camera.video, camera.name, steps, frame_times(camera, trajectory), bool(camera.video_steps)
    )


def leading_films(films: Iterable[Film]) -> dict[tuple[str, int], Film]:
    """One film per episode, to be looked at: the overview, which is filmed last, or an import's first camera."""
    leading: dict[tuple[str, int], Film] = {}
    for film in films:
        if film.is_sampled or film.episode.key not in leading:
            leading[film.episode.key] = film
    return leading


def find_placements(selection: Selection) -> tuple[Placement, ...] | Absent:
    """Placements by the recorded poses, the smallest overlap first."""
    placements: list[Placement] = []
    why = 'no episode has a trajectory'
    for episode, trajectory in selection.pairs():
        if trajectory is None or not episode.is_valid:
            continue
        try:
            score = score_recorded_pose(trajectory)
        except NotEstimable as error:
            why = str(error)
            continue
        placements.append(Placement(episode, *recorded_placement(trajectory), score))
    if not placements:
        return Absent(f'no placement is recorded; {why}')
    return tuple(sorted(placements, key=lambda p: (p.score.iou, -p.score.translation_error_m, p.episode.episode_id)))
