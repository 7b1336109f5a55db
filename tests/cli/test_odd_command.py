"""Whatever is asked of the command line, the answer is a result or one clear line; never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import trialist

HEAD = 'policy,task,success,duration_s\n'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / 'r.csv').write_text(HEAD + 'a,t,1,3\nb,t,0,4\n', encoding='utf-8')
    trialist('import', tmp_path / 'r.csv', '--to', tmp_path / 'my store')
    return tmp_path / 'my store'


def first_id(store: Path) -> str:
    from trialist.episodes import read_store

    return next(read_store(store).episodes()).episode_id


def test_a_file_is_no_store(tmp_path: Path, store: Path) -> None:
    assert 'wanted a folder' in trialist('import', tmp_path / 'r.csv', '--to', tmp_path / 'r.csv', code=2)


def test_what_the_system_refuses_is_one_line(tmp_path: Path, store: Path) -> None:
    told = trialist('import', tmp_path / 'r.csv', '--to', '/proc/nowhere', code=2)
    assert '/proc/nowhere' in told
    assert 'Traceback' not in told
    assert 'folder that is there' in trialist('store', 'export', store, '-o', tmp_path / 'no' / 'x.csv', code=2)


def test_an_absent_value_can_be_filtered_for(store: Path) -> None:
    assert trialist('store', 'ls', store, '-w', 'seed=').count('nominal') == 2
    assert 'found' in trialist('store', 'ls', store, '-w', 'seed=99999999999999999999', code=2)


def test_a_negative_limit_is_refused(store: Path) -> None:
    trialist('store', 'ls', store, '--limit', '-3', code=2)


def test_the_start_of_an_id_is_enough_to_edit_and_the_edit_is_shown(store: Path) -> None:
    start = first_id(store)[:6]
    trialist('store', 'edit', store, start, 'set', 'outcome=invalid', '--why', 'camera unplugged')
    assert 'set outcome=invalid (camera unplugged)' in trialist('store', 'show', store, start)
    assert 'start with it' in trialist('store', 'edit', store, '', 'drop', '--why', 'x', code=2)


def test_a_merge_makes_its_target(store: Path, tmp_path: Path) -> None:
    assert '2 episodes added' in trialist('store', 'merge', tmp_path / 'all', store)
    assert 'no such folder' in trialist('store', 'merge', tmp_path / 'none', tmp_path / 'nowhere', code=2)
    assert not (tmp_path / 'none').exists()
