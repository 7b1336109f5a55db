"""Conformance kits: what a host and a policy must keep to, checked by using them. For their authors' own tests.

    check_host(MyHost(), task='stack')
    check_policy(MyPolicy(), host=MyHost(), task='stack')

Each raises InputError that says what was broken; neither returns anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from robotrials.errors import InputError, SetupError
from robotrials.record import Outcome
from robotrials.run.convention import Target, check_conventions
from robotrials.run.fault import EpisodeStop
from robotrials.run.loop import Order, Rollout, idle_action, run_episode
from robotrials.run.plan import FilmOptions, RecordingOptions
from robotrials.run.seam import (
    Action,
    FilmingHost,
    FittedPolicy,
    HoldingHost,
    Host,
    MeasuredHost,
    Observation,
    Policy,
    PreparedHost,
    ReportingHost,
    Setup,
)

T = TypeVar('T')


def check_host(
    host: Host, *, task: str, seed: int = 0, steps: int = 20, limit_s: float = 60.0, deterministic: bool = True
) -> None:
    """Raise if a host breaks its contract: shapes, finite values, no shared memory, no side effects of looking.

    With `deterministic`, the same seed and actions must give the same observations, bit for bit. A call that does not
    return within `limit_s` is a hang.
    """
    if not isinstance(host, Host):
        raise InputError(f'{type(host).__name__} has not all of spec, reset, step and outcome')
    first = _Drive(host, Setup(task=task, seed=seed), limit_s).run(steps, look=False)
    if deterministic:
        again = _Drive(host, Setup(task=task, seed=seed), limit_s).run(steps, look=True)
        for step, (a, b) in enumerate(zip(first, again, strict=False)):
            if a != b:
                raise InputError(
                    f'host {host.spec.name}: observation {step} differs between two runs of seed {seed} with the same '
                    'actions (the second also called signals() and report()); reset must set everything, and looking '
                    'must change nothing'
                )
        if len(first) != len(again):
            raise InputError(f'host {host.spec.name}: two runs of seed {seed} ended after different numbers of steps')
    if isinstance(host, FilmingHost):
        within(lambda: _check_film(host), limit_s=limit_s)


def _check_film(host: FilmingHost) -> None:
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

    def __init__(self, host: Host, setup: Setup, limit_s: float) -> None:
        self._host, self._setup, self._limit_s = host, setup, limit_s
        self._rng = np.random.default_rng(0)

    def run(self, steps: int, *, look: bool) -> list[bytes]:
        host = self._host
        if isinstance(host, PreparedHost):
            self._call('prepare', lambda: host.prepare(self._setup))
        seen: list[tuple[Observation, bytes]] = []
        last_t_s = -1.0
        self._keep(seen, self._call('reset', lambda: host.reset(self._setup.task, seed=self._setup.seed)))
        for step in range(steps):
            if self._outcome() is not None:
                break
            action = self._action()
            before = action.copy()
            self._keep(seen, self._call('step', lambda action=action: host.step(action)))  # type: ignore[misc]
            if not np.array_equal(action, before):
                raise InputError(f'host {host.spec.name}: step() wrote into the action it was given')
            last_t_s = self._check_time(seen, last_t_s, step)
            if look:
                self._look()
        return [content for _, content in seen]

    def _action(self) -> Action:
        host = self._host
        base = self._call('hold', host.hold) if isinstance(host, HoldingHost) else np.zeros(host.spec.action.width)
        if host.spec.action.target is Target.DELTA:
            base = idle_action(host, None) + 1e-3 * self._rng.standard_normal(host.spec.action.width)
        return np.array(base, dtype=float)

    def _outcome(self) -> Outcome | None:
        outcome = self._call('outcome', self._host.outcome)
        if outcome is not None and not isinstance(outcome, Outcome):
            raise InputError(f'host {self._host.spec.name}: outcome() gave {outcome!r}, wanted an Outcome or None')
        return outcome

    def _look(self) -> None:
        host = self._host
        if isinstance(host, MeasuredHost):
            self._call('signals', host.signals)
        if isinstance(host, ReportingHost):
            self._call('report', host.report)

    def _check_time(self, seen: list[tuple[Observation, bytes]], last_t_s: float, step: int) -> float:
        t_s = seen[-1][0].t_s
        if step and not t_s > last_t_s:
            raise InputError(f'host {self._host.spec.name}: t_s went from {last_t_s} to {t_s} at step {step}')
        return t_s

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
                found = 'none' if image is None else f'{image.shape} of {image.dtype}'
                raise InputError(f'host {name}: camera {camera} gave {found}, declared {(*size, 3)} of uint8')
        for number, (earlier, content) in enumerate(seen):
            if _content(earlier) != content:
                raise InputError(
                    f'host {name}: observation {number} changed after it was handed out; copy buffers before giving '
                    'them away'
                )
        seen.append((observation, _content(observation)))

    def _call(self, what: str, call: Callable[[], T]) -> T:
        try:
            return within(call, limit_s=self._limit_s)
        except TimeoutError as error:
            raise InputError(
                f'host {self._host.spec.name}: {what}() did not return within {self._limit_s:g} s'
            ) from error
        except InputError:
            raise
        except Exception as error:
            raise InputError(f'host {self._host.spec.name}: {what}() raised {type(error).__name__}: {error}') from error


def _content(observation: Observation) -> bytes:
    images = b''.join(name.encode() + image.tobytes() for name, image in sorted(observation.images.items()))
    return observation.state.tobytes() + images


def check_policy(
    policy: Policy,
    *,
    host: Host,
    task: str,
    seed: int = 0,
    steps: int = 50,
    limit_s: float = 60.0,
    deadline_s: float | None = None,
    deterministic: bool = False,
) -> None:
    """Raise if a policy breaks its contract on a host: conventions, shapes, finite and timely answers, no crash.

    With `deterministic`, the same seed must give the same actions, bit for bit.
    """
    if not isinstance(policy, Policy):
        raise InputError(f'{type(policy).__name__} has not both of spec and start')
    if isinstance(policy, FittedPolicy):
        policy.fit(host.spec)
    check_conventions(host.spec, policy.spec)
    first = _try_policy(policy, host, task=task, seed=seed, steps=steps, limit_s=limit_s, deadline_s=deadline_s)
    if deterministic:
        again = _try_policy(policy, host, task=task, seed=seed, steps=steps, limit_s=limit_s, deadline_s=deadline_s)
        if not np.array_equal(_actions(first), _actions(again)):
            raise InputError(f'policy {policy.spec.name}: two episodes with seed {seed} took different actions')


def _try_policy(
    policy: Policy, host: Host, *, task: str, seed: int, steps: int, limit_s: float, deadline_s: float | None
) -> Rollout:
    from robotrials.run.plan import LoopOptions

    order = Order(
        time_cap_s=steps / host.spec.control_rate_hz,
        policy_seed=seed,
        loop=LoopOptions(deadline_s=deadline_s),
        recording=RecordingOptions(),
    )
    setup = Setup(task=task, seed=seed)
    try:
        rollout = within(lambda: run_episode(host, policy, setup, order=order), limit_s=limit_s)
    except TimeoutError as error:
        raise InputError(
            f'policy {policy.spec.name}: {steps} steps did not end within {limit_s:g} s; it hangs or is too slow'
        ) from error
    if rollout.fault is not None:
        told = f'\n{rollout.fault.text}' if rollout.fault.text else ''
        side = 'policy' if rollout.fault.kind.is_the_policys else 'host'
        name = policy.spec.name if side == 'policy' else host.spec.name
        raise InputError(f'{side} {name}: {rollout.fault.reason}{told}') from EpisodeStop(rollout.fault)
    return rollout


def _actions(rollout: Rollout) -> Any:
    return None if rollout.trajectory is None else rollout.trajectory.action_raw


def within(call: Callable[[], T], *, limit_s: float) -> T:
    """The result of a call, or TimeoutError if it takes longer; the call is then left behind, still running."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise TimeoutError
    if errors:
        raise errors[0]
    return results[0]
