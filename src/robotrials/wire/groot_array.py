"""Arrays inside msgpack as GR00T's servers read and write them, in both of their forms.

``{__ndarray_class__: true, as_npy: bytes of an .npy file}`` is read by every version, so it is what we send; newer
servers answer in the form of msgpack-numpy, ``{b'nd': true, b'type', b'kind', b'shape', b'data'}``. Pickled objects,
which both forms could carry, are refused.
"""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.wire.array import build_array, build_scalar, check_sendable, pack_with, read_dtype, unpack_with
from robotrials.wire.limit import LIMITS, WireLimits

MAX_HEADER_BYTES = 1024


def pack_groot(value: object) -> bytes:
    """`value` with its arrays as .npy files."""
    return pack_with(_to_map, value)


def unpack_groot(data: bytes, *, limits: WireLimits = LIMITS) -> Any:
    """The value in `data`, arrays in either form; InputError if it is malformed or over a limit."""
    return unpack_with(_from_map, data, limits=limits)


def _to_map(value: Any) -> object:
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


def _from_map(value: dict[Any, Any]) -> Any:
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
            raise InputError(f'a modality configuration that is no JSON ({error})') from error
    return value
