"""Runs in LeRobot's own environment: read what robotrials wrote, or write what robotrials is to read.

python lerobot_peer.py read | write | upgrade | train FOLDER      prints JSON
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ['HF_HUB_OFFLINE'] = '1'

import torch

# The registry's torchvision is built for another torch; its compiled operators, of no use to datasets, are left out.
register = torch.library.register_fake
torch.library.register_fake = lambda name, *a, **k: (
    (lambda f: f) if str(name).startswith('torchvision::') else register(name, *a, **k)
)
import torchvision  # noqa: E402, F401

torch.library.register_fake = register

import av  # noqa: E402
import lerobot.datasets.lerobot_dataset as module  # noqa: E402
import numpy as np  # noqa: E402
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402


def decode(path: str, timestamps: list[float], tolerance_s: float, backend: str | None = None) -> torch.Tensor:
    """Frames at these times, by PyAV: torchvision dropped the reader that LeRobot falls back to."""
    with av.open(str(path)) as container:
        frames = {frame.time: frame for frame in container.decode(video=0)}
    chosen = []
    for wanted in timestamps:
        nearest = min(frames, key=lambda t: abs(t - wanted))
        assert abs(nearest - wanted) < tolerance_s, (path, wanted, nearest)
        chosen.append(torch.from_numpy(frames[nearest].to_ndarray(format='rgb24')).permute(2, 0, 1) / 255.0)
    return torch.stack(chosen)


module.decode_video_frames = decode


def read(folder: Path) -> dict[str, object]:
    dataset = LeRobotDataset('local/test', root=folder)
    episodes = []
    for row in dataset.meta.episodes:
        first, last = row['dataset_from_index'], row['dataset_to_index'] - 1
        items = [dataset[i] for i in range(first, last + 1)]
        episodes.append(
            {
                'length': row['length'],
                'task': items[0]['task'],
                'action': [i['action'].tolist() for i in items],
                'state': [i['observation.state'].tolist() for i in items],
                'success': [bool(i['next.success']) for i in items],
                'brightness': [
                    {key: float(i[key].mean() * 255) for key in dataset.meta.camera_keys} for i in (items[0], items[-1])
                ],
            }
        )
    stats = {key: {n: v.tolist() for n, v in value.items()} for key, value in dataset.meta.stats.items()}
    return {'version': str(dataset.meta.info['codebase_version']), 'fps': dataset.fps, 'episodes': episodes,
            'frames': len(dataset), 'stats': stats}  # fmt: skip


FEATURES = {
    'observation.state': {'dtype': 'float32', 'shape': (3,), 'names': ['a.pos', 'b.pos', 'gripper.pos']},
    'action': {'dtype': 'float32', 'shape': (2,), 'names': ['a.pos', 'b.pos']},
    'next.reward': {'dtype': 'float32', 'shape': (1,), 'names': None},
    'next.success': {'dtype': 'bool', 'shape': (1,), 'names': None},
    'next.done': {'dtype': 'bool', 'shape': (1,), 'names': None},
    'observation.images.top': {'dtype': 'video', 'shape': (64, 96, 3), 'names': ['height', 'width', 'channels']},
}


def write(folder: Path) -> dict[str, object]:
    """Three episodes in two files; the second fails."""
    dataset = LeRobotDataset.create(
        'local/made', fps=10, features=FEATURES, root=folder, use_videos=True, vcodec='h264'
    )
    for number, length in enumerate((6, 9, 7)):
        rng = np.random.default_rng(number)
        for frame in range(length):
            is_last = frame == length - 1
            dataset.add_frame(
                {
                    'observation.state': rng.normal(size=3).astype(np.float32),
                    'action': np.array([number, frame], np.float32),
                    'next.reward': np.array([float(is_last)], np.float32),
                    'next.success': np.array([is_last and number != 1]),
                    'next.done': np.array([is_last]),
                    'observation.images.top': np.full((64, 96, 3), 40 * number + 5 * frame, np.uint8),
                    'task': f'task {number % 2}',
                }
            )
        dataset.save_episode()
    dataset.finalize()
    return {'episodes': 3}


def upgrade(folder: Path) -> dict[str, object]:
    """Turn a v2.1 folder into v3.0 by LeRobot's own converter, and read that."""
    from lerobot.datasets.v30 import convert_dataset_v21_to_v30 as converter

    new = folder.with_name(folder.name + '-v30')
    new.mkdir()
    converter.convert_info(folder, new, 100, 200)
    converter.convert_tasks(folder, new)
    data = converter.convert_data(folder, new, 100)
    videos = converter.convert_videos(folder, new, 200)
    converter.convert_episodes_metadata(folder, new, data, videos)
    return read(new)


def train(folder: Path) -> dict[str, object]:
    """Ten steps of a small ACT on the dataset, with LeRobot's own features, statistics, processors and loss."""
    from lerobot.configs.types import FeatureType
    from lerobot.datasets.utils import dataset_to_policy_features
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    torch.manual_seed(0)
    meta = LeRobotDataset('local/test', root=folder).meta
    wanted = ('observation.state', 'action', *meta.camera_keys)
    features = {k: v for k, v in dataset_to_policy_features(meta.features).items() if k in wanted}
    outputs = {k: v for k, v in features.items() if v.type is FeatureType.ACTION}
    config = ACTConfig(
        input_features={k: v for k, v in features.items() if k not in outputs},
        output_features=outputs,
        device='cpu',
        chunk_size=4,
        n_action_steps=4,
        dim_model=32,
        n_heads=4,
        dim_feedforward=64,
        n_encoder_layers=1,
        n_vae_encoder_layers=1,
        pretrained_backbone_weights=None,
        latent_dim=4,
        use_vae=False,
    )
    policy = ACTPolicy(config)
    policy.train()
    before, _ = make_pre_post_processors(config, dataset_stats=meta.stats)
    deltas = {'action': [i / meta.fps for i in range(4)]}
    dataset = LeRobotDataset('local/test', root=folder, delta_timestamps=deltas)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    losses = []
    batch = before(next(iter(loader)))
    for _ in range(10):
        loss, _ = policy.forward(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {'losses': losses, 'cameras': list(meta.camera_keys)}


print(json.dumps({'read': read, 'write': write, 'upgrade': upgrade, 'train': train}[sys.argv[1]](Path(sys.argv[2]))))
