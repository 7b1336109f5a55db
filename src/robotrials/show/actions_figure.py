"""Figures of action prediction: AMSE by dataset and model, NAMSE by dataset for one model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.show.figure import (
    PAGE_WIDTH_IN,
    PolicyLook,
    add_legend,
    fold,
    new_figure,
    plain_log_numbers,
    policy_looks,
    width_in_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robotrials.measure.actions.report import Scores
    from robotrials.stats import Interval

LOG_RATIO = 100.0


def amse_figure(scores: Scores, *, looks: Mapping[str, PolicyLook] | None = None) -> Figure:
    """AMSE of every model on every dataset, with intervals where there are some; log axis where scales differ."""
    positive = [s.amse for s in scores.values.values() if s.amse is not None and s.amse > 0]
    if not positive:
        raise InputError('no AMSE above 0 to draw')
    rows_in = 0.16 * len(scores.datasets) * max(2, len(scores.models)) / 2
    figure = new_figure(PAGE_WIDTH_IN, 1.2 + rows_in, is_rows=True)
    axes = figure.add_subplot()
    looks = looks or policy_looks(scores.models)
    height = 0.8 / len(scores.models)
    for number, model in enumerate(scores.models):
        found = [(i, scores.values[d, model]) for i, d in enumerate(scores.datasets) if (d, model) in scores.values]
        drawn = [(i, s.amse, s.amse_interval) for i, s in found if s.amse is not None]
        places = [i - 0.4 + (number + 0.5) * height for i, _, _ in drawn]
        _bars(axes, places, [v for _, v, _ in drawn], [e for _, _, e in drawn], height, looks[model], model)
    if max(positive) / min(positive) > LOG_RATIO:
        axes.set_xscale('log')
        axes.set_xlim(left=10 ** math.floor(math.log10(min(positive))))
        plain_log_numbers(axes.xaxis)
    _label(axes, scores, 'AMSE (lower is better)')
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def namse_figure(scores: Scores, model: str, *, looks: Mapping[str, PolicyLook] | None = None) -> Figure:
    """NAMSE of one model by dataset; never two models on one axis, since each has its own scale."""
    drawn = [(i, s.namse, s.namse_interval) for i, d in enumerate(scores.datasets)
             if (s := scores.values.get((d, model))) is not None and s.namse is not None]  # fmt: skip
    if not drawn:
        raise InputError(f'no NAMSE of {model!r} to draw; models: {", ".join(scores.models)}')
    figure = new_figure(PAGE_WIDTH_IN, 1.0 + 0.17 * len(scores.datasets), is_rows=True)
    axes = figure.add_subplot()
    look = (looks or policy_looks(scores.models))[model]
    _bars(axes, [i for i, _, _ in drawn], [v for _, v, _ in drawn], [e for _, _, e in drawn], 0.7, look, model)
    axes.set_xlim(0, 1)
    _label(axes, scores, f'NAMSE of {model} (0: its least error throughout, 1: its largest)')
    return figure


def _bars(
    axes: Axes, places: list[float] | list[int], values: list[float], intervals: list[Interval | None], height: float,
    look: PolicyLook, label: str,
) -> None:  # fmt: skip
    axes.barh(
        places, values, height=height * 0.92, color=look.color, hatch=look.hatch, edgecolor='white', linewidth=0,
        label=label,
    )  # fmt: skip
    for place, value, interval in zip(places, values, intervals, strict=True):
        if interval is not None:
            reach = [[max(0.0, value - interval.low)], [max(0.0, interval.high - value)]]
            axes.errorbar([value], [place], xerr=reach, color='black', linewidth=0.8, capsize=1.5)


def _label(axes: Axes, scores: Scores, what: str) -> None:
    marked = {True: ' *', False: '', None: ''}
    axes.set_yticks(range(len(scores.datasets)))
    names = [title + marked[scores.in_pretraining[d]] for d, title in scores.titles.items()]
    axes.set_yticklabels(names, fontsize='small')
    axes.set_ylim(len(scores.datasets) - 0.4, -0.6)
    note = '\n* in the pretraining mix' if any(scores.in_pretraining.values()) else ''
    axes.set_xlabel(fold(what, 0.55 * width_in_of(axes)) + note)
