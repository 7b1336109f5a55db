"""Ends of LIBERO episodes with known truth, scored by cameras: one line of JSON for each.

    camera_ends.py ASSETS SUITE INSTANCE [TASK ...]

From a start state two ends are made: things put where the goal wants them (drawn within its limits), and one of them
put beside it; physics then settles. LIBERO's own predicate is the truth of each.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import mujoco
import numpy as np

from robotrials.measure.geometry.camera_score import score_episode
from robotrials.record.footage import PoseGoal
from robotrials.run import Setup
from robotrials.worlds.arm.watch import WATCHERS
from robotrials.worlds.libero.goal import BESIDE_M
from robotrials.worlds.libero.host import LiberoHost

SETTLING_S = 1.5
BESIDE = (0.05, 0.12)  # metres beside the goal's limits
SINK_M = 0.001
STEP_M = 0.004
ATTEMPTS = 40
ENDS = ('goal', 'beside')


def put(host: LiberoHost, goal: PoseGoal, rng: np.random.Generator, *, beside: bool, attempt: int = 0) -> None:
    """Put a thing where a goal wants it, or beside that, as low as nothing is in its way."""
    env = host._env.env
    model, data = env.sim.model._model, env.sim.data._data
    if goal.kind in ('above', 'below'):
        joint = int(model.body_jntadr[model.body(goal.object).id])
        ends = model.jnt_range[joint] if goal.kind == 'below' else model.jnt_range[joint][::-1]
        share = rng.uniform(0.6, 1.0) if beside else 0.0
        data.qpos[model.jnt_qposadr[joint]] = ends[0] + share * (ends[1] - ends[0])
        return mujoco.mj_forward(model, data)
    if goal.kind == 'touching':
        return None
    address = model.joint(env.objects_dict[goal.object].joints[-1]).qposadr[0]
    middle, turn, half = target(host, goal)
    way = rng.uniform(0, 2 * np.pi)
    off = rng.uniform(-0.6, 0.6, 2) * half[:2] if goal.kind == 'at' else rng.uniform(-0.5, 0.5, 2) * BESIDE_M
    if beside:
        away = rng.uniform(*BESIDE)
        direction = np.array([np.cos(way), np.sin(way)])
        edge = (half[:2] / np.maximum(np.abs(direction), 1e-9)).min() if goal.kind == 'at' else BESIDE_M
        off = direction * (edge + away)
    if attempt:
        off = 0.4 * off
        data.qpos[address + 3 : address + 7] = turned(host, goal, data.qpos[address + 3 : address + 7], rng, attempt)
    data.qpos[address : address + 2] = (middle + turn @ np.array([*off, 0.0]))[:2]
    low = middle[2] - half[2]
    for height in np.arange(low, low + 0.6, STEP_M):
        data.qpos[address + 2] = height
        mujoco.mj_forward(model, data)
        if not collides(model, data, goal.object):
            break
    return None


def turned(host: LiberoHost, goal: PoseGoal, at: Any, rng: np.random.Generator, attempt: int) -> Any:
    """Turned about the vertical, or any way along what the region belongs to: a book stands, a bottle lies."""
    env = host._env.env
    data = env.sim.data._data
    site = env.object_sites_dict.get(goal.place.name) if goal.place is not None else None
    by, found = np.zeros(4), np.zeros(4)
    if attempt % 2 and site is not None and site.parent_name:
        quarters = rng.integers(4, size=3) * np.pi / 2
        mujoco.mju_euler2Quat(by, quarters, 'xyz')
        mujoco.mju_mulQuat(found, data.xquat[env.obj_body_id[site.parent_name]], by)
    else:
        mujoco.mju_axisAngle2Quat(by, np.array([0.0, 0.0, 1.0]), rng.uniform(0, 2 * np.pi))
        mujoco.mju_mulQuat(found, by, at)
    return found


def target(host: LiberoHost, goal: PoseGoal) -> tuple[Any, Any, Any]:
    """Middle, turn and half edges of where a goal wants an origin, as the world stands."""
    env = host._env.env
    data, model = env.sim.data._data, env.sim.model._model
    if goal.kind == 'over':
        return data.xpos[env.obj_body_id[goal.other]].copy(), np.eye(3), np.array([BESIDE_M, BESIDE_M, 0.0])
    middle, turn = np.array(goal.place.center_m), np.array(goal.place.rotation).reshape(3, 3)
    if goal.other:
        name = goal.other if goal.other not in env.obj_body_id else env.objects_dict[goal.other].root_body
        body = model.body(name).id
        frame = data.xmat[body].reshape(3, 3)
        middle, turn = frame @ middle + data.xpos[body], frame @ turn
    return middle, turn, np.array(goal.place.size_m) / 2


def collides(model: Any, data: Any, thing: str) -> bool:
    return any(
        contact.dist < -SINK_M and any(model.geom(int(g)).name.startswith(thing) for g in contact.geom)
        for contact in data.contact
    )


def settle(host: LiberoHost) -> None:
    """Let things come to rest while the arm is held."""
    env = host._env.env
    model, data = env.sim.model._model, env.sim.data._data
    joints = np.array(env.robots[0]._ref_joint_pos_indexes)
    data.qvel[:] = 0
    for _ in range(round(SETTLING_S / model.opt.timestep)):
        data.qpos[joints] = host._home
        data.qvel[np.array(env.robots[0]._ref_joint_vel_indexes)] = 0
        mujoco.mj_step(model, data)
    mujoco.mj_forward(model, data)


def make_end(host: LiberoHost, end: str, goals: tuple[PoseGoal, ...], rng: np.random.Generator) -> None:
    """Bring an end about; one with the goal reached in at most so many attempts."""
    data = host._env.env.sim.data._data
    kept = data.qpos.copy()
    for attempt in range(ATTEMPTS):
        data.qpos[:], data.qvel[:] = kept, 0
        arrange(host, end, goals, rng, attempt)
        if end == 'beside' or host._env.check_success():
            break


def arrange(host: LiberoHost, end: str, goals: tuple[PoseGoal, ...], rng: np.random.Generator, attempt: int) -> None:
    env = host._env.env
    model, data = env.sim.model._model, env.sim.data._data
    missed = rng.integers(len(goals)) if end == 'beside' else -1
    if missed >= 0 and goals[missed].kind == 'touching':
        missed -= 1
    joints = [(k, g) for k, g in enumerate(goals) if g.kind in ('above', 'below')]
    carriers = {g.other for g in goals if g.kind == 'at' and g.other not in env.objects_dict} - {''}
    doors = [model.body(name).id for name in carriers] + [model.body(g.object).id for _, g in joints]
    carried = []
    for body in {*doors}:  # opened first, so that things can be put in
        joint = int(model.body_jntadr[body])
        if model.body(body).name in carriers or 'door' in model.body(body).name:
            data.qpos[model.jnt_qposadr[joint]] = max(model.jnt_range[joint], key=abs)
            carried.append(body)
    mujoco.mj_forward(model, data)
    for k, goal in enumerate(goals):
        if goal.kind not in ('above', 'below'):
            put(host, goal, rng, beside=k == missed, attempt=attempt)
    settle(host)
    for k, goal in joints:
        body = model.body(goal.object).id
        before = data.xpos[body].copy()
        put(host, goal, rng, beside=k == missed)
        if body in carried and 'door' not in goal.object:
            for other in goals:
                if other.kind == 'at' and other.other == goal.object and missed != goals.index(other):
                    address = model.joint(env.objects_dict[other.object].joints[-1]).qposadr[0]
                    data.qpos[address : address + 3] += data.xpos[body] - before
    if joints:
        settle(host)


def main(assets: str, suite: str, instance: int, tasks: list[str]) -> None:
    host = LiberoHost(suite=suite, assets=assets, watchers=tuple(WATCHERS), oracle_masks=True, instrumented=False)
    for task in tasks or host.spec.tasks:
        for number, end in enumerate(ENDS):
            host.prepare(Setup(task=task, seed=instance, instance=instance))
            host.reset(task, seed=instance)
            known = host.known_scene()
            make_end(host, end, known.poses, np.random.default_rng([instance, number + 1, 0xE4D]))
            truth, began = bool(host._env.check_success()), time.process_time()
            views = host.views(is_over=True)
            masks = {n: {v: view.oracle_masks[n] for v, view in views.items()} for n in host._plan.things}
            score = score_episode({}, views, known, masks=masks)
            result = {
                'suite': suite, 'task': task, 'instruction': host.instruction(), 'instance': instance, 'end': end,
                'truth': truth, 'said': score.success, 'reason': score.reason,
                'goals': [(g.goal, g.reached, g.reason) for g in score.goals],
                'cameras': [c.standing for c in score.cameras], 'cpu_s': time.process_time() - began,
            }  # fmt: skip
            print('RESULT' + json.dumps(result), flush=True)
    host.close()


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
