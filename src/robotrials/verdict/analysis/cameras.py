"""What the cameras say of success: against the host where it knows, as E[IoU], and corrected for their errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable
from robotrials.measure.geometry import score_recorded_pose
from robotrials.measure.geometry.camera_score import METHOD, score_moment
from robotrials.measure.geometry.projection import camera_scores
from robotrials.measure.geometry.score import placement_trial, summarize_placements
from robotrials.record.footage import END, START, kept_views
from robotrials.stats import Estimate, Interval, Rate
from robotrials.stats.corrected_rate import (
    LEAST_KNOWN,
    ScorerErrors,
    SplitOverlap,
    StratumWord,
    expected_overlap,
    prediction_powered,
    stratified_rate,
)
from robotrials.stats.proportion import newcombe_paired
from robotrials.value import dataclass
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.analysis.selection import Absent, present
from robotrials.verdict.planning.analysis_plan import EndpointName, SuccessSource

if TYPE_CHECKING:
    from robotrials.measure.geometry.camera_score import CameraScore
    from robotrials.record import Episode
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.arm import Arm, Side
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.analysis.selection import ComparisonFrame, Selection
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


Key = tuple[str, int]
MOST_REASONS = 12


@dataclass(frozen=True, slots=True)
class Confusion:
    """Episodes by what the host and the cameras say; those whose truth nobody knows are not in it."""

    both_success: int
    only_host: int  # success by the host, failure by the cameras
    only_cameras: int
    both_failure: int
    unscored_success: int  # by the host
    unscored_failure: int

    @property
    def n_scored(self) -> int:
        return self.both_success + self.only_host + self.only_cameras + self.both_failure

    @property
    def n(self) -> int:
        return self.n_scored + self.unscored_success + self.unscored_failure

    @property
    def n_true(self) -> int:
        return self.both_success + self.only_host + self.unscored_success

    @property
    def n_false(self) -> int:
        return self.both_failure + self.only_cameras + self.unscored_failure


@dataclass(frozen=True, slots=True)
class PolicyByCameras:
    """One policy's success by its cameras."""

    policy: str
    n: int
    successes: int
    failures: int
    unscored: int
    host: Rate | None  # where the host knows the truth of every episode
    level: float
    corrected: Estimate
    powered: Estimate

    @property
    def success(self) -> Estimate:
        """The rate to show: corrected; as the cameras say it where their errors are not known and nothing is unscored;
        else no rate, and the interval that unscored ends leave.
        """
        if self.corrected.value is not None or self.unscored or self.corrected.interval is None:
            return self.corrected
        value, reach = self.successes / self.n, self.corrected.interval
        note = 'as the cameras say it: too little is known here of their errors'
        return Estimate(value, Interval(min(reach.low, value), max(reach.high, value)), note=note, n=self.n)

    @property
    def bounds(self) -> Interval:
        """The rate if every unscored episode failed, and if every one succeeded."""
        return Interval(self.successes / self.n, (self.successes + self.unscored) / self.n)


@dataclass(frozen=True, slots=True, eq=False)
class CameraPart:
    """Success by cameras: every score, the agreement with the host, and rates corrected for the cameras' errors."""

    scores: Mapping[Key, CameraScore]
    confusion: Confusion
    agreement: Rate  # of scored episodes with known truth
    bias: Estimate  # cameras' rate minus the host's, on the same scored episodes
    policies: tuple[PolicyByCameras, ...]
    unscored_reasons: Mapping[str, int]
    standings: Mapping[tuple[str, str], int]  # (camera, sound or corrected or refused) -> episodes
    tasks: Mapping[str, Confusion]
    masks: Mapping[str, int]  # who said which pixels are whose -> episodes; empty where nobody had to


def camera_part(
    frame: ComparisonFrame, scores: Mapping[Key, CameraScore], recorded: Mapping[Key, Episode], *, level: float
) -> CameraPart | Absent:
    """Every policy's success by cameras, on the episodes that policies are ranked by; `recorded` has the host's."""
    cells = {p: {s: [recorded[e.key] for e in es] for s, es in frame.cells[p].items()} for p in frame.everyone}
    episodes = [e for strata in cells.values() for group in strata.values() for e in group]
    if all(scores[e.key].success is None for e in episodes):
        why = Counter(scores[e.key].reason for e in episodes).most_common(1)[0][0]
        remedy = 'keep RGB-D views: open the host with cameras that watch (its option watchers), and leave rgbd on'
        return Absent(f'no episode could be scored from cameras: {why}', remedy)
    confusion = confusion_of(episodes, scores)
    known = Counter(_short(scores[e.key].reason) for e in episodes if scores[e.key].success is None)
    standings = Counter((c.camera, c.standing) for e in episodes for c in scores[e.key].cameras)
    scored = confusion.n_scored
    bias = Estimate(None, note='no scored episode has a known truth')
    if scored:
        value = (confusion.only_cameras - confusion.only_host) / scored
        cells_of = (confusion.both_success, confusion.only_cameras, confusion.only_host, confusion.both_failure)
        bias = Estimate(value, newcombe_paired(*cells_of, level=level), n=scored)
    return CameraPart(
        scores={e.key: scores[e.key] for e in episodes},
        confusion=confusion,
        agreement=Rate(confusion.both_success + confusion.both_failure, scored, level),
        bias=bias,
        policies=tuple(_policy(p, cells, scores, level) for p, strata in cells.items() if strata),
        unscored_reasons=dict(known.most_common(MOST_REASONS)),
        standings=dict(sorted(standings.items())),
        tasks={
            t: confusion_of([e for e in episodes if e.task == t], scores) for t in sorted({e.task for e in episodes})
        },
        masks=dict(Counter(by for e in episodes if (by := scores[e.key].masks_by))),
    )


def confusion_of(episodes: Sequence[Episode], scores: Mapping[Key, CameraScore]) -> Confusion:
    """Counts over episodes whose truth the host knows."""
    counts = Counter((e.is_success, scores[e.key].success) for e in episodes if has_truth(e))
    return Confusion(
        counts[True, True],
        counts[True, False],
        counts[False, True],
        counts[False, False],
        counts[True, None],
        counts[False, None],
    )


def has_truth(episode: Episode) -> bool:
    """Whether somebody other than the cameras judged the episode: an outcome alone says how it ended."""
    return episode.success is not None


def _policy(
    policy: str, cells: Mapping[str, Mapping[str, Sequence[Episode]]], scores: Mapping[Key, CameraScore], level: float
) -> PolicyByCameras:
    group = [e for es in cells[policy].values() for e in es]
    counts = Counter(scores[e.key].success for e in group)
    true = [e for e in group if has_truth(e)]
    words = [stratum_word(policy, name, cells, scores) for name in cells[policy]]
    corrected = stratified_rate(words, level=level)
    powered = Estimate(None, note='the host knows none of its episodes')
    if true:
        rest = [_said(scores[e.key]) for e in group if not has_truth(e)]
        powered = prediction_powered(
            [e.is_success for e in true], [_said(scores[e.key]) for e in true], rest, level=level
        )
    host = Rate(sum(e.is_success for e in true), len(true), level) if len(true) == len(group) else None
    return PolicyByCameras(
        policy, len(group), counts[True], counts[False], counts[None], host, level, corrected, powered
    )  # fmt: skip


def stratum_word(
    policy: str, name: str, cells: Mapping[str, Mapping[str, Sequence[Episode]]], scores: Mapping[Key, CameraScore]
) -> StratumWord:
    """A policy's word in one stratum, and the cameras' errors there on other policies' episodes.

    Unscored ends cluster by what is to be seen, so errors of other strata would mislead; and an episode must not
    correct itself.
    """
    group = cells[policy][name]
    counts = Counter(scores[e.key].success for e in group)
    others = [strata for p, strata in cells.items() if p != policy]
    here = confusion_of([e for strata in others for e in strata.get(name, ())], scores)
    anywhere = confusion_of([e for strata in others for es in strata.values() for e in es], scores)
    return StratumWord(name, len(group), counts[True], counts[None], _errors(here, anywhere))


def _errors(here: Confusion, anywhere: Confusion) -> ScorerErrors | None:
    """The cameras as a scorer that says success or not; unscored is not saying so. None without both truths.

    Sensitivity is that of the stratum. Specificity, too, where it has enough failures; else it is that of all strata.
    """
    false = here if here.n_false >= LEAST_KNOWN else anywhere
    if not here.n_true or not false.n_false:
        return None
    silent = false.both_failure + false.unscored_failure
    return ScorerErrors(here.both_success, here.n_true, silent, false.n_false)


def _said(score: CameraScore) -> float:
    """The cameras' word as a number; unscored is half way, which favours neither side."""
    return 0.5 if score.success is None else float(score.success)


def _short(reason: str) -> str:
    """A reason without its numbers, so that like ones are counted together."""
    import re

    return re.sub(r'\d+(\.\d+)?', '#', reason)[:160] or 'no reason given'


# What unscored ends can and cannot decide, where success is the cameras': claims that hold at both extremes.
# An unscored end is no failure and no success. A claim that would turn with it is not made; one that holds if all of
# one side's unscored ends succeeded and all of the other's failed, and the other way round, is.

Silence = tuple[Collection[Key], Collection[Key]]  # unscored ends of either arm: one id may stand in both stores


def success_extremes(a: Side, b: Side, plan: AnalysisPlan, *, unscored: Silence) -> tuple[Contrast, Contrast]:
    """The contrast of success with every unscored end counted for a, and with every one counted for b."""

    def told(silent: Collection[Key], unscored_as: float) -> Callable[[Episode], float]:
        return lambda episode: unscored_as if episode.key in silent else float(episode.is_success)

    def favouring(a_has: float) -> Contrast:
        values = told(unscored[0], a_has), told(unscored[1], 1.0 - a_has)
        return contrast(a, b, endpoint=EndpointName.SUCCESS, plan=plan, value=values)

    return favouring(1.0), favouring(0.0)


def extreme_contrast(a: Side, b: Side, plan: AnalysisPlan, *, unscored: Silence) -> Contrast:
    """The contrast of success at its less favourable extreme, with an interval that spans both."""
    n = sum(e.key in silent for side, silent in zip((a, b), unscored, strict=True) for e in side.every)
    return _joined(*success_extremes(a, b, plan, unscored=unscored), n)


def _joined(for_a: Contrast, for_b: Contrast, n: int) -> Contrast:
    weaker = for_b if for_b.estimate > 0 else for_a
    interval = None
    if for_a.interval is not None and for_b.interval is not None:
        interval = Interval(
            min(for_a.interval.low, for_b.interval.low), max(for_a.interval.high, for_b.interval.high)
        )  # fmt: skip
    note = f'success by cameras, {n} unscored ends taken both ways' if n else 'success by cameras'
    if for_a.estimate * for_b.estimate > 0 and for_a.p_value is not None and for_b.p_value is not None:
        return replace(weaker, interval=interval, p_value=max(for_a.p_value, for_b.p_value), note=note)
    why = f'{n} unscored ends could decide who is ahead' if n else weaker.withheld
    middle = (for_a.estimate + for_b.estimate) / 2
    return replace(weaker, estimate=middle, interval=interval, p_value=None, withheld=why, note=note)


def told_by_cameras(arm: Arm, plan: AnalysisPlan) -> tuple[tuple[Episode, ...], frozenset[Key]]:
    """An arm's episodes with the cameras' success where the plan takes theirs, and the keys of ends they left open."""
    if plan.success is not SuccessSource.RECONSTRUCTION:
        return arm.episodes, frozenset()
    successes = {k: s.success for k, s in camera_scores(arm.store, arm.valid).items()}
    silent = frozenset(e.key for e in arm.valid if successes.get(e.key) is None)
    return tuple(
        e.replace(success=successes[e.key]) if successes.get(e.key) is not None else e for e in arm.episodes
    ), silent


# Overlap with the target over an episode, by cameras, beside what the host's own poses say (RADAR, figure 5a).

MOST_EPISODES = 12


@dataclass(frozen=True, slots=True)
class OverlapCurve:
    """One episode: (seconds, IoU) by cameras where they could tell, and by recorded poses."""

    episode: Episode
    threshold: float | None
    by_cameras: tuple[tuple[float, float], ...]
    untold_s: tuple[float, ...]  # moments at which the cameras could not tell
    by_host: tuple[tuple[float, float], ...]


def find_overlaps(selection: Selection) -> tuple[OverlapCurve, ...] | Absent:
    """The first episodes, in the canonical order, that kept RGB-D between start and end."""
    curves: list[OverlapCurve] = []
    if selection.store is None:
        return Absent('these episodes are in no store, and views are kept in one')
    for episode, trajectory in selection.pairs():
        kept = kept_views(selection.store.path / 'media', *episode.key) if episode.is_valid else None
        if kept is None or not kept.names or not kept.has_ends:
            continue
        known = kept.known()
        scored, untold = [], []
        for name in (START, *kept.names, END):
            views = kept.moment(name)
            t_s = next(iter(views.values())).t_s
            iou = score_moment(views, known).iou
            if iou is None:
                untold.append(t_s)
            else:
                scored.append((t_s, iou))
        host: list[tuple[float, float]] = []
        if trajectory is not None:
            try:
                steps = range(trajectory.n_steps)
                host = [(float(trajectory.time_s[k]), score_recorded_pose(trajectory, step=k).iou) for k in steps]
            except NotEstimable:
                host = []
        curves.append(OverlapCurve(episode, known.threshold, tuple(scored), tuple(untold), tuple(host)))
        if len(curves) == MOST_EPISODES:
            break
    if not curves:
        return Absent('no episode has RGB-D between its start and its end', 'run with recording.rgbd = 2 (per second)')
    return tuple(curves)


# E[IoU] of a policy under the condition that ranks: the number of the rows that every robustness table shows.
# Where success is the cameras', so is the overlap, and its interval includes what is known of their errors.

BY_POSES = "E[IoU] rests on the host's own poses of the object, not on cameras"


def expected_iou(analysis: Analysis, policy: str) -> Estimate | Absent:
    """The mean over splits of SR x IoU; disturbed episodes are not mixed in."""
    if isinstance(analysis.frame, Absent):
        return analysis.frame
    if analysis.plan.success is SuccessSource.RECONSTRUCTION:
        return _by_cameras(analysis, policy)
    condition = present(analysis.frame).condition
    own = [
        e for e in analysis.episodes if e.policy == policy and e.is_valid and condition in ('', e.condition)
    ]  # fmt: skip
    trials = [placement_trial(e) for e in own]
    if not trials or all(t.iou is None for t in trials):
        return Absent('no episode has a placement score')
    part = analysis.robustness
    rows = () if isinstance(part, Absent) else part.rows
    summary = next((r.summary for r in rows if (r.policy, r.condition) == (policy, condition)), None)
    if summary is None:
        plan = analysis.plan
        rng = analysis.stream('expected iou', policy)
        summary = summarize_placements(trials, n_resamples=plan.resamples, rng=rng, level=plan.level)
    overlap = summary.expected_iou_over_splits
    return Absent('some IoU that it needs is not known') if overlap is None else overlap


def _by_cameras(analysis: Analysis, policy: str) -> Estimate | Absent:
    """The cameras' own, each split corrected by how they err on other policies' episodes where the truth is known."""
    scores, frame = analysis.camera_scores, present(analysis.frame)
    if isinstance(scores, Absent):
        return scores
    recorded = {e.key: e for e in analysis.episodes}
    cells = {p: {s: [recorded[e.key] for e in es] for s, es in frame.cells[p].items()} for p in frame.everyone}
    splits = []
    for name, episodes in cells.get(policy, {}).items():
        overlaps = [s.iou for s in (scores[e.key] for e in episodes) if s.success]
        if None in overlaps:
            return Absent('some success has no overlap by its cameras: objects in a region are counted')
        others = [e for p, strata in cells.items() if p != policy for e in strata.get(name, ())]
        word = stratum_word(policy, name, cells, scores)
        known = tuple(v for v in overlaps if v is not None)
        splits.append(SplitOverlap(word, known, tuple(_board_score_errors(others, scores))))
    if all(s.word.unscored == s.word.n for s in splits):
        return Absent('no episode could be scored from cameras')
    return expected_overlap(splits, level=analysis.plan.level)


def _board_score_errors(episodes: Iterable[Episode], scores: Mapping[tuple[str, int], CameraScore]) -> Iterator[float]:
    """The cameras' overlap minus that of the recorded pose, of successes by both."""
    for episode in episodes:
        score, trial = scores[episode.key], placement_trial(episode)
        is_true = has_truth(episode) and episode.is_success
        if score.success and is_true and score.iou is not None and trial.iou is not None:
            yield score.iou - trial.iou


def iou_caution(analysis: Analysis) -> str:
    """What must be said beside E[IoU] where a placement was not scored from cameras; '' where nothing must."""
    if analysis.plan.success is SuccessSource.RECONSTRUCTION:
        return ''
    sources = {e.labels.get('score_source') for e in analysis.episodes if e.is_valid} - {None}
    return BY_POSES if sources - {'reconstruction'} else ''


# Where success and E[IoU] of an analysis come from, in words for whoever reads the numbers.

OF_THE_HOST = "Times and safety are the host's."


def success_source(analysis: Analysis) -> str:
    """Who says what was a success, how much of it could be told, and what is known of the errors."""
    match analysis.plan.success:
        case SuccessSource.HOST:
            return "Success is the host's own account of each episode."
        case SuccessSource.OUTCOME:
            return 'Success is the recorded outcome of each episode.'
        case SuccessSource.BOTH:
            return f"Success is the host's own account of each episode. {_agreement(analysis)}"
        case SuccessSource.RECONSTRUCTION:
            return (
                f"Success and E[IoU] are what RGB-D cameras show ({METHOD}), not the host's account. "
                f'{_agreement(analysis)} {OF_THE_HOST}'
            )


def _agreement(analysis: Analysis) -> str:
    part = analysis.cameras
    if isinstance(part, Absent):
        return f'{part.reason[:1].upper()}{part.reason[1:]}.'
    n, unscored = sum(p.n for p in part.policies), sum(p.unscored for p in part.policies)
    sentence = f'Cameras scored {n - unscored} of {n} episodes'
    if part.unscored_reasons:
        sentence += f' (unscored most often: {next(iter(part.unscored_reasons))})'
    if not part.agreement.n:
        return f'{sentence}; the host judged none of them, so that how often cameras err is not known.'
    agreed = f'{part.agreement.count} of {part.agreement.n} as the host has it'
    if analysis.plan.success is SuccessSource.RECONSTRUCTION:
        is_corrected = {p.corrected.value is not None for p in part.policies}
        agreed += {
            True: '; rates are corrected for errors measured on other policies, and intervals include them',
            False: '; too little is known of their errors on other policies to correct rates for them',
        }[True in is_corrected]
        agreed += ', where enough is known of them' if len(is_corrected) > 1 else ''
    return f'{sentence}, {agreed}.'
