"""Spatial-configuration sensitivity: does success depend on where the object started?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.record import Episode, Trajectory
from robotrials.stats import Interval, newcombe

FloatArray = NDArray[np.floating[Any]]
NEIGHBOURS = 4
LEAST_TRIALS = 12
FEW_STARTS = 1000
BATCH_ENTRIES = 4_000_000


@dataclass(frozen=True, slots=True)
class StartTrial:
    """Where the target stood at the start, and whether the episode succeeded."""

    policy: str
    x_m: float
    y_m: float
    success: bool
    episode_id: str = ''


@dataclass(frozen=True, slots=True)
class SpatialSensitivity:
    """One policy: whether near starts share their outcome, and what distance from the usual start costs."""

    policy: str
    n: int
    agreement: float  # share of neighbours with the same outcome
    expected_agreement: float  # with outcomes shuffled over the starts
    p_value: float
    near_rate: float  # success of the half of starts nearest to their middle
    far_rate: float
    distance_drop: float  # near minus far
    distance_interval: Interval
    distance_p_value: float


def start_trial(episode: Episode, trajectory: Trajectory | None = None) -> StartTrial | None:
    """From the labels `start_x_m` and `start_y_m`, or else from the recorded pose of the target object."""
    success = episode.success if episode.success is not None else episode.outcome == 'success'
    if 'start_x_m' in episode.labels and 'start_y_m' in episode.labels:
        x, y = float(episode.labels['start_x_m']), float(episode.labels['start_y_m'])
        return StartTrial(episode.policy, x, y, success, episode.episode_id)
    target = trajectory.scene.target_object if trajectory is not None else ''
    if trajectory is None or trajectory.body_pose is None or target not in trajectory.bodies:
        return None
    x, y = (float(v) for v in trajectory.body(target)[0, :2])
    return StartTrial(episode.policy, x, y, success, episode.episode_id)


def spatial_sensitivities(
    trials: Iterable[StartTrial], *, n_resamples: int, rng: np.random.Generator, level: float = 0.95
) -> list[SpatialSensitivity]:
    """A test for every policy with at least a dozen trials from different starts."""
    rows = list(trials)
    found = []
    for policy in dict.fromkeys(t.policy for t in rows):
        cell = [t for t in rows if t.policy == policy]
        starts = np.array([[t.x_m, t.y_m] for t in cell])
        if len(cell) >= LEAST_TRIALS and len(np.unique(starts, axis=0)) >= LEAST_TRIALS:
            found.append(_sensitivity(policy, starts, [t.success for t in cell], n_resamples, rng, level))
    if not found:
        raise NotEstimable(f'spatial sensitivity needs {LEAST_TRIALS} different starts of one policy')
    return found


def nearest_starts(starts: FloatArray) -> NDArray[np.int64]:
    """The `NEIGHBOURS` nearest other starts of each, (n, NEIGHBOURS), of equally near ones the first in order.

    Many starts are looked up in a tree of the distinct places, since a table of all distances grows with their square.
    """
    if len(starts) <= FEW_STARTS:
        return _nearest_of(starts, np.arange(len(starts)), starts)
    from scipy.spatial import cKDTree

    places, group = np.unique(starts, axis=0, return_inverse=True)
    members = np.split(np.argsort(group.ravel(), kind='stable'), np.cumsum(np.bincount(group.ravel()))[:-1])
    tree = cKDTree(places)
    reach = np.asarray(tree.query(places, k=min(NEIGHBOURS + 1, len(places)))[0])[:, -1]
    found = np.empty((len(starts), NEIGHBOURS), np.int64)
    for place, own in enumerate(members):
        # Of one place no more than these can be among the nearest; a hair is added to keep what is equally far.
        within = tree.query_ball_point(places[place], reach[place] * (1 + 1e-9))
        rows = np.sort(np.concatenate([members[k][: NEIGHBOURS + 1] for k in within]))
        found[own] = _nearest_of(places[[place]], own, starts[rows], rows)
    return found


def _nearest_of(
    origins: FloatArray, own: NDArray[np.int64], starts: FloatArray, rows: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Of `starts`, which are those of `rows`, the nearest to each of `own`, itself left out."""
    numbers = np.arange(len(starts)) if rows is None else rows
    apart = np.linalg.norm(origins[:, None] - starts[None], axis=2)
    apart = np.where(own[:, None] == numbers[None], np.inf, apart)
    return numbers[np.argsort(apart, axis=1, kind='stable')[:, :NEIGHBOURS]]


def _sensitivity(
    policy: str, starts: FloatArray, success: Sequence[bool], n_resamples: int, rng: np.random.Generator, level: float
) -> SpatialSensitivity:
    outcome = np.array(success)
    near = nearest_starts(starts)
    distance = np.linalg.norm(starts - np.median(starts, axis=0), axis=1)
    is_far = np.argsort(np.argsort(distance, kind='stable')) >= len(distance) / 2
    agreement = float((outcome[near] == outcome[:, None]).mean())
    drop = float(outcome[~is_far].mean() - outcome[is_far].mean())
    agreements, drops = np.empty(n_resamples), np.empty(n_resamples)
    batch = max(1, BATCH_ENTRIES // near.size)
    for first in range(0, n_resamples, batch):
        rows = slice(first, min(first + batch, n_resamples))
        shuffled = np.array([rng.permutation(outcome) for _ in range(rows.start, rows.stop)])
        agreements[rows] = (shuffled[:, near] == shuffled[:, :, None]).mean(axis=(1, 2))
        drops[rows] = shuffled[:, ~is_far].mean(axis=1) - shuffled[:, is_far].mean(axis=1)
    k_near, k_far = int(outcome[~is_far].sum()), int(outcome[is_far].sum())
    n_near, n_far = int((~is_far).sum()), int(is_far.sum())
    return SpatialSensitivity(
        policy,
        len(outcome),
        agreement,
        float(agreements.mean()),
        float((1 + np.count_nonzero(agreements >= agreement - 1e-12)) / (n_resamples + 1)),
        k_near / n_near,
        k_far / n_far,
        drop,
        newcombe(k_near, n_near, k_far, n_far, level),
        float((1 + np.count_nonzero(np.abs(drops) >= abs(drop) - 1e-12)) / (n_resamples + 1)),
    )
