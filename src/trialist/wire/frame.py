"""Frames on a byte stream: magic, version, length, message. A stranger, a cut or an overlong message is named."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from trialist.errors import InputError
from trialist.wire.array import MAX_BYTES, pack, unpack

MAGIC = b'TRLW'
VERSION = 1
_HEADER = struct.Struct('>4sBI')


def write_frame(stream: BinaryIO, value: object) -> None:
    """Send one message."""
    body = pack(value)
    if len(body) > MAX_BYTES:
        raise InputError(f'a message of {len(body)} bytes, more than the {MAX_BYTES} allowed')
    stream.write(_HEADER.pack(MAGIC, VERSION, len(body)))
    stream.write(body)
    stream.flush()


def read_frame(stream: BinaryIO, *, max_bytes: int = MAX_BYTES) -> Any:
    """The next message; EOFError if the stream ends between two."""
    header = stream.read(_HEADER.size)
    if not header:
        raise EOFError
    if len(header) < _HEADER.size:
        raise InputError(f'the stream ended inside a header, after {len(header)} bytes')
    magic, version, length = _HEADER.unpack(header)
    if magic != MAGIC:
        raise InputError(f'a frame begins with {magic!r}, wanted {MAGIC!r}: the other side speaks something else')
    if version != VERSION:
        raise InputError(f'a frame of wire version {version}, this trialist speaks {VERSION}; upgrade one of the two')
    if length > max_bytes:
        raise InputError(f'a frame announces {length} bytes, more than the {max_bytes} allowed')
    body = _exactly(stream, length)
    return unpack(body, max_bytes=max_bytes)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        part = stream.read(missing)
        if not part:
            raise InputError(f'the stream ended inside a message: {length - missing} of {length} bytes')
        parts.append(part)
        missing -= len(part)
    return b''.join(parts)
