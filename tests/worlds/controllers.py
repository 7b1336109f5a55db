"""Policies for tests of hosts: a function of the state, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run import Chunk, HostSpec, Observation, PolicySpec, Session, Setup

Rule = Callable[[NDArray[Any]], NDArray[Any]]


class StatePolicy:
    """One action from the state at hand."""

    def __init__(self, spec: HostSpec, rule: Rule) -> None:
        self.spec, self._rule = PolicySpec(name='by state', action=spec.action), rule

    def start(self, setup: Setup, *, seed: int) -> Session:
        return self

    def act(self, observation: Observation) -> Chunk:
        return Chunk(np.asarray(self._rule(observation.state), dtype=float)[None])
