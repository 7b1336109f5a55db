"""Stores that were edited oddly, merged, copied without empty folders, or hold ids of others."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.run.plans import make_plan

from robotrials.errors import InputError, StoreError
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.record.folder import OWN_NAMES, check_folders
from robotrials.record.maintain import compact_store, merge_stores, merge_target
from robotrials.record.verify import verify_store
from robotrials.run import close_trial, run_trial


def episode(name: str = 'one', *, attempt: int = 0, **more: object) -> Episode:
    return Episode(
        policy='a', task='t', outcome=Outcome.SUCCESS, duration_s=3.0, episode_id=name, attempt=attempt, **more
    )  # type: ignore[arg-type]


def stored(path: Path, *episodes: Episode) -> Store:
    store = Store.create(path)
    store.append(episodes)
    return store


def test_a_rerun_counts_once_when_parts_have_ids_of_different_lengths(tmp_path: Path) -> None:
    store = stored(tmp_path / 's', episode('abc'), episode('longer'))
    store.append([episode('abc', attempt=1)])
    assert [e.key for e in store.episodes()] == [('abc', 0), ('longer', 0)]


def test_ids_need_not_be_ascii(tmp_path: Path) -> None:
    store = stored(tmp_path / 's', episode('é1'), episode('é2'))
    store.append([episode('é1', attempt=1)])
    assert [e.key for e in store.episodes()] == [('é1', 0), ('é2', 0)]


@pytest.mark.parametrize('mark', ['\u2028', '\x85', '\x0c'])
def test_an_edit_may_hold_any_line_separator(tmp_path: Path, mark: str) -> None:
    store = stored(tmp_path / 's', episode())
    store.edit('one', 'set', by='me', why=f'a{mark}b', field='stratum', value=f'x{mark}y')
    assert next(store.episodes()).stratum == f'x{mark}y'
    assert verify_store(store.path).is_clean


def test_an_edit_with_half_a_character_writes_nothing(tmp_path: Path) -> None:
    store = stored(tmp_path / 's', episode())
    with pytest.raises(InputError, match='half of a character'):
        store.edit('one', 'set', by='me', why='x', field='policy', value='b\ud800')
    assert next(store.episodes()).policy == 'a'


@pytest.mark.parametrize('name', ['is_reference', 'repeat', 'condition', 'duration_s', 'outcome', 'task'])
def test_a_required_field_can_not_be_taken_away(tmp_path: Path, name: str) -> None:
    store = stored(tmp_path / 's', episode())
    with pytest.raises(InputError, match=f'{name} cannot be taken away'):
        store.edit('one', 'set', by='me', why='x', field=name, value=None)


def test_a_drop_takes_no_field_and_a_reason_is_no_blank(tmp_path: Path) -> None:
    store = stored(tmp_path / 's', episode())
    with pytest.raises(InputError, match='drop takes no field'):
        store.edit('one', 'drop', by='me', why='x', field='policy', value='b')
    with pytest.raises(InputError, match='who and why'):
        store.edit('one', 'drop', by='me', why='  ')


def test_an_unknown_provenance_can_not_be_set(tmp_path: Path) -> None:
    store = stored(tmp_path / 's', episode())
    with pytest.raises(InputError, match='no provenance'):
        store.edit('one', 'set', by='me', why='x', field='provenance_id', value='zzz')


def test_edits_that_can_not_stand_together_have_one_rule_whoever_merges_whom(tmp_path: Path) -> None:
    one, two = stored(tmp_path / '1', episode(items=10)), stored(tmp_path / '2', episode(items=10))
    one.edit('one', 'set', by='me', why='x', field='items', value=5)
    two.edit('one', 'set', by='you', why='x', field='items_placed', value=9)
    copy = Path(shutil.copytree(one.path, tmp_path / 'copy'))
    merge_stores(one.path, two.path)
    merge_stores(two.path, copy)
    assert list(one.episodes()) == list(two.episodes())
    assert (next(one.episodes()).items, next(one.episodes()).items_placed) == (5, None), 'the first edit stands'
    for store in (one, two):
        assert [f.kind for f in verify_store(store.path).findings] == ['edit']


def test_a_copy_without_empty_folders_can_be_written_to(tmp_path: Path) -> None:
    from robotrials.record import Event, EventKind

    store = stored(tmp_path / 's', episode())
    for name in ('events', 'trajectories', 'media', 'provenance', '.pending'):
        (store.path / name).rmdir()
    store.append([episode('two', events=(Event(1.0, EventKind.PLACEMENT),))])
    assert [len(e.events) for e in store.episodes()] == [0, 1]


def test_a_store_without_its_episodes_is_named(tmp_path: Path) -> None:
    store = stored(tmp_path / 's', episode())
    shutil.rmtree(store.path / 'episodes')
    with pytest.raises(StoreError, match='missing, though the store names it'):
        list(store.episodes())
    assert [f.kind for f in verify_store(store.path).findings] == ['missing', 'missing']


def test_half_a_trial_description_is_named(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    (store.path / 'trial.json').write_text('{"format": "trialist-store", "schema_version": 1}', encoding='utf-8')
    with pytest.raises(StoreError, match='not a whole trial description'):
        read_store(store.path)


def test_a_filter_of_another_type_is_refused_and_absence_can_be_asked_for(tmp_path: Path) -> None:
    store = stored(tmp_path / 's', episode('one', seed=1), episode('two'))
    with pytest.raises(InputError, match='a filter wants seed'):
        list(store.episodes(where={'seed': 10**20}))
    with pytest.raises(InputError, match='a filter wants seed'):
        list(store.episodes(where={'seed': ''}))
    assert [e.episode_id for e in store.episodes(where={'seed': None})] == ['two']


def test_a_reader_goes_on_while_a_compaction_replaces_what_it_reads(tmp_path: Path) -> None:
    store = stored(tmp_path / 's', episode('0'))
    for name in '1234':
        store.append([episode(name)])
    reading = store.episodes()
    assert next(reading).episode_id == '0'
    assert compact_store(store.path).parts_after == 1
    assert [e.episode_id for e in reading] == ['1', '2', '3', '4']
    store.append([episode('5')])
    compact_store(store.path)
    compact_store(store.path, stale_after_s=0)
    assert [e.episode_id for e in store.episodes()] == ['0', '1', '2', '3', '4', '5']
    assert verify_store(store.path).findings == ()
    assert len(list((store.path / 'episodes').iterdir())) == 1


@pytest.mark.parametrize('folder', ['episodes', 'events'])
def test_any_flipped_bit_of_a_footer_is_named(tmp_path: Path, folder: str) -> None:
    from robotrials.record import Event, EventKind

    store = stored(tmp_path / 's', episode(events=(Event(1.0, EventKind.PLACEMENT),)))
    (part,) = (store.path / folder).iterdir()
    whole = part.read_bytes()
    for place in range(len(whole) - 1, 0, -41):
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        assert not verify_store(store.path).is_clean
        with pytest.raises(StoreError, match=part.name):
            list(store.episodes())


def test_an_open_blinded_trial_is_merged_only_into_its_own(tmp_path: Path) -> None:
    """In a store without its plan nobody would know that its arms must not be told apart."""
    plan = make_plan(episodes_per_cell=1)
    run_trial(plan, tmp_path / 'trial', workers=0)
    Store.create(tmp_path / 'other').append([Episode(policy='p', task='t', outcome=Outcome.SUCCESS, seed=1)])
    with pytest.raises(StoreError, match='blinded and open'):
        merge_stores(tmp_path / 'other', tmp_path / 'trial')
    merge_target(tmp_path / 'new', [read_store(tmp_path / 'trial')])
    merge_stores(tmp_path / 'new', tmp_path / 'trial')
    assert {e.policy for e in read_store(tmp_path / 'new').episodes()} == {'blinded'}
    close_trial(plan, tmp_path / 'new', by='kim')
    assert {e.policy for e in read_store(tmp_path / 'new').episodes()} == set(plan.policies)
    merge_stores(tmp_path / 'other', tmp_path / 'new')


@pytest.mark.parametrize('name', OWN_NAMES)
@pytest.mark.parametrize('target', ['elsewhere', 'nowhere'])
def test_a_link_in_the_place_of_a_stores_own_folder_is_not_followed(tmp_path: Path, name: str, target: str) -> None:
    """Wherever it leads; a folder without any of them, or none at all, has nothing to follow."""
    (tmp_path / 'elsewhere').mkdir()
    (tmp_path / 'store').mkdir()
    check_folders(tmp_path / 'store')
    check_folders(tmp_path / 'nowhere')
    (tmp_path / 'store' / name).symlink_to(tmp_path / target)
    with pytest.raises(StoreError, match=rf'{re.escape(name)}: a link, which is not followed'):
        check_folders(tmp_path / 'store')
