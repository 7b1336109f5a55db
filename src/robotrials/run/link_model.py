"""The link between arm and policy: questions, answers, and the time that both take.

Delayed feedback: at every control tick, what is sent to the policy, what arrives from it, and what the arm does.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run.condition import AppliedCondition
from robotrials.run.conditions import Delay
from robotrials.run.fault import EpisodeStop, Fault, FaultKind, crash, policy_fault
from robotrials.run.plan import Asking, LatencyMode, LatencyOptions, LatencySpread, UnderWay, Waiting
from robotrials.run.seam import (
    Action,
    ActionConvention,
    Chunk,
    ControlMode,
    FloatArray,
    Observation,
    Session,
    StepPart,
    Target,
    is_finite,
)

# Asking a policy, here or in the background, and reading what it answers.


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and how long it took; an exception is an answer too."""

    chunk: Chunk | None
    error: BaseException | None
    elapsed_s: float


class Asker:
    """One thread that puts questions to a session, one at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._questions: queue.SimpleQueue[Observation | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True, name='policy').start()

    def ask(self, observation: Observation) -> None:
        self._questions.put(observation)

    def wait(self, seconds: float) -> Answer | None:
        """The answer, or None if there is none within `seconds`."""
        try:
            return self._answers.get(timeout=seconds) if seconds > 0 else self._answers.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        self._questions.put(None)

    def _serve(self) -> None:
        while (question := self._questions.get()) is not None:
            self._answers.put(ask_now(self._session, question))


def ask_now(session: Session, observation: Observation) -> Answer:
    """Put one question and wait for the answer."""
    started = time.perf_counter()
    try:
        chunk = session.act(observation)
    except (Exception, SystemExit) as error:
        return Answer(None, error, time.perf_counter() - started)
    return Answer(chunk, None, time.perf_counter() - started)


def read_answer(
    answer: Answer, *, shape: tuple[int, int], step: int, deadline_s: float | None
) -> tuple[FloatArray, float | None]:
    """The actions (h, A) and the stated inference time of an answer; EpisodeStop if it is not what was declared."""
    if answer.error is not None:
        raise policy_fault(answer.error, step=step) from answer.error
    if deadline_s is not None and answer.elapsed_s > deadline_s:
        summary = f'an answer at step {step} took longer than the deadline of {deadline_s:g} s'
        raise EpisodeStop(Fault(FaultKind.POLICY_LATE, summary, f'it took {answer.elapsed_s:.3f} s'))
    actions, inference_s = _content(answer, step)
    if actions.shape != shape or actions.dtype.kind not in 'fiu':
        got = f'{actions.shape} of {actions.dtype}'
        summary = f'actions at step {step} are {got}, declared {shape}'
        raise EpisodeStop(Fault(FaultKind.POLICY_ANSWER, summary))
    numbers: FloatArray = actions
    if actions.dtype != np.float64:
        with np.errstate(over='ignore'):
            numbers = actions.astype(float)
    if not is_finite(numbers):
        raise EpisodeStop(Fault(FaultKind.POLICY_ANSWER, f'actions at step {step} are not finite'))
    return numbers, inference_s


def _content(answer: Answer, step: int) -> tuple[NDArray[Any], float | None]:
    """What can't be read as actions and a time is the policy's fault."""
    try:
        actions = np.asarray(getattr(answer.chunk, 'actions', answer.chunk))
        inference_s = getattr(answer.chunk, 'inference_s', None)
        if inference_s is not None:
            inference_s = float(inference_s)
            if not (math.isfinite(inference_s) and inference_s >= 0):
                raise ValueError(f'inference_s is {inference_s}, wanted a finite number >= 0')
    except Exception as error:
        stop = crash(FaultKind.POLICY_ANSWER, error, step=step)
        summary = f'the answer at step {step} cannot be read as actions and a time'
        raise EpisodeStop(Fault(FaultKind.POLICY_ANSWER, summary, stop.fault.text)) from error
    return actions, inference_s


# The time between an observation and its action: network, inference and transport, measured or as declared.
# What one exchange meets (RADAR, equation 2) is drawn from the episode's seed and the step of its observation. So it
# does not depend on the order in which messages are dealt with, and is the same in virtual and in wall-clock time.

NO_DELAY = Delay(0.0, 0.0, 0.0)
STREAM = 0x6C617465  # keeps these draws apart from the policy's own, which has the same seed


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one exchange: what is added to its three parts, and which of its two messages is lost."""

    delay: Delay
    is_observation_lost: bool = False
    is_answer_lost: bool = False


class Fates:
    """The fate of every exchange of one episode: what the plan injects, and what the condition adds."""

    def __init__(self, options: LatencyOptions, condition: AppliedCondition, *, seed: int) -> None:
        self._options, self._condition, self._seed = options, condition, seed
        parts = (options.network_s, options.inference_s, options.transport_s)
        self._is_drawn = bool(options.jitter or options.loss) or any(isinstance(p, LatencySpread) for p in parts)
        self._is_injected = options.mode is LatencyMode.INJECTED
        fixed = [0.0 if isinstance(p, LatencySpread) else float(p) for p in parts]
        self._fixed = Fate(Delay(*fixed))
        self._parts = parts

    @property
    def is_late(self) -> bool:
        """Whether the condition adds to it."""
        return self._condition.is_late

    def of(self, step: int) -> Fate:
        """The fate of the exchange that begins with the observation of this step."""
        fate = self._drawn(step) if self._is_drawn else self._fixed
        extra = self._condition.delay(step)
        if extra is None:
            return fate
        return Fate(fate.delay.plus(extra), fate.is_observation_lost, fate.is_answer_lost)

    def _drawn(self, step: int) -> Fate:
        rng = np.random.default_rng((STREAM, self._seed, step))
        shares, normals, losses = rng.random(3), rng.standard_normal(3), rng.random(2)
        width = math.sqrt(math.log1p(self._options.jitter**2))
        delays = [
            (part.low_s + share * (part.high_s - part.low_s) if isinstance(part, LatencySpread) else part)
            * math.exp(width * normal - width * width / 2)
            for part, share, normal in zip(self._parts, shares.tolist(), normals.tolist(), strict=True)
        ]
        is_lost = losses < self._options.loss
        delay = Delay(*delays) if self._is_injected else NO_DELAY
        return Fate(delay, bool(is_lost[0]), bool(is_lost[1]))


def taken_delay(elapsed_s: float, inference_s: float | None, transport_s: float | None) -> Delay:
    """What an answer really took: the policy may say how much of it was inference, and the rest is network."""
    thought_s = elapsed_s if inference_s is None else min(inference_s, elapsed_s)
    return Delay(elapsed_s - thought_s, thought_s, transport_s or 0.0)


# The line between arm and policy: messages that take their time, and a policy that is busy while it thinks.
# An observation arrives after the network's delay. The policy, when it is free, takes the newest that has arrived, is
# busy for its inference, and its answer arrives after the transport's. Older observations are dropped, answers to
# older observations than the one in effect are discarded, and lost messages never arrive. Times are the loop's, in
# seconds.

SLACK_S = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class SentObservation:
    """An observation on its way: when it was sent, when it arrives, and what the arm was doing when it was sent."""

    step: int
    sent_s: float
    arrives_s: float
    observation: Observation
    in_effect: int  # the number of the answer that drove the arm; -1 before the first
    played: float  # how many of its actions were carried out
    fate: Fate


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """An answer where it arrives. `delay` is what the record says it took; None where nothing is charged."""

    number: int
    seen_s: float  # the time of its observation
    arrives_s: float
    actions: FloatArray
    delay: Delay | None


@dataclass(frozen=True, slots=True)
class PolicyDealing:
    """How the line deals with the policy: whom it asks, and how it reads the answers."""

    ask: Callable[[SentObservation], Answer]  # virtual time: here and now
    show: Callable[[SentObservation], Observation]  # wall clock: what is given to the background
    read: Callable[[Answer, int], tuple[FloatArray, float | None]]
    gap_steps: int  # the policy takes no observation nearer than this to the last it took
    transport_s: float | None  # the host's own, if known
    is_kept: bool  # whether what an answer took is recorded although it is not charged


_by_step, _by_arrival = operator.attrgetter('step'), operator.attrgetter('arrives_s', 'number')


class Line:
    """The line in virtual time: the world stands still during a call, and is then charged for it."""

    def __init__(self, fates: Fates, options: LatencyOptions, reading: PolicyDealing) -> None:
        self._fates, self._options, self._reading = fates, options, reading
        self._is_measured = options.mode is LatencyMode.MEASURED
        self._inbox: list[SentObservation] = []
        self._outbox: list[Arrival] = []
        self._free_s = -math.inf
        self._last_step = -reading.gap_steps
        self._last_in_s = self._last_out_s = -math.inf
        self._numbers = 0
        self._newest = -1

    def send(self, observation: Observation, *, step: int, sent_s: float, in_effect: int, played: float) -> None:
        """Put an observation on its way to the policy."""
        fate = self._fates.of(step)
        if fate.is_observation_lost:
            return
        arrives_s = self._received_s(fate, sent_s=sent_s)
        if not self._options.reorder:
            arrives_s = self._last_in_s = max(arrives_s, self._last_in_s)
        self._inbox.append(SentObservation(step, sent_s, arrives_s, observation, in_effect, played, fate))

    def may_take(self, step: int) -> bool:
        """Whether the policy could still take this step's observation; once it is not, it never will be."""
        return step >= self._last_step + self._reading.gap_steps

    def arrivals(self, *, until_s: float) -> list[Arrival]:
        """The answers that arrive up to then and are not overtaken, first come first; each once."""
        while (at := self._next(until_s)) is not None:
            message, taken_s = at
            answer = self._reading.ask(message)
            self._answered(message, answer, taken_s=taken_s, ended_s=taken_s + answer.elapsed_s)
        return self._arrived(until_s)

    def _next(self, until_s: float) -> tuple[SentObservation, float] | None:
        """The next observation that the policy takes before then, and when."""
        if not self._inbox:
            return None
        eligible = [m for m in self._inbox if self.may_take(m.step)]
        if not eligible:
            return None
        taken_s = max(self._free_s, min([m.arrives_s for m in eligible]))
        if taken_s > until_s:
            return None
        newest = max([m for m in eligible if m.arrives_s <= taken_s + SLACK_S], key=_by_step)
        self._inbox = [m for m in self._inbox if m.step > newest.step]
        self._last_step = newest.step
        return newest, taken_s

    def _answered(self, message: SentObservation, answer: Answer, *, taken_s: float, ended_s: float) -> None:
        """Send an answer on its way; the policy is free again when it has thought."""
        actions, inference_s = self._reading.read(answer, message.step)
        fate = message.fate
        self._free_s = self._thought_s(fate, taken_s=taken_s, ended_s=ended_s)
        number, self._numbers = self._numbers, self._numbers + 1
        if fate.is_answer_lost:
            return
        arrives_s = self._free_s + self._transported_s(fate)
        if not self._options.reorder:
            arrives_s = self._last_out_s = max(arrives_s, self._last_out_s)
        delay = self._account(fate, taken_delay(answer.elapsed_s, inference_s, self._reading.transport_s))
        self._outbox.append(Arrival(number, message.sent_s, arrives_s, actions, delay))

    def _received_s(self, fate: Fate, *, sent_s: float) -> float:
        return sent_s + fate.delay.network_s

    def _thought_s(self, fate: Fate, *, taken_s: float, ended_s: float) -> float:
        return (ended_s if self._is_measured else taken_s) + fate.delay.inference_s

    def _transported_s(self, fate: Fate) -> float:
        own_s = self._reading.transport_s or 0.0
        return fate.delay.transport_s + (own_s if self._is_measured else 0.0)

    def _account(self, fate: Fate, taken: Delay) -> Delay | None:
        if self._is_measured:
            return fate.delay.plus(taken)
        if self._options.mode is LatencyMode.INJECTED or self._fates.is_late:
            return fate.delay
        return taken if self._reading.is_kept else None

    def _arrived(self, until_s: float) -> list[Arrival]:
        if not self._outbox:
            return []
        arrived = sorted([a for a in self._outbox if a.arrives_s <= until_s], key=_by_arrival)
        self._outbox = [a for a in self._outbox if a.arrives_s > until_s]
        kept = []
        for arrival in arrived:
            if arrival.number > self._newest:
                self._newest = arrival.number
                kept.append(arrival)
        return kept


class WallLine(Line):
    """The same in wall-clock time: the policy thinks in the background, and what is injected comes on top.

    Of an injected inference so much is waited for as the policy did not really take.
    """

    def __init__(
        self, fates: Fates, options: LatencyOptions, reading: PolicyDealing, *, asker: Asker, clock: Callable[[],
        float],
        limit_s: float,
    ) -> None:  # fmt: skip
        super().__init__(fates, options, reading)
        self._asker, self._clock, self._limit_s = asker, clock, limit_s
        self._asked: tuple[SentObservation, float] | None = None

    def send(self, observation: Observation, *, step: int, sent_s: float, in_effect: int, played: float) -> None:
        super().send(observation, step=step, sent_s=sent_s, in_effect=in_effect, played=played)
        self._attend(0.0)

    def arrivals(self, *, until_s: float) -> list[Arrival]:
        """As in virtual time; returns when the time has come."""
        while (now_s := self._clock()) < until_s:
            pending = [m.arrives_s for m in self._inbox if m.arrives_s > now_s]
            wake_s = min([until_s, *pending, *([self._free_s] if self._free_s > now_s else [])])
            self._attend(wake_s - now_s)
        self._attend(0.0)
        return self._arrived(until_s)

    def _attend(self, seconds: float) -> None:
        """Listen for the answer for so long, or sleep; then ask what there is to ask."""
        if self._asked is not None:
            message, taken_s = self._asked
            answer = self._asker.wait(seconds)
            if answer is not None:
                self._asked = None
                ended_s = taken_s + answer.elapsed_s
                self._answered(message, answer, taken_s=max(taken_s, message.sent_s), ended_s=ended_s)
            elif self._clock() - taken_s > self._limit_s:
                summary = f'no answer within {self._limit_s:g} s at step {message.step}'
                raise EpisodeStop(Fault(FaultKind.POLICY_HANG, summary))
        elif seconds > 0:
            time.sleep(seconds)
        if self._asked is None and (at := self._next(self._clock())) is not None:
            self._asked = at[0], self._clock()
            self._asker.ask(self._reading.show(at[0]))

    def _received_s(self, fate: Fate, *, sent_s: float) -> float:
        if fate.delay.network_s:
            return sent_s + fate.delay.network_s
        return min(sent_s, self._clock())  # handed over as soon as the host gives it, ahead of its tick

    def _thought_s(self, fate: Fate, *, taken_s: float, ended_s: float) -> float:
        if self._options.mode is LatencyMode.INJECTED:
            return max(ended_s, taken_s + fate.delay.inference_s)
        return ended_s + fate.delay.inference_s

    def _transported_s(self, fate: Fate) -> float:
        return fate.delay.transport_s  # the host's own passes by itself

    def _account(self, fate: Fate, taken: Delay) -> Delay | None:
        return fate.delay if self._options.mode is LatencyMode.INJECTED else fate.delay.plus(taken)


# What the arm does at each moment: the actions of the last answer, one a control step, and after them the waiting.
# Time is counted in substeps, K to a control step. An answer takes effect at the substep at which it arrives and
# replaces what is left of the one before; from there each of its actions lasts K substeps, whatever the control ticks.

SLACK = 1e-6  # a time that is a whole number of substeps but for rounding must not cost one more


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A part of a control step, and what it goes back to: the policy's own action where one begins."""

    part: StepPart
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
        return max(0, math.ceil((arrival.arrives_s - begins_s) / self._substep_s - SLACK))

    def _at(self, now: int, *, first: int) -> tuple[Played, int]:
        """What begins at this substep, and until when it could go on."""
        k, start = self._substeps, now - first
        index, since = divmod(now - self._starts, k)
        if index < len(self._actions):
            action = self._actions[index]
            ends = self._starts + (index + 1) * k
            return Played(StepPart(start, action, ends - first), raw=action if since == 0 else None), ends
        over = self._starts + len(self._actions) * k
        if len(self._actions) and now < over + self._repeats:
            return Played(StepPart(start, self._actions[-1], start + k)), over + self._repeats
        return Played(StepPart(start, self._still(start), start + k)), first + k

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


class Issue:
    """What the policy has said so far, to tell it which of its commands were not yet carried out."""

    def __init__(self, convention: ActionConvention, options: LatencyOptions, *, is_late: bool) -> None:
        is_velocity = convention.control_mode is ControlMode.JOINT_VELOCITY
        self._is_scaled = convention.target is Target.DELTA and not is_velocity
        self._motion_width, self._width = convention.motion_width, convention.width
        self._is_told = options.under_way is UnderWay.TOLD and is_late
        self._issued: dict[int, tuple[int, FloatArray]] = {}  # to which step's observation, and what may be played
        self._count = 0

    def add(self, step: int, actions: FloatArray) -> None:
        self._issued[self._count] = step, actions
        self._count += 1

    def shown(self, message: SentObservation) -> Observation:
        """The observation as the policy gets it: its arrays protected, and the commands under way with it."""
        protected = _protected(message.observation)
        if not self._is_told:
            return protected
        return dataclasses.replace(protected, under_way=self._under_way(message))

    def _under_way(self, message: SentObservation) -> FloatArray:
        """The commands (m, A) that come after what was carried out at the time of an observation.

        Each answer is taken to last until the next takes over, as it does when delays do not change. Of an action that
        was under way the rest of a displacement is left.
        """
        self._issued = {n: kept for n, kept in self._issued.items() if n >= message.in_effect}
        left: list[FloatArray] = [np.empty((0, self._width))]
        issued = sorted(self._issued.items())
        following_steps = [later for _, (later, _) in issued[1:]] + [message.step]
        for (number, (step, actions)), following in zip(issued, following_steps, strict=False):
            lasting = min(len(actions), following - step)
            played = message.played if number == message.in_effect else 0.0
            whole = math.floor(played)
            rest = actions[whole : max(lasting, whole)].copy()
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
    past = observation.past
    return Observation(
        observation.t_s,
        _locked(observation.state),
        _all_locked(observation.images),
        _all_locked(observation.depth_m),
        observation.cameras,
        past={step: _protected(earlier) for step, earlier in past.items()} if past else {},
    )


def _all_locked(arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    return {name: _locked(array) for name, array in arrays.items()} if arrays else {}


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    """A view that a policy cannot write the host's memory through."""
    view = array.view()
    view.setflags(write=False)
    return view
