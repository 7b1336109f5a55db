"""Small environments of the Gymnasium interface, without Gymnasium: a finger on a line that is to be at 1."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np


class Box:
    def __init__(self, low: float, high: float, width: int) -> None:
        self.low, self.high = np.full(width, low, np.float32), np.full(width, high, np.float32)
        self.shape, self.dtype = (width,), np.dtype(np.float32)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.shape == other.shape

    __hash__ = None  # type: ignore[assignment]


class Line:
    """Observation: where the finger is and, under `goal`, where it should be. A step moves it by up to 0.1."""

    metadata: ClassVar[dict[str, Any]] = {'render_fps': 10}

    def __init__(self, *, word: str = '', width: int = 2, number: int = 0, step_cap: int | None = None) -> None:
        self.word, self.number, self.closed = word, number, False
        self.action_space, self.observation_space = Box(-1.0, 1.0, width), Box(-9.0, 9.0, width)
        self.spec = type('Spec', (), {'max_episode_steps': step_cap})()

    @property
    def unwrapped(self) -> Line:
        return self

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        rng = np.random.default_rng(seed)
        self.at = rng.uniform(-0.1, 0.1, self.action_space.shape[0])
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action.dtype == np.float32
        assert (np.abs(action) <= 1).all()
        self.at = self.at + 0.1 * np.asarray(action, dtype=float)
        is_there = bool(abs(self.at[0] - 1.0) < 0.05)
        lost = bool(self.at[0] < -0.5)
        return (
            self._observation(),
            float(self.at[0]),
            lost,
            False,
            {'done': {'well': is_there}, 'share': self.at[0] / 2},
        )

    def render(self) -> Any:
        picture = np.zeros((4, 6, 3), np.uint8)
        picture[0] = 200
        return picture

    def close(self) -> None:
        self.closed = True

    def _observation(self) -> dict[str, Any]:
        return {'finger': self.at, 'goal': {'x': np.ones(1)}, 'picture': self.render()}


def make_line(**arguments: Any) -> Line:
    return Line(**arguments)


def make_unsaid(**arguments: Any):  # type: ignore[no-untyped-def]
    return Line(**arguments)


class Old(Line):
    """The interface of gym before 0.26."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]['finger']
