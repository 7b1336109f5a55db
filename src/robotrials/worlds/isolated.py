"""A host that runs in an environment of its own, as a worker process behind the same seam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, InputError, RemoteError
from robotrials.record import Outcome
from robotrials.run.convention import HostSpec
from robotrials.run.environment import WorkerProcess, find_environment, read_recipe
from robotrials.run.seam import Action, Observation
from robotrials.worlds.inside import ERRORS, OPTIONAL
from robotrials.worlds.message import from_message, to_message

SERVICE = 'robotrials.worlds.inside:HostService'


class IsolatedHost:
    """The host `host` (``module:attribute``, made with `options`) inside the environment of a recipe.

    It has exactly those of the optional methods of a host that the one inside has. A worker that dies (RigError) or is
    silent (NoAnswer) costs the episode at hand: the next `prepare` or `reset` starts another. start_timeout_s: for
    imports and for making the host. timeout_s: for every other call; keep it under the plan's `watchdog.host_s`, which
    ends the whole worker.
    """

    def __init__(
        self,
        *,
        environment: str,
        host: str,
        options: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        start_timeout_s: float = 300.0,
        timeout_s: float = 50.0,
    ) -> None:
        for name, limit_s in (('start_timeout_s', start_timeout_s), ('timeout_s', timeout_s)):
            if not limit_s > 0:
                raise InputError(f'{name} is {limit_s}, wanted > 0')
        self._environment, self._target, self._options = environment, host, dict(options or {})
        self._variables = dict(variables or {})
        self._start_timeout_s, self._timeout_s = start_timeout_s, timeout_s
        self._worker: WorkerProcess | None = None
        self._outcome: Outcome | None = None
        self._signals: Mapping[str, Any] | None = None
        self._wants_signals = False
        self._spec: HostSpec
        self._open()

    @property
    def spec(self) -> HostSpec:
        return self._spec

    def reset(self, task: str, *, seed: int) -> Observation:
        return self._seen('reset', {'task': task, 'seed': seed, 'signals': False})

    def step(self, action: Action) -> Observation:
        return self._seen('step', {'action': np.asarray(action, dtype=float), 'signals': self._wants_signals})

    def outcome(self) -> Outcome | None:
        return self._outcome

    def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return None if self._worker is None else self._worker.pid

    # --- inside

    def _open(self) -> WorkerProcess:
        recipe = read_recipe(self._environment)
        found = find_environment(recipe.name, recipe.digest)
        worker = WorkerProcess(
            found, SERVICE, start_timeout_s=self._start_timeout_s, variables=self._variables, shares_memory=True
        )
        self._worker = worker
        try:
            wanted = {'host': self._target, 'options': to_message(self._options)}
            told = self._call('open', wanted, timeout_s=self._start_timeout_s)
        except BaseException:
            self.close()
            raise
        if not isinstance(told, dict) or not isinstance(told.get('spec'), HostSpec):
            self.close()
            raise AnswerError(f'{self._target}: open was not answered with the spec of a host')
        self._spec = told['spec']
        for name in OPTIONAL:  # as attributes of the instance, because a seam is recognised by what a host has
            if name in told.get('has', ()):
                setattr(self, name, self._read_signals if name == 'signals' else self._asker(name))
        return worker

    def _asker(self, name: str) -> Any:
        def ask(value: object = None) -> Any:
            wanted = {'name': name, 'value': to_message(value)}
            return self._call('ask', wanted, may_open=name in ('prepare', 'protocol'))

        return ask

    def _read_signals(self) -> Mapping[str, Any]:
        """The signals of the last step: once asked for, they come along with every step."""
        self._wants_signals = True
        if self._signals is None:
            self._signals = self._call('ask', {'name': 'signals', 'value': None})
        return self._signals

    def _seen(self, name: str, value: Mapping[str, Any]) -> Observation:
        self._outcome = self._signals = None
        told = self._call(name, value, may_open=name == 'reset')
        try:
            self._outcome, self._signals = told['outcome'], told['signals']
            observation = told['observation']
        except (KeyError, TypeError) as error:
            raise AnswerError(f'{self._target}: an answer without {error}') from error
        if not isinstance(observation, Observation):
            raise AnswerError(f'{self._target}: {name} gave a {type(observation).__name__}, wanted an Observation')
        return observation

    def _call(self, name: str, value: object, *, timeout_s: float | None = None, may_open: bool = False) -> Any:
        worker = self._worker
        if worker is None or worker.is_over:
            if not may_open:
                raise InputError('no episode is under way; call reset(task, seed=...) first')
            worker = self._open()
        told = worker.call(name, value, timeout_s=timeout_s or self._timeout_s)
        if not isinstance(told, dict):
            raise AnswerError(f'{self._target}: {name} was answered with a {type(told).__name__}, wanted a map')
        if 'raised' in told:
            kind, message = [*map(str, told['raised']), '', ''][:2]
            raise ERRORS.get(kind, RemoteError)(message)
        return from_message(told.get('value'))
