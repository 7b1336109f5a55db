"""Collecting demonstrations: an expert acts on a host, and what a policy would have seen is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.episodes import Outcome
from trialist.errors import InputError
from trialist.policies.probe.demonstration import (
    Demonstrations,
    DemonstrationWriter,
    EpisodeFacts,
)
from trialist.run.component import open_host, open_policy
from trialist.run.convention import Target, check_conventions
from trialist.run.plan import HostEntry, PolicyEntry
from trialist.run.seam import (
    ClosableHost,
    ClosablePolicy,
    DescribedHost,
    FittedPolicy,
    HoldingHost,
    Host,
    InstructingHost,
    MeasuredHost,
    Observation,
    Policy,
    PreparedHost,
    Setup,
)

FloatArray = NDArray[np.floating[Any]]
BURST_STEPS = 5
TASK_KEYS = ('task', 'instruction')


@dataclass(frozen=True, slots=True)
class CollectProgress:
    """How many start states were tried and how many demonstrations were kept."""

    tried: int
    kept: int
    of: int


def collect_demonstrations(
    host_entry: HostEntry,
    expert_entry: PolicyEntry,
    setups: Iterable[Setup],
    folder: Path | str,
    *,
    state_width: int | None = None,
    only_successes: bool = True,
    padding_steps: int = 0,
    skip_steps: int = 0,
    noise: float | Sequence[float] = 0.0,
    noise_share: float = 0.2,
    seed: int = 0,
    task_key: str = 'task',
    time_cap_s: float = 60.0,
    progress: Callable[[CollectProgress], None] | None = None,
) -> Demonstrations:
    """Run an expert once from each set-up, and keep images, state and the expert's actions.

    state_width: so many first numbers of the state are kept, for an expert that is shown more than a policy may be (on
    the tabletop cell 8: proprioception comes first). padding_steps: how long the arm is held still after the success.
    skip_steps: leaves out the first steps, so that a demonstration begins in mid-motion. noise: the standard deviation
    of what pushes each motion number that is carried out aside, in bursts of five steps that take up `noise_share` of the
    time; the expert's own action is recorded, so that demonstrations show the way back (after DART, Laskey et al. 2017).
    task_key: whether a task is told by the plan's name for it, or by the words of its instruction.
    """
    setups = list(setups)
    if task_key not in TASK_KEYS:
        raise InputError(f'task_key is {task_key!r}, wanted one of: {", ".join(TASK_KEYS)}')
    if padding_steps < 0 or skip_steps < 0 or not 0 <= noise_share < 1:
        raise InputError('padding_steps and skip_steps are wanted >= 0, noise_share 0 up to below 1')
    host = open_host(host_entry)
    try:
        policy = open_policy(expert_entry)
        try:
            if isinstance(policy, FittedPolicy):
                policy.fit(host.spec)
            check_conventions(host.spec, policy.spec)
            collector = Collector(
                host,
                policy,
                state_width=host.spec.state_width if state_width is None else state_width,
                padding_steps=padding_steps,
                skip_steps=skip_steps,
                noise=_noise(noise, host.spec.action.motion_width),
                noise_share=noise_share,
                seed=seed,
                most_steps=int(time_cap_s * host.spec.control_rate_hz + 1e-9),
            )
            source = _source(host_entry, expert_entry, setups, skip_steps, padding_steps, collector.noise, seed)
            return _collect(collector, setups, Path(folder), source, only_successes, task_key, progress)
        finally:
            if isinstance(policy, ClosablePolicy):
                policy.close()
    finally:
        if isinstance(host, ClosableHost):
            host.close()


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """One episode of an expert."""

    images: dict[str, NDArray[np.uint8]]
    state: FloatArray
    action: FloatArray
    outcome: Outcome | None
    instruction: str
    start_state: FloatArray | None


class Collector:
    """An expert on a host."""

    def __init__(
        self,
        host: Host,
        policy: Policy,
        *,
        state_width: int,
        padding_steps: int,
        skip_steps: int,
        noise: FloatArray,
        noise_share: float,
        seed: int,
        most_steps: int,
    ) -> None:
        if not 0 <= state_width <= host.spec.state_width:
            raise InputError(f'state_width is {state_width}, the host shows {host.spec.state_width} numbers')
        self.host, self.policy, self.noise = host, policy, noise
        self.state_width, self.skip_steps = state_width, skip_steps
        self._padding, self._share, self._seed, self._most_steps = padding_steps, noise_share, seed, most_steps

    def run(self, setup: Setup) -> Collected:
        """One episode to its outcome, or to the cap."""
        host = self.host
        if isinstance(host, PreparedHost):
            host.prepare(setup)
        seen = host.reset(setup.task, seed=setup.seed)
        start_state = self._start_state()
        words = setup.instruction or (host.instruction() if isinstance(host, InstructingHost) else '')
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self._seed, setup.seed, setup.instance])))
        session = self.policy.start(setup, seed=int(rng.integers(2**31)))
        observations: list[Observation] = []
        actions: list[FloatArray] = []
        pushes = self._pushes(rng)
        queue: list[FloatArray] = []
        while host.outcome() is None and len(actions) < self._most_steps:
            if not queue:
                queue = list(session.act(seen).actions)
            action = queue.pop(0)
            observations.append(seen)
            actions.append(action)
            carried_out = np.array(action, dtype=float)
            carried_out[: len(self.noise)] += next(pushes)
            seen = host.step(carried_out)
        outcome = host.outcome()
        for _ in range(self._padding if outcome is Outcome.SUCCESS else 0):
            action = self._still(actions[-1])
            observations.append(seen)
            actions.append(action)
            seen = host.step(action)
        return self._kept(observations, actions, outcome, words, start_state)

    def _pushes(self, rng: np.random.Generator) -> Iterator[FloatArray]:
        still = np.zeros_like(self.noise)
        chance = self._share / (BURST_STEPS * (1 - self._share) + self._share)  # of a burst to begin
        while True:
            if rng.random() >= chance:
                yield still
                continue
            push = rng.standard_normal(len(still)) * self.noise
            yield from [push] * BURST_STEPS

    def _kept(
        self,
        observations: list[Observation],
        actions: list[FloatArray],
        outcome: Outcome | None,
        words: str,
        start_state: FloatArray | None,
    ) -> Collected:
        observations, actions = observations[self.skip_steps :], actions[self.skip_steps :]
        images = {c: np.stack([o.images[c] for o in observations]) for c in self.host.spec.images} if actions else {}
        state = np.array([o.state[: self.state_width] for o in observations])
        return Collected(images, state, np.array(actions), outcome, words, start_state)

    def _still(self, last: FloatArray) -> FloatArray:
        if isinstance(self.host, HoldingHost):
            return self.host.hold()
        if self.host.spec.action.target is not Target.DELTA:
            return last
        still = np.zeros_like(last)
        still[self.host.spec.action.motion_width :] = last[self.host.spec.action.motion_width :]
        return still

    def _start_state(self) -> FloatArray | None:
        """Where things stand at the start: the poses of all bodies but the robot's and the furniture."""
        host = self.host
        if not isinstance(host, MeasuredHost):
            return None
        poses = host.signals().get('body_pose')
        if not poses:
            return None
        target = host.scene().target_center_m if isinstance(host, DescribedHost) else None
        parts = [np.asarray(poses[name], dtype=float)[:7] for name in poses]
        return np.concatenate([*parts, np.asarray(target, dtype=float)] if target is not None else parts)


def _collect(
    collector: Collector,
    setups: list[Setup],
    folder: Path,
    source: dict[str, Any],
    only_successes: bool,
    task_key: str,
    progress: Callable[[CollectProgress], None] | None,
) -> Demonstrations:
    spec = collector.host.spec
    layout = spec.state_layout[: collector.state_width]
    with DemonstrationWriter(
        folder, action=spec.action, control_rate_hz=spec.control_rate_hz, source=source, state_layout=layout
    ) as writer:
        for number, setup in enumerate(setups, start=1):
            made = collector.run(setup)
            is_kept = len(made.action) > 0 and (made.outcome is Outcome.SUCCESS or not only_successes)
            if is_kept:
                facts = EpisodeFacts(
                    task=setup.task if task_key == 'task' else made.instruction,
                    instruction=made.instruction,
                    success=made.outcome is Outcome.SUCCESS,
                    seed=setup.seed,
                    instance=setup.instance,
                    layout=f'{setup.task}/{setup.stratum}/{setup.instance}/{setup.seed}',
                    begins_in_motion=collector.skip_steps > 0,
                    id=str(number - 1),
                )
                writer.append(
                    facts, images=made.images, state=made.state, action=made.action, start_state=made.start_state
                )
            if progress is not None:
                progress(CollectProgress(number, writer.n_episodes, len(setups)))
        return writer.finish()


def _noise(noise: float | Sequence[float], width: int) -> FloatArray:
    values = np.full(width, float(noise)) if isinstance(noise, int | float) else np.asarray(noise, dtype=float)
    if values.shape != (width,) or (values < 0).any() or not np.isfinite(values).all():
        raise InputError(f'noise is {noise}, wanted one number >= 0 or {width} of them')
    return values


def _source(
    host: HostEntry,
    expert: PolicyEntry,
    setups: list[Setup],
    skip_steps: int,
    padding_steps: int,
    noise: FloatArray,
    seed: int,
) -> dict[str, Any]:
    starts = [[s.task, s.seed, s.stratum, s.instance, s.condition] for s in setups]
    content: dict[str, Any] = {
        'kind': 'collected',
        'host': {'use': host.use, 'options': dict(host.options)},
        'expert': {'use': expert.use, 'options': dict(expert.options)},
        'noise': noise.tolist(),
        'skip_steps': skip_steps,
        'padding_steps': padding_steps,
        'seed': seed,
        'setups': hashlib.sha256(json.dumps(starts).encode()).hexdigest(),
        'n_setups': len(setups),
    }
    return content | {'digest': hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}
