"""The arm is the published one: kinematics, limits, masses; and the controller keeps to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from robotrials.worlds.cell import panda
from robotrials.worlds.cell import panda as pose
from robotrials.worlds.cell.control import LIMITS, STEP_S, Controller, kinematics


def tool_from_joints(angles_rad: Any) -> Any:
    """Forward kinematics by the table alone: 4x4 base-from-tool, with no simulator."""
    pose = np.eye(4)
    for link, angle in zip(panda.LINKS, angles_rad, strict=True):
        sa, ca, st, ct = math.sin(link.alpha_rad), math.cos(link.alpha_rad), math.sin(angle), math.cos(angle)
        pose = pose @ np.array(
            [
                [ct, -st, 0.0, link.a_m],
                [st * ca, ct * ca, -sa, -sa * link.d_m],
                [st * sa, ct * sa, ca, ca * link.d_m],
                [0.0, 0.0, 0.0, 1.0],
            ]
        )
    sy, cy = math.sin(panda.HAND_YAW_RAD), math.cos(panda.HAND_YAW_RAD)
    hand = np.array([[cy, -sy, 0, 0], [sy, cy, 0, 0], [0, 0, 1, panda.FLANGE_M + panda.TOOL_OFFSET_M], [0, 0, 0, 1.0]])
    return np.asarray(pose @ hand)


def test_simulated_kinematics_are_those_of_the_table() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        angles = rng.uniform(panda.JOINT_LOW_RAD, panda.JOINT_HIGH_RAD)
        expected = tool_from_joints(angles)
        found = kinematics().tool(angles)
        np.testing.assert_allclose(found[:3], expected[:3, 3], atol=1e-12)
        np.testing.assert_allclose(pose.matrix_from_quaternion(found[3:]), expected[:3, :3], atol=1e-12)


def test_reach_and_flange_height_are_the_data_sheets() -> None:
    """Stretched upwards the flange is at 0.333 + 0.316 + 0.384 - 0.107 m above the base (the flange looks down)."""
    stretched = tool_from_joints(np.zeros(7))
    flange_m = stretched[2, 3] + panda.TOOL_OFFSET_M
    assert flange_m == pytest.approx(0.333 + 0.316 + 0.384 - 0.107)
    assert panda.TORQUE_LIMIT_NM.tolist() == [87, 87, 87, 87, 12, 12, 12]
    assert sum(link.mass_kg for link in panda.LINKS) == pytest.approx(16.06, abs=0.01)


def test_inverse_kinematics_reach_the_workspace() -> None:
    down = np.array([0.0, 1.0, 0.0, 0.0])
    for x, y, z in ((0.40, 0.30, 0.03), (0.64, -0.30, 0.03), (0.50, 0.0, 0.4)):
        angles = kinematics().solve(np.array([x, y, z, *down]), np.array(panda.HOME_RAD), iterations=60)
        found = kinematics().tool(angles)
        np.testing.assert_allclose(found[:3], (x, y, z), atol=1e-3)
        assert abs(float(np.dot(found[3:], down))) > 0.9999


def test_an_action_over_the_limits_is_clipped_and_what_was_kept_is_told() -> None:
    controller = Controller(np.array(panda.HOME_RAD), width=1.0)
    speeds = []
    for _ in range(12):
        kept = controller.move_tool(np.array([0.5, 0.0, 0.0, 0.0, 0.0, 3.0]), controller.tool.copy())
        controller.references(0.04)
        speeds.append(np.linalg.norm(kept[:3]) / STEP_S)
        assert np.linalg.norm(kept[3:]) / STEP_S <= LIMITS.turn_rad_s + 1e-9
    assert max(speeds) <= LIMITS.speed_m_s + 1e-9
    assert max(np.diff([0.0, *speeds])) <= LIMITS.acceleration_m_s2 * STEP_S + 1e-9


def test_the_command_can_not_leave_the_workspace_or_run_away_from_the_arm() -> None:
    controller = Controller(np.array(panda.HOME_RAD), width=1.0)
    measured = controller.tool.copy()
    for _ in range(100):
        controller.move_tool(np.array([0.0, 0.0, -0.05, 0.0, 0.0, 0.0]), measured)
    assert np.linalg.norm(controller.tool[:3] - measured[:3]) <= LIMITS.lead_m + 1e-9


def test_joint_references_keep_velocity_and_acceleration_limits() -> None:
    rng = np.random.default_rng(1)
    controller = Controller(np.array(panda.HOME_RAD), width=1.0)
    before = controller.velocity_rad_s
    for _ in range(60):
        controller.move_joints(rng.uniform(panda.JOINT_LOW_RAD, panda.JOINT_HIGH_RAD))
        controller.references(0.04)
        after = controller.velocity_rad_s
        assert np.all(np.abs(after) <= panda.JOINT_VELOCITY_RAD_S + 1e-9)
        assert np.all(np.abs(after - before) <= panda.JOINT_ACCELERATION_RAD_S2 * STEP_S + 1e-9)
        before = after


def test_a_joint_reference_that_fell_behind_does_not_overshoot() -> None:
    start = np.array(panda.HOME_RAD)
    goal = start + np.array([0.8, 0.3, -0.5, 0.4, 0.6, 0.5, 0.9])
    controller = Controller(start, width=1.0)
    for _ in range(120):
        controller.move_joints(goal)
        controller.references(0.04)
        assert np.all((goal - controller.angles_rad) * np.sign(goal - start) >= -1e-3)
    np.testing.assert_allclose(controller.angles_rad, goal, atol=1e-4)
