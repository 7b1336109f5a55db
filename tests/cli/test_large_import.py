"""A store that `robotrials import` made of a large table is one part of many bytes: every verb reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.cli.command import robotrials

from robotrials.record import Episode, part

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
        f'p{p},task{t},{i},{(i * 7 + p * 3 + t) % 10 < 5 + p:d},{2 + (i * 2654435761 + t + p) % 500_000 / 10_000}\n'
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


def test_import_of_a_large_table_builds_no_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the import itself nor the hints after it: an object per row costs more than the import."""
    n_built = 0
    check = Episode.__post_init__

    def counted(self: Episode) -> None:
        nonlocal n_built
        n_built += 1
        check(self)

    monkeypatch.setattr(Episode, '__post_init__', counted)
    text = written_table(tmp_path / 'r.csv', 16_000).read_text()
    (tmp_path / 'quoted.csv').write_text(text.replace('task0', '"task, 0"'))
    pq.write_table(pacsv.read_csv(tmp_path / 'r.csv'), tmp_path / 'r.parquet', compression='none', use_dictionary=False)
    for name in ('r.csv', 'quoted.csv', 'r.parquet'):
        told = robotrials('import', tmp_path / name, '--to', tmp_path / f'{name}.store')
        assert '16,000 episodes added' in told
    assert n_built == 0


@pytest.mark.scale
def test_every_verb_reads_a_store_of_240_000_imported_rows_in_a_new_process(tmp_path: Path) -> None:
    store = tmp_path / 'store'
    _run('import', str(written_table(tmp_path / 'r.csv', 240_000)), '--to', str(store))
    (file,) = (store / 'episodes').iterdir()
    assert file.stat().st_size > part.SMALL_BYTES
    for verb in VERBS:
        _run(*(word.format(store=store) for word in verb))


def _run(*arguments: str) -> None:
    command = [sys.executable, '-m', 'robotrials.cli', *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f'{arguments}: {ran.stdout}{ran.stderr}'
