"""At a terminal: what a file leaves open is asked, a remedy is run on "y", and can be kept as a mapping file."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time
from pathlib import Path

from tests.formats.lab_files import LAB_FILES

SCRIPT = Path(sys.executable).with_name('robotrials')
PATIENCE_S = 120


def talk(folder: Path, *words: str, replies: list[tuple[str, str]]) -> tuple[str, int]:
    """What `robotrials WORDS` says at a terminal, and how it ends; each reply waits for its question."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execve(SCRIPT, ['robotrials', *words], {**os.environ, 'COLUMNS': '80', 'TERM': 'dumb'})
    said, waiting, deadline = b'', list(replies), time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        try:
            said += (piece := os.read(terminal, 1 << 16) if ready else b'')
        except OSError:  # the other side is gone
            break
        if ready and not piece:
            break
        if waiting and waiting[0][0].encode() in said:
            os.write(terminal, f'{waiting.pop(0)[1]}\n'.encode())
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert not waiting, said.decode()
    return said.decode().replace('\r\n', '\n'), os.waitstatus_to_exitcode(status)


def lab(name: str, folder: Path) -> str:
    return next(lab for lab in LAB_FILES if lab.name == name).write(folder).name


def test_a_remedy_is_run_on_yes_and_kept_for_the_next_time(tmp_path: Path) -> None:
    name = lab('rates_only', tmp_path)
    said, code = talk(tmp_path, 'compare', name, replies=[('Run it?', 'y'), ('Save this as', 'y')])
    assert code == 0
    assert 'pi0-FAST is better than' in said
    assert (tmp_path / f'{name}.map.json').is_file()
    assert not (tmp_path / 'table2-store').exists()  # a question writes nothing but what was agreed to
    again, code = talk(tmp_path, 'compare', name, replies=[])
    assert (code, f'as {name}.map.json says' in again, 'pi0-FAST is better than' in again) == (0, True, True)


def test_no_ends_it_and_writes_nothing(tmp_path: Path) -> None:
    name = lab('not_all_ran', tmp_path)
    said, code = talk(tmp_path, 'compare', name, replies=[('Run it?', 'n')])
    assert (code, ' vs ' in said, [p.name for p in tmp_path.iterdir()]) == (2, False, [name])


def test_an_error_is_wrapped_and_its_command_is_not(tmp_path: Path) -> None:
    said, code = talk(tmp_path, 'compare', lab('not_all_ran', tmp_path), replies=[('Run it?', 'n')])
    lines = said.splitlines()
    assert code == 2
    assert max(len(line) for line in lines if not line.startswith('Try: ')) <= 80
    (tmp_path / 'bare.csv').write_text('policy,task,time_s\na,t,1\nb,t,2\n')
    said, code = talk(tmp_path, 'compare', 'bare.csv', replies=[])
    said = re.sub(r'\x1b\[[0-9;]*m', '', said)
    assert (code, max(map(len, said.splitlines())) <= 80, 'no column for outcome' in said) == (2, True, True)
    said, _ = talk(tmp_path, 'import', 'a-name-that-is-long-enough-for-a-line-of-its-own-and-for-more.csv', replies=[])
    (command,) = [line for line in said.splitlines() if line.startswith('Try: ')]
    assert len(command) > 80


def test_names_that_look_alike_are_asked_about(tmp_path: Path) -> None:
    said, code = talk(tmp_path, 'compare', lab('near_names', tmp_path), replies=[('names [apart/join]', 'join')])
    assert (code, 'pi0 vs openvla' in said) == (0, True)


def test_a_remedy_of_a_spreadsheet_crosses_from_its_own_process(tmp_path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    assert book.active is not None
    for row in (['policy', 'result'], *(['a', 'win'], ['b', 'lost']) * 4):
        book.active.append(row)
    book.save(tmp_path / 'r.xlsx')
    said, code = talk(tmp_path, 'import', 'r.xlsx', '--to', 's', replies=[('Run it?', 'y')])
    assert (code, '8 episodes added' in said) == (0, True)
