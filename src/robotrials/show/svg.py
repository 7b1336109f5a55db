"""Pieces of SVG that every chart shares: escaping, scales, ticks, the frame and the labels beside rows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from robotrials.show.figure import PALETTE, REFERENCE_COLOR, policy_colors
from robotrials.show.phrase import escape
from robotrials.show.plot import Limits, Number
from robotrials.value import dataclass


def is_known(value: Number) -> TypeGuard[float]:
    """A number that can be drawn: not absent, not NaN, not infinite."""
    return value is not None and math.isfinite(value)


def number_text(value: Number, number_format: str = '.3g') -> str:
    if value is None or math.isnan(value):
        return '—'
    if math.isinf(value):
        return '∞' if value > 0 else '-∞'
    return format(value + 0.0, number_format)


def interval_text(value: Number, low: Number, high: Number, *, number_format: str = '.2f') -> str:
    """`0.83 [0.71, 0.90]`, or the value alone when it has no interval."""
    number = number_text(value, number_format)
    if low is None and high is None:
        return number
    return f'{number} [{number_text(low, number_format)}, {number_text(high, number_format)}]'


def coordinate(value: float) -> str:
    """One decimal, without a needless `.0`."""
    text = f'{value:.1f}'
    return text[:-2] if text.endswith('.0') else text


@dataclass(frozen=True, slots=True)
class LinearScale:
    """A straight axis from `low` to `high`; values outside are drawn at its ends."""

    low: float
    high: float

    def fraction(self, value: float) -> float:
        if self.high <= self.low:
            return 0.5
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def percent(self, value: float) -> str:
        return f'{coordinate(100 * self.fraction(value))}%'

    def ticks(self, n_wanted: int = 5) -> list[float]:
        """Round numbers within the axis, about `n_wanted` of them."""
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span))
        best: list[float] = []
        for step in (m * power for m in (0.1, 0.2, 0.25, 0.5, 1, 2, 5)):
            places = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
            if abs(len(places) - n_wanted) < abs(len(best) - n_wanted):
                best = [round(k * step, 12) + 0.0 for k in places]
        return best or [self.low]


def scale_over(values: Iterable[Number], *, within: Limits | None = None, margin: float = 0.04) -> LinearScale:
    """An axis over the values that can be drawn, with a little room; `within` fixes it instead."""
    start, end = within or (None, None)
    if start is not None and end is not None:
        return LinearScale(float(start), float(end))
    known = [float(v) for v in values if is_known(v)]
    if not known:
        return LinearScale(0.0, 1.0)
    low, high = min(known), max(known)
    room = (high - low) * margin or abs(high) * 0.1 or 0.5
    return LinearScale(low - room if start is None else start, high + room if end is None else end)


def tick_text(value: float) -> str:
    return f'{value:.6g}'


def frame(body: Iterable[str], *, name: str, words: str, height: float, padding: tuple[int, int, int, int],
          min_width: int = 0, kind: str = '') -> str:  # fmt: skip
    """The outer <svg>: its name and words for those who cannot see it, its height, room for text around the plot."""
    style = f'height:{height:.0f}px;padding:{"px ".join(map(str, padding))}px'
    if min_width:
        style += f';min-width:{min_width}px'
    return (
        f'<svg class="chart {kind}" role="img" aria-label="{escape(name)}" style="{style}">'
        f'<desc>{escape(words)}</desc>{"".join(body)}</svg>'
    )


def text(content: object, x: str | float, y: float, *, anchor: str = 'start', kind: str = '') -> str:
    place = x if isinstance(x, str) else coordinate(x)
    named = f' class="{kind}"' if kind else ''
    anchored = f' text-anchor="{anchor}"' if anchor != 'start' else ''
    return f'<text x="{place}" y="{coordinate(y)}"{anchored}{named}>{escape(content)}</text>'


def rule(x1: str | float, y1: str | float, x2: str | float, y2: str | float, *, kind: str) -> str:
    a, b, c, d = (v if isinstance(v, str) else coordinate(v) for v in (x1, y1, x2, y2))
    return f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" class="{kind}"/>'


def marker(path: str, x: str, y: str | float, *, kind: str = 'dot', shift_px: float = 0) -> str:
    """A marker at a place given in percent: a nested <svg> moves by it, and its overflow is shown."""
    place = y if isinstance(y, str) else coordinate(y)
    moved = f' transform="translate({coordinate(shift_px)} 0)"' if shift_px else ''
    return f'<svg x="{x}" y="{place}" class="at"><path d="{path}" class="{kind}"{moved}/></svg>'


def label(content: str, y: float, *, width: str, height: float, detail: str = '', x: str = '0') -> str:
    """A label that wraps or is cut off with an ellipsis in the width it gets; the whole text is its tooltip."""
    second = f'<span>{escape(detail)}</span>' if detail else ''
    return (
        f'<foreignObject x="{x}" y="{coordinate(y)}" width="{width}" height="{coordinate(height)}">'
        f'<div xmlns="http://www.w3.org/1999/xhtml" class="lab" title="{escape(content)}"><b>{escape(content)}</b>'
        f'{second}</div></foreignObject>'
    )


def x_axis(scale: LinearScale, height: float, *, title: str, n_ticks: int = 5) -> str:
    """Grid lines with their numbers below, and the axis' name under them."""
    parts = []
    for tick in scale.ticks(n_ticks):
        place = scale.percent(tick)
        parts.append(rule(place, 0, place, height, kind='grid'))
        parts.append(text(tick_text(tick), place, height + 16, anchor='middle', kind='tick'))
    parts.append(text(title, '50%', height + 34, anchor='middle', kind='axis'))
    return ''.join(parts)


def y_axis(scale: LinearScale, height: float, *, title: str, n_ticks: int = 5) -> str:
    """Grid lines with their numbers at the left, and the axis' name above, where it needs no turning."""
    parts = []
    for tick in scale.ticks(n_ticks):
        y = height * (1 - scale.fraction(tick))
        parts.append(rule(0, y, '100%', y, kind='grid'))
        parts.append(text(tick_text(tick), -8, y + 4, anchor='end', kind='tick'))
    parts.append(text(title, -36, -12, kind='axis'))
    return ''.join(parts)


def mark_group(
    policy: str, title: str, *parts: str, kind: str = '', episodes: Mapping[str, Sequence[str]] | None = None
) -> str:
    """What stands for one policy's number: it carries the policy, its values as a tooltip, and its episodes as a link.

    The link is to the list on the same page; `show.page` turns it to where the episodes are shown.
    """
    names = f'mark{" " + kind if kind else ""}'
    inner = f'<title>{escape(title)}</title>{"".join(parts)}'
    if not episodes:
        return f'<g class="{names}" data-policy="{escape(policy)}">{inner}</g>'
    where = escape(json.dumps({field: list(values) for field, values in episodes.items()}, ensure_ascii=False))
    return (
        f'<a class="{names} eps" data-policy="{escape(policy)}" aria-label="{escape(title)}" href="#episodes"'
        f' data-where="{where}">{inner}</a>'
    )


# How a policy is told apart without colour: its dash, its marker, its place.

DASHES = ('', '7 3', '2 2.5', '9 3 2 3', '14 4', '5 2 1.5 2 1.5 2', '4 4', '1.5 4')
# Drawn around (0, 0) in pixels.
MARKERS = (
    'M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z',  # disc
    'M-4-4h8v8h-8z',  # square
    'M0-5.5L5 3.5H-5z',  # triangle
    'M0-5.5L5.5 0L0 5.5L-5.5 0z',  # diamond
    'M0 5.5L5-3.5H-5z',  # triangle, point down
    'M-2-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z',  # plus
    'M-5-2.5L-2.5-5L0-2.5L2.5-5L5-2.5L2.5 0L5 2.5L2.5 5L0 2.5L-2.5 5L-5 2.5L-2.5 0z',  # cross
    'M0-6L1.8-1.9L6-1.9L2.7.9L3.9 5L0 2.6L-3.9 5L-2.7.9L-6-1.9L-1.8-1.9z',  # star
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A policy's dash (an SVG stroke-dasharray) and marker (a path around 0, 0)."""

    dash: str
    marker: str
    is_reference: bool = False


def policy_marks(colors: Mapping[str, str]) -> dict[str, Mark]:
    """One mark per policy by its place in `colors`; the reference is solid. Colour and dash repeat together at 64."""
    marks = {}
    places = iter(range(len(colors)))
    for policy, color in colors.items():
        if color == REFERENCE_COLOR:
            marks[policy] = Mark(DASHES[0], MARKERS[0], is_reference=True)
            continue
        place = next(places)
        shift = place + place // len(PALETTE)
        marks[policy] = Mark(DASHES[shift % len(DASHES)], MARKERS[shift % len(MARKERS)])
    return marks


def marks_for(policies: Iterable[str], colors: Mapping[str, str] | None) -> dict[str, Mark]:
    """Marks for these policies; those that `colors` does not know come after those it does."""
    known = dict(colors or {})
    missing = [p for p in dict.fromkeys(policies) if p not in known]
    return policy_marks({**known, **policy_colors(missing)})
