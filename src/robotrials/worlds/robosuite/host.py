"""robosuite 1.5 inside its environment: one task at a time, with safety signals; and what stands on robosuite."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import importlib.metadata
import importlib.util
import logging
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.run.seam import Observation, ProtocolFacts, openblas_kernels, source_hash
from robotrials.value import read_table, read_toml
from robotrials.worlds.arm.host import ArmHost, render_flags
from robotrials.worlds.arm.signal import (
    BYSTANDER,
    CONVENTION,
    FURNITURE,
    GRIPPER,
    POSE,
    PROPRIOCEPTION,
    REST,
    ROBOT,
    STRUCTURE,
    TARGET,
    Cast,
    FrameCheck,
    Monitor,
    arm_signals,
    body_pose,
    check_pictures,
    make_cast,
    mend_rendering,
    owner_of,
)

# Families of tasks that stand on robosuite: what a benchmark has of its own, kept as data.


@dataclass(frozen=True, slots=True, kw_only=True)
class RobosuiteTask:
    """One task: its words where the simulation does not say them, and what it is about."""

    instruction: str = ''
    targets: tuple[str, ...] = ()  # names of objects, * for any end; the family's where there are none
    destination: str = ''
    step_cap: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A benchmark on robosuite: its tasks, robot, cameras and rules. `imports` register its tasks with robosuite."""

    control_rate_hz: float
    step_cap: int
    robot: str
    tasks: Mapping[str, RobosuiteTask]
    settling_steps: int = 0
    imports: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    cameras: Mapping[str, str] = field(default_factory=dict)  # ours -> the simulation's
    assets: str = ''  # a folder of a package, whose files come by a download of their own

    def task(self, name: str) -> RobosuiteTask:
        if name not in self.tasks:
            raise UnknownName('task', name, self.tasks)
        return self.tasks[name]


def family_names() -> tuple[str, ...]:
    folder = files('robotrials.worlds.robosuite')
    return tuple(sorted(e.name.removesuffix('.toml') for e in folder.iterdir() if e.name.endswith('.toml')))


def read_family(name: str) -> Family:
    """A family by name, or from a file of your own (``.toml``)."""
    if name.endswith('.toml'):
        return read_toml(Family, name)
    if name not in family_names():
        raise UnknownName('benchmark on robosuite', name, family_names())
    text = files('robotrials.worlds.robosuite').joinpath(f'{name}.toml').read_text(encoding='utf-8')
    return read_table(Family, tomllib.loads(text), where=name)


# What every body of a robosuite scene is to its task: robot, target, bystander or furniture.

# robosuite names the bodies of robots by what they belong to.
ROBOT_PREFIXES = {
    'robot': ROBOT,
    'gripper': GRIPPER,
    'mobilebase': ROBOT,
    'leggedbase': ROBOT,
    'fixed_mount': STRUCTURE,
}
MARKS = ('_eef_target',)  # where a controller wants the hand to be: drawn, never touched
FREE = 0  # mjtJoint


def read_cast(env: Any, targets: Sequence[str], *, destination: str = '') -> Cast:
    """Group the bodies of a robosuite environment and give each group its role.

    Objects are those of the model and, in RoboCasa's kitchens, of `env.objects`; `env.fixtures` are furniture.
    """
    model = env.sim.model._model
    own_objects: Any = getattr(env, 'objects', None)
    fixed: Any = getattr(env, 'fixtures', None)
    is_kitchen = isinstance(own_objects, Mapping)  # elsewhere `objects` is a list of some of them
    known = {thing.name: thing for thing in env.model.mujoco_objects}
    objects = _roots(model, {**known, **own_objects} if is_kitchen else known)
    fixtures = _roots(model, fixed if isinstance(fixed, Mapping) else {})
    movable = {name: body for name, body in objects.items() if _is_free(model, body)}
    meant = [name for name in objects if any(fnmatch.fnmatchcase(name, pattern) for pattern in targets)]
    for pattern in targets:
        if '*' not in pattern and pattern not in objects and not is_kitchen:
            raise InputError(f'the task is about {pattern!r}, and the scene has only {sorted(objects)}')
    roots = {body: name for name, body in {**fixtures, **objects}.items()}
    names: list[str] = []
    roles: dict[str, str] = {}
    for body in range(model.nbody):
        own = model.body(body).name or 'world'
        above = owner_of(model, body, roots)
        name = roots[above] if above else own
        if not above:
            roles[name] = _role_of_body(model, body)
        elif name in meant:
            roles[name] = TARGET
        else:
            roles[name] = BYSTANDER if name in movable else FURNITURE
        names.append(name)
    return make_cast(model, names, roles=roles, targets=meant, destination=destination, movable=movable)


def _roots(model: Any, things: Mapping[str, Any]) -> dict[str, int]:
    """Name -> root body, of those that have one."""
    roots = {}
    for name, thing in things.items():
        root = getattr(thing, 'root_body', None)
        if root is not None:
            roots[name] = int(model.body(root).id)
    return roots


def _is_free(model: Any, body: int) -> bool:
    first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
    return any(int(kind) == FREE for kind in model.jnt_type[first : first + count]) if count else False


def _role_of_body(model: Any, body: int) -> str:
    """By its own name or, where that says nothing, by what it is fixed to: a mount on a mobile base is robot too."""
    own = model.body(body).name
    if not body or own.endswith(MARKS):
        return STRUCTURE
    while body:
        name = model.body(body).name
        role = next((role for prefix, role in ROBOT_PREFIXES.items() if name.startswith(prefix)), None)
        if role is not None:
            return role
        body = int(model.body_parentid[body])
    return FURNITURE


ARM = 'right'
PACKAGES = ('robosuite', 'robocasa', 'mujoco', 'numpy', 'numba')
LAYOUTS = {
    'proprioception': PROPRIOCEPTION,
    'privileged': (*PROPRIOCEPTION, *(f'target_{n}' for n in POSE), *(f'goal_{n}' for n in POSE)),
}


class RobosuiteHost(ArmHost):
    """A family of tasks. Actions are robosuite's own: six numbers in -1 to 1 for OSC_POSE, and the gripper.

    See `robotrials.worlds.robosuite.robosuite_host`, which runs it in its environment, for the options.
    """

    def __init__(
        self,
        *,
        benchmark: str = 'robosuite',
        robot: str = '',
        cameras: Sequence[str] = (),
        image_size: Sequence[int] = (256, 256),
        state: str = 'proprioception',
        step_cap: int | None = None,
        instrumented: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._family = read_family(benchmark)
        self._benchmark = Path(benchmark).stem
        self._robot = robot or self._family.robot
        check_pictures(cameras, self._family.cameras, image_size, of=self._benchmark)
        if state not in LAYOUTS:
            raise UnknownName('state', state, LAYOUTS)
        self._is_privileged, self._is_instrumented = state == 'privileged', bool(instrumented)
        self._given_cap, self._options = step_cap, dict(options or {})
        self._suite = open_robosuite(self._family.imports)
        if self._robot not in self._suite.ALL_ROBOTS:
            raise UnknownName('robot of robosuite', self._robot, self._suite.ALL_ROBOTS)
        self._task = ''
        super().__init__(
            name=self._benchmark, control_rate_hz=self._family.control_rate_hz, layout=LAYOUTS[state],
            cameras={name: self._family.cameras[name] for name in cameras}, image_size=image_size,
            tasks=tuple(self._family.tasks),
        )  # fmt: skip
        # robosuite compiles its controllers at the first step, for longer than a call may take.
        self.reset(next(iter(self._family.tasks)), seed=0)
        self.step(REST)
        self._is_begun = False

    def reset(self, task: str, *, seed: int) -> Observation:
        """Make the scene of this task and seed, and let it settle as the family says."""
        entry = self._family.task(task)
        self._open(task)
        self._seed(seed)
        self.expect_look(True)
        observed = self._reset_native()
        targets = entry.targets or self._family.targets
        self._cast = read_cast(self._env, targets, destination=entry.destination)
        self._monitor = Monitor(self._env, self._cast) if self._is_instrumented else None
        self._frames = FrameCheck(self._env, self._cameras, height_px=self._height, width_px=self._width)
        self._open_shutter(self._env)
        if self._cameras:
            self._frames.at_reset(self._images(observed))
        for step in range(self._family.settling_steps):
            self.expect_look(step == self._family.settling_steps - 1)
            observed, *_ = self._env.step(self._full_action(REST))
        self._reward = 0.0
        return self._begin(observed, is_done=bool(self._env._check_success()))

    def instruction(self) -> str:
        """The words of the scene where it has some, as RoboCasa's kitchens do, else those of the task."""
        words = self._begun().get_ep_meta().get('lang')
        return str(words) if words else self._family.task(self._task).instruction

    def signals(self) -> Mapping[str, Any]:
        """The last control step: peaks of torque and contact force over its substeps, poses at its end."""
        env = self._begun()
        data, robot = env.sim.data._data, env.robots[0]
        known = arm_signals(
            env,
            self._cast,
            self._monitor,
            site=robot.eef_site_id[ARM],
            fingers=robot._ref_gripper_joint_pos_indexes[ARM],
        )
        return {
            **known,
            'simulator_state': np.concatenate([[data.time], data.qpos, data.qvel]),
            'reward': self._reward,
            'done': self.outcome() is not None,
        }

    def protocol(self) -> ProtocolFacts:
        packages = {name: version for name in PACKAGES if (version := _version(name))} | openblas_kernels()
        return ProtocolFacts(
            benchmark=self._benchmark,
            control_rate_hz=self._spec.control_rate_hz,
            step_cap=self._step_cap(),
            settling_steps=self._family.settling_steps,
            initial_states='drawn by the task from the seed, everything loaded anew',
            success_predicate="the task's _check_success",
            success_source=self._predicate_hash(),
            success_at_reset='labelled success_at_reset; counts from the first step on',
            assets=assets_hash(self._family.assets) if self._family.assets else '',
            simulator=f'mujoco {packages.get("mujoco", "?")}, robosuite {packages.get("robosuite", "?")}',
            packages=packages,
            render_flags=render_flags(),
        )

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
        self._is_begun = False

    # --- inside

    def _advance(self, action: NDArray[np.float64]) -> tuple[Any, bool]:
        observed, reward, *_ = self._env.step(self._full_action(action))
        self._reward = float(reward)
        return observed, bool(self._env._check_success())

    def _state(self, proprioception: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([proprioception, self._things()]) if self._is_privileged else proprioception

    def _step_cap(self) -> int:
        own = self._family.tasks[self._task].step_cap if self._task else None
        return int(self._given_cap or own or self._family.step_cap)

    def _open(self, task: str) -> None:
        """Make the environment of a task; only ever one, because two would share robosuite's rendering."""
        if task == self._task and self._env is not None:
            return
        self.close()
        from robosuite.controllers import load_composite_controller_config

        mend_rendering()
        has_cameras = bool(self._cameras)
        try:
            self._env = self._suite.make(
                env_name=task, robots=self._robot,
                controller_configs=load_composite_controller_config(controller=None, robot=self._robot),
                has_renderer=False, has_offscreen_renderer=has_cameras, use_camera_obs=has_cameras,
                camera_names=list(self._cameras.values()) or 'agentview', camera_heights=self._height,
                camera_widths=self._width, control_freq=round(self._spec.control_rate_hz), ignore_done=True,
                hard_reset=True, **self._options,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise SetupError(f'{task}: {error.filename} is missing; see `robotrials env doctor`') from error
        robot = self._env.robots[0]
        if len(self._env.robots) != 1 or tuple(robot.arms) != (ARM,):
            raise InputError(f'{task} with {self._robot} has several arms; this host drives one')
        self._task = task

    def _seed(self, seed: int) -> None:
        """Everything that draws gets the seed: robosuite keeps samplers, with generators of their own, over resets."""
        env = self._env
        env.rng = np.random.default_rng(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - what the simulation draws from, in a process of its own
        random.seed(seed)
        samplers = [getattr(env, 'placement_initializer', None)]
        while samplers:
            sampler = samplers.pop()
            if sampler is not None:
                sampler.rng = env.rng
                samplers += list(getattr(sampler, 'samplers', {}).values())

    def _reset_once(self) -> Any:
        return self._env.reset()

    def _full_action(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        """The action vector of the whole robot: the arm and its gripper as commanded, everything else at rest."""
        robot = self._env.robots[0]
        if robot.action_dim == CONVENTION.width:
            return action
        parts = {ARM: action[:6], f'{ARM}_gripper': action[6:]}
        for part, (first, last) in robot._action_split_indexes.items():
            parts.setdefault(part, np.zeros(last - first))
        full: NDArray[np.float64] = robot.create_action_vector(parts)
        return full

    def _things(self) -> NDArray[np.float64]:
        """Poses of the first target and of its destination; zeros where the task has none."""
        data, bodies = self._env.sim.data._data, self._cast.body_of
        target = self._cast.targets[0] if self._cast.targets else ''
        poses = [
            body_pose(data, bodies[n]) if n in bodies else np.zeros(len(POSE)) for n in (target, self._cast.destination)
        ]
        return np.concatenate(poses)

    def _predicate_hash(self) -> str:
        """Of the predicates of all tasks of the family that are there: facts are stated before a task is chosen."""
        from robosuite.environments.base import REGISTERED_ENVS

        predicates = dict.fromkeys(
            REGISTERED_ENVS[name]._check_success for name in self._family.tasks if name in REGISTERED_ENVS
        )
        return source_hash(*predicates) if predicates else ''


def open_robosuite(imports: Sequence[str]) -> Any:
    """Robosuite with the tasks that other packages add to it, and without its remarks on every reset."""
    try:
        suite = importlib.import_module('robosuite')
        for module in imports:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SetupError(f'{error.name} is not installed here; see `robotrials env ls`') from error
    logging.getLogger('robosuite_logs').setLevel(logging.ERROR)
    return suite


def assets_hash(place: str) -> str:
    """A hash of the names and sizes of all files of a package's folder; '' if there is no such folder."""
    package, _, inner = place.partition('/')
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return ''
    folder = Path(next(iter(spec.submodule_search_locations)), inner)
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob('*') if p.is_file()):
        total.update(f'{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\n'.encode())
    return total.hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ''
