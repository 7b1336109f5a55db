"""Values with numpy arrays as msgpack, byte for byte as openpi's client and servers write them.

An array is a map with the byte keys ``__ndarray__``, ``data``, ``dtype`` and ``shape``; a numpy scalar one with
``__npgeneric__``, ``data`` and ``dtype``. Arrays of objects, of structures and of complex numbers are refused. Bytes
are checked against `WireLimits` before anything is built from them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError, install_hint
from robotrials.wire.limit import LIMITS, MAX_BYTES, WireLimits, check_depth, check_msgpack

ACCEPTED_KINDS = 'biufSU'
MAX_DIMENSIONS = 16
SHORT_BYTES = 1 << 16
MAX_ITEM_BYTES = 4096
_SCALARS: dict[str, tuple[type, ...]] = {
    'b': (bool,), 'i': (int,), 'u': (int,), 'f': (int, float), 'S': (bytes,), 'U': (str,),
}  # fmt: skip

__all__ = ['MAX_BYTES', 'build_array', 'pack', 'pack_with', 'read_dtype', 'unpack', 'unpack_with']


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
        found = len(data) if isinstance(data, bytes | memoryview) else type(data).__name__
        raise InputError(f'an array of shape {tuple(shape)} and {dtype} with {found} bytes of data')
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


def _msgpack() -> Any:
    try:
        import msgpack
    except ModuleNotFoundError as error:
        raise SetupError(f'msgpack is not installed; {install_hint("wire")}') from error
    return msgpack
