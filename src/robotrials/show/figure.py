"""What every figure shares: one look per policy, a paper's widths and fonts, legends that fit, one way to save."""

from __future__ import annotations

import importlib
import io
import math
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing.operation import FloatArray
from robotrials.old_name import SVG_SALT
from robotrials.record import Episode
from robotrials.record.folder import write_durably
from robotrials.show.catalog import ShowRequest
from robotrials.show.document import Document, EpisodeFilter
from robotrials.show.plot import EpisodeLink, Place
from robotrials.value import dataclass
from robotrials.verdict.analysis import Analysis, ComparisonFrame, present

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def check_target(path: Path | str) -> Path:
    """The path, if a file can be put there; asked before long work, so that its result has a place to go."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f'{target}: a folder, wanted the name of a file; give one in it, such as {target / "result"}')
    home = next((p for p in target.absolute().parents if (p / 'trial.json').is_file()), None)
    if home is not None:
        raise InputError(
            f'{target}: inside the store {home}, which keeps nothing but its own files; give a path outside'
        )
    nearest = next(parent for parent in target.absolute().parents if parent.exists())
    if not nearest.is_dir():
        raise InputError(f'{target}: {nearest} is a file, wanted a folder to write into; give another path')
    if not os.access(target if target.exists() else nearest, os.W_OK):
        raise InputError(f'{target}: not allowed to write there; give another path')
    return target


def write_file(path: Path | str, content: str | bytes) -> Path:
    """Write a file in one step: a reader, or a full disk, never meets half of it."""
    target = check_target(path)
    given = content.encode() if isinstance(content, str) else content
    try:
        _put(target, given)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    return target


def _put(target: Path, given: bytes) -> None:
    if target.exists() and not target.is_file():  # a pipe or a device has no half
        target.write_bytes(given)
        return
    real = target.resolve()  # through a link, which stays one
    real.parent.mkdir(parents=True, exist_ok=True)
    write_durably(real, given)


# A report as a file, in the form that its ending says.

# Name -> (file suffix, the function that renders it).
FORMATS = {
    'html': ('.html', 'robotrials.show.page:render_html'),
    'md': ('.md', 'robotrials.show.gate:render_markdown'),
    'latex': ('.tex', 'robotrials.show.gate:render_latex'),
    'json': ('.json', 'robotrials.show.document:render_json'),
}


def choose_format(form: str | None, path: Path | None) -> str:
    """The format asked for, else that of the file's suffix, else HTML."""
    if form is not None:
        if form not in FORMATS:
            raise UnknownName('report format', form, FORMATS)
        return form
    if path is None:
        return 'html'
    for name, (suffix, _) in FORMATS.items():
        if path.suffix.lower() == suffix:
            return name
    known = ', '.join(suffix for suffix, _ in FORMATS.values())
    raise InputError(f'{path}: wanted a file ending in one of {known}, or the name of a format')


def render_document(document: Document, form: str) -> str:
    """The document in one of FORMATS."""
    module, _, name = FORMATS[form][1].partition(':')
    render: Callable[[Document], str] = getattr(importlib.import_module(module), name)
    return render(document)


def write_report(analysis: Analysis, path: Path) -> Path:
    """Write the whole report of an analysis: .html, .md, .tex or .json by the ending."""
    from robotrials.show.report import trial_document

    form = choose_format(None, path)
    check_target(path)
    write_file(path, render_document(trial_document(analysis, folder=path.parent), form))
    return path


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


MOST_IDS = 150  # more would not fit into an address
POINT_PX = 5.0  # half the width of what can be clicked around a point
# The episodes of a policy under a condition, at a severity where its name does not say it.
Behind = Callable[[str, str, float | None], EpisodeFilter]


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


class OneEpisode(Protocol):
    """An episode, or a score of one."""

    @property
    def episode_id(self) -> str: ...
    @property
    def policy(self) -> str: ...


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
