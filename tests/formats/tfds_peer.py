"""Run inside an environment with TensorFlow Datasets: `write FOLDER` makes a dataset, `dump FOLDER OUT` reads one.

It imports nothing of robotrials. What is read is dumped as an .npz with one array a leaf: episode/step/feature.
"""

import os
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')

import numpy as np
import tensorflow_datasets as tfds

F = tfds.features
FEATURES = F.FeaturesDict(
    {
        'steps': F.Dataset(
            {
                'observation': F.FeaturesDict(
                    {
                        'image': F.Image(shape=(32, 48, 3), encoding_format='jpeg'),
                        'rgba': F.Image(shape=(8, 6, 4), encoding_format='png'),
                        'depth': F.Image(shape=(32, 48, 1), dtype=np.float32, encoding_format='png'),
                        'deep': F.Image(shape=(32, 48, 1), dtype=np.uint16, encoding_format='png'),
                        'state': F.Tensor(shape=(7,), dtype=np.float64),
                        'matrix': F.Tensor(shape=(2, 3), dtype=np.float32),
                        'packed': F.Tensor(shape=(4,), dtype=np.float32, encoding='zlib'),
                        'cloud': F.Tensor(shape=(None, None), dtype=np.uint8, encoding='zlib'),
                        'ids': F.Sequence(F.Scalar(dtype=np.int64)),
                        'natural_language_instruction': F.Text(),
                    }
                ),
                'action': F.FeaturesDict(
                    {
                        'world_vector': F.Tensor(shape=(3,), dtype=np.float32),
                        'open_gripper': F.Scalar(dtype=np.bool_),
                        'terminate_episode': F.Tensor(shape=(3,), dtype=np.int32),
                    }
                ),
                'reward': F.Scalar(dtype=np.float32),
                'is_first': np.bool_,
                'label': F.ClassLabel(num_classes=2),
            }
        ),
        'episode_metadata': F.FeaturesDict(
            {'file_path': F.Text(), 'span': F.Tensor(shape=(2,), dtype=np.int64), 'words': F.Sequence(F.Text())}
        ),
    }
)


class Peer(tfds.core.GeneratorBasedBuilder):
    """A small RLDS dataset with every kind of feature."""

    VERSION = tfds.core.Version('0.1.0')

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=FEATURES)

    def _split_generators(self, dl_manager):
        return {'train': self._generate_examples(5, 0), 'test': self._generate_examples(2, 100)}

    def _generate_examples(self, count, start):
        for number in range(count):
            rng = np.random.default_rng(start + number)
            length = 4 + number
            ramp = np.add.outer(np.arange(32), np.arange(48))[..., None] + np.arange(3) * 20
            steps = [
                {
                    'observation': {
                        'image': (ramp + 10 * t).astype(np.uint8),
                        'rgba': rng.integers(0, 255, (8, 6, 4), dtype=np.uint8),
                        'depth': rng.random((32, 48, 1), dtype=np.float32),
                        'deep': rng.integers(0, 65_000, (32, 48, 1), dtype=np.uint16),
                        'state': rng.random(7),
                        'matrix': rng.random((2, 3), dtype=np.float32),
                        'packed': rng.random(4, dtype=np.float32),
                        'cloud': rng.integers(0, 255, (2, t + 1), dtype=np.uint8),
                        'ids': list(range(-t, 0)),
                        'natural_language_instruction': f'tue {number} ü',
                    },
                    'action': {
                        'world_vector': rng.random(3, dtype=np.float32),
                        'open_gripper': bool(t % 2),
                        'terminate_episode': np.array([0, 0, t == length - 1], np.int32),
                    },
                    'reward': float(t == length - 1),
                    'is_first': t == 0,
                    'label': t % 2,
                }
                for t in range(length)
            ]
            metadata = {'file_path': f'demo_{number}', 'span': np.array([-1, 2**40]), 'words': ['p', 'q'][: number % 3]}
            yield f'{start + number}', {'steps': steps, 'episode_metadata': metadata}


def write(folder):
    """Prepare the dataset under `folder`."""
    Peer(data_dir=folder, file_format='tfrecord').download_and_prepare()


def leaves(value, prefix):
    """Every array under a nested dictionary, by path."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, f'{prefix}/{key}')
    else:
        yield prefix, np.asarray(value)


def dump(folder, out):
    """Read every split of a prepared dataset through TFDS."""
    builder = tfds.builder_from_directory(folder)
    arrays = {}
    for split in builder.info.splits:
        order = tfds.ReadConfig(interleave_cycle_length=1)
        for number, example in enumerate(tfds.as_numpy(builder.as_dataset(split=split, read_config=order))):
            steps = example.pop('steps')
            for t, step in enumerate(steps):
                arrays.update(leaves(step, f'{split}/{number}/{t}'))
            arrays.update(leaves(example, f'{split}/{number}'))
    np.savez(out, **{key: a.astype('S') if a.dtype == object else a for key, a in arrays.items()})


if __name__ == '__main__':
    {'write': write, 'dump': dump}[sys.argv[1]](*sys.argv[2:])
