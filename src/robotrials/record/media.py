"""Films and RGB-D views that are kept with an episode."""

from __future__ import annotations

import contextlib
import dataclasses
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

from robotrials.declaration import read_table, without_nulls
from robotrials.errors import InputError, SetupError, StoreError, install_hint
from robotrials.record.folder import inside, is_file_inside
from robotrials.record.trajectory import Camera
from robotrials.value import dataclass

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
                raise StoreError(f'{where}: {_CONTENTS} is no table of at most {MOST_VIEWS} views')
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
    av = load_av('filming')
    rate = Fraction(control_rate_hz).limit_denominator(RATE_DENOMINATOR)
    with tempfile.TemporaryDirectory() as folder:  # the index goes to the front once all is written: a file is needed
        target = Path(folder) / 'film.mp4'
        with av.open(str(target), 'w', format='mp4', options=CONTAINER) as sink:
            stream: Any = None
            for step, pixels in zip(steps, frames, strict=True):
                if stream is None:
                    stream = sink.add_stream('libx264', rate=rate, options=QUALITY)
                    stream.height, stream.width, stream.pix_fmt = *pixels.shape[:2], 'yuv420p'
                    stream.time_base = stream.codec_context.time_base = 1 / rate
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format='rgb24')
                frame.pts, frame.time_base = int(step), 1 / rate
                sink.mux(stream.encode(frame))
            if stream is None:
                raise InputError('a film without frames')
            sink.mux(stream.encode())
        return target.read_bytes()


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
