"""Arrays inside JSON as json-numpy writes them: ``{__numpy__: base64, dtype, shape}``."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.wire.array import build_array, check_sendable, read_dtype
from robotrials.wire.limit import LIMITS, WireLimits, check_size


def pack_json(value: object) -> bytes:
    """`value` as JSON with its arrays as json-numpy writes them."""
    try:
        return json.dumps(value, default=_to_map).encode()
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
        return json.loads(text, object_hook=_from_map)
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


def _to_map(value: object) -> dict[str, object]:
    check_sendable(value)
    array: Any = value
    encoded = base64.b64encode(array.tobytes()).decode()
    return {'__numpy__': encoded, 'dtype': np.lib.format.dtype_to_descr(array.dtype), 'shape': list(array.shape)}


def _from_map(value: dict[str, Any]) -> Any:
    if '__numpy__' not in value:
        return value
    data = value['__numpy__']
    if not isinstance(data, str):
        raise InputError(f'an array whose data are {type(data).__name__}, wanted base64 text')
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f'an array whose data are no base64 ({error})') from error
    array = build_array(read_dtype(value.get('dtype')), value.get('shape'), decoded)
    return array[()] if array.shape == () else array
