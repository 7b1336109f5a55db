"""The cell as an episode of the platform sees it: what stops, bounds, checks and times every step stands around it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from robotrials.errors import InputError, RigError
from robotrials.record import Event, EventKind, EventSource, Outcome, Trajectory
from robotrials.record.rgbd import View
from robotrials.run.convention import ControlMode, Frame, HostSpec, Target
from robotrials.run.plan import HostEntry, LimitOptions
from robotrials.run.seam import Action, Host, HostReport, Observation, ReportingHost, Setup, ViewingHost
from robotrials.service.platform.link import Interrupts

RESETS = 3
BRAKING_STEPS = 2.0
OPTIONAL = ('instruction', 'hold', 'scene', 'close', 'has_views', 'known_scene', 'film', 'film_cameras')
INSPECTED = {
    'tabletop': 'robotrials.worlds.cell.checked:PlannedCell'
}  # built-in hosts in a version that checks its reset


class ResetCheckLike(Protocol):
    """What a host says of its own reset."""

    @property
    def is_as_planned(self) -> bool: ...

    @property
    def reason(self) -> str: ...


@runtime_checkable
class CheckingHost(Protocol):
    """A host that can look whether its last reset came about as planned, by its sensors and not by its own poses."""

    def check_reset(self) -> ResetCheckLike: ...


@runtime_checkable
class StoppableHost(Protocol):
    """A host with a stop of its own, such as a brake; called at once, from another thread than the episode's."""

    def stop(self) -> None: ...


class ResetRefused(RigError):  # noqa: N818 - reads as the fact it states
    """The scene was not as planned after the last of the resets."""


@dataclass(frozen=True, slots=True)
class Workspace:
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


class GuardedHost:
    """One host, guarded. What the host can do beyond the four methods of every host, this one can as well."""

    def __init__(
        self, host: Host, *, interrupts: Interrupts, workspace: Workspace | None = None, checks_reset: bool = True
    ) -> None:
        self._host, self._interrupts, self._workspace = host, interrupts, workspace
        self._checker = host if checks_reset and isinstance(host, CheckingHost) else None
        self._signals = getattr(host, 'signals', None)
        action = host.spec.action
        is_straight = action.frame in (Frame.WORLD, Frame.BASE)  # base and world axes are taken as parallel
        self._clips = action.control_mode is ControlMode.SE3 and action.target is Target.DELTA and is_straight
        if workspace is not None and self._signals is None:
            raise InputError(f'host {host.spec.name} measures no ee_pose, so a workspace cannot be kept')
        for name in OPTIONAL:  # as attributes of the instance: what the host lacks must not seem to be there
            if hasattr(host, name):
                setattr(self, name, getattr(host, name))
        if hasattr(host, 'prepare'):
            self.prepare = self._prepare
        if isinstance(host, ViewingHost):
            self._viewing, self.views = host, self._views
        if self._signals is not None:
            self.signals = self._measured
        self._setup: Setup | None = None
        self._ended: tuple[str, EventSource] | None = None
        self._last: Observation | None = None
        self._measures: Mapping[str, Any] = {}
        self._tool_m: Action | None = None  # before the last step
        self.reset_fault = ''
        self.is_reset_checked = False
        self.step_times_s: list[float] = []  # when each command was handed over, by time.perf_counter()

    @property
    def spec(self) -> HostSpec:
        return self._host.spec

    def _prepare(self, setup: Setup) -> None:
        self._setup = setup
        self._host.prepare(setup)  # type: ignore[attr-defined]  # bound only where the host has it

    def reset(self, task: str, *, seed: int) -> Observation:
        """Reset and look; ResetRefused if the scene is not as planned after the last try."""
        self._ended, self.reset_fault, self.step_times_s, self._tool_m = None, '', [], None
        self._last = self._host.reset(task, seed=seed) if self._checker is None else self._checked(task, seed)
        if self._signals is not None and self._workspace is not None:
            self._measures = self._signals()
        return self._last

    def _checked(self, task: str, seed: int) -> Observation:
        """A condition may change looks and add objects, so under one the plain scene is checked first."""
        setup, checker = self._setup, self._checker
        is_plain = setup is None or setup.condition == 'nominal'
        if not is_plain and setup is not None:
            self._prepare(dataclasses.replace(setup, condition='nominal', condition_parameters={}))
        for _ in range(RESETS):
            observation = self._host.reset(task, seed=seed)
            try:
                check = checker.check_reset() if checker is not None else None
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
            self._prepare(setup)
            return self._host.reset(task, seed=seed)
        return observation

    def step(self, action: Action) -> Observation:
        """One step, unless something stops it: then the arm is told nothing any more."""
        if self._interrupts.stop.is_set():
            return self._stopped('emergency stop', EventSource.OPERATOR)
        if self._interrupts.lost.is_set():
            raise RigError('the server has taken the lease back')
        if self._workspace is not None and self._clips:
            tool_m = np.array(self._measures['ee_pose'])[:3]
            moved_m = tool_m - self._tool_m if self._tool_m is not None else 0.0
            action, self._tool_m = self._workspace.clip(action, tool_m, moved_m), tool_m
        self.step_times_s.append(time.perf_counter())
        try:
            self._last = self._host.step(action)
        except Exception:
            if self._interrupts.stop.is_set():  # a brake makes a robot's driver complain
                return self._stopped('emergency stop', EventSource.OPERATOR)
            raise
        if self._signals is not None:
            measured = dict(self._signals())
            measured.setdefault('action_processed', action)
            self._measures = measured
            if self._workspace is not None and self._workspace.is_left_by(np.asarray(measured['ee_pose'])[:3]):
                self._ended = 'the tool left the workspace', EventSource.SENSOR
        return self._last

    def _stopped(self, reason: str, source: EventSource) -> Observation:
        self._ended = reason, source
        if self._last is None:
            raise RigError(reason)
        last = self._last
        again = dataclasses.replace(last, state=last.state.copy())
        self.step_times_s.append(time.perf_counter())
        return again

    def outcome(self) -> Outcome | None:
        return Outcome.SAFETY_STOP if self._ended is not None else self._host.outcome()

    def _measured(self) -> Mapping[str, Any]:
        return self._measures

    def _views(self, *, is_over: bool = False) -> Mapping[str, View]:
        """RGB-D as the world stands; an arm that was stopped is not driven out of sight."""
        is_stopped = self._ended is not None or self._interrupts.stop.is_set()
        return self._viewing.views(is_over=is_over and not is_stopped)

    def report(self) -> HostReport:
        """The host's own account, and what stopped the episode."""
        told = self._host.report() if isinstance(self._host, ReportingHost) else HostReport()
        if self._ended is None or self._last is None:
            return told
        reason, source = self._ended
        event = Event(self._last.t_s, EventKind.SAFETY_STOP, source)
        return dataclasses.replace(told, reason=reason, success=False, events=(*told.events, event))

    def stop_now(self) -> None:
        """The host's own brake, if it has one."""
        if isinstance(self._host, StoppableHost):
            self._host.stop()


def inspected_entry(entry: HostEntry, *, checks_reset: bool) -> HostEntry:
    """The host of a plan in the version that can check its reset, where we have one."""
    return dataclasses.replace(entry, use=INSPECTED.get(entry.use, entry.use)) if checks_reset else entry


def stricter(plan: LimitOptions, cell: LimitOptions) -> LimitOptions:
    """The limits of the plan and of the cell, the lower of each."""
    return LimitOptions(
        velocity=_lower(plan.velocity, cell.velocity), acceleration=_lower(plan.acceleration, cell.acceleration)
    )


Bound = float | tuple[float, ...] | None


def _lower(a: Bound, b: Bound) -> Bound:
    if a is None or b is None:
        return a if b is None else b
    lowest = np.minimum(a, b)
    return float(lowest) if np.ndim(lowest) == 0 else tuple(float(v) for v in lowest)


def with_transport(
    trajectory: Trajectory, *, arrivals_s: Mapping[int, float], answers: Mapping[int, int], steps_s: list[float]
) -> Trajectory:
    """The trajectory with the time from each answer's arrival to its hand-over to the arm as transport.

    `answers` says by step which answer took effect in it: one that was lost or overtaken has no step, and moves no
    other. A host's stated transport stays part of it.
    """
    network, stated = trajectory.network_latency_s, trajectory.transport_latency_s
    if network is None or stated is None:
        return trajectory
    transport = np.array(stated, dtype=float)
    for row in np.flatnonzero(np.isfinite(network)).tolist():
        arrived_s = arrivals_s.get(answers[row])
        if arrived_s is not None:  # None: the emergency stop stood in for an answer
            transport[row] += max(0.0, steps_s[row] - arrived_s)
    return dataclasses.replace(trajectory, transport_latency_s=transport)
