"""A benchmark's row is kept only for the code and the machine it was measured on."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import __main__ as bench
from bench.measure import Result, Seconds, against, attempts
from bench.table import amount


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ('src/a.py', 'bench/start.py', 'bench/timing.py'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('x = 1\n')
    (tmp_path / '.gitignore').write_text('__pycache__/\n')
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


def test_a_row_is_dropped_when_what_its_area_shares_changes(repository: Path) -> None:
    (repository / 'bench' / 'start.py').write_text('def run() -> None:\n    from bench.timing import x\n')
    git(repository, 'commit', '-qam', 'second')
    row = {'name': 'start/help', 'commit': git(repository, 'rev-parse', 'HEAD').strip(), 'machine': bench.machine()}
    assert bench.is_current(row)
    (repository / 'bench' / 'timing.py').write_text('x = 2\n')
    assert not bench.is_current(row)


@pytest.mark.parametrize('change', [{'commit': ''}, {'commit': '0' * 40}, {'machine': 'another'}])
def test_a_row_of_another_commit_or_machine_is_not_kept(repository: Path, change: dict[str, str]) -> None:
    row = {'name': 'start/help', 'commit': git(repository, 'rev-parse', 'HEAD').strip(), 'machine': bench.machine()}
    assert not bench.is_current({**row, **change})


AREAS = {
    'bad': 'raise RuntimeError("no such peer")',
    'good': 'print("not measured: good/whole; no peer"); '
    'return [against("good/half", ours_s=2.0, peer="a peer", peer_s=1.0, target=0.4, work="w")]',
    'hangs': 'import time; yield against("hangs/first", ours_s=1, peer="one (our own)", peer_s=1, target=2, work="w")'
    '; time.sleep(60)',
}


@pytest.fixture
def areas(repository: Path) -> Path:
    """The runner with areas of our own beside it, in a commit."""
    source = Path(bench.__file__).parent
    for name in ('__init__.py', '__main__.py', 'measure.py', 'table.py'):
        shutil.copy(source / name, repository / 'bench' / name)
    for name in ('start', 'timing'):
        (repository / 'bench' / f'{name}.py').unlink()
    for name, body in AREAS.items():
        text = f'from bench.measure import against\n\ndef run() -> object:\n    {body}\n'
        (repository / 'bench' / f'{name}.py').write_text(text)
    git(repository, 'add', '.')
    git(repository, 'commit', '-qm', 'areas')
    return repository


def run_bench(folder: Path, *asked: str) -> tuple[int, str, dict[str, dict[str, Any]]]:
    environment = {**os.environ, 'ROBOTRIALS_BENCH_AREA_S': '3', 'PYTHONPATH': ''}
    command = [sys.executable, '-m', 'bench', *asked]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    results = folder / 'bench' / 'results.json'
    rows = json.loads(results.read_text()) if results.exists() else []
    return ran.returncode, ran.stdout + ran.stderr, {row['name']: row for row in rows}


def test_an_area_that_fails_or_hangs_is_named_and_the_others_run(areas: Path) -> None:
    code, said, rows = run_bench(areas)
    assert code == 1
    assert 'bad (1 of 3)' in said
    assert 'FAILED bad: exit 1' in said
    assert 'not measured: good/whole; no peer' in said
    assert 'no such peer' in said
    assert 'FAILED hangs: stopped after 3 s' in said
    assert sorted(rows) == ['good/half', 'hangs/first'], 'what was measured before is kept'
    assert rows['good/half']['commit'] == git(areas, 'rev-parse', 'HEAD').strip()
    assert (rows['good/half']['is_own_peer'], rows['hangs/first']['is_own_peer']) == (False, True)
    assert '1 below target:\n  hangs/first: 1.0x of one (our own), target 2.0x\n' in said
    assert said.count('not measured: good/whole; no peer') == 2, 'beside its area and at the end'
    assert rows['good/half']['other_cores'] >= 0


def test_an_area_alone_keeps_the_rows_of_others(areas: Path) -> None:
    run_bench(areas, 'good')
    code, _, rows = run_bench(areas, 'bad')
    assert (code, list(rows)) == (1, ['good/half'])
    assert 'known: bad, good, hangs' in run_bench(areas, 'nothing')[1]
    table = run_bench(areas, '--table')[1]
    assert '## good\n\n| row  | ours | beside | its | ratio | target |    |' in table
    assert '| half | 2 s  | a peer | 1 s | 0.500 | 0.400  | ok |' in table
    assert '- `half`: w' in table


@pytest.mark.parametrize('name', ['src/a.py', 'src/new.py', 'bench/good.py'])
def test_what_is_in_no_commit_is_not_measured(areas: Path, name: str) -> None:
    path = areas / name
    path.write_text(f'{path.read_text() if path.exists() else ""}x = 3\n')
    code, said, rows = run_bench(areas, 'good')
    assert (code, rows) == (1, {})
    assert 'in no commit' in said


def test_code_that_changes_while_it_is_measured_ends_the_run(areas: Path) -> None:
    (areas / 'bench' / 'edits.py').write_text(
        'from pathlib import Path\nfrom bench.measure import against\n\ndef run() -> object:\n'
        '    Path("src/a.py").write_text("x = 4")\n'
        '    return [against("edits/first", ours_s=1, peer="a peer", peer_s=1, target=1, work="w")]\n'
    )
    git(areas, 'add', '.')
    git(areas, 'commit', '-qm', 'edits')
    code, said, rows = run_bench(areas, 'edits', 'good')
    assert (code, rows) == (1, {})
    assert 'FAILED edits: the code changed while it ran' in said


def test_a_time_is_the_median_with_its_spread() -> None:
    taken = Seconds.of([3.0, 1.0, 2.0])
    row = against('a/b', ours_s=taken, peer='p', peer_s=4.0, target=1, work='w').as_json()
    assert (row['ours_s'], row['ours_spread_s'], row['peer_spread_s'], row['ratio']) == (2.0, 2.0, None, 2.0)
    assert Seconds.of([1.0]).spread is None


def test_a_step_that_fails_costs_only_its_own_rows() -> None:
    def fails() -> list[Result]:
        raise RuntimeError('no server')

    row = against('a/b', ours_s=1.0, peer='p', peer_s=4.0, target=1, work='w')
    rows = attempts([fails, lambda: [row]])
    assert next(rows) is row
    with pytest.raises(SystemExit, match='1 of its steps failed: RuntimeError: no server'):
        next(rows)


def test_what_areas_import_of_ours_is_there() -> None:
    """Also what they import in the text of another process; an area is seldom run, so nobody else would notice."""
    for path in sorted(Path(bench.__file__).parent.rglob('*.py')):
        text = path.read_text(encoding='utf-8')
        for module in re.findall(r'^ *from (robotrials[.\w]*) import ', text, re.MULTILINE):
            importlib.import_module(module)
        for module, names in re.findall(r'^ *from (robotrials[.\w]*) import ([\w ,]+?)(?: *#.*)?$', text, re.MULTILINE):
            for name in re.split(r' *, *', names):
                real = name.split(' as ')[0].strip()
                found = importlib.import_module(module)
                assert hasattr(found, real) or importlib.util.find_spec(f'{module}.{real}'), (path, module, real)


def test_amounts_are_written_in_units_that_suit_them() -> None:
    cases = ((0.01234, 's', None), (252.4, 's', 3.0), (4.2e8, 'B', None), (3.1e-15, '', None), (0.0, 's', None))
    assert [amount(*case) for case in cases] == ['12.3 ms', '252 s (3 s)', '420 MB', '3.1e-15', '0 us']
