"""A privileged pick-and-place controller for LIBERO, which is given the poses of the target and its destination.

A baseline for the whole chain, not a contender: it sees poses and boxes that no policy on a camera would, and knows
nothing of drawers, stoves and racks. Needs the host's option ``state = "privileged"``.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.run.seam import Chunk, Observation, PolicySpec, Session, Setup
from robotrials.worlds.arm.signal import CONVENTION, PROPRIOCEPTION
from robotrials.worlds.libero.suite import PRIVILEGED, THING

FloatArray = NDArray[np.float64]

REACH_M, REACH_RAD = 0.05, 0.5  # what an action of 1 asks for
OPENING_M = 0.072  # wider things are taken by the rim
FINGER_M = 0.035  # how deep the fingers may go below the top of a thing
CLEAR_M = 0.012  # between the fingertips and what a thing stands on
OPEN, CLOSED = -1.0, 1.0


class Manner(enum.StrEnum):
    CAREFUL = 'careful'  # over everything, slowly where it touches
    HASTY = 'hasty'  # straight and fast, and lets go early


class ScriptPhase(enum.IntEnum):
    RAISE = 0
    ABOVE = 1
    DOWN = 2
    CLOSE = 3
    LIFT = 4
    CARRY = 5
    LOWER = 6
    OPEN = 7
    LEAVE = 8


WAITS = {ScriptPhase.CLOSE: 12, ScriptPhase.OPEN: 8}  # steps
TOLERANCE_M = {ScriptPhase.ABOVE: 0.01, ScriptPhase.DOWN: 0.008, ScriptPhase.LOWER: 0.012}
LONGEST_PHASE = 70  # steps: what is not reached by then is not going to be


class ScriptedLiberoPolicy:
    """Picks the target up from above and puts it where the goal says. manner: ``careful`` or ``hasty``."""

    def __init__(self, *, manner: str = 'careful') -> None:
        if manner not in tuple(Manner):
            raise UnknownName('manner', manner, [m.value for m in Manner])
        self._manner = Manner(manner)
        self.spec = PolicySpec(
            name=f'libero-scripted-{manner}', action=CONVENTION, state_width=len(PRIVILEGED), state_layout=PRIVILEGED
        )

    def start(self, setup: Setup, *, seed: int) -> Session:
        return ScriptedSession(self._manner)


class ScriptedSession:
    """One episode: phases in order, each left when it is reached or has lasted too long."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self._phase, self._since = ScriptPhase.RAISE, 0
        self._grasp: Grasp | None = None
        self._over: FloatArray = np.zeros(3)
        self._stand: FloatArray = np.zeros(3)

    def act(self, observation: Observation) -> Chunk:
        state = np.asarray(observation.state, dtype=float)
        if state.shape != (len(PRIVILEGED),):
            raise InputError(f'the state has {state.shape} numbers; give the host the option state = "privileged"')
        hand, target, goal = _read(state)
        if self._grasp is None or self._phase < ScriptPhase.CLOSE:
            self._grasp = Grasp.of(target)
        place = self._place(hand, target, goal)
        self._advance(hand, place)
        return Chunk(self._action(hand, self._place(hand, target, goal))[None])

    def _place(self, hand: Pose, target: ScriptTarget, goal: ScriptTarget) -> FloatArray:
        """Where the hand should be in this phase."""
        grasp = self._grasp
        if grasp is None:
            raise RuntimeError('no grasp was chosen')
        is_careful = self._manner is Manner.CAREFUL
        over_m = 0.12 if is_careful else 0.06
        high_m = max(goal.top_m, target.top_m if self._phase < ScriptPhase.CLOSE else 0.0) + over_m
        if self._phase < ScriptPhase.CLOSE:
            point = grasp.point_m
            height = {ScriptPhase.RAISE: max(high_m, hand.at_m[2]), ScriptPhase.ABOVE: target.top_m + over_m}.get(
                self._phase, point[2]
            )
            if self._phase is ScriptPhase.RAISE:
                return np.array([*hand.at_m[:2], height])
            return np.array([point[0], point[1], height])
        if self._phase is ScriptPhase.CLOSE:
            return self._closed_at(hand)
        held: FloatArray = target.middle_m - hand.at_m  # from the hand to the thing in it
        hangs_m = hand.at_m[2] - target.bottom_m
        travel_m = goal.top_m + hangs_m + (0.06 if is_careful else 0.02)
        if self._phase is ScriptPhase.LIFT:
            return np.array([*grasp.point_m[:2], travel_m])
        over: FloatArray = goal.at_m[:2] - held[:2]
        if self._phase is ScriptPhase.CARRY:
            self._over = np.array([*over, travel_m])
            return self._over
        lowered_m = goal.rest_m + hangs_m + (0.01 if is_careful else 0.05)
        if self._phase is ScriptPhase.LOWER:
            self._over = np.array([*over, min(lowered_m, travel_m)])
            return self._over
        if self._phase is ScriptPhase.OPEN:
            return self._over
        away: FloatArray = self._over + np.array([0.0, 0.0, 0.12])
        return away

    def _closed_at(self, hand: Pose) -> FloatArray:
        if self._since == 0:
            self._stand = hand.at_m.copy()
        return self._stand

    def _advance(self, hand: Pose, place: FloatArray) -> None:
        self._since += 1
        if self._phase is ScriptPhase.LEAVE:
            return
        if self._phase in WAITS:
            is_over = self._since > WAITS[self._phase]
        else:
            tolerance_m = TOLERANCE_M.get(self._phase, 0.02 if self._manner is Manner.CAREFUL else 0.04)
            is_turned = self._phase is not ScriptPhase.ABOVE or abs(self._turn(hand)) < 0.1
            is_over = bool(np.linalg.norm(hand.at_m - place) < tolerance_m and is_turned) or self._since > LONGEST_PHASE
        if is_over:
            self._phase, self._since = ScriptPhase(self._phase + 1), 0

    def _turn(self, hand: Pose) -> float:
        """How far the fingers' axis is from the grasp's, the shorter way round."""
        if self._grasp is None:
            return 0.0
        error = self._grasp.yaw_rad - hand.yaw_rad
        return (error + math.pi / 2) % math.pi - math.pi / 2

    def _action(self, hand: Pose, place: FloatArray) -> FloatArray:
        touches = self._phase in (ScriptPhase.DOWN, ScriptPhase.LOWER)
        most = 1.0 if self._manner is Manner.HASTY else 0.35 if touches else 0.8
        motion = (place - hand.at_m) * 4.0 / REACH_M
        longest = float(np.abs(motion).max())
        motion *= min(1.0, most / longest) if longest > 0 else 1.0
        tilt = hand.tilt()
        yaw = self._turn(hand) if self._phase in (ScriptPhase.RAISE, ScriptPhase.ABOVE, ScriptPhase.DOWN) else 0.0
        turn = np.clip((tilt + np.array([0.0, 0.0, yaw])) / REACH_RAD, -0.5, 0.5)
        grip = CLOSED if ScriptPhase.CLOSE <= self._phase < ScriptPhase.OPEN else OPEN
        return np.concatenate([motion, turn, [grip]])


class Pose:
    """The hand: where it is, and how it is turned from straight down."""

    def __init__(self, at_m: FloatArray, rotation_vector: FloatArray) -> None:
        self.at_m = at_m
        self.matrix = _matrix(rotation_vector)

    @property
    def yaw_rad(self) -> float:
        """The direction of the fingers' axis in the plane, between -90 and 90 degrees from world y."""
        axis = self.matrix[:, 1]
        return math.atan2(axis[0], -axis[1])

    def tilt(self) -> FloatArray:
        """The rotation vector, in the world, that makes the hand point straight down again."""
        pointing: FloatArray = self.matrix[:, 2]
        axis: FloatArray = np.cross(pointing, np.array([0.0, 0.0, -1.0]))
        return axis


class ScriptTarget:
    """A target or a destination: pose and box."""

    def __init__(self, numbers: FloatArray) -> None:
        self.at_m = numbers[:3]
        self.low_m, self.high_m = numbers[7:10], numbers[10:13]
        w, x, y, z = numbers[3:7]  # the cell's own function would import the cell, which LIBERO's environment cannot
        self.matrix = np.array(
            [[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
             [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
             [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]]
        )  # fmt: skip

    @property
    def middle_m(self) -> FloatArray:
        middle: FloatArray = self.at_m + self.matrix @ ((self.low_m + self.high_m) / 2)
        return middle

    @property
    def half_height_m(self) -> float:
        return float(np.abs(self.matrix[2]) @ ((self.high_m - self.low_m) / 2))

    @property
    def top_m(self) -> float:
        return float(self.middle_m[2]) + self.half_height_m

    @property
    def bottom_m(self) -> float:
        return float(self.middle_m[2]) - self.half_height_m

    @property
    def rest_m(self) -> float:
        """Where something put here comes to rest: on a flat thing its top, in a deep one over its rim."""
        return self.top_m if self.half_height_m < 0.03 else self.top_m + 0.03


class Grasp:
    """Where the hand closes, and the direction of its fingers' axis."""

    def __init__(self, point_m: FloatArray, yaw_rad: float) -> None:
        self.point_m, self.yaw_rad = point_m, yaw_rad

    @classmethod
    def of(cls, thing: ScriptTarget) -> Grasp:
        """Across the narrowest horizontal side if the hand goes round it, else by the rim."""
        up = int(np.argmax(np.abs(thing.matrix[2])))
        sides = [i for i in range(3) if i != up]
        sizes = thing.high_m - thing.low_m
        narrow = min(sides, key=lambda i: sizes[i])
        depth_m = max(thing.bottom_m + CLEAR_M, thing.top_m - FINGER_M)
        middle = thing.middle_m
        if sizes[narrow] <= OPENING_M:
            axis = thing.matrix[:, narrow]
            yaw = math.atan2(axis[0], -axis[1])
            return cls(np.array([*middle[:2], depth_m]), yaw)
        half = float(np.abs(thing.matrix[1, sides]) @ sizes[sides]) / 2
        return cls(np.array([middle[0], middle[1] + half - 0.006, thing.top_m - 0.02]), 0.0)


def _read(state: FloatArray) -> tuple[Pose, ScriptTarget, ScriptTarget]:
    own = len(PROPRIOCEPTION)
    return (
        Pose(state[:3], state[3:6]),
        ScriptTarget(state[own : own + len(THING)]),
        ScriptTarget(state[own + len(THING) : own + 2 * len(THING)]),
    )


def _matrix(rotation_vector: FloatArray) -> FloatArray:
    angle = float(np.linalg.norm(rotation_vector))
    if angle < 1e-9:
        return np.eye(3)
    x, y, z = rotation_vector / angle
    cross: Any = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross)
