"""LIBERO without redundant or unused work: the same states and the same pictures, bit for bit.

robosuite 1.4.0 computes the dynamics three times a substep, reads forty sensors a control step of which three are
looked at, and recompiles the model of a task at every reset, meshes and textures included. MuJoCo draws every geom,
twice where something reflects, and most of them lie outside what a wrist camera shows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


class HalfSteps:
    """Steps one environment's simulation in halves: what the controller reads, then what its torques do.

    robosuite calls `sim.forward` twice and then `sim.step`, which begins with the same once more. Positions and
    velocities are all that is read in between, so that they are computed once, and the rest of the step after it.
    """

    def __init__(self, env: Any) -> None:
        import mujoco

        sim = env.sim
        self._model, self._data = sim.model._model, sim.data._data
        self._forward, self._step, self._env_step = sim.forward, sim.step, type(env).step.__get__(env)
        self._first = (mujoco.mj_fwdPosition, mujoco.mj_sensorPos, mujoco.mj_fwdVelocity, mujoco.mj_sensorVel)
        self._checks, self._rest = (mujoco.mj_checkPos, mujoco.mj_checkVel), mujoco.mj_step2
        self._is_stepping = self._is_halfway = False
        runge_kutta = int(mujoco.mjtIntegrator.mjINT_RK4)
        if int(self._model.opt.integrator) != runge_kutta and not self._model.opt.enableflags:
            sim.forward, sim.step, env.step = self._first_half, self._second_half, self._stepped

    def _stepped(self, action: Any) -> Any:
        self._is_stepping, self._is_halfway = True, False
        try:
            return self._env_step(action)
        finally:
            self._is_stepping = False

    def _first_half(self) -> None:
        if not self._is_stepping:
            self._forward()
        elif not self._is_halfway:
            for part in self._first:
                part(self._model, self._data)
            self._is_halfway = True

    def _second_half(self, *given: Any, **named: Any) -> None:
        model, data = self._model, self._data
        began_s = data.time
        for check in self._checks:
            check(model, data)
        if self._is_halfway and data.time == began_s:
            self._rest(model, data)
        else:  # a diverged state was reset, or the first half was not asked for
            self._step(*given, **named)
        self._is_halfway = False


def read_only(env: Any, wanted: Collection[str]) -> None:
    """Have no sensors read but those wanted, and look at the clock that all of them share once a substep."""
    for name, observable in env._observables.items():
        observable._enabled = name in wanted
    clocks = [observable for observable in env._observables.values() if observable._enabled]
    first, update = clocks[0], type(env)._update_observables.__get__(env)

    def updated(force: bool = False) -> None:
        passed_s = first._time_since_last_sample + env.model_timestep
        if force or not first._sampled or passed_s >= first._sampling_timestep:
            for observable in clocks:
                observable._time_since_last_sample = first._time_since_last_sample
            update(force=force)
        else:
            first._time_since_last_sample = passed_s

    env._update_observables = updated


class Workshop:
    """Keeps the model that was compiled last, and its renderer with meshes and textures, for a reset to the same.

    What a reset gets is a copy of the model as it was compiled: nothing that an episode changed in it remains.
    """

    def __init__(self) -> None:
        self._xml = ''
        self._model: Any = None
        self._renderer: Any = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Within it, robosuite compiles a model and makes a renderer only where the last ones will not do."""
        from robosuite.environments import base
        from robosuite.utils.binding_utils import MjSim

        compiled, renderer = MjSim.from_xml_string, base.MjRenderContextOffscreen
        make = framing(renderer)
        MjSim.from_xml_string = classmethod(lambda cls, xml: cls(self._compiled(xml)))
        base.MjRenderContextOffscreen = lambda sim, device_id: self._rendering(make, sim, device_id)
        try:
            yield
        finally:
            MjSim.from_xml_string, base.MjRenderContextOffscreen = compiled, renderer

    def _compiled(self, xml: str) -> Any:
        import mujoco

        if xml != self._xml:
            self._xml, self._model, self._renderer = '', None, None  # before the next ones are made: they are large
            self._xml, self._model = xml, mujoco.MjModel.from_xml_string(xml)
        return copy.copy(self._model)

    def _rendering(self, make: Callable[..., Any], sim: Any, device_id: int) -> Any:
        import mujoco

        kept = self._renderer
        if kept is None:
            self._renderer = make(sim, device_id=device_id)
            return self._renderer
        sim.forward()  # as a new one does
        sim.add_render_context(kept)
        kept.sim, kept.model, kept.data = sim, sim.model, sim.data
        kept.scn = mujoco.MjvScene(sim.model._model, maxgeom=kept.scn.maxgeom)
        kept.cam, kept.vopt, kept.pert = mujoco.MjvCamera(), mujoco.MjvOption(), mujoco.MjvPerturb()
        kept.cam.fixedcamid, kept.cam.type = 0, mujoco.mjtCamera.mjCAMERA_FIXED
        kept.pert.active, kept.pert.select, kept.pert.skinselect = 0, 0, -1
        return kept


def framing(context: type[Any]) -> type[Any]:
    """A class of render contexts that leave out what no pixel of a camera shows; `render_whole` draws all of it."""
    import mujoco

    class Framing(context):  # type: ignore[misc]  # robosuite's
        render_whole = context.render

        def render(self, width: int, height: int, camera_id: int | None = None, segmentation: bool = False) -> None:
            model = self.model._model
            is_small = width <= self.con.offWidth and height <= self.con.offHeight
            if camera_id is None or segmentation or not is_small or not is_plain_camera(model, camera_id):
                super().render(width, height, camera_id, segmentation)
                return
            self.gl_ctx.make_current()
            self.cam.type, self.cam.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera_id
            data, whole = self.data._data, mujoco.mjtCatBit.mjCAT_ALL
            mujoco.mjv_updateScene(model, data, self.vopt, self.pert, self.cam, whole, self.scn)
            leave_out(self.scn, model, data, camera_id, aspect=width / height)
            mujoco.mjr_render(mujoco.MjrRect(0, 0, width, height), self.scn, self.con)

    return Framing


def is_plain_camera(model: Any, camera: int) -> bool:
    """Whether a camera is one of the model's with nothing but a field of view."""
    if camera < 0 or model.cam_sensorsize[camera].any():
        return False
    is_parallel = model.cam_projection if hasattr(model, 'cam_projection') else model.cam_orthographic
    return not is_parallel[camera]


SLACK, SLACK_M = 1.01, 1e-3  # a scene's numbers have single precision
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What lies before a camera; `axes` are columns: right, up, forwards. `slopes`: of its edges, sideways and up."""

    eye_m: FloatArray
    axes: FloatArray
    slopes: FloatArray

    def meets(self, centres_m: FloatArray, radii_m: FloatArray) -> NDArray[np.bool_]:
        """Whether spheres reach into the picture."""
        own_m = (centres_m - self.eye_m) @ self.axes
        depth_m, aside_m = own_m[:, 2:], np.abs(own_m[:, :2])
        beyond_m = (aside_m - depth_m * self.slopes) / np.sqrt(1 + self.slopes**2)
        return (depth_m[:, 0] > -radii_m) & (beyond_m < radii_m[:, None]).all(axis=1)

    def meets_through(
        self, window_m: FloatArray, window_radius_m: float, centres_m: FloatArray, radii_m: FloatArray
    ) -> NDArray[np.bool_]:
        """Whether spheres reach into the cone of what is seen through another one."""
        to_window, window_rad = _direction(window_m[None] - self.eye_m, np.array([window_radius_m]))
        to_spheres, spheres_rad = _direction(centres_m - self.eye_m, radii_m)
        between_rad = np.arccos(np.clip(to_spheres @ to_window[0], -1, 1))
        return np.asarray(between_rad < window_rad + spheres_rad)


def _direction(offsets_m: FloatArray, radii_m: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Unit vectors towards spheres, and the angles that they fill on each side: all of them from within."""
    distances_m = np.maximum(np.linalg.norm(offsets_m, axis=1), 1e-9)
    share = radii_m / distances_m
    return offsets_m / distances_m[:, None], np.where(share < 1, np.arcsin(np.minimum(share, 1)), np.pi)


def leave_out(scene: Any, model: Any, data: Any, camera: int, *, aspect: float) -> None:
    """Have a scene draw no geom that is outside a camera's picture, nor in anything that reflects within it.

    A geom counts as its bounding sphere, a mirror as the cone around its own. Where a light casts shadows all stay,
    because what is not seen can cast one.
    """
    import mujoco

    if any(scene.lights[i].castshadow for i in range(scene.nlight)):
        return
    geoms = [geom for geom in (scene.geoms[i] for i in range(scene.ngeom)) if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM]
    ids = np.array([geom.objid for geom in geoms], dtype=int)
    turn, half = data.cam_xmat[camera].reshape(3, 3), np.tan(np.radians(model.cam_fovy[camera]) / 2)
    sight = Sight(data.cam_xpos[camera], turn * (1, 1, -1), np.array([half * aspect, half]))
    has_end = model.geom_rbound[ids] > 0  # a plane has none
    centres_m, radii_m = data.geom_xpos[ids], np.where(has_end, SLACK * model.geom_rbound[ids] + SLACK_M, np.inf)
    is_left_out = ~sight.meets(centres_m, radii_m)
    plane, box = mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_BOX  # the two that reflect, both upwards
    mirrors = [n for n, geom in enumerate(geoms) if geom.reflectance > 0 and geom.type in (plane, box)]
    for number in [n for n in mirrors if not is_left_out[n]]:
        mirror = geoms[number]
        normal, thickness_m = mirror.mat[:, 2].astype(float), mirror.size[2] if mirror.type == box else 0.0
        heights_m = (centres_m - centres_m[number]) @ normal - thickness_m
        images_m = centres_m - 2 * heights_m[:, None] * normal
        is_mirrored = sight.meets(images_m, radii_m)
        is_mirrored &= sight.meets_through(centres_m[number], radii_m[number], images_m, radii_m)
        is_left_out &= ~is_mirrored
    for number in np.flatnonzero(is_left_out).tolist():
        geoms[number].type = mujoco.mjtGeom.mjGEOM_NONE
