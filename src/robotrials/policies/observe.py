"""The host's observation as the policy wants it, and the policy's actions as the host wants them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, near_miss
from robotrials.policies.mapping import (
    ActionEntry,
    ActionPart,
    DeltaFrom,
    Normalizer,
    ObservationEntry,
    StateEntry,
    StatePart,
    prepare_image,
)
from robotrials.run import ControlMode, Frame, Gripper, HostSpec, Observation, Rotation, Target
from robotrials.run.seam import ROTATION_WIDTH

# Rotations between the formats that wires use; arrays of any leading shape.

TINY = 1e-12


def to_matrix(values: NDArray[Any], form: Rotation) -> FloatArray:
    """(..., 3, 3) matrices of rotations written as `form`; AnswerError where a rotation has no direction."""
    given = np.asarray(values, dtype=float)
    if form is Rotation.AXIS_ANGLE:
        return _from_vector(given)
    if form is Rotation.EULER_XYZ:
        return _about(given[..., 2], 2) @ _about(given[..., 1], 1) @ _about(given[..., 0], 0)
    if form is Rotation.QUATERNION_WXYZ:
        return _from_quaternion(given)
    if form is Rotation.QUATERNION_XYZW:
        return _from_quaternion(given[..., [3, 0, 1, 2]])
    if form is Rotation.MATRIX_6D:
        first = _unit(given[..., :3])
        second = given[..., 3:6] - first * np.sum(first * given[..., 3:6], axis=-1, keepdims=True)
        second = _unit(second)
        return np.stack([first, second, np.cross(first, second)], axis=-1)
    return np.broadcast_to(np.eye(3), (*given.shape[:-1], 3, 3)).copy()


def from_matrix(matrices: FloatArray, form: Rotation) -> FloatArray:
    """Matrices (..., 3, 3) written as `form`; quaternions have w >= 0."""
    if form is Rotation.AXIS_ANGLE:
        return _to_vector(matrices)
    if form is Rotation.EULER_XYZ:
        x = np.arctan2(matrices[..., 2, 1], matrices[..., 2, 2])
        y = np.arcsin(np.clip(-matrices[..., 2, 0], -1.0, 1.0))
        z = np.arctan2(matrices[..., 1, 0], matrices[..., 0, 0])
        return np.stack([x, y, z], axis=-1)
    if form is Rotation.QUATERNION_WXYZ:
        return _to_quaternion(matrices)
    if form is Rotation.QUATERNION_XYZW:
        return _to_quaternion(matrices)[..., [1, 2, 3, 0]]
    if form is Rotation.MATRIX_6D:
        return np.concatenate([matrices[..., :, 0], matrices[..., :, 1]], axis=-1)
    return np.empty((*matrices.shape[:-2], 0))


def convert_rotation(values: NDArray[Any], source: Rotation, target: Rotation) -> FloatArray:
    """Rotations written as `source`, written as `target`."""
    if source is target:
        return np.asarray(values, dtype=float)
    return from_matrix(to_matrix(values, source), target)


def _unit(vector: FloatArray) -> FloatArray:
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    if np.any(length < TINY):
        raise AnswerError('a rotation without a direction: its quaternion or axes are zero')
    return np.asarray(vector / length)


def _from_vector(vector: FloatArray) -> FloatArray:
    """Rodrigues' formula."""
    angle = np.linalg.norm(vector, axis=-1)
    safe = np.where(angle < TINY, 1.0, angle)
    a = np.where(angle < TINY, 1.0, np.sin(angle) / safe)[..., None, None]
    b = np.where(angle < TINY, 0.5, (1.0 - np.cos(angle)) / safe**2)[..., None, None]
    cross = np.zeros((*vector.shape[:-1], 3, 3))
    x, y, z = (vector[..., i] for i in range(3))
    cross[..., 0, 1], cross[..., 0, 2], cross[..., 1, 2] = -z, y, -x
    cross[..., 1, 0], cross[..., 2, 0], cross[..., 2, 1] = z, -y, x
    return np.asarray(np.eye(3) + a * cross + b * (cross @ cross))


def _to_vector(matrices: FloatArray) -> FloatArray:
    quaternion = _to_quaternion(matrices)
    w, axis = quaternion[..., :1], quaternion[..., 1:]
    length = np.linalg.norm(axis, axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(length, w)
    return np.asarray(axis * np.where(length < TINY, 2.0, angle / np.where(length < TINY, 1.0, length)))


def _from_quaternion(quaternion: FloatArray) -> FloatArray:
    w, x, y, z = (_unit(quaternion)[..., i] for i in range(4))
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _to_quaternion(matrices: FloatArray) -> FloatArray:
    """By the largest of the four squares (Shepperd), so that no small number is divided by."""
    m = matrices
    xx, yy, zz = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    sums = [m[..., i, j] + m[..., j, i] for i, j in ((1, 0), (0, 2), (2, 1))]  # xy, xz, yz
    gaps = [m[..., i, j] - m[..., j, i] for i, j in ((2, 1), (0, 2), (1, 0))]  # wx, wy, wz
    rows = [
        [1 + xx + yy + zz, gaps[0], gaps[1], gaps[2]],
        [gaps[0], 1 + xx - yy - zz, sums[0], sums[1]],
        [gaps[1], sums[0], 1 - xx + yy - zz, sums[2]],
        [gaps[2], sums[1], sums[2], 1 - xx - yy + zz],
    ]
    candidates = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    best = np.argmax(np.stack([1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz], -1), axis=-1)
    chosen = np.take_along_axis(candidates, best[..., None, None], axis=-2)[..., 0, :]
    unit = chosen / np.linalg.norm(chosen, axis=-1, keepdims=True)
    return np.asarray(unit * np.where(unit[..., :1] < 0, -1.0, 1.0))


def _about(angle_rad: FloatArray, axis: int) -> FloatArray:
    vector = np.zeros((*np.shape(angle_rad), 3))
    vector[..., axis] = angle_rad
    return _from_vector(vector)


Question = dict[str, Any]  # key of the policy -> array or text: what a wire can carry

# The openness of a gripper is 0 closed .. 1 open; each convention is a line through its values for closed and open.
GRIPPER_ENDS: Mapping[Gripper, tuple[float, float]] = {
    Gripper.OPEN_IS_PLUS_ONE: (-1.0, 1.0),
    Gripper.CLOSED_IS_PLUS_ONE: (1.0, -1.0),
    Gripper.OPEN_IS_ONE: (0.0, 1.0),
    Gripper.CLOSED_IS_ONE: (1.0, 0.0),
}


@dataclass(frozen=True, slots=True, eq=False)
class BoundPart:
    """A part of the state with its places in this host's state worked out."""

    entry: StatePart
    places: NDArray[np.intp]

    def read(self, state: NDArray[Any]) -> NDArray[np.float64]:
        entry = self.entry
        if entry.fill:
            return np.array(entry.fill)
        values = np.asarray(state[self.places], dtype=float)
        if entry.rotation is not Rotation.NONE:
            values = convert_rotation(values, entry.rotation, entry.to_rotation)
        if entry.gripper is not Gripper.NONE:
            values = convert_gripper(values, GRIPPER_ENDS[entry.gripper], GRIPPER_ENDS[entry.to_gripper])
        return np.asarray(values * entry.scale + entry.offset)


class Observer:
    """An ObservationEntry bound to one host."""

    def __init__(self, entry: ObservationEntry, host: HostSpec) -> None:
        self.entry = entry
        self.moments = dict(entry.moments)
        problems = list(_problems(entry, host))
        if problems:
            raise InputError(f'the observation mapping does not fit host {host.name}: ' + '; '.join(problems))
        self._state = {
            key: (
                [bind_part(part, host) for part in vector.parts],
                None if vector.normalize is None else Normalizer.of(vector.normalize),
                np.dtype(vector.number.value),
            )
            for key, vector in entry.state.items()
        }

    def question(self, observation: Observation, instruction: str) -> Question:
        """The observation under the policy's keys: pictures, then vectors, then the prompt."""
        asked: Question = {key: self._read(key, observation) for key in (*self.entry.images, *self._state)}
        if self.entry.prompt:
            asked[self.entry.prompt] = self.entry.prompt_template.replace('{instruction}', instruction)
        return asked

    @property
    def past(self) -> tuple[int, ...]:
        """The earlier control steps of which something is sent."""
        return tuple(sorted({step for steps in self.moments.values() for step in steps if step < 0}))

    def _read(self, key: str, observation: Observation) -> NDArray[Any]:
        """A picture or a vector; with moments, one after the other along a first axis."""
        if key not in self.moments:
            return self._one(key, observation)
        return np.stack([self._one(key, _at(observation, step, key)) for step in self.moments[key]])

    def _one(self, key: str, observation: Observation) -> NDArray[Any]:
        if key in self.entry.images:
            image = self.entry.images[key]
            return prepare_image(observation.images[image.camera], image)
        parts, normalizer, dtype = self._state[key]
        vector = np.concatenate([part.read(observation.state) for part in parts])
        if normalizer is not None:
            vector = normalizer.normalize(vector)
        return np.asarray(vector.astype(dtype))


def _at(observation: Observation, step: int, key: str) -> Observation:
    if step and step not in observation.past:
        raise InputError(
            f'{key} is to show control step {step}, but only the present observation was sent; run the policy in a '
            'trial of robotrials, which keeps the moments'
        )
    return observation.past[step] if step else observation


def bind_part(part: StatePart, host: HostSpec) -> BoundPart:
    """Find a part in a host's state; InputError names what the host has instead."""
    if part.fill:
        return BoundPart(part, np.empty(0, dtype=np.intp))
    if part.take:
        if part.take[1] > host.state_width:
            raise InputError(f'take {list(part.take)} is beyond the {host.state_width} numbers of the state')
        return BoundPart(part, np.arange(*part.take))
    for name in part.names:
        if name not in host.state_layout:
            raise InputError(f'the state has no {name!r}: {near_miss(name, host.state_layout)}')
    return BoundPart(part, np.array([host.state_layout.index(name) for name in part.names], dtype=np.intp))


def convert_gripper(
    values: NDArray[Any], source: tuple[float, float], target: tuple[float, float]
) -> NDArray[np.float64]:
    """Gripper numbers from one line through (closed, open) to another."""
    openness = (np.asarray(values, dtype=float) - source[0]) / (source[1] - source[0])
    return np.asarray(target[0] + openness * (target[1] - target[0]))


def _problems(entry: ObservationEntry, host: HostSpec) -> Iterator[str]:
    for key, image in entry.images.items():
        if image.camera not in host.images:
            yield f'{key} wants camera {image.camera!r}: {near_miss(image.camera, host.images)}'
    for key, vector in entry.state.items():
        yield from _state_problems(key, vector, host)


def _state_problems(key: str, vector: StateEntry, host: HostSpec) -> Iterator[str]:
    if not vector.parts:
        yield f'{key} has no parts'
    for part in vector.parts:
        try:
            width = len(bind_part(part, host).places)
        except InputError as error:
            yield f'{key}: {error}'
            continue
        if part.rotation is not Rotation.NONE and width != ROTATION_WIDTH[part.rotation]:
            yield f'{key}: {width} numbers for a rotation as {part.rotation}, wanted {ROTATION_WIDTH[part.rotation]}'


# A policy's actions as the host wants them: taken, restored, converted between conventions.

FloatArray = NDArray[np.float64]


class Converter:
    """An ActionEntry bound to one host."""

    def __init__(self, entry: ActionEntry, host: HostSpec) -> None:
        self._entry, self._ours = entry, host.action
        self._theirs = entry.convention
        problems = list(_convert_problems(entry, host))
        if problems:
            raise InputError(f'the action mapping does not fit host {host.name}: ' + '; '.join(problems))
        self._pose = [bind_part(part, host) for part in entry.pose]
        self._restore = None if entry.unnormalize is None else Normalizer.of(entry.unnormalize)
        self._axes = _axes_matrix(entry.axes)
        self._dt_s = 1.0 / host.control_rate_hz
        order = entry.order or tuple(range(self._theirs.width))
        self._wanted_width = max(order) + 1
        self._places: Any = np.array(order, dtype=np.intp) if entry.order else slice(0, self._theirs.width)
        self._is_same = self._theirs == self._ours and not entry.axes and entry.delta_from is DeltaFrom.PREVIOUS
        is_touched = entry.scale or entry.gripper_range or entry.gripper_threshold is not None
        self._is_plain = self._is_same and not is_touched

    def convert(self, answer: NDArray[Any], observation: Observation) -> FloatArray:
        """The first steps of an answer (h, A) as the host takes them; AnswerError if they are missing or not finite."""
        actions = self.take(answer)
        if self._restore is not None:
            actions = self._restore.restore(actions)
        if self._entry.clip:
            actions = np.clip(actions, self._entry.clip[0], self._entry.clip[1])
        if self._is_plain:
            return actions
        width = self._theirs.motion_width
        motion = actions[:, :width]
        if self._entry.scale:
            motion = motion * np.asarray(self._entry.scale)
        if not self._is_same:
            motion = self._convert_motion(motion, observation)
        if self._ours.gripper is Gripper.NONE:
            return np.ascontiguousarray(motion)
        return np.concatenate([motion, self._convert_gripper(actions[:, width:])], axis=1)

    def take(self, answer: NDArray[Any]) -> FloatArray:
        """The steps and numbers that are the robot's, as floats."""
        if answer.dtype.kind not in 'fiu':
            raise AnswerError(f'actions of {answer.dtype}, wanted numbers')
        steps, wanted = self._entry.chunk_length, self._wanted_width
        if answer.ndim != 2 or answer.shape[0] < steps or answer.shape[1] < wanted:
            raise AnswerError(f'actions of shape {answer.shape}, wanted at least ({steps}, {wanted})')
        taken = np.array(answer[:steps, self._places], dtype=float)
        if not np.isfinite(taken).all():
            raise AnswerError('actions that are not finite')
        return taken

    def _convert_gripper(self, values: FloatArray) -> FloatArray:
        entry = self._entry
        ends = (entry.gripper_range[0], entry.gripper_range[1]) if entry.gripper_range else None
        source = ends or GRIPPER_ENDS[self._theirs.gripper]
        if source == GRIPPER_ENDS[self._ours.gripper] and entry.gripper_threshold is None:
            return values
        openness = convert_gripper(values, source, (0.0, 1.0))
        if entry.gripper_threshold is not None:
            openness = (openness >= entry.gripper_threshold).astype(float)
        return convert_gripper(openness, (0.0, 1.0), GRIPPER_ENDS[self._ours.gripper])

    def _convert_motion(self, motion: FloatArray, observation: Observation) -> FloatArray:
        if self._theirs.control_mode is ControlMode.SE3:
            return self._convert_se3(motion, observation)
        theirs, ours = self._theirs, self._ours
        values, target = motion, theirs.target
        if theirs.control_mode is ControlMode.JOINT_VELOCITY:
            if ours.control_mode is ControlMode.JOINT_VELOCITY:
                return motion
            values, target = motion * self._dt_s, Target.DELTA
        start = self._read_pose(observation) if self._pose else np.zeros(motion.shape[1])
        if target is Target.DELTA:
            positions = start + (values if self._entry.delta_from is DeltaFrom.START else np.cumsum(values, axis=0))
        else:
            positions = values
        if ours.control_mode is ControlMode.JOINT_POSITION and ours.target is Target.ABSOLUTE:
            return np.asarray(positions)
        deltas = np.diff(positions, axis=0, prepend=start[None])
        return deltas / self._dt_s if ours.control_mode is ControlMode.JOINT_VELOCITY else deltas

    def _convert_se3(self, motion: FloatArray, observation: Observation) -> FloatArray:
        theirs, ours = self._theirs, self._ours
        moves = motion[:, :3] @ self._axes.T
        turns = self._axes @ to_matrix(motion[:, 3:], theirs.rotation) @ self._axes.T
        is_plain = theirs.target is ours.target and not (
            theirs.target is Target.DELTA and self._entry.delta_from is DeltaFrom.START
        )
        if not is_plain:
            moves, turns = self._retarget(moves, turns, observation)
        return np.concatenate([moves, from_matrix(turns, ours.rotation)], axis=1)

    def _retarget(
        self, moves: FloatArray, turns: FloatArray, observation: Observation
    ) -> tuple[FloatArray, FloatArray]:
        """Deltas to targets or back, step by step along the chunk."""
        place, facing = self._read_place(observation)
        start_place, start_facing = place, facing
        placed, faced = np.empty_like(moves), np.empty_like(turns)
        is_tool = self._ours.frame is Frame.TOOL
        for step, (move, turn) in enumerate(zip(moves, turns, strict=True)):
            if self._theirs.target is Target.DELTA:
                is_start = self._entry.delta_from is DeltaFrom.START
                origin, frame = (start_place, start_facing) if is_start else (place, facing)
                next_place = origin + (frame @ move if is_tool else move)
                next_facing = frame @ turn if is_tool else turn @ frame
            else:
                next_place, next_facing = move, turn
            if self._ours.target is Target.ABSOLUTE:
                placed[step], faced[step] = next_place, next_facing
            else:
                gap = next_place - place
                placed[step] = facing.T @ gap if is_tool else gap
                faced[step] = facing.T @ next_facing if is_tool else next_facing @ facing.T
            place, facing = next_place, next_facing
        return placed, faced

    def _read_pose(self, observation: Observation) -> FloatArray:
        return np.concatenate([part.read(observation.state) for part in self._pose])

    def _read_place(self, observation: Observation) -> tuple[FloatArray, FloatArray]:
        """Where the tool is, from the state: three numbers of place, and a rotation if the convention has one."""
        pose = self._read_pose(observation) if self._pose else np.zeros(3)
        form = self._entry.pose[1].to_rotation if len(self._entry.pose) > 1 else Rotation.NONE
        return pose[:3], to_matrix(pose[3:], form)


def _axes_matrix(axes: tuple[str, ...]) -> FloatArray:
    """The matrix that takes the policy's axes to the host's."""
    if not axes:
        return np.eye(3)
    matrix = np.zeros((3, 3))
    for row, axis in enumerate(axes):
        matrix[row, 'xyz'.index(axis.lstrip('-'))] = -1.0 if axis.startswith('-') else 1.0
    return matrix


def _convert_problems(entry: ActionEntry, host: HostSpec) -> Iterator[str]:
    theirs, ours = entry.convention, host.action
    rate = entry.control_rate_hz
    if rate is not None and rate != host.control_rate_hz:
        yield f'control_rate_hz: the host has {host.control_rate_hz:g}, the policy {rate:g}'
    if (theirs.control_mode is ControlMode.SE3) != (ours.control_mode is ControlMode.SE3):
        yield f'control_mode: the host has {ours.control_mode}, the policy {theirs.control_mode}'
        return
    if theirs.frame is not ours.frame:
        yield f'frame: the host has {ours.frame}, the policy {theirs.frame}; state the frame in which both are meant'
    if theirs.n_joints != ours.n_joints:
        yield f'n_joints: the host has {ours.n_joints}, the policy {theirs.n_joints}'
    yield from _part_problems(entry, host)
    yield from _pose_problems(entry, host)
    if np.linalg.det(_axes_matrix(entry.axes)) < 0:
        yield f'axes {list(entry.axes)} is a reflection, not a rotation'


def _part_problems(entry: ActionEntry, host: HostSpec) -> Iterator[str]:
    """A gripper or a rotation that only one side has."""
    for part in ActionPart:
        none = Gripper.NONE if part is ActionPart.GRIPPER else Rotation.NONE
        theirs, ours = getattr(entry.convention, part.value), getattr(host.action, part.value)
        if ours is none and theirs is not none and part not in entry.drop:
            yield f"{part.value}: the host has none, the policy {theirs}; drop = ['{part.value}'] leaves it out"
        elif ours is not none and theirs is none:
            yield f'{part.value}: the host has {ours}, the policy none'


def _pose_problems(entry: ActionEntry, host: HostSpec) -> Iterator[str]:
    """What turning deltas into targets, or back, needs."""
    theirs, ours = entry.convention, host.action
    if theirs.control_mode is ControlMode.JOINT_VELOCITY and ours.control_mode is ControlMode.JOINT_VELOCITY:
        return
    goes_absolute = ours.target is Target.ABSOLUTE and ours.control_mode is not ControlMode.JOINT_VELOCITY
    comes_absolute = theirs.target is Target.ABSOLUTE and theirs.control_mode is not ControlMode.JOINT_VELOCITY
    from_start = theirs.target is Target.DELTA and entry.delta_from is DeltaFrom.START
    is_needed = goes_absolute != comes_absolute or (from_start and theirs.rotation is not Rotation.NONE)
    if not entry.pose:
        if is_needed:
            yield (
                f'target: the host has {ours.target}, the policy {theirs.target}; pose = [...] must say which numbers '
                'of the state are the pose'
            )
        return
    try:
        width = sum(len(bind_part(part, host).places) for part in entry.pose)
    except InputError as error:
        yield f'pose: {error}'
        return
    if theirs.control_mode is not ControlMode.SE3 and width != theirs.n_joints:
        yield f'pose has {width} numbers, the policy {theirs.n_joints} joints'
    if theirs.control_mode is ControlMode.SE3 and len(bind_part(entry.pose[0], host).places) != 3:
        yield 'pose wants three numbers of place first, then a part with its rotation'
