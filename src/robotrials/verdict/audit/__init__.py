"""Does the benchmark score mean anything? Significance, shortcuts, overfitting, reproducibility, citations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.verdict.audit.benchmark import BENCHMARKS, Benchmark, find_benchmark
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
    from robotrials.verdict.audit.datasource import DataSource, SourcePoint, SourceProtocol, read_datasource
    from robotrials.verdict.audit.determinism import RunComparison, compare_traces
    from robotrials.verdict.audit.distance import NearestImage, NearestStart, StartStates, nearest_image, nearest_start
    from robotrials.verdict.audit.drop import Drop, drop, drop_of_outcomes, half_up_percent
    from robotrials.verdict.audit.leaderboard import LeaderboardAudit, Rule, audit_leaderboard
    from robotrials.verdict.audit.leaderboard_entry import Leaderboard, read_leaderboard
    from robotrials.verdict.audit.mix import MixScore, TrainingMix, read_mix
    from robotrials.verdict.audit.outcome import InstanceOutcome, align, outcomes_of, read_outcomes
    from robotrials.verdict.audit.overfit import Alteration, Overfit, TrainingCount, read_overfit
    from robotrials.verdict.audit.paired import PairedSignificance, compare_outcomes, paired_significance
    from robotrials.verdict.audit.reported import ReportedScore, ScoreKind, read_reported
    from robotrials.verdict.audit.run_score import RunOutcomes
    from robotrials.verdict.audit.shortcut import Shortcut, ShortcutVerdict, read_shortcut, shortcut
    from robotrials.verdict.audit.topline import Classification, Protocol, Topline, cutoffs, topline
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
    '.benchmark': 'BENCHMARKS Benchmark find_benchmark',
    '.candidate_table': 'candidates_from_bibtex candidates_from_leaderboard read_candidates',
    '.card': 'BenchmarkCard CardFinding CardStanding',
    '.citation': 'BenchmarkUse Candidate CitationCounts Tracker Usage citation_counts',
    '.datasource': 'DataSource SourcePoint SourceProtocol read_datasource',
    '.determinism': 'RunComparison compare_traces',
    '.distance': 'NearestImage NearestStart StartStates nearest_image nearest_start',
    '.drop': 'Drop drop drop_of_outcomes half_up_percent',
    '.leaderboard': 'LeaderboardAudit Rule audit_leaderboard',
    '.leaderboard_entry': 'Leaderboard read_leaderboard',
    '.mix': 'MixScore TrainingMix read_mix',
    '.outcome': 'InstanceOutcome align outcomes_of read_outcomes',
    '.overfit': 'Alteration Overfit TrainingCount read_overfit',
    '.paired': 'PairedSignificance compare_outcomes paired_significance',
    '.reported': 'ReportedScore ScoreKind read_reported',
    '.run_score': 'RunOutcomes',
    '.shortcut': 'Shortcut ShortcutVerdict read_shortcut shortcut',
    '.topline': 'Classification Protocol Topline cutoffs topline',
    '.trace': 'Channel TraceComparison compare_trajectories',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
