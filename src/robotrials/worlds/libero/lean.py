"""LIBERO without redundant or unused work: the same states and the same pictures, bit for bit.

robosuite 1.4.0 computes the dynamics three times a substep, reads forty sensors a control step of which three are
looked at, and recompiles the model of a task at every reset, meshes and textures included.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any


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
        MjSim.from_xml_string = classmethod(lambda cls, xml: cls(self._compiled(xml)))
        base.MjRenderContextOffscreen = lambda sim, device_id: self._rendering(renderer, sim, device_id)
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
