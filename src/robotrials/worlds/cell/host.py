"""The embedded cell as a host: a Panda over bins or a platform, in MuJoCo, with nothing to download."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials import record as episodes
from robotrials.errors import InputError, UnknownName
from robotrials.record import Outcome
from robotrials.record.footage import FilmStates, KnownScene, View
from robotrials.run.conditions import Thing
from robotrials.run.host import SteppedHost
from robotrials.run.plan import FilmOptions
from robotrials.run.recording import film_steps
from robotrials.run.seam import (
    Action,
    ActionConvention,
    ControlMode,
    Footage,
    Frame,
    Gripper,
    HostReport,
    HostSpec,
    Observation,
    ProtocolFacts,
    Setup,
    StepPart,
    Target,
    source_hash,
)
from robotrials.worlds.cell import item as layout
from robotrials.worlds.cell import panda, reset
from robotrials.worlds.cell import panda as pose
from robotrials.worlds.cell import task as state
from robotrials.worlds.cell.camera import FILM_CAMERAS, OVERVIEW, Filming, Picture, Pictures, calibrations, is_near
from robotrials.worlds.cell.control import (
    KINDS,
    SEEN_ONLY,
    STATED,
    WHOLE,
    Belt,
    Controller,
    Load,
    Stretch,
    World,
    stretch,
)
from robotrials.worlds.cell.item import ItemType
from robotrials.worlds.cell.referee import ROBOT_BODIES, ContactMonitor, Referee, hardest_robot_contact_n, held_items
from robotrials.worlds.cell.reset import VerifiedStart, WatchingCameras, at_home, known_scene, reset_cell, things_of
from robotrials.worlds.cell.scene import (
    BIN_INNER_M,
    CAMERAS,
    CONTROL_RATE_HZ,
    FIXED_CAMERAS_M,
    FLOOR_HEIGHT_M,
    SOURCE_CENTER_M,
    SUBSTEPS,
    load_mujoco,
)
from robotrials.worlds.cell.task import MAX_ITEMS, TASKS, check_objects, find_task

FloatArray = NDArray[np.floating[Any]]

STOP_FORCE_N = 140.0  # quasi-static limit for hands and fingers, ISO/TS 15066
PARKED_M = -3.0  # x and y of what fell off the table


class Control(enum.StrEnum):
    SE3 = 'se3'  # displacement and turn of the tool in a control step
    JOINT = 'joint'  # seven joint angles


class StateKind(enum.StrEnum):
    PROPRIOCEPTION = 'proprioception'
    PRIVILEGED = 'privileged'


CONVENTIONS: Mapping[Control, ActionConvention] = {
    Control.SE3: panda.CONVENTION,
    Control.JOINT: ActionConvention(
        control_mode=ControlMode.JOINT_POSITION,
        target=Target.ABSOLUTE,
        frame=Frame.JOINT,
        n_joints=panda.N_JOINTS,
        gripper=Gripper.OPEN_IS_ONE,
    ),
}


class TabletopHost(SteppedHost):
    """One cell. `cameras` are rendered with depth and calibration; none are by default.

    camera_rate_hz: how often pictures are taken; each is shown until the next. Every control step unless given.
    conditions: the kinds to bring about in the world, all of `world.KINDS` and `STATED` by default; those left out
    that have a version for images are laid over the frames instead.
    watchers: RGB-D cameras that a trial keeps for its scores, apart from what the policy sees: the fixed ones among
    `cameras` unless given. watcher_noise: none, or a stereo camera by name (mild, default, heavy).
    """

    def __init__(
        self,
        *,
        control: str = 'se3',
        state: str = 'proprioception',
        cameras: Sequence[str] = (),
        image_size: Sequence[int] = (128, 128),
        camera_rate_hz: float = CONTROL_RATE_HZ,
        shadows: bool = True,
        stop_force_n: float = STOP_FORCE_N,
        conditions: Sequence[str] | None = None,
        watchers: Sequence[str] | None = None,
        watcher_size: Sequence[int] = (240, 320),
        watcher_noise: str = 'none',
    ) -> None:
        self._control = _member(Control, control, 'control mode')
        self._kind = _member(StateKind, state, 'state')
        for camera in cameras:
            if camera not in CAMERAS:
                raise UnknownName('camera', camera, CAMERAS)
        if not stop_force_n > 0:
            raise InputError(f'stop_force_n is {stop_force_n}, wanted > 0')
        height, width = (int(v) for v in image_size)
        self._pictures = Pictures(tuple(cameras), height_px=height, width_px=width)
        self._filming = Filming(('front' if not cameras else cameras[0], OVERVIEW))
        self._has_shadows = bool(shadows)
        fixed = tuple(c for c in cameras if c != 'wrist') if watchers is None else tuple(watchers)
        self._watch = WatchingCameras(fixed, size=watcher_size, noise=watcher_noise)
        self._camera_steps = _steps_a_picture(camera_rate_hz)
        self._stop_force_n = float(stop_force_n)
        self._start: VerifiedStart | None = None
        self._spec = HostSpec(
            name='tabletop',
            action=CONVENTIONS[self._control],
            control_rate_hz=CONTROL_RATE_HZ,
            state_width=state_width(self._kind),
            images=dict.fromkeys(cameras, (height, width)),
            conditions=_in_world(conditions, has_cameras=bool(cameras)),
            tasks=tuple(TASKS),
        )

    def check_cell(self, task: str, *, stratum: str, items: int | None) -> None:
        """Refuse an object type or a number of items that the task cannot be laid out with."""
        check_objects(task, stratum=stratum, items=items)

    def prepare(self, setup: Setup) -> None:
        """Take object type, instance, number of items and condition for the next reset."""
        find_task(setup.task)
        World.of(setup, self._spec.conditions)
        self._setup = setup

    def reset(self, task: str, *, seed: int) -> Observation:
        """The automatic reset; without a `prepare` for this task and seed the first object type is used."""
        setup = self._setup_for(task, seed=seed)
        world = World.of(setup, self._spec.conditions)
        start = reset_cell(
            task,
            seed=seed,
            stratum=setup.stratum,
            instance=setup.instance,
            items=setup.items,
            world=world,
            has_shadows=self._has_shadows,
        )
        self._start, self._seed = start, seed
        self._states = [start.data.qpos.copy()]  # after the reset and after every step, for a film
        self._load = Load(world.disturbance, start.scene, start.data) if world.disturbance is not None else None
        self._belt = Belt(start.layout.scene.belt_m_s, start.scene, start.data) if start.layout.scene.belt_m_s else None
        self._controller = Controller(start.angles_rad, width=1.0)
        self._monitor = ContactMonitor(start.scene, start.data)
        self._referee = Referee(start.layout, stop_force_n=self._stop_force_n)
        self._types = start.layout.scene.item_types
        others = [n for n in self._types if n not in start.layout.distractors]
        self._order = tuple(dict.fromkeys([*(g.item for g in start.layout.goals), *others]))
        self._slots = state.Slots(
            [self._types[name] for name in self._order], [self._referee.status(name)[2] for name in self._order]
        )
        names = (*self._order, *(n for n in start.scene.item_qpos if n not in self._order))
        self._item_rows = {name: i for i, name in enumerate(names)}
        self._item_qpos = np.array([range(a, a + 7) for a in (start.scene.item_qpos[n] for n in names)], dtype=np.intp)
        self._steps = 0
        self._contacts: list[tuple[str, str, float]] = []
        self._force_n = 0.0
        self._held: set[str] = set()
        self._grip_contact = False
        self._processed = self.hold()
        self._read_poses()
        self._is_looked_at = True
        is_choice = not start.layout.is_order and len(self._poses) > 1
        self._labels = {'salient_object': largest_seen(self._poses, self._types)} if is_choice else {}
        return self._observe()

    def step(self, action: Action) -> Observation:
        """Clip the action, run one control step of physics at full rate, and look at what it did."""
        self._processed = self._command(action)
        self._run(self._controller.references(self._opening * panda.FINGER_TRAVEL_M))
        return self._look()

    def expect_look(self, is_looked_at: bool) -> None:
        self._is_looked_at = is_looked_at

    def look(self) -> Observation:
        return self._observe()

    @property
    def substeps(self) -> int:
        return SUBSTEPS

    def step_through(self, parts: Sequence[StepPart]) -> Observation:
        """One control step in which commands take over from each other between the ticks."""
        ends = [part.start for part in parts[1:]] + [SUBSTEPS]
        if not parts or parts[0].start != 0 or any(end <= p.start for p, end in zip(parts, ends, strict=True)):
            raise InputError(f'parts begin at {[p.start for p in parts]}, wanted 0 and rising below {SUBSTEPS}')
        moved = []
        for part, end in zip(parts, ends, strict=True):
            if part.start:
                self._read_poses()
            lasting, left = stretch(end - part.start), (part.ends - part.start) / SUBSTEPS
            moved.append(self._command(part.action, lasting, left=left))
            self._run(self._controller.references(self._opening * panda.FINGER_TRAVEL_M, lasting))
        is_delta = self._control is Control.SE3
        self._processed = np.append(sum(m[:-1] for m in moved), moved[-1][-1]) if is_delta else moved[-1]
        return self._look()

    def outcome(self) -> Outcome | None:
        return self._referee.outcome if self._start is not None else None

    def hold(self) -> Action:
        """No motion (or the joints as commanded), the gripper as commanded."""
        controller = self._controller
        motion = np.zeros(6) if self._control is Control.SE3 else controller.angles_rad
        return np.concatenate([motion, [controller.width]])

    def report(self) -> HostReport:
        """Placements, drops and losses so far."""
        start = self._begun()
        in_source = {n for n, p in self._poses.items() if _is_in_source(p)} if start.layout.is_order else set()
        known = self._referee.report(self._time_s, poses=self._poses, held=self._held, in_source=in_source)
        labels = {**self._labels, **known.labels}
        return dataclasses.replace(known, instruction=start.layout.instruction, labels=labels)

    def signals(self) -> Mapping[str, Any]:
        """The last control step: peaks of torque and contact force over its substeps, poses at its end."""
        start = self._begun()
        data, scene = start.data, start.scene
        return {
            'ee_pose': self._tool,
            'joint_position_rad': data.qpos[scene.joint_qpos],
            'joint_torque_nm': self._monitor.torque_nm,
            'joint_torque_limit_nm': panda.TORQUE_LIMIT_NM,
            'body_pose': self._poses,
            'contacts': self._contacts,
            'contact_point_m': self._monitor.points_m(self._contacts),
            'gripper_position': self._opening,
            'gripper_contact': bool(self._held),  # both fingers on one item; a finger on the table is no grip
            'action_processed': self._processed,
            'joint_velocity_rad_s': data.qvel[scene.joint_dof],
            'robot_force_n': self._force_n,
            'simulator_state': np.concatenate([data.qpos, data.qvel]),
        }

    def scene(self) -> episodes.Scene:
        """Roles of bodies, the target of the (first) goal, and the cameras' calibration."""
        start = self._begun()
        layout = start.layout
        goal = layout.goals[0]
        size = self._types[goal.item].box_m
        rotation = pose.matrix_from_quaternion(goal.pose[3:])
        is_boxed = not layout.is_order
        return episodes.Scene(
            body_roles=self._roles(),
            target_object=goal.item,
            target_center_m=tuple(float(v) for v in goal.pose[:3]) if is_boxed else None,  # type: ignore[arg-type]
            target_size_m=size if is_boxed else None,
            target_rotation=tuple(float(v) for v in rotation.ravel()) if is_boxed else None,
            target_threshold=layout.threshold,
            cameras=tuple(calibrations(start.scene, start.data, self._pictures)),
        )

    def protocol(self) -> ProtocolFacts:
        """The cell's rules; its start states are drawn from the seed by the code whose hash is given."""
        return ProtocolFacts(
            benchmark='tabletop',
            control_rate_hz=CONTROL_RATE_HZ,
            initial_states=f'drawn from the seed: {source_hash(reset, layout)}',
            success_predicate=f'Referee, stops at {self._stop_force_n:g} N',
            success_source=source_hash(Referee),
            success_at_reset='not possible: every item starts off its goal',
            simulator=f'mujoco {load_mujoco().__version__}',
            render_flags={'MUJOCO_GL': os.environ['MUJOCO_GL']} if 'MUJOCO_GL' in os.environ else {},
        )

    def instruction(self) -> str:
        """What is asked for, in words, in the episode that was last reset."""
        return self._begun().layout.instruction

    def things(self) -> tuple[Thing, ...]:
        """What stands on the table, distractors too, as words name it."""
        return things_of(self._begun().layout)

    def pictures(self) -> Mapping[str, Picture]:
        """RGB and depth of every camera, rendered now, with calibration."""
        start = self._begun()
        return self._pictures.take(start.scene, start.data)

    @property
    def film_cameras(self) -> tuple[str, ...]:
        return FILM_CAMERAS

    def film(self, options: FilmOptions, *, states: FilmStates | None = None) -> Footage:
        """The episode drawn from its states, without shadows: the first camera and an overview unless others are named.

        What lies over the frames that a policy is shown (noise, exposure) is not in a film, which shows the world.
        """
        if states is None:
            steps = film_steps(self._steps, control_rate_hz=CONTROL_RATE_HZ, rate_hz=options.rate_hz)
            states = FilmStates(steps, np.array([self._states[step] for step in steps]))
        elif states.steps[0] == 0 and not is_near(states.states[0], self._states[0]):
            raise InputError('the states do not begin where this reset does: another version, or another start')
        return self._filming.footage(self._begun().scene, states, options)

    @property
    def has_views(self) -> bool:
        return self._watch.has_cameras

    def views(self, *, is_over: bool = False) -> Mapping[str, View]:
        """RGB-D of the watching cameras; when all is over the arm is drawn at home, so that it hides nothing."""
        start = self._begun()
        data = at_home(start) if is_over else start.data
        return self._watch.take(start.scene, data, seed=self._seed, t_s=self._time_s)

    def known_scene(self) -> KnownScene:
        """What the drawn layout says beforehand."""
        return known_scene(self._begun())

    def close(self) -> None:
        self._pictures.close()
        self._filming.close()
        self._watch.close()

    # --- inside

    def _begun(self) -> VerifiedStart:
        if self._start is None:
            raise InputError('the cell was not reset yet; call reset(task, seed=...) first')
        return self._start

    @property
    def _time_s(self) -> float:
        return self._steps / CONTROL_RATE_HZ

    def _run(self, references: FloatArray) -> None:
        """Physics at full rate, a substep for each row of actuator inputs."""
        start = self._begun()
        data, model, observe = start.data, start.scene.model, self._monitor.observe
        mj_step, inputs = load_mujoco().mj_step, data.ctrl[: panda.N_JOINTS + 2]
        load, belt = self._load, self._belt
        for row in references:
            inputs[:] = row
            if load is not None:
                load.push()
            if belt is not None:
                belt.run()
            mj_step(model, data)
            observe()

    def _look(self) -> Observation:
        self._steps += 1
        self._judge()
        self._states.append(self._begun().data.qpos.copy())
        # A slow camera keeps showing what it saw at its own time, so it has to be drawn then.
        return self._observe(draws=self._is_looked_at or self._camera_steps > 1)

    def _command(self, given: Action, lasting: Stretch = WHOLE, *, left: float = 1.0) -> FloatArray:
        action = self._checked(given)
        if self._control is Control.SE3:
            motion = self._controller.move_tool(action[:6], self._tool, lasting)
        else:
            motion = self._controller.move_joints(action[:7], lasting, left=left)
        return np.append(motion, self._controller.move_gripper(action[-1]))

    def _judge(self) -> None:
        start = self._begun()
        self._contacts = self._monitor.contacts()
        self._read_poses()
        items = start.scene.item_body
        self._held = held_items(self._contacts, items)
        touched = {
            b if a in ROBOT_BODIES else a for a, b, _ in self._contacts if (a in ROBOT_BODIES) != (b in ROBOT_BODIES)
        }
        self._grip_contact = any(a.endswith('_finger') or b.endswith('_finger') for a, b, _ in self._contacts)
        self._force_n = hardest_robot_contact_n(self._contacts)
        velocity = start.data.qvel.tolist()
        speeds = {n: math.hypot(*velocity[d : d + 3]) for n, d in start.scene.item_dof.items()}
        fallen = self._referee.observe(
            self._time_s,
            poses=self._poses,
            speeds_m_s=speeds,
            held=self._held,
            touched=touched,
            robot_force_n=self._force_n,
        )
        for name in fallen:
            self._park(name)

    def _park(self, name: str) -> None:
        """Lay a fallen item down on the floor, out of the way of everything."""
        start = self._begun()
        address, dof = start.scene.item_qpos[name], start.scene.item_dof[name]
        index = list(start.scene.item_qpos).index(name)
        height_m = FLOOR_HEIGHT_M + self._types[name].half_height_m
        start.data.qpos[address : address + 7] = (PARKED_M + 0.3 * index, PARKED_M, height_m, 1.0, 0.0, 0.0, 0.0)
        start.data.qvel[dof : dof + 6] = 0.0

    def _read_poses(self) -> None:
        start = self._begun()
        data, scene = start.data, start.scene
        self._item_poses = data.qpos[self._item_qpos]  # (items, 7), a copy
        self._poses = {name: self._item_poses[self._item_rows[name]] for name in scene.item_qpos}
        quaternion = np.empty(4)
        load_mujoco().mju_mat2Quat(quaternion, data.site_xmat[scene.tool_site])
        self._tool = np.concatenate([data.site_xpos[scene.tool_site], quaternion])
        self._opening = sum(data.qpos[scene.finger_qpos].tolist()) / (2 * panda.FINGER_TRAVEL_M)

    def _roles(self) -> dict[str, str]:
        layout = self._begun().layout
        roles = dict.fromkeys(ROBOT_BODIES - {'left_finger', 'right_finger', 'hand'}, 'arm')
        roles |= {'hand': 'gripper', 'left_finger': 'gripper', 'right_finger': 'gripper'}
        roles |= {'world': 'structure', 'table': 'furniture', 'stage': 'furniture', 'target_bin': 'furniture'} | {
            f.name: 'furniture' for f in layout.scene.fixtures if f.is_solid
        }
        if layout.scene.belt_m_s:
            roles['belt'] = 'furniture'
        goals = {g.item for g in layout.goals}
        items = {name: 'target' if name in goals else 'bystander' for name in layout.poses}
        return roles | items | dict.fromkeys(layout.distractors, 'distractor')

    def _observe(self, *, draws: bool = True) -> Observation:
        taken = self._shown() if draws else {}
        return Observation(
            self._time_s,
            self._state(),
            images={name: picture.rgb for name, picture in taken.items()},
            depth_m={name: picture.depth_m for name, picture in taken.items()},
            cameras={name: picture.calibration for name, picture in taken.items()},
        )

    def _shown(self) -> Mapping[str, Picture]:
        """The pictures as the cameras' rate has them: new ones, or the last."""
        if not self._pictures.cameras:
            return {}
        if self._steps % self._camera_steps == 0:
            self._last = self.pictures()
            for picture in self._last.values() if self._camera_steps > 1 else ():
                picture.rgb.flags.writeable = picture.depth_m.flags.writeable = False
        return self._last

    def _state(self) -> FloatArray:
        start = self._begun()
        data, scene = start.data, start.scene
        n = panda.N_JOINTS
        values = np.empty(state_width(self._kind))
        values[:n] = data.qpos[scene.joint_qpos]
        values[n] = self._opening
        if self._kind is StateKind.PROPRIOCEPTION:
            return values
        controller, at = self._controller, state.PROPRIOCEPTION_WIDTH
        values[at : at + n] = data.qvel[scene.joint_dof]
        values[at + 7 : at + 14] = self._tool
        values[at + 14 : at + 21] = controller.tool
        values[at + 21], values[at + 22] = controller.width, self._grip_contact
        slots = values[at + 23 :].reshape(MAX_ITEMS, state.SLOT_WIDTH)
        self._slots.write(slots, self._item_poses, np.array([self._status(name) for name in self._order]))
        return values

    def _status(self, name: str) -> float:
        is_placed, is_lost, goal = self._referee.status(name)
        if goal is None:
            return state.BYSTANDER
        return state.LOST if is_lost else state.PLACED if is_placed else state.TO_MOVE


def largest_seen(poses: Mapping[str, FloatArray], types: Mapping[str, ItemType]) -> str:
    """The item that fills most of the two fixed cameras' pictures: the largest silhouette for its distance."""

    def share(name: str) -> float:
        x, y, z = types[name].box_m
        return sum((x * y + y * z + z * x) / float(np.sum((poses[name][:3] - at) ** 2)) for at in FIXED_CAMERAS_M)

    return max(poses, key=share)


def state_width(kind: StateKind) -> int:
    """How many numbers the state of an observation has."""
    return state.STATE_WIDTH if kind is StateKind.PRIVILEGED else state.PROPRIOCEPTION_WIDTH


def _in_world(kinds: Sequence[str] | None, *, has_cameras: bool) -> tuple[str, ...]:
    every = (*KINDS, *STATED)
    for kind in kinds or ():
        if kind not in every:
            raise UnknownName('condition of the tabletop cell', kind, every)
    wanted = every if kinds is None else tuple(kinds)
    return tuple(k for k in wanted if has_cameras or k not in SEEN_ONLY)


def _steps_a_picture(camera_rate_hz: float) -> int:
    steps = CONTROL_RATE_HZ / camera_rate_hz if camera_rate_hz > 0 else 0.0
    if steps < 1 or abs(steps - round(steps)) > 1e-9:
        raise InputError(f'camera_rate_hz is {camera_rate_hz}, wanted {CONTROL_RATE_HZ:g} over a whole number')
    return round(steps)


def _is_in_source(item_pose: FloatArray) -> bool:
    reach = np.abs(item_pose[:2] - np.array(SOURCE_CENTER_M))
    return bool(np.all(reach < np.array(BIN_INNER_M) / 2) and item_pose[2] > 0)


def _member(kind: type[Any], value: str, what: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise UnknownName(what, value, [m.value for m in kind]) from None
