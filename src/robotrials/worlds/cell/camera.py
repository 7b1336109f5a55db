"""RGB-D cameras: rendering with EGL or OSMesa, whichever works, and calibration in the OpenCV frame.

A camera's frame has x right, y down, z ahead. Depth is in metres along z; what is beyond the far plane is infinite.

There is no multisampling: of a multisampled depth buffer OpenGL hands over one sample a pixel. It lies 1/8 of a pixel
to the left of the centre and 3/8 below it, so that depth would not fit the colours or the calibration.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RigError, SetupError, UnknownName
from robotrials.record.footage import FilmStates
from robotrials.record.trajectory import Camera
from robotrials.run.environment.gl import BACKENDS, why_not_drawing
from robotrials.run.plan import FilmOptions
from robotrials.run.seam import Footage, Shot
from robotrials.value import dataclass
from robotrials.worlds.cell.scene import CAMERAS, CompiledCell, load_mujoco, reported_pose

FloatArray = NDArray[np.floating[Any]]
DepthMap = NDArray[np.float32]
_OPENCV_FROM_MUJOCO = np.diag([1.0, -1.0, -1.0, 1.0])


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One camera's view: RGB (H, W, 3), depth (H, W) in metres, and how it maps to the world."""

    rgb: NDArray[np.uint8]
    depth_m: DepthMap
    calibration: Camera


def working_backend() -> str:
    """The first of EGL and OSMesa that can draw here, or what MUJOCO_GL asks for; SetupError if neither does."""
    wanted = _wanted_backend()
    if wanted and wanted not in BACKENDS:
        raise SetupError(f'MUJOCO_GL is {wanted!r}; cameras need one of: {", ".join(BACKENDS)}, or leave it unset')
    backend, trouble = _probed()
    if trouble:
        raise SetupError(trouble)
    return backend


def _wanted_backend() -> str:
    return os.environ.get('MUJOCO_GL', '').lower().strip()


@functools.cache
def _probed() -> tuple[str, str]:
    """The backend that works, or why none does. Cached: where none works, every film would otherwise probe again."""
    wanted = _wanted_backend()
    problems = []
    for backend in (wanted,) if wanted else BACKENDS:
        why_not = why_not_drawing(sys.executable, backend)
        if not why_not:
            return backend, ''
        problems.append(f'{backend}: {why_not}')
    return '', (
        'cameras need EGL or OSMesa to draw without a screen, and neither works here '
        f'({"; ".join(problems)}); see `robotrials env doctor`, or run without cameras'
    )


def _gl_context(width_px: int, height_px: int) -> Any:
    backend = working_backend()
    os.environ.setdefault('MUJOCO_GL', backend)
    os.environ.setdefault('PYOPENGL_PLATFORM', backend)
    if backend == 'egl':
        from mujoco.egl import GLContext
    else:
        from mujoco.osmesa import GLContext
    return GLContext(width_px, height_px)


class Pictures:
    """The cameras of one cell; one off-screen buffer for all scenes, since making it takes longer than an episode.

    It depends on a scene by its textures alone; those are handed over when they differ. Shadows take ten times as long
    as all else, and can be left out.
    """

    _gl: Any = None
    _context: Any = None
    _current: ClassVar = threading.local()  # whose OpenGL context is this thread's
    _kept: ClassVar[list[Any]] = []

    def __init__(self, cameras: tuple[str, ...], *, height_px: int, width_px: int, has_shadows: bool = True) -> None:
        if cameras and not (8 <= height_px <= 960 and 8 <= width_px <= 1280):
            raise InputError(f'image_size is {height_px} x {width_px}, wanted 8 x 8 to 960 x 1280 (height, width)')
        self.cameras = cameras
        self.height_px, self.width_px = height_px, width_px
        self._has_shadows = has_shadows
        self._model: Any = None
        self._textures = b''

    def take(self, scene: CompiledCell, data: Any) -> dict[str, Picture]:
        """Render every camera as the world stands."""
        mujoco = load_mujoco()
        self._prepare(scene.model)
        pictures = {}
        for calibration in calibrations(scene, data, self):
            rgb = np.empty((self.height_px, self.width_px, 3), dtype=np.uint8)
            depth = np.full((self.height_px, self.width_px), np.nan, dtype=np.float32)
            self._draw(scene, data, calibration.name)
            mujoco.mjr_readPixels(rgb, depth, self._rect, self._context)
            if np.isnan(depth[0, 0]):  # MuJoCo says nothing of OpenGL's errors
                raise RigError(f'camera {calibration.name!r}: OpenGL gave no picture')
            pictures[calibration.name] = Picture(
                np.ascontiguousarray(rgb[::-1]), self._metres(depth[::-1], scene.model), calibration
            )
        return pictures

    def frame(self, scene: CompiledCell, data: Any, camera: str) -> NDArray[np.uint8]:
        """One camera's RGB (H, W, 3), without depth."""
        self._prepare(scene.model)
        rgb = np.empty((self.height_px, self.width_px, 3), dtype=np.uint8)
        self._draw(scene, data, camera)
        load_mujoco().mjr_readPixels(rgb, None, self._rect, self._context)
        return np.ascontiguousarray(rgb[::-1])

    def _draw(self, scene: CompiledCell, data: Any, camera: str) -> None:
        mujoco = load_mujoco()
        self._view.fixedcamid = int(scene.model.camera(camera).id)
        mujoco.mjv_updateScene(
            scene.model, data, self._option, None, self._view, mujoco.mjtCatBit.mjCAT_ALL.value, self._scene
        )
        mujoco.mjr_render(self._rect, self._scene, self._context)

    def _metres(self, buffer: DepthMap, model: Any) -> DepthMap:
        """From OpenGL's window depth (reversed: 1 near, 0 far) to metres along the axis."""
        near, far = model.vis.map.znear * model.stat.extent, model.vis.map.zfar * model.stat.extent
        depth = buffer * np.float32(1 / near - 1 / far) + np.float32(1 / far)
        np.divide(np.float32(1.0), depth, out=depth)
        depth[buffer <= 0] = np.inf
        return depth

    def _prepare(self, model: Any) -> None:
        if self._model is model:
            self._make_current()
            return
        mujoco = load_mujoco()
        textures = model.tex_data.tobytes()
        if self._context is None:
            self._gl = _gl_context(self.width_px, self.height_px)
            self._make_current()
            model.vis.quality.offsamples = 0
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
            self._context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        else:
            self._make_current()
            for texture in range(model.ntex) if textures != self._textures else ():
                mujoco.mjr_uploadTexture(model, self._context, texture)
        self._textures = textures
        self._rect = mujoco.MjrRect(0, 0, self.width_px, self.height_px)
        self._scene = mujoco.MjvScene(model, maxgeom=300)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = self._has_shadows
        self._option = mujoco.MjvOption()
        self._view = mujoco.MjvCamera()
        self._view.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._model = model

    def _make_current(self) -> None:
        self._gl.make_current()
        self._current.pictures = weakref.ref(self)

    def close(self) -> None:
        if self._gl is None:
            return
        if self._context is not None:  # frees by number, in whatever context is current
            self._gl.make_current()
            self._context.free()
            self._context = None
        self._gl.free()
        self._gl = self._model = None
        drawing = getattr(self._current, 'pictures', lambda: None)()
        if drawing is not None and drawing._gl is not None:  # it may be between two calls of OpenGL
            drawing._gl.make_current()

    def __del__(self) -> None:
        """As `close`, for a host that nobody closed: what it drew with must not be freed in another's context."""
        try:
            self.close()
        except Exception:  # another thread draws with it, or the interpreter ends
            self._kept.append(self._context)


def calibrations(
    scene: CompiledCell, data: Any, pictures: Pictures, cameras: tuple[str, ...] | None = None
) -> Iterator[Camera]:
    """Intrinsics and world-from-camera of each camera, as reported now: the wrist camera moves, a bumped one lies."""
    shift = scene.spec.look.camera
    for name in pictures.cameras if cameras is None else cameras:
        index = int(scene.model.camera(name).id)
        yield Camera(
            name=name,
            intrinsics_px=intrinsics(
                float(scene.model.cam_fovy[index]), height_px=pictures.height_px, width_px=pictures.width_px
            ),
            world_from_camera=reported_pose(name, _pose(data, index), shift) @ _OPENCV_FROM_MUJOCO,
            width_px=pictures.width_px,
            height_px=pictures.height_px,
        )


def intrinsics(fovy_deg: float, *, height_px: int, width_px: int) -> FloatArray:
    """The 3x3 matrix of a pinhole camera with square pixels; pixel (0, 0) has its centre at (0, 0)."""
    focal = height_px / 2 / math.tan(math.radians(fovy_deg) / 2)
    return np.array([[focal, 0, (width_px - 1) / 2], [0, focal, (height_px - 1) / 2], [0, 0, 1.0]])


def _pose(data: Any, camera: int) -> FloatArray:
    """World from camera, in MuJoCo's camera frame."""
    pose = np.eye(4)
    pose[:3, :3] = data.cam_xmat[camera].reshape(3, 3)
    pose[:3, 3] = data.cam_xpos[camera]
    return pose


# Filming the cell: states of an episode drawn again, in a world of their own, with cameras of the scene.

OVERVIEW = 'gallery'
FILM_CAMERAS = (*CAMERAS, OVERVIEW)
SAME_START = 1e-3  # metres or radians: resets of another machine end a little elsewhere


class Filming:
    """One off-screen buffer of its own, made with the first film, small and without shadows."""

    def __init__(self, cameras: tuple[str, ...]) -> None:
        self._cameras = cameras  # unless others are asked for
        self._pictures = Pictures((), height_px=0, width_px=0)

    def footage(self, scene: CompiledCell, states: FilmStates, options: FilmOptions) -> Footage:
        """A shot for each camera; frames are drawn when they are taken."""
        cameras = options.cameras or self._cameras
        for camera in cameras:
            if camera not in FILM_CAMERAS:
                raise UnknownName('camera that the tabletop cell films with', camera, FILM_CAMERAS)
        if states.states.ndim != 2 or states.states.shape[1] < scene.model.nq:
            raise InputError(
                f'states have shape {states.states.shape}, wanted (N, {scene.model.nq} or more): another scene, or '
                'another version of the cell'
            )
        width_px, height_px = options.size_px
        if (self._pictures.width_px, self._pictures.height_px) != (width_px, height_px):
            self._pictures.close()
            self._pictures = Pictures((), height_px=height_px, width_px=width_px, has_shadows=False)
        data = load_mujoco().MjData(scene.model)
        _place(scene, data, states.states[0])
        shots = [
            Shot(camera, self._frames(scene, data, camera.name, states))
            for camera in calibrations(scene, data, self._pictures, cameras)
        ]
        return Footage(states, tuple(shots))

    def _frames(self, scene: CompiledCell, data: Any, camera: str, states: FilmStates) -> Iterator[NDArray[np.uint8]]:
        for state in states.states:
            _place(scene, data, state)
            yield self._pictures.frame(scene, data, camera)

    def close(self) -> None:
        self._pictures.close()


def _place(scene: CompiledCell, data: Any, state: NDArray[Any]) -> None:
    """Bodies, cameras and lights where the positions at the head of a state have them."""
    mujoco = load_mujoco()
    data.qpos[:] = state[: scene.model.nq]
    mujoco.mj_kinematics(scene.model, data)
    mujoco.mj_camlight(scene.model, data)


def is_near(state: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two states have the same bodies in about the same places."""
    n = len(other)
    return len(state) >= n and bool(np.abs(state[:n] - other).max() < SAME_START)
