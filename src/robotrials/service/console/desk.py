"""The desk behind the console's pages: hands out assignments, keeps drafts, stores episodes, each action once.

An action has an id that the page gave it. What has been answered once is answered the same again, whoever asks: a page
that never got the answer, a second window, the server itself after a power cut.

The console's page and the few addresses behind it. The page is a shell: what it shows comes from `/api/state`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robotrials.errors import InputError, RobotrialsError, StoreError
from robotrials.old_name import CONSOLE_PREFIX
from robotrials.record import Episode, Store
from robotrials.run.arm_limit import StopHook
from robotrials.run.condition import draw_entry
from robotrials.run.engine import check_open, open_tasks
from robotrials.run.mark import log_interrupted, mark_begun, mark_ended
from robotrials.run.schedule import Slot, SlotAttempt
from robotrials.run.station import Context
from robotrials.service.console.account import (
    Action,
    ConsoleRefusal,
    Journal,
    find_trouble,
    finished_episode,
    parse_key,
    read_action,
)
from robotrials.service.frame import Pages, install_frame, static_url

Answer = dict[str, Any]


class Desk:
    """One console of one store."""

    def __init__(
        self, context: Context, store: Store, slots: list[Slot], journal: Journal, *, stop: StopHook | None = None
    ) -> None:
        if not context.operator.strip():
            raise InputError(
                'the console wants the code of its operator (--operator): it is recorded with every episode'
            )
        if not context.plan.blinding.enabled:
            raise InputError('blinding is off in this plan, and the console would show who is who; set enabled = true')
        check_open(context, store)
        self.context, self.store, self.journal = context, store, journal
        self._slots, self._stop = slots, stop
        self._by_id = {context.planned(slot).episode_id: slot for slot in slots}
        self._lock = threading.Lock()  # of what changes the store; stopping the arm never waits for it
        self._answers: dict[str, Answer] = {}
        self._drafts: dict[str, dict[str, Any]] = {}
        self._last: Answer | None = None
        self._state: tuple[str, Answer] | None = None  # with the head of the log that it is of
        self._catch_up()

    @property
    def has_stop(self) -> bool:
        return self._stop is not None

    # --- what pages see

    def state(self) -> Answer:
        """The next assignment, what is under way, what was saved last, and how far the trial is. No arm is named.

        One assignment at a time, and none while one is under way: whoever knows what comes next could set the scene,
        or choose the moment, for it.
        """
        with self._lock:
            head = self.store.head()  # others may edit the store meanwhile
            if self._state is None or self._state[0] != head:
                self._state = head, self._look()
            return {**self._state[1], 'now_ms': round(time.time() * 1000)}

    def _look(self) -> Answer:
        run, tasks = open_tasks(self.context, self.store, self._slots)
        closed = self._closed()
        tasks = [] if closed else tasks
        under_way = {draft['key'] for draft in self._drafts.values()}
        waiting = [t for t in tasks if '{}/{}'.format(*self.context.planned(t.slot, t.attempt).key) not in under_way]
        return {
            'assignments': [] if under_way else [self._assignment(t) for t in waiting[:1]],
            'drafts': [{**d, 'assignment': self._assignment(self._task(d['key']))} for d in self._drafts.values()],
            'last': self._last, 'n_valid': run.n_valid, 'n_total': run.n_total, 'n_given_up': run.n_given_up,
            'is_over': not tasks and not self._drafts,
            'stopped': closed or ('' if run.stop is None else run.stop.reason),
        }  # fmt: skip

    def _assignment(self, task: SlotAttempt) -> Answer:
        """What the operator has to know to set the scene, and nothing of what is behind the code."""
        slot, cell = task.slot, task.slot.cell
        planned = self.context.planned(slot, task.attempt)
        name, parameters = draw_entry(cell.condition, seed=slot.seed, instruction=cell.task.instruction)
        drawn = ', '.join(f'{key} {_shown(value)}' for key, value in parameters.items())
        return {
            'key': '{}/{}'.format(*planned.key), 'code': planned.policy,
            'is_human': self.context.plan.policies[slot.policy].is_human,
            'object': cell.stratum.name or cell.task.name,
            'task': cell.task.name if cell.stratum.name and len(self.context.plan.tasks) > 1 else '',
            'layout': slot.instance, 'repeat': slot.repeat if self.context.plan.repeats > 1 else None,
            'labels': {k: v for k, v in slot.labels.items() if k != 'scene'}, 'items': cell.items,
            'time_cap_s': cell.time_cap_s, 'instruction': cell.task.instruction, 'attempt': task.attempt,
            'condition': '' if name == 'nominal' else f'{name}: {drawn}' if drawn else name, 'session': slot.session,
        }  # fmt: skip

    # --- what pages ask for

    def act(self, action: Action) -> Answer:
        """Carry out an action, or say again what came of it."""
        with self._lock:
            if action.kind != 'draft' and (known := self._answers.get(action.name)) is not None:
                return known
            if action.kind == 'draft':
                return self._keep_draft(action)
            self._check(action)
            self.journal.add('asked', action.model_dump(mode='json'))
            return self._answered(action, self._carry_out)

    def stop_arm(self, *, key: str, t_s: float | None) -> Answer:
        """Stop the arm now. It waits for nothing: no lock, no disk."""
        if self._stop is None:
            answer: Answer = {'confirmed': None, 'told': 'no stop is configured (--stop-command or --stop-url)'}
        else:
            try:
                came = self._stop()
                answer = {'confirmed': came.is_confirmed, 'told': self.context.blinding.scrub(came.told)}
            except Exception as error:  # whatever a hook does, the operator must be told at once
                answer = {'confirmed': False, 'told': f'the stop failed: {type(error).__name__}'}
        try:
            self.journal.add('stop', {'key': key, 't_s': t_s, 'by': self.context.operator, **answer})
        except OSError as error:  # a full disk makes no stop undone
            answer['told'] += f' (not in the journal: {error.strerror})'
        return answer

    # --- how it is done

    def _answered(self, action: Action, do: Callable[[Action], Answer]) -> Answer:
        name = action.name
        try:
            answer = do(action)
        except RobotrialsError as error:
            self.journal.add('failed', {'name': name, 'error': str(error)})
            raise
        self.journal.add('answered', {'name': name, 'answer': answer})
        self._settle(name, answer)
        return answer

    def _keep_draft(self, action: Action) -> Answer:
        """The episode as it stands, for whoever resumes it; an older one that comes late changes nothing."""
        if action.account is None:
            raise ConsoleRefusal('a draft without its account')
        before = self._drafts.get(action.id)
        is_late = before is not None and before['revision'] >= action.revision
        is_ended = any(f'{kind} {action.id}' in self._answers for kind in ('record', 'withdraw'))
        if is_late or is_ended:
            return {'kept': False, 'is_ended': is_ended}
        if before is None:
            self._check(action)
            mark_begun(self.store.path, parse_key(action.key))
        body = {'id': action.id, 'key': action.key, 'revision': action.revision,
                'account': action.account.model_dump(mode='json')}  # fmt: skip
        self.journal.add('draft', body)
        self._drafts[action.id] = body
        self._state = None
        return {'kept': True, 'is_ended': False}

    def _check(self, action: Action) -> None:
        """Refuse what cannot be carried out. A refused record is in the journal: nothing that was seen is lost."""
        try:
            self._check_action(action)
        except ConsoleRefusal as refusal:
            if action.kind == 'record':
                self.journal.add('refused', {**action.model_dump(mode='json'), 'refusal': str(refusal)})
            raise

    def _check_action(self, action: Action) -> None:
        episode_id, attempt = parse_key(action.key)
        if closed := self._closed():
            raise ConsoleRefusal(closed, is_conflict=True)
        if episode_id not in self._by_id:
            raise ConsoleRefusal('this assignment is not of this trial; reload the page', is_conflict=True)
        if action.kind == 'undo':
            if self._last is None or self._last['key'] != action.key:
                raise ConsoleRefusal('only the episode that was saved last can be undone here', is_conflict=True)
            if not action.why.strip():
                raise ConsoleRefusal('say why: it goes into the log of edits', field='why')
            return
        if action.kind == 'withdraw':
            return
        self._check_free(episode_id, attempt)
        if action.kind == 'record':
            cell = self._by_id[episode_id].cell
            if action.account is None:
                raise ConsoleRefusal('a record without its account')
            trouble = find_trouble(action.account, items=cell.items, time_cap_s=cell.time_cap_s)
            if trouble is not None:
                raise ConsoleRefusal(trouble.why, field=trouble.field)

    def _closed(self) -> str:
        """Who closed the trial while the console was open; '' as long as nobody did."""
        closing = self.store.unblindings().by_trial.get(self.context.plan.hash)
        return '' if closing is None else f'this trial was closed by {closing.by} at {closing.at}; it takes no more'

    def _check_free(self, episode_id: str, attempt: int) -> None:
        stored = self._stored(episode_id)
        edits = self.store.edits()
        if any(e.attempt == attempt for e in stored):
            raise ConsoleRefusal('this assignment was already saved, by another window or device', is_conflict=True)
        if any(e.is_valid and not edits.is_dropped(*e.key) for e in stored):
            raise ConsoleRefusal('this assignment has a valid episode already', is_conflict=True)
        most = self.context.plan.faults.attempts
        if sum(not e.is_valid and not edits.is_dropped(*e.key) for e in stored) >= most:
            raise ConsoleRefusal(
                f'this assignment was given up after {most} attempts; reload the page', is_conflict=True
            )
        if attempt > max((e.attempt for e in stored), default=-1) + 1:
            raise ConsoleRefusal(
                f'attempt {attempt} of this assignment is not the next; reload the page', is_conflict=True
            )

    def _stored(self, episode_id: str) -> list[Episode]:
        attempts = self.store.episodes(attempts='all', dropped=True, events=False, where={'episode_id': episode_id})
        return list(attempts)

    def _carry_out(self, action: Action) -> Answer:
        if action.kind == 'undo':
            episode_id, attempt = parse_key(action.key)
            self.store.edit(episode_id, 'drop', by=self.context.operator, why=action.why.strip(), attempt=attempt)
            return {'done': 'undo', 'key': action.key}
        if action.kind == 'withdraw':
            episode_id, attempt = parse_key(action.key)
            mark_begun(self.store.path, (episode_id, attempt))  # one that began without a server counts as well
            log_interrupted(self.store, {episode_id: self._code(episode_id)}, by=self.context.operator)
            return {'done': 'withdraw', 'key': action.key}
        return self._record(action)

    def _record(self, action: Action) -> Answer:
        assert action.account is not None
        episode_id, attempt = parse_key(action.key)
        slot = self._by_id[episode_id]
        planned = self.context.planned(slot, attempt)
        note = self.context.blinding.scrub(action.account.note)
        account = action.account.model_copy(update={'note': note})
        _, drawn = draw_entry(slot.cell.condition, seed=slot.seed, instruction=slot.cell.task.instruction)
        planned = planned.replace(condition_parameters=drawn or planned.condition_parameters)
        episode = finished_episode(planned, account)
        self.context.commit(self.store, episode, fault=None)
        mark_ended(self.store.path, episode.key)
        return _recorded(episode)

    def _settle(self, name: str, answer: Answer) -> None:
        """Take what an action came to into account."""
        self._answers[name] = answer
        self._drafts.pop(name.partition(' ')[2], None)
        if answer['done'] == 'record':
            self._last = answer
        elif answer['done'] == 'undo':
            self._last = None
        self._state = None

    def _catch_up(self) -> None:
        """Where an earlier run of the console stopped, from its journal and the store."""
        asked: dict[str, Action] = {}
        for number, entry in enumerate(self.journal.entries, start=1):
            try:
                self._replay(entry['kind'], entry['body'], asked)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise StoreError(
                    f'{self.journal.path} line {number}: not an entry of the console ({error}); the store itself is '
                    'not affected; move this file away, and the console starts a new one'
                ) from error
        for action in asked.values():
            with contextlib.suppress(RobotrialsError):  # in the journal; the page has it still, and will ask again
                self._answered(action, self._finish)
        under_way = {draft['key'].partition('/')[0] for draft in self._drafts.values()}
        idle = {episode_id: self._code(episode_id) for episode_id in self._by_id if episode_id not in under_way}
        log_interrupted(self.store, idle, by=self.context.operator)  # what earlier runs left, with or without a console

    def _replay(self, kind: str, body: dict[str, Any], asked: dict[str, Action]) -> None:
        if kind == 'asked':
            action = read_action(body, where=self.journal.path)
            asked[action.name] = action
        elif kind == 'answered':
            asked.pop(body['name'], None)
            self._settle(body['name'], body['answer'])
        elif kind == 'failed':
            asked.pop(body['name'], None)
        elif kind == 'draft' and parse_key(body['key'])[0] in self._by_id:
            self._drafts[body['id']] = {name: body[name] for name in ('id', 'key', 'revision', 'account')}

    def _finish(self, action: Action) -> Answer:
        """Carry out what a power cut left between the journal and the store, unless it had got there."""
        episode_id, attempt = parse_key(action.key)
        if action.kind == 'record':
            for episode in self._stored(episode_id):
                if episode.attempt == attempt:
                    mark_ended(self.store.path, episode.key)
                    return _recorded(episode)
        if action.kind == 'undo' and self.store.edits().is_dropped(episode_id, attempt):
            return {'done': 'undo', 'key': action.key}
        return self._carry_out(action)

    def _task(self, key: str) -> SlotAttempt:
        episode_id, attempt = parse_key(key)
        return SlotAttempt(self._by_id[episode_id], attempt)

    def _code(self, episode_id: str) -> str:
        slot = self._by_id[episode_id]
        return self.context.blinding.name(slot.policy, slot.place)


def _recorded(episode: Episode) -> Answer:
    return {
        'done': 'record', 'key': '{}/{}'.format(*episode.key), 'object': episode.cell, 'outcome': episode.outcome.value,
        'placed': episode.items_placed, 'items': episode.items, 'duration_s': episode.duration_s,
    }  # fmt: skip


def _shown(value: object) -> str:
    return f'{value:.3g}' if isinstance(value, float) else str(value)


# Who may use a console that other machines can reach: whoever has the key that was printed with its address.

KEY_BYTES = 24
SHORTEST_KEY = 16
COOKIE_AGE_S = 30 * 86_400


def access_key(folder: Path) -> str:
    """The key of this console; it outlives a restart, so that a phone with unsent episodes can still send them."""
    path = folder / 'access-key'
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_text(encoding='ascii', errors='replace').strip()
        if len(key) < SHORTEST_KEY:
            raise InputError(
                f'{path}: wanted a key, found {len(key)} characters; remove the file for a new one'
            ) from None
        return key
    with os.fdopen(handle, 'w', encoding='ascii') as stream:
        key = secrets.token_urlsafe(KEY_BYTES)
        stream.write(key + '\n')
        stream.flush()
        os.fsync(stream.fileno())
    return key


def install_access(app: FastAPI, key: str, *, cookie: str, is_secure: bool) -> None:
    """Refuse every request without the key, in the address once and in a cookie from then on."""
    from starlette.responses import PlainTextResponse

    def fits(given: str) -> bool:
        return hmac.compare_digest(given.encode(), key.encode())

    @app.middleware('http')
    async def check(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        is_new = fits(request.query_params.get('key', ''))
        if not is_new and not fits(request.cookies.get(cookie, '')):
            refusal = 'wanted the access key: open the address that `robotrials console` printed, with its key'
            return PlainTextResponse(refusal, status_code=401)
        response = await answer(request)
        if is_new:
            response.set_cookie(cookie, key, max_age=COOKIE_AGE_S, httponly=True, samesite='strict', secure=is_secure)
        return response


PAGES = Pages('robotrials.service.console')
VERSIONED = ('icon.svg', 'frame.css', 'console.css', 'theme.js', 'console.js', 'console.webmanifest')
MODULES = tuple(
    f'/static/console-{name}.js' for name in ('rules', 'box', 'view')
)  # imported by name, so without a version


class GivenStopRequest(BaseModel):
    model_config = ConfigDict(extra='forbid')
    key: str = Field(default='', max_length=80)  # of the episode under way, if any
    t_s: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)


def create_console(desk: Desk, *, key: str = '', is_secure: bool = False) -> FastAPI:
    """The console of a desk. Without a `key` it answers to this machine alone; with one, to whoever has it."""
    app = FastAPI(title='robotrials console', docs_url=None, redoc_url=None, openapi_url=None)
    name = desk.journal.path.stem
    space = hashlib.sha256(f'{desk.context.trial_id} {name}'.encode()).hexdigest()[:12]
    if key:
        install_access(app, key, cookie=f'{CONSOLE_PREFIX}-{space}', is_secure=is_secure)
    install_frame(app, is_local=not key)
    shell: dict[str, Any] = {
        'title': 'Console', 'store': desk.store.path.name, 'operator': desk.context.operator, 'space': space,
        'has_stop': desk.has_stop,
    }  # fmt: skip

    @app.exception_handler(RobotrialsError)
    async def tell(request: Request, error: Exception) -> Response:
        status = 503 if isinstance(error, StoreError) else 400
        field = ''
        if isinstance(error, ConsoleRefusal):
            status, field = (409 if error.is_conflict else 400), error.field
        return JSONResponse({'error': str(error), 'field': field}, status_code=status)

    @app.get('/')
    def page() -> HTMLResponse:
        return PAGES.page('console.html.j2', **shell)

    @app.get('/worker.js')
    def worker() -> Response:
        files = ['/', *MODULES, *map(static_url, VERSIONED)]
        modules = b''.join(static_url(path.removeprefix('/static/')).encode() for path in MODULES)
        version = hashlib.sha256(PAGES.text('console.html.j2', **shell).encode() + modules).hexdigest()[:12]
        text = PAGES.text('worker.js.j2', files=files, name=f'{CONSOLE_PREFIX}-{space}-', version=version)
        return Response(text, media_type='text/javascript', headers={'Cache-Control': 'no-cache'})

    @app.get('/api/state')
    def state() -> Answer:
        return desk.state()

    @app.post('/api/actions')
    def act(action: Action) -> Answer:
        return desk.act(action)

    @app.post('/api/stop')
    async def stop(request: Request) -> Answer:
        given = _stop_request(await request.body())
        # A thread outside the pool that serves the other addresses: however many of those wait, this one runs.
        return await asyncio.to_thread(desk.stop_arm, key=given.key, t_s=given.t_s)

    return app


def _stop_request(body: bytes) -> GivenStopRequest:
    """Of which episode and when, as far as it can be read: no request to stop the arm is refused for its form."""
    try:
        return GivenStopRequest.model_validate_json(body)
    except ValidationError:
        return GivenStopRequest()
