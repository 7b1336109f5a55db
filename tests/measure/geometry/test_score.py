"""RADAR's Tables 1 to 3, and the ways in which a placement is summed up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry import (
    Box,
    Cylinder,
    PlacementTrial,
    SplitScore,
    expected_iou_over_splits,
    placement_trial,
    score_placement,
    score_recorded_pose,
    summarize_placements,
    volumetric_iou,
    with_placement,
)  # fmt: skip
from robotrials.record import Episode, Scene, Trajectory

SPLITS = (('SingleBlock', 4), ('TwoBlock', 10), ('ThreeBlock', 10), ('Spatial', 8))
PRINTED = {
    # row: successes and mean IoU of each split, then the printed total and expectation
    'pi0': ((2, 0.3284), (0, None), (0, None), (0, None), 2, 0.0411),
    'pi0-FAST': ((2, 0.3797), (0, None), (0, None), (0, None), 2, 0.0475),
    'pi0.5, Independent, Baseline': ((4, 0.5216), (4, 0.4608), (6, 0.4816), (3, 0.1261), 17, 0.2605),
    'Mix Blocks': ((3, 0.6240), (3, 0.4378), (4, 0.5334), (0, None), 10, 0.2032),
    'Mix ALL': ((4, 0.6186), (4, 0.5711), (2, 0.4056), (2, 0.5655), 12, 0.2674),
    'Light': ((2, 0.5676), (0, None), (2, 0.4365), (0, None), 4, 0.0928),
    'Robot State': ((4, 0.5145), (3, 0.5072), (5, 0.4584), (0, None), 12, 0.2239),
    'Instruction': ((3, 0.3351), (2, 0.3849), (0, None), (0, None), 5, 0.0821),
    'Background': ((0, None), (0, None), (0, None), (0, None), 0, 0.0),
    'Sensor Noise': ((2, 0.3677), (1, 0.3972), (1, 0.4713), (0, None), 4, 0.0677),
    'Exposure+': ((1, 0.5409), (0, None), (1, 0.4411), (0, None), 2, 0.0448),
    'Exposure-': ((1, 0.5743), (0, None), (1, 0.4027), (0, None), 2, 0.0459),
}  # fmt: skip


@pytest.mark.parametrize('row', PRINTED)
def test_expectation_of_iou_is_that_of_tables_1_to_3(row: str) -> None:
    *cells, total, printed = PRINTED[row]
    splits = [SplitScore(name, k, n, iou) for (name, n), (k, iou) in zip(SPLITS, cells, strict=True)]
    assert expected_iou_over_splits(splits) == pytest.approx(printed, abs=1e-4)
    assert sum(s.successes for s in splits) == total


@pytest.mark.parametrize('row', PRINTED)
def test_trials_with_the_tables_counts_give_the_same_row(row: str) -> None:
    *cells, total, printed = PRINTED[row]
    trials = [
        PlacementTrial(name, i < k, iou if i < k else 0.01, 0.01 if i < k else 0.2)
        for (name, n), (k, iou) in zip(SPLITS, cells, strict=True)
        for i in range(n)
    ]
    summary = summarize_placements(trials, n_resamples=200, rng=np.random.default_rng(0))
    assert (summary.successes, summary.n) == (total, 32)
    assert summary.expected_iou_over_splits is not None
    assert summary.expected_iou_over_splits.value == pytest.approx(printed, abs=1e-4)
    over_trials = sum(t.iou or 0.0 for t in trials if t.success) / 32
    assert summary.expected_iou_over_trials is not None
    assert summary.expected_iou_over_trials.value == pytest.approx(over_trials)
    assert summary.translation_error_of_all_m is not None
    assert summary.translation_error_of_all_m.value == pytest.approx((total * 0.01 + (32 - total) * 0.2) / 32)
    if total:
        assert summary.translation_error_of_successes_m is not None
        assert summary.translation_error_of_successes_m.value == pytest.approx(0.01)
    else:
        assert summary.translation_error_of_successes_m is None


def test_every_estimate_of_a_split_has_an_interval_and_is_the_plain_mean() -> None:
    rng = np.random.default_rng(3)
    trials = [
        PlacementTrial(split, bool(rng.random() < 0.6), rng.random(), rng.random(), str(i), rng.random())
        for split in ('a', 'b')
        for i in range(25)
    ]
    summary = summarize_placements(trials, n_resamples=300, rng=rng)
    for split in summary.splits:
        rows = [t for t in trials if t.split == split.split]
        good = [t for t in rows if t.success]
        for found, values in (
            (split.iou_of_successes, [t.iou for t in good]),
            (split.iou_of_all, [t.iou for t in rows]),
            (split.translation_error_of_successes_m, [t.translation_error_m for t in good]),
            (split.translation_error_of_all_m, [t.translation_error_m for t in rows]),
        ):
            assert found is not None
            assert found.value == pytest.approx(np.mean(values))
            assert found.interval.low < found.value < found.interval.high
            # A percentile bootstrap of a mean is near the normal interval.
            assert found.interval.width == pytest.approx(2 * 1.96 * np.std(values) / math.sqrt(len(values)), rel=0.35)
    for angle, rows in (
        (summary.alignment_angle_of_successes_rad, [t for t in trials if t.success]),
        (summary.alignment_angle_of_all_rad, trials),
    ):
        assert angle is not None
        assert angle.value == pytest.approx(np.mean([t.alignment_angle_rad for t in rows]))


def test_a_success_without_iou_leaves_the_expectation_unknown() -> None:
    with pytest.raises(NotEstimable, match='no IoU'):
        expected_iou_over_splits([SplitScore('a', 1, 2, None)])
    summary = summarize_placements([PlacementTrial('a', True)], n_resamples=10, rng=np.random.default_rng(0))
    assert summary.expected_iou_over_splits is None


def test_a_failure_without_iou_counts_as_zero_and_has_no_plain_mean() -> None:
    trials = [PlacementTrial('a', True, 0.6, 0.01), PlacementTrial('a', False)]
    summary = summarize_placements(trials, n_resamples=10, rng=np.random.default_rng(0))
    assert summary.expected_iou_over_splits is not None
    assert summary.expected_iou_over_splits.value == pytest.approx(0.3)
    assert summary.mean_iou is None


def test_no_trials_are_not_estimable() -> None:
    with pytest.raises(NotEstimable):
        summarize_placements([], n_resamples=10, rng=np.random.default_rng(0))
    with pytest.raises(NotEstimable):
        expected_iou_over_splits([])


def test_the_interval_of_the_expectation_covers_the_truth() -> None:
    """Two splits of 30 trials; success 0.7 and 0.4, IoU of successes uniform in [0.3, 0.7]: the truth is 0.275."""
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(200):
        trials = [
            PlacementTrial(split, bool(good), float(iou) if good else None)
            for split, p in (('a', 0.7), ('b', 0.4))
            for good, iou in zip(rng.random(30) < p, rng.uniform(0.3, 0.7, 30), strict=True)
        ]
        found = summarize_placements(trials, n_resamples=200, rng=rng).expected_iou_over_splits
        assert found is not None
        inside += found.interval.contains(0.275)
    assert 0.88 <= inside / 200 <= 0.985


def test_success_is_strictly_above_the_threshold() -> None:
    unit = Box((0, 0, 0), (1, 1, 1), np.eye(3))
    half = Box((0, 0, 0.5), (1, 1, 1), np.eye(3))
    score = score_placement(half, unit, threshold=1 / 3)
    assert score.iou == pytest.approx(1 / 3)
    assert score_placement(half, unit, threshold=0.3).success
    assert not score_placement(half, unit, threshold=0.34).success
    assert score.translation_error_m == pytest.approx(0.5)
    with pytest.raises(InputError, match='threshold'):
        score_placement(half, unit, threshold=1.0)


def test_a_recorded_pose_is_scored_against_the_recorded_target() -> None:
    pose = np.tile([0.1, 0, 0.02, 1, 0, 0, 0], (3, 1, 1)).astype(float)
    pose[2, 0, 0] = 0.12
    scene = Scene(target_object='red', target_center_m=(0.12, 0, 0.02), target_size_m=(0.04,) * 3, target_threshold=0.5)
    trajectory = Trajectory(time_s=np.arange(3.0), bodies=('red',), body_pose=pose, scene=scene)
    assert score_recorded_pose(trajectory).success
    assert score_recorded_pose(trajectory, step=0).iou == pytest.approx(1 / 3)
    with pytest.raises(NotEstimable, match='target_center_m'):
        score_recorded_pose(Trajectory(time_s=np.arange(1.0), scene=Scene(target_object='red')))


def test_a_placement_lives_with_its_episode() -> None:
    episode = Episode(policy='p', task='stack', outcome='success', duration_s=1.0, stratum='TwoBlock', seed=3)
    score = score_placement(Box((0, 0, 0.5), (1, 1, 1)), Box((0, 0, 0), (1, 1, 1)), threshold=0.5)
    trial = placement_trial(with_placement(episode, score, source='reconstruction'))
    assert trial == PlacementTrial('TwoBlock', False, score.iou, 0.5, 'stack/3', 0.0)
    assert placement_trial(episode) == PlacementTrial('TwoBlock', True, None, None, 'stack/3')


def test_coaxial_cylinders_share_what_their_lengths_share() -> None:
    a, b = Cylinder((0, 0, 0), 0.03, height_m=0.1), Cylinder((0, 0, 0.05), 0.03, height_m=0.1)
    assert volumetric_iou(a, b, voxel_m=0.001) == pytest.approx(1 / 3, abs=0.01)
    tilted = Cylinder((0, 0, 0), 0.03, height_m=0.1, rotation=np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]]))
    low, high = tilted.bounds
    assert np.allclose(high - low, (0.1, 0.06, 0.06))
    assert a.volume == pytest.approx(math.pi * 0.0009 * 0.1)


def test_volumetric_iou_says_when_the_voxel_is_wrong() -> None:
    tiny = Cylinder((0, 0, 0), 1e-6, height_m=1e-6)
    with pytest.raises(NotEstimable, match='smaller voxel'):
        volumetric_iou(tiny, Cylinder((5e-6, 0, 0), 1e-6, height_m=1e-6), voxel_m=0.1)
    with pytest.raises(InputError, match='larger voxel'):
        volumetric_iou(Box((0, 0, 0), (10, 10, 10)), tiny, voxel_m=1e-3)
    with pytest.raises(InputError, match='voxel_m'):
        volumetric_iou(tiny, tiny, voxel_m=0)
