"""The line between arm and policy: messages that take their time, and a policy that is busy while it thinks.

An observation arrives after the network's delay. The policy, when it is free, takes the newest that has arrived, is
busy for its inference, and its answer arrives after the transport's. Older observations are dropped, answers to older
observations than the one in effect are discarded, and lost messages never arrive. Times are the loop's, in seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from robotrials.run.asking import Answer, Asker
from robotrials.run.conditions import Delay
from robotrials.run.fault import EpisodeStop, Fault, FaultKind
from robotrials.run.latency import Fate, Fates, taken_delay
from robotrials.run.plan import LatencyMode, LatencyOptions
from robotrials.run.seam import FloatArray, Observation

SLACK_S = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Message:
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
class Reading:
    """How the line deals with the policy: whom it asks, and how it reads the answers."""

    ask: Callable[[Message], Answer]  # virtual time: here and now
    show: Callable[[Message], Observation]  # wall clock: what is given to the background
    read: Callable[[Answer, int], tuple[FloatArray, float | None]]
    gap_steps: int  # the policy takes no observation nearer than this to the last it took
    transport_s: float | None  # the host's own, if known
    is_kept: bool  # whether what an answer took is recorded although it is not charged


class Line:
    """The line in virtual time: the world stands still during a call, and is then charged for it."""

    def __init__(self, fates: Fates, options: LatencyOptions, reading: Reading) -> None:
        self._fates, self._options, self._reading = fates, options, reading
        self._is_measured = options.mode is LatencyMode.MEASURED
        self._inbox: list[Message] = []
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
        self._inbox.append(Message(step, sent_s, arrives_s, observation, in_effect, played, fate))

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

    def _next(self, until_s: float) -> tuple[Message, float] | None:
        """The next observation that the policy takes before then, and when."""
        eligible = [m for m in self._inbox if self.may_take(m.step)]
        if not eligible:
            return None
        taken_s = max(self._free_s, min(m.arrives_s for m in eligible))
        if taken_s > until_s:
            return None
        newest = max((m for m in eligible if m.arrives_s <= taken_s + SLACK_S), key=lambda m: m.step)
        self._inbox = [m for m in self._inbox if m.step > newest.step]
        self._last_step = newest.step
        return newest, taken_s

    def _answered(self, message: Message, answer: Answer, *, taken_s: float, ended_s: float) -> None:
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
        arrived = sorted((a for a in self._outbox if a.arrives_s <= until_s), key=lambda a: (a.arrives_s, a.number))
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
        self, fates: Fates, options: LatencyOptions, reading: Reading, *, asker: Asker, clock: Callable[[], float],
        limit_s: float,
    ) -> None:  # fmt: skip
        super().__init__(fates, options, reading)
        self._asker, self._clock, self._limit_s = asker, clock, limit_s
        self._asked: tuple[Message, float] | None = None

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
