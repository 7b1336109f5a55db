"""How a policy is told apart without colour: its dash, its marker, its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from robotrials.show.figure import PALETTE, REFERENCE_COLOR, policy_colors

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
    """One mark a policy by its place in `colors`; the reference is solid. Colour and dash repeat together at 64."""
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
