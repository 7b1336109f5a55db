"""Stores on object storage: create-only puts on a real S3 server, checked copies, and no more read than is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.run.plans import content, make_plan
from tests.s3_server import BUCKET, S3Server, s3_server

from robotrials.errors import StoreError, WriteError
from robotrials.record import Episode, Event, Outcome, Store, Trajectory, read_store, trajectories_equal
from robotrials.record.bucket import Bucket, CachedPath, forget_copies, open_bucket
from robotrials.record.folder import Folder, held_lease, held_lock, store_root
from robotrials.record.maintain import compact_store, merge_stores
from robotrials.record.verify import repair_store, verify_store
from robotrials.run import run_trial


@pytest.fixture(scope='module')
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        yield started


@pytest.fixture
def place(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store that is not there yet; copies go into the test's own folder."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv('ROBOTRIALS_CACHE', str(tmp_path / 'cache'))
    open_bucket.cache_clear()
    return f's3://{BUCKET}/{tmp_path.name}/store'


def episode(seed: int, **changes: object) -> Episode:
    values: dict[str, object] = {
        'policy': 'p', 'task': 't', 'outcome': Outcome.SUCCESS, 'duration_s': 3.0, 'seed': seed,
        'events': (Event(1.0, 'placement'),), **changes,
    }  # fmt: skip
    return Episode(**values)  # type: ignore[arg-type]


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """From now on as on another machine, which has no copies."""
    monkeypatch.setenv('ROBOTRIALS_CACHE', str(tmp_path / name))


def test_two_writers_of_one_key_have_one_winner(place: str, server: S3Server) -> None:
    folder = Folder(store_root(place))
    won: list[int] = []

    def write(number: int) -> None:
        if folder.create('log/contested', b'%d' % number):
            won.append(number)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    root = store_root(place)
    assert isinstance(root, CachedPath)
    assert bytes(root.bucket.read(f'{root.key}/log/contested')) == b'%d' % won[0]
    assert sum(m == 'PUT' and 'contested' in p and s == 412 for m, p, s in server.requests) == 7


def test_storage_that_ignores_create_only_puts_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    real = obstore.put

    def careless(*args: object, mode: str | None = None, **kwargs: object) -> object:
        return real(*args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(obstore, 'put', careless)
    with pytest.raises(StoreError, match='ignores create-only puts'):
        Store.create(place)


def test_what_is_written_on_one_machine_is_read_on_another(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Store.create(place, trial_id='t1', title='far away')
    batch = [episode(0), episode(1)]
    steps = Trajectory(time_s=np.arange(9.0), joint_position_rad=np.random.default_rng(0).normal(size=(9, 7)))
    made.append(batch, trajectories={batch[0].key: steps}, media={'a/wrist.mp4': b'film'})
    elsewhere(monkeypatch, tmp_path, 'other')
    opened = read_store(place)
    assert opened.trial.title == 'far away'
    assert sorted(opened.episodes(), key=lambda e: e.key) == sorted(batch, key=lambda e: e.key)
    assert trajectories_equal(opened.trajectory(batch[0]) or pytest.fail('no trajectory'), steps)
    assert (opened.path / 'media' / 'a/wrist.mp4').read_bytes() == b'film'
    opened.edit(batch[1].episode_id, 'set', by='ana', why='typo', field='reason', value='slipped')
    assert {e.reason for e in made.episodes()} == {'', 'slipped'}
    assert verify_store(place).findings == ()
    assert opened.head() == made.head()


def test_a_path_that_lost_a_slash_is_the_same_store(place: str) -> None:
    Store.create(place).append([episode(0)])
    assert read_store(Path(place)).count() == 1


def test_two_machines_that_append_at_once_lose_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.create(place)
    elsewhere(monkeypatch, tmp_path, 'other')
    there = Store.open(place)
    assert here.path != there.path

    def write(store: Store, first: int) -> None:
        for seed in range(first, first + 4):
            store.append([episode(seed)])

    threads = [threading.Thread(target=write, args=pair) for pair in ((here, 0), (there, 100))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {e.seed for e in here.episodes()} == {0, 1, 2, 3, 100, 101, 102, 103}
    assert verify_store(place).findings == ()


def test_a_writer_that_ends_before_its_entry_leaves_nothing_that_counts(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(place)
    store.append([episode(0)])
    real = Bucket.create

    def dying(self: Bucket, key: str, content: bytes | Path) -> bool:
        if '/log/' in key:
            raise WriteError('gone')
        return real(self, key, content)

    monkeypatch.setattr(Bucket, 'create', dying)
    with pytest.raises(WriteError):
        store.append([episode(1)])
    monkeypatch.setattr(Bucket, 'create', real)
    assert [e.seed for e in store.episodes()] == [0]
    verified = verify_store(place)
    assert {f.kind.value for f in verified.findings} == {'leftover'}
    store.append([episode(1)])
    assert {e.seed for e in store.episodes()} == {0, 1}


def test_a_filter_does_not_fetch_parts_that_cannot_match(
    place: str, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Store.create(place)
    for number, policy in enumerate('abcabc'):
        made.append([episode(number, policy=policy)])
    elsewhere(monkeypatch, tmp_path, 'other')
    opened = Store.open(place)
    server.requests.clear()
    assert {e.seed for e in opened.episodes(where={'policy': 'b'})} == {1, 4}
    assert server.got('/episodes/') == 2
    assert {e.seed for e in opened.episodes(where={'policy': ['b', 'c']})} == {1, 2, 4, 5}
    assert server.got('/episodes/') == 4
    assert len(list(opened.episodes())) == 6


def test_one_signal_of_a_large_part_is_read_by_ranges(
    place: str, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Store.create(place)
    rng = np.random.default_rng(0)
    batch = [episode(n) for n in range(40)]
    steps = {e.key: Trajectory(time_s=np.arange(2000.0), joint_position_rad=rng.normal(size=(2000, 12))) for e in batch}
    made.append(batch, trajectories=steps)
    elsewhere(monkeypatch, tmp_path, 'other')
    opened = Store.open(place)
    server.requests.clear()
    assert sum(len(t.time_s) for _, t in opened.trajectories(signals=['time_s'])) == 40 * 2000
    (whole,) = (opened.path.local / '.sparse').iterdir()  # type: ignore[attr-defined]
    assert whole.stat().st_blocks * 512 < whole.stat().st_size / 4
    path = whole
    content_before = path.read_bytes()
    path.write_bytes(bytes(len(content_before)))  # a copy that was damaged is fetched again
    assert all(trajectories_equal(t, steps[e.key]) for e, t in opened.trajectories())


def test_a_damaged_copy_is_fetched_again_and_a_damaged_object_is_refused(place: str) -> None:
    store = Store.create(place)
    store.append([episode(0)])
    root = store.path
    assert isinstance(root, CachedPath)
    (part,) = store.parts()
    local = Path(str(part.path))
    local.write_bytes(local.read_bytes()[:-1] + b'?')
    assert [e.seed for e in store.episodes()] == [0]
    name = f'episodes/{part.path.name}'
    root.bucket.write(f'{root.key}/{name}', bytes(root.bucket.read(f'{root.key}/{name}'))[:-1] + b'?')
    forget_copies(root)
    with pytest.raises(StoreError, match='damaged'):
        list(store.episodes())
    assert any(f.is_damage for f in verify_store(place).findings)


def test_another_store_at_the_same_address_is_not_mixed_with_old_copies(place: str) -> None:
    first = Store.create(place, title='first')
    first.append([episode(0)])
    root = first.path
    assert isinstance(root, CachedPath)
    for key in list(root.bucket.keys(root.key)):
        root.bucket.remove(key)
    second = Store.create(place, title='second')
    assert second.trial.title == 'second'
    assert list(second.episodes()) == []


def test_compacting_and_merging_work_across(place: str, tmp_path: Path) -> None:
    far = Store.create(place)
    for seed in range(5):
        far.append([episode(seed)])
    compact_store(place)
    assert len(far.parts()) == 1
    near = Store.create(tmp_path / 'near')
    near.append([episode(9)])
    merge_stores(near.path, place)
    assert {e.seed for e in near.episodes()} == {0, 1, 2, 3, 4, 9}
    merge_stores(place, near.path)
    assert {e.seed for e in far.episodes()} == {0, 1, 2, 3, 4, 9}
    assert verify_store(near.path).is_clean


def test_what_a_compaction_replaced_is_removed_once_its_readers_had_their_time(place: str) -> None:
    far = Store.create(place)
    root = far.path
    assert isinstance(root, CachedPath)
    for seed in range(4):
        made = episode(seed)
        far.append([made], trajectories={made.key: Trajectory(time_s=np.arange(3.0))})
    slow = Folder(root).create('episodes/part-0-of-a-slow-writer.parquet', b'not logged yet')
    before = content(place)

    def n_parts() -> list[int]:
        return [len(Folder(root).names(room)) for room in ('episodes', 'events', 'trajectories')]

    assert compact_store(place).leftovers_removed == 0
    assert n_parts() == [6, 5, 5]  # an hour for those who are reading
    assert compact_store(place, stale_after_s=-60.0).leftovers_removed == 12
    assert slow
    assert n_parts() == [2, 1, 1]  # what no entry names may be about to be named
    forget_copies(root)
    far_episodes, far_paths = content(place)
    assert far_episodes == before[0]
    assert all(trajectories_equal(far_paths[key], before[1][key]) for key in before[1])
    assert [f.path.name for f in verify_store(place).findings] == ['part-0-of-a-slow-writer.parquet']


def test_a_trial_runs_into_object_storage_and_is_the_same(place: str, tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=2)
    run_trial(plan, tmp_path / 'near', workers=0)
    assert run_trial(plan, place, workers=0, stop_after=1).n_run == 1
    done = run_trial(plan, place, workers=1)
    assert done.is_complete
    (far, far_paths), (near, near_paths) = content(place), content(tmp_path / 'near')
    assert far == near
    assert all(trajectories_equal(far_paths[key], near_paths[key]) for key in near_paths)
    assert verify_store(place).is_clean


def test_a_lease_excludes_other_machines_and_runs_out(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = store_root(place)
    elsewhere(monkeypatch, tmp_path, 'other')
    there = store_root(place)
    assert isinstance(there, CachedPath)
    with held_lock(here, '.run.lock', shared=True, busy='busy'):
        with held_lock(there, '.run.lock', shared=True, busy='busy'):
            pass
        with pytest.raises(StoreError, match='busy'), held_lock(there, '.run.lock', busy='busy'):
            pass
    with held_lock(there, '.run.lock', busy='busy'):
        pass
    there.bucket.write(f'{there.key}/.leases/.run.lock/alone-dead', b'{"until": 5.0}')
    with held_lease(there, '.run.lock', shared=False, wait_s=0.0, busy='busy'):
        pass


def test_a_bucket_that_is_not_there_and_a_bare_bucket_are_said(place: str) -> None:
    with pytest.raises(StoreError, match=r's3:.*no such folder'):
        Store.open(place)
    with pytest.raises(StoreError, match='wanted a place inside the bucket'):
        Store.open(f's3://{BUCKET}')
    with pytest.raises((StoreError, WriteError), match='s3://nowhere'):
        Store.create('s3://nowhere/at/all')


@pytest.mark.scale
def test_a_damaged_store_is_repaired_by_way_of_a_folder(place: str, tmp_path: Path) -> None:
    """As the error says: copied as it is, repaired, merged into a new address. There the trial goes on, blinded."""
    plan = make_plan(episodes_per_cell=2)
    run_trial(plan, place, workers=0)
    store = Store.open(place)
    root, before = store.path, {e.key: e for e in store.episodes()}
    assert isinstance(root, CachedPath)
    name = f'{root.key}/episodes/{store.parts()[1].path.name}'
    root.bucket.write(name, b'?' + bytes(root.bucket.read(name))[1:])
    forget_copies(root)
    with pytest.raises(StoreError, match='bring it to a new address with: robotrials store merge'):
        repair_store(place, by='kim', why='a flipped byte')
    copy = tmp_path / 'copy'
    for key in root.bucket.keys(root.key):
        target = copy / key.removeprefix(f'{root.key}/')
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(root.bucket.read(key)))
    done = repair_store(copy, by='kim', why='a flipped byte')
    assert [Path(lost).name for lost in done.lost] == [Path(name).name]
    assert verify_store(copy).is_clean
    new = f'{place}-2'
    robotrials('store', 'merge', new, copy)
    assert verify_store(new).is_clean
    moved = read_store(new)
    assert [Path(f.path).name for f in moved.missing()] == [Path(name).name]
    assert moved.is_blinded
    assert (moved.trial.plan_hash, moved.trial.plan) == (store.trial.plan_hash, store.trial.plan)
    kept = {e.key: e for e in Store.open(new).episodes()}
    assert len(kept) == len(before) - 1
    assert all(before[key] == episode for key, episode in kept.items())
    run_trial(plan, new, workers=0)
    assert {e.key for e in Store.open(new).episodes()} == before.keys()


def test_storage_that_does_not_answer_is_told_with_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise OSError('no answer')

    monkeypatch.setattr('obstore.get', silent)
    monkeypatch.setenv('AWS_ENDPOINT_URL', 'http://nowhere:9000')
    wanted = (
        r'^s3://lab/may: cannot be read \(no answer\); is the server there \(AWS_ENDPOINT_URL=http://nowhere:9000\)'
    )
    with pytest.raises(StoreError, match=wanted):
        Bucket(None, 's3://lab').read('may')


def test_an_address_of_another_kind_is_no_folder(tmp_path: Path) -> None:
    for text in ('ftp://lab/may', 'http://lab/may', Path('ftp://lab/may')):
        with pytest.raises(StoreError, match='wanted a folder, or an address that begins with s3:// or gs://'):
            store_root(text)
    (tmp_path / 'a:').mkdir()
    monday = tmp_path / 'a:' / 'monday'
    assert store_root(monday) == monday
