"""The cell as one MJCF document: table, stage, bins or platform, cameras, lights, the arm, and the items.

World frame: origin at the arm's base on the table's top, x away from the arm, z up. Metres, radians, newton.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import install_hint
from robotrials.old_name import CELL_MODEL
from robotrials.run.conditions import Background, CameraShift, Light
from robotrials.run.conditions.background import MOST_POSTERS, TILE_PERIODS
from robotrials.run.conditions.camera import GAMMA, temperature_gain
from robotrials.value import dataclass
from robotrials.worlds.cell.item import ItemType, Triple, item_xml
from robotrials.worlds.cell.panda import actuators_xml, arm_xml, matrix_from_quaternion

# How the cell looks: its lights, the cloth on table and platform, posters, where the cameras hang.
# Physics does not know of it: what is added has no contacts and no mass.
# Lights in OpenGL multiply pixel values, which are not linear in light; a gain on light is therefore raised to
# 1/gamma, so that a stop here is a stop of the condition laid over frames.

FloatArray = NDArray[np.floating[Any]]
Color = tuple[float, float, float]

AMBIENT: Color = (0.35, 0.35, 0.35)
HEADLIGHT: Color = (0.35, 0.35, 0.35)
KEY: Color = (0.55, 0.55, 0.53)
FILL: Color = (0.25, 0.25, 0.28)
KEY_DIRECTION = (0.15, -0.45, -0.9)
SKY: tuple[Color, Color] = ((0.86, 0.89, 0.92), (0.66, 0.71, 0.77))
WOOD: Color = (0.77, 0.71, 0.63)
PLATE: Color = (0.36, 0.38, 0.41)
FLOOR: Color = (0.58, 0.60, 0.62)
SURFACES = {'wood': WOOD, 'plate': PLATE}  # a texture each; a cloth covers both
TEXTURE_PX = 256
CLOTH_PERIOD_M = 0.4  # of a print whose period is 1
DROP_M = 0.22  # how far a cloth hangs down over the table's edges
POSTER_PX = (200, 120)
POSTER_M = (0.6, 1.0)  # width and height; they stand on the floor
POSTERS_M = ((-0.75, 0.62, 0.0), (0.15, -1.05, 90.0), (-0.75, -0.62, 0.0), (0.85, -1.05, 90.0))  # x, y, turn in degrees
LOWEST_KEY = 0.55  # share of the key light's fall that is left when it comes in flat


@dataclass(frozen=True, slots=True)
class Appearance:
    """The look that a condition asks for; None is the usual one."""

    light: Light | None = None
    background: Background | None = None
    camera: CameraShift | None = None
    has_shadows: bool = True


def headlight_xml(look: Appearance) -> str:
    """The light that comes from the camera and from everywhere; a deep shadow is one that it does not fill."""
    gain = light_gain(look.light) * (1 - (look.light.shadow if look.light is not None else 0.0))
    return (
        f'<headlight ambient="{_color(AMBIENT, gain)}" diffuse="{_color(HEADLIGHT, gain)}" specular="0.05 0.05 0.05"/>'
    )


def lights_xml(look: Appearance) -> str:
    """The key light, which casts the shadows, and the fill."""
    light = look.light
    slope = light.slope if light is not None else 0.0
    gain = light_gain(light)
    shadow = 'true' if look.has_shadows else 'false'
    direction = ' '.join(f'{v:.6g}' for v in key_direction(light))
    return (
        f'<light name="key" pos="0.2 0.9 1.9" dir="{direction}" directional="true"'
        f' diffuse="{_color(KEY, gain * (1 + slope))}" castshadow="{shadow}"/>'
        '<light name="fill" pos="1.2 -1.0 1.6" dir="-0.4 0.6 -0.8" directional="true"'
        f' diffuse="{_color(FILL, gain * (1 - slope))}" castshadow="false"/>'
    )


def assets_xml(look: Appearance) -> str:
    """Sky and surfaces; the surfaces' own pixels are painted after the compilation."""
    gain = light_gain(look.light)
    high, low = (_color(c, np.minimum(gain, 1 / np.array(c))) for c in SKY)  # a texture has no brighter than white
    period_m = CLOTH_PERIOD_M * (look.background.period if look.background is not None else 1.0)
    flat = ''.join(
        f'<texture name="{name}" type="2d" builtin="flat" rgb1="{_color(color, np.ones(3))}" width="{TEXTURE_PX}"'
        f' height="{TEXTURE_PX}"/><material name="{name}" texture="{name}" specular="0.1" shininess="0.1"'
        f' texuniform="true" texrepeat="{1 / (TILE_PERIODS * period_m):.6g} {1 / (TILE_PERIODS * period_m):.6g}"/>'
        for name, color in SURFACES.items()
    )
    # Every scene has the posters' textures: the renderer keeps its own as long as their sizes stay.
    flat += ''.join(
        f'<texture name="poster_{i}" type="2d" builtin="flat" rgb1="1 1 1" width="{POSTER_PX[1]}"'
        f' height="{POSTER_PX[0]}"/><material name="poster_{i}" texture="poster_{i}" specular="0.1" shininess="0.1"/>'
        for i in range(MOST_POSTERS)
    )
    sky = f'<texture name="sky" type="skybox" builtin="gradient" rgb1="{high}" rgb2="{low}" width="64" height="64"/>'
    return sky + flat


def decor_xml(
    look: Appearance, *, table_x_m: tuple[float, float], table_y_m: tuple[float, float], floor_m: float
) -> str:
    """The cloth where it hangs over the table's edges, and the posters; nothing without a background condition."""
    background = look.background
    if background is None or background.strength == 0:
        return ''
    (x0, x1), (y0, y1), drop = table_x_m, table_y_m, DROP_M * background.strength
    middle_x, middle_y, length_x, length_y = (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0
    cloth = ''.join(
        _sheet_xml('wood', (x, y, -drop / 2), (length, drop), turn)
        for x, y, length, turn in (
            (middle_x, y0 - 0.001, length_x, 90.0),
            (middle_x, y1 + 0.001, length_x, 90.0),
            (x1 + 0.001, middle_y, length_y, 0.0),
        )
    )
    posters = ''.join(
        _sheet_xml(f'poster_{i}', (x, y, floor_m + POSTER_M[1] / 2), POSTER_M, turn)
        for i, (x, y, turn) in enumerate(POSTERS_M[: background.posters])
    )
    return f'<body name="decor">{cloth}{posters}</body>'


def _sheet_xml(material: str, center_m: Color, size_m: tuple[float, float], turn_deg: float) -> str:
    """An upright sheet that faces along the turned x axis of the world; its texture lies in its own x and y."""
    turn = math.radians(turn_deg)
    return (
        f'<geom type="box" contype="0" conaffinity="0" mass="0" material="{material}" pos="{_numbers(center_m)}"'
        f' size="{size_m[0] / 2:.6g} {size_m[1] / 2:.6g} 0.001"'
        f' xyaxes="{_numbers((-math.sin(turn), math.cos(turn), 0.0))} 0 0 1"/>'
    )


def paint(model: Any, look: Appearance) -> None:
    """Put the background's cloth on table and platform, and print its posters, in a model that nobody uses yet."""
    background = look.background
    if background is None or background.strength == 0:
        return
    cloth = 255 * background.tile(TEXTURE_PX)
    for name, color in SURFACES.items():
        mixed = (1 - background.strength) * 255 * np.array(color) + background.strength * cloth
        _print(model, name, np.rint(np.clip(mixed, 0, 255)).astype(np.uint8))
    for i in range(background.posters):
        sheet = background.poster(i, height_px=POSTER_PX[0], width_px=POSTER_PX[1])
        _print(model, f'poster_{i}', sheet)


def _print(model: Any, texture: str, pixels: NDArray[np.uint8]) -> None:
    start = int(model.tex_adr[int(model.texture(texture).id)])
    model.tex_data[start : start + pixels.size] = pixels.ravel()


def light_gain(light: Light | None) -> FloatArray:
    """What pixel values (3,) are multiplied by."""
    if light is None:
        return np.ones(3)
    gain: FloatArray = (2.0**light.stops * temperature_gain(light.temperature_k)) ** (1 / GAMMA)
    return gain


def key_direction(light: Light | None) -> tuple[float, float, float]:
    """Where the key light shines to: turned towards the condition's azimuth and lowered, both by its severity."""
    if light is None:
        return KEY_DIRECTION
    x, y, z = KEY_DIRECTION
    usual = math.atan2(-y, -x)
    turn = (light.azimuth_rad - usual + math.pi) % (2 * math.pi) - math.pi
    azimuth = usual + light.severity * turn
    flat = math.hypot(x, y)
    return -flat * math.cos(azimuth), -flat * math.sin(azimuth), z * (1 - (1 - LOWEST_KEY) * light.severity)


def _color(color: Color, gain: FloatArray) -> str:
    return ' '.join(f'{v:.6g}' for v in np.clip(np.array(color) * gain, 0.0, 4.0))


def _numbers(values: tuple[float, ...]) -> str:
    return ' '.join(f'{v:.6g}' for v in values)


# Where the cameras really hang, and where they are reported to: the two differ once one was bumped.

SHIFTED = ('wrist', 'front', 'side')
WRIST_SHARE = 0.25  # of the shift: its mount is as much smaller


def shift_cameras(model: Any, shift: CameraShift | None) -> None:
    """Turn and shift the cameras of a model that nobody uses yet."""
    if shift is None or shift.severity == 0:
        return
    import mujoco

    for name in SHIFTED:
        index = int(model.camera(name).id)
        rotation = matrix_from_quaternion(model.cam_quat[index])
        moved = displacement(shift, name)
        model.cam_pos[index] = model.cam_pos[index] + rotation @ moved[:3, 3]
        mujoco.mju_mat2Quat(model.cam_quat[index], np.ascontiguousarray(rotation @ moved[:3, :3]).ravel())


def reported_pose(name: str, world_from_camera: FloatArray, shift: CameraShift | None) -> FloatArray:
    """The pose that a host says a camera has, given the true one, both in MuJoCo's camera frame."""
    if shift is None or shift.severity == 0 or not shift.is_stale or name not in SHIFTED:
        return world_from_camera
    reported: FloatArray = world_from_camera @ np.linalg.inv(displacement(shift, name))
    return reported


def displacement(shift: CameraShift, name: str) -> FloatArray:
    """How one of the cell's cameras was moved in its own frame, (4, 4)."""
    moved = shift.displacement(name)
    if name == 'wrist':
        moved[:3, 3] *= WRIST_SHARE
    return moved


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
    look: Appearance = field(default_factory=Appearance)
    friction_scale: float = 1.0  # of every sliding contact
    belt_m_s: float = 0.0  # the speed of a conveyor belt; 0: there is none

    @property
    def item_types(self) -> Mapping[str, ItemType]:
        return dict(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledCell:
    """A compiled cell and the addresses that the host reads and writes at every step."""

    spec: SceneSpec
    model: Any
    joint_qpos: Any
    joint_dof: Any
    joint_actuator: Any
    finger_qpos: Any
    finger_actuator: Any
    stage_qpos: int
    stage_actuator: int
    tool_site: int
    hand_body: int
    item_qpos: Mapping[str, int] = field(default_factory=dict)
    item_dof: Mapping[str, int] = field(default_factory=dict)
    item_body: Mapping[str, int] = field(default_factory=dict)


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
def compile_scene(spec: SceneSpec) -> CompiledCell:
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
    return CompiledCell(
        spec=spec,
        model=model,
        joint_qpos=np.array([model.jnt_qposadr[joint[n]] for n in arm]),
        joint_dof=np.array([model.jnt_dofadr[joint[n]] for n in arm]),
        joint_actuator=np.array([actuator[n] for n in arm]),
        finger_qpos=np.array([model.jnt_qposadr[joint[n]] for n in fingers]),
        finger_actuator=np.array([actuator[n] for n in fingers]),
        stage_qpos=int(model.jnt_qposadr[joint['stage']]),
        stage_actuator=actuator['stage'],
        tool_site=int(model.site('tool').id),
        hand_body=int(model.body('hand').id),
        item_qpos={n: int(model.jnt_qposadr[joint[n]]) for n in names},
        item_dof={n: int(model.jnt_dofadr[joint[n]]) for n in names},
        item_body={n: int(model.body(n).id) for n in names},
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
