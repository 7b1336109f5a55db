"""Tables of the audit's reproducibility and citation parts."""

from __future__ import annotations

from collections.abc import Sequence

from robotrials.show.card import ALL, Card, brief
from robotrials.show.phrase import plural
from robotrials.show.table import Cell, Table, table
from robotrials.verdict.audit import Channel, CitationCounts, RunComparison, TraceComparison, Usage
from robotrials.verdict.audit.determinism import Control

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
    told = [
        f'{channel} at step {step} ({len(run.diverged(channel))}/{total} episodes)'
        for step, channel in sorted(steps, key=lambda pair: pair[0])
    ]
    return '; '.join(told)


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


def trace_table(runs: Sequence[RunComparison]) -> Table:
    """The layout of Table 10: one row a contrast."""
    rows: list[list[Cell]] = [
        [r.name or '(unnamed)', r.contrast, propagation_words(r), _bitwise(r), str(r.control)] for r in runs
    ]
    notes = [_control_note(r) for r in runs]
    note = ' '.join(dict.fromkeys(notes))
    columns = ['stack', 'hardware contrast', 'observed propagation', 'bitwise identical?', 'same-machine control']
    return table('Trace comparison', columns, rows, note=note)


def _bitwise(run: RunComparison) -> bool | None:
    return all(t.is_bitwise_equal for t in run.traces) if run.traces else None


def _control_note(run: RunComparison) -> str:
    if run.control is Control.DIVERGED:
        channels = ', '.join(run.control_channels)
        return (
            f'Control: the same-machine repeat diverges itself ({channels}), so the contrast shows nothing by itself.'
        )
    return CONTROL_NOTES[run.control]


def grade_table(run: RunComparison) -> Table:
    """The four reproduction targets."""
    rows = [(str(g.target), str(g.grade), g.evidence) for g in run.grades]
    return table('Reproduction targets', ['target', 'grade', 'evidence'], rows)


def channel_table(run: RunComparison) -> Table:
    """Each channel over all episodes: how many were compared, how many diverged, and when first."""
    rows: list[list[Cell]] = []
    for channel in Channel:
        steps = [t.first[channel] for t in run.traces if channel in t.first]
        compared = sum(channel in t.compared for t in run.traces)
        rows.append([str(channel), compared, len(steps) if compared else None, *_span(steps)])
    note = 'A dash: not recorded in both runs, or never diverged.'
    return table(
        'Divergence by channel', ['channel', 'compared', 'diverged', 'earliest step', 'latest'], rows, note=note
    )


def _span(steps: Sequence[int]) -> tuple[Cell, Cell]:
    return (min(steps), max(steps)) if steps else (None, None)


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


def funnel_table(counts: CitationCounts) -> Table:
    """The candidate funnel, one column a benchmark's tracker."""
    trackers = list(counts.trackers.values())
    by_usage: list[list[Cell]] = [[str(u), *(t.by_usage.get(u, 0) for t in trackers)] for u in reversed(Usage)]
    rows: list[list[Cell]] = [
        ['candidate rows', *(t.rows for t in trackers)],
        ['papers', *(t.papers for t in trackers)],
        *by_usage,
        ['held back for want of evidence', *(t.held_back for t in trackers)],
        ['without an arXiv id', *(t.without_arxiv_id for t in trackers)],
        ['of these, reporting results', *(t.reported_without_arxiv_id for t in trackers)],
        ['month read from the arXiv id', *(t.dated_by_id for t in trackers)],
    ]
    note = 'Only reports-results counts. Papers without an arXiv id are not in the months.'
    if counts.conflicts:
        note += (
            f' {len(counts.conflicts)} groups carry two arXiv ids and need a look: {"; ".join(counts.conflicts[:5])}.'
        )
    return table('Citation trackers', ['', *(t.benchmark for t in trackers)], rows, note=note)


def month_table(counts: CitationCounts) -> Table:
    """New and cumulative papers that report results, by month of first arXiv posting."""
    rows = [
        (t.benchmark, m.month, m.candidates, m.reported, m.cumulative)
        for t in counts.trackers.values()
        for m in t.months
    ]
    columns = ['benchmark', 'month', 'candidates', 'reporting', 'cumulative']
    return table('Months of first arXiv posting', columns, rows)
