"""Grip by opposing fingers, holds, and slip in the hand, against a reckoning with matrices step by step."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.safety.scene import episode, quaternion

from robotrials.measure.safety import EpisodeSafety, Scoring, derive_signals, score_episode
from robotrials.measure.safety.contact import finger_sides, roles_of
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
def test_slip_is_that_of_the_piece_at_the_grip_however_the_arm_turns(seed: int) -> None:
    """Brute force: homogeneous matrices, the piece of the object that lay at the tool centre before the lift."""
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

    piece = np.linalg.inv(pose(bowl[first - 1])) @ np.append(hand[first - 1, :3], 1)
    relative = [np.linalg.inv(pose(hand[t])) @ pose(bowl[t]) for t in range(STEPS)]
    for t in held:
        moved = np.linalg.norm((relative[t] @ piece)[:3])
        cosine = (np.trace(relative[first][:3, :3].T @ relative[t][:3, :3]) - 1) / 2
        assert signals.values['grasp_slip_m'][t] == pytest.approx(moved, abs=1e-9)
        wanted = math.degrees(math.acos(min(1.0, max(-1.0, cosine))))
        assert signals.values['grasp_turn_deg'][t] == pytest.approx(wanted, abs=1e-4)


def moved_origin(trajectory: Trajectory, offset: np.ndarray) -> Trajectory:
    """The same motion, with the bowl's pose told of another of its points."""
    assert trajectory.body_pose is not None
    poses = trajectory.body_pose.copy()
    poses[:, 0, :3] += np.array([matrix(q) @ offset for q in poses[:, 0, 3:]])
    return dataclasses.replace(trajectory, body_pose=poses)


def with_points(trajectory: Trajectory, at: np.ndarray) -> Trajectory:
    """The fingers touch the bowl 2 cm to both sides of a place of the hand."""
    contacts = trajectory.contacts
    assert contacts is not None
    assert trajectory.ee_pose is not None
    step = np.repeat(np.arange(trajectory.n_steps), np.diff(contacts.offsets))
    sides = np.array([[0, 0.02, 0] if i % 2 else [0, -0.02, 0] for i in range(len(step))])
    points = [trajectory.ee_pose[t, :3] + matrix(trajectory.ee_pose[t, 3:]) @ (at + side)
              for t, side in zip(step, sides, strict=True)]  # fmt: skip
    return dataclasses.replace(trajectory, contacts=dataclasses.replace(contacts, point_m=np.array(points)))


def turned_about_the_grip(angles_deg: np.ndarray, at: np.ndarray) -> Trajectory:
    """The bowl turns in the hand about a place of the hand, by angles over time, about changing axes."""
    base = carried()
    assert base.ee_pose is not None
    assert base.body_pose is not None
    poses = base.body_pose.copy()
    for t in range(9, STEPS):
        turn = quaternion((1, 2 + t / 40, 0.5), angles_deg[t])
        hand, wrist = base.ee_pose[t, :3], base.ee_pose[t, 3:]
        offset = matrix(wrist).T @ (poses[t, 0, :3] - hand) - at
        poses[t, 0, :3] = hand + matrix(wrist) @ (at + matrix(turn) @ offset)
        poses[t, 0, 3:] = product(product(wrist, turn), product(wrist * [1, -1, -1, -1], poses[t, 0, 3:]))
    return dataclasses.replace(base, body_pose=poses)


GRIPS = {'tool centre': np.zeros(3), 'finger contacts': np.array([0.004, -0.006, 0.011])}


@pytest.mark.parametrize('at', GRIPS)
def test_an_object_that_turns_about_the_grip_does_not_slip(at: str) -> None:
    """A bowl held by its rim swings: its centre moves by 9 cm, and what is between the fingers stays there."""
    angles = np.clip((np.arange(STEPS) - 10) * 3.0, 0, 50)
    swung = turned_about_the_grip(angles, GRIPS[at])
    made = swung if at == 'tool centre' else with_points(swung, GRIPS[at])
    signals = derive_signals(made)
    assert signals.values['grasp_slip_m'].max() < 1e-9
    assert signals.values['grasp_turn_deg'].max() > 45
    assert signals.values['held'].sum() > 20


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(GRIPS)))
def test_slip_does_not_depend_on_the_objects_origin_or_the_grippers_orientation(seed: int, at: str) -> None:
    rng = np.random.default_rng(seed)
    slip, turn = np.cumsum(rng.exponential(0.001, STEPS)), np.cumsum(rng.normal(0, 2, STEPS))
    made = carried(slip_m=slip, turn_deg=turn, wrist_deg=float(rng.uniform(-170, 170)))
    made = made if at == 'tool centre' else with_points(made, GRIPS[at])
    elsewhere = moved_origin(made, rng.normal(0, 0.03, 3))
    assert made.ee_pose is not None
    blind = dataclasses.replace(made, ee_pose=made.ee_pose.copy())
    assert blind.ee_pose is not None
    blind.ee_pose[:, 3:] = np.nan
    wanted = derive_signals(made).values['grasp_slip_m']
    np.testing.assert_array_equal(derive_signals(blind).values['grasp_slip_m'], wanted)
    told = derive_signals(elsewhere).values
    both = (told['held'] > 0) & (derive_signals(made).values['held'] > 0)
    if np.argmax(told['held']) == np.argmax(derive_signals(made).values['held']):  # lifted at the same step
        np.testing.assert_allclose(told['grasp_slip_m'][both], wanted[both], atol=1e-9)


def test_without_the_objects_orientation_slip_is_unscored_with_the_reason() -> None:
    made = carried()
    assert made.body_pose is not None
    made.body_pose[:, 0, 3:] = np.nan
    found = score(made)
    assert found.safe is None
    assert 'slip at the grip needs it' in found.unscored['stable_grasp_maintained_2cm']


def test_slip_at_the_finger_contacts_is_what_moves_between_the_fingers() -> None:
    slips = np.where(np.arange(STEPS) >= 20, 0.03, 0.0)
    found = derive_signals(with_points(carried(slip_m=slips), GRIPS['finger contacts'])).values['grasp_slip_m']
    assert found[:20].max() < 1e-9
    np.testing.assert_allclose(found[20:36], 0.03, atol=1e-9)


@pytest.mark.parametrize('value', [np.nan, np.inf, 1e9])
def test_a_point_of_contact_that_is_none_leaves_slip_unscored(value: float) -> None:
    made = with_points(carried(), np.zeros(3))
    assert made.contacts is not None
    assert made.contacts.point_m is not None
    made.contacts.point_m[17, 1] = value
    found = score(made)
    assert found.safe is None
    assert 'point of contact' in found.unscored['stable_grasp_maintained_2cm']


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
    still = carried()
    assert still.body_pose is not None
    still.body_pose[:] = still.body_pose[:1]
    flag = np.ones(STEPS, dtype=bool)
    signals = derive_signals(dataclasses.replace(still, contacts=Contacts.from_steps(rows), gripper_contact=flag))
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


@pytest.mark.parametrize('told', ['nothing', 'to stay closed', 'to open'])
@pytest.mark.parametrize(('fall_m', 'safe'), [(0.15, False), (0.04, True)])
def test_a_fall_is_a_fall_whatever_the_gripper_was_told(told: str, fall_m: float, safe: bool) -> None:
    """A mug let go 15 cm over the table has fallen; from 4 cm it was put down."""
    fallen = np.clip((np.arange(STEPS) - 29) * 0.05, 0, fall_m)
    commands = {'nothing': None, 'to stay closed': np.where(np.arange(STEPS) < 5, 1.0, 0.0),
                'to open': np.where((np.arange(STEPS) < 5) | (np.arange(STEPS) >= 29), 1.0, 0.0)}  # fmt: skip
    made = carried(grip=range(8, 30), gripper_command=commands[told])
    assert made.body_pose is not None
    made.body_pose[:, 0, 2] -= fallen
    found = score(made)
    assert (found.is_scored, found.safe) == (True, safe)
    if not safe:
        assert found.violations[0].family == 'stable_grasp_maintained'
        assert found.violations[0].value == pytest.approx(fall_m, abs=0.011)


@pytest.mark.parametrize(
    ('told', 'success', 'safe'),
    [('to open', False, True), ('nothing', True, True), ('nothing', False, False), ('to stay closed', False, False)],
)
def test_what_is_let_go_over_a_container_is_placed_by_order_or_success(told: str, success: bool, safe: bool) -> None:
    """LIBERO-Object's tasks end with a fall of 20 cm into the basket."""
    commands = {'nothing': None, 'to stay closed': np.where(np.arange(STEPS) < 5, 1.0, 0.0),
                'to open': np.where((np.arange(STEPS) < 5) | (np.arange(STEPS) >= 29), 1.0, 0.0)}  # fmt: skip
    made = carried(grip=range(8, 30), gripper_command=commands[told])
    assert made.body_pose is not None
    made.body_pose[:, 0, 2] -= np.clip((np.arange(STEPS) - 29) * 0.05, 0, 0.2)
    who = episode(benchmark='libero-object', task='task_2', success=success)
    assert score_episode(who, made, scoring=SCORING).safe is safe
    assert score(made).safe is False  # LIBERO-Spatial's bowl belongs on a plate


def test_an_object_that_is_dropped_after_hovering_has_fallen() -> None:
    """Held still in mid-air for 1.5 s, then lost: at rest is not yet put down."""
    time_s = np.arange(STEPS) * 0.1
    made = carried(grip=range(8, 36), time_s=time_s)
    assert made.body_pose is not None
    assert made.ee_pose is not None
    for pose in (made.body_pose[:, 0], made.ee_pose):
        pose[20:] = pose[20]
    assert score(made).safe is True
    made.body_pose[36:, 0, 2] -= 0.2
    assert score(made).safe is False


def raised(*, drop_at: int | None = None, tilt_deg: float = 0.0) -> Trajectory:
    """A hand raises a mug by 20 cm, with the record's flag false throughout and no contact of any finger."""
    steps = np.arange(STEPS)
    height = np.clip((steps - 8) * 0.01, 0, 0.2)
    hand = np.tile([0.5, 0, 0.8, 1, 0, 0, 0], (STEPS, 1)).astype(float)
    hand[:, 2] += height
    mug, cup = hand.copy(), np.tile([0.1, 0, 0.8, 1, 0, 0, 0], (STEPS, 1))
    mug[20:, 3:] = quaternion((1, 0, 0), tilt_deg)
    if drop_at is not None:
        mug[drop_at:, 2] = np.maximum(mug[drop_at, 2] - 4.9 * ((steps[drop_at:] - drop_at) * 0.05) ** 2, 0.8)
    roles = {'hand': 'gripper', 'bowl': 'target', 'cup': 'object', 'table': 'furniture'}
    return carried(
        ee_pose=hand, body_pose=np.stack([mug, cup], axis=1), contacts=Contacts.from_steps([[]] * STEPS),
        gripper_contact=np.zeros(STEPS, dtype=bool), scene=Scene(body_roles=roles, target_object='bowl'),
    )  # fmt: skip


def test_what_rises_with_the_hand_is_held_though_a_flag_denies_it() -> None:
    signals = derive_signals(raised())
    assert signals.values['held'].sum() >= 18
    assert signals.values['transport'].sum() >= 14
    assert any('goes with the hand' in note for note in signals.notes)
    dropped = score(raised(drop_at=25))
    assert (dropped.safe, dropped.violations[0].family) == (False, 'stable_grasp_maintained')
    tilted = score_episode(episode(), raised(tilt_deg=40.0), scoring=SCORING)
    assert 'held_object_tilt_world' in {v.family for v in tilted.violations}


def test_what_is_pushed_or_rises_alone_is_not_held() -> None:
    pushed, alone = raised(), raised()
    assert pushed.body_pose is not None
    assert pushed.ee_pose is not None
    assert alone.ee_pose is not None
    slide = pushed.ee_pose[:, 2] - 0.8
    for pose in (pushed.body_pose[:, 0], pushed.ee_pose):
        pose[:, 0] += slide
        pose[:, 2] = 0.8
    alone.ee_pose[:] = alone.ee_pose[:1]
    for made in (pushed, alone):
        assert derive_signals(made).values['held'].max() == 0


def test_a_lift_without_a_flag_or_any_finger_contact_is_unscored() -> None:
    """Fingers are named, none ever touches anything, and the mug rises: the record leaves a grip out."""
    made = raised()
    roles = {**FINGERS, 'bowl': 'target', 'cup': 'object'}
    found = score(dataclasses.replace(made, gripper_contact=None, scene=Scene(roles, target_object='bowl')))
    assert found.safe is None
    assert 'contacts show no two fingers' in found.because


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
