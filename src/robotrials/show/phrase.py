"""Numbers and names in running text: each keeps its exact value, its definition and the episodes behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from robotrials.show.table import cell_text

if TYPE_CHECKING:
    from robotrials.show.document import EpisodeFilter, Words
    from robotrials.stats import Interval


def number(
    value: float | None, form: str, definition: str, *, unit: str = '', episodes: EpisodeFilter | None = None
) -> Words:
    """A number in a sentence; an absent one is a dash."""
    from robotrials.show.document import Words

    text = cell_text(value, form) + (unit if value is not None and math.isfinite(value) else '')
    return Words(text, definition, episodes, value)


def with_interval(
    value: float | None, interval: Interval | None, form: str, definition: str, *, unit: str = '', scale: float = 1.0,
    episodes: EpisodeFilter | None = None,
) -> list[Words]:  # fmt: skip
    """`14.2 s [13.1, 15.0]`, the value and both ends each with its exact number."""
    from robotrials.show.document import Words

    scaled = None if value is None else scale * value
    pieces = [number(scaled, form, definition, unit=unit, episodes=episodes)]
    if interval is not None:
        low, high = (number(scale * end, form, 'interval') for end in interval)
        pieces += [Words(' ['), low, Words(', '), high, Words(']')]
    return pieces


def policy_name(name: str) -> Words:
    """A policy, linked to its episodes."""
    from robotrials.show.document import Words

    return Words(name, episodes={'policy': (name,)})


def listed(names: Sequence[Words], *, joint: str = 'and') -> list[Words]:
    """`a, b and c`."""
    from robotrials.show.document import Words

    pieces: list[Words] = []
    for place, name in enumerate(names):
        if place:
            pieces.append(Words(f' {joint} ' if place == len(names) - 1 else ', '))
        pieces.append(name)
    return pieces


IRREGULAR = {'policy': 'policies', 'stratum': 'strata'}


def plural(n: int, noun: str) -> str:
    """`1 pair`, `3 pairs`, `2 policies`."""
    return f'{n:,} {noun if n == 1 else IRREGULAR.get(noun, f"{noun}s")}'


def only_text(selection: EpisodeFilter) -> str:
    """` · only policy a or b` behind a title; nothing where nothing was chosen."""
    told = ', '.join(f'{field} {" or ".join(values)}' for field, values in selection.items())
    return f' · only {told}' if told else ''


def ends(interval: Interval | None, scale: float = 1.0) -> tuple[float | None, float | None]:
    """Both ends of an interval for two cells of a table."""
    return (None, None) if interval is None else (interval.low * scale, interval.high * scale)
