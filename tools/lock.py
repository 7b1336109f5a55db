"""Write the locks: exact versions, each with the hashes of all its files, so that pip installs nothing else.

    python tools/lock.py PIP UV

requirements.lock has what is installed here but robotrials, and what builds it; deploy/requirements.lock the part that
the container needs. Versions come from `pip freeze`; uv looks up the hashes, for every Python and platform.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK, DEPLOYED = ROOT / 'requirements.lock', ROOT / 'deploy' / 'requirements.lock'
BUILDS = ('hatchling==1.27.0', 'editables')  # as [build-system] has it; editables: for `pip install -e`
ONLY_OLD_PYTHONS = {'rtamt', 'antlr4-python3-runtime'}  # rtamt runs on no newer Python than 3.11
EXTRAS = ('platform', 'sim', 'video')  # of the container
HEADER = '# Exact versions and hashes for a reproducible set-up; written by `make lock`.\n'
COMPILE = ('pip', 'compile', '--quiet', '--universal', '--python-version', '3.11.5', '--generate-hashes',
           '--no-annotate', '--no-header')  # fmt: skip


def frozen(pip: str) -> list[str]:
    """`name==version` of everything installed that came from an index."""
    told = subprocess.run(
        [pip, 'freeze', '--exclude-editable', '--exclude', 'robotrials'], capture_output=True, text=True, check=True
    ).stdout
    return sorted((line for line in told.splitlines() if re.fullmatch(r'[\w.\-]+==\S+', line)), key=str.lower)


def with_marker(pin: str) -> str:
    return f'{pin}; python_version < "3.12"' if pin.partition('==')[0].lower() in ONLY_OLD_PYTHONS else pin


def compiled(uv: str, arguments: Sequence[str], source: str = '') -> str:
    ran = subprocess.run(
        [uv, *COMPILE, *arguments], input=source, capture_output=True, text=True, cwd=ROOT, check=False
    )
    if ran.returncode:
        raise SystemExit(f'uv does not find all that is to be locked; is the package index reachable?\n{ran.stderr}')
    return HEADER + ran.stdout


def main() -> None:
    pip, uv = sys.argv[1:]
    pins = [with_marker(pin) for pin in frozen(pip)]
    LOCK.write_text(compiled(uv, ['-'], '\n'.join([*pins, *BUILDS])), encoding='utf-8')
    extras = [word for extra in EXTRAS for word in ('--extra', extra)]
    builds = [f'--constraints={LOCK}', 'pyproject.toml', '-', *extras]
    DEPLOYED.write_text(compiled(uv, builds, '\n'.join(BUILDS)), encoding='utf-8')


if __name__ == '__main__':
    main()
