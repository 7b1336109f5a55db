"""Audits that must run or train something. Names are found when asked for; scoring lives in `trialist.audit`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trialist.diagnose.card import CardRequest, make_card, rerun
    from trialist.diagnose.datasource import ExpertEntry, SourcePlan, read_source_plan, run_data_source
    from trialist.diagnose.evaluate import Evaluated, EvaluationOptions, evaluate, evaluation_plan, official_deviations
    from trialist.diagnose.lookup import LookupPolicy
    from trialist.diagnose.mix import MixPlan, join_demonstrations, read_mix_plan, run_mix
    from trialist.diagnose.overfit import OverfitChange, OverfitPlan, read_overfit_plan, run_overfit, tabletop_changes
    from trialist.diagnose.shortcut import Maker, diagnose_shortcut
    from trialist.diagnose.shortcut_plan import ShortcutPlan, read_shortcut_plan
    from trialist.diagnose.start import ObservedStarts, observe_starts

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
    'evaluate',
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
    'run_mix',
    'run_overfit',
    'tabletop_changes',
]

_PLACES = {
    'card': 'CardRequest make_card rerun',
    'datasource': 'ExpertEntry SourcePlan read_source_plan run_data_source',
    'evaluate': 'EvaluationOptions Evaluated evaluate evaluation_plan official_deviations',
    'lookup': 'LookupPolicy',
    'mix': 'MixPlan join_demonstrations read_mix_plan run_mix',
    'overfit': 'OverfitChange OverfitPlan read_overfit_plan run_overfit tabletop_changes',
    'shortcut': 'Maker diagnose_shortcut',
    'shortcut_plan': 'ShortcutPlan read_shortcut_plan',
    'start': 'ObservedStarts observe_starts',
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = getattr(importlib.import_module(f'{__name__}.{_MODULES[name]}'), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
