"""Gathering questions of parallel clients into one, for policies that can answer several at once."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from robotrials.errors import InputError, NoAnswer

Q = TypeVar('Q')
A = TypeVar('A')


@dataclass(slots=True, eq=False)
class _Pending(Generic[Q, A]):
    question: Q
    done: threading.Event = field(default_factory=threading.Event)
    answer: A | None = None
    error: BaseException | None = None


class Batcher(Generic[Q, A]):
    """Answers questions of many threads by `answer_many`, at most `most` at a time, in one thread of its own.

    A question waits at most `wait_s` for others. An error of the batch goes to every thread that was in it.
    """

    def __init__(self, answer_many: Callable[[Sequence[Q]], Sequence[A]], *, most: int, wait_s: float) -> None:
        if most < 1 or not 0 <= wait_s < 60:
            raise InputError(f'a batch of {most} that waits {wait_s} s; wanted at least 1, and 0 to 60 s')
        self._answer_many, self._most, self._wait_s = answer_many, most, wait_s
        self._questions: queue.SimpleQueue[_Pending[Q, A] | None] = queue.SimpleQueue()
        self.sizes: list[int] = []  # of the last batches, newest last
        self._thread = threading.Thread(target=self._serve, daemon=True, name='batch')
        self._thread.start()

    def ask(self, question: Q, *, timeout_s: float) -> A:
        """The answer to one question; NoAnswer if it takes too long."""
        pending: _Pending[Q, A] = _Pending(question)
        self._questions.put(pending)
        if not pending.done.wait(timeout_s):
            raise NoAnswer(f'no answer within {timeout_s:g} s')
        if pending.error is not None:
            raise pending.error
        return pending.answer  # type: ignore[return-value]  # set whenever done is, unless error is

    def close(self) -> None:
        self._questions.put(None)
        self._thread.join(5.0)

    def _serve(self) -> None:
        while (batch := self._gather()) is not None:
            self.sizes = [*self.sizes[-99:], len(batch)]
            try:
                answers = self._answer_many([pending.question for pending in batch])
                if len(answers) != len(batch):
                    raise InputError(f'{len(answers)} answers to {len(batch)} questions')
                for pending, answer in zip(batch, answers, strict=True):
                    pending.answer = answer
            except BaseException as error:
                for pending in batch:
                    pending.error = error
            for pending in batch:
                pending.done.set()

    def _gather(self) -> list[_Pending[Q, A]] | None:
        first = self._questions.get()
        if first is None:
            return None
        batch, deadline_s = [first], time.monotonic() + self._wait_s
        while len(batch) < self._most:
            try:
                following = self._questions.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                break
            if following is None:
                self._questions.put(None)
                break
            batch.append(following)
        return batch
