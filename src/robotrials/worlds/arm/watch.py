"""Calibrated RGB-D views of a robosuite scene, and what its plan knows: shapes of things, and what stands fixed.

Views are drawn from copies of the simulation's data by cameras that are no part of its model, so that no bit of an
episode depends on whether somebody watches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.record import Camera
from robotrials.record.footage import KnownBox, KnownJoint, KnownObject, View

FloatArray = NDArray[np.floating[Any]]

# Cameras by where they stand about the workspace: azimuth of the line of sight and elevation, degrees, as MuJoCo has
# them. The arm is on the -x side.
WATCHERS: Mapping[str, tuple[float, float]] = {
    'front': (180.0, -38.0),
    'left': (250.0, -38.0),
    'right': (110.0, -38.0),
    'top': (180.0, -82.0),
    'steep': (225.0, -62.0),
    'low': (215.0, -18.0),
}
DISTANCE_M = 1.15
HEIGHT_PX, WIDTH_PX = 480, 640
VISUAL_GROUP = 1  # of robosuite's geoms; 0 is for contacts
SLIDE, HINGE = 2, 3  # mjtJoint
SPHERE, CAPSULE, CYLINDER, BOX, MESH = 2, 3, 5, 6, 7  # mjtGeom
N_AROUND, N_RINGS = 24, 8  # of a round thing's surface
GEOM = 5  # mjtObj
HIGH_M = 2.0  # above every table, and below lamps
BOX_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)
BOX_QUADS = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
BOX_FACES = np.array([t for a, b, c, d in BOX_QUADS for t in ((a, b, c), (a, c, d))])


def check_watchers(cameras: Sequence[str], *, has_oracle_masks: bool) -> tuple[str, ...]:
    """The names of watching cameras; UnknownName, or InputError, where they make no sense."""
    for camera in cameras:
        if camera not in WATCHERS:
            raise UnknownName('watching camera', camera, WATCHERS)
    if len(set(cameras)) != len(cameras):
        raise InputError(f'watchers names a camera twice: {list(cameras)}')
    if has_oracle_masks and not cameras:
        raise InputError(f'oracle_masks are of watching cameras; name some in watchers: {", ".join(WATCHERS)}')
    return tuple(cameras)


class Watch:
    """The watching cameras of one scene."""

    def __init__(self, model: Any, cameras: Sequence[str], *, middle_m: FloatArray) -> None:
        import mujoco

        self.model, self._cameras, self._middle_m = model, cameras, middle_m
        height = min(HEIGHT_PX, int(model.vis.global_.offheight))
        width = min(WIDTH_PX, int(model.vis.global_.offwidth))
        self._data = mujoco.MjData(model)
        self._renderer = mujoco.Renderer(model, height, width)
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = 0
        self._option.geomgroup[VISUAL_GROUP] = 1
        self._option.sitegroup[:] = 0

    def take(
        self, qpos: FloatArray, *, t_s: float, things: Mapping[str, Sequence[int]] | None = None
    ) -> dict[str, View]:
        """RGB and depth of every camera for these positions; masks by the geoms of `things`, where they are given."""
        import mujoco

        data = self._data
        data.qpos[:] = qpos
        mujoco.mj_forward(self.model, data)
        views = {}
        for name in self._cameras:
            at = mujoco.MjvCamera()
            at.azimuth, at.elevation = WATCHERS[name]
            at.lookat[:], at.distance = self._middle_m, DISTANCE_M
            self._renderer.update_scene(data, at, self._option)
            self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
            rgb = np.array(self._renderer.render())
            camera = self._calibration(name)
            self._renderer.enable_depth_rendering()
            depth_m = np.array(self._renderer.render(), dtype=np.float32)
            self._renderer.disable_depth_rendering()
            masks = self._masks(data, at, things) if things else {}
            views[name] = View(rgb, depth_m, camera, t_s, masks)
        return views

    def _masks(
        self, data: Any, at: Any, things: Mapping[str, Sequence[int]]
    ) -> dict[str, NDArray[np.bool_]]:  # fmt: skip
        """The pixels of each thing, by the ids of the simulation."""
        self._renderer.enable_segmentation_rendering()
        self._renderer.update_scene(data, at, self._option)
        drawn = np.array(self._renderer.render())
        self._renderer.disable_segmentation_rendering()
        ids = np.where(drawn[..., 1] == GEOM, drawn[..., 0], -1)
        return {name: np.isin(ids, list(geoms)) for name, geoms in things.items()}

    def _calibration(self, name: str) -> Camera:
        """Intrinsics and pose of the camera that was drawn last: x to the right, y down, z ahead."""
        eyes = self._renderer.scene.camera
        ahead = np.array(eyes[0].forward, dtype=np.float64)
        up = np.array(eyes[0].up, dtype=np.float64)
        pose = np.eye(4)
        pose[:3, :3] = np.stack([np.cross(ahead, up), -up, ahead], axis=1)
        pose[:3, 3] = (np.array(eyes[0].pos, dtype=np.float64) + np.array(eyes[1].pos, dtype=np.float64)) / 2
        u, _, vt = np.linalg.svd(pose[:3, :3])  # MuJoCo keeps single precision
        pose[:3, :3] = u @ vt
        height, width = self._renderer.height, self._renderer.width
        focal = height / 2 / math.tan(math.radians(float(self.model.vis.global_.fovy)) / 2)
        intrinsics = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1.0]])
        return Camera(
            name=name, intrinsics_px=intrinsics, world_from_camera=pose, width_px=width, height_px=height
        )  # fmt: skip

    def close(self) -> None:
        self._renderer.close()


# What the plan knows of things: shapes in the frames of their bodies, as they are drawn.


def geoms_of(model: Any, body: int, *, without: Sequence[int] = ()) -> list[int]:
    """The drawn geoms of a body and of what hangs on it, but for the bodies `without` and what hangs on those."""
    own = []
    for geom in range(model.ngeom):
        above = int(model.geom_bodyid[geom])
        while above and above != body and above not in without:
            above = int(model.body_parentid[above])
        if above == body and int(model.geom_group[geom]) == VISUAL_GROUP and not _is_clear(model, geom):
            own.append(geom)
    return own


def _is_clear(model: Any, geom: int) -> bool:
    """Whether depth goes through it: the window of a door is no part of its shape."""
    material = int(model.geom_matid[geom])
    return float(model.geom_rgba[geom][3] if material < 0 else model.mat_rgba[material][3]) < 1


def known_thing(
    model: Any, data: Any, name: str, body: int, geoms: Sequence[int], *, joint: int | None = None
) -> KnownObject:  # fmt: skip
    """A thing by its meshes and boxes, with its place at the start; without any it has no shape."""
    from robotrials.measure.geometry.solid import mesh_model, pack_solid

    turn, at = data.xmat[body].reshape(3, 3), data.xpos[body]
    corners, faces, n = [], [], 0
    for geom in geoms:
        part = _surface(model, geom)
        if part is None:
            continue
        points = part[0] @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
        corners.append((points - at) @ turn)
        faces.append(part[1] + n)
        n += len(points)
    hinge = None if joint is None else _known_joint(model, data, joint)
    if not corners:
        box = known_box(name, at, np.full(3, 0.01), turn)
        return KnownObject(name=name, start=box, is_box=False, joint=hinge)
    solid = mesh_model(name, np.concatenate(corners), np.concatenate(faces))
    start = known_box(name, at + turn @ solid.middle, solid.size, turn)
    return KnownObject(name=name, start=start, is_box=False, shape=pack_solid(solid), joint=hinge)


def _surface(model: Any, geom: int) -> tuple[FloatArray, NDArray[np.int64]] | None:
    """Vertices (V, 3) in the geom's frame and triangles (F, 3); None of what is no mesh, box or round thing."""
    kind, number = int(model.geom_type[geom]), int(model.geom_dataid[geom])
    if kind == BOX:
        return BOX_CORNERS * model.geom_size[geom], BOX_FACES
    if kind in (SPHERE, CAPSULE, CYLINDER):
        return _round_surface(kind, *(float(v) for v in model.geom_size[geom][:2]))
    if kind != MESH or number < 0:
        return None
    first, n = int(model.mesh_vertadr[number]), int(model.mesh_vertnum[number])
    start, m = int(model.mesh_faceadr[number]), int(model.mesh_facenum[number])
    vertices = np.asarray(model.mesh_vert[first : first + n], dtype=np.float64)
    return vertices, np.asarray(model.mesh_face[start : start + m], dtype=np.int64)


def _round_surface(kind: int, radius: float, half: float) -> tuple[FloatArray, NDArray[np.int64]]:
    """A sphere, or a capsule or cylinder along z, as rings from its lower to its upper pole."""
    bows = np.linspace(-math.pi / 2, math.pi / 2, N_RINGS)
    across, up = radius * np.cos(bows), radius * np.sin(bows) + np.where(bows < 0, -half, half) * (kind != SPHERE)
    if kind == CYLINDER:
        across, up = radius * np.array([0.0, 1.0, 1.0, 0.0]), half * np.array([-1.0, -1.0, 1.0, 1.0])
    turns = np.arange(N_AROUND) * 2 * math.pi / N_AROUND
    rings = [np.stack([r * np.cos(turns), r * np.sin(turns), np.full(N_AROUND, z)], axis=1)
             for r, z in zip(across, up, strict=True)]  # fmt: skip
    low = np.arange(N_AROUND * (len(rings) - 1))
    beside = low // N_AROUND * N_AROUND + (low + 1) % N_AROUND
    faces = np.concatenate([np.stack([low, beside, low + N_AROUND], axis=1),
                            np.stack([beside, beside + N_AROUND, low + N_AROUND], axis=1)])  # fmt: skip
    return np.concatenate(rings), faces


def _known_joint(model: Any, data: Any, joint: int) -> KnownJoint:
    """A slide or a hinge in the world, and where it stood at the start."""
    low, high = (float(v) for v in model.jnt_range[joint])
    return KnownJoint(
        is_hinge=int(model.jnt_type[joint]) == HINGE, axis=_numbers(data.xaxis[joint]),
        point_m=_numbers(data.xanchor[joint]), low=low, high=high,
        start=float(data.qpos[model.jnt_qposadr[joint]]),
    )  # fmt: skip


def moving_part(model: Any, body: int) -> tuple[int, int] | None:
    """The nearest body, from this one upwards, that moves by one slide or hinge, and its joint; None if none does."""
    while body:
        if int(model.body_jntnum[body]) == 1:
            joint = int(model.body_jntadr[body])
            return (body, joint) if int(model.jnt_type[joint]) in (SLIDE, HINGE) else None
        body = int(model.body_parentid[body])
    return None


def fixed_things(
    model: Any, data: Any, owner: Mapping[int, str], *, skipped: Sequence[int], middle_m: FloatArray
) -> tuple[list[KnownBox], float]:
    """Boxes that can be touched and do not move, named by what they belong to, and the height of the plane below.

    `owner` names the roots of fixtures; `skipped` are roots of what is left out. A table that is drawn as a box is one;
    of any other the plane of its drawn top is what is known, as of a floor: its edges are not those of boxes, and what
    is touched is up to a centimetre above what is drawn.
    """
    boxes, plane_m = [], 0.0
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        root = int(model.body_rootid[body])
        can_touch = model.geom_contype[geom] or model.geom_conaffinity[geom]
        if root in skipped or int(model.body_weldid[body]):
            continue
        if int(model.geom_type[geom]) == MESH and int(model.geom_group[geom]) == VISUAL_GROUP and root not in owner:
            plane_m = max(plane_m, _height_m(model, data, geom, middle_m))
        if int(model.geom_type[geom]) != BOX or not can_touch:
            continue
        name = owner.get(root, model.body(root).name or 'world')
        turn, center = data.geom_xmat[geom].reshape(3, 3), data.geom_xpos[geom]
        if root in owner or _is_drawn(model, geom):
            boxes.append(known_box(name, center, 2 * model.geom_size[geom], turn))
    return boxes, plane_m


def _height_m(model: Any, data: Any, geom: int, middle_m: FloatArray) -> float:
    """How high a drawn mesh is at the middle of the workspace; 0 where it is not there."""
    import mujoco

    down = mujoco.mj_rayMesh(model, data, geom, np.array([*middle_m[:2], HIGH_M]), np.array([0.0, 0.0, -1.0]))
    return 0.0 if down < 0 else HIGH_M - float(down)


def _is_drawn(model: Any, geom: int) -> bool:
    """Whether a box that can be touched is also what is drawn of its body."""
    alike = (
        (model.geom_bodyid == model.geom_bodyid[geom])
        & (model.geom_type == BOX)
        & (model.geom_group == VISUAL_GROUP)
        & np.isclose(model.geom_size, model.geom_size[geom]).all(axis=1)
        & np.isclose(model.geom_pos, model.geom_pos[geom]).all(axis=1)
    )
    return bool(alike.any())


def known_box(name: str, center: FloatArray, size: FloatArray, turn: FloatArray) -> KnownBox:
    return KnownBox(
        name=name, center_m=_numbers(center), size_m=_numbers(np.maximum(size, 1e-4)), rotation=_numbers(turn.ravel())
    )


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
