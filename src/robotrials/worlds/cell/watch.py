"""The cameras that watch a trial for its scores: fixed, calibrated, RGB-D, and apart from what a policy sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.measure.geometry.depth_noise import STEREO_NOISE, stereo_depth
from robotrials.record.rgbd import View
from robotrials.worlds.cell.camera import Pictures, working_backend
from robotrials.worlds.cell.reset import Start
from robotrials.worlds.cell.scene import Scene, load_mujoco

WATCHERS = ('front', 'side', 'gallery')


def at_home(start: Start) -> Any:
    """A copy of the world with the arm where it started and everything else where it is; what it held stays in the air.

    A real arm would be driven there before the last picture. The world of the episode is not touched.
    """
    mujoco = load_mujoco()
    data = mujoco.MjData(start.scene.model)
    mujoco.mj_copyData(data, start.scene.model, start.data)
    data.qpos[start.scene.joint_qpos] = start.angles_rad
    mujoco.mj_kinematics(start.scene.model, data)
    mujoco.mj_camlight(start.scene.model, data)
    return data


class Watch:
    """Draws the watching cameras when asked, without shadows: they would take ten times as long.

    With a noise model each camera is a unit of its own that keeps its bias for good; a picture's noise comes from the
    episode's seed and its time, so that a run repeats bit for bit.
    """

    def __init__(self, cameras: Sequence[str], *, size: Sequence[int], noise: str) -> None:
        for camera in cameras:
            if camera not in WATCHERS:
                raise UnknownName('watching camera', camera, WATCHERS)
        if len(set(cameras)) != len(cameras):
            raise InputError(f'watchers names a camera twice: {list(cameras)}')
        if noise != 'none' and noise not in STEREO_NOISE:
            raise UnknownName('noise of watching cameras', noise, ('none', *STEREO_NOISE))
        height, width = (int(v) for v in size)
        self._noise = STEREO_NOISE.get(noise)
        self._pictures = Pictures(tuple(cameras), height_px=height, width_px=width, has_shadows=False)
        if cameras:
            working_backend()  # a machine that cannot draw says so before the first episode

    @property
    def has_cameras(self) -> bool:
        return bool(self._pictures.cameras)

    def take(self, scene: Scene, data: Any, *, seed: int, t_s: float) -> Mapping[str, View]:
        views = {}
        for name, picture in self._pictures.take(scene, data).items():
            depth = picture.depth_m
            intrinsics = picture.calibration.intrinsics_px
            if self._noise is not None and intrinsics is not None:
                number = WATCHERS.index(name)
                depth = stereo_depth(
                    depth, self._noise, focal_px=float(intrinsics[0, 0]), unit=np.random.default_rng([number, 7]),
                    frame=np.random.default_rng([number, seed, round(1000 * t_s)]),
                ).astype(np.float32)  # fmt: skip
            views[name] = View(picture.rgb, depth, picture.calibration, t_s)
        return views

    def close(self) -> None:
        self._pictures.close()
