"""Robot datasets: importing LeRobot episodes against a plain pyarrow read of the same files, in time and memory.

Processor time counts all threads; on the clock, pyarrow reads the files in as many as there are cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import OWN, PEAK_MB, Result, Seconds, against

ROOT = Path(__file__).resolve().parent.parent
EPISODES, FRAMES, PER_FILE = 1000, 300, 250
REPEATS, TURNS = 4, 3

# For the text of another process: the least processor and wall time of some calls, the memory, and the frames.
TIMED = (
    PEAK_MB
    + """
import json, sys, time
from pathlib import Path
def timed(call):
    frames, taken = call(), []
    for _ in range(int(sys.argv[2])):
        used, started = time.process_time(), time.perf_counter()
        call()
        taken.append((time.process_time() - used, time.perf_counter() - started))
    print(json.dumps([*map(min, zip(*taken)), peak_mb(), frames]))
"""
)

OURS = (
    TIMED
    + """
from robotrials.formats.imported import ImportOptions
from robotrials.formats.lerobot import LEROBOT
options = ImportOptions(defaults={'policy': 'act'}, answers={'rollouts': 'all'})
timed(lambda: sum(r.trajectory.n_steps for r in LEROBOT.read(Path(sys.argv[1]), options).recordings()))
"""
)

PLAIN = (
    TIMED
    + """
import pyarrow.parquet as pq
files = sorted(Path(sys.argv[1]).rglob('*.parquet'))
timed(lambda: sum(pq.read_table(f).num_rows for f in files))
"""
)

STORE = (
    TIMED
    + """
import tempfile
from robotrials.formats.imported import ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.lerobot import LEROBOT
options = ImportOptions(defaults={'policy': 'act'}, answers={'rollouts': 'all'})
def store():
    with tempfile.TemporaryDirectory() as folder:
        return import_into(Path(folder) / 's', LEROBOT.read(Path(sys.argv[1]), options)).added
timed(store)
"""
)


def write_dataset(root: Path, episodes: int) -> int:
    """A v3.0 dataset as LeRobot writes it: 8 states, 7 actions, next.*, one row group per episode; gives its bytes."""
    vectors = {'observation.state': 8, 'action': 7}
    features = {k: {'dtype': 'float32', 'shape': [n], 'names': None} for k, n in vectors.items()}
    scalars = {'next.reward': 'float32', 'next.success': 'bool', 'next.done': 'bool', 'timestamp': 'float32',
               'frame_index': 'int64', 'episode_index': 'int64', 'index': 'int64', 'task_index': 'int64'}  # fmt: skip
    features |= {k: {'dtype': t, 'shape': [1], 'names': None} for k, t in scalars.items()}
    (root / 'meta' / 'episodes' / 'chunk-000').mkdir(parents=True)
    (root / 'data' / 'chunk-000').mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows, writer = [], None
    for number in range(episodes):
        frame = np.arange(FRAMES)
        columns: dict[str, pa.Array] = {}
        for key, width in vectors.items():
            walk = np.cumsum(rng.normal(0, 0.01, (FRAMES, width)), axis=0).astype(np.float32)
            columns[key] = pa.FixedSizeListArray.from_arrays(walk.ravel(), width)
        last = frame == FRAMES - 1
        values = [last.astype('f4'), last & (number % 5 > 0), last, frame / 20, frame, frame * 0 + number,
                  number * FRAMES + frame, frame * 0 + number % 10]  # fmt: skip
        columns |= {k: pa.array(v.astype(scalars[k])) for k, v in zip(scalars, values, strict=True)}
        table = pa.table(columns)
        if number % PER_FILE == 0:
            if writer is not None:
                writer.close()
            writer = pq.ParquetWriter(
                root / 'data' / 'chunk-000' / f'file-{number // PER_FILE:03d}.parquet', table.schema
            )
        assert writer is not None
        writer.write_table(table)
        rows.append({'episode_index': number, 'tasks': [f'task {number % 10}'], 'length': FRAMES,
                     'data/chunk_index': 0, 'data/file_index': number // PER_FILE,
                     'dataset_from_index': number * FRAMES, 'dataset_to_index': (number + 1) * FRAMES})  # fmt: skip
    assert writer is not None
    writer.close()
    pq.write_table(pa.Table.from_pylist(rows), root / 'meta' / 'episodes' / 'chunk-000' / 'file-000.parquet')
    tasks = pa.table({'task_index': pa.array(range(10)), 'task': pa.array([f'task {i}' for i in range(10)])})
    pq.write_table(tasks, root / 'meta' / 'tasks.parquet')
    info = {'codebase_version': 'v3.0', 'fps': 20, 'total_episodes': episodes, 'features': features,
            'data_path': 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet', 'video_path': None}  # fmt: skip
    (root / 'meta' / 'info.json').write_text(json.dumps(info))
    return sum(p.stat().st_size for p in root.rglob('*.parquet'))


def measured(code: str, root: Path) -> tuple[float, float, float]:
    """Processor seconds, seconds on the clock, and the largest memory in MB."""
    ran = subprocess.run(
        [sys.executable, '-c', code, str(root), str(REPEATS)], capture_output=True, text=True, check=True,
        env={**os.environ, 'PYTHONPATH': str(ROOT / 'src')},
    )  # fmt: skip
    cpu_s, wall_s, peak_mb, _ = json.loads(ran.stdout.strip().splitlines()[-1])
    return float(cpu_s), float(wall_s), float(peak_mb)


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        root, small = Path(folder) / 'large', Path(folder) / 'small'
        size = write_dataset(root, EPISODES)
        write_dataset(small, EPISODES // 4)
        # In turns: the machine is not always ours alone.
        turns = [[measured(code, root) for code in (PLAIN, OURS, STORE)] for _ in range(TURNS)]
        _, _, quarter_mb = measured(STORE, small)
    plain, read, store = zip(*turns, strict=True)
    work = f'{EPISODES} episodes, {EPISODES * FRAMES:,} frames, {size / 1e6:.0f} MB of Parquet'
    written = f'{work}; read, checked, hashed and written to a store'
    clocks = ('', 'processor time'), (', on the clock', 'pyarrow decodes its columns in two threads')
    rows = [
        against(f'robot_data/{name}{clock}', ours_s=Seconds.of([t[k] for t in ours]), peer='plain pyarrow read',
                peer_s=Seconds.of([t[k] for t in plain]), target=1 / 1.5, work=f'{done}; {words}')
        for k, (clock, words) in enumerate(clocks)
        for name, ours, done in (('lerobot_read', read, work), ('lerobot_import', store, written))
    ]  # fmt: skip
    store_mb = max(peak_mb for _, _, peak_mb in store)
    memory = against('robot_data/lerobot_memory', ours_s=store_mb * 2**20, peer=f'a quarter of the episodes{OWN}',
                     peer_s=quarter_mb * 2**20, target=0.8, work=f'{written}; peak memory', unit='B')  # fmt: skip
    return [*rows, memory]
