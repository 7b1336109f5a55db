"""An SQLite recording of vla-eval, imported beside a plain read of its rows, and how the memory of imports grows.

Real verbs in new processes; CSV files beside pyarrow are rows of `verbs`. ROBOTRIALS_BENCH_SQLITE_MB sets the size of
the recording.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bench.measure import OWN, Result, against, attempts
from bench.verbs import cpu_s, peak_bytes, verb

ROWS = 1_000_000
STEPS = 300
READ_SQLITE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
print(sum(len(fields) for (fields,) in database.execute('SELECT fields FROM step_rows')))
"""
LEAST_FLAT = 0.8  # four times the rows may take 1.25 times the memory


def write_csv(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    policy, task = rng.integers(0, 5, rows), rng.integers(0, 40, rows)
    success, lasted = rng.random(rows) < 0.6, rng.uniform(1, 60, rows)
    with path.open('w') as stream:
        stream.write('policy,task,seed,success,duration\n')
        for number, (p, t, s, d) in enumerate(zip(policy, task, success, lasted, strict=True)):
            stream.write(f'policy_{p},task_{t},{number},{int(s)},{d:.3f}\n')


def write_recording(path: Path, megabytes: int) -> None:
    """As vla-eval writes it; every episode has the steps of one of 50, so that a gigabyte is written in seconds."""
    rng = np.random.default_rng(0)
    meta = {
        'benchmark': 'LIBEROBenchmark_libero_goal',
        'config': {'subname': 'libero_goal'},
        'server_info': {'model_server': 'X'},
    }
    database = sqlite3.connect(path)
    database.executescript("""
        CREATE TABLE eval_metadata (eval_id TEXT PRIMARY KEY, safe_name TEXT, metadata TEXT);
        CREATE TABLE episode_results (sid TEXT, eid TEXT, eval_id TEXT, task_name TEXT, episode_id INTEGER, status TEXT,
          metrics TEXT, steps INTEGER, elapsed_sec REAL, context TEXT, jsonl_path TEXT, failure_reason TEXT,
          failure_detail TEXT, PRIMARY KEY (sid, eid));
        CREATE TABLE step_rows (sid TEXT, eid TEXT, step_id INTEGER, fields TEXT, PRIMARY KEY (sid, eid, step_id));
    """)
    database.execute('INSERT INTO eval_metadata VALUES (?, ?, ?)', ('e', 'goal', json.dumps(meta)))
    steps = [
        [
            json.dumps({'reward': 0.0, 'done': False, 'success': False, 'action': w[:7], 'state': w[7:]})
            for w in rng.normal(size=(STEPS, 15)).round(6).tolist()
        ]
        for _ in range(50)
    ]
    episode = 0
    while database.execute('PRAGMA page_count').fetchone()[0] * 4096 < megabytes << 20:
        rows = (('s', f'e{episode}', k, fields) for k, fields in enumerate(steps[episode % len(steps)]))
        database.executemany('INSERT INTO step_rows VALUES (?, ?, ?, ?)', rows)
        context = json.dumps({'episode_idx': episode, 'task_idx': 0})
        values = (
            's', f'e{episode}', 'e', 'open', episode, 'fail', '{"success": false}', STEPS, 1.0, context, None, None,
            None,
        )  # fmt: skip
        database.execute(f'INSERT INTO episode_results VALUES ({",".join("?" * 13)})', values)
        episode += 1
    database.commit()
    database.close()


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name:
        yield from attempts(partial(step, Path(name)) for step in (_csv, _sqlite))


def _csv(folder: Path) -> Iterator[Result]:
    large, small = folder / 'million.csv', folder / 'small.csv'
    write_csv(large, ROWS)
    write_csv(small, ROWS // 4)
    yield _memory('csv', large, small, what=f'`import` of {ROWS:,} rows')


def _sqlite(folder: Path) -> Iterator[Result]:
    megabytes = int(os.environ.get('ROBOTRIALS_BENCH_SQLITE_MB', '1000'))
    large, small = folder / 'recording-r.sqlite', folder / 'recording-q.sqlite'
    write_recording(large, megabytes)
    write_recording(small, megabytes // 4)
    ours_s = cpu_s(verb('import', large, '--to', folder / 'sqlite'), folder=folder, repeats=1)
    peer_s = cpu_s(['-c', READ_SQLITE, large], folder=folder, repeats=3)
    what = f'`import` of {megabytes:,} MB of steps'
    yield against(
        'formats/sqlite', ours_s=ours_s, peer='sqlite3 reading the rows', peer_s=peer_s, target=1 / 2,
        work=f'{what}; processor time of new processes',
    )  # fmt: skip
    yield _memory('sqlite', large, small, what=what)


def _memory(name: str, large: Path, small: Path, *, what: str) -> Result:
    peak, quarter = (
        peak_bytes(verb('import', path, '--to', path.with_suffix('.store')), folder=path.parent)
        for path in (large, small)
    )
    return against(
        f'formats/{name}_memory', ours_s=peak, peer=f'a quarter of it{OWN}', peer_s=quarter, target=LEAST_FLAT,
        work=f'{what}; peak memory of the largest process', unit='B',
    )  # fmt: skip
