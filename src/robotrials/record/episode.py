"""The episode: one rollout of one policy on one task under one condition."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import math
import operator
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from robotrials.errors import NotEstimable, RecordError
from robotrials.record.event import LARGEST_COUNT, Event, enum_member
from robotrials.record.identity import episode_id_of

ParameterValue = str | int | float | bool
EMPTY: Mapping[str, Any] = types.MappingProxyType({})
LARGEST_SEED = 2**63 - 1
_event_time = operator.attrgetter('t_s')


class Outcome(enum.StrEnum):
    SUCCESS = 'success'
    FAILURE = 'failure'
    TIMEOUT = 'timeout'  # working when we stopped watching: censored
    SAFETY_STOP = 'safety_stop'
    INVALID = 'invalid'  # the cell or the host broke; the policy was not tested


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One rollout: who, where, under what, and what came of it.

    `policy`, `task` and `outcome` are required. Everything else is absent (None or empty) until known; an absent count
    or time is not a zero: without `duration_s` an episode has no time analysis, and its success still counts.
    `episode_id` is derived from the identity when it is left empty.
    """

    policy: str
    task: str
    outcome: Outcome
    duration_s: float | None = None
    steps: int | None = None  # control steps; they become seconds only by a stated rate

    trial_id: str = ''
    episode_id: str = ''
    attempt: int = 0
    is_reference: bool = False
    benchmark: str = ''
    stratum: str = ''  # the object or suite that a cell is made of
    condition: str = 'nominal'
    condition_parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    seed: int | None = None
    instance: int | None = None
    repeat: int = 0  # the same start state run again
    block: str = ''
    session: str = ''
    operator: str = ''
    started_at: dt.datetime | None = None

    time_cap_s: float | None = None
    items: int | None = None
    items_placed: int | None = None
    items_lost: int | None = None
    success: bool | None = None  # the host's own predicate
    score: float | None = None
    max_score: float | None = None
    is_unrecoverable: bool | None = None  # a failure that the host says could not have been mended
    reason: str = ''
    instruction: str = ''
    labels: Mapping[str, str] = field(default_factory=dict)
    provenance_id: str = ''
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, 'outcome', enum_member(Outcome, self.outcome, 'outcome'))
        put(self, 'events', tuple(sorted(self.events, key=_event_time)))
        for name in ('condition_parameters', 'labels'):
            given = getattr(self, name)
            put(self, name, types.MappingProxyType(dict(sorted(given.items()))) if given else EMPTY)
        check_episode(self)
        if not self.episode_id:
            put(self, 'episode_id', episode_id_of(self))

    @property
    def is_valid(self) -> bool:
        """Whether the policy was tested at all; INVALID episodes are reported and never scored."""
        return self.outcome is not Outcome.INVALID

    @property
    def is_success(self) -> bool:
        """Whether the episode succeeded: by the host's own predicate, or by the outcome where there is none."""
        return self.outcome is Outcome.SUCCESS if self.success is None else self.success

    @property
    def cell(self) -> str:
        """The stratum that the episode belongs to: the one recorded, or its task where none is."""
        return self.stratum or self.task

    @property
    def known_duration_s(self) -> float:
        """`duration_s`, for whoever cannot do without it."""
        if self.duration_s is None:
            raise NotEstimable(
                f'episode {self.episode_id} ({self.policy}, {self.task}) has no duration_s, and this needs one; '
                'record it, or state the control rate of its steps'
            )
        return self.duration_s

    @property
    def key(self) -> tuple[str, int]:
        """What a store keeps once: the id and the attempt."""
        return self.episode_id, self.attempt

    def replace(self, **changes: Any) -> Episode:
        """A copy with some fields changed, checked again; the id stays."""
        return dataclasses.replace(self, **changes)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ('condition_parameters', 'labels'):
            values[name] = dict(values[name])
        return _rebuild, (values,)


def _rebuild(values: dict[str, Any]) -> Episode:
    return Episode(**values)


def trusted_episodes(columns: Mapping[str, Sequence[Any]]) -> list[Episode]:
    """Episodes from columns that were taken from episodes, every field given: they were checked when they were made."""
    made = [object.__new__(Episode) for _ in columns['episode_id']]
    for name, values in columns.items():
        if len(values) != len(made):
            raise ValueError(f'{name} has {len(values)} values for {len(made)} episodes')
        collections.deque(map(getattr(Episode, name).__set__, made, values), maxlen=0)  # a loop in C
    return made


def check_episode(episode: Episode) -> None:
    """Raise RecordError, naming the field, if the episode breaks a rule of the record."""
    for name in ('policy', 'task'):
        if not getattr(episode, name):
            raise RecordError(f'{name} is empty, wanted a name')
    _check_times(episode)
    _check_counts(episode)
    _check_score(episode)
    for key, value in episode.condition_parameters.items():
        if type(value) not in (str, int, float, bool):
            raise RecordError(f'condition_parameters[{key!r}] is {value!r}, wanted text, a number, true or false')
        if isinstance(value, float) and not math.isfinite(value):
            raise RecordError(f'condition_parameters[{key!r}] is {value}, wanted a finite number')
    for key, text in episode.labels.items():
        if not all(isinstance(part, str) for part in (key, text)):
            raise RecordError(f'labels[{key!r}] is {text!r}, wanted text for both')


def _check_times(episode: Episode) -> None:
    lasted = math.inf if episode.duration_s is None else episode.duration_s
    if episode.duration_s is not None and not (math.isfinite(lasted) and lasted >= 0):
        raise RecordError(f'duration_s is {lasted}, wanted a finite number >= 0, or nothing')
    cap = episode.time_cap_s
    if cap is not None and not (math.isfinite(cap) and cap > 0):
        raise RecordError(f'time_cap_s is {cap}, wanted a finite number > 0, or nothing')
    if episode.started_at is not None and episode.started_at.tzinfo is None:
        raise RecordError(f'started_at is {episode.started_at.isoformat()} without a time zone, wanted one')
    # A millisecond of slack: events and durations often come from different clocks or roundings.
    for number, event in enumerate(episode.events):
        if event.t_s > lasted + 1e-3:
            end = f'after the end at duration_s = {episode.duration_s}'
            raise RecordError(f'events[{number}].t_s is {event.t_s} ({event.kind}), {end}')


def _check_counts(episode: Episode) -> None:
    for name in ('attempt', 'repeat', 'steps', 'items', 'items_placed', 'items_lost'):
        count = getattr(episode, name)
        if count is None or (type(count) is int and 0 <= count <= LARGEST_COUNT):
            continue
        if isinstance(count, bool) or int(count) != count or not 0 <= count <= LARGEST_COUNT:
            raise RecordError(f'{name} is {count!r}, wanted a whole number from 0 to {LARGEST_COUNT}')
    for name in ('seed', 'instance'):
        number = getattr(episode, name)
        if number is not None and not -LARGEST_SEED <= number <= LARGEST_SEED:
            raise RecordError(f'{name} is {number}, wanted a whole number of at most 63 bits')
    placed, lost = episode.items_placed or 0, episode.items_lost or 0
    if episode.items is not None and placed + lost > episode.items:
        raise RecordError(f'items_placed + items_lost is {placed + lost}, more than items = {episode.items}')
    timed = sum(e.count for e in episode.events if e.kind == 'placement')
    if episode.items is not None and timed > episode.items:
        raise RecordError(f'{timed} placements in events, more than items = {episode.items}')
    if episode.items_placed is not None and timed > episode.items_placed:
        raise RecordError(f'{timed} placements in events, more than items_placed = {episode.items_placed}')


def _check_score(episode: Episode) -> None:
    if episode.score is None:
        return
    if not math.isfinite(episode.score):
        raise RecordError(f'score is {episode.score}, wanted a finite number')
    if episode.max_score is not None and not (0 <= episode.score <= episode.max_score):
        raise RecordError(f'score is {episode.score}, wanted 0 to max_score = {episode.max_score}')
