"""Memory that a worker and its caller share: large arrays go through it instead of through the socket.

One call is under way at a time, so the answer's arrays may stand in it until the next. Where the system has no such
memory, everything goes through the socket.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.wire.array import build_array, read_dtype

KEY = '__shared__'
LEAST_BYTES = 1 << 14  # smaller arrays are as fast inside the message
ALIGNMENT = 64
MOST_BYTES = 1 << 30


class SharedBlock:
    """A growing block of memory behind a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory: mmap.mmap | None = None
        self._used = 0

    @classmethod
    def create(cls) -> SharedBlock | None:
        """A new block, or None where the system has none."""
        try:
            return cls(os.memfd_create('robotrials', 0))
        except (AttributeError, OSError):
            return None

    def put(self, value: Any) -> Any:
        """The value with its large arrays laid into the block; whatever stood there before is gone."""
        self._used = 0
        return self._laid(value)

    def take(self, value: Any) -> Any:
        """The value with its arrays copied out of the block; InputError if they are not there."""
        if isinstance(value, dict):
            if KEY in value:
                return self._read(value[KEY])
            return {name: self.take(part) for name, part in value.items()}
        return [self.take(part) for part in value] if isinstance(value, list) else value

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        os.close(self.descriptor)

    def _laid(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.nbytes >= LEAST_BYTES and value.dtype.kind in 'biuf':
            start = self._used
            memory = self._room(start + value.nbytes)
            np.ndarray(value.shape, value.dtype, memory, start)[...] = value
            self._used = -(-(start + value.nbytes) // ALIGNMENT) * ALIGNMENT
            return {KEY: [start, value.dtype.str, list(value.shape)]}
        if isinstance(value, dict):
            return {name: self._laid(part) for name, part in value.items()}
        return [self._laid(part) for part in value] if isinstance(value, list | tuple) else value

    def _room(self, n_bytes: int) -> mmap.mmap:
        """The block mapped with room for this many bytes, for the side that writes."""
        if n_bytes > MOST_BYTES:
            raise InputError(f'an answer with {n_bytes} bytes of arrays, more than the {MOST_BYTES} allowed')
        if self._memory is None or len(self._memory) < n_bytes:
            os.ftruncate(self.descriptor, 2 * n_bytes)
            self._memory = mmap.mmap(self.descriptor, 2 * n_bytes)
        return self._memory

    def _read(self, place: Any) -> Any:
        try:
            start, dtype, shape = place
            dtype = read_dtype(dtype)
            n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        except (TypeError, ValueError) as error:
            raise InputError(f'a place in shared memory that is none: {str(place)[:100]}') from error
        if type(start) is not int or start < 0 or n_bytes < 0 or start + n_bytes > self._mapped(start + n_bytes):
            raise InputError(f'an array outside the shared memory: {str(place)[:100]}')
        return build_array(dtype, shape, self._memory[start : start + n_bytes] if self._memory is not None else b'')

    def _mapped(self, n_bytes: int) -> int:
        """How many bytes can be read, mapped anew if the block has grown."""
        if self._memory is None or len(self._memory) < n_bytes:
            size = os.fstat(self.descriptor).st_size
            if size < max(1, n_bytes):
                return 0
            self._memory = mmap.mmap(self.descriptor, size, prot=mmap.PROT_READ)
        return len(self._memory)
