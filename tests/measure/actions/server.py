"""Local servers for tests: an OpenAI-compatible chat endpoint, and a storage bucket."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from robotrials.formats.rlds import crc32c

Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def serve(respond: Callable[[BaseHTTPRequestHandler, bytes], Answer]) -> Iterator[str]:
    """Serve on a free local port while the block runs; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def _go(self) -> None:
            body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
            code, headers, data = respond(self, body)
            self.send_response(code)
            for key, value in {**headers, 'Content-Length': headers.get('Content-Length', str(len(data)))}.items():
                self.send_header(key, value)
            with suppress(BrokenPipeError, ConnectionResetError):  # a client that has given up
                self.end_headers()
                self.wfile.write(data)

        do_GET = do_POST = _go  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.02}, daemon=True)
    thread.start()
    try:
        yield f'http://127.0.0.1:{server.server_address[1]}'
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=60)


def chat_answer(text: str | None, *, prompt_tokens: int = 100, completion_tokens: int = 10) -> Answer:
    body = {'choices': [{'message': {'role': 'assistant', 'content': text}}],
            'usage': {'prompt_tokens': prompt_tokens, 'completion_tokens': completion_tokens}}  # fmt: skip
    return 200, {'Content-Type': 'application/json'}, json.dumps(body).encode()


class Bucket:
    """A storage bucket: the listing of the JSON API and ranged downloads."""

    def __init__(self, files: dict[str, bytes], *, page: int = 2, with_md5: bool = True) -> None:
        self.files = files
        self.page = page
        self.with_md5 = with_md5
        self.ranges: list[str] = []
        self.cut: dict[str, int] = {}  # name -> bytes after which the connection ends
        self.ignore_range = False

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        url = urllib.parse.urlsplit(request.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path.startswith('/storage/v1/b/'):
            return 200, {}, json.dumps(self._list(query)).encode()
        name = urllib.parse.unquote(url.path.removeprefix('/gresearch/'))
        if name not in self.files:
            return 404, {}, b''
        data = self.files[name]
        asked = request.headers.get('Range', '')
        self.ranges.append(asked)
        if asked and not self.ignore_range:
            return 206, {}, data[int(asked.removeprefix('bytes=').rstrip('-')) :]
        if name in self.cut:
            return 200, {'Content-Length': str(len(data))}, data[: self.cut.pop(name)]
        return 200, {}, data

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        prefix = query['prefix']
        names = sorted(n for n in self.files if n.startswith(prefix))
        if query.get('delimiter'):
            return {'prefixes': sorted({prefix + n.removeprefix(prefix).partition('/')[0] + '/' for n in names})}
        start = int(query.get('pageToken') or 0)
        items = []
        for name in names[start : start + self.page]:
            data = self.files[name]
            crc = base64.b64encode(crc32c(data).to_bytes(4, 'big')).decode()
            md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
            items.append(
                {'name': name, 'size': str(len(data)), 'crc32c': crc, **({'md5Hash': md5} if self.with_md5 else {})}
            )
        more = {'nextPageToken': str(start + self.page)} if start + self.page < len(names) else {}
        return {'items': items, **more}
