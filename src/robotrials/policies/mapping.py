"""The mapping between a host and a policy, as a plan declares it under ``[policies.NAME.options]``.

``observation`` says how the host's observation becomes the policy's keys; ``action`` says what the policy's numbers
mean and which of them are taken. Both may start from a preset, whose values are kept where the plan says nothing else.
"""

from __future__ import annotations

import enum
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName, install_hint, load_optional
from robotrials.formats.space import read_norm_stats
from robotrials.run import ActionConvention, Gripper, Rotation
from robotrials.value import read_table

# Presets: mappings of well-known checkpoints, kept as data.


@cache
def _presets() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(files('robotrials.policies').joinpath('presets.toml').read_text(encoding='utf-8'))


def preset_names() -> tuple[str, ...]:
    return tuple(_presets())


def preset_about(name: str) -> str:
    """One line on what a preset is for."""
    return str(preset_tables(name)['about'])


def preset_tables(name: str) -> Mapping[str, Any]:
    """The tables ``observation`` and ``action`` of a preset."""
    if name not in _presets():
        raise UnknownName('preset', name, _presets())
    return _presets()[name]


# Normalising what goes to a policy, and undoing it on what comes back.

EPSILON = 1e-6  # openpi's, added to every spread


class Method(enum.StrEnum):
    MEAN_STD = 'mean_std'
    RANGE = 'range'  # low..high to -1..1: quantiles (q01, q99) or extremes


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticEntry:
    """Numbers per dimension, or a file of openpi, OpenVLA or LeRobot, and the key in it."""

    method: Method = Method.MEAN_STD
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    file: str = ''
    key: str = ''

    def numbers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(mean, std) or (low, high), as the method says."""
        first, second = ('mean', 'std') if self.method is Method.MEAN_STD else ('low', 'high')
        given: tuple[Any, Any] = (getattr(self, first), getattr(self, second))
        if self.file:
            given = _read_file(Path(self.file), self.key, self.method)
        pair = np.asarray(given[0], dtype=float), np.asarray(given[1], dtype=float)
        if not pair[0].size or pair[0].shape != pair[1].shape or pair[0].ndim != 1:
            raise InputError(f'normalisation by {self.method} wants {first} and {second}, equally many numbers each')
        return pair


@dataclass(frozen=True, slots=True, eq=False)
class Normalizer:
    """x -> (x - shift) / spread, or back, on the first dimensions it has numbers for."""

    shift: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def of(cls, entry: StatisticEntry) -> Normalizer:
        first, second = entry.numbers()
        if entry.method is Method.MEAN_STD:
            return cls(first, second + EPSILON)
        return cls((first + second) / 2, (second - first + EPSILON) / 2)

    def normalize(self, values: NDArray[Any]) -> NDArray[np.float64]:
        shift, spread = self._of_width(values.shape[-1])
        return np.asarray((values - shift) / spread)

    def restore(self, values: NDArray[Any]) -> NDArray[np.float64]:
        shift, spread = self._of_width(values.shape[-1])
        return np.asarray(values * spread + shift)

    def _of_width(self, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if width > len(self.shift):
            raise InputError(f'normalisation has {len(self.shift)} numbers for a vector of {width}')
        return self.shift[:width], self.spread[:width]


def _read_file(path: Path, key: str, method: Method) -> tuple[object, object]:
    """The numbers under `key`, in a file of openpi, OpenVLA (`DATASET/action` chooses one of several) or LeRobot."""
    dataset, _, name = key.rpartition('/')
    vector = read_norm_stats(path, dataset=dataset).vector(name, where=str(path))
    names = [('mean', 'std')] if method is Method.MEAN_STD else [('q01', 'q99'), ('min', 'max')]
    for first, second in names:
        if getattr(vector, first) and getattr(vector, second):
            return getattr(vector, first), getattr(vector, second)
    raise InputError(f'{path}: {key!r} has no {" or ".join("/".join(pair) for pair in names)}')


# A camera's frame as a policy wants it: turned, resized, and laid out.


class Fit(enum.StrEnum):
    """How a frame of another shape is brought to the wanted size."""

    PAD = 'pad'  # keep the aspect ratio, black bars around
    STRETCH = 'stretch'
    CROP = 'crop'  # keep the aspect ratio, cut what stands over


class Filter(enum.StrEnum):
    BILINEAR = 'bilinear'
    BICUBIC = 'bicubic'
    LANCZOS = 'lanczos'


class ImageLayout(enum.StrEnum):
    HEIGHT_WIDTH_CHANNEL = 'hwc'
    CHANNEL_HEIGHT_WIDTH = 'chw'


class Pixels(enum.StrEnum):
    BYTE = 'byte'  # 0..255, uint8
    UNIT = 'unit'  # 0..1, float32


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """Where a picture of the policy comes from, and what is done to it: turned first, then resized."""

    camera: str
    size_px: tuple[int, ...] = ()  # height, width; empty: as the camera gives it
    fit: Fit = Fit.PAD
    filter: Filter = Filter.BILINEAR
    rotate_deg: int = 0  # counter-clockwise
    layout: ImageLayout = ImageLayout.HEIGHT_WIDTH_CHANNEL
    pixels: Pixels = Pixels.BYTE
    is_bgr: bool = False

    def __post_init__(self) -> None:
        if self.rotate_deg not in (0, 90, 180, 270):
            raise InputError(f'rotate_deg is {self.rotate_deg}, wanted 0, 90, 180 or 270')
        if self.size_px and (len(self.size_px) != 2 or not all(0 < n <= 8192 for n in self.size_px)):
            raise InputError(f'size_px is {list(self.size_px)}, wanted [height, width]')

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        """The shape of what comes out for a camera of this size."""
        if self.rotate_deg in (90, 270):
            height, width = width, height
        if self.size_px:
            height, width = self.size_px
        return (3, height, width) if self.layout is ImageLayout.CHANNEL_HEIGHT_WIDTH else (height, width, 3)


def prepare_image(image: NDArray[np.uint8], entry: ImageEntry) -> NDArray[Any]:
    """The frame (H, W, 3) as `entry` says; contiguous."""
    turned = np.rot90(image, entry.rotate_deg // 90) if entry.rotate_deg else image
    sized = resize(turned, entry.size_px, fit=entry.fit, by=entry.filter) if entry.size_px else turned
    if entry.is_bgr:
        sized = sized[:, :, ::-1]
    if entry.layout is ImageLayout.CHANNEL_HEIGHT_WIDTH:
        sized = np.transpose(sized, (2, 0, 1))
    if entry.pixels is Pixels.UNIT:
        return np.ascontiguousarray(sized, dtype=np.float32) / np.float32(255.0)
    return np.ascontiguousarray(sized)


def resize(
    image: NDArray[np.uint8], size_px: tuple[int, ...], *, fit: Fit = Fit.PAD, by: Filter = Filter.BILINEAR
) -> NDArray[np.uint8]:
    """Resize to (height, width). Padding is openpi's: sizes and margins are cut to whole pixels, the rest is black."""
    height, width = size_px
    if image.shape[:2] == (height, width):
        return image
    if fit is Fit.STRETCH:
        return _scale(image, height, width, by)
    ratios = image.shape[1] / width, image.shape[0] / height
    ratio = max(ratios) if fit is Fit.PAD else min(ratios)
    scaled = _scale(image, max(1, int(image.shape[0] / ratio)), max(1, int(image.shape[1] / ratio)), by)
    if fit is Fit.CROP:
        top, left = (scaled.shape[0] - height) // 2, (scaled.shape[1] - width) // 2
        return scaled[max(0, top) : max(0, top) + height, max(0, left) : max(0, left) + width]
    padded = np.zeros((height, width, 3), dtype=np.uint8)
    top, left = int((height - scaled.shape[0]) / 2), int((width - scaled.shape[1]) / 2)
    padded[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
    return padded


def _scale(image: NDArray[np.uint8], height: int, width: int, by: Filter) -> NDArray[np.uint8]:
    Image = load_optional('PIL.Image', f'pillow is not installed; {install_hint("wire")}')
    kind = Image.Resampling[by.name]
    return np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize((width, height), kind), dtype=np.uint8)


MAX_CHUNK = 10_000


class NumberType(enum.StrEnum):
    FLOAT32 = 'float32'
    FLOAT64 = 'float64'


class DeltaFrom(enum.StrEnum):
    PREVIOUS = 'previous'  # each action of a chunk moves on from the one before
    START = 'start'  # every action of a chunk is counted from where the arm was when it was asked


class ActionPart(enum.StrEnum):
    ROTATION = 'rotation'
    GRIPPER = 'gripper'


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """Some numbers of the host's state, by place or by name, and what they are turned into."""

    take: tuple[int, ...] = ()  # [first, last)
    names: tuple[str, ...] = ()  # of the host's state_layout
    fill: tuple[float, ...] = ()  # constants, for numbers that the host does not have
    rotation: Rotation = Rotation.NONE
    to_rotation: Rotation = Rotation.NONE
    gripper: Gripper = Gripper.NONE
    to_gripper: Gripper = Gripper.NONE
    scale: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if sum(map(bool, (self.take, self.names, self.fill))) != 1:
            raise InputError('a part of the state wants exactly one of take, names and fill')
        if self.take and (len(self.take) != 2 or not 0 <= self.take[0] < self.take[1]):
            raise InputError(f'take is {list(self.take)}, wanted [first, last) of the state vector')
        for first, second in (('rotation', 'to_rotation'), ('gripper', 'to_gripper')):
            if (getattr(self, first).value == 'none') != (getattr(self, second).value == 'none'):
                raise InputError(f'{first} and {second} belong together: what the host has, and what the policy wants')


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """One vector of the policy, from parts of the host's state."""

    parts: tuple[StatePart, ...]
    normalize: StatisticEntry | None = None
    number: NumberType = NumberType.FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationEntry:
    """What the policy is shown: key on its side -> picture, vector or text."""

    images: Mapping[str, ImageEntry] = field(default_factory=dict)
    state: Mapping[str, StateEntry] = field(default_factory=dict)
    prompt: str = ''  # the key of the instruction; empty: the policy gets none
    prompt_template: str = '{instruction}'
    # Key -> control steps that are sent, stacked in this order, 0 being the present: [-15, 0].
    moments: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if '{instruction}' not in self.prompt_template:
            raise InputError(f'prompt_template is {self.prompt_template!r}, wanted one with {{instruction}}')
        for key, steps in self.moments.items():
            if key not in {**self.images, **self.state}:
                raise InputError(f'moments of {key!r}, which is neither a picture nor a vector of the mapping')
            check_moments(key, steps)


def check_moments(key: str, steps: Sequence[object]) -> None:
    """Raise InputError unless these are present and past control steps in their order."""
    numbers = [s for s in steps if isinstance(s, int) and not isinstance(s, bool)]
    if not steps or len(numbers) != len(steps) or max(numbers) > 0 or numbers != sorted(set(numbers)):
        raise InputError(f'moments of {key} are {list(steps)}, wanted control steps up to the present one, as [-15, 0]')


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionEntry:
    """What the policy's numbers mean, and how many of them are the robot's.

    `convention` is the policy's own. What differs from the host's is converted; what cannot be is refused at start.
    """

    convention: ActionConvention
    chunk_length: int = 1  # how many steps of an answer are taken: its first ones
    execute: int | None = None  # replan after this many
    order: tuple[int, ...] = ()  # which numbers, in the convention's order; empty: the first ones
    unnormalize: StatisticEntry | None = None
    clip: tuple[float, ...] = ()  # [low, high] of what the policy gives
    scale: tuple[float, ...] = ()  # factors of the motion numbers, one for all or one each
    axes: tuple[str, ...] = ()  # the host's x, y and z as axes of the policy, such as ['y', '-x', 'z']
    delta_from: DeltaFrom = DeltaFrom.PREVIOUS
    pose: tuple[StatePart, ...] = ()  # the host's state numbers of the pose, to turn deltas into targets or back
    gripper_range: tuple[float, ...] = ()  # the policy's numbers for [closed, open]
    gripper_threshold: float | None = None  # open at or above this share of opening, else closed
    drop: tuple[ActionPart, ...] = ()  # what the policy gives and the host does not have
    ensemble_decay: float | None = None  # ask at every step and average what was said of it (ACT's m)
    control_rate_hz: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.chunk_length <= MAX_CHUNK:
            raise InputError(f'chunk_length is {self.chunk_length}, wanted 1 to {MAX_CHUNK}')
        if self.execute is not None and not 1 <= self.execute <= self.chunk_length:
            raise InputError(f'execute is {self.execute}, wanted 1 to the chunk_length, {self.chunk_length}')
        _check_pair('clip', self.clip)
        _check_pair('gripper_range', self.gripper_range)
        if self.clip and not self.clip[0] < self.clip[1]:
            raise InputError(f'clip is {list(self.clip)}, wanted [low, high]')
        if self.order and (len(self.order) != self.convention.width or min(self.order) < 0):
            raise InputError(f'order is {list(self.order)}, wanted {self.convention.width} places of the answer')
        if self.axes and sorted(a.lstrip('-') for a in self.axes) != ['x', 'y', 'z']:
            raise InputError(f"axes is {list(self.axes)}, wanted x, y and z once each, such as ['y', '-x', 'z']")
        if self.scale and len(self.scale) not in (1, self.convention.motion_width):
            raise InputError(f'scale has {len(self.scale)} numbers, wanted 1 or {self.convention.motion_width}')
        if self.ensemble_decay is not None and self.ensemble_decay < 0:
            raise InputError(f'ensemble_decay is {self.ensemble_decay}, wanted >= 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingEntry:
    """Both directions."""

    observation: ObservationEntry
    action: ActionEntry


class ServedOptions(TypedDict, total=False):
    """The options that every policy with a mapping takes; see `docs/concepts/policies.md`.

    preset, observation, action: the mapping, by name and by its own tables. connect_timeout_s: how long a server that
    is still loading is waited for; answer_timeout_s: how long one answer may take. max_message_bytes: a longer message
    is refused before it is read.
    """

    preset: str
    observation: Mapping[str, Any] | None
    action: Mapping[str, Any] | None
    connect_timeout_s: float
    answer_timeout_s: float
    max_message_bytes: int


def read_mapping(
    *, preset: str = '', observation: Mapping[str, Any] | None = None, action: Mapping[str, Any] | None = None
) -> MappingEntry:
    """The mapping of a plan's options over its preset; every mistake names the key."""
    base = preset_tables(preset) if preset else {}
    merged = {
        'observation': _spell_out(merge(base.get('observation', {}), observation or {})),
        'action': merge(base.get('action', {}), action or {}),
    }
    return read_table(MappingEntry, merged, where=f'preset {preset} with options' if preset else 'options')


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, table by table; a bare camera name over a picture's table replaces just the camera."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(below, value)
        elif isinstance(below, Mapping) and 'camera' in below and isinstance(value, str):
            merged[key] = {**below, 'camera': value}
        else:
            merged[key] = value
    return merged


def _spell_out(observation: Mapping[str, Any]) -> dict[str, Any]:
    """``[0, 8]``, a list of names and a list of parts are short for the table of a vector."""
    state = observation.get('state', {})
    if not isinstance(state, Mapping):
        raise InputError(f'observation state is {state!r}, wanted a table: key of the policy = part of the state')
    return {**observation, 'state': {key: _state_table(value) for key, value in state.items()}}


def _state_table(value: object) -> object:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    if all(isinstance(item, str) for item in value):
        return {'parts': [{'names': list(value)}]}
    if all(isinstance(item, int) for item in value):
        return {'parts': [{'take': list(value)}]}
    return {'parts': list(value)}


def _check_pair(name: str, pair: tuple[float, ...]) -> None:
    if pair and (len(pair) != 2 or pair[0] == pair[1]):
        raise InputError(f'{name} is {list(pair)}, wanted two different numbers')
