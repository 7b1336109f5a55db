"""Running a server as a process: uvicorn, logs, and an end that lets requests finish."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType

import uvicorn

from trialist.platform.app import create_app
from trialist.platform.config import PlatformConfig
from trialist.platform.server import Platform
from trialist.platform.structured_log import log_to

KEEP_ALIVE_S = 30


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
    platform = Platform(config)
    first = platform.first_token()
    if first is not None:
        tell(f'token of the first admin, shown once: {first}')
    app = create_app(config, platform=platform)
    settings = uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(config.drain_s), server_header=False,
    )  # fmt: skip
    sockets = [settings.bind_socket()]
    sockets[0].listen(settings.backlog)  # who connects from now on waits, and is not refused
    address, chosen = sockets[0].getsockname()[:2]
    tell(f'listening on http://{address}:{chosen}')
    DrainingServer(settings, platform=platform).run(sockets=sockets)
