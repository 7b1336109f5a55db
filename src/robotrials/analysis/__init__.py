"""One analysis of a trial: a selection of episodes under a declared plan gives every number that anyone shows."""

from robotrials.analysis.absent import Absent, present
from robotrials.analysis.analysis import Analysis
from robotrials.analysis.card import KnownPolicy
from robotrials.analysis.change import PolicyChange, Shift, StoreChange, compare_stores
from robotrials.analysis.endpoint import Finding, GateEndpoint
from robotrials.analysis.endpoint_pairs import Comparisons
from robotrials.analysis.frame import ComparisonFrame
from robotrials.analysis.gate import GateResult, GateRules, GateVerdict, gate_stores
from robotrials.analysis.needed import NeededUnits
from robotrials.analysis.open import analyse, analyse_pairs
from robotrials.analysis.pairs import TimeComparison, compare_timing
from robotrials.analysis.quality import ArmQuality, DataQuality, Presence
from robotrials.analysis.ranking import PolicyCurve, Ranking
from robotrials.analysis.robustness import RobustnessPart
from robotrials.analysis.safety import SafetyPart
from robotrials.analysis.selection import Selection, select_episodes, select_store
from robotrials.analysis.success import Rates
from robotrials.analysis.times import Times
from robotrials.analysis.verdict import EndpointPairs, PairVerdict

__all__ = [
    'Absent',
    'Analysis',
    'ArmQuality',
    'ComparisonFrame',
    'Comparisons',
    'DataQuality',
    'EndpointPairs',
    'Finding',
    'GateEndpoint',
    'GateResult',
    'GateRules',
    'GateVerdict',
    'KnownPolicy',
    'NeededUnits',
    'PairVerdict',
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
