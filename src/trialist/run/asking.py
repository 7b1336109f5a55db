"""Asking a policy in the background, so that control can go on while it thinks."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass

from trialist.run.seam import Chunk, Observation, Session


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
