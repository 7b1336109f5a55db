"""Print, as Markdown, how textured meshes of unknown size come out: errors, overlaps, what is trusted and what refused.

python tools/solid_table.py [N_SCENES [FIRST_SEED]]     204 scenes by default; about three seconds of CPU for each
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from tests.measure.geometry.solid_study import Found, checked_scene, draw_scene, measure, models

FIRST_SEED = 30000  # not used to choose any limit
HEAD = ('shape', 'objects', 'trusted', 'box IoU, median / 5 %', 'voxel IoU, median / 5 %',
        'centre error, median / 95 % / max, mm', 'surface error, median / 95 %, mm', 'size error, median / 95 %, %',
        'centre within its stated error', 'wrong', 'trusted and wrong')  # fmt: skip


def row(name: str, found: list[Found]) -> str:
    """One line of the table: errors are of the trusted ones, wrong ones are counted among all."""
    kept = [f for f in found if f.is_trusted]

    def quantiles(values: list[float], at: tuple[float, ...], digits: int, factor: float = 1.0) -> str:
        return ' / '.join(f'{factor * v:.{digits}f}' for v in np.quantile(values, at)) if values else '-'

    cells = [
        name, len(found), len(kept), quantiles([f.box_iou or 0 for f in kept], (0.5, 0.05), 2),
        quantiles([f.voxel_iou or 0 for f in kept], (0.5, 0.05), 2),
        quantiles([f.center_error_m or 0 for f in kept], (0.5, 0.95, 1), 1, 1000),
        quantiles([f.surface_error_m or 0 for f in kept], (0.5, 0.95), 1, 1000),
        quantiles([abs(f.size_error or 0) for f in kept], (0.5, 0.95), 1, 100),
        sum((f.center_error_m or 0) <= (f.error_m or 0) for f in kept), sum(f.is_wrong for f in found),
        sum(f.is_wrong for f in kept),
    ]  # fmt: skip
    return f'| {" | ".join(map(str, cells))} |'


def main(n_scenes: int, first: int) -> None:
    known = models()
    names = list(known)
    own, bare, foreign = [], [], []
    for seed in range(first, first + n_scenes):
        scene = draw_scene(seed, known)
        checked, masks = checked_scene(scene, seed)
        own.append(measure(scene, checked, known[scene.shape], masks))
        at = names.index(scene.shape)
        other = names[(at + 1 + seed // len(names) % (len(names) - 1)) % len(names)]
        foreign.append(measure(scene, checked, known[other], masks))
        if seed % 7 == 0:
            bare.append(measure(scene, checked, known[scene.shape], None))
        print(f'{seed - first + 1} of {n_scenes}', file=sys.stderr, flush=True)
    print(f'| {" | ".join(HEAD)} |\n|{"---|" * len(HEAD)}')
    for name in names:
        print(row(name, [f for f in own if f.shape == name]))
    print(row('all', own))
    print(row('all, without masks', bare))
    print(row("another shape's model", foreign))
    for title, scores in (('masks', own), ('without masks', bare)):
        for f in scores:
            if f.refusal:
                print(f'{title}: {f.shape} refused: {f.refusal}')


if __name__ == '__main__':
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 204, int(sys.argv[2]) if len(sys.argv) > 2 else FIRST_SEED)
