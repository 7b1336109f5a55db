"""Kernels compile where numba's own cache cannot be written: a read-only installation, no home, a hostile folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import robotrials
from robotrials.stats import compiled

TABLE = 'policy,task,success,duration_s\n' + ''.join(
    f'p{p},pick,{(i + p) % 3 != 0:d},{5 + i % 7 + p}\n' for p in range(2) for i in range(20)
)


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """A copy of the package that no compiled code can be written into, by root either: rights do not bind root."""
    package = tmp_path / 'site' / 'robotrials'
    shutil.copytree(Path(robotrials.__file__).parent, package, ignore=shutil.ignore_patterns('__pycache__'))
    for folder in (package, *(p for p in package.rglob('*') if p.is_dir())):
        (folder / '__pycache__').touch()
    return package.parent


def analyse(installation: Path, temporary: Path) -> None:
    """`import` and `compare` as a service runs them: without a home, and with this folder for temporary files."""
    folder = temporary / 'work'
    folder.mkdir()
    (folder / 'r.csv').write_text(TABLE)
    environment = {
        'PATH': os.environ['PATH'], 'PYTHONPATH': str(installation), 'TMPDIR': str(temporary),
        'HOME': '/dev/null/none', 'XDG_CACHE_HOME': '/dev/null/none',
    }  # fmt: skip
    for verb in (['import', 'r.csv', '--to', 'store'], ['compare', 'store', '--resamples', '20']):
        ran = subprocess.run(
            [sys.executable, '-m', 'robotrials.cli', *verb],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_service_without_home_on_a_read_only_installation_keeps_kernels_in_a_private_folder(
    installation: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / 'tmp'
    temporary.mkdir()
    analyse(installation, temporary)
    (kept,) = temporary.glob('robotrials-kernels-*')
    assert kept.stat().st_mode & 0o777 == 0o700
    assert list(kept.rglob('*.nbi'))


def test_a_folder_that_others_can_write_to_is_never_run_from(installation: Path, tmp_path: Path) -> None:
    temporary = tmp_path / 'tmp'
    temporary.mkdir()
    (temporary / f'robotrials-kernels-{os.getuid()}').mkdir()
    (temporary / f'robotrials-kernels-{os.getuid()}').chmod(0o777)
    analyse(installation, temporary)
    assert not list(temporary.rglob('*.nbi'))


@pytest.mark.parametrize('kind', ['file', 'link', 'open'])
def test_what_is_not_a_private_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(compiled.tempfile, 'tempdir', str(tmp_path))
    place = tmp_path / f'robotrials-kernels-{os.getuid()}'
    if kind == 'file':
        place.touch()
    elif kind == 'link':
        (tmp_path / 'elsewhere').mkdir(mode=0o700)
        place.symlink_to(tmp_path / 'elsewhere')
    else:
        place.mkdir()
        place.chmod(0o770)
    assert compiled.private_folder.__wrapped__() is None
