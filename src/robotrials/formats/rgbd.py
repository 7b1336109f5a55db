"""RGB-D as ROS messages, from a bridge or from a bag: images, lenses and depth units checked, and made into one view.

A view is made of a colour image, a depth image and the calibration of the cameras. Sizes that differ, an encoding that
is not known, a lens that is not: each is refused by name, since a score would otherwise rest on it.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.video import decode_pixels
from robotrials.record import Camera
from robotrials.record.lens import aligned_depth, check_distortion, straightened
from robotrials.record.media import MOST_PIXELS, View
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
