"""A progress bar for long analyses, on stderr and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable


def analysis_progress() -> Callable[[str, int, int], None] | None:
    """A function that is told how far the work is; None where nobody watches."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console
    from rich.progress import Progress, TaskID

    bar = Progress(console=Console(stderr=True), transient=True)
    tasks: dict[str, TaskID] = {}

    def advance(what: str, done: int, total: int) -> None:
        if what not in tasks:
            bar.start()
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done)
        if done >= total:
            bar.stop()

    return advance
