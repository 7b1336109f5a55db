"""LIBERO's suites and the protocol that published evaluations follow on them.

What the numbers of a LIBERO observation's state are, and how they are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import SetupError, UnknownName
from robotrials.old_name import setting
from robotrials.worlds.arm.signal import POSE, PROPRIOCEPTION, Cast

CONTROL_RATE_HZ = 20.0
SETTLING_STEPS = 10  # with the arm at rest and the gripper open, before the policy is asked
CAMERAS: Mapping[str, str] = {'agentview': 'agentview', 'wrist': 'robot0_eye_in_hand'}  # ours -> LIBERO's


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite by its id in the safety registry, its name in LIBERO, and the step cap of OpenVLA's evaluation of it."""

    id: str
    name: str
    n_tasks: int
    step_cap: int

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(f'task_{i}' for i in range(self.n_tasks))


SUITES: Mapping[str, Suite] = {
    suite.id: suite
    for suite in (
        Suite('libero-spatial', 'libero_spatial', 10, 220),
        Suite('libero-object', 'libero_object', 10, 280),
        Suite('libero-goal', 'libero_goal', 10, 300),
        Suite('libero-10', 'libero_10', 10, 520),
        Suite('libero-90', 'libero_90', 90, 400),
    )
}
ALIASES: Mapping[str, str] = {'libero-long': 'libero-10', **{s.name: s.id for s in SUITES.values()}}


def find_suite(name: str) -> Suite:
    """A suite by its id, or by LIBERO's name of it."""
    known = ALIASES.get(name.lower(), name.lower())
    if known not in SUITES:
        raise UnknownName('suite of LIBERO', name, SUITES)
    return SUITES[known]


def task_number(suite: Suite, task: str) -> int:
    """Which task of the suite ``task_3`` is."""
    if task not in suite.tasks:
        raise UnknownName(f'task of {suite.id}', task, suite.tasks)
    return suite.tasks.index(task)


# LIBERO's meshes and textures: where they lie, their hash, and whether they are the originals.

VARIABLE = 'ROBOTRIALS_LIBERO_ASSETS'
DOWNLOADED = Path('~/.cache/libero/assets')  # where hf-libero puts them
WANTED = ('scenes', 'textures', 'stable_hope_objects', 'stable_scanned_objects', 'turbosquid_objects')
HUB_METADATA = Path('.cache', 'huggingface', 'download')
STAND_INS: Mapping[str, str] = {
    '42b6d6208e3237ec': 'stand-in assets (textures reduced, 29 files replaced): not for a published score',
}


def find_assets(given: str = '') -> Path:
    """The folder of the assets; SetupError says how to get them."""
    places = [given] if given else [setting(VARIABLE) or '', str(DOWNLOADED)]
    for place in filter(None, places):
        folder = Path(place).expanduser()
        for candidate in (folder, folder / 'assets'):
            if all((candidate / name).is_dir() for name in WANTED):
                return candidate.resolve()
    raise SetupError(
        f"LIBERO's assets are not in {' or '.join(filter(None, places))}; give the option assets, or set {VARIABLE}; "
        'to learn how to download them, run: robotrials env doctor libero'
    )


def assets_hash(folder: Path) -> str:
    """A hash of every file's path and content; what a download keeps for itself is left out."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob('*') if p.is_file()):
        name = path.relative_to(folder)
        if not any(part.startswith('.') for part in name.parts):
            total.update(f'{name.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n'.encode())
    return total.hexdigest()[:16]


def assets_note(folder: Path, digest: str) -> str:
    """What is wrong with the assets; empty if every file is as the hub served it."""
    if digest in STAND_INS:
        return STAND_INS[digest]
    strange = [name for name in _names(folder) if not _is_as_served(folder, name)]
    return f'not known to be the original assets ({len(strange)} files changed or of unknown origin)' if strange else ''


def _names(folder: Path) -> list[Path]:
    names = (p.relative_to(folder) for p in folder.rglob('*') if p.is_file())
    return [name for name in names if not any(part.startswith('.') for part in name.parts)]


def _is_as_served(folder: Path, name: Path) -> bool:
    """Whether a file has the hash that the hub gave for it when it was downloaded: sha256, or git's own of a blob."""
    served = folder / HUB_METADATA / name.parent / f'{name.name}.metadata'
    path = folder / name
    if served.is_file():
        lines = served.read_text(encoding='utf-8').splitlines()
        expected = lines[1].strip() if len(lines) > 1 else ''
    else:
        expected = path.resolve().name if path.is_symlink() else ''
    content = path.read_bytes()
    blob = hashlib.sha1(b'blob %d\0' % len(content) + content, usedforsecurity=False).hexdigest()
    return expected in (hashlib.sha256(content).hexdigest(), blob)


FloatArray = NDArray[np.float64]

THING = (*POSE, 'low_x_m', 'low_y_m', 'low_z_m', 'high_x_m', 'high_y_m', 'high_z_m')
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
        points = np.concatenate(corners) if corners else np.zeros((1, 3))
        return np.concatenate([points.min(axis=0), points.max(axis=0)])
