"""Temporal ensembling: ask at every step, and act on the average of all that was said of this step (ACT)."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray


class Ensemble:
    """Chunks asked one step apart. Weights are exp(-decay * i), i counting from the oldest (Zhao et al. 2023, 4.2)."""

    def __init__(self, *, decay: float) -> None:
        self._decay = decay
        self._chunks: deque[NDArray[np.float64]] = deque()

    def add(self, chunk: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take the newest chunk (h, A); the action (A,) for now."""
        self._chunks.append(chunk)
        while len(self._chunks[0]) < len(self._chunks):
            self._chunks.popleft()  # it says nothing of now any more
        ages = range(len(self._chunks) - 1, -1, -1)
        said = np.stack([old[age] for old, age in zip(self._chunks, ages, strict=True)])
        weights = np.array([math.exp(-self._decay * i) for i in range(len(said))])
        return np.asarray(weights @ said / weights.sum())
