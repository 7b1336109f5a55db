"""Does the benchmark score mean anything? Significance, shortcuts, overfitting, reproducibility, citations."""

from trialist.audit.benchmark import BENCHMARKS, Benchmark, find_benchmark
from trialist.audit.candidate_table import candidates_from_bibtex, candidates_from_leaderboard, read_candidates
from trialist.audit.card import BenchmarkCard, CardFinding, CardStanding
from trialist.audit.citation import BenchmarkUse, Candidate, CitationCounts, Tracker, Usage, citation_counts
from trialist.audit.datasource import DataSource, SourcePoint, SourceProtocol, read_datasource
from trialist.audit.determinism import RunComparison, compare_traces
from trialist.audit.distance import NearestImage, NearestStart, StartStates, nearest_image, nearest_start
from trialist.audit.drop import Drop, drop, drop_of_outcomes, half_up_percent
from trialist.audit.leaderboard import LeaderboardAudit, Rule, audit_leaderboard
from trialist.audit.leaderboard_entry import Leaderboard, read_leaderboard
from trialist.audit.mix import MixScore, TrainingMix, read_mix
from trialist.audit.outcome import InstanceOutcome, align, outcomes_of, read_outcomes
from trialist.audit.overfit import Alteration, Overfit, TrainingCount, read_overfit
from trialist.audit.paired import PairedSignificance, compare_outcomes, paired_significance
from trialist.audit.reported import ReportedScore, ScoreKind, read_reported
from trialist.audit.run_score import RunOutcomes
from trialist.audit.shortcut import Shortcut, ShortcutVerdict, read_shortcut, shortcut
from trialist.audit.topline import Classification, Protocol, Topline, cutoffs, topline
from trialist.audit.trace import Channel, TraceComparison, compare_trajectories

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
