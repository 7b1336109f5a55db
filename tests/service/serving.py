"""An app on a port of its own, for a real browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.patience import PATIENCE_S

from robotrials.service.frame import listen


@contextmanager
def served(app: Any, *, port: int = 0) -> Iterator[str]:
    """The address of the app while it runs; on any free port unless one is given."""
    import uvicorn

    with listen(port) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level='warning', timeout_graceful_shutdown=3))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while not server.started:
            assert thread.is_alive(), 'the server ended before it had started'
            assert time.monotonic() < deadline, 'the server did not start'
            time.sleep(0.02)
        try:
            yield f'http://127.0.0.1:{listener.getsockname()[1]}'
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), 'the server did not end'
