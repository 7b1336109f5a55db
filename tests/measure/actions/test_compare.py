from __future__ import annotations

import math

import numpy as np
import pytest

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.actions import PredictedEpisode, Verdict, compare_actions, summarize_actions


def run(seed: int, noise: float | np.ndarray, *, episodes: int = 20, shift: float = 0.0) -> list[PredictedEpisode]:
    """Predictions with some noise around fixed targets; the same episodes for every seed."""
    made = []
    for number in range(episodes):
        target = np.random.default_rng([7, number]).normal(size=(6 + number % 4, 3))
        wobble = np.random.default_rng([seed, number]).normal(size=target.shape) * noise + shift
        made.append(PredictedEpisode(episode_id=f'd/test/{number}', predicted=target + wobble, target=target))
    return made


def test_a_model_with_less_noise_is_better() -> None:
    found = compare_actions(run(1, 0.1), run(2, 0.5), names=('sharp', 'dull'))
    assert found.verdict is Verdict.BETTER
    assert found.better == 'sharp'
    assert found.sentence.startswith('sharp is better than dull')
    turned = compare_actions(run(2, 0.5), run(1, 0.1), names=('dull', 'sharp'))
    assert turned.better == 'sharp'
    assert turned.advantages['amse'].value == pytest.approx(-(found.advantages['amse'].value or math.nan))


def test_the_advantage_is_the_difference_of_the_summaries() -> None:
    a, b = run(1, 0.1), run(2, 0.5)
    found = compare_actions(a, b)
    assert found.advantages['amse'].value == pytest.approx(summarize_actions(b).amse - summarize_actions(a).amse)
    assert found.advantages['amae'].value == pytest.approx(summarize_actions(b).amae - summarize_actions(a).amae)


def test_equal_models_are_unresolved_and_say_how_many_episodes_would_resolve_them() -> None:
    found = compare_actions(run(1, 0.3), run(2, 0.3))
    assert found.verdict is Verdict.UNRESOLVED
    assert found.n_for_power is not None
    assert found.n_for_power > found.n_episodes
    assert f'About {found.n_for_power} episodes' in found.sentence


def test_identical_models_are_unresolved_without_a_number() -> None:
    found = compare_actions(run(1, 0.3), run(1, 0.3))
    assert found.verdict is Verdict.UNRESOLVED
    assert found.n_for_power is None
    assert found.p_value == 1.0


def test_rare_large_errors_against_steady_small_ones_cross() -> None:
    """One error of 3 a step in twenty has the larger square and the smaller size than 0.3 everywhere."""
    steady = [PredictedEpisode(episode_id=e.episode_id, predicted=e.target + 0.3, target=e.target) for e in run(1, 0.0)]
    rare = []
    for e in run(1, 0.0):
        predicted = e.target.copy()
        predicted[0, 0] += 3.0
        rare.append(PredictedEpisode(episode_id=e.episode_id, predicted=predicted, target=e.target))
    found = compare_actions(steady, rare, names=('steady', 'rare'))
    assert found.verdict is Verdict.CROSSING
    assert 'amse' in found.favouring_a
    assert found.favouring_b == ('amae',)


def test_only_common_dimensions_count() -> None:
    """One model does not predict the last dimension; the other's huge error in it does not matter."""
    a, b = [], []
    for e in run(1, 0.1):
        short = np.column_stack([e.predicted[:, :2], np.full(e.n_steps, np.nan)])
        a.append(PredictedEpisode(episode_id=e.episode_id, predicted=short, target=e.target))
    for e in run(2, 0.1):
        wild = e.predicted + np.array([0, 0, 100])
        b.append(PredictedEpisode(episode_id=e.episode_id, predicted=wild, target=e.target))
    found = compare_actions(a, b)
    assert found.dimensions == ('action[0]', 'action[1]')
    assert found.verdict is Verdict.UNRESOLVED


def test_excluded_timesteps_count_only_where_both_answered() -> None:
    a, b = run(1, 0.1), run(2, 0.1)
    holes = a[0].predicted.copy()
    holes[:3] = np.nan
    a[0] = PredictedEpisode(episode_id=a[0].episode_id, predicted=holes, target=a[0].target)
    whole = compare_actions(run(1, 0.1), b, invalid='exclude').n_timesteps
    assert compare_actions(a, b, invalid='exclude').n_timesteps == whole - 3


def test_different_episodes_or_targets_are_refused() -> None:
    with pytest.raises(InputError, match='must have predicted the same episodes'):
        compare_actions(run(1, 0.1, episodes=3), run(2, 0.1, episodes=4))
    other = run(2, 0.1, episodes=3)
    moved = [PredictedEpisode(episode_id=e.episode_id, predicted=e.predicted, target=e.target + 1) for e in other]
    with pytest.raises(InputError, match='recorded actions of the two runs differ'):
        compare_actions(run(1, 0.1, episodes=3), moved)


def test_no_shared_answer_is_not_estimable() -> None:
    a = run(1, 0.1, episodes=1)
    half = a[0].predicted.copy()
    half[:3] = np.nan
    rest = a[0].predicted.copy()
    rest[3:] = np.nan
    pair = [[PredictedEpisode(episode_id='e', predicted=p, target=a[0].target)] for p in (half, rest)]
    with pytest.raises(NotEstimable, match='no timestep has a valid answer of both'):
        compare_actions(pair[0], pair[1], invalid='exclude')


def test_few_episodes_are_tested_exactly() -> None:
    """Six episodes that all favour one model: 2 of the 64 arrangements are as extreme; Holm doubles it."""
    found = compare_actions(run(1, 0.1, episodes=6), run(2, 0.9, episodes=6), n_resamples=100)
    assert all(t.exact and t.p_value == 2 / 64 for t in found.tests.values())
    assert found.p_value == 4 / 64
    assert found.n_for_power == 7
    assert found.verdict is Verdict.UNRESOLVED


@pytest.mark.parametrize('scale', [1e-7, 1e7])
def test_the_unit_of_the_actions_does_not_matter(scale: float) -> None:
    def scaled(episodes: list[PredictedEpisode]) -> list[PredictedEpisode]:
        return [
            PredictedEpisode(episode_id=e.episode_id, predicted=e.predicted * scale, target=e.target * scale)
            for e in episodes
        ]

    found = compare_actions(scaled(run(1, 0.1)), scaled(run(2, 0.5)))
    assert found.verdict is Verdict.BETTER
    assert found.p_value == pytest.approx(compare_actions(run(1, 0.1), run(2, 0.5)).p_value)


def test_the_gate_holds_its_level_under_the_null() -> None:
    """Two models with equal noise, 12 episodes: told apart in at most about 5 % of 200 trials."""
    found = sum(
        compare_actions(
            run(1000 + i, 0.3, episodes=12), run(5000 + i, 0.3, episodes=12), n_resamples=199
        ).verdict is not Verdict.UNRESOLVED
        for i in range(200)
    )  # fmt: skip
    assert found / 200 <= 0.09
