"""Start states: the benchmark's own, fresh ones from the task's generator, and changes within the task's support."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.run.conditions import NOMINAL, Layout, RobotState, parts_of, read_condition
from robotrials.run.conditions.layout import Footprint, PlanarPose, Workspace
from robotrials.run.seam import Setup
from robotrials.worlds.arm.signal import (
    BYSTANDER,
    FURNITURE,
    GRIPPER,
    ROBOT,
    STRUCTURE,
    TARGET,
    Cast,
    make_cast,
    owner_of,
)

# Whether things, or the arm, penetrate each other, by MuJoCo's own collision check on data of its own.

TOUCH_M = 0.001  # deeper than the solver lets resting things sink into each other


class CollisionCheck:
    """Compares states with a nominal one. The simulation's data are not touched, so that its bits stay the same.

    Things are objects, fixtures and the arm; what they all stand on counts for the arm alone, since everything else
    touches it. The arm's links must not lie in each other either.
    """

    def __init__(self, env: Any, nominal: FloatArray) -> None:
        import mujoco

        self._model = env.sim.model._model
        self._data = mujoco.MjData(self._model)
        things = {name: thing.root_body for name, thing in {**env.objects_dict, **env.fixtures_dict}.items()}
        self._names = {int(env.sim.model.body_name2id(body)): name for name, body in things.items()}
        self._arm = int(env.sim.model.body_name2id(env.robots[0].robot_model.root_body))
        self._nominal_m = self._depths_m(nominal)

    def clashes(self, state: FloatArray) -> list[tuple[str, str]]:
        """Pairs of things that lie in each other in this flat state, deeper than they do in the nominal one."""
        return [
            self._named(a, b)
            for (a, b), depth_m in self._depths_m(state).items()
            if depth_m > self._nominal_m.get((a, b), 0.0) + TOUCH_M
        ]

    def _named(self, a: int, b: int) -> tuple[str, str]:
        if self._arm not in (a, b):
            return self._names[a], self._names[b]
        if a == b:
            return 'the arm', 'its own links'
        other = b if a == self._arm else a
        return 'the arm', self._names.get(other) or self._model.body(other).name

    def _depths_m(self, state: FloatArray) -> Mapping[tuple[int, int], float]:
        """How deep things lie in each other, by the bodies they hang on."""
        import mujoco

        model, data = self._model, self._data
        data.qpos[:] = state[1 : 1 + model.nq]
        mujoco.mj_fwdPosition(model, data)
        roots = model.body_rootid[model.geom_bodyid]
        depths_m: dict[tuple[int, int], float] = {}
        for contact in data.contact:
            a, b = sorted(int(roots[geom]) for geom in contact.geom)
            if self._arm in (a, b) or (a != b and a in self._names and b in self._names):
                depths_m[a, b] = max(depths_m.get((a, b), 0.0), -float(contact.dist))
        return depths_m


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
        if not (pairs := check.clashes(state)):
            return
        clashes.update(pairs)
    (a, b), count = clashes.most_common(1)[0]
    raise InputError(
        f'layout of severity {layout.severity:g}: no collision-free layout of {len(places)} objects in {DRAWS} draws; '
        f'{a} and {b} lay in each other in {count} of them; use a smaller severity or another start state'
    )


def _movable(env: Any) -> list[tuple[str, int, Workspace]]:
    """Objects that may be moved: their name, the place of x in the flat state, and the region they may stand in."""
    problem, places = env.parsed_problem, []
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
            places.append((atom[1], int(address), Workspace(low, high)))
    return places


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


# The roles of the bodies of a LIBERO scene, from the task's BDDL.

BUILDING = ('world', 'floor')


def goal_atoms(goal: Iterable[Any]) -> list[Sequence[str]]:
    """The predicates of a parsed goal, however deeply it is nested."""
    atoms: list[Sequence[str]] = []
    for part in goal:
        if isinstance(part, list | tuple) and part and all(isinstance(word, str) for word in part):
            atoms.append(part)
        elif isinstance(part, list | tuple):
            atoms += goal_atoms(part)
    return atoms


def read_cast(env: Any) -> Cast:
    """Group the bodies of a LIBERO environment and give each group its role."""
    model = env.sim.model._model
    atoms = goal_atoms(env.parsed_problem['goal_state'])
    movable = {name: model.body(thing.root_body).id for name, thing in env.objects_dict.items()}
    fixed = {name: model.body(thing.root_body).id for name, thing in env.fixtures_dict.items()}
    targets = tuple(dict.fromkeys(atom[1] for atom in atoms if atom[1] in movable))
    robot = env.robots[0]
    own = {**dict.fromkeys(robot.robot_model.bodies, ROBOT), **dict.fromkeys(robot.gripper.bodies, GRIPPER)}
    roots = {body: name for name, body in {**movable, **fixed}.items()}
    names, roles = [], {}
    for body in range(model.nbody):
        name = model.body(body).name or 'world'
        above = owner_of(model, body, roots)
        if above:
            name = roots[above]
            roles[name] = FURNITURE if name in fixed else TARGET if name in targets else BYSTANDER
        elif name in own:
            roles[name] = own[name]
        elif name.startswith('mount'):
            roles[name] = STRUCTURE  # what the arm is bolted to
        else:
            roles[name] = STRUCTURE if name in BUILDING else FURNITURE
        names.append(name)
    destination = next((atom[2] for atom in atoms if len(atom) == 3 and atom[1] in targets), '')
    return make_cast(model, names, roles=roles, targets=targets, destination=destination, movable=movable)
