"""TFRecord files: a length, its checksum, the data, its checksum, and again.

A file is streamed; damage is named by file and byte offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from robotrials.errors import InputError
from robotrials.formats.checksum import masked_crc32c

HEADER = struct.Struct('<QI')
FOOTER = struct.Struct('<I')
LARGEST_RECORD_BYTES = 1 << 34


def read_records(path: Path | str, *, check: bool = True) -> Iterator[bytes]:
    """Stream the records of one file; `check=False` trusts the data's checksums (a length is always checked)."""
    target = Path(path)
    size = target.stat().st_size
    offset = 0
    with target.open('rb') as stream:
        while header := stream.read(HEADER.size):
            length = _length(header, target, offset)
            end = offset + HEADER.size + length + FOOTER.size
            if end > size:
                raise InputError(
                    f'{target}: truncated: the record at byte {offset} should end at byte {end}, '
                    f'the file ends at {size}; fetch the file again'
                )
            data = stream.read(length)
            (stored,) = FOOTER.unpack(stream.read(FOOTER.size))
            if check and masked_crc32c(data) != stored:
                raise InputError(f'{target}: the record at byte {offset} fails its checksum; fetch the file again')
            yield data
            offset = end


def _length(header: bytes, path: Path, offset: int) -> int:
    if len(header) < HEADER.size:
        raise InputError(f'{path}: truncated inside the record header at byte {offset}; fetch the file again')
    length, stored = HEADER.unpack(header)
    if masked_crc32c(header[:8]) != stored:
        raise InputError(
            f'{path}: the length of the record at byte {offset} fails its checksum; the file is damaged from there on, '
            'or is not a TFRecord file'
        )
    if length > LARGEST_RECORD_BYTES:
        raise InputError(f'{path}: the record at byte {offset} claims {length} bytes, more than any episode has')
    return int(length)


def write_records(path: Path | str, records: Iterable[bytes]) -> int:
    """Write records to a file; gives how many."""
    count = 0
    with Path(path).open('wb') as stream:
        for data in records:
            length = struct.pack('<Q', len(data))
            stream.write(length + FOOTER.pack(masked_crc32c(length)))
            stream.write(data)
            stream.write(FOOTER.pack(masked_crc32c(data)))
            count += 1
    return count
