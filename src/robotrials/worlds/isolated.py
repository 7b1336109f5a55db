"""A host that runs in an environment of its own, as a worker process behind the same seam."""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, RemoteError, undone_by
from robotrials.record import Outcome, Scene
from robotrials.run.environment import WorkerProcess, find_environment, read_recipe
from robotrials.run.host import Ability, Host, ResetCheckLike
from robotrials.run.seam import Action, Footage, HostReport, HostSpec, Observation, Setup, Shot, StepPart
from robotrials.worlds.inside import ERRORS, STOP_SIGNAL, from_message, to_message

if TYPE_CHECKING:
    from robotrials.record.footage import FilmStates, KnownScene, View
    from robotrials.run.conditions import Thing
    from robotrials.run.plan import FilmOptions
    from robotrials.run.seam import ProtocolFacts

SERVICE = 'robotrials.worlds.inside:HostService'
UNLIMITED_S = 24 * 3600.0  # sockets want a number
BEFORE_THE_WATCHDOG = 0.95
Inner = TypeVar('Inner', bound=Host)  # what a maker of hosts says is inside


class RemoteHost(Host):
    """A host behind a `HostService`: what it is asked goes over as messages. A subclass says how, by `_send`.

    Observations bring the outcome along and, once they were asked for, the signals.
    """

    forwards = True

    def __init__(self, name: str) -> None:
        self._target = name
        self._outcome: Outcome | None = None
        self._signals: Mapping[str, Any] | None = None
        self._wants_signals = False
        self._is_looked_at = True

    @abstractmethod
    def _send(self, name: str, value: object, *, may_open: bool) -> Any:
        """One call of the service; `may_open`: a service that is gone may be started again for it."""

    def _greet(self, opened: object) -> None:
        """Take in what the service said when it opened the host."""
        if not isinstance(opened, dict) or not isinstance(opened.get('spec'), HostSpec):
            raise AnswerError(f'{self._target}: open was not answered with the spec of a host')
        try:
            self._spec: HostSpec = opened['spec']
            self._abilities = frozenset(map(Ability, opened['abilities']))
            self._substeps, self._has_views = int(opened['substeps']), bool(opened['has_views'])
            self._film_cameras = tuple(map(str, opened['film_cameras']))
        except (KeyError, TypeError, ValueError) as error:
            raise AnswerError(f'{self._target}: open was answered without {error}') from error

    @property
    def spec(self) -> HostSpec:
        return self._spec

    @property
    def abilities(self) -> frozenset[Ability]:
        return self._abilities

    def reset(self, task: str, *, seed: int) -> Observation:
        return self._seen('reset', {'task': task, 'seed': seed, 'signals': False})

    def step(self, action: Action) -> Observation:
        return self._seen('step', {'action': np.asarray(action, dtype=float), **self._wanted()})

    def outcome(self) -> Outcome | None:
        return self._outcome

    def prepare(self, setup: Setup) -> None:
        self._ask('prepare', setup, may_open=True)

    def check_cell(self, task: str, *, stratum: str, items: int | None) -> None:
        self._ask('check_cell', task, may_open=True, stratum=stratum, items=items)

    def instruction(self) -> str:
        return str(self._ask('instruction'))

    def things(self) -> Sequence[Thing] | None:
        things: Sequence[Thing] | None = self._ask('things')
        return things

    def hold(self) -> Action:
        return np.asarray(self._ask('hold'))

    @property
    def substeps(self) -> int:
        return self._substeps

    def step_through(self, parts: Sequence[StepPart]) -> Observation:
        return self._seen('step_through', {'parts': to_message(list(parts)), **self._wanted()})

    def expect_look(self, is_looked_at: bool) -> None:
        self._is_looked_at = is_looked_at

    def look(self) -> Observation:
        observation: Observation = self._ask('look')
        return observation

    def report(self) -> HostReport:
        report: HostReport = self._ask('report')
        return report

    def signals(self) -> Mapping[str, Any]:
        """The signals of the last step: once asked for, they come along with every step."""
        self._wants_signals = True
        if self._signals is None:
            self._signals = self._ask('signals')
        return self._signals or {}

    def scene(self) -> Scene:
        scene: Scene = self._ask('scene')
        return scene

    def protocol(self) -> ProtocolFacts | None:
        facts: ProtocolFacts | None = self._ask('protocol', may_open=True)
        return facts

    @property
    def film_cameras(self) -> tuple[str, ...]:
        return self._film_cameras

    def film(self, options: FilmOptions, *, states: FilmStates | None = None) -> Footage:
        filmed = self._call('film', {'options': to_message(options), 'states': to_message(states)})
        shots = [Shot(camera, self._frames(number)) for number, camera in enumerate(filmed['cameras'])]
        return Footage(filmed['states'], tuple(shots))

    def _frames(self, shot: int) -> Iterator[NDArray[np.uint8]]:
        while (frame := self._call('frame', shot)) is not None:
            yield np.array(frame)

    @property
    def has_views(self) -> bool:
        return self._has_views

    def views(self, *, is_over: bool = False) -> Mapping[str, View]:
        views: Mapping[str, View] = self._ask('views', is_over=is_over)
        return views

    def known_scene(self) -> KnownScene:
        known: KnownScene = self._ask('known_scene')
        return known

    def check_reset(self) -> ResetCheckLike | None:
        check: ResetCheckLike | None = self._call('check_reset', None)
        return check

    # --- inside

    def _wanted(self) -> dict[str, bool]:
        return {'signals': self._wants_signals, 'looks': self._is_looked_at}

    def _ask(self, name: str, *given: object, may_open: bool = False, **options: object) -> Any:
        value = {'name': name, 'given': to_message(given), 'options': to_message(options)}
        return self._call('ask', value, may_open=may_open)

    def _seen(self, name: str, value: Mapping[str, Any]) -> Observation:
        self._outcome = self._signals = None
        answer = self._call(name, value, may_open=name == 'reset')
        try:
            self._outcome, self._signals = answer['outcome'], answer['signals']
            observation = answer['observation']
        except (KeyError, TypeError) as error:
            raise AnswerError(f'{self._target}: an answer without {error}') from error
        if not isinstance(observation, Observation):
            raise AnswerError(f'{self._target}: {name} gave a {type(observation).__name__}, wanted an Observation')
        return observation

    def _call(self, name: str, value: object, *, may_open: bool = False) -> Any:
        return self._read(name, self._send(name, value, may_open=may_open))

    def _read(self, name: str, answer: object) -> Any:
        if not isinstance(answer, dict):
            raise AnswerError(f'{self._target}: {name} was answered with a {type(answer).__name__}, wanted a map')
        if 'raised' in answer:
            kind, message = [*map(str, answer['raised']), '', ''][:2]
            raise ERRORS.get(kind, RemoteError)(message)
        return from_message(answer.get('value'))


class IsolatedHost(RemoteHost, Generic[Inner]):
    """The host `host` (``module:attribute``, made with `options`) inside the environment of a recipe.

    It can do exactly what the one inside can. A worker that dies (RigError) or is silent (NoAnswer) costs the episode
    at hand: the next `prepare` or `reset` starts another. start_timeout_s: for imports and for making the host.
    Every other call may take as long as the plan's `watchdog.host_s` allows (`limit_calls`), and without a plan as long
    as it takes; timeout_s: a stricter limit of one's own.
    """

    def __init__(
        self,
        *,
        environment: str,
        host: str,
        options: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        start_timeout_s: float = 300.0,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(host)
        for name, limit_s in (('start_timeout_s', start_timeout_s), ('timeout_s', timeout_s)):
            if limit_s is not None and not limit_s > 0:
                raise InputError(f'{name} is {limit_s}, wanted > 0')
        self._environment, self._options = environment, dict(options or {})
        self._variables = dict(variables or {})
        self._start_timeout_s, self._own_limit_s = start_timeout_s, UNLIMITED_S if timeout_s is None else timeout_s
        self._timeout_s = self._own_limit_s
        self._worker: WorkerProcess | None = None
        self._open()

    def limit_calls(self, seconds: float) -> None:
        """A little less than the watchdog's, which ends the whole worker: this costs no more than the episode."""
        self._timeout_s = min(self._own_limit_s, BEFORE_THE_WATCHDOG * seconds)

    def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def stop(self) -> None:
        """The brake of the host inside, by a signal: the socket may be busy with a step."""
        if Ability.STOP in self.abilities and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, STOP_SIGNAL)

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return None if self._worker is None else self._worker.pid

    # --- inside

    def _open(self) -> WorkerProcess:
        recipe = read_recipe(self._environment)
        environment = find_environment(recipe.name, recipe.digest)
        worker = WorkerProcess(
            environment, SERVICE, start_timeout_s=self._start_timeout_s, variables=self._variables, shares_memory=True
        )
        self._worker = worker
        with undone_by(self.close):
            wanted = {'host': self._target, 'options': to_message(self._options)}
            self._greet(self._read('open', worker.call('open', wanted, timeout_s=self._start_timeout_s)))
        return worker

    def _send(self, name: str, value: object, *, may_open: bool) -> Any:
        worker = self._worker
        if worker is None or worker.is_over:
            if not may_open:
                raise InputError('no episode is under way; call reset(task, seed=...) first')
            worker = self._open()
        return worker.call(name, value, timeout_s=self._timeout_s)
