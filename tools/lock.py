"""Write the locks, try them, and ask whether anything in them is known to be vulnerable.

    python tools/lock.py write PIP UV
    python tools/lock.py try python3.12 python3.13
    python tools/lock.py audit

A lock has exact versions, each with the hashes of all its files, so that pip installs nothing else. requirements.lock
has what is installed here but robotrials, and what builds it; deploy/requirements.lock the part that the container
needs. Versions come from `pip freeze`; uv looks up the hashes, for every Python and platform.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    listed = subprocess.run(
        [pip, 'freeze', '--exclude-editable', '--exclude', 'robotrials'], capture_output=True, text=True, check=True
    ).stdout
    return sorted((line for line in listed.splitlines() if re.fullmatch(r'[\w.\-]+==\S+', line)), key=str.lower)


def with_marker(pin: str) -> str:
    return f'{pin}; python_version < "3.12"' if pin.partition('==')[0].lower() in ONLY_OLD_PYTHONS else pin


def compiled(uv: str, arguments: Sequence[str], source: str = '') -> str:
    ran = subprocess.run(
        [uv, *COMPILE, *arguments], input=source, capture_output=True, text=True, cwd=ROOT, check=False
    )
    if ran.returncode:
        raise SystemExit(f'uv does not find all that is to be locked; is the package index reachable?\n{ran.stderr}')
    return HEADER + ran.stdout


def write(pip: str, uv: str) -> None:
    pins = [with_marker(pin) for pin in frozen(pip)]
    LOCK.write_text(compiled(uv, ['-'], '\n'.join([*pins, *BUILDS])), encoding='utf-8')
    extras = [word for extra in EXTRAS for word in ('--extra', extra)]
    builds = [f'--constraints={LOCK}', 'pyproject.toml', '-', *extras]
    DEPLOYED.write_text(compiled(uv, builds, '\n'.join(BUILDS)), encoding='utf-8')


def try_locks(pythons: Sequence[str]) -> None:
    """Install each lock as `make` and the container do, in an empty environment of each Python, and run robotrials."""
    from wheel_test import interpreter, run

    for name in pythons:
        for lock in (LOCK, DEPLOYED):
            with tempfile.TemporaryDirectory(prefix='robotrials-lock-') as folder:
                run(interpreter(name), '-m', 'venv', folder)
                bin_ = Path(folder) / 'bin'
                run(bin_ / 'pip', 'install', '-qq', '--require-hashes', '-r', lock)
                run(bin_ / 'pip', 'install', '-qq', '--no-deps', '--no-build-isolation', ROOT)
                run(bin_ / 'pip', 'check')
                version = run(bin_ / 'robotrials', '--version', cwd=Path(folder)).strip()
            print(f'{lock.relative_to(ROOT)} on {name}: every hash fits, {version} runs', flush=True)


def audit() -> int:
    """Ask for known vulnerabilities of everything that is locked; 0 only if there was an answer for all of it."""
    from wheel_test import run

    with tempfile.TemporaryDirectory(prefix='robotrials-audit-') as folder:
        run(sys.executable, '-m', 'venv', folder)
        bin_ = Path(folder) / 'bin'
        run(bin_ / 'pip', 'install', '-qq', 'pip-audit')
        command = [bin_ / 'pip-audit', '--require-hashes', '--disable-pip', '--format', 'json', '-r', LOCK]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        verdict, code = judged(json.loads(asked.stdout))
    except ValueError:
        verdict, code = f'Nothing was audited: {(asked.stderr.strip().splitlines() or ["no answer"])[-1]}', 2
    print(verdict)
    return code


def judged(answer: Mapping[str, Any]) -> tuple[str, int]:
    """What an answer of pip-audit comes to: it calls a lock clean of which it knows nothing at all."""
    packages = answer['dependencies']
    skipped = [p['name'] for p in packages if 'skip_reason' in p]
    known = [(p['name'], p['version'], v['id']) for p in packages for v in p.get('vulns', ())]
    lines = [f'{name} {version}: {identity}' for name, version, identity in known]
    if skipped:
        lines.append(
            f'{len(skipped)} of {len(packages)} packages were not audited, because the index that is reachable has no '
            'vulnerability data; run `make audit-lock` where PyPI itself can be reached'
        )
    if known:
        return '\n'.join(lines), 1
    if skipped:
        return '\n'.join(lines), 2
    return f'{len(packages)} packages audited, no known vulnerability', 0


def main() -> int:
    verb, *words = sys.argv[1:]
    if verb == 'audit':
        return audit()
    if verb == 'try':
        try_locks(words)
    else:
        write(*words)
    return 0


if __name__ == '__main__':
    sys.exit(main())
