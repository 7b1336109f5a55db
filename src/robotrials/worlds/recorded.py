"""What a recorder kept of an arm behind a rosbridge, read by the topics that the trial's plan names.

The console times and counts an episode; a ROS bag beside it has the joints, the gripper, the tool and the RGB-D
cameras. The options of the plan's host (`use = "rosbridge"`) say which topic is which and in which units, so that
`robotrials store attach` needs to ask nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, RobotrialsError
from robotrials.formats.bag import Bag, BagMessage, header_stamp_ns, open_bag
from robotrials.record import Episode, Store, Trajectory
from robotrials.record.footage import END, FOLDER, KNOWN, START, View, pack_views, read_scene
from robotrials.value import read_table
from robotrials.worlds.depth import DepthEntry, make_view
from robotrials.worlds.rosbridge import GripperEntry, RosbridgeOptions

SET_S, AFTER_S = 10.0, 2.0  # before and after the start: where views of the set scene are looked for
PARKING_S = 3.0  # after the end: the arm drives out of sight, and the operator still types the counts
LOG_DELAY_S = 1.0  # between a stamp and the time of its log entry
IMAGE_FIELDS = ('height', 'width', 'encoding', 'is_bigendian', 'step', 'format', 'data')
INFO_FIELDS = ('height', 'width', 'k', 'd', 'distortion_model')
Moment = dict[str, tuple[BagMessage, BagMessage]]  # camera -> colour and depth


def recorded_rig(store: Store) -> RecordedRig | None:
    """The rig that a store's plan declares; None where its host is no arm behind a rosbridge."""
    try:
        host = json.loads(store.trial.plan)['host']
    except (ValueError, LookupError, TypeError):  # no plan, or one of another program
        return None
    if host.get('use') != 'rosbridge' or not host.get('options'):
        return None
    return RecordedRig(read_table(RosbridgeOptions, host['options'], where=f'{store.path}: host of its plan'))


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedRig:
    """The topics of a rig, for reading its bags."""

    options: RosbridgeOptions

    @cached_property
    def columns(self) -> dict[str, str]:
        """Signal -> topic, as `--map` has them."""
        gripper = self.options.gripper
        columns = {'joint_position_rad': self.options.joint_states}
        columns |= {} if gripper is None else {'gripper_command': f'{gripper.topic}.data'}
        return columns | ({'ee_pose': self.options.tool} if self.options.tool else {})

    def fitted(self, path: Path, trajectory: Trajectory) -> Trajectory:
        """The trajectory of a bag with the arm's joints alone, and the gripper as an opening from 0 to 1."""
        names = _joint_names(open_bag(path), self.options.joint_states)
        absent = [name for name in self.options.joints if name not in names]
        if absent:
            raise InputError(f'{path}: {self.options.joint_states} has no {", ".join(absent)}, which the plan names')
        order = [names.index(name) for name in self.options.joints]
        changed: dict[str, Any] = {
            name: None if (values := getattr(trajectory, name)) is None else values[:, order]
            for name in ('joint_position_rad', 'joint_torque_nm')
        }
        if self.options.torque_limit_nm and changed['joint_torque_nm'] is not None:
            changed['joint_torque_limit_nm'] = np.array(self.options.torque_limit_nm)
        gripper = self.options.gripper
        if gripper is not None:
            changed |= _openings(gripper, trajectory, names, where=str(path))
        return dataclasses.replace(trajectory, **changed)

    def span(self, path: Path) -> tuple[float, float]:
        """From the first joint states of a bag to its last, by their stamps or, without them, by their log times."""
        logged, stamped = open_bag(path).stamps_ns(self.options.joint_states)
        times = stamped if stamped and min(stamped) > 0 else logged
        return min(times) / 1e9, max(times) / 1e9

    def views(
        self, path: Path, episode: Episode, *, clock: Callable[[float], float]
    ) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """Files of RGB-D at the start and the end of an episode, and what they lack; `clock` is the bag's, of ours."""
        if not self.options.depth:
            return {}, ()
        given = {name: getattr(episode, name) or 0 for name in ('seed', 'instance')}
        given |= {'task': episode.task, 'stratum': episode.stratum}
        files = {KNOWN: read_scene(self.options.known, given).as_json().encode()}
        bag, end_s = open_bag(path), episode.duration_s or 0.0
        windows = {START: (-SET_S, AFTER_S, 0.0), END: (end_s - PARKING_S, end_s + PARKING_S, end_s + PARKING_S)}
        lacks = []
        for name, window in windows.items():
            first_s, last_s, wanted_s = (clock(t_s) for t_s in window)
            try:
                moment = self._moment(bag, first_s, last_s, wanted_s=wanted_s)
                files[name] = pack_views(self._views(bag, moment, zero_s=clock(0.0)))
            except RobotrialsError as error:
                lacks.append(f'{"start" if name == START else "end"}: {error}')
        if lacks:
            files[f'{FOLDER}/end.txt'] = '; '.join(lacks).encode()
        return files, tuple(lacks)

    def _moment(self, bag: Bag, first_s: float, last_s: float, *, wanted_s: float) -> Moment:
        """The last images of all cameras that belong together up to a time, or the first ones after it."""
        best: Moment | None = None
        newest: dict[str, BagMessage] = {}
        for message in self._images(bag, first_s, last_s):
            newest[message.topic] = message
            moment = self._together(newest)
            if moment is None or (best is not None and _at_s(message) > wanted_s):
                continue
            best = moment
        if best is not None:
            return best
        silent = [name for name, e in self.options.depth.items() if e.color not in newest or e.depth not in newest]
        if silent:
            raise AnswerError(f'camera {", ".join(silent)}: no colour and depth near it in {bag.path.name}')
        raise AnswerError(f'no colour and depth near it in {bag.path.name} whose stamps belong together')

    def _images(self, bag: Bag, first_s: float, last_s: float) -> Iterator[BagMessage]:
        topics = {topic for entry in self.options.depth.values() for topic in (entry.color, entry.depth)}
        window = (round((first_s - LOG_DELAY_S) * 1e9), round((last_s + LOG_DELAY_S) * 1e9))
        for message in bag.messages(topics, between_ns=window):
            if first_s <= _at_s(message) <= last_s:
                yield message

    def _together(self, newest: Mapping[str, BagMessage]) -> Moment | None:
        moment: Moment = {}
        for name, entry in self.options.depth.items():
            color, depth = newest.get(entry.color), newest.get(entry.depth)
            if color is None or depth is None or abs(_at_s(color) - _at_s(depth)) > entry.skew_s:
                return None
            moment[name] = color, depth
        stamps = [_at_s(color) for color, _ in moment.values()]
        return moment if max(stamps) - min(stamps) <= self.options.across_s else None

    def _views(self, bag: Bag, moment: Moment, *, zero_s: float) -> dict[str, View]:
        return {
            name: make_view(
                name, entry, _fields(moment[name][0].content, IMAGE_FIELDS),
                _fields(moment[name][1].content, IMAGE_FIELDS), _info(bag, name, entry),
                t_s=_at_s(moment[name][0]) - zero_s,
            )
            for name, entry in self.options.depth.items()
        }  # fmt: skip


def _openings(
    gripper: GripperEntry, trajectory: Trajectory, names: tuple[str, ...], *, where: str
) -> dict[str, NDArray[np.float64]]:
    """Commanded and measured openings, from the units of the topic and of the joint."""
    if gripper.joint not in names:
        raise InputError(f'{where}: no joint {gripper.joint}, by which the plan measures the gripper')
    assert trajectory.joint_position_rad is not None
    measured = np.asarray(trajectory.joint_position_rad, dtype=np.float64)[:, names.index(gripper.joint)]
    openings = {'gripper_position': (measured - gripper.joint_closed) / (gripper.joint_open - gripper.joint_closed)}
    if trajectory.gripper_command is not None:
        command = np.asarray(trajectory.gripper_command, dtype=np.float64)
        openings['gripper_command'] = (command - gripper.closed) / (gripper.open - gripper.closed)
    return openings


def _joint_names(bag: Bag, topic: str) -> tuple[str, ...]:
    first = next(iter(bag.messages([topic])), None)
    if first is None:
        raise InputError(f'{bag.path}: no message on {topic}, where the plan says the joint states are')
    return tuple(first.content.name)


def _at_s(message: BagMessage) -> float:
    return header_stamp_ns(message.content) / 1e9


def _fields(content: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """A message of a bag as rosbridge would write it."""
    values = {name: getattr(content, name) for name in names if hasattr(content, name)}
    return {
        name: bytes(value) if name == 'data' else value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def _info(bag: Bag, name: str, entry: DepthEntry) -> dict[str, Any]:
    first = next(iter(bag.messages([entry.info])), None)
    if first is None:
        raise AnswerError(f'camera {name}: no calibration on {entry.info}')
    return _fields(first.content, INFO_FIELDS)
