"""Hand-computed golden cases for every measure, and the identities between them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robotrials.errors import InputError, NotEstimable
from robotrials.formats.space import ActionSpace, Dimension
from robotrials.measure.actions import PredictedEpisode, action_errors, class_metrics, summarize_actions
from robotrials.measure.actions.metric import (
    absolute_errors,
    amse,
    amse_by_episode,
    completes,
    max_over_median,
    namse,
    quantile_filtered,
    share_beyond_medians,
)
from robotrials.measure.actions.prediction import resolve_invalid

errors = hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 100))
runs = st.lists(errors, min_size=1, max_size=6)


def test_timestep_errors_by_hand() -> None:
    predicted, target = [[1.0, 2.0], [0.0, 0.0]], [[0.0, 4.0], [0.0, 1.0]]
    assert action_errors(predicted, target).tolist() == [2.5, 0.5]
    assert absolute_errors(predicted, target).tolist() == [1.5, 0.5]


def test_amse_by_hand() -> None:
    """Errors (1, 3) and (8): over timesteps 12/3 = 4, over episodes (2 + 8)/2 = 5; NAMSE (4 - 1)/(8 - 1)."""
    run = [np.array([1.0, 3.0]), np.array([8.0])]
    assert amse(run) == 4.0
    assert amse_by_episode(run) == 5.0
    assert namse(np.concatenate(run)) == pytest.approx(3 / 7)
    summary = summarize_actions(run)
    assert (summary.amse, summary.amse_by_episode, summary.namse) == (4.0, 5.0, pytest.approx(3 / 7))
    with pytest.raises(NotEstimable, match='AMAE needs predicted'):
        _ = summary.amae


def test_shape_measures_by_hand() -> None:
    """Errors 1..20 and 100: median 11; 5 % and 95 % quantiles are 2 and 20, so 2..20 stay: (11 - 2)/(20 - 2)."""
    values = np.array([*range(1, 21), 100], dtype=float)
    assert quantile_filtered(values) == pytest.approx(0.5)
    assert max_over_median(values) == pytest.approx(100 / 11)
    assert share_beyond_medians(values) == pytest.approx(1 / 21)


def test_class_metrics_by_hand() -> None:
    """Recorded 0 0 0 1 1 2; predicted 0 0 1 1 - 2: the dash is invalid."""
    found = class_metrics([0, 0, 1, 1, math.nan, 2], [0, 0, 0, 1, 1, 2])
    assert found.confusion.tolist() == [[2, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert found.invalid.tolist() == [0, 1, 0]
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.precision == (1.0, 0.5, 1.0)
    assert found.recall == (pytest.approx(2 / 3), 0.5, 1.0)
    assert found.f1 == (pytest.approx(0.8), 0.5, 1.0)
    assert found.macro_f1 == pytest.approx(2.3 / 3)


def test_a_class_that_was_never_predicted_has_no_precision() -> None:
    found = class_metrics([0, 0], [0, 1], classes=[0, 1, 2])
    assert found.precision == (0.5, None, None)
    assert found.recall == (1.0, 0.0, None)
    with pytest.raises(InputError, match='holds 7, which is none of the classes'):
        class_metrics([7], [0], classes=[0, 1])


def test_completion_by_hand() -> None:
    target = [[0.0, 0.0], [0.1, 1.0]]
    assert completes([[9.0, 9.0], [0.1, 1.0]], target)
    assert completes(np.array([[9.0, 9.0], [0.1, 1.0]], dtype=np.float32), target)
    assert not completes([[0.0, 0.0], [0.1001, 1.0]], target)
    assert completes([[0.0, 0.0], [0.1001, 1.0]], target, tolerance=0.01)
    assert not completes([[0.0, 0.0], [0.2, 1.05]], target, tolerance=[0.2, 0.01])
    assert not completes([[0.1, 1.0], [math.nan, math.nan]], target, tolerance=100.0)


@given(runs)
def test_namse_is_between_0_and_1(run: list[np.ndarray]) -> None:
    joined = np.concatenate(run)
    assume(joined.min() < joined.max())
    assert 0 <= namse(joined) <= 1


@given(st.integers(1, 8), st.integers(1, 5), st.data())
def test_equal_lengths_make_both_weightings_equal(length: int, count: int, data: st.DataObject) -> None:
    run = [data.draw(hnp.arrays(np.float64, length, elements=st.floats(0, 100))) for _ in range(count)]
    assert amse(run) == pytest.approx(amse_by_episode(run))


def test_unequal_lengths_part_the_weightings() -> None:
    """The other half of "iff": with unequal lengths there are errors for which the two differ."""
    for lengths in ([1, 2], [3, 5, 5], [1, 1, 4]):
        run = [np.full(n, float(i)) for i, n in enumerate(lengths)]
        assert amse(run) != pytest.approx(amse_by_episode(run))


@given(hnp.arrays(np.float64, (4, 3), elements=st.floats(-5, 5)), st.floats(0, 3))
def test_exact_completion_implies_tolerant(target: np.ndarray, tolerance: float) -> None:
    assert completes(target, target)
    assert completes(target, target, tolerance=tolerance)
    other = target + 1e-3
    if completes(other, target):
        assert completes(other, target, tolerance=tolerance)


@given(
    hnp.arrays(np.float64, (5, 3), elements=st.floats(-5, 5)), hnp.arrays(np.float64, (5, 3), elements=st.floats(-5, 5))
)
def test_errors_are_zero_only_where_actions_agree_and_bound_each_other(a: np.ndarray, b: np.ndarray) -> None:
    squared, absolute = action_errors(a, b), absolute_errors(a, b)
    assert ((squared == 0) == (((a - b) ** 2) == 0).all(axis=1)).all()
    assert (absolute**2 <= squared + 1e-9).all()


# --- what does not exist is said, never 0.0


@pytest.mark.parametrize('values', [[2.0], [2.0, 2.0, 2.0]])
def test_constant_errors_have_no_normalised_form(values: list[float]) -> None:
    with pytest.raises(NotEstimable, match='differ'):
        namse(values)
    summary = summarize_actions([np.array(values)])
    assert summary.measures['namse'].value is None
    with pytest.raises(NotEstimable, match='NAMSE does not exist'):
        _ = summary.namse
    assert summary.amse == 2.0


def test_two_errors_have_none_between_their_quantiles() -> None:
    with pytest.raises(NotEstimable, match='lies between their own quantiles'):
        quantile_filtered([1.0, 2.0])


def test_a_zero_median_has_no_multiples() -> None:
    with pytest.raises(NotEstimable, match='median error is 0'):
        max_over_median([0.0, 0.0, 1.0])
    with pytest.raises(NotEstimable, match='median error is 0'):
        share_beyond_medians([0.0, 0.0, 1.0])


def test_no_episodes_raise() -> None:
    with pytest.raises(InputError, match='no episodes'):
        summarize_actions([])
    with pytest.raises(InputError, match='no episodes'):
        amse([])


@pytest.mark.parametrize(
    ('predicted', 'target', 'told'),
    [
        (np.zeros((2, 2)), np.zeros((2, 3)), 'one shape'),
        (np.zeros((0, 2)), np.zeros((0, 2)), 'not empty'),
        (np.zeros(3), np.zeros(3), 'one shape'),
        (np.array([[0.0], [math.nan]]), np.zeros((2, 1)), r'predicted\[1\] is not finite'),
    ],
)
def test_wrong_actions_are_refused(predicted: np.ndarray, target: np.ndarray, told: str) -> None:
    with pytest.raises(InputError, match=told):
        action_errors(predicted, target)


# --- invalid answers


def episode(predicted: object, target: object, name: str = 'd/test/0') -> PredictedEpisode:
    return PredictedEpisode(episode_id=name, predicted=np.array(predicted, float), target=np.array(target, float))


NAN = [math.nan, math.nan]
HALF = episode([[0.0, 0.0], NAN, [1.0, 1.0], NAN], [[0.0, 0.0], [2.0, 0.0], [1.0, 1.0], [0.0, 3.0]])
SPACE = ActionSpace((Dimension('x', low=-1, high=4), Dimension('y', low=0, high=4)))


def test_excluded_invalid_answers_leave_the_rest() -> None:
    summary = summarize_actions([HALF], invalid='exclude')
    assert (summary.n_timesteps, summary.n_invalid, summary.invalid_rate) == (2, 2, 0.5)
    assert summary.amse == 0.0


def test_worst_takes_the_farther_end_of_the_range() -> None:
    """Targets (2, 0) and (0, 3): the farther ends are (-1, 4) and (4, 0), so errors (9 + 16)/2 and (16 + 9)/2."""
    summary = summarize_actions([HALF], invalid='worst', space=SPACE)
    assert (summary.n_timesteps, summary.n_invalid) == (4, 2)
    assert summary.amse == pytest.approx((0 + 12.5 + 0 + 12.5) / 4)
    with pytest.raises(InputError, match='needs the action space'):
        summarize_actions([HALF], invalid='worst')


def test_random_fill_is_uniform_seeded_and_independent_of_order() -> None:
    other = episode([NAN], [[0.5, 0.5]], 'd/test/1')
    a = summarize_actions([HALF, other], invalid='random', seed=5)
    b = summarize_actions([other, HALF], invalid='random', seed=5)
    c = summarize_actions([HALF, other], invalid='random', seed=6)
    assert a.amse == pytest.approx(b.amse)
    assert a.amse != pytest.approx(c.amse)
    many = episode(np.full((5000, 2), math.nan), np.zeros((5000, 2)))
    filled = resolve_invalid(many, 'random', seed=1)[0].predicted
    assert filled.min() >= 0
    assert filled.max() < 1
    assert filled.mean() == pytest.approx(0.5, abs=0.02)


def test_no_choice_scores_better_than_worst() -> None:
    chosen = {c: summarize_actions([HALF], invalid=c, space=SPACE).amse for c in ('random', 'worst', 'exclude')}
    assert chosen['worst'] >= max(chosen['random'], chosen['exclude'])


def test_an_invalid_last_answer_completes_nothing_whatever_the_choice() -> None:
    last = episode([[0.0, 0.0], NAN], [[0.0, 0.0], [0.5, 0.5]])
    for choice in ('random', 'worst', 'exclude'):
        summary = summarize_actions([last], invalid=choice, space=SPACE, tolerance=10.0)
        assert summary.completion_exact is not None
        assert summary.completion_tolerant is not None
        assert (summary.completion_exact.completed, summary.completion_tolerant.completed) == (0, 0)


def test_only_invalid_answers_leave_nothing_to_exclude() -> None:
    with pytest.raises(NotEstimable, match='nothing is left to score'):
        summarize_actions([episode([NAN], [[0.0, 0.0]])], invalid='exclude')


def test_a_dimension_that_is_not_predicted_is_left_out() -> None:
    partial = episode([[1.0, math.nan], [2.0, math.nan]], [[0.0, 5.0], [0.0, 5.0]])
    summary = summarize_actions([partial], space=SPACE)
    assert summary.dimensions == ('x',)
    assert summary.amse == pytest.approx(2.5)
    with pytest.raises(InputError, match='not predicted'):
        summarize_actions([partial], dimensions=[0, 1])
    with pytest.raises(InputError, match='predicted in some rows'):
        episode([[1.0, math.nan], [2.0, 0.0]], [[0.0, 5.0], [0.0, 5.0]])


# --- the summary against the plain functions and a brute-force bootstrap


def random_run(seed: int, episodes: int = 6) -> list[PredictedEpisode]:
    rng = np.random.default_rng(seed)
    made = []
    for number in range(episodes):
        target = rng.normal(size=(int(rng.integers(3, 12)), 3))
        made.append(episode(target + rng.normal(0, 0.5, target.shape), target, f'd/test/{number}'))
    return made


def test_every_measure_equals_its_plain_function() -> None:
    run = random_run(0)
    mean = np.array([0.1, -0.2, 0.3])
    found = summarize_actions(run, training_mean=mean)
    squared = [action_errors(e.predicted, e.target) for e in run]
    absolute = np.concatenate([absolute_errors(e.predicted, e.target) for e in run])
    baseline = np.concatenate([action_errors(np.tile(mean, (e.n_steps, 1)), e.target) for e in run])
    expected = {
        'amse': amse(squared),
        'amse_by_episode': amse_by_episode(squared),
        'namse': namse(np.concatenate(squared)),
        'amae': absolute.mean(),
        'namae': namse(absolute),
        'quantile_filtered_namae': quantile_filtered(absolute),
        'max_over_median': max_over_median(absolute),
        'share_beyond_three_medians': share_beyond_medians(absolute),
        'relative_to_mean': np.concatenate(squared).mean() / baseline.mean(),
    }
    for name, value in expected.items():
        assert found.measures[name].value == pytest.approx(value), name


def test_dimensions_and_phases_by_hand() -> None:
    run = [episode([[1.0, 0.0], [0.0, 0.0], [0.0, 3.0]], np.zeros((3, 2)))]
    found = summarize_actions(run)
    assert [m.value for m in found.by_dimension.values()] == pytest.approx([1 / 3, 3.0])
    assert [m.value for m in found.by_phase.values()] == pytest.approx([0.5, 0.0, 4.5])


def test_a_timestep_keeps_its_phase_when_others_are_left_out() -> None:
    """Six steps; the two of the start are invalid and excluded: the others are still middle and end."""
    predicted = np.array([[np.nan], [np.nan], [1.0], [1.0], [2.0], [2.0]])
    found = summarize_actions([episode(predicted, np.zeros((6, 1)))], invalid='exclude')
    assert found.by_phase['start'].value is None
    assert [found.by_phase[name].value for name in ('middle', 'end')] == [1.0, 4.0]


def test_dimension_errors_average_to_amse() -> None:
    found = summarize_actions(random_run(1))
    assert np.mean([m.value for m in found.by_dimension.values()]) == pytest.approx(found.amse)


def test_a_phase_that_no_episode_reaches_is_absent() -> None:
    found = summarize_actions([episode([[1.0, 0.0]], [[0.0, 0.0]])])
    assert found.by_phase['start'].value == 0.5
    assert found.by_phase['end'].value is None


def test_intervals_equal_a_brute_force_bootstrap_over_episodes() -> None:
    """The same draws of whole episodes, replicated and put through the plain functions one by one."""
    from robotrials.stats import resample_counts

    run = random_run(2)
    found = summarize_actions(run, n_resamples=200, seed=9)
    counts = resample_counts(len(run), n_resamples=200, rng=np.random.default_rng(9))
    squared = [action_errors(e.predicted, e.target) for e in run]
    absolute = [absolute_errors(e.predicted, e.target) for e in run]
    draws: dict[str, list[float]] = {}
    for row in counts:
        s = [squared[i] for i in np.repeat(np.arange(len(run)), row)]
        a = np.concatenate([absolute[i] for i in np.repeat(np.arange(len(run)), row)])
        for name, value in (
            ('amse', amse(s)), ('amse_by_episode', amse_by_episode(s)), ('namse', namse(np.concatenate(s))),
            ('namae', namse(a)), ('quantile_filtered_namae', quantile_filtered(a)),
            ('max_over_median', max_over_median(a)), ('share_beyond_three_medians', share_beyond_medians(a)),
        ):  # fmt: skip
            draws.setdefault(name, []).append(value)
    for name, values in draws.items():
        interval = found.measures[name].interval
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975]))), name


def test_one_episode_has_no_interval() -> None:
    found = summarize_actions(random_run(3, episodes=1), n_resamples=100)
    assert found.measures['amse'].interval is None
    assert 'one episode' in found.measures['amse'].why


def test_the_seed_changes_the_interval_and_repeats_it() -> None:
    run = random_run(4)
    a, b, c = (summarize_actions(run, n_resamples=100, seed=s).measures['amse'].interval for s in (1, 1, 2))
    assert a == b
    assert a != c


def test_batches_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    run = random_run(5)
    whole = summarize_actions(run, n_resamples=50).measures['amse'].interval
    monkeypatch.setattr('robotrials.measure.actions.metric.BATCH_ENTRIES', 100)
    assert summarize_actions(run, n_resamples=50).measures['amse'].interval == whole


def test_intervals_cover_the_truth() -> None:
    """Clustered data with a known mean squared error: about 95 % of intervals hold it (30 episodes, 200 runs)."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        scales = rng.exponential(1.0, 30)
        run = [s * rng.chisquare(1, size=10) for s in scales]
        interval = summarize_actions(run, n_resamples=200, seed=int(rng.integers(1 << 30))).measures['amse'].interval
        assert interval is not None
        hits += interval.contains(1.0)
    assert 0.86 <= hits / 200 <= 0.98
