"""Both grids as tables that grow cell by cell, their simultaneous bounds, and the intervals' picture."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from tests.grid.study import ALPHA, GridRow
from tests.grid.verdict import MANY, VerdictRow
from tests.grid.world import Censoring, Law, Shape, World

COLUMNS = tuple(f.name for f in fields(GridRow))
TEXT = ('world', 'kind')
WHOLE = ('n_trials', 'slow_trials')
ERRORS = ('winner', 'wrong', 'miss_one_side', 'reversal', 'ks_different', 'any_of_six')
COVERAGES = ('cover_difference', 'cover_policy', 'cover_chance', 'cover_hrt')
SLOW = ('ks_different', 'old_rule')
LEAST_COVERAGE = 0.93
CONFIDENCE = 0.99


def read_rows(path: Path) -> list[GridRow]:
    """The rows of a table; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline='', encoding='utf-8') as file:
        return [_row(record) for record in csv.DictReader(file)]


def _row(record: dict[str, str]) -> GridRow:
    values: dict[str, Any] = {}
    for name in COLUMNS:
        text = record[name]
        values[name] = text if name in TEXT else int(text) if name in WHOLE else float(text) if text else None
    return GridRow(**values)


def write_rows(path: Path, rows: Iterable[GridRow]) -> None:
    """All rows, sorted by kind and world, with four decimals."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator='\n')
        writer.writeheader()
        for row in sorted(rows, key=lambda r: (r.kind, r.world)):
            writer.writerow({k: f'{v:.4g}' if isinstance(v, float) else v for k, v in row.as_row().items()})


VERDICT_COLUMNS = tuple(f.name for f in fields(VerdictRow))


def read_verdicts(path: Path) -> list[VerdictRow]:
    """The rows of the verdicts' table; none where there is no file yet."""
    if not path.exists():
        return []
    whole, text = ('strata', 'n_trials', 'n_again'), ('family', 'world', 'units')
    rows = []
    with path.open(newline='', encoding='utf-8') as file:
        for record in csv.DictReader(file):
            values: dict[str, Any] = {
                name: record[name] if name in text else int(record[name]) if name in whole
                else float(record[name]) if record[name] else None
                for name in VERDICT_COLUMNS
            }  # fmt: skip
            rows.append(VerdictRow(**values))
    return rows


def write_verdicts(path: Path, rows: Iterable[VerdictRow]) -> None:
    """In the order of the families, with five decimals at most."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, VERDICT_COLUMNS, lineterminator='\n')
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f'{v:.5g}' if isinstance(v, float) else v for k, v in row.as_row().items()})


def verdicts_beyond_bound(rows: Sequence[VerdictRow]) -> list[tuple[str, str, float, float]]:
    """Shares above alpha by more than chance explains, at 99 % over all of them together: none is wanted.

    A world that was rerun is judged by its fresh trials: it was picked because it stood out.
    """
    from scipy.stats import binom

    every = [
        (row, share, n, alpha)
        for row in rows
        for share, n, alpha in (
            (row.rate, row.n_trials, ALPHA) if row.again is None else (row.again, row.n_again, ALPHA),
            (row.rate_many, row.n_trials, ALPHA / MANY),
        )
        if share is not None
    ]
    beyond = []
    for row, share, n, alpha in every:
        bound = float(binom.ppf(1 - (1 - CONFIDENCE) / len(every), n, alpha)) / n
        if share > bound + 1e-9:
            beyond.append((row.family, row.world, share, bound))
    return beyond


def rates(rows: Sequence[GridRow]) -> Iterator[tuple[GridRow, str, float, float, int]]:
    """Every error rate of the grid: its row, name, share, the share allowed, and the trials behind it."""
    for row in rows:
        for name in ERRORS:
            value = getattr(row, name)
            if value is None or (name == 'winner' and row.kind != 'null'):
                continue
            yield row, name, value, ALPHA, row.slow_trials if name in SLOW else row.n_trials
        for name in COVERAGES:
            value = getattr(row, name)
            if value is not None:
                n = row.slow_trials if name in SLOW else row.n_trials
                yield row, name, 1.0 - value, 1.0 - LEAST_COVERAGE, n


def beyond_bound(rows: Sequence[GridRow]) -> list[tuple[str, str, float, float]]:
    """Rates above what is allowed by more than chance explains, at 99 % over all of them together: none is wanted.

    Each is (world, name, share, bound): the bound is the binomial quantile at 1 - 0.01 / rates.
    """
    from scipy.stats import binom

    every = list(rates(rows))
    found = []
    for row, name, share, allowed, n in every:
        bound = float(binom.ppf(1 - (1 - CONFIDENCE) / len(every), n, allowed)) / n
        if share > bound + 1e-9:
            found.append((row.world, name, share, bound))
    return found


def draw(rows: Sequence[GridRow], path: Path) -> None:
    """A heat map: laws down, strata and episodes across; false winners before and now, and coverage."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    plain = [r for r in rows if r.kind == 'null' and r.world.count(';') == 1]
    laws = sorted({r.world.split('; ')[0] for r in plain})
    designs = sorted({r.world.split('; ')[1] for r in plain}, key=_size)
    panels = (
        ('false winners, percentile and KS gate', 'old_rule', (0.0, 0.3), 'magma_r'),
        ('false winners, jackknife-t with allowance', 'winner', (0.0, 0.3), 'magma_r'),
        ('coverage of the difference', 'cover_difference', (0.85, 1.0), 'viridis'),
    )
    with mpl.rc_context({'font.size': 7}):
        figure = Figure(figsize=(13, 4.2), layout='constrained')
        for axes, (title, name, limits, colours) in zip(figure.subplots(1, 3, sharey=True), panels, strict=True):
            values = {(r.world.split('; ')[0], r.world.split('; ')[1]): getattr(r, name) for r in plain}
            table = np.array([[values.get((law, d)) for d in designs] for law in laws], dtype=np.float64)
            image = axes.imshow(table, vmin=limits[0], vmax=limits[1], cmap=colours, aspect='auto')
            for i, j in np.ndindex(table.shape):
                if np.isfinite(table[i, j]):
                    dark = (table[i, j] - limits[0]) / (limits[1] - limits[0]) > 0.55
                    light = dark if colours == 'magma_r' else not dark
                    axes.text(j, i, f'{table[i, j]:.2f}', ha='center', va='center', size=5, color='w' if light else 'k')
            axes.set_title(title)
            axes.set_xticks(range(len(designs)), designs, rotation=90)
            axes.set_yticks(range(len(laws)), laws)
            figure.colorbar(image, ax=axes, shrink=0.8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={'Date': None} if path.suffix == '.svg' else None, dpi=150)


def _size(design: str) -> tuple[int, int]:
    strata, _, rest = design.partition(' ')
    return int(strata), int(rest.rpartition(' ')[2])


# The grid's worlds: shapes, failures, strata, episodes, clustering, censoring; with equal means or a known effect.

E, L, C = Shape.EXPONENTIAL, Shape.LOGNORMAL, Shape.NEAR_CONSTANT
TAU_S, MEAN_S = 120.0, 40.0
UNEQUAL_MEANS = (0.3, 0.7, 1.2, 1.8)

Pair = Callable[[int, int], tuple[Law, Law]]  # of the units per policy and the strata that share failures


def _same(shape: Shape, failure: float = 0.0) -> Pair:
    return lambda n, strata: (Law(shape, MEAN_S, failure), Law(shape, MEAN_S, failure))


def _unlike(a: Law, b: Law) -> Pair:
    return lambda n, strata: (a, b)


def _hidden(expected: float, shape: Shape = C) -> Pair:
    """A has failures of which `expected` are to be seen, and is otherwise as much faster as makes the means equal."""
    return lambda n, strata: (Law(shape, MEAN_S, min(0.8, expected / n)), Law(C, MEAN_S))


def _quick(expected: float) -> Pair:
    return lambda n, strata: (Law(C, 2 * MEAN_S), Law(C, 2 * MEAN_S, 0.0, min(0.5, expected / n)))


NULLS: dict[str, Pair] = {
    'exponential': _same(E),
    'exponential, 10 % fail': _same(E, 0.1),
    'exponential, 40 % fail': _same(E, 0.4),
    'lognormal, 10 % fail': _same(L, 0.1),
    'near-constant': _same(C),
    'exponential v near-constant': _unlike(Law(E, MEAN_S), Law(C, MEAN_S)),
    'lognormal, 10 % fail v near-constant': _unlike(Law(L, MEAN_S, 0.1), Law(C, MEAN_S)),
    'exponential, 30 % fail v none': _unlike(Law(E, MEAN_S / 2, 0.3), Law(E, MEAN_S)),
    'hidden failures, 1.5 expected': _hidden(1.5),
    'hidden failures, 3 expected': _hidden(3.0),
    'hidden quick successes, 2 expected': _quick(2.0),
}


def null_worlds() -> Iterator[World]:
    """Worlds in which both policies have the same macro RMST, so that any winner is a false one."""
    for law in NULLS:
        for strata, sizes in ((1, (5, 10, 20, 40, 80)), (4, (3, 5, 10, 20, 40)), (10, (3, 5, 10, 20, 40))):
            yield from (_world(law, strata, n) for n in sizes)
    yield from (_world(law, 4, 2) for law in NULLS)
    for law in ('exponential', 'exponential, 40 % fail', 'lognormal, 10 % fail', 'hidden failures, 3 expected'):
        for n in (3, 5, 10, 20):
            yield _world(law, 4, n, operations=4, correlation=0.7)
            yield _world(law, 4, n, operations=5, correlation=0.95, suffix='starts x 5 repeats')
    for law in ('exponential', 'exponential, 40 % fail', 'lognormal, 10 % fail', 'hidden failures, 3 expected'):
        for n in (3, 5, 10, 20):
            yield from (_world(law, 4, n, censoring=c) for c in (Censoring.LOSS_BOTH, Censoring.LOSS_ONE))
    for law in ('exponential', 'exponential, 40 % fail', 'lognormal, 10 % fail', 'near-constant'):
        for n in (3, 5, 10, 20):
            yield _world(
                law, 4, n, operations=6, correlation=0.5, censoring=Censoring.BUDGET, tau_s=60.0, budget_s=240.0
            )
    for law in ('exponential', 'lognormal, 10 % fail', 'hidden failures, 3 expected', 'exponential, 30 % fail v none'):
        for n in (5, 20):
            yield _world(law, 4, n, factors=UNEQUAL_MEANS, suffix='unequal strata')
            yield _world(law, 4, n, fewest=3, suffix='one stratum of 3')
            yield _world(law, 4, n, only_first=True, suffix='failures in one stratum')
    for law in ('exponential', 'exponential, 40 % fail', 'hidden failures, 3 expected', 'exponential v near-constant'):
        for strata in (1, 4):
            for n in (5, 10, 20):
                yield _world(law, strata, n * (2 if strata == 1 else 1), pairing=0.8)


TRUTHS: dict[str, tuple[Law, Law, float]] = {
    'exponential, -20 %': (Law(E, 40.0), Law(E, 50.0), TAU_S),
    'exponential, -33 %': (Law(E, 40.0), Law(E, 60.0), TAU_S),
    'exponential, -33 %, tau 64 s': (Law(E, 40.0), Law(E, 60.0), 64.0),
    '10 % fail, -33 %': (Law(E, 30.0, 0.1), Law(E, 45.0, 0.1), TAU_S),
    'lognormal, 10 % fail, -33 %': (Law(L, 30.0, 0.1), Law(L, 45.0, 0.1), TAU_S),
    'failures 10 v 30 %': (Law(E, 40.0, 0.1), Law(E, 40.0, 0.3), TAU_S),
    'near-constant, -20 %': (Law(C, 40.0), Law(C, 50.0), TAU_S),
}


def power_worlds() -> Iterator[World]:
    """Worlds in which a is better, for power; four strata."""
    for name, (a, b, tau_s) in TRUTHS.items():
        for n in (5, 10, 20, 40):
            yield World(f'{name}; 4 strata x {n}', (a,) * 4, (b,) * 4, (n,) * 4, tau_s)


def wrong_worlds() -> Iterator[World]:
    """Worlds in which a is truly worse, by failures of which few are to be seen, and looks better until one is."""
    for share in (0.13, 0.3, 0.56):
        for expected in (1.0, 2.0):
            for n in (3, 5, 10, 20):
                failing = expected / (4 * n)
                mean_s = 1.3 * failing * TAU_S / (1 + share)
                a = Law(C, 0.3 * failing * TAU_S / (1 - failing), failing)
                name = f'worse by {share:.0%}, {expected:g} failures expected; 4 strata x {n}'
                yield World(name, (a,) * 4, (Law(C, mean_s),) * 4, (n,) * 4)


def _world(
    law: str, strata: int, n: int, *, factors: tuple[float, ...] = (1.0,), fewest: int | None = None,
    only_first: bool = False, suffix: str = '', tau_s: float = TAU_S, operations: int = 1, correlation: float = 0.0,
    censoring: Censoring = Censoring.NONE, pairing: float = 0.0, budget_s: float = 0.0,
) -> World:  # fmt: skip
    sizes = tuple(fewest if fewest is not None and s == 0 else n for s in range(strata))
    base_a, base_b = NULLS[law](n if only_first or fewest else n * strata, strata)
    if fewest:
        base_a = (
            dataclasses.replace(base_a, failure=min(0.8, base_a.failure * n / fewest)) if 'hidden' in law else base_a
        )
    first, second = [], []
    for s in range(strata):
        factor, has_failures = factors[s % len(factors)], s == 0 or not (only_first or (fewest and 'hidden' in law))
        a, b = (
            dataclasses.replace(x, mean_s=x.mean_s * factor, failure=x.failure if has_failures else 0.0)
            for x in (base_a, base_b)
        )
        first.append(a)
        second.append(b if a == b else b.matched(a.rmst_s(tau_s), tau_s))
    parts = [law, f'{strata} strata x {n}' if strata > 1 else f'1 stratum x {n}']
    if operations > 1 and censoring is not Censoring.BUDGET:
        parts.append(suffix or f'{operations} operations per episode')
    elif suffix:
        parts.append(suffix)
    if censoring is not Censoring.NONE:
        parts.append(str(censoring.value))
    if pairing:
        parts.append('matched starts')
    return World(
        '; '.join(parts), tuple(first), tuple(second), sizes, tau_s, operations=operations, correlation=correlation,
        censoring=censoring, pairing=pairing, budget_s=budget_s,
    )  # fmt: skip


def grid_worlds() -> Iterator[tuple[World, str, bool]]:
    """Every cell with its kind, and whether six policies are compared in it."""
    for world in null_worlds():
        is_plain = world.name.count(';') == 1 and world.strata == 4
        yield world, 'null', is_plain and world.n_units[0] in (3, 5, 10, 20)
    yield from ((world, 'power', False) for world in power_worlds())
    yield from ((world, 'wrong', False) for world in wrong_worlds())
