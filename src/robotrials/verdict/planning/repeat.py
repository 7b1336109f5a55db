"""Repeats of a start state in a sequential trial: one unit each, so that they are not bet on as if independent.

A unit's value must be fixed when it is bet on, and may not depend on what its runs showed so far. Either the first run
of each start state counts and the rest wait, or, with a number of repeats declared beforehand, the mean of a unit once
all of its runs are there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.argument import FloatArray, check_count


@dataclass(frozen=True, slots=True, eq=False)
class UnitScores:
    """One score a unit in the order in which units were started, where each comes from, and the runs not used."""

    scores: FloatArray  # (units,)
    first: tuple[int, ...]  # the place of each unit's first run
    n_unused: int


def unit_scores(
    scores: Sequence[float] | FloatArray, units: Sequence[Hashable], *, repeats: int | None = None
) -> UnitScores:
    """Scores by unit (start state, session); a run without a unit (None) is one of its own.

    `repeats` is the declared number of runs a unit; without it the first run alone counts. Runs beyond the declared
    number are not used, because which unit gets them may depend on outcomes.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(units),):
        raise InputError(f'{len(units)} units for scores of shape {values.shape}, wanted one a run')
    wanted = 1 if repeats is None else check_count('repeats', repeats, least=1)
    runs: dict[Hashable, list[int]] = {}
    for place, unit in enumerate(units):
        runs.setdefault((place, None) if unit is None else (unit,), []).append(place)
    whole = [
        places[: 1 if key[-1] is None and len(key) == 2 else wanted]  # type: ignore[index, arg-type]
        for key, places in runs.items()
        if len(places) >= wanted or (len(key) == 2 and key[-1] is None)  # type: ignore[index, arg-type]
    ]
    found = np.array([values[places].mean() for places in whole])
    return UnitScores(found, tuple(places[0] for places in whole), len(values) - sum(len(p) for p in whole))
