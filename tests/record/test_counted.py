"""Columns read as columns are those of the episodes: with reruns, edits, drops, filters, closed and open trials."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.record.test_crash_disk import QuickDisk
from tests.run.plans import make_plan

from robotrials.errors import InputError, StoreError, UnknownName
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.record.counted import CountedColumns, counted_columns
from robotrials.record.folder import replaced_disk
from robotrials.record.maintain import compact_store, merge_stores
from robotrials.record.rows import EPISODE_FIELDS, JSON_FIELDS, episodes_to_arrow
from robotrials.run import close_trial, run_trial

NAMES = [name for name in EPISODE_FIELDS if name not in JSON_FIELDS]


def check(store: Store, where: dict[str, object] | None = None) -> int:
    """The same rows in the same order; how many."""
    wanted = episodes_to_arrow(list(store.episodes(where=where, events=False))).select(NAMES)
    found = counted_columns(store, NAMES, where=where)
    assert found.to_pylist() == wanted.to_pylist()
    return found.num_rows


def episode(seed: int, **more: object) -> Episode:
    given = {'policy': f'p{seed % 2}', 'task': 't', 'seed': seed, 'instance': seed, 'outcome': Outcome.SUCCESS}
    return Episode(**{**given, **more})


def test_reruns_edits_and_drops_are_those_of_the_episodes(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    broken = episode(0, outcome=Outcome.INVALID, reason='host crash: x')
    store.append([broken, episode(1), episode(2), episode(3)])
    store.append([episode(0, episode_id=broken.episode_id, attempt=1, duration_s=3.0), episode(4, stratum='s')])
    assert check(store) == 5
    ids = [e.episode_id for e in store.episodes()]
    store.edit(ids[1], 'set', by='kim', why='misread', field='policy', value='p9')
    store.edit(ids[2], 'drop', by='kim', why='wrong robot')
    assert check(store) == 4
    for where in ({'policy': 'p9'}, {'policy': ['p0', 'p1']}, {'stratum': 's', 'outcome': 'success'}, {'seed': 1}):
        assert check(store, where) > 0
    assert check(store, {'policy': 'nobody'}) == 0
    other = Store.create(tmp_path / 'empty')
    assert check(other) == 0


@pytest.mark.parametrize('seed', range(2))
def test_columns_of_a_store_that_grows_are_those_of_a_fresh_look(tmp_path: Path, seed: int) -> None:
    """After every append, rerun, edit, drop, merge and compaction; a merge brings parts that lie before others."""
    rng = np.random.default_rng(seed)
    ours, theirs = (Store.create(tmp_path / name, trial_id='t') for name in 'ab')
    wheres: list[dict[str, object] | None] = [None, {'policy': 'p1'}, {'episode_id': episode(3).episode_id}]
    kept = [CountedColumns(ours, NAMES, where=where) for where in wheres]
    with replaced_disk(QuickDisk()):
        for step in range(12):
            attempt, seeds = int(rng.integers(2)), rng.choice(8, size=3, replace=False).tolist()
            made = [episode(n, attempt=attempt, trial_id='t', outcome=Outcome.INVALID if (n + attempt) % 3 else
                            Outcome.SUCCESS) for n in seeds]  # fmt: skip
            into = ours if rng.random() < 0.6 or not step else theirs
            there = {e.key for e in into.episodes(attempts='all', dropped=True)}
            if fresh := [e for e in made if e.key not in there]:
                into.append(fresh)
            known = [e.key for e in ours.episodes(attempts='all')]
            chosen = known[rng.integers(len(known))]
            if rng.random() < 0.3:
                ours.edit(chosen[0], 'set', by='kim', why='x', attempt=chosen[1], field='policy', value='p1')
            if rng.random() < 0.2:
                ours.edit(chosen[0], 'drop', by='kim', why='x', attempt=chosen[1])
            if step == 6:
                merge_stores(ours.path, theirs.path)
            if step == 9:
                compact_store(ours.path, rows_a_part=10)
            for where, columns in zip(wheres, kept, strict=True):
                assert columns.read().to_pylist() == counted_columns(ours, NAMES, where=where).to_pylist()
            check(ours)


def test_of_a_store_that_grew_only_the_new_part_is_read(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([episode(n) for n in range(4)])
    columns = CountedColumns(store, NAMES)
    columns.read()
    (old,) = (store.path / 'episodes').iterdir()
    old.unlink()
    store.append([episode(9)])
    assert columns.read()['seed'].to_pylist() == [0, 1, 2, 3, 9]
    with pytest.raises(StoreError, match='missing'):
        counted_columns(store, NAMES)


def test_a_trial_is_shown_as_it_may_be_seen(tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=1)
    run_trial(plan, tmp_path / 's', workers=0)
    opened = read_store(tmp_path / 's')
    n = check(opened)
    assert set(counted_columns(opened, ['policy'])['policy'].to_pylist()) == {'blinded'}
    with pytest.raises(InputError, match='blinded and open'):
        counted_columns(opened, ['policy'], where={'policy': 'a'})
    close_trial(plan, tmp_path / 's', by='kim')
    assert check(read_store(tmp_path / 's')) == n
    named = counted_columns(read_store(tmp_path / 's'), ['policy'])['policy'].to_pylist()
    assert set(named) == set(plan.policies)
    assert check(read_store(tmp_path / 's'), {'policy': sorted(plan.policies)[0]}) > 0


def test_an_unknown_column_or_field_is_refused(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    with pytest.raises(InputError, match='no column'):
        counted_columns(store, ['polcy'])
    with pytest.raises(UnknownName):
        counted_columns(store, ['policy'], where={'polcy': 'a'})
