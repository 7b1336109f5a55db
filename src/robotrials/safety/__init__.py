"""Safety: was it safe while it succeeded? Signal temporal logic over recorded trajectories."""

from robotrials.safety.compare import SafetyComparison, SafetyDifference, compare_safety
from robotrials.safety.formula import Formula
from robotrials.safety.margin import Gate, robustness, satisfies
from robotrials.safety.naming import UnnamedBenchmark, unnamed_benchmark, unnamed_tasks
from robotrials.safety.parse import parse_stl
from robotrials.safety.registry import Registry, load_registry
from robotrials.safety.result import Disagreement, EpisodeSafety, PhaseSafety, Violation
from robotrials.safety.score import Scoring, score_episode, score_pairs, store_pairs
from robotrials.safety.sensitivity import Change, Variant, load_variants, score_variants
from robotrials.safety.signal import Signals, derive_signals
from robotrials.safety.spec import Severity, Spec, Tier
from robotrials.safety.summary import CellSafety, SafetySummary, mean_safety, pareto_frontier, summarize_safety

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
