"""A small server that speaks openpi's wire, for tests: in a thread, on a free port of this machine."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from robotrials.wire import pack, unpack

Infer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class OpenPiServer:
    """Serves `infer`; an exception in it goes out as a text frame before the server hangs up, as with openpi's."""

    def __init__(self, infer: Infer, *, metadata: Mapping[str, Any] | None = None, port: int = 0) -> None:
        from websockets.sync.server import serve

        self._infer, self._metadata = infer, dict(metadata or {})
        self.raw_questions: list[bytes] = []
        self.authorizations: list[str | None] = []
        self._server = serve(self._handle, '127.0.0.1', port, compression=None, max_size=None)
        self.port = int(self._server.socket.getsockname()[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f'ws://127.0.0.1:{self.port}'

    def _handle(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        self.authorizations.append(connection.request.headers.get('Authorization'))
        connection.send(pack(self._metadata))
        while True:
            try:
                question = connection.recv()
                self.raw_questions.append(question)
                connection.send(pack(dict(self._infer(unpack(question)))))
            except ConnectionClosed:
                return
            except Exception:
                connection.send(traceback.format_exc())
                connection.close(code=1011, reason='Internal server error. Traceback included in previous frame.')
                return

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)

    def __enter__(self) -> OpenPiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
