"""Where an object of any shape stands, by point-to-plane registration of its model, and when that is refused.

Many orientations are tried at once against the masked points of all views, the best are refined together with their
outlines, and what is left is checked: does it explain the points, do the views see what it says they must, do they see
through it, and does another reading explain them as well? A pose that fails a check is kept with the reason, and no
score is made from it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, box_iou
from robotrials.measure.geometry.fit import rotation_of
from robotrials.measure.geometry.mask import connected_parts, raised_parts, surface_bounds
from robotrials.measure.geometry.solid import PlacedSolid, SolidModel, place
from robotrials.measure.geometry.view import RgbdView, fuse_views

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

    from robotrials.measure.geometry.calibration import CheckedViews

N_STARTS = 160  # orientations, about 35 degrees from one to the next
N_YAWS = 12  # of a likely one
CLEAR_SHARE = 0.25  # of the pixels of the view that has most: the others hardly see it
START_POINTS, REFINE_POINTS = 160, 700
START_STEPS, REFINE_STEPS = 10, 14
CULL_STEP, N_CULLED = 3, 48
N_REFINED = 10
MOST_PARTS = 6  # things that stand out of the scene, tried one by one
LEAST_POINTS = 40
LEAST_PART_SHARE = 0.15  # of the largest part's pixels: a smaller one is not of the object
FACING = 0.15  # cosine between a normal and the way to a camera, below which a surface is not seen
CLOSE = 0.35  # weight of the way back, from the model to the points, beside the way there
OUTLINE = 1.0  # weight of a sample that is drawn beyond the object's pixels
INDEPENDENT_SHARE = 0.03  # of the points: noise is correlated over the picture

SYSTEMATIC = 3.3  # 95 % of errors over one standard deviation of the fit: what cameras leave is not independent

LEAST_EXPLAINED = 0.9  # of the points within the tolerance of the surface
LEAST_COVERED = 0.75  # of the surface that must be seen, measured there
MOST_SEEN_THROUGH = 0.08  # of it, where a view looks through
MOST_BEYOND = 0.06  # of all samples drawn beyond the object's pixels
LEAST_SEEN = 0.12  # of the whole surface
LIKE_COST = 1.6  # cost over the best one's, below which another reading is as good
SAME_SHARE = 0.1  # of the longest edge, that two readings of one solid may lie apart
RIGHT_IOU = 0.6  # a solid that overlaps the true one by less is wrong


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """A model laid on what the views show, how far that may be off, and what it rests on."""

    solid: PlacedSolid
    rms_m: float  # of the points that it explains
    explained: float  # share of the points within the tolerance
    covered: float  # share of the surface that should be seen and was measured there
    seen_through: float  # share of it where a view looks through
    beyond: float  # share of all samples that are drawn outside the object's pixels
    seen: float  # share of the whole surface that any view has
    n_readings: int  # poses that explain the views about as well and are another solid
    error_m: float  # how far its middle may be off (95 %)
    error_rad: float  # how far it may be turned (95 %), about the axis known worst; symmetries are not taken out
    error_scale: float  # by which share its size may be off (95 %); 0 where it is known
    n_views: int
    refusal: str = ''  # why it is not to be trusted; empty when it is
    joint: tuple[float, float, float] | None = None  # of a part: where its joint stands, and from where to where (95 %)

    @property
    def size_m(self) -> FloatArray:
        """The edges (3,) of its box."""
        return self.solid.box.size


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """What the views show of one object: points, and where its outline may be drawn."""

    points: FloatArray  # (N, 3)
    views: tuple[RgbdView, ...]
    masks: Mapping[str, BoolArray]
    hiding: Mapping[str, BoolArray]  # pixels of other things, behind which it may be
    beyond_px: Mapping[str, FloatArray]  # distance of every pixel from where the object may be drawn
    tolerance_m: float
    support_z_m: float | None


def register(
    views: Sequence[RgbdView],
    masks: Mapping[str, BoolArray],
    model: SolidModel,
    *,
    tolerance_m: float = 0.006,
    support_z_m: float | None = None,
    turn_rad: float = 0.0,
    is_mask_complete: bool = True,
    likely: FloatArray | None = None,
    others: Mapping[str, BoolArray] | None = None,
) -> Registration:
    """Lay a model on the masked pixels of calibrated views; NotEstimable when too little is seen to try.

    `masks` says for each view which pixels (H, W) are the object's. With `is_mask_complete=False` they were made from
    depth, so that a pixel without depth may be the object's, too. `turn_rad` is how far a camera may still be turned.
    `likely` is a pose (4x4) to try beside all others, and turned about the vertical: where it stood at the start.
    `others` are pixels of other things, which may hide it.
    """
    surface = _shown(views, masks, model, tolerance_m, support_z_m, is_complete=is_mask_complete, others=others)
    candidates = _started(model, surface, likely)
    refined = sorted((_refined(model, surface, *start) for start in candidates), key=lambda pair: pair[0])
    cost, best = refined[0]
    like = [solid for c, solid in refined[1:] if c <= LIKE_COST * cost]
    limit = max(1.5 * tolerance_m, SAME_SHARE * float(best.box.size.max()))
    readings = [solid for solid in like if surface_distance_m(solid, best) > limit]
    return _checked(best, surface, n_readings=1 + len(readings), turn_rad=turn_rad)


def locate_solid(
    checked: CheckedViews, model: SolidModel, *, masks: Mapping[str, BoolArray] | None = None,
    support_z_m: float | None = None, likely: FloatArray | None = None, others: Mapping[str, BoolArray] | None = None,
) -> Registration:  # fmt: skip
    """Lay a model on checked views: on its masks, or on the one thing standing out of the empty scene that it fits."""
    if not checked.views:
        raise NotEstimable(checked.refusal)
    lay = partial(
        register, checked.views, model=model, tolerance_m=checked.tolerance_m, support_z_m=support_z_m,
        turn_rad=checked.turn_rad, likely=likely, others=others,
    )  # fmt: skip
    if masks is not None:
        return lay(masks)
    laid = []
    for part in raised_parts(checked.views, checked.scene, tolerance_m=checked.tolerance_m)[:MOST_PARTS]:
        with contextlib.suppress(NotEstimable):
            laid.append(lay(part, is_mask_complete=False))
    if not laid:
        raise NotEstimable(f'{model.name}: nothing stands out of the empty scene that could be it')
    trusted = [r for r in laid if not r.refusal]
    if len(trusted) > 1:
        return replace(trusted[0], refusal=f'{len(trusted)} things have its shape; masks would tell which is meant')
    return trusted[0] if trusted else max(laid, key=lambda r: (r.explained - r.seen_through, r.covered))


def locate_part(
    checked: CheckedViews, model: SolidModel, poses: Mapping[float, FloatArray], *, masks: Mapping[str, BoolArray],
    others: Mapping[str, BoolArray] | None = None,
) -> Registration:  # fmt: skip
    """Lay a part that moves by a joint on its masks: the best of its poses, by value of the joint (4x4 each).

    The values that explain the views about as well say how far the joint may be off. How much of its surface is seen
    does not matter, since nothing but one number is sought.
    """
    surface = _shown(checked.views, masks, model, checked.tolerance_m, None, is_complete=True, others=others)
    points = _thinned(surface.points, REFINE_POINTS)
    solids = {value: place(model, pose) for value, pose in poses.items()}
    cost = {value: _cost(solid, surface, points) for value, solid in solids.items()}
    best = min(cost, key=lambda value: cost[value])
    alike = [value for value, c in cost.items() if c <= LIKE_COST * cost[best]]
    step = float(np.median(np.diff(sorted(poses))))
    fit = _checked(solids[best], surface, n_readings=1, turn_rad=checked.turn_rad)
    why = [] if fit.explained >= LEAST_EXPLAINED else [f'it explains {100 * fit.explained:.0f} % of its points']
    if fit.seen_through > MOST_SEEN_THROUGH:
        why.append(f'the views see through {100 * fit.seen_through:.0f} % of it')
    return replace(fit, refusal='; '.join(why), joint=(best, min(alike) - step, max(alike) + step))


def gap_m(solid: PlacedSolid, other: PlacedSolid) -> float:
    """How far two surfaces are from touching: of the nearest samples the sixth, since a few may be strays."""
    return float(np.partition(_distances(other, solid.points), 5)[5])


def surface_distance_m(a: PlacedSolid, b: PlacedSolid, *, share: float = 0.95) -> float:
    """How far two surfaces lie apart, for a share of each: what symmetries make alike has no distance."""
    far = []
    for first, second in ((a, b), (b, a)):
        local = ((first.points - second.box.center) @ second.box.rotation) / second.scale
        far.append(
            np.quantile(np.linalg.norm(first.points - second.points[second.model.tree.query(local)[1]], axis=1), share)
        )
    return float(max(far))


def _shown(
    views: Sequence[RgbdView], masks: Mapping[str, BoolArray], model: SolidModel, tolerance_m: float,
    support_z_m: float | None, *, is_complete: bool, others: Mapping[str, BoolArray] | None = None,
) -> _Shown:  # fmt: skip
    from scipy.ndimage import distance_transform_edt

    if not views:
        raise InputError('a registration needs at least one view, found none')
    for view in views:
        if (mask := masks.get(view.name)) is None or mask.shape != view.depth_m.shape:
            raise InputError(f'masks[{view.name!r}] must be a mask of shape {view.depth_m.shape}')
    measured = {v.name: masks[v.name] & v.has_depth for v in views}
    extent = surface_bounds(views, measured)
    if extent is None:
        raise NotEstimable(f'{model.name}: no pixel of it with depth in any view')
    voxel_m = max(0.002, min(0.004, float(np.linalg.norm(np.subtract(*extent))) / 60))
    cloud = fuse_views(views, extent, voxel_m=voxel_m, masks=measured)
    parts = connected_parts(cloud, gap_m=max(0.012, 3 * voxel_m))
    weight = [int(cloud.count[p].sum()) for p in parts]
    kept = [p for p, w in zip(parts, weight, strict=True) if w >= LEAST_PART_SHARE * weight[0]]
    points = cloud.point_m[np.concatenate(kept)] if kept else np.empty((0, 3))
    if len(points) < LEAST_POINTS:
        raise NotEstimable(f'{model.name}: {len(points)} measured places on it, wanted {LEAST_POINTS}')
    nothing: BoolArray = np.zeros((1, 1), dtype=np.bool_)
    hiding = {v.name: (others or {}).get(v.name, nothing) & ~masks[v.name] for v in views}
    beyond = {
        v.name: np.asarray(
            distance_transform_edt(~(masks[v.name] | hiding[v.name] | (~v.has_depth & (not is_complete))))
        )
        for v in views
    }
    seeing = tuple(v for v in views if measured[v.name].any())
    return _Shown(points, seeing, measured, hiding, beyond, tolerance_m, support_z_m)


# Many orientations at once: poses are arrays over starts, (S, 3, 3), (S, 3) and scales (S, 3).


def orientations(n: int) -> FloatArray:
    """Rotations (n, 3, 3) spread evenly over all there are: the super-Fibonacci spiral of Alexa (2022)."""
    s = np.arange(n) + 0.5
    r, rest = np.sqrt(s / n), np.sqrt(1 - s / n)
    a, b = 2 * np.pi * s / math.sqrt(2), 2 * np.pi * s / 1.533751168755204288118041
    x, y, z, w = r * np.sin(a), r * np.cos(a), rest * np.sin(b), rest * np.cos(b)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.asarray(np.moveaxis(np.array(rows), 2, 0))


def _started(
    model: SolidModel, visible: _Shown, likely: FloatArray | None = None
) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
    """The best of many starts after some coarse steps: rotations, middles and scales; and a likely one as it is."""
    from scipy.spatial import cKDTree

    points = _thinned(visible.points, START_POINTS)
    surface, normals = (_thinned(a, 2 * START_POINTS) for a in (model.points, model.normals))
    turns = orientations(N_STARTS)
    if likely is not None:
        upright = [
            rotation_of(np.array([0.0, 0.0, yaw])) @ likely[:3, :3] for yaw in np.arange(N_YAWS) * 2 * np.pi / N_YAWS
        ]
        turns = np.concatenate([turns, upright])
    n_starts = len(turns)
    pixels = [int(visible.masks[v.name].sum()) for v in visible.views]
    clear = [v for v, n in zip(visible.views, pixels, strict=True) if n >= CLEAR_SHARE * max(pixels)]
    ways = _unit(np.array([v.position_m for v in clear]) - points.mean(axis=0))  # (V, 3) to the cameras
    facing = (np.einsum('sij,nj,vi->snv', turns, normals, ways) > FACING).any(axis=2)
    weight = facing / np.maximum(facing.sum(axis=1), 1)[:, None]
    visible_mean = np.einsum('sn,nd->sd', weight, surface)
    spread = np.sqrt(np.einsum('sn,snd->s', weight, (surface[None] - visible_mean[:, None]) ** 2))
    measured = math.sqrt(float(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()))
    factor = np.clip(measured / spread, *_scale_limits(model)) if model.n_scales else np.ones(n_starts)
    scale = np.repeat(factor[:, None], 3, axis=1)
    middle = points.mean(axis=0) - np.einsum('sij,sj->si', turns, scale * visible_mean)
    tree, own = cKDTree(surface), cKDTree(points)
    width = np.geomspace(0.5 * float((model.size * factor.mean()).max()), 2 * visible.tolerance_m, START_STEPS)
    cost: FloatArray = np.zeros(n_starts)
    for number, reach in enumerate(width):
        turns, middle, scale, cost = _coarse_step(
            points, surface, normals, tree, own, facing, turns, middle, scale, reach=float(reach), model=model
        )
        if number == CULL_STEP:  # most starts are hopeless by now
            kept = np.argsort(cost)[:N_CULLED]
            turns, middle, scale, facing = turns[kept], middle[kept], scale[kept], facing[kept]
    below = _below(model, visible, turns, middle, scale)
    order = np.argsort(cost + below**2)
    chosen: list[int] = []
    reach = 0.1 * float((model.size * scale[order[0]]).max())
    corners = np.einsum('sij,snj->sni', turns, scale[:, None] * surface[None, ::8]) + middle[:, None]
    for s in order:
        distances_m = [float(np.linalg.norm(corners[s] - corners[c], axis=1).mean()) for c in chosen]
        if all(a > reach for a in distances_m):
            chosen.append(int(s))
        if len(chosen) == N_REFINED:
            break
    given = [] if likely is None else [(likely[:3, :3], likely[:3, 3], scale[order[0]])]
    return [*((turns[s], middle[s], scale[s]) for s in chosen), *given]


def _coarse_step(
    points: FloatArray, surface: FloatArray, normals: FloatArray, tree: cKDTree, own: cKDTree, facing: BoolArray,
    turns: FloatArray, middle: FloatArray, scale: FloatArray, *, reach: float, model: SolidModel,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """One Gauss-Newton step of every start: points to planes, and the visible surface back to the points."""
    n_starts, n = len(turns), len(points)
    local = np.einsum('sji,snj->sni', turns, points[None] - middle[:, None]) / scale[:, None]
    at = tree.query(local.reshape(-1, 3))[1].reshape(n_starts, n)
    arm = np.einsum('sij,snj->sni', turns, scale[:, None] * surface[at])
    normal = _unit(np.einsum('sij,snj->sni', turns, normals[at] / scale[:, None]))
    gap = points[None] - middle[:, None] - arm
    along = np.einsum('snd,snd->sn', gap, normal)
    far = np.linalg.norm(gap, axis=2)
    weight = (1 - np.clip(far / (2 * reach), 0, 1) ** 2) ** 2
    rows = _rows(arm, normal, np.einsum('sij,snj->sni', np.swapaxes(turns, 1, 2), normal), scale, surface[at], model)
    matrix = np.einsum('snp,snq,sn->spq', rows, rows, weight) / n
    side = np.einsum('snp,sn,sn->sp', rows, along, weight) / n
    # The way back, from what must be visible to the nearest point: it holds the size and the place along a flat side.
    spread = np.einsum('sij,snj->sni', turns, scale[:, None] * surface[None])
    distance, nearest = (
        np.asarray(a).reshape(n_starts, -1) for a in own.query((spread + middle[:, None]).reshape(-1, 3))
    )
    close = CLOSE * facing * (1 - np.clip(distance / (2 * reach), 0, 1) ** 2) ** 2
    close /= np.maximum(facing.sum(axis=1), 1)[:, None]
    back = points[nearest] - middle[:, None] - spread
    for axis in range(3):
        unit = np.broadcast_to(np.eye(3)[axis], spread.shape)
        turned = np.broadcast_to(turns[:, axis, None, :], spread.shape)  # R^T e
        own_rows = _rows(spread, unit, turned, scale, np.broadcast_to(surface, spread.shape), model)
        matrix += np.einsum('snp,snq,sn->spq', own_rows, own_rows, close)
        side += np.einsum('snp,sn,sn->sp', own_rows, back[..., axis], close)
    step = np.linalg.solve(matrix + 1e-9 * np.eye(matrix.shape[1]), side[..., None])[..., 0]
    turned_by = np.array([rotation_of(w) for w in step[:, :3]])
    cost = np.minimum(far / reach, 1).__pow__(2).mean(axis=1) * reach**2
    missed = (np.minimum(distance / reach, 1) ** 2 * facing).sum(axis=1)
    cost += CLOSE * missed / np.maximum(facing.sum(axis=1), 1) * (reach**2)
    return turned_by @ turns, middle + step[:, 3:6], _grown(scale, step[:, 6:], model), cost


def _rows(
    arm: FloatArray, normal: FloatArray, in_body: FloatArray, scale: FloatArray, surface: FloatArray, model: SolidModel
) -> FloatArray:
    """How far a surface point moves along `normal` with a turn about the middle, a shift, and a growth: (..., 6+K)."""
    rows = [np.cross(arm, normal), normal]
    if model.n_scales:
        grown = in_body * (scale[:, None] if scale.ndim == 2 else scale) * surface
        rows.append(grown if model.n_scales == 3 else grown.sum(axis=-1, keepdims=True))
    return np.concatenate(rows, axis=-1)


def _grown(scale: FloatArray, step: FloatArray, model: SolidModel) -> FloatArray:
    if not model.n_scales:
        return scale
    low, high = _scale_limits(model)
    return np.asarray(np.clip(scale * np.exp(np.clip(step, -0.3, 0.3)), low, high))


def _scale_limits(model: SolidModel) -> tuple[float, float]:
    longest = float(model.size.max())
    return model.size_range_m[0] / longest, model.size_range_m[1] / longest


def _below(
    model: SolidModel, surface: _Shown, turns: FloatArray, middle: FloatArray, scale: FloatArray
) -> FloatArray:  # fmt: skip
    """How far each start reaches below the support, beyond the tolerance."""
    if surface.support_z_m is None:
        return np.zeros(len(turns))
    heights = np.einsum('sj,snj->sn', turns[:, 2], scale[:, None] * model.points[None]) + middle[:, 2:]
    lowest = np.quantile(heights, 0.02, axis=1)
    return np.asarray(np.maximum(surface.support_z_m - surface.tolerance_m - lowest, 0.0))


# The best starts, one by one: points to planes, outlines, and the support.


def _refined(
    model: SolidModel, surface: _Shown, turn: FloatArray, middle: FloatArray, scale: FloatArray
) -> tuple[float, PlacedSolid]:
    """The pose after fine steps, and its cost: mean squares of what is left, each cut off at the tolerance."""
    points = _thinned(surface.points, REFINE_POINTS)
    tolerance = surface.tolerance_m
    for width in np.geomspace(6 * tolerance, 1.5 * tolerance, REFINE_STEPS):
        rows, side, weight = _equations(model, surface, points, turn, middle, scale, width=float(width))
        matrix = (rows * weight[:, None]).T @ rows
        matrix += np.diag(1e-6 * np.diag(matrix) + 1e-12)
        step = np.linalg.solve(matrix, (rows * weight[:, None]).T @ side)
        turn, middle = rotation_of(step[:3]) @ turn, middle + step[3:6]
        scale = _grown(scale, step[6:], model)
        if float(np.abs(step).max()) < 2e-5:
            break
    solid = place(model, _pose(turn, middle), scale=scale)
    return _cost(solid, surface, points), solid


def _equations(
    model: SolidModel, surface: _Shown, points: FloatArray, turn: FloatArray, middle: FloatArray, scale: FloatArray,
    *, width: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """Rows (M, 6+K), right sides and weights of a step; every kind of row weighs one in the sum."""
    local = ((points - middle) @ turn) / scale
    at = model.tree.query(local)[1]
    arm = (scale * model.points[at]) @ turn.T
    in_body = _unit(model.normals[at] / scale)
    normal = in_body @ turn.T
    gap = points - middle - arm
    side = [np.einsum('nd,nd->n', gap, normal)]
    far = np.linalg.norm(gap, axis=1)
    weight = [(1 - np.clip(far / (2 * width), 0, 1) ** 2) ** 2 / len(points)]
    rows = [_rows(arm, normal, in_body, scale, model.points[at], model)]
    whole = (scale * model.points) @ turn.T
    for view in surface.views:
        off_px, slope, depth, measured = _drawn(view, surface, whole + middle)
        is_free = ~(measured < depth - surface.tolerance_m) & (off_px > 0) & (depth > 0.05)
        if not is_free.any():
            continue
        metre_px = depth[is_free] / view.intrinsics_px[0, 0]
        # A point drawn beyond the outline goes back along the picture's own directions.
        axes = view.base_from_camera[:3, :3]
        way = _unit(-(slope[is_free, 0, None] * axes[:, 0] + slope[is_free, 1, None] * axes[:, 1]))
        off = off_px[is_free] * metre_px
        rows.append(_rows(whole[is_free], way, way @ turn, scale, model.points[is_free], model))
        side.append(np.minimum(off, 2 * width))
        weight.append(np.full(len(off), OUTLINE / len(whole)) * (1 - np.clip(off / (4 * width), 0, 1) ** 2) ** 2)
    if surface.support_z_m is not None:
        height = whole[:, 2] + middle[2]
        under = np.flatnonzero(height < surface.support_z_m)
        up = np.broadcast_to([0.0, 0.0, 1.0], (len(under), 3))
        rows.append(_rows(whole[under], up, up @ turn, scale, model.points[under], model))
        side.append(surface.support_z_m - height[under])
        weight.append(np.full(len(under), OUTLINE / len(whole)))
    return np.concatenate(rows), np.concatenate(side), np.concatenate(weight)


def _drawn(
    view: RgbdView, surface: _Shown, points: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """Of points (N, 3) in a view: pixels beyond the object's, the slope of that, their depth, and the measured one."""
    pixel, depth = view.project(points)
    height, width = view.depth_m.shape
    with np.errstate(invalid='ignore'):
        u, v = np.nan_to_num(np.rint(pixel), nan=-1, posinf=-1, neginf=-1).astype(np.int64).T
    is_in = (u >= 1) & (v >= 1) & (u < width - 1) & (v < height - 1) & (depth > 0.05)
    u, v = np.where(is_in, u, 1), np.where(is_in, v, 1)
    field = surface.beyond_px[view.name]
    off = np.where(is_in, np.maximum(field[v, u] - 1, 0.0), 0.0)  # the rim itself may be drawn
    slope = np.stack([field[v, u + 1] - field[v, u - 1], field[v + 1, u] - field[v - 1, u]], axis=1) / 2
    measured = np.where(is_in & view.has_depth[v, u], view.depth_m[v, u], np.nan).astype(np.float64)
    return off, slope, depth, measured


def _at(mask: BoolArray, view: RgbdView, points: FloatArray) -> BoolArray:
    """Whether points (N, 3) are drawn on the pixels of a mask."""
    pixel, depth = view.project(points)
    height, width = mask.shape
    with np.errstate(invalid='ignore'):
        u, v = np.nan_to_num(np.rint(pixel), nan=-1, posinf=-1, neginf=-1).astype(np.int64).T
    is_in = (u >= 0) & (v >= 0) & (u < width) & (v < height) & (depth > 0)
    return np.asarray(mask[np.where(is_in, v, 0), np.where(is_in, u, 0)] & is_in)


def _cost(solid: PlacedSolid, surface: _Shown, points: FloatArray) -> float:
    limit = 2 * surface.tolerance_m
    total = float((np.minimum(_distances(solid, points), limit) ** 2).mean())
    for view in surface.views:
        off_px, _, depth, measured = _drawn(view, surface, solid.points)
        off = np.where(measured < depth - surface.tolerance_m, 0.0, off_px * depth / view.intrinsics_px[0, 0])
        total += float((np.minimum(off, limit) ** 2).mean()) * OUTLINE * 2
    if surface.support_z_m is not None:
        under = np.maximum(surface.support_z_m - solid.points[:, 2], 0.0)
        total += float((np.minimum(under, limit) ** 2).mean()) * OUTLINE * 2
    return total + (0.15 * surface.tolerance_m) ** 2  # differences below the noise do not decide


def _distances(solid: PlacedSolid, points: FloatArray) -> FloatArray:
    """How far points (N, 3) lie from the surface: along the normal of the nearest sample, and beside it if far."""
    local = ((points - solid.box.center) @ solid.box.rotation) / solid.scale
    at = solid.model.tree.query(local)[1]
    gap = points - solid.points[at]
    along = np.abs(np.einsum('nd,nd->n', gap, solid.normals[at]))
    lengths = np.linalg.norm(gap, axis=1)
    spacing = 2.0 * math.sqrt(float(np.prod(np.sort(solid.box.size)[1:])) * 4 / len(solid.points))
    return np.asarray(np.where(lengths > spacing + along, lengths, along))


def _checked(solid: PlacedSolid, surface: _Shown, *, n_readings: int, turn_rad: float) -> Registration:
    """The registration with what bears it out, its errors, and the reason to refuse it, if there is one."""
    distance = _distances(solid, surface.points)
    is_near = distance <= surface.tolerance_m
    explained = float(is_near.mean())
    rms = math.sqrt(float((distance[is_near] ** 2).mean())) if is_near.any() else math.inf
    expected = agreed = through = beyond = drawn = 0
    seen_any = np.zeros(len(solid.points), dtype=np.bool_)
    for view in surface.views:
        off_px, _, depth, measured = _drawn(view, surface, solid.points)
        to_camera = _unit(view.position_m - solid.points)
        faces = np.einsum('nd,nd->n', to_camera, solid.normals) > FACING
        front = faces & _is_front(view, solid, depth)
        slack = 1.5 * surface.tolerance_m + surface.tolerance_m * (1 - np.einsum('nd,nd->n', to_camera, solid.normals))
        is_other = _at(surface.hiding[view.name], view, solid.points)
        occluded = (measured < depth - slack) | (is_other & (measured <= depth + slack))
        known = front & np.isfinite(measured) & ~occluded
        expected += int(known.sum())
        agreed += int((known & (np.abs(measured - depth) <= slack)).sum())
        through += int((known & (measured > depth + slack)).sum())
        seen_any |= known & (np.abs(measured - depth) <= slack)
        counted = ~occluded & (depth > 0.05)
        drawn += int(counted.sum())
        beyond += int((counted & (off_px * depth / view.intrinsics_px[0, 0] > surface.tolerance_m)).sum())
    errors = _errors(solid, surface, rms, turn_rad)
    fit = Registration(
        solid, rms, explained, agreed / max(expected, 1), through / max(expected, 1), beyond / max(drawn, 1),
        float(seen_any.mean()), n_readings, *errors, len(surface.views),
    )  # fmt: skip
    return replace(fit, refusal=_refusal(fit, surface))


def _refusal(fit: Registration, surface: _Shown) -> str:
    percent = 100.0
    faults = []
    if fit.explained < LEAST_EXPLAINED:
        faults.append(f'its surface explains {percent * fit.explained:.0f} % of the points, wanted 90 %')
    if fit.covered < LEAST_COVERED:
        faults.append(f'{percent * fit.covered:.0f} % of what should be seen was measured there, wanted 75 %')
    if fit.seen_through > MOST_SEEN_THROUGH:
        faults.append(f'the views see through {percent * fit.seen_through:.0f} % of it')
    if fit.beyond > MOST_BEYOND:
        faults.append(f"{percent * fit.beyond:.0f} % of it is drawn beyond the object's pixels")
    if fit.seen < LEAST_SEEN:
        faults.append(f'{percent * fit.seen:.0f} % of its surface is seen, wanted 12 %')
    if fit.n_readings > 1:
        faults.append(f'{fit.n_readings} poses explain the views about as well')
    sunk = 0.0
    if surface.support_z_m is not None:
        sunk = surface.support_z_m - float(np.quantile(fit.solid.points[:, 2], 0.02))
    if sunk > 2 * surface.tolerance_m:
        faults.append(f'it reaches {1000 * sunk:.0f} mm below what it stands on')
    worst = _worst_iou(fit)
    if worst < RIGHT_IOU:
        faults.append(f'it may be off by {1000 * fit.error_m:.0f} mm and its size by {percent * fit.error_scale:.0f} %')
    low, high = fit.solid.model.size_range_m
    if fit.solid.model.n_scales and not low * 1.01 < float(fit.size_m.max()) < high * 0.99:
        faults.append('its size lies at the border of the range that was given')
    return '; '.join(faults)


def _worst_iou(fit: Registration) -> float:
    """The overlap with the box that is moved, and grown, by the error that is to be expected."""
    box = fit.solid.box
    moved = [
        Box(box.center + sign * fit.error_m * axis, box.size * max(1 + sign * fit.error_scale, 0.05), box.rotation)
        for axis in np.eye(3)
        for sign in (-1, 1)
    ]
    return min(box_iou(box, m) for m in moved)


def _is_front(view: RgbdView, solid: PlacedSolid, depth: FloatArray) -> BoolArray:
    """Which samples are not behind another part of the same solid, by a coarse depth map of the solid itself."""
    pixel, _ = view.project(solid.points)
    spacing = float(solid.box.size.max()) / math.sqrt(len(solid.points)) * 3
    step = max(1.0, spacing * view.intrinsics_px[0, 0] / max(float(np.median(depth)), 0.05))
    cell = np.floor(np.nan_to_num(pixel) / step).astype(np.int64)
    cell -= cell.min(axis=0)
    key = cell[:, 0] * (cell[:, 1].max() + 1) + cell[:, 1]
    nearest = np.full(int(key.max()) + 1, np.inf)
    np.minimum.at(nearest, key, depth)
    return np.asarray(depth <= nearest[key] + max(0.008, 1.5 * spacing))


def _errors(solid: PlacedSolid, surface: _Shown, rms_m: float, turn_rad: float) -> tuple[float, float, float]:
    """How far the middle, the turn and the size may be off (95 %): the fit's own covariance, and what cameras leave.

    Points are not independent, so that they count as a share of their number; directions that nothing holds come out
    with the size of the object, which is what is then known.
    """
    model = solid.model
    points = _thinned(surface.points, REFINE_POINTS)
    rows, _, weight = _equations(
        model, surface, points, solid.box.rotation, solid.box.center, solid.scale, width=1.5 * surface.tolerance_m
    )
    n_effective = max(len(surface.points) * INDEPENDENT_SHARE, 8.0)
    noise = max(rms_m, 0.0007)
    reach = float(solid.box.size.max())
    prior = np.concatenate([np.full(3, 1 / 1.0**2), np.full(3, 1 / reach**2), np.full(model.n_scales, 1 / 0.5**2)])
    matrix = (rows * weight[:, None]).T @ rows * n_effective / noise**2 + np.diag(prior)
    spread = np.linalg.inv(matrix)
    range_m = float(np.mean([np.linalg.norm(v.position_m - solid.box.center) for v in surface.views]))
    camera = turn_rad * range_m / math.sqrt(len(surface.views))
    shift = math.sqrt(max(float(np.linalg.eigvalsh(spread[3:6, 3:6])[-1]), 0.0) + camera**2)
    turn = math.sqrt(max(float(np.linalg.eigvalsh(spread[:3, :3])[-1]), 0.0) + turn_rad**2)
    grown = math.sqrt(float(np.diag(spread)[6:].max())) if model.n_scales else 0.0
    return SYSTEMATIC * shift, min(SYSTEMATIC * turn, math.pi), SYSTEMATIC * grown


def _pose(turn: FloatArray, middle: FloatArray) -> FloatArray:
    pose = np.eye(4)
    u, _, vt = np.linalg.svd(turn)
    pose[:3, :3], pose[:3, 3] = u @ vt, middle
    return pose


def _thinned(values: FloatArray, n: int) -> FloatArray:
    """About n of the rows, evenly by their order."""
    return values if len(values) <= n else values[np.linspace(0, len(values) - 1, n).astype(int)]


def _unit(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))
