"""The review page: what the detector could not settle, marked by a person who sees the film.

Pages of the review: the queue, one episode with its candidates, and the account that is saved.

A reviewer who is blinded sees neither policies nor who else has marked what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from robotrials.errors import InputError, RobotrialsError
from robotrials.measure.annotate import LabelStanding, LabelStatus, status_of
from robotrials.record import Annotation, Episode, Event, EventKind, EventSource, Store
from robotrials.service.explorer.index import episode_data
from robotrials.service.explorer.pages import MEDIA_KINDS, media_file
from robotrials.service.frame import Pages, install_frame

PAGES = Pages('robotrials.service.review')
MARK_KINDS = (EventKind.PLACEMENT, EventKind.DROP_OUTSIDE, EventKind.DROP_UNCOLLECTED, EventKind.ASSIST)
HIDDEN_FACTS = ('policy', 'operator', 'session', 'reason', 'seed', 'instance')
TELLING_LANES = ('action as the policy gave it', 'latency')


class ReviewMark(BaseModel):
    model_config = ConfigDict(extra='forbid')
    t_s: float = Field(ge=0, le=1e6, allow_inf_nan=False)
    kind: EventKind
    count: int = Field(default=1, ge=1, le=1000)


class GivenAccount(BaseModel):
    """What a reviewer saves; `note` is wanted where the count is not the operator's."""

    model_config = ConfigDict(extra='forbid')
    marks: list[ReviewMark] = Field(max_length=1000)
    note: str = Field(default='', max_length=2000)


def create_review(store: Store, *, by: str, blinded: bool = True, everything: bool = False) -> FastAPI:
    """The review of one store by one person. `everything` offers also episodes that need no review, for agreement."""
    if not by.strip() or not by.isprintable():
        raise InputError(f'by is {by!r}: a review wants the name of the reviewer, as it goes with every account')
    app = FastAPI(title='robotrials review', docs_url=None, redoc_url=None, openapi_url=None)
    install_frame(app, is_local=True)
    common: dict[str, Any] = {'store': store.path.name, 'by': by, 'blinded': blinded}

    @app.exception_handler(RobotrialsError)
    async def tell(request: Request, error: Exception) -> Response:
        if request.method == 'POST':
            return JSONResponse({'error': str(error)}, status_code=400)
        return PAGES.page('error.html.j2', status=400, title='This cannot be shown', message=str(error))

    def seen(key: tuple[str, int]) -> list[Annotation]:
        """The accounts that this reviewer may know of."""
        rows = store.annotations().get(key, ())
        return [a for a in rows if not blinded or a.source is not EventSource.REVIEWER or a.by == by]

    def status(episode_id: str, attempt: int) -> LabelStatus:
        for episode in store.episodes(where={'episode_id': episode_id}):
            if episode.attempt == attempt and episode.is_valid:
                return status_of(episode, seen(episode.key))
        raise InputError(f'no valid episode {episode_id} attempt {attempt} in {store.path.name}')

    def queue() -> list[LabelStatus]:
        standings = [status_of(e, seen(e.key)) for e in store.episodes() if e.is_valid]
        wanted = [
            s for s in standings if everything or s.standing in (LabelStanding.WAITING, LabelStanding.NOT_SCANNED)
        ]
        return sorted(wanted, key=lambda s: s.episode.episode_id)  # an order that tells nothing of policies

    def is_done(status: LabelStatus) -> bool:
        return any(a.source is EventSource.REVIEWER and a.by == by for a in seen(status.episode.key))

    @app.get('/')
    def listed() -> HTMLResponse:
        rows = [
            {'key': '{}/{}'.format(*s.episode.key), 'object': s.episode.stratum or s.episode.task,
             'placed': s.episode.items_placed, 'why': s.why, 'done': is_done(s)}
            for s in queue()
        ]  # fmt: skip
        return PAGES.page('review.html.j2', title=f'Review of {store.path.name}', rows=rows, **common)

    @app.get('/review/{episode_id}/{attempt}')
    def episode_page(episode_id: str, attempt: int) -> HTMLResponse:
        current = status(episode_id, attempt)
        left = [s for s in queue() if not is_done(s) and s.episode.key != (episode_id, attempt)]
        return PAGES.page(
            'review_episode.html.j2', title=f'{current.episode.stratum or current.episode.task} · {episode_id[:10]}',
            key=f'{episode_id}/{attempt}', why=current.why, placed=current.episode.items_placed,
            following='/review/{}/{}'.format(*left[0].episode.key) if left else '/', **common,
        )  # fmt: skip

    @app.get('/data/episode/{episode_id}/{attempt}')
    def data(episode_id: str, attempt: int) -> JSONResponse:
        current = status(episode_id, attempt)
        accounts = seen(current.episode.key)
        values = episode_data(store, current.episode, annotations=accounts)
        values['proposed'] = _proposed(accounts, by=by)
        if blinded:
            values['facts'] = {k: v for k, v in values['facts'].items() if k not in HIDDEN_FACTS}
            values['lanes'] = [lane for lane in values['lanes'] if lane['title'] not in TELLING_LANES]
        return JSONResponse(values)

    @app.post('/review/{episode_id}/{attempt}')
    def save(episode_id: str, attempt: int, given: GivenAccount) -> JSONResponse:
        current = status(episode_id, attempt)
        account = _account(current.episode, given, by=by)
        store.annotate([account], by=by)
        again = status_of(current.episode, seen(current.episode.key))
        return JSONResponse({'standing': again.standing.value, 'why': again.why})

    @app.get('/media/{name:path}')
    def media(name: str) -> Response:
        path = media_file(store, name)
        return FileResponse(path, media_type=MEDIA_KINDS[path.suffix], headers={'Cache-Control': 'private'})

    return app


def _proposed(rows: Sequence[Annotation], *, by: str) -> list[dict[str, Any]]:
    """The marks to begin with: this reviewer's own last account, else the detector's candidates."""
    own = [a for a in rows if a.source is EventSource.REVIEWER and a.by == by]
    if own:
        return [
            {'t_s': e.t_s, 'kind': e.kind.value, 'count': e.count, 'verdict': 'yours', 'why': 'as you saved it'}
            for e in own[-1].events
        ]
    detected = [a for a in rows if a.source is EventSource.DETECTOR]
    candidates = detected[-1].details.get('candidates', []) if detected else []
    return [
        {'t_s': c['t_s'], 'kind': 'placement' if c.get('verdict') == 'success' else '', 'count': 1,
         'verdict': str(c.get('verdict', '')), 'why': str(c.get('why', ''))}
        for c in (candidates if isinstance(candidates, list) else [])
        if isinstance(c, Mapping) and isinstance(c.get('t_s'), int | float)
    ]  # fmt: skip


def _account(episode: Episode, given: GivenAccount, *, by: str) -> Annotation:
    for mark in given.marks:
        if mark.kind not in MARK_KINDS:
            known = ', '.join(kind.value for kind in MARK_KINDS)
            raise InputError(f'a mark of kind {mark.kind}, wanted one of: {known}')
    placed = sum(m.count for m in given.marks if m.kind is EventKind.PLACEMENT)
    if episode.items is not None and placed > episode.items:
        raise InputError(f'{placed} placements, and the episode had {episode.items} items')
    if episode.items_placed is not None and placed != episode.items_placed and not given.note.strip():
        raise InputError(
            f'you count {placed}, the operator {episode.items_placed}: say in the note what you saw, so that the count '
            'can be settled'
        )
    events = tuple(Event(m.t_s, m.kind, EventSource.REVIEWER, m.count) for m in given.marks)
    return Annotation(
        episode_id=episode.episode_id, attempt=episode.attempt, source=EventSource.REVIEWER, by=by, events=events,
        count=placed, note=given.note.strip(),
    )  # fmt: skip
