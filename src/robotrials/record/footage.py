"""Films and RGB-D views that are kept with an episode.

From what a depth camera sends to a pinhole view: its lens taken out, and its depth laid on its colour picture.

Cameras say their distortion as plumb_bob's five numbers (k1, k2, p1, p2, k3) or rational_polynomial's eight, as OpenCV
and ROS do. Views are pinhole pictures; a bent one is straightened once, when it comes in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import io
import json
import math
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, StoreError, install_hint
from robotrials.record.folder import inside, is_file_inside
from robotrials.record.trajectory import Camera
from robotrials.value import dataclass, read_table, without_nulls

# RGB-D views that are kept with an episode, and what was known of its scene beforehand.
# A moment is one file: a zip of plain arrays and a table of contents, no pickles. Depth is kept bit for bit, as the
# four byte planes of its 32-bit floats, which compress better than the floats. What is read is checked before it is
# unpacked.

FOLDER = 'rgbd'
START, END = f'{FOLDER}/start.zip', f'{FOLDER}/end.zip'
KNOWN = f'{FOLDER}/known.json'
MOST_VIEWS = 32
MOST_PIXELS = 4096 * 4096
MOST_TEXT_BYTES = 1 << 20
PLANES = {'depth': 4, 'rgb': 3}  # bytes per pixel
PACKING = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What a damaged archive, or a text that is no JSON, makes of reading it; a RuntimeError is encryption or depth.
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)
_CONTENTS = 'views.json'


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One camera's picture at `t_s`: RGB, depth along z in metres (not finite where there is none), calibration."""

    rgb: NDArray[np.uint8]  # (H, W, 3)
    depth_m: NDArray[np.float32]  # (H, W)
    camera: Camera
    t_s: float
    # Which pixels (H, W) are whose, by the name of the object: a simulator's own ids, and said to be so.
    oracle_masks: Mapping[str, NDArray[np.bool_]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBox:
    """A box that is known beforehand: full edges, world-from-box rotation by rows."""

    name: str
    center_m: tuple[float, ...]
    size_m: tuple[float, ...]
    rotation: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

    def __post_init__(self) -> None:
        for name, wanted in (('center_m', 3), ('size_m', 3), ('rotation', 9)):
            values = getattr(self, name)
            if len(values) != wanted or not all(map(math.isfinite, values)):
                raise InputError(f'box {self.name}: {name} is {values}, wanted {wanted} finite numbers')


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJoint:
    """The slide or the hinge by which a part of a fixture moves, in the world: a drawer, a door, a knob."""

    is_hinge: bool
    axis: tuple[float, ...]
    point_m: tuple[float, ...]  # that a hinge turns about
    low: float  # metres or radians
    high: float
    start: float  # where the part's `start` has it

    def __post_init__(self) -> None:
        if len(self.axis) != 3 or len(self.point_m) != 3 or not math.isclose(math.hypot(*self.axis), 1, abs_tol=1e-6):
            raise InputError(f'a joint with axis {self.axis} and point {self.point_m}, wanted a unit axis and a point')
        if not self.low < self.high:
            raise InputError(f'a joint from {self.low} to {self.high}, wanted low < high')


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownObject:
    """What an object looks like, and where the plan put it at the start.

    A plain box of one colour needs no `shape`; anything else has one, and is then known by it: `pack_solid` of
    `robotrials.measure.geometry` writes it from a mesh, a scan or a box.
    """

    name: str
    start: KnownBox
    color_rgb: tuple[int, ...] = ()
    is_box: bool = True  # a plain box, whose edges are `start.size_m`
    shape: str = ''
    joint: KnownJoint | None = None  # of a part that moves by nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxGoal:
    """An object that is to fill a box."""

    object: str
    box: KnownBox


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionGoal:
    """Objects of one look that are all to lie in a region, anywhere: a bin."""

    objects: tuple[str, ...]
    low_m: tuple[float, ...]
    high_m: tuple[float, ...]


POSE_GOALS = ('in', 'on', 'upright', 'within', 'at', 'over', 'touching', 'above', 'below')
JOINT_GOALS = ('above', 'below')


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseGoal:
    """What is to hold of an object's pose at the end.

    in: all of it but a tenth lies inside `place`, or inside the box of the object `other`. on: it stands on top of
    either. upright: its own `axis` points up, within `limit` radians. within: its middle is at most `limit` metres
    from the middle of `place` or of `other`. at: its `anchor`, a point in the coordinates of its shape's file, lies in
    `place`, which moves with `other` (and is in the coordinates of its file) where both are given. over: its anchor is
    above that of `other`, at most `limit` metres beside it, and they touch. touching: it touches `other`, an object or
    what stands fixed by that name. above, below: the joint of a part stands beyond `limit`, metres or radians.
    """

    object: str
    kind: str
    place: KnownBox | None = None
    other: str = ''
    limit: float | None = None
    axis: tuple[float, ...] = (0.0, 0.0, 1.0)
    anchor_m: tuple[float, ...] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        if self.kind not in POSE_GOALS:
            raise InputError(f'goal of {self.object}: kind is {self.kind!r}, wanted one of {", ".join(POSE_GOALS)}')
        if self.kind in ('in', 'on', 'within') and (self.place is None) == (not self.other):
            raise InputError(f'goal of {self.object}: {self.kind} wants a place, or another object, and not both')
        if (self.kind == 'at' and self.place is None) or (self.kind in ('over', 'touching') and not self.other):
            missing = 'a place' if self.kind == 'at' else 'another object'
            raise InputError(f'goal of {self.object}: {self.kind} wants {missing}')
        if self.kind in JOINT_GOALS and self.limit is None:
            raise InputError(f'goal of {self.object}: {self.kind} wants a limit in metres or radians, found none')
        if self.kind in ('within', 'over') and (self.limit is None or not self.limit > 0):
            raise InputError(f'goal of {self.object}: {self.kind} wants a limit > 0 in metres, found {self.limit}')
        if len(self.anchor_m) != 3:
            raise InputError(f'goal of {self.object}: anchor_m is {self.anchor_m}, wanted three numbers')
        if len(self.axis) != 3 or not any(self.axis):
            raise InputError(f'goal of {self.object}: axis is {self.axis}, wanted three numbers, not all zero')


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownScene:
    """Objects, goals and what stands fixed, as planned; nothing in it is measured during the episode."""

    objects: tuple[KnownObject, ...]
    goals: tuple[BoxGoal, ...] = ()
    poses: tuple[PoseGoal, ...] = ()
    region: RegionGoal | None = None
    threshold: float | None = None  # IoU above which a goal is reached
    fixed: tuple[KnownBox, ...] = ()
    floor_z_m: float | None = None
    is_on_floor: bool = False  # things stand on it, or on a table of which no more than the plane is known

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(',', ':'), allow_nan=False)


def read_known(content: bytes, *, where: str) -> KnownScene:
    """What was known of a scene, from its file."""
    if len(content) > MOST_TEXT_BYTES:
        raise StoreError(f'{where}: {len(content)} bytes, wanted at most {MOST_TEXT_BYTES}')
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f'{where}: not JSON ({error})') from error
    try:
        return read_table(KnownScene, without_nulls(values), where=where)
    except InputError as error:
        raise StoreError(str(error)) from error


def read_scene(path: str, given: Mapping[str, object]) -> KnownScene:
    """What is known of an episode's scene, from a file; {task}, {seed}, {instance} in its name are the episode's."""
    name = path
    for key, value in given.items():
        name = name.replace('{' + key + '}', str(value))
    try:
        return read_known(Path(name).read_bytes(), where=name)
    except OSError as error:
        raise InputError(
            f'{name}: cannot be read ({error.strerror}); what is known of the scene belongs there'
        ) from error


def pack_views(views: Mapping[str, View]) -> bytes:
    """One moment as a file; the same views give the same bytes."""
    contents: dict[str, Any] = {}
    planes: dict[str, bytes] = {}
    if not 1 <= len(views) <= MOST_VIEWS:
        raise InputError(f'a moment has {len(views)} views, wanted 1 to {MOST_VIEWS}')
    for number, (name, view) in enumerate(views.items()):
        rgb, depth = np.ascontiguousarray(view.rgb), np.ascontiguousarray(view.depth_m)
        camera = view.camera
        if rgb.dtype != np.uint8 or depth.dtype != np.float32 or rgb.shape != (*depth.shape, 3):
            raise InputError(
                f'view {name}: wanted (H, W, 3) uint8 and (H, W) float32, found {rgb.shape}, {depth.shape}'
            )
        if camera.intrinsics_px is None or camera.world_from_camera is None:
            raise InputError(f'view {name} has no calibration; RGB-D without one cannot be scored')
        contents[name] = {
            'number': number, 'height_px': depth.shape[0], 'width_px': depth.shape[1], 't_s': float(view.t_s),
            'intrinsics_px': np.asarray(camera.intrinsics_px, dtype=float).ravel().tolist(),
            'world_from_camera': np.asarray(camera.world_from_camera, dtype=float).ravel().tolist(),
        }  # fmt: skip
        planes[f'{number}.depth'] = depth.astype('<f4').view(np.uint8).reshape(-1, 4).T.tobytes()
        # Differences between neighbours along a row (mod 256) are mostly zero.
        planes[f'{number}.rgb'] = np.diff(rgb, axis=1, prepend=np.zeros_like(rgb[:, :1])).tobytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, 'w', zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.writestr(zipfile.ZipInfo(_CONTENTS), json.dumps(contents, allow_nan=False))
        for name, content in planes.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return packed.getvalue()


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    height_px: int
    width_px: int
    t_s: float
    intrinsics_px: tuple[float, ...]
    world_from_camera: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (0 <= self.number < MOST_VIEWS and self.height_px > 0 and self.width_px > 0):
            raise InputError(f'a view of {self.height_px} x {self.width_px} pixels, number {self.number}')
        if self.height_px * self.width_px > MOST_PIXELS:
            raise InputError(f'{self.height_px} x {self.width_px} pixels are more than {MOST_PIXELS}')
        if len(self.intrinsics_px) != 9 or len(self.world_from_camera) != 16:
            raise InputError('wanted 9 numbers of intrinsics and 16 of a pose')
        if not (self.intrinsics_px[0] and self.intrinsics_px[4]):
            raise InputError('a focal length of 0 px')

    @property
    def n_pixels(self) -> int:
        return self.height_px * self.width_px


def unpack_views(content: bytes, *, where: str) -> dict[str, View]:
    """The views of a moment; a file that is cut, too large or not what it says is a StoreError."""
    with _opened(content, where) as (archive, entries):
        return {name: _view(archive, name, entry, where) for name, entry in entries.items()}


def moment_time_s(content: bytes, *, where: str) -> float:
    """When a moment was taken: the time of its first view; nothing else of it is unpacked."""
    with _opened(content, where) as (_, entries):
        return min(entry.t_s for entry in entries.values())


def check_moment(content: bytes, *, where: str, most_bytes: int) -> None:
    """Raise StoreError if a moment is not what it says, or would unfold into more than `most_bytes`.

    Pixels are not unpacked, so that it costs next to nothing whatever the file is.
    """
    with _opened(content, where) as (archive, entries):
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        planes = {f'{e.number}.{kind}': n * e.n_pixels for e in entries.values() for kind, n in PLANES.items()}
    wrong = next((name for name, size in planes.items() if sizes.get(name) != size), None)
    if wrong is not None:
        raise StoreError(f'{where}: {wrong} has {sizes.get(wrong, 0)} bytes, wanted {planes[wrong]}')
    total = sum(sum(PLANES.values()) * e.n_pixels for e in entries.values())
    if total > most_bytes:
        raise StoreError(f'{where}: unfolds into {total} bytes, more than the {most_bytes} allowed')


@contextlib.contextmanager
def _opened(content: bytes, where: str) -> Iterator[tuple[zipfile.ZipFile, dict[str, _Entry]]]:
    """The archive of a moment and its table of contents."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(info.compress_type not in PACKING for info in archive.infolist()):
                raise StoreError(f'{where}: packed in another way than moments are')
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            if len(sizes) > 1 + 2 * MOST_VIEWS or sizes.get(_CONTENTS, MOST_TEXT_BYTES + 1) > MOST_TEXT_BYTES:
                raise StoreError(f'{where}: not a moment of RGB-D views ({len(sizes)} members, no {_CONTENTS})')
            contents = json.loads(_member(archive, _CONTENTS, sizes[_CONTENTS], where))
            if not isinstance(contents, dict) or len(contents) > MOST_VIEWS:
                raise StoreError(f'{where}: {_CONTENTS} is not a table of at most {MOST_VIEWS} views')
            yield archive, {n: read_table(_Entry, values, where=f'{where} {n}') for n, values in contents.items()}
    except UNREADABLE as error:
        raise StoreError(f'{where}: not a moment of RGB-D views ({error})') from error


def _view(archive: zipfile.ZipFile, name: str, entry: _Entry, where: str) -> View:
    n = entry.n_pixels
    depth = np.frombuffer(_member(archive, f'{entry.number}.depth', 4 * n, where), dtype=np.uint8)
    rgb = np.frombuffer(_member(archive, f'{entry.number}.rgb', 3 * n, where), dtype=np.uint8)
    shape = (entry.height_px, entry.width_px)
    camera = Camera(
        name=name, intrinsics_px=np.reshape(entry.intrinsics_px, (3, 3)),
        world_from_camera=np.reshape(entry.world_from_camera, (4, 4)), width_px=shape[1], height_px=shape[0],
    )  # fmt: skip
    metres = np.ascontiguousarray(depth.reshape(4, n).T).view('<f4').reshape(shape).astype(np.float32)
    colors = np.cumsum(rgb.reshape(*shape, 3), axis=1, dtype=np.uint8)
    return View(colors, metres, camera, entry.t_s)


def _member(archive: zipfile.ZipFile, name: str, size: int, where: str) -> bytes:
    """A member of exactly this size; nothing longer is ever unpacked."""
    try:
        with archive.open(name) as opened:
            content = opened.read(size + 1)
    except KeyError:
        raise StoreError(f'{where}: {name} is missing') from None
    if len(content) != size:
        raise StoreError(f'{where}: {name} has {len(content)} bytes or more, wanted {size}')
    return content


def moment_name(t_s: float) -> str:
    """The file of a moment between start and end; names sort by time."""
    return f'{FOLDER}/at-{round(1000 * t_s):09d}-ms.zip'


@dataclass(frozen=True, slots=True, eq=False)
class KeptViews:
    """An episode's files of RGB-D in a store: which there are, read when asked for."""

    folder: Path  # media/episodes/ID-ATTEMPT
    names: tuple[str, ...]  # of moments between start and end, in order of time

    @property
    def has_ends(self) -> bool:
        return all(is_file_inside(self.folder, name) for name in (START, END, KNOWN))

    def known(self) -> KnownScene:
        return read_known(self.content(KNOWN), where=str(self.folder / KNOWN))

    def moment(self, name: str) -> dict[str, View]:
        return unpack_views(self.content(name), where=str(self.folder / name))

    def file(self, name: str) -> bytes | None:
        """Another file that is kept with the views; None where it is not there."""
        return self.content(name) if is_file_inside(self.folder, name) else None

    def content(self, name: str) -> bytes:
        path = inside(self.folder, name)
        try:
            return path.read_bytes()
        except OSError as error:
            raise StoreError(f'{path}: cannot be read ({error.strerror})') from error


def kept_views(media: Path, episode_id: str, attempt: int) -> KeptViews | None:
    """The RGB-D kept with an episode under a store's media folder; None where none was."""
    own = f'episodes/{episode_id}-{attempt}'
    try:
        if not inside(media, f'{own}/{FOLDER}').is_dir():
            return None
    except StoreError:
        return None
    folder = media / own
    return KeptViews(folder, tuple(sorted(f'{FOLDER}/{p.name}' for p in (folder / FOLDER).glob('at-*-ms.zip'))))


# Films: small H.264 files with an exact time for every frame, and the states they can be drawn from again.
# A frame's presentation time is that of the state it shows. The same frames give the same bytes: one thread, and
# nothing of the encoder, the machine or the day in the file.

FloatArray = NDArray[np.floating[Any]]
STATES_FILE = 'states.npz'  # beside the films
MOST_STATES_BYTES = 1 << 30
GROUP = 10  # frames from one that needs no other to the next: what a player decodes to show any frame
QUALITY = {'crf': '25', 'preset': 'veryfast', 'bf': '0', 'g': str(GROUP), 'threads': '1', 'sc_threshold': '0'}
CONTAINER = {'movflags': '+faststart', 'fflags': '+bitexact'}
RATE_DENOMINATOR = 1000


@dataclass(frozen=True, slots=True, eq=False)
class FilmStates:
    """What a film can be drawn from: the simulator's states at some control steps of an episode, and its set-up."""

    steps: NDArray[np.int64]  # (N,), 0 is the reset
    states: FloatArray  # (N, S), in the host's own layout
    setup: str = ''  # as JSON: what the host was told

    def to_bytes(self) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, steps=self.steps, states=self.states, setup=np.array(self.setup))
        return buffer.getvalue()


def read_states(path: Path) -> FilmStates:
    """The states of an episode's `states.npz`."""
    try:
        content = io.BytesIO(path.read_bytes())
        with zipfile.ZipFile(content) as archive:  # what is read is checked before it is unpacked
            n_bytes = sum(info.file_size for info in archive.infolist())
        if n_bytes > MOST_STATES_BYTES:
            raise ValueError(f'{n_bytes} bytes unpacked, wanted at most {MOST_STATES_BYTES}')
        content.seek(0)
        with np.load(content, allow_pickle=False) as kept:
            states = FilmStates(kept['steps'], kept['states'], str(kept['setup']))
        steps, n = states.steps, len(states.states)
        if steps.dtype.kind != 'i' or steps.shape != (n,) or not n or states.states.ndim != 2:
            raise ValueError(f'{steps.shape} steps of {steps.dtype} and {states.states.shape} states')
        if steps[0] < 0 or np.any(np.diff(steps) <= 0) or states.states.dtype.kind != 'f':
            raise ValueError('wanted rising steps from 0 on, and states of numbers')
        return states
    except (OSError, KeyError, TypeError, MemoryError, *UNREADABLE) as error:
        raise StoreError(f'{path}: not readable as states of an episode ({error})') from error


def encode_film(frames: Iterable[NDArray[np.uint8]], steps: Sequence[int], *, control_rate_hz: float) -> bytes:
    """MP4 (H.264, 4:2:0, ready to be streamed) of (H, W, 3) frames, each shown at the time of its control step."""
    load_av('filming')
    rate = Fraction(control_rate_hz).limit_denominator(RATE_DENOMINATOR)
    with tempfile.TemporaryDirectory() as folder:  # the index goes to the front once all is written: a file is needed
        target = Path(folder) / 'film.mp4'
        stamped = zip(map(int, steps), frames, strict=True)
        if not write_h264(stamped, target, rate=rate, tick_s=1 / rate, quality=QUALITY, container=CONTAINER):
            raise InputError('a film without frames')
        return target.read_bytes()


def write_h264(
    frames: Iterable[tuple[int, NDArray[np.uint8]]], target: Path, *, rate: Fraction, tick_s: Fraction,
    quality: Mapping[str, str], container: Mapping[str, str] | None = None,
) -> int:  # fmt: skip
    """Encode (H, W, 3) frames, each with its time in ticks, as H.264 in MP4; gives how many there were.

    `quality` are options of the encoder, `container` of the file.
    """
    av = load_av('encoding a video')
    count = 0
    with av.open(str(target), 'w', format='mp4', options=dict(container or {})) as sink:
        stream: Any = None
        for ticks, pixels in frames:
            if stream is None:
                stream = sink.add_stream('libx264', rate=rate, options=dict(quality))
                stream.height, stream.width = pixels.shape[:2]
                # Chroma of odd sizes cannot be halved.
                stream.pix_fmt = 'yuv444p' if any(n % 2 for n in pixels.shape[:2]) else 'yuv420p'
                stream.time_base = stream.codec_context.time_base = tick_s
            elif pixels.shape[:2] != (stream.height, stream.width):
                raise InputError(
                    f'frame {count} is {pixels.shape[:2]}, the ones before {(stream.height, stream.width)}'
                )
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format='rgb24')
            frame.pts, frame.time_base = ticks, tick_s
            sink.mux(stream.encode(frame))
            count += 1
        if stream is not None:
            sink.mux(stream.encode())
    return count


def film_times(path: Path | str) -> FloatArray:
    """The time in seconds of every frame of a film, by its presentation times; nothing is decoded."""
    av = load_av(f'{path}: reading a film')
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            base = Fraction(stream.time_base)
            stamps = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
    except (av.error.FFmpegError, OSError, IndexError, UnicodeDecodeError) as error:
        raise StoreError(f'{path}: not readable as a film ({error})') from error
    return np.array([float(stamp * base) for stamp in stamps])


def load_av(why: str) -> Any:
    """PyAV, or an error that says what needs it."""
    try:
        return importlib.import_module('av')
    except ModuleNotFoundError as error:
        raise SetupError(f'{why} needs PyAV: {install_hint("video")}') from error


MOST_SPREAD_PX = 8  # pixels of colour along an edge that one pixel of depth may fill


def bend(x: FloatArray, y: FloatArray, distortion: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Where a lens puts the pinhole picture's normalised (x, y): the model of OpenCV and of ROS."""
    k1, k2, p1, p2, k3, k4, k5, k6 = (*distortion, *(0.0,) * (8 - len(distortion)))
    r2 = x * x + y * y
    radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
    )


def unbend(bent_x: FloatArray, bent_y: FloatArray, distortion: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """The inverse of `bend`, by fixed-point steps."""
    x, y = bent_x, bent_y
    for _ in range(12):
        again_x, again_y = bend(x, y, distortion)
        x, y = x + bent_x - again_x, y + bent_y - again_y
    return x, y


def check_distortion(distortion: Sequence[float], where: str) -> None:
    """Raise InputError unless these are numbers of a lens."""
    if len(distortion) > 8 or not np.isfinite(np.asarray(distortion, dtype=float)).all():
        raise InputError(f'{where}: distortion must be up to 8 finite numbers, found {list(distortion)}')


def straightened(
    rgb: NDArray[np.uint8], depth_m: FloatArray, k: FloatArray, distortion: Sequence[float], *, is_inverse: bool = False
) -> tuple[NDArray[np.uint8], FloatArray]:
    """The pinhole picture (H, W, 3) and depth (H, W) of what a lens has bent.

    `is_inverse`: the numbers undo the lens instead of describing it (RealSense's Inverse Brown Conrady).
    """
    if not any(distortion):
        return rgb, depth_m
    v, u = np.mgrid[0 : depth_m.shape[0], 0 : depth_m.shape[1]].astype(np.float64)
    move = unbend if is_inverse else bend
    x, y = move((u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], distortion)
    return resampled(rgb, depth_m, rows=k[1, 1] * y + k[1, 2], columns=k[0, 0] * x + k[0, 2])


def resampled(
    rgb: NDArray[np.uint8], depth_m: FloatArray, *, rows: FloatArray, columns: FloatArray
) -> tuple[NDArray[np.uint8], FloatArray]:
    """A picture and its depth at other places; depth is taken from the nearest pixel and never mixed."""
    from scipy.ndimage import map_coordinates

    height, width = depth_m.shape
    row, column = np.rint(rows).astype(np.int64), np.rint(columns).astype(np.int64)
    is_in = (row >= 0) & (column >= 0) & (row < height) & (column < width)
    row, column = row.clip(0, height - 1), column.clip(0, width - 1)
    depth = np.where(is_in, depth_m[row, column], np.nan).astype(depth_m.dtype)
    planes = [map_coordinates(rgb[..., c], [rows, columns], order=1, mode='nearest') for c in range(3)]
    return np.stack(planes, axis=-1), depth


def aligned_depth(
    depth_m: FloatArray, depth_k: FloatArray, *, distortion: Sequence[float], color_from_depth: FloatArray,
    color_k: FloatArray, shape: tuple[int, int], is_inverse: bool = False,
) -> NDArray[np.float32]:  # fmt: skip
    """Depth (H, W) of a depth camera as the pinhole colour camera beside it would see it; NaN where nothing falls.

    Every pixel of depth fills the rectangle of colour pixels that its own corners fall on, and the nearest surface
    wins: holes would otherwise open where colour has the higher resolution, and things behind would show through.
    """
    v, u = np.nonzero(np.isfinite(depth_m) & (depth_m > 0))
    z = depth_m[v, u].astype(np.float64)
    low, high = (_projected(*_rays(u + s, v + s, depth_k, distortion, is_inverse), z, color_from_depth, color_k)
                 for s in (-0.5, 0.5))  # fmt: skip
    left, top = (np.rint(np.minimum(a, b)) for a, b in zip(low[:2], high[:2], strict=True))
    right, bottom = (np.rint(np.maximum(a, b)) for a, b in zip(low[:2], high[:2], strict=True))
    far = (low[2] + high[2]) / 2
    height, width = shape
    kept = (far > 0) & (right >= 0) & (bottom >= 0) & (left < width) & (top < height)
    kept &= (right - left <= MOST_SPREAD_PX) & (bottom - top <= MOST_SPREAD_PX)
    left, top, right, bottom = (a[kept].astype(np.int64) for a in (left, top, right, bottom))
    nearest = np.full(height * width, np.inf)
    widest, tallest = (int((b - a).max(initial=0)) for a, b in ((left, right), (top, bottom)))
    for down in range(tallest + 1):
        for across in range(widest + 1):
            row, column = top + down, left + across
            is_in = (row <= bottom) & (column <= right) & (row >= 0) & (column >= 0) & (row < height) & (column < width)
            np.minimum.at(nearest, row[is_in] * width + column[is_in], far[kept][is_in])
    return np.where(np.isfinite(nearest), nearest, np.nan).reshape(shape).astype(np.float32)


def _rays(
    u: FloatArray, v: FloatArray, k: FloatArray, distortion: Sequence[float], is_inverse: bool
) -> tuple[FloatArray, FloatArray]:
    x, y = (u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1]
    return (bend if is_inverse else unbend)(x, y, distortion) if any(distortion) else (x, y)


def _projected(
    x: FloatArray, y: FloatArray, z: FloatArray, pose: FloatArray, k: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Columns, rows and depths in another camera of points on rays (x, y, 1) at depths z."""
    points = np.stack([x * z, y * z, z], axis=1) @ pose[:3, :3].T + pose[:3, 3]
    far = points[:, 2]
    ahead = np.where(far > 0, far, np.inf)  # what lies behind has no pixel, and is left out by its depth
    columns, rows = (np.clip(k[i, i] * points[:, i] / ahead + k[i, 2], -1e6, 1e6) for i in (0, 1))
    return columns, rows, far


# Where cameras stand: a file that hand-eye calibration writes, and that the depth host and the import of bags read.

POSE_SLACK = 1e-3
LENS_MOST_TEXT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraPose:
    """Where a camera was found to stand, by rows of 4: in the world, or on the gripper that carries it."""

    world_from_camera: tuple[float, ...] = ()
    gripper_from_camera: tuple[float, ...] = ()
    error_m: float | None = None  # standard error of its place, over all axes
    error_rad: float | None = None
    n_poses: int | None = None

    def __post_init__(self) -> None:
        if bool(self.world_from_camera) == bool(self.gripper_from_camera):
            raise InputError('wanted world_from_camera or gripper_from_camera, and not both')
        check_rigid(self.world_from_camera or self.gripper_from_camera, 'a camera pose')

    @property
    def matrix(self) -> NDArray[np.float64]:
        """(4, 4), in whichever of the two frames."""
        return np.reshape(self.world_from_camera or self.gripper_from_camera, (4, 4)).astype(np.float64)


def check_rigid(numbers: Sequence[float], what: str) -> None:
    """Raise InputError unless 16 numbers are a rotation and a place, by rows."""
    if len(numbers) != 16 or not np.isfinite(np.asarray(numbers, dtype=float)).all():
        raise InputError(f'{what} has {len(numbers)} numbers, wanted 16 finite ones')
    pose = np.reshape(np.asarray(numbers, dtype=float), (4, 4))
    turn = pose[:3, :3]
    is_turn = np.abs(turn @ turn.T - np.eye(3)).max() <= POSE_SLACK and np.linalg.det(turn) > 0
    if not is_turn or np.abs(pose[3] - (0, 0, 0, 1)).max() > POSE_SLACK:
        raise InputError(
            f'{what} is not a rotation and translation by rows (the last row is 0 0 0 1): {pose.round(4).tolist()}'
        )


def read_camera_poses(path: Path) -> dict[str, CameraPose]:
    """The cameras of a file that `robotrials geometry calibrate` wrote, by name."""
    try:
        content = path.read_bytes()[: LENS_MOST_TEXT_BYTES + 1]
        values = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f'{path}: not readable as a file of camera poses ({error})') from error
    cameras = values.get('cameras') if isinstance(values, dict) else None
    if not isinstance(cameras, dict) or not cameras:
        raise InputError(f'{path}: wanted {{"cameras": {{NAME: {{"world_from_camera": [16 numbers]}}}}}}')
    return {str(name): read_table(CameraPose, pose, where=f'{path}: {name}') for name, pose in cameras.items()}


def camera_poses_json(poses: Mapping[str, CameraPose]) -> str:
    """The text of such a file."""
    names = ('world_from_camera', 'gripper_from_camera', 'error_m', 'error_rad', 'n_poses')
    rows = {name: {n: v for n in names if (v := getattr(pose, n))} for name, pose in poses.items()}
    return json.dumps({'cameras': rows}, indent=2, allow_nan=False) + '\n'


@functools.cache
def film_obstacle() -> str:
    """Why no film can be encoded here, or ''."""
    try:
        load_av('filming')
    except SetupError as error:
        return str(error)
    return ''
