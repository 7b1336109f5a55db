"""Runs inside the environment ``dm-control``: DeepMind's manipulation tasks as Gymnasium environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class ManipulationEnv:
    """One task of ``dm_control.manipulation``: a Jaco arm of six joints and three fingers, driven by speeds in rad/s.

    Its start state follows from the seed it is made with, so that it is made anew for every episode.
    """

    metadata = {'render_modes': ['rgb_array']}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, *, task: str, seed: int) -> None:
        from dm_control import manipulation
        from gymnasium.spaces import Box

        self._own: Any = manipulation.load(task, seed=seed)
        bounds = self._own.action_spec()
        self.action_space = Box(bounds.minimum.astype(np.float32), bounds.maximum.astype(np.float32))
        width = sum(int(np.prod(spec.shape)) for spec in self._own.observation_spec().values())
        self.observation_space = Box(-np.inf, np.inf, (width,), np.float64)

    @property
    def unwrapped(self) -> ManipulationEnv:
        return self

    @property
    def data(self) -> Any:
        """MuJoCo's data."""
        return self._own.physics.data

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[np.float64], dict[str, Any]]:
        return self._read(self._own.reset()), {}

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        told = self._own.step(action)
        is_over = bool(told.last())
        return self._read(told), float(told.reward or 0.0), is_over and told.discount == 0.0, is_over, {}

    def render(self) -> NDArray[np.uint8]:
        drawn: NDArray[np.uint8] = self._own.physics.render(height=128, width=128, camera_id=0)
        return drawn

    def close(self) -> None:
        self._own.close()

    @staticmethod
    def _read(told: Any) -> NDArray[np.float64]:
        return np.concatenate([np.asarray(value, dtype=float).ravel() for value in told.observation.values()])
