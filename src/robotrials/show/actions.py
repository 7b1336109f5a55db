"""Tables of action prediction: the paper's Tables 2 and 4, and what they leave out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from robotrials.show.card import Card
from robotrials.show.phrase import plural
from robotrials.show.table import Cell, Column, Table, table

if TYPE_CHECKING:
    from robotrials.measure.actions.compare import ActionComparison
    from robotrials.measure.actions.curation import CurationDecision
    from robotrials.measure.actions.registry import RegisteredDataset
    from robotrials.measure.actions.report import ActionReport, Difficulty, GroupScore, Score, Scores
    from robotrials.measure.actions.resample import Measure
    from robotrials.measure.actions.split import EvaluationSplit
    from robotrials.stats import Interval

NAMSE_NOTE = (
    "NAMSE is normalised by each model's own errors on each dataset: read it down a column, never across models."
)


def _between(interval: Interval | None) -> str | None:
    return None if interval is None else f'{interval.low:.3g} to {interval.high:.3g}'


def dataset_table(datasets: Iterable[RegisteredDataset]) -> Table:
    """Tables 1 and 3: the registry."""
    rows: list[list[Cell]] = []
    for d in datasets:
        covered = {True: 'yes', False: 'no', None: 'unknown'}
        marks: list[Cell] = [covered[d.is_covered_by(m)] for m in ('JAT', 'GPT', 'OpenVLA')]
        kind = 'unknown' if d.action_type is None else d.action_type or None
        rows.append([d.name, d.title, *marks, d.in_pretraining, kind])
    note = 'unknown: the cell is unreadable in the text of the paper; a dash: the table has none'
    columns = ['name', 'title', 'JAT', 'GPT', 'OpenVLA', 'in pretraining', 'action space']
    return table('Datasets of MultiNet v0.1 (Tables 1 and 3)', columns, rows, note=note)


def error_table(scores: Scores, *, title: str = 'AMSE and NAMSE', intervals: bool = True) -> Table:
    """Table 2: datasets down, AMSE and NAMSE of every model across."""
    told = intervals and any(s.amse_interval is not None for s in scores.values.values())
    columns: list[str | Column] = ['dataset']
    for model in scores.models:
        columns += [
            Column(f'{model} AMSE', '.3f'),
            *([f'{model} 95 %'] if told else []),
            Column(f'{model} NAMSE', '.3f'),
        ]
    rows: list[list[Cell]] = []
    for dataset, shown in scores.titles.items():
        row: list[Cell] = [shown]
        for model in scores.models:
            score = scores.values.get((dataset, model))
            interval = [_between(score.amse_interval if score else None)] if told else []
            row += [score.amse if score else None, *interval, score.namse if score else None]
        rows.append(row)
    return table(title, columns, rows, note=f'AMSE is timestep-weighted. {NAMSE_NOTE}')


def completion_table(scores: Scores, *, title: str = 'Completion: the last action equals the recorded one') -> Table:
    """Table 4: the share of episodes whose last predicted action is exactly the recorded one."""
    columns: list[str | Column] = ['dataset', *(Column(m, '.3%') for m in scores.models)]
    rows: list[list[Cell]] = []
    for dataset, shown in scores.titles.items():
        found = [scores.values.get((dataset, m)) for m in scores.models]
        rows.append([shown, *(s.completion if s else None for s in found)])
    return table(title, columns, rows, note='Equality as float32, over all scored dimensions.')


def action_card(report: ActionReport) -> Card:
    """Which model predicts recorded actions better, dataset by dataset, and how many answers were invalid."""
    scores = report.scores
    said = [(scores.titles[name], found) for name, found in report.comparisons]
    decided = sum(found.better is not None for _, found in said)
    verdict = [f'{decided} of {plural(len(said), "comparison")} of two models has a better one.'] if said else (
        ['One model: nothing to compare it with.'] if len(scores.models) < 2 else [])  # fmt: skip
    rows = []
    for dataset, title in scores.titles.items():
        told = [f'{m} {_amse(scores.values[dataset, m])}' for m in scores.models if (dataset, m) in scores.values]
        rows.append((title, f'AMSE {"; ".join(told)}'))
    rows += [(f'{title}: verdict', found.sentence) for title, found in said]
    bad = {m: sum(s.n_invalid for (_, model), s in report.summaries.items() if model == m) for m in scores.models}
    n = {m: sum(s.n_timesteps for (_, model), s in report.summaries.items() if model == m) for m in scores.models}
    invalid = '; '.join(f'{m} {bad[m]} of {n[m]:,}' for m in scores.models if n[m])
    needed = [found.n_for_power for _, found in said if found.better is None and found.n_for_power]
    change = f'about {min(needed)} episodes resolve the nearest pair at 80 % power.' if needed else ''
    return Card(
        title=plural(len(scores.models), 'model'), scope=plural(len(scores.titles), 'dataset'), verdict=tuple(verdict),
        rows=(*rows, ('invalid', invalid)), change=change, notes=(NAMSE_NOTE,),
    )  # fmt: skip


def _amse(score: Score) -> str:
    if score.amse is None:
        return '—'
    return f'{score.amse:.3g}' + (f' [{_between(score.amse_interval)}]' if score.amse_interval else '')


def report_tables(report: ActionReport) -> list[Table]:
    """Everything that `robotrials actions report` prints, in order."""
    shown = [
        error_table(report.scores, intervals=False),
        completion_table(report.scores),
        invalid_table(report),
        measure_table(report),
    ]
    shown += [dimension_table(report), phase_table(report)]
    if report.comparisons:
        shown.append(comparison_table(report.comparisons))
    shown.append(group_table(report.groups))
    if report.difficulty:
        shown.append(difficulty_table(report.difficulty, report.scores.titles))
    return shown


def invalid_table(report: ActionReport) -> Table:
    """Invalid answers beside what they were counted from, by reason."""
    reasons = sorted({reason for found in report.reasons.values() for reason in found})
    rows: list[list[Cell]] = []
    choices = set()
    for key, s in report.summaries.items():
        choices.add(s.invalid_choice.value)
        found = report.reasons[key]
        rows.append([report.scores.titles[key[0]], key[1], s.n_episodes, s.n_timesteps, s.n_invalid, s.invalid_rate,
                     *(found.get(r, 0) for r in reasons), report.faults[key]])  # fmt: skip
    columns: list[str | Column] = [
        'dataset',
        'model',
        'episodes',
        'timesteps',
        'invalid',
        Column('rate', '.2%'),
        *reasons,
    ]
    note = (
        f'Invalid answers are scored as: {", ".join(sorted(choices))}. Broken: the endpoint failed; not scored, rerun.'
    )
    return table('Invalid answers', [*columns, 'broken episodes'], rows, note=note)


def measure_table(report: ActionReport) -> Table:
    """Every measure of every run with its interval."""
    rows: list[list[Cell]] = []
    for (dataset, model), s in report.summaries.items():
        for name, m in s.measures.items():
            rows.append([report.scores.titles[dataset], model, name, m.value, _between(m.interval), m.why or None])
        exact, tolerant = s.completion_exact, s.completion_tolerant
        for name, done in (('completion_exact', exact), ('completion_tolerant', tolerant)):
            if done is not None:
                counted = f'{done.completed} of {done.episodes}'
                rows.append([report.scores.titles[dataset], model, name, done.rate, _between(done.interval), counted])
    note = 'Intervals: percentile bootstrap over whole episodes; completion: Wilson.'
    columns: list[str | Column] = ['dataset', 'model', 'measure', Column('value', '.4g'), '95 %', 'remark']
    return table('Measures', columns, rows, note=note)


def _measure_rows(report: ActionReport, pick: str) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for (dataset, model), s in report.summaries.items():
        found: Mapping[str, Measure] = s.by_dimension if pick == 'dimension' else s.by_phase
        rows += [[report.scores.titles[dataset], model, n, m.value, _between(m.interval)] for n, m in found.items()]
    return rows


def dimension_table(report: ActionReport) -> Table:
    left = [f'{report.scores.titles[d]}: {", ".join(names)}' for d, names in report.left_out.items() if names]
    note = f'Left out, since not every model predicts them: {"; ".join(left)}.' if left else ''
    columns: list[str | Column] = ['dataset', 'model', 'dimension', Column('MSE', '.4g'), '95 %']
    return table('Error by dimension', columns, _measure_rows(report, 'dimension'), note=note)


def phase_table(report: ActionReport) -> Table:
    columns: list[str | Column] = ['dataset', 'model', 'phase', Column('MSE', '.4g'), '95 %']
    note = 'Thirds of each episode by relative time.'
    return table('Error by phase', columns, _measure_rows(report, 'phase'), note=note)


def comparison_table(comparisons: Sequence[tuple[str, ActionComparison]]) -> Table:
    """Each pair of models on the same timesteps."""
    rows: list[list[Cell]] = []
    for dataset, c in comparisons:
        advantage = c.advantages['amse']
        found = [advantage.value, _between(advantage.interval), c.p_value, c.n_episodes]
        rows.append([dataset, c.model_a, c.model_b, *found, c.verdict.value])
    columns: list[str | Column] = [
        'dataset', 'a', 'b', Column('AMSE b - a', '.3g'), '95 %', Column('p', '.3g'), 'episodes', 'verdict',
    ]  # fmt: skip
    told = '\n'.join(f'{dataset}: {c.sentence}' for dataset, c in comparisons)
    note = f'Positive: a has the smaller error. Paired by episode; p by sign flips of AMSE and AMAE, Holm.\n{told}'
    return table('Paired comparisons', columns, rows, note=note)


def group_table(groups: Sequence[GroupScore]) -> Table:
    rows: list[list[Cell]] = [[g.model, g.group, g.datasets, g.mean_namse, g.median_relative_to_mean] for g in groups]
    columns: list[str | Column] = [
        'model', 'pretraining mix', 'datasets', Column('mean NAMSE', '.3f'), Column('median error / mean action', '.3f')
    ]  # fmt: skip
    note = "The mark is OpenVLA's mix (Table 1). Error / mean action below 1 beats always predicting the training mean."
    return table('Inside and outside the pretraining mix', columns, rows, note=note)


def difficulty_table(found: Sequence[Difficulty], titles: Mapping[str, str]) -> Table:
    models = list(found[0].ranks)
    columns: list[str | Column] = ['dataset', Column('mean rank', '.2f'), *(Column(m, '.1f') for m in models)]
    rows: list[list[Cell]] = [[titles[d.dataset], d.mean_rank, *(d.ranks[m] for m in models)] for d in found]
    return table('Difficulty: rank by NAMSE within each model', columns, rows, note='1: least error of that model.')


def curation_table(decisions: Sequence[CurationDecision]) -> Table:
    rows: list[list[Cell]] = [[d.name, 'kept' if d.is_kept else 'left out', d.reason] for d in decisions]
    return table('Curation (section 3.1.1)', ['dataset', 'decision', 'reason'], rows)


def split_table(split: EvaluationSplit) -> Table:
    made = "the dataset's own" if split.seed is None else f'made here by whole episodes, seed {split.seed}'
    rows: list[list[Cell]] = [
        ['evaluated', split.test_split, len(split.test)],
        ['training', split.train_split, len(split.train)],
    ]
    return table(f'Split of {split.dataset}', ['role', 'from', 'episodes'], rows, note=f'{made}; hash {split.hash}')
