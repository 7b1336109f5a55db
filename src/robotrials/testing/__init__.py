"""Public helpers for tests and benchmarks: strategies, fakes and simulated cohorts. No other room imports them."""

from robotrials.testing.cohort import (
    OBJECTS,
    PAPER_LIKE,
    Profile,
    cell_episodes,
    effect_pair,
    null_pair,
    paper_like_cohort,
)

__all__ = ['OBJECTS', 'PAPER_LIKE', 'Profile', 'cell_episodes', 'effect_pair', 'null_pair', 'paper_like_cohort']
