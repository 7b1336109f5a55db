"""Spatial-configuration sensitivity: does success depend on where the object started?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.record import Episode, Trajectory
from robotrials.stats import Interval, newcombe
from robotrials.value import dataclass

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
    labelled = _labelled_start(episode)
    if labelled is not None:
        return StartTrial(episode.policy, *labelled, success, episode.episode_id)
    target = trajectory.scene.target_object if trajectory is not None else ''
    if trajectory is None or trajectory.body_pose is None or target not in trajectory.bodies:
        return None
    x, y = (float(v) for v in trajectory.body(target)[0, :2])
    return StartTrial(episode.policy, x, y, success, episode.episode_id)


def _labelled_start(episode: Episode) -> tuple[float, float] | None:
    """None where the labels are missing or no numbers: labels are free text, and must not stop other questions."""
    try:
        x, y = float(episode.labels['start_x_m']), float(episode.labels['start_y_m'])
    except (KeyError, ValueError):
        return None
    return (x, y) if math.isfinite(x) and math.isfinite(y) else None


def spatial_sensitivities(
    trials: Iterable[StartTrial], *, n_resamples: int, rng: np.random.Generator, level: float = 0.95
) -> list[SpatialSensitivity]:
    """A test for every policy with at least a dozen trials from different starts."""
    rows = list(trials)
    sensitivities = []
    for policy in dict.fromkeys(t.policy for t in rows):
        cell = [t for t in rows if t.policy == policy]
        starts = np.array([[t.x_m, t.y_m] for t in cell])
        if len(cell) >= LEAST_TRIALS and len(np.unique(starts, axis=0)) >= LEAST_TRIALS:
            sensitivities.append(_sensitivity(policy, starts, [t.success for t in cell], n_resamples, rng, level))
    if not sensitivities:
        raise NotEstimable(f'spatial sensitivity needs {LEAST_TRIALS} different starts of one policy')
    return sensitivities


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
    nearest = np.empty((len(starts), NEIGHBOURS), np.int64)
    for place, own in enumerate(members):
        # Of one place no more than these can be among the nearest; a hair is added to keep what is equally far.
        within = tree.query_ball_point(places[place], reach[place] * (1 + 1e-9))
        rows = np.sort(np.concatenate([members[k][: NEIGHBOURS + 1] for k in within]))
        nearest[own] = _nearest_of(places[[place]], own, starts[rows], rows)
    return nearest


def _nearest_of(
    origins: FloatArray, own: NDArray[np.int64], starts: FloatArray, rows: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Of `starts`, which are those of `rows`, the nearest to each of `own`, itself left out."""
    numbers = np.arange(len(starts)) if rows is None else rows
    distances = np.linalg.norm(origins[:, None] - starts[None], axis=2)
    distances = np.where(own[:, None] == numbers[None], np.inf, distances)
    return numbers[np.argsort(distances, axis=1, kind='stable')[:, :NEIGHBOURS]]


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


# What a change of start states amounts to: how far the target and the arm really are from where they were.
# A drop of zero under a change that moved nothing says nothing of a policy. LIBERO-Object's fresh starts are such a
# change: the objects around the target are placed anew, and the target stays.

STAYS_MM = 1.0  # below this, a body is where it was
Place = tuple[float, float, float]
Pose = Sequence[float] | NDArray[np.floating[Any]]  # a place in metres, then a rotation


@dataclass(frozen=True, slots=True)
class StartPlace:
    """Where the target and the end effector stood at the start of an episode, in metres; None where unknown."""

    task: str
    condition: str
    target: Place | None
    arm: Place | None

    @classmethod
    def of(
        cls, task: str, condition: str, *, target: Sequence[float] | None, arm: Sequence[float] | None
    ) -> StartPlace:
        """From poses, whose first three numbers are places."""
        return cls(task, condition, *(None if pose is None else _place(pose) for pose in (target, arm)))


@dataclass(frozen=True, slots=True)
class StartSpread:
    """One task under one condition: root mean square distances from the middle of the task's baseline starts."""

    task: str
    condition: str
    n: int
    target_mm: float | None
    arm_mm: float | None
    baseline_target_mm: float | None  # of the baseline's own starts
    baseline_arm_mm: float | None

    @property
    def target_stays(self) -> bool:
        return self.target_mm is not None and self.target_mm < STAYS_MM


def start_place(episode: Episode, trajectory: Trajectory | None, *, condition: str) -> StartPlace | None:
    """What a trajectory's first step shows; None if it shows neither."""
    if trajectory is None or not trajectory.n_steps:
        return None
    target, arm = None, None if trajectory.ee_pose is None else trajectory.ee_pose[0]
    if trajectory.body_pose is not None and trajectory.scene.target_object in trajectory.bodies:
        target = trajectory.body(trajectory.scene.target_object)[0]
    if target is None and arm is None:
        return None
    return StartPlace.of(episode.task, condition, target=target, arm=arm)


def start_spreads(places: Iterable[StartPlace], *, baseline: str) -> list[StartSpread]:
    """How far starts lie from the baseline's, for every task and condition that has both."""
    by_task: dict[str, dict[str, list[StartPlace]]] = defaultdict(lambda: defaultdict(list))
    for place in places:
        by_task[place.task][place.condition].append(place)
    spreads = []
    for task, sides in by_task.items():
        first = sides.get(baseline, [])
        for condition, second in sides.items():
            if condition == baseline or not first:
                continue
            distances = [
                _spread_mm([getattr(p, part) for p in first], [getattr(p, part) for p in side])
                for side in (second, first)
                for part in ('target', 'arm')
            ]
            spreads.append(StartSpread(task, condition, len(second), *distances))
    return spreads


def told_spread(spreads: Sequence[StartSpread], condition: str) -> str:
    """The starts behind a drop, in words; empty where nothing is known of them."""
    own = [s for s in spreads if s.condition == condition]
    known = [s.target_mm for s in own if s.target_mm is not None]
    arms = [s.arm_mm for s in own if s.arm_mm is not None]
    parts = [f'{name} {np.mean(mm):.1f} mm' for name, mm in (('the target', known), ('the arm', arms)) if mm]
    sentence = f'from the middle of the baseline starts {" and ".join(parts)} away' if parts else ''
    stays = sum(s.target_stays for s in own)
    if stays:
        sentence += f'; in {stays} of {len(own)} tasks the target stays where it was, and no drop there says nothing'
    return sentence


def _place(pose: Pose) -> Place:
    return (float(pose[0]), float(pose[1]), float(pose[2]))


def _spread_mm(first: Sequence[Place | None], second: Sequence[Place | None]) -> float | None:
    known, others = ([p for p in side if p is not None] for side in (first, second))
    if not known or not others:
        return None
    away = np.linalg.norm(np.array(others) - np.mean(known, axis=0), axis=1)
    return float(1000 * np.sqrt(np.mean(away**2)))
