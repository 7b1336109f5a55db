"""What the world and the wires do: friction, drag, and time that passes between seeing and acting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from robotrials.run.conditions.condition import (
    CONDITIONS,
    Effect,
    SingleCondition,
    check_severity,
    generator,
    signed_size,
)  # fmt: skip


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance(SingleCondition):
    """Unmodelled disturbance: another friction of all surfaces, a drag on the tool, and a cable that pulls at it."""

    KINDS: ClassVar[tuple[str, ...]] = ('disturbance',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.PHYSICS})

    severity: float
    seed: int
    friction_scale: float  # times the host's own friction
    drag_n_s_m: float  # force against the tool's motion, a newton for each metre a second
    pull_n: float  # a steady force on the tool, level
    pull_azimuth_rad: float

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> Disturbance:
        s, rng = check_severity('disturbance', severity), generator('disturbance', seed)
        return cls(
            severity=s,
            seed=seed,
            friction_scale=float(2.0 ** (s * 1.5 * signed_size(rng))),
            drag_n_s_m=60.0 * s * float(rng.uniform(0.6, 1.0)),
            pull_n=60.0 * s * float(rng.uniform(0.6, 1.0)),
            pull_azimuth_rad=float(rng.uniform(-np.pi, np.pi)),
        )


@dataclass(frozen=True, slots=True)
class Delay:
    """The three parts of the time between an observation and its action (equation 2), in seconds."""

    network_s: float
    inference_s: float
    transport_s: float

    @property
    def total_s(self) -> float:
        return self.network_s + self.inference_s + self.transport_s

    def plus(self, other: Delay) -> Delay:
        return Delay(
            self.network_s + other.network_s, self.inference_s + other.inference_s, self.transport_s + other.transport_s
        )


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(SingleCondition):
    """Delay between seeing and acting: three means, and a jitter as a share of each; the loop charges it."""

    KINDS: ClassVar[tuple[str, ...]] = ('latency',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.TIMING})

    severity: float
    seed: int
    network_s: float
    inference_s: float
    transport_s: float
    jitter: float

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> Latency:
        s, rng = check_severity('latency', severity), generator('latency', seed)
        size = [float(v) for v in rng.uniform(0.7, 1.0, 3)]
        return cls(
            severity=s,
            seed=seed,
            network_s=0.2 * s * size[0],
            inference_s=0.2 * s * size[1],
            transport_s=0.04 * s * size[2],
            jitter=0.5 if s else 0.0,
        )

    def delay(self, step: int) -> Delay:
        """The delay of one step: each part times a log-normal factor of mean one."""
        rng = generator('latency', self.seed, step)
        spread = float(np.sqrt(np.log1p(self.jitter**2)))
        factor = np.exp(spread * rng.standard_normal(3) - spread**2 / 2)
        return Delay(
            float(self.network_s * factor[0]), float(self.inference_s * factor[1]), float(self.transport_s * factor[2])
        )
