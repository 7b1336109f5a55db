"""How each policy is drawn, the same in every figure and on every page: a colour, then dashes, markers and hatches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

# Okabe and Ito's colour-blind-safe colours; black is kept for the reference.
PALETTE = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#7F7F7F', '#8C510A')
REFERENCE_COLOR = '#000000'
# Tol's muted colours, for what is no policy: tests, safety families, benchmarks.
THING_PALETTE = (
    '#332288', '#CC6677', '#DDCC77', '#117733', '#88CCEE', '#882255', '#44AA99', '#999933', '#AA4499',
)  # fmt: skip

Dash = str | tuple[int, tuple[int, ...]]
MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X', '*')
HATCHES = ('///', '...', 'xxx', '---', '+++')
Fill = Literal['full', 'none', 'left', 'right', 'top', 'bottom']
FILLS: tuple[Fill, ...] = ('full', 'none', 'left', 'right', 'top', 'bottom')


@dataclass(frozen=True, slots=True)
class PolicyLook:
    """A policy's colour, and what tells it from another policy of that colour: lines, points and bars each."""

    color: str
    dash: Dash = '-'
    marker: str | tuple[int, int, int] = 'o'
    hatch: str = ''
    fill: Fill = 'full'


def policy_looks(policies: Iterable[str], *, reference: str | None = None) -> dict[str, PolicyLook]:
    """One look a policy, no two alike; the reference is black.

    Give every policy of the store, whichever are drawn: then a policy looks the same in all its figures.
    """
    names = sorted(set(policies) - {reference})
    looks = {name: _look(*divmod(i, len(PALETTE))[::-1]) for i, name in enumerate(names)}
    if reference is not None:
        looks[reference] = PolicyLook(REFERENCE_COLOR)
    return looks


def policy_colors(policies: Iterable[str], *, reference: str | None = None) -> dict[str, str]:
    """The colours of `policy_looks`; past eight policies they repeat, and only the whole look tells two apart."""
    return {name: look.color for name, look in policy_looks(policies, reference=reference).items()}


def _look(color: int, turn: int) -> PolicyLook:
    """The look of the palette's colour when the palette has been used up `turn` times."""
    return PolicyLook(
        PALETTE[color],
        dash=_dash(turn),
        marker=MARKERS[turn] if turn < len(MARKERS) else (turn, 1, 0),
        hatch=HATCHES[(turn - 1) % len(HATCHES)] * (1 + (turn - 1) // len(HATCHES)) if turn else '',
        fill=FILLS[turn % len(FILLS)],
    )


def _dash(turn: int) -> Dash:
    """Solid, long dashes, dots, then dashes with one dot more each time."""
    first: tuple[Dash, ...] = ('-', (0, (5, 2)), (0, (1, 1)))
    return first[turn] if turn < len(first) else (0, (5, 1, *(1, 1) * (turn - len(first) + 1)))
