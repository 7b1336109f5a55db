"""Run the grids: `python -m tests.grid [verdicts|intervals] [--trials N] [--seed S] [--out FOLDER]`.

Verdicts take a few minutes on one core; the worst worlds of every family are run again with 20,000 trials and a fresh
seed. Intervals (of restricted means, ratios and incidences) take about ten; a run that was stopped resumes from its
draft, and a whole one begins anew, so that the table holds what the code says now.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path

from tests.grid.study import SLOW_TRIALS, study
from tests.grid.table import (
    beyond_bound,
    draw,
    grid_worlds,
    rates,
    read_rows,
    read_verdicts,
    verdicts_beyond_bound,
    write_rows,
    write_verdicts,
)
from tests.grid.verdict import TRIALS, GridWorld, VerdictRow, study_world, verdict_worlds

KEEP_EVERY = 10
AGAIN_TRIALS, SLOW_AGAIN_TRIALS, WORST = 20_000, 2_000, 3


def main() -> None:
    parser = argparse.ArgumentParser(description='Error rates of every verdict path, and coverage of intervals.')
    parser.add_argument('grid', nargs='?', choices=('verdicts', 'intervals'), default='verdicts')
    parser.add_argument('--trials', type=int, default=TRIALS)
    parser.add_argument('--seed', type=int, default=20260)
    parser.add_argument('--out', type=Path, default=Path('docs'))
    parser.add_argument('--family', nargs='*', help='Run only verdicts of these families anew, and keep the others.')
    asked = parser.parse_args()
    if asked.grid == 'verdicts':
        table = asked.out / 'reference' / 'verdict-grid.csv'
        run_verdicts(table, trials=asked.trials, seed=asked.seed, families=asked.family)
    else:
        run_intervals(asked.out, trials=asked.trials, seed=asked.seed)


def run_verdicts(table: Path, *, trials: int, seed: int, families: list[str] | None = None) -> None:
    started = time.monotonic()
    by_family: dict[str, list[GridWorld]] = {}
    for world in verdict_worlds():
        by_family.setdefault(world.family, []).append(world)
    kept = {} if families is None else {(row.family, row.world): row for row in read_verdicts(table)}
    rows: list[VerdictRow] = []
    for family, every in by_family.items():
        if families is not None and family not in families:
            rows += [kept[family, world.name] for world in every]
            continue
        worlds = [(w, study_world(w, seed=seed, n_trials=min(trials, w.n_trials))) for w in every]
        worst = sorted(worlds, key=lambda pair: -pair[1].rate)[:WORST]
        again = {world.name: _again(world, seed) for world, _ in worst}
        rows += [
            dataclasses.replace(row, n_again=again[world.name].n_trials, again=again[world.name].rate)
            if world.name in again else row
            for world, row in worlds
        ]  # fmt: skip
        highest = max(row.rate for row in again.values())
        mean = sum(row.rate for _, row in worlds) / len(worlds)
        print(f'{family}: {len(worlds)} worlds, mean {mean:.4f}, highest after rerun {highest:.4f}', flush=True)
    write_verdicts(table, rows)
    above = verdicts_beyond_bound(rows)
    print(f'{len(rows)} worlds, {time.monotonic() - started:.0f} s, {len(above)} beyond their simultaneous bound')
    for family, name, share, bound in above:
        print(f'  {family}, {name}: {share:.4f} > {bound:.4f}')


def _again(world: GridWorld, seed: int) -> VerdictRow:
    is_slow = world.n_trials < TRIALS // 2
    return study_world(world, seed=seed + 1, n_trials=SLOW_AGAIN_TRIALS if is_slow else AGAIN_TRIALS)


def run_intervals(out: Path, *, trials: int, seed: int) -> None:
    table = out / 'reference' / 'interval-grid.csv'
    draft = table.with_suffix('.draft.csv')
    done = {
        row.world: row
        for row in read_rows(draft)
        if row.n_trials == trials and row.slow_trials == min(SLOW_TRIALS, trials)
    }
    worlds = list(grid_worlds())
    started = time.monotonic()
    for number, (world, kind, six) in enumerate(worlds, 1):
        if world.name in done:
            continue
        done[world.name] = study(world, kind, n_trials=trials, seed=seed, six=six)
        if number % KEEP_EVERY == 0 or number == len(worlds):
            write_rows(draft, done.values())
            print(f'{number} of {len(worlds)} cells, {time.monotonic() - started:.0f} s', flush=True)
    rows = [done[world.name] for world, _, _ in worlds]
    write_rows(table, rows)
    draft.unlink(missing_ok=True)
    draw(rows, out / 'images' / 'interval-grid.png')
    above = beyond_bound(rows)
    print(f'{len(rows)} cells, {sum(1 for _ in rates(rows))} rates, {len(above)} beyond their simultaneous bound')
    for cell, name, share, bound in above:
        print(f'  {cell}: {name} {share:.3f} > {bound:.3f}')


if __name__ == '__main__':
    main()
