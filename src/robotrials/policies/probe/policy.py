"""A trained probe as a policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, InputError, undone_by
from robotrials.old_name import PROBE_FORMAT
from robotrials.policies.probe.demonstration import plain_words
from robotrials.policies.probe.option import (
    ProbeOptions,
    TaskInput,
    TextEmbedding,
    derangement,
    find_task_id,
    read_options,
)
from robotrials.policies.probe.train import CARD, ENVIRONMENT, start_worker
from robotrials.policies.served import action_array, map_answer, seconds_told
from robotrials.run.environment import WorkerProcess
from robotrials.run.seam import ActionConvention, Chunk, Observation, PolicySpec, Setup
from robotrials.value import read_table


class ProbePolicy:
    """A checkpoint of a probe, in an environment of its own (`robotrials env create probe`).

    path: the checkpoint's folder, with ``probe.json`` and ``model.safetensors``. shuffle_tasks: a seed; the probe is
    told another task than it runs, by a fixed order in which none is itself. phrasings: further words -> task.
    """

    def __init__(
        self,
        *,
        path: str,
        name: str = 'probe',
        device: str = 'cpu',
        shuffle_tasks: int | None = None,
        phrasings: Mapping[str, str] | None = None,
        environment: str = ENVIRONMENT,
        connect_timeout_s: float = 600.0,
        answer_timeout_s: float = 60.0,
    ) -> None:
        self._folder, self._device, self._environment = Path(path), device, environment
        self._connect_s, self._answer_s = connect_timeout_s, answer_timeout_s
        self._card, self.options, action = read_card(self._folder)
        self._tasks: list[str] = self._card['tasks']
        self._phrasings = self._card['phrasings'] | {plain_words(k): v for k, v in (phrasings or {}).items()}
        for words, task in self._phrasings.items():
            if task not in self._tasks:
                raise InputError(f'phrasings: {words!r} stands for {task!r}, wanted one of: {", ".join(self._tasks)}')
        self._text = TextEmbedding(self.options.text_embeddings) if self.options.task_input is TaskInput.TEXT else None
        self._order: tuple[int, ...] | None = None
        if shuffle_tasks is not None:
            self._order = derangement(len(self._tasks), seed=shuffle_tasks)
        self._worker: WorkerProcess | None = None
        sizes = self._card['sizes']
        self.spec = PolicySpec(
            name=name,
            action=action,
            chunk_length=self.options.chunk_length,
            execute=self.options.execute,
            control_rate_hz=float(self._card['control_rate_hz']),
            state_width=sizes['state'] if self.options.uses_state else None,
            state_layout=tuple(self._card['state_layout']) if self.options.uses_state else (),
            images={camera: tuple(sizes['input_size'][camera]) for camera in sizes['cameras']},
            is_remote=True,
        )

    def start(self, setup: Setup, *, seed: int) -> ProbeSession:
        return ProbeSession(self, self._task(setup))

    def answer(self, observation: Observation, task: object) -> Chunk:
        """One chunk for one observation; `task` is a number or a vector."""
        cameras = self._card['sizes']['cameras']
        asked = {'images': {c: observation.images[c] for c in cameras}, 'state': observation.state, 'task': task}
        if not self.options.uses_state:
            asked['state'] = np.zeros(self._card['sizes']['state'])
        where = str(self._folder)
        reply = map_answer(where, self._call('infer', asked))
        actions = action_array(where, reply.get('actions'))
        wanted = (self.spec.chunk_length, self.spec.action.width)
        if actions.shape != wanted or not np.isfinite(actions).all():
            raise AnswerError(f'{where}: actions of shape {actions.shape}, wanted finite {wanted}')
        return Chunk(np.asarray(actions, dtype=float), seconds_told(where, reply.get('infer_ms')))

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _task(self, setup: Setup) -> object:
        """What the probe is told: the task's number, or the words' vector. A shuffled one is another task's."""
        if self.options.task_input is TaskInput.NONE and not self.options.per_task:
            return 0
        if self._text is not None and self._order is None:
            return self._text.vector(setup.instruction or setup.task)
        number = find_task_id(setup.task, setup.instruction, tasks=self._tasks, phrasings=self._phrasings)
        number = number if self._order is None else self._order[number]
        if self._text is None:
            return number
        words = [w for w, task in self._phrasings.items() if task == self._tasks[number]]
        return self._text.vector(words[0] if words else self._tasks[number])

    def _call(self, name: str, value: object) -> Any:
        if self._worker is None:
            worker = start_worker(start_timeout_s=self._connect_s, environment=self._environment)
            with undone_by(worker.close):
                asked = {'folder': str(self._folder.resolve()), 'device': self._device}
                worker.call('load', asked, timeout_s=self._connect_s)
            self._worker = worker
        with undone_by(self.close):
            return self._worker.call(name, value, timeout_s=self._answer_s)


class ProbeSession:
    """One episode; the probe remembers nothing."""

    def __init__(self, policy: ProbePolicy, task: object) -> None:
        self._policy, self.told = policy, task  # the task as the probe is told it

    def act(self, observation: Observation) -> Chunk:
        return self._policy.answer(observation, self.told)


def read_card(folder: Path) -> tuple[dict[str, Any], ProbeOptions, ActionConvention]:
    """What a checkpoint's folder says of itself; InputError if it is no checkpoint."""
    for file in (CARD, 'model.safetensors'):
        if not (folder / file).is_file():
            raise InputError(f'{folder}: no {file}; wanted the folder of a checkpoint, such as probe/step-002000')
    where = str(folder / CARD)
    try:
        card: dict[str, Any] = json.loads((folder / CARD).read_text(encoding='utf-8'))
        if card['format'] != PROBE_FORMAT or card['version'] != 1:
            raise ValueError(f'not a {PROBE_FORMAT} of version 1')
        options = read_options(card['options'], where=where)
        for key in ('tasks', 'phrasings', 'sizes', 'statistics', 'control_rate_hz', 'state_layout'):
            card[key]
        return card, options, read_table(ActionConvention, card['action'], where=where)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f'{where}: not the card of a probe ({error})') from error
