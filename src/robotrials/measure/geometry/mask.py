"""Which pixels and points are an object's: by colour and size, by depth above the empty scene, or from a segmenter.

A segmenter (files, a process, an HTTP endpoint) gets a picture and a few words and answers with a mask, which is kept
with the episode as run lengths, so that whoever scores the views later needs no segmenter.
"""

from __future__ import annotations

import base64
import colorsys
import io
import json
import math
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, RigError, SetupError, StoreError, install_hint
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray
from robotrials.measure.geometry.fit import surface_distance
from robotrials.measure.geometry.view import RgbdView, VoxelCloud, fuse_views
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.wire.request import HttpLink


# What stands fixed in the workspace, as boxes over a floor: how far points lie from it, and the depth it shows.

IndexArray = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class StaticScene:
    """Boxes that do not move during a trial (table, bins, fixtures), and the height of the floor below them."""

    boxes: tuple[Box, ...]
    floor_z_m: float | None = None

    def __post_init__(self) -> None:
        if not self.boxes and self.floor_z_m is None:
            raise InputError('a static scene needs a floor, or at least one box, such as the table')

    @property
    def lowest_top_m(self) -> float:
        """The height of the lowest surface that things may lie on, the floor aside where there is any other."""
        return min((float(box.bounds[1][2]) for box in self.boxes), default=self.floor_z_m or 0.0)

    def distance(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Signed distances (N,) of points (N, 3) from the nearest surface, inside negative, and their gradients."""
        best = np.full(len(points), np.inf)
        gradient = np.zeros((len(points), 3))
        if self.floor_z_m is not None:
            best = points[:, 2] - self.floor_z_m
            gradient[:, 2] = 1.0
        for box in self.boxes:
            low, high = box.bounds
            gap = np.maximum(np.maximum(low - points, points - high), 0.0)
            near = np.flatnonzero(np.einsum('nd,nd->n', gap, gap) < np.maximum(best, 0.0) ** 2 + 1e-12)
            if not len(near):
                continue
            to_box, local = surface_distance(points[near], box)
            closer = to_box < best[near]
            best[near[closer]] = to_box[closer]
            gradient[near[closer]] = local[closer] @ box.rotation.T
        return best, gradient

    def depth(self, view: RgbdView, *, step: int = 1) -> FloatArray:
        """Depth along z (H, W) that the view would have of the scene alone; infinite where it sees nothing of it."""
        height, width = view.depth_m.shape
        v, u = np.mgrid[0:height:step, 0:width:step]
        return self.depth_at(view, v.ravel(), u.ravel()).reshape(u.shape)

    def depth_at(self, view: RgbdView, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """The same at pixels (N,)."""
        k = view.intrinsics_px
        x, y = (columns - k[0, 2]) / k[0, 0], (rows - k[1, 2]) / k[1, 1]
        rays = np.stack([x, y, np.ones(len(rows))], axis=-1) @ view.base_from_camera[:3, :3].T
        depth = np.full(len(rays), np.inf)
        start = view.position_m
        with np.errstate(divide='ignore', invalid='ignore'):
            if self.floor_z_m is not None:
                to_floor = (self.floor_z_m - start[2]) / rays[:, 2]
                depth = np.where(to_floor > 0, to_floor, depth)
            for box in self.boxes:
                # A ray's parameter is its depth, because its third component in the camera is 1.
                origin, way = (start - box.center) @ box.rotation, rays @ box.rotation
                ends = np.stack([(-box.size / 2 - origin) / way, (box.size / 2 - origin) / way])
                low, high = ends.min(axis=0), ends.max(axis=0)
                enter = np.fmax(np.fmax(low[:, 0], low[:, 1]), low[:, 2])
                leave = np.fmin(np.fmin(high[:, 0], high[:, 1]), high[:, 2])
                hit = (enter <= leave) & (enter > 0)
                depth = np.where(hit & (enter < depth), enter, depth)
        return depth


@lru_cache(maxsize=8)
def empty_depth(scene: StaticScene, view: RgbdView) -> FloatArray:
    """`scene.depth(view)`, worked out once for the objects that are looked for in the same view."""
    return scene.depth(view)


def view_points(view: RgbdView, rows: IndexArray, columns: IndexArray) -> FloatArray:
    """World points (N, 3) of pixels with depth."""
    v, u = rows, columns
    k = view.intrinsics_px
    rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(len(u))], axis=1)
    depth = view.depth_m[v, u].astype(np.float64)
    return np.asarray((rays * depth[:, None]) @ view.base_from_camera[:3, :3].T + view.position_m)


GREY_SATURATION = 0.15
SUPPORT_SHARE = 0.25  # of a patch that must stand out from the empty scene
LEAST_PATCH = 6  # pixels


@dataclass(frozen=True, slots=True)
class ObjectModel:
    """What is known of an object beforehand: its colour, and its full edge lengths if they are known.

    The colour is compared by hue, so that shading does not matter; a grey object is compared by brightness too. With
    `rgb_slack` it is compared as plain RGB.
    """

    name: str
    color_rgb: tuple[int, int, int]
    size_m: tuple[float, float, float] | None = None
    hue_slack_deg: float = 22.0
    saturation_share: float = 0.4  # of the model's own saturation, the least that a pixel must have
    least_value: float = 0.06
    rgb_slack: float | None = None  # compare plain RGB by this distance instead: simple, and at the mercy of the light

    def __post_init__(self) -> None:
        if not all(0 <= c <= 255 for c in self.color_rgb):
            raise InputError(f'object {self.name}: color_rgb must be three numbers 0..255, found {self.color_rgb}')
        if self.size_m is not None and not all(s > 0 for s in self.size_m):
            raise InputError(f'object {self.name}: size_m must be three edges > 0 in metres, found {self.size_m}')


def color_mask(rgb: NDArray[np.uint8], model: ObjectModel) -> BoolArray:
    """Pixels (H, W) of the model's colour."""
    if model.rgb_slack is not None:
        off = np.linalg.norm(rgb.astype(np.float64) - model.color_rgb, axis=2)
        return np.asarray(off <= model.rgb_slack)
    hue, saturation, value = colorsys.rgb_to_hsv(*(c / 255 for c in model.color_rgb))
    mask = np.empty(rgb.shape[:2], dtype=np.bool_)
    if saturation >= GREY_SATURATION:
        from robotrials.measure.geometry.kernel import hue_mask

        least = saturation * model.saturation_share
        hue_mask(np.ascontiguousarray(rgb), hue * 360, model.hue_slack_deg, least, model.least_value, mask)
        return mask
    top = rgb.max(axis=2).astype(np.float64)
    chroma = top - rgb.min(axis=2)
    return np.asarray((chroma <= GREY_SATURATION * np.maximum(top, 1)) & (np.abs(top - 255 * value) <= 45))


def color_masks(views: Sequence[RgbdView], model: ObjectModel) -> dict[str, BoolArray]:
    """One mask a view, with depth, and without the rim of the object where colours and depths of two surfaces mix."""
    masks: dict[str, BoolArray] = {}
    for view in views:
        mask = color_mask(view.rgb, model)
        thinner = _without_rim(mask)
        # A far object is only a few pixels: better a mixed rim than nothing.
        kept = thinner if thinner.sum() >= 0.4 * mask.sum() else mask
        masks[view.name] = kept & view.has_depth
    return masks


def supported_masks(
    views: Sequence[RgbdView], model: ObjectModel, scene: StaticScene, *, tolerance_m: float
) -> dict[str, BoolArray]:
    """Pixels of the model's colour that belong to something which stands out from the empty scene.

    A patch of the colour is kept when a quarter of it is nearer than what stands fixed; a print on a cloth is not.
    """
    from scipy.ndimage import label

    masks = {}
    for view in views:
        mask = color_masks([view], model)[view.name]
        empty = empty_depth(scene, view)
        with np.errstate(invalid='ignore'):
            rises = mask & (view.depth_m < empty - tolerance_m * np.maximum(np.minimum(empty, 4.0) ** 2, 0.25))
        patches, n = label(mask, structure=np.ones((3, 3)))
        size, raised = (np.bincount(patches[m], minlength=n + 1) for m in (mask, rises))
        good = (raised >= SUPPORT_SHARE * np.maximum(size, 1)) & (size >= LEAST_PATCH)
        good[0] = False
        masks[view.name] = mask & good[patches]
    return masks


def whole_patches(views: Sequence[RgbdView], model: ObjectModel, kept: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    """The patches of the model's colour that hold a kept pixel: with their rim, and where depth is missing."""
    from scipy.ndimage import label

    whole = {}
    for view in views:
        patches, n = label(color_mask(view.rgb, model), structure=np.ones((3, 3)))
        touched = np.zeros(n + 1, dtype=np.bool_)
        touched[np.unique(patches[kept[view.name]])] = True
        touched[0] = False
        whole[view.name] = touched[patches]
    return whole


def _without_rim(mask: BoolArray) -> BoolArray:
    inner = np.zeros_like(mask)
    inner[1:-1, 1:-1] = mask[1:-1, 1:-1] & mask[:-2, 1:-1] & mask[2:, 1:-1] & mask[1:-1, :-2] & mask[1:-1, 2:]
    return inner


def connected_parts(cloud: VoxelCloud, *, gap_m: float) -> list[NDArray[np.int64]]:
    """Indices of voxels in connected parts, the largest part (by pixels) first; nearer than `gap_m` is connected."""
    if not len(cloud):
        return []
    from scipy.ndimage import label

    coarse = np.floor(cloud.point_m / gap_m).astype(np.int64)
    coarse -= coarse.min(axis=0)
    shape = coarse.max(axis=0) + 1
    grid = np.zeros(tuple(shape), dtype=np.bool_)
    grid[tuple(coarse.T)] = True
    labels, n = label(grid, structure=np.ones((3, 3, 3)))
    of_voxel = labels[tuple(coarse.T)]
    weight = np.bincount(of_voxel, weights=cloud.count, minlength=n + 1)
    order = [int(k) for k in np.argsort(-weight, kind='stable') if k > 0 and weight[k] > 0]
    return [np.flatnonzero(of_voxel == k) for k in order]


def surface_bounds(views: Sequence[RgbdView], masks: Mapping[str, BoolArray]) -> tuple[FloatArray, FloatArray] | None:
    """The corners of the masked points' hull, without the outermost thousandth; None when no pixel is masked."""
    seen = [view_points(view, *np.nonzero(masks[view.name])) for view in views if masks[view.name].any()]
    if not seen:
        return None
    points = np.concatenate(seen)
    low, high = np.quantile(points, [0.001, 0.999], axis=0)
    margin = 0.02 + 0.02 * math.sqrt(float(((high - low) ** 2).sum()))
    return low - margin, high + margin


MASKS = 'rgbd/masks.json'  # beside an episode's views
ORACLE = 'oracle_masks'  # who made them, where a simulator's own ids did
MOST_BYTES = 32 << 20
TIMEOUT_S = 120.0
GAP_M = 0.015  # between two things that stand out of the scene
LEAST_PART_VOXELS = 60  # voxels of 3 mm
MOST_HEIGHT_M = 0.4  # above what stands fixed
MOST_CELLS = 20_000_000

Segmenter = Callable[[RgbdView, str], BoolArray]
Masks = Mapping[str, Mapping[str, BoolArray]]  # by object, then by view


def segmenter(spec: str, *, timeout_s: float = TIMEOUT_S) -> Segmenter:
    """A segmenter by what it is: an http(s) address, `command:...`, or a folder of masks.

    A folder has VIEW.WORDS.png or .npy, or VIEW.png for all words. A command is run as COMMAND PICTURE.png WORDS
    MASK.png and writes the last. An address is sent {"image": PNG as base64, "prompt": words} and answers with a mask.
    """
    if spec.startswith(('http://', 'https://')):
        return _HttpSegmenter(spec, timeout_s)
    if spec.startswith('command:'):
        words = shlex.split(spec.removeprefix('command:'))
        if not words:
            raise InputError('command: names no command; wanted, for example, command:python segment.py')
        return lambda view, prompt: _from_process(words, view, prompt, timeout_s)
    folder = Path(spec)
    if not folder.is_dir():
        raise InputError(f'{spec}: no segmenter; wanted a folder of masks, command:COMMAND, or an http address')
    return lambda view, prompt: _from_file(folder, view, prompt)


def _from_file(folder: Path, view: RgbdView, prompt: str) -> BoolArray:
    names = [f'{view.name}.{prompt}.png', f'{view.name}.{prompt}.npy', f'{view.name}.png', f'{view.name}.npy']
    path = next((folder / n for n in names if (folder / n).is_file()), None)
    if path is None:
        raise InputError(f'{folder}: no mask of {prompt!r} in view {view.name}; wanted {names[0]} or {names[2]}')
    if path.suffix == '.npy':
        try:
            mask = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise InputError(f'{path}: not readable as an array ({error})') from error
    else:
        mask = _picture(path.read_bytes(), str(path))
    return _checked(mask, view, str(path))


def _from_process(words: Sequence[str], view: RgbdView, prompt: str, timeout_s: float) -> BoolArray:
    with tempfile.TemporaryDirectory() as folder:
        picture, mask = Path(folder) / 'picture.png', Path(folder) / 'mask.png'
        picture.write_bytes(_png(view.rgb))
        try:
            done = subprocess.run(
                [*words, str(picture), prompt, str(mask)], capture_output=True, timeout=timeout_s, check=False
            )
        except FileNotFoundError as error:
            raise SetupError(f'{words[0]}: no such command; give the path of your segmenter') from error
        except subprocess.TimeoutExpired as error:
            raise RigError(f'{words[0]}: no mask within {timeout_s:g} s') from error
        if done.returncode or not mask.is_file():
            said = done.stderr.decode(errors='replace').strip().splitlines()[-1:] or ['nothing']
            raise RigError(
                f'{words[0]}: ended with {done.returncode} and wrote no mask; its last words: {said[0][:200]}'
            )
        return _checked(_picture(mask.read_bytes(), str(mask)), view, words[0])


class _HttpSegmenter:
    """An endpoint that is sent a picture; the connection is kept from one picture to the next."""

    def __init__(self, url: str, timeout_s: float) -> None:
        from robotrials.wire.request import HttpLink

        parts = urlsplit(url)
        self._link: HttpLink = HttpLink(f'{parts.scheme}://{parts.netloc}')
        self._path = f'{parts.path or "/"}{"?" if parts.query else ""}{parts.query}'
        self._url, self._timeout_s = url, timeout_s

    def __call__(self, view: RgbdView, prompt: str) -> BoolArray:
        body = {'image': base64.b64encode(_png(view.rgb)).decode(), 'prompt': prompt}
        reply = self._link.post(self._path, json.dumps(body).encode(), timeout_s=self._timeout_s)
        if reply.status != 200:
            raise RigError(f'{self._url}: HTTP {reply.status}: {reply.text(200)}')
        try:
            answer = json.loads(reply.body)
        except (ValueError, RecursionError) as error:
            raise AnswerError(f'{self._url}: the answer is not JSON ({error})') from error
        return _checked(_best(answer, view.depth_m.shape, self._url), view, self._url)


def _best(answer: Any, shape: tuple[int, ...], where: str) -> NDArray[Any]:
    """The mask of an answer: one, or the one with the best score of several, in the spellings of SAM's servers."""
    scores: list[float] = []
    if isinstance(answer, dict) and 'masks' in answer:
        scores = [float(s) for s in answer.get('scores') or answer.get('iou_predictions') or []]
        answer = answer['masks']
    if isinstance(answer, list) and answer and (all(isinstance(t, dict) for t in answer) or isinstance(answer[0], str)):
        if isinstance(answer[0], dict):
            scores = scores or [float(t.get('score', t.get('predicted_iou', 0.0))) for t in answer]
        answer = answer[int(np.argmax(scores))] if len(scores) == len(answer) else answer[0]
    if isinstance(answer, dict):
        answer = next((answer[k] for k in ('mask', 'segmentation', 'rle') if k in answer), answer)
    if isinstance(answer, str):
        try:
            return _picture(base64.b64decode(answer.partition(',')[2] if answer.startswith('data:') else answer), where)
        except ValueError as error:
            raise AnswerError(f'{where}: a mask that is not base64 ({error})') from error
    if isinstance(answer, dict) and 'counts' in answer:
        return from_run_lengths(answer, where=where)
    if isinstance(answer, list) and not answer:
        return np.zeros(shape, dtype=np.bool_)
    raise AnswerError(f'{where}: no mask in the answer; wanted mask(s) as PNG in base64 or as run lengths (COCO)')


def raised_parts(views: Sequence[RgbdView], scene: StaticScene, *, tolerance_m: float) -> list[dict[str, BoolArray]]:
    """What stands out of the empty scene, in connected parts: masks by view of each, the largest first.

    It needs no segmenter and no colour; two things that touch are one part.
    """
    raised = {}
    for view in views:
        empty = empty_depth(scene, view)
        with np.errstate(invalid='ignore'):
            raised[view.name] = view.has_depth & (
                view.depth_m < empty - tolerance_m * np.maximum(np.minimum(empty, 4.0) ** 2, 0.5)
            )
    extent = surface_bounds(views, raised)
    if extent is None:
        return []
    corners = np.concatenate([box.corners for box in scene.boxes] or [np.array(extent)])
    top_m = corners[:, 2].max() if scene.boxes else scene.lowest_top_m
    low = np.maximum(extent[0], corners.min(axis=0))
    high = np.minimum(extent[1], [*corners.max(axis=0)[:2], top_m + MOST_HEIGHT_M])
    if not (low < high).all():
        return []
    voxel_m = max(0.003, float(np.cbrt(np.prod(high - low) / MOST_CELLS)))
    cloud = fuse_views(views, (low, high), voxel_m=voxel_m, masks=raised)
    parts = [p for p in connected_parts(cloud, gap_m=GAP_M) if len(p) >= LEAST_PART_VOXELS]
    by_part = []
    for part in parts:
        box_low, box_high = cloud.point_m[part].min(axis=0) - 0.004, cloud.point_m[part].max(axis=0) + 0.004
        masks = {}
        for view in views:
            rows, columns = np.nonzero(raised[view.name])
            points = view_points(view, rows, columns)
            own = ((points >= box_low) & (points <= box_high)).all(axis=1)
            mask = np.zeros(view.depth_m.shape, dtype=np.bool_)
            mask[rows[own], columns[own]] = True
            masks[view.name] = mask
        by_part.append(masks)
    return by_part


# Masks as they are kept, and as segmenters send them: run lengths down the columns, as COCO writes them.


def to_run_lengths(mask: BoolArray) -> dict[str, Any]:
    """COCO's uncompressed run lengths: zeros first, column by column."""
    flat = np.concatenate([[False], mask.ravel(order='F'), [False]])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    counts = np.diff(np.concatenate([[0], edges, [mask.size]]))
    return {'size': list(mask.shape), 'counts': counts.tolist()}


def from_run_lengths(packed: Mapping[str, Any], *, where: str) -> BoolArray:
    """A mask from COCO's run lengths, as numbers or in its letters."""
    size, counts = packed.get('size'), packed.get('counts')
    try:
        height, width = (int(v) for v in size)  # type: ignore[union-attr]
        lengths = _letters(counts) if isinstance(counts, str) else [int(c) for c in counts]  # type: ignore[union-attr]
    except (TypeError, ValueError) as error:
        raise AnswerError(f'{where}: run lengths with size {size!r} cannot be read ({error})') from error
    if not (0 < height * width <= 4096 * 4096) or min(lengths, default=0) < 0 or sum(lengths) != height * width:
        raise AnswerError(f'{where}: run lengths that fill {sum(lengths)} of {height} x {width} pixels')
    values = np.arange(len(lengths)) % 2 == 1
    return np.repeat(values, lengths).reshape((height, width), order='F')


def _letters(text: str) -> list[int]:
    """COCO's compressed counts: six bits a letter, five of them a value's, and differences from the third on."""
    counts: list[int] = []
    at = 0
    while at < len(text):
        value = shift = 0
        more = True
        while more:
            if at >= len(text):
                raise ValueError('cut short')
            bits = ord(text[at]) - 48
            value |= (bits & 31) << shift
            more, shift, at = bool(bits & 32), shift + 5, at + 1
            if not more and bits & 16:
                value |= -1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
    return counts


def pack_masks(masks: Masks, *, by: str) -> bytes:
    """The masks of an episode's end as a file."""
    packed = {name: {view: to_run_lengths(m) for view, m in of.items()} for name, of in masks.items()}
    return json.dumps({'by': by, 'end': packed}, sort_keys=True, separators=(',', ':')).encode()


def unpack_masks(content: bytes, *, where: str) -> tuple[dict[str, dict[str, BoolArray]], str]:
    """The same back, and who made them; StoreError where it is not what it says."""
    if len(content) > MOST_BYTES:
        raise StoreError(f'{where}: {len(content)} bytes, wanted at most {MOST_BYTES}')
    try:
        document = json.loads(content)
        masks = {
            str(name): {str(view): from_run_lengths(m, where=where) for view, m in of.items()}
            for name, of in document['end'].items()
        }
        return masks, str(document['by'])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, AnswerError) as error:
        raise StoreError(f'{where}: not the masks of an episode ({error})') from error


def _checked(mask: NDArray[Any], view: RgbdView, where: str) -> BoolArray:
    flat = mask.any(axis=2) if mask.ndim == 3 else mask
    if flat.shape != view.depth_m.shape:
        raise InputError(f'{where}: a mask of {flat.shape}, wanted {view.depth_m.shape} as view {view.name} has')
    return np.asarray(flat != 0)


def _png(rgb: NDArray[np.uint8]) -> bytes:
    packed = io.BytesIO()
    _pillow().fromarray(rgb).save(packed, 'PNG')
    return packed.getvalue()


def _picture(content: bytes, where: str) -> NDArray[Any]:
    image = _pillow()
    try:
        with image.open(io.BytesIO(content), formats=['PNG']) as opened:
            if opened.size[0] * opened.size[1] > 4096 * 4096:
                raise AnswerError(f'{where}: a mask of {opened.size[0]} x {opened.size[1]} pixels')
            return np.asarray(opened.convert('L') if opened.mode not in ('1', 'L', 'I', 'I;16') else opened)
    except (OSError, ValueError, SyntaxError) as error:
        raise AnswerError(f'{where}: a mask that is not a PNG ({error})') from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise SetupError(f'masks as pictures need Pillow: {install_hint("wire")}') from error
    return Image
