"""Does the benchmark score mean anything? Significance, shortcuts, overfitting, reproducibility, citations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.verdict.audit.card import *
    from robotrials.verdict.audit.citation import *
    from robotrials.verdict.audit.datasource import *
    from robotrials.verdict.audit.determinism import *
    from robotrials.verdict.audit.leaderboard import *
    from robotrials.verdict.audit.outcome import *
    from robotrials.verdict.audit.overfit import *
    from robotrials.verdict.audit.reported import *
    from robotrials.verdict.audit.run_score import *
    from robotrials.verdict.audit.shortcut import *
    from robotrials.verdict.audit.topline import *

_PLACES = {
    '.card': 'BenchmarkCard CardFinding CardStanding',
    '.citation': (
        'BenchmarkUsage BenchmarkUse CitationCounts HarvestedPaper UsageTracker candidates_from_bibtex '
        'candidates_from_leaderboard citation_counts read_candidates'
    ),
    '.datasource': (
        'DataSource NearestStart SourcePoint SourceProtocol StartStates nearest_image nearest_start read_datasource'
    ),
    '.determinism': 'Channel RunComparison TraceComparison compare_traces compare_trajectories',
    '.leaderboard': 'Leaderboard LeaderboardAudit Rule audit_leaderboard read_leaderboard',
    '.outcome': (
        'InstanceOutcome PairedSignificance align compare_outcomes outcomes_of paired_significance read_outcomes'
    ),
    '.overfit': 'Alteration Drop Overfit TrainingCount drop drop_of_outcomes half_up_percent read_overfit',
    '.reported': 'ReportedScore ScoreKind read_reported',
    '.run_score': 'MixScore RunOutcomes TrainingMix read_mix',
    '.shortcut': 'Shortcut ShortcutVerdict read_shortcut shortcut',
    '.topline': 'BENCHMARKS Benchmark Classification Protocol Topline cutoffs find_benchmark topline',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
