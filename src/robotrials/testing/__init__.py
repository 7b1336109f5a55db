"""Public helpers for tests and benchmarks: strategies, hosts and policies that fail on purpose, simulated
cohorts, and the conformance kits.

No other room imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names
from robotrials.testing.scene import (
    OBJECTS,
    PAPER_LIKE,
    SimulatedPolicy,
    cell_episodes,
    effect_pair,
    null_pair,
    paper_like_cohort,
)

if TYPE_CHECKING:
    from robotrials.run.conformance import check_policy
    from robotrials.worlds.conformance import check_host, check_wrapper

__all__ = [
    'OBJECTS',
    'PAPER_LIKE',
    'SimulatedPolicy',
    'cell_episodes',
    'check_host',
    'check_policy',
    'check_wrapper',
    'effect_pair',
    'null_pair',
    'paper_like_cohort',
]

_PLACES = {'robotrials.run.conformance': 'check_policy', 'robotrials.worlds.conformance': 'check_host check_wrapper'}
__getattr__, __dir__ = late_names(__name__, _PLACES)
