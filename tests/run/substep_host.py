"""A host whose every substep can be read back, and a policy whose every action says what it goes back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robotrials.record import Outcome
from robotrials.run import ActionConvention, Chunk, ControlMode, Frame, HostSpec, Observation, PolicySpec, Setup, Target
from robotrials.run.seam import StepPart

SUBSTEPS = 10
RATE_HZ = 20.0  # a control step is 50 ms, a substep 5 ms


def joint(target: str, mode: str = 'joint_position') -> ActionConvention:
    return ActionConvention(control_mode=ControlMode(mode), target=Target(target), frame=Frame.JOINT, n_joints=1)


class CoarseHost:
    """Notes which action was in force at each substep. The state is the number of the step."""

    def __init__(self, target: str = 'delta', mode: str = 'joint_position') -> None:
        self.spec = HostSpec(name='ticks', action=joint(target, mode), control_rate_hz=RATE_HZ, state_width=1)
        self.in_force: list[float] = []
        self.ends: list[int] = []

    def reset(self, task: str, *, seed: int) -> Observation:
        self.in_force, self.ends, self.steps = [], [], 0
        return self._observe()

    def step(self, action: Any) -> Observation:
        self.in_force += [float(action[0])] * SUBSTEPS
        return self._moved()

    def outcome(self) -> Outcome | None:
        return None

    def hold(self) -> Any:
        return np.array([0.0])

    def signals(self) -> Mapping[str, Any]:
        return {}

    def _moved(self) -> Observation:
        self.steps += 1
        return self._observe()

    def _observe(self) -> Observation:
        return Observation(self.steps / RATE_HZ, np.array([float(self.steps)]))


class TickHost(CoarseHost):
    """The same, by substeps."""

    substeps = SUBSTEPS

    def step_through(self, parts: Sequence[StepPart]) -> Observation:
        starts = [part.start for part in parts]
        assert starts[0] == 0
        assert starts == sorted(set(starts))
        for part, end in zip(parts, [*starts[1:], SUBSTEPS], strict=True):
            assert part.start < end <= part.ends <= part.start + SUBSTEPS or end < part.ends
            self.in_force += [float(part.action[0])] * (end - part.start)
        return self._moved()


class Signed:
    """Answers the observation of step n with actions n * 10 + 1, n * 10 + 2 and so on."""

    def __init__(self, chunk_length: int = 1, target: str = 'delta', mode: str = 'joint_position') -> None:
        self.spec = PolicySpec(name='signed', action=joint(target, mode), chunk_length=chunk_length)
        self.seen: list[Observation] = []

    def start(self, setup: Setup, *, seed: int) -> Signed:
        self.seen = []
        return self

    def act(self, observation: Observation) -> Chunk:
        self.seen.append(observation)
        step = round(float(observation.state[0]))
        return Chunk(np.array([[step * 10.0 + 1 + j] for j in range(self.spec.chunk_length)]))
