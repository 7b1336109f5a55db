"""Build the wheel and use it as a stranger would: in an empty environment, from a folder outside of the repository.

`python tools/wheel_test.py python3.11 python3.12 [--lowest]` builds into .wheel/dist, holds it to `twine check`, and
for each interpreter installs it alone, imports a table, compares, writes a report, asks in Python, and tries
the hint of a missing extra. With --lowest the base dependencies are installed at their lower bounds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / '.wheel'
TABLE = ['policy,task,seed,success'] + [
    f'{policy},{task},{seed},{int((seed * 7 + len(task)) % 10 < skill)}'
    for policy, skill in (('act', 5), ('pi0', 9))
    for task in ('pick', 'stack')
    for seed in range(30)
]
SNIPPET = "import robotrials; trial = robotrials.load('rollouts.csv'); assert 'pi0' in str(trial.compare('act', 'pi0'))"
NOT_IN_BASE = ('mujoco', 'ray', 'torch', 'fastapi', 'sqlalchemy', 'av', 'h5py', 'pandas', 'mkdocs')


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The standard output of a command that has to work; none of our paths or settings reach it."""
    env = {k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'VIRTUAL_ENV')}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f'{" ".join(map(str, command))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}')
    return done.stdout


def interpreter(name: str) -> str:
    """A Python of this name that runs; pyenv's shims name versions that are not switched on."""
    for path in (name, *map(str, sorted(Path.home().glob(f'.pyenv/versions/*/bin/{name}'), reverse=True))):
        try:
            run(path, '--version')
        except (SystemExit, FileNotFoundError):
            continue
        return path
    raise SystemExit(f'{name}: not here; name others with WHEEL_PYTHONS="python3.12"')


def build(python: str) -> Path:
    """The wheel, from the source distribution as `python -m build` makes it, and both checked."""
    tools = WORK / 'tools'
    if not (tools / 'bin' / 'twine').exists():
        run(python, '-m', 'venv', tools)
        run(tools / 'bin' / 'pip', 'install', '-q', 'build', 'twine', 'hatchling==1.27.0')
    for old in (WORK / 'dist').glob('*'):
        old.unlink()
    run(tools / 'bin' / 'python', '-m', 'build', '--no-isolation', '--outdir', WORK / 'dist', ROOT)
    run(tools / 'bin' / 'twine', 'check', '--strict', *sorted((WORK / 'dist').glob('*')))
    return next((WORK / 'dist').glob('*.whl'))


def lower_bounds() -> list[str]:
    """The base dependencies, each at the least version that pyproject.toml allows."""
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text(encoding='utf-8'))['project']
    return [requirement.replace('>=', '==') + '.*' for requirement in project['dependencies']]


def try_wheel(python: str, wheel: Path, *, pins: Sequence[str] = ()) -> None:
    """Install the wheel where nothing else is, and go the first steps of the documentation."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        run(python, '-m', 'venv', here / 'env')
        binaries = here / 'env' / 'bin'
        started_s = time.monotonic()
        run(binaries / 'pip', 'install', '-q', '--disable-pip-version-check', wheel, *pins, cwd=here)
        print(f'{python}: installed in {time.monotonic() - started_s:.0f} s', flush=True)
        names = {line.split('==')[0].lower() for line in run(binaries / 'pip', 'freeze', cwd=here).splitlines()}
        if extra := names & set(NOT_IN_BASE):
            raise SystemExit(f'{python}: the base brings {", ".join(sorted(extra))}, which belong to extras')
        (here / 'rollouts.csv').write_text('\n'.join(TABLE) + '\n', encoding='utf-8')
        started_s = time.monotonic()
        for words in (
            ('import', 'rollouts.csv', '--to', 'runs/may'),
            ('compare', 'runs/may', 'act', 'pi0'),
            ('report', 'runs/may', '-o', 'may.html'),
            ('store', 'verify', 'runs/may'),
        ):
            run(binaries / 'robotrials', *words, cwd=here)
        if (here / 'may.html').stat().st_size < 10_000:
            raise SystemExit(f'{python}: the report is empty')
        run(binaries / 'python', '-c', SNIPPET, cwd=here)
        check_hint(binaries, here)
        print(f'{python}: import, compare, report, verify, Python and a hint in {time.monotonic() - started_s:.0f} s')


def check_hint(binaries: Path, here: Path) -> None:
    """The demo without a simulator says what to install; the words of the hint are a requirement that pip accepts."""
    done = subprocess.run([binaries / 'robotrials', 'demo'], cwd=here, capture_output=True, text=True, check=False)
    hint = re.search(r"pip install '?(robotrials\[[a-z,]+\])'?", done.stdout + done.stderr)
    if done.returncode == 0 or hint is None or 'Traceback' in done.stderr:
        raise SystemExit(f'demo without a simulator: wanted a hint to install, found\n{done.stdout}{done.stderr}')
    run(binaries / 'pip', 'install', '-q', '--dry-run', hint.group(1), '--find-links', WORK / 'dist', cwd=here)


def main() -> None:
    words = sys.argv[1:]
    pins = lower_bounds() if '--lowest' in words else []
    pythons = [interpreter(w) for w in words if not w.startswith('--')] or ['python3']
    wheel = build(pythons[0])
    print(f'{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, twine check clean')
    for python in pythons:
        try_wheel(python, wheel, pins=pins)


if __name__ == '__main__':
    main()
