"""The client side of rosbridge: ROS topics and services as JSON over a WebSocket, without ROS.

Every call has a deadline and every message a bound. Of a topic only the newest message is kept, with a count of how
many came, so that whoever waits for news knows it from what was there before.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError
from robotrials.wire.limit import LIMITS, WireLimits, check_depth
from robotrials.wire.link import Deadline, keep_trying
from robotrials.wire.websocket import WebSocketLink, check_url

SEND_S = 5.0


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest message of a topic, how many came since it was subscribed to, and when this one did."""

    message: Mapping[str, Any]
    count: int
    at_s: float  # of time.monotonic()


class RosbridgeLink:
    """One connection to a rosbridge server."""

    def __init__(self, url: str, *, timeout_s: float, limits: WireLimits = LIMITS) -> None:
        check_url(url)
        self.url, self._limits = url, limits
        self._link = keep_trying(
            lambda deadline: WebSocketLink(url, deadline=deadline, limits=limits), what=url, timeout_s=timeout_s
        )
        self._numbers = itertools.count(1)
        self._heard: dict[str, Heard] = {}
        self._replies: dict[str, Mapping[str, Any]] = {}
        self._waited: str | None = None

    def advertise(self, topic: str, kind: str) -> None:
        self._tell({'op': 'advertise', 'topic': topic, 'type': kind})

    def subscribe(self, topic: str, kind: str) -> None:
        """Ask for a topic's newest messages; the server drops what we have no time for."""
        self._tell({'op': 'subscribe', 'topic': topic, 'type': kind, 'queue_length': 1})

    def publish(self, topic: str, message: Mapping[str, Any]) -> None:
        self._tell({'op': 'publish', 'topic': topic, 'msg': message})

    def call_service(self, service: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]:
        """What a service answers; RemoteError if it says that it failed, NoAnswer if it says nothing."""
        number = f'call:{next(self._numbers)}'
        self._waited = number
        self._tell({'op': 'call_service', 'service': service, 'args': arguments, 'id': number})
        deadline = Deadline.after(timeout_s)
        while number not in self._replies:
            self._take(deadline, f'service {service} within {timeout_s:g} s')
        self._waited = None
        reply = self._replies.pop(number)
        values = reply.get('values')
        if reply.get('result') is not True:
            raise RemoteError(f'{self.url}: service {service} failed: {str(values)[:300]}')
        return values if isinstance(values, dict) else {}

    def listen(self) -> None:
        """Read everything that waits."""
        while self._link.is_stale():
            self._take(Deadline.after(SEND_S), 'what was announced')

    def heard(self, topic: str) -> Heard | None:
        """The newest message of a topic that was read."""
        return self._heard.get(topic)

    def count(self, topic: str) -> int:
        """How many messages of a topic were read."""
        heard = self._heard.get(topic)
        return heard.count if heard is not None else 0

    def await_news(self, topic: str, *, after: int, timeout_s: float) -> Mapping[str, Any]:
        """The newest message of a topic of which more than `after` came; NoAnswer if it stays silent."""
        deadline = Deadline.after(timeout_s)
        while True:
            self.listen()
            heard = self._heard.get(topic)
            if heard is not None and heard.count > after:
                return heard.message
            self._take(deadline, f'topic {topic} within {timeout_s:g} s')

    def close(self) -> None:
        self._link.close()

    # --- inside

    def _tell(self, message: Mapping[str, Any]) -> None:
        try:
            text = json.dumps(message, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f'{self.url}: cannot be sent: {error}') from error
        self._link.send_text(text, timeout_s=SEND_S)

    def _take(self, deadline: Deadline, wanted: str) -> None:
        """Read one message and put it where it belongs."""
        try:
            left_s = deadline.left_s()
        except TimeoutError as error:
            raise NoAnswer(f'{self.url}: silence: nothing of {wanted}') from error
        try:
            text = self._link.receive(timeout_s=left_s)
        except NoAnswer as error:
            raise NoAnswer(f'{self.url}: silence: nothing of {wanted}') from error
        message = self._parsed(text)
        op = message.get('op')
        if op == 'publish' and isinstance(message.get('topic'), str) and isinstance(message.get('msg'), dict):
            topic = message['topic']
            before = self._heard.get(topic)
            self._heard[topic] = Heard(message['msg'], before.count + 1 if before is not None else 1, time.monotonic())
        elif op == 'service_response':
            if message.get('id') == self._waited and self._waited is not None:
                self._replies[self._waited] = message
        elif op == 'status':
            if message.get('level') == 'error':
                raise RigError(f'{self.url}: rosbridge says: {str(message.get("msg"))[:300]}')
        else:
            raise AnswerError(
                f'{self.url}: a message of op {str(op)[:40]!r}, which is not one of rosbridge that we know'
            )

    def _parsed(self, text: bytes | str) -> dict[str, Any]:
        if len(text) > self._limits.max_bytes:
            raise AnswerError(
                f'{self.url}: a message of {len(text)} bytes, more than the {self._limits.max_bytes} allowed'
            )
        try:
            message = json.loads(text, parse_constant=_refuse)
            check_depth(message, self._limits)
        except (ValueError, RecursionError) as error:
            raise AnswerError(f'{self.url}: a message that is no JSON ({error})') from error
        if not isinstance(message, dict):
            raise AnswerError(f'{self.url}: a message of type {type(message).__name__}, wanted an object')
        return message


def _refuse(name: str) -> float:
    raise ValueError(f'{name}, which is no number of JSON')
