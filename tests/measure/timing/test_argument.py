"""What a stranger's script passes in: it works, or one line says what was wanted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing import (
    Operations,
    Scale,
    auc,
    cohorts,
    hrt,
    logrank,
    macro_band,
    macro_curve,
    macro_ks,
    score_cohort,
    success_curve,
    uph_of_rmst,
)
from robotrials.record import Episode, Outcome
from robotrials.stats import cluster_bootstrap, paired_wald
from robotrials.testing import paper_like_cohort
from robotrials.verdict.analysis.endpoint_pairs import compare_timing
from robotrials.verdict.planning import null_calibration

CELL = Operations(np.array([1.0, 2, 3]), np.ones(3, dtype=bool), np.arange(3))
OTHER = Operations(np.array([4.0, 5, 6, 7]), np.ones(4, dtype=bool), np.arange(4))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize('kind', [list, tuple, np.array])
def test_curves_take_plain_sequences_and_whole_numbers(kind: Any) -> None:
    curve = success_curve(kind([1, 2, 4]), kind([1, 1, 0]))
    assert curve.times_s.tolist() == [1, 2, 4]
    assert curve.chance == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert isinstance(curve.at(2), float)
    assert isinstance(curve.at(np.float32(2)), float)
    assert curve.at([0, 2, math.inf]) == pytest.approx([0, 2 / 3, 2 / 3])


@pytest.mark.parametrize('test', [macro_ks, compare_timing, hrt, auc])
def test_a_seed_is_not_a_generator(test: Any) -> None:
    with pytest.raises(InputError, match='default_rng'):
        test({'s': CELL}, {'s': OTHER}, rng=7, n_resamples=9)


@pytest.mark.parametrize('test', [macro_ks, compare_timing, hrt, auc])
def test_cells_must_be_named(test: Any) -> None:
    with pytest.raises(InputError, match='for a single cell pass'):
        test(CELL, OTHER, rng=rng(), n_resamples=9)
    with pytest.raises(InputError, match=r"stratum 's' holds list"):
        test({'s': [1.0]}, {'s': OTHER}, rng=rng(), n_resamples=9)
    with pytest.raises(InputError, match='found list'):
        logrank([CELL], {'s': OTHER})  # type: ignore[arg-type]


def test_resamples_are_counted_in_whole_numbers() -> None:
    assert macro_ks({'s': CELL}, {'s': OTHER}, rng=rng(), n_resamples=99.0).n_resamples == 99  # type: ignore[arg-type]
    with pytest.raises(InputError, match='n_resamples'):
        macro_ks({'s': CELL}, {'s': OTHER}, rng=rng(), n_resamples=0)
    with pytest.raises(InputError, match='tau_s'):
        auc({'s': CELL}, {'s': OTHER}, rng=rng(), tau_s=-1.0)


def test_quantile_levels_may_come_in_any_order() -> None:
    made = [Episode(policy='p', task='t', outcome=Outcome.SUCCESS, duration_s=float(i), seed=i) for i in range(1, 9)]
    score = score_cohort(cohorts(made)['p'], scale=Scale(levels=(0.75, 0.25)), rng=rng(), n_resamples=20)
    assert (score.macro['quantile_0.75_s'].value, score.macro['quantile_0.25_s'].value) == (6, 2)
    with pytest.raises(InputError, match='levels'):
        Scale(levels=(1.5,))


def test_a_band_is_in_time_order() -> None:
    bands = [macro_band({'': OTHER}, rng=rng(), grid_s=np.array(grid)) for grid in ([4.5, 6.5], [6.5, 4.5])]
    assert bands[0].times_s.tolist() == bands[1].times_s.tolist()
    assert bands[0].high.tolist() == bands[1].high.tolist()


def test_instant_success_has_an_infinite_pace() -> None:
    assert uph_of_rmst(success_curve([0, 0], [True, True]), 10) == math.inf


def test_macro_weights_name_every_stratum() -> None:
    curve = success_curve([1], [True])
    with pytest.raises(InputError, match='for each of x, y'):
        macro_curve({'x': curve, 'y': curve}, weights={'x': 1.0})


def test_calibration_knows_its_pairs_and_labels() -> None:
    found = cohorts(paper_like_cohort(rng(), objects=['o']))
    with pytest.raises(UnknownName, match="did you mean 'openpi'"):
        null_calibration(found, rng=rng(), pairs=[('opnpi', 'act')])
    with pytest.raises(UnknownName, match="did you mean 'tote_side'"):
        null_calibration(found, rng=rng(), label='tote')


def test_statistics_say_what_they_are_called_with() -> None:
    with pytest.raises(InputError, match='two_sample_wald'):
        paired_wald([1, 0, 1], [0, 0, 1])  # type: ignore[arg-type]
    with pytest.raises(InputError, match='weights'):
        cluster_bootstrap([1.0, 2.0], [0, 1], statistic=np.mean, n_resamples=9, rng=rng())  # type: ignore[arg-type]
    with pytest.raises(InputError, match='default_rng'):
        cluster_bootstrap([1.0, 2.0], [0, 1], n_resamples=9, rng=0)  # type: ignore[arg-type]
