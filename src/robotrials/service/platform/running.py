"""Running a server as a process: uvicorn, logs, and an end that lets requests finish."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from robotrials.errors import InputError
from robotrials.service.platform.app import create_app
from robotrials.service.platform.config import PlatformConfig
from robotrials.service.platform.private import keep_private
from robotrials.service.platform.server import Platform
from robotrials.service.platform.structured_log import log_to
from robotrials.service.platform.walls import walled

KEEP_ALIVE_S = 30
BACKLOG = 2048


class DrainingServer(uvicorn.Server):
    """Tells the platform of its end at once, so that pages which listen on do not hold it up."""

    def __init__(self, config: uvicorn.Config, *, platform: Platform) -> None:
        super().__init__(config)
        self._platform = platform

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._platform.is_draining = True
        super().handle_exit(sig, frame)


def run_server(config: PlatformConfig, *, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT: then nothing new is taken, requests under way are finished, and leases stay.

    Workers go on with their episodes while there is no server, and upload when it is back.
    """
    log_to()
    keep_private()
    listening = _listening(host, port)  # who connects from now on waits, and is not refused
    platform = Platform(config)
    first = platform.write_first_token()
    if first is not None:
        tell(f'token of the first admin: in {first}; take it from there and remove the file')
    app = create_app(config, platform=platform)
    settings = uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(config.drain_s), server_header=False,
        http=walled(per_address=config.connections_per_address, total=config.connections),
    )  # fmt: skip
    address, chosen = listening.getsockname()[:2]
    tell(f'listening on http://{address}:{chosen}')
    DrainingServer(settings, platform=platform).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    """The open port: had before anything is made or told, so that a busy one costs nobody the first admin's token."""
    if not 0 <= port <= 65535:
        raise InputError(f'port is {port}, wanted 0 to 65535')
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f'{host}:{port} cannot be listened on ({error.strerror}); give another --port or --host'
        ) from error
