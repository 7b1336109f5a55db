"""The published grid of intervals holds what the page says; a part of it is run anew in `make study`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.grid.study import GridRow, study
from tests.grid.table import beyond_bound, draw, grid_worlds, read_rows, write_rows

from robotrials.measure.timing import Endings, OperationEnd, cumulative_incidence

TABLE = Path(__file__).resolve().parents[3] / 'docs' / 'reference' / 'interval-grid.csv'


def test_the_published_table_is_whole_and_within_its_bound() -> None:
    rows = read_rows(TABLE)
    assert {row.world for row in rows} == {world.name for world, _, _ in grid_worlds()}
    assert len(rows) >= 200
    assert sum(row.any_of_six is not None for row in rows) >= 24
    assert all(row.n_trials >= 2000 for row in rows)
    assert beyond_bound(rows) == []


def test_the_bound_finds_a_rate_that_is_too_high() -> None:
    rows = read_rows(TABLE)
    worse = GridRow(**rows[0].as_row() | {'kind': 'null', 'winner': 0.2})  # type: ignore[arg-type]
    assert [found[1] for found in beyond_bound([worse, *rows[1:]])] == ['winner']


def test_a_cell_does_not_depend_on_when_it_is_run(tmp_path: Path) -> None:
    worlds = [
        (w, k) for w, k, _ in grid_worlds() if w.name in ('near-constant; 4 strata x 3', 'exponential; 4 strata x 3')
    ]
    first = [study(w, k, n_trials=200, seed=1, slow=5) for w, k in worlds]
    again = [study(w, k, n_trials=200, seed=1, slow=5) for w, k in reversed(worlds)]
    assert first == again[::-1]
    assert first != [study(w, k, n_trials=200, seed=2, slow=5) for w, k in worlds]
    write_rows(tmp_path / 'grid.csv', first)
    assert [r.world for r in read_rows(tmp_path / 'grid.csv')] == sorted(r.world for r in first)
    draw(first, tmp_path / 'grid.png')
    assert (tmp_path / 'grid.png').stat().st_size > 10_000


@pytest.mark.study
def test_24_cells_with_fresh_seeds_hold() -> None:
    every = list(grid_worlds())
    picked = every[7 :: len(every) // 24][:24]
    assert len(picked) == 24
    rows = [study(world, kind, n_trials=500, seed=99, six=six, slow=200) for world, kind, six in picked]
    assert beyond_bound(rows) == []


@pytest.mark.study
def test_bands_of_incidence_cover() -> None:
    """Five causes in 4 operations of 8 starts that share their pace, from 500 trials."""
    rng = np.random.default_rng(11)
    held = np.zeros(2)
    truth = 0.5 * (1 - np.exp(-20 / 30))  # success has half of the hazard
    for _ in range(500):
        unit = np.repeat(np.arange(12), 2)
        times = rng.exponential(30, 24)
        cause = np.where(rng.random(24) < 0.5, 0, rng.integers(1, 5, 24))
        found = cumulative_incidence(Endings(times, cause, unit, 12), times_s=[20.0], tau_s=60.0)
        band, lost = found.causes[OperationEnd.SUCCESS].band[0], found.causes[OperationEnd.SUCCESS].time_lost_interval
        assert band is not None
        assert lost is not None
        area = 0.5 * (60 - 30 * (1 - np.exp(-2)))
        held += [band.contains(truth), lost.contains(area)]
    assert (held / 500 >= 0.93).all()
