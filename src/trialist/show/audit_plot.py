"""The audit's figures by name: read what the name wants, ask the audit, draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trialist.audit import (
    Candidate,
    CitationCounts,
    Drop,
    InstanceOutcome,
    LeaderboardAudit,
    RunComparison,
    audit_leaderboard,
    candidates_from_leaderboard,
    citation_counts,
    compare_traces,
    cutoffs,
    drop_of_outcomes,
    find_benchmark,
    outcomes_of,
    read_candidates,
    read_leaderboard,
)
from trialist.errors import NotEstimable
from trialist.robustness import episodes_by_severity
from trialist.show.audit_figure import citation_figure, cutoff_figure, drop_forest, growth_figure, share_pies
from trialist.show.request import Input, ShowRequest, apart, takes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trialist.episodes import Episode

CALIBRATION = 'nominal'  # the record's word for the unaltered condition
ALPHA = '0.05'


@apart
def draw_drops(request: ShowRequest) -> Figure:
    """What every policy loses under each condition of the store, against `nominal`, with intervals."""
    return drop_forest(recorded_drops(request))


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
    benchmark = find_benchmark(request.sources[0])
    shape = benchmark.protocol
    step = max(1, shape.most // 1000)
    found = cutoffs(
        range(0, shape.most + 1, step), tasks=shape.tasks, samples=shape.samples, max_score=shape.max_score,
        alpha=ALPHA,
    )  # fmt: skip
    return cutoff_figure(found, benchmark)


@takes(Input.TWO_STORES)
def draw_divergence(request: ShowRequest) -> Figure:
    """How the difference between two runs of one plan grows in states, images and actions, step by step."""
    found = requested_traces(request)
    drawn = next((t for t in found.traces if t.first and t.growth), next(iter(found.traces), None))
    if drawn is None or not drawn.growth:
        raise NotEstimable('no trajectory with states, actions or frames in both runs; nothing to draw')
    return growth_figure(drawn)


def requested_audit(request: ShowRequest) -> LeaderboardAudit:
    return audit_leaderboard(read_leaderboard(Path(request.sources[0])), alpha=ALPHA)


def requested_counts(request: ShowRequest) -> CitationCounts:
    found: list[Candidate] = []
    for source in request.sources:
        is_leaderboard = source.lower().endswith('.json')
        found += candidates_from_leaderboard(read_leaderboard(source)) if is_leaderboard else read_candidates(source)
    return citation_counts(found)


def requested_traces(request: ShowRequest) -> RunComparison:
    return compare_traces(Path(request.sources[0]), Path(request.sources[1]))


def recorded_drops(request: ShowRequest) -> list[Drop]:
    """The drop of every policy under every condition, and every severity of it, from the calibration."""
    runs: dict[str, dict[str, list[Episode]]] = {}
    for episode in episodes_by_severity(e for e in request.chosen() if e.is_valid):
        runs.setdefault(episode.policy, {}).setdefault(episode.condition, []).append(episode)
    drops = []
    for policy, by_condition in sorted(runs.items()):
        outcomes = {condition: outcomes_of(episodes) for condition, episodes in sorted(by_condition.items())}
        nominal = outcomes.pop(CALIBRATION, None)
        if nominal is not None:
            drops += [
                _drop(nominal, altered, request, label=f'{policy}, {condition}')
                for condition, altered in outcomes.items()
            ]
    if not drops:
        raise NotEstimable(f'no policy ran under {CALIBRATION!r} and under another condition; a drop needs both')
    return drops


def _drop(
    nominal: Sequence[InstanceOutcome], altered: Sequence[InstanceOutcome], request: ShowRequest, *, label: str
) -> Drop:
    """Paired where both conditions ran the same instances, independent otherwise."""
    import numpy as np

    is_same = sorted(o.key for o in nominal) == sorted(o.key for o in altered)
    rng = np.random.default_rng(request.seed)
    return drop_of_outcomes(nominal, altered, paired=is_same, n_resamples=request.n_resamples, rng=rng, label=label)
