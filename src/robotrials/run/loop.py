"""The control loop: one episode of one policy on one host, at the host's rate, in wall-clock or virtual time.

An episode with cap T takes at most floor(T * rate) actions. The outcome is the host's, or TIMEOUT at the cap.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from robotrials.record import Event, Outcome, Trajectory
from robotrials.record.episode import ParameterValue
from robotrials.run.arm_limit import Limiter
from robotrials.run.condition import AppliedCondition
from robotrials.run.fault import EpisodeStop, Fault, FaultKind, crash, policy_fault
from robotrials.run.host import Ability, Host, HostLike, as_host, idle_action
from robotrials.run.link_model import (
    Answer,
    Asker,
    Fates,
    Feedback,
    Issue,
    Line,
    Playback,
    Played,
    PolicyDealing,
    SentObservation,
    WallLine,
    ask_now,
    read_answer,
)
from robotrials.run.mark import NoBoard, PhaseBoard, WorkerPhase
from robotrials.run.plan import Asking, Clock, LatencyMode, LoopOptions, RecordingOptions
from robotrials.run.recording import Filmed, Recorder, SeenFrames, ViewKeeper, film_episode
from robotrials.run.seam import (
    Action,
    ActionConvention,
    ClosablePolicy,
    ControlMode,
    FloatArray,
    HostReport,
    Observation,
    Policy,
    Session,
    Setup,
    StepPart,
    Target,
    is_finite,
)

T = TypeVar('T')
STEP_SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How an episode is to be run: everything but host, policy and set-up."""

    time_cap_s: float
    policy_seed: int
    loop: LoopOptions = field(default_factory=LoopOptions)
    recording: RecordingOptions = field(default_factory=lambda: RecordingOptions(film=False))
    execute: int | None = None
    policy_limit_s: float = 60.0  # for questions asked in the background
    thinking_s: float | None = None  # for the start and all answers of an episode together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """What came of one episode. `outcome` is None if a fault ended it: the plan says what that counts as."""

    outcome: Outcome | None
    fault: Fault | None
    n_steps: int
    duration_s: float
    report: HostReport
    trajectory: Trajectory | None
    started_at: dt.datetime | None  # in wall-clock time only
    condition_parameters: Mapping[str, ParameterValue] | None = None  # as they were brought about; None: never begun
    applied_by: Mapping[str, str] = field(default_factory=dict)  # kind of condition -> world, frames, words or clock
    labels: Mapping[str, str] = field(default_factory=dict)  # how it was run, for the record
    answers: Mapping[int, int] = field(default_factory=dict)  # step -> number of the answer that took effect in it
    media: Mapping[str, bytes] = field(default_factory=dict)  # films and views, by their names within the episode
    film_note: str = ''  # why an episode that was to be filmed has no film


def run_episode(
    host: HostLike, policy: Policy, setup: Setup, *, order: Order, board: PhaseBoard | None = None
) -> Rollout:
    """Run one episode to its end; a fault of host or policy ends it and is part of the result."""
    loop = ControlLoop(as_host(host), policy, setup, order=order, board=board or NoBoard())
    fault: Fault | None = None
    try:
        loop.begin()
        while loop.is_open:
            loop.run_step()
    except EpisodeStop as stop:
        fault = stop.fault
    return loop.finish(fault)


def most_steps(time_cap_s: float, rate_hz: float) -> int:
    """The number of actions that fit under a cap."""
    return math.floor(time_cap_s * rate_hz + STEP_SLACK)


class ControlLoop:
    """The state of one running episode."""

    def __init__(self, host: Host, policy: Policy, setup: Setup, *, order: Order, board: PhaseBoard) -> None:
        self._host, self._policy, self._setup, self._order = host, policy, setup, order
        self._board = board
        self._spec = host.spec
        self._applied = AppliedCondition.of(setup, host)
        self._measures = Ability.SIGNALS in host.abilities
        self._holds = Ability.HOLD in host.abilities
        self._keeper = ViewKeeper(host, order.recording)
        self._dt_s = 1.0 / self._spec.control_rate_hz
        self._most_steps = most_steps(order.time_cap_s, self._spec.control_rate_hz)
        chunk_length = policy.spec.chunk_length
        self._execute = min(order.execute or policy.spec.execute or chunk_length, chunk_length)
        self._is_remote = policy.spec.is_remote
        self._moments = policy.spec.moments
        self._shown: deque[Observation] = deque(maxlen=1 - min(self._moments, default=0))  # the newest is last
        self._chunk_shape = (chunk_length, self._spec.action.width)
        self._is_wall = order.loop.clock is Clock.WALL
        self._substeps = 1
        self._session: Session | None = None
        self._asker: Asker | None = None
        self._recorder: Recorder | None = None
        self._outcome: Outcome | None = None
        self._started_at: dt.datetime | None = None
        self._started_s = self._next_tick_s = 0.0
        self._clock: list[tuple[float, float]] = []  # the host's time after each step, and the loop's
        self._elapsed_s = 0.0
        self._answers: dict[int, int] = {}
        self._thought_s = 0.0  # what the policy has used of its thinking budget
        options = order.recording.filming
        shows = options is not None and bool(self._spec.images) and Ability.FILM not in host.abilities
        self._seen_frames = SeenFrames(self._spec, options) if shows and options is not None else None
        self._was_reset = False
        self._is_late = False
        self.n_steps = 0
        self.is_open = False

        # Films and hashes of what was seen, earlier moments and disturbed frames want the pictures of every step.
        self._looks_always = bool(
            self._seen_frames is not None or self._moments or self._applied.application.by_frames
            or order.recording.frame_hashes
        )  # fmt: skip
        self._is_look_expected = True

    # --- the three stages

    def begin(self) -> None:
        """Prepare and reset the host, then start the policy's session."""
        host, setup = self._host, self._setup
        self._call_host(lambda: host.prepare(self._applied.host_setup(setup)))
        observation = self._call_host(lambda: host.reset(setup.task, seed=setup.seed))
        self._take(observation, step=0)
        self._was_reset = True
        self._call_host(self._keeper.begin)
        canonical = setup.instruction
        if not canonical:
            canonical = self._call_host(host.instruction)
        things = self._call_host(host.things)
        self._applied = self._call_host(lambda: self._applied.with_words(canonical, things=things))
        setup = self._applied.policy_setup(setup, canonical)
        start = self._call_host(host.hold) if self._holds else None
        self._last_sent: Action | None = start
        limits = self._order.loop.limits
        self._limiter = Limiter(limits, self._spec.action, dt_s=self._dt_s, start=start)
        self._board.enter(WorkerPhase.POLICY, self._elapsed_s)
        began_s = time.perf_counter()
        try:
            self._session = self._policy.start(setup, seed=self._order.policy_seed)
        except (Exception, SystemExit) as error:
            raise policy_fault(error, step=0) from error
        self._charge(time.perf_counter() - began_s, step=0)
        self._outcome = self._call_host(host.outcome)
        self.is_open = self._outcome is None and self._most_steps > 0
        self._feedback = self._new_feedback()
        if self._order.recording.trajectories:
            self._recorder = self._new_recorder()
        if self._is_wall:
            self._started_at = dt.datetime.now(dt.UTC)
            self._started_s = time.monotonic()
            self._clock = [(self._observation.t_s, 0.0)]

    def run_step(self) -> None:
        """One control step: the observation is sent, what arrives takes effect, and the host moves on."""
        begins_s = self._begins_s()
        if self._spec.images and not self._observation.images and self._feedback.asks(self.n_steps, begins_s):
            self._look()
        self._advance(self._feedback.step(self._observation, step=self.n_steps, begins_s=begins_s))

    def finish(self, fault: Fault | None) -> Rollout:
        """Close the session and gather what is known, however the episode ended."""
        self._close_session()
        report = HostReport()
        is_host_sound = fault is None or fault.kind.is_the_policys
        if is_host_sound:
            self._keeper.end()
        if is_host_sound and self._was_reset:
            try:
                report = self._call_host(self._host.report)
            except EpisodeStop as stop:
                fault = stop.fault
        if self._is_wall:
            report = dataclasses.replace(report, events=on_one_clock(report.events, self._clock))
        trajectory = None
        try:
            trajectory = self._recorder.trajectory() if self._recorder is not None else None
        except Exception as error:
            fault = fault or crash(FaultKind.HOST_ANSWER, error, step=self.n_steps).fault
        outcome = None if fault is not None else (self._outcome or Outcome.TIMEOUT)
        filmed = self._film(trajectory)
        return Rollout(
            outcome=outcome,
            fault=fault,
            n_steps=self.n_steps,
            duration_s=self._elapsed_s,
            report=report,
            trajectory=filmed.trajectory,
            started_at=self._started_at,
            condition_parameters=self._applied.parameters,
            applied_by=self._applied.account,
            media={**filmed.media, **self._keeper.media},
            film_note=filmed.note,
            labels=self._labels(),
            answers=self._answers,
        )

    def _film(self, trajectory: Trajectory | None) -> Filmed:
        setup = self._applied.host_setup(self._setup)
        beat = partial(self._board.enter, WorkerPhase.HOST, self._elapsed_s)
        options = self._order.recording.filming
        return film_episode(self._host, setup, trajectory, options=options, seen=self._seen_frames, beat=beat)

    # --- asking

    def _new_feedback(self) -> Feedback:
        """The line to the policy and the queue of its actions, as the plan and the condition have them."""
        options, order, spec = self._order.loop.latency, self._order, self._spec
        is_charged = self._is_wall or options.mode is not LatencyMode.NONE
        self._is_late = is_charged or self._applied.is_late
        if self._is_late:
            self._substeps = self._host.substeps
        playback = Playback(
            options, spec.action, substeps=self._substeps, execute=self._execute, dt_s=self._dt_s, hold=self._hold
        )
        issue = Issue(spec.action, options, is_late=self._is_late)

        def read(answer: Answer, step: int) -> tuple[FloatArray, float | None]:
            limit_s = order.loop.deadline_s
            self._charge(answer.elapsed_s, step=step)
            actions, inference_s = read_answer(answer, shape=self._chunk_shape, step=step, deadline_s=limit_s)
            issue.add(step, actions[: playback.length(actions)])
            return actions, inference_s

        def ask(message: SentObservation) -> Answer:
            self._board.enter(WorkerPhase.POLICY, self._elapsed_s)
            return ask_now(self._open_session(), issue.shown(message))

        gap = self._execute if options.asks is Asking.STREAM else 1
        reading = PolicyDealing(ask, issue.shown, read, gap, spec.transport_latency_s, self._is_remote)
        fates = Fates(options, self._applied, seed=order.policy_seed)
        if self._is_wall:
            self._asker = Asker(self._open_session())
            limit_s = order.policy_limit_s
            line: Line = WallLine(fates, options, reading, asker=self._asker, clock=self._clock_s, limit_s=limit_s)
        else:
            line = Line(fates, options, reading)
        return Feedback(line, playback, options, execute=self._execute)

    def _charge(self, seconds: float, *, step: int) -> None:
        """Take the time of an answer out of the budget: each one just inside its own limit would add up to hours."""
        self._thought_s += seconds
        limit_s = self._order.thinking_s
        if limit_s is not None and self._thought_s > limit_s:
            summary = f'its {limit_s:g} s of thinking for the whole episode were used up at step {step}'
            raise EpisodeStop(Fault(FaultKind.POLICY_LATE, summary))

    def _hold(self) -> Action:
        if self._holds:
            return self._call_host(self._host.hold)
        return idle_action(self._host, self._last_sent)

    # --- the world

    def _clock_s(self) -> float:
        return time.monotonic() - self._started_s

    def _begins_s(self) -> float:
        """When the control step begins: by count, or at the next tick of the wall clock.

        After a step that took too long, ticks are counted anew instead of hurried through.
        """
        if not self._is_wall:
            return self.n_steps * self._dt_s
        now_s = self._clock_s()
        if now_s > self._next_tick_s + self._dt_s:
            self._next_tick_s = now_s
        begins_s, self._next_tick_s = self._next_tick_s, self._next_tick_s + self._dt_s
        return begins_s

    def _asks_after_this_step(self) -> bool:
        step = self.n_steps + 1
        begins_s = self._next_tick_s if self._is_wall else step * self._dt_s
        return step < self._most_steps and self._feedback.asks(step, begins_s)

    def _advance(self, played: Sequence[Played]) -> None:
        """One control step: limit the actions, step the host, look at the verdict, record."""
        parts = self._limited(played)
        self._board.enter(WorkerPhase.HOST, self._elapsed_s)
        try:
            if self._spec.images:
                self._is_look_expected = self._looks_always or self._asks_after_this_step()
                self._host.expect_look(self._is_look_expected)
            if len(parts) == 1 and parts[0].ends == self._substeps:
                observation = self._host.step(parts[0].action)
            else:
                observation = self._host.step_through(parts)
            outcome = self._host.outcome()
        except (Exception, SystemExit) as error:
            raise crash(FaultKind.HOST_CRASH, error, step=self.n_steps) from error
        if self._observation.state.tobytes() != self._seen_state:
            raise self._changed('state')
        if self.n_steps == 0:
            self._check_images_kept()
        self._take(observation, step=self.n_steps + 1)
        self._last_sent = parts[-1].action
        self._outcome = outcome
        self.n_steps += 1
        self._elapsed_s = self._clock_s() if self._is_wall else self.n_steps * self._dt_s
        if self._is_wall:
            self._clock.append((self._observation.t_s, self._elapsed_s))
        if self._recorder is not None:
            self._record(self._recorder, played, sent=mean_action(parts, self._spec.action, substeps=self._substeps))
        if self._keeper.is_timed:
            self._call_host(lambda: self._keeper.step(self._elapsed_s))
        self.is_open = outcome is None and self.n_steps < self._most_steps

    def _limited(self, played: Sequence[Played]) -> list[StepPart]:
        if not self._limiter.is_active:
            return [p.part for p in played]
        ends = [p.part.start for p in played[1:]] + [self._substeps]
        limited = []
        for part, end in zip((p.part for p in played), ends, strict=True):
            action = self._limiter.clip(part.action, share=(end - part.start) / self._substeps)
            limited.append(dataclasses.replace(part, action=action))
        return limited

    def _record(self, recorder: Recorder, played: Sequence[Played], *, sent: Action) -> None:
        signals = self._signals()
        raw, late = None, None  # the last that there are
        for part in played:
            raw = raw if part.raw is None else part.raw
            late = late if part.age_s is None else part
        delay, age_s = (late.delay, late.age_s) if late is not None else (None, None)
        if late is not None and late.number is not None:
            self._answers[self.n_steps - 1] = late.number
        try:
            recorder.record(
                self._elapsed_s, self._observation, raw=raw, sent=sent, delay=delay, age_s=age_s, signals=signals
            )
        except Exception as error:  # signals that change their shape or are no numbers
            raise crash(FaultKind.HOST_ANSWER, error, step=self.n_steps) from error

    def _signals(self) -> Mapping[str, Any] | None:
        if not self._measures:
            return None
        try:
            return self._host.signals()
        except Exception as error:
            raise crash(FaultKind.HOST_CRASH, error, step=self.n_steps) from error

    def _take(self, observation: Observation, *, step: int) -> None:
        """Check an observation against what the host declared, and remember it as the policy will see it."""
        state: Any = getattr(observation, 'state', None)
        if not isinstance(state, np.ndarray) or state.shape != (self._spec.state_width,):
            got = f'{type(observation).__name__} with state of shape {np.shape(state)}'
            raise self._bad_answer(f'{got}, declared ({self._spec.state_width},)')
        if not is_finite(state):
            raise self._bad_answer('the state is not finite')
        if self._spec.images:
            self._check_images(observation)
        if self._seen_frames is not None:
            self._seen_frames.see(observation.images, step=step)
        self._observation = observation = self._applied.show(observation, step=step)
        if self._moments:
            self._shown.append(observation)
            # Before the episode's first observation there was none: it stands in for those before it.
            past = {moment: self._shown[max(moment - 1, -len(self._shown))] for moment in self._moments}
            self._observation = dataclasses.replace(observation, past=past)
        self._seen_state = state.tobytes()
        if self.n_steps == 0:
            self._seen_images = {camera: image.tobytes() for camera, image in observation.images.items()}

    def _check_images(self, observation: Observation) -> None:
        is_over = self.n_steps > 0 and self._host.outcome() is not None  # nobody will look any more
        if not observation.images and (not self._is_look_expected or is_over):
            return
        for camera, size in self._spec.images.items():
            image: Any = observation.images.get(camera)
            if not isinstance(image, np.ndarray) or image.shape != (*size, 3) or image.dtype != np.uint8:
                got = f'{np.shape(image)} of {getattr(image, "dtype", type(image).__name__)}'
                raise self._bad_answer(f'camera {camera} showed {got}, declared {(*size, 3)} of uint8')

    def _look(self) -> None:
        """Have the pictures drawn that a step left out."""
        observation = self._call_host(self._host.look)
        if observation.state.tobytes() != self._seen_state:
            raise self._changed('state')
        self._is_look_expected = True
        self._take(observation, step=self.n_steps)

    def _check_images_kept(self) -> None:
        # A host that reuses its image buffers does so from the first step on; later steps are not worth the copies.
        for camera, seen in self._seen_images.items():
            if self._observation.images[camera].tobytes() != seen:
                raise self._changed(f'image of camera {camera}')

    def _changed(self, what: str) -> EpisodeStop:
        return self._bad_answer(f'the {what} of an observation changed after it was handed out')

    def _bad_answer(self, detail: str) -> EpisodeStop:
        return EpisodeStop(Fault(FaultKind.HOST_ANSWER, f'{detail} (step {self.n_steps})'))

    def _call_host(self, call: Callable[[], T]) -> T:
        self._board.enter(WorkerPhase.HOST, self._elapsed_s)
        try:
            return call()
        except (Exception, SystemExit) as error:
            raise crash(FaultKind.HOST_CRASH, error, step=self.n_steps) from error

    # --- small things

    def _labels(self) -> dict[str, str]:
        """Which moments the policy was shown, and how latency was brought about: what the arm did meanwhile, who asked
        when, and how finely time was cut.
        """
        moments = ', '.join(map(str, (*self._moments, 0)))
        history = {'history': f'steps {moments}; the first observation stands in before it'} if self._moments else {}
        if not self._is_late:
            return history
        options = self._order.loop.latency
        manner = f'{options.waiting}, {options.asks}, commands under way {options.under_way}'
        return {**history, 'latency': manner, 'latency_resolution_s': repr(self._dt_s / self._substeps)}

    def _new_recorder(self) -> Recorder:
        scene = self._call_host(self._host.scene)
        return Recorder(
            self._spec,
            self._order.recording,
            most_steps=self._most_steps,
            with_latency=self._is_late or self._is_remote,
            with_age=self._is_late,
            scene=scene,
        )

    def _open_session(self) -> Session:
        if self._session is None:
            raise RuntimeError('the session was never started')
        return self._session

    def _close_session(self) -> None:
        if self._asker is not None:
            self._asker.close()
        session: object = self._session
        if isinstance(session, ClosablePolicy):
            self._board.enter(WorkerPhase.POLICY, self._elapsed_s)
            try:
                session.close()
            except Exception:
                # The episode is over and judged; the policy's trouble in letting go shows in its next episode.
                self._session = None


def on_one_clock(events: tuple[Event, ...], clock: Sequence[tuple[float, float]]) -> tuple[Event, ...]:
    """A host's events in the loop's time: the host counts from its reset by its own clock, the loop from its start.

    Between two steps time runs evenly; nothing lies before the first or after the last.
    """
    if not events or not clock:
        return events
    host_s, loop_s = np.array(clock).T
    if np.any(np.diff(host_s) < 0):  # no clock at all: keep what it says, within the episode
        return tuple(dataclasses.replace(e, t_s=min(max(e.t_s, 0.0), float(loop_s[-1]))) for e in events)
    return tuple(dataclasses.replace(e, t_s=float(np.interp(e.t_s, host_s, loop_s))) for e in events)


def mean_action(parts: Sequence[StepPart], convention: ActionConvention, *, substeps: int) -> Action:
    """What a host was given over a whole step: the last target, or the sum of the parts of displacements."""
    last = parts[-1].action
    is_velocity = convention.control_mode is ControlMode.JOINT_VELOCITY
    if len(parts) == 1 or (convention.target is Target.ABSOLUTE and not is_velocity):
        return last
    ends = [p.start for p in parts[1:]] + [substeps]
    shares = [(end - p.start) / substeps for p, end in zip(parts, ends, strict=True)]
    width = convention.motion_width
    motion = sum(share * p.action[:width] for share, p in zip(shares, parts, strict=True))
    return np.append(motion, last[width:])
