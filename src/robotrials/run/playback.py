"""What the arm does at each moment: the actions of the last answer, one a control step, and after them the waiting.

Time is counted in substeps, K to a control step. An answer takes effect at the substep at which it arrives and replaces
what is left of the one before; from there each of its actions lasts K substeps, whatever the control ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.run.conditions import Delay
from robotrials.run.convention import ActionConvention, ControlMode, Target
from robotrials.run.line import Arrival
from robotrials.run.plan import LatencyOptions, Waiting
from robotrials.run.seam import Action, FloatArray, Part

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
