"""Ids of the rows of a table, hashes of ids, checksums of many bytes at once, and numbers in lines of JSON."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
from numpy.typing import NDArray

from robotrials.record.part import fnv1a as fnv1a_in_numpy
from robotrials.stats.compiled import in_c

U1 = NDArray[np.uint8]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
NULL = np.iinfo(np.int64).min  # a number that is not given


@in_c
def row_ids(texts: U1, ends: I8, codes: I8, numbers: I8, suffix: U1, ids: U1, is_plain: int) -> None:
    """The first hex digits of each row's SHA-256, into `ids` (rows, digits).

    What is hashed is the text of the row's cell, its numbers (columns, rows), a comma before each, and `suffix`. The
    texts of all cells stand one after the other; `ends` says where each ends, `codes` which cell a row has. In C the
    processor's own instructions serve where it has them, unless `is_plain`.
    """
    starts = [0, *ends.tolist()]
    cells = [texts[a:b].tobytes() for a, b in itertools.pairwise(starts)]
    end, n_digits = suffix.tobytes(), ids.shape[1]
    rows = zip(codes.tolist(), *(column.tolist() for column in numbers), strict=True)
    digests = []
    for code, *values in rows:
        start = b','.join([cells[code], *(b'null' if value == NULL else b'%d' % value for value in values)])
        digests.append(hashlib.sha256(start + end).hexdigest()[:n_digits])
    ids[:] = np.frombuffer(''.join(digests).encode(), np.uint8).reshape(ids.shape)


@in_c
def fnv1a(letters: U1, hashes: I8) -> None:
    """The FNV-1a hash of each row of letters, into the 64 bits of `hashes`."""
    hashes[:] = fnv1a_in_numpy(letters).view(np.int64)


def _remainder(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # Castagnoli's polynomial, reflected
    return value


CRC_TABLE = tuple(map(_remainder, range(256)))


@in_c
def crc32c(data: U1, crc: I8) -> None:
    """The CRC-32C of `data` after that of what came before it, which stands in `crc` (1,) and is replaced."""
    remainder = int(crc[0]) ^ 0xFFFFFFFF
    for byte in data.tobytes():
        remainder = CRC_TABLE[(remainder ^ byte) & 0xFF] ^ remainder >> 8
    crc[0] = remainder ^ 0xFFFFFFFF


@in_c
def step_numbers(text: U1, keys: U1, ends: I8, widths: I8, values: F8) -> int:
    """Read lines of JSON, each with a newline behind it, into `values`; 0 where any is not as told, else 1.

    Every line is an object with the same fields: `keys` has their names in quotes, one after the other, `ends` says
    where each ends, and `widths` is -1 for true or false (1 or 0), 0 for a number, else how many numbers its list has.
    `values` has a block (numbers, lines) for each field in turn. Numbers have the bits of Python's float(). Fields
    stand in the order of `keys`. What is left unread is for a reader of any JSON, which without C reads everything:
    Arrow's is faster than a loop in Python.
    """
    return 0
