"""Both grids as tables that grow cell by cell, their simultaneous bounds, and the intervals' picture."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.testing.grid.study import ALPHA, GridRow
from robotrials.testing.grid.verdict import MANY, VerdictRow

COLUMNS = tuple(f.name for f in fields(GridRow))
TEXT = ('world', 'kind')
WHOLE = ('n_trials', 'slow_trials')
ERRORS = ('winner', 'wrong', 'miss_one_side', 'reversal', 'success', 'ks_different', 'any_of_six')
COVERAGES = ('cover_difference', 'cover_policy', 'cover_chance', 'cover_hrt', 'cover_success')
SLOW = ('success', 'ks_different', 'cover_success', 'old_rule')
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
