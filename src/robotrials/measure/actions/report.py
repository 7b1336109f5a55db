"""Many runs side by side: scores by dataset and model, groups, difficulty and verdicts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.actions.compare import ActionComparison, compare_actions
from robotrials.measure.actions.curation import MODELS, load_datasets
from robotrials.measure.actions.evaluate import ActionRun
from robotrials.measure.actions.prediction import InvalidChoice, predicted_dimensions
from robotrials.measure.actions.summary import ActionSummary, Completion, summarize_actions
from robotrials.stats import Interval

Key = tuple[str, str]
"""(dataset, model)"""


@dataclass(frozen=True, slots=True)
class Score:
    """What the paper's tables hold of one model on one dataset; None where it does not exist."""

    amse: float | None
    namse: float | None
    completion: float | None  # a share
    amse_interval: Interval | None = None
    namse_interval: Interval | None = None
    invalid_rate: float | None = None
    relative_to_mean: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores by (dataset, model), with titles for printing and Table 1's pretraining marks (None: unknown)."""

    titles: Mapping[str, str]
    models: tuple[str, ...]
    values: Mapping[Key, Score]
    in_pretraining: Mapping[str, bool | None]

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.titles)


@dataclass(frozen=True, slots=True)
class GroupScore:
    """A model inside, outside, or without a known mark of the pretraining mix."""

    model: str
    group: str
    datasets: int
    mean_namse: float | None
    median_relative_to_mean: float | None


@dataclass(frozen=True, slots=True)
class Difficulty:
    """A dataset's rank by NAMSE within each model (1: least error), over datasets that every model has."""

    dataset: str
    ranks: Mapping[str, float]

    @property
    def mean_rank(self) -> float:
        return float(np.mean(list(self.ranks.values())))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ActionReport:
    """Every summary and comparison of some runs."""

    scores: Scores
    summaries: Mapping[Key, ActionSummary]
    completions_tolerant: Mapping[Key, Completion]
    reasons: Mapping[Key, Mapping[str, int]]
    faults: Mapping[Key, int]
    left_out: Mapping[str, tuple[str, ...]]  # dataset -> dimensions that not every model predicts
    comparisons: tuple[tuple[str, ActionComparison], ...] = ()
    groups: tuple[GroupScore, ...] = ()
    difficulty: tuple[Difficulty, ...] = field(default=())


def published_scores() -> Scores:
    """Tables 2 and 4 of the paper."""
    rows = {name: d for name, d in load_datasets().items() if d.amse}
    values = {
        (name, model): Score(d.amse[model], d.namse[model], d.completion_percent[model] / 100)
        for name, d in rows.items() for model in MODELS
    }  # fmt: skip
    return Scores({n: d.title for n, d in rows.items()}, MODELS, values, {n: d.in_pretraining for n, d in rows.items()})


def build_report(
    runs: Sequence[ActionRun],
    *,
    invalid: InvalidChoice | str = InvalidChoice.RANDOM,
    tolerance: ArrayLike | None = None,
    in_pretraining: Mapping[str, bool] | None = None,
    n_resamples: int = 1_000,
    seed: int = 0,
    alpha: float = 0.05,
) -> ActionReport:
    """Summaries on the dimensions that all models of a dataset predict, and each pair of models compared there."""
    if not runs:
        raise InputError('no runs to report')
    datasets = list(dict.fromkeys(r.dataset for r in runs))
    summaries: dict[Key, ActionSummary] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    comparisons: list[tuple[str, ActionComparison]] = []
    for dataset in datasets:
        group = [r for r in runs if r.dataset == dataset]
        _check_group(group)
        common = sorted(set.intersection(*(set(predicted_dimensions(r.episodes)) for r in group)))
        if not common:
            raise InputError(f'{dataset}: its models predict no dimension in common')
        # A dimension whose range nobody gave has that of its training actions.
        space = group[0].space.with_ranges(*group[0].training_range)
        left_out[dataset] = tuple(d.name for i, d in enumerate(space.dimensions) if i not in common)
        for run in group:
            summaries[dataset, run.model] = summarize_actions(
                run.episodes, invalid=invalid, space=space, dimensions=common, tolerance=tolerance,
                training_mean=run.training_mean, n_resamples=n_resamples, seed=seed, level=1 - alpha,
            )  # fmt: skip
        for a, b in itertools.combinations(group, 2):
            comparisons.append((dataset, _compare(a, b, invalid, n_resamples, seed, alpha)))
    models = tuple(dict.fromkeys(r.model for r in runs))
    scores = _scores(datasets, models, summaries, in_pretraining or {})
    tolerant = {k: s.completion_tolerant for k, s in summaries.items() if s.completion_tolerant is not None}
    return ActionReport(
        scores=scores, summaries=summaries, completions_tolerant=tolerant,
        reasons={(r.dataset, r.model): r.reasons for r in runs},
        faults={(r.dataset, r.model): r.n_faults for r in runs},
        left_out=left_out, comparisons=tuple(comparisons), groups=group_scores(scores), difficulty=difficulty(scores),
    )  # fmt: skip


def _check_group(group: Sequence[ActionRun]) -> None:
    hashes = {r.split_hash for r in group}
    if len(hashes) > 1:
        raise InputError(f'{group[0].dataset}: its models were run on {len(hashes)} different splits; keep one a store')


def _compare(
    a: ActionRun, b: ActionRun, invalid: InvalidChoice | str, n_resamples: int, seed: int, alpha: float
) -> ActionComparison:
    shared = {e.episode_id for e in a.episodes} & {e.episode_id for e in b.episodes}
    if not shared:
        raise InputError(f'{a.dataset}: {a.model} and {b.model} have no finished episode in common')
    pair = [[e for e in r.episodes if e.episode_id in shared] for r in (a, b)]
    space = a.space.with_ranges(*a.training_range)
    return compare_actions(
        pair[0], pair[1], names=(a.model, b.model), invalid=invalid, space=space, alpha=alpha,
        n_resamples=max(n_resamples, 1), seed=seed,
    )  # fmt: skip


def _scores(
    datasets: Sequence[str], models: tuple[str, ...], summaries: Mapping[Key, ActionSummary], given: Mapping[str, bool]
) -> Scores:
    known = load_datasets()
    values = {}
    for key, s in summaries.items():
        amse, namse = s.measures['amse'], s.measures['namse']
        exact = s.completion_exact
        values[key] = Score(
            amse.value, namse.value, None if exact is None else exact.rate, amse.interval, namse.interval,
            s.invalid_rate, s.measures['relative_to_mean'].value,
        )  # fmt: skip
    titles = {d: known[d].title if d in known else d for d in datasets}
    marks = {d: given.get(d, known[d].in_pretraining if d in known else None) for d in datasets}
    return Scores(titles, models, values, marks)


def group_scores(scores: Scores) -> tuple[GroupScore, ...]:
    """Each model's mean NAMSE inside and outside the pretraining mix; AMSE has no common scale to average."""
    found = []
    for model, (mark, group) in itertools.product(
        scores.models, ((True, 'inside'), (False, 'outside'), (None, 'unknown'))
    ):
        cells = [scores.values[d, model] for d in scores.datasets
                 if scores.in_pretraining[d] is mark and (d, model) in scores.values]  # fmt: skip
        if cells:
            shape = [c.namse for c in cells if c.namse is not None]
            relative = [c.relative_to_mean for c in cells if c.relative_to_mean is not None]
            mean, median = (
                (float(np.mean(shape)) if shape else None),
                (float(np.median(relative)) if relative else None),
            )
            found.append(GroupScore(model, group, len(cells), mean, median))
    return tuple(found)


def difficulty(scores: Scores) -> tuple[Difficulty, ...]:
    """Datasets from the least to the most difficult by mean rank; empty with fewer than two shared datasets."""
    shared = [
        d for d in scores.datasets
        if all((d, m) in scores.values and scores.values[d, m].namse is not None for m in scores.models)
    ]  # fmt: skip
    if len(shared) < 2:
        return ()
    ranks: dict[str, dict[str, float]] = {d: {} for d in shared}
    for model in scores.models:
        found = np.array([scores.values[d, model].namse for d in shared], dtype=np.float64)
        for i, d in enumerate(shared):
            below, equal = int((found < found[i]).sum()), int((found == found[i]).sum())
            ranks[d][model] = below + (equal + 1) / 2
    return tuple(sorted((Difficulty(d, r) for d, r in ranks.items()), key=lambda x: (x.mean_rank, x.dataset)))


def concordance(found: Sequence[Difficulty]) -> float:
    """Kendall's W of the models' rankings: 1 if all agree on what is difficult, near 0 if none do."""
    models = list(found[0].ranks) if found else []
    n, m = len(found), len(models)
    if n < 2 or m < 2:
        raise NotEstimable(f'agreement needs at least 2 datasets and 2 models, found {n} and {m}')
    sums = np.array([sum(d.ranks.values()) for d in found])
    return float(12 * ((sums - sums.mean()) ** 2).sum() / (m**2 * (n**3 - n)))
