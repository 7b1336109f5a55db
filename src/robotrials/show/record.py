"""Tables of the record itself: episodes, counts, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.record import Episode, Outcome
from robotrials.show.table import Cell, Column, Table, table, without_empty

if TYPE_CHECKING:
    from robotrials.formats.attach import AttachmentPlan
    from robotrials.record.verify import Finding


def episode_table(episodes: Sequence[Episode], *, title: str, note: str = '') -> Table:
    """One line an episode; columns that are empty throughout are left out."""
    columns: list[str | Column] = [
        'episode_id', 'attempt', 'policy', 'task', 'stratum', 'condition', 'seed', 'instance', 'outcome',
        Column('duration_s', '.2f'), 'items', 'items_placed', 'reason',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [e.episode_id, e.attempt, e.policy, e.task, e.stratum or None, e.condition, e.seed, e.instance, e.outcome.value,
         e.duration_s, e.items, e.items_placed, e.reason or None]
        for e in episodes
    ]  # fmt: skip
    return without_empty(table(title, columns, rows, note=note))


def count_tables(episodes: Iterable[Episode], *, n_dropped: int) -> list[Table]:
    """Outcomes by policy and stratum, then the totals; INVALID episodes are counted apart."""
    cells: dict[tuple[str, str], Counter[Outcome]] = {}
    events: Counter[str] = Counter()
    references: set[str] = set()
    for episode in episodes:
        cells.setdefault((episode.policy, episode.stratum or episode.task), Counter())[episode.outcome] += 1
        events.update(e.kind.value for e in episode.events)
        if episode.is_reference:
            references.add(episode.policy)
    header = ['policy', 'stratum', 'episodes', *(o.value for o in Outcome)]
    rows: list[list[Cell]] = []
    for (policy, stratum), counts in sorted(cells.items()):
        valid = sum(n for outcome, n in counts.items() if outcome is not Outcome.INVALID)
        name = f'{policy} (reference)' if policy in references else policy
        rows.append([name, stratum, valid, *(counts[o] for o in Outcome)])
    note = f'episodes counts the valid ones; {n_dropped} dropped by edits are in none of the columns'
    shown = [table('Episodes by policy and stratum', header, rows, note=note)]
    if events:
        shown.append(table('Events', ['kind', 'count'], sorted(events.items())))
    return shown


def attachment_table(plan: AttachmentPlan) -> Table:
    """How each source's clock meets the store's, and what an operator's marks say of it."""
    rows: list[list[Cell]] = [
        [s.path.name, len(s.spans), sum(map(len, s.held.values())), s.join.offset_s, s.join.drift * 1e6,
         s.join.start_gap_s, s.join.spread_s, s.join.how]
        for s in (*plan.telemetry, *plan.films)
    ]  # fmt: skip
    columns: list[str | Column] = [
        'source', 'recordings', 'episodes', Column('offset (s)', '+.3f'), Column('drift (ppm)', '+.0f'),
        Column('begins after (s)', '+.2f'), Column('scatter (s)', '.2f'), 'how',
    ]  # fmt: skip
    lags = sorted(plan.lags_s)
    note = f'{len(plan.keys)} of {len(plan.episodes)} episodes get a trajectory. offset: what their clock is ahead by'
    if lags:
        quarter = len(lags) // 4
        note += (
            f'. The operator marked {len(lags)} placements, {lags[len(lags) // 2]:.2f} s after the nearest release in '
            f'the telemetry (half of them from {lags[quarter]:.2f} to {lags[-1 - quarter]:.2f} s)'
        )
    return table('Joined by their clocks', columns, rows, note=note)


def finding_table(findings: Sequence[Finding], *, root: Path) -> Table:
    """What a check of a store found, damage first."""
    ordered = sorted(findings, key=lambda f: (not f.is_damage, f.path))
    rows = [[f.kind.value, _relative(f.path, root), f.detail] for f in ordered]
    return table(
        'Findings', ['kind', 'file', 'detail'], rows, note='leftovers are harmless; compaction removes old ones'
    )


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
