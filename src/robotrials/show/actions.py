"""Tables of action prediction: the paper's Tables 2 and 4, and what they leave out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.actions.compare import (
    ActionComparison,
    ActionReport,
    Difficulty,
    GroupScore,
    ModelScore,
    ModelScores,
    OfflineOnline,
)
from robotrials.measure.actions.split import CurationDecision, EvaluationSplit, RegisteredDataset, load_datasets
from robotrials.show.answer import Card
from robotrials.show.catalog import ShowRequest, named, takes
from robotrials.show.figure import PAGE_WIDTH_IN
from robotrials.show.phrase import plural
from robotrials.show.plot import Axis, Bar, Plot, Sheet, facets, places
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.analysis.subject import Input, Predictions

if TYPE_CHECKING:
    from robotrials.measure.actions.metric import ErrorMeasure
    from robotrials.stats import Interval


NAMSE_NOTE = (
    "NAMSE is normalised by each model's own errors on each dataset: read it down a column, never across models."
)


def _between(interval: Interval | None) -> str | None:
    return None if interval is None else f'{interval.low:.3g} to {interval.high:.3g}'


@named(lambda _: load_datasets().values(), wants=Input.NOTHING)
def dataset_table(datasets: Iterable[RegisteredDataset]) -> Table:
    """The datasets of MultiNet: which models cover them, the pretraining mix, the action space."""
    rows: list[list[Cell]] = []
    for d in datasets:
        covered = {True: 'yes', False: 'no', None: 'unknown'}
        marks: list[Cell] = [covered[d.is_covered_by(m)] for m in ('JAT', 'GPT', 'OpenVLA')]
        kind = 'unknown' if d.action_type is None else d.action_type or None
        rows.append([d.name, d.title, *marks, d.in_pretraining, kind])
    note = 'unknown: the cell is unreadable in the text of the paper; a dash: the table has none'
    columns = ['name', 'title', 'JAT', 'GPT', 'OpenVLA', 'in pretraining', 'action space']
    return table('Datasets of MultiNet v0.1 (Tables 1 and 3)', columns, rows, note=note)


@named(lambda r: chosen_scores(requested_scores(r), r), wants=Input.PREDICTIONS)
def error_table(scores: ModelScores, *, title: str = 'AMSE and NAMSE', intervals: bool = True) -> Table:
    """AMSE and NAMSE of every model on every dataset."""
    has_intervals = intervals and any(s.amse_interval is not None for s in scores.values.values())
    columns: list[str | Column] = ['dataset']
    for model in scores.models:
        columns += [
            Column(f'{model} AMSE', '.3f'),
            *([f'{model} 95 %'] if has_intervals else []),
            Column(f'{model} NAMSE', '.3f'),
        ]
    rows: list[list[Cell]] = []
    for dataset, title_of in scores.titles.items():
        row: list[Cell] = [title_of]
        for model in scores.models:
            score = scores.values.get((dataset, model))
            interval = [_between(score.amse_interval if score else None)] if has_intervals else []
            row += [score.amse if score else None, *interval, score.namse if score else None]
        rows.append(row)
    return table(title, columns, rows, note=f'AMSE is timestep-weighted. {NAMSE_NOTE}')


@named(lambda r: chosen_scores(requested_scores(r), r), wants=Input.PREDICTIONS)
def completion_table(
    scores: ModelScores, *, title: str = 'Completion: the last action equals the recorded one'
) -> Table:
    """Share of episodes whose last predicted action equals the recorded one."""
    columns: list[str | Column] = ['dataset', *(Column(m, '.3%') for m in scores.models)]
    rows: list[list[Cell]] = []
    for dataset, title_of in scores.titles.items():
        row_scores = [scores.values.get((dataset, m)) for m in scores.models]
        rows.append([title_of, *(s.completion if s else None for s in row_scores)])
    return table(title, columns, rows, note='Equality as float32, over all scored dimensions.')


def action_card(report: ActionReport) -> Card:
    """Which model predicts recorded actions better, dataset by dataset, and how many answers were invalid."""
    scores = report.scores
    said = [(scores.titles[name], comparison) for name, comparison in report.comparisons]
    decided = sum(comparison.better is not None for _, comparison in said)
    verdict = [f'{decided} of {plural(len(said), "comparison")} of two models has a better one.'] if said else (
        ['One model: nothing to compare it with.'] if len(scores.models) < 2 else [])  # fmt: skip
    rows = []
    for dataset, title in scores.titles.items():
        parts = [f'{m} {_amse(scores.values[dataset, m])}' for m in scores.models if (dataset, m) in scores.values]
        rows.append((title, f'AMSE {"; ".join(parts)}'))
    rows += [(f'{title}: verdict', comparison.sentence) for title, comparison in said]
    bad = {m: sum(s.n_invalid for (_, model), s in report.summaries.items() if model == m) for m in scores.models}
    n = {m: sum(s.n_timesteps for (_, model), s in report.summaries.items() if model == m) for m in scores.models}
    invalid = '; '.join(f'{m} {bad[m]} of {n[m]:,}' for m in scores.models if n[m])
    needed = [comparison.n_for_power for _, comparison in said if comparison.better is None and comparison.n_for_power]
    change = f'about {min(needed)} episodes resolve the nearest pair at 80 % power.' if needed else ''
    return Card(
        title=plural(len(scores.models), 'model'), scope=plural(len(scores.titles), 'dataset'), verdict=tuple(verdict),
        rows=(*rows, ('invalid', invalid)), change=change, notes=(NAMSE_NOTE,),
    )  # fmt: skip


def _amse(score: ModelScore) -> str:
    if score.amse is None:
        return '—'
    return f'{score.amse:.3g}' + (f' [{_between(score.amse_interval)}]' if score.amse_interval else '')


def report_tables(report: ActionReport) -> list[Table]:
    """Everything that `robotrials actions report` prints, in order."""
    tables = [
        error_table(report.scores, intervals=False),
        completion_table(report.scores),
        invalid_table(report),
        measure_table(report),
    ]
    tables += [dimension_table(report), phase_table(report)]
    if report.comparisons:
        tables.append(comparison_table(report.comparisons))
    tables.append(group_table(report.groups))
    if report.difficulty:
        tables.append(difficulty_table(report.difficulty, report.scores.titles))
    return tables


@named(lambda r: requested_report(r), wants=Input.PREDICTIONS)
def invalid_table(report: ActionReport) -> Table:
    """Invalid answers of every model, by reason."""
    reasons = sorted({reason for why in report.reasons.values() for reason in why})
    rows: list[list[Cell]] = []
    choices = set()
    for key, s in report.summaries.items():
        choices.add(s.invalid_choice.value)
        why = report.reasons[key]
        rows.append([report.scores.titles[key[0]], key[1], s.n_episodes, s.n_timesteps, s.n_invalid, s.invalid_rate,
                     *(why.get(r, 0) for r in reasons), report.faults[key]])  # fmt: skip
    columns: list[str | Column] = [
        'dataset', 'model', 'episodes', 'timesteps', 'invalid', Column('rate', '.2%'), *reasons,
    ]  # fmt: skip
    note = (
        f'Invalid answers are scored as: {", ".join(sorted(choices))}. Broken: the endpoint failed; not scored, rerun.'
    )
    return table('Invalid answers', [*columns, 'broken episodes'], rows, note=note)


@named(lambda r: requested_report(r), wants=Input.PREDICTIONS)
def measure_table(report: ActionReport) -> Table:
    """Every error measure of every model and dataset, with intervals."""
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
        measured: Mapping[str, ErrorMeasure] = s.by_dimension if pick == 'dimension' else s.by_phase
        rows += [[report.scores.titles[dataset], model, n, m.value, _between(m.interval)] for n, m in measured.items()]
    return rows


@named(lambda r: requested_report(r), wants=Input.PREDICTIONS)
def dimension_table(report: ActionReport) -> Table:
    """Error by dimension of the action."""
    left = [f'{report.scores.titles[d]}: {", ".join(names)}' for d, names in report.left_out.items() if names]
    note = f'Left out, since not every model predicts them: {"; ".join(left)}.' if left else ''
    columns: list[str | Column] = ['dataset', 'model', 'dimension', Column('MSE', '.4g'), '95 %']
    return table('Error by dimension', columns, _measure_rows(report, 'dimension'), note=note)


@named(lambda r: requested_report(r), wants=Input.PREDICTIONS)
def phase_table(report: ActionReport) -> Table:
    """Error by thirds of the episode."""
    columns: list[str | Column] = ['dataset', 'model', 'phase', Column('MSE', '.4g'), '95 %']
    note = 'Thirds of each episode by relative time.'
    return table('Error by phase', columns, _measure_rows(report, 'phase'), note=note)


def comparison_table(comparisons: Sequence[tuple[str, ActionComparison]]) -> Table:
    """Each pair of models on the same timesteps."""
    rows: list[list[Cell]] = []
    for dataset, c in comparisons:
        advantage = c.advantages['amse']
        numbers = [advantage.value, _between(advantage.interval), c.p_value, c.n_episodes]
        rows.append([dataset, c.model_a, c.model_b, *numbers, c.verdict.value])
    columns: list[str | Column] = [
        'dataset', 'a', 'b', Column('AMSE b - a', '.3g'), '95 %', Column('p', '.3g'), 'episodes', 'verdict',
    ]  # fmt: skip
    words = '\n'.join(f'{dataset}: {c.sentence}' for dataset, c in comparisons)
    note = f'Positive: a has the smaller error. Paired by episode; p by sign flips of AMSE and AMAE, Holm.\n{words}'
    return table('Paired comparisons', columns, rows, note=note)


@named(lambda r: r.value(Predictions).groups, wants=Input.PREDICTIONS)
def group_table(groups: Sequence[GroupScore]) -> Table:
    """Every model inside and outside the pretraining mix."""
    rows: list[list[Cell]] = [[g.model, g.group, g.datasets, g.mean_namse, g.median_relative_to_mean] for g in groups]
    columns: list[str | Column] = [
        'model', 'pretraining mix', 'datasets', Column('mean NAMSE', '.3f'), Column('median error / mean action', '.3f')
    ]  # fmt: skip
    note = "The mark is OpenVLA's mix (Table 1). Error / mean action below 1 beats always predicting the training mean."
    return table('Inside and outside the pretraining mix', columns, rows, note=note)


def difficulty_table(ranked: Sequence[Difficulty], titles: Mapping[str, str]) -> Table:
    models = list(ranked[0].ranks)
    columns: list[str | Column] = ['dataset', Column('mean rank', '.2f'), *(Column(m, '.1f') for m in models)]
    rows: list[list[Cell]] = [[titles[d.dataset], d.mean_rank, *(d.ranks[m] for m in models)] for d in ranked]
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


# A policy's offline error beside its closed-loop success, and whether both order policies alike.


def agreement_table(compared: OfflineOnline) -> Table:
    """One line per policy that has both numbers; the agreement in the note."""
    columns: list[str | Column] = [
        'policy', Column('AMSE', '.4g'), 'recorded episodes', Column('success', '.3f'), 'interval', 'episodes',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            p.policy, p.offline_error, p.n_offline, p.success,
            None if p.success_interval is None else f'[{p.success_interval.low:.3f}, {p.success_interval.high:.3f}]',
            p.n_closed_loop,
        ]
        for p in sorted(compared.pairs, key=lambda pair: pair.offline_error)
    ]  # fmt: skip
    notes = [_agreement(compared)]
    for names, what in ((compared.offline_only, 'offline only'), (compared.closed_loop_only, 'in closed loop only')):
        if names:
            notes.append(f'{what}: {", ".join(names)}')
    return table(f'Offline on {compared.dataset} and in closed loop', columns, rows, note='; '.join(notes))


def _agreement(compared: OfflineOnline) -> str:
    agreement = compared.agreement
    if agreement is None:
        return compared.why_no_agreement
    ends = '' if agreement.interval is None else f' [{agreement.interval.low:.2f}, {agreement.interval.high:.2f}]'
    return (
        f"Kendall's tau-b of the two orders: {agreement.tau:.2f}{ends} at {100 * agreement.level:g} %, over episodes "
        f'of these {agreement.n_policies} policies'
    )


# Figures of action prediction: AMSE by dataset and model, NAMSE by dataset for one model.

LOG_RATIO = 100.0


@named(lambda r: chosen_scores(requested_scores(r), r), wants=Input.PREDICTIONS)
def amse_plot(scores: ModelScores) -> Plot:
    """AMSE of every model on every dataset, with intervals; --stratum chooses datasets.

    The axis is logarithmic where scales differ.
    """
    positive = [s.amse for s in scores.values.values() if s.amse is not None and s.amse > 0]
    if not positive:
        raise InputError('no AMSE above 0 to draw')
    height = 0.8 / len(scores.models)
    bars = [
        _bar(model, i - 0.4 + (number + 0.5) * height, s.amse, s.amse_interval, thickness=0.92 * height)
        for number, model in enumerate(scores.models) for i, d in enumerate(scores.datasets)
        if (s := scores.values.get((d, model))) is not None and s.amse is not None
    ]  # fmt: skip
    is_log = max(positive) / min(positive) > LOG_RATIO
    limits = (10 ** math.floor(math.log10(min(positive))), None) if is_log else None
    rows_in = 0.16 * len(scores.datasets) * max(2, len(scores.models)) / 2
    return _score_plot('amse', bars, scores, Axis('AMSE (lower is better)', limits, is_log=is_log), 1.2 + rows_in)


def namse_plot(scores: ModelScores, model: str) -> Plot:
    """NAMSE of one model by dataset; never two models on one axis, since each has its own scale."""
    bars = [
        _bar(model, i, s.namse, s.namse_interval, thickness=0.64)
        for i, d in enumerate(scores.datasets)
        if (s := scores.values.get((d, model))) is not None and s.namse is not None
    ]
    if not bars:
        raise InputError(f'no NAMSE of {model!r} to draw; models: {", ".join(scores.models)}')
    axis = Axis(f'NAMSE of {model} (0: its least error throughout, 1: its largest)', (0.0, 1.0))
    return _score_plot('namse', bars, scores, axis, 1.0 + 0.17 * len(scores.datasets), has_legend=False)


def _bar(model: str, at: float, value: float, interval: Interval | None, *, thickness: float) -> Bar:
    low, high = interval or (None, None)
    return Bar(model, at, value, model, low=low, high=high, thickness=thickness)


def _score_plot(
    key: str, bars: Sequence[Bar], scores: ModelScores, x: Axis, height_in: float, *, has_legend: bool = True
) -> Plot:
    """Bars by dataset; a star marks what was in the pretraining mix."""
    marked = {True: ' *', False: '', None: ''}
    names = places(title + marked[scores.in_pretraining[d]] for d, title in scores.titles.items())
    note = '; * in the pretraining mix' if any(scores.in_pretraining.values()) else ''
    return Plot(
        key, key.upper(), facets(bars), replace(x, label=f'{x.label}{note}'),
        Axis(limits=(len(names) - 0.4, -0.6), names=names),
        sheet=Sheet(PAGE_WIDTH_IN, height_in, is_rows=True, has_legend=has_legend),
    )  # fmt: skip


# The figures of action prediction by name, from a store of predictions or from the published numbers.


@takes(Input.PREDICTIONS)
def draw_namse(request: ShowRequest) -> Plot:
    """NAMSE of one model by dataset; --policy says which, and the first is drawn without it."""
    chosen = chosen_scores(requested_scores(request), request)
    return namse_plot(chosen, chosen.models[0])


def requested_report(request: ShowRequest) -> ActionReport:
    """Everything about the runs of a store of predictions."""
    return request.value(Predictions).full()


def requested_scores(request: ShowRequest) -> ModelScores:
    """The scores of a store's runs, or those that the paper printed."""
    return request.value(Predictions).scores


def chosen_scores(scores: ModelScores, request: ShowRequest) -> ModelScores:
    """The models and datasets asked for; all when none is."""
    for kind, names, known in (
        ('model', request.policies, scores.models), ('dataset', request.strata, scores.datasets),
    ):  # fmt: skip
        for name in names:
            if name not in known:
                raise UnknownName(kind, name, known)
    models = tuple(m for m in scores.models if not request.policies or m in request.policies)
    titles = {d: t for d, t in scores.titles.items() if not request.strata or d in request.strata}
    kept = {key: score for key, score in scores.values.items() if key[0] in titles and key[1] in models}
    return ModelScores(titles, models, kept, scores.in_pretraining)


# Tables of action prediction by name: from a store of predictions, the published numbers, or the registry.


@takes(Input.PREDICTIONS)
def model_pairs(request: ShowRequest) -> list[Table]:
    """Every pair of models on the same timesteps, with a verdict."""
    comparisons = requested_report(request).comparisons
    if not comparisons:
        raise NotEstimable('no two models predicted the same dataset; a comparison needs two')
    return [comparison_table(comparisons)]


@takes(Input.PREDICTIONS)
def difficulties(request: ShowRequest) -> list[Table]:
    """Datasets by how hard they are, as ranks of each model's own error."""
    scores = requested_scores(request)
    difficulty = request.value(Predictions).difficulty
    if not difficulty:
        raise NotEstimable('no dataset was predicted by every model; a difficulty needs their ranks')
    return [difficulty_table(difficulty, scores.titles)]
