"""Sample sizes: published numbers, statsmodels, exact power by enumeration, simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.power import NormalIndPower

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import barnard_region, exact_mcnemar
from robotrials.stats.interval import two_sided_z
from robotrials.stats.proportion import barnard, wald_order
from robotrials.verdict.planning import (
    barnard_power,
    barnard_sample_size,
    cluster_sample_size,
    field_position,
    mcnemar_rollouts,
    mcnemar_sample_size,
    mean_sample_size,
    noninferiority_sample_size,
    paired_mean_sample_size,
    paired_noninferiority_sample_size,
    plan_size,
    plan_sizes,
    read_survey,
    two_proportion_power,
    two_proportion_sample_size,
    wilson_sample_size,
)


def test_wilson_numbers_of_phail_appendix_h() -> None:
    """About 380 for +-5 points is the worst case p = 0.5; at 0.70 the same width needs 320."""
    assert wilson_sample_size(0.05) == 381
    assert wilson_sample_size(0.05, 0.70) == 320
    assert wilson_sample_size(0.05, 0.70, formula='normal') == 323


@given(st.floats(0.01, 0.3), st.floats(0, 1), st.sampled_from([0.9, 0.95, 0.99]))
def test_wilson_size_is_the_smallest_that_is_narrow_enough(half: float, p: float, level: float) -> None:
    z = two_sided_z(level)

    def width(n: int) -> float:
        return z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)

    n = wilson_sample_size(half, p, level=level)
    assert width(n) <= half + 1e-9
    assert n == 1 or width(n - 1) > half - 1e-9


def test_connors_formula_gives_pairs_not_rollouts() -> None:
    """PhAIL's Appendix H prints 600 and 1,500; its own formula gives 312 and 783 pairs, 624 and 1,566 rollouts."""
    assert [mcnemar_sample_size(0.05, d) for d in (0.10, 0.25)] == [312, 783]
    assert [mcnemar_rollouts(0.05, d) for d in (0.10, 0.25)] == [624, 1566]


def test_connors_pairs_give_the_power_they_promise() -> None:
    rng = np.random.default_rng(0)
    pairs = mcnemar_sample_size(0.2, 0.4)
    counts = rng.multinomial(pairs, [0.3, 0.1, 0.6], size=4000)
    rejected = [exact_mcnemar(int(b), int(c), mid_p=True).p_value <= 0.05 for b, c, _ in counts]
    assert np.mean(rejected) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(('p1', 'p2'), [(0.5, 0.7), (0.1, 0.3), (0.9, 0.8)])
def test_two_proportions_of_fleiss_formula(p1: float, p2: float) -> None:
    """Unpooled against statsmodels' normal power with the true standardised effect; pooled against exact power."""
    sd = math.sqrt((p1 * (1 - p1) + p2 * (1 - p2)) / 2)
    theirs = NormalIndPower().solve_power(abs(p1 - p2) / sd, power=0.8, alpha=0.05)
    assert two_proportion_sample_size(p1, p2, variance='unpooled') == math.ceil(theirs)
    n = two_proportion_sample_size(p1, p2)
    assert two_proportion_power(p1, p2, n1=n, n2=n) == pytest.approx(0.8, abs=0.03)
    region = np.abs(wald_order(n, n)) > two_sided_z(0.95)
    k = np.arange(n + 1)
    pmf = [np.array([math.comb(n, int(i)) * p**i * (1 - p) ** (n - i) for i in k]) for p in (p1, p2)]
    assert two_proportion_power(p1, p2, n1=n, n2=n) == pytest.approx(float(pmf[0] @ region @ pmf[1]), abs=1e-10)


def test_published_two_proportion_sizes() -> None:
    """Fleiss, Levin and Paik (2003), without continuity correction: 0.60 against 0.70 needs 356 an arm at 80 %."""
    assert two_proportion_sample_size(0.60, 0.70) == pytest.approx(356, abs=1)


@pytest.mark.parametrize('alternative', ['two-sided', 'greater', 'less'])
def test_barnards_region_is_where_its_p_value_is_at_most_alpha(alternative: str) -> None:
    p = np.array([[barnard(x1, 17, x2, 12, alternative=alternative).p_value for x2 in range(13)] for x1 in range(18)])
    clear = np.abs(p - 0.05) > 1e-5
    region = barnard_region(17, 12, alpha=0.05, alternative=alternative)
    assert np.array_equal(region[clear], (p <= 0.05)[clear])


def test_barnard_size_reaches_its_power_by_enumeration() -> None:
    n = barnard_sample_size(0.3, 0.7)
    powers = [barnard_power(0.3, 0.7, n1=m, n2=m) for m in range(n - 1, n + 4)]
    assert powers[0] < 0.8 <= min(powers[1:])
    assert n == pytest.approx(two_proportion_sample_size(0.3, 0.7), abs=4)


def test_barnard_power_against_simulation() -> None:
    rng = np.random.default_rng(1)
    region = barnard_region(25, 25, alpha=0.05)
    drawn = region[rng.binomial(25, 0.4, 40_000), rng.binomial(25, 0.8, 40_000)].mean()
    assert barnard_power(0.4, 0.8, n1=25, n2=25) == pytest.approx(drawn, abs=0.01)


def test_a_size_too_large_to_enumerate_names_the_formula() -> None:
    with pytest.raises(NotEstimable, match='two_proportion_sample_size'):
        barnard_sample_size(0.70, 0.75)


def test_noninferiority_sizes() -> None:
    """2 x 0.85 x 0.15 x (1.645 + 0.842)^2 / 0.1^2 = 157.7 an arm; 0.2 x 6.18 / 0.01 = 123.7 pairs."""
    assert noninferiority_sample_size(0.85, 0.85, margin=0.10) == 158
    assert paired_noninferiority_sample_size(0.0, 0.2, margin=0.10) == 124
    with pytest.raises(InputError, match='inferior'):
        noninferiority_sample_size(0.7, 0.85, margin=0.1)


def test_mean_sizes_against_statsmodels() -> None:
    theirs = NormalIndPower().solve_power(0.5, power=0.9, alpha=0.01)
    assert mean_sample_size(1.0, (2.0, 2.0), power=0.9, alpha=0.01) == math.ceil(theirs)
    one_sample = NormalIndPower(ddof=0).solve_power(0.5, power=0.9, alpha=0.01, ratio=0)
    assert paired_mean_sample_size(1.0, 2.0, power=0.9, alpha=0.01) == math.ceil(one_sample)


def test_clusters_by_the_design_effect() -> None:
    assert cluster_sample_size(100, cluster_size=1, intraclass_correlation=0.9) == 100
    assert cluster_sample_size(100, cluster_size=4, intraclass_correlation=1) == 100
    assert cluster_sample_size(100, cluster_size=4, intraclass_correlation=0) == 25


def test_a_plan_multiplies_cells_and_pays_for_comparisons() -> None:
    plan = plan_size('paired', lambda a: mcnemar_sample_size(0.1, 0.3, 0.8, a), policies=4, tasks=3, conditions=2)
    assert plan.comparisons == 6 * 6
    assert plan.alpha_each == pytest.approx(0.05 / 36)
    assert plan.per_cell == mcnemar_sample_size(0.1, 0.3, 0.8, 0.05 / 36)
    assert plan.total == plan.per_cell * 24
    overall = plan_size('x', lambda a: 100, policies=3, tasks=7, claim='overall', contrast='against_reference')
    assert (overall.comparisons, overall.per_cell, overall.total) == (2, 15, 315)


def test_a_plans_table_has_one_row_a_design() -> None:
    rows = plan_sizes(0.7, 0.05, discordance=0.25, policies=2)
    assert (rows[0].per_cell, rows[2].per_cell) == (320, 779)  # by the rule; Connor's formula has 783
    many = plan_sizes(0.7, 0.05, discordance=0.25, policies=4, tasks=10)
    assert (many[0].comparisons, many[2].comparisons, many[0].per_cell) == (1, 60, 320)
    assert all(r.total == 2 * r.per_cell for r in rows)


def test_the_survey_is_phails_table_5() -> None:
    papers = read_survey()
    assert len(papers) == 14
    assert [p.name for p in papers if p.intervals] == ['LBM Examination']
    assert sum(p.n_low is None for p in papers) == 4


def test_a_plans_n_against_the_field() -> None:
    position = field_position(20)
    assert (position.papers_counted, position.papers_without_number) == (10, 4)
    assert position.more == ('ACT / ALOHA', 'LBM Examination')
    assert set(position.as_many) == {'RT-X / Open X-Embodiment', 'Mobile ALOHA', 'ECoT'}
    assert 'median 15' in str(position)
    assert ': more than all 10 surveyed papers that give a number (median' in str(field_position(334))
    assert ', as many as 3, fewer than 2 (median' in str(position)


@pytest.mark.parametrize(
    'call',
    [
        lambda: wilson_sample_size(5),
        lambda: wilson_sample_size(0.05, 70),
        lambda: wilson_sample_size(0.05, math.nan),
        lambda: mcnemar_sample_size(5, 0.1),
        lambda: mcnemar_sample_size(0.05, 0.01),
        lambda: mcnemar_sample_size(0, 0.1),
        lambda: mcnemar_sample_size(0.05, 0.1, power=80),
        lambda: two_proportion_sample_size(0.5, 0.5),
        lambda: two_proportion_sample_size(0.5, 1.5),
        lambda: mean_sample_size(0, (1, 1)),
        lambda: mean_sample_size(1, (-1, 1)),
        lambda: cluster_sample_size(10, cluster_size=0, intraclass_correlation=0.1),
        lambda: plan_size('x', lambda a: 1, policies=0),
        lambda: field_position(0),
    ],
)
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]
