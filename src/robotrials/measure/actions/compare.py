"""Two models on the same timesteps: paired by episode, on the dimensions that both predict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.formats.space import ActionSpace, FloatArray
from robotrials.measure.actions.prediction import InvalidChoice, PredictedEpisode, predicted_dimensions
from robotrials.measure.actions.resample import Measure, measure, ratio
from robotrials.measure.actions.summary import ScoredRun, score_episodes
from robotrials.stats import Permutation, Verdict, holm, sign_flip
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
    advantages: Mapping[str, Measure]
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
        found = f'only one of them has {lone[0]}' if lone else 'there are none'
        raise InputError(f'{names[0]} and {names[1]} must have predicted the same episodes; {found}')
    pairs = [(e, by_id[e.episode_id]) for e in a]
    for one, other in pairs:
        if one.target.shape != other.target.shape or not np.allclose(one.target, other.target):
            raise InputError(f'{one.episode_id}: the recorded actions of the two runs differ')
    return [p for p, _ in pairs], [p for _, p in pairs]


def _paired(a: ScoredRun, b: ScoredRun, kind: str) -> list[FloatArray]:
    """The error of b minus that of a at every timestep that counts in both, episode by episode."""
    differences = []
    for ea, ka, eb, kb in zip(a.episodes, a.keep, b.episodes, b.keep, strict=True):
        both = ka & kb
        if not both.any():
            continue
        gaps = [e.predicted[both] - e.target[both] for e in (ea, eb)]
        sizes = [(g**2 if kind == 'squared' else np.abs(g)).mean(axis=1) for g in gaps]
        differences.append(sizes[1] - sizes[0])
    if not differences:
        raise NotEstimable('no timestep has a valid answer of both models')
    return differences


def _advantages(
    squared: Sequence[FloatArray], absolute: Sequence[FloatArray], *, n_resamples: int, seed: int, level: float
) -> dict[str, Measure]:
    lengths = np.array([float(len(d)) for d in squared])
    ones = np.ones_like(lengths)
    totals = {'amse': (np.array([d.sum() for d in squared]), lengths),
              'amse_by_episode': (np.array([d.mean() for d in squared]), ones),
              'amae': (np.array([d.sum() for d in absolute]), lengths)}  # fmt: skip
    found = {}
    for name, (above, below) in totals.items():
        found[name] = measure(
            lambda counts, above=above, below=below: ratio(counts, above, below),  # type: ignore[misc]
            n_episodes=len(squared), n_timesteps=len(squared), n_resamples=n_resamples, seed=seed, level=level, why='',
        )  # fmt: skip
    return found


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
    advantages: Mapping[str, Measure], p_value: float, alpha: float, names: tuple[str, str]
) -> tuple[Verdict, str | None, tuple[str, ...], tuple[str, ...]]:
    told = {name: m.interval for name, m in advantages.items() if m.interval is not None}
    for_a = tuple(name for name, interval in told.items() if interval.low > 0)
    for_b = tuple(name for name, interval in told.items() if interval.high < 0)
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
