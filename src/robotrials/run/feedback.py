"""Delayed feedback: at every control tick, what is sent to the policy, what arrives from it, and what the arm does."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run.convention import ActionConvention, ControlMode, Target
from robotrials.run.line import Line, Message
from robotrials.run.plan import Asking, LatencyOptions, UnderWay
from robotrials.run.playback import Playback, Played
from robotrials.run.seam import FloatArray, Observation


@dataclass(frozen=True, slots=True, eq=False)
class _Issued:
    """An answer that was given: to which step's observation, and what of it may be played."""

    step: int
    actions: FloatArray


class Issue:
    """What the policy has said so far, to tell it which of its commands were not yet carried out."""

    def __init__(self, convention: ActionConvention, options: LatencyOptions, *, is_late: bool) -> None:
        is_velocity = convention.control_mode is ControlMode.JOINT_VELOCITY
        self._is_scaled = convention.target is Target.DELTA and not is_velocity
        self._motion_width, self._width = convention.motion_width, convention.width
        self._is_told = options.under_way is UnderWay.TOLD and is_late
        self._issued: dict[int, _Issued] = {}
        self._count = 0

    def add(self, step: int, actions: FloatArray) -> None:
        self._issued[self._count] = _Issued(step, actions)
        self._count += 1

    def shown(self, message: Message) -> Observation:
        """The observation as the policy gets it: its arrays protected, and the commands under way with it."""
        shown = _protected(message.observation)
        if not self._is_told:
            return shown
        return dataclasses.replace(shown, under_way=self._under_way(message))

    def _under_way(self, message: Message) -> FloatArray:
        """The commands (m, A) that come after what was carried out at the time of an observation.

        Each answer is taken to last until the next takes over, as it does when delays do not change. Of an action that
        was under way the rest of a displacement is left.
        """
        self._issued = {n: kept for n, kept in self._issued.items() if n >= message.in_effect}
        left: list[FloatArray] = [np.empty((0, self._width))]
        issued = sorted(self._issued.items())
        following_steps = [later.step for _, later in issued[1:]] + [message.step]
        for (number, answer), following in zip(issued, following_steps, strict=False):
            lasting = min(len(answer.actions), following - answer.step)
            played = message.played if number == message.in_effect else 0.0
            whole = math.floor(played)
            rest = answer.actions[whole : max(lasting, whole)].copy()
            if len(rest) and self._is_scaled:
                rest[0, : self._motion_width] *= 1.0 - (played - whole)
            left.append(rest)
        return np.concatenate(left)


class Feedback:
    """The loop's side of the line: sends observations as `asking` says, and plays what arrives."""

    def __init__(self, line: Line, playback: Playback, options: LatencyOptions, *, execute: int) -> None:
        self._line, self._playback, self._execute = line, playback, execute
        self._is_stream = options.asks is Asking.STREAM
        self._retry_s = options.retry_s
        self._asked_s = -math.inf  # when the request that is still open was put

    def step(self, observation: Observation, *, step: int, begins_s: float) -> list[Played]:
        """The parts of the control step that begins now, given the observation at its start."""
        playback = self._playback
        if self._is_stream or self._is_due(step, begins_s):
            self._asked_s = begins_s
            played = playback.played(step) if playback.number >= 0 else 0.0
            self._line.send(observation, step=step, sent_s=begins_s, in_effect=playback.number, played=played)
        arrivals = self._line.arrivals(until_s=playback.until_s(begins_s))
        if arrivals:
            self._asked_s = -math.inf
        return playback.step(step, arrivals, begins_s=begins_s)

    def asks(self, step: int, begins_s: float) -> bool:
        """Whether the observation at the start of this control step is sent, and may be taken by the policy."""
        return self._line.may_take(step) and (self._is_stream or self._is_due(step, begins_s))

    def _is_due(self, step: int, begins_s: float) -> bool:
        """Whether the next request is to be put: the last one is answered and played, or was lost."""
        if self._asked_s > -math.inf:
            return begins_s - self._asked_s >= self._retry_s
        return self._playback.number < 0 or self._playback.played(step) >= self._execute


def _protected(observation: Observation) -> Observation:
    """The observation, and the earlier ones that go with it, in arrays that cannot be written to."""
    return Observation(
        observation.t_s,
        _locked(observation.state),
        {name: _locked(i) for name, i in observation.images.items()},
        {name: _locked(d) for name, d in observation.depth_m.items()},
        observation.cameras,
        past={step: _protected(earlier) for step, earlier in observation.past.items()},
    )


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    """A view that a policy cannot write the host's memory through."""
    view = array.view()
    view.flags.writeable = False
    return view
