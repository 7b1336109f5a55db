"""Audits that must run or train something. Names are found when asked for; scoring is in `robotrials.verdict.audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.study.evaluate import EvaluationOptions
    from robotrials.study.shortcut import ShortcutPlan, diagnose_shortcut, read_shortcut_plan

__all__ = ['EvaluationOptions', 'ShortcutPlan', 'diagnose_shortcut', 'read_shortcut_plan']

_PLACES = {'.evaluate': 'EvaluationOptions', '.shortcut': 'ShortcutPlan diagnose_shortcut read_shortcut_plan'}
__getattr__, __dir__ = late_names(__name__, _PLACES)
