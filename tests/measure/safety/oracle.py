"""An independent reading of the logic: each operator by its definition, over every step, on short traces."""

from __future__ import annotations

import math
import re
import sys
import warnings

import numpy as np
import pytest
from hypothesis import strategies as st

from robotrials.measure.safety.formula import (
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
    Sum,
    Temporal,
    TimeWindow,
    Truth,
    Until,
    Window,
)  # fmt: skip

DT_S = 0.5
Columns = dict[str, list[float]]


def value_at(node: Expression, columns: Columns, t: int) -> float:
    match node:
        case NumberLiteral(value):
            return value
        case Signal(name):
            return columns[name][t]
        case Magnitude(argument):
            return abs(value_at(argument, columns, t))
        case Sum(operator, left, right):
            a, b = value_at(left, columns, t), value_at(right, columns, t)
            return {'+': a + b, '-': a - b, '*': a * b}[operator.value]


def window(bounds: TimeWindow, t: int, times: list[float], *, past: bool) -> list[int]:
    """The samples whose distance in time from that of t lies in the bounds."""
    rows = range(t + 1) if past else range(t, len(times))
    return [u for u in rows if bounds.low_s - 1e-9 <= abs(times[u] - times[t]) <= bounds.high_s + 1e-9]


def margin_at(
    node: Formula, columns: Columns, t: int, *, gate: str = 'boolean', crisp: bool = False,
    times: list[float] | None = None,
) -> float:  # fmt: skip
    """The margin by definition; `crisp` gives truth as plus or minus infinity."""
    if times is None:
        times = [i * DT_S for i in range(len(next(iter(columns.values()))))]

    def at(inner: Formula, u: int) -> float:
        return margin_at(inner, columns, u, gate=gate, crisp=crisp, times=times)

    match node:
        case Compare(operator, left, right):
            a, b = value_at(left, columns, t), value_at(right, columns, t)
            if crisp:
                return math.inf if {'<': a < b, '<=': a <= b, '>': a > b, '>=': a >= b}[operator.value] else -math.inf
            return b - a if operator.is_upper else a - b
        case Proposition(name):
            level = columns[name][t] - 0.5
            return math.copysign(math.inf, level) if crisp else level
        case Truth(is_true):
            return math.inf if is_true else -math.inf
        case Not(argument):
            return -at(argument, t)
        case And(left, right):
            return min(at(left, t), at(right, t))
        case Or(left, right):
            return max(at(left, t), at(right, t))
        case Implies(left, right):
            sharp = crisp or gate == 'boolean'
            return max(-margin_at(left, columns, t, gate=gate, crisp=sharp, times=times), at(right, t))
        case Window(operator, bounds, argument):
            values = [at(argument, u) for u in window(bounds, t, times, past=operator.is_past)]
            return min(values, default=math.inf) if operator.is_universal else max(values, default=-math.inf)
        case Until(bounds, left, right, is_past):
            best = -math.inf
            for u in window(bounds, t, times, past=is_past):
                between = range(u + 1, t + 1) if is_past else range(t, u)
                best = max(best, min([at(right, u), *(at(left, w) for w in between)]))
            return best


def columns_of(draw: st.DrawFn, steps: int) -> Columns:
    # Quarters, so that sums are exact, ties are common and margins of exactly 0 happen.
    quarter = st.integers(-8, 8).map(lambda k: k / 4)
    bits = st.integers(0, 1).map(float)
    return {
        **{name: draw(st.lists(quarter, min_size=steps, max_size=steps)) for name in ('x', 'y')},
        **{name: draw(st.lists(bits, min_size=steps, max_size=steps)) for name in ('p', 'q')},
    }


@st.composite
def traces(draw: st.DrawFn) -> Columns:
    return columns_of(draw, draw(st.integers(1, 9)))


@st.composite
def bounds(draw: st.DrawFn) -> TimeWindow:
    if draw(st.booleans()):
        return TimeWindow()
    low = draw(st.integers(0, 4))
    high = draw(st.one_of(st.just(None), st.integers(low, 7)))
    return TimeWindow(low * DT_S, math.inf if high is None else high * DT_S)


def expressions() -> st.SearchStrategy[Expression]:
    leaf = st.one_of(
        st.sampled_from([Signal('x'), Signal('y')]), st.integers(-8, 8).map(lambda k: NumberLiteral(k / 4))
    )
    operators = st.sampled_from([Arithmetic.ADD, Arithmetic.SUBTRACT, Arithmetic.MULTIPLY])
    return st.recursive(
        leaf,
        lambda inner: st.one_of(st.builds(Magnitude, inner), st.builds(Sum, operators, inner, inner)),
        max_leaves=3,
    )


def formulas(*, max_leaves: int = 5) -> st.SearchStrategy[Formula]:
    atom = st.one_of(
        st.builds(Compare, st.sampled_from(Relation), expressions(), expressions()),
        st.sampled_from([Proposition('p'), Proposition('q')]),
        st.builds(Truth, st.booleans()),
    )
    return st.recursive(
        atom,
        lambda inner: st.one_of(
            st.builds(Not, inner), st.builds(And, inner, inner), st.builds(Or, inner, inner),
            st.builds(Implies, inner, inner), st.builds(Window, st.sampled_from(Temporal), bounds(), inner),
            st.builds(Until, bounds(), inner, inner, st.booleans()),
        ),
        max_leaves=max_leaves,
    )  # fmt: skip


def rtamt_margins(text: str, columns: Columns, dt_s: float = DT_S) -> np.ndarray:
    """rtamt's discrete-time offline monitor, which reads until as this house does."""
    if sys.version_info >= (3, 12):
        pytest.skip('rtamt needs a module that Python 3.12 removed')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # its antlr runtime imports what Python deprecates
        import rtamt

    monitor = rtamt.StlDiscreteTimeSpecification()
    for name in columns:
        monitor.declare_var(name, 'float')
    monitor.set_sampling_period(round(dt_s * 1000), 'ms', 0.1)
    monitor.spec = re.sub(r'\[([^\]]*)\]', _in_ms, text)
    monitor.parse()
    steps = len(next(iter(columns.values())))
    result = monitor.evaluate({'time': [i * dt_s for i in range(steps)], **{k: list(v) for k, v in columns.items()}})
    return np.array([value for _, value in result], dtype=float)


def _in_ms(match: re.Match[str]) -> str:
    """Bounds in whole milliseconds: rtamt's seconds must be whole multiples of its unit."""
    return '[' + ','.join(f'{round(float(part) * 1000)}ms' for part in match.group(1).split(',')) + ']'
