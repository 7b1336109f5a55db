"""The audit's tables by name: from a store, a leaderboard, tables of papers, a benchmark's protocol or two runs."""

from __future__ import annotations

from robotrials.show.audit import cutoff_table
from robotrials.show.audit_leaderboard import (
    claims_table,
    count_table,
    coverage_table,
    obstacle_table,
    rounding_table,
    share_table,
)
from robotrials.show.audit_plot import requested_audit, requested_counts, requested_traces
from robotrials.show.audit_record import channel_table, funnel_table, grade_table, month_table, trace_table
from robotrials.show.request import ShowRequest, apart, takes
from robotrials.show.robustness import drop_table
from robotrials.show.robustness_plot import requested_drops
from robotrials.show.table import Table
from robotrials.verdict.analysis.subject import BenchmarkGaps, Input


@apart
def drops(request: ShowRequest) -> list[Table]:
    """Success under the baseline and under every other condition, the drop and its interval."""
    return [drop_table(requested_drops(request))]


@takes(Input.LEADERBOARD)
def claims(request: ShowRequest) -> list[Table]:
    """How many claimed gains are impossible, inconclusive or provably significant, by benchmark."""
    return [count_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_shares(request: ShowRequest) -> list[Table]:
    """The same in percent of the claims that can be judged."""
    return [share_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_rounding(request: ShowRequest) -> list[Table]:
    """How many judged claims rest on a score that no single pass can print."""
    return [rounding_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_coverage(request: ShowRequest) -> list[Table]:
    """How many papers of the leaderboard have a baseline to be judged by."""
    return [coverage_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_obstacles(request: ShowRequest) -> list[Table]:
    """Why claims could not be judged."""
    return [obstacle_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_list(request: ShowRequest) -> list[Table]:
    """Every comparison of the leaderboard with its class and its reason."""
    return [claims_table(requested_audit(request).claims)]


@takes(Input.BENCHMARK)
def needed_gaps(request: ShowRequest) -> list[Table]:
    """How big a gap on a benchmark could and how big a gap must be significant, by baseline score."""
    found = request.value(BenchmarkGaps)
    return [cutoff_table(found.listed, found.benchmark, alpha=found.alpha)]


@takes(Input.CANDIDATES)
def citations(request: ShowRequest) -> list[Table]:
    """Papers by what they do with each benchmark."""
    return [funnel_table(requested_counts(request))]


@takes(Input.CANDIDATES)
def citation_months(request: ShowRequest) -> list[Table]:
    """Papers that report results on each benchmark, month by month."""
    return [month_table(requested_counts(request))]


@takes(Input.TWO_STORES)
def traces(request: ShowRequest) -> list[Table]:
    """Two runs of one plan: how a difference travelled through the loop, and whether they are bitwise equal."""
    return [trace_table([requested_traces(request)])]


@takes(Input.TWO_STORES)
def trace_channels(request: ShowRequest) -> list[Table]:
    """Two runs of one plan: what diverged, in how many episodes, and when first."""
    return [channel_table(requested_traces(request))]


@takes(Input.TWO_STORES)
def trace_targets(request: ShowRequest) -> list[Table]:
    """Two runs of one plan: which of the four reproduction targets they meet."""
    return [grade_table(requested_traces(request))]
