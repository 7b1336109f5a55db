"""The control loop: one episode of one policy on one host, at the host's rate, in wall-clock or virtual time.

An episode with cap T takes at most floor(T * rate) actions. The outcome is the host's, or TIMEOUT at the cap.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trialist.episodes import Event, Outcome, Scene, Trajectory
from trialist.episodes.episode import ParameterValue
from trialist.errors import InputError
from trialist.run.asking import Answer, Asker, ask_now
from trialist.run.condition import AppliedCondition
from trialist.run.convention import Target
from trialist.run.fault import EpisodeStop, Fault, FaultKind, crash, policy_fault
from trialist.run.latency import NO_DELAY, Delay, charged_delay
from trialist.run.limit import Limiter
from trialist.run.phase import NoBoard, Phase, PhaseBoard
from trialist.run.plan import Clock, LatencyMode, LatencyOptions, LoopOptions, RecordingOptions, Waiting
from trialist.run.recorder import Recorder
from trialist.run.seam import (
    Action,
    ClosablePolicy,
    DescribedHost,
    FloatArray,
    HoldingHost,
    Host,
    HostReport,
    InstructingHost,
    MeasuredHost,
    Observation,
    Policy,
    PreparedHost,
    ReportingHost,
    Session,
    Setup,
)
from trialist.run.views import ViewKeeper

T = TypeVar('T')
STEP_SLACK = 1e-9
MEASURED = LatencyOptions(mode=LatencyMode.MEASURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How an episode is to be run: everything but host, policy and set-up."""

    time_cap_s: float
    policy_seed: int
    loop: LoopOptions = field(default_factory=LoopOptions)
    recording: RecordingOptions = field(default_factory=RecordingOptions)
    execute: int | None = None
    policy_limit_s: float = 60.0  # for questions asked in the background


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
    media: Mapping[str, bytes] = field(default_factory=dict)  # films and views, by their names within the episode


def run_episode(host: Host, policy: Policy, setup: Setup, *, order: Order, board: PhaseBoard | None = None) -> Rollout:
    """Run one episode to its end; a fault of host or policy ends it and is part of the result."""
    loop = ControlLoop(host, policy, setup, order=order, board=board or NoBoard())
    fault: Fault | None = None
    try:
        loop.begin()
        while loop.is_open:
            loop.run_chunk()
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
        # Asked once: isinstance over a Protocol costs more than a control step of a fast host.
        self._measured = host if isinstance(host, MeasuredHost) else None
        self._holding = host if isinstance(host, HoldingHost) else None
        self._keeper = ViewKeeper(host, order.recording)
        self._dt_s = 1.0 / self._spec.control_rate_hz
        self._most_steps = most_steps(order.time_cap_s, self._spec.control_rate_hz)
        chunk_length = policy.spec.chunk_length
        self._execute = min(order.execute or policy.spec.execute or chunk_length, chunk_length)
        self._is_remote = policy.spec.is_remote
        self._chunk_shape = (chunk_length, self._spec.action.width)
        self._is_wall = order.loop.clock is Clock.WALL
        self._rng = np.random.default_rng(order.policy_seed)
        self._session: Session | None = None
        self._asker: Asker | None = None
        self._recorder: Recorder | None = None
        self._extra: Delay | None = None  # of the answer at hand, by the condition
        self._rest: FloatArray = np.empty((0, self._spec.action.width))
        self._outcome: Outcome | None = None
        self._started_at: dt.datetime | None = None
        self._started_s = self._next_tick_s = 0.0
        self._clock: list[tuple[float, float]] = []  # the host's time after each step, and the loop's
        self._elapsed_s = 0.0
        self._was_reset = False
        self.n_steps = 0
        self.is_open = False

    # --- the three stages

    def begin(self) -> None:
        """Prepare and reset the host, then start the policy's session."""
        host, setup = self._host, self._setup
        if isinstance(host, PreparedHost):
            self._call_host(lambda: host.prepare(self._applied.host_setup(setup)))
        observation = self._call_host(lambda: host.reset(setup.task, seed=setup.seed))
        self._take(observation, step=0)
        self._was_reset = True
        self._call_host(self._keeper.begin)
        canonical = setup.instruction
        if isinstance(host, InstructingHost) and not canonical:
            canonical = self._call_host(host.instruction)
        self._applied = self._call_host(lambda: self._applied.with_words(canonical))
        setup = self._applied.policy_setup(setup, canonical)
        start = self._call_host(self._holding.hold) if self._holding is not None else None
        self._last_sent: Action | None = start
        limits = self._order.loop.limits
        self._limiter = Limiter(limits, self._spec.action, dt_s=self._dt_s, start=start)
        if self._order.recording.trajectories:
            self._recorder = self._new_recorder()
        self._board.enter(Phase.POLICY, self._elapsed_s)
        try:
            self._session = self._policy.start(setup, seed=self._order.policy_seed)
        except (Exception, SystemExit) as error:
            raise policy_fault(error, step=0) from error
        self._outcome = self._call_host(host.outcome)
        self.is_open = self._outcome is None and self._most_steps > 0
        if self._is_wall:
            self._asker = Asker(self._session)
            self._started_at = dt.datetime.now(dt.UTC)
            self._started_s = self._next_tick_s = time.monotonic()
            self._clock = [(self._observation.t_s, 0.0)]

    def run_chunk(self) -> None:
        """One question, the wait for its answer, and the first k of its h actions."""
        actions, delay = self._ask_in_background() if self._asker is not None else self._ask_and_charge()
        self._rest = actions[self._execute :]
        for action in actions[: self._execute]:
            if not self.is_open:
                return
            self._advance(action, raw=action, delay=delay)
            delay = None

    def finish(self, fault: Fault | None) -> Rollout:
        """Close the session and gather what is known, however the episode ended."""
        self._close_session()
        report = HostReport()
        is_host_sound = fault is None or fault.kind.is_the_policys
        if is_host_sound:
            self._keeper.end()
        if isinstance(self._host, ReportingHost) and is_host_sound and self._was_reset:
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
        return Rollout(
            outcome=outcome,
            fault=fault,
            n_steps=self.n_steps,
            duration_s=self._elapsed_s,
            report=report,
            trajectory=trajectory,
            started_at=self._started_at,
            condition_parameters=self._applied.parameters,
            applied_by=self._applied.account,
            media=self._keeper.media,
        )

    # --- asking

    def _ask_and_charge(self) -> tuple[FloatArray, Delay | None]:
        """Virtual time: the world stands still during the call, then is charged for it."""
        self._board.enter(Phase.POLICY, self._elapsed_s)
        answer = ask_now(self._open_session(), _read_only(self._observation))
        actions, delay = self._accept(answer)
        if delay is not None:
            for _ in range(delay.steps(self._dt_s)):
                if not self.is_open:
                    break
                self._advance(self._waiting_action(), raw=None, delay=None)
        return actions, delay or (self._taken(answer) if self._is_remote else None)

    def _taken(self, answer: Answer) -> Delay:
        """What an answer took, for the record alone."""
        inference_s = answer.chunk.inference_s if answer.chunk is not None else None
        return charged_delay(
            MEASURED, elapsed_s=answer.elapsed_s, inference_s=inference_s, transport_s=None, rng=self._rng
        )

    def _ask_in_background(self) -> tuple[FloatArray, Delay | None]:
        """Wall clock: control goes on at its rate until the answer is there (and its injected delay is over)."""
        asker = self._asker
        if asker is None:
            raise RuntimeError('no policy thread in virtual time')
        asked_s = time.monotonic()
        asker.ask(_read_only(self._observation))
        answer: Answer | None = None
        accepted: tuple[FloatArray, Delay | None] | None = None
        while self.is_open:
            if answer is None:
                answer = asker.wait(self._next_tick_s - time.monotonic())
            if answer is not None and accepted is None:
                accepted = self._accept(answer)
            now_s = time.monotonic()
            wait_s = math.inf
            if accepted is not None and answer is not None:
                wait_s = self._injected_s(accepted[1], answer)
            if accepted is not None and now_s >= asked_s + wait_s - STEP_SLACK:
                return accepted
            if answer is None and now_s - asked_s > self._order.policy_limit_s:
                summary = f'no answer within {self._order.policy_limit_s:g} s at step {self.n_steps}'
                raise EpisodeStop(Fault(FaultKind.POLICY_HANG, summary))
            self._advance(self._waiting_action(), raw=None, delay=None)
        return np.empty((0, self._chunk_shape[1])), None

    def _injected_s(self, delay: Delay | None, answer: Answer) -> float:
        """How long after the question an answer may be acted on; what was measured has passed by itself."""
        if delay is None:
            return 0.0
        if self._order.loop.latency.mode is LatencyMode.INJECTED:
            return delay.total_s
        return answer.elapsed_s + self._extra.total_s if self._extra is not None else 0.0

    def _accept(self, answer: Answer) -> tuple[FloatArray, Delay | None]:
        """The actions of an answer, if they are what the policy declared, and what they cost."""
        if answer.error is not None:
            raise policy_fault(answer.error, step=self.n_steps) from answer.error
        limit_s = self._order.loop.deadline_s
        if limit_s is not None and answer.elapsed_s > limit_s:
            summary = f'an answer at step {self.n_steps} took longer than the deadline of {limit_s:g} s'
            raise EpisodeStop(Fault(FaultKind.POLICY_LATE, summary, f'it took {answer.elapsed_s:.3f} s'))
        actions, _ = self._read_answer(answer)
        if actions.shape != self._chunk_shape or actions.dtype.kind not in 'fiu':
            found = f'{actions.shape} of {actions.dtype}'
            summary = f'actions at step {self.n_steps} are {found}, declared {self._chunk_shape}'
            raise EpisodeStop(Fault(FaultKind.POLICY_ANSWER, summary))
        with np.errstate(over='ignore'):
            numbers: FloatArray = actions.astype(float, copy=False)
        if not np.isfinite(numbers).all():
            summary = f'actions at step {self.n_steps} are not finite'
            raise EpisodeStop(Fault(FaultKind.POLICY_ANSWER, summary))
        return numbers, self._charge(answer)

    def _read_answer(self, answer: Answer) -> tuple[NDArray[Any], float | None]:
        """The actions and the inference time of an answer; what can't be read as such is the policy's fault."""
        try:
            actions = np.asarray(getattr(answer.chunk, 'actions', answer.chunk))
            inference_s = getattr(answer.chunk, 'inference_s', None)
            if inference_s is not None:
                inference_s = float(inference_s)
                if not (math.isfinite(inference_s) and inference_s >= 0):
                    raise ValueError(f'inference_s is {inference_s}, wanted a finite number >= 0')
        except Exception as error:
            stop = crash(FaultKind.POLICY_ANSWER, error, step=self.n_steps)
            summary = f'the answer at step {self.n_steps} cannot be read as actions and a time'
            raise EpisodeStop(Fault(FaultKind.POLICY_ANSWER, summary, stop.fault.text)) from error
        return actions, inference_s

    def _charge(self, answer: Answer) -> Delay | None:
        """What an answer costs: as the plan says, and what the condition adds to it; None where nothing is charged."""
        self._extra = self._applied.delay(self.n_steps)
        options = self._order.loop.latency
        if options.mode is LatencyMode.NONE and not self._is_wall:
            return self._extra
        if options.mode is LatencyMode.NONE:
            options = MEASURED
        delay = charged_delay(
            options,
            elapsed_s=answer.elapsed_s,
            inference_s=self._read_answer(answer)[1],
            transport_s=self._spec.transport_latency_s,
            rng=self._rng,
        )
        extra = self._extra or NO_DELAY
        return delay.plus(extra.network_s, extra.inference_s, extra.transport_s)

    def _waiting_action(self) -> Action:
        if self._order.loop.latency.waiting is Waiting.CONTINUE and len(self._rest):
            action: Action = self._rest[0]
            self._rest = self._rest[1:]
            return action
        if self._holding is not None:
            return self._call_host(self._holding.hold)
        return idle_action(self._host, self._last_sent)

    # --- the world

    def _advance(self, action: Action, *, raw: Action | None, delay: Delay | None) -> None:
        """One control step: limit the action, keep to the rate, step the host, look at the verdict, record."""
        sent = self._limiter.clip(action)
        if self._is_wall:
            self._keep_rate()
        self._board.enter(Phase.HOST, self._elapsed_s)
        try:
            observation = self._host.step(sent)
            outcome = self._host.outcome()
        except (Exception, SystemExit) as error:
            raise crash(FaultKind.HOST_CRASH, error, step=self.n_steps) from error
        if self._observation.state.tobytes() != self._seen_state:
            raise self._changed('state')
        if self.n_steps == 0:
            self._check_images_kept()
        self._take(observation, step=self.n_steps + 1)
        self._last_sent = sent
        self._outcome = outcome
        self.n_steps += 1
        self._elapsed_s = time.monotonic() - self._started_s if self._is_wall else self.n_steps * self._dt_s
        if self._is_wall:
            self._clock.append((self._observation.t_s, self._elapsed_s))
        if self._recorder is not None:
            self._record(self._recorder, raw=raw, sent=sent, delay=delay)
        if self._keeper.is_timed:
            self._call_host(lambda: self._keeper.step(self._elapsed_s))
        self.is_open = outcome is None and self.n_steps < self._most_steps

    def _record(self, recorder: Recorder, *, raw: Action | None, sent: Action, delay: Delay | None) -> None:
        signals = self._signals()
        try:
            recorder.record(self._elapsed_s, self._observation, raw=raw, sent=sent, delay=delay, signals=signals)
        except Exception as error:  # signals that change their shape or are no numbers
            raise crash(FaultKind.HOST_ANSWER, error, step=self.n_steps) from error

    def _signals(self) -> Mapping[str, Any] | None:
        if self._measured is None:
            return None
        try:
            return self._measured.signals()
        except Exception as error:
            raise crash(FaultKind.HOST_CRASH, error, step=self.n_steps) from error

    def _keep_rate(self) -> None:
        """Sleep until the next tick; after a step that took too long, start counting anew instead of hurrying."""
        now_s = time.monotonic()
        if now_s < self._next_tick_s:
            time.sleep(self._next_tick_s - now_s)
        elif now_s > self._next_tick_s + self._dt_s:
            self._next_tick_s = now_s
        self._next_tick_s += self._dt_s

    def _take(self, observation: Observation, *, step: int) -> None:
        """Check an observation against what the host declared, and remember it as the policy will see it."""
        state: Any = getattr(observation, 'state', None)
        if not isinstance(state, np.ndarray) or state.shape != (self._spec.state_width,):
            found = f'{type(observation).__name__} with state of shape {np.shape(state)}'
            raise self._bad_answer(f'{found}, declared ({self._spec.state_width},)')
        if not np.isfinite(state).all():
            raise self._bad_answer('the state is not finite')
        for camera, size in self._spec.images.items():
            if camera not in observation.images or observation.images[camera].shape != (*size, 3):
                raise self._bad_answer(f'no image of camera {camera} with shape {(*size, 3)}')
        self._observation = observation = self._applied.show(observation, step=step)
        self._seen_state = state.tobytes()
        if self.n_steps == 0:
            self._seen_images = {camera: image.tobytes() for camera, image in observation.images.items()}

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
        self._board.enter(Phase.HOST, self._elapsed_s)
        try:
            return call()
        except (Exception, SystemExit) as error:
            raise crash(FaultKind.HOST_CRASH, error, step=self.n_steps) from error

    # --- small things

    def _new_recorder(self) -> Recorder:
        scene: Scene | None = None
        if isinstance(self._host, DescribedHost):
            scene = self._call_host(self._host.scene)
        is_charged = self._is_wall or self._order.loop.latency.mode is not LatencyMode.NONE
        return Recorder(
            self._spec,
            self._order.recording,
            most_steps=self._most_steps,
            with_latency=is_charged or self._applied.is_late or self._is_remote,
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
            self._board.enter(Phase.POLICY, self._elapsed_s)
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


def idle_action(host: Host, last_sent: Action | None) -> Action:
    """An action that keeps a host without `hold()` where it is: no motion for deltas, the gripper as it was."""
    convention = host.spec.action
    if convention.target is not Target.DELTA:
        raise InputError(
            f'host {host.spec.name} takes absolute targets and has no hold(), so it cannot be held while a policy '
            'thinks; give it hold(), or run with latency mode none in virtual time'
        )
    action = np.zeros(convention.width)
    if last_sent is not None and convention.width > convention.motion_width:
        action[-1] = last_sent[-1]
    return action


def _read_only(observation: Observation) -> Observation:
    """The observation with its arrays protected, so that a policy cannot write into the host's memory."""
    return Observation(
        observation.t_s,
        _locked(observation.state),
        {name: _locked(i) for name, i in observation.images.items()},
        {name: _locked(d) for name, d in observation.depth_m.items()},
        observation.cameras,
    )


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
