"""Tables of a leaderboard's audit: classes, shares, coverage, roundings, and every claim with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from robotrials.show.audit import CLASS_WORDS
from robotrials.show.card import ALL, Card
from robotrials.show.phrase import plural
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.audit import Classification, LeaderboardAudit
from robotrials.verdict.audit.leaderboard import FAMILIES, Claim, Obstacle

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
