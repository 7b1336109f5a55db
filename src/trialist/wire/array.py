"""Values with numpy arrays as msgpack, byte for byte as openpi's client and servers write them.

An array is a map with the byte keys ``__ndarray__``, ``data``, ``dtype`` and ``shape``; a numpy scalar one with
``__npgeneric__``, ``data`` and ``dtype``. Arrays of objects, of structures and of complex numbers are refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trialist.errors import InputError, SetupError

REFUSED_KINDS = 'VOc'
MAX_BYTES = 256 << 20


def pack(value: object) -> bytes:
    """`value` (None, bool, int, float, str, bytes, lists, maps, arrays) as bytes."""
    msgpack = _msgpack()
    try:
        packed: bytes = msgpack.packb(value, default=_to_map)
    except (TypeError, OverflowError) as error:
        raise InputError(f'can not be sent: {error}') from error
    return packed


def unpack(data: bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """The value in `data`. Arrays are read-only views of it; anything malformed is an InputError."""
    if len(data) > max_bytes:
        raise InputError(f'a message of {len(data)} bytes, more than the {max_bytes} allowed')
    msgpack = _msgpack()
    try:
        return msgpack.unpackb(data, object_hook=_from_map)
    except InputError:
        raise
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise InputError(f'not a msgpack message ({type(error).__name__}: {error})') from error


def _to_map(value: object) -> dict[bytes, object]:
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in REFUSED_KINDS:
        raise InputError(f'an array of {value.dtype} can not be sent; wanted numbers, booleans or text')
    if isinstance(value, np.ndarray):
        return {b'__ndarray__': True, b'data': value.tobytes(), b'dtype': value.dtype.str, b'shape': value.shape}
    if isinstance(value, np.generic):
        return {b'__npgeneric__': True, b'data': value.item(), b'dtype': value.dtype.str}
    raise InputError(f'a {type(value).__name__} can not be sent')


def _from_map(value: dict[Any, Any]) -> Any:
    if b'__ndarray__' in value:
        dtype, shape, data = _dtype(value), value.get(b'shape'), value.get(b'data')
        if not isinstance(shape, (list, tuple)) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise InputError(f'an array of shape {shape!r}, wanted whole numbers >= 0')
        if not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
            found = len(data) if isinstance(data, bytes) else type(data).__name__
            raise InputError(f'an array of shape {tuple(shape)} and {dtype} with {found} bytes of data')
        return np.frombuffer(data, dtype=dtype).reshape(shape)
    if b'__npgeneric__' in value:
        return _dtype(value).type(value.get(b'data'))
    return value


def _dtype(value: dict[Any, Any]) -> np.dtype[Any]:
    try:
        dtype = np.dtype(str(value[b'dtype']))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f'an array without a known dtype ({error})') from error
    if dtype.kind in REFUSED_KINDS or dtype.itemsize == 0:
        raise InputError(f'an array of {dtype}, which is not accepted')
    return dtype


def _msgpack() -> Any:
    try:
        import msgpack
    except ModuleNotFoundError as error:
        raise SetupError("msgpack is not installed; pip install 'trialist[wire]'") from error
    return msgpack
