"""What has happened to each item, and when: grasped, released, placed, dropped, lost; and how the episode ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.geometry import Box, box_iou
from robotrials.measure.geometry.score import SCORE_KIND
from robotrials.record import Event, EventKind, Outcome
from robotrials.record.episode import EventSource
from robotrials.run.seam import HostReport
from robotrials.value import dataclass
from robotrials.worlds.cell import panda as pose
from robotrials.worlds.cell.panda import N_JOINTS
from robotrials.worlds.cell.scene import BIN_INNER_M, SUBSTEPS, TARGET_CENTER_M, WALL_HEIGHT_M, CompiledCell
from robotrials.worlds.cell.task import DrawnEpisode, Goal

# How much of a box lies in its target, for the cell's own verdict: the exact IoU of `robotrials.measure.geometry`.


def box_overlap(a: FloatArray, b: FloatArray, *, size_m: tuple[float, float, float], turns: int = 1) -> float:
    """Exact IoU of two boxes of one size at poses (7,); the best over the item's equal turns about its z."""
    if math.dist(a[:3], b[:3]) >= math.hypot(*size_m):
        return 0.0
    target = _box(b[:3], b[3:], size_m)
    best = 0.0
    for turn in range(max(turns, 1)):
        half = math.pi * turn / max(turns, 1)
        turned = pose.multiply(a[3:], [math.cos(half), 0.0, 0.0, math.sin(half)])
        best = max(best, box_iou(_box(a[:3], turned, size_m), target))
    return best


def _box(center_m: FloatArray, quaternion: pose.Vector, size_m: tuple[float, float, float]) -> Box:
    unit = np.asarray(quaternion, dtype=float)
    return Box(center_m, size_m, pose.matrix_from_quaternion(unit / np.linalg.norm(unit)))


FloatArray = NDArray[np.floating[Any]]

FALLEN_M = -0.05  # an item this far below the table's top has left the workspace
REST_M_S = 0.05
HOLD_STILL_S = 0.25  # how long a placed item has to stay


@dataclass(slots=True)
class _Track:
    """The running account of one item."""

    goal: Goal | None
    placed_since_s: float | None = None
    is_placed: bool = False
    is_lost: bool = False
    is_grasped: bool = False


class Referee:
    """Watches one episode at control rate. Only the host's own truth is used: poses, speeds, contacts."""

    def __init__(self, layout: DrawnEpisode, *, stop_force_n: float) -> None:
        self._layout = layout
        self._stop_force_n = stop_force_n
        goals = {g.item: g for g in layout.goals}
        self._types = layout.scene.item_types
        self._tracks = {n: _Track(goals.get(n)) for n in self._types if n not in layout.distractors}
        self._events: list[Event] = []
        self.outcome: Outcome | None = None
        self.reason = ''
        self.overlaps: dict[str, float] = {}

    def observe(
        self,
        t_s: float,
        *,
        poses: Mapping[str, FloatArray],
        speeds_m_s: Mapping[str, float],
        held: set[str],
        touched: set[str],
        robot_force_n: float,
    ) -> list[str]:
        """Take in one control step; returns the items that have just left the workspace."""
        fallen = []
        for name, track in self._tracks.items():
            if track.is_lost:
                continue
            self._follow_grasp(t_s, track, is_held=name in held)
            if poses[name][2] < FALLEN_M:
                track.is_lost, track.is_placed = True, False
                fallen.append(name)
                if track.goal is not None:
                    self._events.append(Event(t_s, EventKind.DROP_OUTSIDE))
            elif track.goal is not None:
                is_free = name not in touched and speeds_m_s[name] < REST_M_S
                self._follow_placement(t_s, track, is_there=is_free and self._is_at_goal(track.goal, poses[name]))
        if robot_force_n > self._stop_force_n:
            self._events.append(Event(t_s, EventKind.SAFETY_STOP, EventSource.SENSOR))
            self._end(Outcome.SAFETY_STOP, f'contact force {robot_force_n:.0f} N, limit {self._stop_force_n:g} N')
        else:
            self._close_if_done()
        return fallen

    def _follow_grasp(self, t_s: float, track: _Track, *, is_held: bool) -> None:
        if is_held != track.is_grasped:
            track.is_grasped = is_held
            self._events.append(Event(t_s, EventKind.GRASP if is_held else EventKind.RELEASE, EventSource.SENSOR))

    def _follow_placement(self, t_s: float, track: _Track, *, is_there: bool) -> None:
        if track.is_placed:
            return
        if not is_there:
            track.placed_since_s = None
        elif track.placed_since_s is None:
            track.placed_since_s = t_s
        elif t_s - track.placed_since_s >= HOLD_STILL_S - 1e-9:
            track.is_placed = True
            self._events.append(Event(track.placed_since_s, EventKind.PLACEMENT))

    def _is_at_goal(self, goal: Goal, item_pose: FloatArray) -> bool:
        if self._layout.is_order:
            x, y, z = item_pose[:3].tolist()
            is_over = all(
                abs(v - c) < inner / 2 for v, c, inner in zip((x, y), TARGET_CENTER_M, BIN_INNER_M, strict=True)
            )
            return is_over and 0 < z < WALL_HEIGHT_M + 0.02
        threshold = self._layout.threshold
        return threshold is not None and self.overlap(goal, item_pose) > threshold

    def overlap(self, goal: Goal, item_pose: FloatArray) -> float:
        """The IoU of the item's box with its target box."""
        size = self._types[goal.item].box_m
        turns = self._types[goal.item].turns
        value = box_overlap(item_pose, goal.pose, size_m=size, turns=turns)
        self.overlaps[goal.item] = value
        return value

    def _close_if_done(self) -> None:
        wanted = [t for t in self._tracks.values() if t.goal is not None]
        if all(t.is_placed for t in wanted) and not any(t.is_lost for t in wanted):
            self._end(Outcome.SUCCESS, '')
        elif all(t.is_placed or t.is_lost for t in wanted) or (
            not self._layout.is_order and any(t.is_lost for t in wanted)
        ):
            self._end(Outcome.FAILURE, f'{sum(t.is_lost for t in wanted)} of {len(wanted)} items left the workspace')

    def _end(self, outcome: Outcome, reason: str) -> None:
        if self.outcome is None:
            self.outcome, self.reason = outcome, reason

    def status(self, name: str) -> tuple[bool, bool, Goal | None]:
        """Whether an item is placed, whether it is lost, and its goal if it has one."""
        track = self._tracks[name]
        return track.is_placed, track.is_lost, track.goal

    def report(self, t_s: float, *, poses: Mapping[str, FloatArray], held: set[str], in_source: set[str]) -> HostReport:
        """The account as it stands: items on the table, out of both bins and not held, are uncollected drops."""
        wanted = {n: t for n, t in self._tracks.items() if t.goal is not None}
        stray = [
            n
            for n, t in wanted.items()
            if self._layout.is_order and not (t.is_placed or t.is_lost or n in held or n in in_source)
        ]
        events = list(self._events)
        if stray:
            events.append(Event(t_s, EventKind.DROP_UNCOLLECTED, count=len(stray)))
        placed = sum(t.is_placed for t in wanted.values())
        lost = sum(t.is_lost for t in wanted.values()) + len(stray)
        final, labels = None, {}
        if not self._layout.is_order:
            goals = {n: t.goal for n, t in wanted.items() if t.goal is not None}
            final = min(self.overlap(goal, poses[n]) for n, goal in goals.items())
            apart_m = max(float(np.linalg.norm(poses[n][:3] - goal.pose[:3])) for n, goal in goals.items())
            labels = {'score_kind': SCORE_KIND, 'score_source': 'host', 'translation_error_m': repr(apart_m)}
        return HostReport(
            success=self.outcome is Outcome.SUCCESS,
            score=float(placed) if final is None else final,
            max_score=float(len(wanted)) if final is None else 1.0,
            items=len(wanted),
            items_placed=placed,
            items_lost=lost,
            is_unrecoverable=True if self.outcome is Outcome.FAILURE else None,
            reason=self.reason,
            labels=labels,
            events=tuple(events),
        )


# What a control step's worth of physics did: peaks over its substeps, so that nothing between two ticks is lost.

_JOINTS = np.arange(N_JOINTS)
FORCE_FLOOR_N = 1e-3  # lighter contacts are not kept

ROBOT_BODIES = frozenset({*(f'link{i}' for i in range(8)), 'hand', 'left_finger', 'right_finger'})


class ContactMonitor:
    """Largest contact force a pair of bodies and largest torque a joint, over the substeps of one control step."""

    def __init__(self, scene: CompiledCell, data: Any) -> None:
        from robotrials.worlds.cell.kernel import above, keep_peaks

        self._above, self._keep_peaks = above, keep_peaks
        model = scene.model
        self._data = data
        self._torque_view = data.qfrc_actuator[scene.joint_dof[0] : scene.joint_dof[-1] + 1]
        names = [(model.body(i).name or 'world').removesuffix('_half') for i in range(model.nbody)]
        self._bodies = sorted(set(names))
        self._index = {name: i for i, name in enumerate(self._bodies)}
        self._group = np.array([self._index[n] for n in names])[model.geom_bodyid]
        self._peaks = np.zeros((len(self._bodies), len(self._bodies)))
        self._total = np.zeros_like(self._peaks)
        self._points = np.full((*self._peaks.shape, 3), np.nan)
        self._moment = np.zeros((*self._peaks.shape, 3))
        self._torques = np.zeros((SUBSTEPS, N_JOINTS))
        self._substep = 0
        self.torque_nm = np.zeros(N_JOINTS)

    def observe(self) -> None:
        """Take in one substep."""
        data = self._data
        self._torques[self._substep] = self._torque_view
        self._substep += 1
        contact = data.contact
        self._keep_peaks(
            self._peaks, self._points, self._total, self._moment, contact.geom, contact.efc_address, data.efc_force,
            contact.pos, self._group,
        )  # fmt: skip

    def contacts(self) -> list[tuple[str, str, float]]:
        """Pairs in touch during the control step with the largest force between them, in newton; starts the next step.

        Contact forces are those of the solver, normal and tangential, summed over the contact points of a pair.
        """
        torques = self._torques[: self._substep]
        self.torque_nm = torques[np.abs(torques).argmax(axis=0), _JOINTS]
        self._substep = 0
        bodies = self._bodies
        return [(bodies[a], bodies[b], force) for a, b, force in self._above(self._peaks, FORCE_FLOOR_N)]

    def points_m(self, contacts: list[tuple[str, str, float]]) -> FloatArray:
        """Where the pairs touched last (C, 3), in the world."""
        places = [self._index[a] for a, _, _ in contacts], [self._index[b] for _, b, _ in contacts]
        points: FloatArray = self._points[places] if contacts else np.zeros((0, 3))
        return points


def held_items(contacts: list[tuple[str, str, float]], items: Mapping[str, int]) -> set[str]:
    """The items that both fingers touch."""
    touched: dict[str, set[str]] = {}
    for a, b, _ in contacts:
        for finger, item in ((a, b), (b, a)):
            if finger in ('left_finger', 'right_finger') and item in items:
                touched.setdefault(item, set()).add(finger)
    return {item for item, fingers in touched.items() if len(fingers) == 2}


def hardest_robot_contact_n(contacts: list[tuple[str, str, float]]) -> float:
    """The largest force on any part of the robot, by itself and by what it holds too; 0 N if it touches nothing."""
    return max((force for a, b, force in contacts if a in ROBOT_BODIES or b in ROBOT_BODIES), default=0.0)
