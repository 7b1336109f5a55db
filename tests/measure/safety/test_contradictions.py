"""The numbers of the pages of contradictions of SafeVLA-Bench and RADAR, from the papers' printed tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import fisher_exact

from robotrials.measure.safety import Severity, load_registry

PAGES = Path(__file__).parents[3] / 'docs' / 'concepts'
# Table 4, by policy: SR, Safety, SBU of Spatial, Object, Goal, Long; mean VSI.
TABLE_4 = {
    'OpenVLA': ((83.5, 69.5, 83.5, 40.0), (78.0, 86.0, 85.5, 85.5), (9.5, 0.0, 8.0, 5.5), 0.113),
    'Cosmos': ((97.5, 100.0, 97.5, 86.0), (80.0, 91.5, 89.0, 88.0), (17.5, 8.5, 10.5, 7.5), 0.072),
    'GR00T': ((97.5, 99.0, 95.5, 85.0), (74.5, 92.0, 93.0, 81.0), (23.0, 8.0, 5.5, 14.0), 0.077),
    'pi0.5': ((99.0, 100.0, 99.0, 88.5), (75.5, 99.0, 86.0, 84.0), (23.5, 1.0, 13.0, 13.5), 0.070),
    'pi-RL': ((97.7, 98.7, 97.0, 76.2), (87.1, 99.0, 89.6, 85.6), (10.8, 0.3, 9.5, 11.5), 0.053),
}  # fmt: skip
TABLE_5 = ((32.4, 44.6, 12.2, 0.197), (42.3, 55.7, 15.4, 0.113), (47.2, 40.7, 26.3, 0.173), (58.4, 54.1, 23.1, 0.132))
TABLE_7 = {
    'OpenVLA': ((1.0, 10.0, 0, 0, 12.5), (0, 1.5, 0, 0, 13.0), (12.0, 0, 3.0), (5.5, 6.0, 3.5, 0, 0, 0)),
    'Cosmos': ((0, 20.0, 0, 0, 1.5), (0, 8.5, 0, 0, 0), (11.0, 0, 0.5), (3.0, 7.0, 2.0, 0, 0, 0)),
    'GR00T': ((0.5, 25.5, 0, 0, 2.0), (0, 8.0, 0, 0, 0), (7.0, 0, 0.5), (8.0, 10.0, 2.5, 0, 0, 2.0)),
    'pi0.5': ((1.0, 23.5, 0, 0, 0), (0, 1.0, 0, 0, 0), (13.5, 0, 0.5), (7.5, 6.0, 2.5, 0, 0, 0)),
}  # fmt: skip


def page(name: str) -> str:
    return (PAGES / f'{name}-contradictions.md').read_text(encoding='utf-8')


def test_table_nines_default_row_is_the_mean_of_tables_four_and_five() -> None:
    safety, sbu = (np.mean([row[k] for row in TABLE_4.values()]) for k in (1, 2))
    assert (round(safety, 1), round(sbu, 1)) == (86.5, 10.0)
    assert round(np.mean([row[3] for row in TABLE_4.values()]), 3) == 0.077
    assert np.mean(TABLE_5, axis=0)[1:] == pytest.approx([48.775, 19.25, 0.15375])
    assert '86.5, 10.0, 0.077' in page('safety')
    assert '48.8, 19.3, 0.154' in page('safety')


def test_unsafe_given_success_is_a_mean_of_ratios() -> None:
    ratios = [s / q for sr, _, sbu, _ in TABLE_4.values() for q, s in zip(sr, sbu, strict=True)]
    pooled = sum(map(sum, (row[2] for row in TABLE_4.values()))) / sum(map(sum, (row[0] for row in TABLE_4.values())))
    assert [round(100 * value, 1) for value in (np.mean(ratios), pooled)] == [11.2, 11.2]
    counts = ((110, 292), (139, 381), (237, 425), (208, 526))
    assert [round(100 * a / b, 1) for a, b in counts] == [37.7, 36.5, 55.8, 39.5]
    assert round(100 * np.mean([a / b for a, b in counts]), 1) == 42.4
    assert round(100 * sum(a for a, _ in counts) / sum(b for _, b in counts), 1) == 42.7
    for text in ('37.7, 36.5, 55.8, 39.5 %', '42.4 against 42.7'):
        assert text in page('safety')


def test_rates_of_specs_fit_the_unsafe_share_of_their_cell() -> None:
    for policy, suites in TABLE_7.items():
        for rates, safety in zip(suites, TABLE_4[policy][1], strict=True):
            assert max(rates) <= 100 - safety + 0.05 <= sum(rates) + 0.1


def test_nearly_every_failure_of_a_strong_policy_is_unsafe_on_spatial() -> None:
    failures = {p: 100 - sr[0] for p, (sr, _, _, _) in TABLE_4.items()}
    unsafe = {p: 100 - safety[0] - sbu[0] for p, (_, safety, sbu, _) in TABLE_4.items()}
    shares = {p: unsafe[p] / failures[p] for p in failures}
    assert shares['pi0.5'] == shares['Cosmos'] == shares['GR00T'] == pytest.approx(1.0)
    assert shares['pi-RL'] > 0.9


def test_the_severe_anchor_is_not_severe_by_equation_one() -> None:
    force = load_registry().spec('max_contact_force_under_200N')
    assert force.depth(200 - 500) == pytest.approx(0.6)
    assert force.depth(200 - 700) == 1.0
    assert force.depth(200 - 500, severity=Severity.ANCHORED) == 1.0


def test_the_literal_gate_caps_what_tilt_can_weigh() -> None:
    """Table 9: 49.9 to 52.7 % safe and VSI 0.154 to 0.153, from 20 to 30 degrees."""
    freed, fell = (52.7 - 49.9) / 100, 0.154 - 0.153
    assert freed * (20 - 15) / 30 > 4 * fell
    assert freed * 0.5 / 30 < fell  # which the literal gate allows


def test_the_example_and_the_goal_suite_have_the_counts_of_appendix_d() -> None:
    registry = load_registry()
    goal = [len(registry.active('libero-goal', f'task_{k}')) for k in range(10)]
    assert sum(goal) / 10 == 4.4
    assert len(registry.active('libero-spatial', 'task_0')) == 5


RADAR = {  # Table 1 and 3: successes, trials and mean IoU of successes by split; the printed expectation
    'pi0.5': (((4, 4, 0.5216), (4, 10, 0.4608), (6, 10, 0.4816), (3, 8, 0.1261)), 0.2605),
    'Robot State': (((4, 4, 0.5145), (3, 10, 0.5072), (5, 10, 0.4584), (0, 8, 0.0)), 0.2239),
    'Exposure-': (((1, 4, 0.5743), (0, 10, 0.0), (1, 10, 0.4027), (0, 8, 0.0)), 0.0459),
    'Mix ALL': (((4, 4, 0.6186), (4, 10, 0.5711), (2, 10, 0.4056), (2, 8, 0.5655)), 0.2674),
}  # fmt: skip


def test_radars_expectation_is_a_mean_over_splits_and_two_of_its_rows_are_cut() -> None:
    for splits, printed in RADAR.values():
        expectation = np.mean([k / n * iou for k, n, iou in splits])
        assert expectation == pytest.approx(printed, abs=1e-4)
    assert np.mean([k / n * iou for k, n, iou in RADAR['Robot State'][0]]) == pytest.approx(0.22397, abs=1e-5)
    assert np.mean([k / n * iou for k, n, iou in RADAR['Exposure-'][0]]) == pytest.approx(0.04596, abs=1e-5)
    pooled = sum(k * iou for k, _, iou in RADAR['pi0.5'][0]) / 32
    assert f'{pooled:.4f}' in page('radar')


def test_a_mean_overlap_of_an_eighth_is_a_shift_by_four_fifths_of_a_cube() -> None:
    share = 2 * 0.1261 / (1 + 0.1261)  # of each cube that both share
    assert f'{100 * (1 - share):.0f} % of their edge' in page('radar')


def test_paraphrases_cost_the_policy_most_of_its_successes() -> None:
    p_value = fisher_exact([[17, 15], [5, 27]]).pvalue
    assert f"{p_value:.3f} by Fisher's" in page('radar')
