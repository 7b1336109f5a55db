"""Synthetic RGB-D of boxes on a table by ray casting: a truth that no simulator or reconstruction code has touched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.measure.geometry import Box
from robotrials.measure.geometry.box import FloatArray
from robotrials.measure.geometry.view import RgbdView

TABLE_RGB = (168, 150, 126)
SKY_DEPTH_M = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class PaintedBox:
    """A box and its colour."""

    box: Box
    color_rgb: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DepthNoise:
    """What a depth camera does to the truth: Gaussian noise, missing pixels, and steps of its resolution."""

    sigma_m: float = 0.0
    dropout: float = 0.0
    step_m: float = 0.0


def look_at(eye: ArrayLike, target: ArrayLike) -> FloatArray:
    """base-from-camera of a camera at `eye` that looks at `target`, upright: +z forward, x right, y down."""
    position = np.asarray(eye, dtype=np.float64)
    forward = np.asarray(target, dtype=np.float64) - position
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right = np.array([1.0, 0.0, 0.0]) if np.linalg.norm(right) < 1e-9 else right / np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
    pose[:3, 3] = position
    return pose


def pinhole(width_px: int, height_px: int, *, field_of_view_deg: float = 50.0) -> FloatArray:
    """Intrinsics with this vertical field of view and the principal point at the centre of the image."""
    focal = height_px / 2 / math.tan(math.radians(field_of_view_deg) / 2)
    return np.array([[focal, 0, (width_px - 1) / 2], [0, focal, (height_px - 1) / 2], [0, 0, 1]])


def render_view(
    name: str,
    base_from_camera: FloatArray,
    *,
    boxes: Sequence[PaintedBox],
    width_px: int = 320,
    height_px: int = 240,
    noise: DepthNoise | None = None,
    rng: np.random.Generator | None = None,
    table_z_m: float = 0.0,
    field_of_view_deg: float = 50.0,
) -> RgbdView:
    """What a camera sees of painted boxes on a table, shaded by one light; noise on depth if asked."""
    k = pinhole(width_px, height_px, field_of_view_deg=field_of_view_deg)
    u, v = np.meshgrid(np.arange(width_px), np.arange(height_px))
    rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones_like(u, dtype=np.float64)], axis=-1)
    direction = rays.reshape(-1, 3) @ base_from_camera[:3, :3].T
    depth, rgb = _cast(base_from_camera[:3, 3], direction, boxes, table_z_m)
    depth = _with_noise(depth, noise or DepthNoise(), rng)
    return RgbdView(name, rgb.reshape(height_px, width_px, 3), depth.reshape(height_px, width_px), k, base_from_camera)


def _cast(
    origin: FloatArray, direction: FloatArray, boxes: Sequence[PaintedBox], table_z_m: float
) -> tuple[FloatArray, NDArray[np.uint8]]:
    light = np.array([0.3, -0.4, 0.87])
    depth = np.full(len(direction), SKY_DEPTH_M)
    color = np.full((len(direction), 3), 40.0)
    with np.errstate(divide='ignore', invalid='ignore'):
        table = (table_z_m - origin[2]) / direction[:, 2]
        hit = table > 0
        depth[hit] = table[hit]
        color[hit] = np.array(TABLE_RGB) * light[2]
        for painted in boxes:
            box = painted.box
            o, d = (origin - box.center) @ box.rotation, direction @ box.rotation
            near, far = (-np.sign(d) * box.size / 2 - o) / d, (np.sign(d) * box.size / 2 - o) / d
            axis = np.argmax(near, axis=1)
            enter, leave = near.max(axis=1), far.min(axis=1)
            hit = (enter <= leave) & (enter > 0) & (enter < depth)
            depth[hit] = enter[hit]
            normal = -np.sign(d[np.arange(len(d)), axis])[:, None] * box.rotation.T[axis]
            shade = 0.35 + 0.65 * np.maximum(0, normal @ light)
            color[hit] = np.array(painted.color_rgb) * shade[hit, None]
    return depth, np.clip(np.rint(color), 0, 255).astype(np.uint8)


def _with_noise(depth: FloatArray, noise: DepthNoise, rng: np.random.Generator | None) -> FloatArray:
    if rng is None:
        return depth
    noisy = depth + noise.sigma_m * rng.standard_normal(depth.shape)
    if noise.step_m:
        noisy = np.rint(noisy / noise.step_m) * noise.step_m
    noisy[rng.random(depth.shape) < noise.dropout] = np.nan
    return noisy
