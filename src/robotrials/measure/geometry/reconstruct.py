"""From calibrated RGB-D views to the box of an object, by its known colour and geometry; never by a simulator's truth.

Fused points of the object's colour fall into connected parts; boxes of the known size are fitted to each of the larger
ones, and the one that the views bear out best is taken. A part that is more than one box is split where boxes of the
known size explain it; where they don't, or where several boxes look like the object, the confidence says so. The host's
own segmentation is used only where `oracle_masks` is given, and the result says so.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, Symmetry, box_iou, box_pose_error
from robotrials.measure.geometry.fit import (
    BoxEvidence,
    BoxFit,
    face_frames,
    fit_boxes,
    preference,
    surface_distance,
    weigh_evidence,
)
from robotrials.measure.geometry.mask import (
    ObjectModel,
    StaticScene,
    color_masks,
    connected_parts,
    supported_masks,
    surface_bounds,
)
from robotrials.measure.geometry.score import PlacementScore, score_placement
from robotrials.measure.geometry.view import Bounds, RgbdView, VoxelCloud, fuse_views

LEAST_VOXELS = 20
MOST_FIT_POINTS = 1000
MOST_PARTS = 4
LEFT_OVER_WEIGHT = 5.0
FULL_VOXELS = 100
ALIKE_SHARE = 0.6  # of the best one's rank
SAME_IOU = 0.2  # two boxes that overlap as much are one object in two parts


class MaskSource(enum.StrEnum):
    """Where the object's pixels came from."""

    COLOR = 'color'
    COLOR_AND_DEPTH = 'color_and_depth'  # of the colour, and standing out from the empty scene
    ORACLE_IDS = 'oracle_ids'  # the host's own segmentation: for development, never for scores


@dataclass(frozen=True, slots=True, eq=False)
class Reconstruction:
    """The box found, and how far to trust it.

    `fit_confidence` is in [0, 1] and orders results; it is no probability. It is the share of the visible surface that
    the views bear out, times what the box explains of the points: 0 when a fifth of them or more are left over. It is
    a quarter of that where boxes of the size fill the same points in another way too. `confidence` is that divided by
    `n_alike`, since colour and size can't tell which of them is meant.
    """

    box: Box
    cloud: VoxelCloud  # the voxels of the part that the box was fitted to
    rms_m: float  # of the points explained, from the box's surface
    inlier_share: float
    evidence: BoxEvidence
    n_parts: int  # parts of this colour that were large enough to be the object
    n_views: int  # views that saw it
    n_readings: int  # ways to lay boxes of the size through its points
    n_alike: int  # boxes found that look like the object, this one included
    source: MaskSource

    @property
    def fit_confidence(self) -> float:
        """Whether an object of this colour and size stands here."""
        return max(0.0, 1 - LEFT_OVER_WEIGHT * (1 - self.inlier_share)) * self.evidence.support / self.n_readings**2

    @property
    def confidence(self) -> float:
        """Whether the object that was asked for stands here."""
        return self.fit_confidence / self.n_alike


def reconstruct_box(
    views: Sequence[RgbdView],
    model: ObjectModel,
    *,
    bounds_m: Bounds | None = None,
    voxel_m: float = 0.003,
    tolerance_m: float = 0.006,
    support_z_m: float | None = None,
    scene: StaticScene | None = None,
    oracle_masks: Mapping[str, BoolArray] | None = None,
) -> Reconstruction:
    """Find the object of the model's colour and size in calibrated views; NotEstimable when it is not seen.

    `tolerance_m` is how far a measured point may lie from the surface it belongs to: about three times the depth noise.
    No box reaches below `support_z_m`, the height of the table; where it is not given it is
    measured round the object. With unknown edges the box is that of what was seen, and reaches down to a given support.
    `bounds_m` crops to the workspace. With `scene`, what stands fixed, only pixels count that stand out from it.
    """
    return reconstruct_boxes(
        views, model, bounds_m=bounds_m, voxel_m=voxel_m, tolerance_m=tolerance_m, support_z_m=support_z_m,
        scene=scene, oracle_masks=oracle_masks,
    )[0]  # fmt: skip


def reconstruct_boxes(
    views: Sequence[RgbdView],
    model: ObjectModel,
    *,
    bounds_m: Bounds | None = None,
    voxel_m: float = 0.003,
    tolerance_m: float = 0.006,
    support_z_m: float | None = None,
    scene: StaticScene | None = None,
    oracle_masks: Mapping[str, BoolArray] | None = None,
) -> tuple[Reconstruction, ...]:
    """Every object that looks like the model, the best borne out first; arguments as in `reconstruct_box`."""
    if not views:
        raise InputError('a reconstruction needs at least one view, found none')
    if len({v.name for v in views}) != len(views):
        raise InputError(f'views need different names, found {[v.name for v in views]}')
    if oracle_masks is not None:
        masks, source = _checked(oracle_masks, views), MaskSource.ORACLE_IDS
    elif scene is not None:
        masks = supported_masks(views, model, scene, tolerance_m=tolerance_m)
        source = MaskSource.COLOR_AND_DEPTH
    else:
        masks, source = color_masks(views, model), MaskSource.COLOR
    extent = bounds_m if bounds_m is not None else surface_bounds(views, masks)
    if extent is None:
        raise NotEstimable(f'object {model.name}: no pixel of its colour {model.color_rgb} with depth in any view')
    cloud = fuse_views(views, extent, voxel_m=voxel_m, masks=masks)
    parts = [p for p in connected_parts(cloud, gap_m=max(0.008, 2 * voxel_m)) if len(p) >= LEAST_VOXELS]
    if not parts:
        raise NotEstimable(f'object {model.name}: {len(cloud)} voxels of its colour, wanted {LEAST_VOXELS} together')
    candidates = [
        pair
        for part in parts[:MOST_PARTS]
        for pair in _reconstruct_part(_subset(cloud, part), model, views, masks, tolerance_m, support_z_m)
    ]
    kept = _alike(candidates, tolerance_m, support_z_m)
    n_views = sum(bool(m.any()) for m in masks.values())
    return tuple(
        Reconstruction(
            fit.box,
            part,
            fit.rms_m,
            float(fit.inlier.mean()),
            fit.evidence,
            len(parts),
            n_views,
            fit.n_readings,
            len(kept),
            source,
        )
        for part, fit in kept
    )


def _alike(
    candidates: Sequence[tuple[VoxelCloud, BoxFit]], tolerance_m: float, support_z_m: float | None
) -> list[tuple[VoxelCloud, BoxFit]]:
    """The best borne out, and others elsewhere that are nearly as well."""

    def rank(pair: tuple[VoxelCloud, BoxFit]) -> tuple[float, int]:
        part, fit = pair
        worth = preference(part.point_m, fit, tolerance_m, support_z_m)
        return worth * min(1.0, len(part) / FULL_VOXELS), len(part)

    ordered = sorted(((rank(pair), pair) for pair in candidates), key=lambda ranked: ranked[0], reverse=True)
    best = ordered[0][0][0]
    kept = [ordered[0][1]]
    for (worth, _), pair in ordered[1:]:
        is_elsewhere = all(box_iou(pair[1].box, other.box) < SAME_IOU for _, other in kept)
        if is_elsewhere and worth >= ALIKE_SHARE * best:
            kept.append(pair)
    return kept


def score_views(
    views: Sequence[RgbdView],
    model: ObjectModel,
    target: Box,
    *,
    threshold: float,
    bounds_m: Bounds | None = None,
    tolerance_m: float = 0.006,
    symmetry: Symmetry | None = None,
    start: Box | None = None,
    others: Sequence[Box] = (),
    least_confidence: float = 0.5,
) -> tuple[PlacementScore, Reconstruction]:
    """Reconstruct at any step, or at the end, and score against the target box.

    Where other objects look the same, `start` is where this one stood at first and `others` are where they stood: what
    still stands there is known by it. A box that is trusted less than `least_confidence` is not scored: NotEstimable.
    """
    match = identify(reconstruct_boxes(views, model, bounds_m=bounds_m, tolerance_m=tolerance_m), start, others=others)
    if match.confidence < least_confidence:
        seen = f'{match.n_alike} objects that look like it' if match.n_alike > 1 else 'a box that explains too little'
        raise NotEstimable(
            f'object {model.name}: found {seen}, confidence {match.confidence:.2f}, wanted {least_confidence:g}; give '
            'more views, or where it and others of its look stood at the start'
        )
    return score_placement(match.box, target, threshold=threshold, symmetry=symmetry), match


def identify(
    candidates: Sequence[Reconstruction],
    start: Box | None = None,
    *,
    others: Sequence[Box] = (),
    slack_m: float = 0.015,
) -> Reconstruction:
    """Which of several objects of one look is the one that stood at `start`, when the rest stood at `others`.

    One that still stands at an other's start is that other one, and one at `start` has not moved. If that leaves more
    than one, the best borne out is returned with as many `n_alike`.
    """

    def is_at(result: Reconstruction, place: Box) -> bool:
        return float(np.linalg.norm(result.box.center - place.center)) <= slack_m

    left = [r for r in candidates if not any(is_at(r, place) for place in others)]
    unmoved = [r for r in left if start is not None and is_at(r, start)]
    left = unmoved or left or list(candidates)
    return replace(left[0], n_alike=len(left))


def _reconstruct_part(
    part: VoxelCloud,
    model: ObjectModel,
    views: Sequence[RgbdView],
    masks: Mapping[str, BoolArray],
    tolerance_m: float,
    support_z_m: float | None,
) -> list[tuple[VoxelCloud, BoxFit]]:
    """The boxes of a part, each with the voxels nearest to it."""
    points = part.point_m
    if len(points) > MOST_FIT_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_FIT_POINTS).astype(int)]
    if model.size_m is not None:
        floor = support_z_m if support_z_m is not None else _local_support(part, views, masks, tolerance_m)
        edges = np.array(model.size_m)
        fits = fit_boxes(points, edges, views, masks=masks, tolerance_m=tolerance_m, support_z_m=floor)
        owner = np.argmin([np.abs(surface_distance(part.point_m, fit.box)[0]) for fit in fits], axis=0)
        return [(_subset(part, np.flatnonzero(owner == k)), fit) for k, fit in enumerate(fits)]
    box = _seen_box(points, views, tolerance_m, support_z_m)
    distance = surface_distance(points, box)[0]
    evidence = weigh_evidence(box, views, masks=masks, tolerance_m=tolerance_m)
    return [(part, BoxFit(box, distance, np.abs(distance) <= tolerance_m, evidence))]


def _local_support(
    part: VoxelCloud, views: Sequence[RgbdView], masks: Mapping[str, BoolArray], tolerance_m: float
) -> float | None:
    """The height of what was measured round the part at or below its lowest points: a bound, not a contact."""
    low, high = part.point_m.min(axis=0), part.point_m.max(axis=0)
    lowest = float(np.quantile(part.point_m[:, 2], 0.02)) + tolerance_m
    reach = np.array([0.05, 0.05, 0.15])
    others = {v.name: ~masks[v.name] for v in views}
    around = fuse_views(views, (low - reach, high + reach), voxel_m=0.004, masks=others)
    heights = around.point_m[around.point_m[:, 2] <= lowest, 2]
    return float(np.median(heights)) if len(heights) >= 100 else None


def _seen_box(points: FloatArray, views: Sequence[RgbdView], tolerance_m: float, support_z_m: float | None) -> Box:
    """The smallest of the boxes along the faces seen, grown down to the support if that is known."""
    boxes = []
    for frame in face_frames(points, views, tolerance_m=tolerance_m):
        turn = frame if np.linalg.det(frame) > 0 else frame * [1, 1, -1]
        low, high = np.quantile(points @ turn, [0.005, 0.995], axis=0)
        boxes.append(Box(turn @ ((low + high) / 2), high - low, turn))
    box = min(boxes, key=lambda b: b.volume)
    if support_z_m is None:
        return box
    axis = int(np.argmax(np.abs(box.rotation[2])))
    up = box.rotation[:, axis] * np.sign(box.rotation[2, axis])
    grown = box.center[2] - up[2] * box.size[axis] / 2 - support_z_m
    if grown <= 0:
        return box
    size = box.size.copy()
    size[axis] += grown / up[2]
    return Box(box.center - up * (grown / up[2]) / 2, size, box.rotation)


def _subset(cloud: VoxelCloud, kept: np.ndarray[tuple[int], np.dtype[np.int64]]) -> VoxelCloud:
    return VoxelCloud(
        cloud.voxel_m, cloud.origin_m, cloud.cell[kept], cloud.point_m[kept], cloud.color[kept], cloud.count[kept]
    )


def _checked(masks: Mapping[str, BoolArray], views: Sequence[RgbdView]) -> dict[str, BoolArray]:
    checked = {}
    for view in views:
        mask = masks.get(view.name)
        if mask is None or mask.shape != view.depth_m.shape:
            raise InputError(f'oracle_masks[{view.name!r}] must be a mask of shape {view.depth_m.shape}')
        checked[view.name] = mask.astype(np.bool_) & view.has_depth
    return checked


# The scene reset check of autonomous running: is the scene that the cameras see the one that was planned?


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
        faults = []
        for check in self.objects:
            if check.fault is not None:
                off = f' by {1000 * check.translation_error_m:.0f} mm' if check.translation_error_m is not None else ''
                faults.append(f'{check.name} {check.fault}{off}')
        return f'reset: {"; ".join(faults)}' if faults else ''


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
    checks: dict[str, ObjectCheck] = {}
    surplus: list[ObjectCheck] = []
    for names in looks.values():
        try:
            seen = reconstruct_boxes(views, known[names[0]], bounds_m=bounds_m, support_z_m=support_z_m)
        except NotEstimable:
            seen = ()
        given = _assign([plan[name] for name in names], [r.box for r in seen])
        for name, at in zip(names, given, strict=True):
            checks[name] = (
                ObjectCheck(name, ResetFault.MISSING, None, None, None, None)
                if at is None
                else _check(name, plan[name], seen[at], position_slack_m, angle_slack_rad, least_confidence)
            )
        surplus += [
            ObjectCheck(names[0], ResetFault.SURPLUS, None, None, None, r) for i, r in enumerate(seen) if i not in given
        ]
    return ResetCheck((*(checks[name] for name in plan), *surplus))


def _assign(planned: Sequence[Box], seen: Sequence[Box]) -> list[int | None]:
    """For each planned place the index of the object given to it, so that the sum of distances is least."""
    from scipy.optimize import linear_sum_assignment

    given: list[int | None] = [None] * len(planned)
    if seen:
        distances_m = np.linalg.norm([[p.center - s.center for s in seen] for p in planned], axis=2)
        for place, at in zip(*linear_sum_assignment(distances_m), strict=True):
            given[int(place)] = int(at)
    return given


def _check(
    name: str, planned: Box, actual: Reconstruction, position_slack_m: float, angle_slack_rad: float, least: float
) -> ObjectCheck:
    error = box_pose_error(actual.box, planned)
    fault = None
    if actual.fit_confidence < least:
        fault = ResetFault.DOUBTFUL
    elif error.translation_m > position_slack_m:
        fault = ResetFault.MOVED
    elif error.angle_rad > angle_slack_rad:
        fault = ResetFault.TURNED
    return ObjectCheck(name, fault, error.translation_m, error.angle_rad, box_iou(actual.box, planned), actual)
