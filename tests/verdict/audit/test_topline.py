from __future__ import annotations

import itertools
import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.verdict.audit.dynamic_program import dynamic_program, task_maximum

from robotrials.errors import InputError, UnknownName
from robotrials.verdict.audit import find_benchmark, topline
from robotrials.verdict.audit.envelope import check_alpha, exact, relaxed_q_high, scaled_q_high, scaled_q_low, threshold
from robotrials.verdict.audit.topline import (
    Protocol,
    classify,
    cutoffs,
    is_feasible,
    is_guaranteed,
    realize,
    smallest_guaranteed,
)


def golden(shared: Any, part: str) -> list[dict[str, Any]]:
    path: Path = shared('golden', 'topline.json')
    return list(json.loads(path.read_text())[part])


def test_every_golden_case(shared: Any) -> None:
    cases = golden(shared, 'topline')
    assert len(cases) > 100
    for case in cases:
        found = topline(
            case['A'], case['A'] + case['L'], tasks=case['T'], samples=case['S'], max_score=case['R'],
            alpha=case['alpha'], unit='count',
        )  # fmt: skip
        assert found.classification == case['cls'], case
        assert found.gap_count == case['L']
        assert (found.scaled_q_low, found.scaled_q_high) == (case['SQ_lo'], case['SQ_hi']), case
        assert (found.smallest_feasible, found.smallest_guaranteed) == (case['L_exists'], case['L_forall']), case


def test_every_golden_rounding(shared: Any) -> None:
    cases = golden(shared, 'rounding')
    assert any(case['tie'] for case in cases)
    for case in cases:
        unit = {'%': 'percent', 'avg_len': 'score'}[case['unit']]
        found = realize(case['reported'], tasks=case['T'], samples=case['S'], max_score=case['R'], unit=unit)
        assert str(found.exact_count) == case['exact_count']
        assert list(found.nearest) == case['nearest']
        assert (found.half_up, found.half_even) == (case['half_up'], case['half_even'])
        assert (found.is_realizable, found.is_tie) == (case['realizable'], case['tie'])


def task_states(samples: int, max_score: int) -> dict[tuple[int, int], tuple[set[int], set[int]]]:
    """(a, b) -> every S q and S q_ind that some single-task table with those totals has, by enumeration."""
    states: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    pairs = list(itertools.product(range(max_score + 1), repeat=2))
    for table in itertools.combinations_with_replacement(pairs, samples):
        a, b = sum(u for u, _ in table), sum(v for _, v in table)
        q = samples * sum((v - u) ** 2 for u, v in table) - (b - a) ** 2
        independent = samples * sum(u * u + v * v for u, v in table) - a * a - b * b
        known = states.setdefault((a, b), (set(), set()))
        known[0].add(q)
        known[1].add(independent)
    return states


def all_tables(tasks: int, samples: int, max_score: int) -> dict[tuple[int, int], tuple[int, int, int, int]]:
    """(A, B) -> (least, greatest S Q; least, greatest S Q_ind) over every table there is."""
    one = {
        ab: (min(q), max(q), min(i), max(i)) for ab, (q, i) in task_states(samples, max_score).items()
    }  # sums over tasks are extreme where every task is
    total = {(0, 0): (0, 0, 0, 0)}
    for _ in range(tasks):
        after: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        for (a, b), old in total.items():
            for (da, db), new in one.items():
                key = (a + da, b + db)
                s = tuple(x + y for x, y in zip(old, new, strict=True))
                k = after.get(key, s)
                after[key] = (min(k[0], s[0]), max(k[1], s[1]), min(k[2], s[2]), max(k[3], s[3]))
        total = after
    return total


@pytest.mark.parametrize(
    ('tasks', 'samples', 'max_score'),
    [(1, 2, 1), (2, 2, 1), (3, 3, 1), (4, 3, 1), (3, 4, 1), (1, 4, 2), (1, 3, 3), (1, 2, 5), (2, 3, 2), (3, 2, 2),
     (2, 2, 3), (2, 3, 3), (2, 2, 4), (3, 2, 3), (4, 2, 2), (1, 5, 2), (5, 2, 1), (2, 5, 1)],
)  # fmt: skip
def test_envelopes_are_those_of_every_table_there_is(tasks: int, samples: int, max_score: int) -> None:
    """Exhaustive: Q_lo and Q_hi are attained, and Q_lo <= Q_ind <= Q_hi (C.3, C.4, C.6)."""
    for (a, b), (low, high, low_ind, high_ind) in all_tables(tasks, samples, max_score).items():
        if b < a:
            continue
        shape = {'tasks': tasks, 'samples': samples, 'max_score': max_score}
        assert scaled_q_low(b - a, samples=samples) == low, (a, b)
        assert scaled_q_high(a, b - a, **shape) == high, (a, b)
        assert low <= low_ind <= high_ind <= high, (a, b)
        assert relaxed_q_high(a, b - a, **shape) >= high


def test_task_maximum_is_that_of_every_task_table() -> None:
    for samples, max_score in ((4, 1), (4, 2), (3, 4), (2, 6)):
        for (a, b), (q, _) in task_states(samples, max_score).items():
            assert task_maximum(a, b, samples=samples, max_score=max_score) == max(q)


@pytest.mark.parametrize('seed', range(6))
def test_closed_forms_agree_with_the_dynamic_program(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(6):
        max_score, tasks, samples = draw.randint(1, 6), draw.randint(1, 6), draw.randint(2, 7)
        if max_score * tasks * samples > 60:
            continue
        best = dynamic_program(tasks=tasks, samples=samples, max_score=max_score)
        most = max_score * tasks * samples
        cells = [(a, b) for a in range(most + 1) for b in range(a, most + 1)]
        for a, b in draw.sample(cells, min(60, len(cells))):
            assert scaled_q_high(a, b - a, tasks=tasks, samples=samples, max_score=max_score) == best[a, b]


def test_binary_form_agrees_with_the_program_on_every_cell_of_simplerenv() -> None:
    best = dynamic_program(tasks=4, samples=24)
    for a in range(97):
        for b in range(a, 97):
            assert scaled_q_high(a, b - a, tasks=4, samples=24) == best[a, b]


def test_one_task_form_agrees_with_the_printed_maximum_for_calvin() -> None:
    draw = random.Random(0)
    for _ in range(40):
        a, b = sorted(draw.randint(0, 5000) for _ in range(2))
        found = scaled_q_high(a, b - a, tasks=1, samples=1000, max_score=5)
        assert found == task_maximum(a, b, samples=1000, max_score=5)


shapes = st.tuples(st.integers(1, 12), st.integers(2, 40), st.integers(1, 5))


@given(shape=shapes, data=st.data())
def test_q_high_sees_the_baseline_only_through_the_headroom(shape: tuple[int, int, int], data: st.DataObject) -> None:
    tasks, samples, max_score = shape if shape[2] == 1 or shape[0] == 1 else (min(shape[0], 4), shape[1], shape[2])
    most = tasks * samples * max_score
    gap = data.draw(st.integers(0, most))
    a = data.draw(st.integers(0, most - gap))
    sides = {'tasks': tasks, 'samples': samples, 'max_score': max_score}
    high = scaled_q_high(a, gap, **sides)
    assert high == scaled_q_high(most - a - gap, gap, **sides)
    assert high == scaled_q_high(a + gap, -gap, **sides)
    assert scaled_q_low(gap, samples=samples) <= high <= relaxed_q_high(a, gap, **sides)


@given(
    tasks=st.integers(1, 5), samples=st.integers(2, 12), max_score=st.integers(1, 3),
    alpha=st.sampled_from(['0.05', '0.01', '0.2', '1e-6', '0.49']), data=st.data(),
)  # fmt: skip
def test_cutoffs_are_those_of_their_definition(
    tasks: int, samples: int, max_score: int, alpha: str, data: st.DataObject
) -> None:
    """L_exists is the first feasible gap, L_forall the start of the last unbroken run of guaranteed gaps."""
    if tasks > 1 and max_score > 1:
        tasks, samples = min(tasks, 3), min(samples, 5)
    protocol, limit = Protocol(tasks, samples, max_score), threshold(check_alpha(alpha))
    count = data.draw(st.integers(0, protocol.most))
    gaps = range(1, protocol.most - count + 1)
    feasible = [g for g in gaps if is_feasible(g, protocol=protocol, limit=limit)]
    suffix = None
    for gap in reversed(gaps):
        if not is_guaranteed(count, gap, protocol=protocol, limit=limit):
            break
        suffix = gap
    found = cutoffs([count], tasks=tasks, samples=samples, max_score=max_score, alpha=alpha)[0]
    assert found.smallest_feasible == (feasible[0] if feasible else None)
    assert found.smallest_guaranteed == suffix


def test_feasible_gaps_need_not_be_an_up_set() -> None:
    """At alpha = 1e-6 and S = 2 a gap of 2 can be significant, 3 can't: the class is pointwise."""
    protocol, limit = Protocol(4, 2), threshold(check_alpha('1e-6'))
    classes = [classify(1, gap, protocol=protocol, limit=limit) for gap in (1, 2, 3)]
    assert [str(c) for c in classes] == ['impossible', 'inconclusive', 'impossible']


def test_decisions_do_not_rest_on_rounded_floats() -> None:
    """Integers just above and just below z^2, closer than a double can tell apart."""
    limit = threshold(Fraction(1, 20))
    scale = 10**30
    z = Fraction('1.6448536269514727148638489079916321360831957')  # as tabled
    below = int(z * z * scale)
    assert not limit.is_exceeded(below, scale)
    assert limit.is_exceeded(below + 2, scale)
    assert below / scale == (below + 2) / scale
    huge = 10**200
    narrowed = threshold(Fraction(1, 20), bits=1024)
    edge = narrowed.low * huge >> 1024
    assert not limit.is_exceeded(edge - 1, huge)
    assert limit.is_exceeded(edge + 2, huge)


@pytest.mark.study
def test_binary_form_agrees_with_the_program_on_every_cell_of_libero() -> None:
    best = dynamic_program(tasks=10, samples=50)
    for a in range(501):
        for b in range(a, 501):
            assert scaled_q_high(a, b - a, tasks=10, samples=50) == best[a, b]


@pytest.mark.study
def test_window_agrees_with_the_program_on_many_shapes() -> None:
    draw = random.Random(11)
    for _ in range(60):
        max_score, tasks, samples = draw.randint(2, 5), draw.randint(2, 12), draw.choice([2, 2, 3, 3, 4, 5, 6, 8])
        most = max_score * tasks * samples
        if most > 90:
            continue
        best = dynamic_program(tasks=tasks, samples=samples, max_score=max_score)
        for _ in range(40):
            a, b = sorted(draw.randint(0, most) for _ in range(2))
            assert scaled_q_high(a, b - a, tasks=tasks, samples=samples, max_score=max_score) == best[a, b]


@pytest.mark.parametrize(
    ('alpha', 'z'),
    [('0.05', 1.6448536269514722), ('0.025', 1.959963984540054), ('0.01', 2.3263478740408408),
     ('1e-6', 4.753424308822899), ('0.3', 0.5244005127080409), ('1e-20', 9.262340089798408)],
)  # fmt: skip
def test_quantiles_are_the_tabled_ones(alpha: str, z: float) -> None:
    assert threshold(exact(alpha)).z == pytest.approx(z, rel=1e-14)


def test_quantiles_agree_with_scipy() -> None:
    stats = pytest.importorskip('scipy.stats')
    for alpha in (0.4, 0.1, 0.05, 1e-3, 1e-9, 1e-40):
        assert threshold(exact(alpha)).z == pytest.approx(float(stats.norm.isf(alpha)), rel=1e-12)


def test_libero_spatial_95_3_to_96_6_is_inconclusive_whichever_way_the_tie_goes() -> None:
    found = topline('95.3', '96.6', tasks=10, samples=50, unit='percent')
    assert found.classification == 'inconclusive'
    assert found.score_a.nearest == (476, 477)
    assert (found.count_a, found.count_b, found.gap_count) == (477, 483, 6)
    assert not found.is_realizable
    assert not found.is_tie_decisive
    assert len(found.readings) == 2


@pytest.mark.parametrize(
    ('score', 'samples', 'tasks', 'printable'),
    [('95.8', 24, 4, True), ('95.83', 24, 4, True), ('95.9', 24, 4, False), ('95.3', 50, 10, False),
     ('95.4', 50, 10, True), ('95', 50, 10, True), (95.8, 24, 4, True), (Fraction(958, 10), 24, 4, False)],
)  # fmt: skip
def test_printable_scores_are_those_that_some_count_prints(
    score: Any, samples: int, tasks: int, printable: bool
) -> None:
    found = realize(score, tasks=tasks, samples=samples, unit='percent')
    assert found.is_printable is printable
    if not isinstance(score, Fraction):
        digits = len(str(score).partition('.')[2])
        counts = range(tasks * samples + 1)
        gap = Fraction(1, 2 * 10**digits)
        wanted = any(abs(Fraction(100 * c, tasks * samples) - Fraction(str(score))) <= gap for c in counts)
        assert wanted is printable


def test_a_tie_that_decides_is_reported_both_ways() -> None:
    found = topline('99.7', '99.9', tasks=10, samples=50, unit='percent')
    assert found.is_tie_decisive
    assert [(r.count_b - r.count_a, str(r.classification)) for r in found.readings] == [
        (1, 'impossible'), (2, 'impossible'), (0, 'no_improvement'), (1, 'impossible'),
    ]  # fmt: skip


def test_not_higher_is_no_improvement() -> None:
    for a, b in (('0.9', '0.9'), ('0.9', '0.8')):
        found = topline(a, b, tasks=10, samples=50)
        assert found.classification == 'no_improvement'
        assert found.gap_count <= 0


def test_units_agree() -> None:
    forms = [
        topline('0.834', '0.8576', tasks=1, samples=1000, max_score=5),
        topline('83.4', '85.76', tasks=1, samples=1000, max_score=5, unit='percent'),
        topline(4.17, 4.288, tasks=1, samples=1000, max_score=5, unit='score'),
        topline(4170, 4288, tasks=1, samples=1000, max_score=5, unit='count'),
        topline(np.float64(4.17), np.float64(4.288), tasks=1, samples=1000, max_score=5, unit='score'),
    ]
    assert {(f.count_a, f.count_b, str(f.classification)) for f in forms} == {
        (4170, 4288, str(forms[0].classification))
    }


def test_z_range_holds_the_statistic_of_extreme_tables() -> None:
    found = topline(46, 62, tasks=4, samples=24, unit='count')
    low, high = found.z_range
    assert low == pytest.approx(16 / (math.sqrt(24 / 23) * math.sqrt(1952 / 24)))
    assert high == pytest.approx(16 / (math.sqrt(24 / 23) * math.sqrt(128 / 24)))
    assert found.guaranteed_difference == Fraction(16, 96)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'score_a': '95.3', 'score_b': '96.6'}, "unit='percent'"),
        ({'score_a': '95.3', 'score_b': '101', 'unit': 'percent'}, 'outside 0..100'),
        ({'score_a': '-1', 'score_b': '50', 'unit': 'percent'}, 'outside 0..100'),
        ({'score_a': '6', 'score_b': '5', 'unit': 'score', 'max_score': 5}, 'outside 0..5'),
        ({'score_a': '4.5', 'score_b': '5', 'unit': 'count'}, 'not whole'),
        ({'score_a': '95,3', 'score_b': '96', 'unit': 'percent'}, 'finite decimal'),
        ({'score_a': float('nan'), 'score_b': 0.5}, 'finite decimal'),
        ({'score_a': '0.5', 'score_b': '0.6', 'unit': 'percnt'}, "did you mean 'percent'"),
        ({'score_a': '0.5', 'score_b': '0.6', 'samples': 1}, 'samples is 1'),
        ({'score_a': '0.5', 'score_b': '0.6', 'tasks': 0}, 'tasks is 0'),
        ({'score_a': '0.5', 'score_b': '0.6', 'tasks': 2.5}, 'tasks is 2.5'),
        ({'score_a': '0.5', 'score_b': '0.6', 'alpha': 0.5}, 'alpha is 0.5'),
        ({'score_a': '0.5', 'score_b': '0.6', 'alpha': 0}, 'alpha is 0'),
        ({'score_a': '0.5', 'score_b': '0.6', 'tasks': 10, 'max_score': 500}, 'beyond the exact method'),
    ],
)  # fmt: skip
def test_bad_input_is_a_clear_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        topline(**{'tasks': 10, 'samples': 50, **arguments})


def test_tasks_and_samples_are_required() -> None:
    with pytest.raises(TypeError, match='tasks'):
        topline('0.5', '0.6', samples=50)  # type: ignore[call-arg]


def test_presets_hold_the_papers_protocols() -> None:
    wanted = {
        'libero-spatial': (10, 50, 1), 'libero-object': (10, 50, 1), 'libero-goal': (10, 50, 1),
        'libero-long': (10, 50, 1), 'libero-average': (40, 50, 1), 'calvin': (1, 1000, 5), 'simpler-widowx': (4, 24, 1),
        'robocasa': (24, 50, 1), 'robotwin2-clean-a': (50, 100, 1), 'robotwin2-randomized-b': (50, 100, 1),
    }  # fmt: skip
    for name, (tasks, samples, max_score) in wanted.items():
        assert find_benchmark(name).protocol == Protocol(tasks, samples, max_score)


def test_an_unknown_benchmark_suggests_the_near_one() -> None:
    with pytest.raises(UnknownName, match="did you mean 'libero-spatial'"):
        find_benchmark('libero-spacial')


def test_guarantee_cutoff_of_robotwin_at_half() -> None:
    """A walk over all gaps finds the same suffix as the halving."""
    protocol, limit = Protocol(50, 100), threshold(check_alpha(0.05))
    failing = max(g for g in range(1, 2501) if not is_guaranteed(2500, g, protocol=protocol, limit=limit))
    assert smallest_guaranteed(2500, protocol=protocol, limit=limit) == failing + 1


@pytest.mark.parametrize('score', ['95.1', 95.1, np.float32(95.1), np.float64(95.1), np.array(95.1, dtype=np.float32)])
def test_a_score_is_read_by_its_digits_whatever_its_type(score: Any) -> None:
    """95.1 % of 500 is the tie 475.5; the float32 nearest to 95.1 lies below it and would lose the tie."""
    assert realize(score, tasks=10, samples=50, unit='percent').nearest == (475, 476)


def test_numpy_integers_are_exact_and_truth_values_are_no_scores() -> None:
    count = 2**53 + 1
    assert exact(np.int64(count)) == count
    found = topline(np.int64(477), np.int32(483), tasks=np.int64(10), samples=np.int16(50), unit='count')
    assert (found.count_a, found.gap_count) == (477, 6)
    with pytest.raises(InputError, match='score is True'):
        topline(True, 0.5, tasks=10, samples=50)
