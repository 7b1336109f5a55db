"""Illumination, exposure: what the light and the shutter do to an image."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from robotrials.run.conditions.condition import (
    CONDITIONS,
    CameraFrame,
    Effect,
    FloatArray,
    SingleCondition,
    check_severity,
    generator,
    signed_size,
)  # fmt: skip
from robotrials.run.conditions.response import expose

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
