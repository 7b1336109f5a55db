"""Goals over poses: is it in, on, upright, within? Each with how sure that is, and unscored where it is not.

A predicate is a margin: above zero it holds. It is asked of the registered pose and of poses drawn about it as far as
that may be off; where they do not say the same, the goal is not told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray
from robotrials.measure.geometry.camera_score import GoalScore, box_of
from robotrials.measure.geometry.fit import rotation_of
from robotrials.measure.geometry.register import Registration, locate_solid
from robotrials.measure.geometry.solid import PlacedSolid, box_model, place, unpack_solid
from robotrials.measure.geometry.trust import CheckedViews
from robotrials.record.media import BoxGoal, KnownObject, KnownScene, PoseGoal

IN_SHARE = 0.9  # of its surface inside: fingers of noise may stick out
GAP_M = 0.012  # between a thing and what it stands on
UPRIGHT_RAD = math.radians(15)
N_DRAWS = 64
LEAST_SAME = 0.95  # of the drawn poses that must say the same


def margin(kind: str, solid: PlacedSolid, goal: PoseGoal, reference: Box | None) -> float:
    """How far a predicate is from turning: positive where it holds; metres, radians or a share, by its kind."""
    if kind == 'upright':
        axis = solid.world_from_body[:3, :3] @ np.asarray(goal.axis, dtype=np.float64)
        lean = math.acos(float(np.clip(axis[2] / np.linalg.norm(axis), -1, 1)))
        return (UPRIGHT_RAD if goal.limit is None else goal.limit) - lean
    if reference is None:
        raise NotEstimable(f'{goal.object}: {kind} of what is not known')
    if kind == 'within':
        return float(goal.limit or 0.0) - float(np.linalg.norm(solid.box.center - reference.center))
    if kind == 'in':
        return float(reference.contains(solid.points).mean()) - IN_SHARE
    top = float(reference.bounds[1][2])
    beside = np.abs((solid.box.center - reference.center) @ reference.rotation)
    flat = np.abs(reference.rotation[2]) < 0.7  # the reference's edges that lie level
    over = float((reference.size / 2 - beside)[flat].min())
    lowest = float(np.quantile(solid.points[:, 2], 0.02))
    return min(over, GAP_M - abs(lowest - top))


def score_pose(goal: PoseGoal, found: Mapping[str, Registration | str]) -> GoalScore:
    """One goal over the registered poses; those that were refused leave it untold, with the reason."""
    where = goal.place.name if goal.place is not None else goal.other
    name = f'{goal.object} {goal.kind} {where}'.rstrip()
    own, other = found.get(goal.object, 'its shape is not known'), found.get(goal.other)
    for label, one in ((goal.object, own), (goal.other, other)):
        if label and not isinstance(one, Registration):
            return GoalScore(name, None, 0.0, f'{label}: {one or "its shape is not known"}')
        if isinstance(one, Registration) and one.refusal:
            return GoalScore(name, None, 0.0, f'{label}: {one.refusal}')
    assert isinstance(own, Registration)
    reference = box_of(goal.place) if goal.place is not None else None
    if isinstance(other, Registration):
        reference = other.solid.box
    says = margin(goal.kind, own.solid, goal, reference)
    rng = np.random.default_rng(11)  # a fixed stream: the same views give the same score
    slack = other.error_m if isinstance(other, Registration) else 0.0
    drawn = [margin(goal.kind, solid, goal, reference) for solid in drawn_poses(own, rng, extra_m=slack)]
    same = float(np.mean([(m > 0) == (says > 0) for m in drawn]))
    score = _measured(name, own)
    if same < LEAST_SAME:
        off = f'{1000 * own.error_m:.0f} mm and {math.degrees(own.error_rad):.0f} degrees'
        return replace(score, reason=f'{name}: too near to call with a pose that may be off by {off}')
    return replace(score, reached=says > 0, confidence=same)


def _measured(name: str, found: Registration) -> GoalScore:
    """A goal that is not told yet, with what was measured of its object."""
    return GoalScore(
        name, error_m=found.error_m, error_rad=found.error_rad, size_m=tuple(found.size_m.tolist()),
        error_size=found.error_scale,
    )  # fmt: skip


def score_solid_box(goal: BoxGoal, found: Registration | str, threshold: float | None) -> GoalScore:
    """An object of any shape that is to fill a box: IoU of its own box, over its symmetries, as equation 4 has it."""
    why = found.refusal if isinstance(found, Registration) else found
    if why or not isinstance(found, Registration):
        return GoalScore(goal.object, None, 0.0, f'{goal.object}: {why}')
    if threshold is None:
        return GoalScore(goal.object, None, 0.0, f'{goal.object}: the threshold is not known')
    target = box_of(goal.box)
    iou = found.solid.iou(target)
    rng = np.random.default_rng(11)
    same = float(np.mean([(s.iou(target) > threshold) == (iou > threshold) for s in drawn_poses(found, rng)]))
    off = float(np.linalg.norm(found.solid.box.center - target.center))
    score = replace(_measured(goal.object, found), iou=iou, translation_error_m=off)
    if same < LEAST_SAME:
        near = f'an IoU of {iou:.2f} is too near to {threshold:g} with {1000 * found.error_m:.0f} mm of error'
        return replace(score, reason=f'{goal.object}: {near}')
    return replace(score, reached=iou > threshold, confidence=same)


def drawn_poses(found: Registration, rng: np.random.Generator, *, extra_m: float = 0.0) -> list[PlacedSolid]:
    """Poses about the registered one, as far as it may be off."""
    solid = found.solid
    drawn = []
    for _ in range(N_DRAWS):
        pose = solid.world_from_body.copy()
        pose[:3, 3] += rng.normal(0, math.hypot(found.error_m, extra_m) / 1.96 / math.sqrt(3), 3)
        turn = rng.normal(0, min(found.error_rad, math.radians(20)) / 1.96 / math.sqrt(3), 3)
        pose[:3, :3] = rotation_of(turn) @ pose[:3, :3]
        drawn.append(place(solid.model, pose, scale=solid.scale * (1 + rng.normal(0, found.error_scale / 1.96))))
    return drawn


def score_solids(
    checked: CheckedViews, known: KnownScene, masks: Mapping[str, Mapping[str, BoolArray]]
) -> tuple[GoalScore, ...]:
    """Every goal of a scene whose objects have shapes: each object is registered once, and asked for all its goals."""
    wanted = {g.object for g in known.goals} | {n for g in known.poses for n in (g.object, g.other)}
    objects = [o for o in known.objects if o.name in wanted]
    found = {o.name: _registered(checked, o, masks.get(o.name)) for o in objects}
    boxes = [score_solid_box(g, found.get(g.object, 'its shape is not known'), known.threshold) for g in known.goals]
    return (*boxes, *(score_pose(g, found) for g in known.poses))


def _registered(
    checked: CheckedViews, wanted: KnownObject, masks: Mapping[str, BoolArray] | None
) -> Registration | str:  # fmt: skip
    """Where an object stands, or why that cannot be said."""
    if not wanted.shape and not (wanted.is_box and masks is not None):
        return 'its shape is not known'
    empty: FloatArray = np.zeros(0)
    own: dict[str, BoolArray] | None = None
    if masks is not None:
        own = {v.name: masks.get(v.name, empty.astype(np.bool_)) for v in checked.views}
        if any(own[v.name].shape != v.depth_m.shape for v in checked.views):
            missing = [v.name for v in checked.views if own[v.name].shape != v.depth_m.shape]
            return f'no mask of it in view {", ".join(missing)}'
    floor = checked.scene.lowest_top_m
    try:
        model = unpack_solid(wanted.shape) if wanted.shape else box_model(wanted.name, wanted.start.size_m)
        return locate_solid(checked, model, masks=own, support_z_m=floor)
    except NotEstimable as error:
        return str(error)
