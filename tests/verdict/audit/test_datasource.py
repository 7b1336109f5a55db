"""Data-source dependence: Table 9, points pooled over tasks, and a fall that must be shown."""

import dataclasses
import json

import pytest

from robotrials.errors import InputError, NotEstimable
from robotrials.show.audit_data import distance_plot, fall_table, point_table, published_table
from robotrials.show.plot_page import paint_page
from robotrials.verdict.audit.datasource import (
    TABLE_NINE,
    DataSource,
    SourcePoint,
    SourceProtocol,
    read_datasource,
    write_datasource,
)

PROTOCOL = SourceProtocol(host='tabletop', learner='lookup', seed=1, grid=12)


def point(asked_m, successes, *, task='t', n=12, **more):
    near = max(0.0016, asked_m)
    return SourcePoint(
        task=task, asked_m=asked_m, n_demonstrations=60, n_tried=60, outcomes=(1,) * successes + (0,) * (n - successes),
        nearest_m=(near,) * n, nearest_deg=(5.0,) * n, images={'pixels': (10 * near,) * n}, n_same=0,
        n_leaked=n if asked_m < 0.005 else 0, **more,
    )  # fmt: skip


def test_table_9_sums_to_91_of_96():
    """Appendix A.3, Table 9: 100.0, 95.8, 87.5, 95.8 and 94.8 %."""
    rates = [f'{100 * x / n:.1f}' for _, _, x, n in TABLE_NINE]
    assert rates == ['100.0', '95.8', '87.5', '95.8']
    assert published_table().rows[-1] == ('All four', 480, 91, 96, pytest.approx(94.79, abs=0.01))


def test_a_score_that_falls_is_told_start_by_start():
    fall = DataSource(protocol=PROTOCOL, points=(point(0.0, 11), point(0.05, 7), point(0.1, 1))).fall()
    assert (fall.near.successes, fall.far.successes) == (11, 1)
    assert (fall.won_near_only, fall.won_far_only) == (10, 0)
    assert fall.contrast.p_value == pytest.approx(2**-9), 'ten of twelve starts: the exact test, two-sided'
    assert fall.is_resolved


def test_a_score_that_stays_is_not_called_a_fall():
    found = DataSource(protocol=PROTOCOL, points=(point(0.0, 11), point(0.1, 10)))
    assert not found.fall().is_resolved
    rising = DataSource(protocol=PROTOCOL, points=(point(0.0, 1), point(0.1, 11)))
    assert not rising.fall().is_resolved
    assert rising.fall().contrast.p_value == pytest.approx(2**-9), 'the reverse, and no fall'


def test_tasks_are_pooled_and_the_curve_goes_by_measured_distance():
    points = [point(d, x, task=t) for t, x in (('a', 12), ('b', 6)) for d in (0.1, 0.0)]
    found = DataSource(protocol=PROTOCOL, points=tuple(points))
    assert [p.asked_m for p in found.curve()] == [0.0, 0.1]
    assert (found.pooled(0.0).successes, found.pooled(0.0).n, found.pooled(0.0).n_leaked) == (18, 24, 24)


@pytest.mark.parametrize(
    'points',
    [(point(0.0, 3), point(0.0, 4)), (point(0.0, 3, task='a'), point(0.1, 4, task='b'))],
)
def test_points_that_would_mix_tasks_are_refused(points):
    with pytest.raises(InputError):
        DataSource(protocol=PROTOCOL, points=points)


def test_no_episode_is_no_score():
    with pytest.raises(NotEstimable, match='no valid episode'):
        point(0.0, 0, n=0)
    with pytest.raises(NotEstimable, match='one distance'):
        DataSource(protocol=PROTOCOL, points=(point(0.0, 3),)).fall()


def test_the_result_survives_its_file_and_another_file_is_refused(tmp_path):
    found = DataSource(protocol=PROTOCOL, points=(point(0.0, 11, parameters=None), point(0.1, 2, parameters=7)))
    path = write_datasource(found, tmp_path / 'datasource.json')
    assert read_datasource(path) == found
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, 'format': 'trialist-overfit'}))
    with pytest.raises(InputError, match='wanted trialist-datasource'):
        read_datasource(path)
    points = [{**content['points'][0], 'outcomes': [1] * 12}, content['points'][1]]
    path.write_text(json.dumps({**content, 'points': points}))
    with pytest.raises(InputError, match='was changed after it was written'):
        read_datasource(path)
    path.write_text('[' * 200_000)
    with pytest.raises(InputError, match='cannot be read'):
        read_datasource(path)


def test_tables_and_chart_show_counts_and_say_existence():
    found = DataSource(protocol=PROTOCOL, points=(point(0.0, 11), point(0.1, 2)))
    shown = point_table(found)
    assert 'existence' in shown.note
    assert [row[0] for row in shown.rows] == ['t', 't']
    assert fall_table(found).rows[0][-1] is True
    assert 'lookup' in paint_page(distance_plot(found)).alt
    without = DataSource(protocol=PROTOCOL, points=(dataclasses.replace(point(0.0, 3), images={}),))
    assert len(point_table(without).columns) == len(shown.columns) - 1
