"""The published grid of verdicts: whole, within its bound, and true of worlds whose null is exact."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.grid.null_world import balanced, random_null, win_chance
from tests.grid.table import read_verdicts, verdicts_beyond_bound, write_verdicts
from tests.grid.verdict import study_world, verdict_worlds

TABLE = Path(__file__).resolve().parents[2] / 'docs' / 'reference' / 'verdict-grid.csv'


def test_the_published_table_is_whole_and_within_its_bound() -> None:
    rows = read_verdicts(TABLE)
    assert [(r.family, r.world) for r in rows] == [(w.family, w.name) for w in verdict_worlds()]
    assert len(rows) >= 700
    assert verdicts_beyond_bound(rows) == []
    again = [row for row in rows if row.again is not None]
    assert {row.family for row in again} == {row.family for row in rows}
    assert all(row.n_again >= 20_000 for row in again if row.n_trials >= 1_000)


def test_the_bound_finds_a_rate_that_is_too_high() -> None:
    rows = read_verdicts(TABLE)
    plain = next(k for k, row in enumerate(rows) if row.again is None)
    for change in ({'rate': 0.12}, {'rate_many': 0.03}, {'again': 0.06, 'n_again': 20_000}):
        worse = [*rows[:plain], dataclasses.replace(rows[plain], **change), *rows[plain + 1 :]]
        assert [(f, w) for f, w, _, _ in verdicts_beyond_bound(worse)] == [(rows[plain].family, rows[plain].world)]


def test_random_worlds_are_exact_nulls() -> None:
    rng = np.random.default_rng(3)
    kinds = set()
    for number in range(120):
        world = random_null(rng, number=number)
        kinds.add(world.name.partition(': ')[2])
        assert float(win_chance(world.law_a, world.law_b).mean()) == pytest.approx(0.5, abs=1e-9)
        assert np.allclose(world.law_a.sum(axis=1), 1)
        assert world.law_a.min() >= -1e-12
    assert len(kinds) == 8


def test_draws_follow_the_laws_and_share_their_starts() -> None:
    rng = np.random.default_rng(4)
    law = np.array([[0.2, 0.5, 0.3]])
    from tests.grid.null_world import NullWorld

    world = NullWorld('x', law, law, (40,), (40,), (40,), start_effect=0.9)
    a, b = world.draw(500, rng)
    shares = [(np.nan_to_num(a[0], posinf=2) == k).mean() for k in range(3)]
    assert shares == pytest.approx([0.2, 0.5, 0.3], abs=0.02)
    assert (a[0] == b[0]).mean() > 0.7
    apart = NullWorld('y', law, law, (40,), (40,)).draw(500, rng)
    assert (apart[0][0] == apart[1][0]).mean() < 0.45


def test_a_world_that_cannot_be_balanced_is_refused() -> None:
    always, never = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    assert balanced(always, never) == pytest.approx(never)
    assert balanced(always, never, np.array([True, False])) is None


def test_a_world_does_not_depend_on_when_it_is_run(tmp_path: Path) -> None:
    worlds = list(verdict_worlds(per_family=1))
    first = [study_world(w, seed=1, n_trials=20) for w in worlds]
    assert first == [study_world(w, seed=1, n_trials=20) for w in reversed(worlds)][::-1]
    assert first != [study_world(w, seed=2, n_trials=20) for w in worlds]
    write_verdicts(tmp_path / 'grid.csv', first)
    assert [(r.family, r.world) for r in read_verdicts(tmp_path / 'grid.csv')] == [(r.family, r.world) for r in first]


@pytest.mark.study
def test_fresh_worlds_of_every_family_hold() -> None:
    rows = [study_world(w, seed=99, n_trials=min(w.n_trials, 1_000)) for w in verdict_worlds(per_family=6, seed=99)]
    assert len({row.family for row in rows}) == 19
    assert verdicts_beyond_bound(rows) == []
