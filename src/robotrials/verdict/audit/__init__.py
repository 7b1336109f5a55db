"""Does the benchmark score mean anything? Significance, shortcuts, overfitting, reproducibility, citations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.verdict.audit.candidate_table import (
        candidates_from_bibtex,
        candidates_from_leaderboard,
        read_candidates,
    )
    from robotrials.verdict.audit.card import BenchmarkCard, CardFinding, CardStanding
    from robotrials.verdict.audit.citation import (
        BenchmarkUse,
        Candidate,
        CitationCounts,
        Tracker,
        Usage,
        citation_counts,
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
    from robotrials.verdict.audit.determinism import RunComparison, compare_traces
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
    from robotrials.verdict.audit.trace import Channel, TraceComparison, compare_trajectories

__all__ = [
    'BENCHMARKS',
    'Alteration',
    'Benchmark',
    'BenchmarkCard',
    'BenchmarkUse',
    'Candidate',
    'CardFinding',
    'CardStanding',
    'Channel',
    'CitationCounts',
    'Classification',
    'DataSource',
    'Drop',
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
    'Tracker',
    'TrainingCount',
    'TrainingMix',
    'Usage',
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
    '.candidate_table': 'candidates_from_bibtex candidates_from_leaderboard read_candidates',
    '.card': 'BenchmarkCard CardFinding CardStanding',
    '.citation': 'BenchmarkUse Candidate CitationCounts Tracker Usage citation_counts',
    '.datasource': (
        'DataSource NearestImage NearestStart SourcePoint SourceProtocol StartStates nearest_image '
        'nearest_start read_datasource'
    ),
    '.determinism': 'RunComparison compare_traces',
    '.leaderboard': 'Leaderboard LeaderboardAudit Rule audit_leaderboard read_leaderboard',
    '.outcome': (
        'InstanceOutcome PairedSignificance align compare_outcomes outcomes_of paired_significance read_outcomes'
    ),
    '.overfit': 'Alteration Drop Overfit TrainingCount drop drop_of_outcomes half_up_percent read_overfit',
    '.reported': 'ReportedScore ScoreKind read_reported',
    '.run_score': 'MixScore RunOutcomes TrainingMix read_mix',
    '.shortcut': 'Shortcut ShortcutVerdict read_shortcut shortcut',
    '.topline': 'BENCHMARKS Benchmark Classification Protocol Topline cutoffs find_benchmark topline',
    '.trace': 'Channel TraceComparison compare_trajectories',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
