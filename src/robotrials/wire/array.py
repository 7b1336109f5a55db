"""Arrays inside messages as each peer writes them: openpi's and GR00T's msgpack, vla-eval's, json-numpy's JSON.

What a message may hold at most, checked on the bytes before anything is built from them.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, install_hint, load_optional
from robotrials.value import dataclass

MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """The bounds of one message. A value is a scalar, a text, a run of bytes, a list or a map."""

    max_bytes: int = MAX_BYTES
    max_values: int = 200_000
    max_depth: int = 32
    max_text_bytes: int = 1 << 20
    max_pixels: int = 64 << 20  # of one compressed image, before it is decompressed

    def __post_init__(self) -> None:
        for name in ('max_bytes', 'max_values', 'max_depth', 'max_text_bytes', 'max_pixels'):
            if getattr(self, name) < 1:
                raise InputError(f'{name} is {getattr(self, name)}, wanted >= 1')


LIMITS = WireLimits()

# First byte of a msgpack value -> (bytes of the header, kind).
_FIXED, _TEXT, _BYTES, _LIST, _MAP, _REFUSED = range(6)
_HEADS: list[tuple[int, int]] = [(1, _FIXED)] * 256
for _first in range(0x80, 0x90):
    _HEADS[_first] = (1, _MAP)
for _first in range(0x90, 0xA0):
    _HEADS[_first] = (1, _LIST)
for _first in range(0xA0, 0xC0):
    _HEADS[_first] = (1, _TEXT)
for _first, _head in {
    0xC1: (1, _REFUSED), 0xC4: (2, _BYTES), 0xC5: (3, _BYTES), 0xC6: (5, _BYTES),
    0xC7: (1, _REFUSED), 0xC8: (1, _REFUSED), 0xC9: (1, _REFUSED),
    0xCA: (5, _FIXED), 0xCB: (9, _FIXED), 0xCC: (2, _FIXED), 0xCD: (3, _FIXED), 0xCE: (5, _FIXED), 0xCF: (9, _FIXED),
    0xD0: (2, _FIXED), 0xD1: (3, _FIXED), 0xD2: (5, _FIXED), 0xD3: (9, _FIXED),
    0xD4: (1, _REFUSED), 0xD5: (1, _REFUSED), 0xD6: (1, _REFUSED), 0xD7: (1, _REFUSED), 0xD8: (1, _REFUSED),
    0xD9: (2, _TEXT), 0xDA: (3, _TEXT), 0xDB: (5, _TEXT), 0xDC: (3, _LIST), 0xDD: (5, _LIST),
    0xDE: (3, _MAP), 0xDF: (5, _MAP),
}.items():  # fmt: skip
    _HEADS[_first] = _head
_SMALL_MASK = {_MAP: 0x0F, _LIST: 0x0F, _TEXT: 0x1F}


def check_size(n_bytes: int, limits: WireLimits = LIMITS) -> None:
    """Raise InputError if a message is too long."""
    if n_bytes > limits.max_bytes:
        raise InputError(f'a message of {n_bytes} bytes, more than the {limits.max_bytes} allowed')


def check_msgpack(data: bytes, limits: WireLimits = LIMITS) -> None:
    """Walk over a msgpack message without building it; InputError if it breaks a limit or ends too early."""
    check_size(len(data), limits)
    end, at, n_values = len(data), 0, 0
    open_counts = [1]
    while open_counts:
        if not open_counts[-1]:
            open_counts.pop()
            continue
        open_counts[-1] -= 1
        if at >= end:
            raise InputError(f'not a msgpack message: it ends after {end} bytes, in the middle of a value')
        first = data[at]
        size, kind = _HEADS[first]
        n_values += 1
        if kind == _FIXED:
            at += size
        else:
            length = first & _SMALL_MASK[kind] if size == 1 and kind in _SMALL_MASK else _length(data, at, size, kind)
            at += size
            if kind in (_LIST, _MAP):
                children = length * (1 + (kind == _MAP))
                _check_container(n_values + children, len(open_counts), limits)
                open_counts.append(children)
            else:
                if kind == _TEXT and length > limits.max_text_bytes:
                    raise InputError(f'a text of {length} bytes, more than the {limits.max_text_bytes} allowed')
                at += length
        if n_values > limits.max_values:
            raise InputError(f'a message of more than the {limits.max_values} values allowed')
    if at != end:
        what = 'it ends in the middle of a value' if at > end else f'{end - at} bytes follow it'
        raise InputError(f'not a msgpack message of {end} bytes: {what}')


def _length(data: bytes, at: int, size: int, kind: int) -> int:
    if kind == _REFUSED:
        raise InputError(f'a msgpack extension or unused type (0x{data[at]:02x}), which is not accepted')
    return int.from_bytes(data[at + 1 : at + size], 'big')


def _check_container(n_values: int, depth: int, limits: WireLimits) -> None:
    if n_values > limits.max_values:
        raise InputError(f'a message that announces {n_values} values, more than the {limits.max_values} allowed')
    if depth >= limits.max_depth:
        raise InputError(f'a message nested deeper than the {limits.max_depth} levels allowed')


def check_depth(value: object, limits: WireLimits = LIMITS) -> None:
    """Raise InputError if a value that was built is nested too deeply."""
    level = [value]
    for _ in range(limits.max_depth + 1):
        inner: list[object] = []
        for container in level:
            if type(container) is dict:
                inner += [v for v in container.values() if type(v) is dict or type(v) is list]
            elif type(container) is list:
                inner += [v for v in container if type(v) is dict or type(v) is list]
        if not inner:
            return
        level = inner
    raise InputError(f'a message nested deeper than the {limits.max_depth} levels allowed')


ACCEPTED_KINDS = 'biufSU'
MAX_DIMENSIONS = 16
SHORT_BYTES = 1 << 16
MAX_ITEM_BYTES = 4096
_SCALARS: dict[str, tuple[type, ...]] = {
    'b': (bool,), 'i': (int,), 'u': (int,), 'f': (int, float), 'S': (bytes,), 'U': (str,),
}  # fmt: skip


def pack(value: object) -> bytes:
    """`value` (None, bool, int, float, str, bytes, lists, maps, arrays) as bytes."""
    return pack_with(_to_map, value)


def unpack(data: bytes, *, limits: WireLimits = LIMITS) -> Any:
    """The value in `data`. Arrays are read-only views of it; anything malformed is an InputError."""
    return unpack_with(_from_map, data, limits=limits)


def pack_with(to_map: Callable[[Any], object], value: object) -> bytes:
    """Pack; `to_map` says how an array or a numpy scalar is written."""
    packer = _packer(to_map)
    try:
        packed: bytes = packer.pack(value)
    except (TypeError, OverflowError, ValueError) as error:
        packer.reset()
        if isinstance(error, InputError):
            raise
        raise InputError(f'cannot be sent: {error}') from error
    return packed


class _Packers(threading.local):
    """Packers of a thread, kept because each brings a buffer that grows to the size of its messages."""

    def __init__(self) -> None:
        self.by_form: dict[Callable[[Any], object], Any] = {}


_PACKERS = _Packers()


def _packer(to_map: Callable[[Any], object]) -> Any:
    packer = _PACKERS.by_form.get(to_map)
    if packer is None:
        packer = _PACKERS.by_form[to_map] = _msgpack().Packer(default=to_map)
    return packer


def unpack_with(from_map: Callable[[dict[Any, Any]], Any], data: bytes, *, limits: WireLimits = LIMITS) -> Any:
    """Unpack within limits; `from_map` turns maps that stand for arrays into arrays.

    A long message is walked over before anything is built. A short one cannot hold much: its bytes bound its values,
    and its depth is looked at afterwards, which is faster.
    """
    is_short = len(data) <= min(SHORT_BYTES, limits.max_values, limits.max_text_bytes, limits.max_bytes)
    if not is_short:
        check_msgpack(data, limits)
    msgpack = _msgpack()
    try:
        value = msgpack.unpackb(data, object_hook=from_map, ext_hook=_refuse_extension)
        if is_short:
            check_depth(value, limits)
        return value
    except InputError:
        raise
    except (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException) as error:
        raise InputError(f'not a msgpack message ({type(error).__name__}: {error})') from error


def check_sendable(value: object) -> None:
    """Raise InputError unless `value` is an array or numpy scalar of plain numbers, booleans or text."""
    if not isinstance(value, np.ndarray | np.generic):
        raise InputError(f'a {type(value).__name__} cannot be sent')
    if value.dtype.kind not in ACCEPTED_KINDS:
        raise InputError(f'an array of {value.dtype} cannot be sent; wanted numbers, booleans or text')


def build_array(dtype: np.dtype[Any], shape: object, data: object) -> NDArray[Any]:
    """A read-only array over `data`, once its shape and size are known to agree."""
    if not isinstance(shape, list | tuple) or not all(type(n) is int and 0 <= n <= MAX_BYTES for n in shape):
        raise InputError(f'an array of shape {str(shape)[:100]}, wanted whole numbers >= 0')
    if len(shape) > MAX_DIMENSIONS:
        raise InputError(f'an array of {len(shape)} dimensions, more than the {MAX_DIMENSIONS} allowed')
    if not isinstance(data, bytes | memoryview) or len(data) != math.prod(shape) * dtype.itemsize:
        given = len(data) if isinstance(data, bytes | memoryview) else type(data).__name__
        raise InputError(f'an array of shape {tuple(shape)} and {dtype} with {given} bytes of data')
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def read_dtype(text: object) -> np.dtype[Any]:
    """The dtype that a peer names, if it is one of plain values."""
    if isinstance(text, bytes):
        text = text.decode('ascii', errors='replace')
    if not isinstance(text, str) or len(text) > 32:
        raise InputError(f'an array without a known dtype ({str(text)[:40]!r})')
    return _named_dtype(text)


@lru_cache(maxsize=64)
def _named_dtype(text: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError, SyntaxError) as error:
        raise InputError(f'an array without a known dtype ({text!r})') from error
    if dtype.kind not in ACCEPTED_KINDS or dtype.subdtype is not None or not 0 < dtype.itemsize <= MAX_ITEM_BYTES:
        raise InputError(f'an array of {text!r}, which is not accepted')
    return dtype


def build_scalar(dtype: np.dtype[Any], value: object) -> Any:
    """A numpy scalar, if `value` is of the kind that `dtype` holds: bytes_(2**31) would allocate 2 GB."""
    if type(value) not in _SCALARS[dtype.kind]:
        raise InputError(f'a scalar of {dtype} with a {type(value).__name__} as its value')
    try:
        return dtype.type(value)
    except (OverflowError, ValueError) as error:
        raise InputError(f'a scalar of {dtype} that does not hold its value ({error})') from error


def _to_map(value: Any) -> dict[bytes, object]:
    check_sendable(value)
    if isinstance(value, np.ndarray):
        return {b'__ndarray__': True, b'data': value.tobytes(), b'dtype': value.dtype.str, b'shape': value.shape}
    return {b'__npgeneric__': True, b'data': value.item(), b'dtype': value.dtype.str}


def _from_map(value: dict[Any, Any]) -> Any:
    if b'__ndarray__' in value:
        return build_array(read_dtype(value.get(b'dtype')), value.get(b'shape'), value.get(b'data'))
    if b'__npgeneric__' in value:
        dtype = np.dtype(read_dtype(_bare(value.get(b'dtype'))))
        return build_scalar(dtype, value.get(b'data'))
    return value


def _bare(text: object) -> object:
    """The dtype of a text scalar without its length: '<U0' of an empty text has no items, and is none."""
    return text[:2] + '1' if isinstance(text, str) and text[1:2] in ('U', 'S') and text[0] in '<>|=' else text


def _refuse_extension(code: int, data: bytes) -> object:
    raise InputError(f'a msgpack extension of type {code}, which is not accepted')


@lru_cache(maxsize=1)
def _msgpack() -> Any:
    return load_optional('msgpack', f'msgpack is not installed; {install_hint("wire")}')


# Arrays inside msgpack as GR00T's servers read and write them, in both of their forms.
# ``{__ndarray_class__: true, as_npy: bytes of an .npy file}`` is read by every version, so it is what we send; newer
# servers answer in the form of msgpack-numpy, ``{b'nd': true, b'type', b'kind', b'shape', b'data'}``. Pickled objects,
# which both forms could carry, are refused.

MAX_HEADER_BYTES = 1024


def pack_groot(value: object) -> bytes:
    """`value` with its arrays as .npy files."""
    return pack_with(_groot_to_map, value)


def unpack_groot(data: bytes, *, limits: WireLimits = LIMITS) -> Any:
    """The value in `data`, arrays in either form; InputError if it is malformed or over a limit."""
    return unpack_with(_groot_from_map, data, limits=limits)


def _groot_to_map(value: Any) -> object:
    check_sendable(value)
    if isinstance(value, np.generic):
        return value.item()
    numbers: Any = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return {
        '__ndarray_class__': True,
        'as_npy': b''.join((_npy_header(value.dtype.str, value.shape), memoryview(numbers))),
    }


@lru_cache(maxsize=128)
def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """What comes before the numbers in an .npy file; the same for every picture of a camera."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {'descr': dtype, 'fortran_order': False, 'shape': shape})
    return stream.getvalue()


def _groot_from_map(value: dict[Any, Any]) -> Any:
    if '__ndarray_class__' in value:
        return read_npy(value.get('as_npy'))
    if b'nd' in value:
        return _from_msgpack_numpy(value)
    if '__ModalityConfig_class__' in value or '__ModalityConfig__' in value:
        return _read_modality(value.get('as_json'))
    return value


def read_npy(data: object) -> NDArray[Any]:
    """The array in the bytes of an .npy file, as a read-only view; nothing is allocated on its header's word."""
    if not isinstance(data, bytes):
        raise InputError(f'an .npy array as {type(data).__name__}, wanted bytes')
    shape, is_fortran, dtype, size = _read_npy_header(data[: MAX_HEADER_BYTES + 12])
    array = build_array(read_dtype(dtype), shape[::-1] if is_fortran else shape, memoryview(data)[size:])
    return array.T if is_fortran else array


def _read_npy_header(start: bytes) -> tuple[tuple[int, ...], bool, str, int]:
    size = 10 + int.from_bytes(start[8:10], 'little') if start[:8] == b'\x93NUMPY\x01\x00' else len(start)
    return _parsed_npy_header(start[:size])


@lru_cache(maxsize=128)
def _parsed_npy_header(start: bytes) -> tuple[tuple[int, ...], bool, str, int]:
    """Shape, order, dtype and length of a header; parsed once, since it is Python source and slow to read."""
    stream = io.BytesIO(start)
    try:
        version = np.lib.format.read_magic(stream)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = reader(stream, max_header_size=MAX_HEADER_BYTES)
    except Exception as error:  # it fails in every way that source can
        raise InputError(f'not an .npy array ({type(error).__name__}: {str(error)[:200]})') from error
    return shape, is_fortran, dtype.str, stream.tell()


def _from_msgpack_numpy(value: dict[Any, Any]) -> Any:
    if value.get(b'kind') not in (b'', '', None):
        raise InputError(f'an array of kind {value.get(b"kind")!r}, which would have to be unpickled: refused')
    dtype = read_dtype(value.get(b'type'))
    if value.get(b'nd') is True:
        return build_array(dtype, value.get(b'shape'), value.get(b'data'))
    array = build_array(dtype, [], value.get(b'data'))
    return build_scalar(dtype, array.item())


def _read_modality(value: object) -> object:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InputError(f'a modality configuration that is not JSON ({error})') from error
    return value


# Arrays inside JSON as json-numpy writes them: ``{__numpy__: base64, dtype, shape}``.


def pack_json(value: object) -> bytes:
    """`value` as JSON with its arrays as json-numpy writes them."""
    try:
        return json.dumps(value, default=_json_to_map).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f'cannot be sent: {error}') from error


def unpack_json(data: bytes | str, *, limits: WireLimits = LIMITS) -> Any:
    """The value in `data`; InputError if it is malformed or over a limit."""
    text = data.encode() if isinstance(data, str) else data
    check_size(len(text), limits)
    # Every value but the first follows one of these, so that their count bounds what parsing can build.
    if 1 + sum(text.count(mark) for mark in (b',', b'[', b'{', b':')) > limits.max_values:
        raise InputError(f'a message of more than the {limits.max_values} values allowed')
    if _depth(text) > limits.max_depth:
        raise InputError(f'a message nested deeper than the {limits.max_depth} levels allowed')
    try:
        return json.loads(text, object_hook=_json_from_map)
    except InputError:
        raise
    except (ValueError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f'not JSON ({type(error).__name__}: {str(error)[:200]})') from error


def _depth(text: bytes) -> int:
    """An upper bound of the nesting: brackets inside texts count too."""
    if not text.count(b'[') + text.count(b'{'):
        return 0
    marks = np.frombuffer(text, dtype=np.uint8)
    steps = np.zeros(256, dtype=np.int8)
    steps[[0x5B, 0x7B]], steps[[0x5D, 0x7D]] = 1, -1
    return int(np.cumsum(steps[marks], dtype=np.int32).max())


def _json_to_map(value: object) -> dict[str, object]:
    check_sendable(value)
    array: Any = value
    encoded = base64.b64encode(array.tobytes()).decode()
    return {'__numpy__': encoded, 'dtype': np.lib.format.dtype_to_descr(array.dtype), 'shape': list(array.shape)}


def _json_from_map(value: dict[str, Any]) -> Any:
    if '__numpy__' not in value:
        return value
    data = value['__numpy__']
    if not isinstance(data, str):
        raise InputError(f'an array whose data are {type(data).__name__}, wanted base64 text')
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f'an array whose data are not base64 ({error})') from error
    array = build_array(read_dtype(value.get('dtype')), value.get('shape'), decoded)
    return array[()] if array.shape == () else array


# Arrays and images inside msgpack as vla-eval writes them: maps with string keys.
# An array is ``{__ndarray__: true, data, dtype, shape}`` of kinds b, i, u, f. An image is ``{__image__: true, format,
# data, shape}`` with the format ``raw``, ``png`` or ``jpeg``; all three are read, PNG is written unless told
# otherwise.

KINDS = 'biuf'
FORMATS = ('png', 'raw', 'jpeg')


def pack_vla_eval(value: object, *, images: str = 'png') -> bytes:
    """`value` as vla-eval's harness writes it; `images` is how pictures go: png, raw or jpeg (RGB only)."""
    if images not in FORMATS:
        raise InputError(f'images is {images!r}, wanted one of: {", ".join(FORMATS)}')
    return pack_with(_WRITERS[images], value)


def _writer(images: str) -> Callable[[Any], object]:
    return lambda value: _vla_eval_to_map(value, images)


_WRITERS = {form: _writer(form) for form in FORMATS}


def unpack_vla_eval(data: bytes, *, limits: WireLimits = LIMITS) -> Any:
    """The value in `data`; InputError if it is malformed or over a limit."""
    return unpack_with(_reader(limits), data, limits=limits)


def _vla_eval_to_map(value: Any, images: str) -> object:
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
        raise InputError(f'an image that is not {form} ({error})') from error
    return pixels.reshape(shape)
