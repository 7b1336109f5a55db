"""Places where a test kills the server, to prove that what it had promised survives.

`ROBOTRIALS_FAULT_POINT=result.accepted` makes a server kill itself (SIGKILL) when it comes by that place.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = 'ROBOTRIALS_FAULT_POINT'
POINTS = (
    'submission.commit',
    'result.spooled',
    'result.accepted',
    'result.stored',
    'result.settled',
    'expiry.accepted',
    'expiry.stored',
)

_hook: Callable[[str], None] | None = None


def set_hook(hook: Callable[[str], None] | None) -> None:
    """Call `hook` with the name of every place that is passed; None is the variable of the environment again."""
    global _hook
    _hook = hook


def fault_point(name: str) -> None:
    """Nothing, unless a test wants the server to end here."""
    if _hook is not None:
        _hook(name)
    elif os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
