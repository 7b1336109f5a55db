"""What a whole trial amounts to: every scoring room's results on one store, joined; no formatting."""

from trialist.analysis.card import KnownPolicy
from trialist.analysis.change import PolicyChange, Shift, StoreChange, compare_stores
from trialist.analysis.endpoint import Endpoint, Finding
from trialist.analysis.gate import Gate, GateRules, GateVerdict, gate_stores
from trialist.analysis.option import Absent, ReportOptions
from trialist.analysis.quality import ArmQuality, DataQuality, Presence
from trialist.analysis.ranking import PolicyCurve, Ranking, SuccessRate
from trialist.analysis.robustness import RobustnessPart
from trialist.analysis.safety import SafetyPart
from trialist.analysis.trial import TrialReport, build_report

__all__ = [
    'Absent', 'ArmQuality', 'DataQuality', 'Endpoint', 'Finding', 'Gate', 'GateRules', 'GateVerdict', 'KnownPolicy',
    'PolicyChange', 'PolicyCurve', 'Presence', 'Ranking', 'ReportOptions', 'RobustnessPart', 'SafetyPart', 'Shift',
    'StoreChange', 'SuccessRate', 'TrialReport', 'build_report', 'compare_stores', 'gate_stores',
]  # fmt: skip
