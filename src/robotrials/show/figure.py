"""What every figure shares: one look per policy, a paper's widths and fonts, legends that fit, one way to save."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing.operation import FloatArray
from robotrials.old_name import SVG_SALT
from robotrials.record import Episode
from robotrials.show.catalog import ShowRequest
from robotrials.show.document import EpisodeFilter, write_file
from robotrials.show.plot import EpisodeLink, Place, counted, of_policies, these_episodes
from robotrials.value import dataclass
from robotrials.verdict.analysis import Analysis, present

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# How wide a figure stands in a paper, and in which font: presets of venues, and widths as an author says them.

COLUMN_WIDTH_IN = 3.35
PAGE_WIDTH_IN = 6.9
FONTS = ('sans', 'serif')
POINT_IN = 1 / 72.27  # TeX's point, which \the\columnwidth answers in
UNITS_IN = {'in': 1.0, 'pt': POINT_IN, 'mm': 1 / 25.4, 'cm': 1 / 2.54, '': 1.0}
NARROWEST_IN, WIDEST_IN = 1.5, 40.0


@dataclass(frozen=True, slots=True)
class Venue:
    """The widths of a paper's column and of its text block, and the font that suits its pages."""

    title: str
    column_in: float
    page_in: float
    font: str
    font_size_pt: float


VENUES = {
    'plain': Venue('no venue in particular', COLUMN_WIDTH_IN, PAGE_WIDTH_IN, 'sans', 8.0),
    'ieee': Venue('IEEEtran, two columns (252 pt and 516 pt)', 252 * POINT_IN, 516 * POINT_IN, 'serif', 8.0),
    'acm': Venue('acmart sigconf, two columns', 241.14749 * POINT_IN, 506.295 * POINT_IN, 'serif', 8.0),
    'icml': Venue('ICML, two columns', 3.25, 6.75, 'serif', 8.0),
    'neurips': Venue('NeurIPS and ICLR, one column', 5.5, 5.5, 'serif', 9.0),
    'jmlr': Venue('JMLR, one column', 6.0, 6.0, 'serif', 9.0),
    'lncs': Venue('Springer LNCS, one column', 122 / 25.4, 122 / 25.4, 'serif', 8.0),
    'nature': Venue('Nature, 89 mm and 183 mm', 89 / 25.4, 183 / 25.4, 'sans', 7.0),
}


@dataclass(frozen=True, slots=True)
class FigureStyle:
    """Width and height in inches (None: the figure's natural ones), the font, and the size of its text."""

    width_in: float | None = None
    height_in: float | None = None
    font: str = 'sans'
    font_size_pt: float = 8.0

    def __post_init__(self) -> None:
        if self.font not in FONTS:
            raise UnknownName('font', self.font, FONTS)
        if not 4 <= self.font_size_pt <= 40:
            raise InputError(f'font size is {self.font_size_pt:g} points, wanted 4 to 40')
        for name, value in (('width', self.width_in), ('height', self.height_in)):
            if value is not None and not NARROWEST_IN <= value <= WIDEST_IN:
                raise InputError(f'{name} is {value:.3g} inches, wanted {NARROWEST_IN:g} to {WIDEST_IN:g}')


def parse_length_in(text: str) -> float:
    """Inches from `3.5`, `3.5in`, `252pt` (TeX points), `89mm` or `8.9cm`."""
    match = re.fullmatch(r'\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(in|pt|mm|cm|)\s*', text)
    if match is None:
        raise InputError(f'{text!r} is not a length; wanted column, page, or a number such as 3.5, 252pt or 89mm')
    return float(match[1]) * UNITS_IN[match[2]]


def figure_style(
    venue: str = '', *, width: str = '', height: str = '', font: str = '', font_size_pt: float | None = None
) -> FigureStyle:
    """The style that the words of a command line ask for; a venue without a width means its column."""
    if venue and venue not in VENUES:
        raise UnknownName('style', venue, VENUES)
    chosen = VENUES[venue or 'plain']
    widths = {'column': chosen.column_in, 'page': chosen.page_in, '': chosen.column_in if venue else None}
    return FigureStyle(
        width_in=widths[width] if width in widths else parse_length_in(width),
        height_in=parse_length_in(height) if height else None,
        font=font or chosen.font,
        font_size_pt=chosen.font_size_pt if font_size_pt is None else font_size_pt,
    )


SAVED_FORMATS = ('svg', 'pdf', 'png')
NATURAL_FONT_PT = 8.0
LEAST_SHRINK = 0.8  # of the natural height, when a figure is made narrower
FONT_FAMILIES = {
    # Both ship with matplotlib, so that equal data give equal files everywhere; STIX looks like Times.
    'sans': ['DejaVu Sans'],
    'serif': ['STIXGeneral', 'DejaVu Serif'],
}
_style: ContextVar[FigureStyle] = ContextVar('figure_style')


@contextmanager
def styled(style: FigureStyle) -> Iterator[None]:
    """Figures made inside have this style's width, height and font; outside, their natural size at 8 points."""
    token = _style.set(style)
    try:
        yield
    finally:
        _style.reset(token)


def figure_width_in(natural_in: float = PAGE_WIDTH_IN) -> float:
    """The width that a figure made now will have."""
    return _current().width_in or natural_in


def font_scale() -> float:
    """How much larger than natural the text is: what stands in rows needs as much more height."""
    return _current().font_size_pt / NATURAL_FONT_PT


def new_figure(width_in: float = PAGE_WIDTH_IN, height_in: float = 3.2, *, is_rows: bool = False) -> Figure:
    """An empty figure outside pyplot's global state, of this natural size unless a style says otherwise.

    A narrower figure is also lower, but one of `is_rows` (a line of text each) keeps its height.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style = _current()
    settings: Any = matplotlib.rcParams
    settings.update(_parameters(style))
    width = style.width_in or width_in
    shrink = 1.0 if is_rows else min(1.0, max(LEAST_SHRINK, width / width_in))
    height = style.height_in or height_in * shrink * (font_scale() if is_rows else 1.0)
    figure = Figure(figsize=(width, height), layout='constrained')
    FigureCanvasAgg(figure)
    return figure


def new_panels(
    count: int, *, most: int = 4, panel_in: tuple[float, float] = (1.7, 2.2), extra_in: float = 0.3,
    is_square: bool = False, **subplots: Any,
) -> tuple[Figure, list[Axes]]:  # fmt: skip
    """`count` panels of about this size in as many columns as the width has room for; places left over stay empty.

    Square panels are as high as they turn out wide, with room for a title and a label.
    """
    widest = max(COLUMN_WIDTH_IN, PAGE_WIDTH_IN * min(most, count) / most)
    width = figure_width_in(widest)
    columns = max(1, min(most, count, math.floor(width / (panel_in[0] * 0.9))))
    rows = -(-count // columns)
    height_in = min(panel_in[1], width / columns + 0.1) if is_square else panel_in[1]
    figure = new_figure(widest, height_in * rows + extra_in, is_rows=True)
    grid = figure.subplots(rows, columns, squeeze=False, **subplots).ravel().tolist()
    for axes in grid[count:]:
        axes.axis('off')
    return figure, grid[:count]


def add_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend under the figure, in as many columns as its width has room for."""
    if not labels:
        return
    for columns in range(len(labels), 0, -1):
        legend = figure.legend(
            handles, labels, loc='outside lower center', ncols=columns, fontsize='small', columnspacing=1.2,
            handlelength=1.8,
        )  # fmt: skip
        if columns == 1 or legend.get_window_extent().width <= 0.97 * figure.bbox.width:
            return
        legend.remove()


def label_outer(panels: Sequence[Axes], *, x: str, y: str) -> None:
    """The names of the scales on the outer panels of a grid only: the first of a row, the last of a column."""
    places: list[Any] = [axes.get_subplotspec() for axes in panels]
    for axes, place in zip(panels, places, strict=True):
        axes.set_ylabel(y if place.is_first_col() else '')
        is_last = not any(
            other.colspan.start == place.colspan.start and other.rowspan.start > place.rowspan.start for other in places
        )
        axes.set_xlabel(x if is_last else '')
        if is_last:  # panels that share a scale hide its numbers but in the last row, which may have an empty place
            axes.tick_params(labelbottom=True)


def plain_log_numbers(axis: Any) -> None:
    """Powers of ten as 1e-06 and 100: the formatter of matplotlib writes mathematics, which is switched off here."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f'{value:g}'))
    axis.set_minor_formatter(NullFormatter())


def fold(text: str, width_in: float, *, size: float = 1.0) -> str:
    """Text in lines that fit this width at `size` times the figure's font size."""
    letter_in = 0.56 * size * _current().font_size_pt / 72
    return '\n'.join(textwrap.wrap(text, max(8, int(width_in / letter_in)), break_long_words=False)) or text


def save_figure(figure: Figure, path: Path | str) -> Path:
    """Write the figure by its file's suffix (svg, pdf, png); no creation date, so equal data give equal files."""
    target = Path(path)
    suffix = target.suffix.lower().lstrip('.')
    if suffix not in SAVED_FORMATS:
        raise InputError(f'{target}: wanted a figure file ending in .svg, .pdf or .png, found {target.suffix!r}')
    metadata = {'svg': {'Date': None}, 'pdf': {'CreationDate': None}, 'png': {'Software': None}}[suffix]
    drawn = io.BytesIO()
    figure.savefig(drawn, format=suffix, dpi=200, metadata=metadata)
    return write_file(target, drawn.getvalue())


def legend_entries(panels: Iterable[Axes]) -> tuple[list[Any], list[str]]:
    """The labelled marks of all panels, each label once."""
    handles = {label: h for axes in panels for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return list(handles.values()), list(handles)


def _current() -> FigureStyle:
    return _style.get(FigureStyle())


def _parameters(style: FigureStyle) -> dict[str, Any]:
    return {
        'font.size': style.font_size_pt, 'font.family': FONT_FAMILIES[style.font], 'axes.titlesize': 'medium',
        'figure.titlesize': 'medium', 'figure.labelsize': 'medium', 'axes.spines.top': False,
        'axes.spines.right': False, 'svg.fonttype': 'none', 'pdf.fonttype': 42, 'legend.frameon': False,
        'svg.hashsalt': SVG_SALT, 'text.parse_math': False,
    }  # fmt: skip


# What a figure's marks rest on: places of a drawing that lead to episodes, kept beside it as values.


POINT_PX = 5.0  # half the width of what can be clicked around a point


@dataclass(frozen=True, slots=True)
class FigureMark:
    """A box of a figure, in shares of its width and height from the upper left, and the episodes that it leads to."""

    left: float
    top: float
    width: float
    height: float
    words: str
    episodes: EpisodeFilter
    t_s: float | None = None  # the moment, where it is one of a single episode


_marks: WeakKeyDictionary[Any, list[tuple[Axes, EpisodeLink]]] = WeakKeyDictionary()
_leading: ContextVar[bool] = ContextVar('leading', default=False)


@contextmanager
def leading() -> Iterator[None]:
    """Figures drawn inside keep their marks."""
    token = _leading.set(True)
    try:
        yield
    finally:
        _leading.reset(token)


def is_leading() -> bool:
    """Whether marks are kept now."""
    return _leading.get()


def lead_to(
    axes: Axes, x: Place | None, y: Place | None, episodes: EpisodeFilter, words: str, *, t_s: float | None = None
) -> None:
    """Let a point, or the box between two values, lead to episodes; None spans the whole panel."""
    if not is_leading():
        return
    _marks.setdefault(axes.get_figure(root=True), []).append((axes, EpisodeLink(x, y, episodes, words, t_s)))


def figure_marks(figure: Figure) -> tuple[FigureMark, ...]:
    """The marks of a figure that has been drawn, in the order in which they were made; those out of sight left out."""
    width, height = figure.bbox.width, figure.bbox.height
    marks = []
    for axes, link in _marks.get(figure, ()):
        if link.x is None or link.y is None:
            corners = np.asarray(axes.bbox.get_points())
        else:
            xs, ys = (v if isinstance(v, tuple) else (v, v) for v in (link.x, link.y))
            corners = np.asarray(axes.transData.transform(list(zip(xs, ys, strict=True))))
        if not np.isfinite(corners).all():
            continue
        left, right = _widened(*sorted(corners[:, 0].tolist()), end=width)
        bottom, top = _widened(*sorted(corners[:, 1].tolist()), end=height)
        if left < right and bottom < top:
            marks.append(
                FigureMark(
                    left / width, 1 - top / height, (right - left) / width, (top - bottom) / height,
                    link.words, link.episodes, link.t_s,
                )
            )  # fmt: skip
    return tuple(marks)


def _widened(low: float, high: float, *, end: float) -> tuple[float, float]:
    """A span that can be clicked, cut off at the figure's edges; empty where it lies outside."""
    room = max(0.0, POINT_PX - (high - low) / 2)
    return max(0.0, low - room), min(end, high + room)


# Marks on curves of times: every vertex leads to the episodes whose placements make it.

MOST_VERTICES = 120  # marks on one curve; neighbours beyond that share one
DIGITS = 9


def vertex_links(
    request: ShowRequest, x: FloatArray, y: FloatArray, times_s: Mapping[str, FloatArray], *, stratum: str
) -> list[EpisodeLink]:
    """Let the vertices (x[i], y[i]) lead to the placements of each policy that took `times_s[policy][i]`."""
    if not is_leading():
        return []
    frame = present(request.analysis.frame)
    kept = np.flatnonzero(np.r_[True, (np.diff(x) != 0) | (np.diff(y) != 0)]) if len(x) else np.arange(0)
    at = {policy: _by_time(request.analysis, policy, stratum) for policy in times_s}
    otherwise = of_policies(frame, *times_s, stratum=stratum)
    links = []
    for some in np.array_split(kept, max(1, min(len(kept), MOST_VERTICES))):
        behind = [
            episode
            for policy, times in times_s.items()
            for t_s in np.unique(np.round(times[some], DIGITS)).tolist()
            for episode in at[policy].get(t_s, ())
        ]
        if behind:
            middle = some[len(some) // 2]
            took = ', '.join(f'{policy} {times[middle]:.2f} s' for policy, times in times_s.items())
            episodes = these_episodes(behind, otherwise)
            links.append(EpisodeLink(float(x[middle]), float(y[middle]), episodes, f'{took}: {counted(behind)}'))
    return links


def _by_time(analysis: Analysis, policy: str, stratum: str) -> dict[float, list[Episode]]:
    by_time: dict[float, list[Episode]] = {}
    frame, times = present(analysis.frame), present(analysis.times)
    for took_s, episode in analysis.behind.placements(frame, times, policy, stratum):
        by_time.setdefault(round(took_s, DIGITS), []).append(episode)
    return by_time
