"""Policies behind ``POST /act``: OpenVLA, OpenVLA-OFT and AutoEval, with arrays in JSON as json-numpy writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from robotrials.errors import AnswerError, RemoteError, RigError
from robotrials.policies.mapping import ServedOptions
from robotrials.policies.observe import Question
from robotrials.policies.served import MAX_TOLD, Reply, ServedPolicy, action_array, decoded
from robotrials.run import Setup
from robotrials.wire.array import pack_json, unpack_json
from robotrials.wire.link import Deadline, keep_trying
from robotrials.wire.request import HttpAnswer, HttpLink

GATEWAY = (502, 503, 504)
FAILED = 'error'


class OpenVlaPolicy(ServedPolicy):
    """A `/act` server as a policy.

    fields: further constants of every question, such as ``{unnorm_key = "libero_spatial"}``. double_encoded: the body
    is ``{encoded: JSON text}``. reset_path: posted to at every episode (AutoEval: ``/reset``); a 404 is no fault. The
    order of the mapping's images is kept: OFT takes wrist cameras in the order of their keys.
    """

    def __init__(
        self,
        *,
        url: str,
        name: str = 'openvla',
        fields: Mapping[str, Any] | None = None,
        double_encoded: bool = False,
        act_path: str = '/act',
        reset_path: str = '',
        **common: Unpack[ServedOptions],
    ) -> None:
        super().__init__(name=name, **common)
        self.url = url.rstrip('/')
        self._fields, self._double = dict(fields or {}), double_encoded
        self._act_path, self._reset_path = act_path, reset_path
        self._link = HttpLink(url, limits=self._limits)
        self._is_up = False

    def connect(self) -> None:
        """Wait until the server takes connections; it has no other way of saying that it is ready."""
        if not self._is_up:
            keep_trying(self._knock, what=f'{self.url}: the server', timeout_s=self._connect_s)
            self._is_up = True

    def _knock(self, deadline: Deadline) -> None:
        try:
            answer = self._link.get('/health', timeout_s=deadline.left_s())
        except (RigError, TimeoutError) as error:
            raise ConnectionError(str(error)) from error
        if answer.status in GATEWAY:
            raise ConnectionError(f'HTTP {answer.status}')

    @property
    def facts(self) -> Mapping[str, object]:
        self.connect()
        return {'path': self._act_path}

    def begin(self, setup: Setup, *, seed: int) -> None:
        self.connect()
        if self._reset_path:
            answer = self._link.post(self._reset_path, b'{}', timeout_s=self._answer_s)
            if answer.status != 404:
                self._check(answer, self._reset_path)

    def ask(self, question: Question) -> Reply:
        body = pack_json({**question, **self._fields})
        if self._double:
            body = json.dumps({'encoded': body.decode()}).encode()
        answer = self._link.post(self._act_path, body, timeout_s=self._answer_s)
        self._check(answer, self._act_path)
        value = decoded(self.url, lambda: unpack_json(answer.body, limits=self._limits))
        if isinstance(value, str) and value != FAILED:
            text = value
            value = decoded(self.url, lambda: unpack_json(text, limits=self._limits))
        if isinstance(value, str):
            raise RemoteError(f'{self.url}: the server answered {value[:200]!r} with HTTP 200; its log says why')
        if isinstance(value, np.generic | int | float | bool) or value is None:
            raise AnswerError(f'{self.url}: the answer is {str(value)[:100]}, wanted actions')
        if isinstance(value, Mapping):
            raise AnswerError(f'{self.url}: the answer is a map of {", ".join(map(str, value))[:200]}, wanted actions')
        return Reply(action_array(self.url, value))

    def _check(self, answer: HttpAnswer, path: str) -> None:
        if answer.status in GATEWAY:
            raise RigError(f'{self.url}{path}: HTTP {answer.status} from a gateway: {answer.text(500)}')
        if answer.status >= 400:
            raise RemoteError(f'{self.url}{path}: HTTP {answer.status}: {answer.text(MAX_TOLD)}')

    def close(self) -> None:
        self._is_up = False
        self._link.close()
