"""A generator of episodes shaped like PhAIL's cohort, with effect sizes as arguments and an exact null.

An operation's time is lognormal with an episode effect (within-episode correlation); it ends in a placement, a drop
outside, or a safety stop; the episode ends when the items are gone, at a safety stop, or at 30 s an item.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from robotrials.record import Episode, Event, EventKind, Outcome

OBJECTS = ('batteries', 'scissors', 'spoons', 'towels')
SECONDS_AN_ITEM = 30.0


@dataclass(frozen=True, slots=True)
class Profile:
    """How one simulated policy works. Times are in seconds; chances are per attempted operation."""

    name: str
    median_s: float
    drop_chance: float = 0.05
    stop_chance: float = 0.01
    episode_spread: float = 0.7  # standard deviation of log time between episodes
    operation_spread: float = 0.7  # and between operations of one episode
    factors: Mapping[str, float] = field(default_factory=dict)  # object -> multiplier of the median
    is_reference: bool = False
    episodes_per_cell: tuple[int, int] = (32, 46)
    items: int = 10


HUMAN = Profile(
    'human', 9.0, drop_chance=0.001, stop_chance=0.0, episode_spread=0.15, operation_spread=0.35,
    factors={'batteries': 0.9, 'scissors': 1.1, 'towels': 1.2}, is_reference=True, episodes_per_cell=(95, 103),
)  # fmt: skip
PAPER_LIKE = (
    HUMAN,
    Profile('act', 52.0, 0.057, 0.004, 1.1, 1.1, {'batteries': 0.7, 'scissors': 1.5}),
    Profile('groot', 49.0, 0.035, 0.010, 0.7, 0.7, {'batteries': 1.3, 'scissors': 0.9}),
    Profile('openpi', 50.0, 0.042, 0.012, 0.7, 0.8, {'batteries': 1.1, 'towels': 0.9}),
    Profile('smolvla', 170.0, 0.049, 0.080, 0.8, 0.8, {}, episodes_per_cell=(26, 34)),
)


def paper_like_cohort(
    rng: np.random.Generator, *, profiles: Sequence[Profile] = PAPER_LIKE, objects: Sequence[str] = OBJECTS
) -> list[Episode]:
    """Episodes of every profile on every object; camera and tote sides vary, and cells have uneven sizes."""
    return [e for p in profiles for o in objects for e in cell_episodes(rng, p, o)]


def null_pair(
    rng: np.random.Generator, *, profile: Profile = PAPER_LIKE[2], objects: Sequence[str] = OBJECTS
) -> tuple[list[Episode], list[Episode]]:
    """Two policies, `a` and `b`, of one profile: every difference between them is chance."""
    return effect_pair(rng, profile=profile, objects=objects)


def effect_pair(
    rng: np.random.Generator, *, profile: Profile = PAPER_LIKE[2], objects: Sequence[str] = OBJECTS,
    slowdown: float = 1.0, extra_drop: float = 0.0, extra_stop: float = 0.0,
) -> tuple[list[Episode], list[Episode]]:  # fmt: skip
    """Policy `a` as the profile says, `b` slower by a factor and with added chances of ghosts (1, 0, 0: the null)."""
    arms = (
        replace(profile, name='a'),
        replace(
            profile, name='b', median_s=profile.median_s * slowdown, drop_chance=profile.drop_chance + extra_drop,
            stop_chance=profile.stop_chance + extra_stop,
        ),
    )  # fmt: skip
    first, second = (paper_like_cohort(rng, profiles=[arm], objects=objects) for arm in arms)
    return first, second


def cell_episodes(
    rng: np.random.Generator, profile: Profile, stratum: str, *, n_episodes: int | None = None
) -> list[Episode]:
    """One cell's episodes; the number is drawn from the profile's range when it is not given."""
    low, high = profile.episodes_per_cell
    count = int(rng.integers(low, high + 1)) if n_episodes is None else n_episodes
    return [_episode(rng, profile, stratum, number) for number in range(count)]


def _episode(rng: np.random.Generator, profile: Profile, stratum: str, number: int) -> Episode:
    cap_s = SECONDS_AN_ITEM * profile.items
    center = math.log(profile.median_s * profile.factors.get(stratum, 1.0)) + profile.episode_spread * rng.normal()
    events: list[Event] = []
    clock_s, done, outcome = 0.0, 0, Outcome.SUCCESS
    while done < profile.items:
        clock_s += math.exp(center + profile.operation_spread * rng.normal())
        fate = rng.random()
        if clock_s > cap_s:
            clock_s, outcome = cap_s, Outcome.TIMEOUT
            break
        if fate < profile.stop_chance:
            events.append(Event(clock_s, EventKind.SAFETY_STOP))
            outcome = Outcome.SAFETY_STOP
            break
        dropped = fate < profile.stop_chance + profile.drop_chance
        events.append(Event(clock_s, EventKind.DROP_OUTSIDE if dropped else EventKind.PLACEMENT))
        done += 1
    placed = sum(e.kind is EventKind.PLACEMENT for e in events)
    lost = sum(e.kind is EventKind.DROP_OUTSIDE for e in events)
    if outcome is Outcome.SUCCESS and lost:
        outcome = Outcome.FAILURE
    return Episode(
        policy=profile.name, is_reference=profile.is_reference, task='bin-to-bin', stratum=stratum,
        trial_id='simulated', seed=number, outcome=outcome, duration_s=clock_s, time_cap_s=cap_s, items=profile.items,
        items_placed=placed, items_lost=lost, events=tuple(events), success=placed == profile.items,
        labels={'camera_side': ('left', 'right')[number % 2], 'tote_side': ('left', 'right')[(number // 2) % 2]},
    )  # fmt: skip
