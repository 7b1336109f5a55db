"""`robotrials worker`: run a cell around the clock for a platform."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.errors import InputError, SetupError
from robotrials.old_name import setting

if TYPE_CHECKING:
    from robotrials.worlds.wrapper import ToolWorkspace

TOKEN_VARIABLE = 'ROBOTRIALS_TOKEN'
STOP_VARIABLE = 'ROBOTRIALS_STOP_SECRET'
LOCK = '.worker.lock'
LOCK_S = 5.0  # a worker that is just leaving


def worker(
    server: Annotated[str, typer.Option(help='Address of the platform, such as http://lab:8080.')],
    host: Annotated[str, typer.Option(help='The host of this cell, as plans name it.')] = 'tabletop',
    name: Annotated[str, typer.Option(help='Name of this cell.', show_default='name of the machine')] = '',
    listen: Annotated[str, typer.Option(help='HOST:PORT to listen on for clients; port 0 takes a free one.')] = (
        '127.0.0.1:0'
    ),
    address: Annotated[
        str, typer.Option(help='ws:// address by which clients reach this cell.', show_default='as --listen')
    ] = '',
    folder: Annotated[
        Path | None, typer.Option(help='Where finished episodes wait for the server.', show_default='worker-NAME')
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the host, overriding the benchmark's; repeatable.")
    ] = None,
    v_max: Annotated[
        float | None, typer.Option('--v-max', help="Velocity limit of this cell, in the action's units per second.")
    ] = None,
    a_max: Annotated[float | None, typer.Option('--a-max', help='Acceleration limit of this cell.')] = None,
    workspace: Annotated[
        str, typer.Option(help='X,Y,Z:X,Y,Z in metres: two corners between which the tool stays.')
    ] = '',
    reset_check: Annotated[
        bool, typer.Option('--reset-check/--no-reset-check', help='Check every reset before the policy acts.')
    ] = True,
) -> None:
    """Run a cell around the clock: let clients in, reset, check, run, record, score, upload, and continue.

    The worker's token is read from ROBOTRIALS_TOKEN, and the secret for the emergency stop from ROBOTRIALS_STOP_SECRET.
    On SIGTERM the current episode is finished first.

    Example: `robotrials worker --server http://lab:8080 --host tabletop --name cell-1`
    """
    import logging

    from robotrials.record.folder import held_lock
    from robotrials.run.component import HOSTS
    from robotrials.run.plan import LimitOptions
    from robotrials.service.platform.worker import CellWorker, WorkerOptions
    from robotrials.service.platform.worker_episode import CellOptions

    logging.basicConfig(level=logging.INFO, format='%(asctime)s %(name)s %(levelname)s %(message)s')
    logging.getLogger('websockets').setLevel(logging.WARNING)
    HOSTS.load(host)  # an unknown name is told now, and not at the first job
    cell_name = name or re.sub('[^A-Za-z0-9._-]', '-', socket.gethostname())[:63]
    from robotrials.service.platform.config import keep_private, make_private_folder

    own = folder or Path(f'worker-{cell_name}')
    options = WorkerOptions(
        server=server,
        token=token_from_environment(),
        name=cell_name,
        cell=CellOptions(
            host=host,
            options=dict(map(read_option, option or ())),
            limits=LimitOptions(velocity=v_max, acceleration=a_max),
            workspace=_workspace(workspace) if workspace else None,
            checks_reset=reset_check,
        ),
        folder=own,
        listen=_listen(listen),
        address=address,
        stop_secret=setting(STOP_VARIABLE) or '',
    )
    keep_private()
    make_private_folder(own)
    busy = 'another worker keeps its episodes in this folder; give every worker its own --folder'
    with held_lock(own, LOCK, wait_s=LOCK_S, busy=busy):
        CellWorker(options).run()


def token_from_environment() -> str:
    """The API token; never an argument, where every process of the machine could read it."""
    token = (setting(TOKEN_VARIABLE) or '').strip()
    if not token:
        raise SetupError(f'{TOKEN_VARIABLE} is not set; set it to the token that the platform issued to you')
    return token


def read_option(text: str) -> tuple[str, object]:
    """NAME=VALUE, the value as TOML where it is some, else as text."""
    import tomllib

    name, mark, value = text.partition('=')
    if not mark or not name:
        raise InputError(f'option is {text!r}, wanted NAME=VALUE')
    try:
        return name, tomllib.loads(f'value = {value}')['value']
    except tomllib.TOMLDecodeError:
        return name, value


def _listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(':')
    if not host or not port.isdigit() or int(port) > 65535:
        raise InputError(f'--listen is {text!r}, wanted HOST:PORT')
    return host, int(port)


def _workspace(text: str) -> ToolWorkspace:
    from robotrials.worlds.wrapper import ToolWorkspace

    try:
        low, high = (tuple(float(number) for number in corner.split(',')) for corner in text.split(':'))
    except ValueError as error:
        raise InputError(f'--workspace is {text!r}, wanted X,Y,Z:X,Y,Z in metres') from error
    return ToolWorkspace(low, high)
