"""Draw the filmstrip of the tabletop cell's documentation: `python tools/cell_pictures.py docs/images`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from robotrials.run.seam import Setup
from robotrials.show.figure import new_figure, save_figure
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.camera import Pictures
from robotrials.worlds.cell.scripted import ScriptedPolicy

MOMENTS = 6
ROWS = (
    ('careful', Setup(task='bin_to_bin', seed=3, stratum='spoon'), 13.0),
    ('hasty', Setup(task='bin_to_bin', seed=41, stratum='block'), 6.0),
    ('reference', Setup(task='stacking', seed=6, instance=1), 7.0),
    ('reference', Setup(task='insertion', seed=5, instance=1), 3.5),
)


def main(folder: str) -> None:
    figure = new_figure(9.6, 5.4)
    axes = figure.subplots(len(ROWS), MOMENTS)
    for row, (temper, setup, until_s) in zip(axes, ROWS, strict=True):
        for ax, (t_s, image) in zip(row, film(temper, setup, until_s), strict=True):
            ax.imshow(image)
            ax.set_title(f'{t_s:.1f} s', fontsize=6, pad=2)
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set_visible(False)
        row[0].set_ylabel(f'{temper}\n{setup.task}', fontsize=7)
    print(save_figure(figure, Path(folder) / 'tabletop-filmstrip.png'))


def film(temper: str, setup: Setup, until_s: float) -> list[tuple[float, np.ndarray]]:
    host = TabletopHost(state='privileged')
    host.prepare(setup)
    observation = host.reset(setup.task, seed=setup.seed)
    session = ScriptedPolicy(temper=temper).start(setup, seed=setup.seed + 1000)
    pictures = Pictures(('gallery',), height_px=300, width_px=360)
    frames: list[tuple[float, np.ndarray]] = []
    moments = np.linspace(0, until_s, MOMENTS)
    while len(frames) < MOMENTS:
        if observation.t_s >= moments[len(frames)] - 1e-9:
            start = host._start
            assert start is not None
            frames.append((observation.t_s, pictures.take(start.scene, start.data)['gallery'].rgb))
        observation = host.step(session.act(observation).actions[0])
    pictures.close()
    return frames


if __name__ == '__main__':
    main(sys.argv[1])
