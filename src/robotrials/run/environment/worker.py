"""The inside of an isolated environment: a process that answers calls over an inherited socket.

Runs with the environment's packages and needs only msgpack and numpy of them. A service is a class by
``module:attribute``; a call names one of its public methods and carries one value.
"""

from __future__ import annotations

import socket
import sys
import traceback
from typing import Any

from robotrials.catalog import load_attribute
from robotrials.run.environment.shared import SharedBlock
from robotrials.wire.link import read_frame, write_frame

MAX_TOLD = 20_000


def main() -> None:
    """Serve until the other side hangs up. Arguments: the service, the socket's descriptor, that of shared memory."""
    target, descriptor, *shared = sys.argv[1], *map(int, sys.argv[2:])
    block = SharedBlock(shared[0]) if shared else None
    end_with_parent()
    stream: Any = socket.socket(fileno=descriptor).makefile('rwb')
    service: Any = None
    try:
        made: Any = load_attribute(target)
        service = made()
        write_frame(stream, {'ready': True})
    except BaseException:
        write_frame(stream, {'error': traceback.format_exc()[-MAX_TOLD:]})
        return
    while True:
        try:
            asked = read_frame(stream)
        except EOFError:
            return
        reply = answer(service, asked)
        write_frame(stream, reply if block is None else block.put(reply))


def answer(service: Any, asked: Any) -> dict[str, Any]:
    """The answer to one call: its value, or the traceback."""
    try:
        name = asked['call']
        if not isinstance(name, str) or name.startswith('_') or not callable(getattr(service, name, None)):
            raise ValueError(f'no call named {name!r}')
        return {'value': getattr(service, name)(asked['value'])}
    except Exception:
        return {'error': traceback.format_exc()[-MAX_TOLD:]}


def end_with_parent() -> None:
    """Have the kernel end this process when its parent does, where it can: also code that lets no thread run."""
    if sys.platform == 'linux':
        import ctypes
        import signal

        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == '__main__':
    main()
