"""Simulators with an interface of their own, as Gymnasium environments; each runs inside its own environment."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, SetupError

Numbers = NDArray[np.float64]
Stepped = tuple[Any, float, bool, bool, dict[str, Any]]


class BoxSpace:
    """A space of actions or observations, as far as the host looks at one; needs no Gymnasium."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        self.shape, self.dtype = self.low.shape, self.low.dtype

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, BoxSpace) and np.array_equal(self.low, other.low)
        return bool(same and isinstance(other, BoxSpace) and np.array_equal(self.high, other.high))

    __hash__ = None  # type: ignore[assignment]


class Simulator:
    """What the host asks of an environment. `step_cap` is the benchmark's own for the task at hand.

    judge: the class that says what success is, where it is another.
    """

    judge: type[Any] | None = None

    metadata: Mapping[str, Any] = {'render_modes': ['rgb_array']}

    def __init__(self, *, low: Any, high: Any, width: int, step_cap: int | None = None) -> None:
        self.action_space = BoxSpace(low, high)
        self.observation_space = BoxSpace(np.full(width, -np.inf), np.full(width, np.inf))
        self.spec = SimpleNamespace(max_episode_steps=step_cap)

    @property
    def unwrapped(self) -> Simulator:
        return self


def padded(values: Any, width: int) -> Numbers:
    """Numbers with zeros behind them, so that tasks of one benchmark have states of one width; 0 keeps their own."""
    flat = np.asarray(values, dtype=float).ravel()
    if width and len(flat) > width:
        raise InputError(f'the state has {len(flat)} numbers, and width is {width}; give a larger width, or 0')
    return np.concatenate([flat, np.zeros(max(0, width - len(flat)))])


class ManipulationEnv(Simulator):
    """One task of ``dm_control.manipulation``: a Jaco arm of six joints and three fingers, driven by speeds in rad/s.

    Its start state follows from the seed that it is made with, so it is made again for every episode.
    """

    def __init__(self, *, task: str, seed: int) -> None:
        from dm_control import manipulation

        self._own: Any = manipulation.load(task, seed=seed)
        bounds = self._own.action_spec()
        width = sum(int(np.prod(spec.shape)) for spec in self._own.observation_spec().values())
        super().__init__(low=bounds.minimum, high=bounds.maximum, width=width)

    @property
    def data(self) -> Any:
        """MuJoCo's data."""
        return self._own.physics.data

    def reset(self, *, seed: int | None = None) -> tuple[Numbers, dict[str, Any]]:
        return self._read(self._own.reset()), {}

    def step(self, action: NDArray[Any]) -> Stepped:
        moment = self._own.step(action)
        is_over = bool(moment.last())
        return self._read(moment), float(moment.reward or 0.0), is_over and moment.discount == 0.0, is_over, {}

    def render(self) -> NDArray[np.uint8]:
        drawn: NDArray[np.uint8] = self._own.physics.render(height=128, width=128, camera_id=0)
        return drawn

    def close(self) -> None:
        self._own.close()

    @staticmethod
    def _read(moment: Any) -> Numbers:
        return np.concatenate([np.asarray(value, dtype=float).ravel() for value in moment.observation.values()])


# ManiSkill 3 on the CPU. Its tasks make render materials even when nothing is drawn, and SAPIEN makes those only with
# Vulkan; what is drawn never changes what is simulated, so that without pictures they are left out.

SWIFTSHADER = 'ROBOTRIALS_SWIFTSHADER'
SWIFTSHADER_PLACES = ('/usr/lib/chromium/libvk_swiftshader.so', '/usr/lib/chromium-browser/libvk_swiftshader.so')


class ManiSkillEnv(Simulator):
    """One task of ManiSkill 3, by PhysX on the CPU. The state is ManiSkill's own ``state``, padded to `width`.

    image_size: height and width of its cameras, drawn on the CPU; empty draws nothing.
    """

    def __init__(
        self,
        *,
        task: str,
        width: int = 0,
        image_size: Sequence[int] = (),
        control_mode: str = 'pd_ee_delta_pose',
        options: Mapping[str, Any] | None = None,
    ) -> None:
        draw_by_software() if image_size else draw_nothing()
        import gymnasium
        import mani_skill.envs  # noqa: F401 - registers its tasks
        from mani_skill.utils.registration import REGISTERED_ENVS

        drawing: dict[str, Any] = {'obs_mode': 'state', 'render_backend': 'none'}
        if image_size:
            size = {'height': int(image_size[0]), 'width': int(image_size[1])}
            drawing = {'obs_mode': 'state+rgb', 'render_backend': 'cpu', 'sensor_configs': size}
        self._own: Any = gymnasium.make(
            task, sim_backend='physx_cpu', control_mode=control_mode, disable_env_checker=True, **drawing,
            **(options or {}),
        )  # fmt: skip
        self._width, self._has_images = width, bool(image_size)
        space, cap = self._own.action_space, REGISTERED_ENVS[task].max_episode_steps
        super().__init__(low=space.low, high=space.high, width=width, step_cap=cap)
        self.metadata = {'render_fps': float(self._own.unwrapped.control_freq)}
        self.judge = type(self._own.unwrapped)

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._read(self._own.reset(seed=seed)[0]), {}

    def step(self, action: NDArray[Any]) -> Stepped:
        seen, reward, _, _, info = self._own.step(action)
        facts = {name: np.asarray(value).ravel() for name, value in info.items() if np.asarray(value).size == 1}
        flags = {name: value[0].item() for name, value in facts.items()}
        # It ends an episode at success or at its cap, never as a failure of its own.
        return self._read(seen), float(np.asarray(reward).item()), False, False, flags

    def simulator_state(self) -> Numbers:
        return np.asarray(self._own.unwrapped.get_state(), dtype=float).ravel()

    def close(self) -> None:
        self._own.close()

    def _read(self, seen: Any) -> dict[str, Any]:
        state = padded(np.asarray(seen['state'] if self._has_images else seen)[0], self._width)
        cameras = seen['sensor_data'] if self._has_images else {}
        return {'state': state} | {name: np.asarray(shot['rgb'][0]) for name, shot in cameras.items()}


def draw_nothing() -> None:
    """Leave out everything that ManiSkill's tasks would draw; to be called before they are imported."""
    import importlib

    import sapien.render
    import sapien.wrapper.urdf_loader

    class Undrawn:
        """Stands for a material: takes everything, does nothing."""

        def __init__(self, *given: object, **options: object) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            return lambda *given, **options: None

    sapien.render.RenderMaterial = sapien.wrapper.urdf_loader.RenderMaterial = Undrawn
    for module in ('sapien.wrapper.actor_builder', 'mani_skill.utils.building.actor_builder'):
        builder = importlib.import_module(module).ActorBuilder
        for name in dir(builder):
            if name.startswith('add_') and 'visual' in name:
                setattr(builder, name, lambda self, *given, **options: self)


def draw_by_software() -> None:
    """Have SAPIEN draw with SwiftShader, the Vulkan of Chromium, which needs no graphics card."""
    if 'VK_ICD_FILENAMES' not in os.environ:
        driver = {'library_path': str(find_swiftshader()), 'api_version': '1.0.5'}
        place = Path(tempfile.mkdtemp(prefix='robotrials-vulkan-'), 'swiftshader.json')
        place.write_text(json.dumps({'file_format_version': '1.0.0', 'ICD': driver}))
        os.environ['VK_ICD_FILENAMES'] = str(place)
    import sapien.render

    own = sapien.render.RenderSystem
    if not getattr(own, 'is_default', False):

        def default(*given: object, **options: object) -> Any:
            """The first device there is: SAPIEN finds none by the name "cpu"."""
            return own()

        default.is_default = True  # type: ignore[attr-defined]
        sapien.render.RenderSystem = default


def find_swiftshader() -> Path:
    """The library of SwiftShader; SetupError says where it comes from."""
    places = [p for p in (os.environ.get(SWIFTSHADER, ''), *SWIFTSHADER_PLACES) if p]
    for place in places:
        if Path(place).is_file():
            return Path(place)
    raise SetupError(
        f"ManiSkill's pictures are drawn with SwiftShader, and {' or '.join(places)} is not there; "
        f'`apt-get install chromium libvulkan1`, or set {SWIFTSHADER} to a libvk_swiftshader.so'
    )


def check_maniskill() -> None:
    """Raise unless a task of ManiSkill steps here without pictures."""
    _check_steps(ManiSkillEnv(task='PickCube-v1'))


def check_robomimic() -> None:
    """Raise unless a task of robomimic steps here."""
    _check_steps(RobomimicEnv(task='Lift'))


def _check_steps(env: Any) -> None:
    env.reset(seed=0)
    seen, *_ = env.step(np.zeros(env.action_space.shape, np.float32))
    if not np.isfinite(seen['state']).all():
        raise SetupError(f'{type(env).__name__}: the state is not finite after one step')
    env.close()


# robomimic: the environments that its data sets and checkpoints name, by its own wrapper.

ROBOMIMIC_STATE = ('robot0_eef_pos', 'robot0_eef_quat', 'robot0_gripper_qpos', 'object')  # as its policies see
ROBOMIMIC_TASKS = {'Lift': 'lift', 'PickPlaceCan': 'can', 'NutAssemblySquare': 'square'}
ROBOMIMIC_OPTIONS: Mapping[str, Any] = {  # what the published data sets (v1.4.1) declare
    'control_freq': 20, 'robots': ['Panda'], 'reward_shaping': False, 'camera_depths': False,
    'controller_configs': {
        'type': 'OSC_POSE', 'input_max': 1, 'input_min': -1, 'output_max': [0.05, 0.05, 0.05, 0.5, 0.5, 0.5],
        'output_min': [-0.05, -0.05, -0.05, -0.5, -0.5, -0.5], 'kp': 150, 'damping': 1, 'impedance_mode': 'fixed',
        'kp_limits': [0, 300], 'damping_limits': [0, 10], 'position_limits': None, 'orientation_limits': None,
        'uncouple_pos_ori': True, 'control_delta': True, 'interpolation': None, 'ramp_ratio': 0.2,
    },
}  # fmt: skip


class RobomimicEnv(Simulator):
    """A one-armed task of robomimic: as a data set (``.hdf5``) or checkpoint (``.pth``) declares it, else as published.

    starts: ``seed`` draws a start state from the episode's seed; ``demonstrations`` takes the first state of the
    data set's demonstration of that number. The state is what robomimic's low-dimensional policies see.
    """

    def __init__(
        self,
        *,
        task: str,
        source: str = '',
        starts: str = 'seed',
        width: int = 0,
        cameras: Sequence[str] = (),
        image_size: Sequence[int] = (84, 84),
        state: Sequence[str] = ROBOMIMIC_STATE,
    ) -> None:
        if starts not in ('seed', 'demonstrations') or (starts == 'demonstrations' and not source.endswith('.hdf5')):
            raise InputError(f'starts is {starts!r}, wanted "seed", or "demonstrations" with a data set as source')
        declared, given = read_environment_of(source) if source else (task, ROBOMIMIC_OPTIONS)
        if declared != task:
            raise InputError(f'{source} is of the task {declared!r}, wanted {task!r}; name {declared!r} in tasks')
        _stand_in_for_old_modules()
        import robomimic
        import robomimic.utils.obs_utils as observations
        from robomimic.envs.env_robosuite import EnvRobosuite

        from robotrials.worlds.arm.signal import mend_rendering

        mend_rendering()
        keys = {'rgb': [f'{camera}_image' for camera in cameras], 'low_dim': list(state)}
        observations.initialize_obs_utils_with_obs_specs({'obs': keys})
        options = dict(given)
        if cameras:
            size = {'camera_heights': int(image_size[0]), 'camera_widths': int(image_size[1])}
            options |= {'camera_names': list(cameras), **size}
        self._own: Any = EnvRobosuite(task, use_image_obs=bool(cameras), postprocess_visual_obs=False, **options)
        self._source, self._starts, self._width, self._keys = source, starts, width, tuple(state)
        self._cameras = tuple(cameras)
        low, high = self._own.env.action_spec
        registered = robomimic.DATASET_REGISTRY.get(ROBOMIMIC_TASKS.get(task, ''), {}).get('ph', {}).get('raw', {})
        super().__init__(low=low, high=high, width=width, step_cap=registered.get('horizon', 400))
        self.metadata = {'render_fps': float(self._own.env.control_freq)}
        self.judge = type(self._own.env)

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        np.random.seed((seed or 0) % 2**32)  # noqa: NPY002 - what robosuite 1.4 draws from, in a process of its own
        if self._starts == 'seed':
            return self._read(self._own.reset()), {}
        return self._read(self._own.reset_to(self._demonstration(seed or 0))), {}

    def step(self, action: NDArray[Any]) -> Stepped:
        seen, reward, *_ = self._own.step(np.asarray(action, dtype=float))
        flags = {name: bool(value) for name, value in self._own.is_success().items()}
        return self._read(seen), float(reward), False, False, flags

    def simulator_state(self) -> Numbers:
        return np.array(self._own.get_state()['states'], dtype=float)

    def close(self) -> None:
        self._own.env.close()

    def _read(self, seen: Mapping[str, Any]) -> dict[str, Any]:
        state = padded(np.concatenate([np.ravel(seen[key]) for key in self._keys]), self._width)
        return {'state': state} | {name: np.array(seen[f'{name}_image']) for name in self._cameras}

    def _demonstration(self, number: int) -> dict[str, Any]:
        import h5py

        with h5py.File(self._source) as file:
            names = sorted(file['data'], key=lambda name: int(name.rpartition('_')[2]))
            if not 0 <= number < len(names):
                raise InputError(f'seed is {number}: {self._source} has demonstrations 0 to {len(names) - 1}')
            start = file['data'][names[number]]
            return {'states': start['states'][0], 'model': start.attrs['model_file']}


def read_environment_of(source: str) -> tuple[str, Mapping[str, Any]]:
    """The task that a data set or a checkpoint of robomimic's names, and its options; nothing in it is executed."""
    try:
        if source.endswith('.hdf5'):
            import h5py

            with h5py.File(source) as file:
                declared = json.loads(file['data'].attrs['env_args'])
        else:
            import torch

            declared = torch.load(source, map_location='cpu', weights_only=True)['env_metadata']
        return str(declared['env_name']), dict(declared['env_kwargs'])
    except Exception as error:
        why = f'{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}'
        raise InputError(
            f'{source}: no environment of robomimic could be read ({why}); wanted its data set (.hdf5 with env_args) '
            'or its checkpoint (.pth with env_metadata)'
        ) from error


def _stand_in_for_old_modules() -> None:
    """What robomimic 0.3.0 imports for one name each, and robosuite 1.4 needs no more."""
    import sys

    fault = type('MujocoException', (Exception,), {})
    sys.modules.setdefault('mujoco_py', SimpleNamespace(builder=SimpleNamespace(MujocoException=fault)))  # type: ignore[arg-type]
    sys.modules.setdefault('egl_probe', SimpleNamespace(get_available_devices=list))  # type: ignore[arg-type]
