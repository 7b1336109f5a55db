"""A policy that learns nothing: it plays the demonstration whose start looks most like what it sees.

Where it scores, the test lies in its training data. It needs no training and no weights, so it is the cheapest witness
of how much a score depends on where data was collected.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.policies.probe.demonstration import Demonstrations, read_demonstrations
from robotrials.run.seam import Chunk, Observation, PolicySpec, Setup, Target
from robotrials.verdict.audit.datasource import EMBEDDINGS, FloatArray


class LookupPolicy:
    """Plays back actions, `chunk_length` at a time, and keeps still when they end.

    path: a folder of demonstrations. embedding: how pictures are compared (pixels or random).
    """

    def __init__(self, *, path: str, embedding: str = 'pixels', chunk_length: int = 5) -> None:
        if embedding not in EMBEDDINGS:
            raise UnknownName('embedding', embedding, EMBEDDINGS)
        if chunk_length < 1:
            raise InputError(f'chunk_length is {chunk_length}, wanted >= 1')
        self._demonstrations = read_demonstrations(Path(path))
        facts = self._demonstrations.facts
        if not facts.cameras:
            raise InputError(f'{path}: demonstrations without images; a start is looked up by its picture')
        self._embed, self._chunk_length = EMBEDDINGS[embedding], chunk_length
        first = self._demonstrations.starts[:-1]
        self._keys = np.concatenate([self._embed(v[first]) for v in self._demonstrations.images.values()], axis=1)
        sizes = {c: (int(v.shape[1]), int(v.shape[2])) for c, v in self._demonstrations.images.items()}
        self._spec = PolicySpec(
            name='lookup', action=facts.action, chunk_length=chunk_length, control_rate_hz=facts.control_rate_hz,
            images=sizes,
        )  # fmt: skip

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> LookupSession:
        return LookupSession(self, self._chunk_length)

    def recall(self, observation: Observation) -> FloatArray:
        """The actions (T, A) of the demonstration that begins most like this."""
        key = np.concatenate([self._embed(observation.images[c][None]) for c in self._spec.images], axis=1)
        nearest = int(np.argmin(np.mean((self._keys - key) ** 2, axis=1)))
        return actions_of(self._demonstrations, nearest)


class LookupSession:
    def __init__(self, policy: LookupPolicy, chunk_length: int) -> None:
        self._policy, self._chunk_length = policy, chunk_length
        self._actions: FloatArray | None = None
        self._taken = 0

    def act(self, observation: Observation) -> Chunk:
        if self._actions is None:
            self._actions = self._policy.recall(observation)
        chosen = self._actions[self._taken : self._taken + self._chunk_length]
        self._taken += len(chosen)
        rest = [self._still(self._actions[-1])] * (self._chunk_length - len(chosen))
        return Chunk(np.array([*chosen, *rest], dtype=float))

    def _still(self, last: FloatArray) -> FloatArray:
        convention = self._policy.spec.action
        still = np.array(last, dtype=float)
        if convention.target is Target.DELTA:
            still[: convention.motion_width] = 0.0
        return still


def actions_of(demonstrations: Demonstrations, number: int) -> FloatArray:
    first, last = demonstrations.starts[number : number + 2]
    return np.asarray(demonstrations.action[first:last])
