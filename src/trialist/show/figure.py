"""What every figure shares: a palette fixed per policy, paper widths, and one way to save."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from trialist.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN_WIDTH_IN = 3.35
PAGE_WIDTH_IN = 6.9
SAVED_FORMATS = ('svg', 'pdf', 'png')

# Okabe and Ito's colour-blind-safe colours; black is kept for the reference.
PALETTE = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#7F7F7F', '#8C510A')
REFERENCE_COLOR = '#000000'


def policy_colors(policies: Iterable[str], *, reference: str | None = None) -> dict[str, str]:
    """One colour a policy, the same in every figure that is given the same policies; the reference is black."""
    names = sorted(set(policies) - {reference})
    colors = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    if reference is not None:
        colors[reference] = REFERENCE_COLOR
    return colors


def new_figure(width_in: float = PAGE_WIDTH_IN, height_in: float = 3.2) -> Figure:
    """An empty figure outside pyplot's global state, in a paper's font sizes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(
        {'font.size': 8, 'axes.spines.top': False, 'axes.spines.right': False, 'svg.fonttype': 'none',
         'pdf.fonttype': 42, 'legend.frameon': False, 'svg.hashsalt': 'trialist',
         'text.parse_math': False}
    )  # fmt: skip
    figure = Figure(figsize=(width_in, height_in), layout='constrained')
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path | str) -> Path:
    """Write the figure by its file's suffix (svg, pdf, png); no creation date, so equal data give equal files."""
    target = Path(path)
    suffix = target.suffix.lower().lstrip('.')
    if suffix not in SAVED_FORMATS:
        raise InputError(f'{target}: wanted a figure file ending in .svg, .pdf or .png, found {target.suffix!r}')
    target.parent.mkdir(parents=True, exist_ok=True)
    metadata = {'svg': {'Date': None}, 'pdf': {'CreationDate': None}, 'png': {'Software': None}}[suffix]
    figure.savefig(target, dpi=200, metadata=metadata)
    return target
