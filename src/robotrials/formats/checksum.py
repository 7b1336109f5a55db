"""CRC-32C (Castagnoli) over numpy lanes, and the masked form that TFRecord files store.

A CRC is linear over GF(2) and blind to leading zeros. So the buffer is cut into lanes of equal length, all lanes step
forward together four bytes at a time, and their remainders are joined pairwise by the operator "append 2^k zero bytes".
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78  # reflected
MASK_DELTA = 0xA282EAD8
SHORT = 64

UInt32Array = NDArray[np.uint32]
Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer) -> int:
    """The CRC-32C of `data`.

    >>> hex(crc32c(b'123456789'))
    '0xe3069283'
    """
    size = len(data)
    if size < SHORT:
        return _bytewise(data)
    lane = 128 if size > 1 << 15 else 32
    lanes = -(-size // lane)
    padded = np.zeros(lanes * lane, dtype=np.uint8)
    padded[padded.size - size :] = np.frombuffer(data, dtype=np.uint8)
    # An initial remainder of all ones equals complementing the first four bytes of the message.
    padded[padded.size - size : padded.size - size + 4] ^= 0xFF
    words = np.ascontiguousarray(padded.view('<u4').reshape(lanes, lane // 4).T)
    return _join(_step(words), lane) ^ 0xFFFFFFFF


def extend_crc32c(crc: int, data: Buffer) -> int:
    """The CRC of what gave `crc` followed by `data`; start with 0.

    >>> extend_crc32c(crc32c(b'12345'), b'6789') == crc32c(b'123456789')
    True
    """
    shifted = np.array([crc], dtype=np.uint32)
    for power in range(len(data).bit_length()):
        if len(data) >> power & 1:
            shifted = _append_zeros(shifted, power)
    return int(shifted[0]) ^ crc32c(data)


def masked_crc32c(data: Buffer) -> int:
    """The CRC as TFRecord stores it: rotated and offset, so that a CRC of stored CRCs stays good."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def _bytewise(data: Buffer) -> int:
    table = _byte_table()
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _step(words: UInt32Array) -> UInt32Array:
    """The remainder of every lane, (lanes,); row t of `words` is the t-th 32-bit word of every lane."""
    early, late = _word_tables()
    crc = np.zeros(words.shape[1], dtype=np.uint32)
    half = np.empty(words.shape[1], dtype=np.intp)
    found = np.empty_like(crc)
    for row in words:
        crc ^= row
        np.bitwise_and(crc, 0xFFFF, out=half, casting='unsafe')
        early.take(half, out=found, mode='clip')
        np.right_shift(crc, 16, out=half, casting='unsafe')
        late.take(half, out=crc, mode='clip')
        crc ^= found
    return crc


def _join(crc: UInt32Array, lane: int) -> int:
    power = lane.bit_length() - 1
    while crc.size > 1:
        if crc.size % 2:
            crc = np.concatenate([np.zeros(1, dtype=np.uint32), crc])
        crc = _append_zeros(crc[0::2], power) ^ crc[1::2]
        power += 1
    return int(crc[0])


def _append_zeros(crc: NDArray[Any], power: int) -> UInt32Array:
    tables = _zeros_tables(power)
    shifted: UInt32Array = (
        tables[0][crc & 0xFF] ^ tables[1][(crc >> 8) & 0xFF] ^ tables[2][(crc >> 16) & 0xFF] ^ tables[3][crc >> 24]
    )
    return shifted


@functools.cache
def _byte_table() -> tuple[int, ...]:
    entries = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
        entries.append(crc)
    return tuple(entries)


@functools.cache
def _word_tables() -> tuple[UInt32Array, UInt32Array]:
    """The remainder of each 16-bit value, followed by two zero bytes and by nothing: the halves of a 32-bit word."""
    byte = np.array(_byte_table(), dtype=np.uint32)

    def two_bytes(value: UInt32Array) -> UInt32Array:
        once = byte[value & 0xFF] ^ (value >> 8)
        twice: UInt32Array = byte[once & 0xFF] ^ (once >> 8)
        return twice

    late = two_bytes(np.arange(1 << 16, dtype=np.uint32))
    return two_bytes(late), late


@functools.cache
def _zeros_tables(power: int) -> tuple[UInt32Array, ...]:
    """Four lookup tables, one a byte of the remainder, that append 2^power zero bytes."""
    if power == 0:
        byte = np.array(_byte_table(), dtype=np.uint32)

        def step(value: UInt32Array) -> UInt32Array:
            advanced: UInt32Array = byte[value & 0xFF] ^ (value >> 8)
            return advanced
    else:

        def step(value: UInt32Array) -> UInt32Array:
            return _append_zeros(_append_zeros(value, power - 1), power - 1)

    each = np.arange(256, dtype=np.uint32)
    return tuple(step(each << np.uint32(8 * i)) for i in range(4))
