"""A worker process: one station that runs the slots it is told, and ends when its parent does.

Started by `robotrials.run.crew` with three inherited file descriptors: the connection to the parent, the phase
board, and a file for its stack when it hangs.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from robotrials.run.plan import PolicyEntry


@dataclass(frozen=True, slots=True)
class Errand:
    """All that a worker has to know; it works out the rest from the plan."""

    plan: str
    store: Path
    provenance_id: str
    operator: str
    import_path: tuple[str, ...]
    arms: Path | None = None  # of an operator's plan
    served: Mapping[str, PolicyEntry] = field(
        default_factory=dict
    )  # policies that all workers share, as they are reached
    is_spooled: bool = False  # episodes wait until their block is whole
    spooled_as: str = ''
    is_replacement: bool = False  # of a worker that was ready: everything could be opened before


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker cannot start or go on: the message, without policies' names."""

    message: str
    is_disk: bool = False  # the store could not be written to: nothing is wrong with the plan


def main() -> None:
    """Serve until told to stop or left alone; the arguments are the descriptors of connection, board and trace."""
    connection_fd, board_fd, trace_fd = (int(argument) for argument in sys.argv[1:4])
    trace = os.fdopen(trace_fd, 'wb', buffering=0)
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)
    connection: Connection = Connection(connection_fd)
    errand = connection.recv()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at the keyboard is for the parent, who ends us
    _leave_with_parent(os.getppid())
    from robotrials.errors import RobotrialsError, WriteError
    from robotrials.record import Store
    from robotrials.run.phase import Phase, PhaseBoard
    from robotrials.run.plan import plan_from_json
    from robotrials.run.sealing import read_arms
    from robotrials.run.spool import spool_of
    from robotrials.run.station import Context, TrialStation

    board = PhaseBoard(os.fdopen(board_fd, 'r+b'))
    board.enter(Phase.START)
    plan = plan_from_json(errand.plan)
    arms = read_arms(plan, errand.arms) if errand.arms is not None else None
    context = Context.of(plan, provenance_id=errand.provenance_id, operator=errand.operator, arms=arms)
    store = Store.open(errand.store)
    spool = spool_of(store, is_concealed=errand.is_spooled, whole=errand.spooled_as)
    station = TrialStation(context, store, board=board, served=errand.served, spool=spool)
    try:
        station.check(is_replacement=errand.is_replacement)
    except (Exception, SystemExit) as error:
        connection.send(Refused(context.blinding.scrub(str(error))))
        return
    board.enter(Phase.IDLE)
    connection.send(None)
    slots = context.slots()
    try:
        while (told := connection.recv()) is not None:
            number, attempt = told
            try:
                finished = station.run(slots[number], attempt)
            except RobotrialsError as error:
                connection.send(Refused(context.blinding.scrub(str(error)), isinstance(error, WriteError)))
                os._exit(1)
            connection.send(finished)
            if finished.is_poisoned:
                os._exit(0)
    except (EOFError, OSError):  # the parent is gone, or something closed our descriptors
        os._exit(1)
    station.close()


def _leave_with_parent(parent: int) -> None:
    """End this process when its parent ends, also while a policy or host keeps it busy."""

    def watch() -> None:
        import time

        while os.getppid() == parent:
            time.sleep(0.05)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name='parent watch').start()
    if sys.platform == 'linux':
        # The kernel's own way covers code that never lets another thread run.
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
