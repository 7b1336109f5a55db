"""Files of labs at the front door: `compare FILE` answers with the right counts, or prints commands that do."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.cli.command import robotrials
from tests.formats.lab_files import LAB_FILES, LabFile

from robotrials.formats.intake import open_for_asking
from robotrials.record import Episode, Store


def counts(episodes: Iterable[Episode]) -> dict[str, tuple[int, int]]:
    held = list(episodes)
    valid = Counter(e.policy for e in held if e.is_valid)
    wins = Counter(e.policy for e in held if e.is_success)
    return {policy: (wins[policy], valid[policy]) for policy in valid}


def commands(printed: str, remedy: str = '') -> list[list[str]]:
    """The commands of the line that says what to try (with this remedy), as a shell would take them apart."""
    (line,) = [line for line in printed.splitlines() if line.startswith('Try: ') and remedy in line]
    return [shlex.split(command)[1:] for command in line.removeprefix('Try: ').split(' && ')]


@pytest.mark.parametrize('lab', LAB_FILES, ids=lambda lab: lab.name)
def test_it_is_answered_or_told_how_to_be(lab: LabFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = lab.write(Path())
    if lab.remedy is None:
        assert ' vs ' in (printed := robotrials('compare', source)) or f'{len(lab.counts)} policies ' in printed
        episodes = list(open_for_asking(source).store.episodes())
    else:
        is_answered = 'names=' in lab.remedy  # a question with an assumption stops nobody
        printed = robotrials('compare', source, code=0 if is_answered else 2)
        assert lab.remedy in printed
        for words in commands(printed, lab.remedy):
            robotrials(*words)
        episodes = list(Store.open(Path(f'{source.stem}-store')).episodes())
    assert counts(episodes) == lab.counts
    assert len({e.task for e in episodes}) == lab.tasks
    assert Counter(e.policy for e in episodes if not e.is_valid) == lab.invalid


def test_a_shell_runs_the_printed_line(tmp_path: Path) -> None:
    lab = next(lab for lab in LAB_FILES if lab.name == 'rates_only')
    lab.write(tmp_path)
    script = Path(sys.executable).with_name('robotrials')

    def shell(command: str) -> subprocess.CompletedProcess[str]:
        environment = {'PATH': f'{script.parent}:/usr/bin:/bin', 'COLUMNS': '80'}
        return subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )

    first = shell('robotrials compare table2.csv')
    assert first.returncode == 2
    again = shell(first.stderr.splitlines()[-1].removeprefix('Try: '))
    assert again.returncode == 0, again.stderr
    assert 'pi0-FAST is better than' in again.stdout
