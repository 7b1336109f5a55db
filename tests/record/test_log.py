"""The commit log: nothing goes missing, is added, swapped or changed unnoticed, and damage costs only itself."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S

from robotrials.errors import InputError, StoreError
from robotrials.record import Episode, Event, Outcome, Provenance, Store, Trajectory, Unblinding, read_store
from robotrials.record import ledger as ledger_module
from robotrials.record import log as log_module
from robotrials.record.addition import Addition
from robotrials.record.blinding import write_unblinding
from robotrials.record.log import FindingKind
from robotrials.record.maintain import adopt_store, compact_store, merge_stores
from robotrials.record.rows import episodes_to_arrow, events_to_arrow
from robotrials.record.verify import repair_store, verify_store


def episode(seed: int, **changes: object) -> Episode:
    values: dict[str, object] = {
        'policy': 'p', 'task': 't', 'outcome': Outcome.SUCCESS, 'duration_s': 3.0, 'seed': seed,
        'events': (Event(1.0, 'placement'),), **changes,
    }  # fmt: skip
    return Episode(**values)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One of everything: parts with companions, provenance, media, an edit, a look, a closing."""
    made = open_store(tmp_path)
    write_unblinding(made.path, Unblinding(trial_id='t1', by='kim', at='now', policies={'p': 'pi05'}))
    assert verify_store(made.path).findings == ()
    return made


def open_store(tmp_path: Path) -> Store:
    """The same before its closing, so that episodes can be added."""
    made = Store.create(tmp_path / 's', trial_id='t1')
    origin = made.write_provenance(Provenance(cpu='x'))
    for first in (0, 2):
        batch = [episode(first, provenance_id=origin), episode(first + 1)]
        steps = Trajectory(time_s=np.arange(9.0), joint_position_rad=np.random.default_rng(first).normal(size=(9, 7)))
        made.append(batch, trajectories={batch[0].key: steps}, media={f'faults/{first}.txt': b'the camera broke'})
    made.add_media('a/wrist.mp4', b'film')
    made.edit(episode(1).episode_id, 'set', by='ana', why='typo', field='reason', value='slipped')
    assert made.log_look('score', by='ana', options={'where': 'all'}, seen='4 episodes')
    return made


def every_file(store: Store) -> list[Path]:
    return sorted(p for p in store.path.rglob('*') if p.is_file() and p.stat().st_size)


def test_every_flipped_byte_of_every_file_is_found(store: Store) -> None:
    rng = np.random.default_rng(0)
    for victim in every_file(store):
        content = victim.read_bytes()
        for place in {0, len(content) - 1, *rng.integers(0, len(content), 6).tolist()}:
            victim.write_bytes(content[:place] + bytes([content[place] ^ 0x01]) + content[place + 1 :])
            try:
                named = {f.path for f in verify_store(store.path).findings if f.is_damage}
            except StoreError:
                named = {store.path / 'trial.json'}  # it can't even be opened
            assert victim in named or (victim.parent.name == 'log' and store.path / 'log' in named), (victim, place)
        victim.write_bytes(content)
    assert verify_store(store.path).findings == ()


def test_every_missing_added_and_swapped_file_is_found(store: Store) -> None:
    noted = store.head()
    for victim in every_file(store):
        content = victim.read_bytes()
        victim.unlink()
        if victim.name != 'trial.json':
            assert not verify_store(store.path, head=noted).is_clean, victim
        victim.write_bytes(content)
    for folder in ('episodes', 'events', 'trajectories', 'media/faults'):
        first, second = sorted((store.path / folder).iterdir())[:2]
        contents = first.read_bytes(), second.read_bytes()
        first.write_bytes(contents[1])
        second.write_bytes(contents[0])
        assert contents[0] == contents[1] or not verify_store(store.path).is_clean
        first.write_bytes(contents[0])
        second.write_bytes(contents[1])
    for name in ('media/added.mp4', 'provenance/0.json', 'notes.txt', 'log/x.json'):
        (store.path / name).write_bytes(b'{}')
        assert [f.path for f in verify_store(store.path).findings if f.is_damage] == [store.path / name]
        (store.path / name).unlink()
    assert verify_store(store.path, head=noted).is_clean


def test_a_store_is_itself_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'lab').mkdir()
    Store.create(tmp_path / 'lab' / 'store').append([episode(1)])
    monkeypatch.setattr(log_module, '_logs', {})  # as in a new process
    for folder, path in (('lab', 'store'), ('', 'lab/store'), ('lab', tmp_path / 'lab' / 'store')):
        monkeypatch.chdir(tmp_path / folder)
        store = Store.open(path)
        assert (store.count(), len(list(store.episodes())), verify_store(path).is_clean) == (1, 1, True)


def test_what_another_process_adds_to_a_settled_log_is_seen(tmp_path: Path) -> None:
    made = open_store(tmp_path)
    os.utime(made.path / 'log', (1e9, 1e9))
    assert sum(part.n_rows for part in made.parts()) == 4
    assert log_module.read_log(made.path).settled_ns == 10**18  # from here on its folder is not listed
    adder = multiprocessing.get_context('spawn').Process(target=_append_one, args=(made.path,))
    adder.start()
    adder.join(PATIENCE_S)
    assert sum(part.n_rows for part in made.parts()) == 5


def _append_one(path: Path) -> None:
    Store.open(path).append([episode(99)])


def test_all_episode_parts_deleted_is_not_clean(store: Store) -> None:
    for path in (store.path / 'episodes').iterdir():
        path.unlink()
    missing = [f for f in verify_store(store.path).findings if f.kind is FindingKind.MISSING]
    assert [f.detail for f in missing] == ['it held 2 episodes'] * 2
    assert [f.detail for f in store.missing()] == ['it held 2 episodes'] * 2


def test_a_slot_that_was_taken_out_and_run_again_leaves_a_trace(tmp_path: Path) -> None:
    """Deleting the last part with its entry, and running the slot again, shows against a head that was noted."""
    store = open_store(tmp_path)
    store.append([episode(9, outcome=Outcome.FAILURE)])
    noted = store.head()
    for folder in ('log', 'episodes', 'events'):
        max((store.path / folder).iterdir()).unlink()
    store.append([episode(9)])
    assert verify_store(store.path).is_clean
    assert not verify_store(store.path, head=noted).is_clean
    assert not verify_store(store.path, head=noted[:16]).is_clean


def test_a_whole_log_that_is_gone_is_noticed(store: Store) -> None:
    shutil.rmtree(store.path / 'log')
    assert [f.kind for f in verify_store(store.path).findings if f.path.name == 'log'] == [FindingKind.MISSING]
    with pytest.raises(StoreError, match='the commit log is gone'):
        list(Store.open(store.path).episodes())
    with pytest.raises(StoreError, match='without a commit log'):
        store.append([episode(11)])


def test_what_is_read_is_checked(store: Store) -> None:
    """Flips that a Parquet reader does not see are refused all the same."""
    expected = list(store.episodes())
    for folder in ('episodes', 'events', 'trajectories'):
        victim = min((store.path / folder).iterdir())
        content = victim.read_bytes()
        for place in range(4, len(content), 29):
            victim.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
            with pytest.raises(StoreError, match=victim.name):
                list(store.trajectories())
        victim.write_bytes(content)
    assert list(store.episodes()) == expected


def test_a_large_part_is_checked_by_the_columns_that_are_read(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    rng = np.random.default_rng(0)
    batch = [episode(i, events=()) for i in range(400)]
    paths = {
        e.key: Trajectory(
            time_s=np.arange(100.0),
            ee_pose=rng.normal(size=(100, 7)),
            joint_position_rad=rng.normal(size=(100, 7)),
            reward=rng.normal(size=100),
        )
        for e in batch
    }
    store.append(batch, trajectories=paths)
    (victim,) = (store.path / 'trajectories').iterdir()
    logged = store.ledger().file(f'trajectories/{victim.name}')
    assert logged is not None
    assert len(logged.chunks) == 2 * (3 + 1 + 7 + 7 + 1) + 1
    content = victim.read_bytes()
    for place in range(1000, len(content), len(content) // 60):
        victim.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with pytest.raises(StoreError, match=victim.name):
            sum(1 for _ in store.trajectories())
    reward = np.concatenate([paths[e.key].reward for e in batch])  # type: ignore[misc]
    readable = 0
    for place in range(1000, len(content), len(content) // 60):
        victim.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            read = np.concatenate([t.reward for _, t in store.trajectories(signals=['reward'])])  # type: ignore[misc]
        except StoreError:
            continue
        np.testing.assert_array_equal(read, reward)
        readable += 1
    assert readable > 40, 'damage to other columns costs nothing'
    victim.write_bytes(content)
    one = store.trajectory(batch[399], signals=['reward'])
    assert one is not None
    np.testing.assert_array_equal(one.reward, paths[batch[399].key].reward)


@pytest.mark.parametrize(('folder', 'left'), [('episodes', {2, 3}), ('events', {2, 3}), ('trajectories', {0, 1, 2, 3})])
def test_damage_costs_only_itself_and_is_named(store: Store, folder: str, left: set[int]) -> None:
    victim = min((store.path / folder).iterdir())
    victim.write_bytes(victim.read_bytes()[:-9] + b'x' * 9)
    lenient = read_store(store.path, skip_damaged=True)
    assert {e.seed for e in lenient.episodes()} == left
    assert {e.seed for e, _ in lenient.trajectories()} == {2}
    assert [f.path for f in lenient.missing()] == [victim]
    done = repair_store(store.path, by='ana', why='disk error')
    assert list(done.lost) == [f'{folder}/{victim.name}']
    assert {e.seed for e in store.episodes()} == left
    assert {e.seed for e, _ in store.trajectories()} == {2}
    assert [(f.kind, f.path) for f in store.missing()] == [(FindingKind.LOST, victim)]
    assert verify_store(store.path).is_clean
    assert repair_store(store.path, by='ana', why='again').is_empty


def test_a_merge_with_a_sound_copy_brings_back_what_a_repair_set_aside(store: Store, tmp_path: Path) -> None:
    backup = Path(shutil.copytree(store.path, tmp_path / 'backup'))
    expected = list(store.episodes())
    for folder in ('episodes', 'trajectories'):
        min((store.path / folder).iterdir()).write_bytes(b'')
    repair_store(store.path, by='ana', why='disk error')
    assert len(list(store.episodes())) == 2
    merge_stores(store.path, backup)
    assert list(store.episodes()) == expected
    assert store.missing() == ()
    assert verify_store(store.path).is_clean
    damaged = Store.open(backup)
    merge_stores(backup, store.path)
    assert list(damaged.episodes()) == expected, 'a loss that is known elsewhere hides nothing here'


def test_a_damaged_entry_costs_only_itself_and_its_episodes_are_regained(store: Store) -> None:
    expected = list(store.episodes())
    names = sorted(p for p in (store.path / 'log').iterdir() if b'"kind":"append"' in p.read_bytes())
    names[0].write_bytes(names[0].read_bytes()[:-3])
    assert {f.kind for f in verify_store(store.path).findings if f.is_damage} >= {FindingKind.DAMAGED}
    log_module._logs.clear()  # as a new process would read it
    with pytest.raises(StoreError, match=names[0].name):
        list(store.episodes())
    assert [e.seed for e in read_store(store.path, skip_damaged=True).episodes()] == [2, 3]
    done = repair_store(store.path, by='ana', why='disk error')
    assert len(done.regained) == len(done.log_files) == len(done.entries) == 1
    assert list(store.episodes()) == expected
    left = [f for f in verify_store(store.path).findings if f.is_damage]
    assert [f.path.parent.name for f in left] == ['faults'], 'a text that only the lost entry vouched for'


def test_a_damaged_description_is_restored_from_the_log(store: Store) -> None:
    path = store.path / 'trial.json'
    whole = path.read_bytes()
    for content in (b'{', whole.replace(b'"t1"', b'"t2"')):
        path.write_bytes(content)
        assert repair_store(store.path, by='ana', why='editor').restored == ('trial.json',)
        assert path.read_bytes() == whole
        assert verify_store(store.path).is_clean


# --- writers side by side


def _edit_many(path: Path, number: int) -> None:
    store = Store.open(path)
    for i in range(5):
        store.edit(episode(0).episode_id, 'set', by=f'w{number}', why='x', field='items', value=5 + number)
        store.edit(
            episode(0).episode_id, 'set', by=f'w{number}', why='x', field='items_placed', value=1 + number % 2 + i % 4
        )


def test_concurrent_edits_leave_a_readable_store_with_all_of_them(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([episode(0, items=20)])
    context = multiprocessing.get_context('fork')
    writers = [context.Process(target=_edit_many, args=(store.path, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=PATIENCE_S)
        assert writer.exitcode == 0
    assert len(store.edits().by_episode[episode(0).episode_id]) == 40
    assert next(store.episodes()).items in range(5, 9)
    assert verify_store(store.path).findings == (), 'each was checked against all before it'
    store.log_look('score')
    assert '+' not in store.head(), 'the next entry joins all heads'


RACES = 12


def _append_each(store: Store, seed: int, number: int) -> None:
    store.append([episode(seed, reason=f'of writer {number}')])


def _import_each(store: Store, seed: int, number: int) -> None:
    batch = [episode(seed, reason=f'of writer {number}'), episode(1000 * number + seed + 100)]
    addition = Addition(store)
    try:
        addition.finish([episodes_to_arrow(batch)], events_to_arrow(batch))
    except BaseException:
        addition.discard()
        raise


def _append_or_close(store: Store, seed: int, number: int) -> None:
    trial = f'trial-{seed}'
    if number:
        store.append([episode(seed, trial_id=trial)])
    else:
        write_unblinding(store.path, Unblinding(trial_id=trial, by='kim', at='now', policies={'p': 'pi05'}))


def _close_each(store: Store, seed: int, number: int) -> None:
    write_unblinding(
        store.path, Unblinding(trial_id=f'trial-{seed}', by=f'w{number}', at='now', policies={'p': 'pi05'})
    )


def _in_turns(work: Callable[..., None], path: Path, number: int, barrier: Any, results: Any) -> None:
    store, refusals = Store.open(path), []
    for seed in range(RACES):
        barrier.wait(PATIENCE_S)
        try:
            work(store, seed, number)
        except StoreError as error:
            refusals.append(str(error))
    results.put(refusals)


def side_by_side(work: Callable[..., None], path: Path) -> list[str]:
    """The refusals of two processes that do the same work at the same moments."""
    context = multiprocessing.get_context('fork')
    barrier, results = context.Barrier(2), context.Queue()
    writers = [context.Process(target=_in_turns, args=(work, path, n, barrier, results)) for n in range(2)]
    for writer in writers:
        writer.start()
    refusals = [refusal for _ in writers for refusal in results.get(timeout=PATIENCE_S)]
    for writer in writers:
        writer.join(timeout=PATIENCE_S)
        assert writer.exitcode == 0
    return refusals


@pytest.mark.parametrize('work', [_append_each, _import_each])
def test_of_two_processes_that_add_one_attempt_at_the_same_moment_one_is_refused(
    tmp_path: Path, work: Callable[..., None]
) -> None:
    store = Store.create(tmp_path / 's')
    refusals = side_by_side(work, store.path)
    assert len(refusals) == RACES
    assert all('is there already' in refusal and 'nothing was added' in refusal for refusal in refusals)
    seeds = [e.seed for e in store.episodes(attempts='all')]
    assert sorted(seed for seed in seeds if seed < 100) == list(range(RACES))
    assert len(seeds) == RACES * (2 if work is _import_each else 1)
    assert not [f for f in verify_store(store.path).findings if f.is_damage]


def test_no_episode_slips_in_while_its_trial_is_being_closed(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    refusals = side_by_side(_append_or_close, store.path)
    assert all('was closed by kim' in refusal for refusal in refusals)
    log, entries = log_module.read_log(store.path), store.ledger().entries
    closed = {e.body['unblinding']['trial_id']: log.ancestors(name) for name, e in entries if e.kind == 'close'}
    assert len(closed) == RACES
    trials = {part.path.name: {e.trial_id for e in store.recorded(part)} for part in store.parts()}
    parts = [(name, part['name']) for name, e in entries for part in e.body.get('parts', ())]
    assert len(parts) == RACES - len(refusals)
    for name, part in parts:
        assert all(name in closed[trial] for trial in trials[part]), 'an episode after the closing of its trial'


def test_a_trial_is_closed_once_by_two_who_do_it_at_the_same_moment(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    refusals = side_by_side(_close_each, store.path)
    assert len(refusals) == RACES
    assert all('it closes once' in refusal for refusal in refusals)
    assert len(store.ledger().closings) == RACES


def test_the_later_of_two_conflicting_edits_wins_whoever_merges_whom(tmp_path: Path) -> None:
    one, two = Store.create(tmp_path / '1'), Store.create(tmp_path / '2')
    for made in (one, two):
        made.append([episode(0)])
    one.edit(episode(0).episode_id, 'set', by='a', why='x', field='reason', value='first')
    two.edit(episode(0).episode_id, 'set', by='b', why='x', field='reason', value='second')
    copy = Path(shutil.copytree(two.path, tmp_path / 'copy'))
    merge_stores(two.path, one.path)
    merge_stores(one.path, copy)
    assert next(one.episodes()).reason == next(two.episodes()).reason == 'second'
    assert merge_stores(one.path, two.path).edits_added == 0
    assert [e.why for e in one.edits().by_episode[episode(0).episode_id]] == ['x', 'x']


@pytest.mark.parametrize(('operation', 'field', 'value'), [('drop', '', None), ('set', 'outcome', 'invalid')])
def test_an_edit_is_about_one_attempt_and_a_rerun_counts(
    tmp_path: Path, operation: str, field: str, value: object
) -> None:
    store = Store.create(tmp_path / 's')
    store.append([episode(0)])
    edit = store.edit(episode(0).episode_id, operation, by='a', why='x', field=field, value=value)
    assert edit.attempt == 0
    store.append([episode(0, attempt=1, outcome=Outcome.TIMEOUT)])
    assert [(e.attempt, e.outcome) for e in store.episodes()] == [(1, Outcome.TIMEOUT)]
    with pytest.raises(InputError, match='attempt 7'):
        store.edit(episode(0).episode_id, 'drop', by='a', why='x', attempt=7)


def test_undrop_takes_back_the_last_drop(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([episode(0)])
    store.edit(episode(0).episode_id, 'drop', by='a', why='x')
    store.append([episode(0, attempt=1)])
    assert store.edit(episode(0).episode_id, 'undrop', by='a', why='x').attempt == 0
    assert [e.attempt for e in store.episodes()] == [0]


# --- packs, looks, older stores


def test_compaction_packs_the_log_and_keeps_every_entry(store: Store) -> None:
    entries, head = dict(store.ledger().entries), store.head()
    compact_store(store.path, stale_after_s=0)
    after = dict(store.ledger().entries)
    assert entries.items() <= after.items()
    assert len(list((store.path / 'log').iterdir())) == 1
    assert verify_store(store.path, head=head).is_clean
    assert len(list(store.episodes())) == 4


def test_looks_are_counted_and_a_store_that_can_not_be_written_to_still_answers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [(look.verb, look.by, look.options, look.seen) for look in store.looks()] == [
        ('score', 'ana', {'where': 'all'}, '4 episodes')
    ]

    def refuse(*arguments: object) -> int:
        raise OSError(30, 'Read-only file system')

    monkeypatch.setattr('robotrials.record.folder.Disk.create', refuse)
    assert not store.log_look('score', by='ana')
    assert len(store.looks()) == 1
    assert len(list(store.episodes())) == 4


def as_older_version(store: Store) -> None:
    """What the version before the log would have left: no log, no mark of it, edits in a file."""
    import json

    shutil.rmtree(store.path / 'log')
    path = store.path / 'trial.json'
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != 'is_logged'}))
    line = {'episode_id': episode(0).episode_id, 'operation': 'drop', 'by': 'a', 'why': 'x', 'at': 'then'}
    (store.path / 'edits.jsonl').write_text(json.dumps(line) + '\nnot json\n')


def test_a_store_of_an_older_version_opens_and_can_be_adopted(store: Store, tmp_path: Path) -> None:
    as_older_version(store)
    old = Store.open(store.path)
    assert [e.seed for e in old.episodes()] == [1, 2, 3]
    kinds = [f.kind for f in verify_store(old.path).findings]
    assert FindingKind.UNLOGGED in kinds
    assert FindingKind.EDIT in kinds
    assert not old.log_look('score')
    with pytest.raises(StoreError, match='store adopt'):
        old.append([episode(9)])
    everything = Store.create(tmp_path / 'all')
    merge_stores(everything.path, old.path)
    adopt_store(old.path, by='ana', why='upgrade')
    assert merge_stores(everything.path, old.path).edits_added == 0
    for made in (old, everything):
        assert [e.seed for e in made.episodes()] == [1, 2, 3]
        assert [e.attempt for e in made.edits().by_episode[episode(0).episode_id]] == [0]
        assert verify_store(made.path).is_clean, verify_store(made.path).findings
    old.append([episode(0, attempt=1)])
    assert {e.seed for e in old.episodes()} == {0, 1, 2, 3}, 'an old drop does not reach attempts that came later'
    with pytest.raises(StoreError, match='has a commit log already'):
        adopt_store(old.path)


def test_a_forked_child_keeps_no_lock(tmp_path: Path) -> None:
    from robotrials.record.folder import held_lock

    store = Store.create(tmp_path / 's')
    with held_lock(store.path, '.run.lock', busy='busy'):
        ready, done = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready[1], b'x')
            os.read(done[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
    with held_lock(store.path, '.run.lock', busy='busy'):
        os.write(done[1], b'x')
    os.waitpid(child, 0)


def test_a_compaction_beside_a_writer_takes_nothing_from_it(tmp_path: Path) -> None:
    """A sweep used to remove what a live writer had not yet committed."""
    from robotrials.record.log import commit
    from robotrials.record.part import EntryKind
    from robotrials.record.rows import episodes_to_arrow, events_to_arrow
    from robotrials.record.store import write_episodes

    store = Store.create(tmp_path / 's')
    for seed in range(3):
        store.append([episode(seed)])
    with commit(store.path) as under_way:
        batch = [episode(7)]
        under_way.announce(['media/a.mp4'])
        under_way.add_file('media/a.mp4', b'film')
        part = write_episodes(store.path, under_way, episodes_to_arrow(batch), events_to_arrow(batch))
        compact_store(store.path, stale_after_s=0)
        assert part.path.exists()
        under_way.finish(EntryKind.APPEND, {'parts': [part.as_json()]})
    assert {e.seed for e in store.episodes()} == {0, 1, 2, 7}
    assert [f for f in verify_store(store.path).findings if f.is_damage] == []
    compact_store(store.path, stale_after_s=0)
    assert verify_store(store.path).findings == ()


def test_small_commits_are_joined_on_append_and_noted_heads_still_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers in this process and others see every episode at every step; a lone writer sums the log once."""
    monkeypatch.setattr('robotrials.record.store.TIDY_EVERY', 8)
    monkeypatch.setattr('robotrials.record.maintain.PILE', 4)
    summed = []
    whole = ledger_module._summed
    monkeypatch.setattr(ledger_module, '_summed', lambda *given: summed.append(1) or whole(*given))
    made, heads = Store.create(tmp_path / 's'), []
    for seed in range(60):
        made.append([episode(seed)])
        heads.append(made.head())
        assert made.ledger() is made.ledger()
        fresh = ledger_module.read_ledger(made.path, fresh=True)
        assert (fresh.parts, dict(fresh.files), fresh.entries) == (
            made.ledger().parts, dict(made.ledger().files), made.ledger().entries,
        )  # fmt: skip
        assert sorted(e.seed or 0 for e in made.episodes()) == list(range(seed + 1))
    assert len(made.parts()) < 16
    assert len(summed) < 60 + 60 / 2  # one for each fresh reading above, and one for each joining
    assert any(name.endswith('.pack') for name in os.listdir(made.path / 'log'))
    for head in heads:
        assert verify_store(made.path, head=head).is_clean
    assert len(list(made.episodes())) == 60
    assert compact_store(made.path, stale_after_s=0).parts_after == 1
    assert verify_store(made.path, head=heads[0]).findings == ()


def test_a_joining_that_fails_leaves_the_append_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('robotrials.record.store.TIDY_EVERY', 1)
    monkeypatch.setattr('robotrials.record.maintain.PILE', 1)

    def full(*_: object, **__: object) -> None:
        raise StoreError('the disk is full')

    monkeypatch.setattr('robotrials.record.maintain._rewrite', full)
    made = Store.create(store.path.parent / 'other')
    made.append([episode(1)])
    made.append([episode(2)])
    assert len(list(made.episodes())) == 2
    assert verify_store(made.path).findings == ()
