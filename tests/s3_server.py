"""An S3 server of the tests' own: moto's, in this process, on a free loopback port."""

from __future__ import annotations

import contextlib
import logging
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

BUCKET = 'lab'


@dataclass
class S3Server:
    """Where it listens, and every request that came in: (method, path with query, status)."""

    url: str
    requests: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {
            'AWS_ENDPOINT_URL': self.url, 'AWS_ACCESS_KEY_ID': 'nobody', 'AWS_SECRET_ACCESS_KEY': 'nothing',
            'AWS_REGION': 'us-east-1', 'AWS_ALLOW_HTTP': 'true',
        }  # fmt: skip

    def got(self, part: str, *, method: str = 'GET') -> int:
        """How many requests of a method had this in their path."""
        return sum(m == method and part in path for m, path, _ in self.requests)


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Serve one empty bucket."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger('werkzeug').setLevel(logging.ERROR)
    requests: list[tuple[str, str, int]] = []

    class Handler(WSGIRequestHandler):
        def log_request(self, code: int | str = '-', size: int | str = '-') -> None:
            requests.append((self.command, self.path, int(code)))

    app = DomainDispatcherApplication(create_backend_app)
    server = make_server('127.0.0.1', 0, app, threaded=True, request_handler=Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f'http://127.0.0.1:{server.server_port}'
    try:
        urllib.request.urlopen(urllib.request.Request(f'{url}/{BUCKET}', method='PUT')).close()
        yield S3Server(url, requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
