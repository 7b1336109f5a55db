"""Figures by name: what `trialist plot NAME` can draw. A room adds a row here, a plug-in an entry point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from trialist.catalog import Catalog
from trialist.show.request import ShowRequest, summary_of

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
        'detection': 'trialist.show.planning_figure:draw_detection',
        'power': 'trialist.show.planning_figure:draw_power',
        'sequential': 'trialist.show.planning_figure:draw_sequential',
        'posterior': 'trialist.show.practice_figure:draw_posterior',
        'profile': 'trialist.show.practice_figure:draw_profile',
        'improvement': 'trialist.show.practice_figure:draw_improvement',
        'ranks': 'trialist.show.practice_figure:draw_ranks',
        'safety-pareto': 'trialist.show.safety_plot:draw_pareto',
        'safety-heatmap': 'trialist.show.safety_plot:draw_heatmap',
        'safety-axes': 'trialist.show.safety_plot:draw_axis_heatmap',
        'safety-composition': 'trialist.show.safety_plot:draw_composition',
        'safety-filmstrip': 'trialist.show.safety_plot:draw_filmstrip',
        'drop-forest': 'trialist.show.audit_plot:draw_drops',
        'claims': 'trialist.show.audit_plot:draw_claims',
        'citations': 'trialist.show.audit_plot:draw_citations',
        'cutoffs': 'trialist.show.audit_plot:draw_cutoffs',
        'divergence': 'trialist.show.audit_plot:draw_divergence',
        'shortcut': 'trialist.show.shortcut_sheet:draw_shortcut',
        'condition-success': 'trialist.show.robustness_plot:draw_condition_success',
        'condition-drops': 'trialist.show.robustness_plot:draw_condition_drops',
        'doses': 'trialist.show.robustness_plot:draw_doses',
        'starts': 'trialist.show.robustness_plot:draw_starts',
        'placement': 'trialist.show.placement_plot:draw_placement',
        'iou-over-time': 'trialist.show.placement_plot:draw_iou_over_time',
        'success-filmstrips': 'trialist.show.filmstrip:draw_successes',
        'failure-filmstrips': 'trialist.show.filmstrip:draw_failures',
        'amse': 'trialist.show.actions_plot:draw_amse',
        'namse': 'trialist.show.actions_plot:draw_namse',
    },
    entry_point_group='trialist.figures',
)

# Of a design or of simulations of it, not of episodes.
SIMULATED = frozenset({'detection', 'power', 'sequential'})
FigureRequest = ShowRequest  # what a figure is drawn from

Draw = Callable[[ShowRequest], 'Figure']


def find_figure(name: str) -> Draw:
    """The function that draws the figure of this name; an unknown one suggests the near name."""
    return cast('Draw', FIGURES.load(name))


def figure_summaries() -> list[tuple[str, str]]:
    """Every figure's name and the first line of what it says about itself."""
    return [(name, summary_of(find_figure(name))) for name in FIGURES.names()]
