"""Live parts of pages: server-sent events, each a piece of page, sent when it has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from robotrials.service.platform.page.visit import COOKIE, find_visitor
from robotrials.service.platform.refusal import Refusal
from robotrials.service.platform.server import Platform

LOOK_S = 1.0
LONGEST_LOOKS = 600  # the browser comes again by itself; who was signed out meanwhile does not get in
QUIET_LOOKS = 15
MOST_STREAMS = 200
Parts = Iterable[tuple[str, str]]


class Streams:
    """How many pages listen: each looks once a second, so there is a limit."""

    def __init__(self) -> None:
        self.n = 0

    def open(self, request: Request, platform: Platform, look: Callable[[], Parts]) -> StreamingResponse:
        """The parts that `look` gives (name, HTML), over and over while the visitor is signed in."""
        if self.n >= MOST_STREAMS:
            raise Refusal(503, 'too_many_pages', 'too many pages are listening; load this one again later')
        cookie = request.cookies.get(COOKIE, '')

        def seen() -> list[tuple[str, str]]:
            return [] if find_visitor(platform, cookie).caller is None else list(look())

        return StreamingResponse(
            self._told(platform, seen), media_type='text/event-stream', headers={'X-Accel-Buffering': 'no'}
        )

    async def _told(self, platform: Platform, seen: Callable[[], list[tuple[str, str]]]) -> AsyncIterator[str]:
        sent: dict[str, str] = {}
        self.n += 1
        try:
            for number in range(LONGEST_LOOKS):
                if platform.is_draining:
                    return
                parts = await run_in_threadpool(seen)
                if not parts:
                    return
                for name, text in parts:
                    if sent.get(name) != text:
                        sent[name] = text
                        yield event(name, text)
                if number % QUIET_LOOKS == 0:
                    yield ': here\n\n'
                await asyncio.sleep(LOOK_S)
        finally:
            self.n -= 1


def event(name: str, text: str) -> str:
    lines = ''.join(f'data: {line}\n' for line in text.splitlines() or [''])
    return f'event: {name}\n{lines}\n'


STREAMS = Streams()
