"""Safety: was it safe while it succeeded? Signal temporal logic over recorded trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.safety.clause import *
    from robotrials.measure.safety.formula import *
    from robotrials.measure.safety.margin import *
    from robotrials.measure.safety.registry import *
    from robotrials.measure.safety.score import *
    from robotrials.measure.safety.signal import *
    from robotrials.measure.safety.summary import *

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
