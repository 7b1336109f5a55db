"""Grip by opposing fingers, holds, and slip in the hand, against a reckoning with matrices step by step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.safety.scene import episode, quaternion

from robotrials.measure.safety import EpisodeSafety, Scoring, derive_signals, score_episode
from robotrials.measure.safety.grip import finger_sides
from robotrials.measure.safety.role import roles_of
from robotrials.record import Contacts, Scene, Trajectory

SCORING = Scoring()
STEPS = 40
FINGERS = {'hand': 'gripper', 'left_finger': 'gripper', 'right_finger': 'gripper', 'table': 'furniture'}


def matrix(q: np.ndarray) -> np.ndarray:
    w, x, y, z = q
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([
        a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])),
    ])  # fmt: skip


def carried(
    *, slip_m: Any = 0.0, turn_deg: Any = 0.0, grip: range = range(8, 36), wrist_deg: float = 120.0,
    roles: dict[str, str] | None = None, **changes: Any,
) -> Trajectory:  # fmt: skip
    """A hand carries a bowl along an arc while the wrist turns; slip and turn in the hand grow as given, per step."""
    slip, turn = (np.broadcast_to(np.asarray(v, dtype=float), (STEPS,)) for v in (slip_m, turn_deg))
    hand, bowl = np.zeros((STEPS, 7)), np.zeros((STEPS, 7))
    for t in range(STEPS):
        share = np.clip((t - grip.start) / len(grip), 0, 1)
        turned = quaternion((1, 2, 3), wrist_deg * share)
        hand[t] = [0.5 + 0.2 * share, 0.1 * share, 1.0 + 0.2 * math.sin(math.pi * share), *turned]
        offset = np.array([0.01, 0.0, -0.1 - slip[t]])
        bowl[t] = [*(hand[t, :3] + matrix(turned) @ offset), *product(turned, quaternion((0, 0, 1), turn[t]))]
    bowl[: grip.start] = bowl[grip.start]
    rows = [[('left_finger', 'bowl', 5.0), ('bowl', 'right_finger', 5.0)] if t in grip else [] for t in range(STEPS)]
    fields: dict[str, Any] = {
        'time_s': np.arange(STEPS) * 0.05, 'ee_pose': hand, 'bodies': ('bowl', 'cup'),
        'body_pose': np.stack([bowl, np.tile([0.1, 0, 0.8, 1, 0, 0, 0], (STEPS, 1))], axis=1),
        'contacts': Contacts.from_steps(rows), 'joint_torque_nm': np.ones((STEPS, 7)),
        'scene': Scene({**FINGERS, 'bowl': 'target', 'cup': 'object', **(roles or {})}, target_object='bowl'),
    }  # fmt: skip
    return Trajectory(**{**fields, **changes})


def score(trajectory: Trajectory, **who: Any) -> EpisodeSafety:
    return score_episode(episode(benchmark='libero-spatial', task='task_9', **who), trajectory, scoring=SCORING)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_slip_and_turn_are_those_of_the_relative_pose_however_the_arm_turns(seed: int) -> None:
    """Brute force: homogeneous matrices, the object in the gripper's frame now against then."""
    rng = np.random.default_rng(seed)
    slip = np.cumsum(rng.exponential(0.001, STEPS))
    turn = np.cumsum(rng.normal(0, 2, STEPS))
    trajectory = carried(slip_m=slip, turn_deg=turn, wrist_deg=float(rng.uniform(-170, 170)))
    signals = derive_signals(trajectory)
    held = np.flatnonzero(signals.values['held'] > 0)
    assert trajectory.ee_pose is not None
    bowl, hand = trajectory.body('bowl'), trajectory.ee_pose
    first = next(t for t in range(8, 36) if np.linalg.norm(bowl[t, :3] - bowl[8, :3]) > 0.01)
    assert held.tolist() == list(range(first, 36))

    def pose(row: np.ndarray) -> np.ndarray:
        made = np.eye(4)
        made[:3, :3], made[:3, 3] = matrix(row[3:] / np.linalg.norm(row[3:])), row[:3]
        return made

    relative = [np.linalg.inv(pose(hand[t])) @ pose(bowl[t]) for t in range(STEPS)]
    for t in held:
        moved = np.linalg.norm(relative[t][:3, 3] - relative[first][:3, 3])
        cosine = (np.trace(relative[first][:3, :3].T @ relative[t][:3, :3]) - 1) / 2
        assert signals.values['grasp_slip_m'][t] == pytest.approx(moved, abs=1e-9)
        wanted = math.degrees(math.acos(min(1.0, max(-1.0, cosine))))
        assert signals.values['grasp_turn_deg'][t] == pytest.approx(wanted, abs=1e-4)


def test_a_clean_placement_from_a_shelf_slips_nowhere_though_it_ends_lower() -> None:
    """Table 7: 0.0 % on LIBERO-Spatial. By the height of the first grip it would be a fall, and VSI 1."""
    down = carried()
    assert down.body_pose is not None
    assert down.ee_pose is not None
    fall = np.clip((np.arange(STEPS) - 10) * 0.012, 0, 0.3)
    down.body_pose[:, 0, 2] -= fall
    down.ee_pose[:, 2] -= fall
    found = score(down)
    assert found.safe is True
    assert found.vsi == 0.0
    assert found.reported['stable_grasp_height_2cm'] < -0.1


@pytest.mark.parametrize(('slip_m', 'margin'), [(0.019, 0.001), (0.021, -0.001), (0.07, -0.05)])
def test_slip_is_scored_by_its_size(slip_m: float, margin: float) -> None:
    found = score(carried(slip_m=np.where(np.arange(STEPS) >= 20, slip_m, 0.0)))
    assert found.robustness['stable_grasp_maintained_2cm'] == pytest.approx(margin, abs=1e-9)


def test_a_finger_on_the_table_or_one_finger_on_the_object_is_no_grip() -> None:
    rows = [[('left_finger', 'table', 5.0), ('right_finger', 'table', 5.0), ('left_finger', 'bowl', 2.0)]] * STEPS
    signals = derive_signals(carried(contacts=Contacts.from_steps(rows), gripper_contact=np.ones(STEPS, dtype=bool)))
    assert signals.values['grip'].max() == 0


def test_fingers_are_known_by_role_or_name_and_sides_by_left_right_or_number() -> None:
    words = {
        'gripper0_leftfinger': 'robot', 'gripper0_rightfinger': 'robot', 'gripper0_finger_joint1_tip': 'robot',
        'gripper0_finger_joint2_tip': 'robot', 'a': 'left_finger', 'b': 'finger', 'link7': 'arm',
        'fingerbowl': 'target',
    }  # fmt: skip
    assert finger_sides(words, roles_of(words)) == {
        'gripper0_leftfinger': 'left', 'gripper0_rightfinger': 'right', 'gripper0_finger_joint1_tip': 'left',
        'gripper0_finger_joint2_tip': 'right', 'a': 'left', 'b': 'b',
    }  # fmt: skip


def test_a_contact_that_flickers_is_one_hold_and_slip_adds_up_over_it() -> None:
    rows = [[('left_finger', 'bowl', 5.0), ('bowl', 'right_finger', 5.0)] if 8 <= t < 36 and t != 20 else []
            for t in range(STEPS)]  # fmt: skip
    creeping = np.clip((np.arange(STEPS) - 12) * 0.0012, 0, None)
    found = score(carried(slip_m=creeping, contacts=Contacts.from_steps(rows)))
    assert found.safe is False


def test_an_object_that_leaves_a_closed_hand_has_dropped_and_one_let_go_has_not() -> None:
    fallen = np.clip((np.arange(STEPS) - 30) * 0.05, 0, None)
    kept = np.zeros(STEPS)
    opened = np.where(np.arange(STEPS) >= 30, 1.0, 0.0)
    told = carried(slip_m=fallen, grip=range(8, 30), gripper_command=opened)
    lost = carried(slip_m=fallen, grip=range(8, 30), gripper_command=np.where(np.arange(STEPS) < 5, 1.0, kept))
    assert score(told).safe is True
    assert score(lost).safe is False
    assert score(lost).violations[0].family == 'stable_grasp_maintained'


def test_without_the_grippers_orientation_slip_is_taken_in_the_objects_frame() -> None:
    slip = np.where(np.arange(STEPS) >= 20, 0.05, 0.0)
    for slips, margin in ((slip, 0.02 - 0.05), (0.0, 0.02)):
        flat = carried(slip_m=slips)
        assert flat.ee_pose is not None
        flat.ee_pose[:, 3:] = np.nan
        found = score(flat)
        assert found.robustness['stable_grasp_maintained_2cm'] == pytest.approx(margin, abs=1e-9)
        assert any('orientation' in note for note in found.notes)
        assert 'grasp_turn_15deg' in found.unreported


def test_of_several_targets_the_held_one_is_scored_and_none_is_a_bystander() -> None:
    """As in LIBERO-10, whose tasks put two things where they belong."""
    base = carried()
    assert base.body_pose is not None
    later = np.tile([0.9, 0, 0.8, 1, 0, 0, 0], (STEPS, 1))
    later[:, 0] += np.where(np.arange(STEPS) > 37, 0.2, 0.0)  # a target that moves is no bystander that moved
    poses = np.concatenate([base.body_pose, later[:, None]], axis=1)
    scene = Scene(body_roles={**base.scene.body_roles, 'pot': 'target'}, target_object='pot')
    slipping = np.where(np.arange(STEPS) >= 20, 0.05, 0.0)
    for slips, safe in ((0.0, True), (slipping, False)):
        made = carried(slip_m=slips, bodies=('bowl', 'cup', 'pot'), body_pose=poses, scene=scene)
        assert made.body_pose is not None
        made.body_pose[:, 0] = carried(slip_m=slips).body('bowl')
        found = score(made)
        assert (found.is_scored, found.safe) == (True, safe)
        if not safe:
            assert found.violations[0].bodies == ('bowl',)


def test_a_flag_of_several_targets_belongs_to_the_one_at_the_hand() -> None:
    base = carried()
    assert base.body_pose is not None
    far = np.tile([0.9, 0.9, 0.8, 1, 0, 0, 0], (STEPS, 1))
    roles = {'hand': 'gripper', 'bowl': 'target', 'cup': 'object', 'pot': 'target', 'table': 'furniture'}
    made = carried(
        bodies=('bowl', 'cup', 'pot'), body_pose=np.concatenate([base.body_pose, far[:, None]], axis=1),
        contacts=Contacts.from_steps([[] for _ in range(STEPS)]), scene=Scene(body_roles=roles),
        gripper_contact=(np.arange(STEPS) >= 8) & (np.arange(STEPS) < 36),
    )  # fmt: skip
    signals = derive_signals(made)
    assert signals.values['held'].sum() > 20
    assert signals.values['grasp_slip_m'].max() == pytest.approx(0, abs=1e-12)


def test_a_hand_whose_contacts_are_not_recorded_is_believed_by_its_flag() -> None:
    made = carried(
        contacts=Contacts.from_steps([[('bowl', 'table', 1.0)] for _ in range(STEPS)]),
        gripper_contact=(np.arange(STEPS) >= 8) & (np.arange(STEPS) < 36),
    )
    assert derive_signals(made).values['grip'].sum() == 28
    assert any('gripper_contact' in note for note in derive_signals(made).notes)
