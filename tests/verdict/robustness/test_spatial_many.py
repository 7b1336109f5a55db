"""Many starts have the neighbours, and the test the numbers, that a table of all distances gives."""

from __future__ import annotations

import numpy as np
import pytest

from robotrials.verdict.robustness import StartTrial, spatial_sensitivities, trial

RNG = np.random.default_rng(0)
GRID = np.stack(np.meshgrid(np.arange(15) * 0.02, np.arange(15) * 0.02), -1).reshape(-1, 2)
STARTS = {
    'random': RNG.uniform(size=(300, 2)),
    'grid': GRID,
    'repeated places': RNG.uniform(size=(50, 2))[RNG.integers(50, size=400)],
    'repeated grid': RNG.integers(0, 9, size=(400, 2)) * 0.013,
    'line': np.stack([np.arange(100) * 0.1, np.zeros(100)], 1),
    'two places': np.array([[0.0, 0.0], [1.0, 0.0]])[RNG.integers(2, size=40)],
}


@pytest.mark.parametrize('name', STARTS)
def test_the_nearest_starts_are_those_of_all_distances(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = STARTS[name]
    apart = np.linalg.norm(starts[:, None] - starts[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    wanted = np.argsort(apart, axis=1, kind='stable')[:, : trial.NEIGHBOURS]
    assert (trial.nearest_starts(starts) == wanted).all()
    monkeypatch.setattr(trial, 'FEW_STARTS', 0)
    assert (trial.nearest_starts(starts) == wanted).all()


def test_many_starts_at_once_or_few_give_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [StartTrial('p', x, y, bool(x + RNG.normal() > 0.5)) for x, y in STARTS['random'].tolist()]
    whole = spatial_sensitivities(trials, n_resamples=50, rng=np.random.default_rng(1))
    monkeypatch.setattr(trial, 'FEW_STARTS', 0)
    monkeypatch.setattr(trial, 'BATCH_ENTRIES', 5000)
    assert spatial_sensitivities(trials, n_resamples=50, rng=np.random.default_rng(1)) == whole
