"""What a worker is doing and since when, where its parent can see it even if the worker no longer answers."""

from __future__ import annotations

import enum
import mmap
import tempfile
import time
from typing import BinaryIO

_NUMBERS = 3
_SIZE = 8 * _NUMBERS


class Phase(enum.IntEnum):
    IDLE = 0
    START = 1  # loading hosts and policies
    HOST = 2
    POLICY = 3
    STORE = 4


class PhaseBoard:
    """Three numbers in a mapped file: the phase, the monotonic time at which it began, and the episode's own time.

    Each is written in one piece, the time before the phase: whoever reads in between sees the old phase begin anew,
    never a new one that began long ago. (`struct.pack_into` would not do: it clears the whole buffer first.)
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._memory = mmap.mmap(file.fileno(), _SIZE)
        self._numbers = memoryview(self._memory).cast('d')

    @classmethod
    def create(cls) -> PhaseBoard:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the board
        file.truncate(_SIZE)
        return cls(file)

    def enter(self, phase: Phase, episode_s: float = 0.0) -> None:
        numbers = self._numbers
        numbers[1] = time.monotonic()
        numbers[2] = episode_s
        numbers[0] = phase

    def read(self) -> tuple[Phase, float, float]:
        """The phase, for how many seconds it has lasted, and how far the episode has come, in its own seconds."""
        phase, since, episode_s = self._numbers
        return Phase(int(phase)), time.monotonic() - since, episode_s

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()
        self.file.close()


class NoBoard(PhaseBoard):
    """For a run inside the caller's own process, which nobody watches."""

    def __init__(self) -> None:
        pass

    def enter(self, phase: Phase, episode_s: float = 0.0) -> None:
        pass

    def close(self) -> None:
        pass
