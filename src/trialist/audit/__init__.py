"""Does the benchmark score mean anything? Significance, shortcuts, overfitting, reproducibility, citations."""

from trialist.audit.benchmark import BENCHMARKS, Benchmark, find_benchmark
from trialist.audit.candidate_table import candidates_from_bibtex, candidates_from_leaderboard, read_candidates
from trialist.audit.citation import BenchmarkUse, Candidate, CitationCounts, Tracker, Usage, citation_counts
from trialist.audit.determinism import RunComparison, compare_traces
from trialist.audit.drop import Drop, drop, drop_of_outcomes, half_up_percent
from trialist.audit.leaderboard import LeaderboardAudit, Rule, audit_leaderboard
from trialist.audit.leaderboard_entry import Leaderboard, read_leaderboard
from trialist.audit.outcome import InstanceOutcome, align, outcomes_of, read_outcomes
from trialist.audit.paired import PairedSignificance, compare_outcomes, paired_significance
from trialist.audit.reported import ReportedScore, ScoreKind, read_reported
from trialist.audit.run_score import RunOutcomes
from trialist.audit.shortcut import Shortcut, ShortcutVerdict, read_shortcut, shortcut
from trialist.audit.topline import Classification, Protocol, Topline, cutoffs, topline
from trialist.audit.trace import Channel, TraceComparison, compare_trajectories

__all__ = [
    'BENCHMARKS',
    'Benchmark',
    'BenchmarkUse',
    'Candidate',
    'Channel',
    'CitationCounts',
    'Classification',
    'Drop',
    'InstanceOutcome',
    'Leaderboard',
    'LeaderboardAudit',
    'PairedSignificance',
    'Protocol',
    'ReportedScore',
    'Rule',
    'RunComparison',
    'RunOutcomes',
    'ScoreKind',
    'Shortcut',
    'ShortcutVerdict',
    'Topline',
    'TraceComparison',
    'Tracker',
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
    'outcomes_of',
    'paired_significance',
    'read_candidates',
    'read_leaderboard',
    'read_outcomes',
    'read_reported',
    'read_shortcut',
    'shortcut',
    'topline',
]
