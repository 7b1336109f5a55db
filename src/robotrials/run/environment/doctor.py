"""What stands in the way of running hosts here: graphics, drivers, environments, assets, caches and disk space."""

from __future__ import annotations

import enum
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import InputError, install_hint
from robotrials.run.environment.create import check_environment
from robotrials.run.environment.gl import BACKENDS, MENDING, why_not_drawing
from robotrials.run.environment.recipe import (
    Environment,
    assets_of,
    environments,
    environments_folder,
    read_recipe,
    recipe_names,
)

COMMAND_S = 20.0
GIGABYTE = 1 << 30
FREE_WANTED = 5 * GIGABYTE  # what the largest recipe takes while it is made
FREE_NEEDED = GIGABYTE
SHARED_WANTED = 64 << 20
Progress = Callable[[str], None]


class FindingState(enum.StrEnum):
    OK = 'ok'
    WARNING = 'warning'  # works, or is not needed as things stand
    PROBLEM = 'problem'


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was looked at; `mend` is the command that mends it, empty where nothing is to be done."""

    subject: str
    item: str
    state: FindingState
    found: str
    mend: str = ''


def examine(names: Sequence[str] = (), *, progress: Progress | None = None) -> tuple[DoctorFinding, ...]:
    """Look at everything, or of the environments only at those named."""
    tell = progress or (lambda what: None)
    for name in names:
        if not name.endswith('.toml'):
            read_recipe(name)
    there = [known for known in environments() if not names or known.name in names]
    findings = [*_versions(), *_variables()]
    for environment in there:
        tell(f'environment {environment.name}')
        findings += _environment(environment)
    for name in names:
        if not any(known.name == name for known in there):
            mend = f'robotrials env create {name}'
            findings.append(DoctorFinding('environment', name, FindingState.PROBLEM, 'not made', mend=mend))
    tell('graphics')
    findings += [*_graphics(there), *_drivers(), *_assets(there), *_caches(), *_space()]
    return tuple(findings)


def _versions() -> Iterator[DoctorFinding]:
    yield DoctorFinding('version', 'python', FindingState.OK, f'{sys.version.split()[0]} at {sys.executable}')
    for package, extra in (('robotrials', ''), ('numpy', ''), ('msgpack', 'wire'), ('mujoco', 'sim')):
        try:
            yield DoctorFinding('version', package, FindingState.OK, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            mend = install_hint(extra) if extra else ''
            yield DoctorFinding('version', package, FindingState.WARNING, 'not installed', mend=mend)


def _variables() -> Iterator[DoctorFinding]:
    """Variables that steer drawing; an unknown value fails deep inside a simulator."""
    for name in ('MUJOCO_GL', 'PYOPENGL_PLATFORM'):
        value = os.environ.get(name)
        if value is None:
            continue
        if value.lower().strip() in (*BACKENDS, 'glfw'):
            needs_screen = value == 'glfw' and 'DISPLAY' not in os.environ
            state = FindingState.PROBLEM if needs_screen else FindingState.OK
            text = f'{value}, which needs a screen, and there is none' if needs_screen else value
            yield DoctorFinding('variable', name, state, text, mend=f'unset {name}' if needs_screen else '')
        else:
            wanted = ', '.join(BACKENDS)
            yield DoctorFinding(
                'variable', name, FindingState.PROBLEM, f'{value!r}, wanted one of: {wanted}', mend=f'unset {name}'
            )


def _environment(environment: Environment) -> Iterator[DoctorFinding]:
    name, subject = environment.name, 'environment'
    is_known = name in recipe_names()
    recipe = read_recipe(name) if is_known else None
    if recipe is not None and recipe.digest != environment.digest:
        item, older = f'{name} ({environment.digest})', f'of an older recipe; it takes {_size(environment.folder)}'
        mend = f'robotrials env remove {name} --older'
        yield DoctorFinding(subject, item, FindingState.WARNING, older, mend=mend)
        return
    if not environment.is_complete:
        mend = f'robotrials env create {name}' if is_known else f'rm -r {environment.folder}'
        yield DoctorFinding(subject, name, FindingState.PROBLEM, 'unfinished', mend=mend)
        return
    if recipe is None:
        yield DoctorFinding(subject, name, FindingState.OK, 'of a recipe of your own; `env check FILE` tries it')
        return
    problems = check_environment(recipe)
    if problems:
        mend = f'robotrials env create {name} --anew'
        yield DoctorFinding(subject, name, FindingState.PROBLEM, '; '.join(problems), mend=mend)
    else:
        yield DoctorFinding(subject, name, FindingState.OK, f'sound; it takes {_size(environment.folder)}')


def _graphics(there: Sequence[Environment]) -> Iterator[DoctorFinding]:
    """Every Python with MuJoCo draws a ball with every back-end; one that works is enough."""
    pythons = [(e.name, e.python) for e in there if e.is_complete and 'mujoco' in e.packages]
    if importlib.util.find_spec('mujoco') is not None:
        pythons.insert(0, ('robotrials', Path(sys.executable)))
    for name, python in pythons:
        faults = {backend: why_not_drawing(python, backend) for backend in BACKENDS}
        works = [backend for backend, fault in faults.items() if not fault]
        for backend, fault in faults.items():
            state = FindingState.OK if not fault else FindingState.WARNING if works else FindingState.PROBLEM
            verdict = 'draws' if not fault else f'{fault} ({works[0]} works)' if works else fault
            yield DoctorFinding(
                'graphics', f'{backend} in {name}', state, verdict, mend=MENDING[backend] if fault else ''
            )


def _drivers() -> Iterator[DoctorFinding]:
    devices = sorted(Path('/dev').glob('nvidia[0-9]*'))
    if devices or shutil.which('nvidia-smi'):
        drivers = _output_of(['nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader'])
        if drivers is None:
            fault = f'{len(devices)} device files, and nvidia-smi does not answer: the driver is missing or not loaded'
            yield DoctorFinding('driver', 'nvidia', FindingState.WARNING, fault, mend='apt-get install nvidia-driver')
        else:
            yield DoctorFinding('driver', 'nvidia', FindingState.OK, '; '.join(drivers.splitlines()))
    else:
        yield DoctorFinding('driver', 'nvidia', FindingState.OK, 'no GPU; drawing happens on the CPU')
    for device in sorted(Path('/dev/dri').glob('renderD*')):
        if not os.access(device, os.R_OK | os.W_OK):
            yield DoctorFinding(
                'driver', str(device), FindingState.WARNING, 'you may not use it', mend='usermod -aG render $USER'
            )


def _assets(there: Sequence[Environment]) -> Iterator[DoctorFinding]:
    for environment in there:
        if not environment.is_complete:
            continue
        for asset in assets_of(environment):
            missing = FindingState.WARNING if asset.is_optional else FindingState.PROBLEM
            state = FindingState.OK if asset.is_there else missing
            yield DoctorFinding('assets', asset.name, state, asset.found, mend='' if asset.is_there else asset.mend)


def _caches() -> Iterator[DoctorFinding]:
    folders = {'environments': environments_folder(), 'temporary files': Path(tempfile.gettempdir())}
    for item, folder in folders.items():
        if why_not := _why_not_writable(folder):
            yield DoctorFinding('cache', item, FindingState.PROBLEM, why_not, mend=_other_folder(item))
        else:
            yield DoctorFinding('cache', item, FindingState.OK, str(folder))
    shared = Path('/dev/shm')
    if shared.is_dir():
        free = shutil.disk_usage(shared).free
        state = FindingState.OK if free >= SHARED_WANTED else FindingState.WARNING
        mend = '' if state is FindingState.OK else 'mount -o remount,size=1G /dev/shm'
        yield DoctorFinding('cache', 'shared memory', state, f'{_bytes(free)} free', mend=mend)


def _space() -> Iterator[DoctorFinding]:
    for item, folder in (('environments', environments_folder()), ('temporary files', Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(_existing(folder)).free
        scarce = FindingState.WARNING if free >= FREE_NEEDED else FindingState.PROBLEM
        state = FindingState.OK if free >= FREE_WANTED else scarce
        mend = '' if state is FindingState.OK else _other_folder(item)
        yield DoctorFinding('disk', item, state, f'{_bytes(free)} free at {folder}', mend=mend)


def _other_folder(item: str) -> str:
    variable = 'ROBOTRIALS_ENVIRONMENTS' if item == 'environments' else 'TMPDIR'
    return f'export {variable}=/a/folder/with/room'


def _why_not_writable(folder: Path) -> str:
    try:
        with tempfile.NamedTemporaryFile(dir=_existing(folder)):
            return ''
    except OSError as error:
        return f'{folder}: {error.strerror}'


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    for candidate in (folder, *folder.parents):
        if candidate.is_dir():
            return candidate
    raise InputError(f'{folder}: neither it nor anything above it is a folder')


def _output_of(command: list[str]) -> str | None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def _size(folder: Path) -> str:
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                continue  # it went away while we looked
    return _bytes(total)


def _bytes(count: float) -> str:
    return f'{count / GIGABYTE:.1f} GB' if count >= GIGABYTE else f'{count / (1 << 20):.0f} MB'
