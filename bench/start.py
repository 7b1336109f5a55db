"""How soon the command line answers, against merely importing what it is written with."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Result, against
from bench.verbs import cpu_s, verb

LOADED = """
import contextlib, io, sys
from robotrials.cli import run_command
sys.argv = ['robotrials', '--help']
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    run_command()
print('numpy' in sys.modules)
"""


def run() -> list[Result]:
    ran = subprocess.run([sys.executable, '-c', LOADED], capture_output=True, text=True, check=True)
    if ran.stdout.strip() != 'False':
        raise SystemExit('`robotrials --help` imports numpy')
    with tempfile.TemporaryDirectory() as name:
        ours_s, peer_s = (
            cpu_s(command, folder=Path(name), repeats=9) for command in (verb('--help'), ['-c', 'import typer'])
        )
    work = '`robotrials --help` in a new process, which imports no numpy; processor time'
    return [
        against('start/help', ours_s=ours_s, peer='python importing typer', peer_s=peer_s, target=1 / 1.5, work=work)
    ]
