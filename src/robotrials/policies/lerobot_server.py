"""LeRobot's asynchronous inference server, over its gRPC service.

Its messages are pickles. Answers are read by `robotrials.wire.tensor_pickle`, which builds tensors and runs nothing, so
that the server can do nothing here; the server unpickles what it is sent, so that whoever can reach it can do anything
there: keep it on a network of your own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError, SetupError
from robotrials.policies.mapping import ActionEntry, read_mapping
from robotrials.policies.observe import Question
from robotrials.policies.served import Patience, Reply, ServedPolicy, action_array, decoded, map_answer
from robotrials.run import Setup
from robotrials.run.environment import WorkerProcess, find_environment, read_recipe
from robotrials.wire import LIMITS, WireLimits
from robotrials.wire.tensor_pickle import read_actions, write_object

SERVICE = 'robotrials.policies.grpc_worker:GrpcService'
METHODS = '/transport.AsyncInference/'
SCHEME = 'grpc://'
PART_BYTES = 2 << 20  # of an observation, as LeRobot's own client cuts it
BEGIN, MIDDLE, END = 1, 2, 3  # of a transfer
STATE, IMAGES, TASK = 'observation.state', 'observation.images.', 'task'
AWAY = ('UNAVAILABLE', 'CANCELLED')


class LeRobotServerPolicy(ServedPolicy):
    """A checkpoint behind LeRobot's own policy server (``python -m lerobot.async_inference.policy_server``).

    url: ``grpc://HOST:PORT``. path: the checkpoint, as the *server* finds it: a folder there, or a name on the Hub.
    kind: what it is, such as ``act`` or ``smolvla``. device: where the server is to run it. Keys of the mapping are
    ``observation.state``, ``observation.images.NAME`` and ``task``. The server is asked in step: every chunk is of the
    observation it was asked with.
    """

    def __init__(
        self,
        *,
        url: str,
        path: str,
        kind: str,
        device: str = 'cpu',
        environment: str = 'grpc',
        preset: str = '',
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        name: str = 'lerobot-server',
        connect_timeout_s: float = 600.0,
        answer_timeout_s: float = 60.0,
        max_message_bytes: int = LIMITS.max_bytes,
    ) -> None:
        mapping = read_mapping(preset=preset, observation=observation, action=action)
        endpoint = LeRobotServerEndpoint(
            url,
            instructions={
                'policy_type': kind, 'pretrained_name_or_path': path, 'device': device, 'rename_map': {},
                'actions_per_chunk': mapping.action.chunk_length,
            },
            patience=Patience(connect_s=connect_timeout_s, answer_s=answer_timeout_s),
            environment=environment,
            limits=WireLimits(max_bytes=max_message_bytes),
        )  # fmt: skip
        super().__init__(endpoint, mapping, name=name)


class LeRobotServerEndpoint:
    """One channel to the server: told once which checkpoint to load, then asked observation by observation."""

    def __init__(
        self, url: str, *, instructions: Mapping[str, Any], patience: Patience, environment: str, limits: WireLimits
    ) -> None:
        if not url.startswith(SCHEME) or ':' not in url.removeprefix(SCHEME):
            raise InputError(f'url is {url!r}, wanted grpc://HOST:PORT')
        self.url, self._instructions, self._patience = url, dict(instructions), patience
        self._environment, self._limits = environment, limits
        self._worker: WorkerProcess | None = None
        self._features: dict[str, Any] = {}
        self._steps = 0

    def connect(self) -> None:
        if self._worker is not None:
            return
        recipe = read_recipe(self._environment)
        environment = find_environment(recipe.name, recipe.digest)
        self._worker = WorkerProcess(
            environment, SERVICE, start_timeout_s=self._patience.connect_s, limits=self._limits
        )
        asked = {
            'target': self.url.removeprefix(SCHEME), 'timeout_s': self._patience.connect_s,
            'max_bytes': self._limits.max_bytes,
        }  # fmt: skip
        try:
            answer = map_answer(self.url, self._worker.call('open', asked, timeout_s=self._patience.connect_s + 10.0))
            if answer.get('status') != 'OK':
                raise SetupError(
                    f"{self.url}: LeRobot's policy server is not there ({answer.get('details')}); start it with "
                    '`python -m lerobot.async_inference.policy_server --host=HOST --port=PORT`'
                )
            self._ask('Ready')
            if self._features:
                self._instruct()
        except BaseException:
            self.close()
            raise

    def facts(self) -> Mapping[str, object]:
        self.connect()
        wanted = ('policy_type', 'pretrained_name_or_path', 'device', 'actions_per_chunk')
        return {name: self._instructions[name] for name in wanted}

    def problems(self, sample: Question, action: ActionEntry) -> Iterable[str]:
        """What the server cannot be sent; if there is nothing, it is told to load the checkpoint."""
        problems = [
            f'the mapping sends {key}; wanted {STATE}, {IMAGES}NAME and {TASK}'
            for key in sample
            if key not in (STATE, TASK) and not key.startswith(IMAGES)
        ]
        if STATE not in sample:
            problems.append(f'the server wants {STATE}, which the mapping does not send')
        if not problems:
            self._features = features_of(sample)
            self._instruct()
        return problems

    def _instruct(self) -> None:
        fields = {**self._instructions, 'lerobot_features': self._features}
        message = _field(1, write_object('RemotePolicyConfig', fields))
        self._ask('SendPolicyInstructions', message, timeout_s=self._patience.connect_s)

    def begin(self, setup: Setup, *, seed: int) -> None:
        self.connect()
        self._ask('Ready')  # forgets the observations of the episode before
        self._steps = 0

    def end(self) -> None:
        """The wire has no word for it."""

    def ask(self, question: Question) -> Reply:
        fields = {
            'timestamp': time.time(), 'timestep': self._steps, 'observation': raw_observation(question),
            'must_go': True,
        }  # fmt: skip
        pickled = write_object('TimedObservation', fields)
        self._ask('SendObservations', *transfer(pickled), is_stream=True)
        began_s = time.monotonic()
        answer = self._ask('GetActions')
        thought_s = time.monotonic() - began_s
        if not answer:
            raise RemoteError(f'{self.url}: the server gave no actions; its log says why')
        actions = decoded(self.url, lambda: read_actions(_data(answer), self._limits))
        if [entry.timestep for entry in actions] != list(range(self._steps, self._steps + len(actions))):
            raise AnswerError(f'{self.url}: actions of other steps than {self._steps} and on')
        self._steps += 1
        return Reply(action_array(self.url, np.stack([entry.action for entry in actions])), thought_s)

    def _ask(self, method: str, *messages: bytes, is_stream: bool = False, timeout_s: float | None = None) -> bytes:
        """The bytes of an answer; what went wrong on the way is the rig's, what the server says is the server's."""
        if self._worker is None:
            raise RigError(f'{self.url}: the connection was lost during the episode')
        waits_s = timeout_s or self._patience.answer_s
        asked = {
            'method': METHODS + method, 'messages': list(messages) or [b''], 'is_stream': is_stream,
            'timeout_s': waits_s,
        }  # fmt: skip
        answer = map_answer(self.url, self._worker.call('ask', asked, timeout_s=waits_s + 10.0))
        status, details = str(answer.get('status')), str(answer.get('details', ''))
        if status in AWAY:
            self.close()
            raise RigError(f'{self.url}: {method} did not get through ({details})')
        if status == 'DEADLINE_EXCEEDED':
            self.close()
            raise NoAnswer(f'{self.url}: no answer to {method} within {waits_s:g} s')
        if status != 'OK':
            raise RemoteError(f'{self.url}: {method} failed: {details}')
        return bytes(answer['answer'])

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


def features_of(sample: Question) -> dict[str, Any]:
    """The description of an observation that LeRobot's server wants, as its client makes it from a robot's."""
    features: dict[str, Any] = {}
    for key, value in sample.items():
        if key == STATE:
            names = [f'state.{i}' for i in range(len(value))]
            features[key] = {'dtype': 'float32', 'shape': (len(value),), 'names': names}
        elif key.startswith(IMAGES):
            features[key] = {'dtype': 'image', 'shape': value.shape, 'names': ['height', 'width', 'channels']}
    return features


def raw_observation(question: Question) -> dict[str, Any]:
    """An observation as a robot of LeRobot's gives it: a number for each joint, a picture for each camera, the task."""
    raw: dict[str, Any] = {}
    for key, value in question.items():
        if key == STATE:
            raw.update({f'state.{i}': float(number) for i, number in enumerate(value)})
        else:
            raw[key.removeprefix(IMAGES)] = value
    return raw


def transfer(data: bytes) -> list[bytes]:
    """Messages of LeRobot's `Observation`: the parts of the data, the last one marked as such."""
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    states = [BEGIN, *[MIDDLE] * (len(parts) - 2), END][-len(parts) :]
    return [b'\x08' + bytes([state]) + _field(2, part) for state, part in zip(states, parts, strict=True)]


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes in protobuf."""
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _data(message: bytes) -> bytes:
    """The only field of `Actions`."""
    length = shift = 0
    for place, byte in enumerate(message[1:11], start=2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if message[0] == 0x0A and len(message) == place + length:
                return message[place:]
            break
    raise InputError(f'not a message of actions: {message[:16].hex()}')
