"""Print, as Markdown, how far reconstructed boxes are from the truth on the embedded cell, for each noise level.

python tools/reconstruction_table.py [N_SEEDS]     16 by default; the seeds are held out from tuning
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.measure.geometry.test_cell import LEVELS, SIZE_PX, agrees, measure

from robotrials.show.table import render, table
from robotrials.worlds.cell.host import TabletopHost

FIRST_SEED = 8000
TASKS = ('single_block', 'two_block', 'three_block')


def main(n_seeds: int) -> None:
    host = TabletopHost(state='privileged', cameras=('front', 'side'), image_size=SIZE_PX)
    rows = []
    for level, (sigma_m, dropout) in LEVELS.items():
        fits = [
            f
            for seed in range(FIRST_SEED, FIRST_SEED + n_seeds)
            for task in TASKS
            for f in measure(host, task, level=level, seed=seed)
        ]
        error = 1000 * np.array([f.error_m for f in fits])
        iou = np.array([f.iou for f in fits])
        rows.append(
            [
                f'{1000 * sigma_m:g} mm, {100 * dropout:g} % missing' if sigma_m else 'none',
                len(fits),
                ' / '.join(f'{v:.2f}' for v in np.quantile(error, [0.5, 0.95, 1.0])),
                f'{np.median(iou):.3f} / {iou.min():.3f}',
                f'{100 * np.mean((error < 5) & (iou > 0.8)):.0f} %',
                f'{min(f.confidence for f in fits):.2f}',
            ]
        )
    columns = ['depth noise', 'blocks', 'centre error, median / 95 % / max, mm', 'IoU, median / least',
               'within 5 mm and over 0.8', 'least confidence']  # fmt: skip
    print(render(table('Reconstruction on the embedded cell', columns, rows), 'markdown'))
    agreed = [agrees(host, seed) for seed in range(FIRST_SEED + 100, FIRST_SEED + 100 + 8 * n_seeds)]
    print(f'scores agree with the truth in {sum(agreed)} of {len(agreed)}')
    host.close()


if __name__ == '__main__':
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 16)
