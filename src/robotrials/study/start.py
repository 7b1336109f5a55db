"""Where episodes begin, as a host itself shows it: objects as numbers for distances, and the pictures a policy gets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.run.host import Ability, Host
from robotrials.run.seam import Setup
from robotrials.verdict.audit.distance import StartStates

TARGET, GOAL = 'target', 'goal'
FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class ObservedStarts:
    """What a host shows right after the reset of each set-up."""

    states: StartStates
    images: Mapping[str, NDArray[np.uint8]]  # camera -> (n, H, W, 3)
    instructions: tuple[str, ...]


def observe_starts(host: Host, setups: Iterable[Setup], *, turns: int) -> ObservedStarts:
    """Reset the host once for each set-up and look; no step is taken."""
    asked = list(setups)
    seen = [observe_start(host, setup) for setup in asked]
    if not seen:
        raise InputError('no set-up was given; wanted at least one start to look at')
    names = tuple(seen[0].objects)
    for setup, start in zip(asked, seen, strict=True):
        if tuple(start.objects) != names:
            raise InputError(
                f'task {setup.task}, seed {setup.seed}: objects {", ".join(start.objects)}, wanted {", ".join(names)}; '
                'distances compare starts of the same objects'
            )
    poses = np.array([[start.objects[name] for name in names] for start in seen])
    return ObservedStarts(
        states=states_of(names, poses, turns=turns),
        images={c: np.stack([start.images[c] for start in seen]) for c in seen[0].images},
        instructions=tuple(start.instruction for start in seen),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ObservedStart:
    objects: Mapping[str, FloatArray]  # role -> (x, y, z, yaw)
    images: Mapping[str, NDArray[np.uint8]]
    instruction: str

    @property
    def numbers(self) -> FloatArray:
        """One row of a start state: (x, y, z, yaw) of every object."""
        return np.concatenate(list(self.objects.values()))


def observe_start(host: Host, setup: Setup) -> ObservedStart:
    """The target, the other objects in the order of their names, the goal: roles, since names change with colours."""
    if not {Ability.SIGNALS, Ability.SCENE} <= host.abilities:
        raise InputError(f'host {host.spec.name} shows no object poses and no target; distances need both')
    host.prepare(setup)
    observation = host.reset(setup.task, seed=setup.seed)
    poses: Mapping[str, FloatArray] = host.signals().get('body_pose', {})
    scene = host.scene()
    if not poses or scene.target_object not in poses:
        raise InputError(
            f'host {host.spec.name}, task {setup.task}: no pose of the target object is known at the start'
        )
    objects = {TARGET: _planar(poses[scene.target_object])}
    others = [pose for name, pose in sorted(poses.items()) if name != scene.target_object]
    objects |= {f'object {number}': _planar(pose) for number, pose in enumerate(others, start=2)}
    if scene.target_center_m is not None:
        rotation = np.array(scene.target_rotation if scene.target_rotation is not None else np.eye(3).ravel())
        yaw = math.atan2(rotation[3], rotation[0])
        objects[GOAL] = np.array([*scene.target_center_m, yaw])
    instruction = setup.instruction or host.instruction()
    return ObservedStart(objects, dict(observation.images), instruction)


def states_of(names: Sequence[str], poses: FloatArray, *, turns: int) -> StartStates:
    """Start states from (n, k, 4) rows of x, y, z and yaw; every object has the same symmetry."""
    return StartStates(tuple(names), poses[..., :3], poses[..., 3], (turns,) * len(names))


def _planar(pose: FloatArray) -> FloatArray:
    """(x, y, z, yaw) of a pose (x, y, z, qw, qx, qy, qz)."""
    x, y, z, qw, qx, qy, qz = (float(v) for v in pose)
    return np.array([x, y, z, math.atan2(2 * (qw * qz + qx * qy), 1 - 2 * (qy * qy + qz * qz))])
