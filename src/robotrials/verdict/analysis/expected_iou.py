"""E[IoU] of a policy under the condition that ranks: the number of the rows that every robustness table shows.

Where success is the cameras', so is the overlap, and its interval includes what is known of their errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from robotrials.measure.geometry.score import placement_trial, summarize_placements
from robotrials.stats.corrected_overlap import SplitOverlap, expected_overlap
from robotrials.verdict.analysis.absent import Absent, present
from robotrials.verdict.analysis.cameras import has_truth, stratum_word
from robotrials.verdict.planning.analysis_plan import SuccessSource

if TYPE_CHECKING:
    from robotrials.measure.geometry.camera_score import CameraScore
    from robotrials.record import Episode
    from robotrials.stats import Estimate
    from robotrials.verdict.analysis.analysis import Analysis

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
    found = summary.expected_iou_over_splits
    return Absent('some IoU that it needs is not known') if found is None else found


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
