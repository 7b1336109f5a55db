"""Goals over poses: is it in, on, upright, within? Each with how sure that is, and unscored where it is not.

A predicate is a margin: above zero it holds. It is asked of the registered pose and of poses drawn about it as far as
that may be off; where they do not say the same, the goal is not told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray
from robotrials.measure.geometry.calibration import CheckedViews
from robotrials.measure.geometry.camera_score import GoalScore, box_of
from robotrials.measure.geometry.fit import rotation_of, surface_distance
from robotrials.measure.geometry.register import Registration, gap_m, locate_part, locate_solid
from robotrials.measure.geometry.solid import PlacedSolid, box_model, place, unpack_solid
from robotrials.record.footage import JOINT_GOALS, BoxGoal, KnownJoint, KnownObject, KnownScene, PoseGoal
from robotrials.value import dataclass

IN_SHARE = 0.9  # of its surface inside: fingers of noise may stick out
GAP_M = 0.012  # between a thing and what it stands on
UPRIGHT_RAD = math.radians(15)
N_DRAWS = 64
SLIDE_STEP_M, HINGE_STEP_RAD = 0.002, math.radians(2)
LEAST_SAME = 0.95  # of the drawn poses that must say the same


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What a goal is asked of: a box, another solid, or boxes that stand fixed."""

    box: Box | None = None
    solid: PlacedSolid | None = None
    fixed: tuple[Box, ...] = ()


def margin(kind: str, solid: PlacedSolid, goal: PoseGoal, reference: Reference) -> float:
    """How far a predicate is from turning: positive where it holds; metres, radians or a share, by its kind."""
    if kind == 'upright':
        axis = solid.world_from_body[:3, :3] @ np.asarray(goal.axis, dtype=np.float64)
        lean = math.acos(float(np.clip(axis[2] / np.linalg.norm(axis), -1, 1)))
        return (UPRIGHT_RAD if goal.limit is None else goal.limit) - lean
    if kind == 'touching':
        return GAP_M - _gap_m(solid, reference)
    if kind == 'over':
        return min(anchor_margin_m(solid, goal, reference), GAP_M - _gap_m(solid, reference))
    if kind == 'at':
        return anchor_margin_m(solid, goal, reference)
    box = reference.box
    if box is None:
        raise NotEstimable(f'{goal.object}: {kind} of what is not known')
    if kind == 'within':
        return float(goal.limit or 0.0) - float(np.linalg.norm(solid.box.center - box.center))
    if kind == 'in':
        return float(box.contains(solid.points).mean()) - IN_SHARE
    top = float(box.bounds[1][2])
    beside_m = np.abs((solid.box.center - box.center) @ box.rotation)
    flat = np.abs(box.rotation[2]) < 0.7  # the reference's edges that lie level
    over = float((box.size / 2 - beside_m)[flat].min())
    lowest = float(np.quantile(solid.points[:, 2], 0.02))
    return min(over, GAP_M - abs(lowest - top))


def anchor_margin_m(solid: PlacedSolid, goal: PoseGoal, reference: Reference) -> float:
    """How far an object's anchor is inside the goal's place, or above the other's and near enough to it."""
    anchor = _in_world(solid, goal.anchor_m)
    if goal.kind == 'over' and reference.solid is not None:
        off = anchor - _in_world(reference.solid, goal.anchor_m)
        return min(float(goal.limit or 0.0) - float(np.linalg.norm(off[:2])), float(off[2]))
    if reference.box is None:
        raise NotEstimable(f'{goal.object}: {goal.kind} of what is not known')
    box = reference.box
    return float((box.size / 2 - np.abs((anchor - box.center) @ box.rotation)).min())


def _in_world(solid: PlacedSolid, point: Sequence[float]) -> FloatArray:
    """A point in the coordinates of a shape's file, in the world."""
    local = (np.asarray(point, dtype=np.float64) - solid.model.middle) * solid.scale
    return np.asarray(solid.world_from_body[:3, :3] @ local + solid.world_from_body[:3, 3])


def _gap_m(solid: PlacedSolid, reference: Reference) -> float:
    if reference.solid is not None:
        return gap_m(solid, reference.solid)
    return min(float(surface_distance(solid.points, box)[0].min()) for box in reference.fixed)


def _reference(goal: PoseGoal, other: PlacedSolid | None, fixed: Sequence[Box]) -> Reference:
    """The goal's place in the world, carried along with the other object where it belongs to one."""
    box = box_of(goal.place) if goal.place is not None else other.box if other is not None else None
    if goal.place is not None and other is not None and box is not None:
        turn = other.world_from_body[:3, :3]
        box = Box(_in_world(other, box.center.tolist()), box.size, turn @ box.rotation)
    return Reference(box, other, tuple(fixed))


def score_pose(
    goal: PoseGoal, readings: Mapping[str, Registration | str], fixed: Mapping[str, Sequence[Box]] | None = None
) -> GoalScore:
    """One goal over the registered poses; those that were refused leave it untold, with the reason."""
    name = ' '.join(filter(None, (goal.object, goal.kind, goal.other or (goal.place.name if goal.place else ''))))
    own, other = readings.get(goal.object, 'its shape is not known'), readings.get(goal.other)
    boxes = (fixed or {}).get(goal.other, ()) if goal.kind == 'touching' and other is None else ()
    for label, reading in ((goal.object, own), (goal.other, other)):
        if label and not isinstance(reading, Registration) and not (label == goal.other and boxes):
            return GoalScore(name, None, 0.0, f'{label}: {reading or "its shape is not known"}')
        if isinstance(reading, Registration) and reading.refusal:
            return GoalScore(name, None, 0.0, f'{label}: {reading.refusal}')
    assert isinstance(own, Registration)
    if goal.kind in JOINT_GOALS:
        return _score_joint(goal, name, own)
    solid = other.solid if isinstance(other, Registration) else None
    reference = _reference(goal, solid, boxes)
    says = margin(goal.kind, own.solid, goal, reference) > 0
    slack = _slack_m(goal, other) if isinstance(other, Registration) else 0.0
    score = _measured(name, own)
    same = _same_share(partial(margin, goal.kind), goal, own, reference, says=says, slack_m=slack)
    if same < LEAST_SAME:
        off = f'{1000 * own.error_m:.0f} mm and {math.degrees(own.error_rad):.0f} degrees'
        return replace(score, reason=f'{name}: too near to call with a pose that may be off by {off}')
    if goal.kind not in ('at', 'over'):
        return replace(score, reached=says, confidence=same)
    if not _is_same_turned(goal, own, solid, slack):
        return replace(score, reason=f'{name}: turned so that it looks the same, it would be otherwise, or too near')
    return replace(score, reached=says, confidence=same)


def _is_same_turned(goal: PoseGoal, own: Registration, other: PlacedSolid | None, slack_m: float) -> bool:
    """Whether an anchor is on the same side for every pose that shows the same solids, each as far as it may be off."""
    reference = _reference(goal, other, ())
    says = anchor_margin_m(own.solid, goal, reference) > 0
    ask = partial(_same_share, anchor_margin_m, goal, says=says, slack_m=slack_m)
    shares = [ask(replace(own, solid=turned), reference) for turned in _symmetric(own.solid)]
    if goal.place is not None and other is not None:
        shares += [ask(own, _reference(goal, turned, ())) for turned in _symmetric(other)]
    return min(shares, default=1.0) >= LEAST_SAME


def _same_share(
    ask: Callable[[PlacedSolid, PoseGoal, Reference], float], goal: PoseGoal, own: Registration, reference: Reference,
    *, says: bool, slack_m: float,
) -> float:  # fmt: skip
    """The share of poses drawn about the registered one that say the same."""
    rng = np.random.default_rng(11)  # a fixed stream: the same views give the same score
    margins = [ask(solid, goal, reference) for solid in drawn_poses(own, rng, extra_m=slack_m)]
    return float(np.mean([(m > 0) == says for m in margins]))


def _slack_m(goal: PoseGoal, other: Registration) -> float:
    """How far the place that belongs to another object may be off: by its middle, and by its turn about that."""
    if goal.place is None:
        return other.error_m
    arm_m = float(np.linalg.norm(np.asarray(goal.place.center_m) - other.solid.model.middle))
    return math.hypot(other.error_m, min(other.error_rad, math.radians(20)) * arm_m)


def _symmetric(solid: PlacedSolid) -> list[PlacedSolid]:
    """The other poses that show the same solid."""
    turns = [turn for turn in solid.model.symmetry if not np.allclose(turn, np.eye(3))]
    poses = [solid.world_from_body.copy() for _ in turns]
    for pose, turn in zip(poses, turns, strict=True):
        pose[:3, :3] = pose[:3, :3] @ turn
    return [place(solid.model, pose, scale=solid.scale) for pose in poses]


def _score_joint(goal: PoseGoal, name: str, part: Registration) -> GoalScore:
    """A part's joint against a limit: told where all values that explain the views lie on one side of it."""
    if part.joint is None or goal.limit is None:
        return GoalScore(name, None, 0.0, f'{goal.object}: its joint is not known')
    _, low, high = part.joint
    sides = [(v > goal.limit) == (goal.kind == 'above') for v in part.joint]
    if len(set(sides)) > 1:
        near = f'its joint stands between {low:.3f} and {high:.3f}, too near to {goal.limit:g} to call'
        return GoalScore(name, None, 0.0, f'{goal.object}: {near}')
    return GoalScore(name, sides[0], 1.0)


def _measured(name: str, fit: Registration) -> GoalScore:
    """A goal that is not told yet, with what was measured of its object."""
    return GoalScore(
        name, error_m=fit.error_m, error_rad=fit.error_rad, size_m=tuple(fit.size_m.tolist()),
        error_size=fit.error_scale,
    )  # fmt: skip


def score_solid_box(goal: BoxGoal, reading: Registration | str, threshold: float | None) -> GoalScore:
    """An object of any shape that is to fill a box: IoU of its own box, over its symmetries, as equation 4 has it."""
    why = reading.refusal if isinstance(reading, Registration) else reading
    if why or not isinstance(reading, Registration):
        return GoalScore(goal.object, None, 0.0, f'{goal.object}: {why}')
    if threshold is None:
        return GoalScore(goal.object, None, 0.0, f'{goal.object}: the threshold is not known')
    target = box_of(goal.box)
    iou = reading.solid.iou(target)
    rng = np.random.default_rng(11)
    same = float(np.mean([(s.iou(target) > threshold) == (iou > threshold) for s in drawn_poses(reading, rng)]))
    off = float(np.linalg.norm(reading.solid.box.center - target.center))
    score = replace(_measured(goal.object, reading), iou=iou, translation_error_m=off)
    if same < LEAST_SAME:
        near = f'an IoU of {iou:.2f} is too near to {threshold:g} with {1000 * reading.error_m:.0f} mm of error'
        return replace(score, reason=f'{goal.object}: {near}')
    return replace(score, reached=iou > threshold, confidence=same)


def drawn_poses(fit: Registration, rng: np.random.Generator, *, extra_m: float = 0.0) -> list[PlacedSolid]:
    """Poses about the registered one, as far as it may be off."""
    solid = fit.solid
    drawn = []
    for _ in range(N_DRAWS):
        pose = solid.world_from_body.copy()
        pose[:3, 3] += rng.normal(0, math.hypot(fit.error_m, extra_m) / 1.96 / math.sqrt(3), 3)
        turn = rng.normal(0, min(fit.error_rad, math.radians(20)) / 1.96 / math.sqrt(3), 3)
        pose[:3, :3] = rotation_of(turn) @ pose[:3, :3]
        drawn.append(place(solid.model, pose, scale=solid.scale * (1 + rng.normal(0, fit.error_scale / 1.96))))
    return drawn


def score_solids(
    checked: CheckedViews, known: KnownScene, masks: Mapping[str, Mapping[str, BoolArray]]
) -> tuple[GoalScore, ...]:
    """Every goal of a scene whose objects have shapes: each object is registered once, and asked for all its goals."""
    wanted = {g.object for g in known.goals} | {n for g in known.poses for n in (g.object, g.other)}
    objects = [o for o in known.objects if o.name in wanted]
    support_m = known.floor_z_m if known.is_on_floor else checked.scene.lowest_top_m
    readings = {
        o.name: _registered(checked, o, masks.get(o.name), others=_others(o.name, masks), support_z_m=support_m)
        for o in objects
    }
    boxes = [score_solid_box(g, readings.get(g.object, 'its shape is not known'), known.threshold) for g in known.goals]
    fixed: dict[str, list[Box]] = {}
    for box in known.fixed:
        fixed.setdefault(box.name, []).append(box_of(box))
    return (*boxes, *(score_pose(g, readings, fixed) for g in known.poses))


def _others(name: str, masks: Mapping[str, Mapping[str, BoolArray]]) -> dict[str, BoolArray]:
    """The pixels of every other object, by view."""
    joined: dict[str, BoolArray] = {}
    for other, by_view in masks.items():
        for view, mask in by_view.items() if other != name else ():
            joined[view] = mask | joined[view] if view in joined else mask
    return joined


def _registered(
    checked: CheckedViews, wanted: KnownObject, masks: Mapping[str, BoolArray] | None, *,
    others: Mapping[str, BoolArray], support_z_m: float | None,
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
    try:
        model = unpack_solid(wanted.shape) if wanted.shape else box_model(wanted.name, wanted.start.size_m)
        if wanted.joint is not None:
            if own is None:
                return 'a part that moves needs masks'
            return locate_part(checked, model, joint_poses(wanted, wanted.joint), masks=own, others=others)
        start = box_of(wanted.start)
        likely = np.eye(4)
        likely[:3, :3], likely[:3, 3] = start.rotation, start.center
        return locate_solid(checked, model, masks=own, support_z_m=support_z_m, likely=likely, others=others)
    except NotEstimable as error:
        return str(error)


def joint_poses(part: KnownObject, joint: KnownJoint) -> dict[float, FloatArray]:
    """Where a part stands (4x4) for values of its joint over its whole range."""
    span = joint.high - joint.low
    n = math.ceil(span / (HINGE_STEP_RAD if joint.is_hinge else SLIDE_STEP_M)) + 1
    start, axis, point = box_of(part.start), np.asarray(joint.axis), np.asarray(joint.point_m)
    poses: dict[float, FloatArray] = {}
    for value in np.linspace(joint.low, joint.high, n).tolist():
        pose = np.eye(4)
        turn = rotation_of(axis * (value - joint.start)) if joint.is_hinge else np.eye(3)
        shift = np.zeros(3) if joint.is_hinge else axis * (value - joint.start)
        pose[:3, :3] = turn @ start.rotation
        pose[:3, 3] = turn @ (start.center - point) + point + shift
        poses[value] = pose
    return poses
