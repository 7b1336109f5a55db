"""Training mixes: RADAR's Table 2 recomputed, and which tasks each mix is trained on."""

import pytest

from robotrials.errors import InputError, NotEstimable
from robotrials.show.audit_data import mix_table, published_mix_table
from robotrials.stats import newcombe
from robotrials.verdict.audit.run_score import RADAR_TABLE_TWO, MixScore, TrainingMix, mixes, read_mix, write_mix


def test_expected_iou_of_radars_table_2_is_what_it_prints():
    """RADAR, Table 2: 0.2605, 0.2032 and 0.2674; 17, 10 and 12 of 32."""
    for row in RADAR_TABLE_TWO:
        assert row.recomputed_iou == pytest.approx(row.expected_iou, abs=1e-4)
    assert [row.total for row in RADAR_TABLE_TWO] == [(17, 32), (10, 32), (12, 32)]


def test_no_difference_of_radars_table_2_is_resolved():
    first = RADAR_TABLE_TWO[0].total
    for row in RADAR_TABLE_TWO[1:]:
        assert not newcombe(*first, *row.total).excludes(0.0)
    assert 'none is resolved' in published_mix_table().note


def test_mixes_are_one_some_and_all():
    made = mixes(('a', 'b', 'c'), ('a', 'b'))
    assert made['independent'] == {'a': ('a',), 'b': ('b',), 'c': ('c',)}
    assert made['blocks']['c'] == ('a', 'b')
    assert made['all']['a'] == ('a', 'b', 'c')
    assert list(mixes(('a', 'b'), ())) == ['independent', 'all']
    with pytest.raises(InputError, match="'d'"):
        mixes(('a', 'b'), ('d',))


def scores(outcomes):
    return TrainingMix(
        host='h', learner='probe',
        scores=tuple(MixScore(mix=m, task=t, trained_on=(t,), outcomes=o) for (m, t), o in outcomes.items()),
    )  # fmt: skip


FOUND = {
    ('independent', 'a'): (1, 1, 0),
    ('independent', 'b'): (1, 0, 0),
    ('all', 'a'): (0, 1, 0),
    ('all', 'b'): (1, 1, 1),
}


def test_a_table_has_a_row_per_mix_and_the_result_survives_its_file(tmp_path):
    found = scores(FOUND)
    assert mix_table(found).rows == (('independent', '2/3', '1/3', '3/6', 0.5), ('all', '1/3', '3/3', '4/6', 4 / 6))
    assert read_mix(write_mix(found, tmp_path / 'mix.json')) == found


def test_a_mix_that_lacks_a_task_or_an_outcome_is_refused():
    with pytest.raises(InputError, match='exactly once'):
        scores({k: v for k, v in FOUND.items() if k != ('all', 'b')})
    with pytest.raises(NotEstimable):
        MixScore(mix='m', task='t', trained_on=(), outcomes=())
