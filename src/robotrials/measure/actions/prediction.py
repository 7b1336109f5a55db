"""Predicted beside recorded actions, answers that are no action, and conversions between conventions (MultiNet 4.1).

A conversion maps actions (..., D) to (..., D'), and the space with them. `inverse` is None where numbers are lost.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.catalog import Catalog
from robotrials.errors import InputError, UnknownName
from robotrials.formats.dataset import RecordedEpisode, RecordedObservation
from robotrials.formats.space import ActionSpace, DimensionKind, FloatArray, norm_stats_of
from robotrials.measure.actions.split import ActionStatistics

TERNARY_CLOSED, TERNARY_OPEN = 0.05, 0.95


class Conversion(Protocol):
    """A step from one convention to another."""

    def __call__(self, actions: FloatArray) -> FloatArray: ...

    def space(self, before: ActionSpace) -> ActionSpace: ...

    @property
    def inverse(self) -> Conversion | None:
        return None


@dataclass(frozen=True, slots=True)
class BinaryGripper(Conversion):
    """[0, 1] to {0, 1}: at or above the threshold is 1. The paper says "threshold at 0.5" and not where 0.5 falls."""

    index: int
    threshold: float = 0.5

    def __call__(self, actions: FloatArray) -> FloatArray:
        return _mapped(actions, self.index, lambda x: (x >= self.threshold).astype(np.float64))

    def space(self, before: ActionSpace) -> ActionSpace:
        return _ranged(before, self.index, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class TernaryGripper(Conversion):
    """[0, 1] to {-1, 0, 1}: below 0.05 is -1 (closed), above 0.95 is 1 (open), between is 0 (no change)."""

    index: int
    closed: float = TERNARY_CLOSED
    open: float = TERNARY_OPEN

    def __call__(self, actions: FloatArray) -> FloatArray:
        return _mapped(actions, self.index, lambda x: (x > self.open).astype(np.float64) - (x < self.closed))

    def space(self, before: ActionSpace) -> ActionSpace:
        return _ranged(before, self.index, -1.0, 1.0)


@dataclass(frozen=True, slots=True)
class LinearMap(Conversion):
    """[low, high] to [new_low, new_high] on some dimensions, linear and not clipped."""

    indices: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    new_low: tuple[float, ...]
    new_high: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ('low', 'high', 'new_low', 'new_high'):
            if len(getattr(self, name)) != len(self.indices):
                raise InputError(f'{name} has {len(getattr(self, name))} values for {len(self.indices)} dimensions')
        flat = [i for i, a, b in zip(self.indices, self.low, self.high, strict=True) if not a < b]
        flat += [i for i, a, b in zip(self.indices, self.new_low, self.new_high, strict=True) if not a < b]
        if flat:
            raise InputError(f'dimension {flat[0]} has low >= high; mask it, its values are constant')

    def __call__(self, actions: FloatArray) -> FloatArray:
        out = np.array(actions, dtype=np.float64)
        place = list(self.indices)
        _check_index(out, max(place, default=0))
        low, high, new_low, new_high = (np.array(v) for v in (self.low, self.high, self.new_low, self.new_high))
        out[..., place] = (out[..., place] - low) / (high - low) * (new_high - new_low) + new_low
        return out

    def space(self, before: ActionSpace) -> ActionSpace:
        for i, low, high in zip(self.indices, self.new_low, self.new_high, strict=True):
            before = _ranged(before, i, low, high)
        return before

    @property
    def inverse(self) -> Conversion | None:
        return LinearMap(self.indices, self.new_low, self.new_high, self.low, self.high)


def continuous_gripper(index: int, *, low: float = 0.0, high: float = 1.0) -> LinearMap:
    """[low, high] to [-1, 1]: y = 2 (x - low) / (high - low) - 1."""
    return LinearMap((index,), (low,), (high,), (-1.0,), (1.0,))


def torque_gripper(index: int, *, torque_low: float, torque_high: float) -> LinearMap:
    """A [0, 1] gripper command to the torque range of the training statistics (the UCSD pick-and-place case)."""
    return LinearMap((index,), (0.0,), (1.0,), (torque_low,), (torque_high,))


def unnormalize(q01: Sequence[float], q99: Sequence[float], *, mask: Sequence[bool] | None = None) -> LinearMap:
    """[-1, 1] to the 1st and 99th percentile: x = 0.5 (y + 1) (q99 - q01) + q01; False in `mask` leaves one alone."""
    if len(q01) != len(q99) or (mask is not None and len(mask) != len(q01)):
        raise InputError(
            f'{len(q01)} low, {len(q99)} high percentiles and {mask and len(mask)} mask values; wanted as many'
        )
    chosen = [i for i in range(len(q01)) if mask is None or mask[i]]
    ones = (1.0,) * len(chosen)
    low, high = tuple(float(q01[i]) for i in chosen), tuple(float(q99[i]) for i in chosen)
    return LinearMap(tuple(chosen), tuple(-v for v in ones), ones, low, high)


def normalize(q01: Sequence[float], q99: Sequence[float], *, mask: Sequence[bool] | None = None) -> LinearMap:
    """The inverse of `unnormalize`."""
    forward = unnormalize(q01, q99, mask=mask)
    return LinearMap(forward.indices, forward.new_low, forward.new_high, forward.low, forward.high)


@dataclass(frozen=True, slots=True)
class Reorder(Conversion):
    """Axis order: output dimension i is input dimension order[i], times sign[i]."""

    order: tuple[int, ...]
    sign: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise InputError(f'order is {self.order}; wanted each of 0..{len(self.order) - 1} once')
        if self.sign and (len(self.sign) != len(self.order) or set(self.sign) - {1, -1}):
            raise InputError(f'sign is {self.sign}; wanted 1 or -1 for each of the {len(self.order)} dimensions')

    def __call__(self, actions: FloatArray) -> FloatArray:
        values = np.asarray(actions, dtype=np.float64)
        if values.shape[-1] != len(self.order):
            raise InputError(f'actions of {values.shape[-1]} dimensions; the order is of {len(self.order)}')
        return np.asarray(values[..., list(self.order)] * np.array(self.sign or [1] * len(self.order)))

    def space(self, before: ActionSpace) -> ActionSpace:
        moved = []
        for i, sign in zip(self.order, self.sign or (1,) * len(self.order), strict=True):
            d = before.dimensions[i]
            if sign < 0:
                d = dataclasses.replace(d, low=None if d.high is None else -d.high,
                                        high=None if d.low is None else -d.low)  # fmt: skip
            moved.append(d)
        return ActionSpace(tuple(moved))

    @property
    def inverse(self) -> Conversion | None:
        back = tuple(int(i) for i in np.argsort(self.order))
        return Reorder(back, tuple(self.sign[i] for i in back) if self.sign else ())


@dataclass(frozen=True, slots=True)
class Select(Conversion):
    """Keep some dimensions; what is dropped is gone."""

    indices: tuple[int, ...]

    def __call__(self, actions: FloatArray) -> FloatArray:
        values = np.asarray(actions, dtype=np.float64)
        _check_index(values, max(self.indices, default=0))
        return np.asarray(values[..., list(self.indices)])

    def space(self, before: ActionSpace) -> ActionSpace:
        return before.select(self.indices)


def drop_terminate(space: ActionSpace) -> Select:
    """Drop the terminate dimensions of a space, as the paper did for OpenVLA."""
    return Select(tuple(i for i, d in enumerate(space.dimensions) if d.kind is not DimensionKind.TERMINATE))


@dataclass(frozen=True, slots=True)
class Chain(Conversion):
    """Conversions one after the other; without any, the identity."""

    steps: tuple[Conversion, ...] = ()

    def __call__(self, actions: FloatArray) -> FloatArray:
        values: FloatArray = np.array(actions, dtype=np.float64)
        for step in self.steps:
            values = step(values)
        return values

    def space(self, before: ActionSpace) -> ActionSpace:
        for step in self.steps:
            before = step.space(before)
        return before

    @property
    def inverse(self) -> Conversion | None:
        turned: list[Conversion] = []
        for step in reversed(self.steps):
            back = step.inverse
            if back is None:
                return None
            turned.append(back)
        return Chain(tuple(turned))


def _mapped(actions: FloatArray, index: int, change: Callable[[FloatArray], FloatArray]) -> FloatArray:
    out = np.array(actions, dtype=np.float64)
    _check_index(out, index)
    out[..., index] = change(out[..., index])
    return out


def _check_index(actions: FloatArray, index: int) -> None:
    if actions.ndim == 0 or index >= actions.shape[-1]:
        raise InputError(f'no dimension {index} in actions of shape {actions.shape}')


def _ranged(space: ActionSpace, index: int, low: float, high: float) -> ActionSpace:
    changed = list(space.dimensions)
    changed[index] = dataclasses.replace(changed[index], low=low, high=high)
    return ActionSpace(tuple(changed))


# Conversions between action conventions by name, as a command line states them.
# - binary-gripper:6 (the gripper at or above 0.5 is 1); binary-gripper:6:0.4 for another threshold
# - ternary-gripper:6 (below 0.05 closed, above 0.95 open, between no change)
# - continuous-gripper:6 ([0, 1] to [-1, 1]); continuous-gripper:6:LOW:HIGH from another range
# - torque-gripper:6:LOW:HIGH ([0, 1] to a torque range)
# - unnormalize:FILE ([-1, 1] to the percentiles q01, q99, and mask, of a JSON file); normalize:FILE the way back
# - reorder:0,2,1:1,-1,1 (output dimension i is input dimension order[i], times its sign)
# - select:0,1,2 (keep these dimensions); drop-terminate (drop the terminate dimensions of the space)


def parse_conversions(specs: Sequence[str], *, space: ActionSpace | None = None) -> Chain:
    """The conversions, one after the other; `drop-terminate` needs the space that it starts from."""
    steps: list[Conversion] = []
    for spec in specs:
        step = parse_conversion(spec, space=space)
        space = step.space(space) if space is not None else None
        steps.append(step)
    return Chain(tuple(steps))


def parse_conversion(spec: str, *, space: ActionSpace | None = None) -> Conversion:
    """One conversion by its name and arguments."""
    name, *arguments = spec.split(':')
    if name == 'drop-terminate':
        if space is None or arguments:
            raise InputError(f'{spec!r}: drop-terminate takes no argument, and the space to drop from (--space FILE)')
        return drop_terminate(space)
    if name not in MAKERS:
        raise UnknownName('conversion', name, (*MAKERS, 'drop-terminate'))
    make, least, most = MAKERS[name]
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f'{least} to {most}'
        raise InputError(f'{spec!r}: {name} takes {wanted} arguments, found {len(arguments)}')
    try:
        return make(arguments)
    except ValueError as error:
        raise InputError(f'{spec!r}: {error}') from error


def _continuous(arguments: Sequence[str]) -> Conversion:
    if len(arguments) == 2:
        raise InputError('a range has two ends: continuous-gripper:INDEX:LOW:HIGH')
    low, high = (float(v) for v in arguments[1:]) if len(arguments) > 1 else (0.0, 1.0)
    return continuous_gripper(int(arguments[0]), low=low, high=high)


def _percentiles(way: Callable[..., LinearMap]) -> Callable[[Sequence[str]], Conversion]:
    def make(arguments: Sequence[str]) -> Conversion:
        path = Path(':'.join(arguments))
        # The action's statistics: of a file of openpi, OpenVLA or LeRobot, or the bare numbers.
        try:
            content = json.loads(path.read_text(encoding='utf-8'))
        except (OSError, ValueError) as error:
            raise InputError(f'{path}: wanted JSON with q01 and q99 ({error!r})') from error
        bare = {'action': content} if isinstance(content, dict) and 'q01' in content else content
        vector = norm_stats_of(bare, where=str(path)).vector('action', where=str(path))
        if not vector.q01 or not vector.q99:
            raise InputError(f'{path}: wanted q01 and q99 of the action')
        return way(vector.q01, vector.q99, mask=vector.mask or None)

    return make


def _reorder(arguments: Sequence[str]) -> Conversion:
    order, *sign = (tuple(int(v) for v in part.split(',')) for part in arguments)
    return Reorder(order, *sign)


MAKERS: Mapping[str, tuple[Callable[[Sequence[str]], Conversion], int, int]] = {
    'binary-gripper': (lambda a: BinaryGripper(int(a[0]), *map(float, a[1:])), 1, 2),
    'ternary-gripper': (lambda a: TernaryGripper(int(a[0])), 1, 1),
    'continuous-gripper': (_continuous, 1, 3),
    'torque-gripper': (lambda a: torque_gripper(int(a[0]), torque_low=float(a[1]), torque_high=float(a[2])), 3, 3),
    'unnormalize': (_percentiles(unnormalize), 1, 9),
    'normalize': (_percentiles(normalize), 1, 9),
    'reorder': (_reorder, 1, 2),
    'select': (lambda a: Select(tuple(int(v) for v in a[0].split(','))), 1, 1),
}


BoolArray = NDArray[np.bool_]


class InvalidReason(enum.StrEnum):
    """Why an answer is no action (MultiNet section 4.1 names the middle four)."""

    EMPTY = 'empty'
    NO_LIST = 'no_list'  # no list of numbers in it
    WRONG_SIZE = 'wrong_size'
    TEXT_ELEMENT = 'text_element'
    MIXED_TEXT = 'mixed_text'  # a list inside other text
    NOT_SCALAR = 'not_scalar'
    NOT_FINITE = 'not_finite'
    UNPREDICTABLE = 'unpredictable'  # the model says that it cannot act on this observation
    # Stores keep the place of a reason in this list: new ones go to the end.
    REFUSED = 'refused'
    CONTENT_FILTER = 'content_filter'  # a filter stepped in, before or after the model
    CUT_OFF = 'cut_off'  # the token limit ended the answer before it was an action


@dataclass(frozen=True, slots=True)
class Invalid:
    """An answer that is not a valid action."""

    reason: InvalidReason
    detail: str = ''


Prediction = FloatArray | Invalid


class InvalidChoice(enum.StrEnum):
    """How an invalid answer is scored."""

    RANDOM = 'random'  # uniform in [0, 1), seeded: the paper's way
    WORST = 'worst'  # the end of each dimension's range that is farther from the recorded action
    EXCLUDE = 'exclude'  # the timestep is left out


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PredictedEpisode:
    """What was predicted and what was recorded, (T, D) each.

    A row of NaN is an invalid answer; a column of NaN is a dimension that the model does not predict.
    """

    episode_id: str
    predicted: FloatArray
    target: FloatArray

    def __post_init__(self) -> None:
        for name in ('predicted', 'target'):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if self.target.ndim != 2 or self.target.size == 0:
            raise InputError(f'{self.episode_id}: target of shape {self.target.shape}, wanted (T, D) and not empty')
        if self.predicted.shape != self.target.shape:
            raise InputError(
                f'{self.episode_id}: predicted {self.predicted.shape} and target {self.target.shape} differ'
            )
        if not np.isfinite(self.target).all():
            raise InputError(f'{self.episode_id}: the recorded actions hold NaN or infinity')
        if np.isinf(self.predicted).any():
            raise InputError(
                f'{self.episode_id}: predicted actions hold infinity; an answer like that is invalid (NaN)'
            )
        missing = np.isnan(self.predicted[~self.invalid])
        if missing.size and (missing != missing[0]).any():
            raise InputError(f'{self.episode_id}: a dimension is predicted in some rows and NaN in others')

    @property
    def invalid(self) -> BoolArray:
        """Which timesteps have no valid answer, (T,)."""
        return np.asarray(np.isnan(self.predicted).all(axis=1))

    @property
    def n_steps(self) -> int:
        return int(self.target.shape[0])

    @property
    def dimensions(self) -> tuple[int, ...] | None:
        """Which dimensions are predicted; None where every answer is invalid."""
        valid = self.predicted[~self.invalid]
        return None if not len(valid) else tuple(np.flatnonzero(~np.isnan(valid[0])).tolist())

    def select(self, dimensions: Sequence[int]) -> PredictedEpisode:
        chosen = list(dimensions)
        return dataclasses.replace(self, predicted=self.predicted[:, chosen], target=self.target[:, chosen])


def predicted_dimensions(episodes: Sequence[PredictedEpisode]) -> tuple[int, ...]:
    """The dimensions that every episode with a valid answer predicts; all of them if no answer is valid."""
    sizes = {e.target.shape[1] for e in episodes}
    if len(sizes) != 1:
        raise InputError(f'episodes of one run must share an action space, found {sorted(sizes)} dimensions')
    common = set(range(next(iter(sizes))))
    for episode in episodes:
        if episode.dimensions is not None:
            common &= set(episode.dimensions)
    if not common:
        raise InputError('no dimension is predicted in every episode')
    return tuple(sorted(common))


def resolve_invalid(
    episode: PredictedEpisode, choice: InvalidChoice | str, *, seed: int = 0, space: ActionSpace | None = None
) -> tuple[PredictedEpisode, BoolArray]:
    """The episode with its invalid rows filled by the named choice, and which timesteps are scored, (T,).

    The random fill depends on the seed and the episode's id alone, so that it is the same in any order of episodes.
    """
    choice = InvalidChoice(choice)
    invalid = episode.invalid
    if not invalid.any():
        return episode, np.ones(episode.n_steps, dtype=bool)
    if choice is InvalidChoice.EXCLUDE:
        return episode, ~invalid
    filled = episode.predicted.copy()
    if choice is InvalidChoice.RANDOM:
        digest = hashlib.sha256(episode.episode_id.encode()).digest()
        words = [int.from_bytes(digest[i : i + 4], 'little') for i in (0, 4, 8, 12)]
        rng = np.random.default_rng([seed, *words])
        filled[invalid] = rng.random(episode.target.shape)[invalid]
    else:
        if space is None:
            raise InputError("invalid='worst' needs the action space with its ranges")
        if space.size != episode.target.shape[1]:
            raise InputError(f'an action space of {space.size} dimensions for actions of {episode.target.shape[1]}')
        low, high = space.ranges()
        filled[invalid] = np.where(np.abs(episode.target - low) > np.abs(episode.target - high), low, high)[invalid]
    unpredicted = np.isnan(episode.predicted[~invalid]).any(axis=0) if (~invalid).any() else np.zeros(0, dtype=int)
    if unpredicted.size:
        filled[:, unpredicted] = np.nan
    return dataclasses.replace(episode, predicted=filled), np.ones(episode.n_steps, dtype=bool)


def as_row(prediction: Prediction, size: int) -> NDArray[Any]:
    """A prediction as a row of `size` numbers; NaN throughout if it is invalid."""
    if isinstance(prediction, Invalid):
        return np.full(size, np.nan)
    row = np.asarray(prediction, dtype=np.float64)
    if row.shape != (size,):
        raise InputError(f'a predictor gave an action of shape {row.shape}, wanted ({size},)')
    return row


# Who predicts: the seam, what a predictor may be made from, and an adapter for other conventions.


@runtime_checkable
class Predictor(Protocol):
    """A model that names the action of each recorded moment."""

    @property
    def name(self) -> str: ...

    def start(self, episode_id: str, instruction: str) -> None:
        """A new episode begins; nothing of the last one may be remembered."""

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        """The action, (D,), or why there is none. Timesteps of an episode come in order."""


@runtime_checkable
class ConcurrentPredictor(Predictor, Protocol):
    """A predictor without memory of earlier timesteps, which may be asked for several at once."""

    @property
    def concurrency(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PredictorContext:
    """What a predictor may be made from: training episodes and what they say, never the evaluated ones."""

    dataset: str
    space: ActionSpace
    statistics: ActionStatistics
    training: Callable[[], Iterator[RecordedEpisode]]
    evaluated_ids: frozenset[str] = frozenset()
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    def option(self, name: str, default: str | None = None) -> str:
        """An option of the specification; without a default it is required."""
        if name in self.options:
            return self.options[name]
        if default is None:
            raise InputError(f'the predictor needs {name}=...; found the options {sorted(self.options) or "none"}')
        return default


PREDICTORS = Catalog(
    'predictor',
    {
        'mean': 'robotrials.measure.actions.evaluate:make_mean',
        'nearest': 'robotrials.measure.actions.evaluate:make_nearest',
        'clone': 'robotrials.measure.actions.evaluate:make_clone',
        'vlm': 'robotrials.measure.actions.vlm:make_vlm',
        'policy': 'robotrials.policies.offline:make_offline',
    },
    entry_point_group='robotrials.predictors',
)


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """`NAME,key=value,...` as the name and its options.

    >>> parse_spec('vlm,model=m,url=http://127.0.0.1:8000/v1')
    ('vlm', {'model': 'm', 'url': 'http://127.0.0.1:8000/v1'})
    """
    name, *pairs = spec.split(',')
    options = {}
    for pair in pairs:
        key, separator, value = pair.partition('=')
        if not separator or not key:
            raise InputError(f'{spec!r}: wanted NAME,key=value,..., found {pair!r}')
        options[key] = value
    if not name:
        raise InputError(f'{spec!r}: wanted NAME,key=value,...; known: {", ".join(PREDICTORS.names())}')
    return name, options


def load_predictor(name: str, context: PredictorContext) -> Predictor:
    """Make the predictor of a catalogue name, or of a literal `module:function` that takes a PredictorContext."""
    factory = PREDICTORS.load(name)
    if not callable(factory):
        raise InputError(f'{name}: wanted a function that takes a PredictorContext, found {type(factory).__name__}')
    made = factory(context)
    if not isinstance(made, Predictor):
        raise InputError(f'{name}: made a {type(made).__name__}, which has no name, start and predict')
    return made


@dataclass(slots=True)
class FunctionPredictor:
    """A plain function of (observation, instruction) as a predictor."""

    name: str
    function: Callable[[RecordedObservation, str], ArrayLike | Invalid]

    def start(self, episode_id: str, instruction: str) -> None:
        pass

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        answer = self.function(observation, instruction)
        return answer if isinstance(answer, Invalid) else np.asarray(answer, dtype=np.float64)


@dataclass(slots=True)
class AdaptedPredictor:
    """A predictor in its own convention: its answers are converted, and put into dimensions of the dataset's space.

    Dimensions that it does not predict are NaN, and left out of its score.
    """

    inner: Predictor
    size: int
    dimensions: tuple[int, ...]
    conversion: Conversion = field(default_factory=Chain)

    @property
    def name(self) -> str:
        return self.inner.name

    def start(self, episode_id: str, instruction: str) -> None:
        self.inner.start(episode_id, instruction)

    def predict(self, observation: RecordedObservation, instruction: str) -> Prediction:
        answer = self.inner.predict(observation, instruction)
        if isinstance(answer, Invalid):
            return answer
        converted = np.asarray(self.conversion(answer))
        if converted.shape != (len(self.dimensions),):
            raise InputError(
                f'{self.name} gives {converted.shape} after conversion, wanted ({len(self.dimensions)},) '
                f'for the dimensions {list(self.dimensions)}'
            )
        row: FloatArray = np.full(self.size, np.nan)
        row[list(self.dimensions)] = converted
        return row


# How JAT and OpenVLA need to be shown an observation (MultiNet section 4.1).

PRIMARY = 'image'
SMALLEST_IMAGE = 8  # pixels on a side
# Non-standard camera names that the paper used for OpenVLA alone, which cannot do without an image.
OPENVLA_EXCEPTIONS: Mapping[str, str] = {'conq_hose_manipulation': 'frontright_fisheye_image', 'viola': 'agentview_rgb'}


def primary_image(observation: RecordedObservation) -> str | None:
    """The name of the primary image: `image` itself, else the first in the alphabet with that word; None without one.

    Wrist and depth images are no primary image.
    """
    names = sorted(observation.images)
    plain = [n for n in names if n.rpartition('/')[2] == PRIMARY]
    keyed = [n for n in names if PRIMARY in n.rpartition('/')[2].split('_')]
    keyed = [n for n in keyed if not {'wrist', 'hand', 'depth', 'gripper', 'fisheye'} & set(n.lower().split('_'))]
    return next(iter([*plain, *keyed]), None)


def with_float_images(observation: RecordedObservation) -> RecordedObservation:
    """The observation with numbers that lie like pixels (height, width, 1 to 4 channels) as 8-bit images."""
    pixels = {name: values for name, values in observation.state.items() if _is_image(values)}
    if not pixels:
        return observation
    state = {name: values for name, values in observation.state.items() if name not in pixels}
    made = {name: eight_bit(values) for name, values in pixels.items()}
    return RecordedObservation(state, {**observation.images, **made})


def _is_image(values: FloatArray) -> bool:
    shape = np.shape(values)
    is_plane = len(shape) == 2 or (len(shape) == 3 and 1 <= shape[2] <= 4)
    return is_plane and min(shape[:2]) >= SMALLEST_IMAGE


def eight_bit(values: FloatArray) -> NDArray[Any]:
    """Values of [0, 1] or of [0, 255] as bytes; what is not finite is black."""
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    scale = 255.0 if numbers.size and numbers.max() <= 1.0 else 1.0
    made = np.clip(np.rint(numbers * scale), 0, 255).astype(np.uint8)
    return made[..., None] if made.ndim == 2 else made


def openvla_image(observation: RecordedObservation, dataset: str) -> str:
    """The image for OpenVLA: the dataset's exception where the paper made one, the primary image, else the first."""
    exception = OPENVLA_EXCEPTIONS.get(dataset)
    for name in sorted(observation.images):
        if exception is not None and name.rpartition('/')[2] == exception:
            return name
    chosen = primary_image(observation) or next(iter(sorted(observation.images)), None)
    if chosen is None:
        raise InputError(f'{dataset}: OpenVLA needs an image, and the observation has none')
    return chosen


def four_channels(image: NDArray[Any]) -> NDArray[Any]:
    """JAT's four channels: RGB with red as alpha, a pair of channels twice, four as they are."""
    if image.ndim != 3:
        raise InputError(f'an image is (height, width, channels), found shape {image.shape}')
    channels = image.shape[2]
    if channels == 4:
        return image
    if channels == 3:
        return np.concatenate([image, image[..., :1]], axis=2)
    if channels == 2:
        return np.concatenate([image, image], axis=2)
    raise InputError(f'JAT takes images of 2, 3 or 4 channels, found {channels}; the paper has no rule for it')


def state_vector(observation: RecordedObservation, *, dummy_size: int = 1) -> FloatArray:
    """All floating-point observations in one vector, names sorted; zeros of `dummy_size` where there are none."""
    parts = [np.asarray(observation.state[name], dtype=np.float64).ravel() for name in sorted(observation.state)]
    return np.concatenate(parts) if parts else np.zeros(dummy_size)


def jat_view(observation: RecordedObservation, *, dummy_size: int = 1) -> tuple[FloatArray, NDArray[Any] | None]:
    """What JAT is given: the state vector, and the primary image in four channels (None without one)."""
    name = primary_image(observation)
    image = None if name is None else four_channels(observation.image(name))
    return state_vector(observation, dummy_size=dummy_size), image
