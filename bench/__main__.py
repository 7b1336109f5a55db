"""Run benchmarks and keep the ratios: `python -m bench [AREA ...]`, all areas but `demo` by default.

`python -m bench --table` prints the rows that were kept as Markdown.

An area is a module of this folder with `def run() -> Iterable[Result]`. Each runs in a process of its own, one
after the other: what one leaves behind slows no other, and one that fails, or takes longer than `MOST_S`, is named at
the end while the others run. Rows are written after each area, with their commit and machine. Rows of areas that were
not run are kept if neither the source nor their area, nor what the area shares with others, has changed since, and only
on the same machine: a ratio older than the code it measures says nothing about it. Changes that are in no commit are
not measured, because a row could not name them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.table import amount, is_low, markdown, times

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / 'results.json'
UNMEASURED = 'not measured: '  # how an area begins the line that says what it lacks
ON_REQUEST = {'demo': 'it takes minutes of network and package cache'}  # run when they are named
BUSY_CORES = 0.3  # kept busy by other processes: more than this and rows in wall time say little
MOST_S = float(os.environ.get('ROBOTRIALS_BENCH_AREA_S', '600'))  # of one area


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(['git', '-C', str(FOLDER), *arguments], capture_output=True, text=True, check=False)


def machine() -> str:
    """The processor and the cores that this process may use."""
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(':', 1)[1].strip() for line in lines if line.startswith('model name')]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    return f'{names[0] if names else platform.machine()}, {cores} cores'


def is_current(row: dict[str, Any]) -> bool:
    """Was this row measured on this machine, on the code that is here now?"""
    if not row.get('commit') or row.get('machine') != machine():
        return False
    area = row['name'].split('/')[0]
    changed = _git('diff', '--quiet', row['commit'], '--', str(FOLDER.parent / 'src'), *map(str, files_of(area)))
    return changed.returncode == 0


def files_of(area: str) -> set[Path]:
    """The files of this folder that an area is made of: its own, those it imports from, and what it runs elsewhere."""
    waiting, files = [area], set()
    while waiting:
        path = FOLDER / f'{waiting.pop()}.py'
        if path not in files and path.exists():
            files.add(path)
            text = path.read_text(encoding='utf-8')
            waiting += re.findall(r'^ *from bench\.(\w+) import ', text, re.MULTILINE)
            files |= {FOLDER / 'inside'} if "'inside'" in text else set()
    return files


def changes() -> str:
    """What is in no commit of the code that rows measure, and of the areas."""
    results = f':(exclude,top){RESULTS.relative_to(FOLDER.parent)}'
    return _git('status', '--porcelain', '--', str(FOLDER.parent / 'src'), str(FOLDER), results).stdout


def head() -> str:
    return _git('rev-parse', 'HEAD').stdout.strip()


def kept_rows(areas: set[str]) -> dict[str, dict[str, Any]]:
    """The rows of these areas that still hold, by name."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    others = [row for row in rows if row['name'].split('/')[0] in areas]
    by_name = {row['name']: row for row in others if is_current(row)}
    if len(by_name) < len(others):
        print(f'{len(others) - len(by_name)} of {len(others)} kept rows are dropped: code or machine has changed')
    return by_name


def run_area(area: str, rows: Path) -> tuple[str, list[str]]:
    """Run one area in a process of its own, which writes its rows to a file.

    Gives why it failed, '' if it did not, and the lines that say what it could not measure.
    """
    command = [sys.executable, '-m', 'bench', '--rows', str(rows), area]
    with tempfile.TemporaryFile('w+') as log:
        process = subprocess.Popen(
            command, cwd=FOLDER.parent, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        why = ''
        try:
            process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            why = f'stopped after {MOST_S:.0f} s'
        finally:  # its servers and workers too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        lines = [line for line in log.read().splitlines() if line.strip()]
    if process.returncode and not why:
        why = f'exit {process.returncode}: {" | ".join(lines[-3:])}'
    return why, [line for line in lines if line.startswith(UNMEASURED)]


def print_row(row: dict[str, Any]) -> None:
    ours, peer = (amount(row[f'{side}_s'], row['unit']) for side in ('ours', 'peer'))
    print(
        f'  {"LOW" if is_low(row) else "ok "} {row["name"]}: {times(row["ratio"])}x (target {times(row["target"])}x); '
        f'{ours}, {row["peer"]} {peer}; {row["work"]}',
        flush=True,
    )


def run_areas(asked: list[str], by_name: dict[str, dict[str, Any]]) -> tuple[dict[str, str], list[str]]:
    """Run areas one by one, add their rows to those that hold, and write them.

    Gives the areas that failed, and why, and what could not be measured.
    """
    origin = {'commit': head(), 'machine': machine()}
    failed, unmeasured = {}, []
    for number, area in enumerate(asked, start=1):
        print(f'{area} ({number} of {len(asked)}) from {time.strftime("%H:%M:%S")}', flush=True)
        started, own_s, all_s = time.monotonic(), _children_s(), _busy_s()
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / 'rows.json'
            why, lines = run_area(area, rows)
            if head() != origin['commit'] or changes():
                failed[area] = 'the code changed while it ran: its rows are not kept, and nothing more was run'
                break
            took_s, own_s = time.monotonic() - started, _children_s() - own_s
            others = round(max(0.0, _busy_s() - all_s - own_s) / took_s, 2)
            for row in json.loads(rows.read_text()) if rows.exists() else []:
                by_name[row['name']] = {**row, **origin, 'other_cores': others}
                print_row(by_name[row['name']])
        print(''.join(f'  {line}\n' for line in lines), end='')
        spent = f'{took_s:.0f} s, {own_s:.0f} s of processor time; others kept {others:.1f} cores busy'
        print(f'  {area}: {spent}', flush=True)
        unmeasured += lines
        if why:
            failed[area] = why
            print(f'FAILED {area}: {why}', flush=True)
        RESULTS.write_text(json.dumps([by_name[name] for name in sorted(by_name)], indent=1) + '\n')
    return failed, unmeasured


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _busy_s() -> float:
    """Processor time of all processes of this machine so far, where the kernel tells it."""
    counts = Path('/proc/stat')
    if not counts.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, *_ = map(int, counts.read_text().split('\n', 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf('SC_CLK_TCK')


def write_rows(area: str, path: Path) -> None:
    """In the process of one area; a row that is measured is kept, whatever comes after it."""
    rows = []
    for result in importlib.import_module(f'bench.{area}').run():
        rows.append(result.as_json())
        path.write_text(json.dumps(rows))


def main() -> int:
    areas = sorted(p.stem for p in FOLDER.glob('*.py') if '\ndef run() -> ' in p.read_text(encoding='utf-8'))
    arguments = sys.argv[1:]
    if arguments[:1] == ['--rows']:
        write_rows(arguments[2], Path(arguments[1]))
        return 0
    if arguments == ['--table']:
        print(markdown(json.loads(RESULTS.read_text())))
        return 0
    asked = arguments or [area for area in areas if area not in ON_REQUEST]
    unknown = set(asked) - set(areas)
    if unknown:
        raise SystemExit(f'no benchmark area {", ".join(sorted(unknown))}; known: {", ".join(areas)}')
    if changes():
        raise SystemExit(
            'src or bench has changes that are in no commit; commit them, so that rows can name what they measured'
        )
    started = time.monotonic()
    failed, unmeasured = run_areas(asked, by_name := kept_rows(set(areas) - set(asked)))
    for area, why in ON_REQUEST.items():
        if area in areas and area not in asked and not any(name.startswith(f'{area}/') for name in by_name):
            unmeasured.append(f'{UNMEASURED}{area}; {why}, run it by `python -m bench {area}`')
    summarize(
        [by_name[name] for name in sorted(by_name)], failed, unmeasured, minutes=(time.monotonic() - started) / 60
    )
    return 1 if failed else 0


def summarize(rows: list[dict[str, Any]], failed: dict[str, str], unmeasured: list[str], *, minutes: float) -> None:
    """What a reader wants last: how much was measured, what falls short, and what is missing."""
    low = [row for row in rows if is_low(row)]
    print(f'\n{len(rows)} rows in {minutes:.0f} min; {len(low)} below target{":" if low else ""}')
    for row in low:
        print(f'  {row["name"]}: {times(row["ratio"])}x of {row["peer"]}, target {times(row["target"])}x')
    if busy := sorted({row['name'].split('/')[0] for row in rows if row.get('other_cores', 0) > BUSY_CORES}):
        print(f'the machine was busy with other work during {", ".join(busy)}: their times on the clock say little')
    for line in unmeasured:
        print(line)
    for area, why in failed.items():
        print(f'FAILED {area}: {why}')


if __name__ == '__main__':
    sys.exit(main())
