"""Conversions between action conventions (MultiNet section 4.1). They compose, and turn back where they can.

A conversion maps actions (..., D) to (..., D'), and the space with them. `inverse` is None where numbers are lost.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.formats.norm_stats import norm_stats_of
from robotrials.formats.space import ActionSpace, DimensionKind, FloatArray

TERNARY_CLOSED, TERNARY_OPEN = 0.05, 0.95


class Conversion(Protocol):
    """A step from one convention to another."""

    def __call__(self, actions: FloatArray) -> FloatArray: ...

    def space(self, before: ActionSpace) -> ActionSpace: ...

    @property
    def inverse(self) -> Conversion | None: ...


@dataclass(frozen=True, slots=True)
class BinaryGripper:
    """[0, 1] to {0, 1}: at or above the threshold is 1. The paper says "threshold at 0.5" and not where 0.5 falls."""

    index: int
    threshold: float = 0.5

    def __call__(self, actions: FloatArray) -> FloatArray:
        return _mapped(actions, self.index, lambda x: (x >= self.threshold).astype(np.float64))

    def space(self, before: ActionSpace) -> ActionSpace:
        return _ranged(before, self.index, 0.0, 1.0)

    @property
    def inverse(self) -> Conversion | None:
        return None


@dataclass(frozen=True, slots=True)
class TernaryGripper:
    """[0, 1] to {-1, 0, 1}: below 0.05 is -1 (closed), above 0.95 is 1 (open), between is 0 (no change)."""

    index: int
    closed: float = TERNARY_CLOSED
    open: float = TERNARY_OPEN

    def __call__(self, actions: FloatArray) -> FloatArray:
        return _mapped(actions, self.index, lambda x: (x > self.open).astype(np.float64) - (x < self.closed))

    def space(self, before: ActionSpace) -> ActionSpace:
        return _ranged(before, self.index, -1.0, 1.0)

    @property
    def inverse(self) -> Conversion | None:
        return None


@dataclass(frozen=True, slots=True)
class LinearMap:
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
class Reorder:
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
        moved: FloatArray = values[..., list(self.order)] * np.array(self.sign or [1] * len(self.order))
        return moved

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
class Select:
    """Keep some dimensions; what is dropped is gone."""

    indices: tuple[int, ...]

    def __call__(self, actions: FloatArray) -> FloatArray:
        values = np.asarray(actions, dtype=np.float64)
        _check_index(values, max(self.indices, default=0))
        kept: FloatArray = values[..., list(self.indices)]
        return kept

    def space(self, before: ActionSpace) -> ActionSpace:
        return before.select(self.indices)

    @property
    def inverse(self) -> Conversion | None:
        return None


def drop_terminate(space: ActionSpace) -> Select:
    """Drop the terminate dimensions of a space, as the paper did for OpenVLA."""
    return Select(tuple(i for i, d in enumerate(space.dimensions) if d.kind is not DimensionKind.TERMINATE))


@dataclass(frozen=True, slots=True)
class Chain:
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


def _mapped(actions: FloatArray, index: int, change: object) -> FloatArray:
    out = np.array(actions, dtype=np.float64)
    _check_index(out, index)
    assert callable(change)
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
