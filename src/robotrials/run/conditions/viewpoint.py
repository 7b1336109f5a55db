"""A camera that hangs elsewhere: bumped, with its calibration left as it was, or moved and calibrated anew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from robotrials.run.conditions.condition import (
    CONDITIONS,
    Effect,
    FloatArray,
    SingleCondition,
    check_severity,
    generator,
)  # fmt: skip
from robotrials.run.conditions.sensor import turn_about

# At severity 1, whether the calibration is stale: what nobody noticed is smaller than what somebody did on purpose.
MOST_TURN_RAD = {True: math.radians(4.0), False: math.radians(12.0)}
MOST_SHIFT_M = {True: 0.03, False: 0.10}


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class CameraShift(SingleCondition):
    """Every camera turned and shifted by the drawn sizes, each along directions of its own; a host moves them.

    `camera_bumped` leaves the reported calibration as it was (nobody noticed), `camera_moved` reports the new one.
    """

    KINDS: ClassVar[tuple[str, ...]] = ('camera_bumped', 'camera_moved')
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.RGB, Effect.DEPTH, Effect.CALIBRATION})

    severity: float
    seed: int
    turn_rad: float
    shift_m: float
    is_stale: bool  # whether the reported calibration is the old one

    @property
    def kind(self) -> str:
        return 'camera_bumped' if self.is_stale else 'camera_moved'

    @classmethod
    def draw(cls, severity: float, *, seed: int, is_stale: bool) -> CameraShift:
        name = 'camera_bumped' if is_stale else 'camera_moved'
        s = check_severity(name, severity)
        turn, shift = (float(v) for v in generator(name, seed).uniform(0.8, 1.0, 2))
        return cls(
            severity=s,
            seed=seed,
            turn_rad=MOST_TURN_RAD[is_stale] * s * turn,
            shift_m=MOST_SHIFT_M[is_stale] * s * shift,
            is_stale=is_stale,
        )

    def displacement(self, camera: str) -> FloatArray:
        """The old camera frame from the new one (4, 4): how one camera was turned and shifted in its own frame."""
        rng = generator('camera_shift', self.seed, camera)
        axis, direction = rng.standard_normal(3), rng.standard_normal(3)
        pose = np.eye(4)
        pose[:3, :3] = turn_about(axis, self.turn_rad)
        pose[:3, 3] = self.shift_m * direction / np.linalg.norm(direction)
        return pose
