"""LeRobot checkpoints, from a folder or from the Hub, run with their processors in an environment of their own.

LeRobot's own policy server, whose wire is pickles, is `robotrials.policies.lerobot_server`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, InputError, RemoteError, SetupError
from robotrials.policies.mapping import ActionEntry, read_mapping
from robotrials.policies.observe import Question
from robotrials.policies.served import Patience, Reply, ServedPolicy, action_array, map_answer, seconds_told
from robotrials.run import Setup
from robotrials.run.environment import WorkerProcess, find_environment, read_recipe

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
        is_hub = not Path(path).exists() and HUB_NAME.fullmatch(path) is not None
        endpoint = LeRobotEndpoint(
            path if is_hub else str(check_checkpoint(Path(path)).resolve()),
            patience=Patience(connect_s=connect_timeout_s, answer_s=answer_timeout_s),
            wanted={'device': device, 'mode': mode, 'overrides': dict(overrides or {})},
            environment=environment,
            is_hub=is_hub,
            uses_network=is_hub if network is None else network,
        )
        super().__init__(endpoint, read_mapping(preset=preset, observation=observation, action=action), name=name)


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


class LeRobotEndpoint:
    """A worker process in the environment, with the checkpoint loaded."""

    def __init__(
        self, place: str, *, patience: Patience, wanted: Mapping[str, Any], environment: str, is_hub: bool,
        uses_network: bool,
    ) -> None:  # fmt: skip
        self._place, self._patience, self._wanted, self._environment = place, patience, dict(wanted), environment
        self._is_hub, self._uses_network = is_hub, uses_network
        self._worker: WorkerProcess | None = None
        self._facts: Mapping[Any, Any] = {}

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
            start_timeout_s=self._patience.connect_s,
            variables=variables if self._uses_network else {},
        )
        try:
            self._facts = self._loaded(worker)
        except BaseException:
            worker.close()
            raise
        self._worker = worker

    def _loaded(self, worker: WorkerProcess) -> Mapping[Any, Any]:
        """Fetch the checkpoint if it is on the Hub, look at it before it is loaded, and load it."""
        folder, waits_s = self._place, self._patience.connect_s
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

    def facts(self) -> Mapping[str, object]:
        self.connect()
        return {str(key): value for key, value in self._facts.items()}

    def problems(self, sample: Question, action: ActionEntry) -> Iterable[str]:
        inputs = self._facts.get('inputs', {})
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
            return self._worker.call(name, value, timeout_s=self._patience.answer_s)
        except RemoteError:
            raise  # the worker told of it, and goes on
        except BaseException:
            self.close()
            raise

    def end(self) -> None:
        """The next reset tells."""

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
