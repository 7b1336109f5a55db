"""Sensor noise: on colour, on depth, on what is missing, and on the calibration."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trialist.conditions.condition import (
    CONDITIONS,
    CameraFrame,
    Effect,
    FloatArray,
    SingleCondition,
    check_severity,
    generator,
)  # fmt: skip


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class SensorNoise(SingleCondition):
    """Gaussian noise on depth and colour, dropout, a small rotation of the extrinsics, and its drift over the steps.

    The rotation is of the camera's reported pose: pictures stay, and what is computed from them moves.
    """

    KINDS: ClassVar[tuple[str, ...]] = ('sensor_noise',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.RGB, Effect.DEPTH, Effect.CALIBRATION})

    severity: float
    seed: int
    depth_sigma_m: float
    rgb_sigma: float  # of 255
    dropout: float  # share of depth pixels that are missing
    turn_rad: float  # of the extrinsics, about a random axis for each camera
    drift_rad_per_step: float

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> SensorNoise:
        s, rng = check_severity('sensor_noise', severity), generator('sensor_noise', seed)
        size = [float(v) for v in rng.uniform(0.6, 1.0, 5)]
        return cls(
            severity=s,
            seed=seed,
            depth_sigma_m=0.02 * s * size[0],
            rgb_sigma=40.0 * s * size[1],
            dropout=0.4 * s * size[2],
            turn_rad=math.radians(4.0) * s * size[3],
            drift_rad_per_step=math.radians(0.01) * s * size[4],
        )

    def disturb(self, frame: CameraFrame, *, step: int) -> CameraFrame:
        if self.severity == 0:
            return frame
        rng = generator('sensor_noise', self.seed, frame.camera, step)
        noisy = frame.rgb + self.rgb_sigma * rng.standard_normal(frame.rgb.shape, dtype=np.float32)
        changed = dataclasses.replace(frame, rgb=np.clip(np.rint(noisy), 0, 255).astype(np.uint8))
        if frame.depth_m is not None:
            depth = frame.depth_m + self.depth_sigma_m * rng.standard_normal(frame.depth_m.shape)
            depth[rng.random(depth.shape) < self.dropout] = np.nan
            changed = dataclasses.replace(changed, depth_m=depth.astype(frame.depth_m.dtype))
        if frame.world_from_camera is not None:
            pose = np.array(frame.world_from_camera, dtype=np.float64)
            pose[:3, :3] = pose[:3, :3] @ self.calibration_error(frame.camera, step=step)
            changed = dataclasses.replace(changed, world_from_camera=pose)
        return changed

    def calibration_error(self, camera: str, *, step: int) -> FloatArray:
        """The wrong rotation (3, 3) of a camera's own frame at a step."""
        axis = generator('sensor_noise', self.seed, camera).standard_normal(3)
        return turn_about(axis, self.turn_rad + step * self.drift_rad_per_step)


def turn_about(axis: FloatArray, angle_rad: float) -> FloatArray:
    """The rotation by an angle about an axis (Rodrigues)."""
    x, y, z = axis / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    turn: FloatArray = np.eye(3) + math.sin(angle_rad) * cross + (1 - math.cos(angle_rad)) * (cross @ cross)
    return turn
