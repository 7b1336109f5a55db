"""A leaderboard and the papers behind it: which claimed gains hold, why some cannot be judged, who cites what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robotrials.show.answer import ALL, Card
from robotrials.show.audit import CLASS_COLORS, CLASS_WORDS
from robotrials.show.catalog import named
from robotrials.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, add_legend, figure_width_in, new_figure
from robotrials.show.phrase import plural
from robotrials.show.plot import THING_PALETTE, Axis, Curve, Plot, Sheet, facets
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.audit import BenchmarkUsage, CitationCounts, Classification, LeaderboardAudit
from robotrials.verdict.audit.leaderboard import FAMILIES, Obstacle, PaperClaim

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@named(lambda r: r.value(CitationCounts), wants=Input.CANDIDATES)
def funnel_table(counts: CitationCounts) -> Table:
    """Papers by what they do with each benchmark."""
    trackers = list(counts.trackers.values())
    by_usage: list[list[Cell]] = [[str(u), *(t.by_usage.get(u, 0) for t in trackers)] for u in reversed(BenchmarkUsage)]
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


@named(lambda r: r.value(CitationCounts), wants=Input.CANDIDATES)
def month_table(counts: CitationCounts) -> Table:
    """Papers that report results on each benchmark, month by month."""
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
        words = ', '.join(f'{s.counts[c]} {CLASS_HEADINGS[c]}' for c in Classification if s.counts.get(c))
        rows.append((f'{FAMILIES[s.family]}, {s.rule}', f'{s.judged} judged: {words}'))
    return Card(
        title='Leaderboard', scope=f'{audit.entries:,} entries, one-sided level {float(audit.alpha):g}',
        verdict=(verdict,), rows=tuple(rows), notes=(PAPER_DIFFERENCES,), more=(ALL, '--set-aside', '--csv claims.csv'),
    )  # fmt: skip


@named(lambda r: r.value(LeaderboardAudit), wants=Input.LEADERBOARD)
def count_table(audit: LeaderboardAudit) -> Table:
    """How many claimed gains are impossible, inconclusive or provably significant, by benchmark."""
    columns = ['benchmark', 'rule', 'judged', *(CLASS_HEADINGS[c] for c in Classification)]
    rows: list[list[Cell]] = [
        [FAMILIES[s.family], str(s.rule), s.judged, *(s.counts.get(c, 0) for c in Classification)]
        for s in audit.shares()
    ]
    note = 'no gain: no improvement. open: inconclusive. significant: guaranteed by the two averages.'
    return table(f'Claims judged, one-sided level {float(audit.alpha):g}', columns, rows, note=note)


@named(lambda r: r.value(LeaderboardAudit), wants=Input.LEADERBOARD)
def share_table(audit: LeaderboardAudit) -> Table:
    """The same in percent of the claims that can be judged."""
    columns: list[str | Column] = ['benchmark', 'rule', *(Column(CLASS_HEADINGS[c], '.1f') for c in Classification)]
    rows: list[list[Cell]] = []
    for shares in audit.shares():
        parts = [shares.share(c) for c in Classification]
        percents = [None if part is None else 100 * float(part) for part in parts]
        rows.append([FAMILIES[shares.family], str(shares.rule), *percents])
    return table('Shares of judged claims (%)', columns, rows, note=PAPER_DIFFERENCES)


@named(lambda r: r.value(LeaderboardAudit), wants=Input.LEADERBOARD)
def rounding_table(audit: LeaderboardAudit) -> Table:
    """How many judged claims rest on a score that no single pass can print."""
    rows: list[list[Cell]] = [
        [FAMILIES[s.family], str(s.rule), s.judged, s.rounded, s.unprintable, s.tie_decided] for s in audit.shares()
    ]
    note = (
        'No whole count: as printed. No single pass: no count prints so, as with averages over seeds. Scores go to the '
        'nearest count, half counts up; the CSV says what the other way gives.'
    )
    columns = ['benchmark', 'rule', 'judged', 'no whole count', 'no single pass', 'a tie decides']
    return table('Rounding (C.7)', columns, rows, note=note)


@named(lambda r: r.value(LeaderboardAudit), wants=Input.LEADERBOARD)
def coverage_table(audit: LeaderboardAudit) -> Table:
    """How many papers of the leaderboard have a baseline to be judged by."""
    rows = [(FAMILIES[c.family], c.own_papers, c.with_baseline_row, c.with_any_baseline) for c in audit.coverage]
    columns = ['benchmark', 'papers with an own score', 'with a baseline row', 'or a copied score']
    return table('Coverage', columns, rows)


@named(lambda r: r.value(LeaderboardAudit), wants=Input.LEADERBOARD)
def obstacle_table(audit: LeaderboardAudit) -> Table:
    """Why claims could not be judged."""
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


@named(lambda r: r.value(LeaderboardAudit).claims, wants=Input.LEADERBOARD)
def claims_table(claims: Sequence[PaperClaim]) -> Table:
    """Every comparison of the leaderboard with its class and its reason."""
    columns = [
        'rule', 'benchmark', 'suite', 'paper', 'model', 'score', 'baseline paper', 'baseline model', 'baseline score',
        'copied', 'count', 'baseline count', 'gap', 'class', 'smallest feasible', 'smallest guaranteed', 'set aside',
        'detail',
    ]  # fmt: skip
    return table('Claims', columns, [_claim_row(claim) for claim in claims])


def set_aside_table(claims: Sequence[PaperClaim]) -> Table:
    """The claims that could not be judged, each with why."""
    rows = [
        (c.paper, c.model, _suite(c), str(c.rule), str(c.obstacle), c.detail) for c in claims if c.obstacle is not None
    ]
    return table('Set aside', ['paper', 'model', 'suite', 'rule', 'why', 'detail'], rows)


def _suite(claim: PaperClaim) -> str:
    return claim.benchmark.name if claim.benchmark else FAMILIES[claim.family]


def _claim_row(claim: PaperClaim) -> list[Cell]:
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


# Figures and tables by name, from a leaderboard or from tables of papers.


@named(lambda r: r.value(LeaderboardAudit), wants=Input.LEADERBOARD)
def share_pies(audit: LeaderboardAudit) -> Figure:
    """Claimed gains of a leaderboard: no improvement, impossible, inconclusive or provably significant, as pies.

    One pie per benchmark and rule, as in Figure 3.
    """
    shares = [s for s in audit.shares() if s.judged]
    rules = list(dict.fromkeys(s.rule for s in shares))
    families = list(dict.fromkeys(s.family for s in shares))
    columns = min(len(families), max(2, int(figure_width_in() / 1.15)))
    bands = -(-len(families) // columns)
    figure = new_figure(PAGE_WIDTH_IN, 1.6 * len(rules) * bands + 0.3, is_rows=True)
    grid = figure.subplots(len(rules) * bands, columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    for share in shares:
        band, column = divmod(families.index(share.family), columns)
        axes = grid[rules.index(share.rule) * bands + band][column]
        present = [c for c in Classification if share.counts.get(c)]
        axes.pie(
            [share.counts[c] for c in present],
            colors=[CLASS_COLORS[c] for c in present],
            autopct=lambda percent: f'{percent:.0f}%' if percent >= 6 else '',
            startangle=90,
            radius=1.1,
            counterclock=False,
            wedgeprops={'linewidth': 0.5, 'edgecolor': 'white'},
            textprops={'fontsize': 'x-small'},
        )
        axes.set_title(f'{FAMILIES[share.family]}\n{share.rule}, n = {share.judged}', fontsize='small', pad=0)
    handles = [figure.axes[0].scatter([], [], color=CLASS_COLORS[c], marker='s', s=24) for c in Classification]
    add_legend(figure, handles, [CLASS_WORDS[c] for c in Classification])
    return figure


@named(lambda r: r.value(CitationCounts), wants=Input.CANDIDATES)
def citation_plot(counts: CitationCounts) -> Plot:
    """Papers that report results on each benchmark, added up by month of first posting."""
    months = sorted({m.month for t in counts.trackers.values() for m in t.months})
    place = {month: i for i, month in enumerate(months)}
    curves = [
        Curve(
            '', [place[m.month] for m in t.months], [m.cumulative for m in t.months], is_step=True, width=1.2,
            name=f'{t.benchmark} ({t.months[-1].cumulative})', color=THING_PALETTE[i % len(THING_PALETTE)],
        )
        for i, t in enumerate(counts.trackers.values()) if t.months
    ]  # fmt: skip
    ticks = [i for i, month in enumerate(months) if month.endswith(('-01', '-07'))] or list(range(len(months)))
    return Plot(
        'citations', 'Papers by month', facets(curves), Axis(names={i: months[i] for i in ticks}),
        Axis('papers reporting results', (0.0, None)), sheet=Sheet(COLUMN_WIDTH_IN * 1.3, 2.6),
    )  # fmt: skip
