"""Rollouts of robot datasets as recordings: what all of them share, whatever file they come from.

A dataset of demonstrations says neither who drove the robot nor, often, how it went: both are asked for, never made up.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError, UnknownName
from robotrials.formats.clip import VideoClip
from robotrials.formats.imported import Clip, ImportOptions, Ledger, Media, Question, Recording
from robotrials.formats.signal import build_trajectory, check_finite
from robotrials.record import Camera, Episode, Event, EventKind, EventSource, Outcome, Scene
from robotrials.record.field import PARSERS, parse_field

SETTABLE = tuple(name for name in PARSERS if name not in ('episode_id', 'events', 'provenance_id', 'steps'))


@dataclass(frozen=True, slots=True)
class CameraClip:
    """One camera of one rollout."""

    clip: Clip
    width_px: int
    height_px: int
    intrinsics_px: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rollout:
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


def nan_question() -> Question:
    """What to do with numbers that are NaN or infinite."""
    return Question('nan', 'Numbers that are NaN or infinite:', ('refuse', 'keep'), 'refuse')


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
class Recorder:
    """Turns the rollouts of one source into recordings, numbering those of one cell in their order."""

    kind: str  # what the source is, for messages
    options: ImportOptions
    source: Path
    ledger: Ledger
    benchmark: str = ''
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

    def record(self, rollout: Rollout, *, told: Mapping[str, Any] | None = None) -> Recording:
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
                Camera(name, c.intrinsics_px, None, c.width_px, c.height_px, video=files[name])
                for name, c in cameras.items()
            ),
        )
        trajectory = build_trajectory(rollout.time_s, rollout.signals, scene=scene, where=rollout.where)
        media: dict[str, Media] = {files[name]: camera.clip for name, camera in cameras.items()}
        self._account(rollout, len(media))
        return Recording(episode, trajectory, media)

    def _account(self, rollout: Rollout, cameras: int) -> None:
        self.ledger.keep('episodes')
        self.ledger.keep('steps', len(rollout.time_s))
        if cameras:
            encoded = sum(not isinstance(c.clip, VideoClip) for c in rollout.cameras.values())
            if cameras > encoded:
                self.ledger.keep('camera videos', cameras - encoded)
            if encoded:
                self.ledger.keep('camera videos', encoded, why='encoded from images as H.264, which is not lossless')
        elif rollout.cameras:
            self.ledger.drop('cameras', len(rollout.cameras), why='--answer cameras=leave')

    def _episode(self, rollout: Rollout, given: Mapping[str, Any]) -> Episode:
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
            values['outcome'] = _outcome(rollout, success, given.get('time_cap_s'), self.kind)
        # The start state is not recorded, so rollouts of one cell are repeats, and pair with nobody's.
        cell = tuple(str(values.get(n)) for n in ('policy', 'task', 'condition', 'seed', 'instance', 'stratum'))
        values['repeat'] = given.get('repeat', 0) + self._seen.get(cell, 0)
        self._seen[cell] = self._seen.get(cell, 0) + 1
        return Episode(**values)


def _events(rollout: Rollout) -> tuple[Event, ...]:
    events = [Event(t_s, EventKind.PHASE, EventSource.REVIEWER, name=name) for t_s, name in rollout.phases]
    if rollout.success_t_s is not None:
        events.append(Event(rollout.success_t_s, EventKind.PLACEMENT))
    return tuple(events)


def _outcome(rollout: Rollout, success: bool | None, cap_s: float | None, kind: str) -> Outcome:
    if success is None:
        raise InputError(
            f'{rollout.where}: {kind} does not say whether this rollout succeeded; for demonstrations that all did, '
            'say --set outcome=success'
        )
    if success:
        return Outcome.SUCCESS
    is_capped = cap_s is not None and rollout.duration_s >= cap_s - 1e-9
    return Outcome.TIMEOUT if rollout.is_cut or is_capped else Outcome.FAILURE


def file_name(name: str) -> str:
    """A camera's name as part of a file's name."""
    return ''.join(c if c.isalnum() or c in '-_.' else '_' for c in name)
