"""The house stands as the design draws it: who imports whom, what is light, what is public."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import robotrials
from tests.tool import tool

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ('torch', 'mujoco', 'matplotlib', 'ray', 'scipy', 'pandas')


def imported_by(code: str) -> set[str]:
    """Top-level modules loaded after running `code` in a fresh interpreter."""
    probe = f'import sys\n{code}\nprint(",".join(sorted({{m.split(".")[0] for m in sys.modules}})))'
    ran = subprocess.run([sys.executable, '-c', probe], capture_output=True, text=True, check=True)
    return set(ran.stdout.strip().splitlines()[-1].split(','))


def test_the_house_has_not_grown_without_a_reason() -> None:
    """docs/reference/house.json keeps lines, modules, classes and options of every room, and why they are so many."""
    house = tool('house')
    kept = json.loads(house.KEPT.read_text(encoding='utf-8'))
    assert kept['why']
    grown = house.grown(house.figures(house.read_house()), kept['rooms'])
    assert grown == [], "merge or delete something, or run: python tools/house.py --keep 'why it is needed'"


def test_a_room_that_grows_is_named() -> None:
    house = tool('house')
    kept = {'show': {'lines': 14_000, 'modules': 40, 'classes': 50, 'options': 0}}
    assert house.grown(kept, kept) == []
    more = {'show': {'lines': 14_561, 'modules': 44, 'classes': 50, 'options': 0}}
    assert house.grown(more, kept) == ['show: 14561 lines, kept 14000', 'show: 44 modules, kept 40']


def test_import_contracts_are_those_of_the_architecture_table() -> None:
    written = (ROOT / '.importlinter').read_text(encoding='utf-8')
    assert written == tool('import_contracts').contracts(), 'run: python tools/import_contracts.py > .importlinter'


def test_import_robotrials_is_light() -> None:
    assert not imported_by('import robotrials') & {*HEAVY, 'numpy', 'pyarrow'}


@pytest.mark.parametrize('arguments', [['--help'], ['--version']])
def test_help_imports_nothing_heavy_and_not_numpy(arguments: list[str]) -> None:
    code = (
        f'import sys\nsys.argv = ["robotrials", *{arguments!r}]\nfrom robotrials.cli import main\n'
        'try:\n    main()\nexcept SystemExit:\n    pass'
    )
    assert not imported_by(code) & {*HEAVY, 'numpy', 'pyarrow'}


def test_compare_imports_only_rooms_that_it_asks(tmp_path: Path) -> None:
    """Not those about other inputs than a store of episodes, nor what draws figures."""
    rows = ''.join(f'p{p},pick,{(i + p) % 3 != 0:d},{5 + i % 7 + p}\n' for p in range(2) for i in range(20))
    (tmp_path / 'r.csv').write_text(f'policy,task,success,duration_s\n{rows}')
    store = str(tmp_path / 'store')
    robotrials('import', tmp_path / 'r.csv', '--to', store)
    code = (
        f'import sys\nsys.argv = ["robotrials", "compare", {store!r}]\nfrom robotrials.cli import main\n'
        'try:\n    main()\nexcept SystemExit:\n    pass\n'
        'ours = [name for name in sys.modules if name.startswith("robotrials.")]\n'
        'sys.modules |= {"room-" + part: None for name in ours for part in name.split(".")[1:3]}'
    )
    assert not imported_by(code) & {'matplotlib', 'room-audit', 'room-actions', 'room-wire', 'room-formats'}


def test_make_quick_has_tests_of_every_room() -> None:
    made = (ROOT / 'Makefile').read_text(encoding='utf-8').replace('\\\n', ' ')
    (line,) = (text for text in made.splitlines() if text.startswith('QUICK := '))
    files = [Path(word) for word in line.removeprefix('QUICK := ').split()]
    assert [str(f) for f in files if not (ROOT / f).exists()] == []
    rooms = {p.parent.name for p in (ROOT / 'src' / 'robotrials').glob('*/__init__.py')} - {'testing'}  # serves tests
    assert rooms - {f.parts[1] for f in files} == set()


# Modules of ours: one that a comparison of a table does not run is imported by who runs it.
MOST_OF_OURS = {'r.csv': 84, 'store': 69}
NEVER = (
    'pandas', 'matplotlib', 'rich', 'jinja2', 'cryptography', 'importlib.metadata', 'numpy.random',
    'openpyxl', 'fastapi', 'pydantic', 'asyncio', 'yaml',
    'multiprocessing', 'numpy.testing', 'scipy.special', 'scipy.stats', 'scipy.optimize', 'pyarrow.dataset',
    'robotrials.measure.safety.score', 'robotrials.measure.geometry', 'robotrials.measure.annotate',
    'robotrials.verdict.robustness.dose', 'robotrials.show.plot', 'robotrials.run', 'robotrials.stats.bootstrap',
    'robotrials.measure.timing.curve_test', 'robotrials.measure.timing.scalar', 'robotrials.stats.interaction',
    'numpy.ma',  # which pyarrow imports to make an array of numpy's, and `numpy.unique` for itself
)  # fmt: skip


@pytest.mark.parametrize('source', ['r.csv', 'store'])
def test_compare_imports_what_it_runs(tmp_path: Path, source: str) -> None:
    rows = ''.join(f'p{p},pick,{(i + p) % 3 != 0:d},{5 + i % 7 + p}\n' for p in range(2) for i in range(20))
    (tmp_path / 'r.csv').write_text(f'policy,task,success,duration_s\n{rows}')
    robotrials('import', tmp_path / 'r.csv', '--to', tmp_path / 'store')
    code = (
        f'import sys\nsys.argv = ["robotrials", "compare", {str(tmp_path / source)!r}]\n'
        'from robotrials.cli import run_command\ntry:\n    run_command()\nexcept SystemExit:\n    pass\n'
        'print(*sys.modules, sep=",")'
    )
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    *card, last = ran.stdout.strip().splitlines()
    modules = set(last.split(','))
    assert card[0].startswith('p1 vs p0    40 episodes')
    assert 'robotrials.cli.compare' in modules
    assert modules & set(NEVER) == set()
    assert sum(name.startswith('robotrials') for name in modules) <= MOST_OF_OURS[source]


def test_pandas_that_a_verb_was_spared_can_be_used_afterwards(tmp_path: Path) -> None:
    (tmp_path / 'r.csv').write_text('policy,task,success\na,pick,1\nb,pick,0\n')
    code = (
        f'import sys\nsys.argv = ["robotrials", "score", {str(tmp_path / "r.csv")!r}]\n'
        'from robotrials.cli import run_command\ntry:\n    run_command()\nexcept SystemExit:\n    pass\n'
        'assert "pandas" not in sys.modules\n'
        'import pandas, pyarrow\nframe = pandas.DataFrame({"x": [1.0, None]})\n'
        'table = pyarrow.Table.from_pandas(frame)\nprint(table["x"].null_count, table.to_pandas().equals(frame))'
    )
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert ran.stdout.split()[-2:] == ['1', 'True']


def test_functions_of_pyarrow_that_a_verb_was_spared_are_found_when_asked_for() -> None:
    """A process of ours wraps them one by one: each is there, and does the same with the same options."""
    begin = (
        'import sys\nsys.argv = ["robotrials", "--version"]\nfrom robotrials.cli import run_command\n'
        'try:\n    run_command()\nexcept SystemExit:\n    pass\n'
        'import pyarrow.compute as pc\nassert "or_kleene" not in vars(pc) and not hasattr(pc, "no_such_function")\n'
    )
    call = (
        'import inspect, pyarrow as pa, pyarrow.compute as pc\nfrom pyarrow.compute import and_, equal\n'
        'values = pa.array([2, None, 1])\n'
        'print("CALLED", pa.array([True]).filter(and_(pa.array([True]), equal(pa.array([1]), 1))),\n'
        '      pc.is_in(values, pa.array([1])), pc.is_in(values, options=pc.SetLookupOptions(pa.array([2]))),\n'
        '      pc.sort_indices(values, null_placement="at_start"), pc.utf8_zero_fill("7", width=3),\n'
        '      pc.strptime("2026", format="%Y", unit="s"), pc.if_else(True, 1, 2), pc.sum(values, min_count=5))\n'
        'for name in sorted({*pc.function_registry().list_functions(), *vars(pc), "and_", "or_"}):\n'
        '    if inspect.isfunction(getattr(pc, name, None)) and not name.startswith("_"):\n'
        '        print(name)\n'
    )
    ran = [
        subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
        for code in (begin + call, call)
    ]
    lean, full = (each.stdout.split('CALLED', 1)[1] for each in ran)
    assert lean == full
    assert full.count('\n') > 280


def test_an_entry_point_of_another_package_is_found(tmp_path: Path) -> None:
    """Packages are looked through for a header of ours before any is parsed."""
    (tmp_path / 'pebble-1.0.dist-info').mkdir()
    (tmp_path / 'pebble-1.0.dist-info' / 'METADATA').write_text('Metadata-Version: 2.1\nName: pebble\nVersion: 1.0\n')
    points = tmp_path / 'pebble-1.0.dist-info' / 'entry_points.txt'
    code = 'import sys; from robotrials.formats.catalog import FORMATS; print(*FORMATS.installed(), *sys.modules)'
    for header, is_there in (('[robotrials.formats]', True), (' [trialist.formats]', True), ('[other]', False)):
        points.write_text(f'[console_scripts]\npebble = pebble:main\n\n{header}\npebble = pebble:Format\n')
        ran = subprocess.run(
            [sys.executable, '-c', code], capture_output=True, text=True, check=True,
            env={**os.environ, 'PYTHONPATH': str(tmp_path)},
        )  # fmt: skip
        assert ('pebble' in ran.stdout.split()) is is_there
        assert ('importlib.metadata' in ran.stdout.split()) is is_there


@pytest.mark.parametrize(('way', 'most'), [('CSV to report', 62), ('plan to compare', 61)])
def test_the_way_of_the_data_grows_no_longer(way: str, most: int) -> None:
    """Modules in which a function runs; 60 are wanted of each, so lower the number with every module that goes."""
    modules = tool('house').traced(way)
    assert {'robotrials.verdict.analysis.contrast', 'robotrials.record.store'} <= set(modules)
    assert len(modules) <= most


def test_the_way_of_the_data_is_printed_by_rooms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    house = tool('house')
    passed = ['robotrials.record.store', 'robotrials.record.log', 'robotrials.value']
    monkeypatch.setattr(house, 'traced', lambda way: passed)
    house.print_traces()
    first, record, top, *_ = capsys.readouterr().out.splitlines()
    assert first == 'CSV to report: 3 modules'
    assert record.split() == ['record', '2', 'store,', 'log']
    assert top.split() == ['top', '1', 'robotrials.value']
    makefile = (ROOT / 'Makefile').read_text(encoding='utf-8')
    assert 'tools/house.py --trace' in makefile.partition('\nhouse:')[2].partition('\n\n')[0]


MOST_SHARED_NAMES = 5  # of classes in several modules; lower it with every one that is renamed


def test_classes_get_names_of_their_own() -> None:
    shared = tool('house').shared_names()
    assert len(shared) <= MOST_SHARED_NAMES, f'one name, one meaning: {shared}'


def test_a_lock_of_whose_vulnerabilities_nothing_is_known_is_not_called_clean() -> None:
    judged = tool('lock').judged
    clean, unknown = {'name': 'a', 'version': '1', 'vulns': []}, {'name': 'b', 'skip_reason': 'not found'}
    known = {'name': 'c', 'version': '2', 'vulns': [{'id': 'CVE-1'}]}
    assert judged({'dependencies': [clean]}) == ('1 packages audited, no known vulnerability', 0)
    told, code = judged({'dependencies': [clean, unknown]})
    assert (code, told.partition(',')[0]) == (2, '1 of 2 packages were not audited')
    told, code = judged({'dependencies': [clean, unknown, known]})
    assert (code, told.splitlines()[0]) == (1, 'c 2: CVE-1')


@pytest.mark.parametrize('name', ['requirements.lock', 'deploy/requirements.lock'])
def test_every_locked_package_has_one_version_and_hashes(name: str) -> None:
    text = (ROOT / name).read_text().replace('\\\n', ' ')
    lines = [line.split() for line in text.splitlines() if line and not line.startswith('#')]
    assert len(lines) > 30
    for words in lines:
        assert re.fullmatch(r'[\w.\-]+(\[[\w,\-]+\])?==[\w.+!\-]+', words[0]), words[0]
        assert any(re.fullmatch('--hash=sha256:[0-9a-f]{64}', word) for word in words), words[0]
