"""Filming the cell: states of an episode drawn again, in a world of their own, with cameras of the scene."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.record.film import FilmStates
from robotrials.run.plan import FilmOptions
from robotrials.run.seam import Footage, Shot
from robotrials.worlds.cell.camera import Pictures, calibrations
from robotrials.worlds.cell.scene import CAMERAS, Scene, load_mujoco

OVERVIEW = 'gallery'
FILM_CAMERAS = (*CAMERAS, OVERVIEW)
SAME_START = 1e-3  # metres or radians: resets of another machine end a little elsewhere


class Filming:
    """One off-screen buffer of its own, made with the first film, small and without shadows."""

    def __init__(self, cameras: tuple[str, ...]) -> None:
        self._cameras = cameras  # unless others are asked for
        self._pictures = Pictures((), height_px=0, width_px=0)

    def footage(self, scene: Scene, states: FilmStates, options: FilmOptions) -> Footage:
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

    def _frames(self, scene: Scene, data: Any, camera: str, states: FilmStates) -> Iterator[NDArray[np.uint8]]:
        for state in states.states:
            _place(scene, data, state)
            yield self._pictures.frame(scene, data, camera)

    def close(self) -> None:
        self._pictures.close()


def _place(scene: Scene, data: Any, state: NDArray[Any]) -> None:
    """Bodies, cameras and lights where the positions at the head of a state have them."""
    mujoco = load_mujoco()
    data.qpos[:] = state[: scene.model.nq]
    mujoco.mj_kinematics(scene.model, data)
    mujoco.mj_camlight(scene.model, data)


def is_near(state: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two states have the same bodies in about the same places."""
    n = len(other)
    return len(state) >= n and bool(np.abs(state[:n] - other).max() < SAME_START)
