"""Collecting demonstrations: an expert acts on a host, and what a policy would have seen is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError
from robotrials.policies.probe.demonstration import (
    FACTS,
    FORMAT,
    DemonstrationFacts,
    Demonstrations,
    EpisodeFacts,
    file_digest,
    plain_words,
    read_demonstrations,
)
from robotrials.record import Outcome
from robotrials.record.folder import move_durably, naming_trouble
from robotrials.run.component import open_host, open_policy
from robotrials.run.host import Ability, Host
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.run.seam import (
    ActionConvention,
    ClosablePolicy,
    FittedPolicy,
    Observation,
    Session,
    Setup,
    Target,
    check_conventions,
)

# Writing demonstrations, episode by episode.


class DemonstrationWriter:
    """Appends episode by episode to a draft beside `folder`; `finish` puts it in place. As a context it cleans up.

    Tasks are numbered in the order of `tasks`, then as they come.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        action: ActionConvention,
        control_rate_hz: float,
        source: Mapping[str, Any],
        state_layout: Sequence[str] = (),
        tasks: Sequence[str] = (),
    ) -> None:
        self._folder = Path(folder)
        if self._folder.exists():
            raise InputError(f'{self._folder} already exists; name a new folder for the demonstrations')
        self._draft = self._folder.with_name(f'.{self._folder.name}.{os.getpid()}.draft')
        self._draft.mkdir(parents=True)
        self._files: dict[str, _GrowingArray] = {}
        self._tasks, self._phrasings = list(tasks), dict[str, str]()
        self._episodes: list[EpisodeFacts] = []
        self._starts, self._start_states = [0], list[NDArray[np.float64]]()
        self._cameras: tuple[str, ...] | None = None
        self._facts = DemonstrationFacts(
            action=action, control_rate_hz=control_rate_hz, source=dict(source), state_layout=tuple(state_layout)
        )

    def __enter__(self) -> DemonstrationWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # of a full disk, which was reported already
                file.close()
        shutil.rmtree(self._draft, ignore_errors=True)

    @property
    def n_episodes(self) -> int:
        return len(self._episodes)

    def append(
        self,
        facts: EpisodeFacts,
        *,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[Any],
        action: NDArray[Any],
        start_state: ArrayLike | None = None,
        phrasings: Sequence[str] = (),
    ) -> None:
        """One episode of T steps: images (T, H, W, 3) of each camera, state (T, S), action (T, A)."""
        arrays = self._checked(facts, images, state, action, start_state)
        for words in (facts.instruction, *phrasings):
            known = self._phrasings.setdefault(plain_words(words), facts.task) if words else facts.task
            if known != facts.task:
                raise InputError(f'{words!r} asks for task {known!r} and for {facts.task!r}; wanted one task for it')
        if facts.task not in self._tasks:
            self._tasks.append(facts.task)
        arrays['task'] = np.full(len(action), self._tasks.index(facts.task), np.int64)
        for name, array in arrays.items():
            if name not in self._files:
                self._files[name] = _GrowingArray(self._draft / f'{name}.npy', array.dtype, array.shape[1:])
            with naming_trouble(self._draft / f'{name}.npy'):
                self._files[name].append(array)
        if start_state is not None:
            self._start_states.append(np.asarray(start_state, dtype=float))
        self._episodes.append(facts)
        self._starts.append(self._starts[-1] + len(action))

    def finish(self) -> Demonstrations:
        """Put the folder in place, whole."""
        if not self._episodes:
            raise InputError(f'{self._folder}: no demonstration was kept, so there is nothing to train on')
        with naming_trouble(self._draft):
            self._put_in_place()
        return read_demonstrations(self._folder)

    def _put_in_place(self) -> None:
        for file in self._files.values():
            file.finish()
        np.save(self._draft / 'starts.npy', np.array(self._starts, np.int64))
        if self._start_states:
            # Scenes with fewer things are filled up with zeros: distances are taken within a task.
            widest = max(len(row) for row in self._start_states)
            rows = [np.pad(row, (0, widest - len(row))) for row in self._start_states]
            np.save(self._draft / 'start_state.npy', np.stack(rows))
        digests = {path.name: file_digest(path) for path in sorted(self._draft.glob('*.npy'))}
        facts = dataclasses.replace(
            self._facts,
            tasks=tuple(self._tasks),
            phrasings=self._phrasings,
            cameras=self._cameras or (),
            episodes=tuple(self._episodes),
            digests=digests,
        )
        content = {'format': FORMAT, 'version': 1, **dataclasses.asdict(facts)}
        (self._draft / FACTS).write_text(json.dumps(content, indent=1), encoding='utf-8')
        move_durably(self._draft, self._folder)

    def _checked(
        self,
        facts: EpisodeFacts,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[Any],
        action: NDArray[Any],
        start_state: ArrayLike | None,
    ) -> dict[str, NDArray[Any]]:
        where = f'demonstration {len(self._episodes)} ({facts.id or facts.task})'
        if self._cameras is None:
            self._cameras = tuple(images)
        if tuple(images) != self._cameras:
            raise InputError(f'{where}: cameras {list(images)}, wanted {list(self._cameras)} as in those before')
        width = self._facts.action.width
        if action.ndim != 2 or not len(action) or action.shape[1] != width:
            raise InputError(f'{where}: actions of shape {action.shape}, wanted (steps, {width})')
        arrays: dict[str, NDArray[Any]] = {'state': np.asarray(state, np.float32)}
        arrays['action'] = np.asarray(action, np.float32)
        for camera, frames in images.items():
            if not re.fullmatch(r'[A-Za-z0-9_.-]+', camera):
                raise InputError(f'{where}: a camera is named {camera!r}, wanted letters, digits, . _ and -')
            if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
                raise InputError(
                    f'{where}: images of {camera} are {frames.dtype} {frames.shape}, wanted uint8 (T, H, W, 3)'
                )
            arrays[f'images_{camera}'] = frames
        for name, array in arrays.items():
            if len(array) != len(action) or array.ndim < 2:
                raise InputError(f'{where}: {name} has shape {array.shape}, wanted {len(action)} steps')
            if array.dtype != np.uint8 and not np.isfinite(array).all():
                raise InputError(f'{where}: {name} holds numbers that are not finite')
            if name in self._files and self._files[name].shape != array.shape[1:]:
                raise InputError(
                    f'{where}: {name} is {array.shape[1:]} per step, {self._files[name].shape} in those before'
                )
        if self._episodes and (start_state is None) != (not self._start_states):
            raise InputError(f'{where}: a start state is given for some demonstrations and not for others')
        return arrays


class _GrowingArray:
    """An ``.npy`` file that grows along its first axis: numpy leaves room in the header for that."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.shape, self._dtype, self._length = shape, dtype, 0
        self._file: BinaryIO = path.open('w+b')
        self._write_header()
        self._data_at = self._file.tell()

    def append(self, array: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(array, self._dtype).tobytes())
        self._length += len(array)

    def finish(self) -> None:
        self._file.seek(0)
        self._write_header()
        if self._file.tell() != self._data_at:
            raise RuntimeError('the header of an .npy file changed its length')
        self.close()

    def close(self) -> None:
        self._file.close()

    def _write_header(self) -> None:
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {'descr': descr, 'fortran_order': False, 'shape': (self._length, *self.shape)}
        np.lib.format.write_array_header_1_0(self._file, header)


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
    state_width: how many of the state's first numbers are kept, for an expert that is shown more than a policy may be
    (on the tabletop cell 8: proprioception comes first). padding_steps: how long the arm is held still after the
    success. skip_steps: leaves out the first steps, so that a demonstration begins in mid-motion. noise: the standard
    deviation of what pushes each motion number that is carried out aside, in bursts of five steps that take up
    `noise_share` of the time; the expert's own action is recorded, so that demonstrations show the way back (after
    DART, Laskey et al. 2017).
    task_key: whether a task is identified by the plan's name for it, or by the words of its instruction. groups: the
    group of each set-up; of a group `per_group` demonstrations are kept, and its further set-ups are not run.
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
