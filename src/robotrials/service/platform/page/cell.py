"""Queue and cells: who runs what, by code. Stopping a cell is one button and one key."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from robotrials.service.platform.access import Caller, Scope
from robotrials.service.platform.page.drawn import PAGES, draw
from robotrials.service.platform.page.live import STREAMS
from robotrials.service.platform.page.visit import ACheckedForm, AVisitor
from robotrials.service.platform.route.cell import get_queue, get_workers, post_command
from robotrials.service.platform.route.common import Id, ThePlatform
from robotrials.service.platform.server import Platform

router = APIRouter(include_in_schema=False)
AT_ONCE = 16


@router.get('/cells')
def cells(visitor: AVisitor, platform: ThePlatform) -> Response:
    caller = visitor.require(Scope.OPERATOR)
    workers, queue = get_workers(caller, platform), get_queue(caller, platform)
    return draw('cells.html.j2', visitor, title='Queue and cells', cells=workers, queue=queue, config=platform.config)


@router.get('/cells/live')
def live(request: Request, visitor: AVisitor, platform: ThePlatform) -> Response:
    caller = visitor.require(Scope.OPERATOR)
    return STREAMS.open(request, platform, lambda: _parts(caller, platform))


def _parts(caller: Caller, platform: Platform) -> Iterator[tuple[str, str]]:
    """What changes: each cell, the queue; and which cells there are, upon which a page loads its list anew."""
    workers = get_workers(caller, platform)
    yield 'queue', PAGES.text('queue_part.html.j2', queue=get_queue(caller, platform))
    for cell in workers:
        yield f'cell-{cell.id}', PAGES.text('cell_part.html.j2', cell=cell, config=platform.config)
    yield 'cells', ' '.join(sorted(cell.id for cell in workers))


@router.post('/cells/stop')
def stop_all(visitor: AVisitor, form: ACheckedForm, platform: ThePlatform) -> Response:
    """The emergency stop of every cell, all at the same time: one that does not answer holds up no other."""
    caller = visitor.require(Scope.OPERATOR)
    workers = get_workers(caller, platform)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda cell: post_command(cell.id, 'stop', caller, platform), workers))
    return RedirectResponse('/cells', status_code=303)


@router.post('/cells/{worker_id}/{wanted}')
def command(
    worker_id: Id, wanted: Literal['drain', 'stop', 'resume'], visitor: AVisitor, form: ACheckedForm,
    platform: ThePlatform,
) -> Response:  # fmt: skip
    post_command(worker_id, wanted, visitor.require(Scope.OPERATOR), platform)
    return RedirectResponse('/cells', status_code=303)
