"""LeRobot checkpoints, from a folder or from the Hub, run with their processors in an environment of their own.

LeRobot's own policy server, whose wire is pickles, is `robotrials.policies.lerobot`.

LeRobot's asynchronous inference server, over its gRPC service.

Its messages are pickles. Answers are read by `robotrials.wire.tensor_pickle`, which builds tensors and runs nothing, so
that the server can do nothing here; the server unpickles what it is sent, so that whoever can reach it can do anything
there: keep it on a network of your own.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError, SetupError, undone_by
from robotrials.formats.feature import encode_field
from robotrials.policies.mapping import ServedOptions
from robotrials.policies.observe import Question
from robotrials.policies.served import Reply, ServedPolicy, action_array, decoded, map_answer, seconds_told
from robotrials.run import Setup
from robotrials.run.environment import WorkerProcess, find_environment, read_recipe
from robotrials.wire.tensor_pickle import read_actions, write_object

PROCESSORS = ('policy_preprocessor.json', 'policy_postprocessor.json')
SERVICE = 'robotrials.policies.lerobot_worker:LeRobotService'
HUB_NAME = re.compile(r'[\w][\w.-]*/[\w][\w.-]*(@[\w][\w./-]*)?')
HUB_VARIABLES = ('HF_HUB_OFFLINE', 'HF_TOKEN', 'HF_TOKEN_PATH', 'HF_ENDPOINT', 'HF_HUB_CACHE', 'SSL_CERT_FILE',
                 'REQUESTS_CA_BUNDLE', 'https_proxy', 'http_proxy', 'no_proxy', 'HTTPS_PROXY', 'HTTP_PROXY',
                 'NO_PROXY')  # fmt: skip
MODES = ('auto', 'chunk', 'step')


class LeRobotPolicy(ServedPolicy):
    """A checkpoint of LeRobot as a policy.

    path: the folder with ``config.json``, ``model.safetensors`` and the two processors, or a name on the Hub, as
    ``OWNER/NAME`` or ``OWNER/NAME@REVISION``. Keys of the mapping are the checkpoint's own, such as
    ``observation.state`` and ``observation.images.top``; pictures go as (H, W, 3) bytes. overrides: settings of the
    checkpoint to change, as LeRobot's ``--policy.NAME=VALUE``. network: whether the Hub may be asked; by default only
    for a name on it, so that a folder runs from what is on this machine, or not at all.
    mode: ``chunk`` asks for whole chunks, ``step`` for one action at a time, leaving queues to LeRobot; ``auto`` takes
    chunks from the kinds of policy that are meant so. environment: the recipe to run it in.
    """

    def __init__(
        self,
        *,
        path: str = '',
        preset: str = '',
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        name: str = 'lerobot',
        mode: str = 'auto',
        device: str = 'cpu',
        environment: str = 'lerobot',
        overrides: Mapping[str, Any] | None = None,
        network: bool | None = None,
        connect_timeout_s: float = 600.0,
        answer_timeout_s: float = 60.0,
        url: str = '',
    ) -> None:
        if url:
            raise InputError(
                f'url is {url!r}: this policy loads a checkpoint by itself; give path, its folder or its name on the '
                'Hub, or name LeRobot\'s own policy server by use = "lerobot-server"'
            )
        if mode not in MODES:
            raise InputError(f'mode is {mode!r}, wanted one of: {", ".join(MODES)}')
        self._is_hub = not Path(path).exists() and HUB_NAME.fullmatch(path) is not None
        self._place = path if self._is_hub else str(check_checkpoint(Path(path)).resolve())
        self._wanted = {'device': device, 'mode': mode, 'overrides': dict(overrides or {})}
        self._environment = environment
        self._uses_network = self._is_hub if network is None else network
        self._worker: WorkerProcess | None = None
        self._facts: Mapping[Any, Any] = {}
        super().__init__(
            preset=preset, observation=observation, action=action, name=name, connect_timeout_s=connect_timeout_s,
            answer_timeout_s=answer_timeout_s,
        )  # fmt: skip

    def connect(self) -> None:
        if self._worker is not None:
            return
        recipe = read_recipe(self._environment)
        environment = find_environment(recipe.name, recipe.digest)
        variables = {name: os.environ[name] for name in HUB_VARIABLES if name in os.environ}
        variables.setdefault('HF_HUB_OFFLINE', '0')
        worker = WorkerProcess(
            environment,
            SERVICE,
            start_timeout_s=self._connect_s,
            variables=variables if self._uses_network else {},
        )
        with undone_by(worker.close):
            self._facts = self._loaded(worker)
        self._worker = worker

    def _loaded(self, worker: WorkerProcess) -> Mapping[Any, Any]:
        """Fetch the checkpoint if it is on the Hub, look at it before it is loaded, and load it."""
        folder, waits_s = self._place, self._connect_s
        answer: Mapping[Any, Any] = {}
        if self._is_hub:
            answer = map_answer(self._place, worker.call('fetch', {'name': self._place}, timeout_s=waits_s))
            if 'missing' not in answer:
                folder = str(check_checkpoint(Path(str(answer['folder']))))
        if 'missing' not in answer:
            answer = map_answer(folder, worker.call('load', {**self._wanted, 'folder': folder}, timeout_s=waits_s))
        if 'missing' in answer:
            name = answer.get('name') or self._place.partition('@')[0]
            way = '' if self._uses_network else '; `network = true` in its options lets it be fetched'
            raise SetupError(
                f'{self._place}: {name} is neither in the cache of the Hub on this machine nor could it be fetched '
                f'({answer["missing"]}){way}. Where there is a network, run `hf download {name}`, and bring the folder '
                'that HF_HOME names'
            )
        return {**answer, 'checkpoint': folder}

    @property
    def facts(self) -> Mapping[str, object]:
        self.connect()
        return {str(key): value for key, value in self._facts.items()}

    def problems(self, sample: Question) -> Iterable[str]:
        action, inputs = self._mapping.action, self._facts.get('inputs', {})
        for key, shape in inputs.items():
            value = sample.get(key)
            if not isinstance(value, np.ndarray):
                yield f'the checkpoint wants {key} of shape {tuple(shape)}, which the mapping does not send'
                continue
            sample_shape = (value.shape[2], *value.shape[:2]) if value.ndim == 3 else value.shape
            if tuple(sample_shape) != tuple(shape):
                yield f'{key} is {tuple(sample_shape)}, the checkpoint wants {tuple(shape)}'
        for key in sample:
            if key not in inputs and key != 'task':
                yield f'the mapping sends {key}, the checkpoint knows {", ".join(inputs)}'
        width, steps = self._facts.get('action_width'), self._facts.get('steps')
        if isinstance(width, int) and max((*action.order, action.convention.width - 1)) >= width:
            yield f'the checkpoint gives {width} numbers per action, the mapping takes {action.convention.width}'
        if isinstance(steps, int) and action.chunk_length > steps:
            yield f'chunk_length is {action.chunk_length}, the checkpoint gives {steps} steps'

    def begin(self, setup: Setup, *, seed: int) -> None:
        self._call('reset', {'seed': seed & 0x7FFFFFFF})

    def ask(self, question: Question) -> Reply:
        return self.ask_many([question])[0]

    def ask_many(self, questions: Sequence[Question]) -> list[Reply]:
        """Several questions as one batch."""
        where = self._place
        answer = map_answer(where, self._call('infer', {'questions': list(questions)}))
        chunks = answer.get('actions')
        if not isinstance(chunks, np.ndarray) or chunks.ndim != 3 or len(chunks) != len(questions):
            raise AnswerError(f'{where}: the worker gave no actions for {len(questions)} questions')
        thought_s = seconds_told(where, answer.get('infer_ms'))
        return [Reply(action_array(where, chunk), thought_s) for chunk in chunks]

    def _call(self, name: str, value: object) -> Any:
        self.connect()
        if self._worker is None:
            raise RuntimeError('connect() left no worker')
        try:
            return self._worker.call(name, value, timeout_s=self._answer_s)
        except RemoteError:
            raise  # the worker reported it, and keeps running
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


def check_checkpoint(folder: Path) -> Path:
    """The folder, if it is a checkpoint that can be loaded without running anything that came with it.

    Of a training run's folder, or one of its checkpoints, it is the model inside.
    """
    inside = ('pretrained_model', 'last/pretrained_model', 'checkpoints/last/pretrained_model')
    folder = next((folder / name for name in inside if (folder / name / 'config.json').is_file()), folder)
    for file in ('config.json', 'model.safetensors'):
        if not (folder / file).is_file():
            raise InputError(
                f'{folder}: no {file}; wanted the folder of a LeRobot checkpoint, or a name on the Hub as OWNER/NAME'
            )
    for file in PROCESSORS:
        if not (folder / file).is_file():
            raise InputError(
                f'{folder}: no {file}; checkpoints older than LeRobot 0.4 keep their statistics inside the model: '
                "migrate it with lerobot's migrate_policy_normalization"
            )
        try:
            steps = json.loads((folder / file).read_text(encoding='utf-8'))['steps']
            named = [isinstance(step, dict) and 'registry_name' in step and 'class' not in step for step in steps]
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise InputError(f'{folder / file}: not a list of processor steps ({error})') from error
        if not all(named):
            raise InputError(f'{folder / file}: a step names a class to import; only registered steps are run')
    return folder


LEROBOT_SERVER_SERVICE = 'robotrials.policies.grpc_worker:GrpcService'
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
        name: str = 'lerobot-server',
        **common: Unpack[ServedOptions],
    ) -> None:
        if not url.startswith(SCHEME) or ':' not in url.removeprefix(SCHEME):
            raise InputError(f'url is {url!r}, wanted grpc://HOST:PORT')
        common.setdefault('connect_timeout_s', 600.0)
        common.setdefault('answer_timeout_s', 60.0)
        super().__init__(name=name, **common)
        self.url, self._environment = url, environment
        self._instructions = {
            'policy_type': kind, 'pretrained_name_or_path': path, 'device': device, 'rename_map': {},
            'actions_per_chunk': self._mapping.action.chunk_length,
        }  # fmt: skip
        self._worker: WorkerProcess | None = None
        self._features: dict[str, Any] = {}  # of an observation; empty until the server knows what to load
        self._steps = 0

    def connect(self) -> None:
        if self._worker is not None:
            return
        recipe = read_recipe(self._environment)
        environment = find_environment(recipe.name, recipe.digest)
        self._worker = WorkerProcess(
            environment, LEROBOT_SERVER_SERVICE, start_timeout_s=self._connect_s, limits=self._limits
        )
        asked = {
            'target': self.url.removeprefix(SCHEME), 'timeout_s': self._connect_s,
            'max_bytes': self._limits.max_bytes,
        }  # fmt: skip
        with undone_by(self.close):
            answer = map_answer(self.url, self._worker.call('open', asked, timeout_s=self._connect_s + 10.0))
            if answer.get('status') != 'OK':
                raise SetupError(
                    f"{self.url}: LeRobot's policy server is not there ({answer.get('details')}); start it with "
                    '`python -m lerobot.async_inference.policy_server --host=HOST --port=PORT`'
                )
            self._ask('Ready')
            if self._features:
                self._instruct()

    @property
    def facts(self) -> Mapping[str, object]:
        self.connect()
        wanted = ('policy_type', 'pretrained_name_or_path', 'device', 'actions_per_chunk')
        return {name: self._instructions[name] for name in wanted}

    def problems(self, sample: Question) -> Iterable[str]:
        """What the server cannot be sent; without any such problem it loads the checkpoint."""
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
        message = encode_field(1, write_object('RemotePolicyConfig', fields))
        self._ask('SendPolicyInstructions', message, timeout_s=self._connect_s)

    def begin(self, setup: Setup, *, seed: int) -> None:
        self.connect()
        self._ask('Ready')  # forgets the observations of the episode before
        self._steps = 0

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
        waits_s = timeout_s or self._answer_s
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
    return [b'\x08' + bytes([state]) + encode_field(2, part) for state, part in zip(states, parts, strict=True)]


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
