"""Where a named thing shall go, as a sighted policy hears and sees it: on the white square, or beside or on a block.

The words give the relation and what it refers to; the cameras give where that is. Of the cell it knows what a worker on
it would: how high the platform is, how large blocks are, and how far apart neighbours are put.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.geometry import RgbdView
from robotrials.run.conditions.lexicon import spans

FloatArray = NDArray[np.floating[Any]]

PLATFORM_Z_M = 0.012
PLATFORM_M = ((0.32, -0.28), (0.68, 0.28))
LEVEL_M = 0.005  # how far from the platform's height a pixel may lie to be a part of it
APART_M = 0.085
BLOCK_EDGE_M = 0.04
SQUARE_EDGE_M = 0.05
LEAST_PIXELS = 12
BRIGHTER = 1.5  # than the platform about it, in every channel
WHITE = 190  # the least of a white pixel's channels, for eyes that compare plain values

OFFSETS = {'left_of': (0.0, 1.0), 'right_of': (0.0, -1.0), 'in_front_of': (-1.0, 0.0), 'behind': (1.0, 0.0)}
PLAIN_WORDS = ('to the left of', 'to the right of', 'in front of', 'behind', 'on top of', 'on')


@dataclass(frozen=True, slots=True)
class Destination:
    """A relation and the colour it refers to; white is the square."""

    relation: str
    color: str


def heard_destination(instruction: str, *, colors: Sequence[str], is_literal: bool) -> Destination | None:
    """The first relation to a colour after the first colour; None when the words are not understood."""
    relation, has_object = '', False
    for start, end, concept in spans(instruction):
        said = instruction[start:end].lower()
        if concept in colors or concept == 'white':
            if relation:
                return Destination(relation, concept) if said == concept or not is_literal else None
            has_object = True
        elif has_object and (concept in OFFSETS or concept == 'on'):
            if is_literal and said not in PLAIN_WORDS:
                return None
            relation = concept
    return None


def pose_beside(anchor: FloatArray, relation: str) -> FloatArray:
    """Where a block stands (7,) in a relation to the block at `anchor` (7,), as seen from the robot's base."""
    if relation == 'on':
        return np.array([*anchor[:2], anchor[2] + BLOCK_EDGE_M, *anchor[3:]])
    ahead, left = OFFSETS[relation]
    return np.array([anchor[0] + APART_M * ahead, anchor[1] + APART_M * left, anchor[2], 1.0, 0.0, 0.0, 0.0])


def seen_square(views: Sequence[RgbdView], *, is_plain: bool) -> FloatArray | None:
    """The pose (7,) of a block that stands on the white square; None where no square is seen.

    A pixel belongs to it when it lies on the platform and is brighter than it in every channel, so that the colour of
    the light does not matter; `is_plain` asks for white pixels instead.
    """
    points, colors = _platform_pixels(views)
    if len(points) < LEAST_PIXELS:
        return None
    least = np.full(3, WHITE) if is_plain else BRIGHTER * np.median(colors, axis=0)
    bright = points[(colors > least).all(axis=1)]
    if len(bright) < LEAST_PIXELS:
        return None
    middle = np.median(bright, axis=0)
    near = bright[np.abs(bright - middle).max(axis=1) < SQUARE_EDGE_M]
    if len(near) < LEAST_PIXELS or len(near) < 0.5 * len(bright):
        return None
    yaw, center = _square_about(near)
    z = PLATFORM_Z_M + BLOCK_EDGE_M / 2
    return np.array([*center, z, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])


def _platform_pixels(views: Sequence[RgbdView]) -> tuple[FloatArray, FloatArray]:
    """World x and y (N, 2) and colours (N, 3) of the pixels at the platform's height, on it."""
    places, colors = [], []
    for view in views:
        v, u = np.nonzero(view.has_depth)
        k, pose = view.intrinsics_px, view.base_from_camera
        rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(len(u))], axis=1)
        points = (rays * view.depth_m[v, u][:, None]) @ pose[:3, :3].T + pose[:3, 3]
        low, high = PLATFORM_M
        is_on = (np.abs(points[:, 2] - PLATFORM_Z_M) < LEVEL_M) & (points[:, :2] > low).all(axis=1)
        is_on &= (points[:, :2] < high).all(axis=1)
        places.append(points[is_on, :2])
        colors.append(view.rgb[v[is_on], u[is_on]].astype(np.float64))
    return np.concatenate(places), np.concatenate(colors)


def _square_about(points: FloatArray) -> tuple[float, FloatArray]:
    """Yaw and centre (2,) of the smallest rectangle about most of the points, of whole degrees in a quarter turn."""
    best: tuple[float, float, FloatArray] | None = None
    for degree in range(-45, 45, 3):
        yaw = math.radians(degree)
        c, s = math.cos(yaw), math.sin(yaw)
        turned = points @ np.array([[c, -s], [s, c]])
        low, high = np.quantile(turned, [0.03, 0.97], axis=0)
        area = float(np.prod(high - low))
        if best is None or area < best[0]:
            best = area, yaw, np.array([[c, -s], [s, c]]) @ ((low + high) / 2)
    assert best is not None
    return best[1], best[2]
