"""A run of one model on one dataset in numbers: AMSE, NAMSE, completion and what goes with them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.formats.space import ActionSpace, FloatArray
from robotrials.measure.actions.metric import (
    QUANTILES,
    ErrorMeasure,
    Pool,
    absolute_errors,
    action_errors,
    completes,
    measure,
    ratio,
)
from robotrials.measure.actions.prediction import InvalidChoice, PredictedEpisode, predicted_dimensions, resolve_invalid
from robotrials.stats import Interval, wilson

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
