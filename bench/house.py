"""What somebody who installs robotrials, or works on it, waits for: disk space, and `make quick`.

The demo from a fresh clone takes minutes and is a row of its own area: `python -m bench demo`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from bench.measure import Result, against, attempts, seconds

ROOT = Path(__file__).resolve().parent.parent
PEERS = ('numpy', 'pyarrow', 'scipy', 'matplotlib')
MOST_MB = 420
QUICK_S = 60.0


def distributions(*names: str) -> set[str]:
    """The distributions and all that they need without extras, as installed here."""
    waiting, known = [*names], set()
    while waiting:
        name = re.sub(r'[-_.]+', '-', waiting.pop()).lower()
        if name in known:
            continue
        known.add(name)
        for line in metadata.distribution(name).requires or []:
            wanted, _, marker = line.partition(';')
            if 'extra' not in marker and _applies(marker):
                waiting.append(re.split(r'[^\w.-]', wanted.strip())[0])
    return known


def _applies(marker: str) -> bool:
    from packaging.markers import Marker

    return not marker.strip() or Marker(marker).evaluate()


def installed_bytes(names: set[str]) -> int:
    """The files of distributions on disk without bytecode; of ours what a wheel has."""
    total = 0
    for name in names:
        files = metadata.distribution(name).files or []
        paths = [Path(str(f.locate())) for f in files]
        if name == 'robotrials':
            paths += (ROOT / 'src').rglob('*')
        total += sum(p.stat().st_size for p in set(paths) if p.is_file() and p.suffix != '.pyc')
    return total


def run() -> Iterator[Result]:
    yield from attempts((_install, _quick))


def _install() -> list[Result]:
    ours, peer = installed_bytes(distributions('robotrials')), installed_bytes(distributions(*PEERS))
    work = 'the base installation on disk with all that it needs, without bytecode'
    limit = f'a limit of {MOST_MB} MB'
    return [
        against('house/install', ours_s=ours, peer=' + '.join(PEERS), peer_s=peer, target=1 / 1.2, work=work, unit='B'),
        against('house/install, limit', ours_s=ours, peer=limit, peer_s=MOST_MB * 1e6, target=1.0, work=work, unit='B'),
    ]


def _quick() -> list[Result]:
    """Without the installation that `make` would bring up to date first."""
    command = ['make', '-o', '.venv/.built', 'quick', f'BIN={Path(sys.executable).parent}']
    took_s = seconds(lambda: subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True), repeats=1)
    work = '`make quick`: lint, types and the quickest tests of every room; wall, once'
    peer = f'a limit of {QUICK_S:.0f} s on two quiet cores'
    return [against('house/quick', ours_s=took_s, peer=peer, peer_s=QUICK_S, target=1.0, work=work)]
