"""What LIBERO and robosuite record of their arm: roles of bodies, peaks within a step, signals, state.

Rendering that shows this environment, now: robosuite's contexts mended, and frames checked for being stale.

robosuite 1.4.0 makes a context current when it is created and never again: a context that is freed late takes the
current one with it, and a second environment draws into the first one's. Every use and every release makes it current.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RigError, UnknownName
from robotrials.record import Camera, Scene
from robotrials.record.trajectory import pair_points
from robotrials.run.seam import ActionConvention, ControlMode, Frame, Gripper, Rotation, Target

# What every body of a scene is to its task: robot, target, bystander or furniture.

ROBOT, GRIPPER, TARGET, BYSTANDER, FURNITURE, STRUCTURE = (
    'robot', 'gripper', 'target', 'bystander', 'furniture', 'structure',
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """Bodies grouped into things with one role each: an object or fixture is one thing, a robot's link another."""

    things: tuple[str, ...]
    thing_of_geom: NDArray[np.int64]  # (geoms,) index into things
    roles: Mapping[str, str]
    targets: tuple[str, ...]  # the movable objects that the goal is about
    destination: str  # what the first target goes to: an object, or a region of one; may be empty
    body_of: Mapping[str, int]  # movable object -> its root body


def make_cast(
    model: Any, names: Sequence[str], *, roles: Mapping[str, str], targets: Sequence[str], destination: str,
    movable: Mapping[str, int],
) -> Cast:  # fmt: skip
    """`names`: the thing that each body belongs to."""
    things = tuple(dict.fromkeys(names))
    index = {name: i for i, name in enumerate(things)}
    group = np.array([index[name] for name in names], dtype=np.int64)[model.geom_bodyid]
    return Cast(things, group, roles, tuple(targets), destination, movable)


def owner_of(model: Any, body: int, roots: Collection[int]) -> int:
    """The nearest of these bodies, from this one upwards; 0, the world, if there is none."""
    while body and body not in roots:
        body = int(model.body_parentid[body])
    return body


# What every substep of a control step did: peaks of contact force and joint torque, read and never written.
# robosuite's loop calls `sim.step` once a substep (1.5: `sim.step1` and `sim.step2`). After it the contacts and their
# forces are those that moved the world in that substep, so that reading them then misses nothing between control
# steps.

FORCE_FLOOR_N = 1e-3  # lighter contacts are not kept
ELLIPTIC = 1  # mjtCone: forces stand in efc_force as they are


class Monitor:
    """Hooked into one simulation, which robosuite makes anew at every reset.

    What every substep did is kept as it is, and looked at for the whole control step together.
    """

    def __init__(self, env: Any, cast: Cast) -> None:
        import mujoco

        sim, robot = env.sim, env.robots[0]
        self._model, self._data, self._cast = sim.model._model, sim.data._data, cast
        self._joints = np.array(robot._ref_joint_vel_indexes)
        self._contact_force = mujoco.mj_contactForce
        solid = (self._model.geom_contype | self._model.geom_conaffinity) != 0
        has_friction = bool((self._model.geom_condim[solid] >= 3).all()) and not self._model.npair
        self._is_plain = int(self._model.opt.cone) == ELLIPTIC and has_friction
        self._torques: list[NDArray[np.float64]] = []
        self._touches: list[tuple[NDArray[Any], ...]] = []  # of a substep: geoms, points, forces and their places
        self.torque_limit_nm = np.array(robot.torque_limits[1], dtype=float)
        self.torque_nm = np.zeros(len(self._joints))
        self.contacts: list[tuple[str, str, float]] = []
        self.points_m = np.zeros((0, 3))  # of `contacts`: where each pair touched last
        self._points_m = np.full((len(cast.things) ** 2, 3), np.nan)
        for name in ('step', 'step2'):  # robosuite 1.5 steps in halves: after the second the world has moved
            if hasattr(sim, name):
                setattr(sim, name, self._observed(getattr(sim, name)))

    def _observed(self, native: Callable[..., None]) -> Callable[..., None]:
        def step(*given: Any, **named: Any) -> None:
            native(*given, **named)
            self._observe()

        return step

    def begin(self) -> None:
        """Forget what was; a control step begins."""
        self._torques.clear()
        self._touches.clear()

    def end(self) -> None:
        """Take stock of the control step."""
        torques = np.array(self._torques)
        largest = np.abs(torques).argmax(axis=0)
        self.torque_nm = torques[largest, np.arange(torques.shape[1])]
        self.contacts, self.points_m = [], np.zeros((0, 3))
        if not self._touches:
            return
        things, n = self._cast.things, len(self._cast.things)
        geoms, points_m, forces, rows = (np.concatenate(parts) for parts in zip(*self._touches, strict=True))
        counts = [len(touch[0]) for touch in self._touches]
        force_n = forces if not self._is_plain else _magnitudes_n(forces, rows, counts, self._touches)
        first, second = self._cast.thing_of_geom[geoms].T
        substep = np.repeat(np.arange(len(counts)) * n * n, counts)
        totals = np.bincount(substep + first * n + second, weights=force_n, minlength=len(counts) * n * n)
        peaks = totals.reshape(-1, n, n).max(axis=0)
        either = np.triu(np.maximum(peaks, peaks.T))
        touching, pair = np.unique(
            substep + np.minimum(first, second) * n + np.maximum(first, second), return_inverse=True
        )
        points = pair_points(pair, force_n, points_m, n_pairs=len(touching))
        pushing = np.isfinite(points[:, 0])
        self._points_m[touching[pushing] % (n * n)] = points[pushing]  # in the order of substeps: the last one stays
        a, b = np.nonzero(either > FORCE_FLOOR_N)
        self.contacts = [(things[i], things[j], float(either[i, j])) for i, j in zip(a, b, strict=True)]
        self.points_m = self._points_m[a * n + b]

    def _observe(self) -> None:
        data = self._data
        self._torques.append(data.qfrc_actuator[self._joints])
        if not data.ncon:
            return
        contact = data.contact
        forces = data.efc_force.copy() if self._is_plain else self._forces_n()
        self._touches.append((contact.geom.copy(), contact.pos.copy(), forces, contact.efc_address.copy()))

    def _forces_n(self) -> NDArray[np.float64]:
        """The force (C,) of every contact, by MuJoCo's own count; slower than reading it out of `efc_force`."""
        magnitudes, force = np.zeros(self._data.ncon), np.zeros(6)
        for i in range(len(magnitudes)):
            self._contact_force(self._model, self._data, i, force)
            magnitudes[i] = np.sqrt(np.sum(force[:3] ** 2))
        return magnitudes


def _magnitudes_n(
    forces: NDArray[np.float64], rows: NDArray[np.int32], counts: Sequence[int], touches: Sequence[tuple[Any, ...]]
) -> NDArray[np.float64]:
    """The force (C,) of every contact of several substeps: normal and tangential, as `mj_contactForce` has it.

    forces: all substeps' `efc_force`, one after the other. rows: where each contact's begin in its own substep's.
    """
    if not len(forces):
        return np.zeros(len(rows))
    begins = np.cumsum([0, *(len(touch[2]) for touch in touches[:-1])])
    at = (np.maximum(rows, 0) + np.repeat(begins, counts))[:, None] + np.arange(3)
    vectors = forces[np.minimum(at, len(forces) - 1)]
    return np.where(rows >= 0, np.sqrt(np.sum(np.square(vectors), axis=-1)), 0.0)


def held_things(contacts: list[tuple[str, str, float]], cast: Cast) -> set[str]:
    """The movable objects that both fingers touch."""
    sides: dict[str, set[str]] = {}
    for a, b, _ in contacts:
        for finger, thing in ((a, b), (b, a)):
            if 'finger' in finger and thing in cast.body_of:
                is_left = 'left' in finger or 'joint1' in finger
                sides.setdefault(thing, set()).add('left' if is_left else 'right')
    return {thing for thing, touched in sides.items() if len(touched) == 2}


FloatArray = NDArray[np.float64]

CONVENTION = ActionConvention(
    control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.BASE, rotation=Rotation.AXIS_ANGLE,
    gripper=Gripper.CLOSED_IS_PLUS_ONE,
)  # fmt: skip
REST = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])


def check_pictures(cameras: Sequence[str], known: Collection[str], image_size: Sequence[int], *, of: str) -> None:
    """UnknownName or InputError unless the host has these cameras, and pictures can have this size."""
    for camera in cameras:
        if camera not in known:
            raise UnknownName(f'camera of {of}', camera, known)
    if len(image_size) != 2 or min(image_size) < 1:
        raise InputError(f'image_size is {list(image_size)}, wanted [height, width] in pixels')


def hand_pose(data: Any, site: int) -> FloatArray:
    """Position and quaternion (w x y z) of the hand's site."""
    import mujoco

    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, data.site_xmat[site])
    return np.concatenate([data.site_xpos[site], quaternion])


def body_pose(data: Any, body: int) -> FloatArray:
    return np.concatenate([data.xpos[body], data.xquat[body]])


def arm_signals(env: Any, cast: Cast, monitor: Monitor | None, *, site: int, fingers: Any) -> dict[str, Any]:
    """The last control step: peaks of torque and contact force over its substeps, poses at its end.

    site: of the hand. fingers: where the gripper's joints lie in qpos.
    """
    data, robot = env.sim.data._data, env.robots[0]
    known: dict[str, Any] = {
        'ee_pose': hand_pose(data, site),
        'joint_position_rad': data.qpos[robot._ref_joint_pos_indexes],
        'gripper_position': float(np.abs(data.qpos[fingers]).sum()),
        'joint_velocity_rad_s': data.qvel[robot._ref_joint_vel_indexes],
        'body_pose': {name: body_pose(data, body) for name, body in cast.body_of.items()},
    }
    if monitor is not None:
        known |= {
            'joint_torque_nm': monitor.torque_nm,
            'joint_torque_limit_nm': monitor.torque_limit_nm,
            'contacts': monitor.contacts,
            'contact_point_m': monitor.points_m,
            'gripper_contact': bool(held_things(monitor.contacts, cast)),
        }
    return known


def arm_scene(cast: Cast, cameras: Iterable[str], *, height_px: int, width_px: int) -> Scene:
    """What holds for the whole episode."""
    return Scene(
        body_roles=dict(cast.roles),
        target_object=cast.targets[0] if cast.targets else '',
        cameras=tuple(Camera(name, None, None, width_px, height_px) for name in cameras),
    )


# The numbers that say where the arm itself is.

PROPRIOCEPTION = (
    'eef_x_m', 'eef_y_m', 'eef_z_m', 'eef_rx_rad', 'eef_ry_rad', 'eef_rz_rad', 'finger_left_m', 'finger_right_m',
)  # fmt: skip


POSE = ('x_m', 'y_m', 'z_m', 'qw', 'qx', 'qy', 'qz')  # of a thing
SENSORS = ('robot0_eef_pos', 'robot0_eef_quat', 'robot0_gripper_qpos')  # robosuite's, that they are read from


def axis_angle(quaternion_xyzw: FloatArray) -> FloatArray:
    """The rotation vector, as published LIBERO evaluations compute it."""
    w = min(max(float(quaternion_xyzw[3]), -1.0), 1.0)
    length = math.sqrt(1.0 - w * w)
    if math.isclose(length, 0.0):
        return np.zeros(3)
    turned: FloatArray = quaternion_xyzw[:3] * 2.0 * math.acos(w) / length
    return turned


def proprioception(observed: Any) -> FloatArray:
    """Eight numbers: hand position, hand rotation vector, finger joints."""
    hand_m, quaternion, fingers = (observed[name] for name in SENSORS)
    return np.concatenate([hand_m, axis_angle(quaternion), fingers])


MOVED_M = 0.01  # a hand that moved so far since a frame cannot look the same
TURN_RAD = 0.3  # of a joint, for the check


def mend_rendering() -> None:
    """Make robosuite's render contexts current before they draw, are read and are freed; done once a process."""
    from robosuite.utils import binding_utils

    context = binding_utils.MjRenderContext
    if getattr(context, 'is_mended', False):
        return
    draw, read, release = context.render, context.read_pixels, context.__del__

    def current_first(call: Any) -> Any:
        def mended(self: Any, *given: Any, **named: Any) -> Any:
            if getattr(self, 'gl_ctx', None) is not None:
                self.gl_ctx.make_current()
            return call(self, *given, **named)

        return mended

    context.render, context.read_pixels = current_first(draw), current_first(read)
    context.__del__ = current_first(release)
    context.is_mended = True
    draw_camera = binding_utils.MjSim.render

    def drawn_if_wanted(self: Any, width: Any = None, height: Any = None, **named: Any) -> Any:
        if _UNSEEN:
            return np.zeros((height, width, 3), dtype=np.uint8)
        return draw_camera(self, width, height, **named)

    binding_utils.MjSim.render = drawn_if_wanted


_UNSEEN: list[bool] = []  # whether pictures of this moment are for nobody


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Draw nothing meanwhile: robosuite draws every camera three times in a reset, to see that its sensors work."""
    _UNSEEN.append(True)
    try:
        yield
    finally:
        _UNSEEN.pop()


class Shutter:
    """Draws the pictures of a robosuite environment only where somebody will look.

    robosuite takes its pictures within a control step, at the first of its substeps. Where none is wanted the state of
    that moment is kept in its place, and `drawn` is the picture that robosuite would have taken then.
    """

    def __init__(self, env: Any, cameras: dict[str, str], *, height_px: int, width_px: int) -> None:
        import mujoco

        self.is_open = True
        self._env, self._cameras, self._sensors = env, cameras, {}
        self.kept = mujoco.MjData(env.sim.model._model)  # the moment that the last pictures show
        self._blank = np.zeros((height_px, width_px, 3), dtype=np.uint8)  # in the place of what nobody looks at
        for camera in cameras.values():
            observable = env._observables[f'{camera}_image']
            self._sensors[camera] = sensor = getattr(observable._sensor, 'bare', observable._sensor)
            observable._sensor = self._shuttered(camera, sensor)

    def drawn(self) -> dict[str, NDArray[np.uint8]]:
        """The pictures of the last step that was taken with the shutter closed, by the host's names of cameras."""
        context = self._env.sim._render_context_offscreen
        present = context.data
        try:
            context.data = SimpleNamespace(_data=self.kept)  # as robosuite wraps MuJoCo's data
            return {name: np.array(self._sensors[camera]({})) for name, camera in self._cameras.items()}
        finally:
            context.data = present

    def _shuttered(self, camera: str, sensor: Any) -> Any:
        import mujoco

        is_first = camera == next(iter(self._cameras.values()))

        def picture(cache: dict[str, Any]) -> Any:
            if is_first:  # cameras are read one after the other at the same moment
                sim = self._env.sim
                mujoco.mj_copyData(self.kept, sim.model._model, sim.data._data)
            return sensor(cache) if self.is_open else self._blank

        picture.bare = sensor  # type: ignore[attr-defined] # robosuite may keep its sensors over a reset
        picture.__modality__ = sensor.__modality__  # type: ignore[attr-defined]
        return picture


class FrameCheck:
    """Looks for frames that do not show the present, by drawing copies of the state: the simulation is not touched."""

    def __init__(self, env: Any, cameras: dict[str, str], *, height_px: int, width_px: int) -> None:
        self._env, self._cameras, self._size = env, cameras, (height_px, width_px)
        self._last: dict[str, tuple[bytes, NDArray[np.float64]]] = {}

    def at_reset(self, images: dict[str, NDArray[np.uint8]], *, moment: Any = None) -> None:
        """RigError unless every image is its moment drawn again, and another one once the arm has moved.

        moment: the data that the images show, by default the present. An image that differs from the last one of the
        episode before need not be told from one with the arm elsewhere: the renderer has drawn since.
        """
        for name, camera in self._cameras.items():
            if not np.array_equal(images[name], self._drawn(camera, moment, turn_rad=0.0)):  # with all that there is
                raise RigError(f'camera {name}: the frame after the reset does not show the start state')
            has_changed = name in self._last and self._last[name][0] != _digest(images[name])
            if not has_changed and np.array_equal(images[name], self._drawn(camera, moment, turn_rad=TURN_RAD)):
                raise RigError(f'camera {name}: the frame is stale, it stays the same when the arm moves')
        self._last.clear()

    def at_step(self, images: dict[str, NDArray[np.uint8]], hand_m: NDArray[np.float64]) -> None:
        """RigError if an image stayed the same while the hand moved."""
        for name, image in images.items():
            digest = _digest(image)
            seen, at_m = self._last.get(name, (b'', hand_m))
            if digest != seen:
                self._last[name] = (digest, hand_m.copy())
            elif np.linalg.norm(hand_m - at_m) > MOVED_M:
                raise RigError(f'camera {name}: the frame is stale, the hand moved {MOVED_M * 100:g} cm and it did not')

    def _drawn(self, camera: str, moment: Any, *, turn_rad: float) -> NDArray[np.uint8]:
        """The view of a camera on a copy of the state, with the arm's joints turned."""
        import mujoco

        sim = self._env.sim
        model, context = sim.model._model, sim._render_context_offscreen
        copy, data = mujoco.MjData(model), sim.data._data if moment is None else moment
        mujoco.mj_copyData(copy, model, data)
        if turn_rad or moment is None:  # what was drawn within a step has the poses of its beginning
            copy.qpos[np.array(self._env.robots[0]._ref_joint_pos_indexes)] += turn_rad
            mujoco.mj_forward(model, copy)
        height, width = self._size
        present = context.data
        try:
            context.data = SimpleNamespace(_data=copy)
            render = context.render if turn_rad else getattr(context, 'render_whole', context.render)
            render(width=width, height=height, camera_id=sim.model.camera_name2id(camera))
            drawn: NDArray[np.uint8] = context.read_pixels(width, height)
        finally:
            context.data = present
        return drawn


def _digest(image: NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=8).digest()
