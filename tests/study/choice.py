"""A world in which the instruction can matter or not, and a probe for it that trains in a millisecond.

Two marks on a table, seen only in the picture. `choose_left` and `choose_right` share their scenes, so that nothing but
the task tells which mark is meant. In `single_left` and `single_right` there is one mark, whatever the task is called.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.record import Outcome
from robotrials.run import Action, Chunk, Host, HostReport, HostSpec, Observation, PolicySpec, Session, Setup
from robotrials.run.plan import PolicyEntry
from robotrials.study.shortcut import MadeCheckpoint, SweepOptions
from robotrials.testing.policy import TRANSLATION
from robotrials.verdict.audit.shortcut import ProbeFacts, ProbeSweep, SweepSetting

TASKS = ('choose_left', 'choose_right', 'single_left', 'single_right')
RATE_HZ, REACH_M, GAIN = 20.0, 0.1, 0.25
SIDE_PX, BLOB_PX = 32, 1.5
HELD_OUT = 5_000  # the first demonstration that is fitted to by nobody
FloatArray = NDArray[np.float64]


class ChoiceHost(Host):
    """A point on a table of 2 m, and a red and a green mark in a picture of it; a single mark is both."""

    def __init__(self, *, privileged: bool = False) -> None:
        layout = ('x_m', 'y_m', 'goal_x_m', 'goal_y_m')[: 4 if privileged else 2]
        self._spec = HostSpec(
            name='choice', action=TRANSLATION, control_rate_hz=RATE_HZ, state_width=len(layout), state_layout=layout,
            images={'top': (SIDE_PX, SIDE_PX)},
        )  # fmt: skip

    @property
    def spec(self) -> HostSpec:
        return self._spec

    def reset(self, task: str, *, seed: int) -> Observation:
        if task not in TASKS:
            raise UnknownName('task', task, TASKS)
        rng = np.random.default_rng(seed)
        self._at = rng.uniform(-0.1, 0.1, 2)
        left, right = rng.uniform((-0.9, -0.8), (-0.3, 0.8)), rng.uniform((0.3, -0.8), (0.9, 0.8))
        self._marks = (left, right) if task.startswith('choose') else ((left, left) if seed % 2 else (right, right))
        self._goal = self._marks[task.endswith('right')]
        self._steps = 0
        return self._seen()

    def step(self, action: Action) -> Observation:
        self._at = self._at + np.asarray(action[:2], dtype=float)
        self._steps += 1
        return self._seen()

    def outcome(self) -> Outcome | None:
        return Outcome.SUCCESS if self._steps and np.hypot(*(self._at - self._goal)) <= REACH_M else None

    def report(self) -> HostReport:
        return HostReport(success=self.outcome() is Outcome.SUCCESS)

    def expert(self) -> FloatArray:
        """What somebody who knows the goal would do now."""
        return np.append(GAIN * (self._goal - self._at), 0.0)

    def _seen(self) -> Observation:
        image = np.zeros((SIDE_PX, SIDE_PX, 3), dtype=np.uint8)
        rows, columns = np.mgrid[:SIDE_PX, :SIDE_PX]
        for color, mark in enumerate(self._marks):
            column, row = (mark + 1) / 2 * (SIDE_PX - 1)
            distance = (rows - row) ** 2 + (columns - column) ** 2
            image[..., color] = np.round(255 * np.exp(-distance / (2 * BLOB_PX**2)))
        state = np.array([*self._at, *self._goal])[: self._spec.state_width]
        return Observation(self._steps / RATE_HZ, state, {'top': image})


def _features(observation: Observation, task: int, n_tasks: int, inputs: Sequence[str]) -> FloatArray:
    """A constant, the state and where each colour is, once for each task if the task is an input."""
    plain = np.array([1.0, *observation.state, *(_centres(observation) if 'images' in inputs else ())])
    if 'task' not in inputs:
        return plain
    gated = np.zeros((n_tasks, len(plain)))
    gated[task] = plain
    return gated.ravel()


def _centres(observation: Observation) -> FloatArray:
    """The centre of each colour, (4,), in shares of the picture."""
    image = observation.images['top'][..., :2].astype(float)
    places = np.arange(SIDE_PX) / SIDE_PX
    total = image.sum(axis=(0, 1))
    return np.concatenate([image.sum(axis=0).T @ places / total, image.sum(axis=1).T @ places / total])


class ChoiceExpert:
    """Who knows the goal, which a host with `privileged` puts behind its state."""

    def __init__(self) -> None:
        self._spec = PolicySpec(name='expert', action=TRANSLATION, chunk_length=1, control_rate_hz=RATE_HZ)

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        return self

    def act(self, observation: Observation) -> Chunk:
        at, goal = observation.state[:2], observation.state[2:4]
        return Chunk(np.append(GAIN * (goal - at), 0.0)[None, :])


class RidgePolicy:
    """A checkpoint of the ridge probe; `shuffle_tasks` tells it another task than it runs."""

    def __init__(self, *, path: str, shuffle_tasks: int | None = None) -> None:
        known = json.loads(Path(path, 'ridge.json').read_text(encoding='utf-8'))
        self.weights = np.array(known['weights'])
        self.tasks, self.inputs = tuple(known['tasks']), tuple(known['inputs'])
        self.turn = 0 if shuffle_tasks is None else 1 + shuffle_tasks % (len(self.tasks) - 1)
        self._spec = PolicySpec(name='ridge', action=TRANSLATION, chunk_length=1, control_rate_hz=RATE_HZ)

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        if setup.task not in self.tasks:
            raise UnknownName('task', setup.task, self.tasks)
        return _Ridge(self, (self.tasks.index(setup.task) + self.turn) % len(self.tasks))


class _Ridge:
    def __init__(self, policy: RidgePolicy, task: int) -> None:
        self._policy, self._task = policy, task

    def act(self, observation: Observation) -> Chunk:
        policy = self._policy
        return Chunk((_features(observation, self._task, len(policy.tasks), policy.inputs) @ policy.weights)[None, :])


class RidgeMaker:
    """Ridge regression on an expert's demonstrations; a checkpoint's step is how many demonstrations it saw.

    Of a sweep it takes the steps, and compares them by the squared error on demonstrations that it was not fitted to.
    """

    def __init__(
        self, folder: Path, tasks: Sequence[str], *, steps: Sequence[int] = (2, 40), reads_task: bool = True,
        seed: int = 7, sweep: SweepOptions | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.tasks, self.steps, self.reads_task, self.seed = folder, tuple(tasks), steps, reads_task, seed
        self.trained: list[str] = []
        self.sweep = None if sweep is None else ProbeSweep(settings=tuple(self._tried(n) for n in sweep.steps))
        if self.sweep is not None:
            self.steps = (*(n for n in steps if n < self.sweep.chosen.steps), self.sweep.chosen.steps)

    def train(self, variant: str) -> Sequence[MadeCheckpoint]:
        inputs = {'full': ('images', 'task'), 'blind': ('task',), 'proprioception': (), 'no_task': ('images',)}[variant]
        used = tuple(i for i in inputs if i != 'task' or self.reads_task)
        return [MadeCheckpoint(step, self._entry(self._checkpoint(variant, used, step))) for step in self.steps]

    def shuffled(self, final: MadeCheckpoint) -> PolicyEntry:
        if len(self.tasks) < 2:
            raise InputError('one task: there is no other to be told')
        return PolicyEntry(final.entry.use, {**final.entry.options, 'shuffle_tasks': 0})

    def task_names(self) -> Sequence[str]:
        return self.tasks

    def facts(self) -> ProbeFacts:
        return ProbeFacts(
            encoder='pixels', task_input='id' if self.reads_task else 'none', demonstrations=self.steps[-1],
            mid_motion=0, sweep=self.sweep,
        )  # fmt: skip

    def _entry(self, path: Path) -> PolicyEntry:
        return PolicyEntry('tests.study.choice:RidgePolicy', {'path': str(path)})

    def _checkpoint(self, variant: str, inputs: Sequence[str], step: int) -> Path:
        path = self.folder / variant / f'step-{step}'
        if not path.exists():
            path.mkdir(parents=True)
            known = {'weights': self._fitted(inputs, step).tolist(), 'tasks': self.tasks, 'inputs': inputs}
            (path / 'ridge.json').write_text(json.dumps(known), encoding='utf-8')
            self.trained.append(path.name)
        return path

    def _tried(self, steps: int) -> SweepSetting:
        inputs = ('images', 'task') if self.reads_task else ('images',)
        x, y = self._shown(inputs, range(HELD_OUT, HELD_OUT + 10))
        loss = float(np.mean((x @ self._fitted(inputs, steps) - y) ** 2))
        return SweepSetting(learning_rate=1.0, augmentation=0.0, steps=steps, validation_loss=loss)

    def _fitted(self, inputs: Sequence[str], demonstrations: int) -> FloatArray:
        x, y = self._shown(inputs, range(demonstrations))
        return np.asarray(np.linalg.solve(x.T @ x + 1e-6 * np.eye(x.shape[1]), x.T @ y), dtype=np.float64)

    def _shown(self, inputs: Sequence[str], numbers: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Features and actions of demonstrations."""
        host, rows, actions = ChoiceHost(), [], []
        for number in numbers:
            task = number % len(self.tasks)
            seen = host.reset(self.tasks[task], seed=10_000 * self.seed + number // len(self.tasks))
            for _ in range(12):
                action = host.expert()
                rows.append(_features(seen, task, len(self.tasks), inputs))
                actions.append(action)
                seen = host.step(action)
        return np.array(rows), np.array(actions)
