"""Delayed feedback: at every control tick, what is sent to the policy, what arrives from it, and what the arm does."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run.conditions import Delay
from robotrials.run.link_model import Arrival, Line, Message
from robotrials.run.plan import Asking, LatencyOptions, UnderWay, Waiting
from robotrials.run.seam import Action, ActionConvention, ControlMode, FloatArray, Observation, Part, Target

# What the arm does at each moment: the actions of the last answer, one a control step, and after them the waiting.
# Time is counted in substeps, K to a control step. An answer takes effect at the substep at which it arrives and
# replaces what is left of the one before; from there each of its actions lasts K substeps, whatever the control ticks.

SLACK = 1e-6  # a time that is a whole number of substeps but for rounding must not cost one more


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A part of a control step, and what it goes back to: the policy's own action where one begins."""

    part: Part
    raw: Action | None = None
    delay: Delay | None = None  # where an answer takes effect
    age_s: float | None = None  # of its observation at that substep
    number: int | None = None  # of that answer, counted from 0 with those that never take effect


class Playback:
    """The queue of one episode."""

    def __init__(
        self, options: LatencyOptions, convention: ActionConvention, *, substeps: int, execute: int, dt_s: float,
        hold: Callable[[], Action],
    ) -> None:  # fmt: skip
        self._waiting, self._hold = options.waiting, hold
        self._substeps, self._execute, self._dt_s = substeps, execute, dt_s
        self._substep_s = dt_s / substeps
        self._motion_width = convention.motion_width
        is_velocity = convention.control_mode is ControlMode.JOINT_VELOCITY
        self._is_position = convention.target is Target.ABSOLUTE and not is_velocity
        self._repeats = round(options.repeat_s / self._substep_s) if options.waiting is Waiting.REPEAT else 0
        self._actions: FloatArray = np.empty((0, convention.width))
        self._starts = 0  # the substep at which the answer took effect
        self._last: Action | None = None
        self.number = -1  # of the answer in effect

    def played(self, step: int) -> float:
        """How many actions' worth of the answer in effect were carried out at this control tick."""
        return (step * self._substeps - self._starts) / self._substeps

    def length(self, actions: FloatArray) -> int:
        """How many actions of an answer may be played."""
        return self._execute if self._waiting is Waiting.HOLD else len(actions)

    def until_s(self, begins_s: float) -> float:
        """The last moment at which an arrival still takes effect in the control step that begins then."""
        return begins_s + (self._substeps - 1 + SLACK) * self._substep_s

    def step(self, step: int, arrivals: Sequence[Arrival], *, begins_s: float) -> list[Played]:
        """The parts of one control step, of which the first begins with it."""
        first = step * self._substeps
        end = first + self._substeps
        coming = [(first + self._offset(a, begins_s), a) for a in arrivals]
        parts: list[Played] = []
        now = first
        while now < end:
            arrival = None
            while coming and coming[0][0] <= now:
                arrival = coming.pop(0)[1]
                self._actions, self._starts = arrival.actions[: self.length(arrival.actions)], now
                self.number = arrival.number
            until = min(coming[0][0], end) if coming else end
            played, ends = self._at(now, first=first)
            if arrival is not None:
                age_s = begins_s + (now - first) * self._substep_s - arrival.seen_s
                played = Played(played.part, played.raw, arrival.delay, age_s, arrival.number)
            parts.append(played)
            self._last = played.part.action
            now = min(until, ends)
        return parts

    def _offset(self, arrival: Arrival, begins_s: float) -> int:
        return max(0, int(np.ceil((arrival.arrives_s - begins_s) / self._substep_s - SLACK)))

    def _at(self, now: int, *, first: int) -> tuple[Played, int]:
        """What begins at this substep, and until when it could go on."""
        k, start = self._substeps, now - first
        index, since = divmod(now - self._starts, k)
        if index < len(self._actions):
            action = self._actions[index]
            ends = self._starts + (index + 1) * k
            return Played(Part(start, action, ends - first), raw=action if since == 0 else None), ends
        over = self._starts + len(self._actions) * k
        if len(self._actions) and now < over + self._repeats:
            return Played(Part(start, self._actions[-1], start + k)), over + self._repeats
        return Played(Part(start, self._still(start), start + k)), first + k

    def _still(self, start: int) -> Action:
        """Keep the last position target, or hold still; within a control step the gripper stays as it was told."""
        if self._last is None:
            return self._hold()
        is_kept = self._waiting is Waiting.KEEP and len(self._actions) > 0
        if self._is_position and (is_kept or start):
            return self._actions[-1] if is_kept else self._last
        still = self._hold()
        if start and len(still) > self._motion_width:
            still = np.append(still[: self._motion_width], self._last[self._motion_width :])
        return still


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
        protected = _protected(message.observation)
        if not self._is_told:
            return protected
        return dataclasses.replace(protected, under_way=self._under_way(message))

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
