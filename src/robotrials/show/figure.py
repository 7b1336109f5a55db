"""What every figure shares: one look a policy, a paper's widths and fonts, legends that fit, one way to save."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError
from robotrials.old_name import SVG_SALT
from robotrials.show.file import write_file
from robotrials.show.paper_style import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, FigureStyle
from robotrials.show.policy_look import PALETTE, REFERENCE_COLOR, THING_PALETTE, PolicyLook, policy_colors, policy_looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    'COLUMN_WIDTH_IN', 'PAGE_WIDTH_IN', 'PALETTE', 'REFERENCE_COLOR', 'SAVED_FORMATS', 'THING_PALETTE', 'FigureStyle',
    'PolicyLook', 'add_legend', 'figure_width_in', 'fold', 'font_scale', 'label_outer', 'legend_entries', 'new_figure',
    'new_panels', 'plain_log_numbers', 'policy_colors', 'policy_looks', 'save_figure', 'styled', 'width_in_of',
]  # fmt: skip

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


def width_in_of(axes: Axes) -> float:
    """The width of the whole figure that the axes are in."""
    figure: Any = axes.get_figure()
    return float(figure.bbox.width / figure.dpi)


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
    found = {label: h for axes in panels for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return list(found.values()), list(found)


def _current() -> FigureStyle:
    return _style.get(FigureStyle())


def _parameters(style: FigureStyle) -> dict[str, Any]:
    return {
        'font.size': style.font_size_pt, 'font.family': FONT_FAMILIES[style.font], 'axes.titlesize': 'medium',
        'figure.titlesize': 'medium', 'figure.labelsize': 'medium', 'axes.spines.top': False,
        'axes.spines.right': False, 'svg.fonttype': 'none', 'pdf.fonttype': 42, 'legend.frameon': False,
        'svg.hashsalt': SVG_SALT, 'text.parse_math': False,
    }  # fmt: skip
