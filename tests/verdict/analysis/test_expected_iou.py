"""E[IoU]: the row of the robustness tables, and disturbed episodes stay out of it."""

from __future__ import annotations

import pytest

from robotrials.measure.geometry.score import SCORE_KIND
from robotrials.record import Episode, Outcome
from robotrials.verdict.analysis import Absent, analyse, present
from robotrials.verdict.analysis.cameras import expected_iou, iou_caution


def placed(iou: float, seed: int, *, condition: str = 'nominal', source: str = 'recorded_pose') -> Episode:
    outcome = Outcome.SUCCESS if iou > 0.25 else Outcome.FAILURE
    labels = {'score_kind': SCORE_KIND, 'score_source': source, 'iou_threshold': '0.25'}
    return Episode(
        policy='p', task='single_block', outcome=outcome, success=iou > 0.25, duration_s=5.0, time_cap_s=10.0,
        score=iou, max_score=1.0, seed=seed, instance=seed, condition=condition, labels=labels,
    )  # fmt: skip


NOMINAL = [placed(iou, n) for n, iou in enumerate([0.9, 0.8, 0.7, 0.1])]


def test_it_is_the_mean_with_failures_as_zero_and_says_what_it_rests_on() -> None:
    alone = analyse(NOMINAL)
    assert present(expected_iou(alone, 'p')).value == pytest.approx((0.9 + 0.8 + 0.7) / 4)
    assert 'not on cameras' in iou_caution(alone)
    assert iou_caution(analyse([placed(0.9, 0, source='reconstruction')])) == ''


def test_disturbed_episodes_change_nothing_and_the_table_has_the_same_digits() -> None:
    both = analyse([*NOMINAL, *(placed(0.0, n, condition='light') for n in range(4))])
    found = present(expected_iou(both, 'p'))
    assert found.value == pytest.approx(0.6)
    (row,) = [r for r in present(both.robustness).rows if r.condition == 'nominal']
    assert found == row.summary.expected_iou_over_splits


def test_nothing_scored_is_absent() -> None:
    bare = Episode(policy='p', task='t', outcome=Outcome.SUCCESS, duration_s=1.0, seed=0)
    assert isinstance(expected_iou(analyse([bare]), 'p'), Absent)
