"""Sensor noise: on colour, on depth, on what is missing, and on the calibration."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from robotrials.measure.geometry.depth_noise import STEREO_NOISE, StereoNoise, stereo_depth
from robotrials.run.conditions.condition import (
    CONDITIONS,
    CameraFrame,
    Effect,
    FloatArray,
    SingleCondition,
    check_severity,
    generator,
)  # fmt: skip

WORST = STEREO_NOISE['heavy'].scaled(2.0)  # at severity 1


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class SensorNoise(SingleCondition):
    """Noise of a depth camera and of colour, a small rotation of the extrinsics, and its drift over the steps.

    Depth is disturbed as a stereo camera does (`measure.geometry.stereo_depth`): smooth noise, a unit's own bias and
    steps of its disparity, holes at edges and in patches. Records from before that have white noise and dropout. The
    rotation is of the camera's reported pose: pictures stay, and what is computed from them moves.
    """

    KINDS: ClassVar[tuple[str, ...]] = ('sensor_noise',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.RGB, Effect.DEPTH, Effect.CALIBRATION})

    severity: float
    seed: int
    depth_sigma_m: float  # of white noise
    rgb_sigma: float  # of 255
    dropout: float  # share of depth pixels that are missing, one by one
    turn_rad: float  # of the extrinsics, about a random axis for each camera
    drift_rad_per_step: float
    disparity_noise_px: float = 0.0  # this and the rest of a stereo camera, see StereoNoise
    disparity_bias_px: float = 0.0
    disparity_step_px: float = 0.0
    holes: float = 0.0
    edge: float = 0.0

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> SensorNoise:
        s, rng = check_severity('sensor_noise', severity), generator('sensor_noise', seed)
        size = [float(v) for v in rng.uniform(0.6, 1.0, 5)]
        depth = WORST.scaled(s * size[0])
        return cls(
            severity=s,
            seed=seed,
            depth_sigma_m=0.0,
            rgb_sigma=40.0 * s * size[1],
            dropout=0.0,
            turn_rad=math.radians(2.0) * s * size[3],
            drift_rad_per_step=math.radians(0.01) * s * size[4],
            disparity_noise_px=depth.noise_px,
            disparity_bias_px=depth.bias_px,
            disparity_step_px=depth.quantum_px,
            holes=WORST.holes * s * size[2],
            edge=depth.edge,
        )

    def disturb(self, frame: CameraFrame, *, step: int) -> CameraFrame:
        if self.severity == 0:
            return frame
        rng = generator('sensor_noise', self.seed, frame.camera, step)
        noisy = frame.rgb + self.rgb_sigma * rng.standard_normal(frame.rgb.shape, dtype=np.float32)
        changed = dataclasses.replace(frame, rgb=np.clip(np.rint(noisy), 0, 255).astype(np.uint8))
        if frame.depth_m is not None:
            changed = dataclasses.replace(changed, depth_m=self._depth(frame, frame.depth_m, rng=rng, step=step))
        if frame.world_from_camera is not None:
            pose = np.array(frame.world_from_camera, dtype=np.float64)
            pose[:3, :3] = pose[:3, :3] @ self.calibration_error(frame.camera, step=step)
            changed = dataclasses.replace(changed, world_from_camera=pose)
        return changed

    def _depth(self, frame: CameraFrame, depth_m: FloatArray, *, rng: np.random.Generator, step: int) -> FloatArray:
        depth = depth_m
        if self.depth_sigma_m > 0:
            depth = depth + self.depth_sigma_m * rng.standard_normal(depth.shape)
        if self.dropout > 0:
            depth = np.where(rng.random(depth.shape) < self.dropout, np.nan, depth)
        stereo = self.stereo
        if stereo.has_shadow:
            unit = generator('sensor_noise', self.seed, frame.camera, 'unit')
            new = generator('sensor_noise', self.seed, frame.camera, 'depth', step)
            # Without intrinsics a picture is as wide as a usual lens sees: 60 degrees.
            width = depth.shape[1]
            focal_px = float(frame.intrinsics_px[0, 0]) if frame.intrinsics_px is not None else 0.87 * width
            depth = stereo_depth(depth, stereo, focal_px=focal_px, unit=unit, frame=new)
        return depth.astype(depth_m.dtype)

    @property
    def stereo(self) -> StereoNoise:
        """The depth camera that the numbers stand for; a perfect one in records from before it."""
        return StereoNoise(
            noise_px=self.disparity_noise_px,
            bias_px=self.disparity_bias_px,
            quantum_px=self.disparity_step_px,
            holes=self.holes,
            edge=self.edge,
            has_shadow=self.disparity_noise_px > 0,
        )

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
