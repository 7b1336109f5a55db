"""Rendering that shows this environment, now: robosuite's contexts mended, and frames checked for being stale.

robosuite 1.4.0 makes a context current when it is created and never again: a context that is freed late takes the
current one with it, and a second environment draws into the first one's. Every use and every release makes it current.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import RigError

MOVED_M = 0.01  # a hand that moved so far since a frame cannot look the same
TURN_RAD = 0.3  # of a joint, for the check


def mend_rendering() -> None:
    """Make robosuite's render contexts current before they draw, are read and are freed; done once a process."""
    from robosuite.utils import binding_utils

    context = binding_utils.MjRenderContext
    if getattr(context, 'is_mended', False):
        return
    draw, read, release = context.render, context.read_pixels, context.__del__

    def current_first(call: Any) -> Any:
        def mended(self: Any, *given: Any, **named: Any) -> Any:
            if getattr(self, 'gl_ctx', None) is not None:
                self.gl_ctx.make_current()
            return call(self, *given, **named)

        return mended

    context.render, context.read_pixels = current_first(draw), current_first(read)
    context.__del__ = current_first(release)
    context.is_mended = True
    draw_camera = binding_utils.MjSim.render

    def drawn_if_wanted(self: Any, width: Any = None, height: Any = None, **named: Any) -> Any:
        if _UNSEEN:
            return np.zeros((height, width, 3), dtype=np.uint8)
        return draw_camera(self, width, height, **named)

    binding_utils.MjSim.render = drawn_if_wanted


_UNSEEN: list[bool] = []  # whether pictures of this moment are for nobody


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Draw nothing meanwhile: robosuite draws every camera three times in a reset, to see that its sensors work."""
    _UNSEEN.append(True)
    try:
        yield
    finally:
        _UNSEEN.pop()


class Shutter:
    """Draws the pictures of a robosuite environment only where somebody will look.

    robosuite takes its pictures within a control step, at the first of its substeps. Where none is wanted the state of
    that moment is kept in its place, and `drawn` is the picture that robosuite would have taken then.
    """

    def __init__(self, env: Any, cameras: dict[str, str], *, height_px: int, width_px: int) -> None:
        import mujoco

        self.is_open = True
        self._env, self._cameras, self._sensors = env, cameras, {}
        self.kept = mujoco.MjData(env.sim.model._model)  # the moment that the last pictures show
        self._blank = np.zeros((height_px, width_px, 3), dtype=np.uint8)  # in the place of what nobody looks at
        for camera in cameras.values():
            observable = env._observables[f'{camera}_image']
            self._sensors[camera] = sensor = getattr(observable._sensor, 'bare', observable._sensor)
            observable._sensor = self._shuttered(camera, sensor)

    def drawn(self) -> dict[str, NDArray[np.uint8]]:
        """The pictures of the last step that was taken with the shutter closed, by the host's names of cameras."""
        context = self._env.sim._render_context_offscreen
        present = context.data
        try:
            context.data = _Wrapped(self.kept)
            return {name: np.array(self._sensors[camera]({})) for name, camera in self._cameras.items()}
        finally:
            context.data = present

    def _shuttered(self, camera: str, sensor: Any) -> Any:
        import mujoco

        is_first = camera == next(iter(self._cameras.values()))

        def picture(cache: dict[str, Any]) -> Any:
            if is_first:  # cameras are read one after the other at the same moment
                sim = self._env.sim
                mujoco.mj_copyData(self.kept, sim.model._model, sim.data._data)
            return sensor(cache) if self.is_open else self._blank

        picture.bare = sensor  # type: ignore[attr-defined] # robosuite may keep its sensors over a reset
        picture.__modality__ = sensor.__modality__  # type: ignore[attr-defined]
        return picture


class FrameCheck:
    """Looks for frames that do not show the present, by drawing copies of the state: the simulation is not touched."""

    def __init__(self, env: Any, cameras: dict[str, str], *, height_px: int, width_px: int) -> None:
        self._env, self._cameras, self._size = env, cameras, (height_px, width_px)
        self._last: dict[str, tuple[bytes, NDArray[np.float64]]] = {}

    def at_reset(self, images: dict[str, NDArray[np.uint8]], *, moment: Any = None) -> None:
        """RigError unless every image is its moment drawn again, and another one once the arm has moved.

        moment: the data that the images show, by default the present. An image that differs from the last one of the
        episode before need not be told from one with the arm elsewhere: the renderer has drawn since.
        """
        for name, camera in self._cameras.items():
            if not np.array_equal(images[name], self._drawn(camera, moment, turn_rad=0.0)):
                raise RigError(f'camera {name}: the frame after the reset does not show the start state')
            has_changed = name in self._last and self._last[name][0] != _digest(images[name])
            if not has_changed and np.array_equal(images[name], self._drawn(camera, moment, turn_rad=TURN_RAD)):
                raise RigError(f'camera {name}: the frame is stale, it stays the same when the arm moves')
        self._last.clear()

    def at_step(self, images: dict[str, NDArray[np.uint8]], hand_m: NDArray[np.float64]) -> None:
        """RigError if an image stayed the same while the hand moved."""
        for name, image in images.items():
            digest = _digest(image)
            seen, at_m = self._last.get(name, (b'', hand_m))
            if digest != seen:
                self._last[name] = (digest, hand_m.copy())
            elif np.linalg.norm(hand_m - at_m) > MOVED_M:
                raise RigError(f'camera {name}: the frame is stale, the hand moved {MOVED_M * 100:g} cm and it did not')

    def _drawn(self, camera: str, moment: Any, *, turn_rad: float) -> NDArray[np.uint8]:
        """The view of a camera on a copy of the state, with the arm's joints turned."""
        import mujoco

        sim = self._env.sim
        model, context = sim.model._model, sim._render_context_offscreen
        copy, data = mujoco.MjData(model), sim.data._data if moment is None else moment
        mujoco.mj_copyData(copy, model, data)
        if turn_rad or moment is None:  # what was drawn within a step has the poses of its beginning
            copy.qpos[np.array(self._env.robots[0]._ref_joint_pos_indexes)] += turn_rad
            mujoco.mj_forward(model, copy)
        height, width = self._size
        present = context.data
        try:
            context.data = _Wrapped(copy)
            context.render(width=width, height=height, camera_id=sim.model.camera_name2id(camera))
            drawn: NDArray[np.uint8] = context.read_pixels(width, height)
        finally:
            context.data = present
        return drawn


def _digest(image: NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=8).digest()


class _Wrapped:
    """As robosuite wraps MuJoCo's data."""

    def __init__(self, data: Any) -> None:
        self._data = data
