"""How a Gymnasium environment becomes a host: declared in a file or in a plan, and checked before anything runs."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from robotrials.declaration import read_table
from robotrials.errors import InputError, UnknownName
from robotrials.run.convention import ActionConvention

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
    is.
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
        for camera in (*self.flip, *self.turn):
            if camera not in self.images:
                raise UnknownName('camera to flip or turn', camera, self.images)
        if self.makes_by_task and not self.tasks:
            raise InputError('the environment is made for a task, so tasks must list those it knows')

    @property
    def makes_by_task(self) -> bool:
        return TASK in self.make or any(TASK in v for v in self.arguments.values() if isinstance(v, str))

    @property
    def makes_by_seed(self) -> bool:
        return any(v == SEED for v in self.arguments.values())


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
