"""A scripted policy that finds its object in the cameras: colour segmentation and depth, never the privileged pose.

It hears which colour is meant, looks for that colour, fits a box, and then moves as the scripted policies do. Of the
privileged state it uses the arm's own account and the goal that the task gives; the object's pose there is overwritten
with what it saw, or with nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.conditions.lexicon import COLORS as COLOR_WORDS
from trialist.conditions.lexicon import spans
from trialist.errors import InputError, NotEstimable, UnknownName
from trialist.geometry import Box, ObjectModel, RgbdView, color_mask, reconstruct_box, rotation_from_quaternion
from trialist.policies.privileged import SLOT_WIDTH, STATE_WIDTH, TO_MOVE, read_state
from trialist.policies.scripted import CONVENTION, RATE_HZ, TEMPERS, ScriptedSession
from trialist.run.convention import PolicySpec
from trialist.run.seam import Chunk, Observation, Setup

FloatArray = NDArray[np.floating[Any]]

PAINTS: Mapping[str, tuple[int, int, int]] = {
    'red': (204, 33, 31), 'green': (41, 143, 56), 'blue': (33, 82, 191), 'yellow': (237, 194, 31),
}  # fmt: skip
RGB_SLACK: Mapping[str, float | None] = {'hue': None, 'rgb': 75.0}
HEARINGS = ('lexicon', 'literal')
BLOCK_M = (0.04, 0.04, 0.04)
WORKSPACE_M = ((0.25, -0.35, -0.02), (0.75, 0.35, 0.4))
LOOK_EVERY_S = 1.0
LEAST_CONFIDENCE = 0.25
SLOTS_AT = 31  # where the item slots of the state begin


class SightedPolicy:
    """A scripted policy with eyes. `hearing` is how it reads the instruction.

    `lexicon` knows synonyms; `literal` knows only the plain colour words, and goes for the colour that fills most of
    the picture when it hears none of them. `seeing` is how it tells colours: `hue` does not mind the light, `rgb`
    compares plain pixel values.
    """

    def __init__(
        self, *, temper: str = 'careful', hearing: str = 'lexicon', seeing: str = 'hue', cameras: tuple[str, ...] = ()
    ) -> None:
        if temper not in TEMPERS:
            raise UnknownName('temper of a scripted policy', temper, TEMPERS)
        if hearing not in HEARINGS:
            raise UnknownName('hearing of a sighted policy', hearing, HEARINGS)
        if seeing not in RGB_SLACK:
            raise UnknownName('seeing of a sighted policy', seeing, RGB_SLACK)
        self._rgb_slack = RGB_SLACK[seeing]
        self._temper, self._hearing = TEMPERS[temper], hearing
        needed: dict[str, tuple[int, int] | None] = dict.fromkeys(cameras or ('front', 'side'))
        self._spec = PolicySpec(
            name=f'sighted {temper}', action=CONVENTION, control_rate_hz=RATE_HZ, state_width=STATE_WIDTH, images=needed
        )

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> SightedSession:
        inner = ScriptedSession(self._temper, np.random.Generator(np.random.PCG64(seed)))
        return SightedSession(
            inner, heard_color(setup.instruction, self._hearing), tuple(self._spec.images), self._rgb_slack
        )


def heard_color(instruction: str, hearing: str) -> str | None:
    """The first colour that is named, which is the object's; None when no colour was understood."""
    for start, end, concept in spans(instruction):
        if concept in PAINTS and (hearing == 'lexicon' or instruction[start:end].lower() == concept):
            return concept
        if concept in COLOR_WORDS and hearing == 'literal':
            return None
    return None


class SightedSession:
    """One episode: look, believe, and let the script act on the belief."""

    def __init__(
        self, inner: ScriptedSession, color: str | None, cameras: tuple[str, ...], rgb_slack: float | None
    ) -> None:
        self._inner = inner
        self._rgb_slack = rgb_slack
        self._color = color
        self._cameras = cameras
        self._believed: FloatArray | None = None  # (7,)
        self._held: tuple[FloatArray, FloatArray] | None = None  # tool position and belief when it was grasped
        self._looked_s = -math.inf
        self._home: FloatArray | None = None

    @property
    def believed(self) -> FloatArray | None:
        """Where it thinks its object is, a pose (7,); None while it has not found it."""
        return self._believed

    def act(self, observation: Observation) -> Chunk:
        view = read_state(observation.state)
        self._home = view.tool.copy() if self._home is None else self._home
        is_shut = view.has_contact and float(observation.state[29]) < 0.5
        if is_shut and self._believed is not None:
            self._carry(view.tool)
        else:
            self._held = None
            self._look(observation, view.tool)
        if self._believed is None:
            return Chunk(np.concatenate([np.zeros(6), [1.0]])[None, :])
        return self._inner.act(dataclasses.replace(observation, state=self._rewritten(observation.state)))

    def _carry(self, tool: FloatArray) -> None:
        """What is held moves with the tool."""
        assert self._believed is not None
        if self._held is None:
            self._held = (tool[:3].copy(), self._believed.copy())
        start, belief = self._held
        self._believed = np.concatenate([belief[:3] + tool[:3] - start, belief[3:]])

    def _look(self, observation: Observation, tool: FloatArray) -> None:
        is_due = observation.t_s - self._looked_s >= LOOK_EVERY_S
        is_clear = self._believed is None or float(np.linalg.norm(tool[:2] - self._believed[:2])) > 0.12
        if not (is_due and is_clear):
            return
        self._looked_s = observation.t_s
        views = [_view(observation, name) for name in self._cameras]
        color = self._color if self._color is not None else most_salient(views)
        if color is None:
            return
        try:
            model = ObjectModel(color, PAINTS[color], BLOCK_M, rgb_slack=self._rgb_slack)
            found = reconstruct_box(views, model, bounds_m=WORKSPACE_M)
        except NotEstimable:
            return
        if found.confidence >= LEAST_CONFIDENCE:
            self._believed = _upright_pose(found.box)

    def _rewritten(self, state: FloatArray) -> FloatArray:
        """The state with the object's pose and grasp from the belief; other items to move are hidden."""
        assert self._believed is not None
        assert self._home is not None
        changed = np.array(state, dtype=np.float64)
        slots = changed[SLOTS_AT:].reshape(-1, SLOT_WIDTH)
        moving = np.flatnonzero(slots[:, 0] == TO_MOVE)
        for row in moving:
            slots[row, 3:10] = self._believed
            slots[row, 10:13] = self._believed[:3]
            slots[row, 13:17] = _turned(self._home[3:], _yaw(self._believed[3:]))
        slots[moving[1:], 0] = 0.0
        return changed


def most_salient(views: list[RgbdView]) -> str | None:
    """The known colour that fills most of the pictures."""
    area = {c: sum(int(color_mask(v.rgb, ObjectModel(c, rgb)).sum()) for v in views) for c, rgb in PAINTS.items()}
    best = max(area, key=lambda c: area[c])
    return best if area[best] else None


def _view(observation: Observation, name: str) -> RgbdView:
    if name not in observation.depth_m or name not in observation.cameras:
        raise InputError(f'camera {name} gives no depth or calibration; a sighted policy needs both')
    camera = observation.cameras[name]
    depth = np.asarray(observation.depth_m[name], dtype=np.float64)
    return RgbdView(name, observation.images[name], depth, camera.intrinsics_px, camera.world_from_camera)


def _upright_pose(box: Box) -> FloatArray:
    """The pose of a cube that lies flat: its yaw is known up to a quarter turn, the least is taken."""
    axis = int(np.argmin(np.abs(box.rotation[2])))
    yaw = math.atan2(float(box.rotation[1, axis]), float(box.rotation[0, axis]))
    yaw = (yaw + math.pi / 4) % (math.pi / 2) - math.pi / 4
    return np.array([*box.center, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])


def _yaw(quaternion: FloatArray) -> float:
    turn = rotation_from_quaternion(quaternion)
    return math.atan2(float(turn[1, 0]), float(turn[0, 0]))


def _turned(quaternion: FloatArray, yaw_rad: float) -> FloatArray:
    """The quaternion turned by a yaw about the world's z."""
    w, x, y, z = (float(v) for v in quaternion)
    c, s = math.cos(yaw_rad / 2), math.sin(yaw_rad / 2)
    return np.array([c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w])
