"""One analysis of a trial: a selection of episodes under a declared plan gives every number that anyone shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.verdict.analysis.analysis import *
    from robotrials.verdict.analysis.change import *
    from robotrials.verdict.analysis.condition_drop import *
    from robotrials.verdict.analysis.contrast import *
    from robotrials.verdict.analysis.endpoint_pairs import *
    from robotrials.verdict.analysis.gate import *
    from robotrials.verdict.analysis.quality import *
    from robotrials.verdict.analysis.ranking import *
    from robotrials.verdict.analysis.safety import *
    from robotrials.verdict.analysis.selection import *

_PLACES = {
    '.analysis': 'Analysis analyse',
    '.change': 'PolicyChange Shift StoreChange compare_stores',
    '.condition_drop': 'RobustnessPart',
    '.contrast': 'Contrast NeededUnits',
    '.endpoint_pairs': 'Comparisons EndpointPairs EndpointVerdict TimeComparison compare_timing',
    '.gate': 'GateEndpoint GateFinding GateResult GateRules GateVerdict gate_stores',
    '.quality': 'ArmQuality DataQuality KnownPolicy Presence',
    '.ranking': 'PolicyCurve Ranking Rates Times',
    '.safety': 'SafetyPart',
    '.selection': 'Absent ComparisonFrame Selection present select_episodes select_store',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
