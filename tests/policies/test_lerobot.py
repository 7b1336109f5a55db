"""LeRobot checkpoints: what is refused at the door, and a small random ACT policy, saved, loaded and asked."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError, SetupError
from robotrials.policies.lerobot import LeRobotPolicy
from robotrials.run import Observation, Setup, check_policy
from robotrials.run.environment import read_recipe
from robotrials.run.environment.create import create_environment
from robotrials.run.environment.place import link_robotrials
from robotrials.testing.point_mass import PointMassHost

ROOT = Path(__file__).resolve().parents[2]
OPTIONS: dict[str, Any] = {
    'observation': {
        'images': {'observation.images.top': 'top'}, 'state': {'observation.state': [0, 4]}, 'prompt': 'task',
    },
    'action': {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'chunk_length': 8},
    'connect_timeout_s': 120.0,
}  # fmt: skip

# A tiny ACT policy with random weights, saved by LeRobot, and what LeRobot itself answers for one observation.
SAVE = """
import json, sys
import numpy as np
from robotrials.policies.lerobot_worker import load_torchvision
load_torchvision()
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.factory import make_pre_post_processors
from lerobot.utils.control_utils import predict_action

torch.manual_seed(0)
folder = sys.argv[1]
config = ACTConfig(
    input_features={'observation.state': PolicyFeature(FeatureType.STATE, (4,)),
                    'observation.images.top': PolicyFeature(FeatureType.VISUAL, (3, 64, 64))},
    output_features={'action': PolicyFeature(FeatureType.ACTION, (3,))},
    chunk_size=8, n_action_steps=8, dim_model=32, n_heads=2, dim_feedforward=64, n_encoder_layers=1,
    n_vae_encoder_layers=1, latent_dim=8, pretrained_backbone_weights=None, device='cpu',
)
policy = ACTPolicy(config).eval()
stats = {
    'observation.state': {'mean': torch.full((4,), 0.1), 'std': torch.full((4,), 2.0)},
    'action': {'mean': torch.tensor([0.1, 0.2, 0.3]), 'std': torch.tensor([0.01, 0.02, 0.03])},
    'observation.images.top': {'mean': torch.full((3, 1, 1), 0.5), 'std': torch.full((3, 1, 1), 0.25)},
}
before, after = make_pre_post_processors(config, dataset_stats=stats)
for part in (policy, before, after):
    part.save_pretrained(folder)
image = (np.arange(64 * 64 * 3) % 251).astype(np.uint8).reshape(64, 64, 3)
policy.reset()
answers = []
for _ in range(8):
    seen = {'observation.state': np.array([0.0, 0.1, 0.2, 0.3], np.float32), 'observation.images.top': image}
    found = predict_action(seen, policy, torch.device('cpu'), before, after, False, task='go')
    answers.append(found.numpy()[0].tolist())
print(json.dumps(answers))
"""


def checkpoint(folder: Path, **changes: Any) -> Path:
    """The files of a checkpoint, as far as they are looked at before anything is loaded."""
    folder.mkdir(exist_ok=True)
    (folder / 'config.json').write_text('{"type": "act"}')
    (folder / 'model.safetensors').write_bytes(b'')
    for name in ('policy_preprocessor.json', 'policy_postprocessor.json'):
        (folder / name).write_text(json.dumps(changes.get(name[:-5], {'steps': [{'registry_name': 'x'}]})))
    return folder


def test_the_pickling_wire_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match='carries pickles both ways and is not spoken; give path'):
        LeRobotPolicy(url='grpc://127.0.0.1:8080', **OPTIONS)


def test_a_folder_that_is_no_checkpoint_or_would_import_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'no config\.json'):
        LeRobotPolicy(path=str(tmp_path), **OPTIONS)
    folder = checkpoint(tmp_path / 'a')
    (folder / 'policy_preprocessor.json').unlink()
    with pytest.raises(InputError, match=r'older than LeRobot 0\.4'):
        LeRobotPolicy(path=str(folder), **OPTIONS)
    evil = checkpoint(tmp_path / 'b', policy_preprocessor={'steps': [{'class': 'os.system', 'registry_name': 'x'}]})
    with pytest.raises(InputError, match='names a class to import'):
        LeRobotPolicy(path=str(evil), **OPTIONS)
    for content in ('[]', '{"steps": 3}', 'x'):
        (evil / 'policy_preprocessor.json').write_text(content)
        with pytest.raises(InputError, match='not a list of processor steps'):
            LeRobotPolicy(path=str(evil), **OPTIONS)


def test_a_missing_environment_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ROBOTRIALS_ENVIRONMENTS', str(tmp_path / 'none'))
    policy = LeRobotPolicy(path=str(checkpoint(tmp_path / 'a')), **OPTIONS)
    with pytest.raises(SetupError, match='robotrials env create lerobot'):
        policy.fit(PointMassHost(camera_px=64).spec)


@pytest.fixture(scope='module')
def act(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A saved ACT policy, and LeRobot's own answers."""
    os.environ.setdefault('ROBOTRIALS_ENVIRONMENTS', str(ROOT / '.peers' / 'environments'))
    made = create_environment(read_recipe('lerobot'))
    folder = tmp_path_factory.mktemp('act')
    ran = subprocess.run(
        [str(made.python), '-c', SAVE, str(folder)], capture_output=True, text=True, timeout=300,
        env={'PATH': os.environ['PATH'], 'HOME': str(folder), 'PYTHONPATH': str(link_robotrials(made.folder))},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return folder, np.array(json.loads(ran.stdout.splitlines()[-1]))


def seen() -> Observation:
    image = (np.arange(64 * 64 * 3) % 251).astype(np.uint8).reshape(64, 64, 3)
    return Observation(0.0, np.array([0.0, 0.1, 0.2, 0.3]), {'top': image})


@pytest.mark.peers
def test_a_checkpoint_answers_as_lerobot_itself_does(act: tuple[Path, np.ndarray]) -> None:
    folder, expected = act
    policy = LeRobotPolicy(path=str(folder), **OPTIONS)
    policy.fit(PointMassHost(camera_px=64).spec)
    facts: Any = policy.facts
    assert (facts['type'], facts['mode'], facts['steps'], facts['action_width']) == ('act', 'chunk', 8, 3)
    assert facts['versions']['lerobot'] == '0.4.4'
    session = policy.start(Setup(task='t', seed=0, instruction='go'), seed=0)
    chunk = session.act(seen())
    np.testing.assert_allclose(chunk.actions, expected, atol=1e-5)
    assert chunk.inference_s is not None
    pair = policy.act_many([session, session], [seen(), seen()])
    np.testing.assert_allclose(pair[1].actions, expected, atol=1e-5)
    check_policy(policy, host=PointMassHost(camera_px=64), task='reach', steps=24, deterministic=True)
    policy.close()
    one = LeRobotPolicy(
        path=str(folder), mode='step', **{**OPTIONS, 'action': {**OPTIONS['action'], 'chunk_length': 1}}
    )
    one.fit(PointMassHost(camera_px=64).spec)
    stepping = one.start(Setup(task='t', seed=0, instruction='go'), seed=0)
    np.testing.assert_allclose([stepping.act(seen()).actions[0] for _ in range(8)], expected, atol=1e-5)
    one.close()


@pytest.mark.peers
def test_the_checkpoints_features_are_held_against_the_mapping(act: tuple[Path, np.ndarray]) -> None:
    folder, _ = act
    wrong = {'observation': {'state': {'observation.state': [0, 3], 'observation.effort': [0, 1]}}}
    policy = LeRobotPolicy(path=str(folder), **{**OPTIONS, **wrong, 'action': {**OPTIONS['action'], 'chunk_length': 9}})
    with pytest.raises(InputError) as caught:
        policy.fit(PointMassHost(camera_px=64).spec)
    for told in (
        'observation.state is (3,), the checkpoint wants (4,)',
        'wants observation.images.top of shape (3, 64, 64)',
        'sends observation.effort',
        'chunk_length is 9, the checkpoint gives 8 steps',
    ):
        assert told in str(caught.value)
