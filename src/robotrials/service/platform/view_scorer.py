"""Scoring the views of an episode in a process of its own, beside a worker.

The worker's interpreter stays free for heartbeats and the emergency stop, and a reconstruction that crashes, hangs or
runs out of memory costs a score and no episode: it is unscored, with the reason.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robotrials.declaration import read_table, without_nulls
from robotrials.errors import RobotrialsError
from robotrials.measure.geometry.camera_score import CameraScore, unscored
from robotrials.measure.geometry.projection import VIEWS, score_files
from robotrials.run.environment.place import own_environment
from robotrials.run.environment.process import WorkerProcess
from robotrials.wire import WireLimits

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
            told = self._process.call('score', {name: files[name] for name in VIEWS}, timeout_s=limit_s)
            self._has_scored = True
            return read_table(CameraScore, without_nulls(told), where='the score')
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
