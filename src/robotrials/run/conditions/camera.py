"""What cameras do to an image: light and shutter, sensor noise, and where they hang."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.geometry.view import STEREO_NOISE, StereoNoise, stereo_depth
from robotrials.run.conditions.condition import (  # fmt: skip  # fmt: skip  # fmt: skip
    CONDITIONS,
    CameraFrame,
    Effect,
    FloatArray,
    SingleCondition,
    check_severity,
    generator,
    signed_size,
)
from robotrials.value import dataclass

# A camera's response: from light on the sensor to pixel values, and back.
# Light is linear up to a knee; above it the sensor saturates smoothly towards white; the rest is sRGB's curve and 8
# bits.

KNEE = 0.8  # light, where 1 would be white without a shoulder
WHITE = 1 - 0.5 / 255  # what stands for a pixel of 255 on the way back: its light is not known, only that it is as much


def sensor_value(light: FloatArray) -> FloatArray:
    """What the sensor says (0..1) of light (0 and more): linear, then an exponential shoulder, smooth at the knee."""
    over = np.maximum(light - KNEE, 0.0)
    value: FloatArray = np.where(light <= KNEE, light, 1 - (1 - KNEE) * np.exp(-over / (1 - KNEE)))
    return value


def sensor_light(value: FloatArray) -> FloatArray:
    """The light that a sensor's value was made of: the inverse of `sensor_value`, white taken as nearly white."""
    capped = np.minimum(value, WHITE)
    light: FloatArray = np.where(
        capped <= KNEE, capped, KNEE - (1 - KNEE) * np.log(np.minimum(1 - capped, 1 - KNEE) / (1 - KNEE))
    )
    return light


def srgb_encode(linear: FloatArray) -> FloatArray:
    """Linear values (0..1) as sRGB (IEC 61966-2-1)."""
    encoded: FloatArray = np.where(
        linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055
    )
    return encoded


def srgb_decode(encoded: FloatArray) -> FloatArray:
    """SRGB values (0..1) as linear ones."""
    linear: FloatArray = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    return linear


def expose(rgb: NDArray[np.uint8], *, stops: float) -> NDArray[np.uint8]:
    """The picture with 2^stops times the light on its sensor."""
    exposed: NDArray[np.uint8] = _curve(stops)[rgb]
    return exposed


@functools.lru_cache(maxsize=64)
def _curve(stops: float) -> NDArray[np.uint8]:
    """New pixel values by old ones (256,): all that an exposure does to a pixel."""
    light = sensor_light(srgb_decode(np.arange(256) / 255)) * 2.0**stops
    return np.rint(255 * srgb_encode(sensor_value(light))).astype(np.uint8)


# Illumination, exposure: what the light and the shutter do to an image.

DAYLIGHT_K = 6500.0
GAMMA = 2.2
# Black-body white points in linear light, relative to the green channel.
WHITE_POINTS = np.array(
    [[2000, 2.60, 0.28], [2700, 1.92, 0.44], [3500, 1.53, 0.60], [4500, 1.27, 0.77], [5500, 1.11, 0.90],
     [6500, 1.00, 1.00], [8000, 0.90, 1.12], [10000, 0.83, 1.23], [14000, 0.76, 1.34]]
)  # fmt: skip


def temperature_gain(temperature_k: float) -> FloatArray:
    """Gains (3,) on linear red, green and blue of light of this colour temperature, against 6500 K."""
    mired = 1e6 / np.asarray(WHITE_POINTS[:, 0])
    at = 1e6 / temperature_k
    red, blue = (np.interp(at, mired[::-1], WHITE_POINTS[::-1, k]) for k in (1, 2))
    gain = np.array([red, 1.0, blue])
    balanced: FloatArray = gain / (gain @ [0.2126, 0.7152, 0.0722])
    return balanced


def to_linear(rgb: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> FloatArray:
    linear: FloatArray = (rgb.astype(np.float32) / 255.0) ** GAMMA
    return linear


def to_rgb(linear: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    rgb: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] = np.rint(
        255.0 * np.clip(linear, 0.0, 1.0) ** (1 / GAMMA)
    ).astype(np.uint8)
    return rgb


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Light(SingleCondition):
    """Intensity, colour temperature, direction and shadow of the light.

    A host with lights sets them; over frames it is a gain, a tint, a slope of brightness and a soft shadow.
    """

    KINDS: ClassVar[tuple[str, ...]] = ('light',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.RGB})

    severity: float
    seed: int
    stops: float  # brightness, in powers of two
    temperature_k: float
    azimuth_rad: float  # where the light comes from, about the vertical
    slope: float  # share by which one side is brighter than the middle
    shadow: float  # share of light that the shadow takes

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> Light:
        s, rng = check_severity('light', severity), generator('light', seed)
        warm = signed_size(rng)
        mired = 1e6 / DAYLIGHT_K + s * (210.0 * warm if warm > 0 else 70.0 * warm)
        return cls(
            severity=s,
            seed=seed,
            stops=s * (2.5 * u if (u := signed_size(rng)) < 0 else 1.3 * u),
            temperature_k=1e6 / mired,
            azimuth_rad=float(rng.uniform(-math.pi, math.pi)),
            slope=0.6 * s * float(rng.uniform(0.6, 1.0)),
            shadow=0.7 * s * float(rng.uniform(0.6, 1.0)),
        )

    def disturb(self, frame: CameraFrame, *, step: int) -> CameraFrame:
        if self.severity == 0:
            return frame
        height, width = frame.rgb.shape[:2]
        y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)
        along = x * math.cos(self.azimuth_rad) + y * math.sin(self.azimuth_rad)
        rng = generator('light', self.seed, frame.camera)
        edge = float(rng.uniform(-0.4, 0.4))
        shade = 1.0 - self.shadow / (1.0 + np.exp(12.0 * (along - edge)))
        gain = 2.0**self.stops * (1.0 + self.slope * along) * shade
        lit = to_linear(frame.rgb) * gain[..., None] * temperature_gain(self.temperature_k).astype(np.float32)
        return dataclasses.replace(frame, rgb=to_rgb(lit))


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure(SingleCondition):
    """Over-exposure (`exposure+`) or under-exposure (`exposure-`) by the camera; the light in the world stays.

    The picture is taken back to light, gets a power of two more or less of it, and passes the camera's response again:
    a soft shoulder, saturation, the sRGB curve and 8 bits.
    """

    KINDS: ClassVar[tuple[str, ...]] = ('exposure+', 'exposure-')
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.RGB})

    severity: float
    seed: int
    stops: float

    @property
    def kind(self) -> str:
        return 'exposure-' if math.copysign(1.0, self.stops) < 0 else 'exposure+'  # -0.0 is an under-exposure too

    @classmethod
    def draw(cls, severity: float, *, seed: int, over: bool) -> Exposure:
        name = 'exposure+' if over else 'exposure-'
        s = check_severity(name, severity)
        size = float(generator(name, seed).uniform(0.8, 1.0))
        return cls(severity=s, seed=seed, stops=(3.0 if over else -4.0) * s * size)

    def disturb(self, frame: CameraFrame, *, step: int) -> CameraFrame:
        if self.severity == 0:
            return frame
        return dataclasses.replace(frame, rgb=expose(frame.rgb, stops=self.stops))


# Sensor noise: on colour, on depth, on what is missing, and on the calibration.

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


# A camera that hangs elsewhere: bumped, with its calibration left as it was, or moved and calibrated anew.

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
