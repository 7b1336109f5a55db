"""Figures of the benchmark audit: needed gaps, share pies, drop forests, growth curves, citation counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trialist.audit import (
    Benchmark,
    Channel,
    CitationCounts,
    Classification,
    Drop,
    InstanceOutcome,
    LeaderboardAudit,
    TraceComparison,
    drop_of_outcomes,
    outcomes_of,
)
from trialist.audit.leaderboard import FAMILIES
from trialist.audit.topline import Cutoff
from trialist.errors import NotEstimable
from trialist.show.audit import CLASS_WORDS
from trialist.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trialist.episodes import Episode
    from trialist.show.figure_catalog import FigureRequest

CALIBRATION = 'nominal'  # the record's word for the unaltered condition
CLASS_COLORS = {
    Classification.NO_IMPROVEMENT: '#BDBDBD',
    Classification.IMPOSSIBLE: '#D55E00',
    Classification.INCONCLUSIVE: '#F0E442',
    Classification.GUARANTEED: '#009E73',
}
GROWTH_COLORS = {
    Channel.STATE: PALETTE[0], Channel.PIXELS: PALETTE[2], Channel.ACTION_RAW: PALETTE[4],
    Channel.ACTION_PROCESSED: PALETTE[1],
}  # fmt: skip


def cutoff_figure(cutoffs: Sequence[Cutoff], benchmark: Benchmark) -> Figure:
    """The gap that could and the gap that must be significant, over baseline scores."""
    protocol = benchmark.protocol
    scale = 100 / protocol.most if benchmark.unit == 'percent' else 1 / protocol.instances
    figure = new_figure(COLUMN_WIDTH_IN, 2.6)
    axes = figure.add_subplot()
    sure = [(c.count_a * scale, c.smallest_guaranteed * scale) for c in cutoffs if c.smallest_guaranteed is not None]
    could = [(c.count_a * scale, c.smallest_feasible * scale) for c in cutoffs if c.smallest_feasible is not None]
    top = 1.15 * max((y for _, y in sure), default=1.0)
    right = protocol.most * scale
    if sure:
        x, y = zip(*sure, strict=True)
        axes.fill_between(x, y, top, color=CLASS_COLORS[Classification.GUARANTEED], alpha=0.25, lw=0)
        axes.plot(x, y, color=CLASS_COLORS[Classification.GUARANTEED], label='must be significant')
    if could:
        x, y = zip(*could, strict=True)
        axes.fill_between(x, 0, y, color=CLASS_COLORS[Classification.IMPOSSIBLE], alpha=0.25, lw=0)
        axes.plot(x, y, color=CLASS_COLORS[Classification.IMPOSSIBLE], label='could be significant')
    axes.plot([right - top, right], [top, 0], color='#000000', ls=':', lw=0.8, label='perfect new score')
    unit = '(%)' if benchmark.unit == 'percent' else f'(of {protocol.max_score})'
    axes.set_xlabel(f'baseline score {unit}')
    axes.set_ylabel('gap (percentage points)' if benchmark.unit == 'percent' else 'gap')
    axes.set_title(benchmark.title, fontsize=8)
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    axes.legend(loc='center', bbox_to_anchor=(0.5, 0.32), fontsize=6)
    return figure


def share_pies(audit: LeaderboardAudit) -> Figure:
    """One pie a benchmark and rule, as in Figure 3."""
    shares = [s for s in audit.shares() if s.judged]
    rules = list(dict.fromkeys(s.rule for s in shares))
    families = list(dict.fromkeys(s.family for s in shares))
    figure = new_figure(PAGE_WIDTH_IN, 1.6 * len(rules) + 0.3)
    grid = figure.subplots(len(rules), len(families), squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    for shown in shares:
        axes = grid[rules.index(shown.rule)][families.index(shown.family)]
        present = [c for c in Classification if shown.counts.get(c)]
        axes.pie(
            [shown.counts[c] for c in present],
            colors=[CLASS_COLORS[c] for c in present],
            autopct=lambda percent: f'{percent:.0f}%' if percent >= 6 else '',
            startangle=90,
            radius=1.15,
            counterclock=False,
            wedgeprops={'linewidth': 0.5, 'edgecolor': 'white'},
            textprops={'fontsize': 6},
        )
        axes.set_title(f'{FAMILIES[shown.family]}\n{shown.rule} rule, n = {shown.judged}', fontsize=7, pad=0)
    handles = [
        figure.axes[0].scatter([], [], color=CLASS_COLORS[c], marker='s', s=24, label=CLASS_WORDS[c])
        for c in Classification
    ]
    figure.legend(handles=handles, loc='outside lower center', ncols=4, fontsize=7)
    return figure


def drop_forest(drops: Sequence[Drop]) -> Figure:
    """Drops with intervals, one line each; a cluster-aware interval is drawn thinner below."""
    figure = new_figure(PAGE_WIDTH_IN * 0.75, 0.75 + 0.26 * len(drops))
    rates = [d.is_rate for d in drops]
    axes = figure.add_subplot()
    scale = [100.0 if r else 1.0 for r in rates]
    for row, (found, factor) in enumerate(zip(drops, scale, strict=True)):
        color = PALETTE[0] if found.is_resolved else '#7F7F7F'
        axes.plot([factor * e for e in found.interval], [row, row], color=color, lw=1.6, solid_capstyle='butt')
        axes.plot(factor * found.estimate, row, 'o', color=color, ms=4)
        if found.cluster_interval is not None:
            axes.plot([factor * e for e in found.cluster_interval], [row + 0.25] * 2, color=color, lw=0.8, ls='--')
    axes.axvline(0, color='#000000', lw=0.8)
    axes.set_yticks(range(len(drops)), [d.label or f'row {i + 1}' for i, d in enumerate(drops)])
    axes.set_ylim(len(drops) - 0.4, -0.6)
    unit = 'percentage points' if all(rates) else 'score' if not any(rates) else 'percentage points, or score'
    axes.set_xlabel(f'drop = calibration - altered ({unit}), {100 * drops[0].level:g} % intervals')
    if any(d.cluster_interval is not None for d in drops):
        axes.plot([], [], color='#7F7F7F', lw=0.8, ls='--', label='start states drawn whole')
        axes.legend(fontsize=6, loc='best')
    return figure


def draw_drops(request: FigureRequest) -> Figure:
    """What every policy loses under each condition of the store, against `nominal`, with intervals."""
    runs: dict[str, dict[str, list[Episode]]] = {}
    for episode in request.chosen():
        if episode.is_valid:
            runs.setdefault(episode.policy, {}).setdefault(episode.condition, []).append(episode)
    drops = []
    for policy, by_condition in sorted(runs.items()):
        outcomes = {condition: outcomes_of(episodes) for condition, episodes in sorted(by_condition.items())}
        nominal = outcomes.pop(CALIBRATION, None)
        if nominal is not None:
            drops += [
                _drop(nominal, altered, request, label=f'{policy}, {condition}')
                for condition, altered in outcomes.items()
            ]
    if not drops:
        raise NotEstimable(f'no policy ran under {CALIBRATION!r} and under another condition; a drop needs both')
    return drop_forest(drops)


def _drop(
    nominal: Sequence[InstanceOutcome], altered: Sequence[InstanceOutcome], request: FigureRequest, *, label: str
) -> Drop:
    """Paired where both conditions ran the same instances, independent otherwise."""
    import numpy as np

    is_same = sorted(o.key for o in nominal) == sorted(o.key for o in altered)
    rng = np.random.default_rng(request.seed)
    return drop_of_outcomes(nominal, altered, paired=is_same, n_resamples=request.n_resamples, rng=rng, label=label)


def growth_figure(trace: TraceComparison, *, title: str = '') -> Figure:
    """How a divergence grows, as in Figure 6: L-infinity for state and actions, mean absolute difference for images.

    Zeros are drawn at the floor of the logarithmic scale.
    """
    figure = new_figure(PAGE_WIDTH_IN * 0.75, 2.6)
    axes: Axes = figure.add_subplot()
    positive = [v for curve in trace.growth.values() for v in curve.tolist() if v > 0]
    floor = min(positive, default=1e-16) / 10
    for channel, curve in trace.growth.items():
        shown = [max(v, floor) for v in curve.tolist()]
        dashed = channel is Channel.ACTION_PROCESSED  # it often lies on the raw action
        style = '--' if dashed else '-'
        axes.plot(shown, color=GROWTH_COLORS[channel], lw=1.1, ls=style, label=str(channel))
    marked: dict[int, list[str]] = {}
    for channel, step in trace.first.items():
        marked.setdefault(step, []).append(str(channel))
    for number, (step, names) in enumerate(sorted(marked.items())):
        axes.axvline(step, color='#7F7F7F', lw=0.6, ls=':')
        late = step > 0.8 * max(trace.steps)
        axes.annotate(
            ', '.join(names), (step, 0.98 - 0.09 * (number % 4)), xycoords=('data', 'axes fraction'), fontsize=5.5,
            xytext=(-2 if late else 2, 0), textcoords='offset points', va='top', ha='right' if late else 'left',
        )  # fmt: skip
    axes.set_yscale('log')
    axes.set_xlabel('step')
    axes.set_ylabel('difference (zeros at the floor)')
    axes.set_title(title or trace.task, fontsize=8)
    if trace.growth:
        axes.legend(fontsize=6, loc='lower right')
    return figure


def citation_figure(counts: CitationCounts) -> Figure:
    """Cumulative papers that report results, by month of first posting, as in Figure 2."""
    figure = new_figure(COLUMN_WIDTH_IN * 1.3, 2.6)
    axes = figure.add_subplot()
    months = sorted({m.month for t in counts.trackers.values() for m in t.months})
    place = {month: i for i, month in enumerate(months)}
    for i, tracker in enumerate(counts.trackers.values()):
        if tracker.months:
            axes.plot(
                [place[m.month] for m in tracker.months], [m.cumulative for m in tracker.months],
                color=PALETTE[i % len(PALETTE)], drawstyle='steps-post',
                label=f'{tracker.benchmark} ({tracker.months[-1].cumulative})',
            )  # fmt: skip
    ticks = [i for i, month in enumerate(months) if month.endswith(('-01', '-07'))] or list(range(len(months)))
    axes.set_xticks(ticks, [months[i] for i in ticks], rotation=30, ha='right')
    axes.set_ylabel('papers reporting results')
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=6, loc='upper left')
    return figure
