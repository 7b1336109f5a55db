"""Policies served by openpi over its WebSocket wire.

On connecting the server sends a metadata frame. Then question and answer alternate: the observation as a msgpack map,
the answer as a msgpack map with ``actions`` (h, A) and, from most servers, ``server_timing`` with ``infer_ms``. A text
frame instead of bytes is the server's traceback, after which it hangs up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from robotrials.errors import AnswerError, RemoteError, RigError
from robotrials.policies.endpoint import (
    MAX_TOLD,
    Patience,
    Reply,
    action_array,
    decoded,
    key_from,
    map_answer,
    seconds_told,
)
from robotrials.policies.mapping import ActionEntry, read_mapping
from robotrials.policies.observe import Question
from robotrials.policies.served import ServedPolicy
from robotrials.run import Setup
from robotrials.wire import LIMITS, WireLimits, pack, unpack
from robotrials.wire.link import Deadline, keep_trying
from robotrials.wire.websocket import WebSocketLink, check_url


class OpenPiPolicy(ServedPolicy):
    """An openpi server as a policy.

    url: such as ``ws://gpu-box:8000``. observation and action: the mapping (`robotrials.policies.mapping`), over that
    of `preset`. actions_key: where the actions are in the answer. api_key_variable: the environment variable with the
    server's key.
    """

    def __init__(
        self,
        *,
        url: str,
        preset: str = '',
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        name: str = 'openpi',
        connect_timeout_s: float = 30.0,
        answer_timeout_s: float = 30.0,
        api_key_variable: str = '',
        actions_key: str = 'actions',
        max_message_bytes: int = LIMITS.max_bytes,
    ) -> None:
        endpoint = OpenPiEndpoint(
            url,
            patience=Patience(connect_s=connect_timeout_s, answer_s=answer_timeout_s),
            key_variable=api_key_variable,
            actions_key=actions_key,
            limits=WireLimits(max_bytes=max_message_bytes),
        )
        super().__init__(endpoint, read_mapping(preset=preset, observation=observation, action=action), name=name)


class OpenPiEndpoint:
    """One connection, in lock-step: made when first needed, and made anew after the server hung up."""

    kind = 'openpi'

    def __init__(
        self,
        url: str,
        *,
        patience: Patience,
        key_variable: str = '',
        actions_key: str = 'actions',
        limits: WireLimits = LIMITS,
    ) -> None:
        check_url(url)
        self.url, self._patience, self._limits, self._actions_key = url, patience, limits, actions_key
        self._headers: dict[str, str] = {}
        if key_variable:
            self._headers['Authorization'] = f'Api-Key {key_from(key_variable, what=url)}'
        self._link: WebSocketLink | None = None
        self._metadata: Mapping[Any, Any] = {}

    def connect(self) -> None:
        if self._link is None:
            self._link = keep_trying(
                self._open, what=f'{self.url}: the {self.kind} server', timeout_s=self._patience.connect_s
            )

    def _open(self, deadline: Deadline) -> WebSocketLink:
        link = WebSocketLink(self.url, deadline=deadline, headers=self._headers, limits=self._limits)
        try:
            first = link.receive(timeout_s=deadline.left_s())
            self._metadata = map_answer(f'{self.url}: first frame', self._decode(first))
        except BaseException:
            link.close()
            raise
        return link

    def facts(self) -> Mapping[str, object]:
        self.connect()
        return {str(key): value for key, value in self._metadata.items()}

    def problems(self, sample: Question, action: ActionEntry) -> Iterable[str]:
        return ()  # the wire says nothing of keys and shapes

    def begin(self, setup: Setup, *, seed: int) -> None:
        self._renew()

    def end(self) -> None:
        """The wire has no word for it."""

    def _renew(self) -> WebSocketLink:
        """The connection; made anew if the server left since the last question."""
        if self._link is not None:
            try:
                self._link.is_stale()
            except RigError:
                self.close()
        self.connect()
        if self._link is None:
            raise RuntimeError('connect() left no connection')
        return self._link

    def ask(self, question: Question) -> Reply:
        answer = map_answer(self.url, self._exchange(question))
        if self._actions_key not in answer:
            given = ', '.join(map(str, answer))[:200]
            raise AnswerError(f'{self.url}: the server answered without {self._actions_key!r}; it gave {given}')
        timing = answer.get('server_timing') or answer.get('policy_timing') or {}
        thought_ms = timing.get('infer_ms') if isinstance(timing, Mapping) else None
        return Reply(action_array(self.url, answer[self._actions_key]), seconds_told(self.url, thought_ms))

    def _exchange(self, question: Mapping[str, Any]) -> Any:
        frame = self._swap(pack(question))
        try:
            return self._decode(frame)
        except BaseException:
            self.close()
            raise

    def _swap(self, question: bytes) -> bytes | str:
        """Send and receive; after any fault the connection is dropped, so that no late answer is taken for another."""
        self.connect()
        link = self._link
        if link is None:
            raise RuntimeError('connect() left no connection')
        try:
            link.send(question, timeout_s=self._patience.answer_s)
            return link.receive(timeout_s=self._patience.answer_s)
        except BaseException:
            self.close()
            raise

    def _decode(self, frame: bytes | str) -> Any:
        if isinstance(frame, str):
            raise RemoteError(f'{self.url}: the server failed:\n{frame[:MAX_TOLD]}')
        return decoded(self.url, lambda: unpack(frame, limits=self._limits))

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
