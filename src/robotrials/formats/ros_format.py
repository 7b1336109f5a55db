"""`robotrials import` of ROS 2 bags: one bag is one rollout, and a folder of bags is many.

Presets: joint states, poses, tf, grippers, wrenches and cameras by their message types; `--map SIGNAL=/topic.field` for
others. What its recorder put into `custom_data` of metadata.yaml (outcome, task, policy, ...) is taken as said.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.bag import METADATA, Bag, BagMessage, is_bag, open_bag
from robotrials.formats.imported import (
    CERTAIN,
    LIKELY,
    FieldGuess,
    ImportAccount,
    Imported,
    ImportOptions,
    Media,
    Recording,
    refuse_unused,
)
from robotrials.formats.rollout import (
    SCALARS,
    SETTABLE,
    CameraClip,
    RolloutRecorder,
    SourceRollout,
    asked,
    camera_question,
    check_signal,
    nan_question,
)
from robotrials.formats.ros_signal import (
    CAMERA_INFO,
    FLOATS,
    GRIPPER_COMMAND,
    IMAGES,
    JOINT_STATE,
    POSE,
    TF,
    TOOL_FRAMES,
    WRENCH,
    BagClip,
    Series,
    TopicPlace,
    TransformTree,
    choose_clock,
    field_numbers,
    hold,
    parse_topic_place,
    pose_numbers,
    read_camera_facts,
    select,
    wrench_numbers,
)
from robotrials.formats.ros_view import (
    SETTINGS,
    VIEW,
    DepthCamera,
    MomentClip,
    ViewOptions,
    ViewReader,
    depth_cameras,
    known_clip,
    view_options,
)
from robotrials.record import Provenance
from robotrials.record.episode import parse_field

# What RealSense's SDK writes beside its images; what of it is needed is read.
SDK_BESIDE = re.compile(
    r'/(file_version|additional_info)$|/device_\d+/(info$|sensor_\d+/(info|option|post_processing|notification|'
    r'\w+_\d+/(info|tf|image/metadata|imu/metadata|imu_intrinsic)))'
)
ORBBEC_TOPIC = re.compile(r'/cam/sensor_\d+/frameType_\d+')
YEAR_2000_NS = 946_684_800 * 10**9


class RosFormat:
    """ROS 2 bags, sqlite3 or MCAP; lone MCAP files; ROS 1 bags."""

    name = 'ros'
    summary = 'a ROS 2 bag (folder, .mcap or .db3), a ROS 1 .bag, or a folder of them: one bag per rollout'

    def recognise(self, path: Path) -> float | None:
        try:
            if is_bag(path):
                return CERTAIN
            return LIKELY if path.is_dir() and any(map(is_bag, path.iterdir())) else None
        except OSError:
            return None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='ROS bags', takes=('columns', 'answers'))
        paths = [path] if is_bag(path) else sorted(p for p in path.iterdir() if is_bag(p))
        if not paths:
            raise InputError(f'{path}: no bag in it; wanted {METADATA} with .mcap or .db3 files, or a lone file')
        bags = [open_bag(p) for p in paths]
        ledger = ImportAccount()
        views = view_options(options)
        plan = make_plan(bags[0], signal_columns(options), views)
        for signal, text in plan.described():
            ledger.keep(f'{signal} from {text}', None)
        source = _BagSource(path, bags, plan, options, views, ledger)
        return Imported(
            format=self.name,
            sources=tuple(file for bag in bags for file in bag.files),
            recordings=source.recordings,
            ledger=ledger,
            guesses=tuple(FieldGuess(signal, str(text)) for signal, text in plan.described()),
            resolved=options,
            questions=asked(options, nan_question(), camera_question()),
            origin=Provenance(success_parsing='custom_data of metadata.yaml, or as set'),
        )


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Which topic feeds which signal."""

    steps: str  # the topic whose messages are the steps
    joints: str = ''
    pose: str = ''
    frame: TopicPlace | None = None
    gripper: Mapping[str, TopicPlace] = field(default_factory=dict)
    wrenches: Mapping[str, str] = field(default_factory=dict)  # signal -> topic
    mapped: Mapping[str, TopicPlace] = field(default_factory=dict)
    cameras: Mapping[str, str] = field(default_factory=dict)  # name -> topic
    views: tuple[DepthCamera, ...] = ()

    @property
    def topics(self) -> set[str]:
        """Every topic that is read for its numbers."""
        named = {self.joints, self.pose, *self.wrenches.values()}
        named |= {p.topic for p in (*self.gripper.values(), *self.mapped.values())}
        return {t for t in named if t}

    def described(self) -> list[tuple[str, str]]:
        rows = [('time_s', f'{self.steps} (its messages are the steps)')]
        if self.joints:
            rows += [('joint_position_rad, joint_torque_nm', self.joints)]
        if self.pose:
            rows += [('ee_pose', self.pose)]
        if self.frame is not None:
            rows += [('ee_pose', f'{self.frame.topic}: {self.frame.child} in {self.frame.parent or "its root"}')]
        rows += [(signal, f'{p.topic}.{p.path}') for signal, p in self.gripper.items()]
        rows += list(self.wrenches.items())
        rows += [(signal, f'{p.topic}.{p.path}' if p.path else p.topic) for signal, p in self.mapped.items()]
        rows += [(f'camera {name}', topic) for name, topic in self.cameras.items()]
        return rows + [(f'RGB-D of {v.name}', f'{v.color} and {v.depth}') for v in self.views]


def signal_columns(options: ImportOptions) -> dict[str, str]:
    """What was mapped, but for cameras that make views."""
    return {name: text for name, text in options.columns.items() if not name.startswith(VIEW)}


def make_plan(bag: Bag, columns: Mapping[str, str], options: ViewOptions) -> TopicPlan:
    """The presets for a bag's topics, overridden by what the user mapped."""
    mapped = {check_signal(signal): parse_topic_place(text) for signal, text in columns.items()}
    for signal, place in mapped.items():
        if place.topic not in bag.topics:
            raise InputError(f'{bag.path}: no topic {place.topic} (for {signal}); found {", ".join(bag.topics)}')
    of = {kind: [t for t, k in sorted(bag.topics.items()) if k == kind] for kind in set(bag.topics.values())}
    # A whole topic of the type that a preset reads is the preset's, and not a row of all its numbers.
    for signal, kind in (('joint_position_rad', JOINT_STATE), ('ee_pose', POSE)):
        if signal in mapped and mapped[signal] == TopicPlace(mapped[signal].topic) in map(TopicPlace, of.get(kind, [])):
            of[kind] = [mapped.pop(signal).topic]
    joints = (
        ''
        if 'joint_position_rad' in mapped
        else _one(bag, of.get(JOINT_STATE, []), 'joint_position_rad', 'joint_states')
    )
    pose = '' if 'ee_pose' in mapped else _one(bag, of.get(POSE, []), 'ee_pose', 'ee', 'eef', 'tcp', 'tool')
    frame = mapped.get('ee_pose') if 'ee_pose' in mapped and mapped['ee_pose'].child else None
    if frame is None and not pose and 'ee_pose' not in mapped and TF in of:
        frame = TopicPlace('/tf')
    gripper = _gripper(of, mapped)
    plain = {signal: place for signal, place in mapped.items() if not place.child}
    wrenches = {f'extra/{t.strip("/").replace("/", ".")}': t for t in of.get(WRENCH, [])}
    first = [joints, pose, *(p.topic for p in plain.values()), *wrenches.values(), *(p.topic for p in gripper.values())]
    views = depth_cameras(bag, options.topics)
    depths = {view.depth for view in views}
    images = {t.strip('/').replace('/', '.'): t for kind in IMAGES for t in of.get(kind, [])}
    cameras = {name: topic for name, topic in images.items() if topic not in depths}
    # A recording of cameras alone has their frames as its steps.
    steps = next((topic for topic in first if topic), views[0].color if views else '')
    if any(ORBBEC_TOPIC.fullmatch(topic) for topic in bag.topics):
        raise InputError(
            f"{bag.path}: a file of Orbbec's own SDK, which is not read; record the topics of its ROS driver instead: "
            'ros2 bag record /camera/color/image_raw /camera/color/camera_info /camera/depth/image_raw '
            '/camera/depth/camera_info /tf_static'
        )
    if not steps:
        raise InputError(
            f'{bag.path}: no topic that a trajectory could be made of: {_listed(bag)}. '
            '--map SIGNAL=/topic.field takes any numbers, such as --map action_raw=/policy/action.data'
        )
    return TopicPlan(steps, joints, pose, frame, gripper, wrenches, plain, cameras, views)


def _one(bag: Bag, topics: list[str], signal: str, *preferred: str) -> str:
    if len(topics) < 2:
        return topics[0] if topics else ''
    likely = [t for t in topics if any(word in t.rsplit('/', 1)[-1].lower() for word in preferred)]
    if len(likely) != 1:
        raise InputError(f'{bag.path}: {", ".join(topics)} could be {signal}; say which with --map {signal}=TOPIC')
    return likely[0]


def _gripper(of: Mapping[str, list[str]], mapped: Mapping[str, TopicPlace]) -> dict[str, TopicPlace]:
    places = {}
    if 'gripper_command' not in mapped and len(of.get(GRIPPER_COMMAND, [])) == 1:
        places['gripper_command'] = TopicPlace(of[GRIPPER_COMMAND][0], 'position')
    floats = [t for kind in FLOATS for t in of.get(kind, []) if 'gripper' in t.lower()]
    if 'gripper_position' not in mapped and len(floats) == 1:
        places['gripper_position'] = TopicPlace(floats[0], 'data')
    return places


def _listed(bag: Bag) -> str:
    return ', '.join(f'{topic} ({kind})' for topic, kind in sorted(bag.topics.items())) or 'none'


@dataclass(frozen=True, slots=True)
class _BagSource:
    path: Path
    bags: list[Bag]
    plan: TopicPlan
    options: ImportOptions
    views: ViewOptions
    ledger: ImportAccount

    def recordings(self) -> Iterator[Recording]:
        fields = {name: text for name, text in self.options.defaults.items() if name not in SETTINGS}
        options = dataclasses.replace(self.options, defaults=fields)
        recorder = RolloutRecorder(kind='a ROS bag', options=options, source=self.path, ledger=self.ledger)
        for number, bag in enumerate(self.bags):
            rollout, moments = self._rollout(bag, number)
            recording = recorder.record(rollout, told=_told(bag))
            episode = recording.episode
            files: dict[str, Media] = {**moments, **(known_clip(self.views, episode, bag) if moments else {})}
            if moments and not self.views.known:
                self.ledger.hint('RGB-D is scored against what is known of the scene; --set known=FILE.json keeps that')
            own = f'episodes/{episode.episode_id}-{episode.attempt}'
            media = {**recording.media, **{f'{own}/{name}': clip for name, clip in files.items()}}
            yield dataclasses.replace(recording, media=media)

    def _rollout(self, bag: Bag, number: int) -> tuple[SourceRollout, dict[str, MomentClip]]:
        if bag.lost:
            self.ledger.note(bag.lost)
        plan = make_plan(bag, signal_columns(self.options), self.views) if number else self.plan
        reading = _BagReading(plan)
        wanted = {*plan.topics, *(t for t, k in bag.topics.items() if k == TF and plan.frame is not None)}
        for message in bag.messages(wanted):
            reading.take(message, bag)
        signals, at_ns = reading.finish(bag, self.ledger)
        self._account(bag, plan, wanted)
        start_ns = at_ns[0]
        time_s = (at_ns - start_ns) / 1e9
        keeps = camera_question().answer(self.options) == 'keep'
        reader = ViewReader(
            bag=bag, options=self.views, steps_ns=at_ns, stamped=reading.stamped, ee_pose=signals.get('ee_pose'),
            ledger=self.ledger,
        )  # fmt: skip
        moments = reader.moments(plan.views) if keeps and plan.views else {}
        return SourceRollout(
            where=str(bag.path), number=number, time_s=time_s,
            duration_s=float(time_s[-1] + (np.median(np.diff(time_s)) if len(time_s) > 1 else 0.0)),
            signals=signals, labels={'bag': bag.path.name, **_labels(bag)},
            cameras=self._cameras(bag, plan, at_ns, stamped=reading.stamped) if keeps else {},
            control_rate_hz=float(1 / np.median(np.diff(time_s))) if len(time_s) > 1 else None,
            started_at=_started_at(int(start_ns)),
        ), moments  # fmt: skip

    def _account(self, bag: Bag, plan: TopicPlan, wanted: set[str]) -> None:
        pictured = {*plan.cameras.values(), *(view.depth for view in plan.views)}
        for topic, kind in sorted(bag.topics.items()):
            if topic in wanted or topic in pictured or kind == CAMERA_INFO or SDK_BESIDE.match(topic):
                continue
            self.ledger.drop(
                f'messages on {topic} ({kind})',
                bag.counts[topic],
                why='no preset; --map extra/NAME=TOPIC.FIELD keeps it',
            )

    def _cameras(self, bag: Bag, plan: TopicPlan, at_ns: NDArray[np.int64], *, stamped: bool) -> dict[str, CameraClip]:
        cameras = {}
        for name, topic in plan.cameras.items():
            facts = read_camera_facts(bag, topic)
            if facts.refused:
                self.ledger.drop(f'camera {name}', why=facts.refused)
                continue
            clock = 'by header stamps' if stamped and facts.has_stamps else 'by log times'
            self.ledger.note(f'{topic}: one frame per step, the last one before it {clock}')
            rate_hz = 1e9 / float(np.median(np.diff(at_ns))) if len(at_ns) > 1 else 1.0
            clip = BagClip(bag, topic, tuple(at_ns.tolist()), rate_hz, uses_stamps=stamped and facts.has_stamps)
            cameras[name] = CameraClip(clip, facts.width_px, facts.height_px, facts.intrinsics_px)
        return cameras


def _told(bag: Bag) -> dict[str, Any]:
    """The fields of an episode that the recorder wrote into the bag's metadata."""
    texts = {name: text for name, text in bag.custom.items() if name in SETTABLE}
    try:
        return {name: parse_field(name, text) for name, text in texts.items()}
    except InputError as error:
        raise InputError(f'{bag.path / METADATA}: custom_data: {error}') from error


def _started_at(stamp_ns: int) -> dt.datetime | None:
    """The time of a stamp, unless it counts from a robot's or a simulator's start."""
    return dt.datetime.fromtimestamp(stamp_ns / 1e9, dt.UTC) if stamp_ns > YEAR_2000_NS else None


def _labels(bag: Bag) -> dict[str, str]:
    return {k: v for k, v in bag.custom.items() if k not in SETTABLE}


@dataclass(slots=True)
class _BagReading:
    """Collects one bag's messages, then lays them on the steps."""

    plan: TopicPlan
    series: dict[str, Series] = field(default_factory=dict)
    joint_names: tuple[str, ...] = ()
    efforts: Series = field(default_factory=Series)
    velocities: Series = field(default_factory=Series)
    tree: TransformTree = field(default_factory=TransformTree)
    stamped: bool = False
    frames: Series = field(default_factory=Series)  # of the camera whose frames are the steps, where nothing else is

    def take(self, message: BagMessage, bag: Bag) -> None:
        plan, topic, content = self.plan, message.topic, message.content
        where = f'{bag.path}: {topic}'
        if bag.topics[topic] == TF:
            self.tree.add(message)
            return
        if topic == plan.joints:
            self._take_joints(message, where)
        if topic == plan.pose:
            self._series('ee_pose').add(message, pose_numbers(content.pose))
        for signal, wrench in plan.wrenches.items():
            if wrench == topic:
                self._series(signal).add(message, wrench_numbers(content.wrench))
        for signal, place in (*plan.gripper.items(), *plan.mapped.items()):
            if place.topic == topic:
                numbers = field_numbers(content, place.path, where=where)
                self._series(signal).add(message, select(numbers[None], place)[0])

    def _series(self, signal: str) -> Series:
        return self.series.setdefault(signal, Series())

    def _take_joints(self, message: BagMessage, where: str) -> None:
        content = message.content
        names = tuple(content.name)
        self.joint_names = self.joint_names or names
        if sorted(names) != sorted(self.joint_names):
            raise InputError(f'{where}: joints {", ".join(names)} after {", ".join(self.joint_names)}; wanted the same')
        order = [names.index(name) for name in self.joint_names]
        self._series('joint_position_rad').add(message, np.asarray(content.position)[order])
        for series, values in ((self.efforts, content.effort), (self.velocities, content.velocity)):
            if len(values) == len(names):
                series.add(message, np.asarray(values)[order])

    def finish(self, bag: Bag, ledger: ImportAccount) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
        """Every signal at the steps, from the first step at which all are known."""
        if len(self.efforts.values) == len(self._series('joint_position_rad').values) > 0:
            self.series['joint_torque_nm'] = self.efforts
        if len(self.velocities.values) == len(self._series('joint_position_rad').values) > 0:
            self.series['extra/joint_velocity_rad_s'] = self.velocities
        self.series = {name: series for name, series in self.series.items() if series.values}
        if self.joint_names:
            ledger.note(f'joints, in order: {", ".join(self.joint_names)}')
        moving = {f'tf {child}': series for child, series in self.tree.series.items() if len(series.values) > 1}
        if self.plan.steps in (view.color for view in self.plan.views):
            self.frames = Series(*bag.stamps_ns(self.plan.steps))
            moving[self.plan.steps] = self.frames
        self.stamped, clock = choose_clock({**self.series, **moving})
        ledger.note(clock)
        at_ns = self._steps(bag, ledger)
        signals, known = {}, np.ones(len(at_ns), dtype=np.bool_)
        for name, series in self.series.items():
            times = series.times_ns(stamped=self.stamped)
            values, seen = hold(times, series.matrix(f'{bag.path}: {name}'), at_ns)
            signals[name] = values[:, 0] if name in SCALARS else values
            known &= seen
        if self.plan.frame is not None:
            pose = self._frame_pose(bag, at_ns, ledger)
            if pose is not None:
                signals['ee_pose'], seen = pose
                known &= seen
        if not known.any():
            raise InputError(f'{bag.path}: no step at which every signal is known; are the topics from one run?')
        first = int(np.flatnonzero(known)[0])
        if first:
            ledger.drop('steps', first, why='before every topic had its first message')
        return {name: values[first:] for name, values in signals.items()}, at_ns[first:]

    def _steps(self, bag: Bag, ledger: ImportAccount) -> NDArray[np.int64]:
        signal = next((s for s in self.series if self._topic_of(s) == self.plan.steps), None)
        times = np.zeros(0, dtype=np.int64)
        if self.frames.log_ns:
            times = self.frames.times_ns(stamped=self.stamped)
        elif signal is not None:
            times = self.series[signal].times_ns(stamped=self.stamped)
        if not len(times):
            raise InputError(f'{bag.path}: no message on {self.plan.steps}')
        keep = np.concatenate([[True], np.diff(np.maximum.accumulate(times)) > 0])
        if not keep.all():
            ledger.drop('steps', int((~keep).sum()), why=f'two messages of {self.plan.steps} at one time')
        steps: NDArray[np.int64] = times[keep]
        return steps

    def _topic_of(self, signal: str) -> str:
        plan = self.plan
        if signal in ('joint_position_rad', 'joint_torque_nm', 'extra/joint_velocity_rad_s') and plan.joints:
            return plan.joints
        if signal == 'ee_pose' and plan.pose:
            return plan.pose
        places = {**plan.gripper, **plan.mapped}
        return places[signal].topic if signal in places else plan.wrenches.get(signal, '')

    def _frame_pose(self, bag: Bag, at_ns: NDArray[np.int64], ledger: ImportAccount) -> Any:
        frame = self.plan.frame
        assert frame is not None
        child = frame.child or next((f for f in TOOL_FRAMES if f in self.tree.parents), '')
        if not child:
            ledger.drop('tf', None, why='no frame that is surely the tool; --map "ee_pose=/tf:base->tool0" names it')
            return None
        root = frame.parent or self.tree.root_of(child)
        ledger.note(f'ee_pose: tf, {child} in {root}')
        return self.tree.poses(child, root, at_ns, stamped=self.stamped)


ROS = RosFormat()
