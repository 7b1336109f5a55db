"""The one way to an analysis: from a store or from episodes, with the plan that was declared for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.record import Store, read_store
from robotrials.verdict.analysis.analysis import Analysis
from robotrials.verdict.analysis.selection import select_episodes, select_store
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, DeclaredAnalysis, declared_analysis

if TYPE_CHECKING:
    from robotrials.record import Episode, Trajectory
    from robotrials.record.select import Where


def analyse(
    source: Store | Path | str | Iterable[Episode], *, where: Where | None = None, plan: AnalysisPlan | None = None,
    advance: Callable[[str, int, int], None] | None = None, title: str = '', **changes: Any,
) -> Analysis:  # fmt: skip
    """The analysis of a store (or its folder), or of episodes.

    `title` is the name that the user knows the source by, where that is no store's folder. `plan` declares one in
    Python; `changes` are fields of the plan that differ from what was declared, and every output says so. None leaves
    a field as it is.
    """
    if isinstance(source, str | Path):
        source = read_store(source)
    if isinstance(source, Store):
        selection = select_store(source, where=where)
        selection = replace(selection, source=title) if title else selection
        declared = declared_analysis(source.trial.plan, source.path)
    else:
        selection = select_episodes(source, source=title or 'episodes')
        declared = DeclaredAnalysis(AnalysisPlan())
    if plan is not None:
        declared = DeclaredAnalysis(plan, 'call')
    return Analysis(selection, declared.changed_by(**changes), advance=advance)


def analyse_pairs(pairs: Iterable[tuple[Episode, Trajectory | None]], *, source: str, **changes: Any) -> Analysis:
    """The analysis of episodes with their trajectories, read from files that are no store."""
    kept = list(pairs)
    selection = select_episodes([e for e, _ in kept], source=source, trajectories=[t for _, t in kept])
    return Analysis(selection, DeclaredAnalysis(AnalysisPlan()).changed_by(**changes))
