"""Rollouts of robot datasets as recordings: what all of them share, whatever file they come from.

A dataset of demonstrations says neither who drove the robot nor, often, how it went: both are asked for, never made up.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError, UnknownName
from robotrials.formats.imported import (
    Clip,
    FieldGuess,
    ImportAccount,
    Imported,
    ImportOptions,
    Media,
    Question,
    Recording,
)
from robotrials.formats.video import TimedClip, VideoClip
from robotrials.record import Camera, Episode, Event, EventKind, EventSource, Outcome, Provenance, Scene, Trajectory
from robotrials.record.episode import PARSERS, parse_field
from robotrials.record.trajectory import POSE_WIDTH, STEP_COLUMNS

# What the numbers of a foreign recording are in the record: by their names where those are clear, by `--map` else.
# A vector that nothing identifies is kept whole under its own name among the extra signals: a unit that is not stated
# is not guessed (LeRobot's `.pos` may be degrees, a percentage or radians).

Array = NDArray[Any]
EE_NAMES = ('ee.x', 'ee.y', 'ee.z', 'ee.qw', 'ee.qx', 'ee.qy', 'ee.qz')
JOINT_NAME = re.compile(r'joint_\d+\.rad')
GRIPPER_NAME = 'gripper.position'
AXIS_ANGLE_POSE = ('x', 'y', 'z', 'axis_angle1', 'axis_angle2', 'axis_angle3')  # LIBERO as published for LeRobot
EXPRESSION = re.compile(r'(?P<key>[^\[\]]+)(?:\[(?P<first>\d+)(?::(?P<last>\d+))?\])?')
EXTRA = 'extra/'
SCALARS = tuple(name for name, width in STEP_COLUMNS.items() if width == 0)


@dataclass(frozen=True, slots=True)
class Place:
    """Some numbers of a source column: all of them, or from `first` to before `last`."""

    key: str
    first: int | None = None
    last: int | None = None

    def __str__(self) -> str:
        if self.first is None:
            return self.key
        is_single = self.last == self.first + 1
        return f'{self.key}[{self.first}]' if is_single else f'{self.key}[{self.first}:{self.last}]'

    def take(self, columns: Mapping[str, Array], *, where: str) -> Array:
        """The numbers as (T, K)."""
        if self.key not in columns:
            raise InputError(f'{where}: no {self.key!r} in it')
        values = columns[self.key]
        values = values.reshape(len(values), -1)
        if self.last is not None and self.last > values.shape[1]:
            raise InputError(f'{where}: {self} wanted, {self.key} has {values.shape[1]} numbers')
        return values if self.first is None else values[:, self.first : self.last]


@dataclass(frozen=True, slots=True)
class Assignment:
    """One signal of the record, and where it comes from."""

    signal: str  # a column of the trajectory, or extra/NAME
    place: Place
    change: str = ''


def parse_place(text: str) -> Place:
    """`KEY`, `KEY[3]` or `KEY[0:7]`."""
    match = EXPRESSION.fullmatch(text.strip())
    if match is None:
        raise InputError(f'{text!r} names no column; wanted KEY, KEY[3] or KEY[0:7]')
    first = None if match['first'] is None else int(match['first'])
    last = first + 1 if first is not None and match['last'] is None else match['last']
    if first is not None and int(last or 0) <= first:
        raise InputError(f'{text!r} is an empty range; wanted FIRST:LAST with FIRST < LAST')
    return Place(match['key'], first, None if first is None else int(last or 0))


def assign(
    names: Mapping[str, Sequence[str]], *, mapped: Mapping[str, str], known: Mapping[str, str] | None = None
) -> tuple[Assignment, ...]:
    """Where each signal of the record comes from.

    `names` holds the numeric columns of the source and, where it has them, the names of their numbers. `mapped` is what
    the user said (signal -> place), `known` what the format fixes (signal -> place). What is left goes to extra/KEY.
    """
    said = {check_signal(signal): parse_place(text) for signal, text in mapped.items()}
    for signal, place in said.items():
        if place.key not in names:
            raise UnknownName(f'column (for {signal})', place.key, names)
    chosen = [Assignment(signal, place, _change(signal, place, names)) for signal, place in said.items()]
    for signal, text in (known or {}).items():
        if signal not in said and parse_place(text).key in names:
            chosen.append(Assignment(signal, parse_place(text)))
    for key, parts in names.items():
        chosen += [a for a in _by_names(key, tuple(parts)) if a.signal not in {c.signal for c in chosen}]
    whole = {a.place.key for a in chosen if a.place.first is None}
    chosen += [Assignment(EXTRA + key, Place(key)) for key in names if key not in whole]
    return tuple(chosen)


def account_signals(
    assignments: Sequence[Assignment], names: Mapping[str, Sequence[str]], ledger: ImportAccount
) -> None:
    """Enter what each signal was taken from, and what the numbers of a vector kept whole are called."""
    for assignment in assignments:
        ledger.keep(f'{assignment.signal} from {assignment.place}', None, why=assignment.change)
        called = names.get(assignment.place.key, ())
        if (
            assignment.signal.startswith(EXTRA)
            and len(called) > 1
            and tuple(called) != tuple(map(str, range(len(called))))
        ):
            ledger.note(f'{assignment.place.key} holds, in order: {", ".join(called)}')


def spelled_out(assignments: Sequence[Assignment], options: ImportOptions) -> ImportOptions:
    """The options with every guess as the user might have said it, for `--save-map`."""
    guessed = {a.signal: str(a.place) for a in assignments if not a.signal.startswith(EXTRA)}
    return dataclasses.replace(options, columns={**guessed, **options.columns})


def import_rollouts(
    name: str, recordings: Callable[[], Iterator[Recording]], assignments: Sequence[Assignment], *,
    sources: Iterable[Path], options: ImportOptions, ledger: ImportAccount, origin: Provenance,
    questions: Sequence[Question] = (), is_guessed: bool = True,
) -> Imported:  # fmt: skip
    """A dataset of rollouts, opened: the places of its signals as guesses, and the questions that every dataset asks.

    name: of the format. recordings: the rollouts, anew at every call. sources: the files that its hash is made of.
    questions: what this format asks beside those about missing numbers and cameras. is_guessed: whether places were
    guessed, and are worth saving for the next import.
    """
    return Imported(
        format=name, sources=tuple(sources), recordings=recordings, ledger=ledger, origin=origin,
        guesses=tuple(FieldGuess(a.signal, str(a.place), a.change) for a in assignments),
        resolved=spelled_out(assignments, options) if is_guessed else None,
        questions=asked(options, nan_question(), camera_question(), *questions),
    )  # fmt: skip


def check_signal(name: str) -> str:
    """The name, if trajectories have such a signal."""
    if name not in STEP_COLUMNS and not name.startswith(EXTRA):
        raise UnknownName('signal of a trajectory', name, [*STEP_COLUMNS, 'extra/NAME'])
    return name


def _by_names(key: str, names: tuple[str, ...]) -> list[Assignment]:
    assignments = []
    for start in range(len(names)):
        if names[start : start + len(EE_NAMES)] == EE_NAMES:
            assignments.append(Assignment('ee_pose', Place(key, start, start + len(EE_NAMES))))
        if names[start : start + 6] == AXIS_ANGLE_POSE:
            assignments.append(Assignment('ee_pose', Place(key, start, start + 6), 'axis-angle to quaternion'))
    joints = [i for i, name in enumerate(names) if JOINT_NAME.fullmatch(name)]
    if joints and joints == list(range(joints[0], joints[-1] + 1)):
        assignments.append(Assignment('joint_position_rad', Place(key, joints[0], joints[-1] + 1)))
    if GRIPPER_NAME in names:
        at = names.index(GRIPPER_NAME)
        assignments.append(Assignment('gripper_position', Place(key, at, at + 1)))
    return assignments


def _change(signal: str, place: Place, names: Mapping[str, Sequence[str]]) -> str:
    width = len(names[place.key]) if place.first is None else (place.last or 0) - place.first
    return 'axis-angle to quaternion' if signal == 'ee_pose' and width == 6 else ''


def take_signals(assignments: Sequence[Assignment], columns: Mapping[str, Array], *, where: str) -> dict[str, Array]:
    """The record's signals of one episode, (T,) or (T, K)."""
    signals: dict[str, Array] = {}
    for assignment in assignments:
        values = assignment.place.take(columns, where=where)
        if assignment.signal == 'ee_pose':
            values = _pose(values, where=f'{where}: {assignment.place}')
        elif assignment.signal in SCALARS:
            if values.shape[1] != 1:
                raise InputError(
                    f'{where}: {assignment.signal} is one number per step, {assignment.place} has {values.shape[1]}'
                )
            values = values[:, 0]
        elif assignment.signal.startswith(EXTRA) and columns[assignment.place.key].ndim == 1:
            values = values[:, 0]
        if assignment.signal in ('done', 'gripper_contact'):
            values = values.astype(np.bool_)
        signals[assignment.signal] = _storable(values)
    return signals


def _storable(values: Array) -> Array:
    """In a type that trajectories are stored in; small whole numbers and halves grow, nothing is rounded."""
    if values.dtype.kind in 'iu' and values.dtype.itemsize < 8 and values.dtype != np.int32:
        return values.astype(np.int64)
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _pose(values: Array, *, where: str) -> Array:
    """(T, 7) from x y z qw qx qy qz, or from x y z and an axis-angle vector in radians."""
    if values.shape[1] == POSE_WIDTH:
        return values
    if values.shape[1] != 6:
        raise InputError(
            f'{where}: {values.shape[1]} numbers for ee_pose; wanted x y z qw qx qy qz, or x y z and an axis-angle '
            'vector in radians'
        )
    rotation = values[:, 3:].astype(np.float64)
    angle = np.linalg.norm(rotation, axis=1, keepdims=True)
    # sin(a/2)/a tends to 1/2 as the angle vanishes.
    scale = np.divide(np.sin(angle / 2), angle, out=np.full_like(angle, 0.5), where=angle > 1e-12)
    return np.concatenate([values[:, :3], np.cos(angle / 2), rotation * scale], axis=1)


def check_finite(signals: Mapping[str, Array], *, where: str) -> None:
    """Raise InputError, naming the signal and the step, at the first number that is NaN or infinite."""
    for name, values in signals.items():
        if values.dtype.kind == 'f' and not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(values))[0].tolist()
            number = f', number {bad[1]}' if len(bad) > 1 else ''
            raise InputError(
                f'{where}: {name.removeprefix(EXTRA)} is {values[tuple(bad)]} at step {bad[0]}{number}; wanted finite '
                'numbers. --answer nan=keep imports it as it is'
            )


def build_trajectory(time_s: Array, signals: Mapping[str, Array], *, scene: Scene, where: str) -> Trajectory:
    """A trajectory from named signals; what breaks the record is named by its place in the source."""
    columns: dict[str, Any] = {name: values for name, values in signals.items() if name in STEP_COLUMNS}
    extra = {name.removeprefix(EXTRA): values for name, values in signals.items() if name.startswith(EXTRA)}
    try:
        return Trajectory(time_s=time_s, **columns, extra=extra, scene=scene)
    except RecordError as error:
        raise InputError(f'{where}: {error}') from error


SETTABLE = tuple(name for name in PARSERS if name not in ('episode_id', 'events', 'provenance_id', 'steps'))


@dataclass(frozen=True, slots=True)
class CameraClip:
    """One camera of one rollout."""

    clip: Clip
    width_px: int
    height_px: int
    intrinsics_px: NDArray[np.float64] | None = None
    steps: tuple[int, ...] = ()  # that each frame shows, as `Camera.video_steps`; empty where it has one per step


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SourceRollout:
    """What a source says of one rollout."""

    where: str  # file and place, for messages
    number: int  # its place in the source
    time_s: NDArray[np.float64]  # (T,)
    duration_s: float
    signals: Mapping[str, NDArray[Any]]
    task: str = ''
    instruction: str = ''
    success: bool | None = None
    success_t_s: float | None = None  # when the host's predicate first held
    is_cut: bool = False  # the recording stopped while the rollout was under way
    phases: tuple[tuple[float, str], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    cameras: Mapping[str, CameraClip] = field(default_factory=dict)
    control_rate_hz: float | None = None
    started_at: dt.datetime | None = None  # of time_s = 0, where a clock was recorded


@cache
def nan_question() -> Question:
    """What to do with numbers that are NaN or infinite."""
    return Question('nan', 'Numbers that are NaN or infinite:', ('refuse', 'keep'), 'refuse')


@cache
def camera_question() -> Question:
    """Whether cameras are copied into the store."""
    return Question('cameras', 'Cameras, which become one video per episode in media/:', ('keep', 'leave'), 'keep')


def asked(options: ImportOptions, *questions: Question) -> tuple[Question, ...]:
    """The questions that the user answered; an answer to none of them is refused."""
    known = {question.key: question for question in questions}
    for key in options.answers:
        if key not in known:
            raise UnknownName('question to answer', key, known)
        known[key].answer(options)
    return tuple(known[key] for key in options.answers)


@dataclass(slots=True, kw_only=True)
class RolloutRecorder:
    """Turns the rollouts of one source into recordings, numbering those of one cell in their order."""

    kind: str  # what the source is, for messages
    options: ImportOptions
    source: Path
    ledger: ImportAccount
    benchmark: str = ''
    remedy: str = ''  # where a rollout does not say how it went
    _defaults: dict[str, Any] = field(default_factory=dict)
    _seen: dict[tuple[str, ...], int] = field(default_factory=dict)
    _trial_id: str = ''

    def __post_init__(self) -> None:
        unknown = [name for name in self.options.defaults if name not in SETTABLE]
        if unknown:
            raise UnknownName(f'field to set for {self.kind}', unknown[0], SETTABLE)
        self._trial_id = f'import:{self.options.source_name(self.source)}'
        self._defaults = {name: parse_field(name, value) for name, value in self.options.defaults.items()}

    @property
    def keeps_nan(self) -> bool:
        return nan_question().answer(self.options) == 'keep'

    @property
    def keeps_cameras(self) -> bool:
        return camera_question().answer(self.options) == 'keep'

    def record(self, rollout: SourceRollout, *, told: Mapping[str, Any] | None = None) -> Recording:
        """The recording of one rollout; `told` are fields that the source states; the user may override them."""
        if not self.keeps_nan:
            check_finite(rollout.signals, where=rollout.where)
        try:
            episode = self._episode(rollout, {**(told or {}), **self._defaults})
        except RecordError as error:
            raise InputError(f'{rollout.where}: {error}') from error
        cameras = rollout.cameras if self.keeps_cameras else {}
        files = {name: f'{episode.episode_id}-{episode.attempt}/{file_name(name)}.mp4' for name in cameras}
        scene = Scene(
            control_rate_hz=rollout.control_rate_hz,
            cameras=tuple(
                Camera(name, c.intrinsics_px, None, c.width_px, c.height_px, files[name], video_steps=c.steps)
                for name, c in cameras.items()
            ),
        )
        trajectory = build_trajectory(rollout.time_s, rollout.signals, scene=scene, where=rollout.where)
        media: dict[str, Media] = {files[name]: camera.clip for name, camera in cameras.items()}
        self._account(rollout, len(media))
        return Recording(episode, trajectory, media)

    def _account(self, rollout: SourceRollout, cameras: int) -> None:
        self.ledger.keep('episodes')
        self.ledger.keep('steps', len(rollout.time_s))
        if cameras:
            encoded = sum(not isinstance(c.clip, VideoClip | TimedClip) for c in rollout.cameras.values())
            if cameras > encoded:
                self.ledger.keep('camera videos', cameras - encoded)
            if encoded:
                self.ledger.keep('camera videos', encoded, why='encoded from images as H.264, which is not lossless')
        elif rollout.cameras:
            self.ledger.drop('cameras', len(rollout.cameras), why='--answer cameras=leave')

    def _episode(self, rollout: SourceRollout, given: Mapping[str, Any]) -> Episode:
        if not given.get('policy'):
            raise InputError(
                f'{self.source}: {self.kind} does not say which policy drove the robot; wanted --set policy=NAME'
            )
        values: dict[str, Any] = {
            'trial_id': self._trial_id,
            'benchmark': self.benchmark,
            'task': rollout.task,
            'instruction': rollout.instruction,
            'started_at': rollout.started_at,
            **given,
            'duration_s': given.get('duration_s', rollout.duration_s),
            'steps': len(rollout.time_s),
            'labels': {**rollout.labels, **given.get('labels', {})},
            'events': _events(rollout),
        }
        if not values['task']:
            raise InputError(f'{rollout.where}: no task in it; wanted --set task=NAME')
        success = given.get('success', rollout.success)
        if success is not None:
            values['success'] = success
        if 'outcome' not in values:
            values['outcome'] = _outcome(rollout, success, given.get('time_cap_s'), kind=self.kind, remedy=self.remedy)
        # The start state is not recorded, so rollouts of one cell are repeats, and pair with nobody's.
        cell = tuple(str(values.get(n)) for n in ('policy', 'task', 'condition', 'seed', 'instance', 'stratum'))
        values['repeat'] = given.get('repeat', 0) + self._seen.get(cell, 0)
        self._seen[cell] = self._seen.get(cell, 0) + 1
        return Episode(**values)


def _events(rollout: SourceRollout) -> tuple[Event, ...]:
    events = [Event(t_s, EventKind.PHASE, EventSource.REVIEWER, name=name) for t_s, name in rollout.phases]
    if rollout.success_t_s is not None:
        events.append(Event(rollout.success_t_s, EventKind.PLACEMENT))
    return tuple(events)


def _outcome(rollout: SourceRollout, success: bool | None, cap_s: float | None, *, kind: str, remedy: str) -> Outcome:
    if success is None:
        raise InputError(
            f'{rollout.where}: {kind} does not say whether this rollout succeeded; for demonstrations that all did, '
            f'say --set outcome=success{f"; {remedy}" if remedy else ""}'
        )
    if success:
        return Outcome.SUCCESS
    is_capped = cap_s is not None and rollout.duration_s >= cap_s - 1e-9
    return Outcome.TIMEOUT if rollout.is_cut or is_capped else Outcome.FAILURE


def file_name(name: str) -> str:
    """A camera's name as part of a file's name."""
    return ''.join(c if c.isalnum() or c in '-_.' else '_' for c in name)
