"""`make demo` from a fresh clone with a warm package cache: environment, kernels, trial and report. Wall, once."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from bench.measure import Result, against, seconds

ROOT = Path(__file__).resolve().parent.parent
MOST_S = 240.0


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / 'robotrials'
        subprocess.run(['git', 'clone', '-q', str(ROOT), str(clone)], check=True)
        environment = {k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'VIRTUAL_ENV')}
        took = seconds(
            lambda: subprocess.run(['make', 'demo'], cwd=clone, env=environment, capture_output=True, check=True),
            repeats=1,
        )
    work = '`make demo` from a clone: its own environment from the package cache, then the trial; wall'
    peer = 'a limit of 4 min on two quiet cores'
    return [against('demo/wall', ours_s=took, peer=peer, peer_s=MOST_S, target=1.0, work=work)]
