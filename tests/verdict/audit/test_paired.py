from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robotrials.errors import InputError, NotEstimable
from robotrials.record import Episode, Outcome, Store
from robotrials.verdict.audit import (
    InstanceOutcome,
    align,
    compare_outcomes,
    outcomes_of,
    paired_significance,
    read_outcomes,
    topline,
)


def test_every_golden_table(shared: Any) -> None:
    cases = json.loads(shared('golden', 'topline.json').read_text())['paired_tables']
    assert any(case['Z'] == 'inf' for case in cases)
    for case in cases:
        found = paired_significance(np.array(case['YA']), np.array(case['YB']))
        assert found.z == pytest.approx(float(case['Z']), rel=1e-12, abs=1e-12), case['tag']
        assert found.p_value == pytest.approx(case['p'], rel=1e-9, abs=1e-15)
        assert found.z_independent == pytest.approx(float(case['Z_ind']), rel=1e-12, abs=1e-12)
        assert found.p_value_independent == pytest.approx(case['p_ind'], rel=1e-9, abs=1e-15)


tables = st.tuples(st.integers(1, 4), st.integers(2, 6)).flatmap(
    lambda shape: st.tuples(*[hnp.arrays(np.int64, shape, elements=st.integers(0, 3)) for _ in range(2)])
)


@given(pair=tables)
def test_statistics_lie_within_the_topline_range(pair: tuple[Any, Any]) -> None:
    a, b = pair
    tasks, samples = a.shape
    found = paired_significance(a, b)
    bounds = topline(int(a.sum()), int(b.sum()), tasks=tasks, samples=samples, max_score=3, unit='count')
    low, high = bounds.z_range
    assert low - 1e-9 <= found.z <= high + 1e-9
    assert low - 1e-9 <= found.z_independent <= high + 1e-9
    if bounds.classification == 'guaranteed':
        assert found.rejects()
    if bounds.classification in ('impossible', 'no_improvement'):
        assert not found.rejects()


@given(pair=tables)
def test_swapping_the_policies_turns_the_sign(pair: tuple[Any, Any]) -> None:
    a, b = pair
    assert paired_significance(a, b).z == pytest.approx(-paired_significance(b, a).z)


def test_mcnemar_is_scipys_binomial_test() -> None:
    stats = pytest.importorskip('scipy.stats')
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, (5, 30)), rng.integers(0, 2, (5, 30))
    found = paired_significance(a, b)
    wanted = stats.binomtest(found.wins_b, found.wins_a + found.wins_b, 0.5, alternative='greater').pvalue
    assert found.mcnemar_p_value == pytest.approx(wanted)
    assert found.sign_flip_p_value == pytest.approx(wanted)  # equal task sizes: the same count


def test_mcnemar_is_absent_for_bounded_scores() -> None:
    assert paired_significance([[0, 5, 3]], [[1, 5, 3]]).mcnemar_p_value is None


def test_sign_flip_agrees_with_all_arrangements() -> None:
    a, b = np.array([[0, 3, 1], [2, 2, 0]]), np.array([[2, 3, 0], [3, 2, 2]])
    differences = (b - a).ravel()
    sums = [
        int(np.dot(differences, signs))
        for signs in np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1).T
    ]  # fmt: skip
    wanted = np.mean(np.array(sums) >= differences.sum())
    assert paired_significance(a, b).sign_flip_p_value == pytest.approx(wanted)


def test_no_spread_follows_the_sign() -> None:
    assert paired_significance([[0, 0]], [[1, 1]]).z == math.inf
    assert paired_significance([[1, 1]], [[0, 0]]).z == -math.inf
    same = paired_significance([[1, 0]], [[1, 0]])
    assert (same.z, same.p_value) == (0.0, 0.5)


@pytest.mark.parametrize(
    ('a', 'b', 'message'),
    [
        ([[0, 1]], [[0, 1, 1]], 'same'),
        ([0, 1], [0, 1], 'wanted \\(tasks, samples\\)'),
        ([[0.5, 1]], [[0, 1]], 'whole numbers'),
        ([[-1, 1]], [[0, 1]], '>= 0'),
    ],
)
def test_bad_tables_are_clear_errors(a: Any, b: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        paired_significance(a, b)


def test_one_sample_a_task_is_not_estimable() -> None:
    with pytest.raises(NotEstimable, match='at least 2'):
        paired_significance([[0], [1]], [[1], [1]])


def write(path: Path, rows: list[str], head: str = 'task,sample,success') -> Path:
    path.write_text('\n'.join([head, *rows]) + '\n')
    return path


def test_csv_rows_are_aligned_and_the_unmatched_named(tmp_path: Path) -> None:
    a = write(tmp_path / 'a.csv', ['t,0,1', 't,1,0', 't,2,false', 'u,0,1', 'u,1,0'])
    b = write(tmp_path / 'b.csv', ['u,1,1', 't,1,1', 't,0,1', 'u,0,1', 'u,9,0'])
    found = compare_outcomes(read_outcomes(a), read_outcomes(b))
    assert found.only_a == (('t', '2'),)
    assert found.only_b == (('u', '9'),)
    direct = paired_significance([[1, 0], [1, 0]], [[1, 1], [1, 1]])
    assert found.z == direct.z
    assert found.instances == 4


@pytest.mark.parametrize(
    ('rows', 'head', 'message'),
    [
        (['t,0,1', 't,0,0'], 'task,sample,success', 'twice'),
        (['t,0,0.5'], 'task,sample,success', 'line 2, success'),
        (['t,0,maybe'], 'task,sample,success', "'maybe'"),
        (['t,0'], 'task,place', 'wanted a sample column'),
    ],
)
def test_bad_csv_is_a_clear_error(tmp_path: Path, rows: list[str], head: str, message: str) -> None:
    good = write(tmp_path / 'good.csv', ['t,0,1', 't,1,1'])
    with pytest.raises(InputError, match=message):
        compare_outcomes(read_outcomes(write(tmp_path / 'bad.csv', rows, head)), read_outcomes(good))


def test_runs_with_nothing_in_common_are_not_estimable() -> None:
    with pytest.raises(NotEstimable, match='nothing is paired'):
        align([InstanceOutcome('t', '1', 0)], [InstanceOutcome('t', '2', 0)])


def episode(policy: str, instance: int, *, success: bool, **more: Any) -> Episode:
    outcome = Outcome.SUCCESS if success else Outcome.FAILURE
    return Episode(policy=policy, task='t', instance=instance, outcome=outcome, duration_s=1.0, success=success, **more)


def test_stores_are_read_by_policy_and_invalid_episodes_left_out(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 'store')
    episodes = [episode('a', i, success=i < 2) for i in range(4)] + [episode('b', i, success=True) for i in range(4)]
    broken = Episode(policy='b', task='t', instance=9, outcome=Outcome.INVALID, duration_s=0.0)
    store.append([*episodes, broken])
    found = compare_outcomes(read_outcomes(store.path, policy='a'), read_outcomes(store.path, policy='b'))
    assert (found.wins_a, found.wins_b, found.ties) == (0, 2, 2)
    with pytest.raises(InputError, match='several of policy'):
        read_outcomes(store.path)


def test_fractional_scores_of_episodes_are_refused() -> None:
    with pytest.raises(InputError, match='whole-number'):
        outcomes_of([episode('a', 0, success=True, score=0.5, max_score=1.0)])


def test_tasks_of_unequal_length_are_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match='compare_outcomes'):
        paired_significance([[0, 1], [1]], [[1, 1], [1]])
