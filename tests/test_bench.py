"""A benchmark's row is kept only for the code and the machine it was measured on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bench import __main__ as bench


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ('src/a.py', 'bench/start.py', 'bench/timing.py'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('x = 1\n')
    for command in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'first']):
        git(tmp_path, *command)
    monkeypatch.setattr(bench, 'FOLDER', tmp_path / 'bench')
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    who = ['-c', 'user.name=a', '-c', 'user.email=a@b']
    return subprocess.run(
        ['git', '-C', str(folder), *who, *arguments], capture_output=True, text=True, check=True
    ).stdout


def test_a_row_is_kept_until_the_code_it_measures_changes(repository: Path) -> None:
    row = {'name': 'start/help', 'commit': git(repository, 'rev-parse', 'HEAD').strip(), 'machine': bench.machine()}
    assert bench.is_current(row)
    (repository / 'bench' / 'timing.py').write_text('x = 2\n')
    assert bench.is_current(row), 'another area'
    (repository / 'src' / 'a.py').write_text('x = 2\n')
    assert not bench.is_current(row)


@pytest.mark.parametrize('change', [{'commit': ''}, {'commit': '0' * 40}, {'machine': 'another'}])
def test_a_row_of_another_commit_or_machine_is_not_kept(repository: Path, change: dict[str, str]) -> None:
    row = {'name': 'start/help', 'commit': git(repository, 'rev-parse', 'HEAD').strip(), 'machine': bench.machine()}
    assert not bench.is_current({**row, **change})
