"""A policy behind an endpoint: questions mapped from the host's observations, actions mapped back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.policies.convert import Converter
from robotrials.policies.endpoint import BatchedEndpoint, Endpoint, HistoryEndpoint, Reply
from robotrials.policies.ensemble import Ensemble
from robotrials.policies.mapping import MappingEntry
from robotrials.policies.observe import Observer, Question
from robotrials.run import Chunk, HostSpec, Observation, PolicySpec, Session, Setup


class ServedPolicy:
    """The policy of every wire. Before its first episode it is fitted to the host, which checks the mapping."""

    def __init__(self, endpoint: Endpoint, mapping: MappingEntry, *, name: str, is_remote: bool = True) -> None:
        self._endpoint, self._mapping = endpoint, mapping
        self._observer: Observer | None = None
        self._converter: Converter | None = None
        action = mapping.action
        is_ensemble = action.ensemble_decay is not None
        self._spec = PolicySpec(
            name=name,
            action=action.convention,
            chunk_length=1 if is_ensemble else action.chunk_length,
            execute=None if is_ensemble else action.execute,
            control_rate_hz=action.control_rate_hz,
            images={image.camera: None for image in mapping.observation.images.values()},
            is_remote=is_remote,
        )

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    @property
    def facts(self) -> Mapping[str, object]:
        """What the server says of itself."""
        return self._endpoint.facts()

    def fit(self, host: HostSpec) -> None:
        """Bind the mapping to a host and to what the server says of itself; InputError lists what does not fit."""
        observer = Observer(self._mapping.observation, host)
        converter = Converter(self._mapping.action, host)
        try:
            self._endpoint.connect()
            if isinstance(self._endpoint, HistoryEndpoint):
                observer.moments = self._endpoint.moments(self._mapping.observation)
            blank = blank_observation(host)
            blank = dataclasses.replace(blank, past=dict.fromkeys(observer.past, blank))
            sample = observer.question(blank, 'instruction')
            problems = list(self._endpoint.problems(sample, self._mapping.action))
            if problems:
                told = '; '.join(problems)
                raise InputError(f'the mapping does not fit the server of policy {self._spec.name}: {told}')
        except BaseException:
            self._endpoint.close()
            raise
        self._observer, self._converter = observer, converter
        self._spec = dataclasses.replace(
            self._spec, action=host.action, control_rate_hz=host.control_rate_hz, moments=observer.past
        )

    def start(self, setup: Setup, *, seed: int) -> Session:
        if self._observer is None or self._converter is None:
            raise InputError(f'policy {self._spec.name} was not fitted to a host: call fit(host.spec) first')
        self._endpoint.begin(setup, seed=seed)
        return ServedSession(
            self._endpoint,
            self._observer,
            self._converter,
            setup.instruction,
            decay=self._mapping.action.ensemble_decay,
        )

    @property
    def is_batched(self) -> bool:
        """Whether the wire takes several questions at once."""
        return isinstance(self._endpoint, BatchedEndpoint)

    def act_many(self, sessions: Sequence[Session], observations: Sequence[Observation]) -> Sequence[Chunk]:
        """Answers for several sessions of this policy, in one batch if the wire has one."""
        asked = [(s, o) for s, o in zip(sessions, observations, strict=True) if isinstance(s, ServedSession)]
        if len(asked) != len(sessions):
            raise InputError('act_many wants sessions of this policy')
        questions = [session.question(observation) for session, observation in asked]
        if isinstance(self._endpoint, BatchedEndpoint):
            replies = self._endpoint.ask_many(questions)
        else:
            replies = [self._endpoint.ask(question) for question in questions]
        return [session.chunk(reply, observation) for (session, observation), reply in zip(asked, replies, strict=True)]

    def question(self, observation: Observation, instruction: str) -> Question:
        """An observation as this policy is shown it."""
        if self._observer is None:
            raise InputError(f'policy {self._spec.name} was not fitted to a host: call fit(host.spec) first')
        return self._observer.question(observation, instruction)

    def close(self) -> None:
        self._endpoint.close()


class ServedSession:
    """One episode behind an endpoint."""

    def __init__(
        self, endpoint: Endpoint, observer: Observer, converter: Converter, instruction: str, *, decay: float | None
    ) -> None:
        self._endpoint, self._observer, self._converter = endpoint, observer, converter
        self._instruction = instruction
        self._ensemble = None if decay is None else Ensemble(decay=decay)

    def act(self, observation: Observation) -> Chunk:
        return self.chunk(self._endpoint.ask(self.question(observation)), observation)

    def question(self, observation: Observation) -> Question:
        return self._observer.question(observation, self._instruction)

    def chunk(self, reply: Reply, observation: Observation) -> Chunk:
        """A reply as the host takes it."""
        actions = self._converter.convert(reply.actions, observation)
        if self._ensemble is not None:
            actions = self._ensemble.add(actions)[None]
        return Chunk(actions, reply.inference_s)

    def close(self) -> None:
        self._endpoint.end()


def blank_observation(host: HostSpec) -> Observation:
    """An observation with a host's shapes and nothing in it; rotations in it stay rotations."""
    images: dict[str, Any] = {camera: np.zeros((*size, 3), np.uint8) for camera, size in host.images.items()}
    return Observation(0.0, np.full(host.state_width, 0.5), images)
