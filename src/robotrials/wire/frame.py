"""Frames on a byte stream: magic, version, length, message. A stranger, a cut or an overlong message is named."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from robotrials.errors import InputError
from robotrials.wire.array import pack, unpack
from robotrials.wire.limit import LIMITS, WireLimits, check_size

MAGIC = b'TRLW'
VERSION = 1
HEADER = struct.Struct('>4sBI')


def write_frame(stream: BinaryIO, value: object, *, limits: WireLimits = LIMITS) -> None:
    """Send one message."""
    stream.write(encode_frame(value, limits=limits))
    stream.flush()


def encode_frame(value: object, *, limits: WireLimits = LIMITS) -> bytes:
    """One message with its header."""
    body = pack(value)
    check_size(len(body), limits)
    return HEADER.pack(MAGIC, VERSION, len(body)) + body


def read_frame(stream: BinaryIO, *, limits: WireLimits = LIMITS) -> Any:
    """The next message; EOFError if the stream ends between two."""
    header = stream.read(HEADER.size)
    if not header:
        raise EOFError
    if len(header) < HEADER.size:
        raise InputError(f'the stream ended inside a header, after {len(header)} bytes')
    return unpack(_exactly(stream, read_header(header, limits=limits)), limits=limits)


def read_header(header: bytes, *, limits: WireLimits = LIMITS) -> int:
    """How many bytes follow a header, if it is one of ours and of an allowed length."""
    magic, version, length = HEADER.unpack(header)
    if magic != MAGIC:
        raise InputError(f'a frame begins with {magic!r}, wanted {MAGIC!r}: the other side speaks something else')
    if version != VERSION:
        raise InputError(f'a frame of wire version {version}, this robotrials speaks {VERSION}; upgrade one of the two')
    if length > limits.max_bytes:
        raise InputError(f'a frame announces {length} bytes, more than the {limits.max_bytes} allowed')
    return int(length)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        part = stream.read(min(missing, 1 << 20))  # what was announced is not allocated before it comes
        if not part:
            raise InputError(f'the stream ended inside a message: {length - missing} of {length} bytes')
        parts.append(part)
        missing -= len(part)
    return b''.join(parts)
