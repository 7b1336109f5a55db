"""The explorer on a large store: a filter against one scan of the columns it needs, opening an episode, growing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fastapi.testclient import TestClient

from bench.measure import Result, Seconds, against, seconds
from robotrials.record import Episode, Outcome, Store
from robotrials.service.explorer import create_explorer
from robotrials.service.explorer.index import COLUMNS, LiveIndex

EPISODES, POLICIES, TASKS, COMMITS = 10_000, 8, 40, 100
PART_ONLY = {'hx-request': 'true'}


def episode(n: int) -> Episode:
    return Episode(
        policy=f'p{n % POLICIES}', task=f't{n // POLICIES % TASKS}', seed=n, instance=n, duration_s=10.0,
        outcome=Outcome.SUCCESS if n % 3 else Outcome.TIMEOUT, time_cap_s=20.0, stratum=f's{n % 4}',
    )  # fmt: skip


def large_store(path: Path, *, commits: int = 1) -> Store:
    store = Store.create(path)
    size = EPISODES // commits
    for first in range(0, EPISODES, size):
        store.append(map(episode, range(first, first + size)))
    return store


def opened(part: Path, columns: list[str]) -> pa.Table:
    """What a small part costs least to read by: `read_table` makes a dataset of every file."""
    return pq.ParquetFile(part).read(columns=columns)


def scan(store: Store, *, read: Callable[..., pa.Table] = pq.read_table) -> int:
    """One pass over the columns that the table shows, with the same filter, by pyarrow alone."""
    n_matching = 0
    for part in sorted((store.path / 'episodes').glob('*.parquet')):
        rows = read(part, columns=list(COLUMNS))
        mask = pc.and_(
            pc.equal(rows['policy'].cast('string'), 'p3'), pc.equal(rows['outcome'].cast('string'), 'success')
        )
        n_matching += rows.filter(mask).num_rows
    return n_matching


def run() -> list[Result]:
    query = {'policy': 'p3', 'outcome': 'success'}
    with tempfile.TemporaryDirectory() as folder:
        store = large_store(Path(folder) / 's')
        first = next(iter(store.episodes()))
        with TestClient(create_explorer(store)) as client:  # one event loop for all requests, as a server has
            assert f'of {scan(store)} episodes' in client.get('/', params=query, headers=PART_ONLY).text
            filter_s = seconds(lambda: client.get('/', params=query, headers=PART_ONLY), repeats=9)
            open_s = seconds(lambda: client.get(f'/data/episode/{first.episode_id}/0'), repeats=9)
        index_s = seconds(lambda: LiveIndex(store).now(), repeats=9)
        scan_s = seconds(lambda: scan(store), repeats=9)
        running = large_store(Path(folder) / 'running', commits=COMMITS)
        first_s, grown_s = _first_page(running), _grown_list(running)
        parts_s = seconds(lambda: scan(running, read=opened), repeats=5)
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
            work=f'{work}: the whole index, as when a store is first listed',
        ),
        against(
            'explore/open',
            ours_s=open_s,
            peer=peer,
            peer_s=scan_s,
            target=0.5,
            work=f'{work}: the data of one of them',
        ),
        against(
            'explore/first',
            ours_s=first_s,
            peer=peer,
            peer_s=parts_s,
            target=0.5,
            work=f'{work} in {COMMITS} commits: the page of one of them, the first that an explorer is asked for',
        ),
        against(
            'explore/grown',
            ours_s=grown_s,
            peer=peer,
            peer_s=parts_s,
            target=0.5,
            work=f'{work} in {COMMITS} commits: the list after one more',
        ),
    ]


def _first_page(store: Store) -> Seconds:
    """Of five explorers, each ready and without a look at the store so far."""
    first = next(iter(store.episodes()))
    taken_s = []
    for _ in range(5):
        with TestClient(create_explorer(store)) as client:
            client.get('/static/explore.css')
            taken_s.append(seconds(lambda: client.get(f'/episode/{first.episode_id}/0'), repeats=1))
    return Seconds.of(taken_s)


def _grown_list(store: Store) -> Seconds:
    """Of five lists, each after one more commit."""
    taken_s = []
    with TestClient(create_explorer(store)) as client:
        client.get('/', headers=PART_ONLY)
        for n in range(5):
            store.append([episode(EPISODES + n)])
            taken_s.append(seconds(lambda: client.get('/', headers=PART_ONLY), repeats=1))
    return Seconds.of(taken_s)
