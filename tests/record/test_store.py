"""What goes into a store comes out of it, once, whoever writes and however it is read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.command import robotrials

from robotrials.errors import InputError, StoreError, UnknownName
from robotrials.record import (
    Episode,
    Event,
    Outcome,
    PolicyCard,
    Provenance,
    Store,
    Trajectory,
    Unblinding,
    collect_provenance,
    read_store,
    trajectories_equal,
)
from robotrials.record import store as store_module
from robotrials.record.blinding import write_unblinding
from robotrials.record.column import trajectories_from_arrow, trajectories_to_arrow
from robotrials.record.log import FindingKind
from robotrials.record.maintain import compact_store, merge_stores
from robotrials.record.verify import verify_store
from robotrials.testing import strategies


def episode(seed: int = 0, **changes: object) -> Episode:
    values = {'policy': 'act', 'task': 'pick', 'outcome': Outcome.SUCCESS, 'duration_s': 10.0, 'seed': seed, **changes}
    return Episode(**values)  # type: ignore[arg-type]


def trajectory(steps: int = 5, *, seed: int = 0, joints: int = 7) -> Trajectory:
    rng = np.random.default_rng(seed)
    return Trajectory(time_s=np.arange(steps) * 0.05, joint_position_rad=rng.normal(size=(steps, joints)))


@settings(max_examples=60)
@given(
    batch=st.lists(strategies.episodes(), min_size=1, max_size=5, unique_by=lambda e: e.key),
    drawn=strategies.trajectories(),
)
def test_any_batch_comes_back_equal(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Episode], drawn: Trajectory
) -> None:
    store = Store.create(tmp_path_factory.mktemp('store') / 's')
    store.append(batch, trajectories={batch[0].key: drawn})
    assert list(store.episodes(attempts='all')) == batch
    found = store.trajectory(batch[0])
    assert found is not None
    assert trajectories_equal(found, drawn)
    if len(batch) > 1:
        assert store.trajectory(batch[1]) is None
    assert verify_store(store.path).findings == ()


@settings(max_examples=40)
@given(drawn=st.lists(strategies.trajectories(), min_size=2, max_size=4))
def test_trajectories_of_different_robots_share_parts_and_survive_compaction(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Trajectory]
) -> None:
    store = Store.create(tmp_path_factory.mktemp('store') / 's')
    batch = [episode(i) for i in range(len(drawn))]
    for one, its in zip(batch, drawn, strict=True):
        store.append([one], trajectories={one.key: its})
    compact_store(store.path, stale_after_s=0)
    assert len(store.parts()) == 1
    back = {e.seed: t for e, t in store.trajectories()}
    for number, its in enumerate(drawn):
        assert trajectories_equal(back[number], its)
    assert verify_store(store.path).findings == ()


def test_of_several_attempts_the_first_valid_one_counts(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([episode(1, outcome=Outcome.INVALID, reason='camera')])
    assert [e.outcome for e in store.episodes()] == [Outcome.INVALID]
    store.append([episode(1, attempt=1, outcome=Outcome.TIMEOUT)])
    assert [(e.attempt, e.outcome) for e in store.episodes()] == [(1, Outcome.TIMEOUT)]
    assert verify_store(store.path).is_clean
    store.append([episode(1, attempt=2, outcome=Outcome.SUCCESS)])
    assert [(e.attempt, e.outcome) for e in store.episodes()] == [(1, Outcome.TIMEOUT)], (
        'a luckier rerun must not count'
    )
    (finding,) = verify_store(store.path).findings
    assert finding.kind is FindingKind.CLASH
    assert 'valid attempts 1, 2; only attempt 1 counts' in finding.detail
    store.edit(
        episode(1).episode_id, 'set', by='ana', why='operator leaned in', attempt=1, field='outcome', value='invalid'
    )
    assert [(e.attempt, e.outcome) for e in store.episodes()] == [(2, Outcome.SUCCESS)]
    assert verify_store(store.path).is_clean
    assert len(list(store.episodes(attempts='all'))) == 3


def test_the_same_attempt_of_two_writers_counts_once(tmp_path: Path) -> None:
    store, copy = Store.create(tmp_path / 's'), Store.create(tmp_path / 'copy')
    store.append([episode(1), episode(2)])
    copy.append([episode(2), episode(3)])
    merge_stores(store.path, copy.path)
    assert [e.seed for e in store.episodes()] == [1, 2, 3]
    assert verify_store(store.path).is_clean


def test_one_batch_refuses_a_key_twice_and_a_trajectory_of_nobody(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    with pytest.raises(InputError, match='twice in one batch'):
        store.append([episode(1), episode(1)])
    with pytest.raises(InputError, match='none of the 1 episodes'):
        store.append([episode(1)], trajectories={('x', 0): trajectory()})
    with pytest.raises(InputError, match='no episodes'):
        store.append([])
    assert store.count() == 0


def test_filters_are_pushed_down_and_see_edits(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([episode(i, policy='ab'[i % 2], stratum=f's{i % 3}') for i in range(12)])
    assert {e.seed for e in store.episodes(where={'policy': 'b', 'stratum': ['s0', 's1']})} == {1, 3, 7, 9}
    assert {e.seed for e in store.episodes(where={'seed': [1, None]})} == {1}
    edited = episode(0, policy='a', stratum='s0')
    store.edit(edited.episode_id, 'set', by='ana', why='mislabelled', field='stratum', value='s2')
    assert 0 in {e.seed for e in store.episodes(where={'stratum': 's2'})}
    assert 0 not in {e.seed for e in store.episodes(where={'stratum': 's0'})}
    with pytest.raises(UnknownName, match="did you mean 'policy'"):
        next(store.episodes(where={'polcy': 'a'}))


def test_edits_are_checked_kept_and_taken_back(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([episode(1), episode(2)])
    one = episode(1).episode_id
    store.edit(one, 'drop', by='ana', why='lights went out')
    assert [e.seed for e in store.episodes()] == [2]
    assert [e.seed for e in store.episodes(dropped=True)] == [1, 2]
    store.edit(one, 'undrop', by='ana', why='they had not')
    assert [e.seed for e in store.episodes()] == [1, 2]
    store.edit(one, 'set', by='ana', why='typo', field='reason', value='')
    logged = store.edits().by_episode[one]
    assert [edit.operation for edit in logged] == ['drop', 'undrop', 'set']
    assert {(edit.by, edit.attempt) for edit in logged} == {('ana', 0)}
    bad = {
        'duration_s': (-1.0, 'duration_s is -1.0'), 'episode_id': ('x', 'identity'), 'durations': (1, "'duration_s'"),
        'labels': ('left', 'labels'), 'outcome': ('won', 'wanted one of'),
    }  # fmt: skip
    for field, (value, message) in bad.items():
        with pytest.raises(InputError, match=message):
            store.edit(one, 'set', by='ana', why='x', field=field, value=value)
    with pytest.raises(InputError, match='who and why'):
        store.edit(one, 'drop', by='', why='x')
    with pytest.raises(InputError, match='no episode feed'):
        store.edit('feed', 'drop', by='ana', why='x')
    assert len(store.edits().by_episode[one]) == 3


@pytest.mark.parametrize('n_chunks', [1, 2])
def test_a_slice_of_stored_trajectories_has_its_own_rows_alone(n_chunks: int) -> None:
    paths = [trajectory(3 + n, seed=n) for n in range(4)]
    table = trajectories_to_arrow([(str(n), 0) for n in range(4)], paths)
    whole = pa.concat_tables([table.slice(0, 2), table.slice(2)]) if n_chunks == 2 else table
    back = dict(trajectories_from_arrow(whole.slice(1, 3)))
    assert list(back) == [('1', 0), ('2', 0), ('3', 0)]
    assert all(trajectories_equal(path, paths[int(name)]) for (name, _), path in back.items())


def test_trajectories_are_read_in_part(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    rng = np.random.default_rng(0)
    full = Trajectory(
        time_s=np.arange(4.0), ee_pose=rng.normal(size=(4, 7)), reward=rng.normal(size=4),
        bodies=('cup', 'cup2'), body_pose=rng.normal(size=(4, 2, 7)),
    )  # fmt: skip
    store.append([episode(1)], trajectories={episode(1).key: full})
    part = store.trajectory(episode(1), signals=['reward', 'body_pose/cup'])
    assert part is not None
    assert part.ee_pose is None
    assert part.bodies == ('cup',)
    np.testing.assert_array_equal(part.body('cup'), full.body('cup'))
    ((_, streamed),) = store.trajectories(signals=['ee_pose'])
    assert streamed.reward is None
    assert streamed.body_pose is None


def test_merging_is_idempotent_and_brings_everything(tmp_path: Path) -> None:
    one, two = Store.create(tmp_path / 'one'), Store.create(tmp_path / 'two')
    one.append([episode(i) for i in range(3)])
    provenance = two.write_provenance(Provenance(cpu='x', policy_cards=(PolicyCard(policy='act', chunk_length=100),)))
    two.append(
        [episode(2), episode(3, provenance_id=provenance, events=(Event(1.0, 'placement'),))],
        trajectories={episode(3).key: trajectory()},
    )
    two.add_media('a/wrist.mp4', b'film')
    two.edit(episode(2).episode_id, 'drop', by='ana', why='x')
    first = merge_stores(one.path, two.path)
    assert (first.added, first.already_there, first.edits_added) == (1, 1, 1)
    again = merge_stores(one.path, two.path)
    assert (again.added, again.already_there, again.edits_added) == (0, 2, 0)
    assert [e.seed for e in one.episodes()] == [0, 1, 3]
    moved = list(one.episodes())[-1]
    assert moved.events
    assert one.trajectory(moved) is not None
    assert one.provenance(provenance).policy_cards[0].chunk_length == 100
    assert (one.path / 'media' / 'a' / 'wrist.mp4').read_bytes() == b'film'
    assert verify_store(one.path).findings == ()
    with pytest.raises(StoreError, match='itself'):
        merge_stores(one.path, one.path)


def test_two_stores_with_clashing_ids_are_named_and_nothing_is_merged(tmp_path: Path) -> None:
    one, two = Store.create(tmp_path / 'one'), Store.create(tmp_path / 'two')
    one.append([episode(1), episode(2)])
    two.append([episode(2, duration_s=11.0), episode(3)])
    with pytest.raises(
        StoreError, match=f'episode {episode(2).episode_id} attempt 0 stands in .*one and.*nothing was merged'
    ):
        merge_stores(one.path, two.path)
    assert [e.seed for e in one.episodes()] == [1, 2]
    assert verify_store(one.path).is_clean


def test_compaction_changes_nothing_but_the_number_of_files(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    for i in range(30):
        one = episode(i, events=(Event(1.0, 'placement'),), outcome=Outcome.INVALID if i == 3 else Outcome.SUCCESS)
        store.append([one], trajectories={one.key: trajectory(3 + i, seed=i, joints=6 + i % 2)})
    store.append([episode(3, attempt=1)])
    store.edit(episode(4).episode_id, 'drop', by='ana', why='x')
    before = list(store.episodes(attempts='all', dropped=True))
    paths = {e.key: t for e, t in store.trajectories()}
    done = compact_store(store.path, rows_a_part=20, stale_after_s=0)
    assert (done.parts_before, done.parts_after) == (31, 2)
    assert list(store.episodes(attempts='all', dropped=True)) == before
    after = {e.key: t for e, t in store.trajectories()}
    assert after.keys() == paths.keys()
    assert all(trajectories_equal(after[k], paths[k]) for k in paths)
    assert verify_store(store.path).findings == ()
    assert compact_store(store.path, rows_a_part=20).parts_after == 2


def test_a_compaction_that_was_killed_before_it_removed_the_old_parts_counts_nothing_twice(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    for i in range(4):
        store.append([episode(i, events=(Event(1.0, 'placement'),))])
    kept = {p: p.read_bytes() for folder in ('episodes', 'events') for p in (store.path / folder).iterdir()}
    compact_store(store.path)
    for path, content in kept.items():
        path.write_bytes(content)
    assert [e.seed for e in store.episodes()] == [0, 1, 2, 3]
    verification = verify_store(store.path)
    assert verification.is_clean
    assert {f.kind for f in verification.findings} == {FindingKind.LEFTOVER}
    compact_store(store.path, stale_after_s=0)
    assert verify_store(store.path).findings == ()
    assert [e.seed for e in store.episodes()] == [0, 1, 2, 3]


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='no such folder'):
        read_store(tmp_path / 'nothing')
    with pytest.raises(StoreError, match=r'no trial\.json.*`robotrials import` makes one'):
        read_store(tmp_path)
    (tmp_path / 'thesis.docx').write_text('x')
    with pytest.raises(
        StoreError, match=r'thesis\.docx: a file; wanted the folder of a store; robotrials import .*docx --to'
    ):
        read_store(tmp_path / 'thesis.docx')
    with pytest.raises(StoreError, match='not empty and not a store'):
        Store.create(tmp_path)


def test_a_folder_beside_or_above_a_store_is_told_where_it_is(tmp_path: Path) -> None:
    Store.create(tmp_path / 'may')
    with pytest.raises(StoreError, match=r"no such folder; wanted a store; did you mean '.*/may'"):
        read_store(tmp_path / 'mai')
    with pytest.raises(StoreError, match=r'not a store; stores in it: .*/may$'):
        read_store(tmp_path)
    Store.create(tmp_path / 's', trial_id='a')
    with pytest.raises(StoreError, match="another trial \\('a'\\)"):
        Store.create(tmp_path / 's', trial_id='b')


def test_provenance_is_collected_kept_once_and_says_what_is_missing(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    seen = collect_provenance()
    assert seen.cpu
    assert seen.packages['numpy'] == np.__version__
    assert 'checkpoint' in seen.missing()
    assert 'checkpoint' not in dataclasses.replace(seen, checkpoint='pi05').missing()
    identity = store.write_provenance(seen)
    assert store.write_provenance(seen) == identity
    assert store.provenance(identity) == seen
    with pytest.raises(StoreError, match='missing'):
        store.provenance('feed')


def test_a_creation_that_was_killed_half_way_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / 's' / 'episodes').mkdir(parents=True)
    (tmp_path / 's' / '.trial.json.0123').write_text('{')
    assert Store.create(tmp_path / 's', trial_id='t').trial.trial_id == 't'


def test_an_attempt_that_is_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    episode = Episode(policy='p', task='t', outcome='success', duration_s=1.0, seed=1)
    store.append([episode])
    head = store.head()
    for again in (episode, episode.replace(outcome='failure')):
        with pytest.raises(StoreError, match=f'episode {episode.episode_id} attempt 0 is there already'):
            store.append([Episode(policy='p', task='t', outcome='success', duration_s=1.0, seed=2), again])
    assert (store.head(), store.count()) == (head, 1)
    assert verify_store(store.path).is_clean
    store.append([episode.replace(attempt=1, outcome='invalid')])
    assert store.count() == 2


def test_no_episode_is_added_to_a_closed_trial(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's', trial_id='may')
    store.append([Episode(trial_id='may', policy='A', task='t', outcome='success', duration_s=1.0, seed=1)])
    write_unblinding(store.path, Unblinding(trial_id='may', by='ana', at='2026-01-01', policies={'A': 'pi'}))
    head = store.head()
    for trial_id in ('may', ''):
        late = Episode(trial_id=trial_id, policy='A', task='t', outcome='success', duration_s=1.0, seed=2)
        with pytest.raises(StoreError, match='trial may was closed by ana at 2026-01-01, so no episode was added'):
            store.append([late])
    assert (store.head(), store.count()) == (head, 1)
    (tmp_path / 't.csv').write_text('policy,task,success,time\na,t,1,3\n')
    told = robotrials('import', tmp_path / 't.csv', '--to', store.path, code=2)
    assert 'was closed by ana' in told
    assert store.count() == 1


def test_reading_writes_nothing_and_a_verb_leaves_no_manner_of_reading_behind(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's', trial_id='t', plan='{"blinding": {"enabled": true}}')
    store.append([Episode(trial_id='t', policy='A', task='t', outcome='success', duration_s=1.0, seed=1)])
    before = {p: p.read_bytes() for p in store.path.rglob('*') if p.is_file()}
    store_module.read_as(board='dr-lee')
    try:
        assert read_store(store.path).board == 'dr-lee'
    finally:
        store_module.read_as()
    assert {p: p.read_bytes() for p in store.path.rglob('*') if p.is_file()} == before
    robotrials('--board', 'dr-lee', 'store', 'ls', store.path)
    assert [(look.by, look.role) for look in store.looks()] == [('dr-lee', 'board')]
    assert read_store(store.path).board == ''
