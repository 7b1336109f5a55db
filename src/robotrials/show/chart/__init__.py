"""Light SVG charts for reports: each function turns plain rows into a `document.Chart`.

A drawing keeps its text at one size at any width: positions along x are percentages of the page's column, heights are
pixels. Colours come from the page (`[data-policy=...]` sets `--c`), dashes and markers from the place of the policy in
`colors`, so a chart is told apart without colour too. `show.page` holds the style sheet these drawings need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.show.chart.grid import GridCell, Share, StackedBar, grid_chart, stacked_bar_chart
    from robotrials.show.chart.interval import IntervalRow, LinePoint, LineSeries, interval_chart, line_chart
    from robotrials.show.chart.scatter import ScatterPoint, scatter_chart
    from robotrials.show.chart.step import StepPanel, StepSeries, step_chart
    from robotrials.show.chart.svg import Mark, policy_marks

__all__ = [
    'GridCell', 'IntervalRow', 'LinePoint', 'LineSeries', 'Mark', 'ScatterPoint', 'Share', 'StackedBar', 'StepPanel',
    'StepSeries', 'grid_chart', 'interval_chart', 'line_chart', 'policy_marks', 'scatter_chart', 'stacked_bar_chart',
    'step_chart',
]  # fmt: skip

_PLACES = {
    '.grid': 'GridCell Share StackedBar grid_chart stacked_bar_chart',
    '.interval': 'IntervalRow LinePoint LineSeries interval_chart line_chart',
    '.scatter': 'ScatterPoint scatter_chart',
    '.step': 'StepPanel StepSeries step_chart',
    '.svg': 'Mark policy_marks',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
