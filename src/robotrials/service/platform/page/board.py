"""Benchmarks and their leaderboards. Every number is the analysis's; this only puts them in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy import select

from robotrials.service.platform.access import Scope
from robotrials.service.platform.benchmark import find_benchmark
from robotrials.service.platform.page.drawn import MEASURES, draw
from robotrials.service.platform.page.visit import AVisitor, Visitor
from robotrials.service.platform.refusal import Refusal
from robotrials.service.platform.route.admin import shown_benchmark
from robotrials.service.platform.route.common import BenchmarkName, ThePlatform
from robotrials.service.platform.score import Board, BoardRow
from robotrials.service.platform.submission import list_submissions
from robotrials.service.platform.table import Benchmark

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
            for b in session.scalars(select(Benchmark).order_by(Benchmark.name))
            if _may_see(visitor, b, is_public=is_public)
        ]
    return draw('home.html.j2', visitor, title='Benchmarks', benchmarks=benchmarks)


@router.get('/benchmark/{name}')
def leaderboard(name: BenchmarkName, request: Request, visitor: AVisitor, platform: ThePlatform) -> Response:
    with platform.database.read() as session:
        benchmark = find_benchmark(session, name)
        if not _may_see(visitor, benchmark, is_public=platform.config.public_leaderboards):
            visitor.require(Scope.READER)
        told = shown_benchmark(session, benchmark)
        choices = {'task': told.tasks, 'stratum': told.strata, 'condition': told.conditions}
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
        'board.html.j2', visitor, title=name, benchmark=told, board=board, rows=ordered(board, sort), sort=sort,
        where=where, choices={n: c for n, c in choices.items() if len(c) > 1}, filter_titles=FILTERS, mine=mine,
        orders={n: _address(name, where, _turned(sort, n)) for n in SORTS}, definitions=_definitions(),
    )  # fmt: skip


def _may_see(visitor: Visitor, benchmark: Benchmark, *, is_public: bool) -> bool:
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
    from robotrials.show.glossary import glossary

    known = glossary().definitions
    return [known[key] for key in (*(m.definition for m in MEASURES.values()), 'letters', 'interval', 'needed')]
