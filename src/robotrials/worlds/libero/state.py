"""What the numbers of a LIBERO observation's state are, and how they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.worlds.arm.signal import PROPRIOCEPTION, Cast

FloatArray = NDArray[np.float64]

THING = (
    'x_m',
    'y_m',
    'z_m',
    'qw',
    'qx',
    'qy',
    'qz',
    'low_x_m',
    'low_y_m',
    'low_z_m',
    'high_x_m',
    'high_y_m',
    'high_z_m',
)
# After the proprioception: pose of the first target and of where it goes, each with its box in its own frame.
PRIVILEGED = (*PROPRIOCEPTION, *(f'target_{name}' for name in THING), *(f'goal_{name}' for name in THING))
LAYOUTS = {'proprioception': PROPRIOCEPTION, 'privileged': PRIVILEGED}


class Privileged:
    """Where the target and its destination are; boxes are read once an episode."""

    def __init__(self, env: Any, cast: Cast) -> None:
        self._env, self._cast = env, cast
        self._target = cast.targets[0] if cast.targets else ''
        self._site = env.object_sites_dict.get(cast.destination)
        parent = self._site.parent_name if self._site is not None else cast.destination
        self._goal = parent if parent in cast.things else ''
        self._boxes = {name: self._box_m(name) for name in (self._target, self._goal)}

    def read(self) -> FloatArray:
        return np.concatenate([self._thing(self._target), self._thing(self._goal)])

    def _thing(self, name: str) -> FloatArray:
        if not name:
            return np.zeros(len(THING))
        data = self._env.sim.data._data
        body = self._env.obj_body_id[name]
        position = data.xpos[body]
        if name == self._goal and self._site is not None:
            position = data.site_xpos[self._env.sim.model.site_name2id(self._cast.destination)]
        return np.concatenate([position, data.xquat[body], self._boxes[name]])

    def _box_m(self, name: str) -> FloatArray:
        """Low and high corner of what can be touched of a thing, in the frame of its root body."""
        if not name:
            return np.zeros(6)
        model, data = self._env.sim.model._model, self._env.sim.data._data
        index = self._cast.things.index(name)
        body = self._env.obj_body_id[name]
        turn, at = data.xmat[body].reshape(3, 3), data.xpos[body]
        corners = []
        for geom in np.flatnonzero(self._cast.thing_of_geom == index):
            if model.geom_contype[geom] or model.geom_conaffinity[geom]:
                middle, half = model.geom_aabb[geom].reshape(2, 3)
                signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
                points = (middle + signs * half) @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
                corners.append((points - at) @ turn)
        found = np.concatenate(corners) if corners else np.zeros((1, 3))
        return np.concatenate([found.min(axis=0), found.max(axis=0)])
