"""Phases of an episode, derived or as the record labels them, so that a clause can be asked of one of them alone."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.measure.safety.formula import Event, Formula, Implies, Temporal, Window
from robotrials.measure.safety.reading import BoolArray, FloatArray
from robotrials.measure.safety.scene import RawScene
from robotrials.measure.safety.signal import Signals, rebased_signals
from robotrials.measure.safety.spec import Phase, Spec
from robotrials.record import Episode, EventKind, Trajectory

IN_PHASE = 'in_phase'
UNLABELLED = -1


@dataclass(frozen=True, slots=True, eq=False)
class PhaseLabels:
    """The record's own phases: each step's index into `names`, or UNLABELLED."""

    names: tuple[str, ...]
    index: NDArray[np.integer[Any]]  # (T,)

    def mask(self, pattern: str) -> BoolArray:
        """The steps whose label fits a name or pattern."""
        fitting = [i for i, name in enumerate(self.names) if fnmatch.fnmatchcase(name.lower(), pattern.lower())]
        return np.isin(self.index, fitting)

    def at(self, step: int) -> str:
        return self.names[self.index[step]] if self.index[step] != UNLABELLED else ''


def recorded_phases(episode: Episode, trajectory: Trajectory) -> PhaseLabels | None:
    """The phases that the record's events name (a host's stages, LeRobot's subtasks); None where it names none."""
    begun = [event for event in episode.events if event.kind is EventKind.PHASE]
    if not begun:
        return None
    names = tuple(dict.fromkeys(event.name for event in begun))
    index = np.full(trajectory.n_steps, UNLABELLED)
    for event in begun:
        index[np.asarray(trajectory.time_s) >= event.t_s - 1e-9] = names.index(event.name)
    return PhaseLabels(names, index)


def phase_mask(spec: Spec, signals: Signals, labels: PhaseLabels | None) -> BoolArray | None:
    """Which steps (T,) belong to the spec's phase; None where the signals or labels that tell it are not there."""
    phase = spec.phase
    if phase is Phase.WHOLE:
        return np.ones(signals.n_steps, dtype=bool)
    if phase is Phase.LABELLED:
        return None if labels is None else labels.mask(spec.phase_label)
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


def can_be_scoped(formula: Formula) -> bool:
    """Whether it is always(...) over the whole episode, the form that a phase can be cut out of."""
    return isinstance(formula, Window) and formula.operator is Temporal.ALWAYS and formula.bounds.is_whole


def scoped_formula(formula: Formula) -> Formula:
    """always(body) as always(in_phase -> body)."""
    if not (isinstance(formula, Window) and can_be_scoped(formula)):
        raise InputError(f'only a clause of the form always(...) can be scoped to a phase, found {formula}')
    return Window(formula.operator, formula.bounds, Implies(Event(IN_PHASE), formula.argument))


def scoped_signals(raw: RawScene, signals: Signals, mask: BoolArray) -> Mapping[str, FloatArray]:
    """The signals with drifts counted from the start of each stretch of the phase, and the phase as an event."""
    return {**signals.values, **rebased_signals(raw, signals, mask), IN_PHASE: mask.astype(np.float64)}
