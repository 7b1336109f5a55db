"""Print how the release detector does on episodes of the embedded cell, by object and by noise, as Markdown.

    python tools/annotation_table.py STORE
    python tools/annotation_table.py STORE --fresh 20270 --episodes 12 --first 200

With `--fresh` the store is recorded first: the demo's policies and objects under another seed, so that no start state
is one that the detector was tuned on. The store's timed placements are the truth and are not shown to the detector.
Noise is laid over the recorded gripper: a normal error on its measure, and readings that are missing. Intervals are of
95 % and take episodes, not placements, as independent: Wilson's at the effective sample size, and for times a bootstrap
of episodes.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robotrials.cli.demo import prepare
from robotrials.errors import InputError
from robotrials.measure.annotate import Labelled, Settings, Zone, Zones, assess, assess_settings, read_telemetry
from robotrials.measure.annotate.calibrate import Matched
from robotrials.record import Episode, Store, Trajectory
from robotrials.run import read_plan, run_trial
from robotrials.stats import Interval, cluster_bootstrap
from robotrials.worlds.cell.scene import BIN_INNER_M, SOURCE_CENTER_M, TARGET_CENTER_M

TUNED_SEED = 2026  # of the demo: the detector's rules were chosen on its episodes
ZONES = Zones(
    source=Zone(center_m=SOURCE_CENTER_M, size_m=BIN_INNER_M), target=Zone(center_m=TARGET_CENTER_M, size_m=BIN_INNER_M)
)
NOISE = {
    'none': (0.0, 0.0), '1 % of the travel': (0.01, 0.0), '2 %': (0.02, 0.0), '4 %': (0.04, 0.0),
    '1 %, a fifth of the readings missing': (0.01, 0.2),
}  # fmt: skip
COLUMNS = ('noise', 'object', 'episodes', 'placements', 'precision', 'recall', 'bias s', '90 % within s',
           'counts agree')  # fmt: skip
N_RESAMPLES = 2000
Recorded = Sequence[tuple[Episode, Trajectory]]


def record(path: Path, *, seed: int, episodes: int, first: int | None = None, workers: int = 1) -> None:
    """Run the demo's plan under another seed, without its cameras; all of it, or so many of its random order."""
    if seed == TUNED_SEED:
        raise InputError(f'seed {seed} is that of the episodes that the detector was tuned on; give another')
    with tempfile.TemporaryDirectory() as folder:
        trial = prepare(Path(folder) / 'demo', episodes=episodes, seed=seed)
        text = trial.read_text(encoding='utf-8').replace('watchers = ["front", "side", "gallery"]', 'watchers = []')
        trial.write_text(text.replace('success = "both"', 'success = "host"'), encoding='utf-8')
        plan = read_plan(trial)
        run_trial(plan, path, workers=workers, stop_after=first)


def read_recorded(path: Path) -> Recorded:
    """The valid episodes of a store with what was recorded of them."""
    return [(e, t) for e, t in Store.open(path).trajectories() if e.is_valid]


def noisy(trajectory: Trajectory, sd: float, missing: float, rng: np.random.Generator) -> Trajectory:
    """The trajectory with a worse gripper sensor."""
    measured = np.asarray(trajectory.gripper_position, dtype=float)
    measured = measured + rng.normal(0.0, sd, len(measured)) if sd else measured.copy()
    measured[rng.random(len(measured)) < missing] = np.nan
    return dataclasses.replace(trajectory, gripper_position=measured)


def table_rows(recorded: Recorded) -> list[tuple[str, ...]]:
    """A row per noise and object, and one of all objects."""
    rows = []
    strata = sorted({e.stratum for e, _ in recorded})
    for name, (sd, missing) in NOISE.items():
        rng = np.random.default_rng(0)
        given = [Labelled(e, read_telemetry(noisy(t, sd, missing, rng)), ZONES) for e, t in recorded]
        matched = assess_settings(Settings(), given)
        for stratum in [*strata, 'all']:
            own = [m for m, g in zip(matched, given, strict=True) if stratum in (g.episode.stratum, 'all')]
            rows.append((name, stratum, *row_of(own)))
    return rows


def row_of(matched: Sequence[Matched]) -> tuple[str, ...]:
    """The cells of some episodes after their names."""
    a = assess(matched)
    shares = [_share(a.n_matched, n, interval) for n, interval in ((a.n_found, a.precision), (a.n_true, a.recall))]
    return (
        str(a.n_episodes), str(a.n_true), *shares, _timed(matched, 0.5, signed=True),
        _timed(matched, 0.9, signed=False), _share(a.n_counts_agree, a.n_episodes, a.agreement),
    )  # fmt: skip


def _share(count: int, n: int, interval: Interval | None) -> str:
    return '–' if interval is None else f'{count / n:.3f} [{interval.low:.3f}, {interval.high:.3f}]'


def _timed(matched: Sequence[Matched], level: float, *, signed: bool) -> str:
    """A quantile of the errors of time with its interval over episodes."""
    errors = np.concatenate([np.empty(0), *(m.errors_s for m in matched)])
    if not len(errors):
        return '–'
    episode = np.repeat(np.arange(len(matched)), [len(m.errors_s) for m in matched])

    def quantile(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        order = np.argsort(values)
        reached = np.cumsum(weights[:, order], axis=1)
        return np.asarray(values[order][(reached >= level * reached[:, -1:]).argmax(axis=1)])

    estimate = cluster_bootstrap(
        errors if signed else np.abs(errors), episode, statistic=quantile, n_resamples=N_RESAMPLES,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    return f'{estimate.estimate:.2f} [{estimate.interval.low:.2f}, {estimate.interval.high:.2f}]'


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').partition('\n')[0])
    parser.add_argument('store', type=Path)
    parser.add_argument('--fresh', type=int, metavar='SEED', help='record the store first, under this seed')
    parser.add_argument('--episodes', type=int, default=12, help='of each policy with each object, with --fresh')
    parser.add_argument('--first', type=int, help='stop after so many episodes of the random order, with --fresh')
    parser.add_argument('--workers', type=int, default=1)
    given = parser.parse_args()
    if given.fresh is not None:
        record(given.store, seed=given.fresh, episodes=given.episodes, first=given.first, workers=given.workers)
    print('|', ' | '.join(COLUMNS), '|')
    print('|' + '---|' * len(COLUMNS))
    for row in table_rows(read_recorded(given.store)):
        print('|', ' | '.join(row), '|')


if __name__ == '__main__':
    main()
