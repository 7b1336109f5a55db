"""A trial's report as a document: the verdict, then everything it rests on."""

from __future__ import annotations

from collections.abc import Iterable

from trialist import __version__
from trialist.analysis import Absent, Ranking, SafetyPart, TrialReport
from trialist.episodes import Episode
from trialist.show import report_chart as charts
from trialist.show.document import (
    Block,
    ChartBlock,
    Document,
    Section,
    TableBlock,
    paragraph,
    section,
    used_definitions,
)
from trialist.show.figure import policy_colors
from trialist.show.glossary import glossary
from trialist.show.phrase import only_text, plural
from trialist.show.report_lead import lead
from trialist.show.report_method import method_section, methods_works
from trialist.show.report_quality import provenance_section, quality_section
from trialist.show.report_ranking import (
    cell_block,
    failure_blocks,
    missing,
    ranking_blocks,
    resolution_section,
    task_block,
)
from trialist.show.report_safety import robustness_blocks, safety_blocks, safety_task_block
from trialist.show.table import Cell, Column, Table, table, without_empty


def trial_document(report: TrialReport, *, explorer_url: str = '') -> Document:
    """The whole report. Numbers are those of `report`; nothing is computed here."""
    marked = report.marked_reference
    everyone = policy_colors(report.every_policy, reference=marked)
    colors = {arm.policy: everyone[arm.policy] for arm in report.quality.arms}
    sections = _sections(report, colors)
    told = lead(report)
    known = glossary()
    definitions = known.of(used_definitions([*told, *(b for s in sections for b in s.blocks)]))
    return Document(
        title=report.trial.title or 'Trial report', subtitle=_subtitle(report), lead=told, sections=tuple(sections),
        glossary=definitions, references=known.cited(definitions.values(), also=methods_works(report)), colors=colors,
        reference_policy=marked if marked in colors else '', episodes=episode_list(report.episodes),
        source=report.source, selection=report.selection, explorer_url=explorer_url,
        footer=f'trialist {__version__}; seed {report.options.seed}; {report.options.n_resamples} resamples; '
        f'alpha = {report.options.alpha:g}.',
    )  # fmt: skip


def _subtitle(report: TrialReport) -> str:
    quality = report.quality
    n = sum(arm.n_valid for arm in quality.arms)
    strata, policies = plural(len(quality.strata), 'stratum'), plural(len(quality.arms), 'policy')
    plan = f' · plan {report.trial.plan_hash[:12]}' if report.trial.plan_hash else ''
    return f'{policies}, {strata}, {plural(n, "valid episode")}{plan}{only_text(report.selection)}'


def _sections(report: TrialReport, colors: dict[str, str]) -> list[Section]:
    made = _timing_sections(report, colors)
    safety_at = 3 if isinstance(report.ranking, Ranking) else 1
    made[safety_at:safety_at] = [_safety_section(report, colors), _robustness_section(report, colors)]
    return [*made, quality_section(report), provenance_section(report), method_section(report)]


def _timing_sections(report: TrialReport, colors: dict[str, str]) -> list[Section]:
    ranking = report.ranking
    if isinstance(ranking, Absent):
        return [section('ranking', 'Ranking', [missing('Time to success', ranking)])]
    taken = []
    if len(report.quality.conditions) > 1:
        told = f'condition {ranking.condition}' if ranking.condition else 'all conditions taken together'
        taken = [paragraph(f'Ranked by the episodes of {told}.')]
    cells: list[Block] = [ChartBlock(charts.success_grid(ranking)), cell_block(ranking)]
    tasks = _task_blocks(report, ranking)
    return [
        section('ranking', 'Ranking', [
            *taken, ChartBlock(charts.ranking_chart(ranking, colors)), *ranking_blocks(ranking)
        ]),
        section('curves', 'Success by time', [ChartBlock(charts.curve_chart(ranking, colors))]),
        resolution_section(ranking),
        section('failures', 'Failure modes', [
            ChartBlock(charts.failure_chart(ranking.failures, ranking.policies)), *failure_blocks(ranking)
        ]),
        section('cells', 'Every cell', cells),
        section('tasks', 'Every task', tasks),
    ]  # fmt: skip


def _task_blocks(report: TrialReport, ranking: Ranking) -> list[Block]:
    by_task = task_block(ranking)
    blocks: list[Block] = [by_task or paragraph('Each task is a stratum of its own: the cells above are its rows.')]
    if isinstance(report.safety, SafetyPart):
        blocks.append(safety_task_block(report.safety))
    return blocks


def _safety_section(report: TrialReport, colors: dict[str, str]) -> Section:
    if isinstance(report.safety, Absent):
        return section('safety', 'Safety', [missing('Safety', report.safety)])
    chart = ChartBlock(charts.pareto_chart(report.safety, colors))
    return section('safety', 'Safety', [chart, *safety_blocks(report.safety)])


def _robustness_section(report: TrialReport, colors: dict[str, str]) -> Section:
    part = report.robustness
    if isinstance(part, Absent):
        return section('robustness', 'Robustness', [missing('Robustness', part)])
    drawn: list[Block] = []
    if not isinstance(part.drops, Absent):
        drawn.append(ChartBlock(charts.drop_chart(part.drops, colors)))
    if not isinstance(part.doses, Absent):
        drawn.append(ChartBlock(charts.dose_chart(part.doses, colors, level=report.options.level)))
    return section('robustness', 'Robustness', [*drawn, *robustness_blocks(part, alpha=report.options.alpha)])


def episode_list(episodes: Iterable[Episode]) -> Table:
    """Every counted episode in one row, for the list that claims link into; columns that nobody fills are left out."""
    columns: list[str | Column] = [
        'episode', 'policy', 'benchmark', 'stratum', 'task', 'condition', 'seed', 'instance', 'outcome',
        Column('duration_s', '.2f'), 'reason',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [e.episode_id[:12], e.policy, e.benchmark or None, e.stratum or e.task, e.task, e.condition, e.seed, e.instance,
         e.outcome.value, e.duration_s, e.reason or None]
        for e in episodes
    ]  # fmt: skip
    return without_empty(table('Episodes', columns, rows))


def table_blocks(document: Document) -> dict[str, TableBlock]:
    """Every table of a document by its key."""
    return {b.key: b for s in document.sections for b in s.blocks if isinstance(b, TableBlock)}
