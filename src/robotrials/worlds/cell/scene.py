"""The cell as one MJCF document: table, stage, bins or platform, cameras, lights, the arm, and the items.

World frame: origin at the arm's base on the table's top, x away from the arm, z up. Metres, radians, newton.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robotrials.errors import install_hint
from robotrials.old_name import CELL_MODEL
from robotrials.worlds.cell.item import ItemType, Triple, item_xml
from robotrials.worlds.cell.look import FLOOR, SURFACES, Look, assets_xml, decor_xml, headlight_xml, lights_xml, paint
from robotrials.worlds.cell.mount import shift_cameras
from robotrials.worlds.cell.panda import actuators_xml, arm_xml

TIMESTEP_S = 0.0025
CONTROL_RATE_HZ = 20.0
SUBSTEPS = 20

FLOOR_HEIGHT_M = -0.75
TABLE_X_M = (0.20, 0.80)
TABLE_Y_M = (-0.45, 0.45)
STAGE_TRAVEL_M = 0.50  # outwards, along +y
STAGE_TOP_M = 0.012

WALL_HEIGHT_M = 0.028
WALL_M = 0.004
FLOOR_M = 0.004
BIN_INNER_M = (0.30, 0.26)  # x, y
SOURCE_CENTER_M = (0.50, 0.18)
TARGET_CENTER_M = (0.50, -0.18)
PLATFORM_CENTER_M = (0.50, 0.0)
PLATFORM_SIZE_M = (0.36, 0.56)
BELT_CENTER_M = (0.42, 0.0)
BELT_SIZE_M = (0.12, 0.90)  # it runs the whole length of the table, towards -y
BELT_PITCH_M = 0.09  # between the marks on it
BESIDE_BELT_CENTER_M = (0.605, 0.0)  # the platform, where there is a belt
BESIDE_BELT_SIZE_M = (0.15, 0.56)

CAMERAS = ('wrist', 'front', 'side')
FIXED_CAMERAS_M = ((1.20, 0.0, 0.66), (0.50, 1.00, 0.62))  # front and side


@dataclass(frozen=True, slots=True)
class Fixture:
    """A part that a task brings along, fixed to the stage: a screen, the walls of a slot, a mark to be seen only."""

    name: str
    boxes: tuple[tuple[Triple, Triple], ...]  # (centre, half sizes) in the fixture's frame
    pose: tuple[float, ...]  # (7,)
    rgba: str = '0.45 0.47 0.50 1'
    is_solid: bool = True


@dataclass(frozen=True, slots=True)
class SceneSpec:
    """What has to be compiled: which bins, which items, which fixtures. Poses come later, at reset."""

    has_bins: bool
    items: tuple[tuple[str, ItemType], ...]
    fixtures: tuple[Fixture, ...] = ()
    look: Look = field(default_factory=Look)
    friction_scale: float = 1.0  # of every sliding contact
    belt_m_s: float = 0.0  # the speed of a conveyor belt; 0: there is none

    @property
    def item_types(self) -> Mapping[str, ItemType]:
        return dict(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A compiled cell and the addresses that the host reads and writes at every step."""

    spec: SceneSpec
    model: Any
    joint_qpos: Any
    joint_dof: Any
    joint_actuator: Any
    finger_qpos: Any
    finger_actuator: Any
    stage_qpos: int
    stage_dof: int
    stage_actuator: int
    tool_site: int
    hand_body: int
    item_qpos: Mapping[str, int] = field(default_factory=dict)
    item_dof: Mapping[str, int] = field(default_factory=dict)
    item_body: Mapping[str, int] = field(default_factory=dict)
    hinge_qpos: Mapping[str, int] = field(default_factory=dict)


def scene_xml(spec: SceneSpec) -> str:
    """The whole document."""
    items = ''.join(item_xml(name, item) for name, item in spec.items)
    fixtures = ''.join(_fixture_xml(f) for f in spec.fixtures)
    bins = _bin_xml(SOURCE_CENTER_M, STAGE_TOP_M, 'source') if spec.has_bins else _platform_xml(spec)
    target = ''
    if spec.has_bins:
        target = f'<body name="target_bin">{_bin_xml(TARGET_CENTER_M, 0.0, "target")}</body>'
    return f"""<mujoco model="{CELL_MODEL}">
<compiler angle="radian" eulerseq="XYZ" autolimits="true"/>
<option timestep="{TIMESTEP_S}" integrator="implicitfast" solver="Newton" iterations="100" ls_iterations="50"
 tolerance="1e-8" cone="elliptic" impratio="10"/>
<size memory="8M"/>
<visual><global offwidth="1280" offheight="960"/><quality shadowsize="2048"/><map znear="0.02" zfar="20"/>
{headlight_xml(spec.look)}</visual>
<asset>{assets_xml(spec.look)}</asset>
<default>
<geom condim="3" friction="0.7 0.01 0.0005" solref="0.01 1" solimp="0.9 0.95 0.001"/>
<default class="arm"><geom mass="0" group="1" rgba="0.93 0.93 0.94 1" friction="0.4 0.01 0.0005" condim="3"/></default>
<default class="finger"><geom mass="0" group="1" contype="8" conaffinity="5" rgba="0.35 0.36 0.38 1" condim="3"
 friction="0.4 0.01 0.0005"/></default>
<default class="pad"><geom mass="0" group="1" contype="8" conaffinity="5" rgba="0.15 0.15 0.16 1" condim="4"
 friction="1.0 0.02 0.0005" priority="1"/></default>
<default class="item"><geom group="2"/></default>
<default class="fixed"><geom group="0" rgba="0.33 0.39 0.47 1"/></default>
</default>
<worldbody>
{lights_xml(spec.look)}
<geom name="floor" type="plane" pos="0 0 {FLOOR_HEIGHT_M}" size="4 4 0.1" rgba="{_rgba(FLOOR)}"/>
<body name="pedestal"><geom class="fixed" type="box" size="0.14 0.14 0.374" pos="-0.03 0 -0.376"
 rgba="0.40 0.42 0.45 1"/></body>
<body name="table"><geom name="table" type="box" material="wood" size="{_half(TABLE_X_M)} {_half(TABLE_Y_M)} 0.02"
 pos="{_middle(TABLE_X_M)} {_middle(TABLE_Y_M)} -0.02"/></body>
<body name="stage"><joint name="stage" type="slide" axis="0 1 0" range="-0.01 {STAGE_TRAVEL_M + 0.01}" damping="40"/>
{bins}{fixtures}</body>
{target}{_belt_xml() if spec.belt_m_s else ''}
<camera name="front" pos="{_triple(FIXED_CAMERAS_M[0])}" xyaxes="0 1 0 -0.643 0 0.766" fovy="45"/>
<camera name="side" pos="{_triple(FIXED_CAMERAS_M[1])}" xyaxes="-1 0 0 0 -0.556 0.831" fovy="45"/>
<camera name="gallery" pos="1.35 -0.95 0.85" xyaxes="0.62 0.785 0 -0.37 0.292 0.882" fovy="38"/>
{arm_xml()}
{items}
{decor_xml(spec.look, table_x_m=TABLE_X_M, table_y_m=TABLE_Y_M, floor_m=FLOOR_HEIGHT_M)}
</worldbody>
<equality><joint joint1="left_finger" joint2="right_finger" solref="0.005 1"/></equality>
<actuator>{actuators_xml()}<general name="stage" joint="stage" gainprm="8000" biastype="affine" biasprm="0 -8000 -600"
 forcerange="-400 400"/></actuator>
</mujoco>"""


def _bin_xml(center_m: tuple[float, float], base_m: float, name: str) -> str:
    inner_x, inner_y = (v / 2 for v in BIN_INNER_M)
    wall_z = base_m + WALL_HEIGHT_M / 2
    cx, cy = center_m
    plate = ''
    if name == 'source':
        plate = _box(
            (cx, cy, base_m / 2 + 0.001), (inner_x + 0.02, inner_y + 0.02, base_m / 2 - 0.001), '0.5 0.5 0.52 1'
        )
    walls = [
        ((cx, cy, base_m + FLOOR_M / 2), (inner_x + WALL_M, inner_y + WALL_M, FLOOR_M / 2)),
        ((cx - inner_x - WALL_M / 2, cy, wall_z), (WALL_M / 2, inner_y + WALL_M, WALL_HEIGHT_M / 2)),
        ((cx + inner_x + WALL_M / 2, cy, wall_z), (WALL_M / 2, inner_y + WALL_M, WALL_HEIGHT_M / 2)),
        ((cx, cy - inner_y - WALL_M / 2, wall_z), (inner_x, WALL_M / 2, WALL_HEIGHT_M / 2)),
        ((cx, cy + inner_y + WALL_M / 2, wall_z), (inner_x, WALL_M / 2, WALL_HEIGHT_M / 2)),
    ]
    rgba = '0.30 0.42 0.62 1' if name == 'source' else '0.30 0.52 0.40 1'
    return plate + ''.join(_box(center, half, rgba) for center, half in walls)


def _platform_xml(spec: SceneSpec) -> str:
    x, y = BESIDE_BELT_CENTER_M if spec.belt_m_s else PLATFORM_CENTER_M
    length, width = BESIDE_BELT_SIZE_M if spec.belt_m_s else PLATFORM_SIZE_M
    half = (length / 2, width / 2, STAGE_TOP_M / 2 - 0.001)
    place, size = (' '.join(f'{v:.6g}' for v in t) for t in ((x, y, STAGE_TOP_M / 2 + 0.001), half))
    return f'<geom class="fixed" type="box" pos="{place}" size="{size}" {_paint("plate", spec)}/>'


def _belt_xml() -> str:
    """A slab that is driven and put back at every substep, so that its surface moves and it does not; marks to see it.

    It is too heavy to be slowed by what lies on it.
    """
    (x, y), (width, length) = BELT_CENTER_M, BELT_SIZE_M
    slab = _box((x, y, STAGE_TOP_M / 2 + 0.001), (width / 2, length / 2, STAGE_TOP_M / 2 - 0.001), '0.20 0.21 0.23 1')
    half = (width / 2 - 0.01, 0.003, 0.0004)
    first = y - length / 2 + BELT_PITCH_M
    marks = ''.join(
        _box((x, first + i * BELT_PITCH_M, STAGE_TOP_M), half, '0.45 0.47 0.50 1', ' contype="0" conaffinity="0"')
        for i in range(round(length / BELT_PITCH_M))
    )
    return (
        f'<body name="belt"><joint name="belt" type="slide" axis="0 1 0" armature="1000"/>{slab}</body>'
        f'<body name="belt_marks" mocap="true">{marks}</body>'
    )


def _paint(surface: str, spec: SceneSpec) -> str:
    """A plain colour, or the cloth that the background condition lays over it."""
    if spec.look.background is not None:
        return f'material="{surface}" rgba="1 1 1 1"'
    return f'rgba="{_rgba(SURFACES[surface])}"'


def _rgba(color: Triple) -> str:
    return ' '.join(f'{v:.2f}' for v in color) + ' 1'


def _fixture_xml(fixture: Fixture) -> str:
    bits = '' if fixture.is_solid else ' contype="0" conaffinity="0"'
    boxes = ''.join(_box(center, half, fixture.rgba, bits) for center, half in fixture.boxes)
    place, turn = (' '.join(f'{v:.9g}' for v in part) for part in (fixture.pose[:3], fixture.pose[3:]))
    return f'<body name="{fixture.name}" pos="{place}" quat="{turn}">{boxes}</body>'


def _box(center_m: Triple, half_m: Triple, rgba: str, bits: str = '') -> str:
    place, size = (' '.join(f'{v:.6g}' for v in t) for t in (center_m, half_m))
    return f'<geom class="fixed" type="box" pos="{place}" size="{size}" rgba="{rgba}"{bits}/>'


def _triple(values: Triple) -> str:
    return ' '.join(f'{v:g}' for v in values)


def _half(ends: tuple[float, float]) -> str:
    return f'{(ends[1] - ends[0]) / 2:g}'


def _middle(ends: tuple[float, float]) -> str:
    return f'{(ends[1] + ends[0]) / 2:g}'


@functools.lru_cache(maxsize=16)
def compile_scene(spec: SceneSpec) -> Scene:
    """Compile once a worker; models are shared between episodes and never written."""
    mujoco = load_mujoco()
    model = mujoco.MjModel.from_xml_string(scene_xml(spec))
    paint(model, spec.look)
    shift_cameras(model, spec.look.camera)
    if spec.friction_scale != 1.0:
        model.geom_friction[:, 0] *= spec.friction_scale
    joint = {model.joint(i).name: i for i in range(model.njnt)}
    actuator = {model.actuator(i).name: i for i in range(model.nu)}
    arm = [f'joint{i + 1}' for i in range(7)]
    fingers = ['left_finger', 'right_finger']
    names = [name for name, _ in spec.items]
    return Scene(
        spec=spec,
        model=model,
        joint_qpos=np.array([model.jnt_qposadr[joint[n]] for n in arm]),
        joint_dof=np.array([model.jnt_dofadr[joint[n]] for n in arm]),
        joint_actuator=np.array([actuator[n] for n in arm]),
        finger_qpos=np.array([model.jnt_qposadr[joint[n]] for n in fingers]),
        finger_actuator=np.array([actuator[n] for n in fingers]),
        stage_qpos=int(model.jnt_qposadr[joint['stage']]),
        stage_dof=int(model.jnt_dofadr[joint['stage']]),
        stage_actuator=actuator['stage'],
        tool_site=int(model.site('tool').id),
        hand_body=int(model.body('hand').id),
        item_qpos={n: int(model.jnt_qposadr[joint[n]]) for n in names},
        item_dof={n: int(model.jnt_dofadr[joint[n]]) for n in names},
        item_body={n: int(model.body(n).id) for n in names},
        hinge_qpos={n: int(model.jnt_qposadr[joint[f'{n}_hinge']]) for n in names if f'{n}_hinge' in joint},
    )


@functools.cache
def load_mujoco() -> Any:
    """MuJoCo, or a message that says what to install."""
    from robotrials.errors import SetupError

    try:
        import mujoco
    except ImportError as error:
        raise SetupError(f'the tabletop cell needs MuJoCo: {install_hint("sim")}') from error
    return mujoco
