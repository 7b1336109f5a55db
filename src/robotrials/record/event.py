"""What happened inside an episode, at a time, and who says so."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TypeVar

from robotrials.errors import RecordError

E = TypeVar('E', bound=enum.StrEnum)
LARGEST_COUNT = 2**31 - 1


class EventKind(enum.StrEnum):
    PLACEMENT = 'placement'
    DROP_OUTSIDE = 'drop_outside'
    DROP_UNCOLLECTED = 'drop_uncollected'
    SAFETY_STOP = 'safety_stop'
    ASSIST = 'assist'
    GRASP = 'grasp'
    RELEASE = 'release'
    PHASE = 'phase'  # from here on the episode is in the phase of this name


class EventSource(enum.StrEnum):
    HOST = 'host'
    OPERATOR = 'operator'
    DETECTOR = 'detector'
    REVIEWER = 'reviewer'
    SENSOR = 'sensor'


@dataclass(frozen=True, slots=True)
class Event:
    """One event at `t_s` seconds after the episode's start; `count` items were part of it.

    A phase has a name and lasts until the next phase begins; no other kind has one.
    """

    t_s: float
    kind: EventKind
    source: EventSource = EventSource.HOST
    count: int = 1
    name: str = ''

    def __post_init__(self) -> None:
        object.__setattr__(self, 'kind', enum_member(EventKind, self.kind, 'kind'))
        object.__setattr__(self, 'source', enum_member(EventSource, self.source, 'source'))
        if not (math.isfinite(self.t_s) and self.t_s >= 0):
            raise RecordError(f't_s is {self.t_s}, wanted a finite number of seconds >= 0')
        if type(self.count) is not int and (isinstance(self.count, bool) or int(self.count) != self.count):
            raise RecordError(f'count is {self.count!r}, wanted a whole number >= 1')
        if not 1 <= self.count <= LARGEST_COUNT:
            raise RecordError(f'count is {self.count!r}, wanted a whole number from 1 to {LARGEST_COUNT}')
        if (self.kind is EventKind.PHASE) != bool(self.name):
            wanted = (
                'the name of the phase' if self.kind is EventKind.PHASE else f'none for an event of kind {self.kind}'
            )
            raise RecordError(f'name is {self.name!r}, wanted {wanted}')


def enum_member(kind: type[E], value: str, field: str) -> E:
    """The member of `kind` with this value, or an error that lists the members."""
    if type(value) is kind:
        return value
    try:
        return kind(value)
    except ValueError as error:
        known = ', '.join(m.value for m in kind)
        raise RecordError(f'{field} is {value!r}, wanted one of: {known}') from error
