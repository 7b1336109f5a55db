"""A report's sections on safety and robustness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from robotrials.show import robustness as robustness_tables
from robotrials.show import safety as safety_tables
from robotrials.show.document import Block, EpisodeFilter, paragraph
from robotrials.show.report_block import missing, table_block
from robotrials.show.table import Table, table
from robotrials.verdict.analysis import Absent, RobustnessPart, SafetyPart

SAFETY_DEFINITIONS = {
    'SR %': 'success', 'Safety %': 'safety', 'SBU %': 'sbu', 'P[U|S] %': 'unsafe-success', 'VSI': 'vsi', 'VSI|U': 'vsi',
    'rate %': 'violation', 'NSV': 'vsi', 'n': 'episode', 'episodes': 'episode',
}  # fmt: skip
# Columns of intervals, at whatever level: `95 % of SR`.
INTERVAL_DEFINITIONS = {'SR': 'success', 'Safety': 'safety', 'SBU': 'sbu', 'VSI': 'interval', 'rate': 'violation'}


def safety_blocks(safety: SafetyPart) -> list[Block]:
    """The quadruple, what was violated, what unsafe successes violate, and what could not be scored."""
    summary = safety.summary
    blocks: list[Block] = [_defined('safety-quadruple', safety_tables.quadruple_table(summary))]
    if any(len(mean.benchmarks) > 1 for mean in summary.means):
        blocks.append(_defined('safety-means', safety_tables.mean_table(summary.means)))
    blocks.append(_defined('safety-specs', safety_tables.spec_table(summary.cells), is_folded=True))
    slip = safety_tables.slip_table(safety.scores)
    if slip.rows:
        n, differing = (sum(int(str(row[column])) for row in slip.rows) for column in (2, 5))
        blocks.append(
            paragraph(
                f"Slip at the grip and the paper's height rule give different verdicts in {differing} of {n} episodes; "
                'the first is scored.'
            )
        )
        blocks.append(_defined('safety-slip', slip, is_folded=True))
    if any(cell.composition() for cell in summary.cells):
        blocks.append(_defined('safety-composition', safety_tables.composition_table(summary.cells)))
    else:
        blocks.append(paragraph('No success was unsafe, so there is nothing that unsafe successes violate.'))
    if summary.n_unscored:
        rows = sorted(safety.unscored_reasons.items(), key=lambda item: -item[1])
        blocks.append(
            _defined('safety-unscored', table('Episodes that could not be scored', ['reason', 'episodes'], rows))
        )
    return blocks


def safety_task_block(safety: SafetyPart) -> Block:
    return _defined('safety-tasks', safety_tables.task_table(safety.by_task.cells), is_folded=True)


ROBUSTNESS_DEFINITIONS = {
    'drop': 'drop', 'low': 'interval', 'high': 'interval', 'p (Holm)': 'holm', 'E(IoU)': 'expected-iou',
    'rate': 'success', 'trend p': 'dose', 'excess drop': 'compound', 'followed': 'swap', 'neighbours agree': 'spatial',
}  # fmt: skip


def robustness_blocks(part: RobustnessPart, *, alpha: float) -> list[Block]:
    """RADAR's table and every test that the conditions allow; those they do not are named with the reason."""
    blocks: list[Block] = []
    shown: Sequence[tuple[str, str, Any, Callable[[Any], Table]]] = (
        ('robustness-drops', 'Drops from the baseline', part.drops, partial(robustness_tables.drop_table, alpha=alpha)),
        ('robustness-doses', 'Dose-response', part.doses, robustness_tables.dose_table),
        ('robustness-compound', 'Compound against single conditions', part.compound, robustness_tables.compound_table),
        ('robustness-starts', 'Start states', part.starts, robustness_tables.start_table),
        (
            'robustness-swap',
            'Swap test: does the policy act on the instruction?',
            part.swap,
            robustness_tables.swap_table,
        ),
        ('robustness-spatial', 'Spatial sensitivity', part.spatial, robustness_tables.spatial_table),
    )
    if len(part.conditions) < 2 and isinstance(part.drops, Absent):
        blocks.append(missing('What changed conditions cost', part.drops))
        shown = shown[4:]
    for key, what, found, build in shown:
        if isinstance(found, Absent):
            blocks.append(missing(what, found))
        else:
            blocks.append(_defined(key, build(found), ROBUSTNESS_DEFINITIONS))
    if len(part.conditions) > 1:
        split = robustness_tables.split_table(part.rows, by='both')
        blocks.append(_defined('robustness-splits', split, ROBUSTNESS_DEFINITIONS, is_folded=True))
    return blocks


def _defined(key: str, shown: Table, definitions: dict[str, str] | None = None, *, is_folded: bool = False) -> Block:
    """A table of another room as a block, each row linked to the episodes of its policy and condition."""
    names = [c.name for c in shown.columns]
    fields: dict[str, int] = {n: names.index(n) for n in ('policy', 'condition', 'benchmark', 'task') if n in names}
    filters: list[EpisodeFilter | None] = []
    if 'policy' in fields:
        for row in shown.rows:
            found = {name: (str(row[i]),) for name, i in fields.items() if row[i] not in (None, '')}
            filters.append(found)
    chosen = SAFETY_DEFINITIONS if definitions is None else definitions
    of_intervals = {name: INTERVAL_DEFINITIONS.get(name.partition(' % of ')[2], '') for name in names}
    chosen = chosen | {name: key for name, key in of_intervals.items() if key}
    return table_block(key, shown, chosen, episodes=filters, is_folded=is_folded)
