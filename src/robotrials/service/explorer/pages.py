"""The explorer's pages: the table, one episode or two side by side, and figures whose points are episodes."""

from __future__ import annotations

import base64
import enum
import hashlib
import io
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

from robotrials.errors import InputError, RobotrialsError
from robotrials.measure.geometry.projection import Rescoring
from robotrials.record import Episode, Store
from robotrials.record.blinding import Where
from robotrials.service.explorer.index import FILTERS, PAGE_ROWS, SORTS, EpisodeIndex, LiveIndex, episode_data
from robotrials.service.frame import Pages, install_frame
from robotrials.show.catalog import FIGURES, SIMULATED, ShowRequest, find_figure, input_of, summary_of
from robotrials.show.figure import FigureMark, figure_marks, leading
from robotrials.verdict.analysis import Analysis, analyse
from robotrials.verdict.analysis.ranking import curve_points
from robotrials.verdict.analysis.selection import Absent
from robotrials.verdict.analysis.subject import Input

# Figures and the report of a store, whose marks lead to episodes; analysed once a state of the store.

CLOSED = 'results stay shut until the trial is closed'


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """A figure as a picture that a page can hold, and what lies over it."""

    summary: str
    picture: str  # a data: address
    width_pt: float
    height_pt: float
    marks: tuple[FigureMark, ...]


class LiveFigures:
    """What a store shows of itself in figures: the analysis is made when it is asked for, and again after a change."""

    def __init__(
        self, store: Store, *, where: Where | None = None, visible: Callable[[Episode], Episode],
        rescoring: Rescoring = Rescoring.MISSING,
    ) -> None:  # fmt: skip
        self._store, self._where, self._visible, self._rescoring = store, where, visible, rescoring
        self._lock = threading.Lock()  # matplotlib's settings are the process's
        self._head = ''
        self._analysis: Analysis | None = None

    def analysis(self) -> Analysis:
        """The analysis of the store as it is now; refused while a blinded trial is open."""
        if self._store.is_blinded:
            raise InputError(CLOSED)
        with self._lock:
            head = self._store.head()
            if self._analysis is None or head != self._head:
                self._analysis, self._head = analyse(self._store, where=self._where), head
                self._analysis.rescoring = self._rescoring
            return self._analysis

    def draw(self, name: str) -> DrawnFigure:
        """A named figure, with its marks; refused with the reason where the store cannot give it."""
        draw = find_figure(name)
        if input_of(draw) is not Input.STORE or name in SIMULATED:
            raise InputError(
                f"{name} is not a figure of a store's episodes; those are {', '.join(n for n, _ in store_figures())}"
            )
        analysis = self.analysis()
        with self._lock, leading():
            figure = draw(ShowRequest(subject=analysis))
            drawn = io.BytesIO()
            figure.savefig(drawn, format='svg', metadata={'Date': None})
            width, height = figure.get_size_inches()
            picture = f'data:image/svg+xml;base64,{base64.b64encode(drawn.getvalue()).decode()}'
            return DrawnFigure(summary_of(draw), picture, 72 * width, 72 * height, figure_marks(figure))

    def report(self, *, explorer_url: str) -> str:
        """The report's page, whose claims and marks lead here."""
        from robotrials.show.page import render_html
        from robotrials.show.report import listed_episodes, trial_document

        analysis = self.analysis()
        document = trial_document(analysis, explorer_url=explorer_url, folder=self._store.path)
        listed = map(self._visible, analysis.episodes)
        return render_html(replace(document, **listed_episodes(listed, len(analysis.episodes))))


def store_figures() -> list[tuple[str, str]]:
    """Name and summary of every figure that is drawn from a store's episodes."""
    figures = [(name, find_figure(name)) for name in FIGURES.names() if name not in SIMULATED]
    return [(name, summary_of(draw)) for name, draw in figures if input_of(draw) is Input.STORE]


def page_policy(page: str) -> str:
    """The content policy of a page that holds all it needs: its own scripts by their hash, and nothing from anywhere.

    Drawings set heights by `style`, which no hash can name; everything in the page is escaped.
    """
    scripts = re.findall('<script>(.*?)</script>', page, flags=re.DOTALL)
    known = ' '.join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {known}; img-src data:; form-action 'none'; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


# Figures whose points are episodes: every step of a success curve, and every witness of a violation.

MOST_STEPS = 4000
MOST_WITNESSES = 1000


def _curves(analysis: Analysis) -> dict[str, Any]:
    """Curves with the episode behind every step, or why there are none."""
    points_of = curve_points(analysis)
    if isinstance(points_of, Absent):
        return {'why': points_of.reason, 'policies': []}
    policies = [
        {
            'policy': curve.policy,
            'steps': [
                {'t_s': p.took_s, 'chance': p.chance, 'key': '{}/{}'.format(*p.episode.key), 'at_s': p.at_s}
                for p in points[:MOST_STEPS]
            ],
        }
        for curve, points in points_of
    ]
    return {'why': '', 'policies': policies}


def _witnesses(analysis: Analysis) -> dict[str, Any]:
    """Violations with their moments, or why there are none."""
    part = analysis.safety
    if isinstance(part, Absent):
        return {'why': part.reason, 'rows': []}
    rows = [
        {'key': f'{s.episode_id}/{s.attempt}', 'policy': s.policy, 'task': s.task, 'spec': v.spec_id,
         'clause': v.clause, 't_s': v.time_s, 'value': v.value, 'unit': v.unit, 'signal': v.signal,
         'success': s.success}
        for s in part.scores
        for v in s.violations
    ]  # fmt: skip
    return {'why': '', 'rows': rows[:MOST_WITNESSES], 'n': len(rows)}


MEDIA_KINDS = {'.mp4': 'video/mp4', '.webm': 'video/webm', '.png': 'image/png', '.jpg': 'image/jpeg'}
PAGES = Pages('robotrials.service.explorer')
Query = Sequence[tuple[str, str]]


class Neighbour(enum.StrEnum):
    """Which neighbour of an episode."""

    BEFORE = 'before'
    AFTER = 'after'


def create_explorer(
    store: Store, *, beside: Mapping[str, str] | None = None, where: Where | None = None, is_mounted: bool = False,
    visible: Callable[[Episode], Episode] = lambda episode: episode,
) -> FastAPI:  # fmt: skip
    """The explorer of one store, or of what `where` selects of it: nothing else of the store can be reached.

    `beside` adds links to other pages (title -> address), such as the review's. Mounted in another app, it leaves
    static files and guards to that one. `visible` is an episode as far as its facts may be seen.
    """
    app = FastAPI(title='robotrials explorer', docs_url=None, redoc_url=None, openapi_url=None)
    if not is_mounted:
        install_frame(app, is_local=True)
    rescoring = Rescoring.NONE if is_mounted else Rescoring.MISSING  # a platform's server reads kept scores alone
    index, drawn = LiveIndex(store, where=where), LiveFigures(store, where=where, visible=visible, rescoring=rescoring)

    def common(request: Request) -> dict[str, Any]:
        blinded = '' if not store.is_blinded else 'arms by code' if store.board else 'arms are shown when it is closed'
        return {'store': store.path.name, 'links': dict(beside or {}), 'blinded': blinded, 'base': _base(request)}

    @app.exception_handler(RobotrialsError)
    async def tell(request: Request, error: Exception) -> Response:
        return PAGES.page('error.html.j2', status=400, title='This cannot be shown', message=str(error))

    @app.get('/')
    def table(request: Request) -> HTMLResponse:
        rows = _table(index.now(), request.query_params.multi_items(), base=_base(request))
        template = 'explore_rows.html.j2' if request.headers.get('hx-request') else 'explore.html.j2'
        return PAGES.page(template, title=f'Episodes of {store.path.name}', **common(request), **rows)

    @app.get('/episode/{episode_id}/{attempt}')
    def episode(episode_id: str, attempt: int, request: Request) -> HTMLResponse:
        episodes = [_found(store, episode_id, attempt, where=where)]
        other = request.query_params.get('beside', '')
        if other:
            name, _, number = other.partition(':')
            episodes.append(_found(store, name, _whole(number or '0'), where=where))
        titles = [{'key': f'{e.episode_id}/{e.attempt}', 'title': _title(e)} for e in episodes]
        return PAGES.page(
            'explore_episode.html.j2', title=_title(episodes[0]), episodes=titles, **common(request),
            trail=_trail(request.query_params.multi_items()), end=request.query_params.get('end', ''),
        )  # fmt: skip

    @app.get('/episode/{episode_id}/{attempt}/{side}')
    def neighbour(episode_id: str, attempt: int, side: Neighbour, request: Request) -> RedirectResponse:
        """The episode before or after one in its list, looked for when it is asked for: that takes the whole index."""
        query = request.query_params.multi_items()
        key = _neighbour(index.now(), (episode_id, attempt), query, side=side)
        place, end = (key, {}) if key is not None else ((episode_id, attempt), {'end': side.value})
        trail = '&'.join(filter(None, (_trail(query), urlencode(end))))
        return RedirectResponse(f'{_base(request)}/episode/{place[0]}/{place[1]}{"?" + trail if trail else ""}', 303)

    @app.get('/data/episode/{episode_id}/{attempt}')
    def data(episode_id: str, attempt: int) -> JSONResponse:
        return JSONResponse(episode_data(store, visible(_found(store, episode_id, attempt, where=where))))

    @app.get('/figures')
    def figures(request: Request) -> HTMLResponse:
        analysis = None if store.is_blinded else drawn.analysis()
        return PAGES.page(
            'explore_figures.html.j2', title='Figures',
            curves={'why': CLOSED} if analysis is None else _curves(analysis),
            witnesses={'why': CLOSED} if analysis is None else _witnesses(analysis),
            figures=[] if analysis is None else store_figures(), **common(request),
        )  # fmt: skip

    @app.get('/figures/{name}')
    def figure(name: str, request: Request) -> HTMLResponse:
        figure = drawn.draw(name)
        listed = index.now()
        attempts = dict(zip(listed.ids.to_pylist(), listed.attempts.tolist(), strict=True))
        marks = [(mark, _mark_address(mark, attempts, base=_base(request))) for mark in figure.marks]
        return PAGES.page(
            'explore_figure.html.j2', title=figure.summary, name=name, figure=figure, marks=marks, **common(request),
        )  # fmt: skip

    @app.get('/report')
    def report(request: Request) -> HTMLResponse:
        page = drawn.report(explorer_url=str(request.base_url))
        return HTMLResponse(page, headers={'Content-Security-Policy': page_policy(page)})

    @app.get('/media/{name:path}')
    def media(name: str) -> Response:
        path = media_file(store, name)
        if where is not None:
            episode_id, attempt = _filmed(path.relative_to(store.path / 'media'), name)
            _found(store, episode_id, attempt, where=where)
        return FileResponse(path, media_type=MEDIA_KINDS[path.suffix], headers={'Cache-Control': 'private'})

    return app


def media_file(store: Store, name: str) -> Path:
    """A film or picture of the store's media; anything else, and anything outside, is refused."""
    path = store.path / 'media' / name
    if path.suffix not in MEDIA_KINDS or not store.has_file(f'media/{name}'):
        raise InputError(f'{name[:200]!r}: no film of this store')
    return path


def _filmed(file: Path, name: str) -> tuple[str, int]:
    """Of which episode a file of the media is, by the folder that it lies in."""
    kind, folder = file.parts[0], file.parts[1] if len(file.parts) > 2 else ''
    episode_id, _, attempt = folder.rpartition('-')
    if kind != 'episodes' or not episode_id:
        raise InputError(f'{name!r}: no film of these episodes')
    return episode_id, _whole(attempt)


def _mark_address(mark: FigureMark, attempts: Mapping[str, int], *, base: str) -> str:
    """One episode is opened, at the mark's moment if it has one; several are listed."""
    (ids, *more) = mark.episodes.get('episode_id', ()) or ('',)
    if len(mark.episodes) == 1 and not more and ids in attempts:
        moment = '' if mark.t_s is None else f'?t={mark.t_s:.3f}'
        return f'{base}/episode/{ids}/{attempts[ids]}{moment}'
    return f'{base}/?' + urlencode([(field, value) for field, values in mark.episodes.items() for value in values])


def _base(request: Request) -> str:
    """Where the explorer is mounted."""
    return str(request.scope.get('root_path', ''))


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f'{text!r} is not an attempt')
    return int(text)


def _found(store: Store, episode_id: str, attempt: int, *, where: Where | None) -> Episode:
    """One counted episode of those that may be seen; nothing is read of the others but their ids."""
    for episode in store.episodes(where={**(where or {}), 'episode_id': episode_id}):
        if episode.attempt == attempt:
            return episode
    raise InputError(f'no episode {episode_id} attempt {attempt} in {store.path.name}')


def _title(episode: Episode) -> str:
    outcome = episode.outcome.value.replace('_', ' ')
    parts = (episode.policy, episode.stratum or episode.task, episode.condition, outcome)
    return ' · '.join(p for p in parts if p and p != 'nominal')


def _asked(query: Query) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for name, value in query:
        if name in (*FILTERS, 'episode_id') and value:
            wanted.setdefault(name, []).append(value)
    return wanted


def _rows(index: EpisodeIndex, query: Query) -> tuple[Any, dict[str, list[str]], str]:
    wanted = _asked(query)
    sort = next((value for name, value in query if name == 'sort'), 'place')
    return index.ordered(index.matching(wanted), sort), wanted, sort


def _table(index: EpisodeIndex, query: list[tuple[str, str]], *, base: str) -> dict[str, Any]:
    """One page of the table, the filters that can be set, and the addresses of the pages around it."""
    rows, wanted, sort = _rows(index, query)
    number = max(1, _whole(next((v for n, v in query if n == 'page' and v), '1')))
    start = (number - 1) * PAGE_ROWS
    kept = [(name, value) for name, values in wanted.items() for value in values]

    def address(**changes: object) -> str:
        pairs = [*kept, ('sort', sort), ('page', str(number))]
        pairs = [(k, v) for k, v in pairs if k not in changes] + [(k, str(v)) for k, v in changes.items()]
        return f'{base}/?' + urlencode([(k, v) for k, v in pairs if (k, v) not in (('sort', 'place'), ('page', '1'))])

    orders = {name: address(sort=f'-{name}' if sort == name else name, page=1) for name in SORTS}
    return {
        'rows': [index.row(int(place)) for place in rows[start : start + PAGE_ROWS]],
        'alike': {name for name, values in index.values.items() if len(values) < 2},
        'n_rows': len(rows), 'n_all': len(index), 'first': start + 1 if len(rows) else 0,
        'last': min(start + PAGE_ROWS, len(rows)), 'wanted': wanted, 'sort': sort, 'orders': orders,
        'filters': {n: index.choices(n, index.matching({k: v for k, v in wanted.items() if k != n}))
                    for n in FILTERS if len(index.values[n]) > 1},
        'previous': address(page=number - 1) if number > 1 else '',
        'following': address(page=number + 1) if start + PAGE_ROWS < len(rows) else '',
        'trail': urlencode([*kept, *([('sort', sort)] if sort != 'place' else [])]),
    }  # fmt: skip


def _trail(query: Query) -> str:
    """The list that somebody came from, as far as an address says it."""
    return urlencode([(n, v) for n, v in query if n in (*FILTERS, 'episode_id', 'sort') and v])


def _neighbour(index: EpisodeIndex, key: tuple[str, int], query: Query, *, side: Neighbour) -> tuple[str, int] | None:
    """The episode before or after this one in the list that was filtered; None at its end."""
    rows, _, _ = _rows(index, query)
    place = np.flatnonzero(rows == index.place(key))
    if not len(place):
        raise InputError(f'episode {key[0]} attempt {key[1]} is not in this list')
    wanted = int(place[0]) + (1 if side is Neighbour.AFTER else -1)
    return index.key(int(rows[wanted])) if 0 <= wanted < len(rows) else None
