"""vla-eval's files of every generation, written from their schemas."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

META = {
    'benchmark': 'LIBEROBenchmark_libero_goal', 'mode': 'sync', 'harness_version': '0.5.0',
    'config': {'subname': 'libero_goal', 'max_steps': None, 'params': {'seed': 7, 'suite': 'libero_goal'}},
    'server_info': {'model_server': 'Pi0Server'}, 'metric_keys': {'success': 'mean'},
}  # fmt: skip
OLD_TABLES = """
CREATE TABLE eval_metadata (eval_id TEXT PRIMARY KEY, safe_name TEXT NOT NULL, metadata TEXT NOT NULL);
CREATE TABLE episode_results (sid TEXT, eid TEXT, eval_id TEXT, task_name TEXT, episode_id INTEGER, status TEXT,
  metrics TEXT, steps INTEGER, elapsed_sec REAL, context TEXT, jsonl_path TEXT, failure_reason TEXT,
  failure_detail TEXT,
  PRIMARY KEY (sid, eid));
CREATE TABLE step_rows (sid TEXT, eid TEXT, step_id INTEGER, fields TEXT, PRIMARY KEY (sid, eid, step_id));
"""
SHARD_TABLES = """
CREATE TABLE run_metadata (singleton INTEGER PRIMARY KEY, eval_id TEXT, config TEXT);
CREATE TABLE eval_shards (eval_id TEXT, shard_id INTEGER, num_shards INTEGER, complete INTEGER,
  PRIMARY KEY (eval_id, shard_id));
"""
QUEUE_TABLE = """
CREATE TABLE work_queue (eval_id TEXT, item INTEGER, task_idx INTEGER, shard_id INTEGER, done INTEGER,
  PRIMARY KEY (eval_id, item));
"""


def write_recording(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    generation: str,
    shards: Sequence[tuple[int, int, int]] = (),
    queue: Sequence[tuple[int, int, int]] = (),
    steps: Mapping[int, Sequence[Mapping[str, Any]]] | None = None,
    metadata: Mapping[str, Any] = META,
) -> Path:
    """A recording of generation '0.3', '0.7' or '0.8'; each row is a dict of episode_results columns."""
    database = sqlite3.connect(path)
    if generation == '0.3':
        database.execute('PRAGMA journal_mode = WAL')
    database.executescript(OLD_TABLES)
    if generation in ('0.7', '0.8'):
        database.executescript(SHARD_TABLES)
    if generation == '0.8':
        database.executescript(QUEUE_TABLE)
    database.execute('INSERT INTO eval_metadata VALUES (?, ?, ?)', ('run-goal', 'goal', json.dumps(metadata)))
    for number, row in enumerate(rows):
        context = {'name': row['task_name'], 'episode_idx': row['episode_id'], **row.get('context', {})}
        if generation != '0.3':
            context.setdefault('task_idx', 0)
        values = (
            f's{number}', f'e{number}', 'run-goal', row['task_name'], row['episode_id'], row.get('status', 'success'),
            json.dumps(row.get('metrics', {'success': row.get('status', 'success') == 'success'})),
            row.get('steps', 90), 1.0, json.dumps(context), None, row.get('failure_reason'), row.get('failure_detail'),
        )  # fmt: skip
        database.execute(f'INSERT INTO episode_results VALUES ({",".join("?" * 13)})', values)
        for place, fields in enumerate((steps or {}).get(number, ())):
            database.execute('INSERT INTO step_rows VALUES (?, ?, ?, ?)', (*values[:2], place, json.dumps(fields)))
    if shards:
        database.executemany("INSERT INTO eval_shards VALUES ('run-goal', ?, ?, ?)", shards)
    if queue:
        database.executemany("INSERT INTO work_queue VALUES ('run-goal', ?, ?, 0, ?)", queue)
    database.commit()
    database.close()
    return path


def generation_b(**more: Any) -> dict[str, Any]:
    """A result of 0.1 or 0.2: metrics and integer ids."""
    episodes = [
        {'episode_id': 0, 'metrics': {'success': True}, 'steps': 100, 'elapsed_sec': 9.0},
        {'episode_id': 1, 'metrics': {'success': False}, 'steps': 300, 'elapsed_sec': 30.0},
        {'episode_id': 2, 'metrics': {'success': False}, 'steps': 0, 'failure_reason': 'server_unreachable',
         'failure_detail': 'Traceback\nConnectionError: refused'},
    ]  # fmt: skip
    task = {'task': 'open the drawer', 'episodes': episodes, 'num_episodes': 3, 'num_errors': 1, 'mean_success': 0.3333}
    return {**META, 'created_at': '2026-04-01T00:00:00', 'tasks': [task], 'mean_success': 0.3333, **more}


def generation_c(**more: Any) -> dict[str, Any]:
    """An aggregate of 0.3 on: the context's keys beside."""
    document = generation_b(eval_id='run-goal', num_episodes_total=3, num_errors=1)
    for place, episode in enumerate(document['tasks'][0]['episodes']):
        episode.update({'sid': 's', 'eid': f'e{place}', 'episode_idx': place + 10, 'task_idx': 4})
    return {**document, **more}
