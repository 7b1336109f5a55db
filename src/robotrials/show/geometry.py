"""The picture of a placement: voxels where result and target agree, and where they don't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.measure.geometry import Box, PlacementScore, VoxelCloud
from robotrials.show.figure import PAGE_WIDTH_IN, figure_width_in, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALIGNED, RESULT_ONLY, TARGET_ONLY = '#009E73', '#D55E00', '#56B4E9'
FAINT, FULL = '58', 'ff'  # so that what is aligned shows through what is not
MOST_VOXELS = 40
PAGE_PLACES = ((0.0, 0.06, 0.45, 0.84), (0.49, 0.06, 0.45, 0.84))


def placement_figure(
    result: Box,
    target: Box,
    *,
    score: PlacementScore | None = None,
    cloud: VoxelCloud | None = None,
    voxel_m: float | None = None,
) -> Figure:
    """Left, the points seen and both boxes; right, voxels: aligned, only in the result, only in the target."""
    is_narrow = figure_width_in() < 4.5
    figure = new_figure(PAGE_WIDTH_IN, 5.6 if is_narrow else 3.3, is_rows=is_narrow)
    figure.set_layout_engine('none')  # constrained layout does not know axes in three dimensions
    places = ((0.04, 0.53, 0.84, 0.42), (0.04, 0.06, 0.84, 0.4)) if is_narrow else PAGE_PLACES
    seen: Any = figure.add_axes(places[0], projection='3d')
    drawn: Any = figure.add_axes(places[1], projection='3d')
    if cloud is not None:
        points, color = cloud.point_m * 100, np.clip(cloud.color / 255, 0, 1)
        if len(points) > 3000:
            kept = np.linspace(0, len(points) - 1, 3000).astype(int)
            points, color = points[kept], color[kept]
        seen.scatter(*points.T, c=color, s=2, depthshade=False)
    for box, shade, name in ((target, TARGET_ONLY, 'target'), (result, RESULT_ONLY, 'result')):
        for i, j in _edges():
            ends = box.corners[[i, j]] * 100
            seen.plot(*ends.T, color=shade, lw=1.2, label=name if (i, j) == (0, 1) else None)
    seen.legend(loc='lower left', bbox_to_anchor=(-0.05, 0.96), ncols=2, fontsize='small', borderaxespad=0)
    edges, in_result, in_target = _voxels(result, target, voxel_m)
    for mask, shade, alpha, name in (
        (in_result & in_target, ALIGNED, FULL, 'aligned'),
        (in_result & ~in_target, RESULT_ONLY, FAINT, 'result only'),
        (in_target & ~in_result, TARGET_ONLY, FAINT, 'target only'),
    ):
        if mask.any():
            drawn.voxels(*edges, mask, facecolors=shade + alpha, edgecolors='#00000018', linewidth=0.15)
        drawn.plot([], [], 's', color=shade, label=name)
    drawn.legend(
        loc='lower left', bbox_to_anchor=(-0.08, 0.96), ncols=3, fontsize='small', borderaxespad=0, columnspacing=0.8,
        handletextpad=0.2,
    )  # fmt: skip
    if score is not None:
        said = f'IoU {score.iou:.3f} ({"success" if score.success else "failure"} at {score.threshold:g}), '
        figure.text(0.5, 0.99, f'{said}{1000 * score.translation_error_m:.1f} mm', ha='center', va='top')
    _same_limits(seen, drawn, np.concatenate([result.corners, target.corners]) * 100)
    return figure


def _voxels(
    result: Box, target: Box, voxel_m: float | None
) -> tuple[list[NDArray[Any]], NDArray[np.bool_], NDArray[np.bool_]]:
    corners = np.concatenate([result.corners, target.corners])
    low, high = corners.min(axis=0), corners.max(axis=0)
    step = voxel_m or float((high - low).max()) / 14
    counts = np.maximum(1, np.ceil((high - low) / step - 1e-9).astype(int))
    if counts.max() > MOST_VOXELS:
        raise InputError(
            f'{counts.tolist()} voxels are too many to draw; use voxel_m >= {step * counts.max() / 40:.4f}'
        )
    grid = np.meshgrid(*(low[k] + step * (np.arange(counts[k]) + 0.5) for k in range(3)), indexing='ij')
    points = np.stack([g.ravel() for g in grid], axis=1)
    ends = [low[k] + step * np.arange(counts[k] + 1) for k in range(3)]
    edges = [100 * g for g in np.meshgrid(*ends, indexing='ij')]
    return edges, result.contains(points).reshape(counts), target.contains(points).reshape(counts)


def _edges() -> list[tuple[int, int]]:
    return [(i, i | 1 << k) for i in range(8) for k in range(3) if not i >> k & 1]


def _same_limits(first: Any, second: Any, corners_cm: NDArray[Any]) -> None:
    low, high = corners_cm.min(axis=0), corners_cm.max(axis=0)
    reach = np.maximum(high - low, (high - low).max() / 3) * 0.55
    for axes in (first, second):
        for name, center, half in zip('xyz', (low + high) / 2, reach, strict=True):
            getattr(axes, f'set_{name}lim')(center - half, center + half)
            getattr(axes, f'{name}axis').get_major_locator().set_params(nbins=5)
            getattr(axes, f'set_{name}label')(f'{name}, cm', fontsize='small', labelpad=-4)
        axes.tick_params(labelsize='x-small', pad=-2)
        axes.set_box_aspect(tuple(reach))
