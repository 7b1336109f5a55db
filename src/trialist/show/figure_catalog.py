"""Figures by name: what `trialist plot NAME STORE` can draw. A room adds a row here, a plug-in an entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from trialist.catalog import Catalog
from trialist.episodes import Episode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = Catalog(
    'figure',
    {
        'cdf': 'trialist.show.timing_figure:draw_cdf',
        'pp': 'trialist.show.timing_figure:draw_pp',
        'pairwise-pp': 'trialist.show.timing_figure:draw_pairwise_pp',
        'rmst-grid': 'trialist.show.timing_figure:draw_rmst_grid',
        'qq': 'trialist.show.timing_shape:draw_qq',
        'sup-sign-cycle': 'trialist.show.timing_shape:draw_sup_sign_cycle',
        'uph-mtbf': 'trialist.show.timing_shape:draw_uph_mtbf',
        'uph-mtbf-macro': 'trialist.show.timing_shape:draw_uph_mtbf_macro',
    },
    entry_point_group='trialist.figures',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRequest:
    """What a figure is drawn from. A figure takes what it needs of it and says when something is missing."""

    episodes: tuple[Episode, ...]
    policies: tuple[str, ...] = ()  # all when empty
    strata: tuple[str, ...] = ()  # all when empty
    reference: str | None = None  # the marked one when not given
    tau_s: float = 240.0
    n_resamples: int = 1000
    seed: int = 0


Draw = Callable[[FigureRequest], 'Figure']


def find_figure(name: str) -> Draw:
    """The function that draws the figure of this name; an unknown one suggests the near name."""
    return cast('Draw', FIGURES.load(name))


def figure_summaries() -> list[tuple[str, str]]:
    """Every figure's name and the first line of what it says about itself."""
    return [(name, (find_figure(name).__doc__ or '').strip().splitlines()[0]) for name in FIGURES.names()]
