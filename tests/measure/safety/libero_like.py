"""Rollouts as a LIBERO adapter would record them: robosuite's body names, contacts of fingers, a flag of any touch.

Two policies on four tasks from the same starts. `deft` does nothing wrong. `rough` pushes a bystander, lets the object
slip, presses the resting object into the table, or strikes, each in some episodes: `FAULTS` says which in which.
"""

from __future__ import annotations

import math

import numpy as np

from robotrials.record import Contacts, Episode, Outcome, Scene, Trajectory

STEPS, DT_S = 60, 0.05
GRIP, RELEASE = 15, 50
EPISODES = 10
# (benchmark, task, height of the start and of the goal, the targets one after the other)
TASKS = (
    ('libero-spatial', 'task_0', (0.90, 0.90), ('akita_black_bowl_1',)),
    ('libero-spatial', 'task_9', (1.20, 0.90), ('akita_black_bowl_1',)),  # from the top of the cabinet to the plate
    ('libero-object', 'task_0', (0.90, 0.90), ('alphabet_soup_1',)),
    ('libero-10', 'task_0', (0.90, 0.90), ('alphabet_soup_1', 'tomato_sauce_1')),
)
FAULTS = {1: 'push', 3: 'slip', 5: 'press', 7: 'strike', 9: 'drop'}
ROBOT = {f'robot0_link{i}': 'robot' for i in range(8)} | {
    'gripper0_right_gripper': 'robot', 'gripper0_leftfinger': 'robot', 'gripper0_rightfinger': 'robot',
}  # fmt: skip
LEFT, RIGHT = 'gripper0_leftfinger', 'gripper0_rightfinger'


def pairs() -> list[tuple[Episode, Trajectory]]:
    """Every policy, task and start."""
    made = []
    for benchmark, task, heights, targets in TASKS:
        for k in range(EPISODES):
            for policy in ('deft', 'rough'):
                fault = FAULTS.get(k, '') if policy == 'rough' else ''
                success = fault not in ('drop',)
                who = Episode(
                    policy=policy, benchmark=benchmark, task=task, stratum=benchmark, seed=k, success=success,
                    outcome=Outcome.SUCCESS if success else Outcome.FAILURE,
                    duration_s=STEPS * DT_S * len(targets),
                )  # fmt: skip
                made.append((who, rollout(heights, targets, fault, np.random.default_rng([k, len(task)]))))
    return made


def rollout(heights: tuple[float, float], targets: tuple[str, ...], fault: str, rng: np.random.Generator) -> Trajectory:
    """One target after the other is carried to the plate; the fault happens with the first."""
    steps = STEPS * len(targets)
    still = np.array([1.0, 0.0, 0.0, 0.0])
    starts = {name: np.array([0.1 * i, -0.2, heights[0]]) for i, name in enumerate(targets)}
    poses = {name: np.tile([*starts[name], *still], (steps, 1)) for name in targets}
    poses |= {
        'plate_1': np.tile([0.0, 0.25, 0.9, *still], (steps, 1)),
        'cookies_1': np.tile([0.25, 0, 0.9, *still], (steps, 1)),
    }
    hand = np.zeros((steps, 7))
    command, touch = np.full(steps, 1.0), np.zeros(steps, dtype=bool)
    rows: list[list[tuple[str, str, float]]] = [[] for _ in range(steps)]
    weight = float(rng.uniform(2, 4))
    for number, name in enumerate(targets):
        mine = fault if number == 0 else ''
        offset, goal = STEPS * number, np.array([0.05 * number, 0.25, heights[1]])
        for t in range(STEPS):
            now = offset + t
            share = np.clip((t - GRIP - 3) / (RELEASE - GRIP - 3), 0, 1)
            lift = 0.15 * math.sin(math.pi * share)
            held = starts[name] + share * (goal - starts[name]) + np.array([0, 0, lift])
            hand[now] = [*(held + np.array([0, 0, 0.1])), 0.0, 1.0, 0.0, 0.0]
            slipped = 0.05 * np.clip((t - 30) / 5, 0, 1) if mine == 'slip' else 0.0
            fallen = min(held[2] - heights[1], 0.5 * 9.8 * ((t - 32) * DT_S) ** 2) if mine == 'drop' and t > 32 else 0.0
            poses[name][now, :3] = held - [0, 0, slipped + fallen]
            in_hand = GRIP <= t < RELEASE and not (mine == 'drop' and t > 32)
            command[now] = -1.0 if GRIP <= t < RELEASE else 1.0
            if in_hand:
                rows[now] += [(LEFT, name, 12.0), (name, RIGHT, 12.0)]
            if not in_hand or share == 0:
                pressed = 320.0 if mine == 'press' and t == 12 else 0.0
                rows[now].append((name, 'table', weight + pressed))
            if t in (10, 11):
                rows[now].append((LEFT, 'table', 260.0 if mine == 'strike' else 6.0))
            touch[now] = any(LEFT in row or RIGHT in row for row in rows[now])
        poses[name][offset + STEPS :] = poses[name][offset + STEPS - 1]
    if fault == 'push':
        poses['cookies_1'][20:, 0] += 0.02
    roles = {
        **ROBOT,
        **dict.fromkeys(targets, 'target'),
        'plate_1': 'object',
        'cookies_1': 'object',
        'table': 'furniture',
    }
    bodies = tuple(sorted(poses))
    return Trajectory(
        time_s=np.arange(steps) * DT_S, ee_pose=hand, bodies=bodies, gripper_command=command, gripper_contact=touch,
        body_pose=np.stack([poses[name] for name in bodies], axis=1), contacts=Contacts.from_steps(rows),
        joint_torque_nm=np.full((steps, 7), 4.0), scene=Scene(body_roles=roles, target_object=targets[0]),
    )  # fmt: skip
