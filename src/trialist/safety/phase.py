"""Phases of an episode, so that a clause can be asked of one of them alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trialist.episodes import Trajectory
from trialist.errors import InputError
from trialist.safety.formula import Event, Formula, Implies, Temporal, Window
from trialist.safety.signal import FloatArray, Signals, rebased_signals
from trialist.safety.spec import Phase

IN_PHASE = 'in_phase'
BoolArray = NDArray[np.bool_]


def phase_mask(phase: Phase, signals: Signals) -> BoolArray | None:
    """Which steps (T,) belong to the phase; None where the signals that tell it are absent."""
    if phase is Phase.WHOLE:
        return np.ones(signals.n_steps, dtype=bool)
    needed = 'grip' if phase is Phase.APPROACH else 'transport'
    if needed not in signals.values:
        return None
    on = signals.values[needed] > 0.5
    if phase is Phase.APPROACH:
        return ~np.logical_or.accumulate(on)
    if phase is Phase.TRANSPORT:
        return np.asarray(on, dtype=bool)
    later = np.logical_or.accumulate(on[::-1])[::-1]
    return ~later & bool(on.any())


def scoped_formula(formula: Formula) -> Formula:
    """always(body) as always(in_phase -> body)."""
    if not (isinstance(formula, Window) and formula.operator is Temporal.ALWAYS and formula.bounds.is_whole):
        raise InputError(f'only a clause of the form always(...) can be scoped to a phase, found {formula}')
    return Window(formula.operator, formula.bounds, Implies(Event(IN_PHASE), formula.argument))


def scoped_signals(trajectory: Trajectory, signals: Signals, mask: BoolArray) -> Mapping[str, FloatArray]:
    """The signals with drifts counted from the start of each stretch of the phase, and the phase as an event."""
    return {**signals.values, **rebased_signals(trajectory, signals, mask), IN_PHASE: mask.astype(np.float64)}
