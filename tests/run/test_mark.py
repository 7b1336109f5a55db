"""The board that a parent reads while its worker writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.patience import PATIENCE_S

from robotrials.run.mark import PhaseBoard, WorkerPhase

WRITER = """
import os, sys
from robotrials.run.mark import (WorkerPhase, PhaseBoard)
board = PhaseBoard(os.fdopen(int(sys.argv[1]), 'r+b'))
while True:
    board.enter(WorkerPhase.HOST, 1.0)
    board.enter(WorkerPhase.POLICY, 2.0)
"""


def test_a_reader_never_sees_a_phase_that_began_long_ago() -> None:
    board = PhaseBoard.create()
    board.enter(WorkerPhase.IDLE)
    fd = os.dup(board.file.fileno())
    writer = subprocess.Popen([sys.executable, '-c', WRITER, str(fd)], pass_fds=(fd,))
    try:
        deadline = time.monotonic() + PATIENCE_S
        while board.read()[0] is WorkerPhase.IDLE and time.monotonic() < deadline:
            time.sleep(0.01)
        end, longest, seen = time.monotonic() + 0.7, 0.0, set()
        while time.monotonic() < end:
            phase, seconds, episode_s = board.read()
            longest = max(longest, seconds)
            seen.add((phase in (WorkerPhase.HOST, WorkerPhase.POLICY), episode_s in (1.0, 2.0)))
    finally:
        writer.kill()
        writer.wait()
        os.close(fd)
        board.close()
    assert seen == {(True, True)}
    assert longest < 30
