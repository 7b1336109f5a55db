"""Safety: was it safe while it succeeded? Signal temporal logic over recorded trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.safety.clause import Disagreement, EpisodeSafety, PhaseSafety, Violation
    from robotrials.measure.safety.formula import Formula, parse_stl
    from robotrials.measure.safety.margin import Gate, robustness, satisfies
    from robotrials.measure.safety.registry import Registry, Severity, Spec, Tier, load_registry
    from robotrials.measure.safety.score import (
        Scoring,
        UnnamedBenchmark,
        score_episode,
        score_pairs,
        store_pairs,
        unnamed_benchmark,
        unnamed_tasks,
    )
    from robotrials.measure.safety.signal import Signals, derive_signals
    from robotrials.measure.safety.summary import (
        CellSafety,
        Change,
        SafetySummary,
        Variant,
        load_variants,
        mean_safety,
        pareto_frontier,
        score_variants,
        summarize_safety,
    )

__all__ = [
    'CellSafety', 'Change', 'Disagreement', 'EpisodeSafety', 'Formula', 'Gate', 'PhaseSafety', 'Registry',
    'SafetySummary', 'Scoring', 'Severity', 'Signals', 'Spec', 'Tier', 'UnnamedBenchmark', 'Variant', 'Violation',
    'derive_signals', 'load_registry', 'load_variants', 'mean_safety', 'pareto_frontier', 'parse_stl', 'robustness',
    'satisfies', 'score_episode', 'score_pairs', 'score_variants', 'store_pairs', 'summarize_safety',
    'unnamed_benchmark', 'unnamed_tasks',
]  # fmt: skip

_PLACES = {
    '.clause': 'Disagreement EpisodeSafety PhaseSafety Violation',
    '.formula': 'Formula parse_stl',
    '.margin': 'Gate robustness satisfies',
    '.registry': 'Registry Severity Spec Tier load_registry',
    '.score': 'Scoring UnnamedBenchmark score_episode score_pairs store_pairs unnamed_benchmark unnamed_tasks',
    '.signal': 'Signals derive_signals',
    '.summary': (
        'CellSafety Change SafetySummary Variant load_variants mean_safety pareto_frontier score_variants '
        'summarize_safety'
    ),
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
