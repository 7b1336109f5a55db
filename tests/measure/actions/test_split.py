from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tests.formats.build import make_lerobot, make_rlds

from robotrials.errors import InputError, UnknownName
from robotrials.formats.dataset import open_dataset
from robotrials.measure.actions.split import (
    DatasetDescription,
    action_statistics,
    check_no_leak,
    curate,
    find_dataset,
    load_datasets,
    make_split,
    read_descriptions,
    read_split,
    write_split,
)


def test_the_datasets_own_test_split_is_used(tmp_path: Path) -> None:
    split = make_split(open_dataset(make_rlds(tmp_path, train=4, test=2)))
    assert (split.test_split, split.test, split.train_split, split.train) == ('test', (0, 1), 'train', (0, 1, 2, 3))
    assert split.seed is None


def test_a_train_only_dataset_is_split_by_whole_episodes(tmp_path: Path) -> None:
    dataset = open_dataset(make_rlds(tmp_path, train=20))
    split = make_split(dataset, seed=3, test_share=0.25)
    assert len(split.test) == 5
    assert sorted(split.test + split.train) == list(range(20))
    assert [e.index for e in split.test_episodes(dataset)] == list(split.test)


def test_anyone_can_rebuild_a_split_from_its_rule(tmp_path: Path) -> None:
    dataset = open_dataset(make_rlds(tmp_path, train=20))
    split = make_split(dataset, seed=11, test_share=0.2)
    ranked = sorted(range(20), key=lambda i: hashlib.sha256(f'11:push/train/{i}'.encode()).hexdigest())
    assert split.test == tuple(sorted(ranked[:4]))


def test_the_seed_changes_the_split(tmp_path: Path) -> None:
    dataset = open_dataset(make_rlds(tmp_path, train=20))
    assert make_split(dataset, seed=0).hash != make_split(dataset, seed=1).hash
    assert make_split(dataset, seed=0) == make_split(dataset, seed=0)


def test_a_split_file_round_trips_and_a_change_is_noticed(tmp_path: Path) -> None:
    split = make_split(open_dataset(make_rlds(tmp_path, train=20)), seed=3)
    path = write_split(split, tmp_path / 'split.json')
    assert read_split(path) == split
    values = json.loads(path.read_text())
    values['test'] = values['test'][:-1]
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match='the hash does not fit'):
        read_split(path)


def test_a_split_of_another_dataset_is_refused(tmp_path: Path) -> None:
    split = make_split(open_dataset(make_rlds(tmp_path / 'a', train=20)))
    with pytest.raises(InputError, match='the split was made for push'):
        split.test_episodes(open_dataset(make_rlds(tmp_path / 'b', train=21)))


def test_one_episode_cannot_be_split(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='needs at least 2'):
        make_split(open_dataset(make_rlds(tmp_path, train=1)))


def test_statistics_of_evaluated_episodes_are_refused(tmp_path: Path) -> None:
    dataset = open_dataset(make_lerobot(tmp_path / 'toy', 'v3.0'))
    split = make_split(dataset, test_share=0.3)
    check_no_leak(action_statistics(split.train_episodes(dataset)), split.test_ids)
    everything = action_statistics(dataset.episodes('train'))
    with pytest.raises(InputError, match='3 evaluated episodes'):
        check_no_leak(everything, split.test_ids)


def described(name: str, episodes: int, **changes: object) -> DatasetDescription:
    base = {'robot': 'Franka', 'morphology': 'single arm', 'gripper': 'two-finger', 'action_space': '7D',
            'rgb_cameras': 2, 'depth_cameras': 0, 'wrist_cameras': 1, 'has_language': True, 'has_calibration': False,
            'has_proprioception': True}  # fmt: skip
    return DatasetDescription(name=name, episodes=episodes, **{**base, **changes})  # type: ignore[arg-type]


def test_of_equal_profiles_the_larger_dataset_is_kept() -> None:
    three = [described('small', 50), described('large', 90), described('other', 5, robot='UR5')]
    decisions = {d.name: d for d in curate(three)}
    assert [n for n, d in decisions.items() if d.is_kept] == ['large', 'other']
    assert (
        decisions['small'].reason == 'same robot (Franka) and same profile as large, which has 90 episodes against 50'
    )


def test_any_differing_feature_keeps_both() -> None:
    for change in ({'wrist_cameras': 0}, {'has_language': False}, {'gripper': 'vacuum'}, {'action_space': '8D'}):
        assert all(d.is_kept for d in curate([described('a', 50), described('b', 90, **change)]))


def test_a_dataset_with_its_own_evaluation_split_stays_and_displaces_nobody() -> None:
    decisions = curate([described('small', 50), described('large', 90, splits=('train', 'val'))])
    assert all(d.is_kept for d in decisions)


def test_quality_exclusions_come_first_and_displace_nobody() -> None:
    decisions = curate([described('small', 50), described('large', 90)], excluded={'large': 'unreadable'})
    assert [(d.name, d.is_kept) for d in decisions] == [('small', True), ('large', False)]


def test_equal_sizes_keep_the_first_name() -> None:
    assert [d.name for d in curate([described('b', 50), described('a', 50)]) if d.is_kept] == ['a']


def test_descriptions_are_read_and_a_wrong_one_named(tmp_path: Path) -> None:
    (tmp_path / 'd.json').write_text('[{"name": "a"}]')
    with pytest.raises(InputError, match=r'd.json: description 0'):
        read_descriptions(tmp_path / 'd.json')


def test_the_registry_has_the_papers_counts() -> None:
    """Section 3.1: 53 datasets, all of them for JAT, 20 for all three models; Table 1 marks 7 as in pretraining."""
    datasets = load_datasets()
    assert len(datasets) == 53
    assert all(d.is_covered_by('JAT') for d in datasets.values())
    all_three = [d for d in datasets.values() if d.is_covered_by('GPT') and d.is_covered_by('OpenVLA')]
    assert len(all_three) == 20
    assert all(d.amse.keys() == {'GPT', 'OpenVLA', 'JAT'} for d in all_three)
    assert sum(d.in_pretraining is True for d in datasets.values()) == 7
    assert sum(d.in_pretraining is None for d in datasets.values()) == 33


def test_unreadable_cells_are_unknown() -> None:
    assert find_dataset('nyu_franka_play_dataset_converted_externally_to_rlds').is_covered_by('GPT') is None
    assert find_dataset('austin_sirius_dataset_converted_externally_to_rlds').action_type is None
    assert find_dataset('roboturk').action_type == ''
    with pytest.raises(UnknownName, match="did you mean 'jaco_play'"):
        find_dataset('jaco_pla')
