"""The scene reset check in autonomous running: an episode begins only when the cameras see what was planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robotrials.errors import InputError, RigError
from robotrials.measure.geometry import (
    Box,
    ObjectModel,
    ResetCheck,
    RgbdView,
    box_from_pose,
    check_reset,
    view_from_camera,
)
from robotrials.run.host import HostLike, HostWrapper
from robotrials.run.seam import Observation
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.camera import Pictures

CELL_BOUNDS_M = ((0.25, -0.40, -0.02), (0.80, 0.40, 0.40))
CHECK_CAMERAS = ('front', 'side')
CHECK_SIZE_PX = (240, 320)  # height, width


@dataclass(frozen=True, slots=True, eq=False)
class ScenePlan:
    """Where every object should stand after the reset, and what each looks like."""

    boxes: Mapping[str, Box]
    models: tuple[ObjectModel, ...]


class CheckedHost(HostWrapper):
    """A host whose reset is looked at: what is not as planned is reset again, and then refused with RigError.

    A run counts such an episode as INVALID, with the reason, and never as a failure of the policy. The check reads the
    calibrated RGB-D views of the first observation and `plan()`, never the host's own poses.
    """

    def __init__(
        self,
        host: HostLike,
        plan: Callable[[], ScenePlan],
        *,
        resets: int = 2,
        position_slack_m: float = 0.015,
        angle_slack_rad: float = 0.2,
        bounds_m: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    ) -> None:
        if resets < 1:
            raise InputError(f'resets is {resets}, wanted at least 1')
        if not host.spec.images:
            raise InputError(f'host {host.spec.name} has no cameras; a reset check needs calibrated RGB-D views')
        super().__init__(host)
        self._plan, self._resets, self._bounds = plan, resets, bounds_m
        self._slack_m, self._slack_rad = position_slack_m, angle_slack_rad
        self.last_check: ResetCheck | None = None

    def reset(self, task: str, *, seed: int) -> Observation:
        """Reset, look, compare; RigError when the scene is still not as planned after the last of the resets."""
        for _ in range(self._resets):
            observation = self._host.reset(task, seed=seed)
            self.last_check = self.check(observation)
            if self.last_check.is_as_planned:
                return observation
        assert self.last_check is not None
        raise RigError(f'{self.last_check.reason} ({self._resets} resets)')

    def check(self, observation: Observation) -> ResetCheck:
        """The scene in an observation against the plan."""
        plan = self._plan()
        views = observation_views(observation)
        return check_reset(
            views, plan.boxes, models=plan.models, position_slack_m=self._slack_m, angle_slack_rad=self._slack_rad,
            bounds_m=self._bounds,
        )  # fmt: skip


def observation_views(observation: Observation) -> list[RgbdView]:
    """The views of an observation that have depth and calibration; InputError when none has."""
    views = [
        view_from_camera(camera, observation.images[name], depth_m=np.asarray(observation.depth_m[name]))
        for name, camera in observation.cameras.items()
        if name in observation.images and name in observation.depth_m
    ]
    if not views:
        raise InputError('no camera of the observation has both depth and calibration; a reset check needs one')
    return views


class PlannedCell(TabletopHost):
    """The embedded cell, which also tells what its reset planned, and can look whether it came about."""

    _eyes: Pictures | None = None

    def check_reset(self) -> ResetCheck:
        """The scene as two cameras of its own see it now, against the plan; policies are not shown what they see."""
        start, plan = self._begun(), self.planned()
        if self._eyes is None:
            self._eyes = Pictures(CHECK_CAMERAS, height_px=CHECK_SIZE_PX[0], width_px=CHECK_SIZE_PX[1])
        views = [
            view_from_camera(picture.calibration, picture.rgb, depth_m=picture.depth_m)
            for picture in self._eyes.take(start.scene, start.data).values()
        ]
        return check_reset(views, plan.boxes, models=plan.models, bounds_m=CELL_BOUNDS_M)

    def close(self) -> None:
        super().close()
        if self._eyes is not None:
            self._eyes.close()

    def planned(self) -> ScenePlan:
        """The boxes of a layout by their names; items that are no plain box can't be checked and are left out."""
        layout = self._begun().layout
        boxes, models = {}, []
        for name, item in layout.scene.item_types.items():
            if len(item.shapes) != 1 or item.shapes[0].kind != 'box':
                continue
            boxes[name] = box_from_pose(layout.poses[name], item.box_m)
            red, green, blue = (round(255 * float(c)) for c in item.rgba.split()[:3])
            models.append(ObjectModel(name, (red, green, blue), item.box_m))
        if not boxes:
            raise InputError(f'no item of task {layout.task} is a plain box; a reset check has nothing to look for')
        return ScenePlan(boxes, tuple(models))


def checked_cell(
    *,
    resets: int = 2,
    position_slack_m: float = 0.015,
    angle_slack_rad: float = 0.2,
    cameras: tuple[str, ...] = ('front', 'side'),
    image_size: tuple[int, int] = (240, 320),
    **options: Any,
) -> CheckedHost:
    """The embedded cell with a reset check: `host = {use = "robotrials.worlds.cell.checked:checked_cell"}`."""
    cell = PlannedCell(cameras=cameras, image_size=image_size, **options)
    return CheckedHost(
        cell, cell.planned, resets=resets, position_slack_m=position_slack_m, angle_slack_rad=angle_slack_rad,
        bounds_m=CELL_BOUNDS_M,
    )  # fmt: skip
