"""Audits that must run or train something. Names are found when asked for; scoring is in `robotrials.verdict.audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.study.card import CardRequest, make_card, rerun
    from robotrials.study.datasource import ExpertEntry, SourcePlan, read_source_plan, run_data_source
    from robotrials.study.evaluate import (
        Evaluated,
        EvaluationOptions,
        evaluation_plan,
        official_deviations,
        run_evaluation,
    )
    from robotrials.study.lookup import LookupPolicy
    from robotrials.study.mix import MixPlan, join_demonstrations, read_mix_plan, run_mix
    from robotrials.study.overfit import OverfitChange, OverfitPlan, read_overfit_plan, run_overfit, tabletop_changes
    from robotrials.study.shortcut import Maker, ShortcutPlan, diagnose_shortcut, read_shortcut_plan
    from robotrials.study.start import ObservedStarts, observe_starts

__all__ = [
    'CardRequest',
    'Evaluated',
    'EvaluationOptions',
    'ExpertEntry',
    'LookupPolicy',
    'Maker',
    'MixPlan',
    'ObservedStarts',
    'OverfitChange',
    'OverfitPlan',
    'ShortcutPlan',
    'SourcePlan',
    'diagnose_shortcut',
    'evaluation_plan',
    'join_demonstrations',
    'make_card',
    'observe_starts',
    'official_deviations',
    'read_mix_plan',
    'read_overfit_plan',
    'read_shortcut_plan',
    'read_source_plan',
    'rerun',
    'run_data_source',
    'run_evaluation',
    'run_mix',
    'run_overfit',
    'tabletop_changes',
]

_PLACES = {
    '.card': 'CardRequest make_card rerun',
    '.datasource': 'ExpertEntry SourcePlan read_source_plan run_data_source',
    '.evaluate': 'Evaluated EvaluationOptions evaluation_plan official_deviations run_evaluation',
    '.lookup': 'LookupPolicy',
    '.mix': 'MixPlan join_demonstrations read_mix_plan run_mix',
    '.overfit': 'OverfitChange OverfitPlan read_overfit_plan run_overfit tabletop_changes',
    '.shortcut': 'Maker ShortcutPlan diagnose_shortcut read_shortcut_plan',
    '.start': 'ObservedStarts observe_starts',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
