"""How soon the command line answers, against merely importing what it is written with."""

from __future__ import annotations

import subprocess
import sys

from bench.measure import Result, seconds


def run() -> list[Result]:
    def ours() -> None:
        subprocess.run([sys.executable, '-m', 'robotrials.cli', '--help'], capture_output=True, check=True)

    def peer() -> None:
        subprocess.run([sys.executable, '-c', 'import typer'], capture_output=True, check=True)

    ours(), peer()
    ours_s, peer_s = seconds(ours, repeats=9), seconds(peer, repeats=9)
    work = 'robotrials --help against python -c "import typer", new processes; a ratio of 1/1.5 is the target'
    return [Result('start/help', ours_s, 'import typer', peer_s, peer_s / ours_s, 1 / 1.5, work)]
