"""Where to put cameras: poses from which most of the objects' surfaces is seen, wherever the task puts them.

Surfaces of the objects are sampled at their starts, at their goals and, for a region, in drawn arrangements inside it;
what stands fixed and the other objects hide them. Cameras are chosen one by one and then exchanged as long as that
helps. A place on a surface that two cameras see counts more than one that a single camera does: one view alone cannot
be checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, about_z
from robotrials.measure.geometry.camera_score import box_of, static_scene
from robotrials.measure.geometry.mask import StaticScene
from robotrials.record.footage import KnownBox, KnownScene, View

N_ARRANGEMENTS = 24  # of the objects in a region
PER_FACE = 3  # points along each edge of a face
SECOND = 0.5  # worth of a second view of a place, beside the first
STEEPEST = 0.2  # sine of the angle to a surface below which it is not measured
AZIMUTHS = np.radians(np.arange(0, 360, 15))
ELEVATIONS = np.radians((25.0, 40.0, 55.0, 70.0))
APART_RAD = math.radians(25)  # between two cameras as seen from the work: nearer ones see the same
SLACK_M = 0.002


@dataclass(frozen=True, slots=True, eq=False)
class CameraSite:
    """A place for a camera: its pose (x right, y down, z ahead), and the picture it would take."""

    name: str
    world_from_camera: FloatArray  # (4, 4)
    intrinsics_px: FloatArray  # (3, 3)
    height_px: int
    width_px: int

    @property
    def position_m(self) -> FloatArray:
        return np.asarray(self.world_from_camera[:3, 3])


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the objects' surfaces cameras see, over all arrangements: shares in [0, 1]."""

    seen: float  # by a camera or more, on average
    seen_twice: float  # by two or more
    worst: float  # of the object that is seen least, in the arrangement where it is
    hidden: float  # share of objects of which less than a quarter is seen


def layouts_of(known: KnownScene, *, rng: np.random.Generator) -> list[list[Box]]:
    """Where the task puts its objects: at the start, at their goals, and drawn inside a region."""
    starts = {o.name: box_of(o.start) for o in known.objects}
    layouts = [list(starts.values())]
    if known.goals:
        layouts.append([box_of(g.box) for g in known.goals])
    places = [(g.object, g.place) for g in known.poses if g.place is not None and g.kind in ('in', 'on', 'within')]
    regions = (
        [(n, np.array(known.region.low_m), np.array(known.region.high_m)) for n in known.region.objects]
        if (known.region is not None)
        else [(n, *_ends(p)) for n, p in places]
    )
    for _ in range(N_ARRANGEMENTS if regions else 0):
        drawn: list[Box] = []
        for name, low, high in regions:
            box = starts.get(name)
            if box is None:
                continue
            for _ in range(20):  # a few tries to find room beside the others; then it lies upon them
                half = float(np.linalg.norm(box.size[:2])) / 2
                room = np.maximum(high[:2] - low[:2] - 2 * half, 0.0)
                xy = low[:2] + (high[:2] - low[:2] - room) / 2 + room * rng.random(2)
                if all(np.linalg.norm(xy - d.center[:2]) > 1.4 * half for d in drawn):
                    break
            yaw = rng.uniform(0, math.pi)
            turn = about_z(yaw) @ box.rotation
            under = [d for d in drawn if np.linalg.norm(xy - d.center[:2]) <= 1.4 * half]
            floor = max([float(low[2]), *(float(d.bounds[1][2]) for d in under)])
            drawn.append(Box([*xy, floor + float(np.ptp(box.bounds, axis=0)[2]) / 2], box.size, turn))
        layouts.append(drawn)
    return [layout for layout in layouts if layout]


def _ends(place: KnownBox) -> tuple[FloatArray, FloatArray]:
    return box_of(place).bounds


def sites_around(
    middle_m: FloatArray, *, distances_m: Sequence[float], height_px: int, width_px: int, fovy_rad: float
) -> list[CameraSite]:
    """Candidates on shells about the work, all looking at its middle."""
    focal = height_px / 2 / math.tan(fovy_rad / 2)
    k = np.array([[focal, 0, (width_px - 1) / 2], [0, focal, (height_px - 1) / 2], [0, 0, 1.0]])
    sites = []
    for distance in distances_m:
        for elevation in ELEVATIONS:
            for azimuth in AZIMUTHS:
                flat = math.cos(elevation)
                way = np.array([flat * math.cos(azimuth), flat * math.sin(azimuth), math.sin(elevation)])
                pose = np.eye(4)
                right = np.cross(-way, [0.0, 0.0, 1.0])
                right /= np.linalg.norm(right)
                pose[:3, :3] = np.stack([right, np.cross(-way, right), -way], axis=1)
                pose[:3, 3] = middle_m + distance * way
                name = f'{math.degrees(azimuth):.0f}/{math.degrees(elevation):.0f}/{distance:g}'
                sites.append(CameraSite(name, pose, k, height_px, width_px))
    return sites


def site_of(name: str, view: View) -> CameraSite:
    """Where a camera stands that has taken a view."""
    camera = view.camera
    if camera.intrinsics_px is None or camera.world_from_camera is None:
        raise InputError(f'camera {name} has no calibration')
    return CameraSite(name, camera.world_from_camera, camera.intrinsics_px, camera.height_px, camera.width_px)


@dataclass(frozen=True, slots=True, eq=False)
class _Surface:
    """Samples of every object in every arrangement: points, normals, and which object of which arrangement."""

    points: FloatArray  # (N, 3)
    normals: FloatArray  # (N, 3)
    owner: FloatArray  # (N,)
    layout: FloatArray  # (N,)


def _surface(layouts: Sequence[Sequence[Box]]) -> _Surface:
    """Points on the faces that are not underneath."""
    grid = (np.arange(PER_FACE) + 0.5) / PER_FACE - 0.5
    points, normals, owner, number = [], [], [], []
    n = 0
    for index, layout in enumerate(layouts):
        for box in layout:
            for axis in range(3):
                for sign in (-1.0, 1.0):
                    normal = sign * box.rotation[:, axis]
                    if normal[2] < -0.5:
                        continue
                    local = np.zeros((PER_FACE**2, 3))
                    others = [a for a in range(3) if a != axis]
                    local[:, others] = np.array(np.meshgrid(grid, grid)).reshape(2, -1).T
                    local[:, axis] = sign / 2
                    points.append(box.center + (local * box.size) @ box.rotation.T)
                    normals.append(np.broadcast_to(normal, (PER_FACE**2, 3)))
                    owner.append(np.full(PER_FACE**2, n))
                    number.append(np.full(PER_FACE**2, index))
            n += 1
    return _Surface(*(np.concatenate(a) for a in (points, normals, owner, number)))


def _sees(site: CameraSite, surface: _Surface, layouts: Sequence[Sequence[Box]], scene: StaticScene) -> BoolArray:
    """Which samples (N,) a camera sees: facing it, in the picture, and behind nothing."""
    away = site.position_m - surface.points
    far = np.linalg.norm(away, axis=1)
    facing = np.einsum('nd,nd->n', away, surface.normals) > STEEPEST * far
    local = -away @ site.world_from_camera[:3, :3]
    k = site.intrinsics_px
    with np.errstate(divide='ignore', invalid='ignore'):
        u, v = k[0, 0] * local[:, 0] / local[:, 2] + k[0, 2], k[1, 1] * local[:, 1] / local[:, 2] + k[1, 2]
    seen: BoolArray = facing & (local[:, 2] > 0.1) & (u >= 0) & (v >= 0) & (u < site.width_px) & (v < site.height_px)
    for box in scene.boxes:
        seen &= ~_blocks(box, surface.points, away)
    for index, layout in enumerate(layouts):
        own = np.flatnonzero(seen & (surface.layout == index))
        for box in layout:
            hidden = _blocks(box, surface.points[own], away[own])
            seen[own[hidden]] = False
    return seen


def _blocks(box: Box, points: FloatArray, away: FloatArray) -> BoolArray:
    """Whether a box lies between points (N, 3) and a camera that is `away`; the surface's own box does not."""
    origin, way = (points - box.center) @ box.rotation, away @ box.rotation
    with np.errstate(divide='ignore', invalid='ignore'):
        ends = np.stack([(-box.size / 2 - origin) / way, (box.size / 2 - origin) / way])
    low, high = np.nan_to_num(ends.min(axis=0), nan=-np.inf), np.nan_to_num(ends.max(axis=0), nan=np.inf)
    enter, leave = low.max(axis=1), high.min(axis=1)
    length = np.linalg.norm(away, axis=1)
    return np.asarray(((leave - np.maximum(enter, 0.0)) * length > SLACK_M) & (enter < 1.0))


def coverage(sites: Sequence[CameraSite], layouts: Sequence[Sequence[Box]], scene: StaticScene) -> Coverage:
    """What cameras see of the objects, over the arrangements."""
    surface = _surface(layouts)
    return _coverage(np.array([_sees(site, surface, layouts, scene) for site in sites]), surface)


def _coverage(seen: BoolArray, surface: _Surface) -> Coverage:
    count = seen.sum(axis=0)
    owner = surface.owner.astype(np.int64)
    share = np.bincount(owner, weights=count >= 1) / np.bincount(owner)
    return Coverage(
        float((count >= 1).mean()), float((count >= 2).mean()), float(share.min()), float((share < 0.25).mean())
    )


def place_cameras(
    known: Sequence[KnownScene], n: int, *, rng: np.random.Generator, distances_m: Sequence[float] = (0.9, 1.2),
    height_px: int = 240, width_px: int = 320, fovy_rad: float = math.radians(45),
) -> tuple[list[CameraSite], Coverage, list[list[Box]], StaticScene]:  # fmt: skip
    """The `n` sites that see most, the coverage, and what it was measured on"""
    if not known or n < 1:
        raise InputError(f'{len(known)} scenes and {n} cameras: wanted at least one of each')
    if not known[0].fixed:
        raise InputError('the scene does not say what stands fixed; places for cameras cannot be computed')
    scene = static_scene(known[0])
    layouts = [layout for k in known for layout in layouts_of(k, rng=rng)]
    if not layouts:
        raise InputError('the scene has no objects to look at')
    surface = _surface(layouts)
    sites = sites_around(
        surface.points.mean(axis=0), distances_m=distances_m, height_px=height_px, width_px=width_px, fovy_rad=fovy_rad
    )
    seen = np.array([_sees(site, surface, layouts, scene) for site in sites])
    ways = np.array([s.world_from_camera[:3, 2] for s in sites])
    chosen: list[int] = []
    for _ in range(n):
        chosen.append(_best(seen, chosen, ways))
    for _ in range(3):  # exchange one at a time until nothing better is found
        before = list(chosen)
        for at in range(n):
            rest = chosen[:at] + chosen[at + 1 :]
            chosen[at] = _best(seen, rest, ways)
        if chosen == before:
            break
    total = _coverage(seen[chosen], surface)
    return [sites[k] for k in chosen], total, layouts, scene


def _best(seen: BoolArray, chosen: Sequence[int], ways: FloatArray) -> int:
    """The site that adds most to those chosen; not beside one of them."""
    count = seen[list(chosen)].sum(axis=0)
    gain = (seen & (count == 0)).sum(axis=1) + SECOND * (seen & (count == 1)).sum(axis=1)
    for k in chosen:
        gain = np.where(ways @ ways[k] > math.cos(APART_RAD), -1.0, gain)
    return int(np.argmax(gain))
