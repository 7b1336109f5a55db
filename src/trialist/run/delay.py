"""The three parts of one delay."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delay:
    """The parts of one delay, in seconds."""

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


NO_DELAY = Delay(0.0, 0.0, 0.0)
