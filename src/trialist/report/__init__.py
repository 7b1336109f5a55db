"""What a whole trial amounts to: every scoring room's results on one store, joined; no formatting."""

from trialist.report.card import KnownPolicy
from trialist.report.change import PolicyChange, Shift, StoreChange, compare_stores
from trialist.report.endpoint import Endpoint, Finding
from trialist.report.gate import Gate, GateRules, GateVerdict, gate_stores
from trialist.report.option import Absent, ReportOptions
from trialist.report.quality import ArmQuality, DataQuality, Presence
from trialist.report.ranking import PolicyCurve, Ranking, SuccessRate
from trialist.report.robustness import RobustnessPart
from trialist.report.safety import SafetyPart
from trialist.report.trial import TrialReport, build_report

__all__ = [
    'Absent', 'ArmQuality', 'DataQuality', 'Endpoint', 'Finding', 'Gate', 'GateRules', 'GateVerdict', 'KnownPolicy',
    'PolicyChange', 'PolicyCurve', 'Presence', 'Ranking', 'ReportOptions', 'RobustnessPart', 'SafetyPart', 'Shift',
    'StoreChange', 'SuccessRate', 'TrialReport', 'build_report', 'compare_stores', 'gate_stores',
]  # fmt: skip
