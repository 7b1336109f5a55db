"""Layout randomisation: the pieces of a drawn scene moved in SE(2) over the whole platform, apart and inside it.

A task's meaning is kept. What a goal refers to moves with the goal as one piece: it turns as a whole where the words
name no viewer (on the square, on top of), and otherwise its items turn about themselves, since left stays left.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.run import conditions
from robotrials.run.conditions import Distractor, DistractorObject, Footprint, PlanarPose, Support, Workspace
from robotrials.run.conditions.condition import generator
from robotrials.value import dataclass
from robotrials.worlds.cell import panda as pose
from robotrials.worlds.cell.item import COLORS, ItemType, Shape, Spot, finger_room, overlap, place_apart, rectangle
from robotrials.worlds.cell.panda import yaw_pose
from robotrials.worlds.cell.scene import FLOOR_M, STAGE_TOP_M, Fixture
from robotrials.worlds.cell.state import heading
from robotrials.worlds.cell.task import Goal, Layout

FloatArray = NDArray[np.floating[Any]]
CLEARANCE_M = 0.011  # about every item: fingers fit between two
GOAL_HALF_M = 0.042
ATTEMPTS = 150
RESTARTS = 40


class Turn(enum.StrEnum):
    WHOLE = 'whole'
    ITEMS = 'items'  # each about itself


@dataclass(frozen=True, slots=True)
class Piece:
    """What moves together: items and fixtures by name, goals by their numbers."""

    items: tuple[str, ...] = ()
    fixtures: tuple[str, ...] = ()
    goals: tuple[int, ...] = ()
    turn: Turn = Turn.WHOLE


def spread_layout(
    layout: Layout, condition: conditions.Layout | conditions.Displacement, *, attempt: int = 0
) -> Layout:
    """The layout with every free piece moved; InputError when no collision-free place is found."""
    if condition.severity == 0:
        return layout
    rng = generator(condition.kind, condition.seed, attempt)
    pieces = pieces_of(layout)
    for _ in range(RESTARTS):
        moved, taken = layout, _fixed_rectangles(layout)
        for piece in pieces:
            placed = _place(moved, piece, condition, taken, rng)
            if placed is None:
                break
            moved = placed
            taken += _rectangles(moved, piece)
        else:
            return moved
    raise InputError(f'no collision-free layout of {layout.task} was found in {RESTARTS} tries; ask for fewer items')


def pieces_of(layout: Layout) -> list[Piece]:
    """The free pieces of a layout, the largest first."""
    if layout.is_order:
        return [Piece(items=(name,)) for name in layout.poses]
    movers = list(dict.fromkeys(g.item for g in layout.goals))
    free = [n for n in layout.poses if n not in layout.fixed]
    bystanders = [n for n in free if n not in movers]
    marks = tuple(f.name for f in layout.scene.fixtures if f.name not in layout.fixed)
    tied = tuple(bystanders) if layout.is_tied else ()
    is_on_them = all(
        any(math.dist(g.pose[:2], layout.poses[n][:2]) < 1e-3 for n in tied) for g in layout.goals
    )  # fmt: skip
    group = Piece(tied, marks, tuple(range(len(layout.goals))), Turn.WHOLE if not tied or is_on_them else Turn.ITEMS)
    singles = [n for n in free if n not in tied]
    return [group, *(Piece(items=(name,)) for name in singles)]


def _place(
    layout: Layout,
    piece: Piece,
    condition: conditions.Layout | conditions.Displacement,
    taken: Sequence[FloatArray],
    rng: np.random.Generator,
) -> Layout | None:
    region = layout.region
    half = np.array(region.size_m) / 2
    low, high = np.array(region.center_m) - half, np.array(region.center_m) + half
    workspace = Workspace((float(low[0]), float(low[1])), (float(high[0]), float(high[1])))
    home = _middle(layout, piece)
    footprint = Footprint('piece', (0.0, 0.0), PlanarPose(home[0], home[1], 0.0))
    for _ in range(ATTEMPTS):
        found = condition.draw_pose(footprint, workspace, rng)
        moved = _moved(layout, piece, found)
        covered = _rectangles(moved, piece)
        if not all(region.holds(r) for r in covered) or not _has_finger_room(moved, piece):
            continue
        if not any(overlap(r, other) for r in covered for other in taken):
            return moved
    return None


def _has_finger_room(layout: Layout, piece: Piece) -> bool:
    """In a bin the fingers need room between item and wall."""
    if not layout.is_order:
        return True
    return all(
        layout.region.holds(finger_room(layout.scene.item_types[n], _spot(layout.poses[n]))) for n in piece.items
    )


def _moved(layout: Layout, piece: Piece, to: PlanarPose) -> Layout:
    middle = _middle(layout, piece)
    shift = np.array([to.x_m - middle[0], to.y_m - middle[1]])
    is_whole = piece.turn is Turn.WHOLE

    def carry(old: FloatArray, *, is_turned: bool) -> FloatArray:
        place = _about(old[:2], middle, to.yaw_rad) if is_whole else old[:2]
        turn = [math.cos(to.yaw_rad / 2), 0.0, 0.0, math.sin(to.yaw_rad / 2)]
        quaternion = pose.multiply(turn, old[3:].tolist()) if is_turned else old[3:]
        return np.array([*(place + shift), old[2], *quaternion])

    poses = {n: carry(p, is_turned=True) if n in piece.items else p for n, p in layout.poses.items()}
    goals = tuple(
        Goal(g.item, carry(g.pose, is_turned=is_whole), g.is_yaw_free) if i in piece.goals else g
        for i, g in enumerate(layout.goals)
    )
    fixtures = tuple(
        dataclasses.replace(f, pose=tuple(carry(np.array(f.pose), is_turned=is_whole).tolist()))
        if f.name in piece.fixtures
        else f
        for f in layout.scene.fixtures
    )
    scene = dataclasses.replace(layout.scene, fixtures=fixtures)
    return dataclasses.replace(layout, poses=poses, goals=goals, scene=scene)


def _middle(layout: Layout, piece: Piece) -> FloatArray:
    places = [layout.poses[n][:2] for n in piece.items] + [layout.goals[i].pose[:2] for i in piece.goals]
    middle: FloatArray = np.mean(places, axis=0)
    return middle


def _about(place: FloatArray, middle: FloatArray, angle_rad: float) -> FloatArray:
    c, s = math.cos(angle_rad), math.sin(angle_rad)
    turned: FloatArray = np.array([[c, -s], [s, c]]) @ (place - middle) + middle
    return turned


def _spot(item_pose: FloatArray) -> Spot:
    return Spot(float(item_pose[0]), float(item_pose[1]), heading(item_pose[3:].tolist()))


def _rectangles(layout: Layout, piece: Piece) -> list[FloatArray]:
    """What a piece covers on the stage: items with their clearance, goals with room for the hand, fixtures."""
    rectangles = [item_rectangle(layout, n) for n in piece.items]
    rectangles += [goal_rectangle(layout.goals[i]) for i in piece.goals if not layout.is_order]
    return rectangles + [fixture_rectangle(f) for f in layout.scene.fixtures if f.name in piece.fixtures]


def _fixed_rectangles(layout: Layout) -> list[FloatArray]:
    fixtures = [fixture_rectangle(f) for f in layout.scene.fixtures if f.name in layout.fixed]
    return fixtures + [item_rectangle(layout, n) for n in layout.poses if n in layout.fixed]


def item_rectangle(layout: Layout, name: str, *, clearance_m: float = CLEARANCE_M) -> FloatArray:
    """An item's box as it lies, with room about it."""
    item = layout.scene.item_types[name]
    return rectangle(_spot(layout.poses[name]), item.box_m[0] / 2 + clearance_m, item.box_m[1] / 2 + clearance_m)


def goal_rectangle(goal: Goal) -> FloatArray:
    return rectangle(_spot(goal.pose), GOAL_HALF_M, GOAL_HALF_M)


def fixture_rectangle(fixture: Fixture) -> FloatArray:
    """The rectangle about all boxes of a fixture, in its own heading."""
    reach = [max(abs(center[k]) + half[k] for center, half in fixture.boxes) for k in (0, 1)]
    return rectangle(_spot(np.array(fixture.pose)), reach[0] + 0.005, reach[1] + 0.005)


# Distractors in the cell: objects that share the target's colour or its shape, laid where they are in nobody's way.

Rgb = tuple[int, int, int]
SHAPES = ('block', 'cylinder')
ROOM_M = 0.028  # about the task's own items: an open hand passes
DENSITY_KG_M3 = 620.0


def add_distractors(layout: Layout, condition: Distractor, *, attempt: int = 0) -> Layout:
    """The layout with the condition's objects; no word of the instruction fits one of them. InputError without room."""
    objects = distractors_for(layout, condition)
    if not objects:
        return layout
    names = [f'distractor_{i}' for i in range(len(objects))]
    kinds = [distractor_type(o) for o in objects]
    rng = generator('distractor', condition.seed, 1, attempt)
    spots = place_apart(kinds, layout.region, rng=rng, clearance_m=0.006, taken=_taken(layout))
    floor_m = STAGE_TOP_M + (FLOOR_M if layout.is_order else 0.0)
    poses = {
        name: pose.yaw_pose(s.x_m, s.y_m, floor_m + kind.half_height_m, yaw_rad=s.yaw_rad)
        for name, kind, s in zip(names, kinds, spots, strict=True)
    }
    items = (*layout.scene.items, *zip(names, kinds, strict=True))
    return dataclasses.replace(
        layout,
        scene=dataclasses.replace(layout.scene, items=items),
        poses={**layout.poses, **poses},
        distractors=tuple(names),
    )


def distractors_for(layout: Layout, condition: Distractor) -> tuple[DistractorObject, ...]:
    """The objects of a condition for the (first) target, with nothing that the instruction could also mean."""
    types = layout.scene.item_types
    target = types[layout.goals[0].item]
    others = [t for name, t in types.items() if name != layout.goals[0].item]
    shape = shape_of(target)
    named = {shape_of(t) for t in others} - {shape}
    seen = {t.rgba for t in others}
    colors = tuple(_rgb(c) for c in COLORS.values() if c not in seen)
    shapes = tuple(s for s in SHAPES if s not in named)
    return condition.objects(_rgb(target.rgba), shape, shapes=shapes, colors_rgb=colors)


def shape_of(item: ItemType) -> str:
    return 'cylinder' if item.shapes[0].kind == 'cylinder' else 'block'


def distractor_type(thing: DistractorObject) -> ItemType:
    """The object as an item of the cell."""
    x, y, z = thing.size_m
    rgba = ' '.join(f'{v / 255:.4f}' for v in thing.color_rgb) + ' 1'
    if thing.shape == 'cylinder':
        radius = min(x, y) / 2
        mass = DENSITY_KG_M3 * np.pi * radius**2 * z
        shape, box = Shape('cylinder', (radius, z / 2), mass_kg=float(mass)), (2 * radius, 2 * radius, z)
    else:
        shape, box = Shape('box', (x / 2, y / 2, z / 2), mass_kg=DENSITY_KG_M3 * x * y * z), thing.size_m
    return ItemType(
        name=f'{thing.shape} distractor', shapes=(shape,), box_m=box, grip_width_m=box[1], friction=0.8, rgba=rgba
    )


def _taken(layout: Layout) -> Sequence[FloatArray]:
    room_m = 0.008 if layout.is_order else ROOM_M
    taken = [item_rectangle(layout, name, clearance_m=room_m) for name in layout.poses]
    taken += [fixture_rectangle(f) for f in layout.scene.fixtures]
    return taken if layout.is_order else taken + [goal_rectangle(g) for g in layout.goals]


def _rgb(rgba: str) -> Rgb:
    red, green, blue = (round(255 * float(v)) for v in rgba.split()[:3])
    return red, green, blue


# What is to be moved starts on a block instead of on the stage.

RIM_M = 0.004  # the support reaches so far beyond the item


def add_support(layout: Layout, condition: Support) -> Layout:
    """The layout with a support under every item that has a goal; it stays where it is."""
    if layout.is_order or layout.on_belt:
        raise InputError(f'task {layout.task}: items in a bin or on a belt have no support of their own to change')
    poses, supports = dict(layout.poses), []
    for name in dict.fromkeys(goal.item for goal in layout.goals):
        at = layout.poses[name].copy()
        spot = Spot(float(at[0]), float(at[1]), heading(at[3:].tolist()))
        box = layout.scene.item_types[name].box_m
        half = (box[0] / 2 + RIM_M, box[1] / 2 + RIM_M, condition.height_m / 2)
        place = yaw_pose(spot.x_m, spot.y_m, STAGE_TOP_M, yaw_rad=spot.yaw_rad)
        supports.append(
            Fixture(f'support_{name}', (((0.0, 0.0, condition.height_m / 2), half),), tuple(place.tolist()))
        )
        at[2] += condition.height_m
        poses[name] = at
    scene = dataclasses.replace(layout.scene, fixtures=(*layout.scene.fixtures, *supports))
    return dataclasses.replace(layout, poses=poses, scene=scene)
