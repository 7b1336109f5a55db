"""A policy that is a Python function: the mapped observation in, actions out."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from robotrials.catalog import load_attribute
from robotrials.errors import AnswerError, InputError
from robotrials.policies.endpoint import Reply, action_array
from robotrials.policies.mapping import ActionEntry, read_mapping
from robotrials.policies.observe import Question
from robotrials.policies.served import ServedPolicy
from robotrials.run import Setup

ActFunction = Callable[[Question], object]


class FunctionPolicy(ServedPolicy):
    """A function by ``module:attribute`` that takes the mapped observation (a dict) and gives actions (h, A).

    It may instead give a dict with ``actions``. A class is made once, without arguments, and its instance is called; if
    it has ``reset()``, that is called at every episode.
    """

    def __init__(
        self,
        *,
        function: str,
        preset: str = '',
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        name: str = 'function',
    ) -> None:
        mapping = read_mapping(preset=preset, observation=observation, action=action)
        super().__init__(FunctionEndpoint(function), mapping, name=name, is_remote=False)


class FunctionEndpoint:
    """Calls in this process; the run's own watchdog sees to a hang."""

    def __init__(self, target: str) -> None:
        # A plan must not be able to run what was never meant as a policy, such as os:system.
        if target.partition(':')[0].partition('.')[0] in sys.stdlib_module_names:
            raise InputError(f'function is {target!r}, of the standard library; wanted a policy of your own')
        found: Any = load_attribute(target)
        if not callable(found):
            raise InputError(f'function {target} is a {type(found).__name__}, wanted something to call')
        self._target = target
        if inspect.isclass(found) and '__call__' not in dir(found):
            raise InputError(f'function {target}: its instances have no __call__')
        made: Any = found() if inspect.isclass(found) else found
        self._function: ActFunction = made

    def connect(self) -> None:
        """Nothing to wait for."""

    def facts(self) -> Mapping[str, object]:
        return {'function': self._target}

    def problems(self, sample: Question, action: ActionEntry) -> Iterable[str]:
        return ()

    def begin(self, setup: Setup, *, seed: int) -> None:
        reset = getattr(self._function, 'reset', None)
        if callable(reset):
            reset()

    def end(self) -> None:
        """Nothing to tell."""

    def ask(self, question: Question) -> Reply:
        answer = self._function(question)
        if isinstance(answer, Mapping):
            if 'actions' not in answer:
                raise AnswerError(f"{self._target}: a dict without 'actions'")
            answer = answer['actions']
        return Reply(action_array(self._target, answer))

    def close(self) -> None:
        """Nothing to let go of."""
