"""Fit a box to points seen on its surface: start poses from the faces seen, then robust least squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np

from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, box_iou_pairs
from robotrials.measure.geometry.view import RgbdView
from robotrials.value import dataclass

SURFACE_GRID = 9
REFINED = 4
MIDDLE_WEIGHT = 0.01


@dataclass(frozen=True, slots=True)
class BoxEvidence:
    """What the views say of a hypothetical box, in shares of its surface that faces a camera and is not hidden."""

    support: float  # measured there, in the object's colour
    contradiction: float  # the camera saw through it, or saw another colour there
    coverage: float  # supported, of all that faces a camera


@dataclass(frozen=True, slots=True, eq=False)
class BoxFit:
    """A fitted box, the distances of the points from its surface, and what the views say of it."""

    box: Box
    distance_m: FloatArray  # (N,) signed: inside is negative
    inlier: BoolArray  # (N,)
    evidence: BoxEvidence
    n_readings: int = 1  # ways to lay boxes of this size through the same points

    @property
    def rms_m(self) -> float:
        kept = self.distance_m[self.inlier]
        return float(np.sqrt(np.mean(kept**2))) if len(kept) else float('inf')

    @property
    def quality(self) -> float:
        """An ordering of fits in [0, 1]: not a probability."""
        return self.evidence.support * float(self.inlier.mean())


def fit_box(
    points: FloatArray,
    size_m: FloatArray,
    views: Sequence[RgbdView],
    *,
    masks: Mapping[str, BoolArray],
    tolerance_m: float,
    support_z_m: float | None = None,
) -> BoxFit:
    """The pose of a box of known edges that best explains points (N, 3) on its surface and what the views saw.

    A box does not reach below `support_z_m`, what it stands on or above, where that is known.
    """
    seen: list[BoxFit] = []
    for frame in face_frames(points, views, tolerance_m=tolerance_m):
        for sides in _starts(points, size_m, frame):
            costs = [fit_cost(points, box, tolerance_m) for box in sides]
            start = sides[int(np.argmin(costs))]
            evidence = weigh_evidence(start, views, masks=masks, tolerance_m=2 * tolerance_m)
            seen.append(_finish(points, start, evidence, tolerance_m))
    seen.sort(key=lambda fit: -preference(points, fit, tolerance_m, support_z_m))
    fits = []
    for rough in seen[:REFINED]:
        box = refine_box(points, rough.box, tolerance_m=tolerance_m)
        fits.append(_finish(points, box, weigh_evidence(box, views, masks=masks, tolerance_m=tolerance_m), tolerance_m))
    return max(fits, key=lambda fit: preference(points, fit, tolerance_m, support_z_m))


def preference(points: FloatArray, fit: BoxFit, tolerance_m: float, support_z_m: float | None) -> float:
    """Which of several fits to take: borne out, near the points, edges as long as what was seen, not under the table.

    The last two tell apart boxes that lie on another face and differ by millimetres, of which the views say nothing.
    """
    low, high = np.quantile((points - fit.box.center) @ fit.box.rotation, [0.01, 0.99], axis=0)
    unseen = np.minimum(np.abs(fit.box.size - (high - low)) / tolerance_m, 1.0)
    sunk = 0.0 if support_z_m is None else max(0.0, support_z_m - float(fit.box.bounds[0][2]))
    misfit = fit.rms_m / tolerance_m + float(unseen.sum()) + 1.5 * min(sunk / tolerance_m, 4.0)
    return fit.quality - 0.1 * misfit


def face_frames(
    points: FloatArray, views: Sequence[RgbdView], *, tolerance_m: float, n_planes: int = 2
) -> list[FloatArray]:
    """Rotations whose first axis is the outward normal of a large plane of points, the others along its rectangle."""
    rng = np.random.default_rng(0)
    left = points
    frames = []
    for _ in range(n_planes):
        if len(left) < 12:
            break
        normal, inside = _largest_plane(left, tolerance_m, rng)
        toward = np.mean([v.position_m for v in views], axis=0) - left[inside].mean(axis=0)
        normal = normal if normal @ toward >= 0 else -normal
        frames.append(_rectangle_frame(points, normal))
        left = left[~inside]
    return frames or [np.eye(3)]


def _largest_plane(points: FloatArray, tolerance_m: float, rng: np.random.Generator) -> tuple[FloatArray, BoolArray]:
    """The normal and the points of the plane with the most points near it (RANSAC, then least squares)."""
    triples = points[rng.integers(0, len(points), (160, 3))]
    normals = np.cross(triples[:, 1] - triples[:, 0], triples[:, 2] - triples[:, 0])
    length = np.linalg.norm(normals, axis=1)
    normals, triples = normals[length > 1e-12], triples[length > 1e-12]
    if not len(normals):
        return np.array([0.0, 0.0, 1.0]), np.ones(len(points), dtype=np.bool_)
    normals = normals / np.linalg.norm(normals, axis=1)[:, None]
    offset = np.einsum('kd,kd->k', normals, triples[:, 0])
    near = np.abs(points @ normals.T - offset) < tolerance_m / 2
    inside: BoolArray = near[:, int(np.argmax(near.sum(axis=0)))]
    centered = points[inside] - points[inside].mean(axis=0)
    normal = np.linalg.svd(centered, full_matrices=False)[2][2]
    return normal, inside


def _rectangle_frame(points: FloatArray, normal: FloatArray) -> FloatArray:
    """[normal, u, v], with u and v along the smallest rectangle round the points' shadow on the plane."""
    helper = np.eye(3)[int(np.argmin(np.abs(normal)))]
    first = np.cross(normal, helper)
    first /= np.linalg.norm(first)
    second = np.cross(normal, first)
    shadow = np.stack([points @ first, points @ second], axis=1)
    angles = np.linspace(0, np.pi / 2, 90, endpoint=False)
    along = np.stack([np.cos(angles), np.sin(angles)])
    across = np.stack([-np.sin(angles), np.cos(angles)])
    extents = [np.diff(np.quantile(shadow @ way, [0.01, 0.99], axis=0), axis=0)[0] for way in (along, across)]
    best = int(np.argmin(extents[0] * extents[1]))
    u = along[0, best] * first + along[1, best] * second
    return np.stack([normal, u, np.cross(normal, u)], axis=1)


def _starts(points: FloatArray, size_m: FloatArray, frame: FloatArray) -> list[list[Box]]:
    """For every way to lay the edges along the frame: the box to either side where less than an edge was seen."""
    local = points @ frame
    low, high = np.quantile(local, [0.01, 0.99], axis=0)
    starts = []
    for order in edge_orders(size_m):
        edges = size_m[list(order)]
        sides = []
        for k in range(3):
            if high[k] - low[k] >= 0.85 * edges[k]:
                sides.append([(low[k] + high[k]) / 2])
            else:
                sides.append([high[k] - edges[k] / 2, low[k] + edges[k] / 2])
        turn = turned_frame(frame, order)
        starts.append([Box(frame @ np.array(center), size_m, turn) for center in product(*sides)])
    return starts


def edge_orders(size_m: FloatArray) -> list[tuple[int, ...]]:
    """The ways to lay edges along three axes that differ."""
    return list({tuple(size_m[list(order)].tolist()): order for order in permutations(range(3))}.values())


def turned_frame(frame: FloatArray, order: Sequence[int]) -> FloatArray:
    """The rotation of a box whose edge `order[axis]` lies along the frame's axis."""
    turn = np.zeros((3, 3))
    for axis, edge in enumerate(order):
        turn[:, edge] = frame[:, axis]
    if np.linalg.det(turn) < 0:
        turn[:, 2] *= -1
    return turn


def surface_distance(points: FloatArray, box: Box) -> tuple[FloatArray, FloatArray]:
    """Signed distances (N,) of points from the box's surface, inside negative, and their gradients in the box frame."""
    local = (points - box.center) @ box.rotation
    beyond = np.abs(local) - box.size / 2
    sign = np.where(local < 0, -1.0, 1.0)
    out = np.maximum(beyond, 0.0)
    far = np.linalg.norm(out, axis=1)
    nearest = np.argmax(beyond, axis=1)
    distance = np.where(far > 0, far, beyond[np.arange(len(local)), nearest])
    with np.errstate(invalid='ignore', divide='ignore'):
        gradient = np.where(far[:, None] > 0, sign * out / far[:, None], sign * (np.arange(3) == nearest[:, None]))
    return distance, gradient


def fit_cost(points: FloatArray, box: Box, tolerance_m: float) -> float:
    """Mean square distance from the surface, bounded, and how far the middle of what was seen lies off the box's."""
    distance = surface_distance(points, box)[0]
    return float(np.mean(np.minimum(distance**2, (2 * tolerance_m) ** 2))) + MIDDLE_WEIGHT * float(
        np.sum(_middle_offset(points, box) ** 2)
    )


def _middle_offset(points: FloatArray, box: Box) -> FloatArray:
    """How far the middle of what was seen is from the box's, along its edges; 0 where too little of an edge was seen.

    It holds the box along a direction of which only side faces were seen, and hardly weighs where an end face was.
    """
    low, high = np.quantile((points - box.center) @ box.rotation, [0.01, 0.99], axis=0)
    return np.asarray(np.where(high - low >= 0.7 * box.size, (low + high) / 2, 0.0))


def refine_box(
    points: FloatArray, box: Box, *, tolerance_m: float, steps: int = 25, turns: Sequence[int] = (0, 1, 2)
) -> Box:
    """Levenberg-Marquardt with Tukey's weights on the distances from the surface; it turns about its axes `turns`."""
    damping = 1e-3
    free = [0, 1, 2, *(3 + axis for axis in turns)]
    cost = fit_cost(points, box, tolerance_m)
    for _ in range(steps):
        distance, gradient = surface_distance(points, box)
        spread = max(1.4826 * float(np.median(np.abs(distance))), tolerance_m / 6)
        ratio = np.clip(distance / (4.685 * spread), -1, 1)
        weight = (1 - ratio**2) ** 2
        local = (points - box.center) @ box.rotation
        jacobian = np.concatenate([-gradient, np.cross(gradient, local)], axis=1)
        normal = (jacobian * weight[:, None]).T @ jacobian
        rhs = -(jacobian * weight[:, None]).T @ distance
        middle = _middle_offset(points, box)
        held = MIDDLE_WEIGHT * len(points) * (middle != 0)
        normal[:3, :3] += np.diag(held)
        rhs[:3] += held * middle
        # Scaled so that a direction that no point holds stays where it is.
        scale = np.diag(normal) + 1e-9 * np.trace(normal)
        step = np.zeros(6)
        step[free] = np.linalg.solve((normal + damping * np.diag(scale))[np.ix_(free, free)], rhs[free])
        moved = Box(box.center + box.rotation @ step[:3], box.size, box.rotation @ rotation_of(step[3:]))
        new = fit_cost(points, moved, tolerance_m)
        if new < cost:
            settled = float(np.abs(step[:3]).max()) < 1e-6 and float(np.abs(step[3:]).max()) < 1e-5
            box, cost, damping = moved, new, max(damping / 5, 1e-9)
            if settled:
                break
        elif damping > 1e3:
            break
        else:
            damping *= 8
    return box


def rotation_of(vector: FloatArray) -> FloatArray:
    """The rotation of a rotation vector (Rodrigues)."""
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * (cross @ cross))


def weigh_evidence(
    box: Box, views: Sequence[RgbdView], *, masks: Mapping[str, BoolArray], tolerance_m: float
) -> BoxEvidence:
    """Compare points on the box's surface with what each view measured there."""
    points, normals = _surface(box)
    supported = refuted = facing_all = 0
    for view in views:
        facing = np.einsum('nd,nd->n', normals, view.position_m - points) > 0.15 * np.linalg.norm(
            view.position_m - points, axis=1
        )
        pixel, depth = view.project(points[facing])
        height, width = view.depth_m.shape
        with np.errstate(invalid='ignore'):
            u, v = np.rint(pixel[:, 0]), np.rint(pixel[:, 1])
            in_image = (depth > 0) & (u >= 0) & (v >= 0) & (u < width) & (v < height)
        u, v, depth = u[in_image].astype(int), v[in_image].astype(int), depth[in_image]
        facing_all += len(depth)
        measured = view.depth_m[v, u]
        known = view.has_depth[v, u]
        there = known & (np.abs(measured - depth) <= 2 * tolerance_m)
        right = masks[view.name][v, u]
        supported += int((there & right).sum())
        refuted += int((there & ~right).sum()) + int((known & (measured > depth + 2 * tolerance_m)).sum())
    informative = supported + refuted
    if not informative:
        return BoxEvidence(0.0, 0.0, 0.0)
    return BoxEvidence(supported / informative, refuted / informative, supported / max(facing_all, 1))


def _surface(box: Box) -> tuple[FloatArray, FloatArray]:
    """Points on the faces, off their rims, and the outward normals there."""
    grid = np.linspace(-0.4, 0.4, SURFACE_GRID)
    a, b = (g.ravel() for g in np.meshgrid(grid, grid))
    points, normals = [], []
    for axis in range(3):
        for sign in (-0.5, 0.5):
            local = np.zeros((len(a), 3))
            local[:, axis], local[:, (axis + 1) % 3], local[:, (axis + 2) % 3] = sign, a, b
            points.append(box.center + (local * box.size) @ box.rotation.T)
            normals.append(np.tile(2 * sign * box.rotation[:, axis], (len(a), 1)))
    return np.concatenate(points), np.concatenate(normals)


def _finish(points: FloatArray, box: Box, evidence: BoxEvidence, tolerance_m: float) -> BoxFit:
    distance = surface_distance(points, box)[0]
    return BoxFit(box, distance, np.abs(distance) <= tolerance_m, evidence)


# Several touching boxes of one known size in one part of points: peel them off one by one, then settle them together.
# Where they touch no camera sees a face, so a single box slides along the row and fits most of the points anywhere.
# What holds each box is the outer rim of all the points together; that is where the boxes are started from.

ONE_BOX_SHARE = 0.97  # a single box that explains as much of a part is all there is
ALL_BOXES_SHARE = 0.85  # several together must explain as much
LEAST_SUPPORT = 0.5
MOST_OVERLAP = 0.1  # IoU of two boxes that are not the same one
SAME_OVERLAP = 0.7  # IoU of two boxes that are
RIVAL_WORTH = 0.08
MOST_BOXES = 5
LEAST_POINTS = 20
SETTLING_ROUNDS = 4
SPLIT_PLANES = 5


def fit_boxes(
    points: FloatArray,
    size_m: FloatArray,
    views: Sequence[RgbdView],
    *,
    masks: Mapping[str, BoolArray],
    tolerance_m: float,
    support_z_m: float | None = None,
) -> list[BoxFit]:
    """The boxes of these edges that explain points (N, 3) on their surfaces: one if one does, else as few as do.

    Where no set of boxes does, the best single one, whose share of inliers says how little it explains.
    """
    single = fit_box(points, size_m, views, masks=masks, tolerance_m=tolerance_m, support_z_m=support_z_m)
    if single.inlier.mean() >= ONE_BOX_SHARE:
        return [single]
    floor = -np.inf if support_z_m is None else support_z_m
    readings = []
    for order in edge_orders(size_m):
        boxes = _peel(points, size_m, views, tolerance_m, floor, order)
        fits = _settle(points, boxes, views, masks, tolerance_m) if len(boxes) > 1 else []
        if fits and _is_sound(fits, len(points), floor, tolerance_m):
            readings.append(fits)
    if not readings:
        return [single]
    worth = [_worth(fits, floor, tolerance_m) for fits in readings]
    best = readings[int(np.argmax(worth))]
    # Two bricks side by side and two stacked on edge may fill the same points: then neither is to be trusted.
    rivals = [r for r, w in zip(readings, worth, strict=True) if w > max(worth) - RIVAL_WORTH and not _is_same(r, best)]
    return [replace(fit, n_readings=2 if rivals else 1) for fit in best]


def _peel(
    points: FloatArray, size_m: FloatArray, views: Sequence[RgbdView], tolerance_m: float, floor_m: float,
    first_order: tuple[int, ...],
) -> list[Box]:  # fmt: skip
    """Boxes one after another, each the one that explains the most of what is left and holds the least inside.

    The first one has its edges along the faces seen in the order `first_order`.
    """
    left = points
    boxes: list[Box] = []
    while len(left) >= max(LEAST_POINTS, 0.05 * len(points)) and len(boxes) < MOST_BOXES:
        frames = face_frames(left, views, tolerance_m=tolerance_m, n_planes=SPLIT_PLANES)
        frames += [box.rotation for box in boxes[:1]]  # a neighbour often lies along the first box
        orders = edge_orders(size_m) if boxes else [first_order]
        starts = [box for frame in frames for box in _rim_boxes(left, size_m, frame, orders)]
        best = max(starts, key=lambda box: _gain(left, points, box, tolerance_m, floor_m))
        near = np.abs(surface_distance(left, best)[0]) <= 2 * tolerance_m
        if near.sum() < LEAST_POINTS:
            break
        best = refine_box(left[near], best, tolerance_m=tolerance_m)
        near = surface_distance(left, best)[0] <= 1.5 * tolerance_m
        if near.sum() < LEAST_POINTS:
            break
        boxes.append(best)
        left = left[~near]
    return boxes


def _rim_boxes(
    points: FloatArray, size_m: FloatArray, frame: FloatArray, orders: Sequence[tuple[int, ...]]
) -> list[Box]:
    """For these ways to lay the edges along the frame, the boxes at the rims of the points, at every corner of them."""
    low, high = np.quantile(points @ frame, [0.005, 0.995], axis=0)
    boxes = []
    for order in orders:
        edges = size_m[list(order)]
        sides = []
        for k in range(3):
            is_single = abs(high[k] - low[k] - edges[k]) <= 0.15 * edges[k]
            sides.append([(low[k] + high[k]) / 2] if is_single else [low[k] + edges[k] / 2, high[k] - edges[k] / 2])
        turn = turned_frame(frame, order)
        boxes += [Box(frame @ np.array(center), size_m, turn) for center in product(*sides)]
    return boxes


def _gain(left: FloatArray, points: FloatArray, box: Box, tolerance_m: float, floor_m: float) -> float:
    """Points explained, minus twice those that would lie inside the box, of all the part; less where it would sink."""
    explained = int((np.abs(surface_distance(left, box)[0]) <= tolerance_m).sum())
    inside = int((surface_distance(points, box)[0] < -1.5 * tolerance_m).sum())
    return explained - 2.0 * inside - 0.1 * len(left) * _sinking(box, floor_m, tolerance_m)


def _sinking(box: Box, floor_m: float, tolerance_m: float) -> float:
    return min(max(0.0, floor_m - float(box.bounds[0][2])) / tolerance_m, 4.0)


def _worth(fits: Sequence[BoxFit], floor_m: float, tolerance_m: float) -> float:
    """Which reading to take: borne out, near the points, few boxes, none in the table."""
    each = [f.quality - 0.1 * (f.rms_m / tolerance_m + _sinking(f.box, floor_m, tolerance_m)) for f in fits]
    return float(np.mean(each)) - 0.1 * len(fits)


def _is_same(fits: Sequence[BoxFit], others: Sequence[BoxFit]) -> bool:
    return all(
        box_iou_pairs([fit.box] * len(others), [other.box for other in others]).max() > SAME_OVERLAP for fit in fits
    )


def _settle(
    points: FloatArray,
    boxes: list[Box],
    views: Sequence[RgbdView],
    masks: Mapping[str, BoolArray],
    tolerance_m: float,
) -> list[BoxFit]:
    """Give every point to the nearest box and refine each on its own points, some times over."""
    for _ in range(SETTLING_ROUNDS):
        owner = np.argmin([np.abs(surface_distance(points, box)[0]) for box in boxes], axis=0)
        boxes = [
            refine_box(points[owner == k], box, tolerance_m=tolerance_m) if (owner == k).sum() >= LEAST_POINTS else box
            for k, box in enumerate(boxes)
        ]
    distances = np.array([surface_distance(points, box)[0] for box in boxes])
    owner = np.argmin(np.abs(distances), axis=0)
    fits = []
    for k, box in enumerate(boxes):
        own = distances[k, owner == k]
        evidence = weigh_evidence(box, views, masks=masks, tolerance_m=tolerance_m)
        fits.append(BoxFit(box, own, np.abs(own) <= tolerance_m, evidence))
    return fits


def _is_sound(fits: Sequence[BoxFit], n_points: int, floor_m: float, tolerance_m: float) -> bool:
    """Together they explain the points, the views bear out each, and no two fill one place or sink into the table."""
    pairs = list(combinations([fit.box for fit in fits], 2))
    overlap = box_iou_pairs([a for a, _ in pairs], [b for _, b in pairs])
    return bool(
        sum(int(fit.inlier.sum()) for fit in fits) / n_points >= ALL_BOXES_SHARE
        and all(len(fit.distance_m) >= LEAST_POINTS and fit.evidence.support >= LEAST_SUPPORT for fit in fits)
        and (overlap <= MOST_OVERLAP).all()
        and all(_sinking(fit.box, floor_m, tolerance_m) <= 2 for fit in fits)
    )
