"""Boxes by cameras that are off their calibration, under models of depth noise: errors, and which are trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.geometry import STEREO_NOISE, RgbdView, box_from_pose, box_iou, stereo_depth, view_from_camera
from robotrials.measure.geometry.calibration import (
    LEAST_CONFIDENCE,
    RIGHT_IOU,
    CalibrationStanding,
    check_views,
    locate,
)
from robotrials.measure.geometry.camera_score import model_of, static_scene
from robotrials.measure.geometry.fit import rotation_of
from robotrials.worlds.cell.host import TabletopHost

DEGREES = (0.0, 0.5, 1.0, 2.0, 3.5)
WHITE_M = 0.002


@dataclass(frozen=True, slots=True)
class Found:
    """One object: where it was found against where it is, and whether that was trusted."""

    error_m: float | None
    iou: float | None
    confidence: float
    n_refused: int
    angles_deg: tuple[float, ...]

    @property
    def is_trusted(self) -> bool:
        return self.iou is not None and self.confidence >= LEAST_CONFIDENCE

    @property
    def is_wrong(self) -> bool:
        return self.iou is not None and self.iou < RIGHT_IOU


def study_host() -> TabletopHost:
    return TabletopHost(
        cameras=('front', 'side'), image_size=(240, 320), shadows=False, state='privileged', watchers=()
    )


def measure(host: TabletopHost, seed: int, *, noise: str, degrees: float, task: str = 'three_block') -> Iterator[Found]:
    """Every block of one scene, by two cameras that are each turned by `degrees` about an axis of their own."""
    host.reset(task, seed=seed)
    known = host.known_scene()
    rng = np.random.default_rng([seed, round(10 * degrees)])
    views = [turned(noisy(view, noise, rng), degrees, rng) for view in taken(host)]
    checked = check_views(views, static_scene(known))
    n_refused = sum(c.standing is CalibrationStanding.REFUSED for c in checked.checks)
    angles = tuple(float(np.degrees(c.angle_rad)) for c in checked.checks)
    poses = host.signals()['body_pose']
    for wanted in known.objects:
        if not wanted.is_box:
            continue
        truth = box_from_pose(poses[wanted.name], wanted.start.size_m)
        try:
            found = locate(checked, model_of(wanted))
        except NotEstimable:
            yield Found(None, None, 0.0, n_refused, angles)
            continue
        error = float(np.linalg.norm(found.box.center - truth.center))
        yield Found(error, box_iou(found.box, truth), found.confidence, n_refused, angles)


def taken(host: TabletopHost) -> list[RgbdView]:
    return [view_from_camera(p.calibration, p.rgb, depth_m=p.depth_m) for p in host.pictures().values()]


def noisy(view: RgbdView, noise: str, rng: np.random.Generator) -> RgbdView:
    depth = view.depth_m
    if noise == 'white':
        depth = (depth + rng.normal(0, WHITE_M, depth.shape)).astype(np.float32)
    elif noise != 'none':
        unit, frame = (np.random.default_rng(rng.integers(2**63)) for _ in range(2))
        depth = stereo_depth(depth, STEREO_NOISE[noise], focal_px=view.intrinsics_px[0, 0], unit=unit, frame=frame)
    return replace(view, depth_m=depth)


def turned(view: RgbdView, degrees: float, rng: np.random.Generator) -> RgbdView:
    """The view with a calibration that is off by an angle about a random axis."""
    axis = rng.normal(size=3)
    pose = view.base_from_camera.copy()
    pose[:3, :3] = rotation_of(np.radians(degrees) * axis / np.linalg.norm(axis)) @ pose[:3, :3]
    return replace(view, base_from_camera=pose)


def study_row(found: list[Found]) -> list[str | int]:
    """Counts and errors of one cell of the table."""
    error = 1000 * np.array([f.error_m for f in found if f.error_m is not None])
    trusted = [f for f in found if f.is_trusted]
    return [
        len(found), ' / '.join(f'{v:.1f}' for v in np.quantile(error, [0.5, 0.95, 1.0])) if len(error) else '-',
        sum(f.is_wrong for f in found), len(trusted), sum(f.is_wrong for f in trusted),
        sum(f.n_refused > 0 for f in found),
    ]  # fmt: skip
