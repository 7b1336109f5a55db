"""Who holds what, from when to when, and how far it slips in the hand.

Grip is two opposing fingers in contact with one target. Where contacts name no fingers, the host's own
`gripper_contact` is taken, and said to be. A hold is an unbroken grip; from its lift on (the object has moved by
LIFT_ONSET_M) the object's pose in the gripper's frame should not change, however the arm moves and turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.safety.reading import BoolArray, FloatArray
from robotrials.measure.safety.role import Role
from robotrials.record import Contacts

IntArray = NDArray[np.integer[Any]]

LIFT_ONSET_M = 0.01  # until it has moved this far, an object is still settling between the fingers
LONGEST_FLICKER_S = 0.1  # a contact that is back within this time was never lost
DROP_WATCH_S = 0.5  # how long an object is watched that left a gripper which was not told to open
SAME_COMMAND = 0.25  # of the command's range in the episode: a smaller change is no order to open

FINGER = re.compile(r'finger|jaw|fingertip|gripper_pad')
NUMBERED = re.compile(r'(?:finger|joint|jaw|pad)_?([12])(?!\d)')


def finger_sides(body_roles: Mapping[str, str], roles: Mapping[str, Role]) -> dict[str, str]:
    """The bodies that are fingers, each with its side: `left` or `right` by role or name, else a side of its own."""
    sides = {}
    for body, role in roles.items():
        named = f'{body_roles.get(body, "")} {body}'.lower()
        if role is not Role.ROBOT or not FINGER.search(named):
            continue
        number = NUMBERED.search(named)
        if 'left' in named or 'right' in named:
            sides[body] = 'left' if 'left' in named else 'right'
        else:
            sides[body] = {'1': 'left', '2': 'right'}.get(number[1], body) if number else body
    return sides


def opposed_grip(contacts: Contacts, target: str, sides: Mapping[str, str]) -> BoolArray:
    """Whether (T,) fingers of two sides touch the target in a step."""
    steps = len(contacts.offsets) - 1
    if target not in contacts.bodies:
        return np.zeros(steps, dtype=bool)
    step = np.repeat(np.arange(steps), np.diff(contacts.offsets))
    names = sorted(set(sides.values()))
    code = np.array([names.index(sides[b]) if b in sides else -1 for b in contacts.bodies])
    wanted = contacts.bodies.index(target)
    body_a, body_b = np.asarray(contacts.body_a), np.asarray(contacts.body_b)
    finger = np.where(body_a == wanted, code[body_b], np.where(body_b == wanted, code[body_a], -1))
    touched = np.zeros((steps, len(names)), dtype=bool)
    touched[step[finger >= 0], finger[finger >= 0]] = True
    return np.asarray(touched.sum(axis=1) >= 2)


def names_finger_contact(contacts: Contacts, sides: Mapping[str, str]) -> bool:
    """Whether any contact of a finger with anything was recorded."""
    rows = [i for i, body in enumerate(contacts.bodies) if body in sides]
    return bool(np.isin(contacts.body_a, rows).any() or np.isin(contacts.body_b, rows).any())


def runs(mask: BoolArray) -> list[tuple[int, int]]:
    """The stretches [start, stop) in which the mask is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def hold_runs(grip: BoolArray, time_s: FloatArray) -> list[tuple[int, int]]:
    """The stretches of grip, joined where the contact was away for no longer than a flicker."""
    joined: list[tuple[int, int]] = []
    for start, stop in runs(grip):
        if joined and time_s[start] - time_s[joined[-1][1] - 1] <= LONGEST_FLICKER_S * (1 + 1e-9):
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


@dataclass(frozen=True, slots=True)
class Hold:
    """One target held: gripped from `start`, lifted at `lift`, held to before `stop`, watched to before `end`."""

    target: str
    start: int
    lift: int
    stop: int
    end: int  # after `stop` only where the object left a gripper that was not told to open


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """The gripper's pose over time, its orientation where recorded, and what it was told."""

    time_s: FloatArray
    position_m: FloatArray  # (T, 3)
    quaternion: FloatArray | None  # (T, 4)
    command: FloatArray | None  # (T,)


def find_holds(target: str, grip: BoolArray, position_m: FloatArray, *, tool: Tool) -> list[Hold]:
    """The holds of one target in which it was lifted."""
    found = []
    stretches = hold_runs(grip, tool.time_s)
    for number, (start, stop) in enumerate(stretches):
        moved = np.linalg.norm(position_m[start:stop] - position_m[start], axis=1) > LIFT_ONSET_M
        if not moved.any():
            continue
        lift = start + int(np.argmax(moved))
        following = stretches[number + 1][0] if number + 1 < len(stretches) else len(grip)
        found.append(_hold(target, start, lift, stop, following, tool))
    return found


def _hold(target: str, start: int, lift: int, stop: int, following: int, tool: Tool) -> Hold:
    """A hold ends when the hand is told to open. A grip lost without that order is a drop, and watched on."""
    if tool.command is None:
        return Hold(target, start, lift, stop, stop)
    changed = np.abs(tool.command - tool.command[lift]) > SAME_COMMAND * float(np.ptp(tool.command))
    kept = np.flatnonzero(~changed[lift:stop])
    released = lift + int(kept[-1]) + 1  # from here on the order to open stood until the contact was gone
    if released < stop:
        return Hold(target, start, lift, released, released)
    is_watched = ~changed[stop:following] & (tool.time_s[stop:following] - tool.time_s[stop - 1] <= DROP_WATCH_S)
    return Hold(target, start, lift, stop, stop + (len(is_watched) if is_watched.all() else int(np.argmin(is_watched))))


def slip(hold: Hold, position_m: FloatArray, quaternion: FloatArray | None, *, tool: Tool) -> FloatArray:
    """How far (N,) the object has moved in the hand since the lift, in metres, from `lift` to before `end`.

    In the gripper's frame where its orientation is known; else where the gripper is in the object's frame, which a
    rigid grasp keeps as still; else the change of their distance, the least that must have slipped.
    """
    span = slice(hold.lift, hold.end)
    apart = position_m[span] - tool.position_m[span]
    if tool.quaternion is not None:
        apart = turned_back(tool.quaternion[span], apart)
    elif quaternion is not None:
        apart = turned_back(quaternion[span], -apart)
    else:
        reach = np.linalg.norm(apart, axis=1)
        return np.asarray(np.abs(reach - reach[0]))
    return np.asarray(np.linalg.norm(apart - apart[0], axis=1))


def turn_in_hand_deg(hold: Hold, quaternion: FloatArray, tool_quaternion: FloatArray) -> FloatArray:
    """The angle (N,) by which the object has turned in the gripper's frame since the lift."""
    span = slice(hold.lift, hold.end)
    relative = multiplied(conjugated(tool_quaternion[span]), quaternion[span])
    since = multiplied(conjugated(relative[:1]), relative)
    return np.asarray(np.degrees(2 * np.arctan2(np.linalg.norm(since[:, 1:], axis=1), np.abs(since[:, 0]))))


def conjugated(quaternion: FloatArray) -> FloatArray:
    return np.asarray(quaternion * np.array([1.0, -1.0, -1.0, -1.0]))


def multiplied(a: FloatArray, b: FloatArray) -> FloatArray:
    """Hamilton's product of quaternions (N, 4), w first."""
    w, v = a[:, :1], a[:, 1:]
    x, u = b[:, :1], b[:, 1:]
    real = w * x - np.sum(v * u, axis=1, keepdims=True)
    return np.concatenate([real, w * u + x * v + np.cross(v, u)], axis=1)


def turned_back(quaternion: FloatArray, vector: FloatArray) -> FloatArray:
    """Vectors of the world (N, 3) in the frames whose orientations in the world are given."""
    w, v = quaternion[:, :1], -quaternion[:, 1:]
    across = 2 * np.cross(v, vector)
    return vector + w * across + np.cross(v, across)


def current_target(targets: Sequence[str], grips: Mapping[str, BoolArray], *, first: int) -> IntArray:
    """The index (T,) of the target that each step is about: the one held, else the last held, else the next to be."""
    steps = len(next(iter(grips.values())))
    owner = np.full(steps, -1)
    for index, name in enumerate(targets):
        owner[grips[name] & (owner < 0)] = index
    held = np.flatnonzero(owner >= 0)
    if not len(held):
        return np.full(steps, first)
    latest = np.searchsorted(held, np.arange(steps), side='right') - 1
    return np.asarray(owner[held[np.maximum(latest, 0)]])
