"""The worker's side of a client's connection: a policy whose sessions ask over the link.

What goes wrong on the client's side is the policy's own fault, also a connection that ends: a client that could undo an
episode by hanging up would hang up whenever it was about to fail.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError
from robotrials.run.convention import PolicySpec
from robotrials.run.seam import Action, Chunk, Observation, Session, Setup
from robotrials.service.platform.message import (
    CLIENT_LIMITS,
    VERSION,
    ErrorCode,
    MessageType,
    Welcome,
    decode,
    encode,
    encode_error,
    observation_to_map,
    policy_spec_from_map,
    read_action,
    read_error,
    setup_to_map,
    spec_to_map,
    told_setup,
)
from robotrials.wire.websocket import AcceptedWebSocket
from robotrials.worlds.guarded import Interrupts

SEND_S = 10.0
GLANCE_S = 0.1  # how often a wait looks at the emergency stop
CLOSED_S = 1.0


class ClientLink:
    """One client's connection, message by message. Every fault of it is an error of the policy."""

    def __init__(self, socket: AcceptedWebSocket, interrupts: Interrupts) -> None:
        self._socket, self._interrupts = socket, interrupts

    def send(self, data: bytes) -> None:
        try:
            self._socket.send(data, timeout_s=SEND_S)
        except RigError as error:
            raise RemoteError(f'the client is gone: {error}') from error

    def receive(self, wanted: MessageType, *, timeout_s: float) -> dict[str, object]:
        """The fields of the next message, if it is of the type that is due."""
        data = self._next_frame(time.monotonic() + timeout_s, timeout_s)
        try:
            kind, fields = decode(data, limits=CLIENT_LIMITS)
        except InputError as error:
            raise AnswerError(f'the client sent rubbish: {error}') from error
        if kind is MessageType.ERROR:
            told = read_error(fields)
            raise RemoteError(f'the client says: {told.code}: {told.message}')
        if kind is not wanted:
            raise AnswerError(f'the client sent {kind}, wanted {wanted}')
        return fields

    def _next_frame(self, ends_s: float, timeout_s: float) -> bytes | str:
        while True:
            try:
                return self._socket.receive(timeout_s=GLANCE_S)
            except NoAnswer:
                if self._interrupts.stop.is_set():
                    raise Stopped from None
                if self._interrupts.lost.is_set():
                    raise RigError('the server has taken the lease back') from None
                if time.monotonic() > ends_s:
                    raise NoAnswer(f'no answer within {timeout_s:g} s') from None
            except RigError as error:
                raise RemoteError(f'the client is gone: {error}') from error

    def close(self, last: bytes | None = None) -> None:
        """Say a last word, if the client still listens, and hang up."""
        try:
            if last is not None:
                self._socket.send(last, timeout_s=CLOSED_S)
        except (RigError, AnswerError):
            pass  # it does not
        finally:
            self._socket.close()

    def refuse(self, code: ErrorCode, message: str) -> None:
        self.close(encode_error(code, message))


class Stopped(Exception):  # noqa: N818 - not an error: the emergency stop ends a wait
    """The emergency stop was pressed while a policy was thinking."""


def greet(link: ClientLink, welcome: Welcome, *, timeout_s: float) -> PolicySpec:
    """Tell a client of the cell, and hear what its policy is."""
    link.send(
        encode(
            MessageType.WELCOME,
            version=VERSION,
            host=spec_to_map(welcome.host),
            answer_s=welcome.answer_s,
            thinking_s=welcome.thinking_s,
        )
    )
    fields = link.receive(MessageType.POLICY, timeout_s=timeout_s)
    try:
        return policy_spec_from_map(fields.get('spec'))
    except InputError as error:
        raise AnswerError(f'the client describes its policy wrongly: {error}') from error


class LinkPolicy:
    """The policy at the other end of a link, for the run's own loop."""

    def __init__(
        self, link: ClientLink, spec: PolicySpec, *, code: str, seed: int, answer_s: float, hold: Callable[[], Action]
    ) -> None:
        self._link, self._seed, self._answer_s, self._hold = link, seed, answer_s, hold
        self._spec = dataclasses.replace(spec, name=code, is_remote=True)
        self.arrivals_s: dict[int, float] = {}  # by the number of its question: when the answer was there, perf_counter

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        """A session, of which the client hears with its first question; `seed` is the loop's, it gets its own."""
        return _LinkSession(self, told_setup(setup, seed=self._seed))

    def ask(self, observation: Observation, step: int, setup: Setup) -> Chunk:
        """One question and its answer; with the first the client is told what it is to do."""
        link = self._link
        cameras = frozenset(self._spec.images) or None
        told = {'setup': setup_to_map(setup)} if step == 0 else {}
        link.send(encode(MessageType.OBSERVATION, step=step, **told, **observation_to_map(observation, cameras)))
        try:
            fields = link.receive(MessageType.ACTION, timeout_s=self._answer_s)
        except Stopped:
            return Chunk(np.tile(self._hold(), (self._spec.chunk_length, 1)))
        arrived_s = time.perf_counter()
        chunk = read_action(fields, step=step)
        self.arrivals_s[step] = arrived_s
        return chunk


class _LinkSession:
    def __init__(self, policy: LinkPolicy, setup: Setup) -> None:
        self._policy, self._setup = policy, setup
        self._asked = 0

    def act(self, observation: Observation) -> Chunk:
        self._asked += 1
        return self._policy.ask(observation, self._asked - 1, self._setup)
