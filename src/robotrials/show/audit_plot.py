"""The audit's figures by name, from what their input was read into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable
from robotrials.show.audit_figure import (
    citation_figure,
    condition_lines,
    cutoff_figure,
    drop_forest,
    growth_figure,
    share_pies,
)
from robotrials.show.figure_mark import lead_to
from robotrials.show.request import ShowRequest, apart, takes
from robotrials.show.robustness_plot import conditioned, requested_drops
from robotrials.verdict.analysis.subject import BenchmarkGaps, Input
from robotrials.verdict.audit import CitationCounts, LeaderboardAudit, RunComparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@apart
def draw_drops(request: ShowRequest) -> Figure:
    """What every policy loses under each condition of the store, against the baseline, with intervals."""
    drops, plan = requested_drops(request), request.analysis.plan
    lines = condition_lines(drops, alpha=plan.alpha)
    figure, behind = drop_forest(lines, level=plan.level), conditioned(request.analysis)
    for row, (d, line) in enumerate(zip(drops, lines, strict=True)):
        words = f'{line.label}: {line.estimate:.1f}'
        lead_to(figure.axes[0], (line.low, line.high), float(row), behind(d.policy, d.condition, None), words)
    return figure


@takes(Input.LEADERBOARD)
def draw_claims(request: ShowRequest) -> Figure:
    """Claimed gains of a leaderboard: no improvement, impossible, inconclusive or provably significant, as pies."""
    return share_pies(requested_audit(request))


@takes(Input.CANDIDATES)
def draw_citations(request: ShowRequest) -> Figure:
    """Papers that report results on each benchmark, added up by month of first posting."""
    return citation_figure(requested_counts(request))


@takes(Input.BENCHMARK)
def draw_cutoffs(request: ShowRequest) -> Figure:
    """The gap that could and the gap that must be significant on a benchmark, over baseline scores."""
    found = request.value(BenchmarkGaps)
    return cutoff_figure(found.drawn, found.benchmark)


@takes(Input.TWO_STORES)
def draw_divergence(request: ShowRequest) -> Figure:
    """How the difference between two runs of one plan grows in states, images and actions, step by step."""
    found = requested_traces(request)
    drawn = next((t for t in found.traces if t.first and t.growth), next(iter(found.traces), None))
    if drawn is None or not drawn.growth:
        raise NotEstimable('no trajectory with states, actions or frames in both runs; nothing to draw')
    return growth_figure(drawn)


def requested_audit(request: ShowRequest) -> LeaderboardAudit:
    return request.value(LeaderboardAudit)


def requested_counts(request: ShowRequest) -> CitationCounts:
    return request.value(CitationCounts)


def requested_traces(request: ShowRequest) -> RunComparison:
    return request.value(RunComparison)
