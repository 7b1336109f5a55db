"""Textured meshes of unknown size on a table, drawn by MuJoCo and seen by bad cameras: how registrations come out."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.measure.geometry import STEREO_NOISE, Box, RgbdView, stereo_depth, volumetric_iou
from robotrials.measure.geometry.calibration import CheckedViews, check_views
from robotrials.measure.geometry.fit import rotation_of
from robotrials.measure.geometry.mask import StaticScene
from robotrials.measure.geometry.register import Registration, locate_solid
from robotrials.measure.geometry.solid import PlacedSolid, SolidModel, mesh_model, place
from robotrials.measure.geometry.view import distorted, rectified
from robotrials.worlds.cell.camera import _gl_context

Mesh = tuple[NDArray[np.float64], NDArray[np.int64]]
HEIGHT, WIDTH, FOVY = 360, 480, 46.0
WIDER = 1.25  # the undistorted picture that a distorted one is taken from
DISTORTION = (-0.11, 0.05, 0.0008, -0.0006, 0.0)  # of a lens, plumb_bob
KNOWN_TO = 0.05  # share by which the coefficients that are used are off
WRONG_IOU = 0.6
TABLE = Box((0.0, 0.0, -0.025), (1.1, 0.9, 0.05))
FIXED = (
    TABLE, Box((0.36, 0.22, 0.04), (0.06, 0.2, 0.08)), Box((-0.38, 0.0, 0.02), (0.1, 0.5, 0.04)),
    Box((0.1, -0.36, 0.05), (0.3, 0.05, 0.1)),
)  # fmt: skip
CAMERAS = {'left': (-0.55, -0.65, 0.75), 'right': (0.75, -0.45, 0.7), 'back': (0.1, 0.85, 0.8)}


def revolved(profile: Sequence[tuple[float, float]], n: int = 40) -> Mesh:
    """A closed surface of revolution about z, of (radius, height) from the bottom to the top."""
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    rings = [np.stack([r * np.cos(angle), r * np.sin(angle), np.full(n, z)], axis=1) for r, z in profile]
    vertices = np.concatenate([*rings, [[0, 0, profile[0][1]], [0, 0, profile[-1][1]]]])
    faces, k = [], np.arange(n)
    after = (k + 1) % n
    for row in range(len(profile) - 1):
        a, b = row * n, (row + 1) * n
        faces += [np.stack([a + k, a + after, b + after], 1), np.stack([a + k, b + after, b + k], 1)]
    bottom, top, last = len(vertices) - 2, len(vertices) - 1, (len(profile) - 1) * n
    faces += [np.stack([np.full(n, bottom), after, k], 1), np.stack([np.full(n, top), last + k, last + after], 1)]
    return vertices, np.concatenate(faces).astype(np.int64)


def boxed(*boxes: tuple[Sequence[float], Sequence[float]]) -> Mesh:
    """Boxes by centre and size, joined."""
    corners, faces = [], []
    quads = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
    signs = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    for number, (center, size) in enumerate(boxes):
        corners.append(signs * size + center)
        faces += [[8 * number + i for i in t] for a, b, c, d in quads for t in ((a, b, c), (a, c, d))]
    return np.concatenate(corners), np.array(faces, dtype=np.int64)


def tube(way: NDArray[np.float64], radii: NDArray[np.float64], n: int = 20) -> Mesh:
    """A closed tube along a way (K, 3)."""
    ahead = np.gradient(way, axis=0)
    ahead /= np.linalg.norm(ahead, axis=1)[:, None]
    side = np.cross(ahead, [0.0, 1.0, 0.0])
    side /= np.linalg.norm(side, axis=1)[:, None]
    up = np.cross(side, ahead)
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    rings = [p + r * (np.cos(angle)[:, None] * s + np.sin(angle)[:, None] * u)
             for p, r, s, u in zip(way, radii, side, up, strict=True)]  # fmt: skip
    vertices, faces = revolved([(1.0, float(k)) for k in range(len(way))], n)
    vertices = np.concatenate([*rings, [way[0], way[-1]]])
    return vertices, faces[:, ::-1]  # wound outward: MuJoCo draws no backs


def joined(*meshes: Mesh) -> Mesh:
    starts = np.cumsum([0, *(len(v) for v, _ in meshes[:-1])])
    return np.concatenate([v for v, _ in meshes]), np.concatenate(
        [f + s for (_, f), s in zip(meshes, starts, strict=True)]
    )


def shapes() -> dict[str, Mesh]:
    """Six shapes, about 0.1 m long: one of revolution, one with a handle, one bent, three of boxes."""
    t = np.linspace(-1.1, 1.1, 14)
    arc = np.stack([0.07 * np.sin(t), np.zeros(14), 0.07 * (1 - np.cos(t))], axis=1)
    u = np.linspace(-1.4, 1.4, 12)
    handle = np.stack([0.036 + 0.03 * np.cos(u), np.zeros(12), 0.045 + 0.03 * np.sin(u)], axis=1)
    outer = [(0.036, 0.0), (0.038, 0.05), (0.038, 0.09), (0.030, 0.09), (0.030, 0.014), (0.001, 0.014)]
    return {
        'bottle': revolved([(0.03, 0), (0.032, 0.01), (0.032, 0.08), (0.014, 0.105), (0.014, 0.13), (0.01, 0.132)]),
        'mug': joined(revolved(outer), tube(handle, np.full(12, 0.008))),
        'banana': tube(arc, 0.019 * np.sqrt(np.clip(1.05 - (t / 1.2) ** 2, 0.05, 1))),
        'bracket': boxed(((0, 0, 0.01), (0.1, 0.05, 0.02)), ((-0.04, 0, 0.045), (0.02, 0.05, 0.05))),
        'carton': boxed(((0, 0, 0.06), (0.07, 0.04, 0.12))),
        'hammer': boxed(((0, 0, 0.05), (0.022, 0.028, 0.1)), ((0.012, 0, 0.112), (0.085, 0.034, 0.032))),
    }


def stable_turn(vertices: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """A rotation in which the mesh rests on a face of its hull, and a random turn about the vertical."""
    from scipy.spatial import ConvexHull

    hull = ConvexHull(vertices)
    middle = vertices[hull.vertices].mean(axis=0)
    area = np.array([np.linalg.norm(np.cross(*(vertices[s[1:]] - vertices[s[0]]))) for s in hull.simplices])
    stable = []
    for k, normal in enumerate(hull.equations[:, :3]):
        foot = middle - (middle @ normal + hull.equations[k, 3]) * normal
        same = np.abs(hull.equations - hull.equations[k]).max(axis=1) < 1e-6
        corners = vertices[np.unique(hull.simplices[same])]
        axes = np.linalg.svd(corners - corners.mean(axis=0))[2][:2]
        flat, at = (corners - corners[0]) @ axes.T, (foot - corners[0]) @ axes.T
        low, high = flat.min(axis=0), flat.max(axis=0)
        if (at > low - 1e-3).all() and (at < high + 1e-3).all():
            stable.append((k, area[same].sum()))
    weight = np.array([w for _, w in stable])
    normal = hull.equations[stable[int(rng.choice(len(stable), p=weight / weight.sum()))][0], :3]
    axis = np.cross(normal, [0.0, 0.0, -1.0])
    angle = math.atan2(float(np.linalg.norm(axis)), float(-normal[2]))
    axis = axis / np.linalg.norm(axis) if np.linalg.norm(axis) > 1e-9 else np.array([1.0, 0.0, 0.0])
    yaw = rng.uniform(0, 2 * np.pi)
    turned: NDArray[np.float64] = rotation_of(np.array([0.0, 0.0, yaw])) @ rotation_of(angle * axis)
    return turned


def texture(rng: np.random.Generator) -> bytes:
    """A picture of several colours: bands, patches and print."""
    colors = rng.integers(20, 245, (6, 3))
    picture = colors[rng.integers(0, 6, (16, 16))].repeat(16, axis=0).repeat(16, axis=1).astype(np.uint8)
    picture[::9, 10:200] = rng.integers(0, 255, 3)
    return png_of(picture)


def png_of(pixels: NDArray[Any]) -> bytes:
    from PIL import Image

    packed = io.BytesIO()
    Image.fromarray(255 * pixels.astype(np.uint8) if pixels.dtype == np.bool_ else pixels).save(packed, 'PNG')
    return packed.getvalue()


def obj_of(vertices: NDArray[np.float64], faces: NDArray[np.int64]) -> str:
    """An OBJ with texture coordinates by direction and height."""
    u = np.arctan2(vertices[:, 1], vertices[:, 0]) / (2 * np.pi) + 0.5
    v = (vertices[:, 2] - vertices[:, 2].min()) / max(float(np.ptp(vertices[:, 2])), 1e-9)
    lines = [f'v {x:.6f} {y:.6f} {z:.6f}' for x, y, z in vertices]
    lines += [f'vt {a:.4f} {b:.4f}' for a, b in zip(u, v, strict=True)]
    lines += [' '.join(['f', *(f'{i + 1}/{i + 1}' for i in f)]) for f in faces]
    return '\n'.join(lines)


@dataclass(frozen=True, slots=True)
class Scene:
    """Views of one scene, ideal, and what is true in it: the object named, where it stands and how large it is."""

    shape: str
    views: list[RgbdView]
    ids: dict[str, NDArray[np.bool_]]  # the target's own pixels
    truth: PlacedSolid


@cache
def models() -> dict[str, SolidModel]:
    """The shapes as models whose size is not known: each in a unit of its own."""
    return {name: mesh_model(name, 13.0 * v, f, n_scales=1) for name, (v, f) in shapes().items()}


def draw_scene(seed: int, known: Mapping[str, SolidModel], *, n_others: int = 1) -> Scene:
    """A target and another object on the table, in random stable poses and sizes."""
    import mujoco

    rng = np.random.default_rng(seed)
    meshes = shapes()
    names = list(meshes)
    target = names[seed % len(names)]
    chosen = [target, *(names[int(k)] for k in rng.integers(0, len(names), n_others))]
    assets: dict[str, bytes] = {}
    parts, bodies = [], []
    truth: PlacedSolid | None = None
    places: list[NDArray[np.float64]] = []
    for number, name in enumerate(chosen):
        vertices, faces = meshes[name]
        factor = rng.uniform(0.75, 1.35)
        turn = stable_turn(vertices, rng)
        while True:
            xy = rng.uniform([-0.2, -0.2], [0.22, 0.2])
            if all(np.linalg.norm(xy - p) > 0.2 for p in places):
                break
        places.append(xy)
        turned = factor * vertices @ turn.T
        at = np.array([*xy, 0.0]) - [0, 0, turned[:, 2].min()]
        world = turned + at
        assets[f'm{number}.obj'] = obj_of(world, faces).encode()
        assets[f't{number}.png'] = texture(rng)
        parts.append(
            f'<mesh name="m{number}" file="m{number}.obj" inertia="shell"/>'
            f'<texture name="t{number}" type="2d" file="t{number}.png"/>'
            f'<material name="a{number}" texture="t{number}"/>'
        )
        bodies.append(f'<geom type="mesh" mesh="m{number}" material="a{number}"/>')
        if number == 0:
            model = known[name]
            pose = np.eye(4)
            scale = factor / 13.0
            pose[:3, :3], pose[:3, 3] = turn, at + turn @ (scale * model.middle)
            truth = place(model, pose, scale=scale)
    assert truth is not None
    colors = ('.55 .5 .45 1', '.3 .35 .6 1', '.25 .45 .3 1', '.5 .3 .3 1')
    fixed = ''.join(
        f'<geom type="box" pos="{" ".join(map(str, b.center))}" size="{" ".join(map(str, b.size / 2))}" rgba="{c}"/>'
        for b, c in zip(FIXED, colors, strict=True)
    )
    cameras = ''
    for name, position in CAMERAS.items():
        ahead = np.array([0.0, 0.0, 0.03]) - position
        ahead /= np.linalg.norm(ahead)
        x = np.cross(ahead, [0, 0, 1.0])
        x /= np.linalg.norm(x)
        y = np.cross(x, ahead)
        cameras += (f'<camera name="{name}" pos="{" ".join(map(str, position))}" '
                    f'xyaxes="{" ".join(map(str, [*x, *y]))}" fovy="{_fovy(WIDER)}"/>')  # fmt: skip
    xml = (
        f'<mujoco><visual><global offwidth="{_wide()[1]}" offheight="{_wide()[0]}"/><map znear="0.02" zfar="10"/>'
        f'</visual><asset>{"".join(parts)}</asset><worldbody><light pos="0 0 2" dir="0 0 -1"/>'
        f'<light pos="1 1 2" dir="-1 -1 -2"/><geom type="plane" size="4 4 .1" pos="0 0 -.7" rgba=".3 .3 .3 1"/>'
        f'{fixed}{"".join(bodies)}{cameras}</worldbody></mujoco>'
    )
    drawn = mujoco.MjModel.from_xml_string(xml, assets)
    drawn.vis.quality.offsamples = 0  # of several samples OpenGL hands over one, beside the pixel's middle
    data = mujoco.MjData(drawn)
    mujoco.mj_forward(drawn, data)
    views, ids = [], {}
    for name, (rgb, depth, owner) in _drawn(drawn, data).items():
        camera = drawn.camera(name).id
        pose = np.eye(4)
        pose[:3, :3] = data.cam_xmat[camera].reshape(3, 3) @ np.diag([1.0, -1.0, -1.0])
        pose[:3, 3] = data.cam_xpos[camera]
        views.append(RgbdView(name, rgb, depth, _intrinsics(*_wide()), pose))
        ids[name] = owner == 1 + len(FIXED)
    return Scene(target, views, ids, truth)


def _drawn(model: Any, data: Any) -> dict[str, tuple[Any, Any, Any]]:
    """RGB, depth in metres and the number of the geom at every pixel, of every camera."""
    import mujoco

    height, width = _wide()
    gl = _gl_context(width, height)
    gl.make_current()
    context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
    scene, option = mujoco.MjvScene(model, 200), mujoco.MjvOption()
    rect, kind = mujoco.MjrRect(0, 0, width, height), mujoco.mjtRndFlag
    near, far = model.vis.map.znear * model.stat.extent, model.vis.map.zfar * model.stat.extent
    drawn = {}
    for name in CAMERAS:
        view = mujoco.MjvCamera()
        view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED.value, model.camera(name).id
        planes = []
        for is_ids in (False, True):
            every = mujoco.mjtCatBit.mjCAT_ALL.value
            mujoco.mjv_updateScene(model, data, option, None, view, every, scene)
            scene.flags[kind.mjRND_SEGMENT.value] = scene.flags[kind.mjRND_IDCOLOR.value] = is_ids
            mujoco.mjr_render(rect, scene, context)
            rgb, depth = np.empty((height, width, 3), np.uint8), np.empty((height, width), np.float32)
            mujoco.mjr_readPixels(rgb, depth, rect, context)
            planes += [rgb[::-1].copy(), depth[::-1].copy()]
        colors, window, numbers, _ = planes
        with np.errstate(divide='ignore'):
            metres = np.where(window > 0, 1 / (window * (1 / near - 1 / far) + 1 / far), np.inf).astype(np.float32)
        number = numbers.astype(np.int64) @ [1, 256, 65536]
        owner = np.array([-1, *(scene.geoms[k].objid for k in range(scene.ngeom))])
        drawn[name] = colors, metres, owner[np.clip(number, 0, scene.ngeom)]
    context.free()
    gl.free()
    return drawn


def _wide() -> tuple[int, int]:
    return round(HEIGHT * WIDER), round(WIDTH * WIDER)


def _focal() -> float:
    return HEIGHT / 2 / math.tan(math.radians(FOVY) / 2)


def _fovy(wider: float) -> float:
    return math.degrees(2 * math.atan(wider * HEIGHT / 2 / _focal()))


def _intrinsics(height: int, width: int) -> NDArray[np.float64]:
    return np.array([[_focal(), 0, (width - 1) / 2], [0, _focal(), (height - 1) / 2], [0, 0, 1.0]])


def seen_by_bad_cameras(
    scene: Scene, rng: np.random.Generator, *, noise: str, degrees: float, shift_m: float
) -> tuple[list[RgbdView], dict[str, NDArray[np.bool_]]]:
    """The views through a lens, with a stereo camera's depth, rectified by other coefficients, calibrated badly."""
    views, masks = [], {}
    for view in scene.views:
        small = _intrinsics(HEIGHT, WIDTH)
        shape = (HEIGHT, WIDTH)
        bent, ids = (
            distorted(v, DISTORTION, intrinsics_px=small, shape=shape)
            for v in (view, replace(view, rgb=np.repeat(255 * scene.ids[view.name][..., None], 3, 2).astype(np.uint8)))
        )
        unit, frame = (np.random.default_rng(rng.integers(2**63)) for _ in range(2))
        depth = bent.depth_m
        if noise != 'none':
            depth = stereo_depth(depth, STEREO_NOISE[noise], focal_px=_focal(), unit=unit, frame=frame)
        rgb = np.clip(bent.rgb + rng.normal(0, 4, bent.rgb.shape), 0, 255).astype(np.uint8)
        used = tuple(c * (1 + KNOWN_TO * s) for c, s in zip(DISTORTION, rng.choice([-1, 1], 5), strict=True))
        straight = rectified(replace(bent, rgb=rgb, depth_m=depth.astype(np.float32)), used)
        mask = rectified(ids, used).rgb[..., 0] > 127
        masks[view.name] = _ragged(mask, rng)
        pose = straight.base_from_camera.copy()
        axis, way = rng.normal(size=3), rng.normal(size=3)
        pose[:3, :3] = rotation_of(np.radians(degrees) * axis / np.linalg.norm(axis)) @ pose[:3, :3]
        pose[:3, 3] += shift_m * way / np.linalg.norm(way)
        views.append(replace(straight, base_from_camera=pose))
    return views, masks


def _ragged(mask: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """A segmenter's mask: its rim off by a pixel either way in patches, and a few holes."""
    from scipy.ndimage import binary_dilation, binary_erosion, gaussian_filter

    field = gaussian_filter(rng.normal(size=mask.shape), 6)
    wide, thin = binary_dilation(mask), binary_erosion(mask)
    level = np.quantile(field, [0.25, 0.75, 0.99])
    ragged = np.where(field < level[0], thin, np.where(field > level[1], wide, mask))
    return np.asarray(ragged & (field < level[2]))


@dataclass(frozen=True, slots=True)
class Found:
    """One object: what was found against what is true, and whether it was trusted."""

    shape: str
    refusal: str
    box_iou: float | None = None
    voxel_iou: float | None = None
    center_error_m: float | None = None
    surface_error_m: float | None = None  # mean distance of the true surface from the found one (ADD-S)
    size_error: float | None = None
    error_m: float | None = None
    error_scale: float | None = None

    @property
    def is_trusted(self) -> bool:
        return not self.refusal

    @property
    def is_wrong(self) -> bool:
        return self.voxel_iou is not None and min(self.voxel_iou, self.box_iou or 0.0) < WRONG_IOU


def checked_scene(
    scene: Scene, seed: int, *, noise: str = 'default', degrees: float = 2.0, shift_m: float = 0.005
) -> tuple[CheckedViews, dict[str, NDArray[np.bool_]]]:
    """What bad cameras have of a scene, after the check of their calibration, and the masks of a segmenter."""
    rng = np.random.default_rng([seed, 1])
    views, masks = seen_by_bad_cameras(scene, rng, noise=noise, degrees=degrees, shift_m=shift_m)
    return check_views(views, StaticScene(FIXED, -0.7), parameters=6), masks


def measure(
    scene: Scene, checked: CheckedViews, model: SolidModel, masks: Mapping[str, NDArray[np.bool_]] | None
) -> Found:
    """Register a model; one of another shape than the scene's must be refused.

    Without masks the parts that stand out of the empty scene are tried, and the one that fits is taken.
    """
    try:
        return compared(locate_solid(checked, model, masks=masks, support_z_m=0.0), scene)
    except NotEstimable as error:
        return Found(scene.shape, str(error))


def compared(found: Registration, scene: Scene) -> Found:
    truth, solid = scene.truth, found.solid
    from scipy.spatial import cKDTree

    return Found(
        scene.shape, found.refusal, solid.iou(truth.box), volumetric_iou(solid, truth, voxel_m=0.003),
        float(np.linalg.norm(solid.box.center - truth.box.center)),
        float(cKDTree(solid.points).query(truth.points)[0].mean()),
        float(solid.box.size.max() / truth.box.size.max() - 1), found.error_m, found.error_scale,
    )  # fmt: skip
