"""The automatic reset: the stage slides out, the scene is laid, the stage slides in, all settles, it is verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RobotrialsError, UnknownName
from robotrials.measure.geometry.view import STEREO_NOISE, stereo_depth
from robotrials.record.media import BoxGoal, KnownBox, KnownObject, KnownScene, RegionGoal, View
from robotrials.run.conditions import Thing
from robotrials.value import dataclass
from robotrials.worlds.cell import panda
from robotrials.worlds.cell import panda as pose
from robotrials.worlds.cell.camera import Pictures, working_backend
from robotrials.worlds.cell.control import kinematics
from robotrials.worlds.cell.item import COLORS, ItemType, Spot, finger_room
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
    STAGE_TRAVEL_M,
    TARGET_CENTER_M,
    TIMESTEP_S,
    WALL_HEIGHT_M,
    Scene,
    compile_scene,
    load_mujoco,
)
from robotrials.worlds.cell.spread import add_distractors, add_support, shape_of, spread_layout
from robotrials.worlds.cell.state import heading
from robotrials.worlds.cell.task import ORDER_REGION, Layout, draw_layout
from robotrials.worlds.cell.world import World

FloatArray = NDArray[np.floating[Any]]
DRAWS = 10
SLIDE_S = 1.0
SETTLE_S = 0.25
LONGEST_SETTLE_S = 2.5
REST_M_S = 2e-3
MOVED_M = 0.03  # an item that ended farther from where it was laid has slid, rolled or toppled
HEIGHT_M = 0.006


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A verified start of an episode."""

    layout: Layout
    scene: Scene
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
) -> Start:
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
            return Start(layout, scene, data, angles, attempt + 1, settle_s)
        faults.append(fault)
    raise RobotrialsError(f'reset of {task} with seed {seed} was not verified in {DRAWS} draws: {"; ".join(faults)}')


def _changed(layout: Layout, world: World, *, attempt: int, has_shadows: bool) -> Layout:
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


def _start_angles(layout: Layout, world: World) -> FloatArray:
    """Home, turned to the layout's gripper yaw, or where the robot-state condition starts from."""
    home = np.array(panda.HOME_RAD)
    if layout.gripper_yaw_rad:
        turn = pose.yaw_pose(0, 0, 0, yaw_rad=layout.gripper_yaw_rad)[3:]
        tool = kinematics().tool(home)
        home = kinematics().solve(np.concatenate([tool[:3], pose.multiply(turn, tool[3:])]), home, iterations=30)
    clipped = np.asarray(np.clip(home, panda.JOINT_LOW_RAD + 0.02, panda.JOINT_HIGH_RAD - 0.02))
    return world.start_angles(clipped)


def _lay_and_slide(scene: Scene, data: Any, layout: Layout, angles: FloatArray) -> float:
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


def _speed(scene: Scene, data: Any, name: str) -> float:
    address = scene.item_dof[name]
    return float(np.linalg.norm(data.qvel[address : address + 3]))


def _find_fault(scene: Scene, data: Any, layout: Layout, angles: FloatArray) -> str | None:
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
        found = data.qpos[address : address + 7]
        if _speed(scene, data, name) >= REST_M_S:
            return f'{name} is still moving'
        if np.any(np.abs(found[:2] - np.array(center)) > np.array(size) / 2) or abs(found[2] - drawn[2]) > HEIGHT_M:
            return f'{name} is not on its place'
        if float(np.linalg.norm(found[:2] - drawn[:2])) > MOVED_M:
            return f'{name} has moved by {1000 * float(np.linalg.norm(found[:2] - drawn[:2])):.0f} mm'
        spot = Spot(float(found[0]), float(found[1]), heading(found[3:].tolist()))
        if layout.is_order and not ORDER_REGION.holds(finger_room(layout.scene.item_types[name], spot)):
            return f'{name} lies too near to a wall for the fingers'
    return None


# What is known of a drawn scene beforehand, without its poses later on: for scores from cameras alone.


def known_scene(start: Start) -> KnownScene:
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


def _fixed(start: Start) -> list[KnownBox]:
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


def things_of(layout: Layout) -> tuple[Thing, ...]:
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


def at_home(start: Start) -> Any:
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


class Watch:
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

    def take(self, scene: Scene, data: Any, *, seed: int, t_s: float) -> Mapping[str, View]:
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
