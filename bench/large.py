"""Large tables through every main verb, and the same question twice: CPU time and memory of new processes.

`python -m bench.large` prints the table of docs/concepts/benchmarks.md. ROBOTRIALS_BENCH_ROWS has the larger number of
rows.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet

from bench.measure import OWN, Result, Seconds, against, attempts
from bench.verbs import MANY, READ, READ_PARQUET, rows, verb
from robotrials.record import Episode, Outcome, Store

FEW = MANY // 5
RECORDED, STEPS, ROUNDS = 1000, 300, 3
LEAST_LINEAR = 0.8  # five times the rows may take 6.25 times the processor time
READ_JSON = 'import sys, numpy, pyarrow.json; pyarrow.json.read_json(sys.argv[1])'
FILES = {
    'plain CSV': ('plain.csv', READ), 'quoted CSV': ('quoted.csv', READ), 'lines of JSON': ('rows.jsonl', READ_JSON),
    'Parquet': ('rows.parquet', READ_PARQUET),
}  # fmt: skip
# In a small process of its own: what a process forks begins with the memory of its parent, and its peak counts that.
MEASURE = r"""
import json, os, re, signal, subprocess, sys, time, urllib.request
ask, said, *command = sys.argv[1:]
with open(said, 'w') as stream:
    process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
address = None
while int(ask) and address is None and process.poll() is None:
    time.sleep(0.2)
    address = re.search(r'http://127\.0\.0\.1:\d+/\S*', open(said).read())
if address:
    urllib.request.urlopen(address[0]).read()
    process.send_signal(signal.SIGINT)
_, status, used = os.wait4(process.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """What one process took: user and system time, its children included, and the largest memory of one of them."""

    cpu_s: float
    peak_mb: float


def taken(command: Sequence[str | Path], *, folder: Path, ask: bool = False) -> Taken:
    """Run a command to its end; of a server that says where it listens, `ask` reads one page and ends it."""
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONDONTWRITEBYTECODE'}
    environment |= {
        'PYTHONPYCACHEPREFIX': str(folder.parent / 'bytecode'), 'ROBOTRIALS_CACHE': str(folder / 'cache'),
        'ROBOTRIALS_PROGRESS': '0', 'PYTHONUNBUFFERED': '1',
    }  # fmt: skip
    answer = subprocess.run(
        [sys.executable, '-c', MEASURE, str(int(ask)), str(folder / 'said'), sys.executable, *map(str, command)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    code, cpu_s, peak_mb = json.loads(answer)
    if code and not ask:
        raise RuntimeError(f'{command}: ended with {code}: {(folder / "said").read_text()[-2000:]}')
    print(f'{cpu_s:8.1f} s {peak_mb:6.0f} MB', *command[2:4], file=sys.stderr, flush=True)
    return Taken(cpu_s, peak_mb)


def measured(folder: Path, count: int) -> dict[str, tuple[Taken, Taken | None]]:
    """By what was done: what it took, and what reading the same file by pyarrow takes."""
    folder.mkdir()
    (folder / 'small.csv').write_text('policy,task,success\na,t,1\nb,t,0\n')
    taken(verb('import', 'small.csv', '--to', 'small'), folder=folder)  # writes bytecode
    whole = rows(count, policies=4, tasks=10)
    results: dict[str, tuple[Taken, Taken | None]] = {}
    for kind, (name, reader) in FILES.items():
        path = folder / name
        if name.endswith('.csv'):
            style = 'all_valid' if kind == 'quoted CSV' else 'needed'
            pyarrow.csv.write_csv(whole, path, pyarrow.csv.WriteOptions(quoting_style=style))
        elif name.endswith('.jsonl'):
            with path.open('w') as stream:
                for batch in whole.to_batches(max_chunksize=1 << 16):
                    stream.writelines(f'{json.dumps(row)}\n' for row in batch.to_pylist())
        else:
            pyarrow.parquet.write_table(whole, path)
        store = folder / kind.replace(' ', '-')
        results[f'`import`, {kind}'] = (
            taken(verb('import', path, '--to', store), folder=folder), taken(['-c', reader, path], folder=folder)
        )  # fmt: skip
    asked = {
        'score': (store,), 'compare': (store,), 'report': (store, '-o', folder / 'report.html'),
        'store verify': (store,), 'explore': (store, '--no-browser', '--port', '0'),
    }  # fmt: skip
    for name, arguments in asked.items():
        command = verb(*name.split(), *arguments)
        results[f'`{name}`'] = taken(command, folder=folder, ask=name == 'explore'), None
    return results


def table(by_count: dict[int, dict[str, tuple[Taken, Taken | None]]]) -> str:
    """The measurements as Markdown."""
    few, many = by_count
    lines = [
        f'| verb | {few:,} rows | {many:,} rows | for each further million | pyarrow reads the file |',
        '|---|---|---|---|---|',
    ]
    for name, (first, _) in by_count[few].items():
        last, peer = by_count[many][name]
        each_s = (last.cpu_s - first.cpu_s) / (many - few) * 1e6
        read = '' if peer is None else f'{peer.cpu_s:.2f} s ({last.cpu_s / peer.cpu_s:.1f}x)'
        sizes = ' | '.join(f'{t.cpu_s:.1f} s, {t.peak_mb:.0f} MB' for t in (first, last))
        lines.append(f'| {name} | {sizes} | {each_s:.1f} s | {read} |')
    return '\n'.join(lines)


def recorded_store(path: Path) -> None:
    """Episodes of LIBERO with trajectories: nine bodies, their contacts, an arm of seven joints."""
    from robotrials.record import Contacts, Scene, Trajectory

    rng = np.random.default_rng(0)
    bodies = ('bowl', 'cup', 'plate', 'box', 'can', 'soup', 'sauce', 'tray', 'basket')
    roles = {'link7': 'robot', 'finger': 'gripper', 'table': 'furniture', 'bowl': 'target'}
    roles |= dict.fromkeys(bodies[1:], 'bystander')
    still = np.tile([0.0, 0.0, 0.8, 1.0, 0.0, 0.0, 0.0], (STEPS, len(bodies), 1))
    still[:, :, 0] += np.arange(len(bodies)) * 0.1
    touching = Contacts.from_steps([[(b, 'table', 2.0) for b in bodies] + [('finger', 'bowl', 5.0)]] * STEPS)
    store = Store.create(path)
    for first in range(0, RECORDED, 500):
        episodes = [
            Episode(
                policy=f'p{k % 2}', task='task_4', benchmark='libero-10', seed=k // 2, duration_s=5.0, time_cap_s=20.0,
                outcome=Outcome.SUCCESS if k % 3 else Outcome.FAILURE,
            )
            for k in range(first, first + 500)
        ]  # fmt: skip
        paths = {}
        for episode in episodes:
            pose = still + rng.normal(0, 1e-4, still.shape) * [1, 1, 1, 0, 0, 0, 0]
            paths[episode.key] = Trajectory(
                time_s=np.arange(STEPS) * 0.05, ee_pose=pose[:, 0], joint_torque_nm=rng.normal(0, 5, (STEPS, 7)),
                bodies=bodies, body_pose=pose, contacts=touching, gripper_contact=np.arange(STEPS) > 50,
                scene=Scene(body_roles=roles, target_object='bowl'),
            )  # fmt: skip
        store.append(episodes, trajectories=paths)


def _second_questions(folder: Path) -> Iterator[Result]:
    """The same question twice: rows whose peer is our own code."""
    recorded_store(folder / 'recorded')
    asked = {name: verb(name, folder / 'recorded') for name in ('compare', 'score', 'safety')}
    asked['report'] = verb('report', folder / 'recorded', '-o', folder / 'report.html')
    for name, command in asked.items():
        taken(command, folder=folder)  # writes bytecode
        first, again = [], []
        for _ in range(ROUNDS):
            shutil.rmtree(folder / 'cache')
            first.append(taken(command, folder=folder).cpu_s)
            again.append(taken(command, folder=folder).cpu_s)
        work = f'`{name}` of {RECORDED:,} recorded episodes of {STEPS} steps; processor time of new processes'
        yield against(
            f'large/second question, {name}', ours_s=Seconds.of(again), peer=f'the first{OWN}',
            peer_s=Seconds.of(first), target=10.0, work=work,
        )  # fmt: skip


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / 'first').mkdir()
        yield from attempts((lambda: _second_questions(place / 'first'), lambda: _whole_tables(place)))


def _whole_tables(place: Path) -> Iterator[Result]:
    by_count = {count: measured(place / str(count), count) for count in (FEW, MANY)}
    for name, (first, _) in by_count[FEW].items():
        last = by_count[MANY][name][0]
        each_s = (last.cpu_s - first.cpu_s) / (MANY - FEW) * 1e6
        yield against(
            f'large/{name.replace("`", "")} of {MANY:,} rows', ours_s=last.cpu_s,
            peer=f'{MANY // FEW} times that of {FEW:,} rows{OWN}', peer_s=first.cpu_s * MANY / FEW, target=LEAST_LINEAR,
            work=f'{first.cpu_s:.1f} s and {first.peak_mb:.0f} MB, {last.cpu_s:.1f} s and {last.peak_mb:.0f} MB: '
            f'{each_s:.1f} s for each further million; processor time of one new process each',
        )  # fmt: skip


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as work_folder:
        root = Path(work_folder)
        print(table({count: measured(root / str(count), count) for count in (FEW, MANY)}))
