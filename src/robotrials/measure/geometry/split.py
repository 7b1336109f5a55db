"""Several touching boxes of one known size in one part of points: peel them off one by one, then settle them together.

Where they touch no camera sees a face, so a single box slides along the row and fits most of the points anywhere. What
holds each box is the outer rim of all the points together; that is where the boxes are started from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np

from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, box_iou_pairs
from robotrials.measure.geometry.fit import (
    BoxFit,
    edge_orders,
    face_frames,
    fit_box,
    refine_box,
    surface_distance,
    turned_frame,
    weigh_evidence,
)
from robotrials.measure.geometry.view import RgbdView

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
        frames = [*face_frames(left, views, tolerance_m=tolerance_m, n_planes=SPLIT_PLANES), *_box_frames(boxes)]
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


def _box_frames(boxes: Sequence[Box]) -> list[FloatArray]:
    """A neighbour often lies along what was already found."""
    return [box.rotation for box in boxes[:1]]


def _rim_boxes(
    points: FloatArray, size_m: FloatArray, frame: FloatArray, orders: Sequence[tuple[int, ...]]
) -> list[Box]:
    """For these ways to lay the edges along the frame, the boxes at the rims of the points, at every corner of them."""
    low, high = np.quantile(points @ frame, [0.005, 0.995], axis=0)
    found = []
    for order in orders:
        edges = size_m[list(order)]
        sides = []
        for k in range(3):
            is_single = abs(high[k] - low[k] - edges[k]) <= 0.15 * edges[k]
            sides.append([(low[k] + high[k]) / 2] if is_single else [low[k] + edges[k] / 2, high[k] - edges[k] / 2])
        turn = turned_frame(frame, order)
        found += [Box(frame @ np.array(center), size_m, turn) for center in product(*sides)]
    return found


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


def _explained(fits: Sequence[BoxFit], n_points: int) -> float:
    return sum(int(fit.inlier.sum()) for fit in fits) / n_points


def _is_sound(fits: Sequence[BoxFit], n_points: int, floor_m: float, tolerance_m: float) -> bool:
    """Together they explain the points, the views bear out each, and no two fill one place or sink into the table."""
    pairs = list(combinations([fit.box for fit in fits], 2))
    overlap = box_iou_pairs([a for a, _ in pairs], [b for _, b in pairs])
    return bool(
        _explained(fits, n_points) >= ALL_BOXES_SHARE
        and all(len(fit.distance_m) >= LEAST_POINTS and fit.evidence.support >= LEAST_SUPPORT for fit in fits)
        and (overlap <= MOST_OVERLAP).all()
        and all(_sinking(fit.box, floor_m, tolerance_m) <= 2 for fit in fits)
    )
