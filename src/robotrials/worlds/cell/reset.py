"""The automatic reset: the stage slides out, the scene is laid, the stage slides in, all settles, it is verified."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import RobotrialsError
from robotrials.worlds.cell import panda, pose
from robotrials.worlds.cell.clutter import add_distractors
from robotrials.worlds.cell.control import kinematics
from robotrials.worlds.cell.layout import Spot, finger_room
from robotrials.worlds.cell.scene import (
    BELT_CENTER_M,
    BELT_SIZE_M,
    BIN_INNER_M,
    PLATFORM_CENTER_M,
    PLATFORM_SIZE_M,
    SOURCE_CENTER_M,
    STAGE_TRAVEL_M,
    TIMESTEP_S,
    Scene,
    compile_scene,
    load_mujoco,
)
from robotrials.worlds.cell.spread import spread_layout
from robotrials.worlds.cell.state import heading
from robotrials.worlds.cell.support import add_support
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
