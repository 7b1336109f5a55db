"""Formats are found by content, and an installed package can bring its own."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.patience import PATIENCE_S

from robotrials.errors import InputError, UnknownName
from robotrials.formats.catalog import BY_SUFFIX, FORMATS, MARKS, detect, known_formats, load_format
from robotrials.formats.imported import ImportAccount, Imported, ImportOptions, Recording
from robotrials.formats.intake import import_into
from robotrials.record import Episode, Outcome, Store, Trajectory

OUTSIDE = Path(__file__).with_name('outside')


@pytest.fixture
def pebble(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outside package as if installed: its modules and its metadata are on the path."""
    monkeypatch.syspath_prepend(str(OUTSIDE))
    yield  # type: ignore[misc]
    sys.modules.pop('robotrials_pebble', None)


@pytest.mark.usefixtures('pebble')
def test_an_outside_package_adds_a_format(tmp_path: Path) -> None:
    (tmp_path / 'run.pebble').write_text('#pebble\nact pick + 12.5\nact pick - 30\n')
    assert 'logs of the Pebble rig' in robotrials('import', '--list')
    robotrials('import', tmp_path / 'run.pebble', '--to', tmp_path / 's')
    assert [(e.outcome.value, e.duration_s) for e in Store.open(tmp_path / 's').episodes()] == [
        ('success', 12.5), ('failure', 30.0),
    ]  # fmt: skip
    assert '2 already there' in robotrials('import', tmp_path / 'run.pebble', '--to', tmp_path / 's')


@pytest.mark.usefixtures('pebble')
def test_a_broken_outside_format_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / 'r.csv').write_text('policy,task,success\na,t,1\n')
    assert 'broken' in FORMATS.names()
    assert 'broken' not in {f.name for f in known_formats()}
    robotrials('import', tmp_path / 'r.csv', '--to', tmp_path / 's')
    assert 'NOTHING' in robotrials('import', tmp_path / 'r.csv', '--to', tmp_path / 's', '--as', 'broken', code=2)


def test_what_nobody_knows_is_refused_with_what_is_known(tmp_path: Path) -> None:
    (tmp_path / 'x.bin').write_bytes(b'\x00\x01')
    with pytest.raises(InputError, match=r'x\.bin: a file of no known format; known: .*table.*vla-eval'):
        detect(tmp_path / 'x.bin')
    with pytest.raises(InputError, match='a folder of no known format'):
        detect(tmp_path)
    with pytest.raises(InputError, match='no such file or folder'):
        detect(tmp_path / 'gone')
    with pytest.raises(UnknownName, match="did you mean 'table'"):
        load_format('tabel')


def test_a_source_or_a_store_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    assert 'no source given' in robotrials('import', code=2)
    (tmp_path / 'r.csv').write_text('policy,task,success\na,t,1\n')
    assert 'wanted --to STORE, or --dry-run' in robotrials('import', tmp_path / 'r.csv', code=2)


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match='--rate-hz is 0'):
        ImportOptions(rate_hz=0.0)


def test_a_ledger_counts_alike_entries_together() -> None:
    ledger = ImportAccount()
    ledger.keep('episodes', 2)
    ledger.keep('episodes')
    ledger.drop('files', None, why='no reason')
    assert [str(e) for e in (*ledger.kept, *ledger.dropped)] == ['3 episodes', 'files: no reason']


@pytest.mark.parametrize('text', ['[]', '{"format": 3', '{"mapp": {}}', '{"map": {"policy": 3}}', '{"rate_hz": "x"}'])
def test_a_mapping_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / 'm.json').write_text(text)
    (tmp_path / 'r.csv').write_text('policy,task,success\na,t,1\n')
    assert 'm.json' in robotrials('import', tmp_path / 'r.csv', '--dry-run', '--map-file', tmp_path / 'm.json', code=2)


def test_a_terminal_is_asked(tmp_path: Path) -> None:
    """With a terminal at both ends, the open question is put and its answer used."""
    (tmp_path / 'eval_1.csv').write_text(',success,duration,video_filename\n0,0.01,90,b.mp4\n')
    arguments = [
        'import',
        str(tmp_path / 'eval_1.csv'),
        '--to',
        str(tmp_path / 's'),
        '--set',
        'policy=p',
        '--set',
        'task=t',
    ]
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, '-m', 'robotrials.cli', *arguments], stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    os.write(leader, b'success\n')
    said = b''
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while chunk := os.read(leader, 4096):
            said += chunk
    os.close(leader)
    assert process.wait(timeout=PATIENCE_S) == 0, said
    assert b'[success/partial]' in said
    (episode,) = Store.open(tmp_path / 's').episodes()
    assert episode.is_success


def test_a_folder_of_tables_is_one_source(tmp_path: Path) -> None:
    folder = tmp_path / 'may'
    folder.mkdir()
    for policy in ('act', 'pi0'):
        (folder / f'{policy}.csv').write_text(f'policy,task,success,seed\n{policy},t,1,1\n{policy},t,0,2\n')
    (folder / 'notes.md').write_text('hello')
    printed = robotrials('import', folder, '--to', tmp_path / 's')
    assert '4 episodes added' in printed
    assert 'notes.md' in printed
    assert '4 already there' in robotrials('import', folder, '--to', tmp_path / 's')


def test_a_store_is_not_imported_but_merged(tmp_path: Path) -> None:
    Store.create(tmp_path / 's')
    assert 'robotrials store merge' in robotrials('import', tmp_path / 's', '--to', tmp_path / 't', code=2)


def test_a_failed_import_leaves_an_empty_folder_empty(tmp_path: Path) -> None:
    (tmp_path / 's').mkdir()
    (tmp_path / 'r.csv').write_text('policy,task,success,time\na,t,1,-3\n')
    robotrials('import', tmp_path / 'r.csv', '--to', tmp_path / 's', code=2)
    assert list((tmp_path / 's').iterdir()) == []


def test_trajectories_and_media_of_a_failed_import_are_removed(tmp_path: Path) -> None:
    """The store holds an episode; a second source breaks after its first recordings were written."""
    store = Store.create(tmp_path / 's')
    store.append([Episode(policy='a', task='t', outcome=Outcome.SUCCESS, seed=1)])
    before = sorted(p for p in store.path.rglob('*') if p.is_file())
    (tmp_path / 'v.mp4').write_bytes(b'video')

    def recordings() -> Iterator[Recording]:
        for seed in range(300):
            episode = Episode(policy='b', task='t', outcome=Outcome.SUCCESS, seed=seed)
            steps = Trajectory(time_s=np.array([0.1, 0.2]), reward=np.array([0.0, 1.0]))
            yield Recording(episode, steps, {'b/v.mp4': tmp_path / 'v.mp4'})
        raise InputError('the source is damaged')

    broken = Imported(format='x', sources=(), recordings=recordings, ledger=ImportAccount())
    with pytest.raises(InputError, match='damaged'):
        import_into(store.path, broken)
    assert sorted(p for p in store.path.rglob('*') if p.is_file()) == before


def test_a_bad_file_of_a_folder_stops_all_of_it(tmp_path: Path) -> None:
    folder = tmp_path / 'may'
    folder.mkdir()
    (folder / 'a.csv').write_text('policy,task,success,time\na,t,1,3\n')
    (folder / 'b.csv').write_text('policy,task,success,time\na,t,1,-3\n')
    assert 'b.csv row 1: duration_s is -3' in robotrials('import', folder, '--to', tmp_path / 's', code=2)
    assert not (tmp_path / 's').exists()


HEADS = (
    'policy,task,success\na,pick,1\n',
    'success,duration,video_filename\n1.0,300,a\n',
    '{"tasks": [], "episodes": [], "benchmark": "x", "harness_version": 1, "chain_sr": 1, "avg_seq_len": 2}\n',
    'Starting episode 1...\nSuccess: True\n# episodes completed so far: 1\n',
    'SQLite format 3\0', '\x89MCAP0\r\n', '\x89HDF\r\n\x1a\n',
)  # fmt: skip


@pytest.mark.parametrize('suffix', sorted(BY_SUFFIX))
@pytest.mark.parametrize('head', HEADS)
def test_a_suffix_leaves_out_no_format_that_would_recognise_the_file(tmp_path: Path, suffix: str, head: str) -> None:
    """Whatever is in it: the other formats want another suffix, or a folder."""
    path = tmp_path / f'eval_info{suffix}'
    path.write_bytes(head.encode('latin-1'))
    taken = {f.name for f in known_formats() if f.name in FORMATS.builtin and f.recognise(path) is not None}
    assert taken <= BY_SUFFIX[suffix]
    wanted = {n for n in BY_SUFFIX[suffix] if MARKS.get(n, b'') in path.read_bytes()}
    assert {f.name for f in known_formats(path)} == wanted
    assert taken <= {f.name for f in known_formats(path)}
