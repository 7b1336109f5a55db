"""Figures by name: what `robotrials plot NAME` can draw. A room adds a row here, a plug-in an entry point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from robotrials.catalog import Catalog
from robotrials.show.request import ShowRequest, summary_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = Catalog(
    'figure',
    {
        'cdf': 'robotrials.show.timing_figure:draw_cdf',
        'pp': 'robotrials.show.timing_figure:draw_pp',
        'pairwise-pp': 'robotrials.show.timing_figure:draw_pairwise_pp',
        'rmst-grid': 'robotrials.show.timing_figure:draw_rmst_grid',
        'qq': 'robotrials.show.timing_shape:draw_qq',
        'sup-sign-cycle': 'robotrials.show.timing_shape:draw_sup_sign_cycle',
        'uph-mtbf': 'robotrials.show.timing_shape:draw_uph_mtbf',
        'uph-mtbf-macro': 'robotrials.show.timing_shape:draw_uph_mtbf_macro',
        'detection': 'robotrials.show.planning_figure:draw_detection',
        'power': 'robotrials.show.planning_figure:draw_power',
        'sequential': 'robotrials.show.planning_figure:draw_sequential',
        'posterior': 'robotrials.show.practice_figure:draw_posterior',
        'profile': 'robotrials.show.practice_figure:draw_profile',
        'improvement': 'robotrials.show.practice_figure:draw_improvement',
        'ranks': 'robotrials.show.practice_figure:draw_ranks',
        'safety-pareto': 'robotrials.show.safety_plot:draw_pareto',
        'safety-heatmap': 'robotrials.show.safety_plot:draw_heatmap',
        'safety-axes': 'robotrials.show.safety_plot:draw_axis_heatmap',
        'safety-composition': 'robotrials.show.safety_plot:draw_composition',
        'safety-filmstrip': 'robotrials.show.safety_plot:draw_filmstrip',
        'drop-forest': 'robotrials.show.audit_plot:draw_drops',
        'claims': 'robotrials.show.audit_plot:draw_claims',
        'citations': 'robotrials.show.audit_plot:draw_citations',
        'cutoffs': 'robotrials.show.audit_plot:draw_cutoffs',
        'divergence': 'robotrials.show.audit_plot:draw_divergence',
        'shortcut': 'robotrials.show.shortcut_sheet:draw_shortcut',
        'condition-success': 'robotrials.show.robustness_plot:draw_condition_success',
        'condition-drops': 'robotrials.show.robustness_plot:draw_condition_drops',
        'doses': 'robotrials.show.robustness_plot:draw_doses',
        'starts': 'robotrials.show.robustness_plot:draw_starts',
        'placement': 'robotrials.show.placement_plot:draw_placement',
        'iou-over-time': 'robotrials.show.placement_plot:draw_iou_over_time',
        'success-filmstrips': 'robotrials.show.filmstrip:draw_successes',
        'failure-filmstrips': 'robotrials.show.filmstrip:draw_failures',
        'amse': 'robotrials.show.actions_plot:draw_amse',
        'namse': 'robotrials.show.actions_plot:draw_namse',
    },
    entry_point_group='robotrials.figures',
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
