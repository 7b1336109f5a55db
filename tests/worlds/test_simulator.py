"""Simulators with interfaces of their own: quick, with stand-ins of those; and as they are, in their environments."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.page_commands import run_page
from tests.worlds.conftest import RUN_S, SCRIPTS, made

from robotrials.errors import InputError, SetupError
from robotrials.record import Outcome
from robotrials.run.environment.recipe import link_robotrials
from robotrials.worlds import check_host
from robotrials.worlds.gymnasium import GymnasiumHost, gymnasium_host, mapping_table, read_mapping
from robotrials.worlds.simulator import find_swiftshader, padded, read_environment_of

ROOT = Path(__file__).resolve().parents[2]
Modules = Callable[..., None]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Modules:
    """Puts modules with these contents where an import finds them."""

    def put(**contents: Any) -> None:
        for name, parts in contents.items():
            dotted = name.replace('__', '.')
            module = ModuleType(dotted)
            module.__dict__.update(parts)
            monkeypatch.setitem(sys.modules, dotted, module)
            above, _, last = dotted.rpartition('.')
            if above:
                monkeypatch.setattr(sys.modules[above], last, module, raising=False)

    return put


class CubeWorld:
    """ManiSkill's interface with a batch of one: a point that is to be at 0.1."""

    control_freq, unwrapped = 20, None

    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.options, self.unwrapped = name, options, self
        self.action_space = SimpleNamespace(low=-np.ones(7, np.float32), high=np.ones(7, np.float32))

    def reset(self, *, seed: int) -> Any:
        self.at = np.random.default_rng(seed).uniform(-0.01, 0.01, 7)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.at = self.at + 0.1 * np.asarray(action)
        is_there = np.array([abs(self.at[0] - 0.1) < 0.02])
        return self._seen(), np.array([0.5]), is_there, np.array([False]), {'success': is_there, 'wide': np.ones(3)}

    def get_state(self) -> Any:
        return self.at[None]

    def close(self) -> None:
        pass

    def _seen(self) -> Any:
        state = np.concatenate([self.at, np.ones(3)])[None]
        if self.options['obs_mode'] == 'state':
            return state
        picture = np.full((1, self.options['sensor_configs']['height'], 6, 3), 7, np.uint8)
        return {'state': state, 'sensor_data': {'base_camera': {'rgb': picture}}}


class Builder:
    def add_box_visual(self) -> None:
        raise AssertionError('this wants Vulkan')


@pytest.fixture
def maniskill(modules: Modules) -> None:
    def material() -> None:
        raise AssertionError('this wants Vulkan')

    render: dict[str, Any] = {'RenderMaterial': material, 'RenderSystem': lambda *given: given}
    builders = {'ActorBuilder': Builder}
    modules(
        gymnasium={'make': CubeWorld}, sapien={}, sapien__render=render, sapien__wrapper={},
        sapien__wrapper__urdf_loader=render, sapien__wrapper__actor_builder=builders, mani_skill={},
        mani_skill__envs={}, mani_skill__utils={}, mani_skill__utils__building={},
        mani_skill__utils__building__actor_builder=builders,
        mani_skill__utils__registration={'REGISTERED_ENVS': {'PickCube-v1': SimpleNamespace(max_episode_steps=50)}},
    )  # fmt: skip


def hosted(name: str, **changes: Any) -> GymnasiumHost:
    return GymnasiumHost(mapping=mapping_table(read_mapping(name, changes)))


def test_a_task_of_maniskill_is_a_host_in_every_wrapper(maniskill: None) -> None:
    host = hosted('maniskill')
    check_host(host, task='PickCube-v1', seed=3)
    assert (host.spec.state_width, host.spec.control_rate_hz, host.protocol().step_cap) == (54, 20.0, 50)
    state = host.reset('PickCube-v1', seed=3).state
    assert state[7:10].tolist() == [1.0, 1.0, 1.0]
    assert not state[10:].any(), 'narrower states end in zeros'
    host.step(np.array([0.1, 0, 0, 0.05, 0, 0, 1]))
    signals = host.signals()
    np.testing.assert_allclose(signals['action_processed_own'], [1, 0, 0, -0.5, 0, 0, 1], err_msg='as it counts turns')
    assert signals['simulator_state'].shape == (7,)
    assert host.outcome() is Outcome.SUCCESS


def test_maniskill_draws_only_where_it_is_asked_to(
    maniskill: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = {'images': {'base_camera': 'base_camera'}, 'arguments': {'image_size': [4, 6]}}
    monkeypatch.setenv('ROBOTRIALS_SWIFTSHADER', str(tmp_path / 'none.so'))
    monkeypatch.setattr('robotrials.worlds.simulator.SWIFTSHADER_PLACES', ())
    monkeypatch.delenv('VK_ICD_FILENAMES', raising=False)
    with pytest.raises(SetupError, match='apt-get install chromium'):
        hosted('maniskill', **drawn)
    (tmp_path / 'none.so').touch()
    host = hosted('maniskill', **drawn)
    driver = json.loads(Path(os.environ['VK_ICD_FILENAMES']).read_text())
    monkeypatch.delenv('VK_ICD_FILENAMES')
    assert driver['ICD']['library_path'] == str(find_swiftshader())
    assert host.reset('PickCube-v1', seed=0).images['base_camera'].shape == (4, 6, 3)


def test_a_state_wider_than_declared_is_refused() -> None:
    assert padded([1.0, 2.0], 0).tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match='has 3 numbers, and width is 2'):
        padded(np.ones(3), 2)


def test_the_environment_of_a_data_set_is_read_and_of_other_files_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip('h5py')
    with h5py.File(tmp_path / 'lift.hdf5', 'w') as file:
        file.create_group('data').attrs['env_args'] = json.dumps(
            {'env_name': 'Lift', 'type': 1, 'env_kwargs': {'robots': ['Panda']}}
        )
    assert read_environment_of(str(tmp_path / 'lift.hdf5')) == ('Lift', {'robots': ['Panda']})
    (tmp_path / 'other.hdf5').write_text('no such thing')
    with pytest.raises(InputError, match='wanted its data set'):
        read_environment_of(str(tmp_path / 'other.hdf5'))


def section(title: str) -> str:
    text = (ROOT / 'docs' / 'how-to' / 'more-worlds.md').read_text(encoding='utf-8')
    return re.split(r'^## ', text[text.index(f'## {title}') + 3 :], flags=re.MULTILINE)[0]


@pytest.mark.hosts
def test_the_commands_for_gymnasium_robotics_run_as_the_page_has_them(tmp_path: Path) -> None:
    result = run_page(section('gymnasium-robotics'), tmp_path)
    assert (result.n_run, result.failed) == (3, [])


@pytest.mark.hosts
@pytest.mark.drift
@pytest.mark.parametrize('title', ['ManiSkill 3 on the CPU', 'robomimic'])
def test_the_commands_for_a_large_world_run_as_the_page_has_them(title: str, tmp_path: Path) -> None:
    result = run_page(section(title), tmp_path)
    assert (result.n_run, result.failed) == (3, [])


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    hosts: list[Any] = []

    def make(mapping: str, **changes: Any) -> Any:
        made(read_mapping(mapping).environment)
        hosts.append(gymnasium_host(mapping=mapping, **changes))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


@pytest.mark.hosts
@pytest.mark.parametrize('mapping', ['franka-kitchen', 'hand-reach'])
def test_a_world_of_gymnasium_robotics_keeps_its_contract(mapping: str, opened: Callable[..., Any]) -> None:
    host = opened(mapping)
    check_host(host, task=host.spec.tasks[0], seed=3, steps=10)


@pytest.mark.hosts
@pytest.mark.drift
def test_every_task_of_maniskill_begins_and_goes_on_the_same_whatever_was_run_before(
    opened: Callable[..., Any],
) -> None:
    """PlugCharger does not, unless it is made anew."""
    host = opened('maniskill')
    rng = np.random.default_rng(0)
    actions = np.column_stack([rng.uniform(-0.1, 0.1, (15, 6)), rng.choice([-1.0, 1.0], 15)])

    def states(task: str, seed: int) -> bytes:
        return b''.join([host.reset(task, seed=seed).state.tobytes(), *(host.step(a).state.tobytes() for a in actions)])

    for task in host.spec.tasks:
        first = states(task, 3)
        assert states(task, 5) != first
        assert states(task, 3) == first, task
        assert host.protocol().step_cap == {'RollBall-v1': 80, 'PegInsertionSide-v1': 100, 'PlugCharger-v1': 200}.get(
            task, 50
        )
    check_host(host, task='PokeCube-v1', seed=1, steps=10)


@pytest.mark.hosts
@pytest.mark.drift
def test_pictures_of_maniskill_change_nothing_in_the_simulation(opened: Callable[..., Any]) -> None:
    drawn = opened('maniskill', images={'base_camera': 'base_camera'}, arguments={'image_size': [32, 48]})
    plain = opened('maniskill')
    for host in (drawn, plain):
        seen = host.reset('StackCube-v1', seed=3)
        if host is drawn:
            assert seen.images['base_camera'].shape == (32, 48, 3)
            assert seen.images['base_camera'].std() > 5
    for action in np.random.default_rng(1).uniform(-0.1, 0.1, (8, 7)):
        assert drawn.step(action).state.tobytes() == plain.step(action).state.tobytes()


@pytest.mark.hosts
@pytest.mark.drift
def test_robomimic_takes_the_environment_and_starts_of_a_data_set_and_builds_nothing_from_a_checkpoint(
    tmp_path: Path, opened: Callable[..., Any]
) -> None:
    environment = made('robomimic')
    variables = {**os.environ, 'PYTHONPATH': str(link_robotrials(environment.folder))}
    command = [str(environment.python), '-W', 'ignore', str(SCRIPTS / 'robomimic_source.py'), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=variables, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    plain = opened('robomimic')
    check_host(plain, task='PickPlaceCan', seed=2, steps=5)
    starts = [plain.reset('Lift', seed=seed).state[:19] for seed in (0, 1)]
    assert plain.protocol().step_cap == 400
    for source, kind, near in (('lift.pth', 'seed', 0.0), ('lift.hdf5', 'demonstrations', 1e-6)):
        arguments = {'source': str(tmp_path / source), 'starts': kind, 'width': 0}
        host = opened('robomimic', tasks=['Lift'], arguments=arguments)
        for seed, start in enumerate(starts):
            np.testing.assert_allclose(host.reset('Lift', seed=seed).state, start, atol=near, rtol=0)
    with pytest.raises(InputError, match='demonstrations 0 to 1'):
        host.reset('Lift', seed=7)
    with pytest.raises(InputError, match='Weights only load failed'):
        opened('robomimic', tasks=['Lift'], arguments={'source': str(tmp_path / 'harmful.pth')})
