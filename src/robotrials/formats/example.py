"""`tf.train.Example` messages without TensorFlow: the protobuf wire format of its one map of features.

Example { Features features = 1 }        Features { map<string, Feature> feature = 1 }
Feature { BytesList = 1 | FloatList = 2 | Int64List = 3 }, each with `repeated value = 1`
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Values = list[bytes] | NDArray[np.float32] | NDArray[np.int64]


def read_example(data: bytes, *, where: str) -> dict[str, Values]:
    """The features of one serialised Example by name: bytes as a list, floats and integers as arrays.

    A feature without a kind (TensorFlow writes these for empty lists) is an empty list.
    """
    features: dict[str, Values] = {}
    view = memoryview(data)
    try:
        for number, _, message in _fields(view):
            if number != 1:
                continue
            for entry_number, _, entry in _fields(message):
                if entry_number == 1:
                    name, values = _entry(entry)
                    features[name] = values
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise InputError(f'{where}: not a readable tf.train.Example ({error})') from error
    return features


def _entry(entry: memoryview) -> tuple[str, Values]:
    name, values = '', []  # type: tuple[str, Values]
    for number, _, part in _fields(entry):
        if number == 1:
            name = bytes(part).decode()
        elif number == 2:
            values = _feature(part)
    return name, values


def _feature(message: memoryview) -> Values:
    for number, _, part in _fields(message):
        if number == 1:
            return [bytes(value) for n, _, value in _fields(part) if n == 1]
        if number == 2:
            return _floats(part)
        if number == 3:
            return _integers(part)
    return []


def _floats(message: memoryview) -> NDArray[np.float32]:
    parts = [np.frombuffer(value, dtype='<f4') for number, _, value in _fields(message) if number == 1]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype='<f4'), *parts])


def _integers(message: memoryview) -> NDArray[np.int64]:
    parts = [read_varints(value) for number, kind, value in _fields(message) if number == 1 and kind == LENGTH]
    single = [read_varints(value) for number, kind, value in _fields(message) if number == 1 and kind == VARINT]
    joined: NDArray[np.int64] = np.concatenate([np.empty(0, dtype=np.int64), *parts, *single])
    return joined


def read_varints(packed: memoryview | bytes) -> NDArray[np.int64]:
    """A packed run of varints as 64-bit signed integers."""
    raw = np.frombuffer(packed, dtype=np.uint8)
    last = raw < 0x80
    if last.all():
        return raw.astype(np.int64)
    if not last[-1]:
        raise ValueError('a varint runs over the end')
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if int((ends - starts).max()) > 9:
        raise ValueError('a varint of more than ten bytes')
    place = np.arange(raw.size) - np.repeat(starts, ends - starts + 1)
    bits = (raw & 0x7F).astype(np.uint64) << (np.uint64(7) * place.astype(np.uint64))
    values: NDArray[np.int64] = np.bitwise_or.reduceat(bits, starts).view(np.int64)
    return values


def _fields(view: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """(field number, wire type, content) of every field of a message."""
    position, end = 0, len(view)
    while position < end:
        key, position = _varint(view, position)
        number, kind = key >> 3, key & 7
        start = position
        if kind == LENGTH:
            length, start = _varint(view, position)
            position = start + length
        elif kind == VARINT:
            _, position = _varint(view, position)
        elif kind in (FIXED32, FIXED64):
            position += 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f'wire type {kind} at byte {position}')
        if position > end:
            raise ValueError(f'field {number} runs over the end')
        yield number, kind, view[start:position]


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError(f'a varint of more than ten bytes at byte {position}')


def write_example(features: Mapping[str, Sequence[bytes] | NDArray[Any]]) -> bytes:
    """Serialise features: lists of bytes, float arrays (as float32) and integer or bool arrays (as int64)."""
    entries = []
    for name, values in features.items():
        feature = _message(2, _list_message(values))
        entries.append(_message(1, _message(1, name.encode()) + feature))
    return _message(1, b''.join(entries))


def _list_message(values: Sequence[bytes] | NDArray[Any]) -> bytes:
    if not isinstance(values, np.ndarray):
        return _message(1, b''.join(_message(1, value) for value in values))
    if values.dtype.kind == 'f':
        packed = values.astype('<f4').tobytes()
        return _message(2, _message(1, packed) if packed else b'')
    packed = b''.join(_encode_varint(int(v) & 0xFFFFFFFFFFFFFFFF) for v in values.ravel())
    return _message(3, _message(1, packed) if packed else b'')


def _message(number: int, content: bytes) -> bytes:
    return _encode_varint(number << 3 | LENGTH) + _encode_varint(len(content)) + content


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
