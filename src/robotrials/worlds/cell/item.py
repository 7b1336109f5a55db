"""The things on the table: shapes, masses, frictions, and where a parallel gripper can hold them.

A body's frame sits at the centre of its bounding box, with z up as it lies. The grasps are honest: friction only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.value import dataclass

Triple = tuple[float, float, float]

COLORS: Mapping[str, str] = {
    'red': '0.80 0.13 0.12 1',
    'green': '0.16 0.56 0.22 1',
    'blue': '0.13 0.32 0.75 1',
    'yellow': '0.93 0.76 0.12 1',
    'grey': '0.55 0.56 0.58 1',
}


@dataclass(frozen=True, slots=True)
class ItemPrimitive:
    """One primitive of an item, in the item's frame."""

    kind: str  # box, cylinder, capsule
    size_m: tuple[float, ...]  # MuJoCo's half sizes
    mass_kg: float
    center_m: Triple = (0.0, 0.0, 0.0)
    euler_deg: Triple = (0.0, 0.0, 0.0)
    is_hinged: bool = False  # part of the second half of an articulated item


@dataclass(frozen=True, slots=True)
class ItemType:
    """An object type: `box_m` are the full edges of its bounding box, `grasp_m` where the pads meet it."""

    name: str
    shapes: tuple[ItemPrimitive, ...]
    box_m: Triple
    grip_width_m: float  # across the pads, along the item's y
    friction: float
    rolling_friction: float | None = None  # for what rolls
    grasp_m: Triple = (0.0, 0.0, 0.0)
    turns: int = 2  # equal grasps in a full turn about z
    rgba: str = '0.72 0.53 0.33 1'

    @property
    def mass_kg(self) -> float:
        return sum(s.mass_kg for s in self.shapes)

    @property
    def half_height_m(self) -> float:
        return self.box_m[2] / 2

    @property
    def footprint_radius_m(self) -> float:
        """Of the circle about the centre that holds the item as it lies."""
        return float((self.box_m[0] ** 2 + self.box_m[1] ** 2) ** 0.5 / 2)


def block(size_m: float = 0.04, *, color: str = 'red', name: str = 'block') -> ItemType:
    """A wooden cube."""
    half = size_m / 2
    return ItemType(
        name=name,
        shapes=(ItemPrimitive('box', (half, half, half), mass_kg=620.0 * size_m**3),),
        box_m=(size_m, size_m, size_m),
        grip_width_m=size_m,
        friction=0.8,
        turns=4,
        rgba=COLORS[color],
    )


def cylinder(*, color: str = 'grey', height_m: float = 0.07, radius_m: float = 0.022) -> ItemType:
    """A standing cylinder, heavy enough to stay where it is when brushed."""
    return ItemType(
        name='cylinder',
        shapes=(ItemPrimitive('cylinder', (radius_m, height_m / 2), mass_kg=0.25),),
        box_m=(2 * radius_m, 2 * radius_m, height_m),
        grip_width_m=2 * radius_m,
        friction=0.8,
        turns=8,
        rgba=COLORS[color],
    )


def peg(*, color: str = 'red') -> ItemType:
    """A flat rectangular peg that stands upright, for the slot."""
    return ItemType(
        name='peg',
        shapes=(ItemPrimitive('box', (0.016, 0.010, 0.030), mass_kg=0.03),),
        box_m=(0.032, 0.020, 0.060),
        grip_width_m=0.020,
        friction=0.8,
        grasp_m=(0.0, 0.0, 0.015),
        rgba=COLORS[color],
    )


ORDER_ITEMS: Mapping[str, ItemType] = {
    # The four object types of the bin-to-bin task, the easiest first.
    'block': block(0.036, color='yellow'),
    'spoon': ItemType(
        name='spoon',
        shapes=(
            # Only the handle touches what the spoon lies on: fewer contacts, and the bowl is rounded anyway.
            ItemPrimitive('box', (0.040, 0.005, 0.006), mass_kg=0.010, center_m=(-0.015, 0.0, 0.0)),
            ItemPrimitive('box', (0.015, 0.013, 0.005), mass_kg=0.008, center_m=(0.040, 0.0, 0.0)),
        ),
        box_m=(0.110, 0.026, 0.012),
        grip_width_m=0.010,
        friction=0.6,
        grasp_m=(0.008, 0.0, 0.0),
    ),
    'battery': ItemType(
        name='battery',
        shapes=(ItemPrimitive('cylinder', (0.00725, 0.025), mass_kg=0.023, euler_deg=(0.0, 90.0, 0.0)),),
        box_m=(0.050, 0.0145, 0.0145),
        grip_width_m=0.0145,
        friction=0.5,
        rolling_friction=0.002,
        rgba='0.20 0.22 0.24 1',
    ),
    'scissors': ItemType(
        name='scissors',
        shapes=(
            ItemPrimitive('box', (0.037, 0.005, 0.005), mass_kg=0.018, center_m=(0.018, 0.0055, 0.0)),
            ItemPrimitive('box', (0.018, 0.008, 0.004), mass_kg=0.012, center_m=(-0.037, 0.0135, 0.0)),
            ItemPrimitive('box', (0.037, 0.005, 0.005), mass_kg=0.018, center_m=(0.018, -0.0055, 0.0), is_hinged=True),
            ItemPrimitive('box', (0.018, 0.008, 0.004), mass_kg=0.012, center_m=(-0.037, -0.0135, 0.0), is_hinged=True),
        ),
        box_m=(0.110, 0.043, 0.010),
        grip_width_m=0.021,
        friction=0.45,
        grasp_m=(0.010, 0.0, 0.0),
        rgba='0.62 0.64 0.68 1',
    ),
}


def order_item(name: str) -> ItemType:
    """One of the four object types of the bin-to-bin task."""
    try:
        return ORDER_ITEMS[name]
    except KeyError:
        raise UnknownName('object', name, ORDER_ITEMS) from None


def item_xml(name: str, item: ItemType) -> str:
    """A free body; an articulated item carries its second half on a stiff hinge."""
    fixed = ''.join(_shape_xml(s, item) for s in item.shapes if not s.is_hinged)
    hinged = ''.join(_shape_xml(s, item) for s in item.shapes if s.is_hinged)
    if hinged:
        hinged = (
            f'<body name="{name}_half" pos="0 0 0"><joint name="{name}_hinge" axis="0 0 1" range="-0.35 0"'
            f' damping="0.0005" frictionloss="0.004" pos="0 0 0"/>{hinged}</body>'
        )
    return f'<body name="{name}" pos="0 0 -5"><freejoint name="{name}"/>{fixed}{hinged}</body>'


def _shape_xml(shape: ItemPrimitive, item: ItemType) -> str:
    sizes = ' '.join(f'{v:g}' for v in shape.size_m)
    place = ' '.join(f'{v:g}' for v in shape.center_m)
    turn = ' '.join(f'{v:g}' for v in shape.euler_deg)
    return (
        f'<geom class="item" type="{shape.kind}" size="{sizes}" pos="{place}" euler="{turn}" mass="{shape.mass_kg:g}"'
        f' condim="{3 if item.rolling_friction is None else 6}" rgba="{item.rgba}"'
        f' friction="{item.friction:g} 0.01 {item.rolling_friction or 0.0005:g}"/>'
    )


# Where things start: collision-free poses of items, drawn from a generator.

FloatArray = NDArray[np.floating[Any]]
ATTEMPTS = 150
RESTARTS = 60


@dataclass(frozen=True, slots=True)
class StartRegion:
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
    region: StartRegion,
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
    item: ItemType, region: StartRegion, occupied: Sequence[FloatArray], *, rng: np.random.Generator, clearance_m: float
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
