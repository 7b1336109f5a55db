"""A small table-top episode to change one thing of at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from robotrials.record import Contacts, Episode, Outcome, Scene, Trajectory

ROLES = {
    'link7': 'robot', 'finger': 'gripper', 'bowl': 'target', 'plate': 'bystander', 'cup': 'bystander',
    'table': 'furniture',
}  # fmt: skip
Rows = dict[int, list[tuple[str, str, float]]]


def quaternion(axis: tuple[float, float, float], degrees: float) -> np.ndarray:
    half = np.radians(degrees) / 2
    return np.array([np.cos(half), *(np.sin(half) * np.array(axis) / np.linalg.norm(axis))])


def lifted(steps: int = 20, **changes: Any) -> Trajectory:
    """The bowl is gripped at step 5, lifted 1 cm a step to 10 cm by the hand at its centre, held; nothing else happens.

    dt is 0.05 s.
    """
    time_s = np.arange(steps) * 0.05
    bowl, plate, cup = (np.tile([x, 0.0, 0.8, 1.0, 0.0, 0.0, 0.0], (steps, 1)) for x in (0.5, 0.7, 0.3))
    bowl[:, 2] += np.clip((np.arange(steps) - 5) * 0.01, 0, 0.1)
    fields: dict[str, Any] = {
        'time_s': time_s,
        'ee_pose': bowl.copy(),
        'joint_torque_nm': np.full((steps, 7), 1.0),
        'bodies': ('bowl', 'cup', 'plate'),
        'body_pose': np.stack([bowl, cup, plate], axis=1),
        'contacts': Contacts.from_steps([[] for _ in range(steps)]),
        'gripper_contact': np.arange(steps) >= 5,
        'scene': Scene(body_roles=ROLES, target_object='bowl'),
    }
    return Trajectory(**{**fields, **changes})


def with_contacts(rows: Rows, steps: int = 20, **changes: Any) -> Trajectory:
    return lifted(steps, contacts=Contacts.from_steps([rows.get(i, []) for i in range(steps)]), **changes)


def with_pose(
    body: str, poses: dict[int, Any], steps: int = 20, *, part: slice = slice(0, 7), **changes: Any
) -> Trajectory:
    """A copy in which one body has other pose values from the given steps on."""
    base = lifted(steps)
    assert base.body_pose is not None
    pose = base.body_pose.copy()
    for step, value in poses.items():
        pose[step:, base.bodies.index(body), part] = value
    return lifted(steps, body_pose=pose, **changes)


def episode(**changes: Any) -> Episode:
    fields: dict[str, Any] = {
        'policy': 'p', 'task': 'task_4', 'benchmark': 'libero-10', 'outcome': Outcome.SUCCESS, 'success': True,
        'duration_s': 1.0, 'seed': 0,
    }  # fmt: skip
    return Episode(**{**fields, **changes})


def sample_pairs(policies: dict[str, float], *, n: int = 6, seed: int = 0) -> list[tuple[Episode, Trajectory]]:
    """Episodes of several policies from the same starts; a number scales how rough a policy is."""
    pairs = []
    places = (
        ('libero-spatial', 'task_6'), ('libero-goal', 'task_9'), ('libero-10', 'task_4'),
        ('robocasa-365', 'PickPlaceCounterToStove'), ('robocasa-pnp', 'PnPCounterToCab'),
    )  # fmt: skip
    for benchmark, task in places:
        for k in range(n):
            for number, (policy, rough) in enumerate(sorted(policies.items())):
                rng = np.random.default_rng([seed, k, number])
                base = lifted()
                assert base.body_pose is not None
                pose = base.body_pose.copy()
                pose[10:, 1, 1] += rough * rng.exponential(0.003)
                pose[15:, 0, 3:] = quaternion((1, 0, 0), rough * rng.exponential(8))
                contacts = {6: [('finger', 'table', rough * rng.exponential(120)), ('link7', 'cup', 5.0)]}
                who = episode(policy=policy, benchmark=benchmark, task=task, seed=k, success=bool(rng.random() < 0.8))
                pairs.append((who, with_contacts(contacts, body_pose=pose)))
    return pairs
