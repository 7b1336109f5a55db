"""Offline against closed loop: do the errors on recorded actions order policies as their successes do?

Both numbers are of the same policies, under the same names. The agreement is Kendall's tau-b between the orders; its
interval resamples episodes on both sides, so it speaks of these policies and not of others that might have been tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.actions.evaluate import KIND, ActionRun
from robotrials.measure.actions.metric import action_errors
from robotrials.measure.actions.prediction import InvalidChoice
from robotrials.measure.actions.summary import score_episodes
from robotrials.record import Episode
from robotrials.stats import Interval, wilson

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
    left = _Side([errors[n] for n in names], [weights[n] for n in names] if weights is not None else None)
    right = _Side([successes[n] for n in names], None)
    tau = kendall_tau_b(-left.means(), right.means())
    if tau is None:
        raise NotEstimable('all policies are equal on one side; there is no order to agree with')
    drawn = [kendall_tau_b(-left.means(rng), right.means(rng)) for _ in range(n_resamples)]
    found = np.array([0.0 if t is None else t for t in drawn])  # no order in a resample is no agreement
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return RankAgreement(tau, Interval(float(low), float(high)), len(names), n_resamples, level)


class _Side:
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
