"""Print the lock: exact versions of everything in the environment but robotrials, each with the hashes of its files.

    python tools/lock.py PIP > requirements.lock

Versions come from `pip freeze`, hashes from pip's own report of what it would install, for every Python that robotrials
supports on this platform. With hashes in it, pip installs nothing from the lock that is not one of these files.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence

PYTHONS = ('3.11', '3.12', '3.13')
ONLY_OLD_PYTHONS = {'rtamt', 'antlr4-python3-runtime'}  # rtamt runs on no newer Python than 3.11
HEADER = '# Exact versions and hashes for a reproducible set-up of robotrials and its tests; written by `make lock`.'


def frozen(pip: str) -> list[str]:
    """`name==version` of everything installed that came from an index."""
    told = subprocess.run(
        [pip, 'freeze', '--exclude-editable', '--exclude', 'robotrials'], capture_output=True, text=True, check=True
    ).stdout
    return sorted((line for line in told.splitlines() if re.fullmatch(r'[\w.\-]+==\S+', line)), key=str.lower)


def report(pip: str, pins: Sequence[str], options: Sequence[str]) -> dict[str, set[str]] | None:
    """Name -> SHA-256 of the file that pip would install; None if it finds no such files."""
    command = [pip, 'install', '--dry-run', '--ignore-installed', '--no-deps', '--quiet', '--report', '-', *options]
    ran = subprocess.run([*command, *pins], capture_output=True, text=True, check=False)
    if ran.returncode:
        return None
    found: dict[str, set[str]] = {}
    for item in json.loads(ran.stdout)['install']:
        digest = item['download_info']['archive_info']['hashes']['sha256']
        found.setdefault(normal(item['metadata']['name']), set()).add(digest)
    return found


def normal(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


def hashes(pip: str, pins: Sequence[str]) -> dict[str, set[str]]:
    """The hashes of every pin: for this Python, sources allowed, and for the others where there is a wheel."""
    own = report(pip, pins, [])
    if own is None:
        raise SystemExit('pip does not find all that is installed here; is the package index reachable?')
    for python in PYTHONS:
        options = ['--python-version', python, '--only-binary', ':all:', '--target', '/nonexistent']
        found = report(pip, pins, options)
        batches = [found] if found is not None else [report(pip, [pin], options) for pin in pins]
        for batch in batches:
            for name, digests in (batch or {}).items():
                own.setdefault(name, set()).update(digests)
    return own


def main() -> None:
    pip, *chosen = sys.argv[1:]
    pins = chosen or frozen(pip)
    known = hashes(pip, pins)
    print(HEADER)
    for pin in pins:
        name = normal(pin.partition('==')[0])
        marker = '; python_version < "3.12"' if name in ONLY_OLD_PYTHONS else ''
        print(' \\\n    '.join([f'{pin}{marker}', *(f'--hash=sha256:{digest}' for digest in sorted(known[name]))]))


if __name__ == '__main__':
    main()
