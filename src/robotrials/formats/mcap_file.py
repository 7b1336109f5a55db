"""A store as MCAP for Foxglove, one file per episode, and such files read back as the record they were."""

from __future__ import annotations

import base64
import io
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError, RobotrialsError, install_hint, load_optional
from robotrials.formats.bag import is_own_mcap
from robotrials.formats.export import (
    Exported,
    ExportOptions,
    episode_facts,
    episode_row,
    export_each,
    media_file,
)
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    ImportAccount,
    Imported,
    ImportOptions,
    Media,
    Recording,
    listed,
    refuse_unused,
)
from robotrials.formats.video import opened_video, transcode
from robotrials.old_name import MCAP_CONTACTS, MCAP_EPISODE, MCAP_PROFILE, MCAP_SCENE, MCAP_SIGNAL
from robotrials.record import Camera, Contacts, Episode, Event, Store, Trajectory
from robotrials.record.column import escape, recorded_signals, scene_from_json, scene_to_json, unescape
from robotrials.record.episode import parse_field
from robotrials.record.footage import RATE_DENOMINATOR, load_av
from robotrials.record.trajectory import STEP_COLUMNS, frame_times

# MCAP files that robotrials wrote (`robotrials export --to mcap`), read back as the record they were.
# The episode and its events, the scene and the number types are in the file's metadata; signals, contacts and cameras
# are its messages. Files of earlier releases have no number types and no contact points, and events of one item each.

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
        refuse_unused(options, name="robotrials' own MCAP files", takes=(), sets=())
        files = tuple(p for p in (listed(path) if path.is_dir() else [path]) if is_own_mcap(p))
        if not files:
            raise InputError(f'{path}: no MCAP file that robotrials wrote; other recordings are read as ROS bags')
        ledger = ImportAccount()

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
    module = load_optional('mcap.reader', f'{path}: reading MCAP needs mcap: {install_hint("mcap")}')
    with path.open('rb') as stream:
        try:
            yield module.make_reader(stream, validate_crcs=True)
        except RobotrialsError:
            raise
        except Exception as error:  # the library raises whatever the torn bytes lead it to
            raise InputError(f'{path}: damaged or not whole ({error}); export it again') from error


def _contents(path: Path) -> tuple[Mapping[str, str], Mapping[str, str], _Messages]:
    messages = _Messages({}, [], [], {}, None)
    with _reader(path) as reader:
        metadata = {record.name: record.metadata for record in reader.iter_metadata()}
        if MCAP_EPISODE not in metadata or MCAP_SCENE not in metadata:
            raise InputError(f'{path}: no record of its episode; it was not whole when it was written')
        for _, channel, message in reader.iter_messages():
            topic = channel.topic
            messages.counts[topic] = messages.counts.get(topic, 0) + 1
            if topic.startswith(SIGNALS):
                values = json.loads(message.data)
                messages.signals.setdefault(topic.removeprefix(SIGNALS), []).append(
                    values.get('values', values.get('value'))
                )
            elif topic == CONTACTS:
                messages.contacts.append(json.loads(message.data)['contacts'])
            elif topic == EVENTS:
                messages.events.append((message.log_time, json.loads(message.data)))
            if topic == f'{SIGNALS}time_s' and messages.start_ns is None:
                messages.start_ns = message.log_time - round(messages.signals['time_s'][0] * 1e9)
    return metadata[MCAP_EPISODE], metadata[MCAP_SCENE], messages


def _episode(facts: Mapping[str, str], messages: _Messages) -> Episode:
    fields = {name: parse_field(name, value) for name, value in facts.items() if name != 'events'}
    if 'events' in facts:
        events = tuple(Event(**values) for values in json.loads(facts['events']))
    else:
        events = tuple(_event(time_ns, values, messages.start_ns or 0) for time_ns, values in messages.events)
    return Episode(**fields, events=events)


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


# JSON schemas of the messages that are written into MCAP files; Foxglove knows its own by their names.

NUMBER = {'type': ['number', 'integer', 'boolean', 'null']}


def _object(**properties: Any) -> dict[str, Any]:
    return {'type': 'object', 'properties': properties}


TIME = _object(sec={'type': 'integer'}, nsec={'type': 'integer'})
VECTOR = _object(x={'type': 'number'}, y={'type': 'number'}, z={'type': 'number'})
QUATERNION = _object(x={'type': 'number'}, y={'type': 'number'}, z={'type': 'number'}, w={'type': 'number'})
TEXT = {'type': 'string'}

SCHEMAS: dict[str, dict[str, Any]] = {
    'foxglove.FrameTransform': _object(
        timestamp=TIME, parent_frame_id=TEXT, child_frame_id=TEXT, translation=VECTOR, rotation=QUATERNION
    ),
    'foxglove.CompressedVideo': _object(
        timestamp=TIME, frame_id=TEXT, data={'type': 'string', 'contentEncoding': 'base64'}, format=TEXT
    ),
    'foxglove.Log': _object(
        timestamp=TIME, level={'type': 'integer'}, message=TEXT, name=TEXT, file=TEXT, line={'type': 'integer'}
    ),
    MCAP_SIGNAL: _object(value=NUMBER, values={'type': 'array', 'items': NUMBER}),
    MCAP_CONTACTS: _object(
        contacts={
            'type': 'array',
            'items': _object(
                body=TEXT, other=TEXT, force_n={'type': 'number'}, point_m={'type': 'array', 'items': NUMBER}
            ),
        }
    ),
}


# A store as MCAP for Foxglove: a folder with one .mcap file per episode, which `mcap_read` reads back.
# Messages are JSON with Foxglove's own schemas where it has one (transforms, poses, videos, log) and plain objects
# else. The small pure-Python mcap library writes them: the compiled SDK would give the same file in fewer bytes, for a
# hundred times the install.

PROFILE = MCAP_PROFILE
WORLD = 'world'
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class McapExporter:
    name: str = 'mcap'
    summary: str = 'a folder with one MCAP file per episode, for Foxglove'
    suffix: str = ''

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        ledger = ImportAccount()

        def write(path: Path, episode: Episode, trajectory: Trajectory) -> None:
            write_episode(store, episode, trajectory, path=path, ledger=ledger)

        return export_each(store, target, options, ledger, suffix='.mcap', write=write)


MCAP_EXPORT = McapExporter()


@dataclass(slots=True)
class _McapFile:
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


def write_episode(store: Store, episode: Episode, trajectory: Trajectory, *, path: Path, ledger: ImportAccount) -> None:
    """Write one episode's file."""
    module = load_optional('mcap.writer', f'writing MCAP needs mcap: {install_hint("mcap")}')
    start_ns = round(episode.started_at.timestamp() * 1e9) if episode.started_at is not None else 0
    with path.open('wb') as stream:
        writer = module.Writer(stream)
        writer.start(profile=PROFILE)
        file = _McapFile(writer, start_ns)
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


def _write_steps(file: _McapFile, trajectory: Trajectory, ledger: ImportAccount) -> None:
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


def _transform(file: _McapFile, child: str, pose: list[float], t_s: float) -> dict[str, Any]:
    x, y, z, qw, qx, qy, qz = pose
    return {
        'timestamp': file.stamp(t_s), 'parent_frame_id': WORLD, 'child_frame_id': child,
        'translation': {'x': x, 'y': y, 'z': z}, 'rotation': {'x': qx, 'y': qy, 'z': qz, 'w': qw},
    }  # fmt: skip


def _write_camera(file: _McapFile, store: Store, camera: Camera, trajectory: Trajectory, ledger: ImportAccount) -> None:
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
