"""The time between an observation and its action: network, inference and transport, measured or as declared.

What one exchange meets (RADAR, equation 2) is drawn from the episode's seed and the step of its observation. So it does
not depend on the order in which messages are dealt with, and is the same in virtual and in wall-clock time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robotrials.run.condition import AppliedCondition
from robotrials.run.conditions import Delay
from robotrials.run.plan import LatencyMode, LatencyOptions, Spread

NO_DELAY = Delay(0.0, 0.0, 0.0)
STREAM = 0x6C617465  # keeps these draws apart from the policy's own, which has the same seed


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one exchange: what is added to its three parts, and which of its two messages is lost."""

    delay: Delay
    is_observation_lost: bool = False
    is_answer_lost: bool = False


class Fates:
    """The fate of every exchange of one episode: what the plan injects, and what the condition adds."""

    def __init__(self, options: LatencyOptions, condition: AppliedCondition, *, seed: int) -> None:
        self._options, self._condition, self._seed = options, condition, seed
        parts = (options.network_s, options.inference_s, options.transport_s)
        self._is_drawn = bool(options.jitter or options.loss) or any(isinstance(p, Spread) for p in parts)
        self._is_injected = options.mode is LatencyMode.INJECTED
        fixed = [0.0 if isinstance(p, Spread) else float(p) for p in parts]
        self._fixed = Fate(Delay(*fixed))
        self._parts = parts

    @property
    def is_late(self) -> bool:
        """Whether the condition adds to it."""
        return self._condition.is_late

    def of(self, step: int) -> Fate:
        """The fate of the exchange that begins with the observation of this step."""
        fate = self._drawn(step) if self._is_drawn else self._fixed
        extra = self._condition.delay(step)
        if extra is None:
            return fate
        return Fate(fate.delay.plus(extra), fate.is_observation_lost, fate.is_answer_lost)

    def _drawn(self, step: int) -> Fate:
        rng = np.random.default_rng((STREAM, self._seed, step))
        shares, normals, losses = rng.random(3), rng.standard_normal(3), rng.random(2)
        width = math.sqrt(math.log1p(self._options.jitter**2))
        delays = [
            (part.low_s + share * (part.high_s - part.low_s) if isinstance(part, Spread) else part)
            * math.exp(width * normal - width * width / 2)
            for part, share, normal in zip(self._parts, shares.tolist(), normals.tolist(), strict=True)
        ]
        is_lost = losses < self._options.loss
        delay = Delay(*delays) if self._is_injected else NO_DELAY
        return Fate(delay, bool(is_lost[0]), bool(is_lost[1]))


def taken_delay(elapsed_s: float, inference_s: float | None, transport_s: float | None) -> Delay:
    """What an answer really took: the policy may say how much of it was inference, and the rest is network."""
    thought_s = elapsed_s if inference_s is None else min(inference_s, elapsed_s)
    return Delay(elapsed_s - thought_s, thought_s, transport_s or 0.0)
