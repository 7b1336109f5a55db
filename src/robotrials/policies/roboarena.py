"""RoboArena's policy servers: openpi's framing, a server configuration first, and an ``endpoint`` in every question."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, RemoteError
from robotrials.policies.endpoint import MAX_TOLD, Patience, Reply, action_array
from robotrials.policies.mapping import ActionEntry, read_mapping
from robotrials.policies.observe import Question
from robotrials.policies.openpi import OpenPiEndpoint
from robotrials.policies.served import ServedPolicy
from robotrials.run import ControlMode, Setup, Target
from robotrials.wire import LIMITS, WireLimits, pack

RESET_DONE = 'reset successful'
SPACES = {
    'joint_position': (ControlMode.JOINT_POSITION, Target.ABSOLUTE),
    'joint_velocity': (ControlMode.JOINT_VELOCITY, None),
    'cartesian_position': (ControlMode.SE3, Target.ABSOLUTE),
    'cartesian_velocity': (ControlMode.SE3, Target.DELTA),
}


class RoboArenaPolicy(ServedPolicy):
    """A RoboArena server as a policy; options as those of `openpi`. All actions of an answer are taken."""

    def __init__(
        self,
        *,
        url: str,
        preset: str = '',
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        name: str = 'roboarena',
        connect_timeout_s: float = 30.0,
        answer_timeout_s: float = 30.0,
        max_message_bytes: int = LIMITS.max_bytes,
    ) -> None:
        patience = Patience(connect_s=connect_timeout_s, answer_s=answer_timeout_s)
        endpoint = RoboArenaEndpoint(url, patience=patience, limits=WireLimits(max_bytes=max_message_bytes))
        super().__init__(endpoint, read_mapping(preset=preset, observation=observation, action=action), name=name)


class RoboArenaEndpoint(OpenPiEndpoint):
    """`reset` at every episode, with a session id of its own."""

    kind = 'RoboArena'
    _session_id = ''

    def problems(self, sample: Question, action: ActionEntry) -> Iterable[str]:
        config = self._metadata
        yield from self._image_problems(sample, config)
        space = config.get('action_space')
        if space not in SPACES:
            yield f'action_space is {str(space)[:40]!r}, known: {", ".join(SPACES)}'
            return
        mode, target = SPACES[space]
        convention = action.convention
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
        self._renew()
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
