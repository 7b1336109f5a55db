"""A scripted policy that finds its object and its goal in the cameras, by colour and depth, never in the host's truth.

It hears which colour is meant and where it shall go, looks for both, and then moves as the scripted policies do. Of the
state it reads the arm's own account (joints, tool, gripper and its contact: proprioception) and nothing of the items.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.geometry import (
    Box,
    ObjectModel,
    RgbdView,
    color_mask,
    reconstruct_box,
    rotation_from_quaternion,
)
from robotrials.run.conditions.lexicon import COLORS as COLOR_WORDS
from robotrials.run.conditions.lexicon import spans
from robotrials.run.convention import PolicySpec
from robotrials.run.seam import Chunk, Observation, Setup
from robotrials.worlds.cell.destination import BLOCK_EDGE_M, Destination, heard_destination, pose_beside, seen_square
from robotrials.worlds.cell.privileged import SLOT_WIDTH, STATE_WIDTH, TO_MOVE, read_state
from robotrials.worlds.cell.scripted import CONVENTION, RATE_HZ, TEMPERS, ScriptedSession

FloatArray = NDArray[np.floating[Any]]

PAINTS: Mapping[str, tuple[int, int, int]] = {
    'red': (204, 33, 31), 'green': (41, 143, 56), 'blue': (33, 82, 191), 'yellow': (237, 194, 31),
}  # fmt: skip
RGB_SLACK: Mapping[str, float | None] = {'hue': None, 'rgb': 75.0}
HEARINGS = ('lexicon', 'literal')
BLOCK_M = (BLOCK_EDGE_M, BLOCK_EDGE_M, BLOCK_EDGE_M)
WORKSPACE_M = ((0.25, -0.35, -0.02), (0.75, 0.35, 0.4))
LOOK_EVERY_S = 1.0
LEAST_CONFIDENCE = 0.25
MOST_BLOCKS = 8  # a colour that fills more of a picture than so many blocks is no block's
SLOTS_AT = 31  # where the item slots of the state begin


class Attention(enum.StrEnum):
    """What it goes for: the object that was named, or one of the two shortcuts that RADAR found in policies."""

    WORDS = 'words'
    SALIENT = 'salient'  # the colour that fills most of the pictures
    NEAREST = 'nearest'  # the block nearest to the gripper


class SightedPolicy:
    """A scripted policy with eyes. `hearing` is how it reads the instruction.

    `lexicon` knows synonyms; `literal` knows only the plain words of the tasks, and goes for the colour that fills most
    of the picture when it hears no colour. `seeing` is how it tells colours: `hue` does not mind the light, `rgb`
    compares plain pixel values. It knows the white square, and the relations to one other block; told anything else it
    stays where it is.
    """

    def __init__(
        self,
        *,
        temper: str = 'careful',
        hearing: str = 'lexicon',
        seeing: str = 'hue',
        attention: str = 'words',
        cameras: tuple[str, ...] = (),
    ) -> None:
        if temper not in TEMPERS:
            raise UnknownName('temper of a scripted policy', temper, TEMPERS)
        if hearing not in HEARINGS:
            raise UnknownName('hearing of a sighted policy', hearing, HEARINGS)
        if seeing not in RGB_SLACK:
            raise UnknownName('seeing of a sighted policy', seeing, RGB_SLACK)
        if attention not in tuple(Attention):
            raise UnknownName('attention of a sighted policy', attention, [a.value for a in Attention])
        self._rgb_slack = RGB_SLACK[seeing]
        self._temper, self._hearing, self._attention = TEMPERS[temper], hearing, Attention(attention)
        needed: dict[str, tuple[int, int] | None] = dict.fromkeys(cameras or ('front', 'side'))
        self._spec = PolicySpec(
            name=f'sighted {temper}', action=CONVENTION, control_rate_hz=RATE_HZ, state_width=STATE_WIDTH, images=needed
        )

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> SightedSession:
        told = setup.instruction
        return SightedSession(
            ScriptedSession(self._temper, np.random.Generator(np.random.PCG64(seed))),
            heard_color(told, self._hearing),
            heard_destination(told, colors=tuple(PAINTS), is_literal=self._hearing == 'literal'),
            attention=self._attention,
            cameras=tuple(self._spec.images),
            rgb_slack=self._rgb_slack,
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
        self,
        inner: ScriptedSession,
        color: str | None,
        destination: Destination | None,
        *,
        attention: Attention,
        cameras: tuple[str, ...],
        rgb_slack: float | None,
    ) -> None:
        self._inner = inner
        self._color = color
        self._destination = destination
        self._attention = attention
        self._cameras = cameras
        self._rgb_slack = rgb_slack
        self._believed: FloatArray | None = None  # (7,)
        self._goal: FloatArray | None = None  # (7,)
        self._held: tuple[FloatArray, FloatArray] | None = None  # tool position and belief when it was grasped
        self._looked_s = -math.inf

    @property
    def believed(self) -> FloatArray | None:
        """Where it thinks its object is, a pose (7,); None while it has not found it."""
        return self._believed

    @property
    def goal(self) -> FloatArray | None:
        """Where it thinks that the object shall go, a pose (7,); None while it does not know."""
        return self._goal

    def act(self, observation: Observation) -> Chunk:
        view = read_state(observation.state)
        is_shut = view.has_contact and float(observation.state[29]) < 0.5
        if is_shut and self._believed is not None:
            self._carry(view.tool)
        else:
            self._held = None
            self._look(observation, view.tool)
        if self._believed is None or self._goal is None:
            return Chunk(np.concatenate([np.zeros(6), [1.0]])[None, :])
        return self._inner.act(dataclasses.replace(observation, state=self._imagined(observation.state)))

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
        color = self._wanted_color(views, tool)
        found = self._find(views, color) if color is not None else None
        self._believed = found if found is not None else self._believed
        goal = self._find_goal(views)
        self._goal = goal if goal is not None else self._goal

    def _wanted_color(self, views: list[RgbdView], tool: FloatArray) -> str | None:
        if self._attention is Attention.NEAREST:
            seen = {c: p for c in PAINTS if (p := self._find(views, c)) is not None}
            return min(seen, key=lambda c: float(np.linalg.norm(seen[c][:3] - tool[:3])), default=None)
        if self._attention is Attention.SALIENT or self._color is None:
            return most_salient(views)
        return self._color

    def _find(self, views: list[RgbdView], color: str) -> FloatArray | None:
        """The pose (7,) of the block of this colour, as far as it is seen well enough."""
        model = ObjectModel(color, PAINTS[color], BLOCK_M, rgb_slack=self._rgb_slack)
        if any(color_mask(v.rgb, model).sum() > MOST_BLOCKS * _block_px(v) for v in views):
            return None
        try:
            found = reconstruct_box(views, model, bounds_m=WORKSPACE_M)
        except NotEstimable:
            return None
        return _upright_pose(found.box) if found.confidence >= LEAST_CONFIDENCE else None

    def _find_goal(self, views: list[RgbdView]) -> FloatArray | None:
        wanted = self._destination
        if wanted is None:
            return None
        if wanted.color == 'white':
            return seen_square(views, is_plain=self._rgb_slack is not None) if wanted.relation == 'on' else None
        anchor = self._find(views, wanted.color)
        return None if anchor is None else pose_beside(anchor, wanted.relation)

    def _imagined(self, state: FloatArray) -> FloatArray:
        """The state with one item where it was seen and where it shall go; all that the host says of items is gone."""
        assert self._believed is not None
        assert self._goal is not None
        imagined = np.array(state, dtype=np.float64)
        slots = imagined[SLOTS_AT:].reshape(-1, SLOT_WIDTH)
        slots[:] = 0.0
        yaw = _yaw(self._believed[3:])
        turn = _yaw(self._goal[3:])
        turn += math.pi / 2 * round((yaw - turn) / (math.pi / 2))  # the nearest of a cube's four equal turns
        grasp = [*self._believed[:3], 0.0, math.cos(yaw / 2), math.sin(yaw / 2), 0.0]
        goal = [*self._goal[:3], math.cos(turn / 2), 0.0, 0.0, math.sin(turn / 2)]
        slots[0] = [TO_MOVE, BLOCK_EDGE_M, 0.0, *self._believed, *grasp, *goal]
        return imagined


def _block_px(view: RgbdView) -> float:
    """About how many pixels a block in the middle of the workspace fills."""
    middle = np.mean(WORKSPACE_M, axis=0)
    edge_px = BLOCK_EDGE_M * float(view.intrinsics_px[0, 0]) / float(np.linalg.norm(view.position_m - middle))
    return 1.5 * edge_px**2


def most_salient(views: list[RgbdView]) -> str | None:
    """The known colour that fills most of the pictures."""
    area = {c: sum(int(color_mask(v.rgb, ObjectModel(c, rgb)).sum()) for v in views) for c, rgb in PAINTS.items()}
    best = max(area, key=lambda c: area[c])
    return best if area[best] else None


def _view(observation: Observation, name: str) -> RgbdView:
    if name not in observation.depth_m or name not in observation.cameras:
        raise InputError(f'camera {name} gives no depth or calibration; a sighted policy needs both')
    camera = observation.cameras[name]
    if camera.intrinsics_px is None or camera.world_from_camera is None:
        raise InputError(f'camera {name} has no calibration; a sighted policy needs one')
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
