"""What users feel: verbs in new processes, on files and on stores that `import` made; CPU time, medians."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import robotrials
from bench.measure import OWN, Result, Seconds, against, attempts

REPEATS = 5
MANY = int(os.environ.get('ROBOTRIALS_BENCH_ROWS', '1000000'))
FLOOR = 'python importing numpy and pyarrow and reading the file'
READ = 'import sys, numpy, pyarrow.csv; pyarrow.csv.read_csv(sys.argv[1])'
READ_PARQUET = 'import sys, numpy, pyarrow.parquet; pyarrow.parquet.read_table(sys.argv[1])'
# What `compare` says of two policies: the difference of success with its interval and McNemar's mid-p, and of times.
BY_HAND = """
import json, sys, numpy, pandas, scipy.stats, statsmodels.stats.contingency_tables as tables
rows = pandas.read_csv(sys.argv[1])
a, b = (rows[rows.policy == p].set_index(['task', 'seed']) for p in sorted(rows.policy.unique()))
pairs = a.join(b, lsuffix='_a', rsuffix='_b')
table = pandas.crosstab(pairs.success_a, pairs.success_b).to_numpy()
ahead, behind = table[0, 1], table[1, 0]
mid_p = tables.mcnemar(table, exact=True).pvalue - scipy.stats.binom.pmf(min(ahead, behind), ahead + behind, 0.5)
done = pairs[(pairs.success_a == 1) & (pairs.success_b == 1)]
print(scipy.stats.wilcoxon(done.duration_s_a, done.duration_s_b))
gain = pairs.success_b - pairs.success_a
print(scipy.stats.bootstrap((gain,), numpy.mean, n_resamples=2000).confidence_interval)
print(json.dumps([gain.mean(), mid_p]))
"""
MOST_APART = 1e-9
MOST_PAGE_BYTES = 5e6
MOST_IMPORT_BYTES = 500e6
COMMITS = os.environ.get('ROBOTRIALS_BENCH_COMMITS', '10000')
APPENDS = """
import sys
from robotrials.record import Episode, Outcome, Store
store = Store.create(sys.argv[1])
for k in range(int(sys.argv[2])):
    outcome = Outcome.SUCCESS if k * 31 % 7 < 4 + k % 2 else Outcome.TIMEOUT
    store.append([Episode(
        policy=f'p{k % 2}', task=f't{k // 2 % 4}', seed=k // 8, outcome=outcome, duration_s=5 + k * 7919 % 100 / 10,
        time_cap_s=60.0,
    )])
"""
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""
DIFFERENCES = """
import json, sys, numpy, pyarrow.parquet
rows = pyarrow.parquet.read_table(sys.argv[1])
policy = rows['policy'].combine_chunks().dictionary_encode().indices.to_numpy()
success, each = rows['success'].to_numpy(), len(rows) // (policy.max() + 1)
arms = success[numpy.argsort(policy, kind='stable')].reshape(-1, each).astype(float)
pairs = [(a, b, arms[a] - arms[b]) for a in range(len(arms)) for b in range(a)]
print(json.dumps([[f'p{a}', f'p{b}', gain.mean(), gain.std()] for a, b, gain in pairs]))
"""


def rows(count: int, *, policies: int, tasks: int) -> pa.Table:
    """Episodes of all policies from the same starts."""
    rng = np.random.default_rng(0)
    each = count // policies
    place = np.tile(np.arange(each), policies)
    policy = np.repeat(np.arange(policies), each)
    return pa.table({
        'policy': pa.array([f'p{k}' for k in range(policies)]).take(pa.array(policy)),
        'task': pa.array([f't{k}' for k in range(tasks)]).take(pa.array(place % tasks)),
        'seed': place // tasks,
        'success': (rng.random(len(place)) < 0.5 + 0.05 * policy).astype(np.int64),
        'duration_s': rng.exponential(20, len(place)).round(2),
    })  # fmt: skip


def cpu_s(
    command: Sequence[str | Path], *, folder: Path, repeats: int = REPEATS, is_cold: bool = False,
    made: Path | None = None,
) -> Seconds:  # fmt: skip
    """User and system time of a command in a new process, its children included.

    Every process finds the bytecode of the packages that it imports; a cold one finds none of ours, and writes it.
    `made` is a folder that the command makes: each process finds none.
    """
    bytecode = folder / 'bytecode'
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONDONTWRITEBYTECODE'}
    environment |= {'PYTHONPYCACHEPREFIX': str(bytecode), 'XDG_CACHE_HOME': str(folder / 'cache')}
    taken = []
    for repeat in range(repeats + (repeats > 1)):
        if is_cold:
            shutil.rmtree(f'{bytecode}{Path(robotrials.__file__).parent}', ignore_errors=True)
            shutil.rmtree(folder / 'cache', ignore_errors=True)
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *map(str, command)], cwd=folder, check=True, capture_output=True, env=environment
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if repeat or repeats == 1:  # the first of several writes bytecode
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return Seconds.of(taken)


def answer(command: Sequence[str | Path], *, folder: Path) -> str:
    """What a command prints, untimed."""
    command = [sys.executable, *map(str, command)]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def verb(*arguments: str | Path) -> list[str | Path]:
    return ['-m', 'robotrials', *arguments]


def peak_bytes(command: Sequence[str | Path], *, folder: Path) -> int:
    """The largest resident memory of a command in a new process, and of its children.

    Started by a small process, because what a large one forks begins with its parent's memory.
    """
    measured = [sys.executable, '-c', PEAK, sys.executable, *map(str, command)]
    return int(subprocess.run(measured, cwd=folder, check=True, capture_output=True, text=True).stdout)


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        steps = (_first_answers, _report_many, _many_commits, _large)
        yield from attempts(partial(step, Path(folder)) for step in steps)


def _row(name: str, ours: Seconds, peer: str, peers: Seconds, target: float, work: str) -> Result:
    work = f'{work}; processor time of new processes'
    return against(f'verbs/{name}', ours_s=ours, peer=peer, peer_s=peers, target=target, work=work)


def _first_answers(folder: Path) -> list[Result]:
    """200 episodes. Cold: no bytecode of ours, and nothing in the user's cache."""
    table = folder / 'small.csv'
    pyarrow.csv.write_csv(rows(200, policies=2, tasks=4), table)
    cpu_s(verb('import', table, '--to', folder / 'small'), folder=folder, repeats=1)
    floor = cpu_s(['-c', READ, table], folder=folder)
    cold = cpu_s(verb('compare', table), folder=folder, is_cold=True)
    warm = cpu_s(verb('compare', table), folder=folder)
    report = cpu_s(verb('report', folder / 'small', '-o', folder / 'small.html'), folder=folder)
    hand = cpu_s(['-c', BY_HAND, table], folder=folder)
    (pair,) = _differences(table, folder)
    difference, p_value = json.loads(answer(['-c', BY_HAND, table], folder=folder).splitlines()[-1])
    _hold(pair['a ahead by (points)'], 100 * difference, 'the difference of success by hand')
    _hold(pair['p'], p_value, 'the p value by hand')
    return [
        _row('first_answer_cold', cold, FLOOR, floor, 1 / 4, '`compare` of a CSV of 200 episodes, no bytecode'),
        _row('first_answer_warm', warm, FLOOR, floor, 1 / 2.5, '`compare` of a CSV of 200 episodes, again'),
        _row(
            'by_hand', warm, 'pandas, scipy.stats and statsmodels', hand, 1.0,
            '`compare` of a CSV of 200 episodes; difference and p value are equal',
        ),
        _row('report_200', report, FLOOR, floor, 1 / 5, '`report` of a store of 200 episodes'),
    ]  # fmt: skip


def _differences(path: Path, folder: Path) -> list[dict[str, Any]]:
    """The rows of all pairs' differences of success, as `compare` gives them."""
    tables = json.loads(answer(verb('compare', path, '--format', 'json'), folder=folder))
    (rows,) = (table['rows'] for table in tables if table['title'] == 'All pairs: episode success')
    return list(rows)


def _hold(ours: float, theirs: float, what: str) -> None:
    if abs(ours - theirs) > MOST_APART * max(1.0, abs(theirs)):
        raise RuntimeError(f'{what} is {theirs}, ours {ours}')


def _report_many(folder: Path) -> list[Result]:
    table = folder / 'many.parquet'
    pyarrow.parquet.write_table(rows(10_000, policies=8, tasks=40), table)
    cpu_s(verb('import', table, '--to', folder / 'many'), folder=folder, repeats=1)
    ours = cpu_s(verb('report', folder / 'many', '-o', folder / 'many.html'), folder=folder, repeats=3)
    peer = cpu_s(['-c', READ_PARQUET, table], folder=folder)
    work = '`report` of 10,000 episodes, 8 policies, 40 tasks'
    size = (folder / 'many.html').stat().st_size
    return [
        _row('report_10000', ours, 'pyarrow.parquet.read_table', peer, 1 / 200, work),
        against('verbs/report_size', ours_s=size, peer='a limit of 5 MB', peer_s=MOST_PAGE_BYTES, target=1.0,
                work='the page of 10,000 episodes', unit='B'),
    ]  # fmt: skip


def _many_commits(folder: Path) -> list[Result]:
    """A store of single appends beside the same one compacted: a row whose peer is our own code."""
    many, few = folder / 'commits', folder / 'compacted'
    cpu_s(['-c', APPENDS, many, COMMITS], folder=folder, repeats=1)
    shutil.copytree(many, few)
    cpu_s(verb('store', 'compact', few), folder=folder, repeats=1)
    ours, peer = (cpu_s(verb('compare', path), folder=folder, repeats=3) for path in (many, few))
    work = f'open and `compare` a store of {COMMITS} appends of one episode'
    return [_row('many_commits', ours, f'the same store compacted{OWN}', peer, 1 / 1.5, work)]


def _large(folder: Path) -> list[Result]:
    """A million episodes: the import of each kind of file, and all pairs."""
    whole = rows(MANY, policies=4, tasks=10)
    results = []
    for kind, name, reader in (
        ('plain', 'plain.csv', READ), ('quoted', 'quoted.csv', READ), ('parquet', 'rows.parquet', READ_PARQUET),
    ):  # fmt: skip
        path = folder / name
        if name.endswith('.csv'):
            style = 'all_valid' if kind == 'quoted' else 'needed'
            pyarrow.csv.write_csv(whole, path, pyarrow.csv.WriteOptions(quoting_style=style))
        else:
            pyarrow.parquet.write_table(whole, path)
        ours = cpu_s(verb('import', path, '--to', folder / kind), folder=folder, made=folder / kind)
        peer = cpu_s(['-c', reader, path], folder=folder)
        results.append(_row(f'import_{kind}', ours, 'pyarrow reading the file', peer, 1 / 3, f'{MANY:,} rows, {name}'))
        peak = peak_bytes(verb('import', path, '--to', folder / f'{kind}-again'), folder=folder)
        results.append(
            against(f'verbs/import_{kind}_memory', ours_s=peak, peer='a limit of 500 MB', peer_s=MOST_IMPORT_BYTES,
                    target=1.0, work=f'{MANY:,} rows, {name}; peak memory of the largest process', unit='B')
        )  # fmt: skip
    ours = cpu_s(verb('compare', folder / 'plain'), folder=folder, repeats=1)
    peer = cpu_s(['-c', DIFFERENCES, folder / 'rows.parquet'], folder=folder)
    theirs = json.loads(answer(['-c', DIFFERENCES, folder / 'rows.parquet'], folder=folder))
    by_pair = {(a, b): 100 * difference for a, b, difference, _ in theirs}
    pairs = _differences(folder / 'plain', folder)
    for pair in pairs:
        a, b, sign = (pair['a'], pair['b'], 1) if pair['a'] > pair['b'] else (pair['b'], pair['a'], -1)
        _hold(sign * pair['a ahead by (points)'], by_pair[a, b], f'the difference of {a} and {b}')
    work = f'{MANY:,} episodes, 4 policies, 10 tasks, {len(pairs)} pairs, from a store; differences are equal'
    return [*results, _row('compare_many', ours, 'numpy, the paired differences alone', peer, 1 / 20, work)]
