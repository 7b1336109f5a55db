"""Depth cameras of a rig as ROS messages: images, calibration and time checked, and the reset held against the plan.

A view is made of a colour image, a depth image aligned to it, and a CameraInfo. Stamps that lie too far apart, sizes
that differ, an encoding that is not known: each is refused, since a score would otherwise rest on it.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, NoAnswer, NotEstimable, RigError
from robotrials.measure.geometry import Box, RgbdView, box_pose_error, locate_solid
from robotrials.measure.geometry.camera_score import box_of, looks_like, model_of, static_scene
from robotrials.measure.geometry.fit import fit_cost, refine_box
from robotrials.measure.geometry.solid import unpack_solid
from robotrials.measure.geometry.trust import LEAN_COST, LEAN_SLACK_M, LocatedBox, check_views, locate
from robotrials.measure.geometry.view import rectified
from robotrials.record import Camera
from robotrials.record.media import KnownScene, View, read_known
from robotrials.run.seam import Setup
from robotrials.wire.array import decode_image
from robotrials.wire.rosbridge import RosbridgeLink

IMAGE, COMPRESSED, CAMERA_INFO = (
    'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage', 'sensor_msgs/msg/CameraInfo',
)  # fmt: skip
ENCODINGS = {
    'rgb8': ('u1', 3), 'bgr8': ('u1', 3), 'rgba8': ('u1', 4), 'bgra8': ('u1', 4), 'mono8': ('u1', 1),
    '16UC1': ('u2', 1), 'mono16': ('u2', 1), '32FC1': ('f4', 1),
}  # fmt: skip
MILLIMETRE = 0.001  # of a step of 16-bit depth, as REP 118 has it
LENSES = ('', 'plumb_bob', 'rational_polynomial', 'inverse_brown_conrady', 'none')
LEAST_FIT = 0.4  # confidence in a box, below which a reset is doubtful
DEPTH_HEADER = 12  # bytes before the PNG of compressed depth


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthEntry:
    """One RGB-D camera: its topics, where it stands, and how far the stamps of its two images may lie apart.

    `depth` is aligned to colour (RealSense: aligned_depth_to_color; Orbbec: depth registration on), as 16UC1 in
    millimetres or 32FC1 in metres. `world_from_camera` is the calibrated pose by rows (hand-eye, or a board); it is
    checked against what stands fixed, and corrected, whenever views are scored.
    """

    color: str
    depth: str
    info: str
    world_from_camera: tuple[float, ...]
    color_kind: str = 'image'  # or compressed
    depth_kind: str = 'image'
    skew_s: float = 0.034

    def __post_init__(self) -> None:
        if len(self.world_from_camera) != 16 or not all(map(math.isfinite, self.world_from_camera)):
            raise InputError(f'world_from_camera has {len(self.world_from_camera)} numbers, wanted 16 finite ones')
        for name in ('color_kind', 'depth_kind'):
            if getattr(self, name) not in ('image', 'compressed'):
                raise InputError(f"{name} is {getattr(self, name)!r}, wanted 'image' or 'compressed'")
        if not self.skew_s > 0:
            raise InputError(f'skew_s is {self.skew_s}, wanted > 0')

    @property
    def topics(self) -> dict[str, str]:
        """Every topic with its type."""
        kinds = {'image': IMAGE, 'compressed': COMPRESSED}
        return {self.color: kinds[self.color_kind], self.depth: kinds[self.depth_kind], self.info: CAMERA_INFO}


def image(message: Mapping[str, Any]) -> NDArray[Any]:
    """An Image or CompressedImage as an array: (H, W, 3) of uint8, or (H, W) of depth in its own unit."""
    data = message.get('data')
    try:
        content = base64.b64decode(data, validate=True) if isinstance(data, str) else bytes(data or b'')
    except (binascii.Error, ValueError, TypeError) as error:
        raise AnswerError(f'an image whose data cannot be read ({error})') from error
    if 'format' in message:
        return _decompressed(content, str(message['format']).lower())
    encoding = str(message.get('encoding', ''))
    if encoding not in ENCODINGS:
        raise AnswerError(f'an image of encoding {encoding[:40]!r}, wanted one of {", ".join(ENCODINGS)}')
    kind, channels = ENCODINGS[encoding]
    try:
        height, width, step = (int(message[name]) for name in ('height', 'width', 'step'))
    except (KeyError, TypeError, ValueError) as error:
        raise AnswerError(f'an image without height, width or step ({error})') from error
    dtype = np.dtype(('>' if message.get('is_bigendian') else '<') + kind)
    row = width * channels * dtype.itemsize
    if not (0 < height <= 4096 and 0 < width <= 4096 and step >= row and len(content) == height * step):
        raise AnswerError(f'an image of {height} x {width} {encoding} with steps of {step} and {len(content)} bytes')
    rows = np.frombuffer(content, np.uint8).reshape(height, step)[:, :row]
    pixels = np.ascontiguousarray(rows).view(dtype).reshape(height, width, channels)
    if encoding.startswith('bgr'):
        pixels = pixels[..., [2, 1, 0]]
    if channels == 1 and encoding == 'mono8':
        return np.repeat(pixels, 3, axis=2)
    return np.ascontiguousarray(pixels[..., :3] if channels > 1 else pixels[..., 0])


def _decompressed(content: bytes, told: str) -> NDArray[Any]:
    from PIL import Image

    if 'compresseddepth' in told:
        if 'png' not in told and 'rvl' in told:
            raise AnswerError("depth compressed as RVL, wanted png; set the transport's format to png")
        content = content[DEPTH_HEADER:]
    try:
        with Image.open(io.BytesIO(content), formats=['PNG', 'JPEG']) as opened:
            width, height = opened.size
            if not (0 < width <= 4096 and 0 < height <= 4096):
                raise AnswerError(f'an image of {height} x {width} pixels')
            if opened.mode.startswith('I'):
                return np.asarray(opened).astype(np.uint16)
            form = str(opened.format).lower()
        return np.array(decode_image(content, form, shape=(height, width, 3)))
    except (OSError, ValueError, SyntaxError) as error:
        raise AnswerError(f'an image that cannot be read ({error})') from error


def depth_m(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Depth in metres, not a number where there is none."""
    if pixels.ndim != 2 or pixels.dtype.kind not in 'uf':
        raise AnswerError(f'a depth image of {pixels.shape} {pixels.dtype}, wanted 16UC1 or 32FC1')
    metres = pixels.astype(np.float32) * (np.float32(MILLIMETRE) if pixels.dtype.kind == 'u' else np.float32(1))
    with np.errstate(invalid='ignore'):
        return np.where(metres > 0, metres, np.float32(np.nan)).astype(np.float32)


def calibration(message: Mapping[str, Any]) -> tuple[NDArray[np.float64], tuple[float, ...], tuple[int, int]]:
    """Intrinsics (3, 3), distortion and size (height, width) of a CameraInfo, of ROS 1 or 2."""
    try:
        k = np.array(message.get('k', message.get('K')), dtype=np.float64).reshape(3, 3)
        bent = tuple(float(v) for v in message.get('d', message.get('D')) or ())
        size = int(message['height']), int(message['width'])
    except (KeyError, TypeError, ValueError) as error:
        raise AnswerError(f'a camera info that cannot be read ({error})') from error
    if not np.isfinite(k).all() or k[0, 0] <= 0 or k[1, 1] <= 0:
        raise AnswerError('a camera info without focal lengths: the camera is not calibrated')
    model = str(message.get('distortion_model', ''))
    if any(bent) and (model not in LENSES or len(bent) > 8):
        raise AnswerError(
            f'a lens of model {model[:40]!r} with {len(bent)} numbers, wanted plumb_bob or rational_polynomial'
        )
    return k, bent, size


def make_view(
    name: str, entry: DepthEntry, color: Mapping[str, Any], depth: Mapping[str, Any], info: Mapping[str, Any],
    *, t_s: float,
) -> View:  # fmt: skip
    """A pinhole view of three messages; the lens is taken out of colour and depth."""
    rgb, metres = image(color), depth_m(image(depth))
    k, bent, size = calibration(info)
    if not rgb.shape[:2] == metres.shape == size:
        raise AnswerError(
            f'camera {name}: colour is {rgb.shape[:2]}, depth {metres.shape}, its info says {size}; depth must be '
            'aligned to colour (align_depth, or depth registration, in its driver)'
        )
    pose = np.reshape(entry.world_from_camera, (4, 4)).astype(np.float64)
    straight = rectified(RgbdView(name, rgb.astype(np.uint8), metres, k, pose), bent)
    camera = Camera(name, straight.intrinsics_px, pose, size[1], size[0])
    return View(straight.rgb, straight.depth_m.astype(np.float32), camera, t_s)


class DepthWatch:
    """The depth cameras of a rig on one connection: subscribed once, and asked for views that belong together."""

    def __init__(self, cameras: Mapping[str, DepthEntry], *, timeout_s: float, across_s: float) -> None:
        self._cameras, self._timeout_s, self._across_s = cameras, timeout_s, across_s

    def subscribe(self, link: RosbridgeLink) -> None:
        for entry in self._cameras.values():
            for topic, kind in entry.topics.items():
                link.subscribe(topic, kind)

    def counts(self, link: RosbridgeLink) -> dict[str, int]:
        """How many images of each topic came so far: views are then asked for that came later."""
        link.listen()
        return {t: link.count(t) for e in self._cameras.values() for t in (e.color, e.depth)}

    def take(self, link: RosbridgeLink, *, after: Mapping[str, int], first_s: float | None) -> dict[str, View]:
        """One view of each camera, of images that came after those counted."""
        from robotrials.worlds.rosbridge import stamp_s

        views, stamps = {}, {}
        for name, entry in self._cameras.items():
            color, depth = self._pair(link, name, entry, after)
            info = link.heard(entry.info)
            message = (
                info.message if info is not None else link.await_news(entry.info, after=0, timeout_s=self._timeout_s)
            )
            at_s = stamp_s(color)
            if at_s is None:
                raise RigError(f'camera {name}: its images have no stamps; nothing says what belongs together')
            stamps[name] = at_s
            views[name] = make_view(
                name, entry, color, depth, message, t_s=at_s - (at_s if first_s is None else first_s)
            )
        spread = max(stamps.values()) - min(stamps.values())
        if spread > self._across_s:
            told = ', '.join(f'{name} {s - min(stamps.values()):+.3f}' for name, s in stamps.items())
            raise RigError(f'cameras are {spread:.3f} s apart, wanted at most {self._across_s:g} ({told})')
        return views

    def _pair(
        self, link: RosbridgeLink, name: str, entry: DepthEntry, after: Mapping[str, int]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Colour and depth whose stamps are as near as they must be; newer ones are waited for until they are."""
        from robotrials.worlds.rosbridge import stamp_s

        until, seen, off_s = time.monotonic() + self._timeout_s, dict(after), 0.0
        while True:
            left = max(until - time.monotonic(), 0.001)
            try:
                color = link.await_news(entry.color, after=seen[entry.color], timeout_s=left)
                depth = link.await_news(entry.depth, after=seen[entry.depth], timeout_s=left)
            except NoAnswer:
                if off_s:
                    told = f'colour and depth are {off_s:+.3f} s apart, wanted at most {entry.skew_s:g}'
                    raise RigError(f'camera {name}: {told}, and nothing nearer came') from None
                raise
            stamps = stamp_s(color), stamp_s(depth)
            if stamps[0] is None or stamps[1] is None:
                raise RigError(f'camera {name}: colour or depth has no stamp; nothing says what belongs together')
            off_s = stamps[0] - stamps[1]
            if abs(off_s) <= entry.skew_s:
                return color, depth
            behind = entry.color if off_s < 0 else entry.depth
            seen[behind] = link.count(behind)


def read_scene(path: str, setup: Setup) -> KnownScene:
    """What is known of an episode's scene, from a file; {task}, {seed}, {instance} in its name are the episode's."""
    given = {'task': setup.task, 'seed': setup.seed, 'instance': setup.instance, 'stratum': setup.stratum}
    name = path
    for key, value in given.items():
        name = name.replace('{' + key + '}', str(value))
    try:
        return read_known(Path(name).read_bytes(), where=name)
    except OSError as error:
        raise InputError(f'{name}: cannot be read ({error.strerror}); the plan of the scene belongs there') from error


def _explains(planned: Box, found: LocatedBox, tolerance_m: float) -> bool:
    """Whether a small thing turned as planned explains its points about as well as the way it was found to stand."""
    points = found.found.cloud.point_m
    as_planned = refine_box(
        points, Box(found.box.center, planned.size, planned.rotation), tolerance_m=tolerance_m, turns=()
    )
    free, held = (fit_cost(points, box, tolerance_m) for box in (found.box, as_planned))
    return held <= LEAN_COST * free + LEAN_SLACK_M**2


def reset_fault(
    views: Mapping[str, View], known: KnownScene, *, slack_m: float = 0.015, slack_rad: float = 0.2
) -> str:  # fmt: skip
    """What is not as the plan has it, as the cameras see it; empty when all is, and a fault when they cannot tell.

    Plain boxes of one colour are looked for by it, objects with a shape are registered. Cameras are checked against
    what stands fixed first.
    """
    if not known.fixed:
        raise InputError('a reset check needs to know what stands fixed: give `fixed` in the scene')
    taken = [
        RgbdView(n, v.rgb, v.depth_m, v.camera.intrinsics_px, v.camera.world_from_camera)  # type: ignore[arg-type]
        for n, v in views.items()
    ]
    shaped = [o for o in known.objects if o.shape]
    checked = check_views(taken, static_scene(known), parameters=6 if shaped else 3)
    if not checked.views:
        return f'reset: {checked.refusal}'
    faults = []
    plain = [o for o in known.objects if not o.shape and o.is_box and o.color_rgb]
    for wanted in plain:
        alike = [box_of(o.start) for o in plain if o is not wanted and looks_like(o, wanted)]
        planned = box_of(wanted.start)
        try:
            found = locate(checked, model_of(wanted), start=planned, others=alike)
        except NotEstimable:
            faults.append(f'{wanted.name} missing')
            continue
        error = box_pose_error(found.box, planned)
        if found.found.fit_confidence < LEAST_FIT:
            faults.append(f'{wanted.name} doubtful')
        elif error.translation_m > slack_m:
            faults.append(f'{wanted.name} moved by {1000 * error.translation_m:.0f} mm')
        elif error.angle_rad > slack_rad and not _explains(planned, found, checked.tolerance_m):
            faults.append(f'{wanted.name} turned by {math.degrees(error.angle_rad):.0f} degrees')
    for wanted in shaped:
        try:
            solid = locate_solid(checked, unpack_solid(wanted.shape), support_z_m=checked.scene.lowest_top_m)
        except NotEstimable as why:
            faults.append(f'{wanted.name} missing ({why})')
            continue
        planned = box_of(wanted.start)
        off_m = float(np.linalg.norm(solid.solid.box.center - planned.center))
        turned = min(box_pose_error(box, planned).angle_rad for box in solid.solid.boxes)
        if solid.refusal:
            faults.append(f'{wanted.name} doubtful ({solid.refusal})')
        elif off_m > slack_m:
            faults.append(f'{wanted.name} moved by {1000 * off_m:.0f} mm')
        elif turned > slack_rad + solid.error_rad:
            faults.append(f'{wanted.name} turned')
    return f'reset: {"; ".join(faults)}' if faults else ''
