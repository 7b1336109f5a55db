"""The quantitative semantics: against brute force, against rtamt, and by its own laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.safety.oracle import DT_S, Columns, bounds, formulas, margin_at, rtamt_margins, traces

from robotrials.errors import InputError
from robotrials.measure.safety import parse_stl, robustness, satisfies
from robotrials.measure.safety.clause import find_witness
from robotrials.measure.safety.formula import Formula, Proposition, Temporal, TimeWindow, Until, Window, event_names
from robotrials.measure.safety.margin import margins, margins_at_start, traces_of


@settings(max_examples=250)
@given(formulas(), traces(), st.sampled_from(['boolean', 'literal']))
def test_margins_are_those_of_the_definition(formula: Formula, columns: Columns, gate: str) -> None:
    steps = len(columns['x'])
    wanted = [margin_at(formula, columns, t, gate=gate) for t in range(steps)]
    assert robustness(formula, columns, DT_S, trace=True, gate=gate).tolist() == wanted
    assert robustness(formula, columns, DT_S, gate=gate) == wanted[0]


@settings(max_examples=200)
@given(bounds(), traces(), st.booleans())
def test_bounded_until_and_since_are_those_of_the_definition(
    within: TimeWindow, columns: Columns, is_past: bool
) -> None:
    formula = Until(within, parse_stl('x > 0'), parse_stl('y > 0'), is_past)
    wanted = [margin_at(formula, columns, t) for t in range(len(columns['x']))]
    assert robustness(formula, columns, DT_S, trace=True).tolist() == wanted


@pytest.mark.parametrize(
    'text',
    [
        '(x > 0) until (y > 0)', '(x > 0) until[0.5,2] (y > 0)', '(x > 0) since (y > 0)',
        '(x > 0) since[1,1.5] (y > 0)',
        'always[0.5,1] (x > 0)', 'eventually[1.5,2] (x > 0)', 'once[0.5,1] (x > 0)', 'historically[0.5,1] (x > 0)',
        'always (x > 0)', 'eventually (x > y)', 'historically (x + y > 0)', 'once (abs(x) > 1)',
        'always ((x > 0) implies (eventually[0,1] (y > 0)))', 'not ((x > 0) and (y < 1)) or (x - y * 2 <= 1)',
    ],
)  # fmt: skip
def test_margins_are_rtamts_in_discrete_time(text: str) -> None:
    rng = np.random.default_rng(3)
    for steps in (2, 5, 12):  # rtamt cannot read a trace of one step
        columns = {name: (rng.integers(-8, 9, steps) / 4).tolist() for name in ('x', 'y')}
        ours = robustness(text, columns, DT_S, trace=True, gate='literal')
        np.testing.assert_array_equal(ours, rtamt_margins(text, columns))


def test_until_asks_its_left_side_only_before_the_right_side_holds() -> None:
    """rtamt's issue 210: its dense-time until gives -0.5 here; its discrete-time one and brute force give 0.5."""
    columns = {'x': [0.0, 1.0]}
    assert robustness('(x < 0.5) until[0,1] (x >= 0.5)', columns, DT_S) == 0.5
    assert margin_at(parse_stl('(x < 0.5) until[0,1] (x >= 0.5)'), columns, 0) == 0.5
    assert rtamt_margins('(x < 0.5) until[0,1] (x >= 0.5)', columns)[0] == 0.5


@settings(max_examples=200)
@given(formulas(), traces())
def test_the_margins_sign_is_the_boolean_verdict_where_it_is_not_zero(formula: Formula, columns: Columns) -> None:
    margin = robustness(formula, columns, DT_S)
    truth = margin_at(formula, columns, 0, crisp=True) > 0
    assert satisfies(formula, columns, DT_S) is truth
    if margin != 0:
        assert (margin > 0) is truth


@settings(max_examples=150)
@given(formulas(max_leaves=4), st.data())
def test_a_ragged_batch_is_its_episodes_one_by_one(formula: Formula, data: st.DataObject) -> None:
    episodes = [data.draw(traces()) for _ in range(3)]
    batch = traces_of(
        {name: [e[name] for e in episodes] for name in ('x', 'y', 'p', 'q')}, DT_S, events=event_names(formula)
    )
    alone = [robustness(formula, e, DT_S, trace=True) for e in episodes]
    np.testing.assert_array_equal(margins(formula, batch), np.concatenate(alone))
    np.testing.assert_array_equal(margins_at_start(formula, batch), [a[0] for a in alone])


def test_each_episode_of_a_batch_has_its_own_step_size() -> None:
    batch = traces_of({'x': [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]}, [0.1, 0.2])
    found = margins_at_start(parse_stl('eventually[0,0.2] x > 0'), batch)
    assert found.tolist() == [3.0, 2.0]


@settings(max_examples=200)
@given(formulas(), traces(), st.sampled_from(['boolean', 'literal']))
def test_the_witness_reads_values_that_set_the_margin(formula: Formula, columns: Columns, gate: str) -> None:
    batch = traces_of({n: [c] for n, c in columns.items()}, DT_S, events=event_names(formula))
    witness = find_witness(formula, batch, gate=gate)
    assert witness.margin == margin_at(formula, columns, 0, gate=gate)
    if math.isfinite(witness.margin):
        at = {n: [columns[n][witness.step]] for n in columns}
        assert abs(robustness(witness.atom, at, DT_S)) == abs(witness.margin)


def test_windows_are_cut_at_the_end_of_the_trace() -> None:
    """The chosen end-of-trace semantics: an empty window is vacuous for always and hopeless for eventually."""
    x = {'x': [1.0, 2.0, 3.0]}
    assert robustness('always[0,2] x > 0', x, 1.0, trace=True).tolist() == [1.0, 2.0, 3.0]
    assert robustness('always[2,3] x > 0', x, 1.0, trace=True).tolist() == [3.0, math.inf, math.inf]
    assert robustness('eventually[2,3] x > 0', x, 1.0, trace=True).tolist() == [3.0, -math.inf, -math.inf]
    assert robustness('historically[1,2] x > 0', x, 1.0, trace=True).tolist() == [math.inf, 1.0, 1.0]
    assert robustness('once[1,2] x > 0', x, 1.0, trace=True).tolist() == [-math.inf, 1.0, 2.0]
    assert robustness('x > 0 until[1,2] x > 2', x, 1.0, trace=True).tolist() == [1.0, 1.0, -math.inf]


def test_a_boolean_gate_leaves_the_margin_in_its_own_unit() -> None:
    """DECISIONS, gated clauses: the literal max(-a, b) caps a 40 degree excess at -0.5."""
    signals = {'transport': [0, 1, 1], 'tilt': [90.0, 55.0, 5.0]}
    clause = 'always (transport -> tilt < 15)'
    assert robustness(clause, signals, 0.05) == -40.0
    assert robustness(clause, signals, 0.05, gate='literal') == -0.5
    assert robustness(clause, {'transport': [0, 0], 'tilt': [90.0, 80.0]}, 0.05) == math.inf


def test_the_gate_is_any_antecedent_and_strictness_decides_at_its_edge() -> None:
    signals = {'x': [2.0], 'y': [-7.0]}
    assert robustness('x > 2 -> y > 0', signals, 1.0) == math.inf
    assert robustness('x >= 2 -> y > 0', signals, 1.0) == -7.0


def test_strict_and_non_strict_bounds_share_a_margin_and_differ_at_zero() -> None:
    x = {'x': [3.0]}
    assert robustness('x < 3', x, 1.0) == robustness('x <= 3', x, 1.0) == 0.0
    assert not satisfies('x < 3', x, 1.0)
    assert satisfies('x <= 3', x, 1.0)


def test_binary_events_turn_at_one_half() -> None:
    assert robustness('always (not hit)', {'hit': [0, 0, 0]}, 1.0) == 0.5
    assert robustness('always (not hit)', {'hit': [0, 1, 0]}, 1.0) == -0.5


def test_a_one_step_trace_is_scored_by_memoryless_clauses() -> None:
    assert robustness('always x < 3', {'x': [1.0]}, 0.05) == 2.0
    assert robustness('p -> x < 3', {'x': [5.0], 'p': [1]}, 0.05) == -2.0


def test_bounds_that_are_no_exact_multiple_of_the_step_hold_the_samples_inside() -> None:
    x = {'x': [5.0, 4.0, 3.0, 2.0]}
    assert robustness('always[0,0.3] x > 0', x, 0.1) == 2.0  # 0.3 is 2.9999... steps of 0.1
    assert robustness('always[0,0.29] x > 0', x, 0.1) == 3.0
    with pytest.raises(InputError, match='holds no sample'):
        robustness('always[0.11,0.19] x > 0', x, 0.1)


@pytest.mark.parametrize(
    ('signals', 'reason'),
    [
        ({'x': []}, 'empty trace'), ({'x': [1.0, math.nan]}, "'x' is nan at step 1"),
        ({'x': [1.0, math.inf, 2.0]}, "'x' is inf at step 1"), ({'y': [1.0]}, "reads 'x'"),
        ({'x': [[1.0], [2.0]]}, 'wanted one array'),
    ],
)  # fmt: skip
def test_traces_without_a_margin_are_refused_with_the_reason(signals: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        robustness('always x > 0', signals, 0.1)  # type: ignore[arg-type]


def test_unequal_lengths_bad_steps_and_division_by_zero_are_refused() -> None:
    with pytest.raises(InputError, match='others have'):
        robustness('x > y', {'x': [1.0, 2.0], 'y': [1.0]}, 0.1)
    for step in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match='dt_s'):
            robustness('x > 0', {'x': [1.0]}, step)
    with pytest.raises(InputError, match='division by zero'):
        robustness('1 / x > 0', {'x': [0.0]}, 0.1)
    with pytest.raises(InputError, match='wanted 0 or 1'):
        robustness('x', {'x': [0.3]}, 0.1)


def test_a_formula_without_signals_has_a_margin_too() -> None:
    assert robustness('always true', {}, 0.1) == math.inf


@pytest.mark.parametrize('seconds', [1, 2, 40, 126, 127, 128, 129, 700, 4000])
@pytest.mark.parametrize('delay', [0, 3, 200])
def test_windows_of_every_width_are_cut_out_of_the_trace(seconds: int, delay: int) -> None:
    x = np.random.default_rng(0).normal(size=1500)
    least = robustness(f'always[{delay},{delay + seconds}] x > 0', {'x': x}, 1.0, trace=True)
    most = robustness(f'once[{delay},{delay + seconds}] x + 0 > 0', {'x': x}, 1.0, trace=True)
    for t in (0, 17, 640, 1290, 1496, 1499):
        assert least[t] == np.min(x[t + delay : t + delay + seconds + 1], initial=math.inf)
        behind = x[max(0, t - delay - seconds) : max(0, t - delay + 1)]
        assert most[t] == np.max(behind, initial=-math.inf)


def test_temporal_operators_are_each_others_duals() -> None:
    rng = np.random.default_rng(1)
    columns = {'x': rng.normal(size=40)}
    for one, other in ((Temporal.ALWAYS, Temporal.EVENTUALLY), (Temporal.HISTORICALLY, Temporal.ONCE)):
        inner = parse_stl('x > 0')
        a = Window(one, TimeWindow(0.5, 3), inner)
        b = Window(other, TimeWindow(0.5, 3), parse_stl('x < 0'))
        np.testing.assert_array_equal(
            robustness(a, columns, DT_S, trace=True), -robustness(b, columns, DT_S, trace=True)
        )


def test_events_are_named() -> None:
    assert event_names(parse_stl('p -> x > 1')) == {'p'}
    assert Proposition('p') == parse_stl('p')


@pytest.mark.parametrize(
    ('call', 'reason'),
    [
        (lambda: robustness('always (x < 1)', {'x': ['a']}, 0.1), 'real numbers'),
        (lambda: robustness('always (x < 1)', {'x': np.ones(3) * 1j}, 0.1), 'real numbers'),
        (lambda: robustness('always (x < 1)', {'x': [0.0]}, 'soon'), 'one number of seconds'),  # type: ignore[call-overload]
        (lambda: robustness('always (x < 1)', {'x': [0.0]}, [0.1, 0.1]), 'one number of seconds'),  # type: ignore[call-overload]
        (lambda: robustness('always (x < 1)', {'x': [0.0]}, 0.1, gate='literl'), "did you mean 'literal'"),
        (lambda: robustness(None, {'x': [0.0]}, 0.1), 'is text'),  # type: ignore[call-overload]
    ],
)
def test_wrong_types_are_named(call: Callable[[], float], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        call()


def test_signals_may_be_lists_booleans_and_decimals() -> None:
    for column in ([0, 1, 2], (0, 1, 2), np.array([0, 1, 2], dtype=np.int8), [Decimal(0), Decimal(1), Decimal(2)]):
        assert robustness('always (x < 5)', {'x': column}, Decimal('0.05')) == 3.0  # type: ignore[dict-item,call-overload]
    assert robustness('always p', {'p': [True, False]}, 1) == -0.5
