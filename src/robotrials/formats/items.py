"""Rows that are items, and lists of times: from them the items, events and durations of an episode."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from robotrials.errors import RecordError
from robotrials.formats.cell import short
from robotrials.formats.guess import TIME_LISTS
from robotrials.record.event import Event, EventKind

Values = dict[str, Any]
Parsed = tuple[int, Values, RecordError | None]
MOST_ITEMS = 100_000


def group_rows(rows: Iterable[tuple[Parsed, tuple[str, ...]]], group_by: Sequence[str]) -> Iterator[Parsed]:
    """One set of values per group of rows, in the order in which groups begin; a bad row makes its group bad."""
    groups: dict[tuple[str, ...], list[Parsed]] = {}
    for parsed, key in rows:
        groups.setdefault(key, []).append(parsed)
    for members in groups.values():
        number = members[0][0]
        bad = next(((n, error) for n, _, error in members if error is not None), None)
        if bad is not None:
            yield bad[0], {}, bad[1]
            continue
        try:
            yield number, join_items([(n, values) for n, values, _ in members], group_by), None
        except RecordError as error:
            yield number, {}, error


def join_items(members: Sequence[tuple[int, Values]], group_by: Sequence[str]) -> Values:
    """The values of one episode from the rows of its items."""
    if len(members) > MOST_ITEMS:
        raise RecordError(
            f'{len(members):,} rows in one group of {", ".join(group_by)}; wanted the items of an episode'
        )
    joined: Values = {'items': len(members)}
    placed = [values.get('items_placed') for _, values in members]
    lost = [values.get('items_lost') for _, values in members]
    if any(p is not None for p in placed):
        joined['items_placed'] = sum(p or 0 for p in placed)
    if any(x is not None for x in lost):
        joined['items_lost'] = sum(x or 0 for x in lost)
    joined.update(_times(members))
    special = {'items', 'items_placed', 'items_lost', 'duration_s', 'labels'}
    for name in dict.fromkeys(name for _, values in members for name in values if name not in special):
        joined[name] = _agreed(name, members, group_by)
    labels = [values.get('labels', {}) for _, values in members]
    joined['labels'] = {
        key: value for key, value in labels[0].items() if all(other.get(key) == value for other in labels)
    }
    return joined


def _agreed(name: str, members: Sequence[tuple[int, Values]], group_by: Sequence[str]) -> Any:
    first = next((n, values[name]) for n, values in members if name in values)
    for number, values in members:
        if name in values and values[name] != first[1]:
            raise RecordError(
                f'{name} is {short(first[1])} in row {first[0]} and {short(values[name])} in row {number} of one '
                f'episode; the rows of a group agree in it, or --group-by {",".join(group_by)} is too coarse'
            )
    return first[1]


def _times(members: Sequence[tuple[int, Values]]) -> Values:
    """A time that rises with the items is the moment of each; one that is equal in all is the episode's."""
    times = [values.get('duration_s') for _, values in members]
    known = [t for t in times if t is not None]
    if not known:
        return {}
    if len(set(known)) == 1 and len(members) > 1:
        return {'duration_s': known[0]}
    rising = all(a <= b for a, b in itertools.pairwise(known))
    if not rising:
        raise RecordError(
            'the times of the items do not rise, so they are not moments since the start; give the moments, or leave '
            'the column out (--map duration_s=-)'
        )
    events = []
    for (_, values), moment in zip(members, times, strict=True):
        if moment is None:
            continue
        if values.get('items_placed'):
            events.append(Event(moment, EventKind.PLACEMENT))
        elif values.get('items_lost'):
            events.append(Event(moment, EventKind.DROP_OUTSIDE))
    return {'duration_s': known[-1], 'events': tuple(events)}


def timed_events(values: Mapping[str, Any]) -> Iterator[Event]:
    """The events of columns that hold lists of times, such as `3.2;7.9` or `[3.2, 7.9]`."""
    for name, kind in TIME_LISTS.items():
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            times: Iterable[Any] = re.split(r'[;,\s]+', value.strip('[](){} '))
        else:
            times = value if isinstance(value, list | tuple) else [value]
        for text in times:
            try:
                if text != '':
                    yield Event(float(text), kind)
            except (TypeError, ValueError) as error:
                raise RecordError(f'{name} has {short(text)}, wanted seconds such as 3.2;7.9') from error
