"""A camera's response: from light on the sensor to pixel values, and back.

Light is linear up to a knee; above it the sensor saturates smoothly towards white; the rest is sRGB's curve and 8 bits.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from robotrials.run.conditions.condition import FloatArray

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
