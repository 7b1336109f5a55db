"""Where an episode may lie: 24 bits of a hash of every row's id, which the log keeps for each part.

Whoever looks for an episode opens the parts, and of these the row groups, in which its hash occurs. Parts of older
versions have no such index, and are read whole.
"""

from __future__ import annotations

import base64
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
HASH_BYTES = 3  # of a million episodes one other has the same; four characters of the log for each
HASH_LETTERS = 4
LETTERS = b'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
FEW_CODES = 8  # up to here each is looked for in the text


def id_hashes(ids: pa.ChunkedArray) -> NDArray[np.uint64]:
    """A 64-bit hash of each id: FNV-1a over its UTF-8 bytes, all ids of one length at once."""
    lengths = pc.binary_length(ids).to_numpy()
    hashes = np.full(len(ids), 0xCBF29CE484222325, np.uint64)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        text = b''.join(pc.cast(ids.take(rows), pa.binary()).to_pylist())
        letters = np.frombuffer(text, np.uint8).reshape(len(rows), length)
        own = hashes[rows]
        for column in letters.T:
            own = (own ^ column) * np.uint64(0x100000001B3)
        hashes[rows] = own
    return hashes


def encode_hashes(hashes: NDArray[np.uint64]) -> str:
    """The index of a part, as text: the low 24 bits of each row's hash, in the order of the rows."""
    letters = hashes.astype('<u8').view(np.uint8).reshape(-1, 8)[:, :HASH_BYTES]
    return base64.b64encode(letters.tobytes()).decode()


def id_codes(ids: Collection[str]) -> frozenset[str]:
    """The letters that stand for each id in an index."""
    text = encode_hashes(id_hashes(pa.chunked_array([pa.array(sorted(ids), pa.string())])))
    return frozenset(text[n : n + HASH_LETTERS] for n in range(0, len(text), HASH_LETTERS))


def candidate_rows(index: str, n_rows: int, codes: Collection[str]) -> IntArray | None:
    """The rows that may have one of the ids with these codes, and no others can; None where the index does not tell."""
    if len(index) != HASH_LETTERS * n_rows or not index.isascii():
        return None
    text = index.encode()
    if text.translate(None, LETTERS):
        return None
    if len(codes) <= FEW_CODES:
        return np.array(sorted(row for code in codes for row in _places(text, code.encode())), np.int64)
    return np.flatnonzero(np.isin(np.frombuffer(text, f'S{HASH_LETTERS}'), [code.encode() for code in codes]))


def _places(text: bytes, code: bytes) -> list[int]:
    """The rows whose letters are these; a row begins at every fourth letter."""
    rows = []
    at = text.find(code)
    while at >= 0:
        if at % HASH_LETTERS == 0:
            rows.append(at // HASH_LETTERS)
        at = text.find(code, at + 1)
    return rows
