"""The automatic reset: the stage slides out, the scene is laid, the stage slides in, all settles, it is verified.

Layout randomisation: the pieces of a drawn scene moved in SE(2) over the whole platform, apart and inside it.

A task's meaning is kept. What a goal refers to moves with the goal as one piece: it turns as a whole where the words
name no viewer (on the square, on top of), and otherwise its items turn about themselves, since left stays left.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RobotrialsError, UnknownName
from robotrials.measure.geometry.view import STEREO_NOISE, stereo_depth
from robotrials.record.footage import BoxGoal, KnownBox, KnownObject, KnownScene, RegionGoal, View
from robotrials.run import conditions
from robotrials.run.conditions import Distractor, DistractorObject, Footprint, PlanarPose, Support, Thing, Workspace
from robotrials.run.conditions.condition import generator
from robotrials.value import dataclass
from robotrials.worlds.cell import panda
from robotrials.worlds.cell import panda as pose
from robotrials.worlds.cell.camera import Pictures, working_backend
from robotrials.worlds.cell.control import World, kinematics
from robotrials.worlds.cell.item import (
    COLORS,
    ItemPrimitive,
    ItemType,
    Spot,
    finger_room,
    overlap,
    place_apart,
    rectangle,
)
from robotrials.worlds.cell.panda import yaw_pose
from robotrials.worlds.cell.referee import ROBOT_BODIES
from robotrials.worlds.cell.scene import (
    BELT_CENTER_M,
    BELT_SIZE_M,
    BIN_INNER_M,
    FLOOR_HEIGHT_M,
    FLOOR_M,
    PLATFORM_CENTER_M,
    PLATFORM_SIZE_M,
    SOURCE_CENTER_M,
    STAGE_TOP_M,
    STAGE_TRAVEL_M,
    TARGET_CENTER_M,
    TIMESTEP_S,
    WALL_HEIGHT_M,
    CompiledCell,
    Fixture,
    compile_scene,
    load_mujoco,
)
from robotrials.worlds.cell.task import ORDER_REGION, DrawnEpisode, Goal, draw_layout, heading

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
    layout: DrawnEpisode, condition: conditions.Layout | conditions.Displacement, *, attempt: int = 0
) -> DrawnEpisode:
    """The layout with every free piece moved; InputError when no collision-free place is found."""
    if condition.severity == 0:
        return layout
    rng = generator(condition.kind, condition.seed, attempt)
    pieces = pieces_of(layout)
    for _ in range(RESTARTS):
        taken = [fixture_rectangle(f) for f in layout.scene.fixtures if f.name in layout.fixed]
        taken += [item_rectangle(layout, n) for n in layout.poses if n in layout.fixed]
        moved = layout
        for piece in pieces:
            placed = _place(moved, piece, condition, taken, rng)
            if placed is None:
                break
            moved = placed
            taken += _rectangles(moved, piece)
        else:
            return moved
    raise InputError(f'no collision-free layout of {layout.task} was found in {RESTARTS} tries; ask for fewer items')


def pieces_of(layout: DrawnEpisode) -> list[Piece]:
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
    layout: DrawnEpisode,
    piece: Piece,
    condition: conditions.Layout | conditions.Displacement,
    taken: Sequence[FloatArray],
    rng: np.random.Generator,
) -> DrawnEpisode | None:
    region = layout.region
    half = np.array(region.size_m) / 2
    low, high = np.array(region.center_m) - half, np.array(region.center_m) + half
    workspace = Workspace((float(low[0]), float(low[1])), (float(high[0]), float(high[1])))
    home = _middle(layout, piece)
    footprint = Footprint('piece', (0.0, 0.0), PlanarPose(home[0], home[1], 0.0))
    for _ in range(ATTEMPTS):
        moved = _moved(layout, piece, condition.draw_pose(footprint, workspace, rng))
        covered = _rectangles(moved, piece)
        if not all(region.holds(r) for r in covered) or not _has_finger_room(moved, piece):
            continue
        if not any(overlap(r, other) for r in covered for other in taken):
            return moved
    return None


def _has_finger_room(layout: DrawnEpisode, piece: Piece) -> bool:
    """In a bin the fingers need room between item and wall."""
    if not layout.is_order:
        return True
    return all(
        layout.region.holds(finger_room(layout.scene.item_types[n], _spot(layout.poses[n]))) for n in piece.items
    )


def _moved(layout: DrawnEpisode, piece: Piece, to: PlanarPose) -> DrawnEpisode:
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


def _middle(layout: DrawnEpisode, piece: Piece) -> FloatArray:
    places = [layout.poses[n][:2] for n in piece.items] + [layout.goals[i].pose[:2] for i in piece.goals]
    middle: FloatArray = np.mean(places, axis=0)
    return middle


def _about(place: FloatArray, middle: FloatArray, angle_rad: float) -> FloatArray:
    c, s = math.cos(angle_rad), math.sin(angle_rad)
    turned: FloatArray = np.array([[c, -s], [s, c]]) @ (place - middle) + middle
    return turned


def _spot(item_pose: FloatArray) -> Spot:
    return Spot(float(item_pose[0]), float(item_pose[1]), heading(item_pose[3:].tolist()))


def _rectangles(layout: DrawnEpisode, piece: Piece) -> list[FloatArray]:
    """What a piece covers on the stage: items with their clearance, goals with room for the hand, fixtures."""
    rectangles = [item_rectangle(layout, n) for n in piece.items]
    rectangles += [goal_rectangle(layout.goals[i]) for i in piece.goals if not layout.is_order]
    return rectangles + [fixture_rectangle(f) for f in layout.scene.fixtures if f.name in piece.fixtures]


def item_rectangle(layout: DrawnEpisode, name: str, *, clearance_m: float = CLEARANCE_M) -> FloatArray:
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


def add_distractors(layout: DrawnEpisode, condition: Distractor, *, attempt: int = 0) -> DrawnEpisode:
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


def distractors_for(layout: DrawnEpisode, condition: Distractor) -> tuple[DistractorObject, ...]:
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
        shape, box = ItemPrimitive('cylinder', (radius, z / 2), mass_kg=float(mass)), (2 * radius, 2 * radius, z)
    else:
        shape, box = ItemPrimitive('box', (x / 2, y / 2, z / 2), mass_kg=DENSITY_KG_M3 * x * y * z), thing.size_m
    return ItemType(
        name=f'{thing.shape} distractor', shapes=(shape,), box_m=box, grip_width_m=box[1], friction=0.8, rgba=rgba
    )


def _taken(layout: DrawnEpisode) -> Sequence[FloatArray]:
    room_m = 0.008 if layout.is_order else ROOM_M
    taken = [item_rectangle(layout, name, clearance_m=room_m) for name in layout.poses]
    taken += [fixture_rectangle(f) for f in layout.scene.fixtures]
    return taken if layout.is_order else taken + [goal_rectangle(g) for g in layout.goals]


def _rgb(rgba: str) -> Rgb:
    red, green, blue = (round(255 * float(v)) for v in rgba.split()[:3])
    return red, green, blue


# What is to be moved starts on a block instead of on the stage.

RIM_M = 0.004  # the support reaches so far beyond the item


def add_support(layout: DrawnEpisode, condition: Support) -> DrawnEpisode:
    """The layout with a support under every item that has a goal; it stays where it is."""
    if layout.is_order or layout.on_belt:
        raise InputError(f'task {layout.task}: items in a bin or on a belt have no support of their own to change')
    poses, supports = dict(layout.poses), []
    for name in dict.fromkeys(goal.item for goal in layout.goals):
        at = layout.poses[name].copy()
        spot = _spot(at)
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


DRAWS = 10
SLIDE_S = 1.0
SETTLE_S = 0.25
LONGEST_SETTLE_S = 2.5
REST_M_S = 2e-3
MOVED_M = 0.03  # an item that ended farther from where it was laid has slid, rolled or toppled
HEIGHT_M = 0.006


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedStart:
    """A verified start of an episode."""

    layout: DrawnEpisode
    scene: CompiledCell
    data: Any
    angles_rad: FloatArray
    draws: int  # layouts tried until one was verified
    settle_s: float


def reset_cell(
    task: str,
    *,
    seed: int,
    stratum: str = '',
    instance: int = 0,
    items: int | None = None,
    world: World | None = None,
    has_shadows: bool = True,
) -> VerifiedStart:
    """Lay out an episode and verify it; a layout that does not come to rest as drawn is drawn anew."""
    faults: list[str] = []
    asked = world if world is not None else World()
    for attempt in range(DRAWS):
        layout = draw_layout(task, seed=seed, stratum=stratum, instance=instance, items=items, attempt=attempt)
        layout = _changed(layout, asked, attempt=attempt, has_shadows=has_shadows)
        scene = compile_scene(layout.scene)
        angles = _start_angles(layout, asked)
        data = load_mujoco().MjData(scene.model)
        settle_s = _lay_and_slide(scene, data, layout, angles)
        fault = _find_fault(scene, data, layout, angles)
        if fault is None:
            data.time = 0.0
            return VerifiedStart(layout, scene, data, angles, attempt + 1, settle_s)
        faults.append(fault)
    raise RobotrialsError(f'reset of {task} with seed {seed} was not verified in {DRAWS} draws: {"; ".join(faults)}')


def _changed(layout: DrawnEpisode, world: World, *, attempt: int, has_shadows: bool) -> DrawnEpisode:
    """The layout in the world that is asked for: moved, cluttered, lit and laid out with another cloth."""
    for spread in (world.layout, world.displacement):
        if spread is not None:
            layout = spread_layout(layout, spread, attempt=attempt)
    if world.support is not None:
        layout = add_support(layout, world.support)
    if world.distractor is not None:
        layout = add_distractors(layout, world.distractor, attempt=attempt)
    scene = dataclasses.replace(
        layout.scene, look=world.look(has_shadows=has_shadows), friction_scale=world.friction_scale
    )
    return dataclasses.replace(layout, scene=scene)


def _start_angles(layout: DrawnEpisode, world: World) -> FloatArray:
    """Home, turned to the layout's gripper yaw, or where the robot-state condition starts from."""
    home = np.array(panda.HOME_RAD)
    if layout.gripper_yaw_rad:
        turn = pose.yaw_pose(0, 0, 0, yaw_rad=layout.gripper_yaw_rad)[3:]
        tool = kinematics().tool(home)
        home = kinematics().solve(np.concatenate([tool[:3], pose.multiply(turn, tool[3:])]), home, iterations=30)
    clipped = np.asarray(np.clip(home, panda.JOINT_LOW_RAD + 0.02, panda.JOINT_HIGH_RAD - 0.02))
    return world.start_angles(clipped)


def _lay_and_slide(scene: CompiledCell, data: Any, layout: DrawnEpisode, angles: FloatArray) -> float:
    mujoco = load_mujoco()
    data.qpos[scene.joint_qpos] = angles
    data.ctrl[scene.joint_actuator] = angles
    data.qpos[scene.finger_qpos] = data.ctrl[scene.finger_actuator] = panda.FINGER_TRAVEL_M
    data.qpos[scene.stage_qpos] = data.ctrl[scene.stage_actuator] = STAGE_TRAVEL_M
    for name, item_pose in layout.poses.items():
        address = scene.item_qpos[name]
        data.qpos[address : address + 7] = item_pose
        data.qpos[address + 1] += 0.0 if name in layout.on_belt else STAGE_TRAVEL_M
        data.qpos[address + 2] += 0.0005
    mujoco.mj_step(scene.model, data, nstep=round(SETTLE_S / TIMESTEP_S))
    slide = round(SLIDE_S / TIMESTEP_S / 4)
    for step in range(slide):
        s = (step + 1) / slide
        data.ctrl[scene.stage_actuator] = STAGE_TRAVEL_M * (1 - s**3 * (10 - 15 * s + 6 * s * s))
        mujoco.mj_step(scene.model, data, nstep=4)
    waited = 0.0
    while waited < LONGEST_SETTLE_S:
        mujoco.mj_step(scene.model, data, nstep=round(SETTLE_S / TIMESTEP_S))
        waited += SETTLE_S
        if all(_speed(scene, data, name) < REST_M_S for name in scene.item_dof):
            break
    return SETTLE_S + SLIDE_S + waited


def _speed(scene: CompiledCell, data: Any, name: str) -> float:
    address = scene.item_dof[name]
    return float(np.linalg.norm(data.qvel[address : address + 3]))


def _find_fault(scene: CompiledCell, data: Any, layout: DrawnEpisode, angles: FloatArray) -> str | None:
    """The first thing that is not as it should be, or None."""
    if abs(float(data.qpos[scene.stage_qpos])) > 1e-3:
        return f'the stage stands {1000 * float(data.qpos[scene.stage_qpos]):.1f} mm from its stop'
    if float(np.abs(data.qpos[scene.joint_qpos] - angles).max()) > 0.01:
        return 'the arm is not at its start'
    for name, drawn in layout.poses.items():
        center, size = (SOURCE_CENTER_M, BIN_INNER_M) if layout.is_order else (PLATFORM_CENTER_M, PLATFORM_SIZE_M)
        if name in layout.on_belt:
            center, size = BELT_CENTER_M, BELT_SIZE_M
        address = scene.item_qpos[name]
        laid = data.qpos[address : address + 7]
        if _speed(scene, data, name) >= REST_M_S:
            return f'{name} is still moving'
        if np.any(np.abs(laid[:2] - np.array(center)) > np.array(size) / 2) or abs(laid[2] - drawn[2]) > HEIGHT_M:
            return f'{name} is not on its place'
        if (moved_m := float(np.linalg.norm(laid[:2] - drawn[:2]))) > MOVED_M:
            return f'{name} has moved by {1000 * moved_m:.0f} mm'
        if layout.is_order and not ORDER_REGION.holds(finger_room(layout.scene.item_types[name], _spot(laid))):
            return f'{name} lies too near to a wall for the fingers'
    return None


# What is known of a drawn scene beforehand, without its poses later on: for scores from cameras alone.


def known_scene(start: VerifiedStart) -> KnownScene:
    """The drawn layout and what stands fixed: table, bins, fixtures."""
    layout = start.layout
    items = layout.scene.item_types
    objects = tuple(_known_object(name, item, layout.poses[name]) for name, item in items.items())
    goals: tuple[BoxGoal, ...] = ()
    region = None
    if layout.is_order:
        wanted = tuple(g.item for g in layout.goals)
        low = [c - inner / 2 for c, inner in zip(TARGET_CENTER_M, BIN_INNER_M, strict=True)]
        high = [c + inner / 2 for c, inner in zip(TARGET_CENTER_M, BIN_INNER_M, strict=True)]
        region = RegionGoal(objects=wanted, low_m=(*low, FLOOR_M), high_m=(*high, WALL_HEIGHT_M + 0.02))
    else:
        goals = tuple(BoxGoal(object=g.item, box=_known_box(g.item, g.pose, items[g.item].box_m)) for g in layout.goals)
    return KnownScene(
        objects=objects, goals=goals, region=region, threshold=layout.threshold, fixed=tuple(_fixed(start)),
        floor_z_m=FLOOR_HEIGHT_M,
    )  # fmt: skip


def _known_object(name: str, item: ItemType, at: Any) -> KnownObject:
    red, green, blue = (round(255 * float(c)) for c in item.rgba.split()[:3])
    is_box = len(item.shapes) == 1 and item.shapes[0].kind == 'box'
    return KnownObject(
        name=name, color_rgb=(red, green, blue), start=_known_box(name, at, item.box_m), is_box=is_box
    )  # fmt: skip


def _known_box(name: str, at: Any, size_m: Any) -> KnownBox:
    turn = pose.matrix_from_quaternion(np.asarray(at)[3:])
    return KnownBox(
        name=name, center_m=_numbers(np.asarray(at)[:3]), size_m=_numbers(size_m), rotation=_numbers(turn.ravel())
    )


def _fixed(start: VerifiedStart) -> list[KnownBox]:
    """Every box of a body that neither moves nor is an item."""
    mujoco = load_mujoco()
    model, data = start.scene.model, start.data
    skipped = ROBOT_BODIES | set(start.scene.item_body)
    fixed = []
    for index in range(model.ngeom):
        body = model.body(int(model.geom_bodyid[index])).name
        if body in skipped or model.geom_type[index] != mujoco.mjtGeom.mjGEOM_BOX or 'finger' in body:
            continue
        if body.endswith('_half') or body.startswith('link'):
            continue
        fixed.append(
            KnownBox(
                name=body, center_m=_numbers(data.geom_xpos[index]), size_m=_numbers(2 * model.geom_size[index]),
                rotation=_numbers(data.geom_xmat[index]),
            )
        )  # fmt: skip
    return fixed


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


# What stands in the cell, as the words of an instruction name it.

FIXTURES = {'mark': Thing('square', 'white'), 'slot': Thing('slot')}
BINS = (Thing('bin', 'blue'), Thing('bin', 'green'))


def things_of(layout: DrawnEpisode) -> tuple[Thing, ...]:
    """Items, distractors, bins, and the fixtures that have a name."""
    items = [
        Thing(shape_of(item) if name in layout.distractors else item.name.split()[-1], _color(item))
        for name, item in layout.scene.items
    ]
    fixtures = [FIXTURES[f.name] for f in layout.scene.fixtures if f.name in FIXTURES]
    return (*items, *fixtures, *(BINS if layout.scene.has_bins else ()))


def _color(item: ItemType) -> str:
    """The name of an item's colour, if it has one of those that words name."""
    rgba = [float(v) for v in item.rgba.split()]
    for name, known in COLORS.items():
        if max(abs(a - float(b)) for a, b in zip(rgba, known.split(), strict=True)) < 0.01:
            return name
    return ''


# The cameras that watch a trial for its scores: fixed, calibrated, RGB-D, and apart from what a policy sees.

WATCHERS = ('front', 'side', 'gallery')


def at_home(start: VerifiedStart) -> Any:
    """A copy of the world with the arm where it started and everything else where it is; what it held stays in the air.

    A real arm would be driven there before the last picture. The world of the episode is not touched.
    """
    mujoco = load_mujoco()
    data = mujoco.MjData(start.scene.model)
    mujoco.mj_copyData(data, start.scene.model, start.data)
    data.qpos[start.scene.joint_qpos] = start.angles_rad
    mujoco.mj_kinematics(start.scene.model, data)
    mujoco.mj_camlight(start.scene.model, data)
    return data


class WatchingCameras:
    """Draws the watching cameras when asked, without shadows: they would take ten times as long.

    With a noise model each camera is a unit of its own that keeps its bias for good; a picture's noise comes from the
    episode's seed and its time, so that a run repeats bit for bit.
    """

    def __init__(self, cameras: Sequence[str], *, size: Sequence[int], noise: str) -> None:
        for camera in cameras:
            if camera not in WATCHERS:
                raise UnknownName('watching camera', camera, WATCHERS)
        if len(set(cameras)) != len(cameras):
            raise InputError(f'watchers names a camera twice: {list(cameras)}')
        if noise != 'none' and noise not in STEREO_NOISE:
            raise UnknownName('noise of watching cameras', noise, ('none', *STEREO_NOISE))
        height, width = (int(v) for v in size)
        self._noise = STEREO_NOISE.get(noise)
        self._pictures = Pictures(tuple(cameras), height_px=height, width_px=width, has_shadows=False)
        if cameras:
            working_backend()  # a machine that cannot draw says so before the first episode

    @property
    def has_cameras(self) -> bool:
        return bool(self._pictures.cameras)

    def take(self, scene: CompiledCell, data: Any, *, seed: int, t_s: float) -> Mapping[str, View]:
        views = {}
        for name, picture in self._pictures.take(scene, data).items():
            depth = picture.depth_m
            intrinsics = picture.calibration.intrinsics_px
            if self._noise is not None and intrinsics is not None:
                number = WATCHERS.index(name)
                depth = stereo_depth(
                    depth, self._noise, focal_px=float(intrinsics[0, 0]), unit=np.random.default_rng([number, 7]),
                    frame=np.random.default_rng([number, seed, round(1000 * t_s)]),
                ).astype(np.float32)  # fmt: skip
            views[name] = View(picture.rgb, depth, picture.calibration, t_s)
        return views

    def close(self) -> None:
        self._pictures.close()
