"""Creeping overfitting: the paper's Table 5 at row level, and the word that needs a count."""

import itertools
from dataclasses import replace

import pytest

from robotrials.errors import InputError, NotEstimable
from robotrials.verdict.audit.outcome import InstanceOutcome
from robotrials.verdict.audit.overfit import (
    Alteration,
    ChangeKind,
    DropReading,
    TrainingCount,
    overfit,
    read_overfit,
    write_overfit,
)

TABLE_5 = {  # policy: calibration, then altered successes of 288, and the printed interval of X-VLA's stacked support
    'CogACT-Base': (60, {'reverse language': 28, 'stacked support': 64, 'random pose + arm': 31}),
    'InternVLA-M1': (73, {'reverse language': 46, 'stacked support': 60, 'random pose + arm': 46}),
    'X-VLA-WidowX': (172, {'reverse language': 153, 'stacked support': 90, 'random pose + arm': 160}),
    'Dexbotic': (129, {'reverse language': 137, 'stacked support': 79, 'random pose + arm': 112}),
}
PRINTED = {
    ('CogACT-Base', 'reverse language'): (11.11, 5.26, 16.95),
    ('X-VLA-WidowX', 'stacked support'): (28.47, 20.46, 35.96),
    ('Dexbotic', 'reverse language'): (-2.78, -10.84, 5.33),
}
COUNTS = TrainingCount(
    total=53_192, counts={'official': 41, 'reverse language': 30}, basis='words that name the colours in this order'
)


def run(successes, *, task='stack', grid=24, repeats=12):
    """288 outcomes over 24 start states, successes spread over them in turn."""
    order = [(repeat, number) for repeat, number in itertools.product(range(repeats), range(grid))]
    return [
        InstanceOutcome(
            task, f'instance={number} repeat={repeat}', int(i < successes), start=f'{task} instance={number}'
        )
        for i, (repeat, number) in enumerate(order)
    ]


@pytest.fixture(scope='module')
def published():
    calibration = {policy: run(x) for policy, (x, _) in TABLE_5.items()}
    changes = list(next(iter(TABLE_5.values()))[1])
    altered = {
        change: (ChangeKind.ALTERED, {p: run(row[change]) for p, (_, row) in TABLE_5.items()}) for change in changes
    }
    return overfit(
        calibration,
        altered,
        host='simpler',
        task='stack',
        training=COUNTS,
    )


def row_of(found, policy, change) -> Alteration:
    return next(r for r in found.rows if (r.policy, r.change) == (policy, change))


def test_drops_and_row_level_intervals_are_those_of_table_5(published):
    found = published
    for (policy, change), (drop, low, high) in PRINTED.items():
        row = row_of(found, policy, change)
        assert (100 * row.drop, 100 * row.low, 100 * row.high) == pytest.approx((drop, low, high), abs=0.006)


def test_overfitting_is_said_only_where_the_training_data_was_counted(published):
    found = published
    stacked = row_of(found, 'X-VLA-WidowX', 'stacked support')
    assert stacked.is_dropped
    assert found.reading(stacked) is DropReading.UNCOUNTED
    counted = TrainingCount(total=53_192, counts={'official': 41, 'stacked support': 30}, basis='words')
    assert replace(found, training=counted).reading(stacked) is DropReading.OVERFITTING
    assert replace(found, training=None).reading(stacked) is DropReading.UNCOUNTED
    reverse = row_of(found, 'CogACT-Base', 'reverse language')
    assert not reverse.is_dropped  # 11 points from 24 start states: the paper's interval takes 288 for independent
    assert reverse.low > 0


def test_a_change_that_training_hardly_holds_is_not_overfitting(published):
    rare = TrainingCount(total=100, counts={'official': 41, 'stacked support': 3}, basis='words')
    found = replace(published, training=rare)
    assert found.reading(row_of(found, 'X-VLA-WidowX', 'stacked support')) is DropReading.RARE
    absent = TrainingCount(total=100, counts={'official': 0, 'reverse language': 0}, basis='words')
    assert absent.is_in_support('reverse language') is False


def test_the_family_interval_is_wider_and_no_drop_stays_no_drop(published):
    found = published
    for row in found.rows:
        assert row.family_low <= row.contrast_low
        assert row.family_high >= row.contrast_high
    assert found.reading(row_of(found, 'Dexbotic', 'reverse language')) is DropReading.NO_DROP


def test_start_states_of_a_fresh_sample_are_not_those_of_the_grid():
    """All successes on one half of the starts: shared starts would cancel, other starts do not."""
    half = [
        InstanceOutcome('t', f'instance={i} repeat={r}', int(i < 12), start=f't instance={i}')
        for i in range(24)
        for r in range(12)
    ]
    kinds = {'same starts': ChangeKind.ALTERED, 'other starts': ChangeKind.FRESH}
    found = overfit(
        {'p': half},
        {name: (kind, {'p': half}) for name, kind in kinds.items()},
        host='h',
        task='t',
    )
    same, other = found.rows
    assert same.contrast_high - same.contrast_low < 0.3
    assert other.contrast_high - other.contrast_low > 0.5


def test_a_drop_on_fresh_samples_needs_a_count_but_no_share():
    counted = TrainingCount(total=60, counts={'official': 60, 'fresh': 0}, basis='starts')
    runs = ({'p': run(288)}, {'fresh': (ChangeKind.FRESH, {'p': run(30)})})
    found = overfit(*runs, host='h', task='stack', training=counted)
    assert found.reading(found.rows[0]) is DropReading.OVERFITTING
    assert replace(found, training=None).reading(found.rows[0]) is DropReading.UNCOUNTED


def test_the_result_survives_its_file(published, tmp_path):
    found = published
    assert read_overfit(write_overfit(found, tmp_path / 'overfit.json')) == found


@pytest.mark.parametrize(
    ('counts', 'message'),
    [({'official': 5}, 'cannot be'), ({'change': 1}, "wanted 'official' too")],
)
def test_bad_counts_are_refused(counts, message):
    with pytest.raises(InputError, match=message):
        TrainingCount(total=4, counts=counts, basis='words')


def test_nothing_run_raises():
    with pytest.raises(NotEstimable, match='no change'):
        overfit({'p': run(3)}, {}, host='h', task='t')


def test_a_policy_that_one_side_lacks_is_named():
    with pytest.raises(InputError, match='calibration has'):
        overfit({'p': run(3)}, {'c': (ChangeKind.ALTERED, {'q': run(2)})}, host='h', task='t')
