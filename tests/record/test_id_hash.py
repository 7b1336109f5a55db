"""An episode that is looked for by its id is the one of a whole scan, and of the rest of the store nothing is read."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record.test_crash_disk import QuickDisk
from tests.record.test_log import episode

from robotrials.record import Episode, Outcome, Store, Trajectory, part
from robotrials.record import part as id_hash
from robotrials.record import store as store_module
from robotrials.record.counted import counted_columns
from robotrials.record.folder import replaced_disk
from robotrials.record.ledger import Annotation
from robotrials.record.maintain import adopt_store, compact_store, merge_stores
from robotrials.record.part import candidate_rows, encode_hashes, id_codes, id_hashes

IDS = st.lists(st.text(st.characters(codec='utf-8'), min_size=1, max_size=40), max_size=50)


@given(IDS, IDS)
def test_every_row_with_an_id_is_a_candidate(held: list[str], wanted: list[str]) -> None:
    hashes = id_hashes(pa.chunked_array([pa.array(held, pa.string())]))
    rows = candidate_rows(encode_hashes(hashes), len(held), id_codes([*wanted, *held[:2]]))
    assert rows is not None
    assert {row for row, one in enumerate(held) if one in {*wanted, *held[:2]}} <= set(rows.tolist())


def test_few_others_are_candidates() -> None:
    ids = [f'episode {n}' for n in range(100_000)]
    index = encode_hashes(id_hashes(pa.chunked_array([ids])))
    assert len(index) == 400_000
    rows = candidate_rows(index, len(ids), id_codes(ids[:200]))
    assert rows is not None
    assert 200 <= len(rows) < 210
    few = candidate_rows(index, len(ids), id_codes(ids[:3]))
    assert few is not None
    assert few[:3].tolist() == [0, 1, 2]
    assert len(few) < 10


@pytest.mark.parametrize('index', ['', 'AAAA', '%%%', 'AAA', 'é' * 8])
def test_an_index_that_does_not_fit_tells_nothing(index: str) -> None:
    assert candidate_rows(index, 2, id_codes(['a'])) is None


def check(store: Store) -> int:
    """Every way to look for ids gives what a whole scan gives, in its order; how many rows there are."""
    whole = list(store.episodes(attempts='all', dropped=True))
    ids = sorted({e.episode_id for e in whole})
    asked: list[list[str]] = [*([one] for one in ids[:6]), ids[::2], ids, ['nobody'], []]
    for options in ({}, {'attempts': 'all', 'dropped': True}):
        everything = list(store.episodes(**options))  # type: ignore[arg-type]
        for wanted in asked:
            for more in ({}, {'reason': 'r'}):
                found = list(store.episodes(where={'episode_id': wanted, **more}, **options))  # type: ignore[arg-type]
                assert found == [
                    e for e in everything
                    if e.episode_id in wanted and all(getattr(e, k) == v for k, v in more.items())
                ]  # fmt: skip
    for one in ids[:6]:
        found = counted_columns(store, ['episode_id', 'attempt'], where={'episode_id': one}).to_pylist()
        assert [(row['episode_id'], row['attempt']) for row in found] == [
            e.key for e in store.episodes() if e.episode_id == one
        ]
    return len(whole)


def random_store(folder: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Appends and reruns, some parts without an index, edits, drops, another store merged in, a compaction."""
    stores = [Store.create(folder / name, trial_id='t') for name in 'ab']
    for step in range(10):
        store = stores[rng.integers(2)]
        with monkeypatch.context() as patched:
            if rng.random() < 0.3:
                patched.setattr(store_module, 'encode_hashes', lambda hashes: '')  # as older versions wrote parts
            attempt, seeds = int(rng.integers(3)), rng.choice(12, size=rng.integers(1, 8), replace=False)
            made = [episode(int(seed)) for seed in seeds]
            there = {e.key for e in store.episodes(attempts='all', dropped=True)}
            batch = [
                one.replace(
                    attempt=attempt, outcome=Outcome.INVALID if (seed + attempt) % 3 else Outcome.SUCCESS
                )
                for seed, one in zip(seeds.tolist(), made, strict=True) if (one.episode_id, attempt) not in there
            ]  # fmt: skip
            if batch:
                store.append(batch)
        chosen = made[0].episode_id
        if rng.random() < 0.4:
            store.edit(chosen, 'set', by='kim', why='x', attempt=attempt, field='reason', value='r')
        if rng.random() < 0.3:
            store.edit(chosen, 'drop', by='kim', why='x', attempt=attempt)
        if rng.random() < 0.15:
            compact_store(store.path, rows_a_part=10)
        if step == 7:
            merge_stores(stores[0].path, stores[1].path)
    return stores[0]


@pytest.mark.parametrize('seed', range(3))
def test_looking_for_ids_is_a_whole_scan_in_any_store(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small row groups; in every other one parts that are checked range by range; in one all hashes are alike."""
    monkeypatch.setattr(store_module, 'write_table', functools.partial(store_module.write_table, row_group_size=3))
    if seed % 2:
        monkeypatch.setattr(part, 'SMALL_BYTES', 100)
    if seed == 2:
        monkeypatch.setattr(id_hash, 'id_hashes', lambda ids: np.zeros(len(ids), np.uint64))
        monkeypatch.setattr(store_module, 'id_hashes', lambda ids: np.zeros(len(ids), np.uint64))
    with replaced_disk(QuickDisk()):
        store = random_store(tmp_path, np.random.default_rng(seed), monkeypatch)
    assert check(store) > 10


def test_a_store_without_a_log_is_scanned(tmp_path: Path) -> None:
    import shutil

    store = Store.create(tmp_path / 's')
    store.append([episode(n) for n in range(5)])
    shutil.rmtree(store.path / 'log')
    old = Store.open(_unlogged(store.path))
    assert not any(p.ids for p in old.parts())
    assert check(old) == 5
    adopt_store(old.path)
    assert check(Store.open(old.path)) == 5


def _unlogged(path: Path) -> Path:
    import json

    told = json.loads((path / 'trial.json').read_text())
    (path / 'trial.json').write_text(json.dumps({**told, 'is_logged': False}))
    return path


def steps(n: int = 4) -> Trajectory:
    return Trajectory(time_s=np.arange(n, dtype=np.float64))


def test_opening_an_episode_reads_its_part_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create(tmp_path / 's')
    groups = [[episode(4 * k + n) for n in range(4)] for k in range(10)]
    with replaced_disk(QuickDisk()):
        for made in groups:
            store.append(made, trajectories={e.key: steps() for e in made})
    wanted = groups[7][3]
    read: set[str] = set()
    original = part._checked_size

    def noted(path: Path, logged: object) -> int:
        read.add(f'{path.parent.name}/{path.name}')
        return original(path, logged)  # type: ignore[arg-type]

    monkeypatch.setattr(part, '_checked_size', noted)
    (found,) = store.episodes(where={'episode_id': wanted.episode_id})
    assert found == wanted
    assert store.trajectory(found) is not None
    store.annotate([Annotation(episode_id=found.episode_id, attempt=0, source='reviewer', by='kim', count=1)])
    store.edit(found.episode_id, 'set', by='kim', why='x', field='reason', value='r')
    own = store.parts()[7]
    assert read == {f'episodes/{own.path.name}', f'events/{own.events}', f'trajectories/{own.trajectories[0]}'}


def test_of_a_large_part_only_the_row_group_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage anywhere else in the part does not show, and what is read is checked."""
    monkeypatch.setattr(store_module, 'write_table', functools.partial(store_module.write_table, row_group_size=50))
    monkeypatch.setattr(part, 'SMALL_BYTES', 100)
    store = Store.create(tmp_path / 's')
    made = [episode(n, events=()) for n in range(200)]
    store.append(made)
    (path,) = (store.path / 'episodes').iterdir()
    content = bytearray(path.read_bytes())
    content[6] ^= 0xFF  # in the first row group
    path.chmod(0o644)
    path.write_bytes(content)

    def looked_for(one: Episode) -> list[Episode]:
        return list(Store.open(store.path).episodes(where={'episode_id': one.episode_id}))

    assert looked_for(made[150]) == [made[150]]
    with pytest.raises(part.StoreError, match='damaged'):
        looked_for(made[10])
