"""Two models on the same timesteps: paired by episode, on the dimensions that both predict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.formats.space import ActionSpace
from robotrials.measure.actions.evaluate import KIND, ActionRun
from robotrials.measure.actions.metric import (
    ActionSummary,
    ErrorMeasure,
    ScoredRun,
    action_errors,
    measure,
    ratio,
    score_episodes,
    summarize_actions,
)
from robotrials.measure.actions.prediction import InvalidChoice, PredictedEpisode, predicted_dimensions
from robotrials.measure.actions.split import MODELS, load_datasets
from robotrials.record import Episode
from robotrials.stats import Interval, Permutation, Verdict, holm, sign_flip, wilson
from robotrials.stats.interaction import midranks
from robotrials.stats.sample_size import paired_mean_sample_size

EXACT_EPISODES = 14


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ActionComparison:
    """Model a against model b. `advantages` are b's error minus a's: a positive one favours a."""

    model_a: str
    model_b: str
    verdict: Verdict
    better: str | None
    favouring_a: tuple[str, ...]
    favouring_b: tuple[str, ...]
    advantages: Mapping[str, ErrorMeasure]
    tests: Mapping[str, Permutation]  # sign flips of whole episodes
    p_value: float  # the smallest after Holm's correction
    alpha: float
    n_episodes: int
    n_timesteps: int
    dimensions: tuple[str, ...]
    n_for_power: int | None  # episodes that would resolve the pair at 80 % power; None: no difference to resolve

    @property
    def sentence(self) -> str:
        """The verdict in plain words."""
        a, b = self.model_a, self.model_b
        if self.verdict is Verdict.BETTER:
            other = b if self.better == a else a
            return f'{self.better} is better than {other} (p = {self.p_value:.3g}).'
        if self.verdict is Verdict.CROSSING:
            return (
                f'{a} and {b} differ and neither is better: {", ".join(self.favouring_a)} favour {a}, '
                f'{", ".join(self.favouring_b)} favour {b}.'
            )
        if self.verdict is Verdict.DIRECTION_UNRESOLVED:
            return f'{a} and {b} differ (p = {self.p_value:.3g}); which is better is not resolved.'
        is_more = self.n_for_power is not None and self.n_for_power > self.n_episodes
        need = f' About {self.n_for_power} episodes would resolve them.' if is_more else ''
        said = f'not significantly different on {self.n_episodes} episodes (p = {self.p_value:.3g})'
        return f'{a} and {b} are {said}.{need}'


def compare_actions(
    a: Sequence[PredictedEpisode],
    b: Sequence[PredictedEpisode],
    *,
    names: tuple[str, str] = ('a', 'b'),
    invalid: InvalidChoice | str = InvalidChoice.RANDOM,
    space: ActionSpace | None = None,
    alpha: float = 0.05,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> ActionComparison:
    """Compare two runs on the same episodes and timesteps, on the dimensions that both predict.

    The gate is the smallest Holm-corrected p of sign-flip tests over episodes of AMSE by episode and AMAE by episode;
    the direction comes from clustered intervals of AMSE (both weightings) and AMAE. With 'exclude', a timestep counts
    only where both answers are valid.
    """
    first, second = _aligned(a, b, names)
    common = sorted(set(predicted_dimensions(first)) & set(predicted_dimensions(second)))
    if not common:
        raise InputError(f'{names[0]} and {names[1]} predict no dimension in common')
    runs = [score_episodes(r, invalid=invalid, space=space, dimensions=common, seed=seed) for r in (first, second)]
    squared, absolute = _paired(runs[0], runs[1], 'squared'), _paired(runs[0], runs[1], 'absolute')
    advantages = _advantages(squared, absolute, n_resamples=n_resamples, seed=seed, level=1 - alpha)
    tests = {
        'amse_by_episode': _flip(squared, seed=seed, n_resamples=n_resamples),
        'amae_by_episode': _flip(absolute, seed=seed, n_resamples=n_resamples),
    }
    p_value = float(np.min(holm([t.p_value for t in tests.values()])))
    verdict, better, for_a, for_b = _verdict(advantages, p_value, alpha, names)
    return ActionComparison(
        model_a=names[0], model_b=names[1], verdict=verdict, better=better, favouring_a=for_a, favouring_b=for_b,
        advantages=advantages, tests=tests, p_value=p_value, alpha=alpha, n_episodes=len(squared),
        n_timesteps=sum(len(d) for d in squared), dimensions=runs[0].names,
        n_for_power=_episodes_needed(squared, alpha),
    )  # fmt: skip


def _aligned(
    a: Sequence[PredictedEpisode], b: Sequence[PredictedEpisode], names: tuple[str, str]
) -> tuple[list[PredictedEpisode], list[PredictedEpisode]]:
    by_id = {e.episode_id: e for e in b}
    lone = sorted({e.episode_id for e in a} ^ set(by_id))
    if lone or not by_id:
        reason = f'only one of them has {lone[0]}' if lone else 'there are none'
        raise InputError(f'{names[0]} and {names[1]} must have predicted the same episodes; {reason}')
    pairs = [(e, by_id[e.episode_id]) for e in a]
    for first, other in pairs:
        if first.target.shape != other.target.shape or not np.allclose(first.target, other.target):
            raise InputError(f'{first.episode_id}: the recorded actions of the two runs differ')
    return [p for p, _ in pairs], [p for _, p in pairs]


def _paired(a: ScoredRun, b: ScoredRun, kind: str) -> list[FloatArray]:
    """The error of b minus that of a at every timestep that counts in both, episode by episode."""
    differences = []
    for ea, ka, eb, kb in zip(a.episodes, a.keep, b.episodes, b.keep, strict=True):
        shared = ka & kb
        if not shared.any():
            continue
        gaps = [e.predicted[shared] - e.target[shared] for e in (ea, eb)]
        sizes = [(g**2 if kind == 'squared' else np.abs(g)).mean(axis=1) for g in gaps]
        differences.append(sizes[1] - sizes[0])
    if not differences:
        raise NotEstimable('no timestep has a valid answer of both models')
    return differences


def _advantages(
    squared: Sequence[FloatArray], absolute: Sequence[FloatArray], *, n_resamples: int, seed: int, level: float
) -> dict[str, ErrorMeasure]:
    lengths = np.array([float(len(d)) for d in squared])
    ones = np.ones_like(lengths)
    totals = {'amse': (np.array([d.sum() for d in squared]), lengths),
              'amse_by_episode': (np.array([d.mean() for d in squared]), ones),
              'amae': (np.array([d.sum() for d in absolute]), lengths)}  # fmt: skip
    advantages = {}
    for name, (above, below) in totals.items():
        advantages[name] = measure(
            lambda counts, above=above, below=below: ratio(counts, above, below),  # type: ignore[misc]
            n_episodes=len(squared), n_timesteps=len(squared), n_resamples=n_resamples, seed=seed, level=level, why='',
        )  # fmt: skip
    return advantages


def _flip(differences: Sequence[FloatArray], *, seed: int, n_resamples: int) -> Permutation:
    """The sign-flip test of the episodes' mean differences; every arrangement is counted where they are few."""
    means = np.array([d.mean() for d in differences])
    largest = float(np.abs(means).max())
    scaled = means / largest if largest > 0 else means
    if means.size > EXACT_EPISODES:
        return sign_flip(scaled, n_resamples=max(n_resamples, 9_999), rng=np.random.default_rng(seed))
    signs = 1.0 - 2.0 * (np.arange(2**means.size)[:, None] >> np.arange(means.size) & 1)
    extreme = np.abs(signs @ scaled) >= abs(scaled.sum()) - 1e-9
    return Permutation(float(scaled.mean()), float(extreme.mean()), 'two-sided', True, None)


def _verdict(
    advantages: Mapping[str, ErrorMeasure], p_value: float, alpha: float, names: tuple[str, str]
) -> tuple[Verdict, str | None, tuple[str, ...], tuple[str, ...]]:
    intervals = {name: m.interval for name, m in advantages.items() if m.interval is not None}
    for_a = tuple(name for name, interval in intervals.items() if interval.low > 0)
    for_b = tuple(name for name, interval in intervals.items() if interval.high < 0)
    if p_value > alpha:
        return Verdict.UNRESOLVED, None, for_a, for_b
    if for_a and for_b:
        return Verdict.CROSSING, None, for_a, for_b
    if not for_a and not for_b:
        return Verdict.DIRECTION_UNRESOLVED, None, for_a, for_b
    return Verdict.BETTER, names[0] if for_a else names[1], for_a, for_b


def _episodes_needed(differences: Sequence[FloatArray], alpha: float) -> int | None:
    means = np.array([d.mean() for d in differences])
    if means.size < 2 or means.mean() == 0 or means.std() == 0:
        return None
    # Holm over two tests; and with fewer episodes than `least` no arrangement of signs is rare enough.
    least = 1 + math.ceil(math.log2(2 / alpha))
    planned = paired_mean_sample_size(float(means.mean()), float(means.std(ddof=1)), alpha=alpha / 2)
    return max(least, planned)


# Offline against closed loop: do the errors on recorded actions order policies as their successes do?
# Both numbers are of the same policies, under the same names. The agreement is Kendall's tau-b between the orders; its
# interval resamples episodes on both sides, so it speaks of these policies and not of others that might have been
# tried.

FloatArray = NDArray[np.floating[Any]]
Values = Mapping[object, float]  # by episode or start


@dataclass(frozen=True, slots=True)
class PolicyPair:
    """One policy's two numbers."""

    policy: str
    offline_error: float  # mean squared error over timesteps
    n_offline: int  # recorded episodes
    success: float  # share of closed-loop episodes, or the mean score
    success_interval: Interval | None  # Wilson's, where every episode is a success or not
    n_closed_loop: int


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Kendall's tau-b between fewer errors offline and more success in closed loop; 1 is the same order."""

    tau: float
    interval: Interval | None  # None where a resample leaves no order at all
    n_policies: int
    n_resamples: int
    level: float


@dataclass(frozen=True, slots=True)
class OfflineOnline:
    """Every policy that has both numbers, and whether they agree on the order."""

    dataset: str
    pairs: tuple[PolicyPair, ...]
    agreement: RankAgreement | None
    why_no_agreement: str
    offline_only: tuple[str, ...]
    closed_loop_only: tuple[str, ...]


def compare_offline(
    runs: Sequence[ActionRun],
    episodes: Iterable[Episode],
    *,
    rng: np.random.Generator,
    invalid: InvalidChoice | str = InvalidChoice.RANDOM,
    n_resamples: int = 2_000,
    level: float = 0.95,
    seed: int = 0,
) -> OfflineOnline:
    """Join the offline runs on one dataset with closed-loop episodes by the policies' names."""
    datasets = {run.dataset for run in runs}
    if len(datasets) != 1:
        raise InputError(f'wanted the runs of one dataset, found {sorted(datasets) or "none"}')
    offline = {run.model: _errors(run, invalid, seed) for run in runs}
    weights: dict[str, Values] = {run.model: {e.episode_id: float(e.n_steps) for e in run.episodes} for run in runs}
    online: dict[str, dict[object, float]] = {}
    for episode in episodes:
        if episode.is_valid and not episode.is_reference and episode.labels.get('kind') != KIND:
            online.setdefault(episode.policy, {})[_start(episode)] = _success(episode)
    shared = sorted(offline.keys() & online.keys())
    pairs = tuple(_pair(name, offline[name], weights[name], online[name], level) for name in shared)
    agreement, why = None, ''
    try:
        agreement = rank_agreement(
            {n: offline[n] for n in shared}, {n: online[n] for n in shared}, rng=rng, n_resamples=n_resamples,
            level=level, weights={n: weights[n] for n in shared},
        )  # fmt: skip
    except NotEstimable as error:
        why = str(error)
    return OfflineOnline(
        next(iter(datasets)), pairs, agreement, why, tuple(sorted(offline.keys() - online.keys())),
        tuple(sorted(online.keys() - offline.keys())),
    )  # fmt: skip


def rank_agreement(
    errors: Mapping[str, Values],
    successes: Mapping[str, Values],
    *,
    rng: np.random.Generator,
    n_resamples: int = 2_000,
    level: float = 0.95,
    weights: Mapping[str, Values] | None = None,
) -> RankAgreement:
    """Kendall's tau-b of policies by errors (few are good) and successes, with a percentile interval over episodes.

    Episodes that every policy has are resampled for all of them together; where they share none, for each alone.
    """
    names = sorted(errors)
    if len(names) < 2 or names != sorted(successes):
        raise NotEstimable(f'an order needs at least two policies with both numbers, found {len(names)}')
    left = _PolicySide([errors[n] for n in names], [weights[n] for n in names] if weights is not None else None)
    right = _PolicySide([successes[n] for n in names], None)
    tau = kendall_tau_b(-left.means(), right.means())
    if tau is None:
        raise NotEstimable('all policies are equal on one side; there is no order to agree with')
    drawn = [kendall_tau_b(-left.means(rng), right.means(rng)) for _ in range(n_resamples)]
    taus = np.array([0.0 if t is None else t for t in drawn])  # no order in a resample is no agreement
    tail = (1 - level) / 2
    low, high = np.quantile(taus, [tail, 1 - tail])
    return RankAgreement(tau, Interval(float(low), float(high)), len(names), n_resamples, level)


class _PolicySide:
    """Weighted means of several policies, and of a resample of their episodes."""

    def __init__(self, values: Sequence[Values], weights: Sequence[Values] | None) -> None:
        shared = set.intersection(*(set(v) for v in values))
        self.is_paired = len(shared) > 0 and all(len(v) == len(shared) for v in values)
        keys = [sorted(shared if self.is_paired else v, key=repr) for v in values]
        self.values = [np.array([v[k] for k in own]) for v, own in zip(values, keys, strict=True)]
        self.weights = [
            np.ones(len(own)) if weights is None else np.array([weights[i][k] for k in own])
            for i, own in enumerate(keys)
        ]

    def means(self, rng: np.random.Generator | None = None) -> FloatArray:
        rows: list[Any] = [slice(None)] * len(self.values)
        if rng is not None and self.is_paired:
            rows = [rng.integers(len(self.values[0]), size=len(self.values[0]))] * len(self.values)
        elif rng is not None:
            rows = [rng.integers(len(v), size=len(v)) for v in self.values]
        chosen = zip(self.values, self.weights, rows, strict=True)
        return np.array([float(np.average(v[own], weights=w[own])) for v, w, own in chosen])


def kendall_tau_b(x: FloatArray, y: FloatArray) -> float | None:
    """Kendall's tau-b of two vectors (P,); None where either is constant."""
    upper = np.triu_indices(len(x), 1)
    a, b = (np.sign(np.subtract.outer(v, v))[upper] for v in (np.asarray(x), np.asarray(y)))
    ordered = float(np.sqrt(float(np.sum(a != 0)) * float(np.sum(b != 0))))
    return float(np.sum(a * b)) / ordered if ordered else None


def _errors(run: ActionRun, invalid: InvalidChoice | str, seed: int) -> dict[object, float]:
    """The mean squared error of each episode that has a scored timestep."""
    space = run.space.with_ranges(*run.training_range)
    scored = score_episodes(run.episodes, invalid=invalid, space=space, seed=seed)
    return {
        e.episode_id: float(action_errors(e.predicted[keep], e.target[keep]).mean())
        for e, keep in zip(scored.episodes, scored.keep, strict=True) if keep.any()
    }  # fmt: skip


def _pair(name: str, errors: Values, weights: Values, successes: Values, level: float) -> PolicyPair:
    keys = list(errors)
    error = float(np.average([errors[k] for k in keys], weights=[weights[k] for k in keys]))
    values = list(successes.values())
    is_binary = set(values) <= {0.0, 1.0}
    interval = wilson(int(sum(values)), len(values), level) if is_binary else None
    return PolicyPair(name, error, len(errors), float(np.mean(values)), interval, len(values))


def _success(episode: Episode) -> float:
    if episode.score is not None and episode.max_score:
        return episode.score / episode.max_score if episode.success is None else float(episode.success)
    return float(episode.is_success)


def _start(episode: Episode) -> object:
    return (
        episode.benchmark, episode.task, episode.stratum, episode.condition,
        tuple(sorted(episode.condition_parameters.items())), episode.seed, episode.instance, episode.repeat,
    )  # fmt: skip


# Many runs side by side: scores by dataset and model, groups, difficulty and verdicts.


Key = tuple[str, str]
"""(dataset, model)"""


@dataclass(frozen=True, slots=True)
class ModelScore:
    """What the paper's tables hold of one model on one dataset; None where it does not exist."""

    amse: float | None
    namse: float | None
    completion: float | None  # a share
    amse_interval: Interval | None = None
    namse_interval: Interval | None = None
    invalid_rate: float | None = None
    relative_to_mean: float | None = None


@dataclass(frozen=True, slots=True)
class ModelScores:
    """Scores by (dataset, model), with titles for printing and Table 1's pretraining marks (None: unknown)."""

    titles: Mapping[str, str]
    models: tuple[str, ...]
    values: Mapping[Key, ModelScore]
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

    scores: ModelScores
    summaries: Mapping[Key, ActionSummary]
    reasons: Mapping[Key, Mapping[str, int]]
    faults: Mapping[Key, int]
    left_out: Mapping[str, tuple[str, ...]]  # dataset -> dimensions that not every model predicts
    comparisons: tuple[tuple[str, ActionComparison], ...] = ()
    groups: tuple[GroupScore, ...] = ()
    difficulty: tuple[Difficulty, ...] = field(default=())


def published_scores() -> ModelScores:
    """Tables 2 and 4 of the paper."""
    rows = {name: d for name, d in load_datasets().items() if d.amse}
    values = {
        (name, model): ModelScore(d.amse[model], d.namse[model], d.completion_percent[model] / 100)
        for name, d in rows.items() for model in MODELS
    }  # fmt: skip
    return ModelScores(
        {n: d.title for n, d in rows.items()}, MODELS, values, {n: d.in_pretraining for n, d in rows.items()}
    )


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
        hashes = {r.split_hash for r in group}
        if len(hashes) > 1:
            raise InputError(f'{dataset}: its models were run on {len(hashes)} splits; keep one per store')
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
    return ActionReport(
        scores=scores, summaries=summaries,
        reasons={(r.dataset, r.model): r.reasons for r in runs},
        faults={(r.dataset, r.model): r.n_faults for r in runs},
        left_out=left_out, comparisons=tuple(comparisons), groups=group_scores(scores), difficulty=difficulty(scores),
    )  # fmt: skip


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
) -> ModelScores:
    known = load_datasets()
    values = {}
    for key, s in summaries.items():
        amse, namse = s.measures['amse'], s.measures['namse']
        exact = s.completion_exact
        values[key] = ModelScore(
            amse.value, namse.value, None if exact is None else exact.rate, amse.interval, namse.interval,
            s.invalid_rate, s.measures['relative_to_mean'].value,
        )  # fmt: skip
    titles = {d: known[d].title if d in known else d for d in datasets}
    marks = {d: given.get(d, known[d].in_pretraining if d in known else None) for d in datasets}
    return ModelScores(titles, models, values, marks)


def group_scores(scores: ModelScores) -> tuple[GroupScore, ...]:
    """Each model's mean NAMSE inside and outside the pretraining mix; AMSE has no common scale to average."""
    scored_groups = []
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
            scored_groups.append(GroupScore(model, group, len(cells), mean, median))
    return tuple(scored_groups)


def difficulty(scores: ModelScores) -> tuple[Difficulty, ...]:
    """Datasets from the least to the most difficult by mean rank; empty with fewer than two shared datasets."""
    shared = [
        d for d in scores.datasets
        if all((d, m) in scores.values and scores.values[d, m].namse is not None for m in scores.models)
    ]  # fmt: skip
    if len(shared) < 2:
        return ()
    ranks: dict[str, dict[str, float]] = {d: {} for d in shared}
    for model in scores.models:
        namse = np.array([scores.values[d, model].namse for d in shared], dtype=np.float64)
        for d, rank in zip(shared, midranks(namse).tolist(), strict=True):
            ranks[d][model] = rank
    return tuple(sorted((Difficulty(d, r) for d, r in ranks.items()), key=lambda x: (x.mean_rank, x.dataset)))


def concordance(difficulties: Sequence[Difficulty]) -> float:
    """Kendall's W of the models' rankings: 1 if all agree on what is difficult, near 0 if none do."""
    models = list(difficulties[0].ranks) if difficulties else []
    n, m = len(difficulties), len(models)
    if n < 2 or m < 2:
        raise NotEstimable(f'agreement needs at least 2 datasets and 2 models, found {n} and {m}')
    sums = np.array([sum(d.ranks.values()) for d in difficulties])
    return float(12 * ((sums - sums.mean()) ** 2).sum() / (m**2 * (n**3 - n)))
