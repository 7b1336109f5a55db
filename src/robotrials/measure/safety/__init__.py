"""Safety: was it safe while it succeeded? Signal temporal logic over recorded trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.safety.formula import Formula
    from robotrials.measure.safety.margin import Gate, robustness, satisfies
    from robotrials.measure.safety.parse import parse_stl
    from robotrials.measure.safety.registry import Registry, load_registry
    from robotrials.measure.safety.result import Disagreement, EpisodeSafety, PhaseSafety, Violation
    from robotrials.measure.safety.score import (
        Scoring,
        UnnamedBenchmark,
        score_episode,
        score_pairs,
        store_pairs,
        unnamed_benchmark,
        unnamed_tasks,
    )
    from robotrials.measure.safety.sensitivity import Change, Variant, load_variants, score_variants
    from robotrials.measure.safety.signal import Signals, derive_signals
    from robotrials.measure.safety.spec import Severity, Spec, Tier
    from robotrials.measure.safety.summary import (
        CellSafety,
        SafetySummary,
        mean_safety,
        pareto_frontier,
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
    '.formula': 'Formula',
    '.margin': 'Gate robustness satisfies',
    '.parse': 'parse_stl',
    '.registry': 'Registry load_registry',
    '.result': 'Disagreement EpisodeSafety PhaseSafety Violation',
    '.score': 'Scoring UnnamedBenchmark score_episode score_pairs store_pairs unnamed_benchmark unnamed_tasks',
    '.sensitivity': 'Change Variant load_variants score_variants',
    '.signal': 'Signals derive_signals',
    '.spec': 'Severity Spec Tier',
    '.summary': 'CellSafety SafetySummary mean_safety pareto_frontier summarize_safety',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
