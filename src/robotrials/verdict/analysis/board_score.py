"""What a leaderboard shows of one policy: E[IoU], and where its scores come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from robotrials.measure.geometry.camera_score import METHOD
from robotrials.measure.geometry.score import placement_trial, summarize_placements
from robotrials.stats.corrected_rate import SplitOverlap, expected_overlap
from robotrials.verdict.analysis.cameras import has_truth, stratum_word
from robotrials.verdict.analysis.selection import Absent, present
from robotrials.verdict.planning.analysis_plan import SuccessSource

if TYPE_CHECKING:
    from robotrials.measure.geometry.camera_score import CameraScore
    from robotrials.record import Episode
    from robotrials.stats import Estimate
    from robotrials.verdict.analysis.analysis import Analysis


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
        splits.append(SplitOverlap(word, known, tuple(_errors(others, scores))))
    if all(s.word.unscored == s.word.n for s in splits):
        return Absent('no episode could be scored from cameras')
    return expected_overlap(splits, level=analysis.plan.level)


def _errors(episodes: Iterable[Episode], scores: Mapping[tuple[str, int], CameraScore]) -> Iterator[float]:
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
