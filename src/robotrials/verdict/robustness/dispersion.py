"""What a change of start states amounts to: how far the target and the arm really are from where they were.

A drop of zero under a change that moved nothing says nothing of a policy. LIBERO-Object's fresh starts are such a
change: the objects around the target are placed anew, and the target stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.record import Episode, Trajectory

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
    found = []
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
            found.append(StartSpread(task, condition, len(second), *distances))
    return found


def told_spread(spreads: Sequence[StartSpread], condition: str) -> str:
    """The starts behind a drop, in words; empty where nothing is known of them."""
    own = [s for s in spreads if s.condition == condition]
    known = [s.target_mm for s in own if s.target_mm is not None]
    arms = [s.arm_mm for s in own if s.arm_mm is not None]
    parts = [f'{name} {np.mean(mm):.1f} mm' for name, mm in (('the target', known), ('the arm', arms)) if mm]
    told = f'from the middle of the baseline starts {" and ".join(parts)} away' if parts else ''
    stays = sum(s.target_stays for s in own)
    if stays:
        told += f'; in {stays} of {len(own)} tasks the target stays where it was, and no drop there says nothing'
    return told


def _place(pose: Pose) -> Place:
    return (float(pose[0]), float(pose[1]), float(pose[2]))


def _spread_mm(first: Sequence[Place | None], second: Sequence[Place | None]) -> float | None:
    known, others = ([p for p in side if p is not None] for side in (first, second))
    if not known or not others:
        return None
    away = np.linalg.norm(np.array(others) - np.mean(known, axis=0), axis=1)
    return float(1000 * np.sqrt(np.mean(away**2)))
