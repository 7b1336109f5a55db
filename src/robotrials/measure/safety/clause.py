"""Margins and witnesses of specs on one episode."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.safety.formula import Formula
from robotrials.measure.safety.margin import Traces, at_times, margins_at_start
from robotrials.measure.safety.phase import (
    IN_PHASE,
    PhaseLabels,
    can_be_scoped,
    phase_mask,
    scoped_formula,
    scoped_signals,
)
from robotrials.measure.safety.reading import BoolArray, State
from robotrials.measure.safety.result import PhaseSafety, Violation
from robotrials.measure.safety.scene import RawScene
from robotrials.measure.safety.signal import Signals, signal_bodies
from robotrials.measure.safety.spec import Phase, Spec
from robotrials.measure.safety.witness import find_witness

if TYPE_CHECKING:
    from robotrials.measure.safety.score import Scoring


class Unscored(Exception):  # noqa: N818 - how a spec says that it has no data; never leaves this room
    """An active spec whose signals have no values in the episode."""


class Inapplicable(Exception):  # noqa: N818 - as above
    """An active spec that the scene has nothing for."""


class Clauses:
    """Specs on one episode; its signals are laid out once."""

    def __init__(self, raw: RawScene, signals: Signals, labels: PhaseLabels | None, scoring: Scoring) -> None:
        self.raw, self.signals, self.labels, self.scoring = raw, signals, labels, scoring
        self._events: dict[str, bool] = {}
        columns = {name: np.asarray(column, dtype=np.float64) for name, column in signals.values.items()}
        even = Traces(columns, np.array([0, signals.n_steps]), np.array([signals.dt_s]))
        self.traces = at_times(even, signals.time_s)

    def margin(self, spec: Spec) -> float:
        formula, traces = self.inputs(spec)
        return self.margin_of(formula, traces)

    def margin_of(self, formula: Formula, traces: Traces) -> float:
        try:
            return float(margins_at_start(formula, traces, gate=self.scoring.gate)[0])
        except InputError as error:  # a division by zero, or a window that holds no step
            raise Unscored(str(error)) from None

    def inputs(self, spec: Spec) -> tuple[Formula, Traces]:
        """The clause and the traces it reads, both scoped to the spec's phase if it has one."""
        self.check(spec)
        if spec.phase is Phase.WHOLE:
            return spec.formula, self.traces
        if spec.phase is Phase.LABELLED and self.labels is None:
            raise Inapplicable('no phase was labelled')
        mask = phase_mask(spec, self.signals, self.labels)
        if mask is None:
            raise Unscored(f'the phase {spec.phase} cannot be told: {self.signals.why("grip")}')
        return self.scoped(spec, mask)

    def check(self, spec: Spec) -> None:
        """Raise where a signal of the spec has no values, or an event is no truth value."""
        gaps = [(n, self.signals.gaps.get(n)) for n in spec.signals if n not in self.signals.values]
        for name, gap in gaps:
            if gap is None or gap.state is not State.VACUOUS:
                raise Unscored(f'{name}: {self.signals.why(name)}')
        if gaps:
            raise Inapplicable(self.signals.why(gaps[0][0]))
        for name in spec.events:
            if not self._is_event(name):
                raise Unscored(f'{name}: an event has to be 0 or 1 at every step')

    def _is_event(self, name: str) -> bool:
        if name not in self._events:
            values = self.signals.values[name]
            self._events[name] = bool(np.all((values == 0) | (values == 1)))
        return self._events[name]

    def scoped(self, spec: Spec, mask: BoolArray) -> tuple[Formula, Traces]:
        columns = {n: np.asarray(c, dtype=np.float64) for n, c in scoped_signals(self.raw, self.signals, mask).items()}
        return scoped_formula(spec.formula), dataclasses.replace(self.traces, signals=columns)

    def phase_safety(self, specs: tuple[Spec, ...]) -> tuple[PhaseSafety, ...]:
        """The margins of whole-episode specs within each labelled phase."""
        if self.labels is None:
            return ()
        found = []
        for index, name in enumerate(self.labels.names):
            mask = self.labels.index == index
            if mask.any():
                chosen = [s for s in specs if s.phase is Phase.WHOLE and can_be_scoped(s.formula)]
                margins = {s.id: self.margin_of(*self.scoped(s, mask)) for s in chosen}
                found.append(PhaseSafety(name, float(self.signals.step_s[mask].sum()), margins))
        return tuple(found)

    def reference(self, spec: Spec, step: int) -> int:
        """The step from which drifts count: the start, or that of the stretch of the spec's phase around `step`."""
        mask = phase_mask(spec, self.signals, self.labels)
        outside = np.flatnonzero(~mask[:step]) if mask is not None else np.array([])
        return int(outside[-1]) + 1 if len(outside) else 0

    def violation(self, spec: Spec) -> Violation:
        formula, traces = self.inputs(spec)
        witness = find_witness(formula, traces, gate=self.scoring.gate)
        units = self.scoring.registry.signal_units
        read = [n for n in witness.values if n != IN_PHASE]
        # The literal gate can blame the gate itself; what the clause bounds is then its other signal.
        bounded = [n for n in (*read, *spec.signals) if units.get(n) == spec.unit]
        name = (bounded or read or list(spec.signals))[0]
        return Violation(
            spec_id=spec.id, family=spec.family, clause=spec.clause,
            time_s=float(self.signals.time_s[witness.step]), step=witness.step, margin=witness.margin,
            depth=spec.depth(witness.margin, severity=self.scoring.severity), signal=name,
            value=float(traces.signals[name][witness.step]), unit=units.get(name, spec.unit),
            bodies=signal_bodies(self.raw, name, witness.step, reference=self.reference(spec, witness.step)),
            phase='' if self.labels is None else self.labels.at(witness.step),
        )  # fmt: skip
