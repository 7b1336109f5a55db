"""LeRobot checkpoints from a local folder, run with their processors in an environment of their own.

LeRobot's own remote wire (gRPC) carries pickles in both directions, so that either side can run code on the other: it
is not spoken. The checkpoint folder is the way out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, InputError
from robotrials.policies.endpoint import Patience, Reply, action_array, map_answer, seconds_told
from robotrials.policies.mapping import ActionEntry, read_mapping
from robotrials.policies.observe import Question
from robotrials.policies.served import ServedPolicy
from robotrials.run import Setup
from robotrials.run.environment import WorkerProcess, find_environment, read_recipe

SERVICE = 'robotrials.policies.lerobot_worker:LeRobotService'
PROCESSORS = ('policy_preprocessor.json', 'policy_postprocessor.json')
MODES = ('auto', 'chunk', 'step')


class LeRobotPolicy(ServedPolicy):
    """A checkpoint of LeRobot as a policy.

    path: the folder with ``config.json``, ``model.safetensors`` and the two processors. Keys of the mapping are the
    checkpoint's own, such as ``observation.state`` and ``observation.images.top``; pictures go as (H, W, 3) bytes.
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
        connect_timeout_s: float = 600.0,
        answer_timeout_s: float = 60.0,
        url: str = '',
    ) -> None:
        if url:
            raise InputError(
                f"url is {url!r}: LeRobot's gRPC wire carries pickles both ways and is not spoken; give path, the "
                "checkpoint's folder, instead"
            )
        if mode not in MODES:
            raise InputError(f'mode is {mode!r}, wanted one of: {", ".join(MODES)}')
        endpoint = LeRobotEndpoint(
            check_checkpoint(Path(path)),
            patience=Patience(connect_s=connect_timeout_s, answer_s=answer_timeout_s),
            mode=mode,
            device=device,
            environment=environment,
        )
        super().__init__(endpoint, read_mapping(preset=preset, observation=observation, action=action), name=name)


def check_checkpoint(folder: Path) -> Path:
    """The folder, if it is a checkpoint that can be loaded without running anything that came with it."""
    for file in ('config.json', 'model.safetensors'):
        if not (folder / file).is_file():
            raise InputError(f'{folder}: no {file}; wanted the folder of a LeRobot checkpoint')
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

    def __init__(self, folder: Path, *, patience: Patience, mode: str, device: str, environment: str) -> None:
        self._folder, self._patience, self._mode, self._device = folder, patience, mode, device
        self._environment = environment
        self._worker: WorkerProcess | None = None
        self._facts: Mapping[Any, Any] = {}

    def connect(self) -> None:
        if self._worker is not None:
            return
        recipe = read_recipe(self._environment)
        found = find_environment(recipe.name, recipe.digest)
        worker = WorkerProcess(found, SERVICE, start_timeout_s=self._patience.connect_s)
        wanted = {'folder': str(self._folder.resolve()), 'device': self._device, 'mode': self._mode}
        try:
            told = worker.call('load', wanted, timeout_s=self._patience.connect_s)
            self._facts = map_answer(str(self._folder), told)
        except BaseException:
            worker.close()
            raise
        self._worker = worker

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
            found = (value.shape[2], *value.shape[:2]) if value.ndim == 3 else value.shape
            if tuple(found) != tuple(shape):
                yield f'{key} is {tuple(found)}, the checkpoint wants {tuple(shape)}'
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
        where = str(self._folder)
        answer = map_answer(where, self._call('infer', {'questions': list(questions)}))
        chunks = answer.get('actions')
        if not isinstance(chunks, np.ndarray) or chunks.ndim != 3 or len(chunks) != len(questions):
            raise AnswerError(f'{where}: the worker gave no actions for {len(questions)} questions')
        thought_s = seconds_told(where, answer.get('infer_ms'))
        return [Reply(action_array(where, chunk), thought_s) for chunk in chunks]

    def _call(self, name: str, value: object) -> Any:
        from robotrials.errors import RemoteError

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
