"""One analysis of a trial: a selection of episodes under a declared plan gives every number that anyone shows."""

from trialist.analysis.absent import Absent, present
from trialist.analysis.analysis import Analysis
from trialist.analysis.card import KnownPolicy
from trialist.analysis.change import PolicyChange, Shift, StoreChange, compare_stores
from trialist.analysis.endpoint import Finding, GateEndpoint
from trialist.analysis.endpoint_pairs import Comparisons
from trialist.analysis.frame import ComparisonFrame
from trialist.analysis.gate import GateResult, GateRules, GateVerdict, gate_stores
from trialist.analysis.needed import NeededUnits
from trialist.analysis.open import analyse, analyse_pairs
from trialist.analysis.pairs import TimeComparison, compare_timing
from trialist.analysis.quality import ArmQuality, DataQuality, Presence
from trialist.analysis.ranking import PolicyCurve, Ranking
from trialist.analysis.robustness import RobustnessPart
from trialist.analysis.safety import SafetyPart
from trialist.analysis.selection import Selection, select_episodes, select_store
from trialist.analysis.success import Rates
from trialist.analysis.times import Times
from trialist.analysis.verdict import EndpointPairs, PairVerdict

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
