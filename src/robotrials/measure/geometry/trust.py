"""Where an object is, by checked cameras, and how far that may be off: the confidence of a reconstructed box.

Everything that a box rests on enters it: what its cameras' fit to the static scene leaves open, the distance between
what two views say, the offset of its outline from the object's pixels, and the evidence of the reconstruction itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.box import Box, FloatArray, box_iou, box_iou_pairs

if TYPE_CHECKING:
    from robotrials.measure.geometry.agreement import ViewAgreement
    from robotrials.measure.geometry.calibration import CalibrationCheck
    from robotrials.measure.geometry.reconstruct import Reconstruction
    from robotrials.measure.geometry.segment import ObjectModel
    from robotrials.measure.geometry.static_scene import StaticScene
    from robotrials.measure.geometry.view import RgbdView

LEAST_CONFIDENCE = 0.5
RIGHT_IOU = 0.6  # a box that overlaps the true one by less is wrong
LEAST_ERROR_M = 0.002
WHOLE_OUTLINE = 0.7  # overlap of drawn and seen outline below which a box is trusted less
STEEPNESS = 4  # of the fall of confidence where an error that is to be expected makes a wrong box
NOISE_FACTOR = 2.4  # error of a box over the residual of its cameras: 95 % are below 1.5, 99 % below 2
MOST_LEAN_RAD = math.radians(25)
LEAN_COST = 1.6  # mean square distance of a box that stands over that of one that leans: more is a lean
LEAN_SLACK_M = 0.0005
OFFSET_SLACK_M = 0.004  # offsets between views and outlines below this are pixels
WAYS = np.array([w for w in product((-1.0, 0.0, 1.0), repeat=3) if any(w)])
WAYS /= np.linalg.norm(WAYS, axis=1)[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class CheckedViews:
    """The views of one moment after the check of their calibration; refused ones are left out."""

    views: tuple[RgbdView, ...]
    checks: tuple[CalibrationCheck, ...]
    scene: StaticScene

    @property
    def residual_m(self) -> float:
        from robotrials.measure.geometry.calibration import Standing

        return max(c.residual_m for c in self.checks if c.standing is not Standing.REFUSED)

    @property
    def turn_rad(self) -> float:
        """What a camera may still be turned by, as a standard deviation."""
        from robotrials.measure.geometry.calibration import Standing

        return max(c.doubt_rad for c in self.checks if c.standing is not Standing.REFUSED) / 2

    @property
    def tolerance_m(self) -> float:
        """How far a point may lie from its surface: about three times the noise that the static scene shows."""
        return float(np.clip(4.5 * self.residual_m, 0.006, 0.02))

    @property
    def refusal(self) -> str:
        """Why no view is left; empty when there is one."""
        return '' if self.views else '; '.join(c.reason for c in self.checks)


def check_views(views: Sequence[RgbdView], scene: StaticScene) -> CheckedViews:
    """Check every view against what stands fixed, and keep those that may be trusted, corrected."""
    from robotrials.measure.geometry.calibration import Standing, check_calibration

    checks = tuple(check_calibration(view, scene) for view in views)
    return CheckedViews(tuple(c.view for c in checks if c.standing is not Standing.REFUSED), checks, scene)


@dataclass(frozen=True, slots=True, eq=False)
class LocatedBox:
    """A box, how far it may be off (95 %), and what that rests on."""

    box: Box
    error_m: float
    agreement: ViewAgreement | None
    found: Reconstruction

    @property
    def confidence(self) -> float:
        """In [0, 1]: of the reconstruction, less where an error that is to be expected would make a wrong box.

        An ordering, no probability; docs/concepts/reconstruction-accuracy.md has how often a trusted box is wrong.
        """
        worst = min(box_iou_pairs([self.box] * len(WAYS), self.moved(self.error_m)))
        return self.found.confidence * self.drawn * min(1.0, float(worst) / RIGHT_IOU) ** STEEPNESS

    @property
    def drawn(self) -> float:
        """In [0, 1]: how well its outline lies on the object's pixels; 1 where no view has it whole."""
        share = None if self.agreement is None else self.agreement.outline_share
        return 1.0 if share is None else min(1.0, share / WHOLE_OUTLINE) ** 2

    def moved(self, by_m: float) -> list[Box]:
        """The box moved by a length, each way."""
        return [Box(self.box.center + by_m * way, self.box.size, self.box.rotation) for way in WAYS]

    def verdict(self, target: Box, threshold: float) -> tuple[bool, float]:
        """Whether it overlaps the target enough, and how sure that is: the share of moved boxes that say the same."""
        reached = box_iou(self.box, target) > threshold
        moved = [b for share in (0.5, 1.0) for b in self.moved(share * self.error_m)]
        same = (box_iou_pairs(moved, [target] * len(moved)) > threshold) == reached
        return reached, self.found.confidence * self.drawn * float(same.mean())


def locate(
    checked: CheckedViews, model: ObjectModel, *, start: Box | None = None, others: Sequence[Box] = ()
) -> LocatedBox:
    """Find an object of known colour and size in checked views; NotEstimable when it is not seen."""
    from robotrials.measure.geometry.agreement import laid_on_outlines, view_agreement
    from robotrials.measure.geometry.reconstruct import identify, reconstruct_boxes
    from robotrials.measure.geometry.segment import supported_masks, whole_patches

    if not checked.views:
        raise NotEstimable(checked.refusal)
    views, tolerance_m = checked.views, checked.tolerance_m
    found = identify(
        reconstruct_boxes(views, model, tolerance_m=tolerance_m, scene=checked.scene), start, others=others
    )
    masks = supported_masks(views, model, checked.scene, tolerance_m=tolerance_m)
    outlines = whole_patches(views, model, masks)
    spread_m = max(2.5 * checked.residual_m, 0.0005)
    box = upright(found.box, found.cloud.point_m, tolerance_m=tolerance_m)
    if found.n_parts == 1:  # of several patches the outline would be of all
        box = laid_on_outlines(box, views, outlines=outlines, depth_spread_m=spread_m, turn_rad=checked.turn_rad)
    agreement = view_agreement(box, views, masks=masks, outlines=outlines, tolerance_m=tolerance_m)
    return LocatedBox(box, _error_m(checked, agreement), agreement, replace(found, box=box))


def upright(box: Box, points: FloatArray, *, tolerance_m: float) -> Box:
    """The box with a face down, where that explains the points as well: things at rest do not lean for nothing."""
    from robotrials.measure.geometry.fit import fit_cost, refine_box, rotation_of

    axis = int(np.argmax(np.abs(box.rotation[2])))
    up = box.rotation[:, axis] * np.sign(box.rotation[2, axis])
    lean = math.acos(min(1.0, float(up[2])))
    if lean > MOST_LEAN_RAD:
        return box
    about = np.cross(up, [0.0, 0.0, 1.0])
    turn = rotation_of(about / max(float(np.linalg.norm(about)), 1e-12) * lean)
    placed = Box(box.center, box.size, turn @ box.rotation)
    placed = refine_box(points, placed, tolerance_m=tolerance_m, turns=(axis,))
    free, stood = (fit_cost(points, b, tolerance_m) for b in (box, placed))
    return placed if stood <= LEAN_COST * free + LEAN_SLACK_M**2 else box


def _error_m(checked: CheckedViews, agreement: ViewAgreement | None) -> float:
    """How far off a box may be (95 %): the noise of its cameras, and what the views disagree by beyond it."""
    noise = math.hypot(LEAST_ERROR_M, NOISE_FACTOR * checked.residual_m)
    if agreement is None:
        return 2 * noise
    told = [agreement.cross_view_m or 0.0, agreement.reprojection_m or 0.0]
    excess = max(max(told) - max(OFFSET_SLACK_M, noise), 0.0)
    return noise + excess if agreement.n_views > 1 else 1.5 * noise + excess
