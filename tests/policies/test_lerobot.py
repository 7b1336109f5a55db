"""LeRobot checkpoints: what is refused at the door, and tiny ones of LeRobot's own, saved, loaded, asked and run."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.worlds.conftest import libero_assets, made

from robotrials.errors import InputError, RemoteError, SetupError
from robotrials.policies.lerobot import LeRobotPolicy
from robotrials.record import read_store
from robotrials.run import Observation, Setup, check_policy
from robotrials.run.environment import read_recipe
from robotrials.run.environment.create import check_environment, create_environment
from robotrials.run.environment.recipe import link_robotrials
from robotrials.testing.policy import PointMassHost

__all__ = ['libero_assets']  # a fixture
LOADING_S = 5 * PATIENCE_S  # torch, transformers and a checkpoint, from a cold disk
ENVIRONMENTS = {'lerobot': '0.4.4', 'lerobot-0.6': '0.6.1'}
EACH = ['lerobot', pytest.param('lerobot-0.6', marks=pytest.mark.drift)]
ROOT = Path(__file__).resolve().parents[2]
OPTIONS: dict[str, Any] = {
    'observation': {
        'images': {'observation.images.top': 'top'}, 'state': {'observation.state': [0, 4]}, 'prompt': 'task',
    },
    'action': {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'chunk_length': 8},
    'connect_timeout_s': LOADING_S,
}  # fmt: skip


def checkpoint(folder: Path, **changes: Any) -> Path:
    """The files of a checkpoint, as far as they are looked at before anything is loaded."""
    folder.mkdir(exist_ok=True)
    (folder / 'config.json').write_text('{"type": "act"}')
    (folder / 'model.safetensors').write_bytes(b'')
    for name in ('policy_preprocessor.json', 'policy_postprocessor.json'):
        (folder / name).write_text(json.dumps(changes.get(name[:-5], {'steps': [{'registry_name': 'x'}]})))
    return folder


def test_a_server_is_named_by_another_policy() -> None:
    with pytest.raises(InputError, match='use = "lerobot-server"'):
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


@dataclass(frozen=True)
class Sample:
    """A tiny checkpoint that LeRobot saved, what LeRobot itself answers, and the environment it came from."""

    folder: Path
    expected: np.ndarray
    environment: str


def save(environment: str, kind: str, folder: Path, *rest: object) -> Sample:
    os.environ.setdefault('ROBOTRIALS_ENVIRONMENTS', str(ROOT / '.peers' / 'environments'))
    made = create_environment(read_recipe(environment))
    command = [str(made.python), '-m', 'robotrials.policies.lerobot_sample', kind, str(folder), *map(str, rest)]
    variables = {'PATH': os.environ['PATH'], 'HOME': str(folder), 'HF_HUB_OFFLINE': '1'}
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=LOADING_S,
        env={**variables, 'PYTHONPATH': str(link_robotrials(made.folder))},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return Sample(folder, np.array(json.loads(ran.stdout.splitlines()[-1])), environment)


@pytest.fixture(scope='module', params=EACH)
def act(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return save(request.param, 'act', tmp_path_factory.mktemp('act'))


def seen() -> Observation:
    image = (np.arange(64 * 64 * 3) % 251).astype(np.uint8).reshape(64, 64, 3)
    return Observation(0.0, np.linspace(0.0, 0.3, 4, dtype=np.float32), {'top': image})


@pytest.mark.peers
def test_a_checkpoint_answers_as_lerobot_itself_does(act: Sample) -> None:
    expected = act.expected
    options = {**OPTIONS, 'path': str(act.folder), 'environment': act.environment}
    policy = LeRobotPolicy(**options)
    policy.fit(PointMassHost(camera_px=64).spec)
    facts: Any = policy.facts
    assert (facts['type'], facts['mode'], facts['steps'], facts['action_width']) == ('act', 'chunk', 8, 3)
    assert facts['versions']['lerobot'] == ENVIRONMENTS[act.environment]
    session = policy.start(Setup(task='t', seed=0, instruction='go'), seed=0)
    chunk = session.act(seen())
    np.testing.assert_allclose(chunk.actions, expected, atol=1e-5)
    assert chunk.inference_s is not None
    pair = policy.act_many([session, session], [seen(), seen()])
    np.testing.assert_allclose(pair[1].actions, expected, atol=1e-5)
    check_policy(policy, host=PointMassHost(camera_px=64), task='reach', steps=24, deterministic=True)
    policy.close()
    one = LeRobotPolicy(**{**options, 'mode': 'step', 'action': {**OPTIONS['action'], 'chunk_length': 1}})
    one.fit(PointMassHost(camera_px=64).spec)
    stepping = one.start(Setup(task='t', seed=0, instruction='go'), seed=0)
    np.testing.assert_allclose([stepping.act(seen()).actions[0] for _ in range(8)], expected, atol=1e-5)
    one.close()


@pytest.mark.peers
def test_the_checkpoints_features_are_held_against_the_mapping(act: Sample) -> None:
    wrong = {'observation': {'state': {'observation.state': [0, 3], 'observation.effort': [0, 1]}}}
    policy = LeRobotPolicy(
        path=str(act.folder), environment=act.environment,
        **{**OPTIONS, **wrong, 'action': {**OPTIONS['action'], 'chunk_length': 9}},
    )  # fmt: skip
    with pytest.raises(InputError) as caught:
        policy.fit(PointMassHost(camera_px=64).spec)
    for told in (
        'observation.state is (3,), the checkpoint wants (4,)',
        'wants observation.images.top of shape (3, 64, 64)',
        'sends observation.effort',
        'chunk_length is 9, the checkpoint gives 8 steps',
    ):
        assert told in str(caught.value)


@pytest.mark.peers
@pytest.mark.parametrize('environment', EACH)
def test_every_kind_loads_and_answers_as_lerobot_does_in_the_environment(environment: str) -> None:
    """ACT, diffusion and SmolVLA, by the recipe's own checks; a check that finds a difference fails."""
    os.environ.setdefault('ROBOTRIALS_ENVIRONMENTS', str(ROOT / '.peers' / 'environments'))
    recipe = read_recipe(environment)
    create_environment(recipe)
    assert [check.rpartition('_')[2] for check in recipe.checks] == ['act', 'diffusion', 'smolvla']
    assert check_environment(recipe) == []
    amiss = dataclasses.replace(recipe, checks=('robotrials.policies.lerobot_sample:_check',))
    assert 'missing 1 required positional argument' in check_environment(amiss)[0]


PLAN = """
seed = 3
benchmark = "tabletop"
episodes_per_cell = 2
time_cap_s = 2
tasks = [{{name = "single_block"}}]

[host]
use = "tabletop"
options = {{control = "joint", cameras = ["front"], image_size = [64, 64], shadows = false}}

[policies.tiny]
use = "lerobot"

[policies.tiny.options]
path = {path}
environment = {environment}

[policies.tiny.options.observation]
images = {{"observation.images.top" = "front"}}
state = {{"observation.state" = [0, 8]}}
prompt = "task"

[policies.tiny.options.action]
chunk_length = 8

[policies.tiny.options.action.convention]
control_mode = "joint_position"
target = "absolute"
frame = "joint"
n_joints = 7
gripper = "open_is_one"

[policies.nothing]
use = "no_op"

[blinding]
secret = "one of our own"
"""


@pytest.mark.peers
@pytest.mark.parametrize('environment', EACH)
def test_a_smolvla_is_evaluated_on_the_cell_from_its_folder(environment: str, tmp_path: Path) -> None:
    """The folder of a training run, as LeRobot lays it out, named in a plan; run, closed and scored by verbs."""
    run = tmp_path / 'train'
    save(environment, 'smolvla', run / 'checkpoints' / 'last' / 'pretrained_model', 8, 8)
    plan = tmp_path / 'cell.toml'
    plan.write_text(PLAN.format(path=json.dumps(str(run)), environment=json.dumps(environment)))
    store = tmp_path / 'store'
    verb('run', str(plan), '--store', str(store))
    verb('close', str(plan), '--store', str(store), '--by', 'kim')
    told = json.loads(verb('score', str(store), '--format', 'json'))
    episodes = [e for e in read_store(store).episodes() if e.policy == 'tiny']
    assert [e.is_valid for e in episodes] == [True, True], 'random weights may hit the table'
    assert [row['episodes'] for row in told[0]['rows'] if row['policy'] == 'tiny'] == [2]
    assert all(e.instruction for e in episodes)


@pytest.mark.peers
@pytest.mark.drift
def test_a_smolvla_is_evaluated_on_libero_as_the_page_says(libero_assets: Path, tmp_path: Path) -> None:
    """The page's own plan and commands, with fewer and smaller steps; the start states are lerobot-eval's."""
    made('libero')
    run = tmp_path / 'smolvla'
    last = run / 'checkpoints' / 'last' / 'pretrained_model'
    sample = save('lerobot-0.6', 'smolvla', last, 8, 7, 'image', 'image2')
    page = (ROOT / 'docs' / 'how-to' / 'run-a-lerobot-checkpoint.md').read_text(encoding='utf-8')
    text = next(block for block in re.findall('```toml\n(.*?)```', page, re.DOTALL) if 'libero-object' in block)
    small = f'image_size = [64, 64]\nassets = {json.dumps(str(libero_assets))}'
    pictures = {
        f'observation.images.{key}': f'{{camera = "{camera}", size_px = [64, 64], rotate_deg = 180}}'
        for key, camera in (('image', 'agentview'), ('image2', 'wrist'))
    }
    for written, instead in {
        'path = "outputs/train/smolvla"': f'path = {json.dumps(str(run))}',
        'image_size = [256, 256]': small,
        'episodes_per_cell = 3': 'episodes_per_cell = 2',
        'time_cap_s = 14.0': 'time_cap_s = 0.8',
        '[policies.smolvla.options.action]': '[policies.smolvla.options.observation.images]\n'
        + ''.join(f'"{key}" = {value}\n' for key, value in pictures.items())
        + '[policies.smolvla.options.action]',
    }.items():
        assert written in text
        text = text.replace(written, instead)
    plan, store = tmp_path / 'plan.toml', tmp_path.parent / f'{tmp_path.name[-4:]}-runs'
    plan.write_text(text + f'[watchdog]\nhost_s = {LOADING_S}\npolicy_s = {LOADING_S}\n')
    verb('run', str(plan), '--store', str(store))
    verb('close', str(plan), '--store', str(store), '--by', 'kim')
    told = json.loads(verb('score', str(store), '--format', 'json'))
    assert [row['episodes'] for row in told[0]['rows'] if row['policy'] == 'smolvla'] == [2]
    read = read_store(store)
    episodes = sorted((e for e in read.episodes() if e.policy == 'smolvla'), key=lambda e: e.instance)
    assert [(e.is_valid, e.instance, e.instruction) for e in episodes] == [
        (True, instance, 'pick up the alphabet soup and place it in the basket') for instance in range(2)
    ]
    steps = [read.trajectory(episode) for episode in episodes]
    assert [len(one.time_s) for one in steps if one is not None] == [16, 16]
    sent = np.concatenate([one.action_raw for one in steps if one is not None and one.action_raw is not None])
    assert np.isfinite(sent).all()
    assert len(np.unique(sent, axis=0)) > 16, 'a checkpoint that looks answers differently'
    assert np.abs(sent.mean(axis=0) - sample.expected.mean(axis=0)).max() < 0.1, 'of the size LeRobot itself answers'


def verb(*arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, '-m', 'robotrials', *arguments], capture_output=True, text=True, timeout=LOADING_S
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.peers
@pytest.mark.parametrize('environment', EACH)
def test_a_name_on_the_hub_goes_to_lerobots_loader(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline: from the Hub's cache where it is there, with its revision; otherwise an error that says what to do."""
    monkeypatch.setenv('HF_HOME', str(tmp_path))
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    options = {**OPTIONS, 'environment': environment}
    policy = LeRobotPolicy(path='somebody/act_tiny', **options)
    with pytest.raises(
        SetupError, match=r'somebody/act_tiny is neither in the cache .* `hf download somebody/act_tiny`'
    ):
        policy.fit(PointMassHost(camera_px=64).spec)
    kept = tmp_path / 'hub' / 'models--somebody--act_tiny'
    sample = save(environment, 'act', kept / 'snapshots' / ('a' * 40))
    (kept / 'refs').mkdir()
    (kept / 'refs' / 'main').write_text('a' * 40)
    policy.fit(PointMassHost(camera_px=64).spec)
    assert str(policy.facts['checkpoint']).endswith('a' * 40)
    answer = policy.start(Setup(task='t', seed=0, instruction='go'), seed=0).act(seen())
    np.testing.assert_allclose(answer.actions, sample.expected, atol=1e-5)
    policy.close()
    (sample.folder / 'policy_preprocessor.json').write_text('{"steps": [{"class": "os.system"}]}')
    with pytest.raises(InputError, match='names a class to import'):
        policy.fit(PointMassHost(camera_px=64).spec)


@pytest.mark.peers
def test_what_a_checkpoint_lacks_is_said_and_never_random(tmp_path: Path) -> None:
    """A backbone that is not on this machine; a setting that the kind does not have; weights that are missing."""
    sample = save('lerobot', 'smolvla', tmp_path / 'smolvla')
    host = PointMassHost(camera_px=64).spec
    away = LeRobotPolicy(path=str(sample.folder), overrides={'vlm_model_name': 'somebody/backbone'}, **OPTIONS)
    with pytest.raises(SetupError, match=r'somebody/backbone is neither .* `network = true`'):
        away.fit(host)
    moved = tmp_path / 'moved'
    shutil.copytree(sample.folder / 'backbone', moved)
    shutil.rmtree(sample.folder / 'backbone')
    policy = LeRobotPolicy(path=str(sample.folder), overrides={'vlm_model_name': str(moved)}, **OPTIONS)
    policy.fit(host)
    policy.close()
    odd = LeRobotPolicy(path=str(sample.folder), overrides={'n_actions': 1}, **OPTIONS)
    with pytest.raises(RemoteError, match='smolvla has no n_actions; it has'):
        odd.fit(host)
    config = sample.folder / 'config.json'
    config.write_text(json.dumps({**json.loads(config.read_text()), 'of_tomorrow': 1}))
    with pytest.raises(RemoteError, match=r'is not of LeRobot 0\.4\.4.* name the environment of the release'):
        LeRobotPolicy(path=str(sample.folder), **OPTIONS).fit(host)
    cut = LeRobotPolicy(
        path=str(save('lerobot', 'act', tmp_path / 'act').folder), overrides={'n_encoder_layers': 2}, **OPTIONS
    )
    with pytest.raises(RemoteError, match='weights of this policy, which would be random'):
        cut.fit(host)
