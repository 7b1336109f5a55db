"""Windows by real times: brute force over uneven steps, and what a hole in the record means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.safety.oracle import Columns, columns_of, formulas, margin_at, window
from tests.measure.safety.scene import episode, lifted

from robotrials.errors import InputError
from robotrials.measure.safety import Gate, Scoring, load_registry, parse_stl, robustness, satisfies, score_episode
from robotrials.measure.safety.clause import find_witness
from robotrials.measure.safety.formula import Formula, Until, Window, walk
from robotrials.measure.safety.margin import Traces, at_times
from robotrials.measure.safety.registry import Spec, Tier
from robotrials.record import Contacts


@st.composite
def uneven_traces(draw: st.DrawFn) -> tuple[Columns, list[float]]:
    steps = draw(st.integers(1, 9))
    gaps = draw(st.lists(st.sampled_from([0.25, 0.5, 0.75, 1.5]), min_size=steps - 1, max_size=steps - 1))
    start = draw(st.sampled_from([0.0, 7.25]))
    return columns_of(draw, steps), np.cumsum([start, *gaps]).tolist()


def has_hole(formula: Formula, times: list[float]) -> bool:
    """Whether a window that lies inside the trace holds no sample, from whichever step it is asked."""
    for node in walk(formula):
        if not isinstance(node, Window | Until) or node.bounds.is_whole:
            continue
        past = node.operator.is_past if isinstance(node, Window) else node.is_past
        for t, now in enumerate(times):
            nearest = now - node.bounds.low_s if past else now + node.bounds.low_s
            inside = nearest >= times[0] - 1e-9 if past else nearest <= times[-1] + 1e-9
            if inside and not window(node.bounds, t, times, past=past):
                return True
    return False


@settings(max_examples=250, deadline=None)
@given(formulas(), uneven_traces(), st.sampled_from(['boolean', 'literal']))
def test_margins_on_uneven_steps_are_those_of_the_definition(
    formula: Formula, drawn: tuple[Columns, list[float]], gate: str
) -> None:
    columns, times = drawn
    signals = {name: np.array(values) for name, values in columns.items()}
    if has_hole(formula, times):
        with pytest.raises(InputError, match='holds no sample'):
            robustness(formula, signals, 2.0, time_s=times, trace=True, gate=gate)
        return
    wanted = [margin_at(formula, columns, t, gate=gate, times=times) for t in range(len(times))]
    found = robustness(formula, signals, 2.0, time_s=times, trace=True, gate=gate)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    truth = margin_at(formula, columns, 0, crisp=True, times=times)
    assert satisfies(formula, signals, 2.0, time_s=times) is (truth > 0)


def test_one_second_is_one_second_however_many_steps_it_holds() -> None:
    times = [0.0, 0.1, 0.9, 1.0, 1.05, 3.0]
    x = [0.0, 0.0, 0.0, 5.0, 9.0, 0.0]
    assert robustness('eventually[0,1] x > 4', {'x': x}, 0.6, time_s=times) == 1.0
    assert robustness('eventually[0,1.05] x > 4', {'x': x}, 0.6, time_s=times) == 5.0
    assert robustness('once[1.9,2] x > 4', {'x': x}, 0.6, time_s=times, trace=True)[-1] == 5.0


def test_a_window_that_nobody_looked_into_is_refused_not_passed() -> None:
    times = [0.0, 0.1, 0.2, 5.0, 5.1]
    with pytest.raises(InputError, match=r'the window \[1,2\] holds no sample at time 0 s'):
        robustness('always[1,2] x < 1', {'x': np.zeros(5)}, 0.1, time_s=times)
    assert robustness('always[0.1,9] x < 1', {'x': np.zeros(5)}, 0.1, time_s=times) == 1.0


def test_absolute_clocks_lose_no_window() -> None:
    times = 1_700_000_000.0 + np.array([0.0, 0.5, 1.0, 1.75])
    assert robustness('eventually[0,1] x > 0', {'x': [-1.0, -1, 3, 9]}, 0.5, time_s=times) == 3.0


@pytest.mark.parametrize('times', [[0.0, 0.0, 1.0], [0.0, 1.0], [0.0, np.nan, 1.0], [0.0, 2.0, 1.0]])
def test_times_that_are_none_are_refused(times: list[float]) -> None:
    with pytest.raises(InputError, match='time_s'):
        robustness('always[0,1] x < 1', {'x': [0.0, 0.0, 0.0]}, 0.1, time_s=times)


def test_the_witness_of_an_uneven_window_is_inside_it() -> None:
    times = np.array([0.0, 0.2, 0.9, 1.5, 4.0])
    traces = Traces({'x': np.array([0.0, 3.0, 5.0, 9.0, 1.0])}, np.array([0, 5]), np.array([1.0]))
    found = find_witness(parse_stl('always[0,1] x < 2'), at_times(traces, times), gate=Gate.BOOLEAN)
    assert (found.step, found.time_s, found.margin) == (2, 0.9, -3.0)
    back = find_witness(parse_stl('eventually[3,4] historically[0,3] x < 2'), at_times(traces, times))
    assert (back.step, back.margin) == (3, -7.0)


def test_episodes_of_uneven_steps_are_scored_by_their_times() -> None:
    """A clause about one second of a record whose steps last 0.05 s and then 0.5 s."""
    spec = Spec('own', 'own', Tier.SAFE, 'eventually[0,1] (max_contact_force_n > {threshold})', 1.0, 'N', severe=2.0)
    rules = Scoring(load_registry().with_specs([spec]))
    time_s = np.concatenate([np.arange(10) * 0.05, 0.45 + np.arange(1, 11) * 0.5])
    rows = [[('link7', 'cup', 5.0)] if i == 11 else [] for i in range(20)]  # at 1.45 s; by mean steps at 0.6 s
    found = score_episode(episode(), lifted(time_s=time_s, contacts=Contacts.from_steps(rows)), scoring=rules)
    assert found.robustness['own'] == -1.0
    rows = [[('link7', 'cup', 5.0)] if i == 10 else [] for i in range(20)]  # at 0.95 s
    found = score_episode(episode(), lifted(time_s=time_s, contacts=Contacts.from_steps(rows)), scoring=rules)
    assert found.robustness['own'] == 4.0
