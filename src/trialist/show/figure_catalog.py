"""Figures by name: what `trialist plot NAME STORE` can draw. A room adds a row here, a plug-in an entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from trialist.catalog import Catalog
from trialist.episodes import Episode
from trialist.errors import UnknownName

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
        'detection': 'trialist.show.planning_figure:draw_detection',
        'power': 'trialist.show.planning_figure:draw_power',
        'sequential': 'trialist.show.planning_figure:draw_sequential',
        'posterior': 'trialist.show.practice_figure:draw_posterior',
        'profile': 'trialist.show.practice_figure:draw_profile',
        'improvement': 'trialist.show.practice_figure:draw_improvement',
        'ranks': 'trialist.show.practice_figure:draw_ranks',
        'uph-mtbf-macro': 'trialist.show.timing_shape:draw_uph_mtbf_macro',
        'safety-pareto': 'trialist.show.safety_plot:draw_pareto',
        'safety-heatmap': 'trialist.show.safety_plot:draw_heatmap',
        'safety-axes': 'trialist.show.safety_plot:draw_axis_heatmap',
        'safety-composition': 'trialist.show.safety_plot:draw_composition',
        'safety-filmstrip': 'trialist.show.safety_plot:draw_filmstrip',
        'drop-forest': 'trialist.show.audit_figure:draw_drops',
        'robustness-drops': 'trialist.show.robustness_figure:draw_robustness_drops',
        'robustness-doses': 'trialist.show.robustness_figure:draw_robustness_doses',
        'robustness-starts': 'trialist.show.robustness_figure:draw_robustness_starts',
        'placement': 'trialist.show.geometry:draw_placement',
    },
    entry_point_group='trialist.figures',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRequest:
    """What a figure is drawn from. A figure takes what it needs of it and says when something is missing."""

    episodes: tuple[Episode, ...]
    store: Path | None = None  # its folder, for figures that read trajectories or media
    policies: tuple[str, ...] = ()  # all when empty
    strata: tuple[str, ...] = ()  # all when empty
    reference: str | None = None  # the marked one when not given
    tau_s: float = 240.0
    n_resamples: int = 1000
    seed: int = 0

    def chosen(self) -> tuple[Episode, ...]:
        """The episodes of the policies and strata asked for; one that no episode has is an error."""
        chosen = self.episodes
        for kind, names in (('policy', self.policies), ('stratum', self.strata)):
            known = {getattr(episode, kind) for episode in chosen}
            for name in names:
                if name not in known:
                    raise UnknownName(kind, name, known)
            chosen = tuple(e for e in chosen if not names or getattr(e, kind) in names)
        return chosen


Draw = Callable[[FigureRequest], 'Figure']


def find_figure(name: str) -> Draw:
    """The function that draws the figure of this name; an unknown one suggests the near name."""
    return cast('Draw', FIGURES.load(name))


def figure_summaries() -> list[tuple[str, str]]:
    """Every figure's name and the first line of what it says about itself."""
    return [(name, (find_figure(name).__doc__ or '').strip().splitlines()[0]) for name in FIGURES.names()]
