"""What a figure shows, before anyone paints it: facets of layers on two axes.

A `Plot` holds finished numbers and words. `show.plot_page` paints it as SVG for pages, `show.plot_paper` with
matplotlib for papers; each figure is described once, by a function that reads an analysis. A layer belongs to a policy,
which fixes its colour, dash and marker wherever it is painted, or names a colour where it is about no policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from robotrials.show.document import EpisodeFilter
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.verdict.analysis import ComparisonFrame

Number = float | int | None
Values = Sequence[float] | Sequence[Number] | NDArray[np.float64]
Place = float | tuple[float, float]  # a value of an axis, or a span of it
Limits = tuple[float | None, float | None]
GRAY = '0.5'


@dataclass(frozen=True, slots=True)
class EpisodeLink:
    """A point or a box of a facet that leads to episodes; None spans the whole axis."""

    x: Place | None
    y: Place | None
    episodes: EpisodeFilter
    words: str = ''
    t_s: float | None = None  # the moment, where it is one of a single episode


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """y over x, straight or in steps (`y[i]` from `x[i]` on), with a band or with whiskers at its points."""

    policy: str
    x: Sequence[float] | NDArray[np.float64]
    y: Values
    low: Values | None = None
    high: Values | None = None
    name: str = ''  # in the legend and in words; the policy unless given
    is_step: bool = False
    has_whiskers: bool = False  # low and high as whiskers with a marker at every point, not as a band
    end: float | None = None  # where observation ended: steps go on as far
    censored: Sequence[float] = ()  # where an episode left without success
    episodes: EpisodeFilter | None = None  # behind the whole curve
    links: Sequence[EpisodeLink] = ()  # behind single points
    color: str = ''
    dash: str = ''  # on paper; the policy's unless given
    width: float = 1.3
    alpha: float = 1.0
    is_listed: bool = True  # in the legend

    @property
    def label(self) -> str:
        return self.name or self.policy


@dataclass(frozen=True, slots=True)
class Point:
    """A value with its intervals. Without y it has a row of its own, under its group's heading where it has a group.

    On a page an infinite end is drawn as an arrow and an absent value as a dash.
    """

    policy: str
    x: Number
    y: Number = None
    x_low: Number = None
    x_high: Number = None
    y_low: Number = None
    y_high: Number = None
    name: str = ''  # of the row, or in the legend; the policy unless given
    letters: str = ''  # beside the row
    group: str = ''
    is_front: bool = False  # no other beats it on both axes
    episodes: EpisodeFilter | None = None
    words: str = ''  # what it says, where that is not its numbers
    t_s: float | None = None
    color: str = ''
    marker: str = ''
    size: float = 4.0
    is_filled: bool = True
    alpha: float = 1.0
    is_listed: bool = False

    @property
    def label(self) -> str:
        return self.name or self.policy


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a bar: those at one place are stacked in order."""

    policy: str
    at: str | float  # the row's name, or a value of the axis
    value: Number
    name: str = ''  # what part it is, for the legend
    count: int | None = None  # how many episodes that is
    low: Number = None
    high: Number = None
    episodes: EpisodeFilter | None = None
    words: str = ''
    color: str = ''
    thickness: float = 0.8
    note: str = ''  # beside the end of the bar
    is_upright: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of a grid: policies or columns across, rows down. Without a value it is hatched."""

    policy: str  # the column
    row: str
    value: Number
    detail: str = ''  # adds words to its tooltip
    episodes: EpisodeFilter | None = None
    words: str = ''


@dataclass(frozen=True, slots=True)
class GuideLine:
    """A line across the facet at an x or a y, or the diagonal without either."""

    x: float | None = None
    y: float | None = None
    color: str = GRAY
    dash: str = '--'
    name: str = ''  # in the legend
    width: float = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """A shape between low and high along x, or along y where it `is_upright`."""

    along: Values
    low: Values
    high: Values
    policy: str = ''
    color: str = ''
    alpha: float = 0.15
    is_upright: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Words in the facet. x and y are values, or shares of the facet where `is_share` says so (x, y)."""

    text: str
    x: float
    y: float
    policy: str = ''
    color: str = ''
    align: tuple[str, str] = ('center', 'center')
    is_share: tuple[bool, bool] = (False, False)
    size: str = 'small'
    shift_pt: float = 0.0  # to the right
    is_boxed: bool = False


Layer = Curve | Point | Bar | Tile | GuideLine | Area | Note
Kind = TypeVar('Kind', Curve, Point, Bar, Tile, GuideLine)


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis measures, and how far it goes; ends that are None follow from the data."""

    label: str = ''
    limits: Limits | None = None
    names: Mapping[float, str] = field(default_factory=dict)  # values that have names, in place of numbers
    ticks: Sequence[float] = ()
    is_log: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Facet:
    """One drawing of a plot: all strata together, or one of them. An axis of its own replaces the plot's."""

    label: str
    layers: tuple[Layer, ...]
    x: Axis | None = None
    y: Axis | None = None
    links: Sequence[EpisodeLink] = ()
    is_square: bool = False  # both axes to one scale
    below: Mapping[str, Sequence[int]] = field(default_factory=dict)  # policy -> numbers at risk at the ticks of x

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Its layers of one kind."""
        return [layer for layer in self.layers if isinstance(layer, kind)]


@dataclass(frozen=True, slots=True)
class Sheet:
    """The natural size of a plot on paper: of the whole, or of each facet and how many stand in a row."""

    width_in: float = 6.9
    height_in: float = 2.8
    is_rows: bool = False  # a line of text each: the height grows with the font
    facet_in: tuple[float, float] | None = None  # several facets, each of about this size
    most: int = 4
    extra_in: float = 0.4
    shared: str = ''  # the axes that facets share: 'x', 'y' or 'xy'
    has_legend: bool = True


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure: its facets, its axes, and the words around it."""

    key: str  # unique in a document
    title: str
    facets: tuple[Facet, ...]
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    number_format: str = '.2f'
    note: str = ''
    names: tuple[str, ...] = ()  # order of the parts of bars, or of the columns of a grid
    rows: tuple[str, ...] = ()  # order of the rows of a grid
    value: Axis = field(default_factory=Axis)  # what the shades of a grid measure
    sheet: Sheet = field(default_factory=Sheet)


def places(names: Iterable[str]) -> dict[float, str]:
    """Names at 0, 1, 2 and so on, for an axis."""
    return {float(place): name for place, name in enumerate(names)}


def facets(layers: Sequence[Layer] | Mapping[str, Sequence[Layer]]) -> tuple[Facet, ...]:
    """Layers alone are one facet; a mapping is one facet per label."""
    if isinstance(layers, Mapping):
        return tuple(Facet(label, tuple(some)) for label, some in layers.items()) or (Facet('', ()),)
    return (Facet('', tuple(layers)),)


# How each policy is drawn, the same in every figure and on every page: a colour, then dashes, markers and hatches.

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
    """One look per policy, no two alike; the reference is black.

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


# The episodes that a mark leads to.

MOST_IDS = 150  # more would not fit into an address
# The episodes of a policy under a condition, at a severity where its name does not say it.
Behind = Callable[[str, str, float | None], EpisodeFilter]


class OneEpisode(Protocol):
    """An episode, or a score of one."""

    @property
    def episode_id(self) -> str: ...
    @property
    def policy(self) -> str: ...


def of_policies(frame: ComparisonFrame, *policies: str, stratum: str | None = None) -> EpisodeFilter:
    """The filter of policies' episodes, of the ranked condition where one was taken out of several."""
    chosen: dict[str, tuple[str, ...]] = {'policy': policies}
    if frame.condition and frame.n_conditions > 1:
        chosen['condition'] = (frame.condition,)
    if stratum:
        keys = [key for key, name in frame.stratum_names.items() if name == stratum]
        for place, field in enumerate(('benchmark', 'task', 'stratum')):
            values = tuple(sorted({key[place] for key in keys} - {''}))
            if values:
                chosen[field] = values
    return chosen


def these_episodes(episodes: Iterable[OneEpisode], otherwise: EpisodeFilter | None = None) -> EpisodeFilter:
    """Exactly these episodes, by id; or, where they are too many for an address, the filter that holds them all."""
    ids: dict[str, None] = {}
    policies: dict[str, None] = {}
    for episode in episodes:
        if len(ids) <= MOST_IDS:
            ids[episode.episode_id] = None
        elif otherwise is not None:
            break  # too many, and nothing else is asked of them
        policies[episode.policy] = None
    if ids and len(ids) <= MOST_IDS:
        return {'episode_id': tuple(ids)}
    return dict(otherwise) if otherwise is not None else {'policy': tuple(policies)}


def counted(episodes: Sequence[OneEpisode]) -> str:
    """How many episodes these are, in words."""
    n = len({e.episode_id for e in episodes})
    return f'{n} episode' if n == 1 else f'{n} episodes'
