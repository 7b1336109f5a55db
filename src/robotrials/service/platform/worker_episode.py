"""One job on one cell: the run's own loop around a link or a dialled server, and the bundle that comes of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, NotEstimable, RigError, RobotrialsError, SetupError
from robotrials.measure.geometry.camera_score import CameraScore, unscored
from robotrials.measure.geometry.projection import OWN_SCORE, VIEWS, pack_own_score, score_files
from robotrials.record import Episode, Outcome, Trajectory
from robotrials.run.component import check_host_fits, check_policy_fits, open_host
from robotrials.run.environment.process import WorkerProcess
from robotrials.run.environment.recipe import own_environment
from robotrials.run.fault import EpisodeStop, Fault, FaultKind, policy_fault
from robotrials.run.host import Ability
from robotrials.run.loop import Rollout
from robotrials.run.mark import AlarmBoard, WorkerPhase
from robotrials.run.plan import HostEntry, LatencyMode, LimitOptions, PolicyEntry, TrialPlan, WatchdogOptions
from robotrials.run.seam import Action, ClosablePolicy, HostSpec, Policy
from robotrials.run.station import Station, rollout_of_fault, setup_of
from robotrials.service.platform.bundle import BUNDLE_LIMITS, pack_fitting
from robotrials.service.platform.dial import open_dialled
from robotrials.service.platform.job import ARM, Job
from robotrials.service.platform.link import ClientLink, ErrorCode, LinkPolicy, Stopped, greet
from robotrials.value import read_table, without_nulls
from robotrials.wire import WireLimits
from robotrials.worlds.wrapper import GuardedHost, Interrupts, ToolWorkspace

# What a worker makes of a plan for its cell: the host to open, the limits that hold, the time that answers took.

INSPECTED = {
    'tabletop': 'robotrials.worlds.cell.checked:PlannedCell'
}  # built-in hosts in a version that checks its reset


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


# Scoring the views of an episode in a process of its own, beside a worker.
# The worker's interpreter stays free for heartbeats and the emergency stop, and a reconstruction that crashes, hangs
# or runs out of memory costs a score and no episode: it is unscored, with the reason.

FIRST_S = 300.0  # to start, and for a process's first score: on a new machine it compiles
SCORE_S = 60.0
LIMITS = WireLimits(max_bytes=256 << 20)


class ViewScorer:
    """One process that scores, started when it is needed, and again after it broke."""

    def __init__(self, *, first_s: float = FIRST_S, score_s: float = SCORE_S) -> None:
        self._first_s, self._score_s = first_s, score_s
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: WorkerProcess | None = None
        self._has_scored = False

    def score(self, files: Mapping[str, bytes]) -> CameraScore:
        """The score of an episode's files by their names within it; whatever goes wrong, it is unscored, with why."""
        try:
            if self._process is None or self._process.is_over:
                self._process, self._has_scored = self._started(), False
            limit_s = self._score_s if self._has_scored else self._first_s
            answer = self._process.call('score', {name: files[name] for name in VIEWS}, timeout_s=limit_s)
            self._has_scored = True
            return read_table(CameraScore, without_nulls(answer), where='the score')
        except (RobotrialsError, OSError) as error:
            return unscored(f'the reconstruction broke off: {_last_line(str(error))}')

    def _started(self) -> WorkerProcess:
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix='robotrials-scorer-')
        place = own_environment(Path(self._folder.name))
        return WorkerProcess(place, f'{__name__}:ScoringService', start_timeout_s=self._first_s, limits=LIMITS)

    def close(self) -> None:
        """End the process, at once."""
        if self._process is not None and not self._process.is_over:
            self._process.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._folder = None


class ScoringService:
    """What answers inside that process."""

    def __init__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a worker that is told to leave finishes its episode first
        with contextlib.suppress(OSError):
            os.nice(10)  # the arm's control comes first

    def score(self, files: Mapping[str, bytes]) -> dict[str, Any]:
        return dataclasses.asdict(score_files(files))


def _last_line(text: str) -> str:
    return text.strip().rpartition('\n')[2][:200]


GREET_S = 60.0  # to hear what the client's policy is
HANG_SLACK_S = 10.0


class NotBegun(Exception):  # noqa: N818 - a job is given back before its episode began
    """The cell could not take the job up: its own fault, or with `is_plans` what the plan asks of it.

    Nothing that a client or a dialled server does leads here: a job that was granted is the policy's to lose.
    """

    def __init__(self, code: ErrorCode, message: str, *, is_plans: bool = False) -> None:
        super().__init__(message)
        self.code, self.is_plans = code, is_plans


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOptions:
    """The cell of a worker: which host, and the bounds that hold whatever a plan says."""

    host: str
    options: dict[str, object] = field(default_factory=dict)  # in place of the plan's own, such as a robot's address
    limits: LimitOptions = field(default_factory=LimitOptions)
    workspace: ToolWorkspace | None = None
    checks_reset: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attempt:
    """What a job came to."""

    episode: Episode
    bundle: bytes
    fault: Fault | None
    n_steps: int
    reset_fault: str = ''


class WorkerBoard(AlarmBoard):
    """The alarm clock of the run, and the time since which it has been in its phase, for the heartbeat to see."""

    def __init__(self, limits: WatchdogOptions) -> None:
        super().__init__(limits)
        self._since_s = time.monotonic()

    def enter(self, phase: WorkerPhase, episode_s: float = 0.0) -> None:
        self._since_s = time.monotonic()
        super().enter(phase, episode_s)

    @property
    def is_hanging(self) -> bool:
        """Whether a call has outlasted even its alarm: only another process image helps."""
        limit_s = self._limits_s.get(self._phase)
        return limit_s is not None and time.monotonic() - self._since_s > limit_s + HANG_SLACK_S

    @property
    def is_asking(self) -> bool:
        """Whether the call under way is the policy's to answer."""
        return self._phase is WorkerPhase.POLICY


class CellStation(Station):
    """One cell and whoever comes to act on it; what they do goes into a bundle."""

    def __init__(self, cell: CellOptions, *, name: str, interrupts: Interrupts) -> None:
        super().__init__()
        self._cell, self._name, self._interrupts = cell, name, interrupts
        self._entry: HostEntry | None = None
        self._guarded: GuardedHost | None = None
        self._has_opened = False
        self._scorer = ViewScorer()
        self.board: WorkerBoard | None = None
        self.most_bundle_bytes = BUNDLE_LIMITS.max_bytes  # that the server takes
        self.dial_allow: tuple[str, ...] = ()  # as the server's operator says, from the registration on
        self.private_addresses: tuple[str, ...] = ()

    def describe(self) -> HostSpec | None:
        """What the host says of itself under the cell's own options; None if it cannot be opened with these alone."""
        entry = HostEntry(self._cell.host, self._cell.options)
        try:
            with WorkerBoard(WatchdogOptions()) as board:
                board.enter(WorkerPhase.START)
                self._host = open_host(inspected_entry(entry, checks_reset=self._cell.checks_reset))
        except Exception:  # whatever a host raises: its first job says what is wrong
            self.close()
            return None
        self._entry, self._has_opened = entry, True
        return self._host.spec

    def run(self, job: Job, link: ClientLink | None) -> Attempt:
        """Run one attempt of a job to its bundle; NotBegun if it could not begin."""
        plan = job.read_plan()
        board = self.board = WorkerBoard(plan.watchdog)
        with board, contextlib.ExitStack() as afterwards:
            afterwards.callback(setattr, self, 'board', None)
            board.enter(WorkerPhase.START)
            host = self._open(plan)
            host.limit_calls(plan.watchdog.host_s)
            board.enter(WorkerPhase.IDLE)  # meeting the policy has limits of its own
            arrivals_s: Mapping[int, float] = {}
            try:
                policy, arrivals_s = self._policy(job, plan, host, link)
            except EpisodeStop as stop:
                rollout = rollout_of_fault(stop.fault)
            else:
                if isinstance(policy, ClosablePolicy):
                    afterwards.callback(policy.close)
                rollout = self._run(
                    plan, job.read_slot(), host, policy, seed=job.loop_seed, board=board, thinking_s=job.thinking_s,
                    execute=job.dial.execute if job.dial is not None else None,
                    limits=stricter(plan.loop.limits, self._cell.limits),
                )  # fmt: skip
            board.enter(WorkerPhase.STORE)
        if rollout.fault is not None and not rollout.fault.kind.is_the_policys:
            self.close()
        return self._attempt(job, host, rollout, arrivals_s)

    @property
    def n_steps(self) -> int:
        """Control steps of the episode so far."""
        return len(self._guarded.step_times_s) if self._guarded is not None else 0

    def stop_now(self) -> None:
        if self._guarded is not None:
            self._guarded.stop()

    def leave(self) -> None:
        """Let everything go."""
        self._scorer.close()
        self.close()

    def close(self) -> None:
        self._guarded = None
        super().close()

    def check(self, job: Job) -> str:
        """Open the cell and reset it as for `job`: what is wrong with it, or nothing."""
        try:
            host = self._open(job.read_plan())
            host.limit_calls(job.read_plan().watchdog.host_s)
            setup = setup_of(job.read_slot())
            host.prepare(dataclasses.replace(setup, condition='nominal', condition_parameters={}))
            host.reset(setup.task, seed=setup.seed)
        except Exception as error:  # whatever a host raises, it is not fit for service
            self.close()
            return f'{type(error).__name__}: {error}'
        return ''

    def _open(self, plan: TrialPlan) -> GuardedHost:
        if plan.host.use != self._cell.host:
            problem = f'the benchmark wants host {plan.host.use}, this cell is {self._cell.host}'
            raise NotBegun(ErrorCode.WORKER_FAILED, problem)
        entry = dataclasses.replace(plan.host, options={**plan.host.options, **self._cell.options})
        if self._host is None or self._entry != entry:
            self.close()
            try:
                self._host = open_host(inspected_entry(entry, checks_reset=self._cell.checks_reset))
            except Exception as error:
                may_be_ours = self._cell.options and not self._has_opened  # once it has opened, they are not wrong
                if isinstance(error, InputError) and not may_be_ours:
                    raise NotBegun(ErrorCode.WORKER_FAILED, str(error), is_plans=True) from error
                raise NotBegun(ErrorCode.WORKER_FAILED, f'host crash: {error}') from error
            self._entry, self._has_opened = entry, True
        try:
            self._guarded = GuardedHost(
                self._host, interrupts=self._interrupts, workspace=self._cell.workspace,
                checks_reset=self._cell.checks_reset,
            )  # fmt: skip
        except InputError as error:
            raise NotBegun(ErrorCode.WORKER_FAILED, str(error)) from error
        try:
            check_host_fits(plan, self._guarded)
        except InputError as error:
            raise NotBegun(ErrorCode.WORKER_FAILED, str(error), is_plans=True) from error
        return self._guarded

    def _policy(
        self, job: Job, plan: TrialPlan, host: GuardedHost, link: ClientLink | None
    ) -> tuple[Policy, Mapping[int, float]]:
        """The policy at the other end, fitted; and when its answers arrive, if that is known.

        EpisodeStop if there is none, it says nothing, refuses or does not fit: the attempt is used, and it has failed.
        Whoever could leave the greeting without loss would leave it until the cell or the moment suits.
        """
        entry = job.dial or PolicyEntry('platform')
        arrivals_s: Mapping[int, float] = {}
        try:
            if link is None:
                policy: Policy = open_dialled(
                    entry, code=job.code, seed=job.policy_seed, allowed=self.dial_allow, private=self.private_addresses
                )
            else:
                answer_s = 0.95 * plan.watchdog.policy_s  # before the alarm, which would tell less
                spec = greet(link, host.spec, answer_s=answer_s, thinking_s=job.thinking_s, timeout_s=GREET_S)
                at_link = LinkPolicy(
                    link, spec, code=job.code, seed=job.policy_seed, answer_s=answer_s, hold=lambda: _hold(host)
                )
                policy, arrivals_s = at_link, at_link.arrivals_s
            check_policy_fits(plan, host, policy, name=ARM, shown=job.code, entry=entry)
        except Stopped as error:
            raise NotBegun(ErrorCode.EMERGENCY_STOP, 'emergency stop') from error
        except RigError as error:  # of the link alone: the server took the lease back, and waits for nothing
            raise NotBegun(ErrorCode.LEASE_VOID, str(error)) from error
        except SetupError as error:  # this machine lacks what the wire needs
            raise NotBegun(ErrorCode.WORKER_FAILED, str(error)) from error
        except InputError as error:
            summary = 'it does not fit the host' if job.blinded else f'it does not fit the host: {error}'
            raise EpisodeStop(Fault(FaultKind.POLICY_ANSWER, summary)) from error
        except Exception as error:  # whatever its words made our side raise: a cell does not fall for it
            raise policy_fault(error, step=0) from error
        return policy, arrivals_s

    def _attempt(self, job: Job, host: GuardedHost, rollout: Rollout, arrivals_s: Mapping[int, float]) -> Attempt:
        context, slot = job.context(operator=self._name), job.read_slot()
        if rollout.fault is not None and job.blinded and rollout.fault.kind.is_the_policys:
            rollout = dataclasses.replace(rollout, fault=Fault(rollout.fault.kind, rollout.fault.summary))
        trajectory = rollout.trajectory
        is_measured = context.plan.loop.latency.mode is not LatencyMode.INJECTED and 'latency' not in rollout.applied_by
        if trajectory is not None and arrivals_s and is_measured:
            trajectory = with_transport(
                trajectory, arrivals_s=arrivals_s, answers=rollout.answers, steps_s=host.step_times_s
            )
        episode, fault = context.finished(slot, job.attempt, rollout)
        checked = 'as planned' if host.is_reset_checked and not host.reset_fault else 'not checked'
        episode = episode.replace(labels={**episode.labels, 'reset_check': host.reset_fault or checked})
        if trajectory is not None and episode.is_valid:
            episode = with_geometry(episode, trajectory)
        files = dict(rollout.media)
        analysis = context.plan.analysis  # whoever has views fresh should score them where the analysis looks at them
        wants_score = analysis is not None and analysis.success.wants_cameras
        if wants_score and episode.is_valid and all(name in files for name in VIEWS):
            files[OWN_SCORE] = pack_own_score(episode, files, self._scorer.score(files), by=self._name)
        media, trajectory = context.parts(episode, fault=fault, trajectory=trajectory, files=files)
        bundle = pack_fitting(episode, trajectory=trajectory, media=media, most_bytes=self.most_bundle_bytes)
        return Attempt(
            episode=episode, bundle=bundle, fault=fault, n_steps=rollout.n_steps, reset_fault=host.reset_fault
        )  # fmt: skip


def _hold(host: GuardedHost) -> Action:
    """An action that is never carried out: it stands for the answer that the emergency stop did not wait for."""
    return host.hold() if Ability.HOLD in host.abilities else np.zeros(host.spec.action.width)


def with_geometry(episode: Episode, trajectory: Trajectory) -> Episode:
    """The episode with its 3D placement score, where the scene has a target box; else as it is."""
    from robotrials.measure.geometry.score import score_recorded_pose, with_placement

    if episode.outcome is Outcome.INVALID or episode.score is not None:
        return episode
    try:
        return with_placement(episode, score_recorded_pose(trajectory), source='recorded_pose')
    except (NotEstimable, InputError):
        return episode


def error_code(fault: Fault) -> ErrorCode:
    """What a client is told of the fault that ended its episode."""
    return {
        FaultKind.POLICY_ANSWER: ErrorCode.BAD_ACTION,
        FaultKind.POLICY_LATE: ErrorCode.TIMEOUT,
        FaultKind.POLICY_SILENT: ErrorCode.TIMEOUT,
        FaultKind.POLICY_HANG: ErrorCode.TIMEOUT,
        FaultKind.POLICY_CRASH: ErrorCode.POLICY_FAILED,
    }.get(fault.kind, ErrorCode.WORKER_FAILED)
