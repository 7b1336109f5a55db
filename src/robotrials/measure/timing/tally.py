"""Plain counts of a store: successes by task and condition, and how much was recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from robotrials.errors import NotEstimable
from robotrials.measure.timing.operation import stratum_of
from robotrials.record import Episode
from robotrials.stats import Interval, wilson


@dataclass(frozen=True, slots=True)
class SuccessCount:
    """Successes over valid episodes of one policy in one task under one condition."""

    policy: str
    task: str
    condition: str
    successes: int
    n: int

    @property
    def interval(self) -> Interval:
        """Wilson, 95 %."""
        return wilson(self.successes, self.n)


@dataclass(frozen=True, slots=True)
class RecordedTime:
    """How many valid episodes a stratum has, and how long they took together."""

    stratum: str
    n_episodes: int
    duration_s: float


def success_counts(episodes: Iterable[Episode]) -> list[SuccessCount]:
    """Success by policy, task and condition, in that order; INVALID episodes tested no policy."""
    found: dict[tuple[str, str, str], list[bool]] = {}
    for episode in episodes:
        if episode.is_valid:
            key = (episode.policy, episode.task, episode.condition)
            found.setdefault(key, []).append(episode.is_success)
    if not found:
        raise NotEstimable('no valid episode; a success rate needs one')
    return [SuccessCount(*key, sum(outcomes), len(outcomes)) for key, outcomes in sorted(found.items())]


def recorded_times(episodes: Iterable[Episode]) -> list[RecordedTime]:
    """Valid episodes and their time by stratum."""
    found: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.is_valid:
            found.setdefault(stratum_of(episode), []).append(episode.known_duration_s)
    if not found:
        raise NotEstimable('no valid episode; nothing was recorded')
    return [RecordedTime(name, len(times), sum(times)) for name, times in sorted(found.items())]
