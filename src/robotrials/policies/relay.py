"""One address for every arm of a sealed trial: each question goes to the arm of the console's present assignment.

The robot's own client connects here, on openpi's wire, and nothing that it shows or logs distinguishes the arms: the
greeting holds what all arms say alike, answers keep the actions alone, and why an arm failed goes into a file
beside arms.json. How fast an arm answers, and how it moves, cannot be hidden from whoever watches the robot.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, InputError, RigError, RobotrialsError
from robotrials.policies.served import action_array, map_answer
from robotrials.run.blinding import Arms, blinding_of
from robotrials.run.plan import PolicyEntry, TrialPlan
from robotrials.wire import LIMITS, WireLimits, pack, unpack
from robotrials.wire.link import Deadline
from robotrials.wire.request import HttpLink
from robotrials.wire.websocket import WebSocketLink

FRESH_S = 0.2  # how old what the console said may be
CONSOLE_S = 2.0
CONNECT_S = 10.0
ANSWER_S = 120.0
FAILED = 'the policy of this episode failed; relay.log beside arms.json says why'
NOBODY = 'the console has no episode for a policy now'


class ConsoleAssignment:
    """Which episode is under way at a console, or comes next, and what stands for its arm."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._path = '/api/state' + (f'?{parts.query}' if parts.query else '')  # the access key, where it has one
        self._link = HttpLink(parts._replace(query='', path=parts.path.rstrip('/')).geturl())
        self._lock = threading.Lock()
        self._asked_s = -FRESH_S
        self._present: tuple[str, str] | None = None

    def present(self) -> tuple[str, str] | None:
        """The key of the episode and what stands for its arm; None where nobody, or a person, is to act.

        A console that does not answer hands out nothing new: what it said last still holds.
        """
        with self._lock:
            if time.monotonic() - self._asked_s >= FRESH_S:
                try:
                    self._present = self._ask()
                except RigError:
                    if self._present is None:
                        raise
                self._asked_s = time.monotonic()
            return self._present

    def close(self) -> None:
        self._link.close()

    def _ask(self) -> tuple[str, str] | None:
        answer = self._link.get(self._path, timeout_s=CONSOLE_S)
        if answer.status != 200:
            raise InputError(
                f'{self._link.url}: answered {answer.status}; wanted the address that `robotrials console` printed, '
                'with its key'
            )
        try:
            state = json.loads(answer.body)
            offered = [draft['assignment'] for draft in state['drafts']] or state['assignments']
            return None if not offered or offered[0]['is_human'] else (offered[0]['key'], offered[0]['code'])
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(f'{self._link.url}: not the state of a console ({error})') from error


class BlindedArms:
    """The servers behind the codes of a sealed trial, and who is to act now."""

    def __init__(self, plan: TrialPlan, arms: Arms, *, console: str, log: Path, limits: WireLimits = LIMITS) -> None:
        if not plan.blinding.is_sealed:
            raise InputError("wanted the operator's plan of a sealed trial (robotrials seal trial.toml -o sealed/)")
        self._limits, self._console = limits, ConsoleAssignment(console)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        blinding = blinding_of(plan, arms.entries, rotation=arms.rotation)
        urls = {code: _url(entry) for code, entry in arms.entries.items() if not entry.is_human}
        self._urls = {blinding.name(c, place): url for c, url in urls.items() for place in range(blinding.n_per_arm)}
        self.greeting = self._common_greeting(list(urls.values()))

    def present(self) -> tuple[str, str]:
        """The key of the episode and the server of its arm."""
        named = self._console.present()
        if named is None or named[1] not in self._urls:
            raise RigError(NOBODY if named is None else 'the console is of another trial than arms.json')
        return named[0], self._urls[named[1]]

    def connect(self, url: str) -> tuple[WebSocketLink, bytes]:
        """A connection to an arm, and its greeting."""
        try:
            link = WebSocketLink(url, deadline=Deadline.after(CONNECT_S), limits=self._limits)
        except OSError as error:
            raise RigError(f'{url}: no answer ({error})') from error
        try:
            first = link.receive(timeout_s=CONNECT_S)
        except RobotrialsError:
            link.close()
            raise
        return link, first if isinstance(first, bytes) else b''

    def note(self, what: str) -> None:
        """A line in the log, which only the unblinded may read."""
        at = dt.datetime.now(dt.UTC).isoformat(timespec='milliseconds')
        os.write(self._log, f'{at} {" ".join(what.split())}\n'.encode())

    def close(self) -> None:
        self._console.close()
        os.close(self._log)

    def _common_greeting(self, urls: list[str]) -> bytes:
        """What all arms say alike when they are greeted: each must answer before the first episode."""
        said: list[Mapping[Any, Any]] = []
        for url in urls:
            try:
                link, first = self.connect(url)
                link.close()
                greeting = unpack(first, limits=self._limits) if first else {}
                said.append(greeting if isinstance(greeting, Mapping) else {})
            except RobotrialsError as error:
                self.note(f'{url}: {error}')
                raise RigError('an arm does not answer; relay.log beside arms.json says which, and why') from None
        if not said:
            raise InputError('no arm of this trial is a server: a person needs no relay')
        mine, *others = said
        shared = {k: v for k, v in mine.items() if _same(v, v) and all(_same(v, s.get(k)) for s in others)}
        return pack({**shared, 'policy': 'blinded'})


class RelayConversation:
    """One client: its questions go to the arm of the present assignment, also when that changes between two."""

    def __init__(self, arms: BlindedArms, *, limits: WireLimits = LIMITS) -> None:
        self._arms, self._limits = arms, limits
        self._key = ''
        self._link: WebSocketLink | None = None

    def open(self, send: Any) -> None:
        send(self._arms.greeting)

    def hear(self, frame: bytes | str, send: Any) -> bool:
        """Pass one question on, and its answer back without what would tell arms apart."""
        try:
            key, url = self._arms.present()
            if key != self._key or self._link is None:
                self.close()
                self._link, _ = self._arms.connect(url)
                self._key = key
            if isinstance(frame, str):
                raise InputError('a text frame, wanted a msgpack map')
            self._link.send(frame, timeout_s=ANSWER_S)
            answer = self._link.receive(timeout_s=ANSWER_S)
            if isinstance(answer, str):
                raise RigError(f'{url}: {answer}')
            send(_stripped(answer, self._limits))
            return True
        except RobotrialsError as error:
            self._arms.note(f'{self._key or "no episode"}: {error}')
            send(NOBODY if str(error) == NOBODY else FAILED)
            self.close()
            return False

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _url(entry: PolicyEntry) -> str:
    url = str(entry.options.get('url', ''))
    if not url.startswith(('ws://', 'wss://')):
        raise InputError(
            'every arm must be a server on the openpi wire (use = "openpi", options = { url = "ws://..." }); to make '
            'one of another policy, run: robotrials policies serve TRIAL NAME --wire openpi --port 9001'
        )
    return url


def _same(a: Any, b: Any) -> bool:
    """Whether a fact of two greetings is one plain number, or none; whatever else servers say may tell whose it is."""
    return isinstance(a, bool | int | float | None) and type(a) is type(b) and a == b


def _stripped(answer: bytes, limits: WireLimits) -> bytes:
    """The actions alone, as 64-bit numbers: further keys, words and types would tell which server answered."""
    values = map_answer('an arm', unpack(answer, limits=limits))
    if 'actions' not in values:
        raise AnswerError("an arm answered without 'actions'")
    return pack({'actions': np.asarray(action_array('an arm', values['actions']), dtype=np.float64)})
