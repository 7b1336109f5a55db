"""Zones: where items come from and where they belong, as boxes seen from above."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from robotrials.errors import InputError, NotEstimable, UnknownName

OUTSIDE = 'outside'
LONGEST_M = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A rectangle on the table, in metres, parallel to the robot's axes."""

    center_m: tuple[float, float]
    size_m: tuple[float, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, 'center_m', _two(self.center_m, 'center_m'))
        object.__setattr__(self, 'size_m', _two(self.size_m, 'size_m'))
        if min(self.size_m) <= 0:
            raise InputError(f'size_m is {self.size_m}, wanted two lengths > 0')

    def depth_m(self, point: Sequence[float]) -> float:
        """How far inside a point lies from the nearest edge; below 0 outside."""
        gaps = [s / 2 - abs(p - c) for p, c, s in zip(point, self.center_m, self.size_m, strict=False)]
        if min(gaps) >= 0:
            return min(gaps)
        return -math.hypot(*(min(g, 0.0) for g in gaps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """The two bins of an order-picking task. They change places in episodes with the label `swapped_when`."""

    source: Zone
    target: Zone
    swapped_when: tuple[str, str] | None = None  # such as ('tote_side', 'right')

    def of(self, labels: Mapping[str, str]) -> Zones:
        """The bins as they stood in an episode with these labels; NotEstimable without the label that decides."""
        if self.swapped_when is None:
            return self
        name, value = self.swapped_when
        if name not in labels:
            raise NotEstimable(f'where the target was is not known: the episode has no label {name}')
        return swapped(self) if labels[name] == value else self

    def place(self, point: Sequence[float]) -> tuple[str, float]:
        """The zone over which a point lies, and how deep within it (or how far from the nearest zone)."""
        depths = {name: getattr(self, name).depth_m(point) for name in ('target', 'source')}
        best = max(depths, key=lambda name: depths[name])
        return (best if depths[best] >= 0 else OUTSIDE), depths[best]


def _two(values: object, name: str) -> tuple[float, float]:
    if isinstance(values, Sequence) and len(values) == 2:
        numbers = tuple(float(v) for v in values if _is_length(v))
        if len(numbers) == 2:
            return (numbers[0], numbers[1])
    raise InputError(f'{name} is {values!r:.200}, wanted two numbers of at most {LONGEST_M:g}, in metres')


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LONGEST_M


def swapped(zones: Zones) -> Zones:
    """The bins changed over, as in sessions with the tote on the other side."""
    return Zones(source=zones.target, target=zones.source)


def read_zones(values: object, *, where: str) -> Zones:
    """Zones from a `[zones]` table: source and target, each with center_m and size_m; `swapped_when` is one label."""
    if not isinstance(values, Mapping):
        raise InputError(f'{where}: zones is {values!r:.200}, wanted a table with source and target')
    read = {}
    for name in values:
        if name not in ('source', 'target', 'swapped_when'):
            raise UnknownName(f'entry of zones in {where}', name, ('source', 'target', 'swapped_when'))
    for name in ('source', 'target'):
        table = values.get(name)
        if not isinstance(table, Mapping) or set(table) != {'center_m', 'size_m'}:
            raise InputError(f'{where}: zones.{name} is {table!r}, wanted center_m and size_m, two numbers each')
        try:
            read[name] = Zone(center_m=table['center_m'], size_m=table['size_m'])
        except InputError as error:
            raise InputError(f'{where}: zones.{name}: {error}') from error
    zones = Zones(source=read['source'], target=read['target'])
    label = values.get('swapped_when')
    if label is None:
        return zones
    if not isinstance(label, Mapping) or len(label) != 1 or not all(isinstance(v, str) for v in label.values()):
        raise InputError(f'{where}: zones.swapped_when is {label!r}, wanted one label, as {{ tote_side = "right" }}')
    ((name, value),) = label.items()
    return replace(zones, swapped_when=(str(name), str(value)))
