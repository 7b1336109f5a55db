"""Small datasets with a known controller, written in the public layouts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from robotrials.formats.feature import Feature
from robotrials.formats.rlds import write_rlds

GAIN = np.array([[-0.5, 0.1, 0.0], [0.0, -0.4, 0.2], [0.1, 0.0, -0.3]])


def rollout(seed: int, length: int) -> dict[str, np.ndarray]:
    """States (T, 3) and the actions of a nonlinear controller with little noise; the last number is a gripper bit."""
    rng = np.random.default_rng(seed)
    state = rng.uniform(-1, 1, size=3)
    states, moves, grips = [], [], []
    for _ in range(length):
        move = np.tanh(GAIN @ state) + rng.normal(0, 0.005, 3)
        states.append(state)
        moves.append(move)
        grips.append(float(state[2] > 0))
        state = state + 0.5 * move
    return {'state': np.array(states), 'move': np.array(moves), 'grip': np.array(grips)}


def picture(state: np.ndarray, size: tuple[int, int] = (24, 32)) -> np.ndarray:
    """A smooth picture whose colours follow the state, so that JPEG keeps it well."""
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]]
    base = 128 + 60 * state[:3] / (1 + np.abs(state[:3]))
    ramp = (rows + columns)[..., None] * 0.5
    return np.clip(base + ramp, 0, 255).astype(np.uint8)


def tensor(dtype: str, *shape: int | None, encoding: str = 'none') -> Feature:
    return Feature('tensor', dtype=dtype, shape=shape, encoding=encoding)


def rlds_features(*, with_image: bool = True) -> Feature:
    observation = {'state': tensor('float32', 3), 'natural_language_instruction': Feature('text', dtype='string')}
    if with_image:
        observation['image'] = Feature('image', dtype='uint8', shape=(24, 32, 3), encoding='jpeg')
    action = {'world_vector': tensor('float32', 3), 'gripper_closedness_action': tensor('float32', 1),
              'terminate_episode': tensor('float32')}  # fmt: skip
    step = {'observation': Feature('dict', observation), 'action': Feature('dict', action), 'reward': tensor('float32'),
            'is_first': tensor('bool'), 'is_last': tensor('bool')}  # fmt: skip
    steps = Feature('sequence', inner=Feature('dict', step), is_dataset=True)
    metadata = Feature('dict', {'file_path': Feature('text', dtype='string')})
    return Feature('dict', {'steps': steps, 'episode_metadata': metadata})


def rlds_example(seed: int, length: int, *, with_image: bool = True) -> dict[str, Any]:
    made = rollout(seed, length)
    last = np.arange(length) == length - 1
    observation: dict[str, Any] = {
        'state': made['state'].astype(np.float32),
        'natural_language_instruction': [f'push to corner {seed % 4}'] * length,
    }
    if with_image:
        observation['image'] = [picture(s) for s in made['state']]
    return {
        'steps': {
            'observation': observation,
            'action': {
                'world_vector': made['move'].astype(np.float32),
                'gripper_closedness_action': made['grip'][:, None].astype(np.float32),
                'terminate_episode': last.astype(np.float32),
            },
            'reward': last.astype(np.float32),
            'is_first': np.arange(length) == 0,
            'is_last': last,
        },
        'episode_metadata': {'file_path': f'demo_{seed}.hdf5'},
    }


def make_rlds(
    path: Path, *, train: int = 12, test: int = 0, name: str = 'push', shards: int = 1, with_image: bool = True
) -> Path:
    splits = {'train': [rlds_example(i, 8 + i % 5, with_image=with_image) for i in range(train)]}
    if test:
        splits['test'] = [rlds_example(1000 + i, 8 + i % 5, with_image=with_image) for i in range(test)]
    features = rlds_features(with_image=with_image)
    return write_rlds(path, splits, name=name, features=features, shards=shards)


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format='PNG')
    return buffer.getvalue()


LEROBOT_FEATURES: dict[str, Any] = {
    'observation.images.image': {'dtype': 'image', 'shape': [24, 32, 3], 'names': ['height', 'width', 'channel']},
    'observation.state': {'dtype': 'float32', 'shape': [3], 'names': {'motors': ['x', 'y', 'z']}},
    'action': {'dtype': 'float32', 'shape': [4], 'names': ['x', 'y', 'z', 'gripper']},
    'timestamp': {'dtype': 'float32', 'shape': [1], 'names': None},
    'frame_index': {'dtype': 'int64', 'shape': [1], 'names': None},
    'episode_index': {'dtype': 'int64', 'shape': [1], 'names': None},
    'index': {'dtype': 'int64', 'shape': [1], 'names': None},
    'task_index': {'dtype': 'int64', 'shape': [1], 'names': None},
}
FPS = 10


def lerobot_table(episode: int, first: int) -> pa.Table:
    length = 8 + episode % 5
    made = rollout(episode, length)
    action = np.column_stack([made['move'], made['grip']]).astype(np.float32)
    images = [{'bytes': _png(picture(s)), 'path': f'frame_{i:06d}.png'} for i, s in enumerate(made['state'])]
    return pa.table(
        {
            'observation.images.image': pa.array(images, pa.struct([('bytes', pa.binary()), ('path', pa.string())])),
            'observation.state': pa.FixedSizeListArray.from_arrays(made['state'].astype(np.float32).ravel(), 3),
            'action': pa.FixedSizeListArray.from_arrays(action.ravel(), 4),
            'timestamp': pa.array(np.arange(length, dtype=np.float32) / FPS),
            'frame_index': pa.array(np.arange(length)),
            'episode_index': pa.array(np.full(length, episode)),
            'index': pa.array(first + np.arange(length)),
            'task_index': pa.array(np.full(length, episode % 2)),
        }
    )


def _info(version: str, episodes: int, frames: int) -> dict[str, Any]:
    v3 = version == 'v3.0'
    return {
        'codebase_version': version, 'robot_type': 'toy', 'total_episodes': episodes, 'total_frames': frames,
        'total_tasks': 2, 'chunks_size': 1000, 'fps': FPS, 'splits': {'train': f'0:{episodes}'},
        'data_path': 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet' if v3
        else 'data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet',
        'video_path': None, 'features': LEROBOT_FEATURES,
    }  # fmt: skip


def make_lerobot(path: Path, version: str, *, episodes: int = 10, per_file: int = 4) -> Path:
    """A LeRobotDataset of the asked version, with images in its Parquet files."""
    tables, first = [], 0
    for number in range(episodes):
        tables.append(lerobot_table(number, first))
        first += tables[-1].num_rows
    (path / 'meta').mkdir(parents=True)
    (path / 'meta' / 'info.json').write_text(json.dumps(_info(version, episodes, first)))
    tasks = ['push left', 'push right']
    if version == 'v3.0':
        _write_v3(path, tables, tasks, per_file)
    else:
        _write_v2(path, tables, tasks)
    return path


def _write_v2(path: Path, tables: list[pa.Table], tasks: list[str]) -> None:
    (path / 'data' / 'chunk-000').mkdir(parents=True)
    rows = []
    for number, table in enumerate(tables):
        pq.write_table(table, path / 'data' / 'chunk-000' / f'episode_{number:06d}.parquet')
        rows.append({'episode_index': number, 'tasks': [tasks[number % 2]], 'length': table.num_rows})
    (path / 'meta' / 'episodes.jsonl').write_text(''.join(json.dumps(r) + '\n' for r in rows))
    lines = [json.dumps({'task_index': i, 'task': t}) + '\n' for i, t in enumerate(tasks)]
    (path / 'meta' / 'tasks.jsonl').write_text(''.join(lines))


def _write_v3(path: Path, tables: list[pa.Table], tasks: list[str], per_file: int) -> None:
    (path / 'data' / 'chunk-000').mkdir(parents=True)
    (path / 'meta' / 'episodes' / 'chunk-000').mkdir(parents=True)
    rows, first = [], 0
    for start in range(0, len(tables), per_file):
        group = tables[start : start + per_file]
        pq.write_table(pa.concat_tables(group), path / 'data' / 'chunk-000' / f'file-{start // per_file:03d}.parquet')
        for number, table in enumerate(group, start=start):
            rows.append(
                {'episode_index': number, 'tasks': [tasks[number % 2]], 'length': table.num_rows,
                 'data/chunk_index': 0, 'data/file_index': start // per_file, 'dataset_from_index': first,
                 'dataset_to_index': first + table.num_rows, 'stats/action/min': [0.0],
                 'meta/episodes/chunk_index': 0, 'meta/episodes/file_index': 0}
            )  # fmt: skip
            first += table.num_rows
    pq.write_table(pa.Table.from_pylist(rows), path / 'meta' / 'episodes' / 'chunk-000' / 'file-000.parquet')
    # pandas writes a nameless index under this name.
    pq.write_table(
        pa.table({'task_index': pa.array([0, 1]), '__index_level_0__': pa.array(tasks)}),
        path / 'meta' / 'tasks.parquet',
    )
