"""Why a margin is what it is: the atom of the formula, and the step, that decide it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.safety.formula import (
    And,
    Compare,
    Event,
    Formula,
    Implies,
    Not,
    Or,
    Temporal,
    Truth,
    Until,
    Window,
    signal_names,
)
from robotrials.measure.safety.margin import Evaluation, FloatArray, Gate, Traces


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
    search = _Search(Evaluation(traces, Gate(gate)), traces)
    atom, step = search.decide(formula, 0)
    margin = float(search.evaluation.trace(formula)[0])
    values = {name: float(traces.signals[name][step]) for name in signal_names(atom)}
    time_s = step * float(traces.dt_s[0]) if traces.time_s is None else float(traces.time_s[step] - traces.time_s[0])
    return Witness(str(atom), step, time_s, margin, values)


class _Search:
    """Walk down from the formula to the atom, at each node into the branch that set its value."""

    def __init__(self, evaluation: Evaluation, traces: Traces) -> None:
        self.evaluation, self.traces = evaluation, traces

    def decide(self, node: Formula, step: int) -> tuple[Formula, int]:
        if isinstance(node, Compare | Event | Truth):
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

    def reach(self, node: Window | Until, step: int) -> range:
        """The rows of the node's window around `step`, nearest first."""
        is_past = node.operator.is_past if isinstance(node, Window) else node.is_past
        return self.evaluation.reach(node, step, is_past=is_past)

    def window_step(self, node: Window, step: int) -> int:
        rows = self.reach(node, step)
        if not rows:
            return step
        values = self.evaluation.trace(node.argument)[list(rows)]
        universal = node.operator in (Temporal.ALWAYS, Temporal.HISTORICALLY)
        best = int(np.argmin(values) if universal else np.argmax(values))
        # Nearest first is latest first when looking back; the earliest of equals is reported either way.
        equal = [row for row, value in zip(rows, values, strict=True) if value == values[best]]
        return min(equal)

    def until(self, node: Until, step: int) -> tuple[Formula, int]:
        left, right = self.evaluation.trace(node.left), self.evaluation.trace(node.right)
        rows = self.reach(node, step)
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
