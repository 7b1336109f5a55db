"""Run benchmarks and keep the ratios: `python -m bench [AREA ...]`, all areas by default.

An area is a module of this folder with a function `run() -> list[Result]`. Rows have their commit and machine. Rows of
areas that were not run are kept if neither the source nor their area has changed since, and only on the same machine: a
ratio older than the code it measures says nothing about it.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / 'results.json'
NOT_AREAS = {'__main__', 'measure'}


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


def main() -> None:
    areas = sorted(m.name for m in pkgutil.iter_modules([str(FOLDER)]) if m.name not in NOT_AREAS)
    asked = sys.argv[1:] or areas
    unknown = set(asked) - set(areas)
    if unknown:
        raise SystemExit(f'no benchmark area {", ".join(sorted(unknown))}; known: {", ".join(areas)}')
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    others = [row for row in kept if row['name'].split('/')[0] in set(areas) - set(asked)]
    by_name = {row['name']: row for row in others if is_current(row)}
    if len(by_name) < len(others):
        print(f'{len(others) - len(by_name)} of {len(others)} rows are dropped: code or machine has changed')
    if _git('diff', '--quiet', 'HEAD', '--', str(FOLDER.parent / 'src')).returncode:
        raise SystemExit('src has changes that are in no commit; commit them, so that rows can name what they measured')
    origin = {'commit': _git('rev-parse', 'HEAD').stdout.strip(), 'machine': machine()}
    for area in asked:
        for result in importlib.import_module(f'bench.{area}').run():
            by_name[result.name] = {**result.as_json(), **origin}
            mark = 'ok  ' if result.ratio >= result.target else 'LOW '
            print(
                f'{mark}{result.name}: {_shown(result.ratio)}x {result.peer} (target {_shown(result.target)}x); '
                f'{result.work}'
            )
    RESULTS.write_text(json.dumps([by_name[name] for name in sorted(by_name)], indent=1) + '\n')


if __name__ == '__main__':
    main()
