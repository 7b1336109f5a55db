"""The scene reset check of autonomous running: is the scene that the cameras see the one that was planned?"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trialist.errors import InputError, NotEstimable
from trialist.geometry.box import Box, box_iou
from trialist.geometry.pose import box_pose_error
from trialist.geometry.reconstruct import Reconstruction, reconstruct_box
from trialist.geometry.segment import ObjectModel
from trialist.geometry.view import Bounds, RgbdView


class ResetFault(enum.StrEnum):
    """What is wrong with one object after a reset."""

    MISSING = 'missing'  # not seen
    DOUBTFUL = 'doubtful'  # seen too badly to tell
    MOVED = 'moved'
    TURNED = 'turned'


@dataclass(frozen=True, slots=True, eq=False)
class ObjectCheck:
    """One planned object: where it was found, how far off, and what is wrong, if anything."""

    name: str
    fault: ResetFault | None
    translation_error_m: float | None
    angle_error_rad: float | None
    iou: float | None
    found: Reconstruction | None


@dataclass(frozen=True, slots=True, eq=False)
class ResetCheck:
    """The scene against its plan. A reset with a fault must not start an episode: it would be INVALID."""

    objects: tuple[ObjectCheck, ...]

    @property
    def is_as_planned(self) -> bool:
        return all(check.fault is None for check in self.objects)

    @property
    def reason(self) -> str:
        """What an INVALID episode would say; empty when all is well."""
        told = []
        for check in self.objects:
            if check.fault is not None:
                off = f' by {1000 * check.translation_error_m:.0f} mm' if check.translation_error_m is not None else ''
                told.append(f'{check.name} {check.fault}{off}')
        return f'reset: {"; ".join(told)}' if told else ''


def check_reset(
    views: Sequence[RgbdView],
    plan: Mapping[str, Box],
    *,
    models: Sequence[ObjectModel],
    position_slack_m: float = 0.015,
    angle_slack_rad: float = 0.2,
    least_confidence: float = 0.4,
    bounds_m: Bounds | None = None,
    support_z_m: float | None = None,
) -> ResetCheck:
    """Reconstruct every planned object from calibrated views and compare it with where it should stand.

    The slacks are those of the task: a layout is as planned when a policy could not tell the difference.
    """
    known = {model.name: model for model in models}
    missing = sorted(set(plan) - set(known))
    if missing:
        raise InputError(f'no model of {", ".join(missing)}; a reset check needs the colour of every planned object')
    checks = []
    for name, planned in plan.items():
        try:
            found = reconstruct_box(views, known[name], bounds_m=bounds_m, support_z_m=support_z_m)
        except NotEstimable:
            checks.append(ObjectCheck(name, ResetFault.MISSING, None, None, None, None))
            continue
        checks.append(_check(name, planned, found, position_slack_m, angle_slack_rad, least_confidence))
    return ResetCheck(tuple(checks))


def _check(
    name: str, planned: Box, found: Reconstruction, position_slack_m: float, angle_slack_rad: float, least: float
) -> ObjectCheck:
    error = box_pose_error(found.box, planned)
    fault = None
    if found.confidence < least:
        fault = ResetFault.DOUBTFUL
    elif error.translation_m > position_slack_m:
        fault = ResetFault.MOVED
    elif error.angle_rad > angle_slack_rad:
        fault = ResetFault.TURNED
    return ObjectCheck(name, fault, error.translation_m, error.angle_rad, box_iou(found.box, planned), found)
