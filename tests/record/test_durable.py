"""What must survive is written one way: whole, synced, moved in, and its folder synced; at any failing call, or not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.record.crash_disk import Crash, CrashDisk

from robotrials.errors import WriteError
from robotrials.record.folder import Disk, move_durably, put_durably, replaced_disk, write_durably


def test_a_crash_at_any_call_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for at in range(1, 12):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / 'x.json').write_bytes(b'old')
        disk = CrashDisk(folder, at=at)
        try:
            with replaced_disk(disk):
                write_durably(folder / 'x.json', b'new' * 1000)
        except Crash:
            left = tmp_path / f'left-{at}'
            disk.left_after(left, rng=rng)
            assert (left / 'x.json').read_bytes() in (b'old', b'new' * 1000), at
        else:
            assert at > 4, 'fewer calls than a draft, its bytes, its syncing and its move take'
            assert (folder / 'x.json').read_bytes() == b'new' * 1000
            return
    raise AssertionError('it never ended')


class FullDisk(Disk):
    def write(self, handle: int, data: object) -> int:
        raise OSError(28, 'No space left on device')


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / 'x.json').write_bytes(b'old')
    with replaced_disk(FullDisk()), pytest.raises(WriteError, match=r'x\.json: cannot be written \(No space left'):
        write_durably(tmp_path / 'x.json', b'new')
    assert [p.name for p in tmp_path.iterdir()] == ['x.json']
    assert (tmp_path / 'x.json').read_bytes() == b'old'


class Told(Disk):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def sync(self, handle: int) -> None:
        self.calls.append('sync')
        super().sync(handle)

    def rename(self, source: Path, target: Path) -> None:
        self.calls.append(f'move {target.name}')
        super().rename(source, target)

    def sync_folder(self, path: Path) -> None:
        self.calls.append(f'sync {path.name}')
        super().sync_folder(path)


def test_bytes_are_durable_before_their_name_is(tmp_path: Path) -> None:
    with replaced_disk(Told()) as disk:
        write_durably(tmp_path / 'a', 'text')
        with put_durably(tmp_path / 'b.csv') as draft:
            assert draft.suffix == '.csv'
            draft.write_text('x')
        (tmp_path / 'part').write_text('y')
        move_durably(tmp_path / 'part', tmp_path / 'c')
    here = f'sync {tmp_path.name}'
    assert disk.calls == ['sync', 'move a', here, 'sync', 'move b.csv', here, 'sync', 'move c', here]  # type: ignore[attr-defined]
    assert sorted(p.name for p in tmp_path.iterdir()) == ['a', 'b.csv', 'c']


def test_what_failed_half_way_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='no'), put_durably(tmp_path / 'made') as draft:
        draft.mkdir()
        (draft / 'half').write_text('x')
        raise ValueError('no')
    assert list(tmp_path.iterdir()) == []


# Who still moves a draft of their own, and why.
OWN = {
    'wire/chat.py': 'a cache of replies, each of which can be asked for again; wire imports no record',
    'record/bucket.py': 'copies of object storage, which can be fetched again; under the way itself',
    'record/folder.py': 'the way itself',
}


def test_nobody_else_moves_drafts_of_their_own() -> None:
    root = Path(__file__).parents[2] / 'src'
    moves = re.compile(r'os\.(replace|rename)\(|\b(draft|part|half|spooled)\.(replace|rename)\((?![\'\"])')
    own = {
        path.relative_to(next(root.iterdir())).as_posix()
        for path in root.rglob('*.py')
        if moves.search(path.read_text(encoding='utf-8'))
    }
    assert own <= OWN.keys()
