"""Depth cameras of a rig as ROS messages: images, calibration and time checked, and the reset held against the plan.

A view is made of a colour image, a depth image aligned to it, and a CameraInfo. Stamps that lie too far apart, sizes
that differ, an encoding that is not known: each is refused, since a score would otherwise rest on it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, NoAnswer, NotEstimable, RigError, UnknownName
from robotrials.formats.ros_signal import make_view as rgbd_view
from robotrials.formats.ros_signal import read_lens
from robotrials.measure.geometry import Box, RgbdView, box_pose_error, locate_solid
from robotrials.measure.geometry.calibration import LEAN_COST, LEAN_SLACK_M, LocatedBox, check_views, locate
from robotrials.measure.geometry.camera_score import box_of, looks_like, model_of, static_scene
from robotrials.measure.geometry.fit import fit_cost, refine_box
from robotrials.measure.geometry.solid import unpack_solid
from robotrials.record.footage import KnownScene, View, check_rigid, read_camera_poses
from robotrials.wire.websocket import RosbridgeLink

IMAGE, COMPRESSED, CAMERA_INFO = (
    'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage', 'sensor_msgs/msg/CameraInfo',
)  # fmt: skip
LARGEST = 1e300  # a whole number can be too long for a float
LEAST_FIT = 0.4  # confidence in a box, below which a reset is doubtful


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthEntry:
    """One RGB-D camera: its topics, where it stands, and how far the stamps of its two images may lie apart.

    `depth` is aligned to colour (RealSense: aligned_depth_to_color; Orbbec: depth registration on), as 16UC1 in
    millimetres or 32FC1 in metres. Where it stands is `world_from_camera` by rows, or its entry in the file
    `calibration` that `robotrials geometry calibrate` wrote; it is checked against what stands fixed, and corrected,
    whenever views are scored.
    """

    color: str
    depth: str
    info: str
    world_from_camera: tuple[float, ...] = ()
    calibration: str = ''
    color_kind: str = 'image'  # or compressed
    depth_kind: str = 'image'
    skew_s: float = 0.034

    def __post_init__(self) -> None:
        if bool(self.world_from_camera) == bool(self.calibration):
            raise InputError('wanted world_from_camera or a file of camera poses (calibration), and not both')
        if self.world_from_camera:
            check_rigid(self.world_from_camera, 'world_from_camera')
        for name in ('color_kind', 'depth_kind'):
            if getattr(self, name) not in ('image', 'compressed'):
                raise InputError(f"{name} is {getattr(self, name)!r}, wanted 'image' or 'compressed'")
        if not self.skew_s > 0:
            raise InputError(f'skew_s is {self.skew_s}, wanted > 0')

    def pose(self, name: str) -> NDArray[np.float64]:
        """World from camera, (4, 4)."""
        if self.world_from_camera:
            return np.reshape(self.world_from_camera, (4, 4)).astype(np.float64)
        poses = read_camera_poses(Path(self.calibration))
        if name not in poses:
            raise UnknownName(f'camera in {self.calibration}', name, poses)
        if not poses[name].world_from_camera:
            raise InputError(f'{self.calibration}: camera {name} rides on the gripper, wanted one that stands')
        return poses[name].matrix

    @property
    def topics(self) -> dict[str, str]:
        """Every topic with its type."""
        kinds = {'image': IMAGE, 'compressed': COMPRESSED}
        return {self.color: kinds[self.color_kind], self.depth: kinds[self.depth_kind], self.info: CAMERA_INFO}


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def stamp_s(message: Mapping[str, Any]) -> float | None:
    """The time in a message's header, of ROS 1 or 2; None where there is none or it is zero."""
    header = message.get('header')
    stamp = header.get('stamp') if isinstance(header, Mapping) else None
    if not isinstance(stamp, Mapping):
        return None
    seconds, rest = stamp.get('sec', stamp.get('secs')), stamp.get('nanosec', stamp.get('nsecs'))
    if not is_number(seconds) or not is_number(rest):
        raise AnswerError(f'a stamp of {dict(stamp)}, wanted sec and nanosec')
    return float(seconds) + 1e-9 * float(rest) or None


def make_view(
    name: str, entry: DepthEntry, color: Mapping[str, Any], depth: Mapping[str, Any], info: Mapping[str, Any],
    *, t_s: float,
) -> View:  # fmt: skip
    """A pinhole view of three messages; what is wrong with them is the rig's fault, not the plan's."""
    try:
        return rgbd_view(name, color, depth, lens=read_lens(info), pose=entry.pose(name), t_s=t_s)
    except InputError as error:
        raise AnswerError(str(error)) from error


class DepthWatch:
    """The depth cameras of a rig on one connection: subscribed once, and asked for views that belong together."""

    def __init__(self, cameras: Mapping[str, DepthEntry], *, timeout_s: float, across_s: float) -> None:
        self._cameras, self._timeout_s, self._across_s = cameras, timeout_s, across_s

    def subscribe(self, link: RosbridgeLink) -> None:
        for entry in self._cameras.values():
            for topic, kind in entry.topics.items():
                link.subscribe(topic, kind)

    def counts(self, link: RosbridgeLink) -> dict[str, int]:
        """How many images of each topic came so far: views are then asked for that came later."""
        link.listen()
        return {t: link.count(t) for e in self._cameras.values() for t in (e.color, e.depth)}

    def take(self, link: RosbridgeLink, *, after: Mapping[str, int], first_s: float | None) -> dict[str, View]:
        """One view of each camera, of images that came after those counted."""
        views, stamps = {}, {}
        for name, entry in self._cameras.items():
            color, depth = self._pair(link, name, entry, after)
            info = link.heard(entry.info)
            message = (
                info.message if info is not None else link.await_news(entry.info, after=0, timeout_s=self._timeout_s)
            )
            at_s = stamp_s(color)
            if at_s is None:
                raise RigError(f'camera {name}: its images have no stamps; nothing says what belongs together')
            stamps[name] = at_s
            views[name] = make_view(
                name, entry, color, depth, message, t_s=at_s - (at_s if first_s is None else first_s)
            )
        spread = max(stamps.values()) - min(stamps.values())
        if spread > self._across_s:
            offsets = ', '.join(f'{name} {s - min(stamps.values()):+.3f}' for name, s in stamps.items())
            raise RigError(f'cameras are {spread:.3f} s apart, wanted at most {self._across_s:g} ({offsets})')
        return views

    def _pair(
        self, link: RosbridgeLink, name: str, entry: DepthEntry, after: Mapping[str, int]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Colour and depth whose stamps are as near as they must be; newer ones are waited for until they are."""
        until, seen, off_s = time.monotonic() + self._timeout_s, dict(after), 0.0
        while True:
            left = max(until - time.monotonic(), 0.001)
            try:
                color = link.await_news(entry.color, after=seen[entry.color], timeout_s=left)
                depth = link.await_news(entry.depth, after=seen[entry.depth], timeout_s=left)
            except NoAnswer:
                if off_s:
                    gap = f'colour and depth are {off_s:+.3f} s apart, wanted at most {entry.skew_s:g}'
                    raise RigError(f'camera {name}: {gap}, and no closer pair arrived') from None
                raise
            stamps = stamp_s(color), stamp_s(depth)
            if stamps[0] is None or stamps[1] is None:
                raise RigError(f'camera {name}: colour or depth has no stamp; nothing says what belongs together')
            off_s = stamps[0] - stamps[1]
            if abs(off_s) <= entry.skew_s:
                return color, depth
            behind = entry.color if off_s < 0 else entry.depth
            seen[behind] = link.count(behind)


def _explains(planned: Box, located: LocatedBox, tolerance_m: float) -> bool:
    """Whether a small thing turned as planned explains its points about as well as the pose that was estimated."""
    points = located.reconstruction.cloud.point_m
    as_planned = refine_box(
        points, Box(located.box.center, planned.size, planned.rotation), tolerance_m=tolerance_m, turns=()
    )
    free, held = (fit_cost(points, box, tolerance_m) for box in (located.box, as_planned))
    return held <= LEAN_COST * free + LEAN_SLACK_M**2


def reset_fault(
    views: Mapping[str, View], known: KnownScene, *, slack_m: float = 0.015, slack_rad: float = 0.2
) -> str:  # fmt: skip
    """What is not as the plan has it, as the cameras see it; empty when all is, and a fault when they cannot tell.

    Plain boxes of one colour are looked for by it, objects with a shape are registered. Cameras are checked against
    what stands fixed first.
    """
    if not known.fixed:
        raise InputError('a reset check needs to know what stands fixed: give `fixed` in the scene')
    taken = [
        RgbdView(n, v.rgb, v.depth_m, v.camera.intrinsics_px, v.camera.world_from_camera)  # type: ignore[arg-type]
        for n, v in views.items()
    ]
    shaped = [o for o in known.objects if o.shape]
    checked = check_views(taken, static_scene(known), parameters=6 if shaped else 3)
    if not checked.views:
        return f'reset: {checked.refusal}'
    faults = []
    plain = [o for o in known.objects if not o.shape and o.is_box and o.color_rgb]
    for wanted in plain:
        alike = [box_of(o.start) for o in plain if o is not wanted and looks_like(o, wanted)]
        planned = box_of(wanted.start)
        try:
            located = locate(checked, model_of(wanted), start=planned, others=alike)
        except NotEstimable:
            faults.append(f'{wanted.name} missing')
            continue
        error = box_pose_error(located.box, planned)
        if located.reconstruction.fit_confidence < LEAST_FIT:
            faults.append(f'{wanted.name} doubtful')
        elif error.translation_m > slack_m:
            faults.append(f'{wanted.name} moved by {1000 * error.translation_m:.0f} mm')
        elif error.angle_rad > slack_rad and not _explains(planned, located, checked.tolerance_m):
            faults.append(f'{wanted.name} turned by {math.degrees(error.angle_rad):.0f} degrees')
    for wanted in shaped:
        try:
            solid = locate_solid(checked, unpack_solid(wanted.shape), support_z_m=checked.scene.lowest_top_m)
        except NotEstimable as why:
            faults.append(f'{wanted.name} missing ({why})')
            continue
        planned = box_of(wanted.start)
        off_m = float(np.linalg.norm(solid.solid.box.center - planned.center))
        turned = min(box_pose_error(box, planned).angle_rad for box in solid.solid.boxes)
        if solid.refusal:
            faults.append(f'{wanted.name} doubtful ({solid.refusal})')
        elif off_m > slack_m:
            faults.append(f'{wanted.name} moved by {1000 * off_m:.0f} mm')
        elif turned > slack_rad + solid.error_rad:
            faults.append(f'{wanted.name} turned')
    return f'reset: {"; ".join(faults)}' if faults else ''
