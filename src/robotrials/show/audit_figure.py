"""Figures of the benchmark audit: needed gaps, share pies, drop forests, growth curves, citation counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable
from robotrials.show.audit import CLASS_WORDS, cutoff_table
from robotrials.show.audit_record import (
    channel_table,
    claims_table,
    count_table,
    coverage_table,
    funnel_table,
    grade_table,
    month_table,
    obstacle_table,
    rounding_table,
    share_table,
    trace_table,
)
from robotrials.show.figure import (
    COLUMN_WIDTH_IN,
    PAGE_WIDTH_IN,
    THING_PALETTE,
    add_legend,
    figure_width_in,
    fold,
    new_figure,
    plain_log_numbers,
)
from robotrials.show.figure_mark import lead_to
from robotrials.show.request import ShowRequest, apart, takes
from robotrials.show.robustness import conditioned, drop_table, requested_drops
from robotrials.show.table import Table
from robotrials.verdict.analysis.subject import BenchmarkGaps, Input
from robotrials.verdict.audit import (
    Benchmark,
    Channel,
    CitationCounts,
    Classification,
    Drop,
    LeaderboardAudit,
    RunComparison,
    TraceComparison,
)
from robotrials.verdict.audit.leaderboard import FAMILIES
from robotrials.verdict.audit.topline import Cutoff
from robotrials.verdict.robustness import ConditionDrop

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


RESOLVED_COLOR, UNRESOLVED_COLOR = '#332288', '#7F7F7F'
CLASS_COLORS = {
    Classification.NO_IMPROVEMENT: '#BDBDBD',
    Classification.IMPOSSIBLE: '#CC6677',
    Classification.INCONCLUSIVE: '#DDCC77',
    Classification.GUARANTEED: '#117733',
}
GROWTH_COLORS = {
    Channel.STATE: THING_PALETTE[0], Channel.PIXELS: THING_PALETTE[3], Channel.ACTION_RAW: THING_PALETTE[2],
    Channel.ACTION_PROCESSED: THING_PALETTE[1],
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
    axes.set_title(benchmark.title)
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def share_pies(audit: LeaderboardAudit) -> Figure:
    """One pie a benchmark and rule, as in Figure 3."""
    shares = [s for s in audit.shares() if s.judged]
    rules = list(dict.fromkeys(s.rule for s in shares))
    families = list(dict.fromkeys(s.family for s in shares))
    columns = min(len(families), max(2, int(figure_width_in() / 1.15)))
    bands = -(-len(families) // columns)
    figure = new_figure(PAGE_WIDTH_IN, 1.6 * len(rules) * bands + 0.3, is_rows=True)
    grid = figure.subplots(len(rules) * bands, columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    for shown in shares:
        band, column = divmod(families.index(shown.family), columns)
        axes = grid[rules.index(shown.rule) * bands + band][column]
        present = [c for c in Classification if shown.counts.get(c)]
        axes.pie(
            [shown.counts[c] for c in present],
            colors=[CLASS_COLORS[c] for c in present],
            autopct=lambda percent: f'{percent:.0f}%' if percent >= 6 else '',
            startangle=90,
            radius=1.1,
            counterclock=False,
            wedgeprops={'linewidth': 0.5, 'edgecolor': 'white'},
            textprops={'fontsize': 'x-small'},
        )
        axes.set_title(f'{FAMILIES[shown.family]}\n{shown.rule}, n = {shown.judged}', fontsize='small', pad=0)
    handles = [figure.axes[0].scatter([], [], color=CLASS_COLORS[c], marker='s', s=24) for c in Classification]
    add_legend(figure, handles, [CLASS_WORDS[c] for c in Classification])
    return figure


@dataclass(frozen=True, slots=True)
class DropLine:
    """One line of a forest: a drop with its interval, in percentage points or on the scale of a score."""

    label: str
    estimate: float
    low: float
    high: float
    is_resolved: bool
    is_rate: bool = True


def condition_lines(drops: Sequence[ConditionDrop], *, alpha: float) -> list[DropLine]:
    """What each condition costs each policy."""
    return [
        DropLine(f'{d.policy}, {d.condition}', 100 * d.success_drop, 100 * d.success_interval.low,
                 100 * d.success_interval.high, d.is_resolved(alpha))
        for d in drops if d.success_interval is not None
    ]  # fmt: skip


def audit_lines(drops: Sequence[Drop]) -> list[DropLine]:
    """Drops of audited scores."""
    lines = []
    for number, found in enumerate(drops, start=1):
        scale = 100.0 if found.is_rate else 1.0
        ends = found.interval.scaled(scale)
        label = found.label or f'row {number}'
        lines.append(DropLine(label, scale * found.estimate, ends.low, ends.high, found.is_resolved, found.is_rate))
    return lines


def drop_forest(lines: Sequence[DropLine], *, level: float) -> Figure:
    """Drops with intervals, one line each; coloured where resolved."""
    figure = new_figure(PAGE_WIDTH_IN * 0.75, 0.75 + 0.24 * len(lines), is_rows=True)
    axes = figure.add_subplot()
    for row, line in enumerate(lines):
        color = RESOLVED_COLOR if line.is_resolved else UNRESOLVED_COLOR
        axes.plot([line.low, line.high], [row, row], color=color, lw=1.6, solid_capstyle='butt')
        axes.plot(line.estimate, row, 'o', color=color, ms=4)
    axes.axvline(0, color='#000000', lw=0.8)
    axes.set_yticks(range(len(lines)), [line.label for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    rates = [line.is_rate for line in lines]
    unit = 'percentage points' if all(rates) else 'score' if not any(rates) else 'percentage points, or score'
    said = f'drop = baseline - altered ({unit}), {100 * level:g} % intervals'
    axes.set_xlabel(fold(said, 0.5 * figure.get_figwidth()))
    return figure


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
        late = step > 0.45 * max(trace.steps)
        axes.annotate(
            ', '.join(names), (step, 0.98 - 0.09 * (number % 4)), xycoords=('data', 'axes fraction'),
            fontsize='x-small',
            xytext=(-2 if late else 2, 0), textcoords='offset points', va='top', ha='right' if late else 'left',
        )  # fmt: skip
    axes.set_yscale('log')
    plain_log_numbers(axes.yaxis)
    axes.set_xlabel('step')
    axes.set_ylabel(fold('difference (zeros at the floor)', 0.6 * figure.get_figheight()))
    axes.set_title(title or trace.task)
    add_legend(figure, *axes.get_legend_handles_labels())
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
                color=THING_PALETTE[i % len(THING_PALETTE)], drawstyle='steps-post', linewidth=1.2,
                label=f'{tracker.benchmark} ({tracker.months[-1].cumulative})',
            )  # fmt: skip
    ticks = [i for i, month in enumerate(months) if month.endswith(('-01', '-07'))] or list(range(len(months)))
    axes.set_xticks(ticks, [months[i] for i in ticks], rotation=30, ha='right', rotation_mode='anchor')
    axes.set_ylabel('papers reporting results')
    axes.set_ylim(bottom=0)
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


# The audit's figures by name, from what their input was read into.


@apart
def draw_drops(request: ShowRequest) -> Figure:
    """What every policy loses under each condition of the store, against the baseline, with intervals."""
    drops, plan = requested_drops(request), request.analysis.plan
    lines = condition_lines(drops, alpha=plan.alpha)
    figure, behind = drop_forest(lines, level=plan.level), conditioned(request.analysis)
    for row, (d, line) in enumerate(zip(drops, lines, strict=True)):
        words = f'{line.label}: {line.estimate:.1f}'
        lead_to(figure.axes[0], (line.low, line.high), float(row), behind(d.policy, d.condition, None), words)
    return figure


@takes(Input.LEADERBOARD)
def draw_claims(request: ShowRequest) -> Figure:
    """Claimed gains of a leaderboard: no improvement, impossible, inconclusive or provably significant, as pies."""
    return share_pies(requested_audit(request))


@takes(Input.CANDIDATES)
def draw_citations(request: ShowRequest) -> Figure:
    """Papers that report results on each benchmark, added up by month of first posting."""
    return citation_figure(requested_counts(request))


@takes(Input.BENCHMARK)
def draw_cutoffs(request: ShowRequest) -> Figure:
    """The gap that could and the gap that must be significant on a benchmark, over baseline scores."""
    found = request.value(BenchmarkGaps)
    return cutoff_figure(found.drawn, found.benchmark)


@takes(Input.TWO_STORES)
def draw_divergence(request: ShowRequest) -> Figure:
    """How the difference between two runs of one plan grows in states, images and actions, step by step."""
    found = requested_traces(request)
    drawn = next((t for t in found.traces if t.first and t.growth), next(iter(found.traces), None))
    if drawn is None or not drawn.growth:
        raise NotEstimable('no trajectory with states, actions or frames in both runs; nothing to draw')
    return growth_figure(drawn)


def requested_audit(request: ShowRequest) -> LeaderboardAudit:
    return request.value(LeaderboardAudit)


def requested_counts(request: ShowRequest) -> CitationCounts:
    return request.value(CitationCounts)


def requested_traces(request: ShowRequest) -> RunComparison:
    return request.value(RunComparison)


# The audit's tables by name: from a store, a leaderboard, tables of papers, a benchmark's protocol or two runs.


@apart
def drops(request: ShowRequest) -> list[Table]:
    """Success under the baseline and under every other condition, the drop and its interval."""
    return [drop_table(requested_drops(request))]


@takes(Input.LEADERBOARD)
def claims(request: ShowRequest) -> list[Table]:
    """How many claimed gains are impossible, inconclusive or provably significant, by benchmark."""
    return [count_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_shares(request: ShowRequest) -> list[Table]:
    """The same in percent of the claims that can be judged."""
    return [share_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_rounding(request: ShowRequest) -> list[Table]:
    """How many judged claims rest on a score that no single pass can print."""
    return [rounding_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_coverage(request: ShowRequest) -> list[Table]:
    """How many papers of the leaderboard have a baseline to be judged by."""
    return [coverage_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_obstacles(request: ShowRequest) -> list[Table]:
    """Why claims could not be judged."""
    return [obstacle_table(requested_audit(request))]


@takes(Input.LEADERBOARD)
def claim_list(request: ShowRequest) -> list[Table]:
    """Every comparison of the leaderboard with its class and its reason."""
    return [claims_table(requested_audit(request).claims)]


@takes(Input.BENCHMARK)
def needed_gaps(request: ShowRequest) -> list[Table]:
    """How big a gap on a benchmark could and how big a gap must be significant, by baseline score."""
    found = request.value(BenchmarkGaps)
    return [cutoff_table(found.listed, found.benchmark, alpha=found.alpha)]


@takes(Input.CANDIDATES)
def citations(request: ShowRequest) -> list[Table]:
    """Papers by what they do with each benchmark."""
    return [funnel_table(requested_counts(request))]


@takes(Input.CANDIDATES)
def citation_months(request: ShowRequest) -> list[Table]:
    """Papers that report results on each benchmark, month by month."""
    return [month_table(requested_counts(request))]


@takes(Input.TWO_STORES)
def traces(request: ShowRequest) -> list[Table]:
    """Two runs of one plan: how a difference travelled through the loop, and whether they are bitwise equal."""
    return [trace_table([requested_traces(request)])]


@takes(Input.TWO_STORES)
def trace_channels(request: ShowRequest) -> list[Table]:
    """Two runs of one plan: what diverged, in how many episodes, and when first."""
    return [channel_table(requested_traces(request))]


@takes(Input.TWO_STORES)
def trace_targets(request: ShowRequest) -> list[Table]:
    """Two runs of one plan: which of the four reproduction targets they meet."""
    return [grade_table(requested_traces(request))]
