"""From ROS messages to signals: presets by message type, transforms along the tf tree, and one clock for all.

Every topic is a series of (time, numbers). The steps of a trajectory are the messages of one topic; the others are held
at their last value before each step.

RGB-D as ROS messages, from a bridge or from a bag: images, lenses and depth units checked, and made into one view.

A view is made of a colour image, a depth image and the calibration of the cameras. Sizes that differ, an encoding that
is not known, a lens that is not: each is refused by name, since a score would otherwise rest on it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.bag import Bag, BagMessage, header_stamp_ns
from robotrials.formats.video import decode_pixels, encode_frames
from robotrials.record import Camera
from robotrials.record.footage import MOST_PIXELS, View, aligned_depth, check_distortion, straightened
from robotrials.value import dataclass

ENCODINGS = {
    'rgb8': ('u1', 3), 'bgr8': ('u1', 3), 'rgba8': ('u1', 4), 'bgra8': ('u1', 4), 'mono8': ('u1', 1),
    '8UC1': ('u1', 1), '8UC3': ('u1', 3), '16UC1': ('u2', 1), 'mono16': ('u2', 1), '32FC1': ('f4', 1),
}  # fmt: skip
DEPTH_ENCODINGS = ('16UC1', 'mono16', '32FC1')
MILLIMETRE = 0.001  # of a step of 16-bit depth, as REP 118 has it
# By the words of ROS and of RealSense's SDK.
LENSES = ('', 'none', 'plumb_bob', 'rational_polynomial', 'brown_conrady')
INVERSE_LENSES = ('inverse_brown_conrady',)
DEPTH_HEADER = struct.Struct('<iff')  # of compressed depth: its format, and two numbers that quantised it
PLAUSIBLE_M = (0.01, 100.0)  # the median depth of a picture, if its unit is right


def image(message: Mapping[str, Any]) -> NDArray[Any]:
    """An Image or CompressedImage as an array: (H, W, 3) of uint8, or (H, W) of depth in its own unit."""
    data = message.get('data')
    try:
        content = (
            base64.b64decode(data, validate=True) if isinstance(data, str) else bytes(() if data is None else data)
        )
    except (binascii.Error, ValueError, TypeError) as error:
        raise InputError(f'an image whose data cannot be read ({error})') from error
    if 'format' in message:
        return _decompressed(content, str(message['format']).lower())
    encoding = str(message.get('encoding', ''))
    if encoding not in ENCODINGS:
        raise InputError(f'an image of encoding {encoding[:40]!r}, wanted one of {", ".join(ENCODINGS)}')
    kind, channels = ENCODINGS[encoding]
    try:
        height, width, step = (int(message[name]) for name in ('height', 'width', 'step'))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f'an image without height, width or step ({error})') from error
    dtype = np.dtype(('>' if message.get('is_bigendian') else '<') + kind)
    row = width * channels * dtype.itemsize
    if not (height > 0 and width > 0 and height * width <= MOST_PIXELS and step >= row):
        raise InputError(f'an image of {height} x {width} {encoding} with steps of {step} bytes')
    if len(content) != height * step:
        raise InputError(f'an image of {height} rows of {step} bytes with {len(content)} bytes; cut short')
    rows = np.frombuffer(content, np.uint8).reshape(height, step)[:, :row]
    pixels = np.ascontiguousarray(rows).view(dtype).reshape(height, width, channels)
    if encoding.startswith('bgr'):
        pixels = pixels[..., [2, 1, 0]]
    if channels == 1 and kind == 'u1':
        return np.repeat(pixels, 3, axis=2)
    return np.ascontiguousarray(pixels[..., :3] if channels > 1 else pixels[..., 0])


def _decompressed(content: bytes, form: str) -> NDArray[Any]:
    from PIL import Image

    is_depth = 'compresseddepth' in form
    if is_depth and 'rvl' in form:
        raise InputError("depth compressed as RVL, wanted png; set the transport's format to png")
    packed = content[DEPTH_HEADER.size :] if is_depth else content
    try:
        with Image.open(io.BytesIO(packed), formats=['PNG', 'JPEG']) as opened:
            width, height = opened.size
            if not 0 < width * height <= MOST_PIXELS:
                raise InputError(f'an image of {height} x {width} pixels')
            pixels = np.asarray(opened).astype(np.uint16) if opened.mode.startswith('I') else None
    except (OSError, ValueError, SyntaxError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'an image that cannot be read ({error})') from error
    if pixels is None:
        return decode_pixels(packed, channels=3, dtype='uint8', where='an image')
    if is_depth and form.startswith('32fc1'):  # inverse depth in steps, as the transport quantises floats
        _, scale, shift = DEPTH_HEADER.unpack_from(content)
        with np.errstate(divide='ignore'):
            return np.where(pixels > 0, scale / (pixels.astype(np.float32) - shift), np.float32(0)).astype(np.float32)
    return pixels


def depth_m(pixels: NDArray[Any], *, unit_m: float = MILLIMETRE) -> NDArray[np.float32]:
    """Depth in metres, not a number where there is none; `unit_m` is a step of whole numbers, floats are metres."""
    if pixels.ndim != 2 or pixels.dtype.kind not in 'uf':
        raise InputError(f'a depth image of {pixels.shape} {pixels.dtype}, wanted 16UC1 or 32FC1')
    metres = pixels.astype(np.float32) * np.float32(unit_m if pixels.dtype.kind == 'u' else 1)
    known = np.isfinite(metres) & (metres > 0)
    middle = float(np.median(metres[known])) if known.any() else 1.0
    if not PLAUSIBLE_M[0] <= middle <= PLAUSIBLE_M[1]:
        raise InputError(
            f'a depth image with a median of {middle:.4g} m, wanted {PLAUSIBLE_M[0]:g} to {PLAUSIBLE_M[1]:g}: whole '
            'numbers are millimetres unless a unit is stated, floats are metres'
        )
    return np.where(known, metres, np.float32(np.nan))


@dataclass(frozen=True, slots=True, eq=False)
class Lens:
    """The calibration of one camera: intrinsics (3, 3), distortion, and the size (height, width) they hold for."""

    intrinsics_px: NDArray[np.float64]
    distortion: tuple[float, ...]
    shape: tuple[int, int]
    is_inverse: bool = False  # the distortion undoes the lens


def read_lens(message: Mapping[str, Any]) -> Lens:
    """What a CameraInfo says, of ROS 1 or 2 or of RealSense's SDK."""
    try:
        k = np.array(message.get('k', message.get('K')), dtype=np.float64).reshape(3, 3)
        coefficients = message.get('d', message.get('D'))
        distortion = tuple(float(v) for v in (() if coefficients is None else coefficients))
        size = int(message['height']), int(message['width'])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f'a camera info that cannot be read ({error})') from error
    if not np.isfinite(k).all() or k[0, 0] <= 0 or k[1, 1] <= 0:
        raise InputError('a camera info without focal lengths: the camera is not calibrated')
    model = str(message.get('distortion_model', '')).lower().replace(' ', '_')
    check_distortion(distortion[:8] if not any(distortion) else distortion, f'a lens of model {model[:40]!r}')
    if any(distortion) and model not in (*LENSES, *INVERSE_LENSES):
        raise InputError(
            f'a lens of model {model[:40]!r} with {len(distortion)} numbers, wanted plumb_bob or rational_polynomial'
        )
    return Lens(k, distortion if any(distortion) else (), size, model in INVERSE_LENSES)


def make_view(
    name: str, color: Mapping[str, Any], depth: Mapping[str, Any], *, lens: Lens, pose: NDArray[np.float64],
    t_s: float, unit_m: float = MILLIMETRE, depth_lens: Lens | None = None,
    color_from_depth: NDArray[np.float64] | None = None,
) -> View:  # fmt: skip
    """A pinhole view of a colour and a depth image; the lens is taken out of each.

    Depth is aligned to colour already, or its own lens and the transform between the two are given.
    """
    rgb, metres = image(color), depth_m(image(depth), unit_m=unit_m)
    if rgb.ndim != 3:
        raise InputError(f'camera {name}: colour is a depth image')
    if rgb.shape[:2] != lens.shape:
        raise InputError(f'camera {name}: colour is {rgb.shape[:2]}, its info says {lens.shape}')
    k = lens.intrinsics_px
    if depth_lens is not None and color_from_depth is not None:
        if metres.shape != depth_lens.shape:
            raise InputError(f'camera {name}: depth is {metres.shape}, its info says {depth_lens.shape}')
        rgb, _ = straightened(rgb, np.full(lens.shape, np.nan), k, lens.distortion, is_inverse=lens.is_inverse)
        metres = aligned_depth(
            metres, depth_lens.intrinsics_px, distortion=depth_lens.distortion, is_inverse=depth_lens.is_inverse,
            color_from_depth=color_from_depth, color_k=k, shape=lens.shape,
        )  # fmt: skip
    elif metres.shape != lens.shape:
        raise InputError(
            f'camera {name}: colour is {rgb.shape[:2]}, depth {metres.shape}, its info says {lens.shape}; depth must '
            'be aligned to colour (align_depth, or depth registration, in its driver)'
        )
    else:
        rgb, straight = straightened(rgb, metres, k, lens.distortion, is_inverse=lens.is_inverse)
        metres = straight.astype(np.float32)
    camera = Camera(name, k, pose, lens.shape[1], lens.shape[0])
    return View(np.ascontiguousarray(rgb, dtype=np.uint8), metres, camera, t_s)


Array = NDArray[Any]
JOINT_STATE = 'sensor_msgs/msg/JointState'
POSE = 'geometry_msgs/msg/PoseStamped'
WRENCH = 'geometry_msgs/msg/WrenchStamped'
TF = 'tf2_msgs/msg/TFMessage'
IMAGES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
CAMERA_INFO = 'sensor_msgs/msg/CameraInfo'
GRIPPER_COMMAND = 'control_msgs/msg/GripperCommand'
FLOATS = ('std_msgs/msg/Float64', 'std_msgs/msg/Float32')
TOOL_FRAMES = (
    'tool0', 'tcp', 'ee_link', 'panda_hand_tcp', 'fr3_hand_tcp', 'panda_hand', 'fr3_hand', 'end_effector', 'gripper',
    'tool_link', 'flange',
)  # fmt: skip
# Files of RealSense's SDK, by its own topics.
SDK_TOPIC = re.compile(r'(?P<device>/device_\d+)(?P<sensor>/sensor_\d+)/(?P<kind>Depth|Color)_\d+/image/data')
TRANSPORTS = ('/compressed', '/compressedDepth')
STAMP_OFFSET_NS = 1_000_000_000  # a header stamp further from the log time belongs to another clock
PLACE = re.compile(r'(?P<topic>/[^.\[\]>]*?)(?:\.(?P<field>[A-Za-z_0-9.]+))?(?:\[(?P<first>\d+)(?::(?P<last>\d+))?\])?')
TF_PLACE = re.compile(r'(?P<topic>/[^:]+):(?P<parent>[^>]+)->(?P<child>.+)')


@dataclass(slots=True)
class Series:
    """The numbers of one topic, as they were logged."""

    log_ns: list[int] = field(default_factory=list)
    stamp_ns: list[int] = field(default_factory=list)  # 0 where a message has no header
    values: list[Array] = field(default_factory=list)

    def add(self, message: BagMessage, values: Array) -> None:
        self.log_ns.append(message.log_ns)
        self.stamp_ns.append(header_stamp_ns(message.content))
        self.values.append(values)

    def times_ns(self, *, stamped: bool) -> NDArray[np.int64]:
        """The times of the messages by one clock or the other."""
        return np.array(self.stamp_ns if stamped else self.log_ns, dtype=np.int64)

    def matrix(self, where: str) -> Array:
        widths = sorted({len(v) for v in self.values})
        if len(widths) > 1:
            raise InputError(f'{where}: messages of {widths[0]} to {widths[-1]} numbers; wanted one length')
        return np.array(self.values)


def why_not_stamps(log_ns: Sequence[int], stamp_ns: Sequence[int]) -> str:
    """Why the header stamps of a topic cannot be its times; empty where they can."""
    logged, stamped = np.array(log_ns, dtype=np.int64), np.array(stamp_ns, dtype=np.int64)
    if not np.all(stamped > 0):
        return 'has no header stamps'
    back = np.flatnonzero(np.diff(stamped) <= 0)
    if len(back):
        return f'has a header stamp, of message {int(back[0]) + 1}, that is not after the one before'
    offset = int(np.median(stamped - logged))
    if abs(offset) > STAMP_OFFSET_NS:
        return f'has header stamps {offset / 1e9:+.1f} s off its log times, by another clock'
    return ''


def choose_clock(series: Mapping[str, Series]) -> tuple[bool, str]:
    """Whether all topics are timed by their header stamps, and the reason.

    One clock serves them all: a topic without stamps is logged a little after it was measured, and next to stamped ones
    it would look late by that much.
    """
    for name, stamps in series.items():
        problem = why_not_stamps(stamps.log_ns, stamps.stamp_ns)
        if problem:
            return False, f'times are log times: {name} {problem}'
    return True, 'times are header stamps'


def pose_numbers(pose: Any) -> Array:
    """X y z qw qx qy qz of a geometry_msgs Pose or Transform."""
    place = getattr(pose, 'position', None) or pose.translation
    turn = getattr(pose, 'orientation', None) or pose.rotation
    return np.array([place.x, place.y, place.z, turn.w, turn.x, turn.y, turn.z])


def wrench_numbers(wrench: Any) -> Array:
    """Force and torque."""
    return np.array([wrench.force.x, wrench.force.y, wrench.force.z, wrench.torque.x, wrench.torque.y, wrench.torque.z])


def field_numbers(content: Any, path: str, *, where: str) -> Array:
    """The numbers under a dotted path of a message, nested messages flattened in the order of their fields."""
    value = content
    for part in filter(None, path.split('.')):
        if not hasattr(value, part):
            known = [n for n in getattr(value, '__dataclass_fields__', {}) if not n.startswith('__')]
            raise InputError(f'{where}: no field {part!r} in {path!r}; found {", ".join(known) or "none"}')
        value = getattr(value, part)
    numbers = _flatten(value)
    if not numbers:
        raise InputError(f'{where}: no numbers under {path or "the message"!r}')
    return np.array(numbers, dtype=np.float64)


def _flatten(value: Any) -> list[float]:
    if isinstance(value, bool | int | float | np.number):
        return [float(value)]
    if isinstance(value, np.ndarray) and value.dtype.kind in 'fiub':
        return [float(v) for v in value.ravel()]
    if isinstance(value, list | tuple):
        return [n for item in value for n in _flatten(item)]
    fields = getattr(value, '__dataclass_fields__', {})
    return [
        n for name in fields if not name.startswith('__') and name != 'header' for n in _flatten(getattr(value, name))
    ]


# --- tf


@dataclass(slots=True)
class TransformTree:
    """The transforms of a bag: child frame -> its parent, and the pose in it over time."""

    parents: dict[str, str] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)

    def add(self, message: BagMessage) -> None:
        for transform in message.content.transforms:
            child = transform.child_frame_id.lstrip('/')
            parent = transform.header.frame_id.lstrip('/')
            if self.parents.setdefault(child, parent) != parent:
                raise InputError(f'tf: frame {child!r} hangs from {self.parents[child]!r} and from {parent!r}')
            series = self.series.setdefault(child, Series())
            series.add(BagMessage(message.topic, message.log_ns, transform), pose_numbers(transform.transform))

    def chain(self, child: str, root: str | None) -> list[str]:
        """The frames from `child` up to below `root`, or up to the top."""
        frames: list[str] = []
        at = child
        while at != root and at in self.parents:
            if at in frames:
                raise InputError(f'tf: frames {" -> ".join([*frames, at])} form a circle')
            frames.append(at)
            at = self.parents[at]
        if not frames or (root is not None and at != root):
            known = ', '.join(sorted({*self.parents, *self.parents.values()}))
            raise InputError(f'tf: no way from {root or "the top"!r} to {child!r}; frames: {known}')
        return frames

    def root_of(self, child: str) -> str:
        return self.parents[self.chain(child, None)[-1]]

    def poses(
        self, child: str, root: str | None, at_ns: NDArray[np.int64], *, stamped: bool
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Pose (T, 7) of `child` in `root` at some times, and where it is known."""
        total: Array | None = None
        known = np.ones(len(at_ns), dtype=np.bool_)
        for frame in self.chain(child, root):
            times = self.series[frame].times_ns(stamped=stamped)
            is_static = len(times) == 1
            held, seen = hold(times, self.series[frame].matrix(f'tf {frame}'), at_ns)
            if is_static:  # /tf_static is published once, whenever
                held, seen = np.repeat(self.series[frame].matrix(frame), len(at_ns), axis=0), np.ones_like(known)
            total = held if total is None else compose(held, total)
            known &= seen
        assert total is not None
        return total, known


def compose(a: Array, b: Array) -> Array:
    """Poses a * b, (T, 7) each."""
    return np.concatenate([a[:, :3] + _rotate(a[:, 3:], b[:, :3]), _multiply(a[:, 3:], b[:, 3:])], axis=1)


def _multiply(p: Array, q: Array) -> Array:
    w = p[:, :1] * q[:, :1] - np.sum(p[:, 1:] * q[:, 1:], axis=1, keepdims=True)
    v = p[:, :1] * q[:, 1:] + q[:, :1] * p[:, 1:] + np.cross(p[:, 1:], q[:, 1:])
    return np.concatenate([w, v], axis=1)


def _rotate(q: Array, v: Array) -> Array:
    u = q[:, 1:]
    turned: Array = v + 2 * np.cross(u, np.cross(u, v) + q[:, :1] * v)
    return turned


def hold(times_ns: NDArray[np.int64], values: Array, at_ns: NDArray[np.int64]) -> tuple[Array, NDArray[np.bool_]]:
    """The last value at or before each time, and where there is one; before the first, the first is given."""
    order = np.argsort(times_ns, kind='stable')
    place = np.searchsorted(times_ns[order], at_ns, side='right') - 1
    return values[order][np.maximum(place, 0)], place >= 0


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """Numbers of a topic: all, one field, or some of its numbers; or a frame of tf in another."""

    topic: str
    path: str = ''
    first: int | None = None
    last: int | None = None
    parent: str = ''
    child: str = ''


def parse_topic_place(text: str) -> TopicPlace:
    """`/topic`, `/topic.field.sub`, `/topic.data[0:7]` or `/tf:base->tool0`."""
    frames = TF_PLACE.fullmatch(text)
    if frames is not None:
        return TopicPlace(frames['topic'], parent=frames['parent'].strip(), child=frames['child'].strip())
    match = PLACE.fullmatch(text)
    if match is None:
        raise InputError(f'{text!r} names no topic; wanted /topic, /topic.field, /topic.data[0:7] or /tf:base->tool0')
    first = None if match['first'] is None else int(match['first'])
    last = None if first is None else int(match['last'] or first + 1)
    return TopicPlace(match['topic'], match['field'] or '', first, last)


def select(values: Array, place: TopicPlace) -> Array:
    """The numbers that a place asks for."""
    return values if place.first is None else values[:, place.first : place.last]


# Cameras of ROS bags: raw and compressed images, read again from the bag when their video is written.


@dataclass(frozen=True, slots=True, eq=False)
class CameraFacts:
    """What the first image and the calibration of a camera say."""

    width_px: int = 0
    height_px: int = 0
    intrinsics_px: NDArray[np.float64] | None = None
    has_stamps: bool = False
    refused: str = ''


def read_camera_facts(bag: Bag, topic: str) -> CameraFacts:
    """Size, calibration and clock of one camera; a calibration that is none is left out."""
    info = bag.first(info_topic(bag, topic))
    intrinsics = None
    if info is not None:
        with contextlib.suppress(InputError):
            intrinsics = read_lens(as_mapping(info)).intrinsics_px
    first = next(iter(bag.messages([topic])), None)
    if first is None:
        return CameraFacts(refused='no image on its topic')
    encoding = getattr(first.content, 'encoding', '')
    if encoding in DEPTH_ENCODINGS or 'compresseddepth' in str(getattr(first.content, 'format', '')).lower():
        return CameraFacts(refused='depth is no video; with a colour topic, --map view/NAME=COLOUR,DEPTH keeps views')
    if encoding and encoding not in ENCODINGS:
        return CameraFacts(refused=f'encoding {encoding}: raw formats are not kept as video')
    pixels = image_pixels(first, str(bag.path))
    return CameraFacts(pixels.shape[1], pixels.shape[0], intrinsics, not why_not_stamps(*bag.stamps_ns(topic)))


def info_topic(bag: Bag, topic: str) -> str:
    """The CameraInfo of an image topic; empty where there is none."""
    plain = next((topic.removesuffix(t) for t in TRANSPORTS if topic.endswith(t)), topic)
    base = plain.rsplit('/', 1)[0]
    if SDK_TOPIC.fullmatch(topic) is not None:
        base = f'{plain.removesuffix("/image/data")}/info'
    beside = [t for t, kind in sorted(bag.topics.items()) if kind == CAMERA_INFO and t.rsplit('/', 1)[0] == base]
    return beside[0] if beside else ''


def as_mapping(content: Any) -> dict[str, Any]:
    """A message by the names of its fields, as a bridge would send it."""
    return {name: getattr(content, name) for name in content.__dataclass_fields__ if not name.startswith('__')}


def image_pixels(message: BagMessage, where: str) -> NDArray[Any]:
    """(height, width, 3) of uint8, colours as RGB."""
    try:
        pixels = image(as_mapping(message.content))
    except InputError as error:
        raise InputError(f'{where}: {message.topic}: {error}') from error
    if pixels.ndim != 3:
        raise InputError(f'{where}: {message.topic}: a depth image among colour images')
    return pixels


@dataclass(frozen=True, slots=True)
class BagClip:
    """The images of one topic as a video with one frame per step: the last image before it."""

    bag: Bag
    topic: str
    at_ns: tuple[int, ...]
    fps: float
    uses_stamps: bool = False

    def write(self, target: Path) -> None:
        """Read the bag once more, for this topic alone, and encode as it goes."""
        encode_frames(self._frames(), target, fps=self.fps, times_s=[(ns - self.at_ns[0]) / 1e9 for ns in self.at_ns])

    def _frames(self) -> Iterator[NDArray[Any]]:
        held: BagMessage | None = None
        step = 0
        for message in self.bag.messages([self.topic]):
            time_ns = header_stamp_ns(message.content) if self.uses_stamps else message.log_ns
            while held is not None and step < len(self.at_ns) and self.at_ns[step] < time_ns:
                yield image_pixels(held, str(self.bag.path))
                step += 1
            held = message
        while held is not None and step < len(self.at_ns):
            yield image_pixels(held, str(self.bag.path))
            step += 1
