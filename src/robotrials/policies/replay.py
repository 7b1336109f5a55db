"""A policy that plays recorded actions back: for checks of determinism and hardware, or as a control arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.record import Trajectory, read_store
from robotrials.run import ActionConvention, Chunk, Observation, PolicySpec, Session, Setup
from robotrials.run.seam import FloatArray


class ReplayPolicy:
    """Plays back the actions of recorded episodes: for each start state, the episode of `policy` with the same one.

    condition: play what was recorded under this condition, whatever the episode's own is: a policy that does not look.

    store: the record. policy: whose actions. column: ``action_processed`` (what the host was given, the default) or
    ``action_raw``. An episode that goes on after the recording ends holds still if actions are deltas, else repeats the
    last action.
    """

    def __init__(
        self, *, store: str, policy: str, convention: Mapping[str, Any], column: str = 'action_processed',
        control_rate_hz: float | None = None, condition: str | None = None,
    ) -> None:  # fmt: skip
        if column not in ('action_processed', 'action_raw'):
            raise InputError(f"column is {column!r}, wanted 'action_processed' or 'action_raw'")
        self._store, self._policy, self._column = read_store(store), policy, column
        self._condition = condition
        self._spec = PolicySpec(
            name='replay', action=ActionConvention(**convention), chunk_length=1, control_rate_hz=control_rate_hz
        )

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        where = {
            'policy': self._policy, 'task': setup.task, 'stratum': setup.stratum, 'seed': setup.seed,
            'condition': self._condition or setup.condition,
        }  # fmt: skip
        found = [e for e in self._store.episodes(where=where) if e.is_valid]
        if not found:
            raise InputError(
                f'{self._store.path}: {self._policy} has no valid episode on {setup.task} with seed {setup.seed}'
            )
        trajectory = self._store.trajectory(found[0], signals=[self._column])
        return ReplaySession(self._actions(trajectory, found[0].episode_id), convention=self._spec.action)

    def _actions(self, trajectory: Trajectory | None, episode_id: str) -> FloatArray:
        actions = None if trajectory is None else getattr(trajectory, self._column)
        if actions is None:
            raise InputError(f'{self._store.path}: episode {episode_id} has no {self._column}; record trajectories')
        kept: FloatArray = actions[np.isfinite(actions).all(axis=1)]
        if kept.shape[1:] != (self._spec.action.width,) or not len(kept):
            raise InputError(
                f'episode {episode_id}: actions of shape {actions.shape}, wanted (T, {self._spec.action.width})'
            )
        return kept


class ReplaySession:
    """One trajectory, played once."""

    def __init__(self, actions: FloatArray, *, convention: ActionConvention) -> None:
        self._actions = actions
        self._rest = np.array(actions[-1], dtype=float)
        if convention.target == 'delta':
            self._rest[: convention.motion_width] = 0.0
        self._next = 0

    def act(self, observation: Observation) -> Chunk:
        if self._next < len(self._actions):
            action = self._actions[self._next]
            self._next += 1
        else:
            action = self._rest
        return Chunk(np.array(action, dtype=float)[None])
