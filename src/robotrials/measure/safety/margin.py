"""Quantitative semantics: the margin by which traces satisfy a formula, one trace or a ragged batch.

Time is sampled every `dt_s`, or at the times given. A window holds the samples inside its closed bounds that the trace
has: at the end of a trace (or, looking back, at its start) windows are cut, an empty `always` or `historically` is
+infinity, and an empty `eventually`, `once`, `until` or `since` is -infinity. `until` asks its left side of every
sample before the one at which the right side holds, not of that sample itself. A window inside the trace that holds no
sample is refused: what nobody looked at is neither safe nor unsafe.

A margin says nothing at 0: `<` and `<=` have the same margin and differ only in `satisfies`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeGuard, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, UnknownName, near_miss
from robotrials.measure.safety.formula import (
    EVENT_LEVEL,
    And,
    Arithmetic,
    Compare,
    Expression,
    Formula,
    Implies,
    Magnitude,
    Not,
    NumberLiteral,
    Or,
    Proposition,
    Relation,
    Signal,
    Temporal,
    TimeWindow,
    Truth,
    Until,
    Window,
    event_names,
    parse_stl,
    signal_names,
)
from robotrials.value import dataclass

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
FORMULAS = get_args(Formula)
EVEN_TOLERANCE = 1e-6  # relative; steps that differ by less are the rounding of one step
STEP_TOLERANCE = 1e-9  # relative; so that 0.3 s holds three samples of 0.1 s


class Gate(enum.StrEnum):
    """How an antecedent enters the margin of `a -> b`."""

    BOOLEAN = 'boolean'  # b's margin where a holds, +infinity where it does not
    LITERAL = 'literal'  # max(-a, b): with a 0/1 antecedent no margin can fall below -0.5, whatever b's unit

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UnknownName('gate', str(value), [gate.value for gate in cls])


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """Signals of E episodes laid end to end: episode e has the rows offsets[e] to offsets[e + 1]."""

    signals: Mapping[str, FloatArray]
    offsets: IntArray  # (E + 1,)
    dt_s: FloatArray  # (E,)
    time_s: FloatArray | None = None  # (rows,), increasing within an episode; where given, windows go by it

    @property
    def n_episodes(self) -> int:
        return len(self.offsets) - 1


@overload
def robustness(
    formula: str | Formula, signals: Mapping[str, ArrayLike], dt_s: float, *, time_s: ArrayLike | None = ...,
    trace: Literal[False] = ..., gate: Gate | str = ...,
) -> float: ...  # fmt: skip
@overload
def robustness(
    formula: str | Formula, signals: Mapping[str, ArrayLike], dt_s: float, *, time_s: ArrayLike | None = ...,
    trace: Literal[True], gate: Gate | str = ...,
) -> FloatArray: ...  # fmt: skip
def robustness(
    formula: str | Formula,
    signals: Mapping[str, ArrayLike],
    dt_s: float,
    *,
    time_s: ArrayLike | None = None,
    trace: bool = False,
    gate: Gate | str = Gate.BOOLEAN,
) -> float | FloatArray:
    """The margin at time 0 of signals (T,) sampled every `dt_s`; with `trace`, the margin at each time, (T,).

    With `time_s` (T,) windows go by those times, however uneven, and `dt_s` has no part in them.

    Donzé and Maler's space robustness, with the gate of SafeVLA-Bench's implications made Boolean by default.
    """
    parsed, traces = _one_trace(formula, signals, dt_s, time_s)
    if trace:
        return margins(parsed, traces, gate=gate)
    return float(margins_at_start(parsed, traces, gate=gate)[0])


def satisfies(
    formula: str | Formula, signals: Mapping[str, ArrayLike], dt_s: float, *, time_s: ArrayLike | None = None
) -> bool:
    """Whether the formula holds at time 0 in Boolean semantics, `<` strict and `<=` not."""
    parsed, traces = _one_trace(formula, signals, dt_s, time_s)
    return bool(MarginBatch(traces, Gate.BOOLEAN).trace(parsed, boolean=True)[0] > 0)


def _one_trace(
    formula: str | Formula, signals: Mapping[str, ArrayLike], dt_s: float, time_s: ArrayLike | None
) -> tuple[Formula, Traces]:
    parsed: Formula = formula if isinstance(formula, FORMULAS) else parse_stl(formula)  # type: ignore[arg-type]
    columns = {name: [np.asarray(signals[name])] for name in _wanted(parsed, signals)}
    steps = np.shape(next(iter(signals.values()))) if signals else (1,)
    traces = traces_of(columns, dt_s, lengths=steps[:1], events=event_names(parsed))
    return parsed, traces if time_s is None else at_times(traces, np.asarray(time_s, dtype=np.float64))


def at_times(traces: Traces, time_s: FloatArray) -> Traces:
    """The traces with windows by real times (rows,); unchanged where every step is the episode's `dt_s`."""
    if time_s.shape != (int(traces.offsets[-1]),):
        raise InputError(f'time_s has shape {time_s.shape}, wanted ({int(traces.offsets[-1])},): one per step')
    steps = np.diff(time_s)
    inside = np.ones(len(steps), dtype=bool)
    inside[traces.offsets[1:-1] - 1] = False
    if not np.all(np.isfinite(time_s)) or np.any(steps[inside] <= 0):
        raise InputError('time_s must be finite and strictly increasing within an episode')
    dt_s = np.repeat(traces.dt_s, np.diff(traces.offsets))[:-1]
    is_even = bool(np.all(np.abs(steps - dt_s)[inside] <= EVEN_TOLERANCE * dt_s[inside]))
    return traces if is_even else dataclasses.replace(traces, time_s=np.ascontiguousarray(time_s))


def _wanted(formula: Formula, signals: Mapping[str, Any]) -> tuple[str, ...]:
    names = signal_names(formula)
    for name in names:
        if name not in signals:
            raise InputError(f'the formula reads {name!r}, which is not among the signals: {near_miss(name, signals)}')
    return names


def traces_of(
    signals: Mapping[str, Sequence[ArrayLike] | FloatArray],
    dt_s: float | ArrayLike,
    *,
    lengths: Sequence[int] = (),
    events: frozenset[str] = frozenset(),
) -> Traces:
    """Lay ragged episodes end to end, and refuse what has no margin: empty, NaN, infinite or unequal traces.

    `signals` has one array per episode under each name, or with `lengths` one array of all episodes end to end.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    total = int(sizes.sum())
    flat: dict[str, FloatArray] = {}
    for name, columns in signals.items():
        if len(sizes) and isinstance(columns, np.ndarray) and columns.shape == (total,):
            whole = _floats(name, columns)
        else:
            whole, sizes = _joined(name, columns, sizes)
        _check_values(name, whole, sizes, is_event=name in events)
        flat[name] = np.ascontiguousarray(whole)
    if len(sizes) == 0 or np.any(sizes == 0):
        raise InputError('an empty trace has no margin; wanted at least one step')
    try:
        step = np.broadcast_to(np.asarray(dt_s, dtype=np.float64), (len(sizes),))
    except (TypeError, ValueError):
        raise InputError(f'dt_s is {dt_s!r}, wanted one number of seconds, or one per episode') from None
    if not np.all(np.isfinite(step) & (step > 0)):
        raise InputError(f'dt_s is {dt_s!r}, wanted a finite number of seconds > 0')
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return Traces(flat, offsets, step)


def _joined(name: str, columns: Sequence[ArrayLike] | FloatArray, sizes: IntArray) -> tuple[FloatArray, IntArray]:
    """The episodes' arrays end to end, and their lengths, equal to those of the signals before."""
    shapes = {np.ndim(column) for column in columns}
    if shapes != {1}:
        shape = next((np.shape(c) for c in columns if np.ndim(c) != 1), 'no episode')
        raise InputError(f'signal {name!r}: found {shape}, wanted one array (T,) an episode')
    own = np.fromiter((len(column) for column in columns), dtype=np.int64, count=len(columns))  # type: ignore[arg-type]
    if len(sizes) and len(own) != len(sizes):
        raise InputError(f'signal {name!r} has {len(own)} episodes, others have {len(sizes)}')
    if np.any(own == 0):
        raise InputError(f'signal {name!r}, episode {int(np.argmin(own))}: an empty trace has no margin')
    if len(sizes) and np.any(own != sizes):
        episode = int(np.flatnonzero(own != sizes)[0])
        raise InputError(f'signal {name!r}, episode {episode}: {own[episode]} steps, others have {sizes[episode]}')
    return _floats(name, np.concatenate(list(columns))), own


def _floats(name: str, column: NDArray[Any]) -> FloatArray:
    try:
        if column.dtype.kind in 'biufO':
            return column.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        pass
    raise InputError(f'signal {name!r} holds {column.dtype} values, wanted real numbers')


def _check_values(name: str, whole: FloatArray, sizes: IntArray, *, is_event: bool) -> None:
    from robotrials.measure.safety.kernel import count_not_binary

    # A finite sum proves every addend finite; only a sum that is not needs the look at each.
    with np.errstate(over='ignore', invalid='ignore'):
        total = whole.sum()
    if not np.isfinite(total) and not np.all(np.isfinite(whole)):
        row = int(np.flatnonzero(~np.isfinite(whole))[0])
        raise InputError(f'signal {name!r} is {whole[row]} at {_place(sizes, row)}; wanted finite values')
    if is_event and count_not_binary(whole):
        row = int(np.flatnonzero((whole != 0) & (whole != 1))[0])
        raise InputError(
            f'signal {name!r} stands alone as an event but is {whole[row]} at {_place(sizes, row)}; '
            'wanted 0 or 1, or a comparison'
        )


def _place(sizes: IntArray, row: int) -> str:
    ends = np.cumsum(sizes)
    episode = int(np.searchsorted(ends, row, side='right'))
    return f'step {row - int(ends[episode] - sizes[episode])} of episode {episode}'


def margins(formula: Formula, traces: Traces, *, gate: Gate | str = Gate.BOOLEAN) -> FloatArray:
    """The margin at every row of the batch."""
    return MarginBatch(traces, Gate(gate)).trace(formula)


def margins_at_start(formula: Formula, traces: Traces, *, gate: Gate | str = Gate.BOOLEAN) -> FloatArray:
    """The margin at each episode's first row, (E,); whole-trace clauses are reduced without a trace."""
    return MarginBatch(traces, Gate(gate)).start(formula)


class MarginBatch:
    """One batch under one gate."""

    def __init__(self, traces: Traces, gate: Gate) -> None:
        self.traces, self.gate = traces, gate
        self._spans: dict[tuple[TimeWindow, bool], tuple[IntArray, IntArray]] = {}

    @property
    def rows(self) -> int:
        return int(self.traces.offsets[-1])

    def start(self, node: Formula) -> FloatArray:
        if isinstance(node, Not):
            return -self.start(node.argument)
        if isinstance(node, And):
            return np.minimum(self.start(node.left), self.start(node.right))
        if isinstance(node, Or):
            return np.maximum(self.start(node.left), self.start(node.right))
        firsts = self.traces.offsets[:-1]
        if isinstance(node, Window) and not node.operator.is_past and node.bounds.is_whole:
            if node.operator is Temporal.ALWAYS:
                quick = self.always_bound(node.argument)
                if quick is not None:
                    return quick
                return np.minimum.reduceat(self.trace(node.argument), firsts)
            return np.maximum.reduceat(self.trace(node.argument), firsts)
        return self.trace(node)[firsts]

    def always_bound(self, node: Formula) -> FloatArray | None:
        """always(signal < number) and always(event -> signal < number) in one compiled pass."""
        from robotrials.measure.safety.kernel import bound_minimum, gated_bound_minimum

        gated = node.left.name if isinstance(node, Implies) and isinstance(node.left, Proposition) else None
        bound = node.right if isinstance(node, Implies) and gated else node
        if not _is_bound(bound):
            return None
        values, number, offsets = (
            np.ascontiguousarray(self.value(bound.left)),
            float(self.value(bound.right)),
            self.traces.offsets,
        )
        least = np.empty(len(offsets) - 1)
        if gated is None:
            bound_minimum(values, offsets, number, bound.operator.is_upper, least)
        else:
            literal, gate = self.gate is Gate.LITERAL, self.traces.signals[gated]
            gated_bound_minimum(values, gate, offsets, number, bound.operator.is_upper, literal, least)
        return least

    def trace(self, node: Formula, *, boolean: bool = False) -> FloatArray:
        """The margin at every row; Boolean truth is written as +infinity and -infinity, so that one algebra serves."""
        if isinstance(node, Compare):
            return self.compare(node, boolean)
        if isinstance(node, Proposition):
            level = self.traces.signals[node.name] - EVENT_LEVEL
            return np.where(level > 0, np.inf, -np.inf) if boolean else level
        if isinstance(node, Truth):
            return np.full(self.rows, np.inf if node.is_true else -np.inf)
        if isinstance(node, Not):
            return -self.trace(node.argument, boolean=boolean)
        if isinstance(node, Window):
            if not boolean and _is_bound(node.argument):
                return self.window_of_bound(node, node.argument)
            sign = 1.0 if node.operator.is_universal else -1.0
            return self.window(node, self.trace(node.argument, boolean=boolean), sign)
        if isinstance(node, Implies):
            crisp = boolean or self.gate is Gate.BOOLEAN
            return np.maximum(-self.trace(node.left, boolean=crisp), self.trace(node.right, boolean=boolean))
        left, right = self.trace(node.left, boolean=boolean), self.trace(node.right, boolean=boolean)
        if isinstance(node, And):
            return np.minimum(left, right)
        if isinstance(node, Or):
            return np.maximum(left, right)
        return self.until(node, left, right)

    def compare(self, node: Compare, boolean: bool) -> FloatArray:
        left, right = self.value(node.left), self.value(node.right)
        margin = np.broadcast_to(right - left if node.operator.is_upper else left - right, (self.rows,))
        if not boolean:
            return np.asarray(margin, dtype=np.float64)
        holds = {
            Relation.LT: np.less, Relation.LE: np.less_equal,
            Relation.GT: np.greater, Relation.GE: np.greater_equal,
        }[node.operator](left, right)  # fmt: skip
        return np.broadcast_to(np.where(holds, np.inf, -np.inf), (self.rows,)).astype(np.float64)

    def value(self, node: Expression) -> FloatArray | np.float64:
        if isinstance(node, NumberLiteral):
            return np.float64(node.value)
        if isinstance(node, Signal):
            return self.traces.signals[node.name]
        if isinstance(node, Magnitude):
            return np.abs(self.value(node.argument))
        operation = {
            Arithmetic.ADD: np.add, Arithmetic.SUBTRACT: np.subtract,
            Arithmetic.MULTIPLY: np.multiply, Arithmetic.DIVIDE: np.divide,
        }[node.operator]  # fmt: skip
        with np.errstate(all='ignore'):
            made = operation(self.value(node.left), self.value(node.right))
        if not np.all(np.isfinite(made)):
            raise InputError(f'{node} is not finite everywhere (a division by zero or an overflow)')
        return np.asarray(made, dtype=np.float64)

    def steps(self, bounds: TimeWindow, is_past: bool) -> tuple[IntArray, IntArray]:
        """The window in steps, per episode, the last episode first where it looks back.

        An end beyond the trace is as good as its end.
        """
        longest = int(np.max(np.diff(self.traces.offsets)))
        low = np.ceil(bounds.low_s / self.traces.dt_s * (1 - STEP_TOLERANCE))
        high = np.floor(bounds.high_s / self.traces.dt_s * (1 + STEP_TOLERANCE))
        if np.any(low > high):
            at = float(self.traces.dt_s[np.flatnonzero(low > high)[0]])
            raise InputError(f'the window {bounds} holds no sample at a step of {at:g} s; widen it')
        order = -1 if is_past else 1
        low, high = (np.minimum(end, longest)[::order] for end in (low, high))
        return low.astype(np.int64), high.astype(np.int64)

    def window_of_bound(self, node: Window, bound: Compare) -> FloatArray:
        """The window of signal < number from the signal's extreme; rounding is monotonic, so the margin is the same."""
        values, number = self.value(bound.left), self.value(bound.right)
        sign = (1.0 if node.operator.is_universal else -1.0) * (-1.0 if bound.operator.is_upper else 1.0)
        extreme = self.window(node, np.asarray(values), sign)
        if bound.operator.is_upper:
            np.subtract(number, extreme, out=extreme)
        else:
            np.subtract(extreme, number, out=extreme)
        return extreme

    def window(self, node: Window, values: FloatArray, sign: float) -> FloatArray:
        """The least (sign 1) or greatest (sign -1) value of each row's window, in a new array."""
        from robotrials.measure.safety.kernel import span_extreme, suffix_extreme, window_extreme

        is_past = node.operator.is_past
        turned, offsets = _turned(values, self.traces.offsets, is_past)
        extreme = np.empty(len(turned))
        if node.bounds.is_whole:
            suffix_extreme(turned, offsets, sign, extreme)
        elif self.traces.time_s is not None:
            first, last = self.spans(node.bounds, is_past)
            span_extreme(turned, first, last, sign, extreme)
        else:
            low, high = self.steps(node.bounds, is_past)
            window_extreme(turned, offsets, low, high, sign, extreme)
        return _turned(extreme, offsets, is_past)[0]

    def spans(self, bounds: TimeWindow, is_past: bool) -> tuple[IntArray, IntArray]:
        """First and last row of each row's window by real time, time reversed where it looks back; first > last: none.

        Only at the end of a trace may a window be empty.
        """
        time_s = self.traces.time_s
        assert time_s is not None
        key = (bounds, is_past)
        if key not in self._spans:
            turned, offsets = _turned(-time_s if is_past else time_s, self.traces.offsets, is_past)
            first, last = np.empty(self.rows, dtype=np.int64), np.empty(self.rows, dtype=np.int64)
            for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
                own = turned[start:stop]
                slack = STEP_TOLERANCE * max(1.0, float(own[-1] - own[0])) + 4 * float(np.spacing(np.abs(own).max()))
                first[start:stop] = start + np.searchsorted(own, own + (bounds.low_s - slack), side='left')
                last[start:stop] = start + np.searchsorted(own, own + (bounds.high_s + slack), side='right') - 1
                inside = own + bounds.low_s <= own[-1] + slack
                unseen = np.flatnonzero(inside & (first[start:stop] > last[start:stop]))
                if len(unseen):
                    at = abs(float(own[unseen[0]]))
                    raise InputError(f'the window {bounds} holds no sample at time {at:g} s: steps are too far apart')
            self._spans[key] = first, last
        return self._spans[key]

    def until(self, node: Until, left: FloatArray, right: FloatArray) -> FloatArray:
        """By left U[a,b] right = F[a,b] right and G[0,a) left and (left U right) a later: O(n) for any bounds."""
        from robotrials.measure.safety.kernel import shift_back, until_forever, window_extreme

        left, offsets = _turned(left, self.traces.offsets, node.is_past)
        right, _ = _turned(right, self.traces.offsets, node.is_past)
        margins = np.empty(len(left))
        until_forever(left, right, offsets, margins)
        if not node.bounds.is_whole and self.traces.time_s is not None:
            margins = self.until_by_time(node, left, right, margins, offsets)
        elif not node.bounds.is_whole:
            low, high = self.steps(node.bounds, node.is_past)
            margins = shift_back(margins, offsets, low, -np.inf)
            before, within = np.empty(len(left)), np.empty(len(left))
            window_extreme(left, offsets, np.zeros_like(low), low - 1, 1.0, before)
            window_extreme(right, offsets, low, high, -1.0, within)
            margins = np.minimum(np.minimum(margins, before), within)
        return _turned(margins, offsets, node.is_past)[0]

    def until_by_time(
        self, node: Until, left: FloatArray, right: FloatArray, forever: FloatArray, offsets: IntArray
    ) -> FloatArray:
        """The same identity with the window's first row where it is a seconds later."""
        from robotrials.measure.safety.kernel import span_extreme

        first, last = self.spans(node.bounds, node.is_past)
        ends = np.repeat(offsets[1:], np.diff(offsets))
        later = np.where(first < ends, forever[np.minimum(first, self.rows - 1)], -np.inf)
        before, within = np.empty(self.rows), np.empty(self.rows)
        span_extreme(left, np.arange(self.rows), np.minimum(first, ends) - 1, 1.0, before)
        span_extreme(right, first, last, -1.0, within)
        return np.minimum(np.minimum(later, before), within)

    def reach(self, node: Window | Until, row: int) -> range:
        """The rows of the node's window around `row` of a batch of one trace, nearest first."""
        is_past = node.operator.is_past if isinstance(node, Window) else node.is_past
        last_row = self.rows - 1
        if node.bounds.is_whole:
            return range(row, -1, -1) if is_past else range(row, last_row + 1)
        if self.traces.time_s is not None:
            first, last = self.spans(node.bounds, is_past)
            if is_past:
                turned = last_row - row
                return range(last_row - int(first[turned]), last_row - int(last[turned]) - 1, -1)
            return range(int(first[row]), int(last[row]) + 1)
        low, high = (int(side[0]) for side in self.steps(node.bounds, is_past))
        if is_past:
            return range(row - low, max(row - high, 0) - 1, -1)
        return range(row + low, min(row + high, last_row) + 1)


def _is_bound(node: Formula) -> TypeGuard[Compare]:
    """Whether it bounds one signal by one number."""
    return isinstance(node, Compare) and isinstance(node.left, Signal) and isinstance(node.right, NumberLiteral)


def _turned(values: FloatArray, offsets: IntArray, is_past: bool) -> tuple[FloatArray, IntArray]:
    """Time reversed where the operator looks back, so that every kernel looks ahead; contiguous, as kernels want it."""
    if not is_past:
        return np.ascontiguousarray(values), offsets
    return np.ascontiguousarray(values[::-1]), np.ascontiguousarray(offsets[-1] - offsets[::-1])
