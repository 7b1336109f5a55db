"""The time between an observation and its action: network, inference and transport, measured or as declared."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trialist.run.plan import LatencyMode, LatencyOptions, Spread

# A delay that is a whole number of steps but for rounding must not cost one step more.
SLACK_STEPS = 1e-6


@dataclass(frozen=True, slots=True)
class Delay:
    """The parts of one delay, in seconds."""

    network_s: float
    inference_s: float
    transport_s: float

    @property
    def total_s(self) -> float:
        return self.network_s + self.inference_s + self.transport_s

    def plus(self, network_s: float, inference_s: float, transport_s: float) -> Delay:
        return Delay(self.network_s + network_s, self.inference_s + inference_s, self.transport_s + transport_s)

    def steps(self, dt_s: float) -> int:
        """Control steps that pass before the action: it is taken at the first step at or after the delay."""
        return max(0, math.ceil(self.total_s / dt_s - SLACK_STEPS))


NO_DELAY = Delay(0.0, 0.0, 0.0)


def charged_delay(
    options: LatencyOptions,
    *,
    elapsed_s: float,
    inference_s: float | None,
    transport_s: float | None,
    rng: np.random.Generator,
) -> Delay:
    """What one answer costs.

    Measured: the time the call took, of which the policy may say how much was inference (the rest is network), and the
    host's stated transport. Injected: as declared, whatever it really took.
    """
    if options.mode is LatencyMode.NONE:
        return NO_DELAY
    if options.mode is LatencyMode.INJECTED:
        return Delay(*(_draw(part, rng) for part in (options.network_s, options.inference_s, options.transport_s)))
    thought_s = elapsed_s if inference_s is None else min(inference_s, elapsed_s)
    return Delay(elapsed_s - thought_s, thought_s, transport_s or 0.0)


def _draw(part: float | Spread, rng: np.random.Generator) -> float:
    return float(rng.uniform(part.low_s, part.high_s)) if isinstance(part, Spread) else part
