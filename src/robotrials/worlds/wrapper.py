"""Wrappers around any host: guarded while it runs unattended, or disturbed by a condition."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from robotrials.errors import InputError, RigError
from robotrials.record import Event, EventKind, EventSource, Outcome
from robotrials.run.condition import show_frames
from robotrials.run.conditions import Application, Condition, compose, condition_parameters, read_condition, share_out
from robotrials.run.host import Ability, HostLike, HostWrapper
from robotrials.run.loop import mean_action
from robotrials.run.seam import Action, ControlMode, Frame, HostReport, HostSpec, Observation, Setup, StepPart, Target

if TYPE_CHECKING:
    from robotrials.record.footage import View


# A host that is guarded while it runs unattended: whatever stops, bounds, checks and times a step stands around it.

RESETS = 3
BRAKING_STEPS = 2.0


@dataclass(slots=True)
class Interrupts:
    """What may end an episode from outside, checked by every call that waits."""

    stop: threading.Event = field(default_factory=threading.Event)  # the emergency stop
    lost: threading.Event = field(default_factory=threading.Event)  # the server took the lease back


class ResetRefused(RigError):  # noqa: N818 - reads as the fact it states
    """The scene was not as planned after the last of the resets."""


@dataclass(frozen=True, slots=True)
class ToolWorkspace:
    """Where the tool may be, in metres, in the world frame."""

    low_m: tuple[float, ...]  # x, y, z
    high_m: tuple[float, ...]
    slack_m: float = 0.02  # a tool this far outside ends the episode

    def __post_init__(self) -> None:
        if not (len(self.low_m) == len(self.high_m) == 3 and all(map(math.isfinite, (*self.low_m, *self.high_m)))):
            raise InputError(f'workspace is {self.low_m} to {self.high_m}, wanted two corners of three numbers')
        if not all(low < high for low, high in zip(self.low_m, self.high_m, strict=True)):
            raise InputError(f'workspace is {self.low_m} to {self.high_m}, wanted every first number below the second')

    def clip(self, action: Action, tool_m: Action, moved_m: Action | float = 0.0) -> Action:
        """A displacement that ends inside, however far it wanted to go; `moved_m` is that of the step before.

        An arm does not stop at once: it is taken to coast for as far as it went in BRAKING_STEPS.
        """
        clipped = np.array(action, dtype=float)
        ahead_m = tool_m + BRAKING_STEPS * np.asarray(moved_m)
        # A tool that is outside already may come back at its own pace, and not go further.
        most_back = np.minimum(np.array(self.low_m) - np.minimum(ahead_m, tool_m), 0.0)
        most_ahead = np.maximum(np.array(self.high_m) - np.maximum(ahead_m, tool_m), 0.0)
        clipped[:3] = np.clip(clipped[:3], most_back, most_ahead)
        return clipped

    def is_left_by(self, tool_m: Action) -> bool:
        low, high = np.array(self.low_m) - self.slack_m, np.array(self.high_m) + self.slack_m
        return bool(np.any(tool_m < low) or np.any(tool_m > high))


class GuardedHost(HostWrapper):
    """One host, guarded. In parts of a step, each displacement is kept within the workspace, and so is their mean."""

    def __init__(
        self,
        host: HostLike,
        *,
        interrupts: Interrupts,
        workspace: ToolWorkspace | None = None,
        checks_reset: bool = True,
    ) -> None:
        super().__init__(host)
        self._interrupts, self._workspace = interrupts, workspace
        self._checks_reset = checks_reset and Ability.CHECK_RESET in self.abilities
        action = self.spec.action
        is_straight = action.frame in (Frame.WORLD, Frame.BASE)  # base and world axes are taken as parallel
        self._clips = action.control_mode is ControlMode.SE3 and action.target is Target.DELTA and is_straight
        if workspace is not None and Ability.SIGNALS not in self.abilities:
            raise InputError(f'host {self.spec.name} measures no ee_pose, so a workspace cannot be kept')
        self._setup: Setup | None = None
        self._ended: tuple[str, EventSource] | None = None
        self._last: Observation | None = None
        self._measured: Mapping[str, Any] | None = None  # at the last step; None: not asked for since
        self._tool_m: Action | None = None  # before the last step
        self.reset_fault = ''
        self.is_reset_checked = False
        self.step_times_s: list[float] = []  # when each command was handed over, by time.perf_counter()

    def prepare(self, setup: Setup) -> None:
        self._setup = setup
        self._host.prepare(setup)

    def reset(self, task: str, *, seed: int) -> Observation:
        """Reset and look; ResetRefused if the scene is not as planned after the last try."""
        self._ended, self.reset_fault, self.step_times_s, self._tool_m = None, '', [], None
        self._measured = None
        self._last = self._checked(task, seed) if self._checks_reset else self._host.reset(task, seed=seed)
        return self._last

    def _checked(self, task: str, seed: int) -> Observation:
        """A condition may change looks and add objects, so under one the plain scene is checked first."""
        setup = self._setup
        is_plain = setup is None or setup.condition == 'nominal'
        if not is_plain and setup is not None:
            self._host.prepare(dataclasses.replace(setup, condition='nominal', condition_parameters={}))
        for _ in range(RESETS):
            observation = self._host.reset(task, seed=seed)
            try:
                check = self._host.check_reset()
            except InputError:
                break  # nothing in this scene can be checked
            self.is_reset_checked = True
            if check is None or check.is_as_planned:
                break
            self.reset_fault = check.reason
        else:
            raise ResetRefused(f'{self.reset_fault} ({RESETS} resets)')
        self.reset_fault = ''
        if not is_plain and setup is not None:
            self._host.prepare(setup)
            return self._host.reset(task, seed=seed)
        return observation

    def step(self, action: Action) -> Observation:
        """One step, unless something stops it: then nothing more is sent to the arm."""
        whole = StepPart(start=0, action=action, ends=self.substeps)
        return self._advance([whole], lambda parts: self._host.step(parts[0].action))

    def step_through(self, parts: Sequence[StepPart]) -> Observation:
        return self._advance(parts, self._host.step_through)

    def _advance(self, parts: Sequence[StepPart], run: Callable[[Sequence[StepPart]], Observation]) -> Observation:
        if self._interrupts.stop.is_set():
            return self._stopped()
        if self._interrupts.lost.is_set():
            raise RigError('the server has taken the lease back')
        if self._workspace is not None and self._clips:
            tool_m = np.array(self.signals()['ee_pose'])[:3]
            moved_m = tool_m - self._tool_m if self._tool_m is not None else 0.0
            clip, self._tool_m = self._workspace.clip, tool_m
            parts = [dataclasses.replace(part, action=clip(part.action, tool_m, moved_m)) for part in parts]
        self.step_times_s.append(time.perf_counter())
        try:
            self._last = run(parts)
        except Exception:
            if self._interrupts.stop.is_set():  # a brake makes a robot's driver complain
                return self._stopped()
            raise
        self._measured = None
        if self._workspace is not None:
            measured = dict(self._host.signals())
            measured.setdefault('action_processed', mean_action(parts, self.spec.action, substeps=self.substeps))
            self._measured = measured
            if self._workspace.is_left_by(np.asarray(measured['ee_pose'])[:3]):
                self._ended = 'the tool left the workspace', EventSource.SENSOR
        return self._last

    def _stopped(self) -> Observation:
        self._ended = 'emergency stop', EventSource.OPERATOR
        if self._last is None:
            raise RigError(self._ended[0])
        last = self._last
        again = dataclasses.replace(last, state=last.state.copy())
        self.step_times_s.append(time.perf_counter())
        return again

    def outcome(self) -> Outcome | None:
        return Outcome.SAFETY_STOP if self._ended is not None else self._host.outcome()

    def signals(self) -> Mapping[str, Any]:
        """The host's, asked for once a step; an arm that was stopped before its first is not asked."""
        if self._measured is None:
            self._measured = {} if self._ended is not None else self._host.signals()
        return self._measured

    def views(self, *, is_over: bool = False) -> Mapping[str, View]:
        """RGB-D as the world stands; an arm that was stopped is not driven out of sight."""
        is_stopped = self._ended is not None or self._interrupts.stop.is_set()
        return self._host.views(is_over=is_over and not is_stopped)

    def report(self) -> HostReport:
        """The host's own account, and what stopped the episode."""
        report = self._host.report()
        if self._ended is None or self._last is None:
            return report
        reason, source = self._ended
        event = Event(self._last.t_s, EventKind.SAFETY_STOP, source)
        return dataclasses.replace(report, reason=reason, success=False, events=(*report.events, event))


# Any host under any condition that can be laid over its frames or its words; what it can do itself it does itself.
# A trial does this by itself, for every host: the wrapper is for those who drive a host without `robotrials.run`.

OVER_FRAMES = ('background', 'exposure+', 'exposure-', 'light', 'sensor_noise')


class DisturbedHost(HostWrapper):
    """A host with conditions laid over what it shows. Depth and calibration are disturbed with the images.

    The policy sees the disturbed observation; the world, its outcome and its signals are the host's own. Everything
    else that the host can do it still does.
    """

    adds = frozenset({Ability.PREPARE})

    def __init__(self, host: HostLike) -> None:
        super().__init__(host)
        self._application = Application()
        self._step = 0
        extra = (*(OVER_FRAMES if host.spec.images else ()), 'instruction')
        kinds = tuple(dict.fromkeys([*host.spec.conditions, *extra]))
        self._spec = dataclasses.replace(host.spec, conditions=kinds)

    @property
    def spec(self) -> HostSpec:
        return self._spec

    def prepare(self, setup: Setup) -> None:
        """Share the condition out; InputError before the episode when a part of it cannot be brought about."""
        condition = read_condition(setup.condition, setup.condition_parameters)
        self._application = share_out(
            condition, self._host.spec.conditions, has_frames=bool(self._host.spec.images), charges_latency=False
        )
        self._host.prepare(_inner_setup(setup, self._application.by_host))

    def reset(self, task: str, *, seed: int) -> Observation:
        self._step = 0
        return self._disturbed(self._host.reset(task, seed=seed))

    def step(self, action: Action) -> Observation:
        self._step += 1
        return self._disturbed(self._host.step(action))

    def step_through(self, parts: Sequence[StepPart]) -> Observation:
        self._step += 1
        return self._disturbed(self._host.step_through(parts))

    def look(self) -> Observation:
        return self._disturbed(self._host.look())

    def said(self, canonical: str) -> str:
        """The instruction as the policy hears it under the condition at hand."""
        return self._application.instruction(canonical)

    def _disturbed(self, observation: Observation) -> Observation:
        if not self._application.by_frames or not observation.images:
            return observation
        return show_frames(self._application, observation, step=self._step)


def _inner_setup(setup: Setup, by_host: tuple[Condition, ...]) -> Setup:
    if not by_host:
        return dataclasses.replace(setup, condition='nominal', condition_parameters={})
    condition = compose(*by_host)
    return dataclasses.replace(setup, condition=condition.kind, condition_parameters=condition_parameters(condition))
