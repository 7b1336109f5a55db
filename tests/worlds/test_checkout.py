"""Benchmarks from a checkout: small stand-ins of their interfaces, laid out as their repositories are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.plans import make_plan
from tests.worlds.conftest import made

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.record import Outcome, read_store
from robotrials.run import run_trial
from robotrials.worlds import check_host
from robotrials.worlds.checkout import (
    PLUS_CATEGORIES,
    UNTRIED,
    check_checkout,
    checkout_host,
    plus_tasks,
    pro_suite,
    read_benchmarks,
)
from robotrials.worlds.gymnasium import read_mapping
from robotrials.worlds.replay import carry_out_again
from robotrials.worlds.robosuite import read_family

Lay = Callable[..., Path]

CALVIN = {
    'calvin_env/calvin_env/envs/play_table_env.py': """
import numpy as np
class PlayTableSimEnv:
    def reset(self, robot_obs=None, scene_obs=None):
        self.robot, self.scene = np.array(robot_obs), np.array(scene_obs)
        return self.get_obs()
    def get_obs(self):
        pictures = {'rgb_static': np.full((6, 6, 3), 5, np.uint8), 'rgb_gripper': np.full((4, 4, 3), 6, np.uint8)}
        return {'rgb_obs': pictures, 'depth_obs': {}, 'robot_obs': self.robot, 'scene_obs': self.scene}
    def get_info(self):
        return {'scene_info': {'drawer': float(self.robot[0])}}
    def step(self, action):
        assert action[-1] in (1.0, -1.0)
        action[:3] *= 0.02  # in place, as calvin_env does
        self.robot[:3] += action[:3]
        return self.get_obs(), 0, False, self.get_info()
    def close(self):
        pass
def get_env(dataset_path, show_gui=True):
    assert (dataset_path / '.hydra' / 'merged_config.yaml').is_file() and not show_gui
    return PlayTableSimEnv()
""",
    'calvin_env/calvin_env/__init__.py': '',
    'calvin_env/calvin_env/envs/__init__.py': '',
    'calvin_models/calvin_agent/__init__.py': '',
    'calvin_models/calvin_agent/evaluation/__init__.py': '',
    'calvin_models/calvin_agent/evaluation/multistep_sequences.py': """
def get_sequences(num_sequences=1000, num_workers=None):
    chains = [('open_drawer', 'lift_red_block_table'), ('turn_on_led', 'open_drawer'), ('open_drawer', 'turn_on_led')]
    first = ({'led': 0}, ('rotate_red_block_right', 'open_drawer'))
    return [first, *(({'led': number}, chain) for number, chain in enumerate(chains))]
""",
    'calvin_models/calvin_agent/evaluation/utils.py': """
import numpy as np
def get_env_state_for_initial_condition(condition):
    return np.full(15, 0.1 * condition['led']), np.zeros(24)
""",
    # The two libraries that CALVIN reads its configuration with.
    'calvin_models/omegaconf.py': """
import pathlib
class OmegaConf:
    @staticmethod
    def load(path):
        assert pathlib.Path(path).is_file()
        return Words()
class Words:
    def __getitem__(self, task):
        return [task.replace('_', ' ')]
""",
    'calvin_models/hydra.py': """
class Tasks:
    def get_task_info_for_set(self, start, end, tasks):
        assert len(tasks) == 1
        return tasks if end['scene_info']['drawer'] - start['scene_info']['drawer'] > 0.03 else set()
class utils:
    @staticmethod
    def instantiate(config):
        return Tasks()
""",
    'calvin_models/conf/annotations/new_playtable_validation.yaml': '',
    'calvin_models/conf/callbacks/rollout/tasks/new_playtable_tasks.yaml': '',
    'dataset/task_D_D/validation/.hydra/merged_config.yaml': '',
}
SIMPLER = {
    'simpler_env/__init__.py': """
import numpy as np
class Box:
    low, high = -np.ones(7, np.float32), np.ones(7, np.float32)
class Scene:
    action_space = Box
    def __init__(self, task):
        self.task, self.unwrapped = task, self
    def get_language_instruction(self):
        return 'put spoon on towel'
    def reset(self, *, seed=None, options=None):
        self.at = np.full(8, 0.01 * options['obj_init_options']['episode_id'] if options else 0.001 * seed)
        return self.seen(), {}
    def step(self, action):
        self.at[:7] += 0.1 * action
        return self.seen(), 0.0, bool(self.at[0] > 0.3), False, {}
    def seen(self):
        picture = np.full((4, 6, 3), 9, np.uint8)
        view = {'3rd_view_camera': {'rgb': picture}}
        return {'agent': {'qpos': self.at.copy()}, 'extra': {'tcp_pose': np.ones(7)}, 'image': view}
    def close(self):
        pass
def make(task_name):
    return Scene(task_name)
""",
    'simpler_env/utils/__init__.py': '',
    'simpler_env/utils/env/__init__.py': '',
    'simpler_env/utils/env/observation_utils.py': """
def get_image_from_maniskill2_obs_dict(env, obs, camera_name=None):
    return obs['image']['3rd_view_camera']['rgb']
""",
    'ManiSkill2_real2sim/mani_skill2_real2sim/__init__.py': '',
}


@pytest.fixture
def lay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lay]:
    """Lays files out as a repository, and forgets afterwards what was imported from it."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, 'path', [*sys.path])

    def laid(contents: dict[str, str], *, name: str = 'checkout') -> Path:
        for path, text in contents.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path / name

    yield laid
    for module in set(sys.modules) - before:
        file = getattr(sys.modules[module], '__file__', None) or ''
        if file.startswith(str(tmp_path)):
            del sys.modules[module]


def test_the_first_task_of_a_sequence_of_calvin_is_an_episode(lay: Lay) -> None:
    folder = lay(CALVIN)
    host: Any = checkout_host(benchmark='calvin', checkout=str(folder), environment='', dataset='dataset/task_D_D')
    check_host(host, task='open_drawer', seed=3)
    facts = host.protocol()
    assert (facts.step_cap, facts.control_rate_hz, host.spec.state_width) == (360, 30.0, 15)
    assert UNTRIED in facts.assets_note, 'said in every record'
    starts = [host.reset('open_drawer', seed=seed).state[0] for seed in range(3)]
    assert starts == [0.0, 0.2, 0.0], 'the two sequences that begin with it, in turn'
    assert host.instruction() == 'open drawer'
    assert host.outcome() is None
    for _ in range(2):
        seen = host.step(np.array([0.02, 0, 0, 0, 0, 0, 0.3]))
    assert seen.state[0] == pytest.approx(0.04), 'metres'
    assert {name: image.shape for name, image in seen.images.items()} == {'static': (6, 6, 3), 'gripper': (4, 4, 3)}
    assert host.outcome() is Outcome.SUCCESS
    with pytest.raises(InputError, match='begins with stack_block'):
        host.reset('stack_block', seed=0)


def test_a_task_of_simpler_env_starts_from_its_published_layouts(lay: Lay) -> None:
    folder = lay(SIMPLER)
    host: Any = checkout_host(benchmark='simpler-widowx', checkout=str(folder), environment='')
    check_host(host, task='widowx_stack_cube', seed=3)
    assert host.reset('widowx_stack_cube', seed=27).state[0] == pytest.approx(0.03), '27 modulo 24'
    assert host.instruction() == 'put spoon on towel'
    assert (host.protocol().step_cap, host.spec.control_rate_hz) == (60, 5.0)
    host.reset('widowx_put_eggplant_in_basket', seed=1)
    assert host.protocol().step_cap == 120
    google: Any = checkout_host(benchmark='simpler-google', checkout=str(folder), environment='')
    for task, cap in (('google_robot_open_drawer', 113), ('google_robot_pick_coke_can', 80)):
        google.reset(task, seed=5)
        assert google.protocol().step_cap == cap
    assert google.spec.control_rate_hz == 3.0


def test_a_trial_with_floors_runs_from_a_checkout_and_plays_back(lay: Lay, tmp_path: Path) -> None:
    options = {'benchmark': 'simpler-widowx', 'checkout': str(lay(SIMPLER)), 'environment': ''}
    plan = make_plan(
        host={'use': 'checkout', 'options': options}, tasks=[{'name': 'widowx_stack_cube'}], episodes_per_cell=4,
        policies={'still': {'use': 'no_op'}, 'chance': {'use': 'random', 'options': {'scale': 0.1}}}, reference=None,
        time_cap_s=2.0, blinding={'enabled': False}, conditions=None, strata=None,
    )  # fmt: skip
    run_trial(plan, tmp_path / 'store', workers=0)
    store = read_store(tmp_path / 'store')
    episodes = list(store.episodes())
    assert [episode.outcome for episode in episodes] == [Outcome.TIMEOUT] * 8
    assert UNTRIED in store.provenance(episodes[0].provenance_id).protocol['assets_note']
    host: Any = checkout_host(**options)
    recorded = {episode.episode_id: store.trajectory(episode) for episode in episodes}
    pairs = list(carry_out_again(tmp_path / 'store', host))
    assert len(pairs) == 8
    for again, trajectory in pairs:
        before = recorded[again.episode_id]
        assert before is not None
        np.testing.assert_array_equal(trajectory.extra['observation_state'], before.extra['observation_state'])


def test_what_is_missing_is_listed_with_where_it_comes_from(lay: Lay, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r'git clone https://github\.com/mees/calvin'):
        checkout_host(benchmark='calvin', checkout=str(tmp_path / 'nowhere'), dataset='x')
    folder = lay({'calvin_env/README.md': ''})
    with pytest.raises(SetupError, match='git submodule update --init') as raised:
        checkout_host(benchmark='calvin', checkout=str(folder), dataset='dataset/task_D_D')
    assert 'dataset/task_D_D/validation/.hydra/merged_config.yaml (from: dataset/download_data.sh' in str(raised.value)
    with pytest.raises(SetupError, match=r'libero_goal_swap \(from: bddl_files of the data set'):
        checkout_host(benchmark='libero-pro', checkout=str(folder), suite='libero-goal-swap')
    with pytest.raises(SetupError, match='download_kitchen_assets'):
        check_checkout('robocasa', folder)
    with pytest.raises(UnknownName, match="did you mean 'calvin'"):
        checkout_host(benchmark='calvn', checkout=str(folder))
    whole = lay(CALVIN, name='whole')
    with pytest.raises(InputError, match='wants the option environment'):
        checkout_host(benchmark='calvin', checkout=str(whole), dataset='dataset/task_D_D')
    with pytest.raises(InputError, match='wants the option dataset'):
        checkout_host(benchmark='calvin', checkout=str(whole))


def test_a_package_that_the_environment_lacks_is_named(lay: Lay) -> None:
    folder = lay({**SIMPLER, 'simpler_env/__init__.py': 'import tensorflow_that_is_not_here'})
    with pytest.raises(SetupError, match="imports 'tensorflow_that_is_not_here'"):
        checkout_host(benchmark='simpler-widowx', checkout=str(folder), environment='')


def test_the_commit_of_a_checkout_is_recorded(lay: Lay) -> None:
    folder = lay(SIMPLER)
    git = ['git', '-C', str(folder), '-c', 'user.name=a', '-c', 'user.email=a@b']
    for command in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'all']):
        subprocess.run([*git, *command], check=True)
    host: Any = checkout_host(benchmark='simpler-widowx', checkout=str(folder), environment='')
    commit = subprocess.run([*git, 'rev-parse', 'HEAD'], check=True, capture_output=True, text=True).stdout.strip()
    assert host.protocol().packages['simpler-widowx'] == commit[:12]
    (folder / 'simpler_env' / '__init__.py').write_text(SIMPLER['simpler_env/__init__.py'] + '\n')
    changed: Any = checkout_host(benchmark='simpler-widowx', checkout=str(folder), environment='')
    assert changed.protocol().packages['simpler-widowx'] == f'{commit[:12]}-dirty'


def test_the_tables_are_whole() -> None:
    for name, entry in read_benchmarks().items():
        assert entry.needs, name
        if entry.mapping:
            assert read_mapping('', entry.mapping).tasks
    family = read_family('robocasa')
    assert (family.tasks['OpenCabinet'].step_cap, family.tasks['PnPCounterToSink'].step_cap) == (700, 700)
    assert all(task.step_cap for task in family.tasks.values())


def test_suites_and_categories_are_those_of_the_benchmarks(lay: Lay) -> None:
    assert (pro_suite('libero-10-lan').name, pro_suite('libero_10_lan').step_cap) == ('libero_10_lan', 520)
    with pytest.raises(UnknownName, match="did you mean 'libero-goal-swap'"):
        pro_suite('libero-goal-swp')
    entries = [
        {'id': number + 1, 'name': f'a_{number}', 'category': category, 'difficulty_level': None}
        for number, category in enumerate(PLUS_CATEGORIES)
    ]
    path = 'libero/libero/benchmark/task_classification.json'
    folder = lay({path: json.dumps({'libero_goal': entries})})
    assert len(plus_tasks(folder, 'libero-goal')) == 7
    assert list(plus_tasks(folder, 'libero_goal', categories=['Sensor Noise'])) == ['task_6']
    with pytest.raises(UnknownName, match='category of LIBERO-Plus'):
        plus_tasks(folder, 'libero-goal', categories=['Noise'])
    with pytest.raises(InputError, match='not the classification'):
        plus_tasks(folder, 'libero-10')


def libero_checkout(folder: Path, assets: Path, *, suite: str) -> Path:
    """hf-libero's own package laid out as a checkout of a benchmark that replaces it, with one more suite."""
    packages = next((made('libero').folder / 'lib').glob('python3.*')) / 'site-packages' / 'libero'
    root = folder / 'libero' / 'libero'
    shutil.copytree(packages / 'libero', root, ignore=shutil.ignore_patterns('__pycache__', 'libero_90*'))
    for kind in ('bddl_files', 'init_files'):
        if suite != 'libero_goal':
            shutil.copytree(root / kind / 'libero_goal', root / kind / suite)
    (root / 'assets').symlink_to(assets)
    return folder


PRO_SUITE = """
@register_benchmark
class LIBERO_GOAL_SWAP(Benchmark):
    def __init__(self, task_order_index=0):
        super().__init__(task_order_index=task_order_index)
        self.name = "libero_goal_swap"
        self._make_benchmark()
"""


@pytest.mark.hosts
def test_libero_pro_runs_in_place_of_libero(tmp_path: Path, libero_assets: Path) -> None:
    """LIBERO's own code under the name of the benchmark: the checkout is imported, not the installed package."""
    folder = libero_checkout(tmp_path, libero_assets, suite='libero_goal_swap')
    listed = folder / 'libero' / 'libero' / 'benchmark' / '__init__.py'
    text = listed.read_text().replace('"libero_goal",', '"libero_goal", "libero_goal_swap",')
    loop, more = (
        'for libero_suite in libero_suites:',
        'libero_task_map["libero_goal_swap"] = libero_task_map["libero_goal"]',
    )
    listed.write_text(text.replace(loop, f'{more}\n{loop}', 1) + PRO_SUITE)
    host: Any = checkout_host(benchmark='libero-pro', checkout=str(folder), suite='libero-goal-swap')
    try:
        host.reset('task_0', seed=0)
        host.step(np.zeros(7))
        assert host.report().labels['perturbation'] == 'Position'
        facts = host.protocol()
        assert (facts.step_cap, facts.benchmark) == (300, 'libero-goal-swap')
        assert UNTRIED in facts.assets_note
    finally:
        host.close()


@pytest.mark.hosts
@pytest.mark.drift
def test_libero_plus_runs_in_place_of_libero_with_its_own_pictures(tmp_path: Path, libero_assets: Path) -> None:
    folder = libero_checkout(tmp_path, libero_assets, suite='libero_goal')
    entry = {'id': 1, 'name': 'open_the_middle_drawer', 'category': 'Sensor Noise', 'difficulty_level': 3}
    classified = folder / 'libero' / 'libero' / 'benchmark' / 'task_classification.json'
    classified.write_text(json.dumps({'libero_goal': [entry]}))
    host: Any = checkout_host(
        benchmark='libero-plus', checkout=str(folder), suite='libero-goal', cameras=['agentview'], image_size=[64, 64]
    )
    try:
        check_host(host, task='task_0', seed=0, steps=4, limit_s=300.0)
        labels = host.report().labels
        assert (labels['perturbation'], labels['difficulty']) == ('Sensor Noise', '3')
        assert host.spec.tasks == ('task_0',)
    finally:
        host.close()
