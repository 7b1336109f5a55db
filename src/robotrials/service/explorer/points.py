"""Figures whose points are episodes: every step of a success curve, and every witness of a violation."""

from __future__ import annotations

from typing import Any

from robotrials.verdict.analysis import Analysis
from robotrials.verdict.analysis.absent import Absent
from robotrials.verdict.analysis.curve_point import curve_points

MOST_STEPS = 4000
MOST_WITNESSES = 1000


def figure_points(analysis: Analysis) -> tuple[dict[str, Any], dict[str, Any]]:
    """Curves with the episode behind every step, and violations with their moments; or why there are none."""
    return _curves(analysis), _witnesses(analysis)


def _curves(analysis: Analysis) -> dict[str, Any]:
    found = curve_points(analysis)
    if isinstance(found, Absent):
        return {'why': found.reason, 'policies': []}
    told = [
        {
            'policy': curve.policy,
            'steps': [
                {'t_s': p.took_s, 'chance': p.chance, 'key': '{}/{}'.format(*p.episode.key), 'at_s': p.at_s}
                for p in points[:MOST_STEPS]
            ],
        }
        for curve, points in found
    ]
    return {'why': '', 'policies': told}


def _witnesses(analysis: Analysis) -> dict[str, Any]:
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
