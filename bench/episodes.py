"""The record against JSONL: writing and reading tables and trajectories, size on disk, memory while streaming."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import PEAK_MB, Result, Seconds, against, attempts, seconds
from bench.verbs import rows, verb
from robotrials.formats.export import episode_row
from robotrials.record import Episode, Event, Store, Trajectory

EPISODES = 100_000
MILLION = 1_000_000
PATHS, STEPS, COLUMNS = 10_000, 300, 40
READ = 500  # trajectories of the rows that compare ways of reading
JSONL_SAMPLE = 200
TARGET_BYTES = 500e6


def make_episodes(count: int, *, first: int = 0) -> list[Episode]:
    rng = np.random.default_rng(first)
    times = rng.gamma(2.0, 4.0, (count, 3))
    return [
        Episode(
            policy=f'policy-{i % 4}', task='pick', stratum=f'object-{i % 5}', outcome='success', duration_s=60.0,
            seed=first + i, items=3, events=tuple(Event(float(t), 'placement') for t in np.cumsum(times[i]) if t < 60),
        )
        for i in range(count)
    ]  # fmt: skip


def make_path(seed: int) -> Trajectory:
    """40 smooth float32 columns: pose, joints, torques, actions and a host's own signals."""
    walk = np.cumsum(np.random.default_rng(seed).normal(size=(STEPS, COLUMNS)) * 0.01, axis=0).astype(np.float32)
    return Trajectory(
        time_s=np.arange(STEPS, dtype=np.float32) * 0.05,
        ee_pose=walk[:, :7], joint_position_rad=walk[:, 7:14], joint_torque_nm=walk[:, 14:21],
        action_raw=walk[:, 21:28], action_processed=walk[:, 28:35], extra={'imu': walk[:, 35:39]},
    )  # fmt: skip


def folder_bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob('*') if p.is_file())


def table_results(folder: Path) -> list[Result]:
    episodes = make_episodes(EPISODES)
    store = Store.create(folder / 'tables')
    started = time.perf_counter()
    store.append(episodes)
    ours_write = time.perf_counter() - started
    path = folder / 'tables.jsonl'

    def write_jsonl() -> None:
        with path.open('w') as stream:
            for episode in episodes:
                stream.write(json.dumps(episode_row(episode)) + '\n')

    def read_jsonl() -> int:
        with path.open() as stream:
            return sum(len(json.loads(line)['events']) for line in stream)

    peer_write = seconds(write_jsonl, repeats=1)
    peer_read = seconds(read_jsonl, repeats=2)
    ours_scan = seconds(lambda: sum(p.num_rows for p in scan_columns(store)), repeats=3)
    ours_read = seconds(lambda: sum(len(e.events) for e in store.episodes()), repeats=1)
    work = f'{EPISODES:,} episodes with events'
    return [
        against('episodes/write tables', ours_s=ours_write, peer='JSONL', peer_s=peer_write, target=1, work=work),
        against('episodes/scan two columns', ours_s=ours_scan, peer='JSONL', peer_s=peer_read, target=50, work=work),
        against(
            'episodes/read as checked Episode objects', ours_s=ours_read, peer='JSONL into dicts', peer_s=peer_read,
            target=0.2, work=f'{work}; ours are validated, theirs are bare dicts',
        ),
        against('episodes/size of tables', ours_s=folder_bytes(store.path), peer='JSONL', peer_s=path.stat().st_size,
                target=5, work=work, unit='B'),
    ]  # fmt: skip


def scan_columns(store: Store) -> list[object]:
    return [pq.read_table(part.path, columns=['policy', 'duration_s']) for part in store.parts()]


def trajectory_results(folder: Path) -> list[Result]:
    episodes = [e.replace(events=()) for e in make_episodes(PATHS, first=5_000_000)]
    paths = {e.key: make_path(i) for i, e in enumerate(episodes)}
    store = Store.create(folder / 'paths')
    started = time.perf_counter()
    store.append(episodes, trajectories=paths)
    write_s = time.perf_counter() - started
    sample = [paths[e.key] for e in episodes[:JSONL_SAMPLE]]
    target = folder / 'paths.jsonl'

    def write_jsonl() -> None:
        with target.open('w') as stream:
            for path in sample:
                columns = {
                    'time_s': path.time_s, 'ee_pose': path.ee_pose, 'joint': path.joint_position_rad,
                    'torque': path.joint_torque_nm, 'raw': path.action_raw, 'processed': path.action_processed,
                    'imu': path.extra['imu'],
                }  # fmt: skip
                stream.write(json.dumps({k: v.tolist() for k, v in columns.items() if v is not None}) + '\n')

    def read_jsonl() -> None:
        with target.open() as stream:
            for line in stream:
                {k: np.asarray(v, dtype=np.float32) for k, v in json.loads(line).items()}

    scale = PATHS / JSONL_SAMPLE
    peer_write, peer_read = seconds(write_jsonl, repeats=2) * scale, seconds(read_jsonl, repeats=2) * scale
    read_s = seconds(lambda: sum(t.n_steps for _, t in store.trajectories()), repeats=3)
    size, peer_size = folder_bytes(store.path), target.stat().st_size * scale
    bare_s = seconds(lambda: write_flat(list(paths.values()), folder / 'flat.parquet'), repeats=3)
    work = f'{PATHS:,} x {STEPS} x {COLUMNS} float32; JSONL on {JSONL_SAMPLE} episodes, scaled up'
    return [
        against('episodes/write trajectories', ours_s=write_s, peer='JSONL', peer_s=peer_write, target=50, work=work),
        against(
            'episodes/write trajectories, bare pyarrow',
            ours_s=write_s,
            peer='bare pyarrow of the same columns, flat',
            peer_s=bare_s,
            target=0.7,
            work=f'{PATHS:,} x {STEPS} x {COLUMNS} float32, LZ4 and BYTE_STREAM_SPLIT',
        ),
        against('episodes/read trajectories', ours_s=read_s, peer='JSONL', peer_s=peer_read, target=50, work=work),
        against(
            'episodes/size of trajectories', ours_s=size, peer='JSONL', peer_s=peer_size, target=5, work=work, unit='B'
        ),
    ]


def write_flat(paths: Sequence[Trajectory], file: Path) -> None:
    """The same numbers as one flat column each, with the codec of a store."""
    whole = np.concatenate([
        np.column_stack([
            p.time_s, p.ee_pose, p.joint_position_rad, p.joint_torque_nm, p.action_raw, p.action_processed,
            p.extra['imu'],
        ]) for p in paths
    ])  # fmt: skip
    table = pa.table({f'c{k}': np.ascontiguousarray(values) for k, values in enumerate(whole.T)})
    pq.write_table(table, file, compression='lz4', use_dictionary=False, use_byte_stream_split=True)


def check_results(folder: Path) -> list[Result]:
    """The price of checking what is read against the digests of the commit log, and of making trajectories of it.

    Reads are warm.
    """
    from robotrials.record import part as part_module

    episodes = [e.replace(events=()) for e in make_episodes(READ, first=7_000_000)]
    store = Store.create(folder / 'few paths')
    store.append(episodes, trajectories={e.key: make_path(i) for i, e in enumerate(episodes)})
    files = sorted((store.path / 'trajectories').iterdir())

    def read(signals: list[str] | None) -> int:
        return sum(t.n_steps for _, t in store.trajectories(signals=signals))

    def unchecked(signals: list[str] | None) -> int:
        with (
            mock.patch.object(part_module, 'check_digest', return_value=None),
            mock.patch.object(part_module, '_check_spans', return_value=None),
            mock.patch.object(part_module, 'file_hash', return_value=''),
        ):
            return read(signals)

    def bare() -> None:
        for file in files:
            pq.read_table(file)

    work = f'{READ} trajectories of {STEPS} steps, {COLUMNS} columns'
    ways = {'checked': partial(read, None), 'unchecked': partial(unchecked, None), 'bare': bare}
    taken = _by_turns(ways)
    clocks = ('', 'processor time'), (', on the clock', 'pyarrow decodes its columns in two threads')
    results = [
        against(f'episodes/trajectories, {way}{clock}', ours_s=taken[way][k], peer='bare pyarrow of the same columns',
                peer_s=taken['bare'][k], target=0.7, work=f'{work}; {words}')
        for k, (clock, words) in enumerate(clocks) for way in ('checked', 'unchecked')
    ]  # fmt: skip
    for name, signals in (('all columns', None), ('one signal of six', ['ee_pose'])):
        read(signals)
        ours, peer = seconds(lambda s=signals: read(s), repeats=5), seconds(lambda s=signals: unchecked(s), repeats=5)
        results.append(
            against(f'episodes/checked read, {name}', ours_s=ours, peer='the same read unchecked (our own)',
                    peer_s=peer, target=0.7, work=work)
        )  # fmt: skip
    return results


def _by_turns(ways: Mapping[str, Callable[[], object]], *, repeats: int = 9) -> dict[str, tuple[Seconds, Seconds]]:
    """Processor time, of all threads, and wall time of each way; they take turns, for equal caches."""
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, call in ways.items():
            used, started = time.process_time(), time.perf_counter()
            call()
            taken[way].append((time.process_time() - used, time.perf_counter() - started))
    return {way: (Seconds.of([u for u, _ in pairs]), Seconds.of([w for _, w in pairs])) for way, pairs in taken.items()}


def index_results(folder: Path) -> list[Result]:
    """One trajectory out of 100,000 against reading one part of 512."""
    store = Store.create(folder / 'many')
    short = Trajectory(time_s=np.arange(100.0), ee_pose=np.random.default_rng(0).normal(size=(100, 7)))
    for first in range(0, EPISODES, 10_000):
        batch = [e.replace(events=()) for e in make_episodes(10_000, first=9_000_000 + first)]
        store.append(batch, trajectories={e.key: short for e in batch})
    wanted = batch[7_777]
    name = store.parts()[0].trajectories[0]
    logged = store.ledger().file(f'trajectories/{name}')
    one_s = seconds(lambda: store.trajectory(wanted), repeats=5)
    part = seconds(lambda: sum(1 for _ in store._trajectories_in(name, logged, None)), repeats=5)
    work = f'{EPISODES:,} trajectories in {len(store.parts())} episodes parts; target: at most 3 times one part'
    return [
        against('episodes/one trajectory of many', ours_s=one_s, peer='reading one part of 512 (our own)', peer_s=part,
                target=1 / 3, work=work)
    ]  # fmt: skip


PEAK_MEMORY = (
    PEAK_MB
    + """
import sys
from robotrials.record import read_store
count = sum(1 for _ in read_store(sys.argv[1]).episodes(events=False))
print(count, peak_mb() * 2**20)
"""
)


def memory_results(folder: Path) -> list[Result]:
    """Peak memory of a fresh process that iterates one million episodes."""
    table, store = folder / 'million.parquet', folder / 'million'
    pq.write_table(rows(MILLION, policies=4, tasks=5), table)
    subprocess.run([sys.executable, *verb('import', table, '--to', store)], capture_output=True, check=True)
    started = time.perf_counter()
    ran = subprocess.run([sys.executable, '-c', PEAK_MEMORY, str(store)], capture_output=True, text=True, check=True)
    elapsed = time.perf_counter() - started
    count, peak = map(float, ran.stdout.split())
    assert count == MILLION
    work = f'peak memory of a process that iterates {MILLION:,} episodes ({elapsed:.0f} s)'
    return [
        against(
            'episodes/memory for a million',
            ours_s=peak,
            peer='a limit of 500 MB',
            peer_s=TARGET_BYTES,
            target=1,
            work=work,
            unit='B',
        )
    ]


def run() -> Iterator[Result]:
    steps = (table_results, trajectory_results, check_results, index_results, memory_results)
    with tempfile.TemporaryDirectory() as name:
        yield from attempts(partial(step, Path(name)) for step in steps)
