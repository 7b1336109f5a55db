"""A store as Rerun recordings: a folder with one .rrd file per episode.

Poses are transforms, every other signal a plot, cameras the videos themselves with a reference per step, events a log.
The file format belongs to a version of Rerun, so the version is pinned, and named in the account.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import SetupError, install_hint
from robotrials.formats.export import (
    Exported,
    ExportOptions,
    check_some,
    episode_facts,
    file_stem,
    fresh_target,
    media_file,
    recorded_rollouts,
)
from robotrials.formats.imported import Ledger
from robotrials.old_name import RERUN_APPLICATION
from robotrials.record import Camera, Episode, Store, Trajectory
from robotrials.record.column import recorded_signals

APPLICATION = RERUN_APPLICATION
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RerunExporter:
    name: str = 'rerun'
    summary: str = 'a folder with one Rerun recording (.rrd) per episode'
    suffix: str = ''

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        rerun = _load()
        ledger = Ledger()
        count = 0
        with fresh_target(target) as draft:
            draft.mkdir()
            for episode, trajectory in recorded_rollouts(store, options, ledger):
                _write_episode(rerun, store, episode, trajectory, draft / f'{file_stem(episode)}.rrd', ledger)
                count += 1
            check_some(count)
        ledger.keep('episodes', count)
        ledger.note(
            f'written by rerun-sdk {rerun.__version__}; a viewer of another version may need `rerun rrd migrate`'
        )
        return Exported(count, ledger)


RERUN = RerunExporter()


def _load() -> Any:
    try:
        return importlib.import_module('rerun')
    except ModuleNotFoundError as error:
        raise SetupError(f'writing Rerun recordings needs rerun-sdk: {install_hint("rerun")}') from error


def _write_episode(
    rerun: Any, store: Store, episode: Episode, trajectory: Trajectory, path: Path, ledger: Ledger
) -> None:
    stream = rerun.RecordingStream(APPLICATION, recording_id=f'{episode.episode_id}-{episode.attempt}')
    stream.save(path)
    try:
        stream.send_property('episode', rerun.AnyValues(**episode_facts(episode)))
        steps = [
            rerun.TimeColumn('step', sequence=np.arange(trajectory.n_steps)),
            rerun.TimeColumn('time', duration=np.asarray(trajectory.time_s, dtype=np.float64)),
        ]
        for name, values in recorded_signals(trajectory).items():
            _write_signal(rerun, stream, name, np.asarray(values), steps, trajectory.n_steps, ledger)
        _write_contacts(rerun, stream, trajectory, steps)
        for camera in trajectory.scene.cameras:
            _write_camera(rerun, stream, store, camera, trajectory, steps, ledger)
        for event in episode.events:
            stream.set_time('time', duration=event.t_s)
            stream.log('events', rerun.TextLog(f'{event.kind} {event.name}'.strip(), level='INFO'))
        stream.flush()
    finally:
        stream.disconnect()


def _write_signal(
    rerun: Any, stream: Any, name: str, values: Array, steps: list[Any], n_steps: int, ledger: Ledger
) -> None:
    if name.startswith(('contacts/', 'frame_hash/')) or name == 'time_s':
        return
    if len(values) != n_steps:
        stream.log(f'limits/{name}', rerun.Scalars(values.astype(np.float64)), static=True)
        return
    if name == 'ee_pose' or name.startswith('body_pose/'):
        entity = 'world/ee' if name == 'ee_pose' else f'world/bodies/{name.removeprefix("body_pose/")}'
        # The record keeps w first, Rerun last.
        turn = values[:, [4, 5, 6, 3]]
        stream.send_columns(entity, steps, rerun.Transform3D.columns(translation=values[:, :3], quaternion=turn))
    flat = values.reshape(n_steps, -1).astype(np.float64)
    columns = rerun.Scalars.columns(scalars=flat.reshape(-1))
    if flat.shape[1] > 1:
        columns = columns.partition([flat.shape[1]] * n_steps)
    stream.send_columns(f'signals/{name}', steps, columns)
    ledger.keep(f'signal {name}', None)


def _write_contacts(rerun: Any, stream: Any, trajectory: Trajectory, steps: list[Any]) -> None:
    contacts = trajectory.contacts
    if contacts is None:
        return
    starts, ends = contacts.offsets[:-1], contacts.offsets[1:]
    total = np.array([contacts.force_n[a:b].sum() for a, b in zip(starts, ends, strict=True)], dtype=np.float64)
    stream.send_columns('signals/contact_force_n', steps, rerun.Scalars.columns(scalars=total))


def _write_camera(
    rerun: Any, stream: Any, store: Store, camera: Camera, trajectory: Trajectory, steps: list[Any], ledger: Ledger
) -> None:  # fmt: skip
    name, video = camera.name, camera.video
    if not video:
        return
    path = media_file(store, video)
    if path is None or path.suffix.lower() != '.mp4':
        ledger.drop(f'camera {name}', why='its video is gone, or no MP4 file')
        return
    asset = rerun.AssetVideo(path=path)
    stamps = np.asarray(asset.read_frame_timestamps_nanos())
    stream.log(f'cameras/{name}', asset, static=True)
    rows = np.arange(trajectory.n_steps)
    frames = np.searchsorted(camera.video_steps, rows + 1, side='right') - 1 if camera.video_steps else rows
    frame_stamps = stamps[np.clip(frames, 0, len(stamps) - 1)]
    columns = rerun.VideoFrameReference.columns_nanos(frame_stamps)
    stream.send_columns(f'cameras/{name}', steps, columns)
    ledger.keep('camera videos')
