from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.formats.build import make_rlds, picture, rlds_example, rlds_features, rollout, tensor

from robotrials.errors import InputError, UnknownName
from robotrials.formats.dataset import open_dataset
from robotrials.formats.feature import Feature, features_json, parse_features
from robotrials.formats.rlds import RldsDataset, write_rlds
from robotrials.formats.space import DimensionKind
from robotrials.formats.video import EncodedImage, decode_many, encode_image, jpeg_header


def test_episodes_are_read_as_written(tmp_path: Path) -> None:
    dataset = RldsDataset.open(make_rlds(tmp_path, train=5, test=2, shards=2))
    assert dataset.splits == {'train': 5, 'test': 2}
    episodes = list(dataset.episodes('train'))
    assert [e.episode_id for e in episodes] == [f'push/train/{i}' for i in range(5)]
    for seed, episode in enumerate(episodes):
        made = rollout(seed, episode.n_steps)
        np.testing.assert_array_equal(episode.state['state'], made['state'].astype(np.float32))
        assert episode.instruction(3) == f'push to corner {seed % 4}'
        assert episode.metadata == {'file_path': f'demo_{seed}.hdf5'}


def test_dict_actions_are_flattened_in_sorted_key_order(tmp_path: Path) -> None:
    dataset = RldsDataset.open(make_rlds(tmp_path, train=1))
    assert dataset.space.names == (
        'gripper_closedness_action', 'terminate_episode', 'world_vector[0]', 'world_vector[1]', 'world_vector[2]',
    )  # fmt: skip
    kinds = [d.kind for d in dataset.space.dimensions]
    assert kinds == [DimensionKind.GRIPPER, DimensionKind.TERMINATE] + [DimensionKind.POSITION] * 3
    made = rollout(0, 8)
    episode = next(dataset.episodes('train'))
    np.testing.assert_array_equal(episode.actions[:, 0], made['grip'].astype(np.float32))
    np.testing.assert_array_equal(episode.actions[:, 2:], made['move'].astype(np.float32))


def test_images_decode_to_what_was_drawn(tmp_path: Path) -> None:
    episode = next(RldsDataset.open(make_rlds(tmp_path, train=1)).episodes('train'))
    found = episode.observation(2).image('image').astype(int)
    assert np.abs(found - picture(rollout(0, 8)['state'][2])).mean() < 3


def test_only_the_wanted_episodes_are_parsed(tmp_path: Path) -> None:
    dataset = RldsDataset.open(make_rlds(tmp_path, train=6, shards=3))
    assert [e.index for e in dataset.episodes('train', only={1, 4})] == [1, 4]


def test_every_feature_kind_round_trips(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    length = 4
    observation = {
        'depth': Feature('image', dtype='float32', shape=(6, 8, 1), encoding='png'),
        'deep': Feature('image', dtype='uint16', shape=(6, 8, 1), encoding='png'),
        'rgba': Feature('image', dtype='uint8', shape=(6, 8, 4), encoding='png'),
        'matrix': tensor('float64', 2, 3),
        'packed': tensor('float32', 4, encoding='zlib'),
        'raw': tensor('int16', 2, encoding='bytes'),
        'cloud': tensor('uint8', None, None, encoding='zlib'),
        'ids': Feature('sequence', inner=tensor('int64')),
        'words': Feature('sequence', inner=Feature('text', dtype='string')),
        'tag': tensor('string'),
    }
    step = Feature('dict', {'observation': Feature('dict', observation), 'action': tensor('float32', 2)})
    features = Feature('dict', {'steps': Feature('sequence', inner=step, is_dataset=True)})
    columns = {
        'depth': [rng.random((6, 8, 1), dtype=np.float32) for _ in range(length)],
        'deep': [rng.integers(0, 65_535, (6, 8, 1), dtype=np.uint16) for _ in range(length)],
        'rgba': [rng.integers(0, 255, (6, 8, 4), dtype=np.uint8) for _ in range(length)],
        'matrix': rng.random((length, 2, 3)).astype(np.float32).astype(np.float64),
        'packed': rng.random((length, 4), dtype=np.float32),
        'raw': rng.integers(-9, 9, (length, 2)).astype(np.int16),
        'cloud': [rng.integers(0, 255, (2, n + 1), dtype=np.uint8) for n in range(length)],
        'ids': [list(range(-n, 0)) for n in range(length)],
        'words': [['ä', 'b'][:n] for n in range(length)],
        'tag': ['x', '', 'ß', 'y'],
    }
    example = {'steps': {'observation': columns, 'action': rng.random((length, 2), dtype=np.float32)}}
    dataset = RldsDataset.open(write_rlds(tmp_path, {'train': [example]}, name='kinds', features=features))
    ((_, read),) = dataset.examples('train')
    found = read['steps']['observation']
    for name in ('depth', 'deep', 'rgba'):
        for image, wanted in zip(found[name], columns[name], strict=True):
            assert isinstance(image, EncodedImage)
            np.testing.assert_array_equal(image.array(), wanted)
    for name in ('matrix', 'packed', 'raw'):
        np.testing.assert_array_equal(found[name], columns[name])
    for name in ('cloud', 'ids', 'words'):
        assert [np.asarray(v).tolist() for v in found[name]] == [np.asarray(v).tolist() for v in columns[name]]
    assert found['tag'] == columns['tag']


def test_features_json_round_trips() -> None:
    features = rlds_features()
    again = parse_features(json.dumps(features_json(features)), where='x')
    assert features_json(again) == features_json(features)


def test_the_older_features_json_is_read() -> None:
    """TFDS up to 4.4 wrote `type` and `content`, and nested datasets later as text inside `jsonFeature`."""
    scalar = {'type': 'tensorflow_datasets.core.features.feature.Tensor', 'content': {'shape': [2], 'dtype': 'float32'}}
    image = {'type': 'tensorflow_datasets.core.features.image_feature.Image',
             'content': {'shape': [None, None, 3], 'dtype': 'uint8', 'encoding_format': 'jpeg'}}  # fmt: skip
    inner = {'type': 'tensorflow_datasets.core.features.features_dict.FeaturesDict',
             'content': {'action': scalar, 'image': image}}  # fmt: skip
    steps = {'pythonClassName': 'tensorflow_datasets.core.features.dataset_feature.Dataset',
             'jsonFeature': {'json': json.dumps({'feature': inner, 'length': None})}}  # fmt: skip
    node = {'pythonClassName': 'tensorflow_datasets.core.features.features_dict.FeaturesDict',
            'featuresDict': {'features': {'steps': steps}}}  # fmt: skip
    read = parse_features(json.dumps(node), where='x').children['steps']
    assert read.is_dataset
    assert read.inner is not None
    assert read.inner.children['action'].shape == (2,)
    assert read.inner.children['image'].shape == (None, None, 3)


def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    def peak(episodes: int) -> int:
        dataset = RldsDataset.open(make_rlds(tmp_path / str(episodes), train=episodes))
        tracemalloc.start()
        for episode in dataset.episodes('train'):
            for image in decode_many(episode.images['image'], threads=2):  # type: ignore[arg-type]
                assert image.shape == (24, 32, 3)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(2)  # warm the tables
    assert peak(60) < 1.5 * peak(6)


def test_decoding_in_threads_keeps_the_order() -> None:
    images = [EncodedImage(encode_image(np.full((4, 4, 3), i, dtype=np.uint8)), (4, 4, 3)) for i in range(50)]
    found = [int(a[0, 0, 0]) for a in decode_many(images, threads=3, ahead=2)]
    assert found == list(range(50))


def test_the_fast_jpeg_path_gives_pillows_own_pixels() -> None:
    import io

    from PIL import Image

    rng = np.random.default_rng(0)
    for size, quality, mode in (
        ((37, 53), 90, 'RGB'),
        ((64, 48), 60, 'RGB'),
        ((20, 20), 95, 'L'),
        ((9, 200), 30, 'CMYK'),
    ):
        bands = {'RGB': 3, 'L': 1, 'CMYK': 4}[mode]
        pixels = rng.integers(0, 255, (*size, bands), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels[..., 0] if bands == 1 else pixels, mode=None if bands < 4 else 'CMYK').save(
            buffer, 'jpeg', quality=quality
        )
        wanted = np.asarray(Image.open(io.BytesIO(buffer.getvalue())).convert('RGB'))
        np.testing.assert_array_equal(EncodedImage(buffer.getvalue(), (*size, 3)).array(), wanted)
        assert jpeg_header(buffer.getvalue()) == (*size, bands)


def test_a_jpeg_cut_short_is_refused_wherever_it_ends() -> None:
    whole = encode_image(picture(np.zeros(3), (64, 64)), form='jpeg')
    for kept in range(0, len(whole) - 2, 97):
        with pytest.raises(InputError):
            EncodedImage(whole[:kept], (64, 64, 3)).array()


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    root = make_rlds(tmp_path, train=4, shards=2)
    (root / 'push-train.tfrecord-00001-of-00002').unlink()
    with pytest.raises(InputError, match=r'push-train\.tfrecord-00001-of-00002: missing'):
        RldsDataset.open(root)


def test_a_shard_with_too_few_episodes_is_named(tmp_path: Path) -> None:
    root = make_rlds(tmp_path, train=4)
    info = json.loads((root / 'dataset_info.json').read_text())
    info['splits'][0]['shardLengths'] = ['5']
    (root / 'dataset_info.json').write_text(json.dumps(info))
    with pytest.raises(InputError, match=r'00000-of-00001: 4 episodes, dataset_info.json says 5'):
        list(RldsDataset.open(root).episodes('train'))


def test_an_image_that_does_not_decode_is_named(tmp_path: Path) -> None:
    example = rlds_example(0, 3)
    example['steps']['observation']['image'][1] = EncodedImage(b'\xff\xd8\xffnonsense', (24, 32, 3))
    root = write_rlds(tmp_path, {'train': [example]}, name='bad', features=rlds_features())
    episode = next(RldsDataset.open(root).episodes('train'))
    with pytest.raises(InputError, match=r'bad-train.*episode 0.*steps/observation/image.*does not decode'):
        episode.observation(1).image('image')


def test_an_image_of_another_shape_than_declared_is_refused(tmp_path: Path) -> None:
    example = rlds_example(0, 3)
    example['steps']['observation']['image'][0] = np.zeros((10, 10, 3), dtype=np.uint8)
    root = write_rlds(tmp_path, {'train': [example]}, name='bad', features=rlds_features())
    with pytest.raises(InputError, match='the features declare'):
        next(RldsDataset.open(root).episodes('train')).observation(0).image('image')


def test_an_unknown_split_suggests_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'train'"):
        list(RldsDataset.open(make_rlds(tmp_path, train=2)).episodes('tran'))


def test_the_newest_version_below_a_folder_is_opened(tmp_path: Path) -> None:
    make_rlds(tmp_path, train=2)
    write_rlds(tmp_path, {'train': [rlds_example(0, 3)]}, name='push', features=rlds_features(), version='0.10.0')
    assert open_dataset(tmp_path / 'push').splits == {'train': 1}


def test_a_folder_that_is_no_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='neither an RLDS/TFDS folder'):
        open_dataset(tmp_path)
    with pytest.raises(InputError, match='no such folder'):
        open_dataset(tmp_path / 'nowhere')


def test_a_folder_without_steps_is_not_rlds(tmp_path: Path) -> None:
    root = make_rlds(tmp_path, train=1)
    (root / 'features.json').write_text(json.dumps(features_json(Feature('dict', {'x': tensor('float32')}))))
    with pytest.raises(InputError, match='not RLDS'):
        RldsDataset.open(root)
