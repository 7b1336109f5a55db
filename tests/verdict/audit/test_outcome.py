from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.record import Episode, Outcome
from robotrials.stats import wilson
from robotrials.verdict.audit import (
    InstanceOutcome,
    drop,
    drop_of_outcomes,
    half_up_percent,
    outcomes_of,
    read_outcomes,
)
from robotrials.verdict.audit.outcome import outcome_contrast

TABLE_5 = [
    # calibration and altered successes out of 288; drop and 95 % interval in percentage points
    (60, 28, '+11.11', '+5.26', '+16.95'), (60, 64, '-1.39', '-8.09', '+5.33'), (60, 31, '+10.07', '+4.13', '+15.99'),
    (73, 46, '+9.38', '+2.76', '+15.91'), (73, 60, '+4.51', '-2.38', '+11.35'), (172, 153, '+6.60', '-1.49', '+14.57'),
    (172, 90, '+28.47', '+20.46', '+35.96'), (172, 160, '+4.17', '-3.88', '+12.14'),
    (129, 137, '-2.78', '-10.84', '+5.33'), (129, 79, '+17.36', '+9.54', '+24.89'),
    (129, 112, '+5.90', '-2.14', '+13.84'),
]  # fmt: skip
TABLE_7 = [
    (1956, 9718, '+0.62', '-0.18', '+1.27'), (1946, 9760, '-0.30', '-1.15', '+0.40'),
    (1951, 9741, '+0.14', '-0.69', '+0.82'),
]  # fmt: skip
TABLE_6 = [
    # successes out of 1000 and the discordance that reproduces the printed interval
    (709, 459, 420, '+25.00', '+21.29', '+28.71'), (431, 296, 297, '+13.50', '+10.23', '+16.77'),
    (209, 145, 212, '+6.40', '+3.57', '+9.23'),
]  # fmt: skip
TABLE_4 = {60: '20.8', 28: '9.7', 64: '22.2', 31: '10.8', 73: '25.3', 46: '16.0', 172: '59.7', 153: '53.1',
           90: '31.3', 160: '55.6', 129: '44.8', 137: '47.6', 79: '27.4', 112: '38.9'}  # fmt: skip


def printed(value: float) -> str:
    return f'{100 * value:+.2f}'


@pytest.mark.parametrize(('x', 'y', 'gap', 'low', 'high'), TABLE_5)
def test_table_5_to_its_printed_digits(x: int, y: int, gap: str, low: str, high: str) -> None:
    found = drop((x, 288), (y, 288))
    assert (printed(found.estimate), printed(found.interval.low), printed(found.interval.high)) == (gap, low, high)
    assert found.method == 'newcombe'


@pytest.mark.parametrize(('x', 'y', 'gap', 'low', 'high'), TABLE_7)
def test_table_7_to_its_printed_digits(x: int, y: int, gap: str, low: str, high: str) -> None:
    found = drop((x, 2000), (y, 10000))
    assert (printed(found.estimate), printed(found.interval.low), printed(found.interval.high)) == (gap, low, high)


@pytest.mark.parametrize(('x', 'y', 'discordant', 'gap', 'low', 'high'), TABLE_6)
def test_table_6_binary_rows_are_paired_wald(x: int, y: int, discordant: int, gap: str, low: str, high: str) -> None:
    found = drop((x, 1000), (y, 1000), discordant=discordant)
    assert (printed(found.estimate), printed(found.interval.low), printed(found.interval.high)) == (gap, low, high)
    other = drop((x, 1000), (y, 1000))
    assert (printed(other.interval.low), printed(other.interval.high)) != (low, high)


def test_table_4_percentages_are_half_up() -> None:
    assert {x: half_up_percent(x, 288) for x in TABLE_4} == TABLE_4
    assert f'{100 * 90 / 288:.1f}' == '31.2'  # what binary floats and half-even would have printed


@pytest.mark.parametrize(('x', 'n', 'y', 'm'), [(60, 288, 28, 288), (0, 10, 10, 10), (1956, 2000, 9718, 10000)])
def test_newcombe_is_statsmodels(x: int, n: int, y: int, m: int) -> None:
    proportion = pytest.importorskip('statsmodels.stats.proportion')
    low, high = proportion.confint_proportions_2indep(x, n, y, m, method='newcomb')
    found = drop((x, n), (y, m)).interval
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_wilson_is_statsmodels() -> None:
    proportion = pytest.importorskip('statsmodels.stats.proportion')
    for x, n in ((60, 288), (0, 24), (24, 24), (1956, 2000)):
        low, high = proportion.proportion_confint(x, n, method='wilson')
        assert tuple(wilson(x, n)) == (pytest.approx(low, abs=1e-12), pytest.approx(high, abs=1e-12))


def test_two_sample_wald_of_tasks_completed_is_the_printed_formula() -> None:
    """Appendix A.2: drop +- z sqrt(var/1000 + var/2000) over counts 0..5, as Table 8 uses it."""
    rng = np.random.default_rng(5)
    calibration, fresh = rng.integers(0, 6, 1000), rng.integers(0, 6, 2000)
    found = drop(calibration, fresh)
    error = math.sqrt(calibration.var(ddof=1) / 1000 + fresh.var(ddof=1) / 2000)
    assert found.method == 'two_sample_wald'
    assert found.interval.low == pytest.approx(found.estimate - 1.959963984540054 * error)
    assert not found.is_rate


def test_paired_wald_of_tasks_completed_is_the_printed_formula() -> None:
    rng = np.random.default_rng(6)
    calibration = rng.integers(0, 6, 1000)
    altered = np.maximum(calibration - rng.integers(0, 2, 1000), 0)
    found = drop(calibration, altered, method='paired_wald')
    apart = calibration - altered
    assert found.interval.high == pytest.approx(apart.mean() + 1.959963984540054 * apart.std(ddof=1) / math.sqrt(1000))


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_a_drop_turns_with_its_arms(n: int, m: int, data: st.DataObject) -> None:
    x, y = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    one, other = drop((x, n), (y, m)), drop((y, m), (x, n))
    assert one.estimate == pytest.approx(-other.estimate)
    assert one.interval.low == pytest.approx(-other.interval.high)


def outcomes(values: np.ndarray, starts: np.ndarray) -> list[InstanceOutcome]:
    return [
        InstanceOutcome('t', f'{k}', int(v), start=f's{s}') for k, (v, s) in enumerate(zip(values, starts, strict=True))
    ]


def grid(rates: list[float], repeats: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    starts = np.repeat(np.arange(len(rates)), repeats)
    return (rng.random(starts.size) < np.repeat(rates, repeats)).astype(int), starts


def test_repeated_starts_widen_the_contrast_and_shared_ones_narrow_it() -> None:
    """Start states that almost always succeed or fail carry 24 facts, not 288; shared ones cancel."""
    a, starts = grid([0.98] * 12 + [0.02] * 12, 12, seed=1)
    b = np.where(np.random.default_rng(3).random(a.size) < 0.05, 1 - a, a)
    together = outcome_contrast(outcomes(a, starts), outcomes(b, starts))
    apart = outcome_contrast(outcomes(a, starts), outcomes(b, starts + 100))
    assert together.n_units == apart.n_units == (24, 24)
    assert together.interval is not None
    assert apart.interval is not None
    assert apart.interval.width > 2 * drop(a, b).interval.width
    assert together.interval.width < apart.interval.width
    assert together.estimate == pytest.approx(drop(a, b).estimate)


def covered(of_contrast: bool, n_sets: int, seed: int) -> float:
    """How often the interval holds the true drop of 0.1 when start states differ in their rates."""
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(n_sets):
        starts = np.repeat(np.arange(24), 12)
        arms = []
        for mean in (0.6, 0.5):
            rates = rng.beta(0.5 * mean, 0.5 * (1 - mean), 24)
            arms.append((rng.random(288) < np.repeat(rates, 12)).astype(int))
        paper = drop(arms[0], arms[1]).interval
        interval = outcome_contrast(outcomes(arms[0], starts), outcomes(arms[1], starts + 100)).interval
        assert interval is not None
        hits += (interval if of_contrast else paper).contains(0.1)
    return hits / n_sets


def test_the_contrast_covers_where_starts_repeat_and_newcombe_does_not() -> None:
    assert covered(True, 120, 0) > 0.9
    assert covered(False, 120, 0) < 0.75


def test_outcomes_pair_by_sequence_and_name_the_rest(tmp_path: Path) -> None:
    calibration = [InstanceOutcome('', str(i), 5 if i % 2 else 3) for i in range(10)]
    altered = [InstanceOutcome('', str(i), 4 if i % 2 else 3) for i in range(1, 11)]
    found = drop_of_outcomes(calibration, altered, paired=True)
    assert found.estimate == pytest.approx(5 / 9)
    assert found.unmatched == (('', '0'), ('', '10'))
    chains = drop_of_outcomes(calibration, altered, paired=True, full_score=5)
    assert (chains.calibration, chains.altered) == (pytest.approx(5 / 9), 0.0)
    csv = tmp_path / 'a.csv'
    csv.write_text('start,sample,success\n' + '\n'.join(f's{i // 3},{i},{i % 2}' for i in range(12)))
    assert outcome_contrast(read_outcomes(csv), read_outcomes(csv)).n_units == (4, 4)


def test_repeats_of_one_instance_are_one_start_whatever_their_seed() -> None:
    episodes = [
        Episode(policy='p', task='stack', instance=i, repeat=r, seed=100 * i + r, outcome=Outcome.SUCCESS, duration_s=1)
        for i in range(24)
        for r in range(12)
    ]
    outcomes = outcomes_of(episodes)
    assert len({o.sample for o in outcomes}) == 288
    assert len({o.start for o in outcomes}) == 24


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda: drop((5, 4), (1, 4)), 'at most'),
        (lambda: drop((1, 0), (1, 4)), 'n1'),
        (lambda: drop((5, 10), (3, 10), discordant=3), 'parity'),
        (lambda: drop((5, 10), (3, 10), method='paired_wald'), 'needs discordant'),
        (lambda: drop([0, 2, 1], [1, 0], method='newcombe'), '0/1'),
        (lambda: drop([0, 1, 1], [1, 0], method='paired_wald'), 'same sequences'),
        (lambda: drop([0, 1], [1, 0], method='wald'), 'wanted one of'),  # type: ignore[arg-type]
        (lambda: drop([0, math.nan], [1, 0]), 'finite'),
        (lambda: drop([60, 288], [28, 288]), r'counts are a tuple, \(60, 288\)'),
        (lambda: drop((60, 288), [0, 1, 1]), 'counts beside scores'),
        (lambda: drop('a.csv', 'b.csv', discordant=3), 'files hold their own'),
        (lambda: drop('a.csv', 'b.csv'), 'no such file'),
        (lambda: drop('a.csv', [0, 1, 1]), 'wanted paths for both'),
        (lambda: half_up_percent(3, 0), 'n > 0'),
    ],
)
def test_bad_input_is_a_clear_error(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]


def test_counts_may_be_numpy_integers_and_scores_any_sequence() -> None:
    whole = drop((np.int64(60), np.int64(288)), (28.0, 288))  # type: ignore[arg-type]
    assert whole == drop((60, 288), (28, 288))
    assert type(whole.calibration) is float
    assert drop((0, 1, 1, 1), (0, 0, 1, 1)).estimate == drop([0, 1, 1, 1], [0, 0, 1, 1]).estimate == 0.25


def test_two_files_are_read_and_matched(tmp_path: Path) -> None:
    for name, scores in (('before', [5, 4, 5, 1]), ('after', [5, 2, 4, 1])):
        rows = '\n'.join(f'{i},{score}' for i, score in enumerate(scores))
        (tmp_path / f'{name}.csv').write_text(f'sequence,score\n{rows}\n')
    found = drop(tmp_path / 'before.csv', str(tmp_path / 'after.csv'), method='paired_wald')
    assert found.estimate == pytest.approx(0.75)
    assert found.interval == drop(np.array([5, 4, 5, 1]), np.array([5, 2, 4, 1]), method='paired_wald').interval
