"""Tables of the audit's reproducibility and citation parts."""

from __future__ import annotations

from collections.abc import Sequence

from robotrials.show.audit import CLASS_WORDS
from robotrials.show.card import ALL, Card, brief
from robotrials.show.phrase import plural
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.audit import (
    Channel,
    CitationCounts,
    Classification,
    LeaderboardAudit,
    RunComparison,
    TraceComparison,
    Usage,
)
from robotrials.verdict.audit.determinism import Control
from robotrials.verdict.audit.leaderboard import FAMILIES, Claim, Obstacle

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


# Tables of a leaderboard's audit: classes, shares, coverage, roundings, and every claim with its reason.

PAPER_DIFFERENCES = (
    'Not the data of the paper: these entries come from a public leaderboard file, curated by a language model, '
    'without episode counts or intervals; a baseline is a row that the file has for the same paper. The paper took its '
    'baselines from the papers themselves, and pools three LIBERO suites that it does not name. Its shares cannot be '
    'reproduced from this file.'
)


CLASS_HEADINGS = {
    Classification.NO_IMPROVEMENT: 'no gain',
    Classification.IMPOSSIBLE: 'impossible',
    Classification.INCONCLUSIVE: 'open',
    Classification.GUARANTEED: 'significant',
}


def leaderboard_card(audit: LeaderboardAudit) -> Card:
    """How many claimed gains the two averages alone prove, for every benchmark and rule."""
    shares = [s for s in audit.shares() if s.judged]
    judged = sum(s.judged for s in shares)
    sure = sum(s.counts.get(Classification.GUARANTEED, 0) for s in shares)
    verdict = f'{sure} of {plural(judged, "judged claim")} are significant by their two averages alone.'
    rows = []
    for s in shares:
        told = ', '.join(f'{s.counts[c]} {CLASS_HEADINGS[c]}' for c in Classification if s.counts.get(c))
        rows.append((f'{FAMILIES[s.family]}, {s.rule}', f'{s.judged} judged: {told}'))
    return Card(
        title='Leaderboard', scope=f'{audit.entries:,} entries, one-sided level {float(audit.alpha):g}',
        verdict=(verdict,), rows=tuple(rows), notes=(PAPER_DIFFERENCES,), more=(ALL, '--set-aside', '--csv claims.csv'),
    )  # fmt: skip


def count_table(audit: LeaderboardAudit) -> Table:
    """How many claims fell into each class, for every benchmark and rule."""
    columns = ['benchmark', 'rule', 'judged', *(CLASS_HEADINGS[c] for c in Classification)]
    rows: list[list[Cell]] = [
        [FAMILIES[s.family], str(s.rule), s.judged, *(s.counts.get(c, 0) for c in Classification)]
        for s in audit.shares()
    ]
    note = 'no gain: no improvement. open: inconclusive. significant: guaranteed by the two averages.'
    return table(f'Claims judged, one-sided level {float(audit.alpha):g}', columns, rows, note=note)


def share_table(audit: LeaderboardAudit) -> Table:
    """The classes as percentages of the judged claims."""
    columns: list[str | Column] = ['benchmark', 'rule', *(Column(CLASS_HEADINGS[c], '.1f') for c in Classification)]
    rows: list[list[Cell]] = []
    for shares in audit.shares():
        parts = [shares.share(c) for c in Classification]
        percents = [None if part is None else 100 * float(part) for part in parts]
        rows.append([FAMILIES[shares.family], str(shares.rule), *percents])
    return table('Shares of judged claims (%)', columns, rows, note=PAPER_DIFFERENCES)


def rounding_table(audit: LeaderboardAudit) -> Table:
    """How many judged claims rest on a rounded score, and on which way a half count went."""
    rows: list[list[Cell]] = [
        [FAMILIES[s.family], str(s.rule), s.judged, s.rounded, s.unprintable, s.tie_decided] for s in audit.shares()
    ]
    note = (
        'No whole count: as printed. No single pass: no count prints so, as with averages over seeds. Scores go to the '
        'nearest count, half counts up; the CSV says what the other way gives.'
    )
    columns = ['benchmark', 'rule', 'judged', 'no whole count', 'no single pass', 'a tie decides']
    return table('Rounding (C.7)', columns, rows, note=note)


def coverage_table(audit: LeaderboardAudit) -> Table:
    """How many papers' claims the file lets us judge by their own baselines."""
    rows = [(FAMILIES[c.family], c.own_papers, c.with_baseline_row, c.with_any_baseline) for c in audit.coverage]
    columns = ['benchmark', 'papers with an own score', 'with a baseline row', 'or a copied score']
    return table('Coverage', columns, rows)


def obstacle_table(audit: LeaderboardAudit) -> Table:
    """Why claims were set aside."""
    columns = ['benchmark', 'rule', *(OBSTACLE_WORDS[o] for o in Obstacle)]
    rows: list[list[Cell]] = [
        [FAMILIES[s.family], str(s.rule), *(s.unjudged.get(o, 0) for o in Obstacle)] for s in audit.shares()
    ]
    return table('Claims that could not be judged', columns, rows)


OBSTACLE_WORDS = {
    Obstacle.NO_SCORE: 'no score',
    Obstacle.NO_BASELINE: 'no baseline',
    Obstacle.SAMPLES: 'other S',
    Obstacle.NOT_REALIZABLE: 'not realizable',
    Obstacle.OUT_OF_RANGE: 'out of range',
}


def claims_table(claims: Sequence[Claim]) -> Table:
    """Every comparison with its reason."""
    columns = [
        'rule', 'benchmark', 'suite', 'paper', 'model', 'score', 'baseline paper', 'baseline model', 'baseline score',
        'copied', 'count', 'baseline count', 'gap', 'class', 'smallest feasible', 'smallest guaranteed', 'set aside',
        'detail',
    ]  # fmt: skip
    return table('Claims', columns, [_claim_row(claim) for claim in claims])


def set_aside_table(claims: Sequence[Claim]) -> Table:
    """The claims that could not be judged, each with why."""
    rows = [
        (
            c.paper,
            c.model,
            c.benchmark.name if c.benchmark else FAMILIES[c.family],
            str(c.rule),
            str(c.obstacle),
            c.detail,
        )
        for c in claims
        if c.obstacle is not None
    ]
    return table('Set aside', ['paper', 'model', 'suite', 'rule', 'why', 'detail'], rows)


def _suite(claim: Claim) -> str:
    return claim.benchmark.name if claim.benchmark else FAMILIES[claim.family]


def _claim_row(claim: Claim) -> list[Cell]:
    reading = claim.reading
    return [
        str(claim.rule), FAMILIES[claim.family], claim.benchmark.name if claim.benchmark else None, claim.paper,
        claim.model, claim.score.text if claim.score else None, claim.baseline_paper or None,
        claim.baseline_model or None, claim.baseline_score.text if claim.baseline_score else None,
        claim.baseline_is_copied if claim.baseline_score else None, reading.count_b if reading else None,
        reading.count_a if reading else None, reading.gap_count if reading else None,
        CLASS_WORDS[reading.classification] if reading else None, reading.smallest_feasible if reading else None,
        reading.smallest_guaranteed if reading else None, str(claim.obstacle) if claim.obstacle else None,
        claim.detail or None,
    ]  # fmt: skip
