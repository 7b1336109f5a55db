"""The tabletop cell with its blocks as numbers, so that a probe without images learns a task in a minute.

The state says where every block and the white square are, and not which block is asked for: on `choose_<colour>`, whose
tasks share one scene, nothing but the task tells that. The expert's privileged state stands behind it where asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.cell import TabletopHost
from trialist.cell.privileged import read_state
from trialist.cell.scripted import ScriptedPolicy
from trialist.cell.state import PRIVILEGED_WIDTH, heading
from trialist.run import Action, Chunk, HostSpec, Observation, PolicySpec, Session, Setup

COLORS = ('red', 'green', 'blue', 'yellow')
OPENING, TOOL = 7, slice(15, 22)  # in the privileged state
BODY_WIDTH = 6  # is there, x, y, z as seen from the tool, and the heading of a square: cos 4a, sin 4a
WIDTH = 1 + (2 + len(COLORS)) * BODY_WIDTH

FloatArray = NDArray[np.floating[Any]]


class BlocksHost(TabletopHost):
    """The cell without cameras; `privileged` puts what the expert reads behind the numbers that a probe is shown."""

    def __init__(self, *, privileged: bool = False, **options: Any) -> None:
        super().__init__(state='privileged', **options)
        self._is_told = privileged

    @property
    def spec(self) -> HostSpec:
        width = WIDTH + (PRIVILEGED_WIDTH if self._is_told else 0)
        return dataclasses.replace(super().spec, state_width=width, state_layout=())

    def reset(self, task: str, *, seed: int) -> Observation:
        return self._as_numbers(super().reset(task, seed=seed))

    def step(self, action: Action) -> Observation:
        return self._as_numbers(super().step(action))

    def _as_numbers(self, seen: Observation) -> Observation:
        poses = self.signals()['body_pose']
        items = read_state(seen.state).items
        square = items[0].goal if items else None  # the same whichever block is asked for
        blocks = [poses.get(f'{color}_block') for color in COLORS]
        tool = seen.state[TOOL]
        parts = [_body(tool, origin=np.zeros(3)), *(_body(pose, origin=tool[:3]) for pose in (square, *blocks))]
        numbers = np.concatenate([[seen.state[OPENING]], *parts])
        state = np.concatenate([numbers, seen.state]) if self._is_told else numbers
        return dataclasses.replace(seen, state=state)


def _body(pose: FloatArray | None, *, origin: FloatArray) -> FloatArray:
    if pose is None:
        return np.zeros(BODY_WIDTH)
    angle = 4 * heading(pose[3:7].tolist())
    return np.array([1.0, *(pose[:3] - origin), np.cos(angle), np.sin(angle)])


class BlocksExpert:
    """The scripted policy on a `BlocksHost` that is told the privileged state."""

    def __init__(self, *, temper: str = 'reference', changes: Mapping[str, float | bool] | None = None) -> None:
        self._inner = ScriptedPolicy(temper=temper, changes=changes)

    @property
    def spec(self) -> PolicySpec:
        return dataclasses.replace(self._inner.spec, state_width=WIDTH + PRIVILEGED_WIDTH)

    def start(self, setup: Setup, *, seed: int) -> Session:
        return _Telling(self._inner.start(setup, seed=seed))


class _Telling:
    def __init__(self, inner: Session) -> None:
        self._inner = inner

    def act(self, observation: Observation) -> Chunk:
        return self._inner.act(dataclasses.replace(observation, state=observation.state[WIDTH:]))
