"""MCAP files that robotrials wrote (`robotrials export --to mcap`), read back as the record they were.

The episode and its events, the scene and the number types are in the file's metadata; signals, contacts and cameras are
its messages. Files of earlier releases have no number types and no contact points, and events of one item each.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError, RobotrialsError, SetupError, install_hint
from robotrials.formats.bag import is_own_mcap
from robotrials.formats.clip import RATE_DENOMINATOR
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Media,
    Recording,
    check_settable,
    refuse_unused,
)
from robotrials.formats.peek import listed
from robotrials.old_name import MCAP_EPISODE, MCAP_SCENE
from robotrials.record import Contacts, Episode, Event, Trajectory
from robotrials.record.column import escape, scene_from_json, unescape
from robotrials.record.field import parse_field
from robotrials.record.film import load_av
from robotrials.record.trajectory import STEP_COLUMNS

SIGNALS, CONTACTS, EVENTS, CAMERAS = '/signals/', '/contacts', '/events', '/cameras/'
NOT_A_NUMBER = float('nan')


class McapFormat:
    """A file, or the folder of files that an export is."""

    name = 'mcap'
    summary = 'MCAP files that robotrials exported: episodes, events, signals, contacts and videos come back'

    def recognise(self, path: Path) -> float | None:
        if path.is_dir():
            files = [p for p in listed(path) if p.suffix == '.mcap']
            return CERTAIN if files and all(map(is_own_mcap, files)) else None
        return CERTAIN if is_own_mcap(path) else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name="robotrials' own MCAP files", takes=())
        check_settable(options, "robotrials' own MCAP files", ())
        files = tuple(p for p in (listed(path) if path.is_dir() else [path]) if is_own_mcap(p))
        if not files:
            raise InputError(f'{path}: no MCAP file that robotrials wrote; other recordings are read as ROS bags')
        ledger = Ledger()

        def recordings() -> Iterator[Recording]:
            for file in files:
                recording = read_recording(file)
                ledger.keep(f'episodes: {recording.episode.outcome.value}')
                yield recording

        guesses = (FieldGuess('every field', 'as it was exported'),)
        return Imported(format=self.name, sources=files, recordings=recordings, ledger=ledger, guesses=guesses)


MCAP = McapFormat()


def read_recording(path: Path) -> Recording:
    """The episode of one file with its trajectory; videos are unpacked when they are written."""
    facts, scene_facts, messages = _contents(path)
    try:
        scene_row = json.loads(scene_facts['scene'])
        trajectory = _trajectory(scene_row, scene_facts, messages)
        episode = _episode(facts, messages)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f'{path}: not as robotrials writes it ({type(error).__name__}: {error})') from error
    media: dict[str, Media] = {
        camera.video: McapClip(path, camera.name, camera.video_steps, trajectory.scene.control_rate_hz)
        for camera in trajectory.scene.cameras
        if camera.video and messages.counts.get(f'{CAMERAS}{camera.name}')
    }
    return Recording(episode, trajectory, media)


@dataclass(frozen=True, slots=True)
class McapClip:
    """The frames of one camera, as an MP4 file in which each frame has the time it had."""

    path: Path
    camera: str
    steps: tuple[int, ...]
    rate_hz: float | None

    def write(self, target: Path) -> None:
        av = load_av(f'{self.path}: unpacking a video')
        frames, times_ns = [], []
        with _reader(self.path) as reader:
            for _, _, message in reader.iter_messages(topics=[f'{CAMERAS}{self.camera}']):
                frames.append(base64.b64decode(json.loads(message.data)['data']))
                times_ns.append(message.log_time)
        rate = Fraction(self.rate_hz or _rate_hz(times_ns)).limit_denominator(RATE_DENOMINATOR)
        places = self.steps if len(self.steps) == len(frames) else tuple(range(len(frames)))
        try:
            with (
                av.open(io.BytesIO(b''.join(frames)), format='h264') as source,
                av.open(str(target), 'w', format='mp4') as sink,
            ):
                stream = sink.add_stream_from_template(source.streams.video[0], opaque=True)
                stream.time_base = 1 / rate
                packets = [packet for packet in source.demux(video=0) if packet.size]
                for place, packet in zip(places, packets, strict=True):
                    packet.pts = packet.dts = place
                    packet.time_base, packet.stream = 1 / rate, stream
                    sink.mux(packet)
        except (av.error.FFmpegError, ValueError) as error:
            raise InputError(f'{self.path}: the video of {self.camera} is damaged ({error})') from error


def _rate_hz(times_ns: list[int]) -> float:
    """Frames per second, by the messages' own times."""
    lasted = (times_ns[-1] - times_ns[0]) / 1e9 if times_ns else 0.0
    return (len(times_ns) - 1) / lasted if lasted > 0 else 30.0


@dataclass(slots=True)
class _Messages:
    """The messages that hold numbers and events, in the order they were logged."""

    signals: dict[str, list[Any]]
    contacts: list[list[dict[str, Any]]]
    events: list[tuple[int, dict[str, Any]]]
    counts: dict[str, int]
    start_ns: int | None


@contextmanager
def _reader(path: Path) -> Iterator[Any]:
    try:
        module = importlib.import_module('mcap.reader')
    except ModuleNotFoundError as error:
        raise SetupError(f'{path}: reading MCAP needs mcap: {install_hint("mcap")}') from error
    with path.open('rb') as stream:
        try:
            yield module.make_reader(stream, validate_crcs=True)
        except RobotrialsError:
            raise
        except Exception as error:  # the library raises whatever the torn bytes lead it to
            raise InputError(f'{path}: damaged or not whole ({error}); export it again') from error


def _contents(path: Path) -> tuple[Mapping[str, str], Mapping[str, str], _Messages]:
    found = _Messages({}, [], [], {}, None)
    with _reader(path) as reader:
        metadata = {record.name: record.metadata for record in reader.iter_metadata()}
        if MCAP_EPISODE not in metadata or MCAP_SCENE not in metadata:
            raise InputError(f'{path}: no record of its episode; it was not whole when it was written')
        for _, channel, message in reader.iter_messages():
            topic = channel.topic
            found.counts[topic] = found.counts.get(topic, 0) + 1
            if topic.startswith(SIGNALS):
                values = json.loads(message.data)
                found.signals.setdefault(topic.removeprefix(SIGNALS), []).append(
                    values.get('values', values.get('value'))
                )
            elif topic == CONTACTS:
                found.contacts.append(json.loads(message.data)['contacts'])
            elif topic == EVENTS:
                found.events.append((message.log_time, json.loads(message.data)))
            if topic == f'{SIGNALS}time_s' and found.start_ns is None:
                found.start_ns = message.log_time - round(found.signals['time_s'][0] * 1e9)
    return metadata[MCAP_EPISODE], metadata[MCAP_SCENE], found


def _episode(facts: Mapping[str, str], messages: _Messages) -> Episode:
    told = {name: parse_field(name, value) for name, value in facts.items() if name != 'events'}
    if 'events' in facts:
        events = tuple(Event(**values) for values in json.loads(facts['events']))
    else:
        events = tuple(_event(time_ns, values, messages.start_ns or 0) for time_ns, values in messages.events)
    return Episode(**told, events=events)


def _event(time_ns: int, values: Mapping[str, Any], start_ns: int) -> Event:
    kind, _, name = str(values['message']).partition(' ')
    return Event((time_ns - start_ns) / 1e9, kind, values['name'], name=name)  # type: ignore[arg-type]  # checked there


def _trajectory(scene_row: Mapping[str, Any], facts: Mapping[str, str], messages: _Messages) -> Trajectory:
    types = json.loads(facts.get('types', '{}'))
    signals = {name: _column(rows, types.get(name)) for name, rows in messages.signals.items()}
    bodies = tuple(b for b in scene_row['bodies'] if f'body_pose/{escape(b)}' in signals)
    limit = facts.get('joint_torque_limit_nm')
    steps: dict[str, Any] = {name: column for name, column in signals.items() if name in STEP_COLUMNS}
    poses = [signals[f'body_pose/{escape(body)}'] for body in bodies]
    n_steps = len(signals['time_s'])
    return Trajectory(
        time_s=signals['time_s'],
        **steps,
        joint_torque_limit_nm=None if limit is None else np.array(json.loads(limit)),
        bodies=bodies,
        body_pose=np.stack(poses, axis=1) if poses else np.zeros((n_steps, 0, 7)) if scene_row['has_poses'] else None,
        contacts=_contacts(messages.contacts, tuple(scene_row['contact_bodies'])) if messages.contacts else None,
        extra={unescape(n.removeprefix('extra/')): v for n, v in signals.items() if n.startswith('extra/')},
        scene=scene_from_json(scene_row),
        broken=scene_row.get('broken', {}),
    )


def _column(rows: list[Any], dtype: str | None) -> NDArray[Any]:
    """The values of a signal, step by step; null is what was not a finite number."""
    if any(v is None or (isinstance(v, list) and None in v) for v in rows):
        rows = [
            [NOT_A_NUMBER if x is None else x for x in v] if isinstance(v, list) else NOT_A_NUMBER if v is None else v
            for v in rows
        ]
    return np.array(rows) if dtype is None else np.array(rows, dtype=np.dtype(dtype))


def _contacts(steps: list[list[dict[str, Any]]], bodies: tuple[str, ...]) -> Contacts:
    rows = [row for step in steps for row in step]
    index = {name: place for place, name in enumerate(bodies)}
    unknown = next((n for row in rows for n in (row['body'], row['other']) if n not in index), None)
    if unknown is not None:
        raise RecordError(f'a contact of {unknown!r}, which is not among the bodies of the scene')
    points = [row['point_m'] for row in rows if 'point_m' in row]
    return Contacts(
        bodies=bodies,
        offsets=np.concatenate([[0], np.cumsum([len(step) for step in steps])]).astype(np.int64),
        body_a=np.array([index[row['body']] for row in rows], dtype=np.int32),
        body_b=np.array([index[row['other']] for row in rows], dtype=np.int32),
        force_n=np.array([row['force_n'] for row in rows], dtype=np.float64),
        point_m=_column(points, 'float64').reshape(-1, 3) if len(points) == len(rows) and rows else None,
    )
