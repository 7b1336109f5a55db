"""Policies for tests of engines: one waits in mid-episode while a file says so, one answers in batches."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from robotrials.run import Chunk, Observation, PolicySpec, Session, Setup
from robotrials.testing.policy import SeekPolicy

LONGEST_S = 120.0


class WaitingPolicy:
    """Seeks; while `hold` exists in `folder`, says in busy-PID that it is under way, and waits: at `after` steps on."""

    def __init__(self, *, folder: str, speed_m_s: float = 0.5, after: int = 0) -> None:
        self.folder, self.after = Path(folder), after
        self._inner = SeekPolicy(speed_m_s=speed_m_s)

    @property
    def spec(self) -> PolicySpec:
        return self._inner.spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        return _Waiting(self.folder, self._inner.start(setup, seed=seed), self.after)


class _Waiting:
    def __init__(self, folder: Path, inner: Session, free_steps: int) -> None:
        self._folder, self._inner, self._free_steps = folder, inner, free_steps

    def act(self, observation: Observation) -> Chunk:
        deadline = time.monotonic() + LONGEST_S
        self._free_steps -= 1
        while self._free_steps < 0 and (self._folder / 'hold').exists() and time.monotonic() < deadline:
            (self._folder / f'busy-{os.getpid()}').touch()
            time.sleep(0.02)
        return self._inner.act(observation)


class BatchingPolicy(SeekPolicy):
    """Seeks, for several sessions at once."""

    is_batched = True

    def act_many(self, sessions: Sequence[Session], observations: Sequence[Observation]) -> Sequence[Chunk]:
        return [session.act(observation) for session, observation in zip(sessions, observations, strict=True)]


class MortalPolicy(BatchingPolicy):
    """Seeks, for several at once; when `strike` lies in `folder`, takes it away and ends its process without a word."""

    def __init__(self, *, folder: str, **options: float) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._strike = Path(folder) / 'strike'

    def start(self, setup: Setup, *, seed: int) -> Session:
        return _Mortal(self._strike, super().start(setup, seed=seed))


class _Mortal:
    def __init__(self, strike: Path, inner: Session) -> None:
        self._strike, self._inner = strike, inner

    def act(self, observation: Observation) -> Chunk:
        if self._strike.exists():
            self._strike.unlink()
            os._exit(1)
        return self._inner.act(observation)
