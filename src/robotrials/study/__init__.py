"""Audits that must run or train something. Names are found when asked for; scoring is in `robotrials.verdict.audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.study.card import CardRequest, make_card, rerun
    from robotrials.study.datasource import (
        ExpertEntry,
        MixPlan,
        SourcePlan,
        join_demonstrations,
        read_mix_plan,
        read_source_plan,
        run_data_source,
        run_mix,
    )
    from robotrials.study.evaluate import (
        Evaluated,
        EvaluationOptions,
        ObservedStarts,
        evaluation_plan,
        observe_starts,
        official_deviations,
        run_evaluation,
    )
    from robotrials.study.overfit import OverfitChange, OverfitPlan, read_overfit_plan, run_overfit, tabletop_changes
    from robotrials.study.probe_maker import LookupPolicy
    from robotrials.study.shortcut import Maker, ShortcutPlan, diagnose_shortcut, read_shortcut_plan

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
    '.datasource': (
        'ExpertEntry MixPlan SourcePlan join_demonstrations read_mix_plan read_source_plan run_data_source run_mix'
    ),
    '.evaluate': (
        'Evaluated EvaluationOptions ObservedStarts evaluation_plan observe_starts official_deviations run_evaluation'
    ),
    '.overfit': 'OverfitChange OverfitPlan read_overfit_plan run_overfit tabletop_changes',
    '.probe_maker': 'LookupPolicy',
    '.shortcut': 'Maker ShortcutPlan diagnose_shortcut read_shortcut_plan',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
