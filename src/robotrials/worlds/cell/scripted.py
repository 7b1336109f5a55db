"""Scripted policies for the tabletop cell. They read the simulator's truth: they show the tool, not robot learning.

Each is one script (pick, carry, place, look, again) with another temper. The reference is the same script, quick and
exact: it stands where a human reference stands, and is no human.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.run.seam import Chunk, Observation, PolicySpec, Setup
from robotrials.worlds.cell.panda import CONVENTION, conjugate, multiply
from robotrials.worlds.cell.task import STATE_WIDTH, CellView, ItemView, read_state

FloatArray = NDArray[np.floating[Any]]
Script = Generator[FloatArray, CellView, None]
MovingGoal = Callable[[], tuple[FloatArray, FloatArray]]  # pose (7,) and velocity (3,)

RATE_HZ = 20.0
STEP_S = 1.0 / RATE_HZ
FULL_OPENING_M = 0.08
LONGEST_MOVE_S = 20.0
TURN_RAD_S = 2.0
FRESH_S = 1.0  # an item that was just let go may still be settling: it is not looked at again before
CLOSING_S = 0.25  # the fingers take about so long to close about a thing that moves
TRACKED_S = 0.25  # how far back a thing's motion is looked at
FINGER_RATE = 4.0  # of the full opening, a second
NEAR_M = 0.02  # a thing whose grasp is so near to the tool is between the fingers
MOVING_TASKS = ('belt_slow', 'belt_fast')
MISS_M = 0.006  # closed to less than the item's width by this: nothing was grasped


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper:
    """How a script moves, sees and minds. Lengths in metres, speeds in metres a second, times in seconds."""

    speed_m_s: float  # over open ground
    near_speed_m_s: float  # down to and up from things
    acceleration_m_s2: float
    near_acceleration_m_s2: float
    clearance_m: float  # height of the tool above things while carrying
    margin_m: float  # extra opening of the fingers about an item
    dwell_s: float  # before the lift
    release_s: float  # from the command to open until the retreat
    toss_m: float = 0.0  # how far before the goal it lets go, in passing and at carrying height; 0 sets things down
    press_m: float = 0.0  # how far below the grasp it pushes before it closes: into the floor, where there is one
    blur_m: float = 0.0  # standard deviation of what it believes of a place, each look
    drift_m_s: float = 0.0  # how fast its belief slides away from the truth, along one direction
    is_feeling: bool = True  # waits until the fingers have stopped before it counts the dwell
    is_checking: bool = True  # looks whether it holds something before it carries
    is_minding_strays: bool = True  # goes back for what it dropped on the table
    forget_chance: float = 0.0  # of losing the thread after a grasp
    forget_s: float = 0.0  # for how long, on average
    waypoint_m: float = 0.004  # how near is near enough in passing
    foresight: float = 0.5  # how much of its own delay it allows for in things that move; 1 is all of it


TEMPERS: Mapping[str, Temper] = {
    'reference': Temper(
        speed_m_s=0.80, near_speed_m_s=0.36, acceleration_m_s2=4.0, near_acceleration_m_s2=2.5, clearance_m=0.075,
        margin_m=0.010, dwell_s=0.10, release_s=0.10, waypoint_m=0.02,
    ),
    'careful': Temper(
        speed_m_s=0.22, near_speed_m_s=0.08, acceleration_m_s2=1.0, near_acceleration_m_s2=1.0, clearance_m=0.12,
        margin_m=0.014, dwell_s=0.8, release_s=0.5,
    ),
    'hasty': Temper(
        speed_m_s=0.95, near_speed_m_s=0.40, acceleration_m_s2=5.5, near_acceleration_m_s2=3.5, clearance_m=0.08,
        margin_m=0.012, dwell_s=0.30, release_s=0.05, toss_m=0.05, blur_m=0.006, is_feeling=False, is_checking=False,
        is_minding_strays=False, waypoint_m=0.03, foresight=0.4,
    ),
    'steady': Temper(
        speed_m_s=0.40, near_speed_m_s=0.20, acceleration_m_s2=2.0, near_acceleration_m_s2=1.6, clearance_m=0.10,
        margin_m=0.012, dwell_s=0.3, release_s=0.25,
    ),
    'rough': Temper(
        speed_m_s=0.40, near_speed_m_s=0.80, acceleration_m_s2=2.0, near_acceleration_m_s2=8.0, clearance_m=0.10,
        margin_m=0.012, dwell_s=0.3, release_s=0.25, press_m=0.010,
    ),
    'forgetful': Temper(
        speed_m_s=0.40, near_speed_m_s=0.20, acceleration_m_s2=2.0, near_acceleration_m_s2=1.6, clearance_m=0.10,
        margin_m=0.012, dwell_s=0.3, release_s=0.25, forget_chance=0.4, forget_s=40.0,
    ),
    'drifting': Temper(
        speed_m_s=0.45, near_speed_m_s=0.22, acceleration_m_s2=2.0, near_acceleration_m_s2=1.8, clearance_m=0.09,
        margin_m=0.012, dwell_s=0.2, release_s=0.2, drift_m_s=0.0012,
    ),
}  # fmt: skip


def changed(temper: Temper, changes: Mapping[str, float | bool]) -> Temper:
    """A temper with some of its fields set otherwise."""
    from robotrials.value import read_table

    return read_table(Temper, {**dataclasses.asdict(temper), **changes}, where='changes of a temper')


class ScriptedPolicy:
    """A scripted policy by its temper: `careful`, `steady`, `hasty`, `rough`, `forgetful`, `drifting` or `reference`.

    With a `chunk_length` it answers with so many actions at once, planned ahead on what it expects to see.
    changes: fields of its `Temper` to set otherwise, such as ``{'margin_m': 0.02}``.
    """

    def __init__(
        self, *, temper: str, chunk_length: int = 1, changes: Mapping[str, float | bool] | None = None
    ) -> None:
        if temper not in TEMPERS:
            raise UnknownName('temper of a scripted policy', temper, TEMPERS)
        if chunk_length < 1:
            raise InputError(f'chunk_length is {chunk_length}, wanted >= 1')
        self.temper = changed(TEMPERS[temper], changes or {})
        self._chunk_length = chunk_length
        self.spec = PolicySpec(
            name=f'scripted {temper}',
            action=CONVENTION,
            chunk_length=chunk_length,
            control_rate_hz=RATE_HZ,
            state_width=STATE_WIDTH,
        )

    def start(self, setup: Setup, *, seed: int) -> TabletopSession:
        rng = np.random.Generator(np.random.PCG64(seed))
        tracker = Tracker() if setup.task in MOVING_TASKS else None
        return TabletopSession(self.temper, rng, chunk_length=self._chunk_length, tracker=tracker)


class TabletopSession:
    """One episode of a script. With a tracker it follows things that move while it picks them up."""

    def __init__(
        self, temper: Temper, rng: np.random.Generator, *, chunk_length: int = 1, tracker: Tracker | None = None
    ) -> None:
        self._temper = temper
        self._rng = rng
        self._chunk_length, self._tracker = chunk_length, tracker
        self._lag_steps = 0  # commands that were not carried out when the world was seen
        self._script: Script | None = None
        self._opening = 1.0
        self._velocity: FloatArray = np.zeros(3)
        self._elapsed_s = 0.0
        self._let_go: dict[int, float] = {}
        angle = rng.uniform(0, 2 * math.pi)
        self._drift = np.array([math.cos(angle), math.sin(angle), 0.0]) * temper.drift_m_s

    def act(self, observation: Observation) -> Chunk:
        """The next actions of the script."""
        self._elapsed_s = observation.t_s
        seen = read_state(observation.state)
        if self._tracker is not None:
            self._tracker.see(observation.t_s, seen)
        view = seen
        if observation.under_way is not None:
            self._lag_steps = len(observation.under_way)
            view = after_commands(seen, observation.under_way)
        actions = [self._next(view)]
        while len(actions) < self._chunk_length:
            view = expected(view, actions[-1], tracker=self._tracker)
            self._elapsed_s += STEP_S
            actions.append(self._next(view))
        return Chunk(np.stack(actions))

    def _next(self, view: CellView) -> FloatArray:
        if self._script is None:
            self._view = view
            self._script = self._run()
            return next(self._script)
        return self._script.send(view)

    # --- the script

    def _run(self) -> Script:
        home = self._view.command.copy()
        skipped: set[int] = set()
        tried = 0
        while True:
            item = self._choose(skipped)
            if item is None:
                skipped.clear()
                yield from self._go(home, self._temper.speed_m_s)
                yield from self._wait(0.5)
                continue
            tried += 1
            yield from self._pick(item) if self._tracker is None else self._intercept(item, self._tracker)
            if self._temper.is_checking and not self._has(item):
                yield from self._open_and_rise()
                if tried > 3 and len(self._view.items) > 1:
                    skipped.add(item.slot)
                    tried = 0
                continue
            tried = 0
            if self._rng.random() < self._temper.forget_chance:
                yield from self._forget()
            yield from self._place(item)
            self._let_go[item.slot] = self._elapsed_s

    def _choose(self, skipped: set[int]) -> ItemView | None:
        for item in self._view.items:
            is_stray = item.is_yaw_free and item.pose[1] < 0.04  # on the table, not in the source bin any more
            is_fresh = self._elapsed_s - self._let_go.get(item.slot, -math.inf) < FRESH_S
            if item.slot in skipped or is_fresh or (is_stray and not self._temper.is_minding_strays):
                continue
            return item
        return None

    def _pick(self, item: ItemView) -> Script:
        temper = self._temper
        grasp = self._believe(item.grasp)
        above = _raised(grasp, max(0.0, temper.clearance_m - 0.02))
        self._opening = min(1.0, (item.width_m + 2 * temper.margin_m) / FULL_OPENING_M)
        yield from self._travel(above)
        yield from self._go(_raised(grasp, -temper.press_m), temper.near_speed_m_s)
        yield from self._close()
        yield from self._go(_raised(self._view.command, temper.clearance_m), temper.near_speed_m_s)

    def _intercept(self, item: ItemView, tracker: Tracker) -> Script:
        """Meet a thing that moves: over it, then down to it and closing about it at the pace it had.

        Once the fingers are about it, it is no longer looked at: what they push would lead them on.
        """
        temper = self._temper
        error = self._believe(item.grasp) - item.grasp
        self._opening = min(1.0, (item.width_m + 2 * temper.margin_m) / FULL_OPENING_M)

        def met(height_m: float) -> tuple[FloatArray, FloatArray]:
            now = next((v for v in self._view.items if v.slot == item.slot), item)
            velocity = tracker.velocity_m_s(item.slot)
            pose = _raised(now.grasp + error, height_m)
            pose[:3] += velocity * (STEP_S * (1 + temper.foresight * self._lag_steps))
            return pose, velocity

        over_m = max(0.0, temper.clearance_m - 0.02)
        yield from self._follow(lambda: met(over_m), temper.speed_m_s, temper.acceleration_m_s2, enough_m=0.012)
        last, velocity = met(0.0)
        since_s = self._elapsed_s

        def reckoned() -> tuple[FloatArray, FloatArray]:
            pose = last.copy()
            pose[:3] += velocity * (self._elapsed_s - since_s)
            return pose, velocity

        yield from self._follow(reckoned, temper.near_speed_m_s, temper.near_acceleration_m_s2, enough_m=0.004)
        self._opening = 0.0
        for _ in range(self._lag_steps + round((CLOSING_S + temper.dwell_s) * RATE_HZ)):
            yield from self._send(velocity * STEP_S, np.zeros(3))
        self._velocity = velocity
        yield from self._go(_raised(self._view.command, temper.clearance_m), temper.near_speed_m_s)

    def _follow(
        self, goal: MovingGoal, speed_m_s: float, acceleration_m_s2: float, *, enough_m: float
    ) -> Script:  # fmt: skip
        """Close in on a goal that moves, in its own frame as `_go` does on one that stands."""
        for _ in range(int(LONGEST_MOVE_S * RATE_HZ)):
            target, carried = goal()
            gap = target[:3] - self._view.command[:3]
            turn = _turn_between(self._view.command[3:], target[3:])
            distance, angle = float(np.linalg.norm(gap)), float(np.linalg.norm(turn))
            if distance < enough_m and angle < 0.05:
                return
            braking = _braking_speed(distance, 0.6 * acceleration_m_s2)
            wanted = carried + gap * (min(speed_m_s, braking) / max(distance, 1e-6))
            self._velocity = _approach(self._velocity, wanted, acceleration_m_s2 * STEP_S)
            spin = min(1.0, TURN_RAD_S * (0.3 + speed_m_s) * STEP_S / max(angle, 1e-9))
            yield from self._send(self._velocity * STEP_S, turn * spin)

    def _close(self) -> Script:
        """Close, and dwell: from when the fingers stopped if it feels for that, else from the command."""
        if self._temper.is_feeling:
            yield from self._settle()
        self._opening = 0.0
        if self._temper.is_feeling:
            if self._lag_steps:  # what the fingers do is not seen before the command has got there
                yield from self._wait(self._lag_steps * STEP_S)
            before = math.inf
            while abs(self._view.opening - before) > 0.004 or self._view.opening > before:
                before = self._view.opening
                yield from self._wait(STEP_S)
        yield from self._wait(self._temper.dwell_s)

    def _place(self, item: ItemView) -> Script:
        temper = self._temper
        held = next((v for v in self._view.items if v.slot == item.slot), item)
        release = self._believe(_tool_at_goal(held, self._view.tool))
        if temper.toss_m and item.is_yaw_free:
            yield from self._toss(release)
            return
        yield from self._travel(_along(release, held, temper.clearance_m - 0.02))
        yield from self._go(release, temper.near_speed_m_s)
        self._opening = min(1.0, self._view.opening + 2 * temper.margin_m / FULL_OPENING_M)
        yield from self._wait(temper.release_s)
        yield from self._go(_along(release, held, temper.clearance_m), temper.near_speed_m_s)

    def _toss(self, release: FloatArray) -> Script:
        """Let go on the way and trust to luck."""
        above = _at_height(release, float(self._view.command[2]))
        yield from self._go(above, self._temper.speed_m_s, near=True, enough_m=self._temper.toss_m)
        self._opening = 1.0
        yield from self._go(above, self._temper.speed_m_s, near=True)

    def _open_and_rise(self) -> Script:
        self._opening = 1.0
        yield from self._go(_raised(self._view.command, 0.03), self._temper.near_speed_m_s)

    def _forget(self) -> Script:
        """Stand there and think of nothing; then go on as if nothing had been."""
        yield from self._wait(float(self._rng.exponential(self._temper.forget_s)))

    # --- moving

    def _travel(self, above: FloatArray) -> Script:
        """Across at the height of the higher end, then to the point itself."""
        height = max(self._view.command[2], above[2])
        temper = self._temper
        if self._view.command[2] < above[2] - 0.01:
            yield from self._go(_at_height(self._view.command, height), temper.near_speed_m_s, near=True)
        yield from self._go(_at_height(above, height), temper.speed_m_s, near=True)
        yield from self._go(above, temper.speed_m_s, near=True, enough_m=0.2 * temper.waypoint_m)

    def _go(self, goal: FloatArray, speed_m_s: float, *, near: bool = False, enough_m: float | None = None) -> Script:
        """A straight line at bounded speed and acceleration, the turn spread over it; `near` passes by and goes on."""
        temper = self._temper
        enough, enough_rad = (enough_m or temper.waypoint_m, 0.1) if near else (0.0015, 0.01)
        acceleration = temper.acceleration_m_s2 if near else temper.near_acceleration_m_s2
        for _ in range(int(LONGEST_MOVE_S * RATE_HZ)):
            gap = goal[:3] - self._view.command[:3]
            turn = _turn_between(self._view.command[3:], goal[3:])
            distance, angle = float(np.linalg.norm(gap)), float(np.linalg.norm(turn))
            if distance < enough and angle < enough_rad:
                return
            braking = _braking_speed(distance, 0.6 * acceleration)
            wanted = gap * (min(speed_m_s, braking) / max(distance, 1e-6))
            self._velocity = _approach(self._velocity, wanted, acceleration * STEP_S)
            left_s = max(distance / max(speed_m_s, 1e-6), STEP_S)
            spin = min(1.0, max(STEP_S / left_s, 0.15), TURN_RAD_S * (0.3 + speed_m_s) * STEP_S / max(angle, 1e-9))
            yield from self._send(self._velocity * STEP_S, turn * spin)

    def _settle(self) -> Script:
        """Wait until the arm is where it was told to be."""
        for _ in range(int(0.5 * RATE_HZ)):
            if float(np.linalg.norm(self._view.tool[:3] - self._view.command[:3])) < 0.002:
                return
            yield from self._wait(STEP_S)

    def _wait(self, seconds: float) -> Script:
        self._velocity = np.zeros(3)
        for _ in range(max(1, round(seconds * RATE_HZ))):
            yield from self._send(np.zeros(3), np.zeros(3))

    def _send(self, move: FloatArray, turn: FloatArray) -> Script:
        self._view = yield np.concatenate([move, turn, [self._opening]])

    # --- seeing

    def _believe(self, pose: FloatArray) -> FloatArray:
        believed = pose.copy()
        believed[:3] += self._drift * self._elapsed_s
        if self._temper.blur_m:
            believed[:2] += self._rng.normal(0, self._temper.blur_m, 2)
        return believed

    def _has(self, item: ItemView) -> bool:
        return self._view.opening * FULL_OPENING_M > item.width_m - MISS_M


# --- what is not seen yet


class Tracker:
    """How fast things move, from where they were seen over the last moments."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, dict[int, FloatArray]]] = []

    def see(self, t_s: float, view: CellView) -> None:
        self._seen = [s for s in self._seen if t_s - TRACKED_S <= s[0] < t_s]
        self._seen.append((t_s, {item.slot: item.pose[:3].copy() for item in view.items}))

    def velocity_m_s(self, slot: int) -> FloatArray:
        """The velocity (3,) in the plane; none before a thing was seen twice."""
        seen = [(t_s, places[slot]) for t_s, places in self._seen if slot in places]
        if len(seen) < 2:
            return np.zeros(3)
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        velocity: FloatArray = (last - first) / (last_s - first_s)
        velocity[2] = 0.0
        return velocity


def after_commands(view: CellView, actions: FloatArray) -> CellView:
    """The view with the commanded pose where it will be when these commands are carried out."""
    command = view.command.copy()
    for action in actions:
        command[:3] += action[:3]
        command[3:] = _multiply(_from_vector(action[3:6]), command[3:])
    return dataclasses.replace(view, command=command)


def expected(view: CellView, action: FloatArray, *, tracker: Tracker | None) -> CellView:
    """What will be seen a step later, if all goes well: the fingers close on what is between them and take it along."""
    opening, wanted = view.opening, float(action[6])
    between = next((v for v in view.items if float(np.linalg.norm(v.grasp[:3] - view.tool[:3])) < NEAR_M), None)
    least = between.width_m / FULL_OPENING_M if between is not None else 0.0
    after = opening + min(max(wanted - opening, -FINGER_RATE * STEP_S), FINGER_RATE * STEP_S)
    after = max(after, min(least, opening))
    is_held = between is not None and wanted < least and opening <= least + 0.02
    items = []
    for item in view.items:
        moved = np.zeros(3) if tracker is None else tracker.velocity_m_s(item.slot) * STEP_S
        if between is not None and is_held and item.slot == between.slot:
            moved = action[:3]
        pose, grasp = item.pose.copy(), item.grasp.copy()
        pose[:3] += moved
        grasp[:3] += moved
        items.append(dataclasses.replace(item, pose=pose, grasp=grasp))
    tool = view.tool.copy()
    tool[:3] += action[:3]
    moved_view = dataclasses.replace(view, opening=after, tool=tool, items=tuple(items))
    return after_commands(moved_view, action[None, :])


# --- motion


def _approach(now: FloatArray, wanted: FloatArray, change: float) -> FloatArray:
    step = wanted - now
    length = float(np.linalg.norm(step))
    return wanted if length <= change else now + step * (change / length)


def _braking_speed(distance_m: float, deceleration_m_s2: float) -> float:
    """The speed from which whole control steps of this deceleration end at the goal."""
    change = deceleration_m_s2 * STEP_S
    return (math.sqrt(change * change + 8 * deceleration_m_s2 * distance_m) - change) / 2


# --- poses


def _raised(pose: FloatArray, height_m: float) -> FloatArray:
    return _at_height(pose, float(pose[2]) + height_m)


def _at_height(pose: FloatArray, height_m: float) -> FloatArray:
    raised = pose.copy()
    raised[2] = height_m
    return raised


def _along(tool: FloatArray, item: ItemView, distance_m: float) -> FloatArray:
    """The tool moved back along the goal's own z: the way in and out of a slot."""
    axis = np.array([0.0, 0.0, 1.0]) if item.is_yaw_free else _rotate(item.goal[3:], np.array([0.0, 0.0, 1.0]))
    if axis[2] < 0.5:
        axis = np.array([0.0, 0.0, 1.0])
    moved = tool.copy()
    moved[:3] += axis * distance_m
    return moved


def _tool_at_goal(item: ItemView, tool: FloatArray) -> FloatArray:
    """Where the tool is when the held item is at its goal."""
    offset = tool[:3] - item.pose[:3]
    if item.is_yaw_free:
        return np.concatenate([item.goal[:3] + offset, tool[3:]])
    turn = _multiply(item.goal[3:], np.array(conjugate(item.pose[3:])))
    turn = _least_turn(turn)
    return np.concatenate([item.goal[:3] + _rotate(turn, offset), _multiply(turn, tool[3:])])


def _least_turn(turn: FloatArray) -> FloatArray:
    return -turn if turn[0] < 0 else turn


def _turn_between(a: FloatArray, b: FloatArray) -> FloatArray:
    w, x, y, z = _least_turn(_multiply(b, np.array(conjugate(a))))
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 if sine < 1e-9 else 2 * math.atan2(sine, w) / sine
    return np.array([x * scale, y * scale, z * scale])


def _multiply(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.array(multiply(a, b))


def _from_vector(turn: FloatArray) -> FloatArray:
    angle = float(np.linalg.norm(turn))
    if angle < 1e-12:
        return np.array([1.0, 0.0, 0.0, 0.0])
    return np.concatenate([[math.cos(angle / 2)], turn * (math.sin(angle / 2) / angle)])


def _rotate(q: FloatArray, v: FloatArray) -> FloatArray:
    return _multiply(_multiply(q, np.array([0.0, *v])), np.array(conjugate(q)))[1:]
