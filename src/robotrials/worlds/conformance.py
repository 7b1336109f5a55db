"""The conformance kit for hosts: what a host must keep to, checked by using it, bare and in every wrapper.

    check_host(MyHost(), task='stack')
    check_wrapper(MyWrapper, MyHost(), task='stack')

Each raises InputError that says what was broken; neither returns anything.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from robotrials.errors import InputError, RobotrialsError, SetupError
from robotrials.record import Outcome
from robotrials.run.host import Ability, Host, HostLike, HostWrapper, as_host, idle_action
from robotrials.run.mark import AlarmBoard, WorkerPhase
from robotrials.run.plan import FilmOptions, WatchdogOptions
from robotrials.run.seam import Action, Observation, Setup, StepPart, Target
from robotrials.wire.link import encode_frame, read_frame
from robotrials.worlds.inside import ERRORS, HostService, to_message
from robotrials.worlds.isolated import RemoteHost
from robotrials.worlds.wrapper import DisturbedHost, GuardedHost, Interrupts

T = TypeVar('T')
WRAPPED_STEPS = 5


class LoopbackHost(RemoteHost):
    """A host behind a service in the same process, with every message packed and unpacked as between two."""

    def __init__(self, host: HostLike) -> None:
        super().__init__(type(host).__name__)
        self._service = HostService(host)
        self._greet(self._call('open', {}))

    def _send(self, name: str, value: object, *, may_open: bool) -> Any:
        return _carried(getattr(self._service, name)(_carried(value)))


WRAPPERS: Mapping[str, Callable[[Host], Host]] = {
    'HostWrapper': HostWrapper,
    'RemoteHost': LoopbackHost,
    'DisturbedHost': DisturbedHost,
    'GuardedHost': lambda host: GuardedHost(host, interrupts=Interrupts()),
}


def check_host(
    host: HostLike, *, task: str, seed: int = 0, steps: int = 20, limit_s: float = 60.0, deterministic: bool = True
) -> None:
    """Raise if a host breaks its contract: shapes, finite values, no shared memory, no side effects of looking.

    With `deterministic`, the same seed and actions must give the same observations, bit for bit. In every wrapper that
    a run may put around it, it must keep its abilities and its bits. A call that does not return within `limit_s` is a
    hang; the alarm clock that says so rings in the main thread only, and not in compiled code that never returns.
    """
    with _Watch(limit_s) as watch:
        _check(as_host(host), Setup(task=task, seed=seed), steps, watch, deterministic=deterministic)


def _check(own: Host, setup: Setup, steps: int, watch: _Watch, *, deterministic: bool) -> None:
    first, seed = _Drive(own, setup, watch).run(steps, look=False), setup.seed
    if deterministic:
        again = _Drive(own, setup, watch).run(steps, look=True)
        for step, (a, b) in enumerate(zip(first, again, strict=False)):
            if a != b:
                raise InputError(
                    f'host {own.spec.name}: observation {step} differs between two runs of seed {seed} with the same '
                    'actions (the second also called signals() and report()); reset must set everything, and looking '
                    'must change nothing'
                )
        if len(first) != len(again):
            raise InputError(f'host {own.spec.name}: two runs of seed {seed} ended after different numbers of steps')
        if own.spec.images and _Drive(own, setup, watch).run(steps, look=False, draws_late=True) != first:
            raise InputError(
                f'host {own.spec.name}: pictures that expect_look() left out and look() drew are not those of every '
                'step, or the episode went another way without them'
            )
    if Ability.FILM in own.abilities:
        watch.call(f'host {own.spec.name}: film()', lambda: _check_film(own))
    bare = _repeated(own, setup, watch)
    for name, wrap in WRAPPERS.items():
        _check_wrapped(name, wrap(own), own, setup, bare=bare, watch=watch)


def check_wrapper(
    wrap: Callable[[Host], Host], host: HostLike, *, task: str, seed: int = 0, limit_s: float = 60.0
) -> None:
    """Raise if a wrapper loses an ability of a host, claims one that neither has, or changes a bit of its answers.

    It is driven under the nominal condition with nothing that would make it interfere.
    """
    own, setup = as_host(host), Setup(task=task, seed=seed)
    with _Watch(limit_s) as watch:
        bare = _repeated(own, setup, watch)
        wrapped = wrap(own)
        _check_wrapped(type(wrapped).__name__, wrapped, own, setup, bare=bare, watch=watch)


class _Watch(AlarmBoard):
    """Watches each call, in the caller's own thread: a GL context belongs to the thread that it was made in."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(WatchdogOptions(host_s=limit_s))
        self._limit_s = limit_s

    def call(self, what: str, call: Callable[[], T]) -> T:
        self.enter(WorkerPhase.HOST)
        try:
            return call()
        except TimeoutError as error:
            raise InputError(f'{what} did not return within {self._limit_s:g} s ({error})') from error
        finally:
            self.enter(WorkerPhase.IDLE)


def _check_wrapped(
    name: str, wrapped: Host, own: Host, setup: Setup, *, bare: Mapping[str, bytes], watch: _Watch
) -> None:
    where = f'{name} around host {own.spec.name}'
    if lost := own.abilities - wrapped.abilities:
        raise InputError(f'{where}: lost {", ".join(sorted(lost))}; a wrapper forwards what it does not change')
    adds = wrapped.adds if isinstance(wrapped, HostWrapper) else frozenset()
    if claimed := wrapped.abilities - own.abilities - adds:
        raise InputError(f'{where}: claims {", ".join(sorted(claimed))}, which the host does not have')
    answers = _Drive(wrapped, setup, watch).answers()
    changed = [what for what, content in bare.items() if answers.get(what) != content]
    if changed:  # unless it is the host that changed meanwhile: stamps of a running clock lose digits as it goes on
        now = _Drive(own, setup, watch).answers()
        changed = [what for what in changed if now.get(what) == bare[what]]
    if changed:
        raise InputError(f'{where}: {", ".join(changed)} not as the host itself gives it, bit for bit')


def _repeated(host: Host, setup: Setup, watch: _Watch) -> dict[str, bytes]:
    """What a host answers to everything it can be asked, as far as it answers the same twice (a clock does not)."""
    first, second = (_Drive(host, setup, watch).answers() for _ in range(2))
    return {what: content for what, content in first.items() if second.get(what) == content}


def _carried(value: object) -> Any:
    """A message as it arrives on the other side of a socket."""
    return read_frame(io.BytesIO(encode_frame(value)))


def _check_film(host: Host) -> None:
    """The episode that was just driven, filmed; a host that cannot draw on this machine is not at fault."""
    width_px, height_px = size_px = (64, 48)
    try:
        footage = host.film(FilmOptions(size_px=size_px))
        taken = {shot.camera.name: list(shot.frames) for shot in footage.shots}
    except SetupError:
        return
    steps = footage.states.steps
    if steps[0] != 0 or np.any(np.diff(steps) <= 0) or len(footage.states.states) != len(steps):
        raise InputError(
            f'film(): {len(footage.states.states)} states at steps {steps}, wanted one each, rising from 0'
        )
    for camera, frames in taken.items():
        if camera not in host.film_cameras:
            raise InputError(f'film(): camera {camera} is not one of film_cameras {host.film_cameras}')
        shapes = {(frame.shape, str(frame.dtype)) for frame in frames}
        if len(frames) != len(steps) or shapes != {((height_px, width_px, 3), 'uint8')}:
            raise InputError(
                f'film(): camera {camera} gave {len(frames)} frames of {sorted(shapes)}, wanted {len(steps)} of '
                f'{(height_px, width_px, 3)} uint8'
            )


class _Drive:
    """One episode of a host with actions that keep it nearly still, every answer checked."""

    def __init__(self, host: Host, setup: Setup, watch: _Watch) -> None:
        self._host, self._setup, self._watch = host, setup, watch
        self._rng = np.random.default_rng(0)

    def run(self, steps: int, *, look: bool, draws_late: bool = False) -> list[bytes]:
        host = self._host
        self._call('prepare', lambda: host.prepare(self._setup))
        seen: list[tuple[Observation, bytes]] = []
        self._keep(seen, self._call('reset', lambda: host.reset(self._setup.task, seed=self._setup.seed)))
        for step in range(steps):
            if self._outcome() is not None:
                break
            action = self._action()
            before = action.copy()
            host.expect_look(not draws_late)
            observation = self._call('step', lambda action=action: host.step(action))  # type: ignore[misc]
            if draws_late and not observation.images:
                observation = self._call('look', host.look)
            self._keep(seen, observation)
            if not np.array_equal(action, before):
                raise InputError(f'host {host.spec.name}: step() wrote into the action it was given')
            if step and not observation.t_s > seen[-2][0].t_s:
                raise InputError(
                    f'host {host.spec.name}: t_s went from {seen[-2][0].t_s} to {observation.t_s} at step {step}'
                )
            if look:
                self._call('signals', host.signals)
                self._call('report', host.report)
        return [content for _, content in seen]

    def answers(self) -> dict[str, bytes]:
        """A short episode in which everything is asked, what each call gave as bytes; our own errors as their text."""
        host, setup = self._host, self._setup
        answers: dict[str, bytes] = {}

        def ask(what: str, call: Callable[[], object]) -> None:
            try:
                value = self._watch.call(f'host {host.spec.name}: {what}', call)
            except RobotrialsError as error:
                kind = next((name for name, kind in ERRORS.items() if isinstance(error, kind)), 'other')
                answers[what] = f'{kind} error: {error}'.encode()
                return
            try:
                answers[what] = encode_frame(to_message(value))
            except InputError as error:
                raise InputError(f'host {host.spec.name}: {what} gave {value!r:.80}: {error}') from error

        ask('spec', lambda: dataclasses.replace(host.spec, conditions=()))  # a wrapper may bring about more
        ask('substeps', lambda: host.substeps)
        ask('film_cameras', lambda: host.film_cameras)
        ask('has_views', lambda: host.has_views)
        ask('protocol()', host.protocol)
        ask('check_cell()', lambda: host.check_cell(setup.task, stratum='no such stratum', items=1))
        self._call('prepare', lambda: host.prepare(setup))
        ask('reset()', lambda: host.reset(setup.task, seed=setup.seed))
        ask('check_reset()', lambda: _verdict(host))
        for step in range(WRAPPED_STEPS):
            if self._outcome() is not None:
                break
            parts = self._parts(in_two=step % 2 == 1)
            host.expect_look(step % 3 != 2)
            if len(parts) == 1:
                ask(f'step() {step}', lambda parts=parts: host.step(parts[0].action))  # type: ignore[misc]
            else:
                ask(f'step_through() {step}', lambda parts=parts: host.step_through(parts))  # type: ignore[misc]
            if step % 3 == 2:
                ask(f'look() {step}', host.look)
            ask(f'outcome() {step}', host.outcome)
            ask(f'signals() {step}', host.signals)
        for after in (host.report, host.scene, host.instruction, host.things, host.known_scene):
            ask(f'{after.__name__}()', after)
        if Ability.HOLD in host.abilities:
            ask('hold()', host.hold)
        ask('views()', host.views)
        ask('views(is_over=True)', lambda: host.views(is_over=True))
        ask('film()', lambda: _drawn(host))
        return answers

    def _parts(self, *, in_two: bool) -> Sequence[StepPart]:
        """One control step; where there are substeps, on demand in two parts of different actions."""
        n, action = self._host.substeps, self._action()
        if not in_two or n == 1:
            return [StepPart(0, action, n)]
        return [StepPart(0, action, n), StepPart(n // 2, self._action(), n)]

    def _action(self) -> Action:
        host = self._host
        holds = Ability.HOLD in host.abilities
        base = self._call('hold', host.hold) if holds else np.zeros(host.spec.action.width)
        if host.spec.action.target is Target.DELTA:
            base = idle_action(host, None) + 1e-3 * self._rng.standard_normal(host.spec.action.width)
        return np.array(base, dtype=float)

    def _outcome(self) -> Outcome | None:
        outcome = self._call('outcome', self._host.outcome)
        if outcome is not None and not isinstance(outcome, Outcome):
            raise InputError(f'host {self._host.spec.name}: outcome() gave {outcome!r}, wanted an Outcome or None')
        return outcome

    def _keep(self, seen: list[tuple[Observation, bytes]], observation: Observation) -> None:
        """Check a new observation, and that all earlier ones are still what they were."""
        name, spec = self._host.spec.name, self._host.spec
        if not isinstance(observation, Observation):
            raise InputError(f'host {name}: gave a {type(observation).__name__}, wanted an Observation')
        if observation.state.shape != (spec.state_width,):
            raise InputError(f'host {name}: state has shape {observation.state.shape}, declared ({spec.state_width},)')
        if not np.isfinite(observation.state).all():
            raise InputError(f'host {name}: the state is not finite: {observation.state}')
        for camera, size in spec.images.items():
            image = observation.images.get(camera)
            if image is None or image.shape != (*size, 3) or image.dtype != np.uint8:
                shape = 'none' if image is None else f'{image.shape} of {image.dtype}'
                raise InputError(f'host {name}: camera {camera} gave {shape}, declared {(*size, 3)} of uint8')
        for number, (earlier, content) in enumerate(seen):
            if _content(earlier) != content:
                raise InputError(
                    f'host {name}: observation {number} changed after it was handed out; copy buffers before giving '
                    'them away'
                )
        seen.append((observation, _content(observation)))

    def _call(self, what: str, call: Callable[[], T]) -> T:
        where = f'host {self._host.spec.name}: {what}()'
        try:
            return self._watch.call(where, call)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f'{where} raised {type(error).__name__}: {error}') from error


def _verdict(host: Host) -> object:
    check = host.check_reset()
    return None if check is None else [check.is_as_planned, check.reason]


def _drawn(host: Host) -> object:
    footage = host.film(FilmOptions(size_px=(64, 48)))
    return [footage.states, [[shot.camera, list(shot.frames)] for shot in footage.shots]]


def _content(observation: Observation) -> bytes:
    images = b''.join(name.encode() + image.tobytes() for name, image in sorted(observation.images.items()))
    return observation.state.tobytes() + images
