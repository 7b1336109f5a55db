"""What all pages of the platform are drawn with: templates, and how numbers and times are written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.responses import HTMLResponse
from markupsafe import Markup

from robotrials.service.frame import Pages
from robotrials.service.platform.page.visit import Visitor


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of a leaderboard: its title, the glossary's key, and how its numbers are written."""

    title: str
    definition: str
    is_share: bool = True  # between 0 and 1: an interval can be drawn to scale
    is_percent: bool = True

    def text(self, value: float | None) -> str:
        if value is None:
            return '–'
        return f'{100 * value:.0f} %' if self.is_percent else f'{value:.2f}'

    def span(self, low: float | None, high: float | None) -> str:
        if low is None or high is None:
            return 'no interval'
        return f'{100 * low:.0f} to {100 * high:.0f}' if self.is_percent else f'{low:.2f} to {high:.2f}'


MEASURES = {
    'hrt': Measure('HRT', 'hrt', is_share=False),
    'success': Measure('SR', 'success'),
    'safety': Measure('Safety', 'safety'),
    'sbu': Measure('SBU', 'sbu'),
    'vsi': Measure('VSI', 'vsi', is_share=False, is_percent=False),
    'expected_iou': Measure('E[IoU]', 'expected-iou', is_percent=False),
}


def duration(seconds: float) -> str:
    """A span of time in its largest fitting unit."""
    for unit, size in (('d', 86_400.0), ('h', 3600.0), ('min', 60.0)):
        if seconds >= 2 * size:
            return f'{seconds / size:.0f} {unit}'
    return f'{max(0.0, seconds):.0f} s'


def moment(unix_s: float | None) -> str:
    if unix_s is None:
        return '–'
    return dt.datetime.fromtimestamp(unix_s, dt.UTC).strftime('%Y-%m-%d %H:%M UTC')


def missing_notes(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Why some numbers are not there -> the titles of those numbers."""
    notes: dict[str, list[str]] = {}
    for name, measure in MEASURES.items():
        for row in rows:
            value = row.get(name)
            if value is not None and value.value is None and value.note:
                titles = notes.setdefault(value.note, [])
                titles += [measure.title] if measure.title not in titles else []
    return notes


PAGES = Pages(
    'robotrials.service.platform.page',
    values={
        'measures': MEASURES, 'duration': duration, 'moment': moment, 'missing_notes': missing_notes, 'problem': '',
    },
)  # fmt: skip


def draw(template: str, visitor: Visitor, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page for a visitor; `key` goes into each of its forms."""
    key = Markup('<input type="hidden" name="form_key" value="{}">').format(visitor.form_key)
    return PAGES.page(template, status=status, visitor=visitor, key=key, **values)
