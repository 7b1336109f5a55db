"""Print how the release detector does on a store of the embedded cell, by object and by noise, as Markdown.

    python tools/annotation_table.py STORE

The store's timed placements are the truth and are not shown to the detector. Noise is laid over the recorded gripper: a
normal error on its measure, and readings that are missing.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np

from trialist.annotate import Labelled, Settings, Zone, Zones, assess, assess_settings, read_telemetry
from trialist.cell.scene import BIN_INNER_M, SOURCE_CENTER_M, TARGET_CENTER_M
from trialist.episodes import Store, Trajectory

ZONES = Zones(
    source=Zone(center_m=SOURCE_CENTER_M, size_m=BIN_INNER_M), target=Zone(center_m=TARGET_CENTER_M, size_m=BIN_INNER_M)
)
NOISE = {
    'none': (0.0, 0.0), '1 % of the travel': (0.01, 0.0), '2 %': (0.02, 0.0), '4 %': (0.04, 0.0),
    '1 %, a fifth of the readings missing': (0.01, 0.2),
}  # fmt: skip


def noisy(trajectory: Trajectory, sd: float, missing: float, rng: np.random.Generator) -> Trajectory:
    """The trajectory with a worse gripper sensor."""
    measured = np.asarray(trajectory.gripper_position, dtype=float)
    measured = measured + rng.normal(0.0, sd, len(measured)) if sd else measured.copy()
    measured[rng.random(len(measured)) < missing] = np.nan
    return dataclasses.replace(trajectory, gripper_position=measured)


def main() -> None:
    """Print the table."""
    recorded = [(e, t) for e, t in Store.open(sys.argv[1]).trajectories() if e.is_valid]
    columns = 'noise object episodes placements precision recall bias_s median_error_s 90_%_within_s counts_agree'
    print('|', ' | '.join(name.replace('_', ' ') for name in columns.split()), '|')
    print('|---|---|---|---|---|---|---|---|---|---|')
    for name, (sd, missing) in NOISE.items():
        rng = np.random.default_rng(0)
        given = [Labelled(e, read_telemetry(noisy(t, sd, missing, rng)), ZONES) for e, t in recorded]
        for stratum in [*sorted({e.stratum for e, _ in recorded}), 'all']:
            a = assess(assess_settings(Settings(), [g for g in given if stratum in (g.episode.stratum, 'all')]))
            print(
                f'| {name} | {stratum} | {a.n_episodes} | {a.n_true} | {a.n_matched / max(a.n_found, 1):.3f} '
                f'| {a.n_matched / max(a.n_true, 1):.3f} | {a.bias_s or 0:.2f} | {a.error_s or 0:.2f} '
                f'| {a.error_90_s or 0:.2f} | {a.n_counts_agree}/{a.n_episodes} |'
            )


if __name__ == '__main__':
    main()
