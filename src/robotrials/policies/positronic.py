"""Positronic's session wire, versions 1 and 3: a WebSocket with status frames first, actions with their own times.

Every action says at which moment of the chunk it is meant (``timestamp``, seconds). It is taken at the first control
step at or after that moment, and holds until the next, so that a chunk means the same at every control rate.

Version 3 (positronic-model-server) issues a session id, which every question carries beside its observation, gives
results as the model does (commands, or plain numbers), and describes what its own client would do to either
(``local_stack``). What of that changes a question or an answer is the mapping's to do, and must be acknowledged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import quote, urlencode

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, RemoteError, SetupError
from robotrials.policies.mapping import ServedOptions
from robotrials.policies.observe import Question
from robotrials.policies.openpi import OpenPiPolicy
from robotrials.policies.served import (
    MAX_TOLD,
    Reply,
    action_array,
    decoded,
    key_from,
    map_answer,
    seconds_told,
)
from robotrials.run import ControlMode, HostSpec, Rotation, Setup
from robotrials.wire import unpack
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink

STATUSES = ('loading', 'waiting', 'ready', 'error')
VERSIONS = (1, 3)
SCHEDULE = 'chunked_schedule'  # the step of a version 3 client that says how fast the actions of a chunk follow
PLAIN_STEPS = (SCHEDULE, 'metadata', 'encode_images')  # what need not be done: pictures may come unpacked
SLACK_S = 1e-6
DEEPEST_STACK = 20
# Type of command -> the field with its numbers and how many there are (None: as many as joints).
COMMANDS: Mapping[str, tuple[str, int | None]] = {
    'cartesian_pos': ('pose', 12),
    'cartesian_delta': ('pose', 12),
    'joint_pos': ('positions', None),
    'joint_delta': ('velocities', None),
}


class PositronicPolicy(OpenPiPolicy):
    """A positronic server as a policy.

    url: ``ws://HOST:PORT``. model: its id; empty is the server's default. Keys are positronic's flat ones, such as
    ``robot_state.q`` and ``image.wrist``. The convention is that of the commands: poses arrive as a place and a matrix
    and are given on as ``matrix_6d``; the gripper is ``closed_is_one``. Of a version 3 server only: parameters of the
    session by name, and client_steps, the steps of its client's pipeline that this mapping does instead.

    A connection is a session: every episode has a new one.
    """

    server = 'the positronic server'
    _dt_s = 0.0
    _ticks_s: NDArray[np.float64] = np.zeros(1)
    _last: NDArray[np.float64] | None = None
    _session: str | None = None  # of version 3

    def __init__(
        self,
        *,
        url: str,
        name: str = 'positronic',
        model: str = '',
        token_variable: str = '',
        parameters: Mapping[str, Any] | None = None,
        client_steps: Sequence[str] = (),
        **common: Unpack[ServedOptions],
    ) -> None:
        path = '/api/v1/session' + (f'/{quote(model)}' if model else '')
        common.setdefault('connect_timeout_s', 300.0)
        if parameters:
            path += '?' + urlencode({name: json.dumps(value) for name, value in parameters.items()})
        super().__init__(url=url.rstrip('/') + path, name=name, **common)
        if token_variable:
            self._headers['Authorization'] = f'Bearer {key_from(token_variable, what=url)}'
        self._done_here = tuple(client_steps)
        self._steps = self._mapping.action.chunk_length
        convention = self._mapping.action.convention
        self._is_pose, self._width = convention.control_mode is ControlMode.SE3, convention.motion_width

    def fit(self, host: HostSpec) -> None:
        self._dt_s = 1.0 / host.control_rate_hz
        self._ticks_s = np.asarray(np.arange(self._steps) * self._dt_s + SLACK_S, dtype=np.float64)
        super().fit(host)

    def _greet(self, link: WebSocketLink, deadline: Deadline) -> None:
        status: object = ''
        while status != 'ready':
            frame = link.receive(timeout_s=deadline.left_s())
            message = map_answer(f'{self.url}: status', self._decode(frame))
            status = message.get('status')
            if status == 'error':
                raise RemoteError(f'{self.url}: the server refused: {str(message.get("error"))[:MAX_TOLD]}')
            if status not in STATUSES:
                raise AnswerError(f'{self.url}: a status of {str(status)[:40]!r}, wanted one of {STATUSES}')
        meta = message.get('meta')
        self._metadata = meta if isinstance(meta, Mapping) else {}
        self._session = self._agreed(message)

    def _agreed(self, ready: Mapping[Any, Any]) -> str | None:
        """The session's id, None in version 1; SetupError for what is not spoken here: no policy is to blame for it."""
        version = ready.get('protocol_version', 1)
        if version not in VERSIONS or isinstance(version, bool):
            raise SetupError(
                f'{self.url}: the server speaks version {str(version)[:40]} of the session protocol, this release '
                f'{" and ".join(map(str, VERSIONS))}; serve it with a positronic-model-server of that version'
            )
        if version == 1:
            return None
        session = ready.get('session_id')
        if not isinstance(session, str) or not session:
            raise SetupError(f'{self.url}: a server of version {version} that issued no session_id')
        return session

    def problems(self, sample: Question) -> Iterable[str]:
        convention = self._mapping.action.convention
        if convention.control_mode is ControlMode.SE3 and convention.rotation is not Rotation.MATRIX_6D:
            yield f'poses arrive as matrix_6d, the convention says {convention.rotation}'
        horizon_s = self._metadata.get('action_horizon_sec')
        covered_s = self._steps * self._dt_s
        if isinstance(horizon_s, int | float) and horizon_s > 0 and covered_s > horizon_s + self._dt_s / 2:
            yield f"chunk_length covers {covered_s:g} s at the host's rate, the server plans {horizon_s:g} s ahead"
        if self._metadata.get('compress_images') is True:
            yield 'the server wants JPEG frames (compress_images), which robotrials does not send'
        for step in self._steps_of(self._metadata.get('local_stack')):
            name = str(step.get('name'))
            if name not in (*PLAIN_STEPS, *self._done_here):
                yield (
                    f"its client's pipeline has a step {name} ({step.get('args')}), which robotrials does not run; do "
                    f'it in the mapping, and say client_steps = ["{name}"]'
                )

    def _steps_of(self, stack: object, depth: int = 0) -> Iterator[Mapping[Any, Any]]:
        """The steps of a client's pipeline, those in parallel too."""
        if not isinstance(stack, Mapping) or depth > DEEPEST_STACK:
            return
        for part in [*_listed(stack.get('seq')), *_listed(stack.get('par'))]:
            yield from self._steps_of(part, depth + 1)
        if 'name' in stack:
            yield stack

    @property
    def _between_s(self) -> float:
        """Seconds between two actions that carry no times: by the server's schedule, else a control step."""
        if self._session is not None:
            for step in self._steps_of(self._metadata.get('local_stack')):
                args = step.get('args')
                fps = args.get('fps') if step.get('name') == SCHEDULE and isinstance(args, Mapping) else None
                if isinstance(fps, int | float) and fps > 0:
                    return 1.0 / fps
        return self._dt_s

    def begin(self, setup: Setup, *, seed: int) -> None:
        self.close()
        self._last = None
        self.connect()

    def end(self) -> None:
        self.close()

    def ask(self, question: Question) -> Reply:
        self.connect()
        session = self._session
        asked = question if session is None else {'session_id': session, 'observation': question}
        answer = map_answer(self.url, self._exchange(asked))
        if 'error' in answer:
            raise RemoteError(f'{self.url}: the server failed: {str(answer["error"])[:MAX_TOLD]}')
        if 'result' not in answer:
            raise AnswerError(f"{self.url}: an answer without 'result'; it gave {', '.join(map(str, answer))[:200]}")
        timing = answer.get('timing')
        thought_ms = timing.get('infer_ms') if isinstance(timing, Mapping) else None
        return Reply(self._on_grid(answer['result']), seconds_told(self.url, thought_ms))

    def _on_grid(self, result: object) -> NDArray[np.float64]:
        """Actions at the host's control steps, (steps, numbers), from actions with times of their own."""
        if result is None or (isinstance(result, list) and not result):
            if self._last is None:
                raise AnswerError(f'{self.url}: no action in the first answer of an episode')
            return np.tile(self._last, (self._steps, 1))
        if (
            self._session is not None
            and isinstance(result, np.ndarray | list)
            and not (isinstance(result, list) and all(isinstance(action, Mapping) for action in result))
        ):
            rows = action_array(self.url, result)  # as the model gives them
            times_s = np.asarray(np.arange(len(rows)) * self._between_s, dtype=np.float64)
            return self._taken(times_s, np.asarray(rows, dtype=np.float64))
        if not isinstance(result, list):
            raise AnswerError(f'{self.url}: result is a {type(result).__name__}, wanted a list of actions')
        fields = [map_answer(self.url, action) for action in result]
        stamps = [action.get('timestamp', number * self._between_s) for number, action in enumerate(fields)]
        last_s = 0.0
        for time_s in stamps:
            if not isinstance(time_s, int | float | np.number) or not last_s <= time_s < math.inf:
                raise AnswerError(f'{self.url}: actions whose timestamps do not rise from 0: {str(stamps)[:200]}')
            last_s = float(time_s)
        return self._taken(np.asarray(stamps, dtype=np.float64), self._numbers(fields))

    def _taken(self, times_s: NDArray[np.float64], actions: NDArray[np.float64]) -> NDArray[np.float64]:
        places = np.searchsorted(times_s, self._ticks_s, side='right') - 1
        self._last = actions[-1]
        return np.asarray(actions[np.maximum(places, 0)])

    def _numbers(self, fields: list[Mapping[Any, Any]]) -> NDArray[np.float64]:
        """The numbers of all commands, (actions, numbers); every one is of the declared kind."""
        rows = []
        for action in fields:
            command = map_answer(self.url, _unwrapped(action.get('robot_command')))
            kind = str(command.get('type'))[:40]
            if kind not in COMMANDS:
                raise AnswerError(f'{self.url}: a command of type {kind!r}, wanted one of {", ".join(COMMANDS)}')
            field, size = COMMANDS[kind]
            if (size is None) == self._is_pose:
                raise AnswerError(f'{self.url}: {kind} does not fit the declared convention')
            rows.append(command.get(field))
        numbers = self._array(rows, 'commands')
        if numbers.shape != (len(rows), 12 if self._is_pose else self._width):
            raise AnswerError(f'{self.url}: commands of shape {numbers.shape} do not fit the declared convention')
        if self._is_pose:
            numbers = numbers[:, [0, 1, 2, 3, 6, 9, 4, 7, 10]]  # the place, and two columns of the matrix
        grips = [action.get('target_grip') for action in fields]
        if all(grip is None for grip in grips):
            return numbers
        return np.concatenate([numbers, self._array(grips, 'grips').reshape(len(rows), -1)[:, :1]], axis=1)

    def _array(self, values: list[Any], what: str) -> NDArray[np.float64]:
        try:
            return np.asarray(values, dtype=float)
        except (TypeError, ValueError) as error:
            raise AnswerError(f'{self.url}: {what} that are not numbers, or not equally many') from error

    def _decode(self, frame: bytes | str) -> Any:
        if isinstance(frame, str):
            raise AnswerError(f'{self.url}: a text frame: {frame[:500]!r}')
        return decoded(self.url, lambda: unpack(frame, limits=self._limits))


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _unwrapped(command: object) -> object:
    """Servers of its own library put a command into an envelope."""
    return command[b'__cmd__'] if isinstance(command, Mapping) and b'__cmd__' in command else command
