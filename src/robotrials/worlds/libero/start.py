"""Start states: the benchmark's own, fresh ones from the task's generator, and changes within the task's support."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.run.conditions import NOMINAL, Layout, RobotState, parts_of, read_condition
from robotrials.run.conditions.layout import Footprint, PlanarPose, Workspace
from robotrials.run.seam import Setup
from robotrials.worlds.libero.collision import CollisionCheck

FloatArray = NDArray[np.float64]
FRESH, CAMERA = 'fresh_start', 'camera_pose'
CONDITIONS = (FRESH, 'layout', 'robot_state', CAMERA)
CAMERA_PARAMETERS = {'shift_m': 0.03, 'turn_deg': 3.0}  # where a plan does not say
AGENTVIEW = 'agentview'
DRAWS = 200  # of a layout, until nothing lies in anything else


@dataclass(frozen=True, slots=True)
class Start:
    """How an episode is to begin."""

    instance: int = 0
    seed: int = 0
    is_fresh: bool = False
    layout: Layout | None = None
    robot_state: RobotState | None = None
    camera: Mapping[str, float] | None = None

    @classmethod
    def of(cls, setup: Setup) -> Start:
        """What a set-up asks for; conditions that LIBERO cannot bring about are refused."""
        plain = cls(instance=setup.instance, seed=setup.seed)
        name, given = setup.condition, dict(setup.condition_parameters)
        if name == NOMINAL:
            return plain
        if name == FRESH:
            return cls(instance=setup.instance, seed=setup.seed, is_fresh=True)
        if name == CAMERA:
            return cls(instance=setup.instance, seed=setup.seed, camera=_camera_parameters(given))
        if not any(key.rsplit('.', 1)[-1] == 'severity' for key in given):
            if name in CONDITIONS:
                raise InputError(f'condition {name} of LIBERO wants its drawn numbers; give a severity in the plan')
            raise UnknownName('condition of LIBERO', name, CONDITIONS)
        condition = read_condition(name, given)
        parts: dict[str, Any] = {} if condition is None else {part.kind: part for part in parts_of(condition)}
        for kind in parts:
            if kind not in ('layout', 'robot_state'):
                raise UnknownName('condition of LIBERO', kind, CONDITIONS)
        return cls(setup.instance, setup.seed, False, parts.get('layout'), parts.get('robot_state'))


def _camera_parameters(given: Mapping[str, Any]) -> dict[str, float]:
    for name, value in given.items():
        if name not in CAMERA_PARAMETERS:
            raise UnknownName(f'parameter of {CAMERA}', name, CAMERA_PARAMETERS)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            raise InputError(f'{CAMERA}: {name} is {value!r}, wanted a number >= 0')
    return {**CAMERA_PARAMETERS, **given}


def init_states_hash(files: list[Path]) -> str:
    """A hash of the benchmark's start states, all tasks of a suite."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(path.name.encode() + b'\0' + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


def changed_state(env: Any, state: FloatArray, start: Start) -> FloatArray:
    """The flat state (time, positions, velocities) with objects and arm moved as the condition says."""
    changed = state.copy()
    if start.layout is None and start.robot_state is None:
        return changed
    check = CollisionCheck(env, state)
    if start.layout is not None:
        _move_objects(env, changed, start.layout, check)
    if start.robot_state is not None:
        _move_arm(env, changed, start.robot_state, check)
    return changed


def _move_arm(env: Any, state: FloatArray, robot_state: RobotState, check: CollisionCheck) -> None:
    """Start the arm near where it was, in nothing: a draw in a thing, the table or its own links is drawn again."""
    joints = 1 + np.array(env.robots[0]._ref_joint_pos_indexes)
    ranges = env.sim.model._model.jnt_range[np.array(env.robots[0]._ref_joint_indexes)]
    clashes: Counter[tuple[str, str]] = Counter()

    def is_safe(angles_rad: NDArray[np.floating[Any]]) -> bool:
        tried = state.copy()
        tried[joints] = angles_rad
        pairs = check.clashes(tried)
        clashes.update(pairs)
        return not pairs

    try:
        state[joints] = robot_state.initial_joints(
            state[joints], lower_rad=ranges[:, 0], upper_rad=ranges[:, 1], is_safe=is_safe
        )
    except InputError as error:
        if not clashes:
            raise
        a, b = clashes.most_common(1)[0][0]
        raise InputError(
            f'robot_state of severity {robot_state.severity:g}: {error}, or another start state; '
            f'most often {a} and {b} lay in each other'
        ) from error


def _move_objects(env: Any, state: FloatArray, layout: Layout, check: CollisionCheck) -> None:
    """Move every object that stands in a region of its own, within the region; what carries another stays.

    A layout that places things into each other is drawn again as a whole, so that those which are kept stay uniform.
    """
    places, rng = _movable(env), np.random.default_rng([layout.seed, 0x11BE])
    nominal = state.copy()
    clashes: Counter[tuple[str, str]] = Counter()
    for _ in range(DRAWS):
        for name, address, workspace in places:
            home = PlanarPose(float(nominal[address]), float(nominal[address + 1]), 0.0)
            place = layout.draw_pose(Footprint(name, (0.0, 0.0), home), workspace, rng)
            state[address], state[address + 1] = place.x_m, place.y_m
        if not (found := check.clashes(state)):
            return
        clashes.update(found)
    (a, b), count = clashes.most_common(1)[0]
    raise InputError(
        f'layout of severity {layout.severity:g}: no collision-free layout of {len(places)} objects in {DRAWS} draws; '
        f'{a} and {b} lay in each other in {count} of them; use a smaller severity or another start state'
    )


def _movable(env: Any) -> list[tuple[str, int, Workspace]]:
    """Objects that may be moved: their name, the place of x in the flat state, and the region they may stand in."""
    problem, found = env.parsed_problem, []
    carriers = {atom[2] for atom in problem['initial_state'] if len(atom) == 3}
    for atom in problem['initial_state']:
        region = problem['regions'].get(atom[2]) if len(atom) == 3 and atom[0] == 'on' else None
        if region is None or not region['ranges'] or atom[1] not in env.objects_dict or atom[1] in carriers:
            continue
        if region['target'] in env.objects_dict or region['target'] in env.fixtures_dict:
            continue
        x0, y0, x1, y1 = (float(v) for v in region['ranges'][0])
        offset = np.asarray(env.workspace_offset, dtype=float)
        low, high = (
            (min(x0, x1) + offset[0], min(y0, y1) + offset[1]),
            (max(x0, x1) + offset[0], max(y0, y1) + offset[1]),
        )
        if low[0] < high[0] and low[1] < high[1]:
            address = 1 + env.sim.model.get_joint_qpos_addr(env.objects_dict[atom[1]].joints[-1])[0]
            found.append((atom[1], int(address), Workspace(low, high)))
    return found


def move_camera(env: Any, start: Start) -> None:
    """Shift and turn the fixed camera, in a direction drawn from the start state's seed."""
    if start.camera is None:
        return
    model = env.sim.model._model
    camera = env.sim.model.camera_name2id(AGENTVIEW)
    rng = np.random.default_rng([start.seed, 0xCA3E])
    shift, axis = rng.standard_normal(3), rng.standard_normal(3)
    model.cam_pos[camera] += start.camera['shift_m'] * shift / np.linalg.norm(shift)
    half = math.radians(start.camera['turn_deg']) / 2
    turn = np.concatenate([[math.cos(half)], math.sin(half) * axis / np.linalg.norm(axis)])
    model.cam_quat[camera] = _product(turn, model.cam_quat[camera])


def _product(a: FloatArray, b: FloatArray) -> FloatArray:
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.concatenate([[a[0] * b[0] - a[1:] @ b[1:]], vector])
