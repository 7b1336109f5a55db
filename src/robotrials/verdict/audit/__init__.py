"""Does the benchmark score mean anything? Significance, shortcuts, overfitting, reproducibility, citations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.verdict.audit.card import BenchmarkCard, CardFinding, CardStanding
    from robotrials.verdict.audit.citation import (
        BenchmarkUsage,
        BenchmarkUse,
        CitationCounts,
        HarvestedPaper,
        UsageTracker,
        candidates_from_bibtex,
        candidates_from_leaderboard,
        citation_counts,
        read_candidates,
    )
    from robotrials.verdict.audit.datasource import (
        DataSource,
        NearestImage,
        NearestStart,
        SourcePoint,
        SourceProtocol,
        StartStates,
        nearest_image,
        nearest_start,
        read_datasource,
    )
    from robotrials.verdict.audit.determinism import (
        Channel,
        RunComparison,
        TraceComparison,
        compare_traces,
        compare_trajectories,
    )
    from robotrials.verdict.audit.leaderboard import (
        Leaderboard,
        LeaderboardAudit,
        Rule,
        audit_leaderboard,
        read_leaderboard,
    )
    from robotrials.verdict.audit.outcome import (
        InstanceOutcome,
        PairedSignificance,
        align,
        compare_outcomes,
        outcomes_of,
        paired_significance,
        read_outcomes,
    )
    from robotrials.verdict.audit.overfit import (
        Alteration,
        Drop,
        Overfit,
        TrainingCount,
        drop,
        drop_of_outcomes,
        half_up_percent,
        read_overfit,
    )
    from robotrials.verdict.audit.reported import ReportedScore, ScoreKind, read_reported
    from robotrials.verdict.audit.run_score import MixScore, RunOutcomes, TrainingMix, read_mix
    from robotrials.verdict.audit.shortcut import Shortcut, ShortcutVerdict, read_shortcut, shortcut
    from robotrials.verdict.audit.topline import (
        BENCHMARKS,
        Benchmark,
        Classification,
        Protocol,
        Topline,
        cutoffs,
        find_benchmark,
        topline,
    )

__all__ = [
    'BENCHMARKS',
    'Alteration',
    'Benchmark',
    'BenchmarkCard',
    'BenchmarkUsage',
    'BenchmarkUse',
    'CardFinding',
    'CardStanding',
    'Channel',
    'CitationCounts',
    'Classification',
    'DataSource',
    'Drop',
    'HarvestedPaper',
    'InstanceOutcome',
    'Leaderboard',
    'LeaderboardAudit',
    'MixScore',
    'NearestImage',
    'NearestStart',
    'Overfit',
    'PairedSignificance',
    'Protocol',
    'ReportedScore',
    'Rule',
    'RunComparison',
    'RunOutcomes',
    'ScoreKind',
    'Shortcut',
    'ShortcutVerdict',
    'SourcePoint',
    'SourceProtocol',
    'StartStates',
    'Topline',
    'TraceComparison',
    'TrainingCount',
    'TrainingMix',
    'UsageTracker',
    'align',
    'audit_leaderboard',
    'candidates_from_bibtex',
    'candidates_from_leaderboard',
    'citation_counts',
    'compare_outcomes',
    'compare_traces',
    'compare_trajectories',
    'cutoffs',
    'drop',
    'drop_of_outcomes',
    'find_benchmark',
    'half_up_percent',
    'nearest_image',
    'nearest_start',
    'outcomes_of',
    'paired_significance',
    'read_candidates',
    'read_datasource',
    'read_leaderboard',
    'read_mix',
    'read_outcomes',
    'read_overfit',
    'read_reported',
    'read_shortcut',
    'shortcut',
    'topline',
]

_PLACES = {
    '.card': 'BenchmarkCard CardFinding CardStanding',
    '.citation': (
        'BenchmarkUsage BenchmarkUse CitationCounts HarvestedPaper UsageTracker candidates_from_bibtex '
        'candidates_from_leaderboard citation_counts read_candidates'
    ),
    '.datasource': (
        'DataSource NearestImage NearestStart SourcePoint SourceProtocol StartStates nearest_image '
        'nearest_start read_datasource'
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
