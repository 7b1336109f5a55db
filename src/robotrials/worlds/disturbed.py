"""Any host under any condition that can be laid over its frames or its words; what it can do itself it does itself.

A trial does this by itself, for every host: the wrapper is for those who drive a host without `robotrials.run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from robotrials.run.condition import show_frames
from robotrials.run.conditions import Application, Condition, compose, condition_parameters, read_condition, share_out
from robotrials.run.convention import HostSpec
from robotrials.run.host import Ability, HostLike, HostWrapper
from robotrials.run.seam import Action, Observation, Part, Setup

OVER_FRAMES = ('background', 'exposure+', 'exposure-', 'light', 'sensor_noise')


class DisturbedHost(HostWrapper):
    """A host with conditions laid over what it shows. Depth and calibration are disturbed with the images.

    The policy sees the disturbed observation; the world, its outcome and its signals are the host's own. Everything
    else that the host can do it still does.
    """

    adds = frozenset({Ability.PREPARE})

    def __init__(self, host: HostLike) -> None:
        super().__init__(host)
        self._application = Application()
        self._step = 0
        extra = (*(OVER_FRAMES if host.spec.images else ()), 'instruction')
        kinds = tuple(dict.fromkeys([*host.spec.conditions, *extra]))
        self._spec = dataclasses.replace(host.spec, conditions=kinds)

    @property
    def spec(self) -> HostSpec:
        return self._spec

    def prepare(self, setup: Setup) -> None:
        """Share the condition out; InputError before the episode when a part of it can't be brought about."""
        condition = read_condition(setup.condition, setup.condition_parameters)
        self._application = share_out(
            condition, self._host.spec.conditions, has_frames=bool(self._host.spec.images), charges_latency=False
        )
        self._host.prepare(_inner_setup(setup, self._application.by_host))

    def reset(self, task: str, *, seed: int) -> Observation:
        self._step = 0
        return self._disturbed(self._host.reset(task, seed=seed))

    def step(self, action: Action) -> Observation:
        self._step += 1
        return self._disturbed(self._host.step(action))

    def step_through(self, parts: Sequence[Part]) -> Observation:
        self._step += 1
        return self._disturbed(self._host.step_through(parts))

    def look(self) -> Observation:
        return self._disturbed(self._host.look())

    def said(self, canonical: str) -> str:
        """The instruction as the policy hears it under the condition at hand."""
        return self._application.instruction(canonical)

    def _disturbed(self, observation: Observation) -> Observation:
        if not self._application.by_frames or not observation.images:
            return observation
        return show_frames(self._application, observation, step=self._step)


def _inner_setup(setup: Setup, by_host: tuple[Condition, ...]) -> Setup:
    if not by_host:
        return dataclasses.replace(setup, condition='nominal', condition_parameters={})
    condition = compose(*by_host)
    return dataclasses.replace(setup, condition=condition.kind, condition_parameters=condition_parameters(condition))
