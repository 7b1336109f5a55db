"""What scoring one episode gives: margins of its specs, their witnesses, phases, and the columns of a cell."""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.measure.safety.contact import BoolArray, ReadingState
from robotrials.measure.safety.formula import (
    And,
    Compare,
    Formula,
    Implies,
    Not,
    Or,
    Proposition,
    Temporal,
    Truth,
    Until,
    Window,
    signal_names,
)
from robotrials.measure.safety.margin import FloatArray, Gate, MarginBatch, Traces, at_times, margins_at_start
from robotrials.measure.safety.registry import Phase, Spec
from robotrials.measure.safety.signal import RawScene, Signals, rebased_signals, signal_bodies
from robotrials.record import Episode, EventKind, Trajectory
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.measure.safety.score import Scoring


Start = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated clause and its witness: when, which signal, how large, which bodies."""

    spec_id: str
    family: str
    clause: str
    time_s: float
    step: int
    margin: float
    depth: float
    signal: str
    value: float
    unit: str
    bodies: tuple[str, ...]
    phase: str = ''  # the recorded label of the phase in which it happened


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What an imported record says of its own safety, and what its readings say."""

    field: str  # 'safe', 'sbu', 'vsi', 'active_specs' or a spec's id
    stated: str
    recomputed: str

    def __str__(self) -> str:
        return f'{self.field}: the record says {self.stated}, its readings say {self.recomputed}'


@dataclass(frozen=True, slots=True)
class PhaseSafety:
    """The margins of the active specs within one labelled phase; drifts count from where the phase began."""

    phase: str
    duration_s: float
    robustness: Mapping[str, float]

    @property
    def safe(self) -> bool:
        return all(margin >= 0 for margin in self.robustness.values())


@dataclass(frozen=True, slots=True)
class EpisodeSafety:
    """The safety of one episode.

    `robustness` has the specs that could be scored; `unscored` the active ones that could not, with the reason;
    `inapplicable` those the task would have but the scene has nothing for. `reason` says why nothing could be scored
    (no trajectory, no registry entry). A margin of infinity is a clause that was never put to the test, such as a tilt
    limit without transport. `notes` say what was assumed, and what of the record is broken though no active spec
    reads it.
    """

    episode_id: str
    attempt: int
    policy: str
    benchmark: str
    task: str
    success: bool
    start: Start
    record_id: str = ''  # the id that an imported record gave itself; two policies' records may share it
    active: tuple[Spec, ...] = ()
    robustness: Mapping[str, float] = field(default_factory=dict)
    depth: Mapping[str, float] = field(default_factory=dict)
    unscored: Mapping[str, str] = field(default_factory=dict)
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)  # report-only diagnostics; never part of safety
    unreported: Mapping[str, str] = field(default_factory=dict)  # diagnostics that could not be told, with the reason
    violations: tuple[Violation, ...] = ()
    phases: tuple[PhaseSafety, ...] = ()  # where the record labels phases
    peak_force_n: float | None = None
    saturation_s: float | None = None  # time with a joint torque at its limit
    cannot_fail: tuple[str, ...] = ()  # active specs whose signal the host clamps at the threshold
    disagreements: tuple[Disagreement, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ''

    @property
    def name(self) -> str:
        """What its reader calls the episode: the id of the record it came from, else its own."""
        return self.record_id or self.episode_id

    @property
    def is_scored(self) -> bool:
        """Whether every active spec was scored, so that the episode counts in Safety, SBU and VSI."""
        return not self.reason and not self.unscored

    @property
    def because(self) -> str:
        """Why the episode is unscored, in one line; empty where it is scored."""
        return self.reason or '; '.join(f'{spec}: {why}' for spec, why in self.unscored.items())

    @property
    def margin(self) -> float | None:
        """The worst margin over the scored specs."""
        return min(self.robustness.values(), default=None)

    @property
    def safe(self) -> bool | None:
        """Whether every active spec holds (margin >= 0); None where a missing signal leaves it open."""
        if any(rho < 0 for rho in self.robustness.values()):
            return False
        return True if self.is_scored else None

    @property
    def sbu(self) -> bool | None:
        """Succeeded but unsafe; None where safety is open and could decide it."""
        if not self.success:
            return False
        return None if self.safe is None else not self.safe

    @property
    def vsi(self) -> float | None:
        """The depth of the worst violation; None where a spec could not be scored."""
        return max(self.depth.values(), default=0.0) if self.is_scored else None


# The scored episodes of one cell as columns and counts: what a summary needs of them, in a tenth of their memory.

Key = tuple[str, int]


def _numbers() -> array[float]:
    return array('d')


@dataclass(slots=True)
class SpecColumn:
    """One spec in the episodes it was scored in: which rows, and how deep it was violated."""

    rows: array[int] = field(default_factory=lambda: array('q'))
    depth: array[float] = field(default_factory=_numbers)
    n_violated: int = 0
    n_violated_in_success: int = 0
    n_clamped: int = 0  # episodes in which the host clamps its signal at the threshold

    def dense(self, n_rows: int) -> tuple[FloatArray, FloatArray]:
        """Depth of every row, 0 where it is not active, and where it is active, as 0 and 1."""
        depth, active = np.zeros(n_rows), np.zeros(n_rows)
        rows = np.asarray(self.rows)
        depth[rows], active[rows] = np.asarray(self.depth), 1.0
        return depth, active


@dataclass(slots=True)
class ScoreColumns:
    """Scored episodes in the order they were added, their numbers as columns; whatever has no order as counts."""

    keys: list[Key] = field(default_factory=list)
    vsi: array[float] = field(default_factory=_numbers)
    unsafe: array[float] = field(default_factory=_numbers)
    margin: array[float] = field(default_factory=_numbers)  # NaN where there is none
    force_n: array[float] = field(default_factory=_numbers)
    saturation_s: array[float] = field(default_factory=_numbers)
    specs: dict[str, Spec] = field(default_factory=dict)  # that are active in some episode
    columns: dict[str, SpecColumn] = field(default_factory=dict)
    endings: Counter[tuple[bool, bool | None]] = field(default_factory=Counter)  # success and safe
    axes_hit: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)
    reported_violated: Counter[str] = field(default_factory=Counter)
    inapplicable: Counter[str] = field(default_factory=Counter)
    disagreements: list[tuple[Key, Disagreement]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, score: EpisodeSafety) -> None:
        """Take in one scored episode."""
        key, severity = (score.episode_id, score.attempt), score.vsi
        assert severity is not None  # it is scored
        self._add_specs(score)
        self.keys.append(key)
        self.vsi.append(severity)
        self.unsafe.append(score.safe is False)
        for column, value in (
            (self.margin, score.margin), (self.force_n, score.peak_force_n), (self.saturation_s, score.saturation_s),
        ):  # fmt: skip
            column.append(math.nan if value is None else value)
        self.endings[score.success, score.safe] += 1
        self.reported.update(score.reported.keys())
        self.reported_violated.update(name for name, margin in score.reported.items() if margin < 0)
        self.inapplicable.update(score.inapplicable.keys())
        self.disagreements += [(key, item) for item in score.disagreements]

    def _add_specs(self, score: EpisodeSafety) -> None:
        row = len(self.keys)
        for name, margin in score.robustness.items():
            column = self.columns.setdefault(name, SpecColumn())
            column.rows.append(row)
            column.depth.append(score.depth.get(name, 0.0))
            column.n_violated += margin < 0
            column.n_violated_in_success += margin < 0 and score.success
            column.n_clamped += name in score.cannot_fail
        self.specs.update((spec.id, spec) for spec in score.active)
        self.axes_hit.update({spec.axis for spec in score.active if score.robustness[spec.id] < 0})

    def order(self) -> NDArray[np.int64]:
        """The rows by episode and attempt, so that the order in which they came has no effect."""
        return np.array(sorted(range(len(self)), key=self.keys.__getitem__), np.int64)


# Why a margin is what it is: the atom of the formula, and the step, that decide it.


@dataclass(frozen=True, slots=True)
class Witness:
    """The step and the atom that set a clause's margin, and the values the atom read there."""

    atom: str
    step: int
    time_s: float
    margin: float
    values: Mapping[str, float]


def find_witness(formula: Formula, traces: Traces, *, gate: Gate | str = Gate.BOOLEAN) -> Witness:
    """The witness of the margin at time 0 of a batch of one trace; the earliest step among equals."""
    if traces.n_episodes != 1:
        raise InputError(f'a witness is sought in one trace, found {traces.n_episodes}')
    search = _Search(MarginBatch(traces, Gate(gate)), traces)
    atom, step = search.decide(formula, 0)
    margin = float(search.evaluation.trace(formula)[0])
    values = {name: float(traces.signals[name][step]) for name in signal_names(atom)}
    time_s = step * float(traces.dt_s[0]) if traces.time_s is None else float(traces.time_s[step] - traces.time_s[0])
    return Witness(str(atom), step, time_s, margin, values)


class _Search:
    """Walk down from the formula to the atom, at each node into the branch that set its value."""

    def __init__(self, evaluation: MarginBatch, traces: Traces) -> None:
        self.evaluation, self.traces = evaluation, traces

    def decide(self, node: Formula, step: int) -> tuple[Formula, int]:
        if isinstance(node, Compare | Proposition | Truth):
            return node, step
        if isinstance(node, Not):
            return self.decide(node.argument, step)
        if isinstance(node, And | Or | Implies):
            return self.decide(self.branch(node, step), step)
        if isinstance(node, Window):
            return self.decide(node.argument, self.window_step(node, step))
        return self.until(node, step)

    def branch(self, node: And | Or | Implies, step: int) -> Formula:
        right = self.evaluation.trace(node.right)[step]
        if isinstance(node, Implies):
            crisp = self.evaluation.gate is Gate.BOOLEAN
            return node.left if -self.evaluation.trace(node.left, boolean=crisp)[step] > right else node.right
        left = self.evaluation.trace(node.left)[step]
        if isinstance(node, And):
            return node.left if left <= right else node.right
        return node.left if left >= right else node.right

    def window_step(self, node: Window, step: int) -> int:
        rows = self.evaluation.reach(node, step)
        if not rows:
            return step
        values = self.evaluation.trace(node.argument)[list(rows)]
        best = int(np.argmin(values) if node.operator.is_universal else np.argmax(values))
        # Nearest first is latest first when looking back; the earliest of equals is reported either way.
        equal = [row for row, value in zip(rows, values, strict=True) if value == values[best]]
        return min(equal)

    def until(self, node: Until, step: int) -> tuple[Formula, int]:
        left, right = self.evaluation.trace(node.left), self.evaluation.trace(node.right)
        rows = self.evaluation.reach(node, step)
        if not rows:
            return self.decide(node.right, step)
        scores = [min(right[row], self.held(left, step, row)) for row in rows]
        row = rows[int(np.argmax(scores))]
        between = _between(step, row)
        if len(between) == 0 or right[row] <= self.held(left, step, row):
            return self.decide(node.right, row)
        return self.decide(node.left, min(between, key=lambda r: (left[r], r)))

    @staticmethod
    def held(left: FloatArray, step: int, row: int) -> float:
        between = _between(step, row)
        return float(np.min(left[list(between)])) if between else float('inf')


def _between(step: int, row: int) -> range:
    """The rows of which the left side of `until` (or `since`) is asked when the right side holds at `row`."""
    return range(step, row) if row >= step else range(row + 1, step + 1)


# Phases of an episode, derived or as the record labels them, so that a clause can be asked of one of them alone.

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
    return Window(formula.operator, formula.bounds, Implies(Proposition(IN_PHASE), formula.argument))


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
            if gap is None or gap.state is not ReadingState.VACUOUS:
                raise Unscored(f'{name}: {self.signals.why(name)}')
        if gaps:
            raise Inapplicable(self.signals.why(gaps[0][0]))
        for name in spec.events:
            if name not in self._events:
                values = self.signals.values[name]
                self._events[name] = bool(np.all((values == 0) | (values == 1)))
            if not self._events[name]:
                raise Unscored(f'{name}: an event has to be 0 or 1 at every step')

    def scoped(self, spec: Spec, mask: BoolArray) -> tuple[Formula, Traces]:
        # Drifts are counted from the start of each stretch of the phase, and the phase itself is an event.
        signals = {**self.signals.values, **rebased_signals(self.raw, self.signals, mask), IN_PHASE: mask}
        columns = {n: np.asarray(c, dtype=np.float64) for n, c in signals.items()}
        return scoped_formula(spec.formula), dataclasses.replace(self.traces, signals=columns)

    def phase_safety(self, specs: tuple[Spec, ...]) -> tuple[PhaseSafety, ...]:
        """The margins of whole-episode specs within each labelled phase."""
        if self.labels is None:
            return ()
        phases = []
        for index, name in enumerate(self.labels.names):
            mask = self.labels.index == index
            if mask.any():
                chosen = [s for s in specs if s.phase is Phase.WHOLE and can_be_scoped(s.formula)]
                margins = {s.id: self.margin_of(*self.scoped(s, mask)) for s in chosen}
                phases.append(PhaseSafety(name, float(self.signals.step_s[mask].sum()), margins))
        return tuple(phases)

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
