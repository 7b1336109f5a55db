"""Making, checking, mending and removing environments."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from robotrials.errors import InputError, SetupError
from robotrials.record.folder import write_durably
from robotrials.run.environment.recipe import (
    RECORD,
    Environment,
    Recipe,
    environment_at,
    environments_folder,
    link_robotrials,
)

INSTALL_S = 3600.0
LOCK_S = 3600.0
CHECK_S = 300.0
OFFLINE = {'HF_HUB_OFFLINE': '1', 'TRANSFORMERS_OFFLINE': '1'}
TOLD_LINES = 20
Progress = Callable[[str], None]

_LIST = (
    'import importlib.metadata as m, json\n'
    'print(json.dumps({d.metadata["Name"]: d.version for d in m.distributions()}))'
)


def create_environment(recipe: Recipe, *, progress: Progress | None = None) -> Environment:
    """The environment of a recipe: made, or made anew if it is not whole. Several callers take turns."""
    folder = environments_folder() / f'{recipe.name}-{recipe.digest}'
    with _locked(folder):
        environment = environment_at(folder)
        if environment.is_complete:
            return environment
        tell = progress or (lambda line: None)
        tell(f'making {folder}')
        if recipe.version == sys.version_info[:2]:
            venv.create(folder, with_pip=True, clear=True)
        else:
            command = [str(find_python(recipe.python)), '-m', 'venv', '--clear', str(folder)]
            subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)
        python = folder / 'bin' / 'python'
        _install(python, recipe, tell)
        tell('checking imports')
        problems = [*_import_problems(python, recipe), *check_problems(folder, recipe)]
        if problems:
            raise SetupError(f'the environment {recipe.name!r} was made, and does not work: {"; ".join(problems)}')
        record = {'created_at': dt.datetime.now(dt.UTC).isoformat(timespec='seconds'), 'packages': _packages(python)}
        write_durably(folder / RECORD, json.dumps(record, indent=1))
    return environment_at(folder)


def check_environment(recipe: Recipe) -> list[str]:
    """What is wrong with an environment: it is compared with what it was made of, and its imports are tried."""
    environment = environment_at(environments_folder() / f'{recipe.name}-{recipe.digest}')
    if not environment.is_complete:
        return [f'it is not there; run `robotrials env create {recipe.name}`']
    problems: list[str] = []
    try:
        now = _packages(environment.python)
    except SetupError as error:
        return [str(error)]
    for name, version in environment.packages.items():
        if now.get(name) != version:
            problems.append(f'{name} was {version}, is {now.get(name, "gone")}')
    return [*problems, *_import_problems(environment.python, recipe), *check_problems(environment.folder, recipe)]


def repair_environment(recipe: Recipe, *, progress: Progress | None = None) -> Environment:
    """Make an environment anew."""
    remove_environment(environments_folder() / f'{recipe.name}-{recipe.digest}')
    return create_environment(recipe, progress=progress)


def remove_environment(folder: Path) -> None:
    """Delete an environment; nothing outside the folder of environments is ever touched."""
    root = environments_folder().resolve()
    if folder.resolve().parent != root:
        raise InputError(f'{folder} is not in {root}')
    if not folder.exists():
        return
    with _locked(folder):
        shutil.rmtree(folder)


def _install(python: Path, recipe: Recipe, tell: Progress) -> None:
    with tempfile.TemporaryDirectory() as drafts:
        constraints = Path(drafts) / 'constraints.txt'
        lines = (
            re.sub(r'\[.*\]', '', line) for line in (*recipe.constraints, *recipe.requirements)
        )  # pip wants no extras
        constraints.write_text('\n'.join(lines), encoding='utf-8')
        _pip(python, ['-c', str(constraints), *recipe.requirements], tell)
        if recipe.without_dependencies:
            _pip(python, ['--no-deps', *recipe.without_dependencies], tell)


def _pip(python: Path, arguments: list[str], tell: Progress) -> None:
    """Run pip, telling what it is at; SetupError with the end of what it printed if it fails or takes too long."""
    command = [str(python), '-m', 'pip', 'install', '--no-input', '--disable-pip-version-check', *arguments]
    lines: list[str] = []
    with tempfile.TemporaryFile('w+') as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        deadline_s, seen = time.monotonic() + INSTALL_S, 0
        while running.poll() is None:
            if time.monotonic() > deadline_s:
                running.kill()
                running.wait()
                raise SetupError(f'pip did not end within {INSTALL_S:g} s')
            time.sleep(0.2)
            seen = _tell_new(output.fileno(), seen, tell)
        output.seek(0)
        lines = output.read().splitlines()
    if running.returncode:
        raise SetupError('pip failed:\n' + '\n'.join(lines[-TOLD_LINES:]))


def _tell_new(descriptor: int, seen: int, tell: Progress) -> int:
    """Tell the last new line of a growing file; how far it was read."""
    text = os.pread(descriptor, 1 << 16, seen)
    whole = text[: text.rfind(b'\n') + 1]
    lines = [line.strip() for line in whole.decode(errors='replace').splitlines() if line.strip()]
    if lines:
        tell(lines[-1][:100])
    return seen + len(whole)


def find_python(version: str) -> Path:
    """An interpreter of a version, such as 3.12, on the path or where pyenv and uv keep theirs."""
    pyenv = Path(os.environ.get('PYENV_ROOT', Path.home() / '.pyenv')) / 'versions'
    kept = (*pyenv.glob(f'{version}.*'), *(Path.home() / '.local/share/uv/python').glob(f'cpython-{version}.*'))
    named = shutil.which(f'python{version}')
    for python in (*([Path(named)] if named else []), *(folder / 'bin' / f'python{version}' for folder in kept)):
        ask = 'import sys, venv, ensurepip; print(sys.executable)'
        with contextlib.suppress(subprocess.SubprocessError, OSError):  # a shim of pyenv's may lead nowhere
            ran = subprocess.run([str(python), '-c', ask], check=True, capture_output=True, text=True, timeout=CHECK_S)
            return Path(ran.stdout.strip())
    raise SetupError(
        f'no Python {version} with venv, on the path or of pyenv or uv; install it (`uv python install {version}`, or '
        f'`pyenv install {version}`), and run the command again'
    )


def _import_problems(python: Path, recipe: Recipe) -> Iterator[str]:
    for module in recipe.imports:
        yield from _problem(f'import {module}', [str(python), '-I', '-c', f'import {module}'])


def check_problems(folder: Path, recipe: Recipe) -> Iterator[str]:
    """What the recipe's own checks find, each in a process of its own that sees this robotrials and no network."""
    variables = {**os.environ, 'PYTHONPATH': str(link_robotrials(folder)), 'PYTHONNOUSERSITE': '1', **OFFLINE}
    for check in recipe.checks:
        run = f'from robotrials.catalog import load_attribute; load_attribute({check!r})()'
        yield from _problem(check.partition(':')[2], [str(folder / 'bin' / 'python'), '-c', run], variables)


def _problem(what: str, command: list[str], variables: Mapping[str, str] | None = None) -> Iterator[str]:
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=CHECK_S, stdin=subprocess.DEVNULL,
            env=None if variables is None else dict(variables),
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ['no message'])[-1]
        yield f'{what}: {last[:300]}'
    except (subprocess.TimeoutExpired, OSError) as error:
        yield f'{what}: {type(error).__name__}'


def _packages(python: Path) -> Mapping[str, str]:
    try:
        ran = subprocess.run(
            [str(python), '-I', '-c', _LIST], check=True, capture_output=True, text=True, timeout=CHECK_S
        )
        listed: dict[str, str] = json.loads(ran.stdout)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise SetupError(f'{python} does not run ({type(error).__name__}); make the environment anew') from error
    return listed


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time makes or removes an environment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f'.{folder.name}.lock').open('w') as lock:
        deadline_s = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise SetupError(f'another process has been at {folder} for {LOCK_S:g} s') from None
                time.sleep(0.2)
        yield
