"""Demonstrations that begin in mid-motion are found by where they begin."""

from __future__ import annotations

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.study.probe_maker import begins_in_motion

STEPS = 40


def reaches(n: int, cut: int, seed: int) -> list[np.ndarray]:
    """Straight reaches from one home to goals all over a table, without their first `cut` steps."""
    rng = np.random.default_rng(seed)
    home, goals = np.zeros(3), rng.uniform(-1, 1, (n, 3))
    way = np.linspace(0, 1, STEPS)[:, None]
    return [(home + way * goal + rng.normal(0, 0.002, (STEPS, 3)))[cut:] for goal in goals]


def found(parts: list[np.ndarray]) -> np.ndarray:
    starts = np.cumsum([0, *(len(p) for p in parts)])
    return begins_in_motion(np.concatenate(parts), starts)


def test_whole_demonstrations_begin_at_home() -> None:
    assert not found(reaches(50, 0, 1)).any()


def test_segments_begin_anywhere() -> None:
    assert found(reaches(50, 30, 1)).mean() > 0.8


def test_a_few_segments_among_whole_demonstrations_are_the_ones_found() -> None:
    parts = [*reaches(40, 0, 1), *reaches(10, 38, 2)]
    is_away = found(parts)
    assert not is_away[:40].any()
    assert is_away[40:].mean() >= 0.8


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match='do not fit'):
        begins_in_motion(np.zeros((5, 2)), np.array([0, 4]))
