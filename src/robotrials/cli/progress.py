"""What a verb is doing, for whoever waits longer than two seconds: a bar on a terminal, else a line every few seconds.

Lines come from a timer of the operating system and are written straight to the file of stderr: no thread runs beside
the work, which may fork, and no output that somebody captures has them in it. `ROBOTRIALS_PROGRESS=0` keeps them away.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

FIRST_S = 2.0
EVERY_S = 5.0
SETTING = 'ROBOTRIALS_PROGRESS'


@dataclass(slots=True)
class _Activity:
    what: str = ''
    is_shown: bool = False  # by a bar, or by a question that waits for its answer


_now = _Activity()


def doing(what: str) -> None:
    """Name what takes the time from here on."""
    _now.what = what


@contextmanager
def shown_otherwise() -> Iterator[None]:
    """No lines while something else on the terminal says what is going on."""
    before, _now.is_shown = _now.is_shown, True
    try:
        yield
    finally:
        _now.is_shown = before


@contextmanager
def told_while_working(verb: str) -> Iterator[None]:
    """Say on stderr what the verb is doing once it takes long, and again every few seconds."""
    is_main = threading.current_thread() is threading.main_thread()
    if os.environ.get(SETTING) == '0' or not hasattr(signal, 'setitimer') or not is_main:
        yield
        return
    started_s = time.monotonic()
    doing('working')

    def tell(number: int, frame: FrameType | None) -> None:
        if not _now.is_shown:
            line = f'robotrials {verb}: {_now.what} ({time.monotonic() - started_s:.0f} s)\n'
            with suppress(OSError):  # nobody reads it
                os.write(2, ''.join(c for c in line if c.isprintable() or c == '\n').encode())

    before = signal.signal(signal.SIGALRM, tell)
    signal.setitimer(signal.ITIMER_REAL, FIRST_S, EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def analysis_progress() -> Callable[[str, int, int], None]:
    """A function that is told how far the work is: a bar on a terminal."""
    if not sys.stderr.isatty():
        return lambda what, done, total: doing(f'{what}, {done:,} of {total:,}')
    from rich.console import Console
    from rich.progress import Progress, TaskID

    bar = Progress(console=Console(stderr=True), transient=True)
    tasks: dict[str, TaskID] = {}

    def advance(what: str, done: int, total: int) -> None:
        if what not in tasks:
            bar.start()
            _now.is_shown = True
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done)
        if done >= total:
            bar.stop()
            _now.is_shown = False

    return advance
