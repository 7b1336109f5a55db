"""Collecting demonstrations: an expert acts on a host, and what a policy would have seen is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.policies.probe.demonstration import FACTS, Demonstrations, EpisodeFacts, read_demonstrations
from robotrials.policies.probe.writer import DemonstrationWriter
from robotrials.record import Outcome
from robotrials.run.component import open_host, open_policy
from robotrials.run.convention import Target, check_conventions
from robotrials.run.host import Ability, Host
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.run.seam import ClosablePolicy, FittedPolicy, Observation, Session, Setup

FloatArray = NDArray[np.floating[Any]]
BURST_STEPS = 5
TASK_KEYS = ('task', 'instruction')


@dataclass(frozen=True, slots=True)
class CollectProgress:
    """How many start states were tried and how many demonstrations were kept."""

    tried: int
    kept: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """What is kept of an episode, and what happens to it on the way; see `collect_demonstrations`."""

    state_width: int | None = None
    padding_steps: int = 0
    skip_steps: int = 0
    noise: tuple[float, ...] = ()  # one number for every motion number, or one each
    noise_share: float = 0.2
    seed: int = 0
    time_cap_s: float = 60.0

    def __post_init__(self) -> None:
        if self.padding_steps < 0 or self.skip_steps < 0 or not 0 <= self.noise_share < 1:
            raise InputError('padding_steps and skip_steps are wanted >= 0, noise_share 0 up to below 1')
        if not np.isfinite(self.noise).all() or min(self.noise, default=0.0) < 0:
            raise InputError(f'noise is {list(self.noise)}, wanted finite numbers >= 0')


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
    groups: Sequence[int] = (),
    per_group: int = 1,
    progress: Callable[[CollectProgress], None] | None = None,
) -> Demonstrations:
    """Run an expert once from each set-up, and keep images, state and the expert's actions.

    A folder that was collected by the same call is read, and nothing runs; one that holds anything else is refused.
    state_width: so many first numbers of the state are kept, for an expert that is shown more than a policy may be (on
    the tabletop cell 8: proprioception comes first). padding_steps: how long the arm is held still after the success.
    skip_steps: leaves out the first steps, so that a demonstration begins in mid-motion. noise: the standard deviation
    of what pushes each motion number that is carried out aside, in bursts of five steps that take up `noise_share` of
    the time; the expert's own action is recorded, so that demonstrations show the way back (after DART, Laskey et al.
    2017).
    task_key: whether a task is told by the plan's name for it, or by the words of its instruction. groups: the group of
    each set-up; of a group `per_group` demonstrations are kept, and its further set-ups are not run.
    """
    setups = list(setups)
    pushes = (float(noise),) if isinstance(noise, int | float) else tuple(float(v) for v in noise)
    options = CollectOptions(
        state_width=state_width,
        padding_steps=padding_steps,
        skip_steps=skip_steps,
        noise=pushes,
        noise_share=noise_share,
        seed=seed,
        time_cap_s=time_cap_s,
    )
    check_task_key(task_key)
    if groups and len(groups) != len(setups):
        raise InputError(f'{len(groups)} groups are given for {len(setups)} set-ups')
    rules = {'task_key': task_key, 'only_successes': only_successes, 'groups': list(groups), 'per_group': per_group}
    source = digested(_source(host_entry, expert_entry, setups, options) | rules)
    if (Path(folder) / FACTS).exists():
        return _read_same(folder, source)
    with using_host(host_entry) as host:
        collector = Collector(host, options)
        policy = open_policy(expert_entry)
        try:
            if isinstance(policy, FittedPolicy):
                policy.fit(host.spec)
            check_conventions(host.spec, policy.spec)
            kept: Counter[int] = Counter()
            with collector.writer(folder, source) as writer:
                for number, setup in enumerate(setups, start=1):
                    group = groups[number - 1] if groups else -number  # a group of its own
                    if kept[group] >= per_group:
                        continue
                    made = collector.run(setup, policy.start)
                    if len(made.action) and (made.outcome is Outcome.SUCCESS or not only_successes):
                        made.append_to(writer, task_key=task_key, identity=str(number - 1))
                        kept[group] += 1
                    if progress is not None:
                        progress(CollectProgress(number, writer.n_episodes, len(setups)))
                return writer.finish()
        finally:
            if isinstance(policy, ClosablePolicy):
                policy.close()


@contextmanager
def using_host(entry: HostEntry) -> Iterator[Host]:
    """A host, closed at the end."""
    host = open_host(entry)
    try:
        yield host
    finally:
        host.close()


def check_task_key(task_key: str) -> None:
    """InputError if this is no way to tell tasks apart."""
    if task_key not in TASK_KEYS:
        raise InputError(f'task_key is {task_key!r}, wanted one of: {", ".join(TASK_KEYS)}')


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """One episode of an expert."""

    setup: Setup
    images: dict[str, NDArray[np.uint8]]
    state: FloatArray
    action: FloatArray
    outcome: Outcome | None
    instruction: str
    start_state: FloatArray | None
    begins_in_motion: bool

    def append_to(self, writer: DemonstrationWriter, *, task_key: str, identity: str) -> None:
        """Write it as a demonstration."""
        setup = self.setup
        if task_key == 'instruction' and not self.instruction:
            raise InputError(f'task {setup.task} has no instruction to tell it by; wanted task_key = "task"')
        facts = EpisodeFacts(
            task=setup.task if task_key == 'task' else self.instruction,
            instruction=self.instruction,
            success=self.outcome is Outcome.SUCCESS,
            seed=setup.seed,
            instance=setup.instance,
            layout=f'{setup.task}/{setup.stratum}/{setup.instance}/{setup.seed}',
            begins_in_motion=self.begins_in_motion,
            id=identity,
        )
        writer.append(facts, images=self.images, state=self.state, action=self.action, start_state=self.start_state)


class Collector:
    """A host that keeps what was seen on it."""

    def __init__(self, host: Host, options: CollectOptions) -> None:
        spec = host.spec
        self._host, self._options = host, options
        self._width = spec.state_width if options.state_width is None else options.state_width
        if not 0 <= self._width <= spec.state_width:
            raise InputError(f'state_width is {self._width}, the host shows {spec.state_width} numbers')
        noise = np.array(options.noise or (0.0,), dtype=float)
        if len(noise) not in (1, spec.action.motion_width):
            raise InputError(f'noise has {len(noise)} numbers, wanted 1 or {spec.action.motion_width}')
        self._noise = np.broadcast_to(noise, (spec.action.motion_width,))
        self._most_steps = int(options.time_cap_s * spec.control_rate_hz + 1e-9)

    def writer(self, folder: Path | str, source: dict[str, Any]) -> DemonstrationWriter:
        spec = self._host.spec
        layout = spec.state_layout[: self._width]
        return DemonstrationWriter(
            folder, action=spec.action, control_rate_hz=spec.control_rate_hz, source=source, state_layout=layout
        )

    def run(self, setup: Setup, start: Callable[..., Session], *, most_steps: int | None = None) -> Collected:
        """One episode to its outcome, or to the cap; `start(setup, seed=...)` gives who acts."""
        host, options = self._host, self._options
        host.prepare(setup)
        seen = host.reset(setup.task, seed=setup.seed)
        start_state = self._start_state()
        words = setup.instruction or host.instruction()
        # Starts that a condition moves apart have one seed; each is pushed in its own way.
        moved = [int(v) for k, v in setup.condition_parameters.items() if k.rsplit('.', 1)[-1] == 'seed']
        entropy = [options.seed, setup.seed, setup.instance, *moved]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        session = start(setup, seed=int(rng.integers(2**31)))
        pushes = self._pushes(rng)
        observations: list[Observation] = []
        actions: list[FloatArray] = []
        queue: list[FloatArray] = []
        while host.outcome() is None and len(actions) < (most_steps or self._most_steps):
            queue = queue or list(session.act(seen).actions)
            observations.append(seen)
            actions.append(queue.pop(0))
            carried_out = np.array(actions[-1], dtype=float)
            carried_out[: len(self._noise)] += next(pushes)
            seen = host.step(carried_out)
        outcome = host.outcome()
        for _ in range(options.padding_steps if outcome is Outcome.SUCCESS else 0):
            observations.append(seen)
            actions.append(self._still(actions[-1]))
            seen = host.step(actions[-1])
        observations, actions = observations[options.skip_steps :], actions[options.skip_steps :]
        return Collected(
            setup=setup,
            images={c: np.stack([o.images[c] for o in observations]) for c in host.spec.images if observations},
            state=np.array([o.state[: self._width] for o in observations]),
            action=np.array(actions),
            outcome=outcome,
            instruction=words,
            start_state=start_state,
            begins_in_motion=options.skip_steps > 0,
        )

    def _pushes(self, rng: np.random.Generator) -> Iterator[FloatArray]:
        still, share = np.zeros_like(self._noise), self._options.noise_share
        chance = share / (BURST_STEPS * (1 - share) + share)  # of a burst to begin
        while True:
            if rng.random() >= chance:
                yield still
                continue
            push = rng.standard_normal(len(still)) * self._noise
            yield from [push] * BURST_STEPS

    def _still(self, last: FloatArray) -> FloatArray:
        if Ability.HOLD in self._host.abilities:
            return self._host.hold()
        if self._host.spec.action.target is not Target.DELTA:
            return last
        width = self._host.spec.action.motion_width
        return np.concatenate([np.zeros(width), last[width:]])

    def _start_state(self) -> FloatArray | None:
        """Where things stand at the start: the poses of the bodies, and the middle of the target."""
        poses = self._host.signals().get('body_pose')
        if not poses:
            return None
        target = self._host.scene().target_center_m
        parts = [np.asarray(poses[name], dtype=float)[:7] for name in poses]
        return np.concatenate([*parts, np.asarray(target or (), dtype=float)])


def _source(
    host: HostEntry, expert: PolicyEntry, setups: Sequence[Setup], options: CollectOptions
) -> dict[str, Any]:  # fmt: skip
    starts = [
        {f.name: dict(v) if isinstance(v := getattr(setup, f.name), Mapping) else v for f in dataclasses.fields(setup)}
        for setup in setups
    ]
    return {
        'kind': 'collected',
        'host': {'use': host.use, 'options': dict(host.options)},
        'expert': {'use': expert.use, 'options': dict(expert.options)},
        **dataclasses.asdict(options),
        'setups': hashlib.sha256(json.dumps(starts, sort_keys=True).encode()).hexdigest(),
        'n_setups': len(setups),
    }


def _read_same(folder: Path | str, source: dict[str, Any]) -> Demonstrations:
    there = read_demonstrations(folder)
    if there.facts.source.get('digest') != source['digest']:
        raise InputError(f'{folder}: demonstrations of another plan are there; name another folder')
    return there


def digested(source: dict[str, Any]) -> dict[str, Any]:
    """A source with what identifies it."""
    return source | {'digest': hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()}
