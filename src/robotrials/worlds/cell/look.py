"""How the cell looks: its lights, the cloth on table and platform, posters, where the cameras hang.

Physics does not know of it: what is added has no contacts and no mass.

Lights in OpenGL multiply pixel values, which are not linear in light; a gain on light is therefore raised to 1/gamma,
so that a stop here is a stop of the condition laid over frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run.conditions import Background, CameraShift, Light
from robotrials.run.conditions.background import MOST_POSTERS, TILE_PERIODS
from robotrials.run.conditions.light import GAMMA, temperature_gain

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
SURFACES = {'wood': WOOD, 'plate': PLATE}  # a texture each; a cloth covers both
TEXTURE_PX = 256
CLOTH_PERIOD_M = 0.4  # of a print whose period is 1
DROP_M = 0.22  # how far a cloth hangs down over the table's edges
POSTER_PX = (200, 120)
POSTER_M = (0.6, 1.0)  # width and height; they stand on the floor
POSTERS_M = ((-0.75, 0.62, 0.0), (0.15, -1.05, 90.0), (-0.75, -0.62, 0.0), (0.85, -1.05, 90.0))  # x, y, turn in degrees
LOWEST_KEY = 0.55  # share of the key light's fall that is left when it comes in flat


@dataclass(frozen=True, slots=True)
class Look:
    """The look that a condition asks for; None is the usual one."""

    light: Light | None = None
    background: Background | None = None
    camera: CameraShift | None = None
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
    period_m = CLOTH_PERIOD_M * (look.background.period if look.background is not None else 1.0)
    flat = ''.join(
        f'<texture name="{name}" type="2d" builtin="flat" rgb1="{_color(color, np.ones(3))}" width="{TEXTURE_PX}"'
        f' height="{TEXTURE_PX}"/><material name="{name}" texture="{name}" specular="0.1" shininess="0.1"'
        f' texuniform="true" texrepeat="{1 / (TILE_PERIODS * period_m):.6g} {1 / (TILE_PERIODS * period_m):.6g}"/>'
        for name, color in SURFACES.items()
    )
    # Every scene has the posters' textures: the renderer keeps its own as long as their sizes stay.
    flat += ''.join(
        f'<texture name="poster_{i}" type="2d" builtin="flat" rgb1="1 1 1" width="{POSTER_PX[1]}"'
        f' height="{POSTER_PX[0]}"/><material name="poster_{i}" texture="poster_{i}" specular="0.1" shininess="0.1"/>'
        for i in range(MOST_POSTERS)
    )
    sky = f'<texture name="sky" type="skybox" builtin="gradient" rgb1="{high}" rgb2="{low}" width="64" height="64"/>'
    return sky + flat


def decor_xml(look: Look, *, table_x_m: tuple[float, float], table_y_m: tuple[float, float], floor_m: float) -> str:
    """The cloth where it hangs over the table's edges, and the posters; nothing without a background condition."""
    background = look.background
    if background is None or background.strength == 0:
        return ''
    (x0, x1), (y0, y1), drop = table_x_m, table_y_m, DROP_M * background.strength
    middle_x, middle_y, length_x, length_y = (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0
    cloth = ''.join(
        _sheet_xml('wood', (x, y, -drop / 2), (length, drop), turn)
        for x, y, length, turn in (
            (middle_x, y0 - 0.001, length_x, 90.0),
            (middle_x, y1 + 0.001, length_x, 90.0),
            (x1 + 0.001, middle_y, length_y, 0.0),
        )
    )
    posters = ''.join(
        _sheet_xml(f'poster_{i}', (x, y, floor_m + POSTER_M[1] / 2), POSTER_M, turn)
        for i, (x, y, turn) in enumerate(POSTERS_M[: background.posters])
    )
    return f'<body name="decor">{cloth}{posters}</body>'


def _sheet_xml(material: str, center_m: Color, size_m: tuple[float, float], turn_deg: float) -> str:
    """An upright sheet that faces along the turned x axis of the world; its texture lies in its own x and y."""
    turn = math.radians(turn_deg)
    return (
        f'<geom type="box" contype="0" conaffinity="0" mass="0" material="{material}" pos="{_numbers(center_m)}"'
        f' size="{size_m[0] / 2:.6g} {size_m[1] / 2:.6g} 0.001"'
        f' xyaxes="{_numbers((-math.sin(turn), math.cos(turn), 0.0))} 0 0 1"/>'
    )


def paint(model: Any, look: Look) -> None:
    """Put the background's cloth on table and platform, and print its posters, in a model that nobody uses yet."""
    background = look.background
    if background is None or background.strength == 0:
        return
    cloth = 255 * background.tile(TEXTURE_PX)
    for name, color in SURFACES.items():
        mixed = (1 - background.strength) * 255 * np.array(color) + background.strength * cloth
        _print(model, name, np.rint(np.clip(mixed, 0, 255)).astype(np.uint8))
    for i in range(background.posters):
        sheet = background.poster(i, height_px=POSTER_PX[0], width_px=POSTER_PX[1])
        _print(model, f'poster_{i}', sheet)


def _print(model: Any, texture: str, pixels: NDArray[np.uint8]) -> None:
    start = int(model.tex_adr[int(model.texture(texture).id)])
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


def _numbers(values: tuple[float, ...]) -> str:
    return ' '.join(f'{v:.6g}' for v in values)
