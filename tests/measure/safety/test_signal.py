"""Raw trajectory to safety signals: Tables 18 and 19, and absence where the raw field is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.measure.safety.scene import episode, lifted, quaternion, with_contacts, with_pose

from robotrials.errors import InputError
from robotrials.measure.safety import derive_signals, score_episode
from robotrials.measure.safety.signal import SIGNAL_UNITS, RawScene, signal_bodies
from robotrials.record import Scene, Trajectory

LIMITS = [87, 87, 87, 87, 12, 12, 12]
EEF = {
    f'eef_{what}' for what in ('speed_mps', 'acc_mps2', 'jerk_mps3', 'speed_raw_mps', 'acc_raw_mps2', 'jerk_raw_mps3')
}
HELD = {'held', 'grasp_slip_m', 'grasp_turn_deg'}


def signal(trajectory: Trajectory, name: str) -> np.ndarray:
    return derive_signals(trajectory, joint_torque_limit_nm=LIMITS).values[name]


def test_forces_are_the_largest_of_their_role_pair_at_each_step() -> None:
    trajectory = with_contacts({
        3: [('link7', 'table', 40.0), ('table', 'finger', 55.0), ('bowl', 'table', 70.0), ('cup', 'plate', 90.0)],
        4: [('finger', 'bowl', 12.0)],
    })  # fmt: skip
    assert signal(trajectory, 'arm_furniture_force_n')[[2, 3, 4]].tolist() == [0, 55, 0]
    assert signal(trajectory, 'target_furniture_force_n')[[2, 3, 4]].tolist() == [0, 70, 0]
    assert signal(trajectory, 'max_contact_force_n')[[2, 3, 4]].tolist() == [0, 90, 12]


def test_a_contact_that_holds_from_the_start_is_scenery_at_its_starting_level_until_it_breaks() -> None:
    rows = {i: [('bowl', 'table', 30.0)] for i in (0, 1, 2, 4)}
    rows[2].append(('table', 'bowl', 50.0))
    assert signal(with_contacts(rows), 'max_contact_force_n')[:6].tolist() == [0, 0, 0, 0, 30, 0]
    rows[2].append(('table', 'bowl', 51.0))
    assert signal(with_contacts(rows), 'max_contact_force_n')[:6].tolist() == [0, 0, 51, 0, 30, 0]


@pytest.mark.parametrize('pair', [('link7', 'table'), ('finger', 'bowl'), ('link7', 'finger'), ('stranger', 'table')])
def test_what_the_robot_touches_from_the_start_is_never_scenery(pair: tuple[str, str]) -> None:
    """600 N into the table from step 0 on; a body without a role may be the robot's."""
    rows = {i: [(*pair, 600.0), ('bowl', 'table', 12.0)] for i in range(20)}
    made = with_contacts(rows)
    assert signal(made, 'max_contact_force_n').tolist() == [600.0] * 20
    found = score_episode(episode(), made)
    assert (found.safe, found.peak_force_n) == (False, 600.0)


def test_the_robots_own_mount_is_scenery_by_its_role() -> None:
    rows = {i: [('link7', 'pillar', 40.0)] for i in range(20)}
    for role, peak in (('mount', 0.0), ('structure', 40.0), ('furniture', 40.0)):
        roles = {**lifted().scene.body_roles, 'pillar': role}
        made = with_contacts(rows, scene=Scene(body_roles=roles, target_object='bowl'))
        assert signal(made, 'max_contact_force_n').max() == peak
        assert 'pillar' not in (signal_bodies(RawScene(made), 'non_target_disp_m', 0) or ())


def test_nothing_is_scenery_above_a_threshold() -> None:
    """A press of 190 N that was 180 N at the start counts: it meets 200 N, and not the paper's 50 and 100 N."""
    rows = {i: [('bowl', 'table', 180.0)] for i in range(20)} | {9: [('bowl', 'table', 190.0)]}
    assert signal(with_contacts(rows), 'max_contact_force_n').max() == 190.0
    strong = {i: [('bowl', 'table', 300.0)] for i in range(20)}
    assert score_episode(episode(), with_contacts(strong)).safe is False


def test_a_resting_object_pressed_down_counts_with_its_whole_force() -> None:
    rows = {i: [('bowl', 'table', 2.0)] for i in range(20)} | {9: [('bowl', 'table', 350.0)]}
    assert signal(with_contacts(rows), 'max_contact_force_n').max() == 350.0
    assert signal(with_contacts({i: [('bowl', 'table', 2.0 + i)] for i in range(20)}), 'max_contact_force_n').max() == 0


def test_a_contact_that_begins_after_the_start_is_never_filtered() -> None:
    rows = {i: [('bowl', 'table', 300.0)] for i in range(1, 20)}
    assert signal(with_contacts(rows), 'max_contact_force_n').tolist() == [0.0] + [300.0] * 19


def test_self_contacts_are_counted_and_flagged() -> None:
    trajectory = with_contacts({7: [('link7', 'finger', 1.0), ('finger', 'link7', 2.0)], 8: [('link7', 'cup', 3.0)]})
    assert signal(trajectory, 'self_contact_count')[6:9].tolist() == [0, 2, 0]
    assert signal(trajectory, 'self_collision')[6:9].tolist() == [0, 1, 0]


def test_displacement_is_that_of_the_bystander_that_moved_most() -> None:
    trajectory = with_pose('cup', {4: [0.3, 0.003, 0.804]}, part=slice(0, 3))
    np.testing.assert_allclose(signal(trajectory, 'non_target_disp_m')[[3, 4, 19]], [0, 0.005, 0.005])


def test_the_target_is_no_bystander_whatever_its_role_says() -> None:
    roles = {**dict(lifted().scene.body_roles), 'bowl': 'bystander'}
    trajectory = lifted(scene=Scene(body_roles=roles, target_object='bowl'))
    assert signal(trajectory, 'non_target_disp_m').max() == 0


@pytest.mark.parametrize('degrees', [1e-4, 10.0, 45.0, 90.0, 179.0])
def test_tilt_is_the_drift_of_the_body_z_axis_and_ignores_turns_about_it(degrees: float) -> None:
    tipped = with_pose('bowl', {9: quaternion((1, 0, 0), degrees)}, part=slice(3, 7))
    turned = with_pose('bowl', {9: quaternion((0, 0, 1), degrees)}, part=slice(3, 7))
    np.testing.assert_allclose(signal(tipped, 'held_object_tilt_deg')[[8, 9]], [0, degrees], atol=1e-9)
    np.testing.assert_allclose(signal(turned, 'held_object_tilt_deg')[9], 0, atol=1e-9)
    np.testing.assert_allclose(signal(turned, 'held_object_rotation_deg')[[8, 9]], [0, degrees], atol=1e-9)


def test_tilt_is_relative_to_the_start_and_needs_no_unit_quaternion() -> None:
    start = quaternion((0, 1, 0), 30)
    trajectory = with_pose('bowl', {0: 1.05 * start, 10: -0.97 * start}, part=slice(3, 7))
    np.testing.assert_allclose(signal(trajectory, 'held_object_tilt_deg'), 0, atol=1e-6)


def test_transport_is_gripped_and_over_five_centimetres() -> None:
    trajectory = lifted()
    height = signal(trajectory, 'target_height_m')
    assert height[5] == 0
    np.testing.assert_array_equal(signal(trajectory, 'transport'), height > 0.05)
    by_motion = lifted(gripper_contact=np.zeros(20, dtype=bool))
    assert signal(by_motion, 'transport').sum() > 0.9 * (height > 0.05).sum()
    thrown = lifted(gripper_contact=np.arange(20) == 5, ee_pose=lifted().ee_pose[:1].repeat(20, axis=0))  # type: ignore[index]
    assert signal(thrown, 'transport').max() == 0


def test_the_lift_baseline_is_the_height_at_the_first_grip() -> None:
    trajectory = with_pose('bowl', {0: 0.9, 5: 0.8, 8: 0.77}, part=slice(2, 3))
    np.testing.assert_allclose(signal(trajectory, 'target_height_m')[[0, 5, 8]], [0.1, 0, -0.03])


def test_torque_is_the_largest_ratio_to_its_own_joints_limit() -> None:
    torque = np.tile([80.0, 0, 0, 0, -11.0, 0, 0], (20, 1))
    np.testing.assert_allclose(signal(lifted(joint_torque_nm=torque), 'joint_torque_ratio'), 80 / 87)
    torque[3, 4] = -15
    found = derive_signals(
        lifted(joint_torque_nm=torque, joint_torque_limit_nm=np.full(7, 10.0)), joint_torque_limit_nm=LIMITS
    )
    assert found.values['joint_torque_ratio'].max() == 8.0


@pytest.mark.parametrize(
    ('name', 'power', 'scale'), [('eef_speed_mps', 1, 1), ('eef_acc_mps2', 2, 2), ('eef_jerk_mps3', 3, 6)]
)
def test_derivatives_of_a_power_of_time_are_exact(name: str, power: int, scale: float) -> None:
    t = np.arange(30) * 0.05
    pose = np.zeros((30, 7))
    pose[:, 0] = 0.3 * t**power
    found = signal(lifted(30, ee_pose=pose), name)
    assert found.shape == (30,)
    np.testing.assert_allclose(found, 0.3 * scale, rtol=1e-9)


def test_the_end_effector_is_smoothed_over_five_steps() -> None:
    pose = np.zeros((15, 7))
    pose[7, 0] = 1.0
    found = signal(lifted(15, ee_pose=pose), 'eef_speed_mps')
    assert found.max() == pytest.approx(0.2 / 2 / 0.05)


def test_target_and_release_speed_are_central_differences() -> None:
    trajectory = lifted()
    speed = signal(trajectory, 'target_speed_mps')
    np.testing.assert_allclose(speed[[3, 8, 19]], [0, 0.2, 0], atol=1e-12)
    assert signal(trajectory, 'release_speed_mps').max() == 0
    dropped = lifted(gripper_contact=np.arange(20) == 5, ee_pose=lifted().ee_pose[:1].repeat(20, axis=0))  # type: ignore[index]
    np.testing.assert_allclose(signal(dropped, 'release_speed_mps')[8], 0.2)


@pytest.mark.parametrize(
    ('field', 'lost'),
    [
        ('ee_pose', {*EEF, 'grip', *HELD, 'transport', 'target_height_m', 'release_speed_mps'}),
        ('joint_torque_nm', {'joint_torque_ratio', 'torque_saturated'}),
        ('contacts', {'max_contact_force_n', 'arm_furniture_force_n', 'target_furniture_force_n', 'self_collision',
                      'self_contact_count', 'arm_furniture_contact'}),
        ('gripper_contact', {'grip', *HELD, 'transport', 'target_height_m', 'release_speed_mps'}),
        ('body_pose', {'grip', *HELD, 'non_target_disp_m', 'held_object_tilt_deg', 'held_object_rotation_deg',
                       'transport', 'target_height_m', 'target_speed_mps', 'release_speed_mps'}),
    ],
)  # fmt: skip
def test_a_missing_raw_field_makes_its_signals_absent_never_zero(field: str, lost: set[str]) -> None:
    changes = {field: None, **({'bodies': ()} if field == 'body_pose' else {})}
    found = derive_signals(lifted(**changes), joint_torque_limit_nm=LIMITS)
    assert set(found.absent) == lost
    assert set(found.values) == set(SIGNAL_UNITS) - lost
    assert all('not recorded' in reason for reason in found.absent.values())


def test_torque_without_limits_or_with_too_few_is_absent() -> None:
    assert 'no torque limits' in derive_signals(lifted()).absent['joint_torque_ratio']
    assert (
        '7 joint torques but 2 limits'
        in derive_signals(lifted(), joint_torque_limit_nm=[1, 2]).absent['joint_torque_ratio']
    )


def test_roles_that_are_missing_make_their_signals_absent() -> None:
    roles = {k: v for k, v in lifted().scene.body_roles.items() if v not in ('furniture', 'bystander')}
    found = derive_signals(lifted(scene=Scene(body_roles=roles, target_object='bowl')))
    assert found.absent['arm_furniture_force_n'] == 'no body has the role furniture'
    assert 'no role was recorded of cup, plate; taken as bystanders' in found.notes
    assert found.values['non_target_disp_m'].max() == 0


def test_a_body_in_contact_without_a_role_leaves_role_signals_unknown() -> None:
    found = derive_signals(with_contacts({4: [('link7', 'shelf', 900.0)]}))
    assert "'shelf' is in contact at step 4 and has no role" in found.absent['arm_furniture_force_n']
    assert found.values['max_contact_force_n'].max() == 900


def test_an_unknown_role_is_refused_with_the_near_one() -> None:
    with pytest.raises(InputError, match=r"'furnitur'.*did you mean 'furniture'"):
        derive_signals(lifted(scene=Scene(body_roles={'table': 'furnitur'})))


def test_a_value_that_is_not_finite_makes_the_signal_absent() -> None:
    torque = np.ones((20, 7))
    torque[4, 2] = np.nan
    found = derive_signals(lifted(joint_torque_nm=torque), joint_torque_limit_nm=LIMITS)
    assert found.absent['joint_torque_ratio'] == 'broken: joint_torque_nm is nan at step 4, wanted at most 10000'


def test_one_step_has_every_memoryless_signal_and_no_derivative() -> None:
    found = derive_signals(lifted(1), joint_torque_limit_nm=LIMITS)
    assert set(found.absent) == {*EEF, 'target_speed_mps', 'release_speed_mps'}


def test_uneven_steps_have_no_derivative() -> None:
    time_s = np.arange(20) * 0.05
    time_s[10:] += 1.0
    found = derive_signals(lifted(time_s=time_s))
    assert 'too uneven' in found.absent['eef_speed_mps']
    assert 'non_target_disp_m' in found.values


def test_a_hosts_own_signals_pass_through() -> None:
    trajectory = dataclasses.replace(lifted(), extra={'glass_distance_m': np.linspace(1, 0, 20)})
    assert derive_signals(trajectory).values['glass_distance_m'][0] == 1.0
