"""Whether things, or the arm, were placed into each other, by MuJoCo's own collision check on data of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TOUCH_M = 0.001  # deeper than the solver lets resting things sink into each other


class CollisionCheck:
    """Compares states with a nominal one. The simulation's data are not touched, so that its bits stay the same.

    Things are objects, fixtures and the arm; what they all stand on counts for the arm alone, since everything else
    touches it. The arm's links must not lie in each other either.
    """

    def __init__(self, env: Any, nominal: FloatArray) -> None:
        import mujoco

        self._model = env.sim.model._model
        self._data = mujoco.MjData(self._model)
        things = {name: thing.root_body for name, thing in {**env.objects_dict, **env.fixtures_dict}.items()}
        self._names = {int(env.sim.model.body_name2id(body)): name for name, body in things.items()}
        self._arm = int(env.sim.model.body_name2id(env.robots[0].robot_model.root_body))
        self._nominal_m = self._depths_m(nominal)

    def clashes(self, state: FloatArray) -> list[tuple[str, str]]:
        """Pairs of things that lie in each other in this flat state, deeper than they do in the nominal one."""
        return [
            self._named(a, b)
            for (a, b), depth_m in self._depths_m(state).items()
            if depth_m > self._nominal_m.get((a, b), 0.0) + TOUCH_M
        ]

    def _named(self, a: int, b: int) -> tuple[str, str]:
        if self._arm not in (a, b):
            return self._names[a], self._names[b]
        if a == b:
            return 'the arm', 'its own links'
        other = b if a == self._arm else a
        return 'the arm', self._names.get(other) or self._model.body(other).name

    def _depths_m(self, state: FloatArray) -> Mapping[tuple[int, int], float]:
        """How deep things lie in each other, by the bodies they hang on."""
        import mujoco

        model, data = self._model, self._data
        data.qpos[:] = state[1 : 1 + model.nq]
        mujoco.mj_fwdPosition(model, data)
        roots = model.body_rootid[model.geom_bodyid]
        found: dict[tuple[int, int], float] = {}
        for contact in data.contact:
            a, b = sorted(int(roots[geom]) for geom in contact.geom)
            if self._arm in (a, b) or (a != b and a in self._names and b in self._names):
                found[a, b] = max(found.get((a, b), 0.0), -float(contact.dist))
        return found
