"""Two runs of one plan, recorded twice: what diverged first, how it travelled, which targets of reproduction hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable
from robotrials.show.card import ALL, Card, brief
from robotrials.show.figure import PAGE_WIDTH_IN, THING_PALETTE
from robotrials.show.phrase import plural
from robotrials.show.plot import Axis, Curve, GuideLine, Layer, Note, Plot, Sheet, facets
from robotrials.show.plot_paper import paint_paper
from robotrials.show.request import ShowRequest, named, takes
from robotrials.show.table import Cell, Table, table
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.audit import Channel, RunComparison, TraceComparison
from robotrials.verdict.audit.determinism import Control

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTROL_NOTES = {
    Control.MISSING: (
        'Control missing: without a same-machine repeat, a divergence cannot be laid to the change of hardware.'
    ),
    Control.IDENTICAL: 'Control: the same-machine repeat is bitwise identical in all that was recorded.',
}


SHORT_CHANNELS = {
    Channel.STATE: 'state', Channel.CONTACTS: 'contacts', Channel.PIXELS: 'pixels', Channel.ACTION_RAW: 'raw',
    Channel.ACTION_PROCESSED: 'processed', Channel.REWARD: 'reward', Channel.DONE: 'done', Channel.LENGTH: 'length',
    Channel.SUCCESS: 'success',
}  # fmt: skip


def propagation_words(run: RunComparison) -> str:
    """How a difference travelled through the loop, earliest first."""
    total = len(run.traces)
    if not total:
        return 'no trajectories recorded in both runs'
    steps = [(step, c) for c in Channel if (step := run.first_step(c)) is not None]
    if not steps:
        return f'0/{total} episode pairs diverged'
    parts = [
        f'{channel} at step {step} ({len(run.diverged(channel))}/{total} episodes)'
        for step, channel in sorted(steps, key=lambda pair: pair[0])
    ]
    return '; '.join(parts)


def trace_card(run: RunComparison) -> Card:
    """Whether two runs are bit for bit the same, where they part first, and which targets they meet."""
    total, differing = len(run.traces), sum(not t.is_bitwise_equal for t in run.traces)
    if not total:
        verdict = 'Nothing can be said of traces: no trajectories recorded in both runs.'
    elif differing:
        verdict = f'{differing} of {plural(total, "episode pair")} diverged.'
    else:
        verdict = f'No divergence in what was recorded of {plural(total, "episode pair")}.'
    ends = sum(t.is_outcome_equal for t in run.traces)
    rows = [('outcomes', f'{ends} of {total} episode pairs end alike')] if total else []
    steps = sorted((step, c) for c in Channel if (step := run.first_step(c)) is not None)
    rows += [(str(c), f'from step {step}, in {len(run.diverged(c))} of {total} episodes') for step, c in steps]
    rows += [(str(g.target), f'{g.grade}: {brief(g.evidence)}') for g in run.grades]
    return Card(
        title=run.name or 'Two runs of one plan', scope=run.contrast, verdict=(verdict,), rows=tuple(rows),
        notes=(_control_note(run),), more=(ALL, '--episodes'),
    )  # fmt: skip


@named(lambda r: [r.value(RunComparison)], wants=Input.TWO_STORES)
def trace_table(runs: Sequence[RunComparison]) -> Table:
    """Two runs of one plan: how a difference travelled through the loop, and whether they are bitwise equal."""
    rows: list[list[Cell]] = [
        [r.name or '(unnamed)', r.contrast, propagation_words(r),
         all(t.is_bitwise_equal for t in r.traces) if r.traces else None, str(r.control)]
        for r in runs
    ]  # fmt: skip
    notes = [_control_note(r) for r in runs]
    note = ' '.join(dict.fromkeys(notes))
    columns = ['stack', 'hardware contrast', 'observed propagation', 'bitwise identical?', 'same-machine control']
    return table('Trace comparison', columns, rows, note=note)


def _control_note(run: RunComparison) -> str:
    if run.control is Control.DIVERGED:
        channels = ', '.join(run.control_channels)
        return (
            f'Control: the same-machine repeat diverges itself ({channels}), so the contrast shows nothing by itself.'
        )
    return CONTROL_NOTES[run.control]


@named(lambda r: r.value(RunComparison), wants=Input.TWO_STORES)
def grade_table(run: RunComparison) -> Table:
    """Two runs of one plan: which of the four reproduction targets they meet."""
    rows = [(str(g.target), str(g.grade), g.evidence) for g in run.grades]
    return table('Reproduction targets', ['target', 'grade', 'evidence'], rows)


@named(lambda r: r.value(RunComparison), wants=Input.TWO_STORES)
def channel_table(run: RunComparison) -> Table:
    """Two runs of one plan: what diverged, in how many episodes, and when first."""
    rows: list[list[Cell]] = []
    for channel in Channel:
        steps = [t.first[channel] for t in run.traces if channel in t.first]
        compared = sum(channel in t.compared for t in run.traces)
        first, last = (min(steps), max(steps)) if steps else (None, None)
        rows.append([str(channel), compared, len(steps) if compared else None, first, last])
    note = 'A dash: not recorded in both runs, or never diverged.'
    return table(
        'Divergence by channel', ['channel', 'compared', 'diverged', 'earliest step', 'latest'], rows, note=note
    )


def divergence_table(run: RunComparison) -> Table:
    """The first divergent step of every channel in every episode."""
    columns = ['task', *SHORT_CHANNELS.values(), 'episode']
    rows: list[list[Cell]] = [[t.task, *(_step(t, c) for c in SHORT_CHANNELS), t.episode_id] for t in run.traces]
    note = (
        'The first step that differs; "=" if none does; a dash if it was not recorded in both runs. '
        'Raw and processed are the actions.'
    )
    return table('First divergence', columns, rows, note=note)


def _step(trace: TraceComparison, channel: Channel) -> Cell:
    if channel in trace.first:
        return str(trace.first[channel])
    return '=' if channel in trace.compared else None


def metadata_table(run: RunComparison) -> Table:
    """What Appendix B.3 asks to be released, checked off."""
    rows = [(m.item, m.recorded_a, m.recorded_b, m.is_same) for m in run.metadata]
    missing = ', '.join(run.missing_metadata)
    note = f'Missing: {missing}.' if missing else 'Nothing is missing.'
    return table('Metadata', ['item', 'run A', 'run B', 'same'], rows, note=note)


# How a divergence grows, step by step.

GROWTH_COLORS = {
    Channel.STATE: THING_PALETTE[0], Channel.PIXELS: THING_PALETTE[3], Channel.ACTION_RAW: THING_PALETTE[2],
    Channel.ACTION_PROCESSED: THING_PALETTE[1],
}  # fmt: skip


def growth_plot(trace: TraceComparison) -> Plot:
    """How a divergence grows, as in Figure 6: L-infinity for state and actions, mean absolute difference for images.

    Zeros are drawn at the floor of the logarithmic scale; a dotted line says where a channel first differs.
    """
    floor = min((v for curve in trace.growth.values() for v in curve.tolist() if v > 0), default=1e-16) / 10
    layers: list[Layer] = []
    for channel, curve in trace.growth.items():
        values = [max(v, floor) for v in curve.tolist()]
        dash = '--' if channel is Channel.ACTION_PROCESSED else '-'  # it often lies on the raw action
        color = GROWTH_COLORS[channel]
        layers.append(Curve('', range(len(values)), values, name=str(channel), color=color, dash=dash, width=1.1))
    first: dict[int, list[str]] = {}
    for channel, step in trace.first.items():
        first.setdefault(step, []).append(str(channel))
    for number, (step, names) in enumerate(sorted(first.items())):
        is_late = step > 0.45 * max(trace.steps)
        layers += [
            GuideLine(x=step, color='#7F7F7F', dash=':', width=0.6),
            Note(', '.join(names), step, 0.98 - 0.09 * (number % 4), size='x-small', is_share=(False, True),
                 align=('right' if is_late else 'left', 'top'), shift_pt=-2 if is_late else 2),
        ]  # fmt: skip
    return Plot(
        'divergence', trace.task, facets({trace.task: layers}), Axis('step'),
        Axis('difference (zeros at the floor)', is_log=True), sheet=Sheet(PAGE_WIDTH_IN * 0.75, 2.6),
    )  # fmt: skip


@takes(Input.TWO_STORES)
def draw_divergence(request: ShowRequest) -> Figure:
    """How the difference between two runs of one plan grows in states, images and actions, step by step."""
    traces = request.value(RunComparison).traces
    drawn = next((t for t in traces if t.first and t.growth), next(iter(traces), None))
    if drawn is None or not drawn.growth:
        raise NotEstimable('no trajectory with states, actions or frames in both runs; nothing to draw')
    return paint_paper(growth_plot(drawn))


# Tables by name, from two stores.
