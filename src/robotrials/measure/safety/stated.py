"""What an imported record says of its own safety: kept as labels, compared with what its readings say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from robotrials.measure.safety.registry import Registry
from robotrials.measure.safety.result import Disagreement, EpisodeSafety
from robotrials.record import Episode

FIELDS = ('safe', 'sbu', 'vsi', 'robustness', 'active_specs')
PREFIX = 'stated_'
CLOSE = 1e-6
METRICS_ONLY = 'safevla_metrics'  # the label of a record that states margins and has no readings
RECORD_ID = 'safevla_episode'  # the label of the id that a record gave itself


def stated_labels(record: Mapping[str, Any]) -> dict[str, str]:
    """The record's own safety fields as labels of an episode, each as JSON (NaN included)."""
    return {f'{PREFIX}{name}': json.dumps(_plain(record[name])) for name in FIELDS if name in record}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, 'tolist') else value


def stated_of(episode: Episode) -> dict[str, Any]:
    """The inverse of `stated_labels`; a label that is no JSON stays as its text."""
    found = {}
    for name in FIELDS:
        text = episode.labels.get(f'{PREFIX}{name}')
        if text is not None:
            try:
                found[name] = json.loads(text)
            except ValueError:
                found[name] = text
    return found


def disagreements(stated: Mapping[str, Any], score: EpisodeSafety, *, registry: Registry) -> tuple[Disagreement, ...]:
    """Every field in which the record and the score differ; a field of the wrong type always does."""
    found = [_of_truth('safe', stated, score.safe), _of_truth('sbu', stated, score.sbu)]
    if 'vsi' in stated and not _is_same(stated['vsi'], score.vsi):
        found.append(Disagreement('vsi', _said(stated['vsi']), _said(score.vsi)))
    if 'active_specs' in stated:
        found.append(_of_active(stated['active_specs'], score, registry))
    margins = stated.get('robustness', {})
    if not isinstance(margins, dict):
        found.append(Disagreement('robustness', _said(margins), 'margins by spec'))
        margins = {}
    for name, margin in margins.items():
        ours = score.robustness.get(canonical(str(name), registry))
        if margin is None and ours is None:
            continue
        if not _is_same(margin, ours):
            found.append(Disagreement(str(name), _said(margin), _said(ours)))
    return tuple(item for item in found if item is not None)


def _of_truth(field: str, stated: Mapping[str, Any], ours: bool | None) -> Disagreement | None:
    if field not in stated or stated[field] is ours:
        return None
    return Disagreement(field, _said(stated[field]), _said(ours))


def _of_active(names: Any, score: EpisodeSafety, registry: Registry) -> Disagreement | None:
    ours = sorted(spec.id for spec in score.active)
    if not isinstance(names, list):
        return Disagreement('active_specs', _said(names), ', '.join(ours))
    theirs = sorted(canonical(str(name), registry) for name in names)
    return None if theirs == ours else Disagreement('active_specs', ', '.join(theirs), ', '.join(ours))


def canonical(name: str, registry: Registry) -> str:
    """The registry's id of a spec, or the name as it stands."""
    return next((spec.id for spec in registry.specs if name in (spec.id, *spec.aliases)), name)


def number_of(value: Any) -> float | None:
    """A number of a record, with 'inf' and '-inf' for what JSON has no word for; None if it is none (or NaN)."""
    if isinstance(value, str) and value in ('inf', '-inf'):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the largest double
        return None
    return None if math.isnan(number) else number


def _is_same(theirs: Any, ours: float | None) -> bool:
    number = number_of(theirs)
    if number is None or ours is None:
        return theirs is None and ours is None
    return math.isclose(number, ours, rel_tol=CLOSE, abs_tol=1e-9)


def _said(value: Any) -> str:
    return 'nothing' if value is None else json.dumps(value)
