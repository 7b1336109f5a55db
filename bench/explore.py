"""The explorer on a large store: a filter against one scan of the columns it needs, and opening one episode."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from fastapi.testclient import TestClient

from bench.measure import Result, against, seconds
from trialist.episodes import Episode, Outcome, Store
from trialist.web.explore import create_explorer
from trialist.web.explore.index import COLUMNS, build_index

EPISODES, POLICIES, TASKS = 10_000, 8, 40


def large_store(path: Path) -> Store:
    store = Store.create(path)
    store.append(
        [
            Episode(
                policy=f'p{n % POLICIES}', task=f't{n // POLICIES % TASKS}', seed=n, instance=n, duration_s=10.0,
                outcome=Outcome.SUCCESS if n % 3 else Outcome.TIMEOUT, time_cap_s=20.0, stratum=f's{n % 4}',
            )
            for n in range(EPISODES)
        ]
    )  # fmt: skip
    return store


def scan(store: Store) -> int:
    """One pass over the columns that the table shows, with the same filter, by pyarrow alone."""
    found = 0
    for part in sorted((store.path / 'episodes').glob('*.parquet')):
        there = [c for c in COLUMNS if c in pq.read_schema(part).names]
        rows = pq.read_table(part, columns=there)
        mask = pc.and_(
            pc.equal(rows['policy'].cast('string'), 'p3'), pc.equal(rows['outcome'].cast('string'), 'success')
        )
        found += rows.filter(mask).num_rows
    return found


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        store = large_store(Path(folder) / 's')
        client = TestClient(create_explorer(store))
        query = {'policy': 'p3', 'outcome': 'success'}
        assert f'of {scan(store)} episodes' in client.get('/', params=query, headers={'hx-request': 'true'}).text
        filter_s = seconds(lambda: client.get('/', params=query, headers={'hx-request': 'true'}), repeats=9)
        index_s = seconds(lambda: build_index(store), repeats=9)
        scan_s = seconds(lambda: scan(store), repeats=9)
        one = next(iter(store.episodes()))
        open_s = seconds(lambda: client.get(f'/data/episode/{one.episode_id}/0'), repeats=5)
    work = f'{EPISODES:,} episodes'
    peer = 'one scan of the columns by pyarrow'
    return [
        against(
            'explore/filter',
            ours_s=filter_s,
            peer=peer,
            peer_s=scan_s,
            target=0.5,
            work=f'{work}: a filtered page of the table',
        ),
        against(
            'explore/index',
            ours_s=index_s,
            peer=peer,
            peer_s=scan_s,
            target=0.5,
            work=f'{work}: the whole index, as after every change of the store',
        ),
        against(
            'explore/open',
            ours_s=open_s,
            peer=peer,
            peer_s=scan_s,
            target=0.5,
            work=f'{work}: the data of one of them',
        ),
    ]
