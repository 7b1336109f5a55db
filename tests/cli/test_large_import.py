"""A store that `robotrials import` made of a large table is one part of many bytes: every verb reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import robotrials

from robotrials.record import part

VERBS = (
    ('score', '{store}'),
    ('compare', '{store}'),
    ('store', 'verify', '{store}'),
    ('store', 'ls', '{store}', '--where', 'policy=p1', '--limit', '3'),
    ('report', '{store}', '-o', '{store}.html', '--resamples', '20'),
)


def written_table(path: Path, n_rows: int) -> Path:
    """Two policies on the same start states of four tasks."""
    per_cell = n_rows // 8
    rows = (
        f'p{p},task{t},{i},{(i * 7 + p * 3 + t) % 10 < 5 + p:d},{2 + (i * 37 + p) % 5000 / 100}\n'
        for p in range(2)
        for t in range(4)
        for i in range(per_cell)
    )
    path.write_text('policy,task,instance,success,duration_s\n' + ''.join(rows))
    return path


def test_every_verb_reads_a_part_that_is_too_large_to_be_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, 'SMALL_BYTES', 10_000)
    store = tmp_path / 'store'
    robotrials('import', written_table(tmp_path / 'r.csv', 8000), '--to', store)
    (file,) = (store / 'episodes').iterdir()
    assert file.stat().st_size > part.SMALL_BYTES
    for verb in VERBS:
        robotrials(*(word.format(store=store) for word in verb))


@pytest.mark.scale
def test_every_verb_reads_a_store_of_240_000_imported_rows_in_a_new_process(tmp_path: Path) -> None:
    store = tmp_path / 'store'
    table = written_table(tmp_path / 'r.csv', 240_000)
    for verb in (('import', str(table), '--to', '{store}'), *VERBS):
        command = [sys.executable, '-m', 'robotrials.cli', *(word.format(store=store) for word in verb)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f'{verb}: {ran.stdout}{ran.stderr}'
    (file,) = (store / 'episodes').iterdir()
    assert file.stat().st_size > part.SMALL_BYTES
