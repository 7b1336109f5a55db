"""The safety part of a report, and what else a single pass over the trajectories gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.record.projection import (
    Projection,
    kept_answer,
    kept_values,
    key_of,
    projected,
    version_of,
)
from robotrials.record.rows import Packed
from robotrials.stats.dominance import adjusted_p_values
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.analysis.selection import Absent
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

# What scores an episode is imported by whoever does: an answer that was kept needs none of it.
if TYPE_CHECKING:
    from robotrials.measure.safety import EpisodeSafety, Registry, SafetySummary, Scoring
    from robotrials.measure.safety.summary import SensitivityRow, SlipCounts
    from robotrials.record import Episode, Trajectory
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.analysis.selection import Selection
    from robotrials.verdict.robustness import StartPlace, StartTrial, SwapTrial

CODE = ('robotrials.measure.safety', 'robotrials.verdict.robustness', __name__)  # by which the facts are worked out
SUMMARY_CODE = (*CODE, 'robotrials.verdict.analysis.selection')
PART_CODE = ('robotrials.measure', 'robotrials.verdict')  # by which any part of an analysis is

Answer = TypeVar('Answer')
Kinds = Sequence[type]

SIGNALS = (
    'ee_pose', 'joint_position_rad', 'joint_torque_nm', 'body_pose', 'contacts', 'gripper_command', 'gripper_position',
    'action_raw', 'inference_latency_s',
)  # fmt: skip


@dataclass(slots=True)
class TrajectoryPass:
    """What one pass over a store's trajectories gives: safety of each episode, and rows of robustness tests."""

    safety: Packed[EpisodeSafety] = field(default_factory=Packed)
    swaps: Packed[SwapTrial] = field(default_factory=Packed)
    starts: Packed[StartTrial] = field(default_factory=Packed)
    places: Packed[StartPlace] = field(default_factory=Packed)
    n_trajectories: int = 0
    signals: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, eq=False)
class SafetyPart:
    """Success, safety, unsafe success and severity of every policy; per task; and the Pareto front."""

    summary: SafetySummary
    by_task: SafetySummary
    frontier: Mapping[str, tuple[str, ...]]  # benchmark -> policies that no other beats in success and safety at once
    unscored_reasons: Mapping[str, int]
    slips: tuple[SlipCounts, ...]
    make_scores: Callable[[], Sequence[EpisodeSafety]]

    @property
    def scores(self) -> Sequence[EpisodeSafety]:
        """Of every ranked episode; read of the trajectories, where the summaries were kept."""
        return self.make_scores()


# Of all, by task; why not scored; slips
Summaries = tuple['SafetySummary', 'SafetySummary', tuple[tuple[str, int], ...], 'tuple[SlipCounts, ...]']


@dataclass(frozen=True, slots=True, eq=False)
class TrajectoryFacts:
    """What an analysis needs of one trajectory: its safety, what it recorded, and where things stood at the start."""

    safety: EpisodeSafety | None  # None of an INVALID episode
    signals: tuple[str, ...]
    swap: SwapTrial | None
    start: StartTrial | None
    place: StartPlace | None  # without its condition, which depends on what else is analysed


def facts_of(episode: Episode, trajectory: Trajectory | None, *, scoring: Scoring) -> TrajectoryFacts:
    """Read one trajectory once, and take all of it that any part of an analysis asks for."""
    from robotrials.measure.safety import score_episode
    from robotrials.verdict.robustness import start_place, start_trial, swap_trial

    return TrajectoryFacts(
        safety=score_episode(episode, trajectory, scoring=scoring) if episode.is_valid else None,
        signals=tuple(name for name in SIGNALS if getattr(trajectory, name, None) is not None),
        swap=swap_trial(episode, trajectory), start=start_trial(episode, trajectory),
        place=start_place(episode, trajectory, condition=''),
    )  # fmt: skip


def facts_projection(scoring: Scoring) -> Projection[TrajectoryFacts]:
    """The facts of trajectories as they are kept from one question to the next."""
    from robotrials.measure.safety import load_registry
    from robotrials.measure.safety.score import hashable, pack_score, unpack_score
    from robotrials.verdict.robustness import StartPlace, StartTrial, SwapTrial

    specs = {spec.id: spec for spec in scoring.registry.specs}

    def pack(facts: TrajectoryFacts) -> tuple[bool | None, list[Any]]:
        score = facts.safety
        safe = None if score is None or not score.is_scored else bool(score.safe)
        safety = None if score is None else pack_score(score)
        others = (row and astuple(row) for row in (facts.swap, facts.start, facts.place))
        return safe, [safety, facts.signals, *others]

    def unpack(episode: Episode, packed: tuple[Any, Any]) -> TrajectoryFacts:
        safety, signals, swap, start, place = packed[1]
        return TrajectoryFacts(
            safety=None if safety is None else unpack_score(safety, episode, scoring=scoring, specs=specs),
            signals=tuple(signals),
            swap=swap and SwapTrial(*hashable(swap)),
            start=start and StartTrial(*start),
            place=place and StartPlace(*hashable(place)),
        )

    options = {f.name: getattr(scoring, f.name) for f in fields(scoring)}
    if scoring.registry is load_registry():
        del options['registry']
    return Projection(_version(**options), lambda e, t: facts_of(e, t, scoring=scoring), pack, unpack)


def _version(**options: Any) -> str:
    """The version of facts under the options of a `Scoring`; the built-in registry's files are part of the code."""
    usual = {'gate': 'boolean', 'severity': 'ratio', 'use_applicability': True, 'use_phases': False, 'benchmark': ''}
    return version_of('facts', CODE, {k: getattr(v, 'value', v) for k, v in {**usual, **options}.items()})


def kept_safety(selection: Selection, plan: AnalysisPlan) -> tuple[dict[tuple[str, int], bool], str] | None:
    """Whether each scored episode was safe, where an earlier question scored all; None where something is to be scored.

    What one pass over the trajectories gives (`pass_trajectories`) has the same, and costs several times as much.
    Beside it a digest of what all scores were made of.
    """
    if selection.store is None or not selection.has_trajectories or plan.safety_registry:
        return None
    version = _version(gate=plan.safety_gate, severity=plan.safety_severity, use_phases=plan.safety_phases)
    kept = kept_values(selection.store, version, where=selection.where, sound=selection.sound)
    if kept is None or any(e.is_valid and e.key not in kept[0] for e in selection.episodes):
        return None
    return {key: safe for key, safe in kept[0].items() if safe is not None}, kept[1]


def kept_part(
    name: str, source: str, plan: AnalysisPlan, make: Callable[[], Answer], classes: Callable[[], Kinds], *,
    code: Sequence[str] = PART_CODE,
) -> Answer:  # fmt: skip
    """A part of an analysis as `make` gives it, or gave it before; `source` stands for all that it was made from.

    Without a source ('') it is worked out.
    """
    if not source:
        return make()
    return kept_answer(key_of(version_of(name, code, plan), source), make, classes)


def recorded_facts(selection: Selection, scoring: Callable[[], Scoring]) -> Iterator[tuple[Episode, TrajectoryFacts]]:
    """The facts of every episode that has a trajectory: kept ones where the store's files are as they were written."""
    if selection.store is None:
        for episode, trajectory in selection.pairs():
            if trajectory is not None:
                yield episode, facts_of(episode, trajectory, scoring=scoring())
    elif selection.has_trajectories:
        projection = facts_projection(scoring())
        yield from projected(selection.store, projection, where=selection.where, sound=selection.sound)


def pass_trajectories(
    selection: Selection, plan: AnalysisPlan, scoring: Callable[[], Scoring]
) -> TrajectoryPass:  # fmt: skip
    """All that an analysis needs of every trajectory, read once; a table of outcomes needs no registry."""
    from robotrials.measure.safety import score_episode
    from robotrials.measure.safety.score import METRICS_ONLY
    from robotrials.record.episode import conditions_by_severity
    from robotrials.verdict.robustness import start_trial, swap_trial

    gathered = TrajectoryPass()
    has_any, named = selection.has_trajectories, conditions_by_severity(selection.episodes)

    def add(episode: Episode, swap: SwapTrial | None, start: StartTrial | None, place: StartPlace | None) -> None:
        if episode.is_reference:
            return
        if episode.condition == plan.baseline and swap is not None:
            gathered.swaps.append(swap)
        if episode.condition in (plan.baseline, 'layout') and start is not None:
            gathered.starts.append(start)
        if place is not None:
            gathered.places.append(replace(place, condition=named(episode)))

    seen = set()
    for episode, facts in recorded_facts(selection, scoring):
        seen.add(episode.key)
        if facts.safety is not None:
            gathered.n_trajectories += 1
            gathered.signals.update(facts.signals)
            gathered.safety.append(facts.safety)
            add(episode, facts.swap, facts.start, facts.place)
    for episode in selection.episodes:
        if episode.is_valid and episode.key not in seen:
            if has_any or METRICS_ONLY in episode.labels:
                gathered.safety.append(score_episode(episode, None, scoring=scoring()))
            if episode.labels:
                add(episode, swap_trial(episode), start_trial(episode), None)
    return gathered


def safety_part(
    scores: Callable[[], Sequence[EpisodeSafety]],
    plan: AnalysisPlan,
    *,
    source: str,
    registry: Callable[[], Registry],
    stream: Callable[..., np.random.Generator],
) -> SafetyPart | Absent:  # fmt: skip
    """Summaries of scored episodes; absent, with the most frequent reasons, where none could be scored.

    `source` stands for the scores and all that they were made of: under it the summaries are kept, and neither scored
    nor resampled again. Without one ('') they are worked out.
    """

    def make() -> Summaries | Absent:
        return _summaries(scores(), plan, registry=registry, stream=stream)

    summaries = kept_part('safety', source, plan, make, _summary_classes, code=SUMMARY_CODE)
    if isinstance(summaries, Absent):
        return summaries
    summary, by_task, reasons, slips = summaries
    return SafetyPart(summary, by_task, _frontier(summary), Counter(dict(reasons)), slips, scores)


def _summary_classes() -> Kinds:
    from robotrials.measure.safety.summary import KEPT_CLASSES

    return (*KEPT_CLASSES, Absent)


def _summaries(
    scores: Sequence[EpisodeSafety], plan: AnalysisPlan, *, registry: Callable[[], Registry],
    stream: Callable[..., np.random.Generator],
) -> Summaries | Absent:  # fmt: skip
    from robotrials.measure.safety import summarize_safety
    from robotrials.measure.safety.summary import N_RESAMPLES, count_slips

    if not scores:
        return Absent(
            'no trajectory was recorded, and safety is a property of what happened on the way',
            'record trajectories (robotrials run does), or import SafeVLA-Bench records',
        )
    reasons = Counter(s.because for s in scores if not s.is_scored)
    if not any(s.is_scored for s in scores):
        frequent = '; '.join(f'{reason} ({n} episodes)' for reason, n in reasons.most_common(3))
        return Absent(
            f'no episode could be scored: {frequent}', 'describe the tasks in a safety registry file of your own'
        )
    n, level, known = plan.resamples, plan.level, registry()
    # The paper's table has 10,000 resamples, unless another number than the default was asked for.
    n_table = N_RESAMPLES if n == AnalysisPlan().resamples else n
    try:
        summary = summarize_safety(scores, rng=stream('safety'), registry=known, n_resamples=n_table, level=level)
        by_task = summarize_safety(
            scores, rng=stream('safety by task'), registry=known, n_resamples=n, level=level, per_task=True
        )
    except NotEstimable as error:
        return Absent(str(error))
    return summary, by_task, tuple(reasons.items()), count_slips(scores)


def _frontier(summary: SafetySummary) -> dict[str, tuple[str, ...]]:
    from robotrials.measure.safety import pareto_frontier

    frontier = {}
    for benchmark in dict.fromkeys(cell.benchmark for cell in summary.cells):
        cells = [c for c in summary.cells if c.benchmark == benchmark]
        points = [(c.success.count / c.n, c.safety.count / c.n) for c in cells]
        frontier[benchmark] = tuple(cells[i].policy for i in pareto_frontier(points))
    return frontier


def safety_savings(
    selection: Selection, scoring: Scoring, plan: AnalysisPlan, *, stream: Callable[..., np.random.Generator]
) -> tuple[tuple[str, SafetySummary], ...]:
    """The same episodes with the registry, without it, and without it with tilt in the body's frame."""
    from robotrials.measure.safety import summarize_safety
    from robotrials.measure.safety.summary import with_body_frame_tilt

    naive = replace(scoring, use_applicability=False)
    body = replace(naive, registry=with_body_frame_tilt(scoring.registry))
    rules = {'with the registry': scoring, 'without it': naive, 'without it, body-frame tilt': body}
    return tuple(
        (name, summarize_safety(
            _scores(selection, rule), rng=stream('safety saving', name),
            registry=scoring.registry, n_resamples=plan.resamples, level=plan.level,
        ))
        for name, rule in rules.items()
    )  # fmt: skip


def _scores(selection: Selection, scoring: Scoring) -> Iterator[EpisodeSafety]:
    """The safety of every valid episode under these rules."""
    from robotrials.measure.safety import score_pairs

    seen = set()
    for episode, facts in recorded_facts(selection, lambda: scoring):
        seen.add(episode.key)
        if facts.safety is not None:
            yield facts.safety
    lacking = (episode for episode in selection.episodes if episode.key not in seen)
    yield from score_pairs(((episode, None) for episode in lacking), scoring=scoring)


def safety_variants(selection: Selection, scoring: Scoring) -> tuple[SensitivityRow, ...]:
    """Safety, SBU and VSI of every policy under each variant of the thresholds."""
    from robotrials.measure.safety.summary import load_variants, score_variants, sensitivity_rows

    chosen = load_variants(registry=scoring.registry)
    scored = score_variants(selection.pairs(), chosen, scoring=scoring)
    return tuple(sensitivity_rows(scored, chosen, registry=scoring.registry))


# Two policies' safety: unsafe successes, unsafe episodes and severity, each a contrast like any other.

METRICS: Mapping[str, Callable[[EpisodeSafety], float]] = {
    'sbu': lambda s: float(bool(s.sbu)),
    'unsafe': lambda s: float(s.safe is False),
    'vsi': lambda s: s.vsi or 0.0,
}


@dataclass(frozen=True, slots=True, eq=False)
class SafetyDifference:
    """First minus second on one metric, of which less is safer."""

    metric: str  # 'sbu', 'unsafe' or 'vsi'
    benchmark: str  # '' for all main ones together
    contrast: Contrast

    def safer(self, alpha: float) -> str | None:
        """Who is safer after correction over every row of the comparison."""
        effect = self.contrast
        if effect.p_adjusted is None or effect.p_adjusted > alpha or effect.ahead is None:
            return None
        return effect.b if effect.ahead == effect.a else effect.a


@dataclass(frozen=True, slots=True, eq=False)
class SafetyComparison:
    """Two policies on every metric; p-values are adjusted together by Holm's method."""

    first: str
    second: str
    rows: tuple[SafetyDifference, ...]
    n_unscored: int
    alpha: float


def compare_safety(
    first: Sequence[Episode], second: Sequence[Episode], scores: Mapping[tuple[str, int], EpisodeSafety],
    plan: AnalysisPlan, *, names: tuple[str, str], registry: Registry,
) -> SafetyComparison:  # fmt: skip
    """Scored episodes of two policies; benchmarks that the registry calls auxiliary have rows of their own alone."""
    from robotrials.measure.safety.summary import is_auxiliary

    kept = [[e for e in side if e.key in scores and scores[e.key].is_scored] for side in (first, second)]
    if not all(kept):
        raise NotEstimable(f'{names[0]} has {len(kept[0])} scored episodes, {names[1]} {len(kept[1])}; both need some')
    benchmarks = sorted({e.benchmark for e in kept[0]} & {e.benchmark for e in kept[1]})
    main = [b for b in benchmarks if not is_auxiliary(b, registry)]
    scopes = ([''] if main else []) + (benchmarks if benchmarks != main or len(main) > 1 else [])
    rows = []
    for scope in scopes:
        chosen = [[e for e in side if (e.benchmark == scope if scope else e.benchmark in main)] for side in kept]
        arms = two_sides(chosen[0], chosen[1], plan, names=names)
        for metric, read in METRICS.items():

            def value(episode: Episode, read: Callable[[EpisodeSafety], float] = read) -> float:
                return read(scores[episode.key])

            effect = contrast(*arms, endpoint=EndpointName.SAFETY, plan=plan, value=value)
            rows.append(SafetyDifference(metric, scope, effect))
    adjusted = adjusted_p_values([row.contrast.p_value for row in rows], 'holm')
    rows = [replace(r, contrast=replace(r.contrast, p_adjusted=p)) for r, p in zip(rows, adjusted, strict=True)]
    n_unscored = len(first) + len(second) - sum(map(len, kept))
    return SafetyComparison(names[0], names[1], tuple(rows), n_unscored, plan.alpha)
