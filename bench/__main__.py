"""Run benchmarks and keep the ratios: `python -m bench [AREA ...]`, all areas but `demo` by default.

`python -m bench --table` prints the rows that were kept as Markdown.

An area is a module of this folder with `def run() -> Iterable[Result]`. Each runs in a process of its own, one
after the other: what one leaves behind slows no other, and one that fails, or takes longer than `MOST_S`, is named at
the end while the others run. Rows are written after each area, with their commit and machine. Rows of areas that were
not run are kept if neither the source nor their area has changed since, and only on the same machine: a ratio older
than the code it measures says nothing about it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / 'results.json'
UNMEASURED = 'not measured: '  # how an area begins the line that says what it lacks
ON_REQUEST = {'demo'}  # run when they are named
MOST_S = float(os.environ.get('ROBOTRIALS_BENCH_AREA_S', '600'))  # of one area


def _shown(ratio: float) -> str:
    return f'{ratio:,.1f}' if ratio >= 1 else f'{ratio:.3f}'


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
    changed = _git('diff', '--quiet', row['commit'], '--', str(FOLDER.parent / 'src'), str(FOLDER / f'{area}.py'))
    return changed.returncode == 0


def kept_rows(areas: set[str]) -> dict[str, dict[str, Any]]:
    """The rows of these areas that still hold, by name."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    others = [row for row in rows if row['name'].split('/')[0] in areas]
    by_name = {row['name']: row for row in others if is_current(row)}
    if len(by_name) < len(others):
        print(f'{len(others) - len(by_name)} of {len(others)} rows are dropped: code or machine has changed')
    return by_name


def run_area(area: str, rows: Path) -> str:
    """Run one area in a process of its own, which writes its rows to a file; why it failed, '' if it did not.

    What it could not measure, for want of a peer, is printed.
    """
    command = [sys.executable, '-m', 'bench', '--rows', str(rows), area]
    with tempfile.TemporaryFile('w+') as log:
        process = subprocess.Popen(
            command, cwd=FOLDER.parent, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            return f'stopped after {MOST_S:.0f} s'
        finally:  # its servers and workers too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        lines = [line for line in log.read().splitlines() if line.strip()]
    for line in lines:
        if line.startswith(UNMEASURED):
            print(line, flush=True)
    return '' if process.returncode == 0 else f'exit {process.returncode}: {" | ".join(lines[-3:])}'


def print_row(row: dict[str, Any]) -> None:
    mark = 'ok  ' if row['ratio'] >= row['target'] else 'LOW '
    print(
        f'{mark}{row["name"]}: {_shown(row["ratio"])}x {row["peer"]} (target {_shown(row["target"])}x); {row["work"]}',
        flush=True,
    )


def run_areas(asked: list[str], by_name: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Run areas one by one, add their rows to those that hold, and write them; the areas that failed, and why."""
    origin = {'commit': _git('rev-parse', 'HEAD').stdout.strip(), 'machine': machine()}
    failed = {}
    for number, area in enumerate(asked, start=1):
        print(f'{area} ({number} of {len(asked)}) from {time.strftime("%H:%M:%S")}', flush=True)
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / 'rows.json'
            why = run_area(area, rows)
            for row in json.loads(rows.read_text()) if rows.exists() else []:
                by_name[row['name']] = {**row, **origin}
                print_row(row)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f'    {area}: {time.monotonic() - started:.0f} s, {cpu_s:.0f} s of processor time', flush=True)
        if why:
            failed[area] = why
            print(f'FAILED {area}: {why}', flush=True)
        RESULTS.write_text(json.dumps([by_name[name] for name in sorted(by_name)], indent=1) + '\n')
    return failed


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """One line per row, with what it was measured beside and whether it reaches its target."""
    lines = ['| row | work | beside | ratio | target | |', '|---|---|---|---|---|---|']
    for row in rows:
        work, peer = (row[name].replace('|', '/') for name in ('work', 'peer'))
        mark = 'ok' if row['ratio'] >= row['target'] else 'low'
        lines.append(f'| {row["name"]} | {work} | {peer} | {_shown(row["ratio"])} | {_shown(row["target"])} | {mark} |')
    return '\n'.join(lines)


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
    if _git('diff', '--quiet', 'HEAD', '--', str(FOLDER.parent / 'src')).returncode:
        raise SystemExit('src has changes that are in no commit; commit them, so that rows can name what they measured')
    started = time.monotonic()
    failed = run_areas(asked, by_name := kept_rows(set(areas) - set(asked)))
    low = sorted(name for name, row in by_name.items() if row['ratio'] < row['target'])
    print(
        f'{len(by_name)} rows in {(time.monotonic() - started) / 60:.0f} min; {len(low)} below target: {", ".join(low)}'
    )
    for area, why in failed.items():
        print(f'FAILED {area}: {why}')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
