"""The scene reset check of autonomous running: is the scene that the cameras see the one that was planned?"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.box import Box, box_iou
from robotrials.measure.geometry.pose import box_pose_error
from robotrials.measure.geometry.reconstruct import Reconstruction, reconstruct_boxes
from robotrials.measure.geometry.segment import ObjectModel
from robotrials.measure.geometry.view import Bounds, RgbdView


class ResetFault(enum.StrEnum):
    """What is wrong with one object after a reset."""

    MISSING = 'missing'  # not seen
    DOUBTFUL = 'doubtful'  # seen too badly to tell
    MOVED = 'moved'
    TURNED = 'turned'
    SURPLUS = 'surplus'  # one more object of its look than was planned


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

    The slacks are those of the task: a layout is as planned when a policy could not tell the difference. Objects of one
    look are interchangeable, touching or not: those found are given to the planned places so that the sum of the
    distances is least, and one too many is a fault as well.
    """
    known = {model.name: model for model in models}
    missing = sorted(set(plan) - set(known))
    if missing:
        raise InputError(f'no model of {", ".join(missing)}; a reset check needs the colour of every planned object')
    looks: dict[tuple[object, ...], list[str]] = {}
    for name in plan:
        looks.setdefault((known[name].color_rgb, known[name].size_m), []).append(name)
    found: dict[str, ObjectCheck] = {}
    surplus: list[ObjectCheck] = []
    for names in looks.values():
        try:
            seen = reconstruct_boxes(views, known[names[0]], bounds_m=bounds_m, support_z_m=support_z_m)
        except NotEstimable:
            seen = ()
        given = _assign([plan[name] for name in names], [r.box for r in seen])
        for name, at in zip(names, given, strict=True):
            found[name] = (
                ObjectCheck(name, ResetFault.MISSING, None, None, None, None)
                if at is None
                else _check(name, plan[name], seen[at], position_slack_m, angle_slack_rad, least_confidence)
            )
        surplus += [
            ObjectCheck(names[0], ResetFault.SURPLUS, None, None, None, r) for i, r in enumerate(seen) if i not in given
        ]
    return ResetCheck((*(found[name] for name in plan), *surplus))


def _assign(planned: Sequence[Box], seen: Sequence[Box]) -> list[int | None]:
    """For each planned place the index of the object given to it, so that the sum of distances is least."""
    from scipy.optimize import linear_sum_assignment

    given: list[int | None] = [None] * len(planned)
    if seen:
        apart = np.linalg.norm([[p.center - s.center for s in seen] for p in planned], axis=2)
        for place, at in zip(*linear_sum_assignment(apart), strict=True):
            given[int(place)] = int(at)
    return given


def _check(
    name: str, planned: Box, found: Reconstruction, position_slack_m: float, angle_slack_rad: float, least: float
) -> ObjectCheck:
    error = box_pose_error(found.box, planned)
    fault = None
    if found.fit_confidence < least:
        fault = ResetFault.DOUBTFUL
    elif error.translation_m > position_slack_m:
        fault = ResetFault.MOVED
    elif error.angle_rad > angle_slack_rad:
        fault = ResetFault.TURNED
    return ObjectCheck(name, fault, error.translation_m, error.angle_rad, box_iou(found.box, planned), found)
