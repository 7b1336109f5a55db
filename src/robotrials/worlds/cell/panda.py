"""The Franka Panda in numbers, and as MJCF with primitive geometries.

Kinematics (modified Denavit-Hartenberg), limits and torque limits are the maker's published table. Masses, centres and
inertias of links 1 to 7 are the identified parameters of Gaz, Cognetti, Oliva, Robuffo Giordano and De Luca (2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run.seam import ActionConvention, ControlMode, Frame, Gripper, Rotation, Target
from robotrials.value import dataclass

FloatArray = NDArray[np.floating[Any]]

CONVENTION = ActionConvention(
    control_mode=ControlMode.SE3,
    target=Target.DELTA,
    frame=Frame.BASE,
    rotation=Rotation.AXIS_ANGLE,
    gripper=Gripper.OPEN_IS_ONE,
)


@dataclass(frozen=True, slots=True)
class ArmLink:
    """One row of the table: the transform to this link's frame, its joint's limits, and its inertia at the centre."""

    a_m: float
    d_m: float
    alpha_rad: float
    low_rad: float
    high_rad: float
    velocity_rad_s: float
    acceleration_rad_s2: float
    torque_nm: float
    mass_kg: float
    center_m: tuple[float, float, float]
    inertia_kg_m2: tuple[float, float, float, float, float, float]  # xx, yy, zz, xy, xz, yz


QUARTER = math.pi / 2
LINKS = (
    ArmLink(
        *(0.0, 0.333, 0.0, -2.8973, 2.8973, 2.175, 15.0, 87.0, 4.970684, (3.875e-03, 2.081e-03, -4.762e-02)),
        (7.0337e-01, 7.0661e-01, 9.1170e-03, -1.3900e-04, 6.7720e-03, 1.9169e-02),
    ),
    ArmLink(
        *(0.0, 0.0, -QUARTER, -1.7628, 1.7628, 2.175, 7.5, 87.0, 0.646926, (-3.141e-03, -2.872e-02, 3.495e-03)),
        (7.9620e-03, 2.8110e-02, 2.5995e-02, -3.9250e-03, 1.0254e-02, 7.0400e-04),
    ),
    ArmLink(
        *(0.0, 0.316, QUARTER, -2.8973, 2.8973, 2.175, 10.0, 87.0, 3.228604, (2.7518e-02, 3.9252e-02, -6.6502e-02)),
        (3.7242e-02, 3.6155e-02, 1.0830e-02, -4.7610e-03, -1.1396e-02, -1.2805e-02),
    ),
    ArmLink(
        *(0.0825, 0.0, QUARTER, -3.0718, -0.0698, 2.175, 12.5, 87.0, 3.587895, (-5.317e-02, 1.04419e-01, 2.7454e-02)),
        (2.5853e-02, 1.9552e-02, 2.8323e-02, 7.7960e-03, -1.3320e-03, 8.6410e-03),
    ),
    ArmLink(
        *(
            -0.0825,
            0.384,
            -QUARTER,
            -2.8973,
            2.8973,
            2.61,
            15.0,
            12.0,
            1.225946,
            (-1.1953e-02, 4.1065e-02, -3.8437e-02),
        ),
        (3.5549e-02, 2.9474e-02, 8.6270e-03, -2.1170e-03, -4.0370e-03, 2.2900e-04),
    ),
    ArmLink(
        *(0.0, 0.0, QUARTER, -0.0175, 3.7525, 2.61, 20.0, 12.0, 1.666555, (6.0149e-02, -1.4117e-02, -1.0517e-02)),
        (1.9640e-03, 4.3540e-03, 5.4330e-03, 1.0900e-04, -1.1580e-03, 3.4100e-04),
    ),
    ArmLink(
        *(0.088, 0.0, QUARTER, -2.8973, 2.8973, 2.61, 20.0, 12.0, 0.735522, (1.0517e-02, -4.252e-03, 6.1597e-02)),
        (1.2516e-02, 1.0027e-02, 4.8150e-03, -4.2800e-04, -1.1960e-03, -7.4100e-04),
    ),
)
N_JOINTS = len(LINKS)
FLANGE_M = 0.107
HAND_YAW_RAD = -math.pi / 4
HAND_MASS_KG = 0.73
FINGER_OFFSET_M = 0.0584  # from the hand's frame to the fingers'
TOOL_OFFSET_M = 0.1034  # from the hand's frame to the centre of the pads
FINGER_TRAVEL_M = 0.04
FINGER_SPEED_M_S = 0.05
FINGER_FORCE_N = 30.0
FINGER_STIFFNESS_N_M = 4000.0
FINGER_LEAD_M = FINGER_FORCE_N / FINGER_STIFFNESS_N_M
HOME_RAD = (0.0, -0.42, 0.0, -2.38, 0.0, 1.96, math.pi / 4)

JOINT_LOW_RAD = np.array([link.low_rad for link in LINKS])
JOINT_HIGH_RAD = np.array([link.high_rad for link in LINKS])
JOINT_VELOCITY_RAD_S = np.array([link.velocity_rad_s for link in LINKS])
JOINT_ACCELERATION_RAD_S2 = np.array([link.acceleration_rad_s2 for link in LINKS])
TORQUE_LIMIT_NM = np.array([link.torque_nm for link in LINKS])

# The joint impedance: stiffness in Nm/rad and damping in Nm s/rad, near those of the maker's own position mode.
STIFFNESS_NM_RAD = np.array([1200.0, 1200.0, 1000.0, 1000.0, 400.0, 300.0, 150.0])
DAMPING_NM_S_RAD = np.array([110.0, 110.0, 90.0, 80.0, 25.0, 18.0, 10.0])

# Capsules and spheres of each link in its own frame: (radius, from, to).
_SHAPES: tuple[tuple[tuple[float, tuple[float, float, float], tuple[float, float, float]], ...], ...] = (
    ((0.06, (0.0, 0.0, -0.17), (0.0, 0.0, -0.02)), (0.06, (0.0, -0.04, 0.0), (0.0, 0.04, 0.0))),
    ((0.06, (0.0, 0.0, -0.04), (0.0, 0.0, 0.04)), (0.06, (0.0, -0.04, 0.0), (0.0, -0.16, 0.0))),
    ((0.055, (0.0, 0.0, -0.12), (0.0, 0.0, -0.04)), (0.055, (0.0825, 0.0, 0.0), (0.05, 0.03, 0.0))),
    ((0.055, (0.0, 0.0, -0.03), (0.0, 0.0, 0.03)), (0.055, (-0.0825, 0.05, 0.0), (-0.0825, 0.12, 0.0))),
    ((0.055, (0.0, 0.0, -0.23), (0.0, 0.0, -0.2)), (0.04, (0.0, 0.07, -0.2), (0.0, 0.07, -0.02))),
    ((0.05, (0.0, 0.0, -0.03), (0.0, 0.0, 0.03)), (0.045, (0.088, 0.02, 0.0), (0.088, 0.045, 0.0))),
    ((0.042, (0.0, 0.0, 0.04), (0.0, 0.0, 0.075)),),
)
# Contact bits: the world has (1, 1); links 0 to 5 meet the world; links 6, 7 and the hand meet both.
_PROXIMAL = 'contype="4" conaffinity="1"'
_DISTAL = 'contype="8" conaffinity="5"'


def link_transform(index: int) -> tuple[FloatArray, FloatArray]:
    """Where link `index` sits in its parent at angle zero: (3,) metres and a wxyz quaternion."""
    link = LINKS[index]
    sine, cosine = math.sin(link.alpha_rad), math.cos(link.alpha_rad)
    position = np.array([link.a_m, -sine * link.d_m, cosine * link.d_m])
    return position, np.array([math.cos(link.alpha_rad / 2), math.sin(link.alpha_rad / 2), 0.0, 0.0])


def arm_xml() -> str:
    """The bodies of the arm, base at the origin, as MJCF."""
    inner = _hand_xml()
    for index in reversed(range(N_JOINTS)):
        inner = _link_xml(index, inner)
    base = (
        f'<geom class="arm" {_PROXIMAL} type="capsule" size="0.07" fromto="-0.04 0 0.08 0 0 0.08"/>'
        f'<geom class="arm" {_PROXIMAL} type="cylinder" size="0.08 0.03" pos="0 0 0.03"/>'
    )
    return f'<body name="link0">{base}{inner}</body>'


def _link_xml(index: int, inner: str) -> str:
    link = LINKS[index]
    position, quaternion = link_transform(index)
    bits = _DISTAL if index >= 5 else _PROXIMAL
    shapes = ''.join(
        f'<geom class="arm" {bits} type="capsule" size="{radius}" fromto="{_text(start)} {_text(end)}"/>'
        for radius, start, end in _SHAPES[index]
    )
    return (
        f'<body name="link{index + 1}" pos="{_text(position)}" quat="{_text(quaternion)}" gravcomp="1">'
        f'<inertial mass="{link.mass_kg}" pos="{_text(link.center_m)}" fullinertia="{_text(link.inertia_kg_m2)}"/>'
        f'<joint name="joint{index + 1}" axis="0 0 1" range="{link.low_rad} {link.high_rad}" armature="0.1"'
        f' damping="0.5" actuatorfrcrange="{-link.torque_nm} {link.torque_nm}" actuatorgravcomp="true"/>'
        f'{shapes}{inner}</body>'
    )


def _hand_xml() -> str:
    half = HAND_YAW_RAD / 2
    shell = (
        f'<geom class="arm" {_DISTAL} type="box" size="0.031 0.1 0.022" pos="0 0 0.036"/>'
        f'<geom class="arm" {_DISTAL} type="capsule" size="0.03" fromto="0 0 -0.01 0 0 0.02"/>'
        f'<geom class="arm" contype="0" conaffinity="0" type="box" size="0.012 0.045 0.012" pos="0.055 0 0.03"'
        f' rgba="0.15 0.15 0.17 1"/>'
    )
    return (
        f'<body name="hand" pos="0 0 {FLANGE_M}" quat="{math.cos(half)} 0 0 {math.sin(half)}" gravcomp="1">'
        f'<inertial mass="{HAND_MASS_KG}" pos="-0.01 0 0.03" diaginertia="0.001 0.0025 0.0017"/>'
        f'{shell}<site name="tool" pos="0 0 {TOOL_OFFSET_M}" size="0.004" rgba="0 0 0 0"/>'
        f'<camera name="wrist" pos="0.07 0 0.03" xyaxes="0 1 0 0.966 0 -0.259" fovy="58"/>'
        f'{_finger_xml("left", 1)}{_finger_xml("right", -1)}</body>'
    )


def _finger_xml(side: str, sign: int) -> str:
    pad_m = TOOL_OFFSET_M - FINGER_OFFSET_M
    return (
        f'<body name="{side}_finger" pos="0 0 {FINGER_OFFSET_M}" gravcomp="1">'
        f'<inertial mass="0.015" pos="0 {sign * 0.01} 0.02" diaginertia="2.4e-6 2.4e-6 7.5e-7"/>'
        f'<joint name="{side}_finger" type="slide" axis="0 {sign} 0" range="0 {FINGER_TRAVEL_M}" armature="0.1"'
        f' damping="5"/>'
        f'<geom class="finger" type="box" size="0.0105 0.006 0.011" pos="0 {sign * 0.0125} 0.012"/>'
        f'<geom class="pad" type="box" size="0.0105 0.004 0.0155" pos="0 {sign * 0.004} {pad_m - 0.0065}"/></body>'
    )


def actuators_xml() -> str:
    """Impedance as affine position actuators: force = k (reference - q) - d velocity, limited by the joint's range."""
    joints = ''.join(
        f'<general name="joint{i + 1}" joint="joint{i + 1}" gainprm="{k}" biastype="affine" biasprm="0 {-k} {-d}"'
        f' forcerange="{-limit} {limit}"/>'
        for i, (k, d, limit) in enumerate(zip(STIFFNESS_NM_RAD, DAMPING_NM_S_RAD, TORQUE_LIMIT_NM, strict=True))
    )
    fingers = ''.join(
        f'<general name="{side}_finger" joint="{side}_finger" gainprm="{FINGER_STIFFNESS_N_M}" biastype="affine"'
        f' biasprm="0 {-FINGER_STIFFNESS_N_M} -60"'
        f' forcerange="{-FINGER_FORCE_N} {FINGER_FORCE_N}"/>'
        for side in ('left', 'right')
    )
    return joints + fingers


def _text(values: Any) -> str:
    return ' '.join(f'{float(v):.10g}' for v in values)


# Small rigid-body algebra on poses (x, y, z, qw, qx, qy, qz): scalar code, as it runs at every control step.

Vector = Sequence[float] | FloatArray


def multiply(a: Vector, b: Vector) -> list[float]:
    """The product of two wxyz quaternions."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return [
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    ]


def conjugate(q: Vector) -> list[float]:
    return [q[0], -q[1], -q[2], -q[3]]


def rotate(q: Vector, v: Vector) -> list[float]:
    """The vector `v` turned by the quaternion `q`."""
    w, x, y, z = q
    tx, ty, tz = 2 * (y * v[2] - z * v[1]), 2 * (z * v[0] - x * v[2]), 2 * (x * v[1] - y * v[0])
    return [v[0] + w * tx + y * tz - z * ty, v[1] + w * ty + z * tx - x * tz, v[2] + w * tz + x * ty - y * tx]


def quaternion_from_vector(rotation_rad: Vector) -> list[float]:
    """The quaternion of an axis-angle vector."""
    x, y, z = rotation_rad
    angle = math.sqrt(x * x + y * y + z * z)
    scale = 0.5 - angle * angle / 48 if angle < 1e-6 else math.sin(angle / 2) / angle
    return [math.cos(angle / 2), x * scale, y * scale, z * scale]


def compose(a: Vector, b: Vector) -> FloatArray:
    """The pose of `b`, given in the frame `a`, in the frame that `a` is given in."""
    x, y, z = rotate(a[3:], b[:3])
    return np.array([a[0] + x, a[1] + y, a[2] + z, *multiply(a[3:], b[3:])])


def yaw_pose(x_m: float, y_m: float, z_m: float, *, yaw_rad: float = 0.0) -> FloatArray:
    """A pose turned about z alone."""
    return np.array([x_m, y_m, z_m, math.cos(yaw_rad / 2), 0.0, 0.0, math.sin(yaw_rad / 2)])


def matrix_from_quaternion(q: Vector) -> FloatArray:
    w, x, y, z = (float(v) for v in q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
