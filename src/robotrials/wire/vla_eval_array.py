"""Arrays and images inside msgpack as vla-eval writes them: maps with string keys.

An array is ``{__ndarray__: true, data, dtype, shape}`` of kinds b, i, u, f. An image is ``{__image__: true, format,
data, shape}`` with the format ``raw``, ``png`` or ``jpeg``; all three are read, PNG is written unless told
otherwise.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.wire.array import build_array, pack_with, read_dtype, unpack_with
from robotrials.wire.limit import LIMITS, WireLimits

KINDS = 'biuf'
FORMATS = ('png', 'raw', 'jpeg')


def pack_vla_eval(value: object, *, images: str = 'png') -> bytes:
    """`value` as vla-eval's harness writes it; `images` is how pictures go: png, raw or jpeg (RGB only)."""
    if images not in FORMATS:
        raise InputError(f'images is {images!r}, wanted one of: {", ".join(FORMATS)}')
    return pack_with(_WRITERS[images], value)


def _writer(images: str) -> Callable[[Any], object]:
    return lambda value: _to_map(value, images)


_WRITERS = {form: _writer(form) for form in FORMATS}


def unpack_vla_eval(data: bytes, *, limits: WireLimits = LIMITS) -> Any:
    """The value in `data`; InputError if it is malformed or over a limit."""
    return unpack_with(_reader(limits), data, limits=limits)


def _to_map(value: Any, images: str) -> object:
    if isinstance(value, np.generic) and value.dtype.kind in KINDS:
        return value.item()
    if not isinstance(value, np.ndarray):
        raise InputError(f'a {type(value).__name__} cannot be sent')
    if value.dtype.kind not in KINDS:
        raise InputError(f'an array of {value.dtype} cannot be sent; wanted numbers or booleans')
    if value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] in (1, 3, 4):
        return _image_map(value, images)
    return {'__ndarray__': True, 'data': value.tobytes(), 'dtype': value.dtype.str, 'shape': list(value.shape)}


def _image_map(image: NDArray[np.uint8], form: str) -> dict[str, object]:
    if form == 'jpeg' and image.shape[2] != 3:
        form = 'png'
    named: dict[str, object] = {'__image__': True, 'format': form, 'shape': list(image.shape)}
    if form == 'raw':
        return {**named, 'data': image.tobytes(), 'dtype': image.dtype.str}
    from PIL import Image

    stream = io.BytesIO()
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    if form == 'jpeg':
        picture.save(stream, format='JPEG', quality=95)
    else:
        picture.save(stream, format='PNG', compress_level=1)
    return {**named, 'data': stream.getvalue()}


def _reader(limits: WireLimits) -> Callable[[dict[Any, Any]], Any]:
    def from_map(value: dict[Any, Any]) -> Any:
        if '__ndarray__' in value:
            dtype = read_dtype(value.get('dtype'))
            if dtype.kind not in KINDS:
                raise InputError(f'an array of {dtype}, which is not accepted')
            return build_array(dtype, value.get('shape'), value.get('data'))
        if '__image__' in value:
            return _read_image(value, limits)
        return value

    return from_map


def _read_image(value: dict[Any, Any], limits: WireLimits) -> NDArray[np.uint8]:
    form, shape, data = value.get('format'), value.get('shape'), value.get('data')
    if form == 'raw':
        return build_array(np.dtype(np.uint8), shape, data)
    if form not in FORMATS or not isinstance(data, bytes):
        raise InputError(f'an image of format {str(form)[:20]!r}, wanted one of: {", ".join(FORMATS)}')
    return decode_image(data, form, shape=shape, limits=limits)


def decode_image(data: bytes, form: str, *, shape: object, limits: WireLimits = LIMITS) -> NDArray[np.uint8]:
    """A compressed picture as (H, W, C); its size is read and compared before it is decompressed."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=[form.upper()]) as picture:
            width, height = picture.size
            if width * height > limits.max_pixels:
                raise InputError(f'an image of {width} x {height} pixels, more than the {limits.max_pixels} allowed')
            if not isinstance(shape, list | tuple) or tuple(shape[:2]) != (height, width) or len(shape) != 3:
                raise InputError(f'an image of {height} x {width} that is announced as {str(shape)[:60]}')
            mode = {1: 'L', 3: 'RGB', 4: 'RGBA'}.get(shape[2])
            if mode is None:
                raise InputError(f'an image of {shape[2]} channels, wanted 1, 3 or 4')
            pixels: NDArray[np.uint8] = np.asarray(picture.convert(mode), dtype=np.uint8)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'an image that is no {form} ({error})') from error
    return pixels.reshape(shape)
