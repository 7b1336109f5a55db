"""Policies served by openpi over its WebSocket wire.

On connecting the server sends a metadata frame. Then question and answer alternate: the observation as a msgpack map,
the answer as a msgpack map with ``actions`` (h, A) and, from most servers, ``server_timing`` with ``infer_ms``. A text
frame instead of bytes is the server's traceback, after which it hangs up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.errors import InputError, SetupError
from trialist.run import ActionConvention, Chunk, Observation, PolicySpec, Session, Setup
from trialist.wire import pack, unpack

RETRY_S = 0.2


class OpenPiPolicy:
    """An openpi server as a policy.

    url: such as ``ws://gpu-box:8000``. convention: the fields of ActionConvention. images: key on the wire -> camera of
    the host. state: key on the wire -> [first, last) of the host's state. prompt: the key for the instruction.
    action_width: how many numbers of each action are the robot's; servers may pad. api_key_variable: the environment
    variable with the server's key.
    """

    def __init__(
        self,
        *,
        url: str,
        convention: Mapping[str, Any],
        chunk_length: int,
        images: Mapping[str, str] | None = None,
        state: Mapping[str, Sequence[int]] | None = None,
        prompt: str = 'prompt',
        actions: str = 'actions',
        action_width: int | None = None,
        control_rate_hz: float | None = None,
        state_width: int | None = None,
        state_layout: Sequence[str] = (),
        name: str = 'openpi',
        connect_timeout_s: float = 30.0,
        answer_timeout_s: float = 60.0,
        api_key_variable: str = '',
    ) -> None:
        if not url.startswith(('ws://', 'wss://')):
            raise InputError(f'url is {url!r}, wanted ws://HOST:PORT or wss://...')
        self._images, self._prompt, self._actions = dict(images or {}), prompt, actions
        self._state = {key: _span(key, span) for key, span in (state or {}).items()}
        self._spec = PolicySpec(
            name=name,
            action=ActionConvention(**convention),
            chunk_length=chunk_length,
            control_rate_hz=control_rate_hz,
            state_width=state_width,
            state_layout=tuple(state_layout),
            images=dict.fromkeys(self._images.values()),
        )
        self._width = self._spec.action.width if action_width is None else action_width
        if self._width != self._spec.action.width:
            raise InputError(f'action_width is {action_width}, the convention has {self._spec.action.width} numbers')
        self._wire = OpenPiConnection(
            url, connect_timeout_s=connect_timeout_s, answer_timeout_s=answer_timeout_s, key_variable=api_key_variable
        )
        self._wire.connect()

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the server said of itself when it was connected."""
        return self._wire.metadata

    def start(self, setup: Setup, *, seed: int) -> Session:
        self._wire.connect()
        return _OpenPiSession(self, setup.instruction)

    def question(self, observation: Observation, instruction: str) -> dict[str, Any]:
        """The observation as the server wants it."""
        asked: dict[str, Any] = {key: observation.images[camera] for key, camera in self._images.items()}
        asked.update({key: observation.state[span] for key, span in self._state.items()})
        if self._prompt:
            asked[self._prompt] = instruction
        return asked

    def ask(self, question: Mapping[str, Any]) -> Chunk:
        answer = self._wire.infer(question)
        if self._actions not in answer:
            raise InputError(f'the server answered without {self._actions!r}; it gave {", ".join(map(str, answer))}')
        actions: NDArray[Any] = np.asarray(answer[self._actions])
        if actions.ndim == 2 and actions.shape[1] > self._width:
            actions = actions[:, : self._width]
        timing = answer.get('server_timing') or answer.get('policy_timing') or {}
        thought_ms = timing.get('infer_ms') if isinstance(timing, Mapping) else None
        return Chunk(actions, None if thought_ms is None else float(thought_ms) / 1000.0)

    def close(self) -> None:
        self._wire.close()


class _OpenPiSession:
    def __init__(self, policy: OpenPiPolicy, instruction: str) -> None:
        self._policy, self._instruction = policy, instruction

    def act(self, observation: Observation) -> Chunk:
        return self._policy.ask(self._policy.question(observation, self._instruction))


class OpenPiConnection:
    """One connection, in lock-step: made when first needed, and made anew after the server hung up."""

    def __init__(self, url: str, *, connect_timeout_s: float, answer_timeout_s: float, key_variable: str = '') -> None:
        self._url, self._connect_timeout_s, self._answer_timeout_s = url, connect_timeout_s, answer_timeout_s
        self._headers: dict[str, str] | None = None
        if key_variable:
            if key_variable not in os.environ:
                raise SetupError(f'the environment variable {key_variable}, which holds the key of {url}, is not set')
            self._headers = {'Authorization': f'Api-Key {os.environ[key_variable]}'}
        self._opened: Any = None  # the context that `connect` gives, entered
        self._socket: Any = None
        self._metadata: Mapping[str, Any] = {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        self.connect()
        return self._metadata

    def connect(self) -> None:
        """Connect if there is no connection, trying until the time is up: servers take long to load."""
        if self._socket is not None:
            return
        client, exceptions = _websockets()
        deadline = time.monotonic() + self._connect_timeout_s
        while True:
            try:
                opening = client.connect(
                    self._url,
                    compression=None,
                    max_size=None,
                    additional_headers=self._headers,
                    proxy=None,
                    ping_interval=None,  # a server that thinks does not answer pings
                )
                self._socket = opening.__enter__()
                self._opened = opening
                break
            except (OSError, exceptions.InvalidHandshake) as error:
                if time.monotonic() > deadline:
                    raise SetupError(f'{self._url}: no openpi server answered ({error}); is it running?') from error
                time.sleep(RETRY_S)
        metadata = self._receive(self._connect_timeout_s)
        if not isinstance(metadata, Mapping):
            raise InputError(f'{self._url}: the first frame is a {type(metadata).__name__}, wanted a map of metadata')
        self._metadata = metadata

    def infer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """One question, one answer."""
        self.connect()
        _, exceptions = _websockets()
        try:
            self._socket.send(pack(question))
        except exceptions.ConnectionClosed as error:
            self.close()
            raise ConnectionError(f'{self._url}: the server hung up ({error})') from error
        answer = self._receive(self._answer_timeout_s)
        if not isinstance(answer, Mapping):
            raise InputError(f'{self._url}: the answer is a {type(answer).__name__}, wanted a map')
        return answer

    def _receive(self, timeout_s: float) -> Any:
        _, exceptions = _websockets()
        try:
            frame = self._socket.recv(timeout=timeout_s)
        except TimeoutError as error:
            self.close()  # an answer that comes later would be taken for the next one's
            raise TimeoutError(f'{self._url}: no answer within {timeout_s:g} s') from error
        except exceptions.ConnectionClosed as error:
            self.close()
            raise ConnectionError(f'{self._url}: the server hung up ({error})') from error
        if isinstance(frame, str):
            self.close()
            raise RuntimeError(f'{self._url}: the server failed:\n{frame}')
        return unpack(frame)

    def close(self) -> None:
        opened, self._opened, self._socket = self._opened, None, None
        if opened is not None:
            opened.__exit__(None, None, None)


def _span(key: str, span: Sequence[int]) -> slice:
    if len(span) != 2 or not 0 <= span[0] < span[1]:
        raise InputError(f'state {key!r} is {list(span)}, wanted [first, last) of the state vector')
    return slice(span[0], span[1])


def _websockets() -> tuple[Any, Any]:
    try:
        import websockets.exceptions
        import websockets.sync.client
    except ModuleNotFoundError as error:
        raise SetupError("websockets is not installed; pip install 'trialist[wire]'") from error
    return websockets.sync.client, websockets.exceptions
