"""Policies served by openpi over its WebSocket wire.

On connecting the server sends a metadata frame. Then question and answer alternate: the observation as a msgpack map,
the answer as a msgpack map with ``actions`` (h, A) and, from most servers, ``server_timing`` with ``infer_ms``. A text
frame instead of bytes is the server's traceback, after which it hangs up.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack

import numpy as np

from robotrials.errors import AnswerError, RemoteError, undone_by
from robotrials.policies.mapping import ServedOptions
from robotrials.policies.observe import Question
from robotrials.policies.served import (
    MAX_TOLD,
    Reply,
    WebSocketPolicy,
    action_array,
    decoded,
    key_from,
    map_answer,
    seconds_told,
)
from robotrials.run import ControlMode, Setup, Target
from robotrials.wire import pack, unpack
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink


class OpenPiPolicy(WebSocketPolicy):
    """An openpi server as a policy.

    url: such as ``ws://gpu-box:8000``. observation and action: the mapping (`robotrials.policies.mapping`), over that
    of `preset`. actions_key: where the actions are in the answer. api_key_variable: the environment variable with the
    server's key.
    """

    server = 'the openpi server'

    def __init__(
        self,
        *,
        url: str,
        name: str = 'openpi',
        api_key_variable: str = '',
        actions_key: str = 'actions',
        **common: Unpack[ServedOptions],
    ) -> None:
        super().__init__(url, name=name, **common)
        self._actions_key = actions_key
        if api_key_variable:
            self._headers['Authorization'] = f'Api-Key {key_from(api_key_variable, what=url)}'

    def _greet(self, link: WebSocketLink, deadline: Deadline) -> None:
        first = link.receive(timeout_s=deadline.left_s())
        self._metadata = map_answer(f'{self.url}: first frame', self._decode(first))

    def begin(self, setup: Setup, *, seed: int) -> None:
        self._renewed()

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
        with undone_by(self.close):
            return self._decode(frame)

    def _swap(self, question: bytes) -> bytes | str:
        """Send and receive; after any fault the connection is dropped, so that no late answer is taken for another."""
        link = self._linked()
        with undone_by(self.close):
            link.send(question, timeout_s=self._answer_s)
            return link.receive(timeout_s=self._answer_s)

    def _decode(self, frame: bytes | str) -> Any:
        if isinstance(frame, str):
            raise RemoteError(f'{self.url}: the server failed:\n{frame[:MAX_TOLD]}')
        return decoded(self.url, lambda: unpack(frame, limits=self._limits))


# RoboArena's policy servers: openpi's framing, a server configuration first, and an ``endpoint`` in every question.

RESET_DONE = 'reset successful'
SPACES = {
    'joint_position': (ControlMode.JOINT_POSITION, Target.ABSOLUTE),
    'joint_velocity': (ControlMode.JOINT_VELOCITY, None),
    'cartesian_position': (ControlMode.SE3, Target.ABSOLUTE),
    'cartesian_velocity': (ControlMode.SE3, Target.DELTA),
}


class RoboArenaPolicy(OpenPiPolicy):
    """A RoboArena server as a policy; options as those of `openpi`. All actions of an answer are taken.

    `reset` is sent at every episode, with a session id of its own.
    """

    server = 'the RoboArena server'
    _session_id = ''

    def __init__(self, *, url: str, name: str = 'roboarena', **common: Unpack[ServedOptions]) -> None:
        super().__init__(url=url, name=name, **common)

    def problems(self, sample: Question) -> Iterable[str]:
        config = self._metadata
        yield from self._image_problems(sample, config)
        space = config.get('action_space')
        if space not in SPACES:
            yield f'action_space is {str(space)[:40]!r}, known: {", ".join(SPACES)}'
            return
        mode, target = SPACES[space]
        convention = self._mapping.action.convention
        if convention.control_mode is not mode or (target is not None and convention.target is not target):
            yield f'the server acts in {space}, the mapping says {convention.control_mode}, {convention.target}'

    def _image_problems(self, sample: Question, config: Mapping[Any, Any]) -> Iterator[str]:
        images = {key: value for key, value in sample.items() if isinstance(value, np.ndarray) and value.ndim == 3}
        resolution = config.get('image_resolution')
        if isinstance(resolution, list | tuple):
            for key, image in images.items():
                if tuple(image.shape[:2]) != tuple(resolution):
                    yield f'{key} is {image.shape[:2]}, the server wants {tuple(resolution)}'
        n_exterior = sum('exterior' in key and key.endswith('_left') for key in images)
        wanted = config.get('n_external_cameras', 1)
        if isinstance(wanted, int) and n_exterior < wanted:
            yield f'{n_exterior} external cameras, the server wants {wanted}'
        if config.get('needs_wrist_camera', True) and 'observation/wrist_image_left' not in images:
            yield 'the server wants observation/wrist_image_left'
        if config.get('needs_stereo_camera', False) and not any(key.endswith('_right') for key in images):
            yield 'the server wants the right pictures of stereo cameras'

    def begin(self, setup: Setup, *, seed: int) -> None:
        self._renewed()
        self._session_id = str(uuid.uuid4())
        frame = self._swap(pack({'endpoint': 'reset', 'session_id': self._session_id}))
        if isinstance(frame, bytes):
            self.close()
            raise AnswerError(f'{self.url}: the answer to reset is a message, wanted the text {RESET_DONE!r}')
        if frame.strip() != RESET_DONE:
            self.close()
            raise RemoteError(f'{self.url}: reset failed:\n{frame[:MAX_TOLD]}')

    def ask(self, question: Question) -> Reply:
        extra: dict[str, Any] = {'endpoint': 'infer'}
        if self._metadata.get('needs_session_id', False) or self._session_id:
            extra['session_id'] = self._session_id
        answer = self._exchange({**question, **extra})
        # Its servers answer with the bare array or with a map that holds it.
        value = answer.get(self._actions_key) if isinstance(answer, Mapping) else answer
        if value is None:
            raise AnswerError(f'{self.url}: the server answered without {self._actions_key!r}')
        return Reply(action_array(self.url, value))
