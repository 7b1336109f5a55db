"""Audits that must run or train something. Names are found when asked for; scoring lives in `trialist.audit`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trialist.diagnose.evaluate import Evaluated, EvaluationOptions, evaluate, evaluation_plan, official_deviations
    from trialist.diagnose.shortcut import Maker, diagnose_shortcut
    from trialist.diagnose.shortcut_plan import ShortcutPlan, read_shortcut_plan

__all__ = [
    'Evaluated',
    'EvaluationOptions',
    'Maker',
    'ShortcutPlan',
    'diagnose_shortcut',
    'evaluate',
    'evaluation_plan',
    'official_deviations',
    'read_shortcut_plan',
]

_PLACES = {
    'evaluate': 'EvaluationOptions Evaluated evaluate evaluation_plan official_deviations',
    'shortcut': 'Maker diagnose_shortcut',
    'shortcut_plan': 'ShortcutPlan read_shortcut_plan',
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
