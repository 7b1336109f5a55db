"""Where things start: collision-free poses of items, drawn from a generator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.worlds.cell.item import ItemType

FloatArray = NDArray[np.floating[Any]]
ATTEMPTS = 150
RESTARTS = 60


@dataclass(frozen=True, slots=True)
class Region:
    """An upright rectangle on the stage that items may start in."""

    center_m: tuple[float, float]
    size_m: tuple[float, float]

    def holds(self, corners: FloatArray) -> bool:
        reach = np.abs(corners - np.array(self.center_m))
        return bool(np.all(reach <= np.array(self.size_m) / 2))


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in the plane: centre and heading."""

    x_m: float
    y_m: float
    yaw_rad: float


def rectangle(spot: Spot, half_x_m: float, half_y_m: float) -> FloatArray:
    """The four corners (4, 2) of a rectangle about a spot."""
    c, s = math.cos(spot.yaw_rad), math.sin(spot.yaw_rad)
    local = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) * (half_x_m, half_y_m)
    return np.asarray(local @ np.array([[c, s], [-s, c]]) + (spot.x_m, spot.y_m))


def overlap(a: FloatArray, b: FloatArray) -> bool:
    """Whether two convex quadrilaterals share a point (separating axes)."""
    for corners in (a, b):
        for edge in (corners[1] - corners[0], corners[2] - corners[1]):
            axis = np.array([-edge[1], edge[0]])
            pa, pb = a @ axis, b @ axis
            if pa.max() < pb.min() or pb.max() < pa.min():
                return False
    return True


def place_apart(
    items: Sequence[ItemType],
    region: Region,
    *,
    rng: np.random.Generator,
    clearance_m: float = 0.004,
    taken: Sequence[FloatArray] = (),
) -> list[Spot]:
    """Spots for all items: apart from each other and from `taken`, with room for the fingers inside the region.

    InputError if none is found: the region is too small for what was asked.
    """
    for _ in range(RESTARTS):
        spots: list[Spot] = []
        occupied = list(taken)
        for item in items:
            spot = _find(item, region, occupied, rng=rng, clearance_m=clearance_m)
            if spot is None:
                break
            spots.append(spot)
            occupied.append(rectangle(spot, *_halves(item, clearance_m)))
        if len(spots) == len(items):
            return spots
    wide, deep = (f'{1000 * v:.0f}' for v in region.size_m)
    kinds = ', '.join(f'{sum(1 for _ in group)} x {name}' for name, group in itertools.groupby(i.name for i in items))
    raise InputError(
        f'no collision-free placement of {kinds} in {wide} x {deep} mm was found in {RESTARTS} tries; '
        'ask for fewer items'
    )


def _find(
    item: ItemType, region: Region, occupied: Sequence[FloatArray], *, rng: np.random.Generator, clearance_m: float
) -> Spot | None:
    half_x, half_y = (v / 2 for v in region.size_m)
    for _ in range(ATTEMPTS):
        dx, dy, yaw = rng.uniform((-half_x, -half_y, -math.pi), (half_x, half_y, math.pi))
        spot = Spot(region.center_m[0] + dx, region.center_m[1] + dy, yaw)
        body = rectangle(spot, *_halves(item, clearance_m))
        if not region.holds(body) or not region.holds(finger_room(item, spot)):
            continue
        if not any(overlap(body, other) for other in occupied):
            return spot
    return None


def _halves(item: ItemType, clearance_m: float) -> tuple[float, float]:
    return item.box_m[0] / 2 + clearance_m, item.box_m[1] / 2 + clearance_m


def finger_room(item: ItemType, spot: Spot) -> FloatArray:
    """The strip that the opened fingers need about the grasp, which is turned as the arm would turn it."""
    step = 2 * math.pi / item.turns
    c, s = math.cos(spot.yaw_rad), math.sin(spot.yaw_rad)
    gx, gy = item.grasp_m[:2]
    at = Spot(spot.x_m + c * gx - s * gy, spot.y_m + s * gx + c * gy, spot.yaw_rad - step * round(spot.yaw_rad / step))
    return rectangle(at, 0.014, item.grip_width_m / 2 + 0.026)
