"""The grid of verdicts against a loop over lifelines, which is how it would be written without kernels."""

from __future__ import annotations

import warnings

import numpy as np
from lifelines import KaplanMeierFitter
from lifelines.utils import restricted_mean_survival_time
from tests.grid.kernel import OBSERVED
from tests.grid.table import grid_worlds
from tests.grid.world import Cell, World, arm_bounds, arms_of, difference_bounds, simulate

from bench.measure import Result, against, seconds

TRIALS = 2000
EVERY = 12
ALPHA = 0.05


def run() -> list[Result]:
    worlds = [world for world, kind, _ in grid_worlds() if kind == 'null'][::EVERY]
    evaluate(worlds[0], 10)
    ours_s = seconds(lambda: [evaluate(world, TRIALS) for world in worlds], repeats=2)
    fit_s = fit_seconds()
    fits = sum(2 * TRIALS * sum(n + 1 for n in world.n_units) for world in worlds)
    work = (
        f'{len(worlds)} cells of the grid x {TRIALS} two-policy trials, drawing, jackknife over units and intervals '
        f'included; peer extrapolated from 60 of {fits:,} restricted means, without drawing'
    )
    return [
        against('verdicts/grid', ours_s=ours_s, peer='lifelines loop', peer_s=fits * fit_s, target=10_000, work=work)
    ]


def evaluate(world: World, n_trials: int) -> None:
    arms = arms_of(world, simulate(world, n_trials, np.random.default_rng(0)), paired=world.pairing > 0)
    difference_bounds(arms, ALPHA)
    for arm in (0, 1):
        arm_bounds(arms, arm, ALPHA)


def fit_seconds() -> float:
    """Seconds that lifelines takes for one restricted mean of one cell."""
    world = next(world for world, _, _ in grid_worlds() if world.name == 'exponential; 4 strata x 20')
    cells: list[Cell] = simulate(world, 15, np.random.default_rng(1))[0]

    def loop() -> None:
        for cell in cells:
            for k in range(15):
                fitted = KaplanMeierFitter().fit(np.minimum(cell.times_s[k], 200.0), cell.state[k] == OBSERVED)
                restricted_mean_survival_time(fitted, t=world.tau_s)

    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        loop()
        return seconds(loop, repeats=2) / (15 * len(cells))
