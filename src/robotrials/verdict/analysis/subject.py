"""What a named figure or table is made from: each kind of input, read into one value."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.value import dataclass

# Most verbs ask about a store of episodes: what reads the other inputs is imported by whoever asks for one.
if TYPE_CHECKING:
    from robotrials.measure.actions.compare import ActionReport, Difficulty, GroupScore, ModelScores
    from robotrials.measure.safety import Registry
    from robotrials.verdict.audit import Benchmark, CitationCounts, HarvestedPaper, LeaderboardAudit, RunComparison
    from robotrials.verdict.audit.topline import Cutoff

PUBLISHED = 'published'
ALPHA = '0.05'
BASELINE_SHARES = (*range(0, 90, 10), 90, 92, 94, 95, 96, 97, 98, 99)  # percent of the full score


class Input(enum.StrEnum):
    """Which kind of input a name wants, after it on the command line."""

    STORE = 'store'  # the folder of a store
    TWO_STORES = 'two stores'  # two recorded runs of one plan
    PREDICTIONS = 'predictions'  # a store of predicted actions, or the word `published`
    LEADERBOARD = 'leaderboard'  # a vla-eval leaderboard file
    CANDIDATES = 'candidates'  # tables of papers (CSV, JSONL), or a leaderboard file
    BENCHMARK = 'benchmark'  # the name of a preset, such as libero-spatial
    SHORTCUT = 'shortcut'  # the shortcut.json that `robotrials audit shortcut` writes
    DATASOURCE = 'datasource'  # the datasource.json that `robotrials audit datasource` writes
    MIX = 'mix'  # the mix.json that `robotrials audit mix` writes
    REGISTRY = 'registry'  # nothing: the built-in safety registry; or registry files of your own after it
    NOTHING = 'nothing'


@dataclass(frozen=True, slots=True)
class BenchmarkGaps:
    """How big a gap on a benchmark could, and how big a gap must, be significant, by baseline score."""

    benchmark: Benchmark
    listed: tuple[Cutoff, ...]  # at round shares of the full score
    drawn: tuple[Cutoff, ...]  # at up to a thousand of them
    alpha: float


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Scores of recorded predictions, with everything else that is known of their runs; or the published scores."""

    scores: ModelScores
    report: ActionReport | None  # None for the published numbers
    groups: tuple[GroupScore, ...]
    difficulty: tuple[Difficulty, ...]

    def full(self) -> ActionReport:
        """The whole report, where there is one."""
        if self.report is None:
            raise InputError(
                'this needs recorded predictions; the published numbers have only AMSE, NAMSE and completion'
            )
        return self.report


def read_subject(wanted: Input, sources: Sequence[str], *, n_resamples: int = 2000, seed: int = 0) -> object:
    """The value of an input that is no store of episodes."""
    from robotrials.verdict import audit

    read: dict[Input, Callable[[], object]] = {
        Input.LEADERBOARD: lambda: leaderboard_audit(sources[0]),
        Input.CANDIDATES: lambda: paper_counts(sources),
        Input.TWO_STORES: lambda: run_comparison(sources[0], sources[1]),
        Input.PREDICTIONS: lambda: predictions(sources[0], n_resamples=n_resamples, seed=seed),
        Input.BENCHMARK: lambda: benchmark_gaps(sources[0]),
        Input.REGISTRY: lambda: registry(sources),
        Input.SHORTCUT: lambda: audit.read_shortcut(sources[0]),
        Input.DATASOURCE: lambda: audit.read_datasource(sources[0]),
        Input.MIX: lambda: audit.read_mix(sources[0]),
    }
    return read[wanted]() if wanted in read else None


def leaderboard_audit(source: str | Path) -> LeaderboardAudit:
    from robotrials.verdict.audit import audit_leaderboard, read_leaderboard

    return audit_leaderboard(read_leaderboard(Path(source)), alpha=ALPHA)


def paper_counts(sources: Sequence[str]) -> CitationCounts:
    """Papers by what they do with each benchmark."""
    from robotrials.verdict.audit import candidates_from_leaderboard, citation_counts, read_candidates, read_leaderboard

    candidates: list[HarvestedPaper] = []
    for source in sources:
        is_leaderboard = source.lower().endswith('.json')
        candidates += (
            candidates_from_leaderboard(read_leaderboard(source)) if is_leaderboard else read_candidates(source)
        )
    return citation_counts(candidates)


def run_comparison(first: str | Path, second: str | Path) -> RunComparison:
    from robotrials.verdict.audit import compare_traces

    return compare_traces(Path(first), Path(second))


def predictions(source: str | Path, *, n_resamples: int, seed: int) -> Predictions:
    """The runs of a store of predictions, or what the paper printed."""
    from robotrials.measure.actions.compare import build_report, difficulty, group_scores, published_scores
    from robotrials.measure.actions.evaluate import read_runs

    if str(source) == PUBLISHED:
        scores, report = published_scores(), None
    else:
        report = build_report(read_runs(Path(source)), n_resamples=n_resamples, seed=seed)
        scores = report.scores
    return Predictions(scores, report, group_scores(scores), difficulty(scores))


def benchmark_gaps(name: str) -> BenchmarkGaps:
    from robotrials.verdict.audit import cutoffs, find_benchmark

    benchmark = find_benchmark(name)
    shape = benchmark.protocol
    counts = sorted({shape.most * share // 100 for share in BASELINE_SHARES})
    fine = range(0, shape.most + 1, max(1, shape.most // 1000))
    listed, drawn = (
        cutoffs(asked, tasks=shape.tasks, samples=shape.samples, max_score=shape.max_score, alpha=ALPHA)
        for asked in (counts, fine)
    )
    return BenchmarkGaps(benchmark, tuple(listed), tuple(drawn), float(ALPHA))


def registry(files: Sequence[str]) -> Registry:
    from robotrials.measure.safety import load_registry

    return load_registry(*map(Path, files))
