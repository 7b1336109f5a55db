"""Safety: was it safe while it succeeded? Signal temporal logic over recorded trajectories."""

from trialist.safety.compare import SafetyComparison, SafetyDifference, compare_safety
from trialist.safety.formula import Formula
from trialist.safety.margin import Gate, robustness, satisfies
from trialist.safety.naming import UnnamedBenchmark, unnamed_benchmark, unnamed_tasks
from trialist.safety.parse import parse_stl
from trialist.safety.registry import Registry, load_registry
from trialist.safety.result import Disagreement, EpisodeSafety, PhaseSafety, Violation
from trialist.safety.score import Scoring, score_episode, score_pairs, store_pairs
from trialist.safety.sensitivity import Change, Variant, load_variants, score_variants
from trialist.safety.signal import Signals, derive_signals
from trialist.safety.spec import Severity, Spec, Tier
from trialist.safety.summary import CellSafety, SafetySummary, mean_safety, pareto_frontier, summarize_safety

__all__ = [
    'CellSafety',
    'Change',
    'Disagreement',
    'EpisodeSafety',
    'Formula',
    'Gate',
    'PhaseSafety',
    'Registry',
    'SafetyComparison',
    'SafetyDifference',
    'SafetySummary',
    'Scoring',
    'Severity',
    'Signals',
    'Spec',
    'Tier',
    'UnnamedBenchmark',
    'Variant',
    'Violation',
    'compare_safety',
    'derive_signals',
    'load_registry',
    'load_variants',
    'mean_safety',
    'pareto_frontier',
    'parse_stl',
    'robustness',
    'satisfies',
    'score_episode',
    'score_pairs',
    'score_variants',
    'store_pairs',
    'summarize_safety',
    'unnamed_benchmark',
    'unnamed_tasks',
]
