"""A scripted policy that finds its object and its goal in the cameras, by colour and depth, never in the host's truth.

It reads which colour is meant and where the object is to go, looks for both, and then moves as scripted policies do.
Of the state it reads the arm's own account (joints, tool, gripper and its contact: proprioception) and nothing of the
items.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    view_from_camera,
)
from robotrials.run.conditions.instruction import COLORS as COLOR_WORDS
from robotrials.run.conditions.instruction import spans
from robotrials.run.seam import Chunk, Observation, PolicySpec, Setup
from robotrials.worlds.cell.panda import CONVENTION
from robotrials.worlds.cell.scripted import RATE_HZ, TEMPERS, TabletopSession
from robotrials.worlds.cell.task import SLOT_WIDTH, SLOTS_AT, STATE_WIDTH, TO_MOVE, read_state

# Where a named thing shall go, as a sighted policy hears and sees it: on the white square, or beside or on a block.
# The words give the relation and what it refers to; the cameras give where that is. Of the cell it knows what a worker
# on it would: how high the platform is, how large blocks are, and how far apart neighbours are put.

PLATFORM_Z_M = 0.012
PLATFORM_M = ((0.32, -0.28), (0.68, 0.28))
LEVEL_M = 0.005  # how far from the platform's height a pixel may lie to be a part of it
APART_M = 0.085
BLOCK_EDGE_M = 0.04
SQUARE_EDGE_M = 0.05
LEAST_PIXELS = 12
BRIGHTER = 1.5  # than the platform about it, in every channel
WHITE = 190  # the least of a white pixel's channels, for eyes that compare plain values

OFFSETS = {'left_of': (0.0, 1.0), 'right_of': (0.0, -1.0), 'in_front_of': (-1.0, 0.0), 'behind': (1.0, 0.0)}
PLAIN_WORDS = ('to the left of', 'to the right of', 'in front of', 'behind', 'on top of', 'on')


@dataclass(frozen=True, slots=True)
class Destination:
    """A relation and the colour it refers to; white is the square."""

    relation: str
    color: str


def heard_destination(instruction: str, *, colors: Sequence[str], is_literal: bool) -> Destination | None:
    """The first relation to a colour after the first colour; None when the words are not understood."""
    relation, has_object = '', False
    for start, end, concept in spans(instruction):
        said = instruction[start:end].lower()
        if concept in colors or concept == 'white':
            if relation:
                return Destination(relation, concept) if said == concept or not is_literal else None
            has_object = True
        elif has_object and (concept in OFFSETS or concept == 'on'):
            if is_literal and said not in PLAIN_WORDS:
                return None
            relation = concept
    return None


def pose_beside(anchor: FloatArray, relation: str) -> FloatArray:
    """Where a block stands (7,) in a relation to the block at `anchor` (7,), as seen from the robot's base."""
    if relation == 'on':
        return np.array([*anchor[:2], anchor[2] + BLOCK_EDGE_M, *anchor[3:]])
    ahead, left = OFFSETS[relation]
    return np.array([anchor[0] + APART_M * ahead, anchor[1] + APART_M * left, anchor[2], 1.0, 0.0, 0.0, 0.0])


def seen_square(views: Sequence[RgbdView], *, is_plain: bool) -> FloatArray | None:
    """The pose (7,) of a block that stands on the white square; None where no square is seen.

    A pixel belongs to it when it lies on the platform and is brighter than it in every channel, so that the colour of
    the light does not matter; `is_plain` asks for white pixels instead.
    """
    points, colors = _platform_pixels(views)
    if len(points) < LEAST_PIXELS:
        return None
    least = np.full(3, WHITE) if is_plain else BRIGHTER * np.median(colors, axis=0)
    bright = points[(colors > least).all(axis=1)]
    if len(bright) < LEAST_PIXELS:
        return None
    middle = np.median(bright, axis=0)
    near = bright[np.abs(bright - middle).max(axis=1) < SQUARE_EDGE_M]
    if len(near) < LEAST_PIXELS or len(near) < 0.5 * len(bright):
        return None
    yaw, center = _square_about(near)
    z = PLATFORM_Z_M + BLOCK_EDGE_M / 2
    return np.array([*center, z, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])


def _platform_pixels(views: Sequence[RgbdView]) -> tuple[FloatArray, FloatArray]:
    """World x and y (N, 2) and colours (N, 3) of the pixels at the platform's height, on it."""
    places, colors = [], []
    for view in views:
        v, u = np.nonzero(view.has_depth)
        k, pose = view.intrinsics_px, view.base_from_camera
        rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(len(u))], axis=1)
        points = (rays * view.depth_m[v, u][:, None]) @ pose[:3, :3].T + pose[:3, 3]
        low, high = PLATFORM_M
        is_on = (np.abs(points[:, 2] - PLATFORM_Z_M) < LEVEL_M) & (points[:, :2] > low).all(axis=1)
        is_on &= (points[:, :2] < high).all(axis=1)
        places.append(points[is_on, :2])
        colors.append(view.rgb[v[is_on], u[is_on]].astype(np.float64))
    return np.concatenate(places), np.concatenate(colors)


def _square_about(points: FloatArray) -> tuple[float, FloatArray]:
    """Yaw and centre (2,) of the smallest rectangle about most of the points, of whole degrees in a quarter turn."""
    best: tuple[float, float, FloatArray] | None = None
    for degree in range(-45, 45, 3):
        yaw = math.radians(degree)
        c, s = math.cos(yaw), math.sin(yaw)
        turned = points @ np.array([[c, -s], [s, c]])
        low, high = np.quantile(turned, [0.03, 0.97], axis=0)
        area = float(np.prod(high - low))
        if best is None or area < best[0]:
            best = area, yaw, np.array([[c, -s], [s, c]]) @ ((low + high) / 2)
    assert best is not None
    return best[1], best[2]


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
MOST_BLOCKS = 8  # a colour that fills more of a picture than this many blocks is not a block's


class Attention(enum.StrEnum):
    """What it goes for: the object that was named, or one of the two shortcuts that RADAR found in policies."""

    WORDS = 'words'
    SALIENT = 'salient'  # the colour that fills most of the pictures
    NEAREST = 'nearest'  # the block nearest to the gripper


class SightedPolicy:
    """A scripted policy with eyes. `hearing` is how it reads the instruction.

    `lexicon` knows synonyms; `literal` knows only the plain words of the tasks, and goes for the colour that fills most
    of the picture when no colour is named. `seeing` is how it recognises colours: `hue` is insensitive to the light,
    `rgb` compares plain pixel values. It knows the white square, and the relations to one other block; given any other
    instruction it stays where it is.
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
        self.spec = PolicySpec(
            name=f'sighted {temper}', action=CONVENTION, control_rate_hz=RATE_HZ, state_width=STATE_WIDTH, images=needed
        )

    def start(self, setup: Setup, *, seed: int) -> SightedSession:
        instruction = setup.instruction
        return SightedSession(
            TabletopSession(self._temper, np.random.Generator(np.random.PCG64(seed))),
            heard_color(instruction, self._hearing),
            heard_destination(instruction, colors=tuple(PAINTS), is_literal=self._hearing == 'literal'),
            attention=self._attention,
            cameras=tuple(self.spec.images),
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
        inner: TabletopSession,
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
        # Where it thinks its object is, and where it shall go: poses (7,); None while it does not know.
        self.believed: FloatArray | None = None
        self.goal: FloatArray | None = None
        self._held: tuple[FloatArray, FloatArray] | None = None  # tool position and belief when it was grasped
        self._looked_s = -math.inf

    def act(self, observation: Observation) -> Chunk:
        view = read_state(observation.state)
        is_shut = view.has_contact and float(observation.state[29]) < 0.5
        if is_shut and self.believed is not None:
            self._carry(view.tool)
        else:
            self._held = None
            self._look(observation, view.tool)
        if self.believed is None or self.goal is None:
            return Chunk(np.concatenate([np.zeros(6), [1.0]])[None, :])
        return self._inner.act(dataclasses.replace(observation, state=self._imagined(observation.state)))

    def _carry(self, tool: FloatArray) -> None:
        """What is held moves with the tool."""
        assert self.believed is not None
        if self._held is None:
            self._held = (tool[:3].copy(), self.believed.copy())
        start, belief = self._held
        self.believed = np.concatenate([belief[:3] + tool[:3] - start, belief[3:]])

    def _look(self, observation: Observation, tool: FloatArray) -> None:
        is_due = observation.t_s - self._looked_s >= LOOK_EVERY_S
        is_clear = self.believed is None or float(np.linalg.norm(tool[:2] - self.believed[:2])) > 0.12
        if not (is_due and is_clear):
            return
        self._looked_s = observation.t_s
        views = [_view(observation, name) for name in self._cameras]
        color = self._wanted_color(views, tool)
        box = self._find(views, color) if color is not None else None
        self.believed = box if box is not None else self.believed
        goal = self._find_goal(views)
        self.goal = goal if goal is not None else self.goal

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
            box = reconstruct_box(views, model, bounds_m=WORKSPACE_M)
        except NotEstimable:
            return None
        return _upright_pose(box.box) if box.confidence >= LEAST_CONFIDENCE else None

    def _find_goal(self, views: list[RgbdView]) -> FloatArray | None:
        wanted = self._destination
        if wanted is None:
            return None
        if wanted.color == 'white':
            return seen_square(views, is_plain=self._rgb_slack is not None) if wanted.relation == 'on' else None
        anchor = self._find(views, wanted.color)
        return None if anchor is None else pose_beside(anchor, wanted.relation)

    def _imagined(self, state: FloatArray) -> FloatArray:
        """The state with one item, where it was seen and where it is to go, instead of what the host says of items."""
        assert self.believed is not None
        assert self.goal is not None
        imagined = np.array(state, dtype=np.float64)
        slots = imagined[SLOTS_AT:].reshape(-1, SLOT_WIDTH)
        slots[:] = 0.0
        yaw = _yaw(self.believed[3:])
        turn = _yaw(self.goal[3:])
        turn += math.pi / 2 * round((yaw - turn) / (math.pi / 2))  # the nearest of a cube's four equal turns
        grasp = [*self.believed[:3], 0.0, math.cos(yaw / 2), math.sin(yaw / 2), 0.0]
        goal = [*self.goal[:3], math.cos(turn / 2), 0.0, 0.0, math.sin(turn / 2)]
        slots[0] = [TO_MOVE, BLOCK_EDGE_M, 0.0, *self.believed, *grasp, *goal]
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
    depth_m = np.asarray(observation.depth_m[name], dtype=np.float64)
    return view_from_camera(observation.cameras[name], observation.images[name], depth_m=depth_m)


def _upright_pose(box: Box) -> FloatArray:
    """The pose of a cube that lies flat: its yaw is known up to a quarter turn, the least is taken."""
    axis = int(np.argmin(np.abs(box.rotation[2])))
    yaw = math.atan2(float(box.rotation[1, axis]), float(box.rotation[0, axis]))
    yaw = (yaw + math.pi / 4) % (math.pi / 2) - math.pi / 4
    return np.array([*box.center, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])


def _yaw(quaternion: FloatArray) -> float:
    turn = rotation_from_quaternion(quaternion)
    return math.atan2(float(turn[1, 0]), float(turn[0, 0]))
