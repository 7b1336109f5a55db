"""A robotrials policy as others' clients see it: their keys in, its actions out."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, near_miss
from robotrials.policies.batch import Batcher
from robotrials.run import Chunk, HostSpec, Observation, Policy, Session, Setup
from robotrials.run.seam import ClosablePolicy


@runtime_checkable
class BatchedPolicy(Protocol):
    """A policy that can answer for several sessions at once."""

    @property
    def is_batched(self) -> bool: ...

    def act_many(self, sessions: Sequence[Session], observations: Sequence[Observation]) -> Sequence[Chunk]: ...


@dataclass(frozen=True, slots=True)
class WireNames:
    """A client's keys: for cameras, for parts [first, last) of the state, and for the instruction."""

    images: Mapping[str, str]
    state: Mapping[str, tuple[int, int]]
    prompt: str

    def observation(self, question: Mapping[str, Any], *, state_width: int) -> Observation:
        """A client's question as an observation; InputError says what is missing or misshapen."""
        state = np.zeros(state_width)
        for key, (first, last) in self.state.items():
            vector = _asked(question, key)
            if vector.dtype.kind not in 'fiu' or vector.shape != (last - first,):
                raise InputError(f'{key!r} is {vector.shape} of {vector.dtype}, wanted {last - first} numbers')
            state[first:last] = vector
        images: dict[str, NDArray[np.uint8]] = {}
        for key, camera in self.images.items():
            image = _asked(question, key)
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
                raise InputError(f'{key!r} is {image.shape} of {image.dtype}, wanted (height, width, 3) of uint8')
            images[camera] = image
        return Observation(0.0, state, images)

    def instruction(self, question: Mapping[str, Any]) -> str:
        text = question.get(self.prompt, '')
        if not isinstance(text, str):
            raise InputError(f'{self.prompt!r} is a {type(text).__name__}, wanted text')
        return text


def openpi_names(host: HostSpec) -> WireNames:
    """Keys as openpi's checkpoints have them: ``observation/CAMERA``, ``observation/state``, ``prompt``."""
    images = {f'observation/{camera}': camera for camera in host.images}
    return WireNames(images, {'observation/state': (0, host.state_width)} if host.state_width else {}, 'prompt')


def vla_eval_names(host: HostSpec) -> WireNames:
    """Keys as vla-eval's benchmarks have them: ``images.CAMERA``, ``states``, ``task_description``."""
    images = {f'images.{camera}': camera for camera in host.images}
    return WireNames(images, {'states': (0, host.state_width)} if host.state_width else {}, 'task_description')


class OfferedPolicy:
    """One policy for many clients: asked one at a time, or in batches if it can."""

    def __init__(
        self, policy: Policy, *, state_width: int, names: WireNames, limit_s: float = 60.0, batch: int = 1,
        batch_wait_s: float = 0.005,
    ) -> None:  # fmt: skip
        self.policy, self.names, self._state_width, self._limit_s = policy, names, state_width, limit_s
        self._lock = threading.Lock()
        if batch > 1 and not (isinstance(policy, BatchedPolicy) and policy.is_batched):
            raise InputError(f'policy {policy.spec.name} answers one question at a time; serve it without a batch')
        self.batcher: Batcher[tuple[Session, Observation], Chunk] | None = None
        if batch > 1:
            self.batcher = Batcher(self._act_many, most=batch, wait_s=batch_wait_s)

    def start(self, instruction: str, *, seed: int) -> Session:
        with self._lock:
            return self.policy.start(Setup(task='served', seed=seed, instruction=instruction), seed=seed)

    def act(self, session: Session, question: Mapping[str, Any]) -> Chunk:
        observation = self.names.observation(question, state_width=self._state_width)
        if self.batcher is not None:
            return self.batcher.ask((session, observation), timeout_s=self._limit_s)
        with self._lock:
            return session.act(observation)

    def _act_many(self, asked: Sequence[tuple[Session, Observation]]) -> Sequence[Chunk]:
        policy = self.policy
        if not isinstance(policy, BatchedPolicy):
            raise TypeError('the policy lost its act_many')
        with self._lock:
            return policy.act_many([session for session, _ in asked], [observation for _, observation in asked])

    def end(self, session: Session | None) -> None:
        closing: object = session
        if isinstance(closing, ClosablePolicy):
            with self._lock:
                closing.close()

    def close(self) -> None:
        if self.batcher is not None:
            self.batcher.close()
        closing: object = self.policy
        if isinstance(closing, ClosablePolicy):
            closing.close()


def _asked(question: Mapping[str, Any], key: str) -> NDArray[Any]:
    if key not in question:
        raise InputError(f'the question has no {key!r}: {near_miss(key, list(map(str, question)))}')
    return np.asarray(question[key])
