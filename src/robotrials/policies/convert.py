"""A policy's actions as the host wants them: taken, restored, converted between conventions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError
from robotrials.policies.mapping import ActionEntry, DeltaFrom, Part
from robotrials.policies.observe import GRIPPER_ENDS, bind_part, convert_gripper
from robotrials.policies.rotation import from_matrix, to_matrix
from robotrials.policies.statistic import Normalizer
from robotrials.run import ControlMode, Frame, Gripper, HostSpec, Observation, Rotation, Target

FloatArray = NDArray[np.float64]


class Converter:
    """An ActionEntry bound to one host."""

    def __init__(self, entry: ActionEntry, host: HostSpec) -> None:
        self._entry, self._ours = entry, host.action
        self._theirs = entry.convention
        problems = list(_problems(entry, host))
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


def _problems(entry: ActionEntry, host: HostSpec) -> Iterator[str]:
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
    for part in Part:
        none = Gripper.NONE if part is Part.GRIPPER else Rotation.NONE
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
