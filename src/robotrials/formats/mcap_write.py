"""A store as MCAP for Foxglove: a folder with one .mcap file per episode, which `mcap_read` reads back.

Messages are JSON with Foxglove's own schemas where it has one (transforms, poses, videos, log) and plain objects else.
The small pure-Python mcap library writes them: the compiled SDK would give the same file in fewer bytes, for a hundred
times the install.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import SetupError, install_hint
from robotrials.formats.clip import opened_video, transcode
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
from robotrials.formats.mcap_schema import SCHEMAS
from robotrials.formats.to_table import episode_row
from robotrials.old_name import MCAP_CONTACTS, MCAP_EPISODE, MCAP_PROFILE, MCAP_SCENE, MCAP_SIGNAL
from robotrials.record import Camera, Contacts, Episode, Store, Trajectory
from robotrials.record.column import recorded_signals, scene_to_json
from robotrials.record.film import load_av
from robotrials.record.trajectory import frame_times

PROFILE = MCAP_PROFILE
WORLD = 'world'
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class McapExporter:
    name: str = 'mcap'
    summary: str = 'a folder with one MCAP file per episode, for Foxglove'
    suffix: str = ''

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        ledger = Ledger()
        count = 0
        with fresh_target(target) as draft:
            draft.mkdir()
            for episode, trajectory in recorded_rollouts(store, options, ledger):
                write_episode(store, episode, trajectory, path=draft / f'{file_stem(episode)}.mcap', ledger=ledger)
                count += 1
            check_some(count)
        ledger.keep('episodes', count)
        return Exported(count, ledger)


MCAP = McapExporter()


@dataclass(slots=True)
class _File:
    """One open MCAP file: channels are made when they are first written to."""

    writer: Any
    start_ns: int
    _channels: dict[str, int] = field(default_factory=dict)
    _schemas: dict[str, int] = field(default_factory=dict)

    def log(self, topic: str, schema: str, message: Mapping[str, Any], t_s: float) -> None:
        if topic not in self._channels:
            if schema not in self._schemas:
                data = json.dumps(SCHEMAS[schema]).encode()
                self._schemas[schema] = self.writer.register_schema(schema, 'jsonschema', data)
            self._channels[topic] = self.writer.register_channel(topic, 'json', self._schemas[schema])
        time_ns = self.time_ns(t_s)
        data = json.dumps(message, allow_nan=False).encode()
        self.writer.add_message(self._channels[topic], log_time=time_ns, publish_time=time_ns, data=data)

    def time_ns(self, t_s: float) -> int:
        return self.start_ns + round(t_s * 1e9)

    def stamp(self, t_s: float) -> dict[str, int]:
        seconds, nanoseconds = divmod(self.time_ns(t_s), 1_000_000_000)
        return {'sec': seconds, 'nsec': nanoseconds}


def write_episode(store: Store, episode: Episode, trajectory: Trajectory, *, path: Path, ledger: Ledger) -> None:
    """Write one episode's file."""
    try:
        module = importlib.import_module('mcap.writer')
    except ModuleNotFoundError as error:
        raise SetupError(f'writing MCAP needs mcap: {install_hint("mcap")}') from error
    start_ns = round(episode.started_at.timestamp() * 1e9) if episode.started_at is not None else 0
    with path.open('wb') as stream:
        writer = module.Writer(stream)
        writer.start(profile=PROFILE)
        file = _File(writer, start_ns)
        events = episode_row(episode)['events']
        writer.add_metadata(MCAP_EPISODE, {**episode_facts(episode), 'events': json.dumps(events)})
        writer.add_metadata(MCAP_SCENE, _scene_facts(trajectory))
        _write_steps(file, trajectory, ledger)
        for event in episode.events:
            message = {'timestamp': file.stamp(event.t_s), 'level': 2, 'name': str(event.source),
                       'message': f'{event.kind} {event.name}'.strip(), 'file': '', 'line': 0}  # fmt: skip
            file.log('/events', 'foxglove.Log', message, event.t_s)
        for camera in trajectory.scene.cameras:
            _write_camera(file, store, camera, trajectory, ledger)
        writer.finish()


def _by_step(trajectory: Trajectory) -> dict[str, Array]:
    """The signals that have a value a step; contacts have a topic of their own."""
    signals = recorded_signals(trajectory)
    signals.pop('joint_torque_limit_nm', None)
    return {n: np.asarray(v) for n, v in signals.items() if not n.startswith(('contacts/', 'frame_hash/'))}


def _scene_facts(trajectory: Trajectory) -> dict[str, str]:
    """What holds for the whole episode, and the number types of its signals, which JSON does not keep."""
    limit = trajectory.joint_torque_limit_nm
    limits = {} if limit is None else {'joint_torque_limit_nm': json.dumps(np.asarray(limit, dtype=float).tolist())}
    types = {name: str(values.dtype) for name, values in _by_step(trajectory).items()}
    return {'scene': json.dumps(scene_to_json(trajectory)), 'types': json.dumps(types), **limits}


def _write_steps(file: _File, trajectory: Trajectory, ledger: Ledger) -> None:
    signals = _by_step(trajectory)
    for name in signals:
        ledger.keep(f'signal {name}', None)
    if trajectory.frame_hash:
        ledger.drop('frame hashes', None, why='a message has no whole numbers of 64 bits')
    for step, t_s in enumerate(np.asarray(trajectory.time_s).tolist()):
        for name, values in signals.items():
            file.log(f'/signals/{name}', MCAP_SIGNAL, _value(values[step]), t_s)
        for child, pose in _poses(signals, step):
            file.log('/tf', 'foxglove.FrameTransform', _transform(file, child, pose, t_s), t_s)
        if trajectory.contacts is not None:
            file.log('/contacts', MCAP_CONTACTS, {'contacts': _touching(trajectory.contacts, step)}, t_s)


def _touching(contacts: Contacts, step: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{'body': a, 'other': b, 'force_n': f} for a, b, f in contacts.at(step)]
    if contacts.point_m is not None:
        for row, point in zip(rows, contacts.point_m[int(contacts.offsets[step]) :], strict=False):
            row['point_m'] = [_finite(v) for v in point.tolist()]
    return rows


def _value(values: Array) -> dict[str, Any]:
    """A number, or numbers by their places, which Foxglove can plot; what is not finite is null."""
    plain = values.tolist()
    if isinstance(plain, list):
        return {'values': [_finite(v) for v in plain]}
    return {'value': _finite(plain)}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _poses(signals: Mapping[str, Array], step: int) -> Iterator[tuple[str, list[float]]]:
    for name, values in signals.items():
        if name == 'ee_pose' or name.startswith('body_pose/'):
            pose = values[step].tolist()
            if all(map(math.isfinite, pose)):
                yield ('ee' if name == 'ee_pose' else name.removeprefix('body_pose/')), pose


def _transform(file: _File, child: str, pose: list[float], t_s: float) -> dict[str, Any]:
    x, y, z, qw, qx, qy, qz = pose
    return {
        'timestamp': file.stamp(t_s), 'parent_frame_id': WORLD, 'child_frame_id': child,
        'translation': {'x': x, 'y': y, 'z': z}, 'rotation': {'x': qx, 'y': qy, 'z': qz, 'w': qw},
    }  # fmt: skip


def _write_camera(file: _File, store: Store, camera: Camera, trajectory: Trajectory, ledger: Ledger) -> None:
    name, video = camera.name, camera.video
    path = media_file(store, video)
    if path is None or path.is_dir():
        if video:
            ledger.drop(f'camera {name}', why='its video is gone, or not one file')
        return
    times_s = frame_times(camera, trajectory).tolist()
    for step, data in enumerate(annex_b(path)):
        t_s = times_s[min(step, len(times_s) - 1)]
        message = {'timestamp': file.stamp(t_s), 'frame_id': name, 'format': 'h264',
                   'data': base64.b64encode(data).decode()}  # fmt: skip
        file.log(f'/cameras/{name}', 'foxglove.CompressedVideo', message, t_s)
    ledger.keep('camera videos')


def annex_b(path: Path) -> Iterator[bytes]:
    """The frames of a video as H.264 with start codes, each decodable from those before it.

    Foxglove shows frames in the order they come, so a video of another codec or with reordered frames is encoded anew.
    """
    av = load_av('writing videos into MCAP')
    with opened_video(path) as container:
        stream = container.streams.video[0]
        packets = [p for p in container.demux(stream) if p.pts is not None]
        is_plain = stream.codec.canonical_name == 'h264' and all(p.pts == p.dts for p in packets)
        if is_plain:
            convert = av.BitStreamFilterContext('h264_mp4toannexb', stream)
            for packet in packets:
                for filtered in convert.filter(packet):
                    yield bytes(filtered)
            return
    with tempfile.TemporaryDirectory() as folder:
        anew = Path(folder) / 'anew.mp4'
        transcode(path, anew)
        yield from annex_b(anew)
