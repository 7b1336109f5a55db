"""What a release detector reads: the commanded and the measured gripper, and where the tool was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.record import Trajectory

FloatArray = NDArray[np.float64]
SLACK = 0.05  # of the travel: a command beyond it is on another scale
SIGNALS = ('time_s', 'ee_pose', 'gripper_command', 'gripper_position')


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """One episode at the rate of its recording; openings run from 0 (closed) to 1 (open)."""

    time_s: FloatArray  # (T,)
    command: FloatArray  # (T,)
    opening: FloatArray  # (T,)
    tool_m: FloatArray  # (T, 3)

    def __post_init__(self) -> None:
        length = len(self.time_s)
        for name, shape in (('command', (length,)), ('opening', (length,)), ('tool_m', (length, 3))):
            found = np.shape(getattr(self, name))
            if found != shape:
                raise InputError(f'{name} has shape {found}, wanted {shape}')
        if length < 2 or not np.isfinite(self.time_s).all() or np.any(np.diff(self.time_s) <= 0):
            raise InputError('time_s must have at least two times, finite and rising')

    @property
    def dt_s(self) -> float:
        return float(np.median(np.diff(self.time_s)))


def read_telemetry(trajectory: Trajectory) -> Telemetry:
    """The telemetry of a trajectory; NotEstimable says what was not recorded.

    Single readings that are missing (NaN) keep the last value before them: a sensor that skips a beat has not moved.
    """
    found: dict[str, Any] = {name: getattr(trajectory, name) for name in SIGNALS}
    absent = [name for name, value in found.items() if value is None]
    if absent:
        raise NotEstimable(f'releases cannot be detected: {", ".join(absent)} was not recorded')
    tool = np.asarray(found['ee_pose'], dtype=np.float64)[:, :3]
    columns = [np.asarray(found[n], dtype=np.float64) for n in ('gripper_command', 'gripper_position')]
    kept = [_carried(column, name) for column, name in zip((*columns, *tool.T), (*SIGNALS[2:], *'xyz'), strict=True)]
    low, high = kept[0].min(), kept[0].max()
    if low < -SLACK or high > 1 + SLACK:
        raise NotEstimable(
            f'releases cannot be detected: gripper_command runs from {low:g} to {high:g}, wanted an opening from 0 '
            '(closed) to 1 (open)'
        )
    return Telemetry(np.asarray(found['time_s'], dtype=np.float64), kept[0], kept[1], np.stack(kept[2:], axis=1))


def _carried(values: FloatArray, name: str) -> FloatArray:
    fine = np.isfinite(values)
    if fine.mean() < 0.5:
        raise NotEstimable(f'releases cannot be detected: most readings of {name} are missing')
    last = np.maximum.accumulate(np.where(fine, np.arange(len(values)), -1))
    carried: FloatArray = values[np.where(last < 0, int(np.argmax(fine)), last)]
    return carried
