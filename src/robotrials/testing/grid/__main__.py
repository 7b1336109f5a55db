"""Run the grid: `python -m robotrials.testing.grid [--trials N] [--seed S] [--out FOLDER]`; run again to resume."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from robotrials.testing.grid.catalogue import grid_worlds
from robotrials.testing.grid.study import SLOW_TRIALS, study
from robotrials.testing.grid.table import beyond_bound, draw, rates, read_rows, write_rows

KEEP_EVERY = 10


def main() -> None:
    parser = argparse.ArgumentParser(description='Type-I error, coverage and power of every verdict path.')
    parser.add_argument('--trials', type=int, default=2000)
    parser.add_argument('--seed', type=int, default=20260)
    parser.add_argument('--out', type=Path, default=Path('docs'))
    asked = parser.parse_args()
    table = asked.out / 'reference' / 'verdict-grid.csv'
    done = {
        row.world: row
        for row in read_rows(table)
        if row.n_trials == asked.trials and row.slow_trials == min(SLOW_TRIALS, asked.trials)
    }
    worlds = list(grid_worlds())
    started = time.monotonic()
    for number, (world, kind, six) in enumerate(worlds, 1):
        if world.name in done:
            continue
        done[world.name] = study(world, kind, n_trials=asked.trials, seed=asked.seed, six=six)
        if number % KEEP_EVERY == 0 or number == len(worlds):
            write_rows(table, done.values())
            print(f'{number} of {len(worlds)} cells, {time.monotonic() - started:.0f} s', flush=True)
    rows = [done[world.name] for world, _, _ in worlds]
    write_rows(table, rows)
    draw(rows, asked.out / 'images' / 'verdict-grid.png')
    above = beyond_bound(rows)
    print(f'{len(rows)} cells, {sum(1 for _ in rates(rows))} rates, {len(above)} beyond their simultaneous bound')
    for cell, name, share, bound in above:
        print(f'  {cell}: {name} {share:.3f} > {bound:.3f}')


if __name__ == '__main__':
    main()
