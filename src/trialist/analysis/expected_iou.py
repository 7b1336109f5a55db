"""E[IoU] of a policy under the condition that ranks: the number of the rows that every robustness table shows."""

from __future__ import annotations

from trialist.analysis.absent import Absent, present
from trialist.analysis.analysis import Analysis
from trialist.geometry.score import placement_trial, summarize_placements
from trialist.stats import Estimate

BY_POSES = "E[IoU] rests on the host's own poses of the object, not on cameras"


def expected_iou(analysis: Analysis, policy: str) -> Estimate | Absent:
    """The mean over splits of SR x IoU; disturbed episodes are not mixed in."""
    if isinstance(analysis.frame, Absent):
        return analysis.frame
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


def iou_caution(analysis: Analysis) -> str:
    """What must be said beside E[IoU] where a placement was not scored from cameras; '' where nothing must."""
    sources = {e.labels.get('score_source') for e in analysis.episodes if e.is_valid} - {None}
    return BY_POSES if sources - {'reconstruction'} else ''
