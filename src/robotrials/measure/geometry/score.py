"""Scores of placements: one trial against its target, and many trials in the ways of RADAR's tables.

Two quantities have two readings each in the paper, and both are kept under their own names: the expectation of IoU
(over splits, as the tables are computed, and over trials), and the translational error (over successes, as the tables
print it, and over all trials, as equation 6 says).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, Symmetry, box_from_pose, box_iou, box_pose_error
from robotrials.record import Episode, Trajectory
from robotrials.stats import Estimate, Interval, resample_counts, wilson
from robotrials.value import dataclass

SCORE_KIND = 'iou_3d'


@dataclass(frozen=True, slots=True)
class PlacementScore:
    """One trial: IoU with the target box, and success as IoU above the task's threshold (equation 5: strictly)."""

    iou: float
    translation_error_m: float
    alignment_angle_rad: float
    alignment_frobenius: float
    threshold: float

    @property
    def success(self) -> bool:
        return self.iou > self.threshold


def score_placement(result: Box, target: Box, *, threshold: float, symmetry: Symmetry | None = None) -> PlacementScore:
    """Score where an object ended against where it should be.

    `threshold` is the task's tau, in [0, 1); it has no default because the paper prints none. The symmetry is that of
    the target's edges unless it is given.
    """
    if not 0 <= threshold < 1:
        raise InputError(f'threshold must lie in [0, 1), found {threshold}')
    error = box_pose_error(result, target, symmetry=symmetry)
    return PlacementScore(box_iou(result, target), error.translation_m, error.angle_rad, error.frobenius, threshold)


def score_recorded_pose(
    trajectory: Trajectory, *, step: int = -1, threshold: float | None = None, symmetry: Symmetry | None = None
) -> PlacementScore:
    """Score a step of a recorded trajectory from the recorded pose of the target object: privileged, never from images.

    The object's edges are those of the target box; `threshold` is the recorded one unless it is given.
    """
    tau = trajectory.scene.target_threshold if threshold is None else threshold
    result, target = recorded_placement(trajectory, step=step)
    if tau is None:
        raise NotEstimable('a placement score needs the scene to record threshold; record it, or give one')
    return score_placement(result, target, threshold=tau, symmetry=symmetry)


def recorded_placement(trajectory: Trajectory, *, step: int = -1) -> tuple[Box, Box]:
    """The target object's box at a step, and the target box, as recorded; the object has the target's edges."""
    scene = trajectory.scene
    wanted = {'target_object': scene.target_object, 'target_center_m': scene.target_center_m,
              'target_size_m': scene.target_size_m}  # fmt: skip
    missing = [name for name, value in wanted.items() if value in (None, '')]
    if missing or scene.target_size_m is None or scene.target_center_m is None:
        raise NotEstimable(f'a placement needs the scene to record {", ".join(missing)}; record a target box')
    turn = np.eye(3) if scene.target_rotation is None else np.reshape(scene.target_rotation, (3, 3))
    target = Box(scene.target_center_m, scene.target_size_m, turn)
    return box_from_pose(trajectory.body(scene.target_object)[step], scene.target_size_m), target


def with_placement(episode: Episode, score: PlacementScore, *, source: str) -> Episode:
    """The episode with its placement recorded: IoU as `score` of 1, the rest as labels.

    `source` says what it was computed from ('reconstruction', 'recorded_pose', 'oracle_ids').
    """
    labels = {
        **episode.labels,
        'score_kind': SCORE_KIND,
        'score_source': source,
        'iou_threshold': repr(score.threshold),
        'translation_error_m': repr(score.translation_error_m),
        'alignment_angle_rad': repr(score.alignment_angle_rad),
    }
    return episode.replace(score=score.iou, max_score=1.0, labels=labels)


@dataclass(frozen=True, slots=True)
class PlacementTrial:
    """One trial for a summary. A failure's IoU may be unknown; `cluster` joins trials of the same scene."""

    split: str
    success: bool
    iou: float | None = None
    translation_error_m: float | None = None
    cluster: str = ''
    alignment_angle_rad: float | None = None


def placement_trial(episode: Episode) -> PlacementTrial:
    """What a valid episode tells: success by the recorded threshold if there is one, else the host's own."""
    if not episode.is_valid:
        raise InputError(f'episode {episode.episode_id} is INVALID; the policy was not tested, leave it out')
    is_scored = episode.labels.get('score_kind') == SCORE_KIND and episode.score is not None
    iou = episode.score if is_scored else None
    tau, error = episode.labels.get('iou_threshold'), episode.labels.get('translation_error_m')
    success = episode.is_success if iou is None or tau is None else iou > float(tau)
    start = episode.instance if episode.instance is not None else episode.seed
    scene = f'{episode.task}/{start}' if start is not None else episode.episode_id
    angle = episode.labels.get('alignment_angle_rad')
    return PlacementTrial(
        episode.stratum or episode.task, success, iou, float(error) if is_scored and error else None, scene,
        float(angle) if is_scored and angle else None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SplitScore:
    """One split of a table: counts, and the mean IoU of successes (None when nothing succeeded, or none is known)."""

    split: str
    successes: int
    n: int
    iou_of_successes: float | None

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.n or self.n == 0:
            raise InputError(
                f'split {self.split}: wanted 0 <= successes <= n and n > 0, found {self.successes}/{self.n}'
            )

    @property
    def success_rate(self) -> float:
        return self.successes / self.n


def expected_iou_over_splits(splits: Sequence[SplitScore]) -> float:
    """The tables' expectation of IoU: the mean over splits of SR x mean IoU of successes. A failure counts as zero."""
    if not splits:
        raise NotEstimable('the expectation of IoU needs at least one split, found none')
    parts = []
    for split in splits:
        if split.successes and split.iou_of_successes is None:
            raise NotEstimable(f'split {split.split} has {split.successes} successes and no IoU of them')
        parts.append(split.success_rate * split.iou_of_successes if split.iou_of_successes is not None else 0.0)
    return math.fsum(parts) / len(parts)


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """One split: counts, their Wilson interval, and means over successes and over all by name, with intervals."""

    split: str
    successes: int
    n: int
    success_interval: Interval
    iou_of_successes: Estimate | None
    iou_of_all: Estimate | None
    translation_error_of_successes_m: Estimate | None
    translation_error_of_all_m: Estimate | None


@dataclass(frozen=True, slots=True)
class PlacementSummary:
    """A row of RADAR's tables. An estimate is None where some IoU or distance that it needs is not known."""

    splits: tuple[SplitSummary, ...]
    successes: int
    n: int
    success_interval: Interval
    expected_iou_over_splits: Estimate | None  # the tables' own: mean over splits of SR x mean IoU of successes
    expected_iou_over_trials: Estimate | None  # mean over trials, a failure counting as zero
    mean_iou: Estimate | None  # plain mean over trials, a failure counting with its own IoU
    translation_error_of_successes_m: Estimate | None
    translation_error_of_all_m: Estimate | None
    alignment_angle_of_successes_rad: Estimate | None
    alignment_angle_of_all_rad: Estimate | None


def summarize_placements(
    trials: Iterable[PlacementTrial], *, n_resamples: int, rng: np.random.Generator, level: float = 0.95
) -> PlacementSummary:
    """Counts, both expectations of IoU and both translational errors, with intervals.

    Rates have Wilson intervals, the rest percentile bootstrap intervals that draw whole scenes within splits (none
    where no two values differ).
    """
    rows = list(trials)
    if not rows:
        raise NotEstimable('a summary of placements needs at least one valid trial, found none')
    names = list(dict.fromkeys(row.split for row in rows))
    weights = _scene_weights(rows, n_resamples=n_resamples, rng=rng)
    success = np.array([r.success for r in rows])
    iou, error, angle = (
        np.array([math.nan if (v := getattr(r, name)) is None else v for r in rows])
        for name in ('iou', 'translation_error_m', 'alignment_angle_rad')
    )
    code = np.array([names.index(r.split) for r in rows])
    kept = np.where(success, iou, 0.0)
    everything = np.ones(len(rows), dtype=np.bool_)

    def mean(values: FloatArray, where: BoolArray) -> Estimate | None:
        return _estimate([_mean(values, weights, where)], values[where], level)

    splits = tuple(
        SplitSummary(
            name, int(success[of].sum()), int(of.sum()), wilson(int(success[of].sum()), int(of.sum()), level),
            mean(iou, of & success), mean(iou, of), mean(error, of & success), mean(error, of),
        )
        for name, of in ((name, code == k) for k, name in enumerate(names))
    )  # fmt: skip
    return PlacementSummary(
        splits,
        int(success.sum()),
        len(rows),
        wilson(int(success.sum()), len(rows), level),
        _estimate([_mean(kept, weights, code == k) for k in range(len(names))], kept, level),
        mean(kept, everything),
        mean(iou, everything),
        mean(error, success),
        mean(error, everything),
        mean(angle, success),
        mean(angle, everything),
    )


def _scene_weights(rows: Sequence[PlacementTrial], *, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """How often each trial was drawn, (1 + n_resamples, trials); row 0 is the data themselves."""
    labels = [(r.split, r.cluster or f'trial {i}') for i, r in enumerate(rows)]
    scenes = list(dict.fromkeys(labels))
    index = {scene: i for i, scene in enumerate(scenes)}
    counts = resample_counts(np.array([split for split, _ in scenes]), n_resamples=n_resamples, rng=rng)
    drawn = counts[:, [index[label] for label in labels]].astype(np.float64)
    return np.concatenate([np.ones((1, len(rows))), drawn])


def _mean(values: FloatArray, weights: FloatArray, where: BoolArray) -> FloatArray:
    """Weighted means (1 + B,) over the chosen trials; NaN where a resample holds none of them."""
    chosen = weights[:, where]
    with np.errstate(invalid='ignore', divide='ignore'):
        return np.asarray(np.einsum('bn,n->b', chosen, values[where]) / chosen.sum(axis=1))


def _estimate(parts: Sequence[FloatArray], needed: FloatArray, level: float) -> Estimate | None:
    """The mean of the parts and its percentile interval; None if a needed value is unknown or nothing is there."""
    if not len(needed) or np.isnan(needed).any():
        return None
    draws = np.mean(parts, axis=0)
    tail = (1 - level) / 2
    resampled = draws[1:][~np.isnan(draws[1:])]
    if not len(resampled):
        return None
    low, high = np.quantile(resampled, [tail, 1 - tail])
    if not high > low:  # one value, or the same again and again: resamples know nothing of what was not seen
        return Estimate(float(draws[0]), None, 'no two values differ, so that resamples show no spread')
    return Estimate(float(draws[0]), Interval(float(low), float(high)))
