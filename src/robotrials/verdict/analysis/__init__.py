"""One analysis of a trial: a selection of episodes under a declared plan gives every number that anyone shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.verdict.analysis.analysis import Analysis, analyse, analyse_pairs
    from robotrials.verdict.analysis.change import PolicyChange, Shift, StoreChange, compare_stores
    from robotrials.verdict.analysis.condition_drop import RobustnessPart
    from robotrials.verdict.analysis.contrast import Contrast, NeededUnits
    from robotrials.verdict.analysis.endpoint_pairs import Comparisons, TimeComparison, compare_timing
    from robotrials.verdict.analysis.gate import (
        GateEndpoint,
        GateFinding,
        GateResult,
        GateRules,
        GateVerdict,
        gate_stores,
    )
    from robotrials.verdict.analysis.quality import ArmQuality, DataQuality, KnownPolicy, Presence
    from robotrials.verdict.analysis.ranking import PolicyCurve, Ranking, Rates, Times
    from robotrials.verdict.analysis.safety import SafetyPart
    from robotrials.verdict.analysis.selection import (
        Absent,
        ComparisonFrame,
        Selection,
        present,
        select_episodes,
        select_store,
    )
    from robotrials.verdict.analysis.verdict import EndpointPairs, EndpointVerdict

__all__ = [
    'Absent',
    'Analysis',
    'ArmQuality',
    'ComparisonFrame',
    'Comparisons',
    'Contrast',
    'DataQuality',
    'EndpointPairs',
    'EndpointVerdict',
    'GateEndpoint',
    'GateFinding',
    'GateResult',
    'GateRules',
    'GateVerdict',
    'KnownPolicy',
    'NeededUnits',
    'PolicyChange',
    'PolicyCurve',
    'Presence',
    'Ranking',
    'Rates',
    'RobustnessPart',
    'SafetyPart',
    'Selection',
    'Shift',
    'StoreChange',
    'TimeComparison',
    'Times',
    'analyse',
    'analyse_pairs',
    'compare_stores',
    'compare_timing',
    'gate_stores',
    'present',
    'select_episodes',
    'select_store',
]  # fmt: skip

_PLACES = {
    '.analysis': 'Analysis analyse analyse_pairs',
    '.change': 'PolicyChange Shift StoreChange compare_stores',
    '.condition_drop': 'RobustnessPart',
    '.contrast': 'Contrast NeededUnits',
    '.endpoint_pairs': 'Comparisons TimeComparison compare_timing',
    '.gate': 'GateEndpoint GateFinding GateResult GateRules GateVerdict gate_stores',
    '.quality': 'ArmQuality DataQuality KnownPolicy Presence',
    '.ranking': 'PolicyCurve Ranking Rates Times',
    '.safety': 'SafetyPart',
    '.selection': 'Absent ComparisonFrame Selection present select_episodes select_store',
    '.verdict': 'EndpointPairs EndpointVerdict',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
