"""Asking a policy, here or in the background, and reading what it answers."""

from __future__ import annotations

import math
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run.fault import EpisodeStop, Fault, FaultKind, crash, policy_fault
from robotrials.run.seam import Chunk, FloatArray, Observation, Session


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
        found = f'{actions.shape} of {actions.dtype}'
        summary = f'actions at step {step} are {found}, declared {shape}'
        raise EpisodeStop(Fault(FaultKind.POLICY_ANSWER, summary))
    with np.errstate(over='ignore'):
        numbers: FloatArray = actions.astype(float, copy=False)
    if not np.isfinite(numbers).all():
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
