"""Small policies for the point mass: one that works, with a speed and a sloppiness, and one for every kind of fault."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from robotrials.errors import UnknownName
from robotrials.run import Chunk, Observation, PolicySpec, Session, Setup
from robotrials.testing.point_mass import TRANSLATION, PointMassHost

FAULTS = ('none', 'nan', 'shape', 'crash', 'late', 'hang', 'exit', 'leave', 'kill', 'write')
HOST_FAULTS = ('none', 'mutate', 'shape', 'nan', 'crash', 'hang', 'exit')


class SeekPolicy:
    """Walks straight to the goal at `speed_m_s`, with Gaussian `sloppiness_m` a step, in chunks of `chunk_length`."""

    def __init__(
        self, *, speed_m_s: float = 0.5, sloppiness_m: float = 0.0, chunk_length: int = 1, rate_hz: float = 20.0,
        think_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.step_m = speed_m_s / rate_hz
        self.sloppiness_m = sloppiness_m
        self.think_s = think_s
        self._spec = PolicySpec(
            name='seek', action=TRANSLATION, chunk_length=chunk_length, control_rate_hz=rate_hz, state_width=4
        )

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        return _Seeking(self, np.random.default_rng(seed))


class _Seeking:
    def __init__(self, policy: SeekPolicy, rng: np.random.Generator) -> None:
        self._policy, self._rng = policy, rng

    def act(self, observation: Observation) -> Chunk:
        policy = self._policy
        if policy.think_s:
            time.sleep(policy.think_s)
        h = policy.spec.chunk_length
        gap = observation.state[2:4] - observation.state[:2]
        distance = float(np.hypot(*gap))
        direction = gap / distance if distance > 0 else np.zeros(2)
        lengths = np.clip(distance - policy.step_m * np.arange(h), 0.0, policy.step_m)
        actions = np.zeros((h, 3))
        actions[:, :2] = lengths[:, None] * direction
        if policy.sloppiness_m:
            actions[:, :2] += self._rng.normal(0.0, policy.sloppiness_m, (h, 2))
        return Chunk(actions)


class FaultyPolicy:
    """Seeks, until at question number `at` it does something wrong; `only_odd` limits that to odd instances."""

    def __init__(
        self, *, fault: str, at: int = 2, seconds: float = 0.2, message: str = 'broken', only_odd: bool = False
    ) -> None:
        if fault not in FAULTS:
            raise UnknownName('policy fault', fault, FAULTS)
        self.fault, self.at, self.seconds, self.message, self.only_odd = fault, at, seconds, message, only_odd
        self._inner = SeekPolicy()

    @property
    def spec(self) -> PolicySpec:
        return self._inner.spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        is_spared = self.only_odd and setup.instance % 2 == 0
        return _Failing(self, self._inner.start(setup, seed=seed), 'none' if is_spared else self.fault)


class _Failing:
    def __init__(self, policy: FaultyPolicy, inner: Session, fault: str) -> None:
        self._policy, self._inner, self._fault = policy, inner, fault
        self._asked = 0

    def act(self, observation: Observation) -> Chunk:
        self._asked += 1
        chunk = self._inner.act(observation)
        if self._asked < self._policy.at:
            return chunk
        if self._fault == 'nan':
            return Chunk(chunk.actions * np.nan)
        if self._fault == 'shape':
            return Chunk(np.zeros((1, 7)))
        if self._fault == 'crash':
            raise RuntimeError(self._policy.message)
        if self._fault == 'exit':
            os._exit(11)
        if self._fault == 'leave':
            sys.exit(11)
        if self._fault == 'kill':
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == 'write':
            observation.state[0] = 0.0
        if self._fault in ('late', 'hang'):
            time.sleep(self._policy.seconds)
        return chunk


class FaultyHost(PointMassHost):
    """The point mass with one flaw, which shows at step `at`."""

    def __init__(self, *, fault: str, at: int = 3, seconds: float = 3600.0) -> None:
        super().__init__()
        if fault not in HOST_FAULTS:
            raise UnknownName('host fault', fault, HOST_FAULTS)
        self.fault, self.at, self.seconds = fault, at, seconds
        self._buffer = np.zeros(4)

    def step(self, action: np.ndarray) -> Observation:
        observation = super().step(action)
        if self.fault == 'mutate':
            self._buffer[:] = observation.state
            return Observation(observation.t_s, self._buffer)
        if self._steps < self.at:
            return observation
        if self.fault == 'crash':
            raise OSError('the arm does not answer')
        if self.fault == 'exit':
            os._exit(12)
        if self.fault == 'hang':
            time.sleep(self.seconds)
        if self.fault == 'nan':
            return Observation(observation.t_s, observation.state * np.nan)
        if self.fault == 'shape':
            return Observation(observation.t_s, observation.state[:2])
        return observation
