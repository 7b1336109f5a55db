"""How a benchmark is measured and kept."""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

OWN = ' (our own)'  # ends the name of a peer that is our own code: such a row says nothing about anybody else


# For the text of another process. Its ru_maxrss would begin with the memory of the process that started it.
PEAK_MB = """
def peak_mb():
    return int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 1024
"""


class Seconds(float):
    """The median of some repeats, with the distance between the least and the largest; sums and products lose it."""

    spread: float | None  # None for a single one

    @classmethod
    def of(cls, repeats: Sequence[float]) -> Seconds:
        middle = cls(statistics.median(repeats))
        middle.spread = max(repeats) - min(repeats) if len(repeats) > 1 else None
        return middle


@dataclass(frozen=True, slots=True)
class Result:
    """One side-by-side measurement; the ratio is such that larger is better, and `target` is what it should reach.

    `ours_s` and `peer_s` are seconds, or what `unit` says: B for bytes, '' for a plain number.
    """

    name: str
    ours_s: float
    peer: str
    peer_s: float
    ratio: float
    target: float
    work: str
    unit: str = 's'

    def as_json(self) -> dict[str, str | float | bool | None]:
        spreads = {f'{side}_spread_s': getattr(getattr(self, f'{side}_s'), 'spread', None) for side in ('ours', 'peer')}
        return {
            'name': self.name, 'ours_s': self.ours_s, 'peer': self.peer, 'peer_s': self.peer_s, 'ratio': self.ratio,
            'target': self.target, 'work': self.work, 'unit': self.unit, **spreads,
            'is_own_peer': self.peer.endswith(OWN),
        }  # fmt: skip


def seconds(call: Callable[[], object], *, repeats: int = 3) -> Seconds:
    """The median wall-clock time of `call` over some repeats, and their spread; warm it up yourself where needed."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return Seconds.of(taken)


def against(name: str, *, ours_s: float, peer: str, peer_s: float, target: float, work: str, unit: str = 's') -> Result:
    """A Result whose ratio is what the peer takes over what we take."""
    return Result(name, ours_s, peer, peer_s, peer_s / ours_s, target, work, unit)


def attempts(steps: Iterable[Callable[[], Iterable[Result]]]) -> Iterator[Result]:
    """The rows of steps that do not need each other: one that fails is named at the end, the others run."""
    failures = []
    for step in steps:
        try:
            yield from step()
        except Exception as error:  # whatever a peer does
            traceback.print_exc()
            failures.append(f'{type(error).__name__}: {error}'.splitlines()[0])
    if failures:
        raise SystemExit(f'{len(failures)} of its steps failed: {"; ".join(failures)}')
