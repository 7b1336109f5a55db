"""Whoever waits longer than two seconds is told for what, also where stderr is a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SLOW = """
import sys, time
from robotrials.cli import output
from robotrials.formats import intake
opened = intake.open_for_asking
output.FIRST_S, output.EVERY_S = 0.4, 0.5
def slow(*given, **named):
    time.sleep(1.6)
    return opened(*given, **named)
intake.open_for_asking = slow
from robotrials.cli import main
sys.argv = ['robotrials', *sys.argv[1:]]
main()
"""


def asked(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, '-c', SLOW, *words], cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, 'COLUMNS': '80', 'ROBOTRIALS_PROGRESS': '1', **environment},
    )  # fmt: skip


def rollouts(folder: Path) -> None:
    rows = [f'{p},t,{k},{int(k % 5 > d)}' for p, d in (('a', 0), ('b', 2)) for k in range(20)]
    (folder / 'r.csv').write_text('\n'.join(['policy,task,seed,success', *rows]) + '\n')


def test_a_long_reading_says_so_on_stderr_and_leaves_the_answer_alone(tmp_path: Path) -> None:
    rollouts(tmp_path)
    done = asked(tmp_path, 'compare', 'r.csv')
    lines = re.findall(r'^robotrials compare: reading r\.csv \(\d+ s\)$', done.stderr, flags=re.MULTILINE)
    assert (done.returncode, len(lines) >= 2) == (0, True), done.stderr
    assert 'robotrials compare:' not in done.stdout
    quiet = asked(tmp_path, 'compare', 'r.csv', ROBOTRIALS_PROGRESS='0')
    assert (quiet.stdout, 'robotrials compare:' in quiet.stderr) == (done.stdout, False)


def test_wrong_names_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    rollouts(tmp_path)
    for words in (['compare', 'r.csv', '--where', 'polcy=a'], ['compare', 'r.csv', '--set', 'alpa=0.1'],
                  ['compare', 'r.csv', '--set', 'primary=speed'], ['score', 'r.csv', '-f', 'jsn']):  # fmt: skip
        done = asked(tmp_path, *words)
        assert done.returncode == 2, words
        assert 'reading' not in done.stderr, words
