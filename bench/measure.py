"""How a benchmark is measured and kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One side-by-side measurement; the ratio is such that larger is better, and `target` is what it should reach."""

    name: str
    ours_s: float
    peer: str
    peer_s: float
    ratio: float
    target: float
    work: str

    def as_json(self) -> dict[str, str | float]:
        return asdict(self)


def seconds(call: Callable[[], object], *, repeats: int = 3) -> float:
    """The least wall-clock time of `call` over some repeats; warm it up yourself where it compiles."""
    best = float('inf')
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def against(name: str, *, ours_s: float, peer: str, peer_s: float, target: float, work: str) -> Result:
    """A Result whose ratio is the peer's time over ours."""
    return Result(name, ours_s, peer, peer_s, peer_s / ours_s, target, work)
