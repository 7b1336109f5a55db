"""`robotrials import` of LeRobotDataset folders: frames become trajectories, `next.*` outcomes, language phases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.clip import FrameClip, VideoClip
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    refuse_unused,
)
from robotrials.formats.lerobot import instructions
from robotrials.formats.lerobot_evaluation import check_rollouts, rollouts_question
from robotrials.formats.lerobot_frame import EpisodeFrames, column_names, encoded_images, stream_frames
from robotrials.formats.lerobot_language import LANGUAGE_COLUMNS, phases, read_subtasks
from robotrials.formats.lerobot_layout import PLACE_COLUMNS, FeatureInfo, Layout, read_layout
from robotrials.formats.lerobot_own import OwnRecord, read_own
from robotrials.formats.rollout import CameraClip, Recorder, Rollout, asked, camera_question, nan_question
from robotrials.formats.signal import Assignment, account_signals, assign, check_finite, spelled_out, take_signals
from robotrials.record import Provenance

KNOWN = {'action_raw': 'action', 'reward': 'next.reward', 'done': 'next.done'}
TOLERANCE_S = 1e-4  # LeRobot's own


class LeRobotFormat:
    """LeRobotDataset v2.0, v2.1 and v3.0."""

    name = 'lerobot'
    summary = 'a LeRobotDataset folder, v2.0, v2.1 or v3.0: frames, cameras, next.*, language'

    def recognise(self, path: Path) -> float | None:
        try:
            info = json.loads((path / 'meta' / 'info.json').read_text(encoding='utf-8'))
        except (OSError, ValueError):
            return None
        return CERTAIN if isinstance(info, dict) and 'codebase_version' in info else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='a LeRobotDataset', takes=('columns', 'answers'))
        layout = read_layout(path)
        ledger = Ledger()
        own = read_own(path)
        source = _Source(layout, _assignments(layout, options, own), own, options, ledger, read_subtasks(path))
        source.account()
        keeps_cameras = camera_question().answer(options) == 'keep'
        videos = [place.path for row in layout.rows for place in row.videos.values()] if keeps_cameras else []
        if own is not None and (options.columns or options.defaults):
            raise InputError(
                f'{own.path}: this dataset holds the whole record of its episodes; leave out --map and --set'
            )
        own_files = [own.path] if own is not None else []
        return Imported(
            format=self.name,
            sources=tuple(dict.fromkeys((*layout.meta_files, *own_files, *layout.data_files, *videos))),
            recordings=source.recordings,
            ledger=ledger,
            guesses=tuple(FieldGuess(a.signal, str(a.place), a.change) for a in source.assignments),
            resolved=spelled_out(source.assignments, options) if own is None else None,
            questions=asked(options, nan_question(), camera_question(), rollouts_question()),
            origin=Provenance(environment_id=layout.robot_type, success_parsing=source.success_parsing),
        )


def _assignments(layout: Layout, options: ImportOptions, own: OwnRecord | None) -> tuple[Assignment, ...]:
    if own is not None:
        return own.assignments
    numeric = {
        key: feature.names or tuple(map(str, range(feature.size)))
        for key, feature in layout.features.items()
        if feature.is_numeric and key not in PLACE_COLUMNS
    }
    return assign(numeric, mapped=options.columns, known=KNOWN)


@dataclass(frozen=True, slots=True)
class _Source:
    layout: Layout
    assignments: tuple[Assignment, ...]
    own: OwnRecord | None
    options: ImportOptions
    ledger: Ledger
    subtasks: Mapping[int, str]

    @property
    def success_parsing(self) -> str:
        return 'any frame with next.success' if 'next.success' in self.layout.features else ''

    def account(self) -> None:
        """What of the dataset is left out, and why."""
        features = self.layout.features
        account_signals(self.assignments, {key: f.names for key, f in features.items()}, self.ledger)
        declared = {key for key, feature in features.items() if feature.dtype != 'video'}
        first = self.layout.data_files[:1]
        for name in column_names(first[0]) if first else ():
            if name not in declared and name not in (*PLACE_COLUMNS, *LANGUAGE_COLUMNS):
                self.ledger.drop(f'column {name}', None, why='meta/info.json does not declare it')
        for key, feature in features.items():
            if feature.dtype == 'string':
                self.ledger.drop(f'column {key}', None, why='text per frame has no place in a trajectory')
            elif feature.is_depth:
                self.ledger.drop(f'camera {key}', None, why='depth is kept as lossless files; a video has rounded it')
        self.ledger.drop('statistics', None, why='recomputed when the episodes are written again')

    def recordings(self) -> Iterator[Recording]:
        if self.own is not None:
            yield from self._own_recordings(self.own)
            return
        recorder = Recorder(kind='a LeRobotDataset', options=self.options, source=self.layout.path, ledger=self.ledger)
        outcomes = []
        for frames in self._frames():
            recording = recorder.record(self._rollout(frames))
            outcomes.append(recording.episode.success)
            yield recording
        if 'next.success' in self.layout.features:
            check_rollouts(self.layout.path, outcomes, self.options)

    def _frames(self) -> Iterator[EpisodeFrames]:
        features = self.layout.features
        wanted = [a.place.key for a in self.assignments]
        wanted += [key for key in (*PLACE_COLUMNS, 'next.success') if key in features]
        if camera_question().answer(self.options) == 'keep':
            wanted += [key for key, feature in features.items() if feature.dtype == 'image']
        first = self.layout.data_files[:1]
        present = column_names(first[0]) if first else ()
        wanted += [name for name in (*LANGUAGE_COLUMNS, 'subtask_index') if name in present]
        return stream_frames(self.layout.rows, list(dict.fromkeys(wanted)))

    def _own_recordings(self, own: OwnRecord) -> Iterator[Recording]:
        keeps_nan = nan_question().answer(self.options) == 'keep'
        for frames in self._frames():
            if frames.row.index >= len(own.episodes):
                raise InputError(f'{own.path}: no record of episode {frames.row.index}; the dataset was changed since')
            signals = take_signals(self.assignments, frames.numbers, where=frames.where)
            if not keeps_nan:
                check_finite({k: v for k, v in signals.items() if not k.startswith('action')}, where=frames.where)
            self.ledger.keep('episodes')
            self.ledger.keep('steps', frames.row.length)
            yield own.recording(frames, signals, self._cameras(frames))

    def _rollout(self, frames: EpisodeFrames) -> Rollout:
        layout, row = self.layout, frames.row
        texts = instructions(layout, frames)
        duration_s = row.length / layout.fps
        success, success_t_s = _success(frames, layout.fps)
        done = frames.numbers.get('next.done')
        return Rollout(
            where=frames.where,
            number=row.index,
            time_s=frame_times(frames, layout.fps),
            duration_s=duration_s,
            signals=take_signals(self.assignments, frames.numbers, where=frames.where),
            task=texts[0] if texts else '',
            instruction=texts[0] if texts else '',
            success=success,
            success_t_s=success_t_s,
            is_cut=done is not None and not bool(np.any(done[-1])),
            phases=phases(frames, texts, subtasks=self.subtasks, fps=layout.fps),
            labels={'episode_index': str(row.index)},
            cameras=self._cameras(frames),
            control_rate_hz=layout.fps,
        )

    def _cameras(self, frames: EpisodeFrames) -> dict[str, CameraClip]:
        cameras = {}
        for key, feature in self.layout.features.items():
            if not feature.is_camera or feature.is_depth:
                continue
            clip = self._clip(frames, feature)
            height, width = feature.image_shape[:2]
            if clip is not None:
                cameras[key.removeprefix('observation.images.')] = CameraClip(clip, width, height)
        return cameras

    def _clip(self, frames: EpisodeFrames, feature: FeatureInfo) -> VideoClip | FrameClip | None:
        if feature.dtype == 'video':
            place = frames.row.videos[feature.key]
            return VideoClip(place.path, place.start_s, self.layout.fps, frames.row.length)
        if feature.key not in frames.others:
            return FrameClip((), self.layout.fps)
        return FrameClip(encoded_images(frames, feature), self.layout.fps)


def frame_times(frames: EpisodeFrames, fps: float) -> NDArray[np.float64]:
    """Seconds since the first frame: multiples of 1/fps where the float32 timestamps agree, else as recorded."""
    stamps = frames.numbers.get('timestamp')
    if stamps is None or stamps.ndim != 1 or not len(stamps):
        raise InputError(f'{frames.where}: no timestamp for each frame; wanted one number, in seconds')
    recorded = stamps.astype(np.float64)
    if not np.isfinite(recorded).all():
        at = int(np.flatnonzero(~np.isfinite(recorded))[0])
        raise InputError(f'{frames.where}: timestamp is {recorded[at]} at frame {at}; wanted seconds')
    regular = np.arange(len(recorded)) / fps
    if np.all(np.abs(recorded - regular) <= TOLERANCE_S):
        return regular
    if np.any(np.diff(recorded) <= 0):
        at = int(np.flatnonzero(np.diff(recorded) <= 0)[0]) + 1
        raise InputError(f'{frames.where}: timestamp falls from {recorded[at - 1]} to {recorded[at]} s at frame {at}')
    return recorded


def _success(frames: EpisodeFrames, fps: float) -> tuple[bool | None, float | None]:
    """Whether the host's predicate ever held, and when: `next.*` of a frame is what its action led to."""
    flags = frames.numbers.get('next.success')
    if flags is None:
        return None, None
    held = np.flatnonzero(flags.reshape(len(flags), -1).astype(np.bool_)[:, 0])
    return (True, (int(held[0]) + 1) / fps) if len(held) else (False, None)


LEROBOT = LeRobotFormat()
