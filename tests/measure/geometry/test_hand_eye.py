"""Hand-eye calibration: simulated arms as truth, OpenCV's closed form as published, and motions that leave it open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.hand_eye import _closed_form, read_poses, solve_hand_eye
from robotrials.record.footage import read_camera_poses

Array = np.ndarray[Any, Any]


def rigid(vector: Array, place: Array) -> Array:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = Rotation.from_rotvec(vector).as_matrix(), place
    return pose


def simulated(
    seed: int, *, n: int = 15, noise_rad: float = np.radians(0.3), noise_m: float = 0.002, on_gripper: bool = True,
    axes: tuple[float, float, float] = (0.5, 0.5, 0.5),
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The arm's poses, what a noisy camera saw of the target, and where the camera is."""
    rng = np.random.default_rng(seed)
    camera, target = (rigid(rng.normal(0, 1, 3), rng.normal(0, s, 3)) for s in (0.1, 0.5))
    arm = np.array([rigid(rng.normal(0, 1, 3) * axes, rng.normal(0, 0.3, 3)) for _ in range(n)])
    seen = np.linalg.inv(camera) @ np.linalg.inv(arm if on_gripper else np.linalg.inv(arm)) @ target
    noise = [rigid(rng.normal(0, noise_rad, 3), rng.normal(0, noise_m, 3)) for _ in range(n)]
    return arm, seen @ np.array(noise), camera


def off(camera: Array, truth: Array) -> tuple[float, float]:
    left = np.linalg.inv(truth) @ camera
    return float(np.linalg.norm(Rotation.from_matrix(left[:3, :3]).as_rotvec())), float(np.linalg.norm(left[:3, 3]))


def test_the_closed_form_is_park_and_martins_as_opencv_has_it() -> None:
    """cv2.calibrateHandEye(..., CALIB_HAND_EYE_PARK) of OpenCV 4.14.0 on these poses, all pairs of them."""
    arm, seen, _ = simulated(0)
    camera = _closed_form(arm, seen)
    assert camera[:3, :3].ravel() == pytest.approx(PARK_TURN, abs=1e-9)
    assert camera[:3, 3] == pytest.approx(PARK_PLACE_M, abs=1e-9)


PARK_TURN = (
    0.794732891382,
    -0.600609097287,
    -0.087569079083,
    0.584786173103,
    0.796329036978,
    -0.154548363345,
    0.162556953411,
    0.071615481021,
    0.984096773583,
)
PARK_PLACE_M = (0.007654048898, -0.056388677535, 0.036836550257)


@pytest.mark.parametrize('on_gripper', [True, False])
def test_the_refined_camera_is_nearer_than_the_closed_form_and_its_error_is_as_stated(on_gripper: bool) -> None:
    """Over 40 arms: rms error against the stated standard error, and against Park and Martin alone."""
    errors, stated, closed = [], [], []
    for seed in range(40):
        arm, seen, truth = simulated(seed, on_gripper=on_gripper)
        fit = solve_hand_eye(arm, seen, on_gripper=on_gripper)
        errors.append(off(fit.camera, truth))
        stated.append((fit.error_rad, fit.error_m))
        closed.append(off(_closed_form(arm if on_gripper else np.linalg.inv(arm), seen), truth))
    rms, told, alone = (np.sqrt(np.square(v).mean(axis=0)) for v in (errors, stated, closed))
    assert (rms < 1.25 * told).all(), (rms, told)
    assert (rms > 0.8 * told).all(), (rms, told)
    assert (rms < 0.75 * alone).all(), (rms, alone)
    assert rms[1] < 0.003


def test_without_noise_the_camera_is_exact() -> None:
    arm, seen, truth = simulated(1, noise_rad=0.0, noise_m=0.0)
    fit = solve_hand_eye(arm, seen, on_gripper=True)
    assert off(fit.camera, truth) == pytest.approx((0, 0), abs=1e-7)
    assert fit.n_left_out == 0


def test_a_pose_that_was_seen_wrong_is_left_out_and_counted() -> None:
    arm, seen, truth = simulated(2, n=20)
    seen[7] = seen[7] @ rigid(np.array([0.8, 0.1, 0]), np.array([0.2, 0, 0.1]))
    fit = solve_hand_eye(arm, seen, on_gripper=True)
    assert fit.n_left_out == 1
    assert off(fit.camera, truth)[1] < 0.006


@pytest.mark.parametrize(
    ('changes', 'match'),
    [
        ({'n': 3}, '3 poses, wanted at least 4'),
        ({'axes': (0.0, 0.0, 0.6)}, 'about one axis only'),
        ({'axes': (0.001, 0.001, 0.001)}, 'hardly at all'),
        ({'axes': (0.12, 0.12, 0.12), 'n': 5, 'noise_rad': 0.03, 'noise_m': 0.01}, 'known to .* only'),
    ],
)
def test_motions_that_leave_the_camera_open_are_refused(changes: dict[str, Any], match: str) -> None:
    arm, seen, _ = simulated(3, **changes)
    with pytest.raises(NotEstimable, match=match):
        solve_hand_eye(arm, seen, on_gripper=True)


def test_poses_of_the_other_mount_are_refused() -> None:
    arm, seen, _ = simulated(4, on_gripper=True)
    with pytest.raises(NotEstimable, match=r'disagree|do not agree'):
        solve_hand_eye(arm, seen, on_gripper=False)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / 'poses.json'
    beyond_floats = f'{{"poses": [{{"world_from_gripper": [{10**400}]}}]}}'
    for text in ('{', '{"poses": 3}', '{"poses": [{"world_from_gripper": [1]}]}', '[]', beyond_floats):
        path.write_text(text)
        with pytest.raises(InputError, match='world_from_gripper'):
            read_poses(path)
    arm, seen, _ = simulated(5)
    arm[2, :3, :3] *= 1.2
    with pytest.raises(InputError, match='world_from_gripper of pose 2 is not a rotation'):
        solve_hand_eye(arm, seen, on_gripper=True)


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, '-m', 'robotrials.cli', *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_file_of_poses_becomes_extrinsics_by_the_verb(tmp_path: Path) -> None:
    arm, seen, truth = simulated(6, on_gripper=False)
    poses = [{'world_from_gripper': a.ravel().tolist(), 'camera_from_target': b.ravel().tolist()}
             for a, b in zip(arm, seen, strict=True)]  # fmt: skip
    (tmp_path / 'poses.json').write_text(json.dumps({'poses': poses}))
    told = run(tmp_path, 'geometry', 'calibrate', 'poses.json', 'front', '--format', 'json')
    assert told.returncode == 0, told.stderr
    rows = {row['quantity']: row['value'] for row in json.loads(told.stdout)[0]['rows']}
    pose = read_camera_poses(tmp_path / 'cameras.json')['front']
    assert off(pose.matrix, truth)[1] < 0.008
    assert rows['standard error (mm)'] == pytest.approx(1000 * (pose.error_m or 0), abs=1e-3)
    (tmp_path / 'poses.json').write_text(json.dumps({'poses': poses[:3]}))
    refused = run(tmp_path, 'geometry', 'calibrate', 'poses.json', 'side')
    assert refused.returncode != 0
    assert '3 poses, wanted at least 4' in ' '.join(refused.stderr.split())
    assert set(read_camera_poses(tmp_path / 'cameras.json')) == {'front'}


@pytest.mark.platform
def test_a_recorded_calibration_in_a_bag_places_the_camera_of_another(tmp_path: Path) -> None:
    """The whole way: a bag of an arm and a marker, imported; the verb; a bag of views placed by what it wrote."""
    from tests.formats.depth_bag import FRAME_NS, START_NS, Messages, Rows, driver_rows, quaternion
    from tests.formats.test_rgbd import pose, view

    arm, seen, truth = simulated(7, n=25, on_gripper=False)
    ros, rows = Messages(), []
    kind = ros.kind
    for i, (a, b) in enumerate(zip(arm, seen, strict=True)):
        at = START_NS + i * FRAME_NS
        point = kind('geometry_msgs/msg/Point')(*map(float, b[:3, 3]))
        turn = kind('geometry_msgs/msg/Quaternion')(*quaternion(b[:3, :3]))
        stamped = kind('geometry_msgs/msg/PoseStamped')(
            ros.header(at, 'camera'), kind('geometry_msgs/msg/Pose')(point, turn)
        )
        rows.append(('/aruco/pose', 'geometry_msgs/msg/PoseStamped', at, stamped))
        rows.append(('/tf', 'tf2_msgs/msg/TFMessage', at, ros.tf('tool0', 'base', a, at)))
    ros.write(tmp_path / 'calibration', rows)
    said = ['--set', 'policy=none', '--set', 'task=calibrate', '--set', 'outcome=success']
    told = run(tmp_path, 'import', 'calibration', '--to', 'store', *said, '--map', 'ee_pose=/tf:base->tool0',
               '--map', 'extra/target=/aruco/pose')  # fmt: skip
    assert told.returncode == 0, told.stderr
    told = run(tmp_path, 'geometry', 'calibrate', 'store', 'front', '--target', 'target')
    assert told.returncode == 0, told.stderr
    placed = read_camera_poses(tmp_path / 'cameras.json')['front']
    assert off(placed.matrix, truth)[1] < 0.006
    views: Rows = driver_rows(
        ros, {'front': view('front', pose(), 90)}, {'front': view('front', pose(), 90)}, has_tf=False
    )
    ros.write(tmp_path / 'run', views)
    told = run(tmp_path, 'import', 'run', '--to', 'runs', *said, '--set', 'calibration=cameras.json')
    assert told.returncode == 0, told.stderr
    from robotrials.record import read_store
    from robotrials.record.footage import END, kept_views

    store = read_store(tmp_path / 'runs')
    (episode,) = store.episodes()
    kept = kept_views(store.path / 'media', *episode.key)
    assert kept is not None
    assert kept.moment(END)['front'].camera.world_from_camera == pytest.approx(placed.matrix)
