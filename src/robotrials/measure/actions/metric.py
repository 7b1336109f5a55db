"""Errors of predicted actions, and a run of one model on one dataset in numbers (MultiNet section 3.3).

Every function raises NotEstimable where the number does not exist; none returns 0.0 for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.formats.space import ActionSpace, FloatArray
from robotrials.measure.actions.prediction import InvalidChoice, PredictedEpisode, predicted_dimensions, resolve_invalid
from robotrials.stats import Interval, bootstrap_interval, resample_counts, wilson

QUANTILES = (0.05, 0.95)


def action_errors(predicted: ArrayLike, target: ArrayLike) -> FloatArray:
    """The mean squared error of each timestep, (T,), of actions (T, D)."""
    difference = _differences(predicted, target)
    return np.asarray((difference**2).mean(axis=1))


def absolute_errors(predicted: ArrayLike, target: ArrayLike) -> FloatArray:
    """The mean absolute error of each timestep, (T,), of actions (T, D)."""
    return np.asarray(np.abs(_differences(predicted, target)).mean(axis=1))


def _differences(predicted: ArrayLike, target: ArrayLike) -> FloatArray:
    a, b = np.asarray(predicted, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if a.ndim != 2 or a.shape != b.shape or a.size == 0:
        raise InputError(f'predicted {a.shape} and target {b.shape} must be of one shape (T, D), and not empty')
    for name, values in (('predicted', a), ('target', b)):
        if not np.isfinite(values).all():
            step = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise InputError(f'{name}[{step}] is not finite; score an invalid answer by a named choice first')
    return a - b


def amse(episodes: Sequence[ArrayLike]) -> float:
    """The mean over all timesteps of their errors: what the paper's tables hold (timestep-weighted)."""
    return float(np.concatenate(_checked(episodes)).mean())


def amse_by_episode(episodes: Sequence[ArrayLike]) -> float:
    """The mean over episodes of each episode's mean error: what the paper's text says (episode-weighted)."""
    return float(np.mean([e.mean() for e in _checked(episodes)]))


def namse(errors: ArrayLike) -> float:
    """(mean - min) / (max - min) of one run's timestep errors, in [0, 1].

    It measures the shape of a model's own errors, so it cannot compare models.
    """
    values = _flat(errors)
    low, high = float(values.min()), float(values.max())
    if values.size < 2 or low == high:
        why = f'one timestep error ({low:g})' if values.size < 2 else f'{values.size} equal timestep errors ({low:g})'
        raise NotEstimable(f'a normalised error needs timestep errors that differ, found {why}')
    return float((values.mean() - low) / (high - low))


def quantile_filtered(errors: ArrayLike, quantiles: tuple[float, float] = QUANTILES) -> float:
    """The normalised mean of the errors between two quantiles, the quantiles themselves included."""
    values = _flat(errors)
    low, high = np.quantile(values, quantiles)
    kept = values[(values >= low) & (values <= high)]
    if kept.size == 0:
        raise NotEstimable(f'none of the {values.size} errors lies between their own quantiles {quantiles}')
    return namse(kept)


def max_over_median(errors: ArrayLike) -> float:
    """The largest error over the median error."""
    values = _flat(errors)
    return float(values.max() / _median(values))


def share_beyond_medians(errors: ArrayLike, *, medians: float = 3.0) -> float:
    """The share of errors above some multiple of the median error."""
    values = _flat(errors)
    return float((values > medians * _median(values)).mean())


def _median(values: FloatArray) -> float:
    median = float(np.median(values))
    if median == 0:
        raise NotEstimable('the median error is 0, so nothing can be measured in medians')
    return median


def completes(predicted: ArrayLike, target: ArrayLike, *, tolerance: ArrayLike | None = None) -> bool:
    """Whether the last predicted action is the last recorded one, exactly or within a tolerance a dimension.

    Exact is equality as float32, the precision of the recordings. A last answer of NaN (invalid) completes nothing.
    """
    a = np.asarray(predicted, dtype=np.float64)[-1].astype(np.float32)
    b = np.asarray(target, dtype=np.float64)[-1].astype(np.float32)
    if tolerance is None:
        return bool(np.array_equal(a, b))
    slack = np.broadcast_to(np.asarray(tolerance, dtype=np.float64), b.shape)
    if (slack < 0).any() or np.isnan(slack).any():
        raise InputError(f'tolerance is {tolerance}, wanted numbers >= 0')
    return bool((np.abs(a.astype(np.float64) - b) <= slack).all())


@dataclass(frozen=True, slots=True, eq=False)
class ClassMetrics:
    """Predicted against recorded classes. Counts are kept; `precision` and the rest follow from them.

    `confusion` is (recorded, predicted); invalid answers are in `invalid`, by recorded class, and count as errors.
    """

    classes: tuple[float, ...]
    confusion: NDArray[np.int64]
    invalid: NDArray[np.int64]

    @property
    def n(self) -> int:
        return int(self.confusion.sum() + self.invalid.sum())

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.confusion) / self.n)

    @property
    def precision(self) -> tuple[float | None, ...]:
        """By class; None where the class was never predicted."""
        said = self.confusion.sum(axis=0)
        return tuple(float(self.confusion[i, i] / n) if n else None for i, n in enumerate(said))

    @property
    def recall(self) -> tuple[float | None, ...]:
        """By class; None where the class was never recorded."""
        there = self.confusion.sum(axis=1) + self.invalid
        return tuple(float(self.confusion[i, i] / n) if n else None for i, n in enumerate(there))

    @property
    def f1(self) -> tuple[float | None, ...]:
        """By class: 2 hits / (predicted + recorded); None where the class was neither."""
        counts = self.confusion.sum(axis=0) + self.confusion.sum(axis=1) + self.invalid
        return tuple(float(2 * self.confusion[i, i] / n) if n else None for i, n in enumerate(counts))

    @property
    def macro_f1(self) -> float:
        """The mean F1 over the classes that were recorded or predicted."""
        return float(np.mean([f for f in self.f1 if f is not None]))


def class_metrics(predicted: ArrayLike, target: ArrayLike, *, classes: Sequence[float] | None = None) -> ClassMetrics:
    """Class metrics of a discrete action (T,); NaN is an invalid answer, any value outside the classes raises."""
    a, b = np.asarray(predicted, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise InputError(f'predicted {a.shape} and target {b.shape} must be of one shape (T,), and not empty')
    known = np.unique(np.concatenate([b, a[~np.isnan(a)]])) if classes is None else np.array(sorted(set(classes)))
    for name, values in (('predicted', a[~np.isnan(a)]), ('target', b)):
        stray = values[~np.isin(values, known)]
        if stray.size:
            raise InputError(f'{name} holds {stray[0]:g}, which is none of the classes {known.tolist()}')
    rows = np.searchsorted(known, b)
    valid = ~np.isnan(a)
    confusion = np.zeros((known.size, known.size), dtype=np.int64)
    np.add.at(confusion, (rows[valid], np.searchsorted(known, a[valid])), 1)
    invalid = np.bincount(rows[~valid], minlength=known.size).astype(np.int64)
    return ClassMetrics(tuple(known.tolist()), confusion, invalid)


def _flat(errors: ArrayLike) -> FloatArray:
    values = np.asarray(errors, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise InputError(f'errors must be (T,) with at least one timestep, found shape {values.shape}')
    if not np.isfinite(values).all() or (values < 0).any():
        raise InputError('errors must be finite and >= 0')
    return values


def _checked(episodes: Sequence[ArrayLike]) -> list[FloatArray]:
    if len(episodes) == 0:
        raise InputError('no episodes; wanted at least one array of timestep errors')
    return [_flat(e) for e in episodes]


# Episode-clustered resampling of a run's timestep errors: each statistic for many draws of whole episodes at once.

BATCH_ENTRIES = 4_000_000

Counts = NDArray[Any]
"""(B, episodes): how often each episode was drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The timestep errors of a run: episode by episode, and sorted together for quantiles."""

    totals: FloatArray  # (episodes,)
    lengths: FloatArray
    lows: FloatArray
    highs: FloatArray
    ordered: FloatArray  # (timesteps,)
    owner: NDArray[np.int64]  # the episode of each ordered error

    @classmethod
    def of(cls, episodes: Sequence[FloatArray]) -> Pool:
        joined = np.concatenate(episodes)
        owner = np.repeat(np.arange(len(episodes)), [len(e) for e in episodes])
        order = np.argsort(joined, kind='stable')
        return cls(
            totals=np.array([e.sum() for e in episodes]),
            lengths=np.array([float(len(e)) for e in episodes]),
            lows=np.array([e.min() for e in episodes]),
            highs=np.array([e.max() for e in episodes]),
            ordered=joined[order],
            owner=owner[order],
        )

    def mean(self, counts: Counts) -> FloatArray:
        return ratio(counts, self.totals, self.lengths)

    def mean_by_episode(self, counts: Counts) -> FloatArray:
        return ratio(counts, self.totals / self.lengths, np.ones_like(self.totals))

    def normalized(self, counts: Counts) -> FloatArray:
        low = np.where(counts > 0, self.lows, np.inf).min(axis=1)
        high = np.where(counts > 0, self.highs, -np.inf).max(axis=1)
        return _scaled(self.mean(counts), low, high)

    def quantile_filtered(self, counts: Counts, quantiles: tuple[float, float]) -> FloatArray:
        weights = counts[:, self.owner].astype(np.float64)
        low, high = (self._quantile(weights, q) for q in quantiles)
        weights *= (self.ordered >= low[:, None]) & (self.ordered <= high[:, None])
        first = self.ordered[np.argmax(weights > 0, axis=1)]
        last = self.ordered[weights.shape[1] - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)]
        size = weights.sum(axis=1)  # 0 where so few errors were drawn that none lies between the quantiles
        mean = np.einsum('bn,n->b', weights, self.ordered) / np.where(size > 0, size, 1.0)
        return np.where(size > 0, _scaled(mean, first, last), np.nan)

    def max_over_median(self, counts: Counts) -> FloatArray:
        median = self._quantile(counts[:, self.owner].astype(np.float64), 0.5)
        high = np.where(counts > 0, self.highs, -np.inf).max(axis=1)
        return np.where(median > 0, high / np.where(median > 0, median, 1.0), np.nan)

    def share_beyond(self, counts: Counts, medians: float) -> FloatArray:
        weights = counts[:, self.owner].astype(np.float64)
        median = self._quantile(weights, 0.5)
        beyond = (weights * (self.ordered > medians * median[:, None])).sum(axis=1) / weights.sum(axis=1)
        return np.where(median > 0, beyond, np.nan)

    def _quantile(self, weights: FloatArray, probability: float) -> FloatArray:
        """The linear quantile (numpy's) of the sample in which each ordered error is repeated by its weight."""
        reached = np.cumsum(weights, axis=1)
        position = probability * (reached[:, -1] - 1)
        below = np.floor(position)
        low = self.ordered[(reached <= below[:, None]).sum(axis=1)]
        above = np.minimum(below + 1, reached[:, -1] - 1)
        high = self.ordered[(reached <= above[:, None]).sum(axis=1)]
        return np.asarray(low + (position - below) * (high - low))


def ratio(counts: Counts, totals: FloatArray, sizes: FloatArray) -> FloatArray:
    """Drawn totals over drawn sizes; NaN where nothing was drawn."""
    weights = counts.astype(np.float64)
    above, below = np.einsum('bk,k->b', weights, totals), np.einsum('bk,k->b', weights, sizes)
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def _scaled(mean: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    spread = high - low
    return np.where(spread > 0, (mean - low) / np.where(spread > 0, spread, 1.0), np.nan)


@dataclass(frozen=True, slots=True)
class ErrorMeasure:
    """A number with its interval; None where it does not exist, and then `why` says so."""

    value: float | None
    interval: Interval | None = None
    why: str = ''

    def require(self, name: str) -> float:
        if self.value is None:
            raise NotEstimable(f'{name} does not exist: {self.why}')
        return self.value


def measure(
    statistic: Callable[[Counts], FloatArray], *, n_episodes: int, n_timesteps: int, n_resamples: int, seed: int,
    level: float, why: str,
) -> ErrorMeasure:  # fmt: skip
    """The statistic of the run as it is, with a percentile interval over draws of whole episodes.

    The same seed draws the same episodes for every statistic.
    """
    value = float(statistic(np.ones((1, n_episodes), dtype=np.int64))[0])
    if np.isnan(value):
        return ErrorMeasure(None, None, why)
    if n_resamples == 0:
        return ErrorMeasure(value, None, 'no interval was asked for')
    if n_episodes < 2:
        return ErrorMeasure(value, None, 'no interval: one episode only')
    rng = np.random.default_rng(seed)
    draws = np.empty(n_resamples)
    batch = max(1, BATCH_ENTRIES // max(n_timesteps, n_episodes))
    for start in range(0, n_resamples, batch):
        size = min(batch, n_resamples - start)
        draws[start : start + size] = statistic(resample_counts(n_episodes, n_resamples=size, rng=rng))
    try:
        return ErrorMeasure(value, bootstrap_interval(value, draws, level=level))
    except NotEstimable as error:
        return ErrorMeasure(value, None, f'no interval: {error}')


PHASES = ('start', 'middle', 'end')
CONSTANT = 'the timestep errors do not differ (one timestep, or all equal)'
FILTERED = 'the errors between the quantiles are none, or do not differ'
ZERO_MEDIAN = 'the median error is 0'


@dataclass(frozen=True, slots=True)
class Completion:
    """How many episodes end on the recorded action."""

    completed: int
    episodes: int
    interval: Interval

    @property
    def rate(self) -> float:
        return self.completed / self.episodes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ActionSummary:
    """One run. `measures` has every number by name; an absent one is None with its reason.

    amse, amae: timestep-weighted (the paper's tables); amse_by_episode, amae_by_episode: episode-weighted (its text);
    namse, namae: normalised over this run's own errors, not comparable between models.
    """

    n_episodes: int
    n_timesteps: int  # scored
    n_invalid: int
    invalid_choice: InvalidChoice
    dimensions: tuple[str, ...]
    measures: Mapping[str, ErrorMeasure]
    completion_exact: Completion | None = None
    completion_tolerant: Completion | None = None
    by_dimension: Mapping[str, ErrorMeasure] = field(default_factory=dict)
    by_phase: Mapping[str, ErrorMeasure] = field(default_factory=dict)

    @property
    def amse(self) -> float:
        return self.measures['amse'].require('AMSE')

    @property
    def amse_by_episode(self) -> float:
        return self.measures['amse_by_episode'].require('AMSE by episode')

    @property
    def namse(self) -> float:
        return self.measures['namse'].require('NAMSE')

    @property
    def amae(self) -> float:
        if 'amae' not in self.measures:
            raise NotEstimable('AMAE needs predicted and recorded actions; only squared errors were given')
        return self.measures['amae'].require('AMAE')

    @property
    def invalid_rate(self) -> float:
        """Invalid answers over all answers asked for."""
        asked = self.n_timesteps + (self.n_invalid if self.invalid_choice is InvalidChoice.EXCLUDE else 0)
        return self.n_invalid / asked


@dataclass(frozen=True, slots=True)
class _Asked:
    n_resamples: int
    seed: int
    level: float


def summarize_actions(
    episodes: Iterable[PredictedEpisode | ArrayLike],
    *,
    invalid: InvalidChoice | str = InvalidChoice.RANDOM,
    space: ActionSpace | None = None,
    dimensions: Sequence[int] | None = None,
    tolerance: ArrayLike | None = None,
    training_mean: ArrayLike | None = None,
    n_resamples: int = 0,
    seed: int = 0,
    level: float = 0.95,
) -> ActionSummary:
    """Summarise a run: PredictedEpisodes, or bare arrays (T,) of `action_errors`, one per episode.

    Bare errors give AMSE and NAMSE alone. `dimensions` limits the score (default: those the model predicts),
    `tolerance` and `training_mean` are (D,) over the whole action. `n_resamples` asks for episode-clustered intervals.
    """
    items = list(episodes)
    if not items:
        raise InputError('no episodes to summarise; wanted at least one')
    asked = _Asked(n_resamples, seed, level)
    whole = [e for e in items if isinstance(e, PredictedEpisode)]
    if len(whole) == len(items):
        scored = score_episodes(whole, invalid=invalid, space=space, dimensions=dimensions, seed=seed)
        return _summarize(scored, asked, tolerance=tolerance, training_mean=training_mean)
    if whole:
        raise InputError('give PredictedEpisodes or arrays of errors, not both')
    errors = [_bare(e, number) for number, e in enumerate(items)]
    pool = Pool.of(errors)
    return ActionSummary(
        n_episodes=len(errors), n_timesteps=sum(map(len, errors)), n_invalid=0, invalid_choice=InvalidChoice(invalid),
        dimensions=(), measures=_squared_measures(pool, asked),
    )  # fmt: skip


def _bare(errors: Any, number: int) -> FloatArray:
    values = np.asarray(errors, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all() or (values < 0).any():
        raise InputError(f'episode {number}: wanted timestep errors (T,), finite and >= 0, found shape {values.shape}')
    return values


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRun:
    """A run with its invalid answers resolved, on the chosen dimensions."""

    episodes: tuple[PredictedEpisode, ...]  # filled
    keep: tuple[NDArray[np.bool_], ...]  # which timesteps count
    final_is_valid: tuple[bool, ...]
    n_invalid: int
    choice: InvalidChoice
    dimensions: tuple[int, ...]
    names: tuple[str, ...]

    def errors(self, kind: str = 'squared') -> list[FloatArray]:
        """Timestep errors of each episode that has a scored timestep."""
        score = {'squared': action_errors, 'absolute': absolute_errors}[kind]
        pairs = zip(self.episodes, self.keep, strict=True)
        return [score(e.predicted[k], e.target[k]) for e, k in pairs if k.any()]


def score_episodes(
    episodes: Sequence[PredictedEpisode],
    *,
    invalid: InvalidChoice | str,
    space: ActionSpace | None = None,
    dimensions: Sequence[int] | None = None,
    seed: int = 0,
) -> ScoredRun:
    """Resolve the invalid answers of a run by the named choice and keep the chosen dimensions."""
    ids = [e.episode_id for e in episodes]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise InputError(f'episode {twice} is twice in the run')
    predicted = predicted_dimensions(episodes)
    chosen = predicted if dimensions is None else tuple(dimensions)
    unpredicted = sorted(set(chosen) - set(predicted))
    if unpredicted:
        raise InputError(f'dimensions {unpredicted} are not predicted by this model; it predicts {list(predicted)}')
    pairs = [resolve_invalid(e, invalid, seed=seed, space=space) for e in episodes]
    names = space.names if space is not None else tuple(f'action[{i}]' for i in range(episodes[0].target.shape[1]))
    run = ScoredRun(
        episodes=tuple(filled.select(chosen) for filled, _ in pairs),
        keep=tuple(keep for _, keep in pairs),
        final_is_valid=tuple(not e.invalid[-1] for e in episodes),
        n_invalid=sum(int(e.invalid.sum()) for e in episodes),
        choice=InvalidChoice(invalid),
        dimensions=chosen,
        names=tuple(names[i] for i in chosen),
    )
    if not any(keep.any() for keep in run.keep):
        raise NotEstimable(f'all {run.n_invalid} answers are invalid and excluded; nothing is left to score')
    return run


def _summarize(
    run: ScoredRun, asked: _Asked, *, tolerance: ArrayLike | None, training_mean: ArrayLike | None
) -> ActionSummary:
    squared, absolute = run.errors('squared'), run.errors('absolute')
    measures = {**_squared_measures(Pool.of(squared), asked), **_absolute_measures(Pool.of(absolute), asked)}
    if training_mean is not None:
        measures['relative_to_mean'] = _relative(run, squared, asked, np.asarray(training_mean, dtype=np.float64))
    # The mean squared error of the first, second and last third of every episode, by relative time. A timestep is in
    # the phase of its own time, whichever other timesteps are left out of the score.
    pool = Pool.of(squared)
    phases = [(np.arange(len(keep)) * len(PHASES) // len(keep))[keep] for keep in run.keep if keep.any()]
    measured: dict[str, tuple[Any, str]] = {}
    for number, phase in enumerate(PHASES):
        parts = [e[own == number] for e, own in zip(squared, phases, strict=True)]
        totals, sizes = np.array([p.sum() for p in parts]), np.array([float(p.size) for p in parts])
        measured[phase] = (functools.partial(ratio, totals=totals, sizes=sizes), 'no episode has a step in it')
    return ActionSummary(
        n_episodes=len(run.episodes),
        n_timesteps=sum(map(len, squared)),
        n_invalid=run.n_invalid,
        invalid_choice=run.choice,
        dimensions=run.names,
        measures=measures,
        completion_exact=_completion(run, None, asked.level),
        completion_tolerant=None if tolerance is None else _completion(run, tolerance, asked.level),
        by_dimension=_by_dimension(run, asked),
        by_phase=_measures(pool, asked, measured),
    )


def _measures(pool: Pool, asked: _Asked, statistics: Mapping[str, tuple[Any, str]]) -> dict[str, ErrorMeasure]:
    return {
        name: measure(
            call, n_episodes=pool.totals.size, n_timesteps=pool.ordered.size, n_resamples=asked.n_resamples,
            seed=asked.seed, level=asked.level, why=why,
        )
        for name, (call, why) in statistics.items()
    }  # fmt: skip


def _squared_measures(pool: Pool, asked: _Asked) -> dict[str, ErrorMeasure]:
    return _measures(
        pool, asked,
        {'amse': (pool.mean, ''), 'amse_by_episode': (pool.mean_by_episode, ''), 'namse': (pool.normalized, CONSTANT)},
    )  # fmt: skip


def _absolute_measures(pool: Pool, asked: _Asked) -> dict[str, ErrorMeasure]:
    return _measures(
        pool,
        asked,
        {
            'amae': (pool.mean, ''),
            'amae_by_episode': (pool.mean_by_episode, ''),
            'namae': (pool.normalized, CONSTANT),
            'quantile_filtered_namae': (functools.partial(pool.quantile_filtered, quantiles=QUANTILES), FILTERED),
            'max_over_median': (pool.max_over_median, ZERO_MEDIAN),
            'share_beyond_three_medians': (functools.partial(pool.share_beyond, medians=3.0), ZERO_MEDIAN),
        },
    )


def _relative(run: ScoredRun, squared: Sequence[FloatArray], asked: _Asked, mean: FloatArray) -> ErrorMeasure:
    """AMSE over the AMSE of always predicting the training mean; below 1 is better than that."""
    if mean.ndim != 1 or mean.size <= max(run.dimensions):
        raise InputError(f'training_mean has shape {mean.shape}, wanted one number for each dimension of the action')
    constant = mean[list(run.dimensions)]
    baseline = [
        action_errors(np.broadcast_to(constant, e.target[k].shape), e.target[k]).sum()
        for e, k in zip(run.episodes, run.keep, strict=True) if k.any()
    ]  # fmt: skip
    totals = np.array([e.sum() for e in squared])
    measures = _measures(
        Pool.of(squared), asked,
        {'relative': (functools.partial(ratio, totals=totals, sizes=np.array(baseline)), 'the mean is always right')},
    )  # fmt: skip
    return measures['relative']


def _completion(run: ScoredRun, tolerance: ArrayLike | None, level: float) -> Completion:
    slack = None
    if tolerance is not None:
        given = np.asarray(tolerance, dtype=np.float64)
        slack = given if given.ndim == 0 else given[list(run.dimensions)]
    done = sum(
        valid and completes(e.predicted, e.target, tolerance=slack)
        for e, valid in zip(run.episodes, run.final_is_valid, strict=True)
    )
    return Completion(int(done), len(run.episodes), wilson(int(done), len(run.episodes), level))


def _by_dimension(run: ScoredRun, asked: _Asked) -> dict[str, ErrorMeasure]:
    kept = [(e.predicted[k] - e.target[k]) ** 2 for e, k in zip(run.episodes, run.keep, strict=True) if k.any()]
    return {
        name: _measures(pool, asked, {'mse': (pool.mean, '')})['mse']
        for i, name in enumerate(run.names)
        for pool in [Pool.of([squares[:, i] for squares in kept])]
    }
