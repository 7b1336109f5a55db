"""Figures whose points are episodes: every step of a success curve, and every witness of a violation."""

from __future__ import annotations

from typing import Any

import numpy as np

from trialist.analysis import analyse
from trialist.analysis.absent import Absent
from trialist.episodes import Store
from trialist.episodes.select import Where
from trialist.errors import TrialistError
from trialist.timing import operations, success_curve

MOST_STEPS = 4000
MOST_WITNESSES = 1000
CLOSED = 'results stay shut until the trial is closed'


def curve_points(store: Store, *, where: Where | None = None) -> dict[str, Any]:
    """Each policy's curve pooled over strata, with the episode behind every step; or why there is none."""
    if store.is_blinded:
        return {'why': CLOSED, 'policies': []}
    episodes = [e for e in analyse(store, where=where).episodes if e.is_valid]
    curves = []
    try:
        for policy in sorted({e.policy for e in episodes}):
            own = [e for e in episodes if e.policy == policy]
            found = operations(own)
            curve = success_curve(found.durations_s, found.observed)
            seen = np.flatnonzero(found.observed & np.isfinite(found.durations_s))
            order = seen[np.argsort(found.durations_s[seen], kind='stable')][:MOST_STEPS]
            steps = [
                {
                    't_s': float(found.durations_s[n]),
                    'chance': float(curve.at(float(found.durations_s[n]))),
                    'key': '{}/{}'.format(*own[found.episode[n]].key),
                    'at_s': _moment(found, own, int(n)),
                }
                for n in order
            ]
            curves.append({'policy': policy, 'steps': steps, 'n': found.n_operations})
    except TrialistError as error:
        return {'why': str(error), 'policies': []}
    return {'why': '', 'policies': curves}


def _moment(found: Any, own: list[Any], place: int) -> float:
    """When in its episode an operation ended: the sum of those before it and its own."""
    same = np.flatnonzero(found.episode == found.episode[place])
    times = found.durations_s[same[same <= place]]
    return float(np.sum(times[np.isfinite(times)]))


def witness_points(store: Store, *, where: Where | None = None) -> dict[str, Any]:
    """Every violation with its episode and time; or why none can be shown."""
    if store.is_blinded:
        return {'why': CLOSED, 'rows': []}
    analysis = analyse(store, where=where)
    part = analysis.safety
    if isinstance(part, Absent):
        return {'why': part.reason, 'rows': []}
    rows = [
        {'key': f'{s.episode_id}/{s.attempt}', 'policy': s.policy, 'task': s.task, 'spec': v.spec_id,
         'clause': v.clause, 't_s': v.time_s, 'value': v.value, 'unit': v.unit, 'signal': v.signal,
         'success': s.success}
        for s in part.scores
        for v in s.violations
    ]  # fmt: skip
    return {'why': '', 'rows': rows[:MOST_WITNESSES], 'n': len(rows)}
