"""Where a camera stands, from an arm that moved: hand-eye calibration, for a camera on the gripper or beside the arm.

With the arm's poses A (world from gripper) and what the camera saw of a target, B (camera from target), a camera on the
gripper has A X B = Y: X is gripper from camera, Y where the target stands. A camera beside the arm, with the target on
the gripper, has the same with A inverted: X is world from camera, Y gripper from target. X comes from the relative
motions in closed form (Park and Martin, 1994: AX = XB), and X and Y together are then refined over all poses. What the
motions do not determine is refused, and what they do has its standard error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.box import FloatArray
from robotrials.measure.geometry.calibration import CalibrationStanding, check_calibration
from robotrials.measure.geometry.camera_score import static_scene
from robotrials.measure.geometry.view import view_from_camera
from robotrials.record import Store
from robotrials.record.footage import KnownScene, View, check_rigid
from robotrials.value import dataclass

LEAST_POSES = 4
MOST_POSES = 400  # relative motions are pairs of them
LEAST_TURN_RAD = math.radians(5.0)  # rms of the arm's turns about a second axis; less says little of X's place
FAR_OFF = 5.0  # times the median residual: a pose that was seen wrong
MOST_LEFT_OUT = 0.25
# Beyond these the poses do not belong together: another frame, inverted poses, or a target that slipped.
MOST_RESIDUAL_RAD, MOST_RESIDUAL_M = math.radians(3.0), 0.03
# Beyond these the answer is no calibration: views are corrected by up to 8 degrees, and not by place alone.
MOST_ERROR_RAD, MOST_ERROR_M = math.radians(1.5), 0.02
FLOOR = 1e-9  # of residuals, for poses without noise
STILL_RAD, STILL_M = math.radians(2.0), 0.01  # an arm that moved less shows nothing new


@dataclass(frozen=True, slots=True, eq=False)
class HandEye:
    """A camera's pose by hand-eye calibration, and how well the poses agree with it."""

    camera: FloatArray  # (4, 4): gripper from camera, or world from camera
    target: FloatArray  # (4, 4): world from target, or gripper from target
    residual_rad: float  # rms over the poses
    residual_m: float
    error_rad: float  # standard error of the camera's turn, over all axes
    error_m: float  # and of its place
    n_poses: int
    n_left_out: int


def solve_hand_eye(arm: FloatArray, seen: FloatArray, *, on_gripper: bool) -> HandEye:
    """X of poses (N, 4, 4): `arm` is world from gripper, `seen` is camera from target.

    `on_gripper`: the camera rides on the gripper and the target stands; otherwise the other way round.
    """
    if arm.shape != seen.shape or arm.ndim != 3 or arm.shape[1:] != (4, 4):
        raise InputError(f'hand-eye wants as many (4, 4) poses of each kind, found {arm.shape} and {seen.shape}')
    for name, poses in (('world_from_gripper', arm), ('camera_from_target', seen)):
        for number, pose in enumerate(poses):
            check_rigid(pose.ravel().tolist(), f'{name} of pose {number}')
    kept = np.arange(len(arm))
    if len(kept) > MOST_POSES:
        kept = np.linspace(0, len(arm) - 1, MOST_POSES).round().astype(int)
    moved = arm if on_gripper else np.linalg.inv(arm)
    fit, norms = _solved(moved[kept], seen[kept])
    near = norms <= FAR_OFF * max(float(np.median(norms)), FLOOR)
    n_left_out = int((~near).sum())
    if n_left_out > MOST_LEFT_OUT * len(kept):
        raise NotEstimable(
            f'{n_left_out} of {len(kept)} poses disagree with the others; was the target seen wrong, or did it slip?'
        )
    if n_left_out:
        fit, _ = _solved(moved[kept[near]], seen[kept[near]])
    _check(fit)
    return HandEye(**{**fit, 'n_left_out': n_left_out})


def _check(fit: Mapping[str, Any]) -> None:
    """Raise NotEstimable for poses that do not belong together, or leave the camera open."""
    residual = f'{math.degrees(fit["residual_rad"]):.2f} degrees and {1000 * fit["residual_m"]:.1f} mm'
    if fit['residual_rad'] > MOST_RESIDUAL_RAD or fit['residual_m'] > MOST_RESIDUAL_M:
        raise NotEstimable(
            f'the poses do not agree with any one camera (rms {residual}): is the camera on the gripper or beside it '
            '(--mount), and are poses world from gripper and camera from target?'
        )
    if fit['error_rad'] > MOST_ERROR_RAD or fit['error_m'] > MOST_ERROR_M:
        error = f'{math.degrees(fit["error_rad"]):.2f} degrees and {1000 * fit["error_m"]:.1f} mm'
        raise NotEstimable(f'the camera is known to {error} only; take more poses, turned further about other axes')


def _solved(arm: FloatArray, seen: FloatArray) -> tuple[dict[str, Any], FloatArray]:
    """The fit of A X B = Y, and the norm of each pose's residual in units of their spread."""
    from scipy.optimize import least_squares

    camera = _closed_form(arm, seen)
    target = _mean_pose(arm @ camera @ seen)
    scale = np.ones(2)
    for _ in range(3):
        start_camera, start_target, spread = camera, target, scale

        def residuals(step: FloatArray, c: FloatArray = start_camera, t: FloatArray = start_target,
                      s: FloatArray = spread) -> FloatArray:  # fmt: skip
            turns, places = _left(arm, seen, c @ _small(step[:6]), t @ _small(step[6:]))
            return np.concatenate([(turns / s[0]).ravel(), (places / s[1]).ravel()])

        fit = least_squares(residuals, np.zeros(12), x_scale='jac')
        camera, target = camera @ _small(fit.x[:6]), target @ _small(fit.x[6:])
        turns, places = _left(arm, seen, camera, target)
        scale = np.maximum([np.sqrt((turns**2).mean()), np.sqrt((places**2).mean())], FLOOR)
    n_free = 6 * len(arm) - 12
    whitened = np.concatenate([turns / scale[0], places / scale[1]], axis=1)
    jacobian = np.asarray(fit.jac, dtype=np.float64) * np.repeat(spread / scale, 3 * len(arm))[:, None]
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * float((whitened**2).sum()) / n_free
    return {
        'camera': camera, 'target': target, 'n_poses': len(arm),
        'residual_rad': float(np.sqrt((turns**2).sum(axis=1).mean())),
        'residual_m': float(np.sqrt((places**2).sum(axis=1).mean())),
        'error_rad': float(np.sqrt(np.trace(covariance[:3, :3]))),
        'error_m': float(np.sqrt(np.trace(covariance[3:6, 3:6]))),
    }, np.linalg.norm(whitened, axis=1)  # fmt: skip


def _closed_form(arm: FloatArray, seen: FloatArray) -> FloatArray:
    """X of AX = XB over all pairs of poses; refuses motions that leave it open."""
    n = len(arm)
    if n < LEAST_POSES:
        raise NotEstimable(f'{n} poses, wanted at least {LEAST_POSES} with the arm turned about different axes')
    first, second = np.triu_indices(n, 1)
    a = np.linalg.inv(arm[second]) @ arm[first]
    b = seen[second] @ np.linalg.inv(seen[first])
    alpha, beta = _vectors(a[:, :3, :3]), _vectors(b[:, :3, :3])
    spread = np.sqrt(np.linalg.eigvalsh(alpha.T @ alpha / len(alpha)).clip(0))
    if spread[1] < LEAST_TURN_RAD:
        about = 'hardly at all' if spread[2] < LEAST_TURN_RAD else 'about one axis only'
        raise NotEstimable(
            f'the arm turned {about} (rms {math.degrees(spread[2]):.1f} and {math.degrees(spread[1]):.1f} degrees '
            f'about the first two axes, wanted {math.degrees(LEAST_TURN_RAD):g}); the camera is not determined: turn '
            'the tool about different axes between poses'
        )
    u, _, vt = np.linalg.svd(alpha.T @ beta)
    turn = u @ np.diag([1, 1, np.linalg.det(u @ vt)]) @ vt
    left = (a[:, :3, :3] - np.eye(3)).reshape(-1, 3)
    right = (b[:, :3, 3] @ turn.T - a[:, :3, 3]).ravel()
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = turn, np.linalg.lstsq(left, right, rcond=None)[0]
    return pose


def _left(arm: FloatArray, seen: FloatArray, camera: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Turns (N, 3) and places (N, 3) by which each pose misses the target."""
    missed = np.linalg.inv(target) @ arm @ camera @ seen
    return _vectors(missed[:, :3, :3]), missed[:, :3, 3]


def _vectors(turns: FloatArray) -> FloatArray:
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_matrix(turns).as_rotvec())


def _small(step: FloatArray) -> FloatArray:
    from scipy.spatial.transform import Rotation

    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = Rotation.from_rotvec(step[:3]).as_matrix(), step[3:]
    return pose


def _mean_pose(poses: FloatArray) -> FloatArray:
    """The mean place, and the turn nearest to all turns."""
    u, _, vt = np.linalg.svd(poses[:, :3, :3].sum(axis=0))
    pose = np.eye(4)
    pose[:3, :3] = u @ np.diag([1, 1, np.linalg.det(u @ vt)]) @ vt
    pose[:3, 3] = poses[:, :3, 3].mean(axis=0)
    return pose


def matrices(poses: FloatArray) -> FloatArray:
    """(N, 4, 4) of x y z qw qx qy qz (N, 7)."""
    from scipy.spatial.transform import Rotation

    if poses.ndim != 2 or poses.shape[1] != 7 or not np.isfinite(poses).all():
        raise InputError(f'poses of shape {poses.shape}, wanted x y z qw qx qy qz per row')
    if np.any(np.abs(np.linalg.norm(poses[:, 3:], axis=1) - 1) > 0.01):
        raise InputError('poses whose quaternions are not of length 1')
    full = np.tile(np.eye(4), (len(poses), 1, 1))
    full[:, :3, :3] = Rotation.from_quat(poses[:, [4, 5, 6, 3]]).as_matrix()
    full[:, :3, 3] = poses[:, :3]
    return full


def moved_on(arm: FloatArray) -> list[int]:
    """The numbers of poses (N, 4, 4) each of which differs from the last one that was taken."""
    numbers = [0]
    for number in range(1, len(arm)):
        step = np.linalg.inv(arm[numbers[-1]]) @ arm[number]
        turn = float(np.linalg.norm(_vectors(step[None, :3, :3])))
        if turn >= STILL_RAD or float(np.linalg.norm(step[:3, 3])) >= STILL_M:
            numbers.append(number)
    return numbers


def read_poses(path: Path) -> tuple[FloatArray, FloatArray]:
    """The arm's poses and the target's of a file, (N, 4, 4) each."""
    try:
        rows = json.loads(path.read_bytes())['poses']
        arm, seen = (
            np.array([row[name] for row in rows], dtype=np.float64).reshape(len(rows), 4, 4)
            for name in ('world_from_gripper', 'camera_from_target')
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(
            f'{path}: no poses ({type(error).__name__}: {error}); wanted {{"poses": [{{"world_from_gripper": [16 '
            'numbers by rows], "camera_from_target": [16]}, ...]}'
        ) from error
    return arm, seen


def recorded_poses(store: Store, target: str) -> tuple[FloatArray, FloatArray]:
    """The same of the steps of a store's episodes at which the arm had moved on; `target` is an extra signal."""
    arm: list[FloatArray] = []
    seen: list[FloatArray] = []
    signals: set[str] = set()
    for _, trajectory in store.trajectories():
        signals |= set(trajectory.extra)
        if target not in trajectory.extra or trajectory.ee_pose is None:
            continue
        sight = np.asarray(trajectory.extra[target], dtype=np.float64)
        if sight.ndim != 2 or sight.shape[1] != 7:
            raise InputError(f'{store.path}: {target} has shape {sight.shape}, wanted x y z qx qy qz qw per step')
        gripper = matrices(np.asarray(trajectory.ee_pose, dtype=np.float64))
        numbers = moved_on(gripper)
        arm.append(gripper[numbers])
        seen.append(matrices(sight[:, [0, 1, 2, 6, 3, 4, 5]])[numbers])
    if not arm:
        raise InputError(
            f'{store.path}: no episode has ee_pose and the signal {target!r}; found '
            f'{", ".join(sorted(signals)) or "none"}. To keep a topic: robotrials import BAG -o STORE '
            '--map extra/target=/aruco/pose'
        )
    return np.concatenate(arm), np.concatenate(seen)


# A camera that is nearly where it should be, by what stands fixed in view: the fit that scores use, over many views.


@dataclass(frozen=True, slots=True, eq=False)
class SceneFit:
    """A camera's pose as the mean over views of the fit to what stands fixed."""

    camera: FloatArray  # (4, 4)
    error_rad: float
    error_m: float
    n_views: int
    n_refused: int
    moved_rad: float  # from where it was said to stand
    moved_m: float


def fit_to_scene(views: Sequence[tuple[View, KnownScene]]) -> SceneFit:
    """The mean pose of one camera over views, each corrected against its scene; refused ones are counted."""
    poses, doubts, refusal = [], [], 'no view'
    for view, known in views:
        taken = view_from_camera(view.camera, view.rgb, depth_m=view.depth_m)
        check = check_calibration(taken, static_scene(known), parameters=6)
        if check.standing is CalibrationStanding.REFUSED:
            refusal = check.reason
        else:
            poses.append(check.view.base_from_camera)
            doubts.append(check.doubt_rad / 1.96)
    if len(poses) < 2:
        raise NotEstimable(f'{len(poses)} of {len(views)} views fit what stands fixed, wanted 2 or more: {refusal}')
    camera = _mean_pose(np.array(poses))
    off = np.linalg.inv(camera) @ np.array(poses)
    turns, places = _vectors(off[:, :3, :3]), off[:, :3, 3]
    first = views[0][0].camera.world_from_camera
    assert first is not None  # checked by the view above
    moved = np.linalg.inv(first) @ camera
    n = len(poses)
    # Views of one scene share the error of the fit to it, so that its doubt is not averaged away.
    return SceneFit(
        camera, math.hypot(float(np.sqrt((turns**2).sum() / (n - 1) / n)), float(np.mean(doubts))),
        float(np.sqrt((places**2).sum() / (n - 1) / n)), n, len(views) - n,
        float(np.linalg.norm(_vectors(moved[None, :3, :3]))), float(np.linalg.norm(moved[:3, 3])),
    )  # fmt: skip
