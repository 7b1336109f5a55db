"""What stands in the cell, as the words of an instruction name it."""

from __future__ import annotations

from robotrials.run.conditions import Thing
from robotrials.worlds.cell.clutter import shape_of
from robotrials.worlds.cell.item import COLORS, ItemType
from robotrials.worlds.cell.task import Layout

FIXTURES = {'mark': Thing('square', 'white'), 'slot': Thing('slot')}
BINS = (Thing('bin', 'blue'), Thing('bin', 'green'))


def things_of(layout: Layout) -> tuple[Thing, ...]:
    """Items, distractors, bins, and the fixtures that have a name."""
    items = [
        Thing(shape_of(item) if name in layout.distractors else item.name.split()[-1], _color(item))
        for name, item in layout.scene.items
    ]
    fixtures = [FIXTURES[f.name] for f in layout.scene.fixtures if f.name in FIXTURES]
    return (*items, *fixtures, *(BINS if layout.scene.has_bins else ()))


def _color(item: ItemType) -> str:
    """The name of an item's colour, if it has one of those that words name."""
    rgba = [float(v) for v in item.rgba.split()]
    for name, known in COLORS.items():
        if max(abs(a - float(b)) for a, b in zip(rgba, known.split(), strict=True)) < 0.01:
            return name
    return ''
