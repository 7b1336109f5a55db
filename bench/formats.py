"""Imports against a plain read of the same bytes: a CSV of a million rows, and an SQLite recording of vla-eval.

ROBOTRIALS_BENCH_SQLITE_MB sets the size of the recording; 100 by default, since a gigabyte takes minutes to write.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.csv as pcsv

from bench.measure import Result, against, seconds

ROWS = 1_000_000
STEPS = 300
IMPORT = """
import resource, sys, time
from pathlib import Path
from robotrials.formats.catalog import open_source
from robotrials.formats.imported import ImportOptions
from robotrials.formats.intake import import_into
import pyarrow.csv, pyarrow.dataset
started = time.perf_counter()
done = import_into(Path(sys.argv[2]), open_source(Path(sys.argv[1]), ImportOptions()))
print(done.added, time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def write_csv(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    policy, task = rng.integers(0, 5, rows), rng.integers(0, 40, rows)
    success, lasted = rng.random(rows) < 0.6, rng.uniform(1, 60, rows)
    with path.open('w') as stream:
        stream.write('policy,task,seed,success,duration\n')
        for number, (p, t, s, d) in enumerate(zip(policy, task, success, lasted, strict=True)):
            stream.write(f'policy_{p},task_{t},{number},{int(s)},{d:.3f}\n')


def write_recording(path: Path, megabytes: int) -> None:
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
    episode = 0
    while database.execute('PRAGMA page_count').fetchone()[0] * 4096 < megabytes << 20:
        walk = rng.normal(size=(STEPS, 15)).round(6).tolist()
        rows = [
            (
                's',
                f'e{episode}',
                k,
                json.dumps({'reward': 0.0, 'done': False, 'success': False, 'action': w[:7], 'state': w[7:]}),
            )
            for k, w in enumerate(walk)
        ]
        database.executemany('INSERT INTO step_rows VALUES (?, ?, ?, ?)', rows)
        context = json.dumps({'episode_idx': episode, 'task_idx': 0})
        values = (
            's',
            f'e{episode}',
            'e',
            'open',
            episode,
            'fail',
            '{"success": false}',
            STEPS,
            1.0,
            context,
            None,
            None,
            None,
        )
        database.execute(f'INSERT INTO episode_results VALUES ({",".join("?" * 13)})', values)
        episode += 1
    database.commit()
    database.close()


def imported(source: Path, store: Path) -> tuple[float, int]:
    """Seconds and peak MiB of an import in a process of its own."""
    command = [sys.executable, '-c', IMPORT, str(source), str(store)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    _, took, peak = ran.stdout.split()
    return float(took), int(peak)


def read_sqlite(path: Path) -> int:
    database = sqlite3.connect(path)
    size = sum(len(fields) for (fields,) in database.execute('SELECT fields FROM step_rows'))
    database.close()
    return size


def run() -> list[Result]:
    results = []
    megabytes = int(os.environ.get('ROBOTRIALS_BENCH_SQLITE_MB', '100'))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_csv(folder / 'small.csv', ROWS // 4)
        write_csv(folder / 'million.csv', ROWS)
        took, peak = imported(folder / 'million.csv', folder / 'csv')
        _, peak_small = imported(folder / 'small.csv', folder / 'csv-small')
        plain = seconds(lambda: pcsv.read_csv(folder / 'million.csv'))
        work = f'{ROWS:,} rows; peak {peak} MiB, {peak_small} MiB for a quarter of them'
        results.append(
            against('formats/csv', ours_s=took, peer='pyarrow read_csv', peer_s=plain, target=1 / 3, work=work)
        )
        write_recording(folder / 'recording-r.sqlite', megabytes)
        write_recording(folder / 'recording-q.sqlite', megabytes // 4)
        took, peak = imported(folder / 'recording-r.sqlite', folder / 'sqlite')
        _, peak_small = imported(folder / 'recording-q.sqlite', folder / 'sqlite-small')
        plain = seconds(lambda: read_sqlite(folder / 'recording-r.sqlite'))
        work = f'{megabytes} MB of steps; peak {peak} MiB, {peak_small} MiB for a quarter of them'
        results.append(
            against('formats/sqlite', ours_s=took, peer='sqlite3 rows', peer_s=plain, target=1 / 2, work=work)
        )
    return results
