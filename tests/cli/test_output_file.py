"""Files that verbs write: refused before the work when they can't be, and never half there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.cli.command import robotrials, words
from tests.verdict.analysis.pair import plain_store

from robotrials.errors import InputError, WriteError
from robotrials.record.folder import Disk, replaced_disk
from robotrials.show.document import check_target, write_file


@pytest.fixture(scope='module')
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_store(tmp_path_factory.mktemp('output') / 's', 0.8, seed=1, n=6).path


def test_a_folder_a_file_as_folder_and_a_store_are_no_place_for_a_file(store: Path, tmp_path: Path) -> None:
    (tmp_path / 'file').write_text('x')
    for target, said in (
        (tmp_path, 'a folder, wanted the name of a file'),
        (tmp_path / 'file' / 'x.md', 'is a file, wanted a folder'),
        (store / 'report.md', 'inside the store'),
        (store / 'episodes' / 'report.md', 'inside the store'),
    ):
        with pytest.raises(InputError, match=said):
            check_target(target)
        for verb in (('report', store), ('gate', store, '-b', store), ('tables', 'headline', store)):
            form = 'md' if verb[0] == 'report' else 'text'
            assert said in robotrials(*verb, '-o', target, '--format', form, code=2)
    assert not (store / 'report.md').exists()
    assert robotrials('store', 'verify', store).startswith('clean')


def test_a_figure_goes_to_no_folder_and_no_store(store: Path, tmp_path: Path) -> None:
    (tmp_path / 'x.pdf').mkdir()
    assert 'a folder' in robotrials('plot', 'cdf', store, '-o', tmp_path / 'x.pdf', code=2)
    assert 'inside the store' in robotrials('plot', 'cdf', store, '-o', store / 'x.pdf', code=2)


def test_what_fails_half_way_leaves_the_earlier_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / 'page.html'
    write_file(target, 'whole')

    class FullDisk(Disk):
        def write(self, handle: int, data: object) -> int:
            raise OSError(errno.ENOSPC, 'No space left on device')

    with replaced_disk(FullDisk()), pytest.raises(WriteError, match=rf'{target}: cannot be written \(No space left'):
        write_file(target, 'another')
    assert [p.name for p in tmp_path.iterdir()] == ['page.html']
    assert target.read_text() == 'whole'


def test_a_link_stays_a_link_and_folders_are_made(tmp_path: Path) -> None:
    (tmp_path / 'link.md').symlink_to(tmp_path / 'real.md')
    write_file(tmp_path / 'link.md', 'é')
    assert (tmp_path / 'link.md').is_symlink()
    assert (tmp_path / 'real.md').read_text(encoding='utf-8') == 'é'
    assert write_file(tmp_path / 'a' / 'b' / 'c.md', b'x').read_bytes() == b'x'


def test_a_full_device_is_one_line(store: Path) -> None:
    if not Path('/dev/full').exists():
        pytest.skip('no /dev/full on this system')
    printed = robotrials('report', store, '-f', 'md', '-o', '/dev/full', '--resamples', 20, code=2)
    assert printed.strip().endswith('/dev/full: No space left on device')


def test_a_negative_seed_is_refused(store: Path) -> None:
    assert 'seed' in robotrials('report', store, '-f', 'md', '--seed', -1, code=2)
    assert 'seed' in robotrials('score', store, '--seed', -1, code=2)


def test_an_impossible_address_is_refused_before_the_work(store: Path) -> None:
    assert 'http or https' in robotrials('report', store, '-f', 'md', '--explorer', 'javascript:alert(1)', code=2)


def test_a_store_without_a_valid_episode_has_no_table_of_conditions(tmp_path: Path) -> None:
    from robotrials.record import Episode, Outcome, Store

    Store.create(tmp_path / 's').append([Episode(policy='a', task='t', outcome=Outcome.INVALID, duration_s=0.0)])
    for verb in ('tables', 'plot'):
        assert 'no valid episode' in robotrials(verb, 'condition-success', tmp_path / 's', code=2)


def test_what_a_font_lacks_is_one_line_and_no_traceback_of_a_library(tmp_path: Path) -> None:
    plain_store(tmp_path / 's', 0.8, seed=1, n=4, policy='\U0001f916')
    printed = robotrials('plot', 'cdf', tmp_path / 's', '-o', tmp_path / 'x.svg', '--tau', 60)
    assert 'look at the figure: Glyph' in printed
    assert '.py' not in printed


def test_too_few_resamples_for_any_pair_are_said(store: Path, tmp_path: Path) -> None:
    from robotrials.record import Store, read_store

    both = Store.create(tmp_path / 's')
    found = list(read_store(store).episodes())
    both.append([*found, *(e.replace(policy='other', episode_id=f'o{i}') for i, e in enumerate(found))])
    assert '19 are the least that can' in words('compare', tmp_path / 's', '--resamples', 10, '--tau', 60)
    assert 'are the least' not in words('compare', tmp_path / 's', '--resamples', 19, '--tau', 60)


def test_before_and_after_says_what_was_chosen_and_refuses_what_it_does_not_use(store: Path, tmp_path: Path) -> None:
    later = plain_store(tmp_path / 'later', 0.8, seed=2, n=6).path
    asked = ('report', later, '--before', store, '-f', 'md', '--resamples', 40)
    assert '· only stratum block' in robotrials(*asked, '--where', 'stratum=block')
    assert 'it takes neither --reference' in robotrials(*asked, '--reference', 'pi', code=2)
    twin = plain_store(tmp_path / 'twin', 0.8, seed=2, n=6).path
    assert 'e-1' not in robotrials('report', twin, '--before', later, '-f', 'md', '--resamples', 40)
    other = plain_store(tmp_path / 'other', 0.8, seed=2, n=6, policy='new').path
    assert 'robotrials gate --policy NEW' in robotrials('report', other, '--before', later, '-f', 'md', code=2)
