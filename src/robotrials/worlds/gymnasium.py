"""Any Gymnasium environment as a host, by a declared mapping; here, or in an environment of its own."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.catalog import load_attribute
from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.record import Outcome
from robotrials.run.host import Ability, Host, SteppedHost, check_maker
from robotrials.run.seam import (
    Action,
    ActionConvention,
    FloatArray,
    HostReport,
    HostSpec,
    Observation,
    ProtocolFacts,
    Setup,
    source_hash,
)
from robotrials.value import read_table
from robotrials.worlds.isolated import IsolatedHost

# How a Gymnasium environment becomes a host: declared in a file or in a plan, and checked before anything runs.

RENDER = 'render'  # as a place of an image: what env.render() gives
TASK, SEED = '{task}', '{seed}'


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessEntry:
    """What counts as success: a truth value in `info`, a reward that is reached, or the episode's own end."""

    info: str = ''
    reward_at_least: float | None = None
    terminated: bool = False

    def __post_init__(self) -> None:
        if sum([bool(self.info), self.reward_at_least is not None, self.terminated]) != 1:
            raise InputError('success wants exactly one of info, reward_at_least and terminated')

    @property
    def name(self) -> str:
        if self.info:
            return f'info[{self.info!r}]'
        return 'terminated' if self.terminated else f'reward >= {self.reward_at_least:g}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreEntry:
    """A bounded score beside success, the best of the episode: a number in `info`, or the reward if that is ''."""

    info: str = ''
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GymMapping:
    """One Gymnasium environment, declared.

    make: a registered id (`Meta-World/MT1`) or `module:attribute`, a class or a function that makes an environment.
    imports: modules that register ids. arguments: for making it; `{task}` and `{seed}` in a text stand for the
    episode's. anew: make it again for every episode, for environments whose reset does not set everything.
    state: places in the observation, dotted, put one after another; '' is the observation itself. images: camera ->
    place, or `render`. flip: cameras whose rows come bottom up; turn: cameras that hang head down. action_scale,
    action_offset: what the numbers of the convention are multiplied by and what is added to them for the environment's
    own. clip: to the bounds of its action space. holds_state: its state, as shown, is the action that keeps it where it
    is. first_seed: seed the environment with this number and the episode's instance, as evaluators do that count seeds
    up (`lerobot-eval --seed`), instead of with the episode's own seed.
    """

    make: str
    action: ActionConvention
    success: SuccessEntry
    about: str = ''
    benchmark: str = ''
    environment: str = ''  # the recipe it runs in; here if it is empty
    imports: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    anew: bool = False
    tasks: tuple[str, ...] = ()  # those it knows; empty: any
    instructions: Mapping[str, str] = field(default_factory=dict)
    state: tuple[str, ...] = ('',)
    state_layout: tuple[str, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    flip: tuple[str, ...] = ()
    turn: tuple[str, ...] = ()
    action_scale: tuple[float, ...] = ()
    action_offset: tuple[float, ...] = ()
    clip: bool = True
    holds_state: bool = False
    first_seed: int | None = None
    score: ScoreEntry | None = None
    control_rate_hz: float | None = None  # metadata['render_fps'] of the environment if it is not given
    step_cap: int | None = None  # max_episode_steps of the environment if it is not given

    def __post_init__(self) -> None:
        width = self.action.width
        for name in ('action_scale', 'action_offset'):
            given = getattr(self, name)
            if given and len(given) != width:
                raise InputError(f'{name} has {len(given)} numbers, an action of this convention has {width}')
        if any(not scale for scale in self.action_scale):
            raise InputError('action_scale has a zero, which would throw a number of the action away')
        if self.first_seed is not None and self.first_seed < 0:
            raise InputError(f'first_seed is {self.first_seed}, wanted >= 0')
        for camera in (*self.flip, *self.turn):
            if camera not in self.images:
                raise UnknownName('camera to flip or turn', camera, self.images)
        if self.makes_by_task and not self.tasks:
            raise InputError('the environment is made for a task, so tasks must list those it knows')

    @property
    def makes_by_task(self) -> bool:
        return TASK in self.make or TASK in str(dict(self.arguments))


def mapping_names() -> tuple[str, ...]:
    """The mappings that come with robotrials."""
    folder = files('robotrials.worlds').joinpath('mappings')
    return tuple(sorted(entry.name.removesuffix('.toml') for entry in folder.iterdir() if entry.name.endswith('.toml')))


def read_mapping(name: str, changes: Mapping[str, Any] | None = None) -> GymMapping:
    """A mapping by name or from a file of your own (``.toml``), with some keys changed; '' takes the keys alone.

    Of `arguments` those given are changed, the others stay.
    """
    values, given = _values(name), dict(changes or {})
    if isinstance(given.get('arguments'), Mapping) and isinstance(values.get('arguments', {}), Mapping):
        given['arguments'] = {**values.get('arguments', {}), **given['arguments']}
    values.update(given)
    return read_table(GymMapping, values, where=f'mapping {name}' if name else 'the mapping')


def _values(name: str) -> dict[str, Any]:
    if not name:
        return {}
    if name.endswith('.toml'):
        try:
            text = Path(name).read_text(encoding='utf-8')
        except (OSError, ValueError) as error:  # also a name or a content that is no text
            raise InputError(f'{name}: cannot be read ({error})') from error
    elif name in mapping_names():
        text = files('robotrials.worlds').joinpath('mappings', f'{name}.toml').read_text(encoding='utf-8')
    else:
        raise UnknownName('Gymnasium mapping', name, mapping_names())
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f'{name}: not TOML ({error})') from error


def mapping_table(mapping: GymMapping) -> dict[str, Any]:
    """A mapping as the plain values it can be read from again, for the way into another environment."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {name: v for name, v in fields.items() if v is not None}
        if isinstance(value, tuple | list):
            return [plain(v) for v in value]
        if isinstance(value, Mapping):
            return {k: plain(v) for k, v in value.items()}
        return value

    table: dict[str, Any] = plain(mapping)
    return table


SIMULATORS = ('mujoco', 'pymunk', 'pybullet', 'sapien')
WATCHED = (
    'gymnasium', 'numpy', 'metaworld', 'gymnasium-robotics', 'gym-pusht', 'gym-aloha', 'dm-control', 'mani-skill',
    'robomimic', 'robosuite', *SIMULATORS,
)  # fmt: skip


def gymnasium_host(
    *,
    mapping: str = '',
    environment: str | None = None,
    timeout_s: float | None = None,
    **changes: Any,
) -> Host:
    """A Gymnasium environment as a host, by a mapping (a name of ours, or a file) with keys changed or given here.

    environment: the recipe to run it in; the mapping's own if it is not given, and '' for this process.
    """
    read = read_mapping(mapping, changes)
    recipe = read.environment if environment is None else environment
    if not recipe:
        return GymnasiumHost(mapping=mapping_table(read))
    from robotrials.run.environment.gl import drawing_variables

    return IsolatedHost(
        environment=recipe,
        host='robotrials.worlds.gymnasium:GymnasiumHost',
        options={'mapping': mapping_table(read)},
        variables=drawing_variables(recipe) if read.images else {},
        timeout_s=timeout_s,
    )


class GymnasiumHost(SteppedHost):
    """A Gymnasium environment in this process. `mapping`: the keys of `GymMapping`."""

    def __init__(self, *, mapping: Mapping[str, Any]) -> None:
        self._map = read_mapping('', mapping)
        for module in self._map.imports:
            _import(module)
        self._env: Any = None
        self._widths: tuple[int, tuple[int, ...]] | None = None
        self._outcome: Outcome | None = None
        self._best: float | None = None
        self._instance = 0
        self._task = self._map.tasks[0] if self._map.tasks else ''
        self._begin(self._task, 0)
        self._spec = self._declare()
        if self._map.holds_state and self._spec.state_width != self._spec.action.width:
            raise InputError(
                f'holds_state: the state has {self._spec.state_width} numbers, an action {self._spec.action.width}'
            )

    @property
    def abilities(self) -> frozenset[Ability]:
        missing = {Ability.HOLD: not self._map.holds_state, Ability.PREPARE: self._map.first_seed is None}
        return super().abilities - {ability for ability, is_missing in missing.items() if is_missing}

    def prepare(self, setup: Setup) -> None:
        """Take the instance, where start states go by it."""
        super().prepare(setup)
        self._instance = setup.instance

    def reset(self, task: str, *, seed: int) -> Observation:
        first = self._map.first_seed
        self._begin(task, seed if first is None else first + self._instance)
        self._is_begun = True
        self._steps, self._outcome, self._best, self._reward = 0, None, None, 0.0
        self._last: FloatArray | None = None
        self._processed = np.zeros(self._spec.action.width)
        return self._observe()

    def step(self, action: Action) -> Observation:
        self._check_begun()
        self._last = self._checked(action)
        own = self._own_action(self._last)
        self._seen, reward, terminated, truncated, info = self._env.step(own)
        self._reward, self._info = float(reward), info
        self._steps += 1
        self._judge(bool(terminated), bool(truncated))
        return self._observe()

    def outcome(self) -> Outcome | None:
        return self._outcome if self._is_begun else None

    def instruction(self) -> str:
        self._check_begun()
        own: Any = getattr(self._env.unwrapped, 'instruction', '')
        return own if isinstance(own, str) and own else self._map.instructions.get(self._task, '')

    def report(self) -> HostReport:
        self._check_begun()
        score, entry = self._best, self._map.score
        return HostReport(
            success=self._outcome is Outcome.SUCCESS,
            score=None if entry is None else score,
            max_score=None if entry is None or score is None else entry.max,
            reason='ended by the environment' if self._outcome is Outcome.FAILURE else '',
        )

    def signals(self) -> Mapping[str, Any]:
        """The reward, and the state of MuJoCo where the environment has one."""
        self._check_begun()
        values: dict[str, Any] = {
            'reward': self._reward, 'done': self._outcome is not None, 'action_processed_own': self._processed,
        }  # fmt: skip
        own_state: Any = getattr(self._env.unwrapped, 'simulator_state', None)
        data: Any = getattr(self._env.unwrapped, 'data', None)
        if own_state is not None:
            values['simulator_state'] = own_state()
        elif hasattr(data, 'qpos') and hasattr(data, 'qvel'):
            values['simulator_state'] = np.concatenate([np.array(data.qpos), np.array(data.qvel)])
        return values

    def protocol(self) -> ProtocolFacts:
        versions = _versions()
        seed = 'seed' if self._map.first_seed is None else f'{self._map.first_seed} + instance'
        own = getattr(self._env.unwrapped, 'judge', None) or type(self._env.unwrapped)
        return ProtocolFacts(
            benchmark=self._map.benchmark or self._map.make,
            control_rate_hz=self._spec.control_rate_hz,
            step_cap=self._step_cap(),
            settling_steps=0,
            initial_states=f'reset(seed={seed}) of {self._map.make.replace(TASK, "the task")}'
            + (', made anew' if self._is_anew else ''),
            success_predicate=self._map.success.name,
            success_source=_source_hash(own),
            success_at_reset='not looked at: the first step is judged first',
            simulator=', '.join(f'{name} {versions[name]}' for name in SIMULATORS if name in versions),
            packages=versions,
        )

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()

    # --- inside

    @property
    def _is_anew(self) -> bool:
        return self._map.anew or SEED in self._map.arguments.values()

    def _begin(self, task: str, seed: int) -> None:
        """Make the environment where it has to be made, and reset it."""
        known = self._map.tasks
        if known and task not in known:
            raise UnknownName('task', task, known)
        if self._env is None or self._is_anew or (self._map.makes_by_task and task != self._task):
            self.close()
            self._env = self._make(task, seed)
        self._task = task
        answer = self._env.reset(seed=seed)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise InputError(
                f'{self._map.make}: reset gave no (observation, info); it is not of the Gymnasium interface'
            )
        self._seen, self._info = answer
        self._check_width(task)

    def _check_width(self, task: str) -> None:
        """Refuse a task whose state or actions have another width than those of the first."""
        width, shape = len(self._state()), self._env.action_space.shape
        if self._widths is None:
            self._widths = width, shape
        if (width, shape) != self._widths:
            wanted = self._widths
            raise InputError(
                f'task {task} has a state of {width} numbers and actions of shape {shape}, the first task has '
                f'{wanted[0]} and {wanted[1]}; such tasks want a mapping of their own'
            )

    def _make(self, task: str, seed: int) -> Any:
        fill = {name: _filled(value, task, seed) for name, value in self._map.arguments.items()}
        target = self._map.make.replace(TASK, task)
        if ':' in target:
            maker: Any = load_attribute(target)
            check_maker('Gymnasium environment', target, maker, methods=('reset', 'step'))
            return maker(**fill)
        gymnasium = _gymnasium()
        try:
            return gymnasium.make(target, disable_env_checker=True, **fill)
        except gymnasium.error.UnregisteredEnv as error:
            raise InputError(f'{error}; name the module that registers it in imports') from error

    def _declare(self) -> HostSpec:
        rate_hz = self._map.control_rate_hz or self._env.metadata.get('render_fps')
        if not rate_hz:
            raise InputError(f'{self._map.make} states no render_fps; give control_rate_hz')
        shape, width = self._env.action_space.shape, self._map.action.width
        if shape != (width,):
            raise InputError(f'{self._map.make} takes actions of shape {shape}, the convention has {(width,)}')
        first = self._read()
        return HostSpec(
            name=self._map.benchmark or 'gymnasium',
            action=self._map.action,
            control_rate_hz=float(rate_hz),
            state_width=len(first.state),
            state_layout=self._map.state_layout,
            images={camera: image.shape[:2] for camera, image in first.images.items()},
            tasks=tuple(self._map.tasks),
        )

    def _observe(self) -> Observation:
        read = self._read()
        return Observation(self._steps / self._spec.control_rate_hz, read.state, images=read.images)

    def _read(self) -> Observation:
        """The observation at hand, mapped; the arrays are copies."""
        images = {}
        for camera, place in self._map.images.items():
            picture = self._env.render() if place == RENDER else _at(self._seen, place)
            image = np.asarray(picture)
            if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
                shape = f'{image.shape} of {image.dtype}'
                raise InputError(f'camera {camera} at {place!r} is {shape}, wanted (height, width, 3) of uint8')
            image = image[::-1] if camera in self._map.flip else image
            images[camera] = np.array(image[::-1, ::-1] if camera in self._map.turn else image)
        return Observation(0.0, self._state(), images=images)

    def _state(self) -> FloatArray:
        parts = [np.asarray(_at(self._seen, place), dtype=float).ravel() for place in self._map.state]
        return np.concatenate(parts) if parts else np.empty(0)

    def _own_action(self, action: FloatArray) -> FloatArray:
        own = action * np.array(self._map.action_scale or 1.0) + np.array(self._map.action_offset or 0.0)
        space = self._env.action_space
        own = own.astype(space.dtype)
        clipped: FloatArray = np.clip(own, space.low, space.high) if self._map.clip else own
        self._processed = np.array(clipped, dtype=float)
        return clipped

    def _judge(self, terminated: bool, truncated: bool) -> None:
        rule, entry = self._map.success, self._map.score
        if entry is not None:
            value = float(_at(self._info, entry.info)) if entry.info else self._reward
            self._best = value if self._best is None else max(self._best, value)
        if rule.info:
            success = bool(_at(self._info, rule.info))
        elif rule.reward_at_least is not None:
            success = self._reward >= rule.reward_at_least
        else:
            success = terminated
        if success:
            self._outcome = Outcome.SUCCESS
        elif terminated:
            self._outcome = Outcome.FAILURE
        elif truncated or self._steps == self._step_cap():
            self._outcome = Outcome.TIMEOUT

    def _step_cap(self) -> int | None:
        if self._map.step_cap is not None:
            return self._map.step_cap
        spec = getattr(self._env, 'spec', None)
        return getattr(spec, 'max_episode_steps', None)

    def hold(self) -> Action:
        """What was last commanded, or before that where it stands, if the state says where a command would lead."""
        self._check_begun()
        if not self._map.holds_state:
            return super().hold()
        held = self._last if self._last is not None else self._state()
        return np.array(held, dtype=float)


def _at(value: Any, place: str) -> Any:
    """What stands at a dotted place of nested maps; InputError lists what there is."""
    for key in place.split('.') if place else ():
        if not isinstance(value, Mapping) or key not in value:
            known = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            raise InputError(f'{place!r}: no {key!r} there; found {known}')
        value = value[key]
    if isinstance(value, Mapping):
        raise InputError(f'{place!r} is a map of {sorted(map(str, value))}, wanted numbers; name one of them')
    return value


def _filled(value: Any, task: str, seed: int) -> Any:
    if value == SEED:
        return seed
    if isinstance(value, list | tuple):
        return [_filled(part, task, seed) for part in value]
    return value.replace(TASK, task) if isinstance(value, str) else value


def _gymnasium() -> Any:
    try:
        return importlib.import_module('gymnasium')
    except ModuleNotFoundError as error:
        raise SetupError(
            'gymnasium is not installed here; pip install gymnasium, or name an environment (see `robotrials env ls`)'
        ) from error


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SetupError(f'{module}: needs the package {error.name!r}, which is not installed') from error


def _source_hash(kind: type[Any]) -> str:
    try:
        return source_hash(kind)
    except (OSError, TypeError):
        return ''


def _versions() -> dict[str, str]:
    versions = {}
    for name in WATCHED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
