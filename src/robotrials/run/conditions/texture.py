"""Procedural textures, by seed: table cloths that repeat without a seam, and posters."""

from __future__ import annotations

import colorsys
import enum

import numpy as np
from numpy.typing import NDArray

from robotrials.run.conditions.condition import FloatArray

INK, PAPER = 0.12, 0.95
WEAVE = 0.05  # how far threads and folds darken or lighten a cloth


class Texture(enum.StrEnum):
    CHECKER = 'checker'
    STRIPES = 'stripes'
    BLOBS = 'blobs'
    PLAID = 'plaid'
    DOTS = 'dots'
    FLOWERS = 'flowers'


def cloth_colors(hue: float, saturation: float) -> FloatArray:
    """Ground, first and second colour (3, 3), 0..1: a pale ground, a strong print, a darker one of another hue."""
    colors = ((hue, 0.14 * saturation, 0.93), (hue, saturation, 0.68), ((hue + 0.38) % 1, 0.9 * saturation, 0.45))
    return np.array([colorsys.hsv_to_rgb(*color) for color in colors])


def cloth_tile(texture: str, colors: FloatArray, *, periods: int, px: int, rng: np.random.Generator) -> FloatArray:
    """One square tile (px, px, 3), 0..1, of a cloth with so many repeats along its side; it repeats without a seam."""
    y, x = np.mgrid[0:px, 0:px] / px
    u, v = x * periods, y * periods
    if texture == Texture.CHECKER:  # a gingham: threads of the print cross threads of the ground
        share = ((u % 1 < 0.5).astype(float) + (v % 1 < 0.5)) / 2
        cloth = colors[0] + share[..., None] * (colors[1] - colors[0])
    elif texture == Texture.STRIPES:
        at = u % 1
        cloth = colors[np.select([at < 0.42, (at > 0.62) & (at < 0.72)], [1, 2], 0)]
    elif texture == Texture.PLAID:
        bands = [np.select([t % 1 < 0.4, (t % 1 > 0.66) & (t % 1 < 0.74)], [1, 2], 0) for t in (u, v)]
        cloth = (colors[bands[0]] + colors[bands[1]]) / 2
    elif texture == Texture.DOTS:
        row = np.floor(v)
        offset = 0.5 * (row % 2) if periods % 2 == 0 else 0.0
        distance = np.hypot((u + offset) % 1 - 0.5, v % 1 - 0.5)
        cloth = np.where((distance < 0.27)[..., None], colors[1], colors[0])
    elif texture == Texture.FLOWERS:
        cloth = _flowers(u, v, colors, periods=periods, rng=rng)
    else:
        phases = rng.uniform(0, 2 * np.pi, (4, 2))
        field = sum(
            np.sin(2 * np.pi * (k + 1) * x * max(1, periods // 2) + p)
            * np.cos(2 * np.pi * (k + 1) * y * max(1, periods // 2) + q)
            / (k + 1)
            for k, (p, q) in enumerate(phases)
        )
        cloth = colors[np.digitize(field, [-0.35, 0.55])]
    woven: FloatArray = np.clip(cloth * _weave(x, y, px, rng)[..., None], 0.0, 1.0)
    return woven


def _flowers(u: FloatArray, v: FloatArray, colors: FloatArray, *, periods: int, rng: np.random.Generator) -> FloatArray:
    cell_u, cell_v = np.floor(u).astype(int) % periods, np.floor(v).astype(int) % periods
    turn = rng.uniform(0, 2 * np.pi, (periods, periods))[cell_v, cell_u]
    size = rng.uniform(0.26, 0.42, (periods, periods))[cell_v, cell_u]
    dx, dy = u % 1 - 0.5, v % 1 - 0.5
    radius, angle = np.hypot(dx, dy), np.arctan2(dy, dx)
    petal = size * (0.68 + 0.32 * np.cos(5 * (angle + turn)))
    flower = np.where((radius < petal)[..., None], colors[1], colors[0])
    cloth: FloatArray = np.where((radius < 0.3 * size)[..., None], colors[2], flower)
    return cloth


def _weave(x: FloatArray, y: FloatArray, px: int, rng: np.random.Generator) -> FloatArray:
    """Threads a few pixels wide and long soft folds."""
    threads = np.sin(2 * np.pi * x * (px // 4)) * np.sin(2 * np.pi * y * (px // 4))
    phase = rng.uniform(0, 2 * np.pi, 2)
    folds = np.sin(2 * np.pi * (x + y) + phase[0]) + np.sin(2 * np.pi * (2 * x - y) + phase[1])
    shade: FloatArray = 1.0 + WEAVE * (0.5 * threads + 0.5 * folds)
    return shade


def poster(colors: FloatArray, *, height_px: int, width_px: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A printed poster (H, W, 3): a framed picture of discs, bars or a gradient, a title and lines of text."""
    page = np.full((height_px, width_px, 3), PAPER)
    y, x = np.mgrid[0 : 1 : height_px * 1j, 0 : 1 : width_px * 1j]
    is_art = (x > 0.07) & (x < 0.93) & (y > 0.2) & (y < 0.74)
    page[is_art] = _art(x, y, colors, rng)[is_art]
    page[(x > 0.1) & (x < 0.1 + rng.uniform(0.5, 0.8)) & (y > 0.07) & (y < 0.14)] = INK
    for line in np.arange(0.8, 0.95, 0.05):
        page[(x > 0.1) & (x < 0.1 + rng.uniform(0.45, 0.8)) & (y > line) & (y < line + 0.018)] = 0.45
    sheet: NDArray[np.uint8] = np.rint(255 * np.clip(page, 0, 1)).astype(np.uint8)
    return sheet


def _art(x: FloatArray, y: FloatArray, colors: FloatArray, rng: np.random.Generator) -> FloatArray:
    art: FloatArray = colors[0] + ((y - 0.2) / 0.54)[..., None] * (colors[1] - colors[0])
    for k in range(int(rng.integers(3, 6))):
        shade = colors[1 + k % 2] * rng.uniform(0.6, 1.2)
        cx, cy, size = rng.uniform(0.15, 0.85), rng.uniform(0.28, 0.66), rng.uniform(0.05, 0.16)
        if rng.random() < 0.5:
            inside = np.hypot(x - cx, 1.4 * (y - cy)) < size
        else:
            inside = (np.abs(x - cx) < size) & (np.abs(y - cy) < 0.7 * size)
        art[inside] = shade
    return art
