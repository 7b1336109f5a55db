"""Light SVG charts for reports: each function turns plain rows into a `document.Chart`.

A drawing keeps its text at one size at any width: positions along x are percentages of the page's column, heights are
pixels. Colours come from the page (`[data-policy=...]` sets `--c`), dashes and markers from the place of the policy in
`colors`, so a chart is told apart without colour too. `show.page` holds the style sheet these drawings need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.show.chart.grid import GridCell, grid_chart
    from robotrials.show.chart.interval import IntervalRow, interval_chart
    from robotrials.show.chart.line import LinePoint, LineSeries, line_chart
    from robotrials.show.chart.mark import Mark, policy_marks
    from robotrials.show.chart.scatter import ScatterPoint, scatter_chart
    from robotrials.show.chart.stacked import Share, StackedBar, stacked_bar_chart
    from robotrials.show.chart.step import StepPanel, StepSeries, step_chart

__all__ = [
    'GridCell', 'IntervalRow', 'LinePoint', 'LineSeries', 'Mark', 'ScatterPoint', 'Share', 'StackedBar', 'StepPanel',
    'StepSeries', 'grid_chart', 'interval_chart', 'line_chart', 'policy_marks', 'scatter_chart', 'stacked_bar_chart',
    'step_chart',
]  # fmt: skip

_PLACES = {
    '.grid': 'GridCell grid_chart',
    '.interval': 'IntervalRow interval_chart',
    '.line': 'LinePoint LineSeries line_chart',
    '.mark': 'Mark policy_marks',
    '.scatter': 'ScatterPoint scatter_chart',
    '.stacked': 'Share StackedBar stacked_bar_chart',
    '.step': 'StepPanel StepSeries step_chart',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
