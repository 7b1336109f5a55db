"""Arrays inside msgpack as GR00T's servers read and write them, in both of their forms.

``{__ndarray_class__: true, as_npy: bytes of an .npy file}`` is read by every version, so it is what we send; newer
servers answer in the form of msgpack-numpy, ``{b'nd': true, b'type', b'kind', b'shape', b'data'}``. Pickled objects,
which both forms could carry, are refused.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.errors import InputError
from trialist.wire.array import build_array, build_scalar, check_sendable, pack_with, read_dtype, unpack_with
from trialist.wire.limit import LIMITS, WireLimits

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
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(value), version=(1, 0), allow_pickle=False)
    return {'__ndarray_class__': True, 'as_npy': stream.getvalue()}


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
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = reader(stream, max_header_size=MAX_HEADER_BYTES)
    except Exception as error:  # a header is Python source, and fails in every way that source can
        raise InputError(f'not an .npy array ({type(error).__name__}: {str(error)[:200]})') from error
    body = memoryview(data)[stream.tell() :]
    array = build_array(read_dtype(dtype.str), list(shape)[::-1] if is_fortran else list(shape), body)
    return array.T if is_fortran else array


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
