"""What the sections of a report share: blocks of tables with their definitions, links to episodes, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robotrials.show.document import EpisodeFilter, Missing, TableBlock
from robotrials.show.figure_mark import of_policies
from robotrials.show.table import Table
from robotrials.verdict.analysis import Absent, Analysis, ComparisonFrame

__all__ = ['missing', 'of_policies', 'shown_order', 'table_block']


def missing(what: str, absent: Absent) -> Missing:
    return Missing(what, absent.reason, absent.remedy)


def table_block(
    key: str, shown: Table, definitions: Mapping[str, str], *, episodes: Sequence[EpisodeFilter | None] = (),
    policy: str = 'policy', stratum: str = '', is_folded: bool = False,
    cells: Mapping[tuple[int, str], EpisodeFilter] | None = None,
) -> TableBlock:  # fmt: skip
    """A block that keeps only the definitions of columns that the table has."""
    names = {c.name for c in shown.columns}
    return TableBlock(
        key, shown, {k: v for k, v in definitions.items() if k in names}, tuple(episodes),
        policy if policy in names else '', stratum if stratum in names else '', is_folded,
        cells or {},
    )  # fmt: skip


def shown_order(analysis: Analysis, frame: ComparisonFrame) -> tuple[str, ...]:
    """The reference, then the ranked policies by the first primary endpoint, best first; policies apart come last."""
    pairs = analysis.pairs
    ranked = frame.policies
    if not isinstance(pairs, Absent) and not isinstance(pairs.lead, Absent):
        ranked = pairs.lead.policies
    elif not isinstance(analysis.ranking, Absent):
        ranked = analysis.ranking.order
    return (*((frame.reference,) if frame.reference else ()), *ranked)
