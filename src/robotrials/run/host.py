"""Where an episode happens: the base class of hosts, the base class of wrappers, and the door for plain objects.

A host needs `spec`, `reset`, `step` and `outcome`. Everything else has a working default in `Host`, so whoever uses a
host simply calls it. `Host.abilities` says which defaults a host replaced, for the few who must know beforehand.
"""

from __future__ import annotations

import abc
import enum
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, get_args, get_type_hints, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.record import Outcome, Scene
from robotrials.run.seam import (
    Action,
    Footage,
    HostReport,
    HostSpec,
    Observation,
    Setup,
    StepPart,
    Target,
    is_finite,
)
from robotrials.value import dataclass

if TYPE_CHECKING:  # a host inside another environment has numpy alone
    from robotrials.record.footage import FilmStates, KnownScene, View
    from robotrials.run.conditions import Thing
    from robotrials.run.plan import FilmOptions
    from robotrials.run.seam import ProtocolFacts

REQUIRED = ('reset', 'step', 'outcome')


class Ability(enum.StrEnum):
    """What a host may do beyond running an episode; each is shown by replacing the method of its name."""

    PREPARE = 'prepare'  # conditions, strata, instances, labels
    CHECK_CELL = 'check_cell'
    INSTRUCTION = 'instruction'
    THINGS = 'things'
    HOLD = 'hold'
    SUBSTEPS = 'step_through'
    REPORT = 'report'
    SIGNALS = 'signals'
    SCENE = 'scene'
    PROTOCOL = 'protocol'
    FILM = 'film'
    VIEWS = 'views'
    CHECK_RESET = 'check_reset'
    STOP = 'stop'
    CLOSE = 'close'


# What else belongs to an ability: a plain object that has only a part of it does not have it.
WHOLE_WITH: Mapping[Ability, tuple[str, ...]] = {
    Ability.SUBSTEPS: ('substeps',),
    Ability.FILM: ('film_cameras',),
    Ability.VIEWS: ('has_views', 'known_scene'),
}


@runtime_checkable
class HostLike(Protocol):
    """The least that `as_host` can make a host of."""

    @property
    def spec(self) -> HostSpec: ...

    def reset(self, task: str, *, seed: int) -> Observation: ...

    def step(self, action: Action) -> Observation: ...

    def outcome(self) -> Outcome | None: ...


class ResetCheckLike(Protocol):
    """What a host finds when it looks at its own reset."""

    @property
    def is_as_planned(self) -> bool: ...

    @property
    def reason(self) -> str:
        """What is not as planned, in words; empty when all is."""


@dataclass(frozen=True, slots=True)
class ResetVerdict:
    """The least of a reset check, as it crosses from one process to another."""

    is_as_planned: bool
    reason: str = ''


class Host(abc.ABC):
    """Where an episode happens: a simulator, a robot cell, a replay.

    Between two resets lies one episode. `prepare` comes before `reset`; everything else is asked after it, except
    `spec`, `abilities`, `check_cell`, `protocol` and the properties.
    """

    forwards: ClassVar[bool] = False  # its abilities are those of a host that it stands for

    @property
    @abc.abstractmethod
    def spec(self) -> HostSpec:
        """What it is: name, action convention, control rate, state, cameras, conditions, tasks."""

    @abc.abstractmethod
    def reset(self, task: str, *, seed: int) -> Observation:
        """Begin an episode; the same task and seed are the same start."""

    @abc.abstractmethod
    def step(self, action: Action) -> Observation:
        """Apply one action for one control step."""

    @abc.abstractmethod
    def outcome(self) -> Outcome | None:
        """The verdict, or None while the episode is still open."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of the methods below this host has of its own."""
        return _replaced(type(self))

    def prepare(self, setup: Setup) -> None:
        """Take condition, stratum, instance, number of items and labels for the next reset."""
        if setup.condition != 'nominal':
            raise InputError(
                f'host {self.spec.name} has no prepare(), so it cannot bring about condition {setup.condition}'
            )

    def check_cell(self, task: str, *, stratum: str, items: int | None) -> None:  # noqa: B027 - most hosts take all
        """Raise InputError if no episode of this cell of a plan could be reset; asked before the first episode."""

    def instruction(self) -> str:
        """What is asked for in words, if the host draws it for each episode; a plan's own instruction wins."""
        return ''

    def things(self) -> Sequence[Thing] | None:
        """What stands in the scene, so that a paraphrase does not fit two things; None if the host cannot name it."""
        return None

    def hold(self) -> Action:
        """The action that keeps the arm where it is."""
        return idle_action(self, None)

    @property
    def substeps(self) -> int:
        """How many substeps a control step has; with one, an action is taken up at the next control tick."""
        return 1

    def step_through(self, parts: Sequence[StepPart]) -> Observation:
        """One control step of these parts; the first begins at substep 0. One part of full length is `step`."""
        if len(parts) != 1:
            raise InputError(f'host {self.spec.name} has no substeps, and was given {len(parts)} parts of a step')
        return self.step(parts[0].action)

    def expect_look(self, is_looked_at: bool) -> None:  # noqa: B027 - most hosts show what they have
        """Whether anybody will look at the pictures of the next step. A host that has to draw them may then leave them
        out of its observation, and draws them in `look` if it is asked after all.
        """

    def look(self) -> Observation:
        """The last observation with the pictures that were left out of it, the same as if they had been drawn then."""
        raise InputError(f'host {self.spec.name} leaves no pictures out')

    def report(self) -> HostReport:
        """The host's own account of the episode so far."""
        return HostReport()

    def signals(self) -> Mapping[str, Any]:
        """What to record of the last step, by the names of `robotrials.record.Trajectory`'s columns.

        Unknown names are recorded as extra signals. Reading them must not change the world.
        """
        return {}

    def scene(self) -> Scene:
        """What holds for the whole episode: roles of bodies, the target, cameras."""
        return Scene()

    def protocol(self) -> ProtocolFacts | None:
        """The rules it runs by; asked once, when it is opened."""
        return None

    @property
    def film_cameras(self) -> tuple[str, ...]:
        """The cameras that it can film with."""
        return ()

    def film(self, options: FilmOptions, *, states: FilmStates | None = None) -> Footage:
        """The episode since the last reset, at the steps of `run.film.film_steps`; or `states` kept of another episode
        with the same start, whose steps are those to draw. Drawing changes no world.
        """
        raise InputError(f'host {self.spec.name} cannot draw')

    @property
    def has_views(self) -> bool:
        """Whether it has calibrated RGB-D cameras that watch the scene, as it was opened."""
        return False

    def views(self, *, is_over: bool = False) -> Mapping[str, View]:
        """RGB-D of each watching camera as the world stands, whatever the policy sees. Looking must not change the
        world. When the episode is over a rig drives its arm out of sight first, where it can.
        """
        return {}

    def known_scene(self) -> KnownScene:
        """What is known of the scene from its plan: objects, goals, what stands fixed."""
        raise InputError(f'host {self.spec.name} keeps no views, and knows of no planned scene')

    def check_reset(self) -> ResetCheckLike | None:
        """Whether the last reset came about as planned, by sensors and not by the host's own poses; None if it cannot
        look. InputError if nothing in this scene can be checked.
        """
        return None

    def stop(self) -> None:  # noqa: B027 - most hosts have no brake
        """Its own brake, such as a robot's; called at once, from another thread than the episode's."""

    def limit_calls(self, seconds: float) -> None:  # noqa: B027 - the watchdog cuts off what is in our own process
        """How long one call may take, by the plan's `watchdog.host_s`; for a host that waits for another process."""

    def close(self) -> None:  # noqa: B027 - most hosts have nothing to release
        """Release what it holds; nothing is asked of it afterwards."""


@functools.cache
def _replaced(kind: type[Host]) -> frozenset[Ability]:
    return frozenset(a for a in Ability if getattr(kind, a.value) is not getattr(Host, a.value))


def declared_abilities(declared: object) -> frozenset[Ability] | None:
    """The abilities of every host of a class; None if only an open one can tell.

    ``IsolatedHost[LiberoHost]`` declares what `LiberoHost` does.
    """
    kind = next(iter(get_args(declared)), declared)
    if not isinstance(kind, type) or inspect.isabstract(kind) or getattr(kind, 'forwards', False):
        return None
    return _replaced(kind) if issubclass(kind, Host) else _had(kind)


class SteppedHost(Host):
    """What hosts of their own world share: a spec, whether an episode is under way, and what every action has to be."""

    _spec: HostSpec
    _setup: Setup | None = None  # of the next episode, where the host has `prepare`
    _is_begun = False

    @property
    def spec(self) -> HostSpec:
        return self._spec

    def _setup_for(self, task: str, *, seed: int) -> Setup:
        """What was prepared if it is for this start, and otherwise the task and the seed alone."""
        setup = self._setup
        return setup if setup and (setup.task, setup.seed) == (task, seed) else Setup(task=task, seed=seed)

    def _check_begun(self) -> None:
        if not self._is_begun:
            raise InputError('no episode is under way; call reset(task, seed=...) first')

    def _checked(self, action: Action) -> NDArray[np.float64]:
        """A copy of the action; InputError unless it has as many finite numbers as the convention says."""
        wanted, width = np.array(action, dtype=float), self._spec.action.width
        if wanted.shape != (width,) or not is_finite(wanted):
            raise InputError(f'an action is {wanted}, wanted {width} finite numbers')
        return wanted


class HostWrapper(Host):
    """A host around another one. It forwards everything; a subclass replaces what it changes.

    Its abilities are those of the host inside, and those of `adds`. Whoever changes `step` changes `step_through` too.
    """

    forwards = True
    adds: ClassVar[frozenset[Ability]] = frozenset()

    def __init__(self, host: HostLike) -> None:
        self._host = as_host(host)

    @property
    def spec(self) -> HostSpec:
        return self._host.spec

    def reset(self, task: str, *, seed: int) -> Observation:
        return self._host.reset(task, seed=seed)

    def step(self, action: Action) -> Observation:
        return self._host.step(action)

    def outcome(self) -> Outcome | None:
        return self._host.outcome()

    @property
    def abilities(self) -> frozenset[Ability]:
        return self._host.abilities | self.adds

    def prepare(self, setup: Setup) -> None:
        self._host.prepare(setup)

    def check_cell(self, task: str, *, stratum: str, items: int | None) -> None:
        self._host.check_cell(task, stratum=stratum, items=items)

    def instruction(self) -> str:
        return self._host.instruction()

    def things(self) -> Sequence[Thing] | None:
        return self._host.things()

    def hold(self) -> Action:
        return self._host.hold()

    @property
    def substeps(self) -> int:
        return self._host.substeps

    def step_through(self, parts: Sequence[StepPart]) -> Observation:
        return self._host.step_through(parts)

    def expect_look(self, is_looked_at: bool) -> None:
        self._host.expect_look(is_looked_at)

    def look(self) -> Observation:
        return self._host.look()

    def report(self) -> HostReport:
        return self._host.report()

    def signals(self) -> Mapping[str, Any]:
        return self._host.signals()

    def scene(self) -> Scene:
        return self._host.scene()

    def protocol(self) -> ProtocolFacts | None:
        return self._host.protocol()

    @property
    def film_cameras(self) -> tuple[str, ...]:
        return self._host.film_cameras

    def film(self, options: FilmOptions, *, states: FilmStates | None = None) -> Footage:
        return self._host.film(options, states=states)

    @property
    def has_views(self) -> bool:
        return self._host.has_views

    def views(self, *, is_over: bool = False) -> Mapping[str, View]:
        return self._host.views(is_over=is_over)

    def known_scene(self) -> KnownScene:
        return self._host.known_scene()

    def check_reset(self) -> ResetCheckLike | None:
        return self._host.check_reset()

    def stop(self) -> None:
        self._host.stop()

    def limit_calls(self, seconds: float) -> None:
        self._host.limit_calls(seconds)

    def close(self) -> None:
        self._host.close()


def as_host(host: object) -> Host:
    """A host as it is, or a plain object with `spec`, `reset`, `step` and `outcome` as one.

    Of the optional methods it keeps those that the object has; the others are the defaults of `Host`.
    """
    if isinstance(host, Host):
        return host
    if not (hasattr(host, 'spec') and all(callable(getattr(host, name, None)) for name in REQUIRED)):
        raise InputError(f'{type(host).__name__} has not all of spec, reset, step and outcome')
    return PlainHost(host)


def _had(plain: object) -> frozenset[Ability]:
    return frozenset(a for a in Ability if all(hasattr(plain, name) for name in (a.value, *WHOLE_WITH.get(a, ()))))


class PlainHost(Host):
    """A plain object as a host; made by `as_host`."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self._abilities = _had(plain)
        optional = {a.value for a in self._abilities} | ({'known_scene'} if Ability.VIEWS in self._abilities else set())
        for name in optional:  # in front of the default, which stays for what the object lacks
            setattr(self, name, getattr(plain, name))

    @property
    def spec(self) -> HostSpec:
        spec: HostSpec = self._plain.spec
        return spec

    def reset(self, task: str, *, seed: int) -> Observation:
        observation: Observation = self._plain.reset(task, seed=seed)
        return observation

    def step(self, action: Action) -> Observation:
        observation: Observation = self._plain.step(action)
        return observation

    def outcome(self) -> Outcome | None:
        outcome: Outcome | None = self._plain.outcome()
        return outcome

    @property
    def abilities(self) -> frozenset[Ability]:
        return self._abilities

    @property
    def substeps(self) -> int:
        return int(self._plain.substeps) if Ability.SUBSTEPS in self._abilities else super().substeps

    @property
    def film_cameras(self) -> tuple[str, ...]:
        return tuple(self._plain.film_cameras) if Ability.FILM in self._abilities else super().film_cameras

    @property
    def has_views(self) -> bool:
        return bool(self._plain.has_views) if Ability.VIEWS in self._abilities else super().has_views


def idle_action(host: Host, last_sent: Action | None) -> Action:
    """An action that keeps a host without `hold()` where it is: no motion for deltas, the gripper as it was."""
    convention = host.spec.action
    if convention.target is not Target.DELTA:
        raise InputError(
            f'host {host.spec.name} takes absolute targets and has no hold(), so it cannot be held while a policy '
            'thinks; give it hold(), or run with latency mode none in virtual time'
        )
    action = np.zeros(convention.width)
    if last_sent is not None and convention.width > convention.motion_width:
        action[-1] = last_sent[-1]
    return action


def check_maker(kind: str, use: str, maker: object, *, methods: Sequence[str]) -> None:
    """Refuse to call what is not known to make a host or a policy: a plan is data, and must not run what it likes.

    A class must have the methods; a function must say in its return annotation that it gives something that has.
    """
    made = maker if isinstance(maker, type) else _annotated_result(maker)
    if made is None or not all(callable(getattr(made, name, None)) for name in methods):
        wanted = ' and '.join(methods)
        raise InputError(
            f'{kind} {use}: not known to be a {kind}, so it is not called; wanted a class with {wanted}, or a function '
            f'with a return annotation that has'
        )


def _annotated_result(maker: object) -> object:
    try:
        return get_type_hints(maker).get('return')
    except (TypeError, NameError, AttributeError):
        return None
