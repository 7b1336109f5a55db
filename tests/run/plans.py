"""Plans for the tests: small trials on the point mass, with policies whose names are easy to find if they leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robotrials.record import Episode, Store, Trajectory
from robotrials.run import TrialPlan
from robotrials.value import read_table

FAST, SLOW = 'zebrafinch-large', 'quokka-mini'


def make_plan(**changes: Any) -> TrialPlan:
    """A plan of two seekers; keys as in a trial.toml."""
    values: dict[str, Any] = {
        'title': f'{FAST} against {SLOW}',
        'seed': 11,
        'host': {'use': 'point-mass', 'options': {'noise_m': 0.002}},
        'tasks': [{'name': 'reach', 'items': 2, 'instruction': 'go there'}],
        'policies': {
            FAST: {'use': 'seek', 'options': {'speed_m_s': 1.6, 'sloppiness_m': 0.01}},
            SLOW: {'use': 'seek', 'options': {'speed_m_s': 0.5, 'chunk_length': 4}, 'execute': 2},
        },
        'reference': SLOW,
        'episodes_per_cell': 4,
        'time_cap_s': 4.0,
    }
    values.update(changes)
    return read_table(TrialPlan, {k: v for k, v in values.items() if v is not None}, where='test plan')


def content(store: Path | str) -> tuple[list[Episode], dict[tuple[str, int], Trajectory]]:
    """Everything a store holds of episodes, in an order that does not depend on who wrote it when."""
    opened = Store.open(store)
    episodes = sorted(opened.episodes(attempts='all'), key=lambda e: e.key)
    return episodes, {e.key: t for e, t in opened.trajectories()}
