"""Benchmarks and their leaderboards. Every number is the analysis's; this only puts them in order."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select

from robotrials.record import Store
from robotrials.service.explorer import create_explorer
from robotrials.service.platform.access import Caller, Refusal, Scope, not_found
from robotrials.service.platform.benchmark import find_benchmark, open_facts, store_path
from robotrials.service.platform.page.submission import STREAMS
from robotrials.service.platform.page.visit import MEASURES, PAGES, ACheckedForm, AVisitor, Visitor, draw, visitor_of
from robotrials.service.platform.route.admin import shown_benchmark
from robotrials.service.platform.route.cell import get_queue, get_workers, post_command
from robotrials.service.platform.route.common import BenchmarkName, Id, ThePlatform
from robotrials.service.platform.score import Board, BoardRow
from robotrials.service.platform.server import Platform
from robotrials.service.platform.submission import find_submission, list_submissions
from robotrials.service.platform.table import BenchmarkRow, Submission

router = APIRouter(include_in_schema=False)
FILTERS = {'task': 'task', 'stratum': 'object', 'condition': 'condition'}
SORTS = ('rank', 'policy', *MEASURES, 'n')


@router.get('/')
def home(visitor: AVisitor, platform: ThePlatform) -> Response:
    """Every benchmark that the visitor may see."""
    is_public = platform.config.public_leaderboards
    if visitor.caller is None and not is_public:
        visitor.require()
    with platform.database.read() as session:
        benchmarks = [
            shown_benchmark(session, b)
            for b in session.scalars(select(BenchmarkRow).order_by(BenchmarkRow.name))
            if _may_see(visitor, b, is_public=is_public)
        ]
    return draw('home.html.j2', visitor, title='Benchmarks', benchmarks=benchmarks)


@router.get('/benchmark/{name}')
def leaderboard(name: BenchmarkName, request: Request, visitor: AVisitor, platform: ThePlatform) -> Response:
    with platform.database.read() as session:
        benchmark = find_benchmark(session, name)
        if not _may_see(visitor, benchmark, is_public=platform.config.public_leaderboards):
            visitor.require(Scope.READER)
        facts = shown_benchmark(session, benchmark)
        choices = {'task': facts.tasks, 'stratum': facts.strata, 'condition': facts.conditions}
        where = _asked(request.query_params, choices)
        board = platform.scores.board(session, benchmark, where=where)
        mine = {}
        if visitor.caller is not None and visitor.may('submitter', 'admin'):
            own = (s for s in list_submissions(session, visitor.caller) if s.benchmark_id == benchmark.id)
            mine = {s.policy: s.id for s in own if s.opened_at is not None}
    sort = request.query_params.get('sort', 'rank')
    if sort.removeprefix('-') not in SORTS:
        raise Refusal(422, 'bad_order', f'sort is {sort[:40]!r}, wanted one of: {", ".join(SORTS)}')
    return draw(
        'board.html.j2', visitor, title=name, benchmark=facts, board=board, rows=ordered(board, sort), sort=sort,
        where=where, choices={n: c for n, c in choices.items() if len(c) > 1}, filter_titles=FILTERS, mine=mine,
        orders={n: _address(name, where, _turned(sort, n)) for n in SORTS}, definitions=_definitions(),
    )  # fmt: skip


def _may_see(visitor: Visitor, benchmark: BenchmarkRow, *, is_public: bool) -> bool:
    return visitor.may('reader') or (is_public and benchmark.mode == 'open')


def _asked(query: Mapping[str, str], choices: Mapping[str, list[str]]) -> dict[str, str]:
    where = {name: query[name] for name in FILTERS if query.get(name)}
    for name, value in where.items():
        if value not in choices[name]:
            known = ', '.join(choices[name]) or 'none'
            raise Refusal(422, 'bad_filter', f'{FILTERS[name]} is {value[:60]!r}; this benchmark has: {known}')
    return where


def ordered(board: Board, sort: str) -> list[BoardRow]:
    """Rows by a column, the largest first with a minus; rows without a value come last either way."""
    name, is_down = sort.removeprefix('-'), sort.startswith('-')
    if name == 'rank':
        return list(reversed(board.rows)) if is_down else list(board.rows)
    if name == 'policy':
        return sorted(board.rows, key=lambda row: row.policy, reverse=is_down)

    def value(row: BoardRow) -> float | None:
        return row.n_valid if name == 'n' else row.values[name].value

    known = [row for row in board.rows if value(row) is not None]
    known.sort(key=lambda row: value(row) or 0.0, reverse=is_down)
    return known + [row for row in board.rows if value(row) is None]


def _turned(sort: str, name: str) -> str:
    """What a click on a column's title asks for: the best first, then the other way round."""
    first = name if name in ('rank', 'policy', 'sbu', 'vsi') else f'-{name}'
    other = name if first.startswith('-') else f'-{name}'
    return other if sort == first else first


def _address(name: str, where: Mapping[str, str], sort: str) -> str:
    query = urlencode([*where.items(), *([('sort', sort)] if sort != 'rank' else [])])
    return f'/benchmark/{name}' + (f'?{query}' if query else '')


def _definitions() -> list[Any]:
    from robotrials.show.phrase import glossary

    known = glossary().definitions
    return [known[key] for key in (*(m.definition for m in MEASURES.values()), 'letters', 'interval', 'needed')]


# The explorer of one submission's episodes, for those who may see them, once its blinding has ended.

MOST_KEPT = 16


class SubmissionExplorer:
    """Dispatches to an explorer that knows of nothing but one submission's episodes."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._kept: dict[tuple[str, str], FastAPI] = {}  # by submission and its benchmark's state
        self._lock = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        explorer = await run_in_threadpool(self._admitted, Request(scope))
        await explorer(scope, receive, send)

    def _admitted(self, request: Request) -> FastAPI:
        caller = visitor_of(request, self._platform).require(Scope.SUBMITTER, Scope.ADMIN)
        with self._platform.database.read() as session:
            submission = find_submission(session, caller, request.path_params['submission_id'])
            if submission.opened_at is None:
                raise Refusal(409, 'blinded', 'episodes can be seen when the blinding of this submission has ended')
            return self._explorer(submission)

    def _explorer(self, submission: Submission) -> FastAPI:
        benchmark = submission.benchmark
        key = submission.id, benchmark.state
        with self._lock:
            if key not in self._kept:
                path = store_path(self._platform.config.folder, benchmark)
                if not (path / 'trial.json').exists():
                    raise not_found('episode')
                while len(self._kept) >= MOST_KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[key] = create_explorer(
                    dataclasses.replace(Store.open(path), is_view=True), where={'policy': submission.policy},
                    beside={'back to the submission': f'/submission/{submission.id}'}, is_mounted=True,
                    visible=lambda episode: open_facts(benchmark, episode),
                )  # fmt: skip
            return self._kept[key]


# Queue and cells: who runs what, by code. Stopping a cell is one button and one key.

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
