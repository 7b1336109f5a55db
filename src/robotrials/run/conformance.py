"""The conformance kit for policies: what a policy must keep to, checked by using it. For its author's own tests.

    check_policy(MyPolicy(), host=MyHost(), task='stack')

It raises InputError that says what was broken. The kit for hosts is `robotrials.worlds.check_host`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from robotrials.errors import InputError
from robotrials.run.fault import EpisodeStop
from robotrials.run.host import HostLike
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import LoopOptions, RecordingOptions
from robotrials.run.seam import FittedPolicy, Policy, Setup, check_conventions

T = TypeVar('T')


def check_policy(
    policy: Policy,
    *,
    host: HostLike,
    task: str,
    seed: int = 0,
    steps: int = 50,
    limit_s: float = 60.0,
    deadline_s: float | None = None,
    deterministic: bool = False,
) -> None:
    """Raise if a policy breaks its contract on a host: conventions, shapes, finite and timely answers, no crash.

    With `deterministic`, the same seed must give the same actions, bit for bit. steps: control steps of the episode
    that is tried. limit_s: how long it may take altogether. deadline_s: an answer that takes longer is a fault.
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
    policy: Policy, host: HostLike, *, task: str, seed: int, steps: int, limit_s: float, deadline_s: float | None
) -> Rollout:
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
        trace = f'\n{rollout.fault.text}' if rollout.fault.text else ''
        side = 'policy' if rollout.fault.kind.is_the_policys else 'host'
        name = policy.spec.name if side == 'policy' else host.spec.name
        raise InputError(f'{side} {name}: {rollout.fault.reason}{trace}') from EpisodeStop(rollout.fault)
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
