"""Small policies for the point mass: one that works, with a speed and a sloppiness, and one for every kind of fault."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from robotrials.errors import UnknownName
from robotrials.record import Event, EventKind, Outcome
from robotrials.run import (
    Action,
    ActionConvention,
    Chunk,
    ControlMode,
    Frame,
    HostReport,
    HostSpec,
    Observation,
    PolicySpec,
    Rotation,
    Session,
    Setup,
    Target,
)
from robotrials.run.host import SteppedHost

# A host small enough to reason about: a point that is moved to one goal after another, in virtual time.
# The state is (x, y, goal x, goal y) in metres; an action is a displacement for one control step. Everything follows
# from the seed.

TRANSLATION = ActionConvention(
    control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.WORLD, rotation=Rotation.NONE
)


class PointMassHost(SteppedHost):
    """Reach `items` goals in turn, each a placement; leaving the table is a safety stop.

    Conditions: ``drift`` pushes the point by (x_m_s, y_m_s). `goal_speed_m_s` lets goals move away along x, so that a
    late action is a wrong one. `substeps` makes a step as expensive as wanted without changing what it does.
    """

    def __init__(
        self,
        *,
        control_rate_hz: float = 20.0,
        reach_m: float = 0.05,
        table_m: float = 2.0,
        noise_m: float = 0.0,
        goal_speed_m_s: float = 0.0,
        camera_px: int = 0,
        substeps: int = 1,
    ) -> None:
        self.reach_m, self.table_m, self.noise_m = reach_m, table_m, noise_m
        self.goal_speed_m_s = goal_speed_m_s
        self._n_parts = substeps
        self._camera_px = camera_px
        self._spec = HostSpec(
            name='point-mass',
            action=TRANSLATION,
            control_rate_hz=control_rate_hz,
            state_width=4,
            state_layout=('x_m', 'y_m', 'goal_x_m', 'goal_y_m'),
            images={'top': (camera_px, camera_px)} if camera_px else {},
            conditions=('drift',),
        )
        self._items, self._drift = 1, (0.0, 0.0)

    def prepare(self, setup: Setup) -> None:
        self._items = setup.items or 1
        wind = setup.condition_parameters if setup.condition == 'drift' else {}
        self._drift = (float(wind.get('x_m_s', 0.0)), float(wind.get('y_m_s', 0.0)))

    def reset(self, task: str, *, seed: int) -> Observation:
        self._rng = np.random.default_rng(seed)
        self._x, self._y = (float(v) for v in self._rng.uniform(-0.1, 0.1, 2))
        self._goals = self._rng.uniform(-0.8, 0.8, (self._items, 2))
        self._steps = 0
        self._events: list[Event] = []
        self._outcome: Outcome | None = None
        return self._observe()

    def step(self, action: Action) -> Observation:
        dt_s = 1.0 / self._spec.control_rate_hz
        dx, dy = float(action[0]) + self._drift[0] * dt_s, float(action[1]) + self._drift[1] * dt_s
        if self.noise_m:
            noise = self._rng.normal(0.0, self.noise_m, 2)
            dx, dy = dx + float(noise[0]), dy + float(noise[1])
        for _ in range(self._n_parts):
            self._x += dx / self._n_parts
            self._y += dy / self._n_parts
        self._steps += 1
        goal_x, goal_y = self._goal()
        if math.hypot(self._x - goal_x, self._y - goal_y) <= self.reach_m:
            self._events.append(Event(self._steps * dt_s, EventKind.PLACEMENT))
            if len(self._events) == self._items:
                self._outcome = Outcome.SUCCESS
        if max(abs(self._x), abs(self._y)) > self.table_m:
            self._outcome = Outcome.SAFETY_STOP
        return self._observe()

    def outcome(self) -> Outcome | None:
        return self._outcome

    def report(self) -> HostReport:
        return HostReport(
            success=self._outcome is Outcome.SUCCESS,
            items=self._items,
            items_placed=len(self._events),
            items_lost=0,
            events=tuple(self._events),
            reason='left the table' if self._outcome is Outcome.SAFETY_STOP else '',
        )

    def signals(self) -> Mapping[str, Any]:
        return {'ee_pose': (self._x, self._y, 0.0, 1.0, 0.0, 0.0, 0.0), 'done': self._outcome is not None}

    def _goal(self) -> tuple[float, float]:
        goal = self._goals[min(len(self._events), self._items - 1)]
        moved_m = self.goal_speed_m_s * self._steps / self._spec.control_rate_hz
        return float(goal[0]) + moved_m, float(goal[1])

    def _observe(self) -> Observation:
        images = {}
        if self._camera_px:
            image = np.zeros((self._camera_px, self._camera_px, 3), dtype=np.uint8)
            column, row = (self._pixel(self._x), self._pixel(self._y))
            image[row, column] = 255
            images['top'] = image
        t_s = self._steps / self._spec.control_rate_hz
        return Observation(t_s, np.array((self._x, self._y, *self._goal())), images)

    def _pixel(self, at_m: float) -> int:
        return min(self._camera_px - 1, max(0, int((at_m / self.table_m + 1) / 2 * self._camera_px)))


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
