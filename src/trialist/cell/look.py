"""How the cell looks: its lights, and what lies on table, floor and platform. Physics does not know of it.

Lights in OpenGL multiply pixel values, which are not linear in light; a gain on light is therefore raised to 1/gamma,
so that a stop here is a stop of the condition laid over frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.conditions import Background, Light
from trialist.conditions.light import GAMMA, temperature_gain

FloatArray = NDArray[np.floating[Any]]
Color = tuple[float, float, float]

AMBIENT: Color = (0.35, 0.35, 0.35)
HEADLIGHT: Color = (0.35, 0.35, 0.35)
KEY: Color = (0.55, 0.55, 0.53)
FILL: Color = (0.25, 0.25, 0.28)
KEY_DIRECTION = (0.15, -0.45, -0.9)
SKY: tuple[Color, Color] = ((0.86, 0.89, 0.92), (0.66, 0.71, 0.77))
WOOD: Color = (0.77, 0.71, 0.63)
PLATE: Color = (0.36, 0.38, 0.41)
FLOOR: Color = (0.58, 0.60, 0.62)
SURFACES = {'wood': WOOD, 'plate': PLATE, 'floor': FLOOR}  # a texture each
TEXTURE_PX = 192
LOWEST_KEY = 0.55  # share of the key light's fall that is left when it comes in flat


@dataclass(frozen=True, slots=True)
class Look:
    """The look that a condition asks for; None is the usual one."""

    light: Light | None = None
    background: Background | None = None
    has_shadows: bool = True


def headlight_xml(look: Look) -> str:
    """The light that comes from the camera and from everywhere; a deep shadow is one that it does not fill."""
    gain = light_gain(look.light) * (1 - (look.light.shadow if look.light is not None else 0.0))
    return (
        f'<headlight ambient="{_color(AMBIENT, gain)}" diffuse="{_color(HEADLIGHT, gain)}" specular="0.05 0.05 0.05"/>'
    )


def lights_xml(look: Look) -> str:
    """The key light, which casts the shadows, and the fill."""
    light = look.light
    slope = light.slope if light is not None else 0.0
    gain = light_gain(light)
    shadow = 'true' if look.has_shadows else 'false'
    direction = ' '.join(f'{v:.6g}' for v in key_direction(light))
    return (
        f'<light name="key" pos="0.2 0.9 1.9" dir="{direction}" directional="true"'
        f' diffuse="{_color(KEY, gain * (1 + slope))}" castshadow="{shadow}"/>'
        '<light name="fill" pos="1.2 -1.0 1.6" dir="-0.4 0.6 -0.8" directional="true"'
        f' diffuse="{_color(FILL, gain * (1 - slope))}" castshadow="false"/>'
    )


def assets_xml(look: Look) -> str:
    """Sky and surfaces; the surfaces' own pixels are painted after the compilation."""
    gain = light_gain(look.light)
    high, low = (_color(c, np.minimum(gain, 1 / np.array(c))) for c in SKY)  # a texture has no brighter than white
    flat = ''.join(
        f'<texture name="{name}" type="2d" builtin="flat" rgb1="{_color(color, np.ones(3))}" width="{TEXTURE_PX}"'
        f' height="{TEXTURE_PX}"/><material name="{name}" texture="{name}" specular="0.1" shininess="0.1"/>'
        for name, color in SURFACES.items()
    )
    sky = f'<texture name="sky" type="skybox" builtin="gradient" rgb1="{high}" rgb2="{low}" width="64" height="64"/>'
    return sky + flat


def paint(model: Any, look: Look) -> None:
    """Put the background's pattern on table, platform and floor of a model that nobody uses yet."""
    background = look.background
    if background is None or background.strength == 0:
        return
    pattern = background.pattern(TEXTURE_PX, TEXTURE_PX)
    for name, color in SURFACES.items():
        index = int(model.texture(name).id)
        start = int(model.tex_adr[index])
        mixed = (1 - background.strength) * 255 * np.array(color) + background.strength * pattern
        pixels = np.rint(np.clip(mixed, 0, 255)).astype(np.uint8)
        model.tex_data[start : start + pixels.size] = pixels.ravel()


def light_gain(light: Light | None) -> FloatArray:
    """What pixel values (3,) are multiplied by."""
    if light is None:
        return np.ones(3)
    gain: FloatArray = (2.0**light.stops * temperature_gain(light.temperature_k)) ** (1 / GAMMA)
    return gain


def key_direction(light: Light | None) -> tuple[float, float, float]:
    """Where the key light shines to: turned towards the condition's azimuth and lowered, both by its severity."""
    if light is None:
        return KEY_DIRECTION
    x, y, z = KEY_DIRECTION
    usual = math.atan2(-y, -x)
    turn = (light.azimuth_rad - usual + math.pi) % (2 * math.pi) - math.pi
    azimuth = usual + light.severity * turn
    flat = math.hypot(x, y)
    return -flat * math.cos(azimuth), -flat * math.sin(azimuth), z * (1 - (1 - LOWEST_KEY) * light.severity)


def _color(color: Color, gain: FloatArray) -> str:
    return ' '.join(f'{v:.6g}' for v in np.clip(np.array(color) * gain, 0.0, 4.0))
