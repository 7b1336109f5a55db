"""Conversions between action conventions by name, as a command line states them.

binary-gripper:6          the gripper at or above 0.5 is 1; binary-gripper:6:0.4 for another threshold
ternary-gripper:6         below 0.05 closed, above 0.95 open, between no change
continuous-gripper:6      [0, 1] to [-1, 1]; continuous-gripper:6:LOW:HIGH from another range
torque-gripper:6:LOW:HIGH [0, 1] to a torque range
unnormalize:FILE          [-1, 1] to the percentiles q01, q99 (and mask) of a JSON file; normalize:FILE the way back
reorder:0,2,1:1,-1,1      output dimension i is input dimension order[i], times its sign
select:0,1,2              keep these dimensions
drop-terminate            drop the terminate dimensions of the space
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from robotrials.errors import InputError, UnknownName
from robotrials.formats.norm_stats import VectorStatistics, norm_stats_of
from robotrials.formats.space import ActionSpace
from robotrials.measure.actions.convert import (
    BinaryGripper,
    Chain,
    Conversion,
    LinearMap,
    Reorder,
    Select,
    TernaryGripper,
    continuous_gripper,
    drop_terminate,
    normalize,
    torque_gripper,
    unnormalize,
)


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


def _binary(arguments: Sequence[str]) -> Conversion:
    return BinaryGripper(int(arguments[0]), *(float(v) for v in arguments[1:]))


def _continuous(arguments: Sequence[str]) -> Conversion:
    if len(arguments) == 2:
        raise InputError('a range has two ends: continuous-gripper:INDEX:LOW:HIGH')
    low, high = (float(v) for v in arguments[1:]) if len(arguments) > 1 else (0.0, 1.0)
    return continuous_gripper(int(arguments[0]), low=low, high=high)


def _torque(arguments: Sequence[str]) -> Conversion:
    return torque_gripper(int(arguments[0]), torque_low=float(arguments[1]), torque_high=float(arguments[2]))


def _percentiles(way: Callable[..., LinearMap]) -> Callable[[Sequence[str]], Conversion]:
    def make(arguments: Sequence[str]) -> Conversion:
        path = Path(':'.join(arguments))
        vector = _action_vector(path)
        if not vector.q01 or not vector.q99:
            raise InputError(f'{path}: wanted q01 and q99 of the action')
        return way(vector.q01, vector.q99, mask=vector.mask or None)

    return make


def _action_vector(path: Path) -> VectorStatistics:
    """The action's statistics: of a file of openpi, OpenVLA or LeRobot, or the bare numbers."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise InputError(f'{path}: wanted JSON with q01 and q99 ({error!r})') from error
    bare = {'action': content} if isinstance(content, dict) and 'q01' in content else content
    return norm_stats_of(bare, where=str(path)).vector('action', where=str(path))


def _reorder(arguments: Sequence[str]) -> Conversion:
    order, *sign = (tuple(int(v) for v in part.split(',')) for part in arguments)
    return Reorder(order, *sign)


MAKERS: Mapping[str, tuple[Callable[[Sequence[str]], Conversion], int, int]] = {
    'binary-gripper': (_binary, 1, 2),
    'ternary-gripper': (lambda a: TernaryGripper(int(a[0])), 1, 1),
    'continuous-gripper': (_continuous, 1, 3),
    'torque-gripper': (_torque, 3, 3),
    'unnormalize': (_percentiles(unnormalize), 1, 9),
    'normalize': (_percentiles(normalize), 1, 9),
    'reorder': (_reorder, 1, 2),
    'select': (lambda a: Select(tuple(int(v) for v in a[0].split(','))), 1, 1),
}
