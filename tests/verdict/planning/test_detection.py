"""Detection rates: what each test finds at each N, and which test is best when."""

from __future__ import annotations

import numpy as np
import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing import NullMethod, Operations, cohorts, macro_ks, scalar_tests
from robotrials.measure.timing.resample import contrast_trials, pair_layout
from robotrials.stats import wilson
from robotrials.testing.scene import paper_like_cohort
from robotrials.verdict.planning import AssumedCell, AssumedCurve, detection_rate, lognormal_curve
from robotrials.verdict.planning.power import subsamples

Cells = dict[str, Operations]


@pytest.fixture(scope='module')
def cells() -> dict[str, Cells]:
    found = cohorts(paper_like_cohort(np.random.default_rng(0)))
    return {name: dict(c.cells) for name, c in found.items() if not c.is_reference}


def test_every_pair_test_and_n_has_a_row_with_its_monte_carlo_interval(cells: dict[str, Cells]) -> None:
    study = detection_rate(cells, rng=np.random.default_rng(0), per_cell=[5, 10], n_trials=20, n_resamples=39)
    assert len(study.rows) == 6 * 2 * 4
    assert len(study.pairs) == 6
    row = study.rows[0]
    assert row.interval == wilson(row.n_detected, 20)
    assert 0 <= row.rate <= 1
    assert study.smallest(('act', 'smolvla'), 'rmst_s', target=0.0) == 5
    assert study.mean_rate('ks', 10) == pytest.approx(
        np.mean([r.rate for r in study.rows if r.metric == 'ks' and r.per_cell == 10])
    )


def test_the_study_does_not_depend_on_the_number_of_threads(cells: dict[str, Cells]) -> None:
    two = {k: cells[k] for k in ('act', 'groot')}
    for metrics in (['ks'], ['ks', 'rmst_s', 'chance_45s']):
        found = [
            detection_rate(two, rng=np.random.default_rng(3), per_cell=[6], n_trials=40, n_resamples=39,
                           metrics=metrics, threads=k)
            for k in (1, 2, 3)
        ]  # fmt: skip
        assert found[0] == found[1] == found[2]
    other = detection_rate(two, rng=np.random.default_rng(4), per_cell=[6], n_trials=40, n_resamples=39)
    assert other.rows[0] != found[0].rows[0] or other.rows[1].n_detected != found[0].rows[1].n_detected


def test_each_metric_is_the_same_alone_or_beside_the_others(cells: dict[str, Cells]) -> None:
    two = {k: cells[k] for k in ('act', 'groot')}
    both = detection_rate(two, rng=np.random.default_rng(3), per_cell=[8], n_trials=60, n_resamples=39)
    alone = detection_rate(two, rng=np.random.default_rng(3), per_cell=[8], n_trials=60, n_resamples=39, metrics=['ks'])
    assert alone.rows[0].n_detected == both.rows[0].n_detected


def test_one_trial_is_the_public_test_of_that_subsample(cells: dict[str, Cells]) -> None:
    """The study's p-values agree with macro_ks and scalar_tests on the drawn episodes, but for their draws."""
    a, b = cells['act'], cells['smolvla']
    layout = pair_layout(a, b, tau_s=120.0)
    units = subsamples(layout, 9, 3, rng=np.random.default_rng(0))
    sizes = np.full(4, 9)
    seen, null = contrast_trials(
        layout, units, n_a=sizes, n_b=sizes, n_resamples=600, method=NullMethod.PERMUTATION, seed=np.uint64(1),
        tau_s=120.0, thresholds_s=[30.0],
    )  # fmt: skip
    for trial in range(3):
        rows = np.split(units[trial], 4)
        arms = [
            {s: cell[s].take(r[part] - shift * a[s].n_episodes) for s, r in zip(a, rows, strict=True)}
            for cell, part, shift in ((a, slice(None, 9), 0), (b, slice(9, None), 1))
        ]
        ks = macro_ks(*arms, n_resamples=600, rng=np.random.default_rng(5), tau_s=120.0)
        tests = scalar_tests(
            *arms, tau_s=120.0, thresholds_s=[30.0], n_resamples=600, rng=np.random.default_rng(5)
        )  # fmt: skip
        macro = seen[trial].mean(axis=0)
        assert macro == pytest.approx([ks.statistic, tests['rmst_s'].difference, tests['chance_30s'].difference])
        p = (np.count_nonzero(np.abs(null[trial]) >= np.abs(macro) - 1e-12, axis=0) + 1) / 601
        assert p == pytest.approx([ks.p_value, tests['rmst_s'].p_value, tests['chance_30s'].p_value], abs=0.07)


def test_nothing_to_find_is_found_at_most_at_alpha() -> None:
    cell = {'s': AssumedCell(lognormal_curve(30.0, ceiling=0.9), 3, 0.5)}
    study = detection_rate(
        {'a': cell, 'b': cell}, rng=np.random.default_rng(0), per_cell=[8, 25], n_trials=400, n_resamples=99
    )
    for row in study.rows:
        assert row.rate < 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 400), row


# Which test is best when: three shapes of a difference, all in one stratum with one operation an episode.
CROSSING = (lognormal_curve(40.0, spread=0.35), lognormal_curve(40.0, spread=1.3))
DELAY = (lognormal_curve(30.0, spread=0.8), lognormal_curve(45.0, spread=0.8))
# Only the share that is done by 60 s differs: b is as fast until then, and catches up soon after.
NOTCH = (
    AssumedCurve(np.array([50.0, 58.0, 62.0, 200.0]), np.array([0.30, 0.60, 0.62, 0.95])),
    AssumedCurve(np.array([50.0, 58.0, 62.0, 70.0, 200.0]), np.array([0.30, 0.32, 0.34, 0.62, 0.95])),
)
CEILING = (lognormal_curve(20.0, spread=0.5, ceiling=0.95), lognormal_curve(20.0, spread=0.5, ceiling=0.75))
SHAPES = {'crossing': CROSSING, 'delay': DELAY, 'notch': NOTCH, 'ceiling': CEILING}


def rates_of(shape: str, n: int, n_trials: int, seed: int = 0) -> dict[str, float]:
    first, second = ({'s': AssumedCell(c)} for c in SHAPES[shape])
    study = detection_rate(
        {'a': first, 'b': second}, rng=np.random.default_rng(seed), per_cell=[n], n_trials=n_trials, n_resamples=199
    )
    return {r.metric: r.rate for r in study.rows}


def test_ks_beats_thresholds_and_means_on_crossing_curves() -> None:
    rates = rates_of('crossing', 40, 200)
    assert rates['ks'] > max(rates[m] for m in rates if m != 'ks') + 0.15


def test_a_threshold_at_the_right_time_and_a_mean_beat_ks_where_the_difference_is_theirs() -> None:
    notch = rates_of('notch', 60, 200)
    assert notch['chance_60s'] > notch['ks'] + 0.05
    assert notch['rmst_s'] < notch['chance_60s'] - 0.2
    delay = rates_of('delay', 40, 200)
    assert delay['rmst_s'] > delay['ks'] - 0.05


@pytest.mark.study
@pytest.mark.parametrize('shape', SHAPES)
def test_which_test_is_best_when(shape: str) -> None:
    """The table of docs/concepts/power.md."""
    for n in (20, 40, 80):
        rates = rates_of(shape, n, 2000)
        print(f'{shape:9s} N {n:2d} ' + '  '.join(f'{m} {r:.3f}' for m, r in rates.items()))
        best = max(rates, key=rates.__getitem__)
        if n == 40:
            assert best == {'crossing': 'ks', 'delay': 'rmst_s', 'notch': 'chance_60s', 'ceiling': 'rmst_s'}[shape]


def test_nonsense_is_refused(cells: dict[str, Cells]) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UnknownName, match='ks'):
        detection_rate(cells, rng=rng, metrics=['k'])
    with pytest.raises(InputError, match='none twice'):
        detection_rate(cells, rng=rng, metrics=['ks', 'ks'])
    with pytest.raises(UnknownName, match="did you mean 'groot'"):
        detection_rate(cells, rng=rng, pairs=[('act', 'grot')])
    with pytest.raises(InputError, match='no p-value as small'):
        detection_rate(cells, rng=rng, n_resamples=10)
    with pytest.raises(InputError, match='per_cell'):
        detection_rate(cells, rng=rng, per_cell=[1])
    with pytest.raises(InputError, match='at least two'):
        detection_rate({'act': cells['act']}, rng=rng)
    with pytest.raises(InputError, match='paired_swap'):
        detection_rate(cells, rng=rng, method='paired_swap')


def test_two_halves_of_one_policy_show_the_noise_of_a_pilot_as_their_null_rate() -> None:
    """Resampling takes a pilot's noise for an effect: what two halves of one policy show, their matched null shows."""
    rates, nulls = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        halves = {
            name: {'s': Operations(rng.exponential(30, 12), np.ones(12, dtype=bool), np.arange(12))} for name in 'ab'
        }
        study = detection_rate(halves, rng=rng, per_cell=[30], n_trials=60, n_resamples=39, metrics=['rmst_s'])
        rates.append(study.rows[0].rate)
        nulls.append(study.rows[0].null_rate)
    assert min(nulls) > 0.1
    assert np.mean(nulls) == pytest.approx(np.mean(rates), abs=0.25)
    far = {
        name: {'s': Operations(rng.exponential(mean, 40), np.ones(40, dtype=bool), np.arange(40))}
        for name, mean in (('a', 10), ('b', 60))
    }
    row = detection_rate(far, rng=rng, per_cell=[20], n_trials=60, n_resamples=39, metrics=['rmst_s']).rows[0]
    assert row.rate > 0.95
    assert row.null_rate < 0.6
