"""The watchdog of a run inside the caller's own process: the system's alarm clock interrupts a call that hangs."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from robotrials.errors import NoAnswer
from robotrials.run.phase import NoBoard, Phase
from robotrials.run.plan import WatchdogOptions


class AlarmBoard(NoBoard):
    """Sets the alarm whenever the loop turns to a host or a policy; a context that leaves the signal as it was.

    A call that Python can interrupt ends as a fault of whoever was called. What never returns to Python (a loop in
    compiled code) can only be cut by ending a process: such runs want workers. Outside the main thread, and where
    somebody else uses the alarm, nobody watches.
    """

    def __init__(self, limits: WatchdogOptions) -> None:
        self._limits_s = {Phase.START: limits.start_s, Phase.HOST: limits.host_s, Phase.POLICY: limits.policy_s}
        self._phase = Phase.IDLE
        self._is_set = False

    def __enter__(self) -> Self:
        is_free = threading.current_thread() is threading.main_thread()
        if is_free and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
            signal.signal(signal.SIGALRM, self._ring)
            self._is_set = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_set:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            self._is_set = False

    def enter(self, phase: Phase, episode_s: float = 0.0) -> None:
        self._phase = phase
        if self._is_set:
            signal.setitimer(signal.ITIMER_REAL, self._limits_s.get(phase, 0.0))

    def _ring(self, number: int, frame: FrameType | None) -> None:
        limit_s = self._limits_s.get(self._phase)
        if limit_s is None:
            return  # the call came back just now
        if self._phase is Phase.POLICY:
            raise NoAnswer(f'no answer within {limit_s:g} s')
        raise TimeoutError(f'the host did not come back within {limit_s:g} s')
