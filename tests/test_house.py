"""The house stands as the design draws it: who imports whom, what is light, what is public."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.tool import tool

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ('torch', 'mujoco', 'numba', 'matplotlib', 'ray', 'scipy', 'pandas')


def imported_by(code: str) -> set[str]:
    """Top-level modules loaded after running `code` in a fresh interpreter."""
    probe = f'import sys\n{code}\nprint(",".join(sorted({{m.split(".")[0] for m in sys.modules}})))'
    ran = subprocess.run([sys.executable, '-c', probe], capture_output=True, text=True, check=True)
    return set(ran.stdout.strip().splitlines()[-1].split(','))


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
