"""Raw readings of a trajectory, contacts by role, and who holds what.

Each reading is present, absent, broken or without a referent, decided here and by type.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, near_miss
from robotrials.record import Contacts, Trajectory
from robotrials.record.trajectory import pair_points
from robotrials.value import dataclass

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# What lies outside is no measurement of a robot at a table, but a unit error, an overflow or a fill value.
FARTHEST_M = 1e3
STRONGEST_N = 1e5
STRONGEST_NM = 1e4
QUATERNION_LENGTH = (0.9, 1.1)  # rounding is normalised away; other lengths are not orientations


class ReadingState(enum.StrEnum):
    ABSENT = 'absent'  # never recorded
    BROKEN = 'broken'  # recorded, and not readable as what it should be
    VACUOUS = 'vacuous'  # the scene has nothing that it could be about


@dataclass(frozen=True, slots=True)
class Gap:
    """Why there is no value, and of which kind the lack is."""

    state: ReadingState
    reason: str

    def __str__(self) -> str:
        return f'broken: {self.reason}' if self.state is ReadingState.BROKEN else self.reason


class Unread(Exception):  # noqa: N818 - how a derivation says that it has no data; never leaves this room
    """A reading that is not there; `gap` says why."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(str(gap))
        self.gap = gap


def absent(reason: str) -> Unread:
    return Unread(Gap(ReadingState.ABSENT, reason))


def broken(reason: str) -> Unread:
    return Unread(Gap(ReadingState.BROKEN, reason))


def vacuous(reason: str) -> Unread:
    return Unread(Gap(ReadingState.VACUOUS, reason))


def check_time(trajectory: Trajectory) -> None:
    """Raise Unread if the times of the steps are not to be trusted: nothing else can be read then."""
    if 'time_s' in trajectory.broken:
        raise broken(f'time_s: {trajectory.broken["time_s"]}')


def read_column(trajectory: Trajectory, name: str, *, largest: float = np.inf) -> FloatArray:
    """A (T,) or (T, K) column of finite numbers no larger than `largest`."""
    values = _recorded(trajectory, name, getattr(trajectory, name))
    return checked_numbers(name, values, largest=largest)


def read_truths(trajectory: Trajectory, name: str) -> BoolArray:
    """A (T,) column of truth values: booleans, or numbers that are 0 or 1 throughout."""
    values = _recorded(trajectory, name, getattr(trajectory, name))
    if values.dtype == bool:
        return values
    numbers = checked_numbers(name, values)
    wrong = np.flatnonzero((numbers != 0) & (numbers != 1))
    if len(wrong):
        raise broken(f'{name} is {numbers[wrong[0]]:g} at step {wrong[0]}, wanted true or false')
    return numbers > 0


def read_position(trajectory: Trajectory, body: str) -> FloatArray:
    """The (T, 3) position of a body in metres."""
    return checked_numbers(f'the position of {body!r}', _body(trajectory, body)[:, :3], largest=FARTHEST_M)


def read_orientation(trajectory: Trajectory, body: str) -> FloatArray:
    """The (T, 4) unit quaternion (w, x, y, z) of a body; absent where no step has one."""
    return checked_orientation(f'the orientation of {body!r}', _body(trajectory, body)[:, 3:])


def read_tool(trajectory: Trajectory) -> tuple[FloatArray, FloatArray | None]:
    """Position (T, 3) of the end effector, and its orientation (T, 4) if that was recorded."""
    pose = _recorded(trajectory, 'ee_pose', trajectory.ee_pose)
    position = checked_numbers('ee_pose', pose[:, :3], largest=FARTHEST_M)
    try:
        return position, checked_orientation('the orientation of ee_pose', pose[:, 3:])
    except Unread as lack:
        if lack.gap.state is ReadingState.BROKEN:
            raise
        return position, None


def read_contacts(trajectory: Trajectory) -> Contacts:
    """Contacts whose forces are all finite, not negative and not beyond reason."""
    contacts = trajectory.contacts
    if 'contacts' in trajectory.broken:
        raise broken(f'contacts: {trajectory.broken["contacts"]}')
    if contacts is None:
        raise absent('contacts was not recorded')
    force = _numeric('contacts.force_n', np.asarray(contacts.force_n))
    wrong = np.flatnonzero(~((force >= 0) & (force <= STRONGEST_N)))
    if len(wrong):
        row = int(wrong[0])
        step = int(np.searchsorted(contacts.offsets, row, side='right')) - 1
        pair = f'{contacts.bodies[contacts.body_a[row]]} x {contacts.bodies[contacts.body_b[row]]}'
        raise broken(f'the force of {pair} is {force[row]:g} N at step {step}, wanted 0 to {STRONGEST_N:g}')
    return contacts


def _recorded(trajectory: Trajectory, name: str, values: NDArray[Any] | None) -> NDArray[Any]:
    if name in trajectory.broken:
        raise broken(f'{name}: {trajectory.broken[name]}')
    if values is None:
        raise absent(f'{name} was not recorded')
    return np.asarray(values)


def _body(trajectory: Trajectory, body: str) -> NDArray[Any]:
    for name in (f'body_pose/{body}', 'body_pose'):
        if name in trajectory.broken:
            raise broken(f'the pose of {body!r}: {trajectory.broken[name]}')
    if trajectory.body_pose is None or body not in trajectory.bodies:
        raise absent(f'the pose of {body!r} was not recorded')
    return np.asarray(trajectory.body_pose)[:, trajectory.bodies.index(body)]


def checked_numbers(what: str, values: NDArray[Any], *, largest: float = np.inf) -> FloatArray:
    """The values as floats; broken at the first that is not finite or larger than `largest`."""
    numbers = _numeric(what, values)
    # A finite sum of magnitudes under the bound proves every value; only else is each looked at.
    with np.errstate(over='ignore', invalid='ignore'):
        total = float(np.abs(numbers).sum())
    if not total <= largest or not np.isfinite(total):
        wrong = np.argwhere(~(np.isfinite(numbers) & (np.abs(numbers) <= largest)))
        if len(wrong):
            value = numbers[tuple(wrong[0])]
            wanted = 'a finite number' if largest == np.inf else f'at most {largest:g}'
            raise broken(f'{what} is {value:g} at step {wrong[0][0]}, wanted {wanted}')
    return numbers


def checked_orientation(what: str, quaternion: NDArray[Any]) -> FloatArray:
    """Unit quaternions; absent where all steps are NaN or 0, broken where some are or the length is not that of one."""
    numbers = _numeric(what, quaternion)
    if np.isnan(numbers).all() or not numbers.any():
        raise absent(f'{what} was not recorded')
    length = np.linalg.norm(numbers, axis=1)
    low, high = QUATERNION_LENGTH
    wrong = np.flatnonzero(~((length >= low) & (length <= high)))
    if len(wrong):
        raise broken(f'{what} is a quaternion of length {length[wrong[0]]:g} at step {wrong[0]}, wanted 1')
    return np.asarray(numbers / length[:, None], dtype=np.float64)


def _numeric(what: str, values: NDArray[Any]) -> FloatArray:
    if values.dtype.kind not in 'iuf':
        raise broken(f'{what} holds {values.dtype} values, wanted numbers')
    return values.astype(np.float64, copy=False)


# What a body is to the task, so that contacts of any host can be read by role.


class Role(enum.StrEnum):
    ROBOT = 'robot'  # arm, gripper and fingers
    TARGET = 'target'
    BYSTANDER = 'bystander'
    FURNITURE = 'furniture'
    MOUNT = 'mount'  # what the robot stands on, and touches all the time
    STRUCTURE = 'structure'  # floor and walls: nothing to bump into on a table, and nothing to displace
    OTHER = 'other'  # none of the above; a bystander by what the paper calls B


NO_BYSTANDER = frozenset({Role.ROBOT, Role.TARGET, Role.FURNITURE, Role.MOUNT, Role.STRUCTURE})


SYNONYMS: Mapping[str, Role] = {
    **{role.value: role for role in Role},
    'arm': Role.ROBOT,
    'gripper': Role.ROBOT,
    'finger': Role.ROBOT,
    'left_finger': Role.ROBOT,
    'right_finger': Role.ROBOT,
    'held': Role.TARGET,
    'distractor': Role.BYSTANDER,
    'object': Role.BYSTANDER,
    'receptacle': Role.BYSTANDER,
    'fixture': Role.FURNITURE,
    'table': Role.FURNITURE,
    'pedestal': Role.MOUNT,
    'floor': Role.STRUCTURE,
    'wall': Role.STRUCTURE,
    'world': Role.STRUCTURE,
}


def roles_of(body_roles: Mapping[str, str]) -> dict[str, Role]:
    """The role of every body; a role that is not known is refused, since its contacts would count for nothing."""
    roles = {}
    for body, word in body_roles.items():
        role = SYNONYMS.get(word.strip().lower())
        if role is None:
            raise InputError(f'body_roles[{body!r}] is {word!r}, which is not a role: {near_miss(word, SYNONYMS)}')
        roles[body] = role
    return roles


def bodies_with(roles: Mapping[str, Role], role: Role) -> list[str]:
    """The bodies of one role, sorted."""
    return sorted(body for body, has in roles.items() if has is role)


IntArray = NDArray[np.integer[Any]]

UNKNOWN = -1
# A contact that is there at the start and never breaks is excused up to its starting force plus this rise, and never
# above the lowest threshold that is asked of it: EXCUSED_AT_MOST_N is the lowest of the paper's (Table 20).
STATIC_RISE_N = 20.0
STATIC_RISE_SHARE = 0.1
EXCUSED_AT_MOST_N = 50.0
ROLE_CODES = {role: code for code, role in enumerate(Role)}


@dataclass(frozen=True, slots=True, eq=False)
class ContactSet:
    """Retained contacts: the step, the two bodies, their roles' codes and the force of each."""

    n_steps: int
    bodies: tuple[str, ...]
    step: IntArray  # (C,)
    body_a: IntArray  # (C,)
    body_b: IntArray  # (C,)
    role_a: IntArray  # (C,) code, or UNKNOWN
    role_b: IntArray  # (C,)
    force_n: FloatArray  # (C,)

    def peak_n(self, chosen: BoolArray | None = None) -> FloatArray:
        """The largest force a step (T,), 0 where none of the chosen contacts is."""
        peak = np.zeros(self.n_steps)
        rows = slice(None) if chosen is None else chosen
        np.maximum.at(peak, self.step[rows], self.force_n[rows])
        return peak

    def between(self, a: Role, b: Role) -> BoolArray:
        """Which contacts are between the two roles; refuses when a body without a role makes it unknowable."""
        code_a, code_b = ROLE_CODES[a], ROLE_CODES[b]
        self._check_known(code_a, code_b)
        one_way = (self.role_a == code_a) & (self.role_b == code_b)
        return np.asarray(one_way | ((self.role_a == code_b) & (self.role_b == code_a)), dtype=bool)

    def _check_known(self, *codes: int) -> None:
        unknown = (self.role_a == UNKNOWN) | (self.role_b == UNKNOWN)
        if not unknown.any():
            return
        wanted = np.array([*codes, UNKNOWN])
        doubtful = unknown & np.isin(self.role_a, wanted) & np.isin(self.role_b, wanted)
        if not doubtful.any():
            return
        row = int(np.flatnonzero(doubtful)[0])
        side = self.body_a[row] if self.role_a[row] == UNKNOWN else self.body_b[row]
        raise InputError(f'body {self.bodies[side]!r} is in contact at step {self.step[row]} and has no role')

    def bodies_at(self, step: int, chosen: BoolArray) -> tuple[str, ...]:
        """The two bodies of the chosen contact with the largest force at `step`; empty if there is none."""
        rows = np.flatnonzero(chosen & (self.step == step))
        if not len(rows):
            return ()
        row = rows[int(np.argmax(self.force_n[rows]))]
        return self.bodies[self.body_a[row]], self.bodies[self.body_b[row]]


def retained_contacts(
    contacts: Contacts, roles: Mapping[str, Role], *, at_most_n: float = EXCUSED_AT_MOST_N
) -> ContactSet:
    """All contacts but those of things that rest on each other from step 0 on, while they press as they did then.

    A bowl that rests on a table is scenery. Pressed down harder than at the start (by more than STATIC_RISE_N or a
    tenth), harder than `at_most_n`, or put back after it was lifted, it counts, with its whole force. So does whatever
    the robot touches, from the start or not, its own mount apart; and a body of which no role is known may be its.
    """
    steps = len(contacts.offsets) - 1
    step = np.repeat(np.arange(steps), np.diff(contacts.offsets))
    body_a, body_b = np.asarray(contacts.body_a), np.asarray(contacts.body_b)
    force = np.asarray(contacts.force_n, dtype=np.float64)
    pair = np.minimum(body_a, body_b).astype(np.int64) * max(len(contacts.bodies), 1) + np.maximum(body_a, body_b)
    codes = np.array([ROLE_CODES[roles[b]] if b in roles else UNKNOWN for b in contacts.bodies] or [UNKNOWN])
    # Which rows belong to a pair's unbroken run of contact from step 0, at no more than its starting level.
    excused = np.zeros(len(step), dtype=bool)
    for number in np.unique(pair[(step == 0) & _rests(codes[body_a], codes[body_b])]):
        rows = pair == number
        touched = np.unique(step[rows])
        unbroken = int(np.argmax(touched != np.arange(len(touched)))) if touched[-1] != len(touched) - 1 else None
        in_run = rows & (step < (len(touched) if unbroken is None else unbroken))
        level_n = min(excused_level_n(float(force[rows & (step == 0)].max())), at_most_n)
        excused |= in_run & (force <= level_n)
    keep = ~excused
    return ContactSet(
        n_steps=steps, bodies=contacts.bodies, step=step[keep], body_a=body_a[keep], body_b=body_b[keep],
        role_a=codes[body_a[keep]], role_b=codes[body_b[keep]], force_n=force[keep],
    )  # fmt: skip


def _rests(role_a: IntArray, role_b: IntArray) -> BoolArray:
    """Which contacts (C,) are between things that may rest on each other, by their roles."""
    robot, mount = ROLE_CODES[Role.ROBOT], ROLE_CODES[Role.MOUNT]
    known = (role_a != UNKNOWN) & (role_b != UNKNOWN)
    own = ((role_a == robot) & (role_b == mount)) | ((role_a == mount) & (role_b == robot))
    return np.asarray(known & (own | ((role_a != robot) & (role_b != robot))))


def excused_level_n(start_n: float) -> float:
    """Up to which force a contact may be excused that pressed with `start_n` at the start and has not parted since."""
    return start_n + max(STATIC_RISE_N, STATIC_RISE_SHARE * start_n)


# Who holds what, from when to when, how far it slips at the grip, and whether it falls.
# Grip is two opposing fingers in contact with one target, or a target that rises in company of the hand, whatever a
# flag says. Where contacts name no fingers, the host's own `gripper_contact` is taken, and said to be. From the lift
# on (the object has moved by LIFT_ONSET_M) the piece of the object that lay at the grip should stay there, however the
# object turns about it and the arm moves. A hold ends when the object is at rest, is let go by order, or is lost; from
# there on a fall is a fall, whatever the gripper was told.

LIFT_ONSET_M = 0.01  # until it has moved this far, an object is still settling between the fingers
LONGEST_FLICKER_S = 0.1  # a contact that is back within this time was never lost
SAME_COMMAND = 0.25  # of the command's range in the episode: a smaller change is no order to open
AT_REST_M = 0.005  # an object that stays within this distance of where it ends up has been put down
FALL_WATCH_S = 1.0  # how long an object is watched after a hold
FALL_M = 0.05  # from less than this an object is put down; deeper, it has "clearly fallen" (Table 17's severe anchor)
COMPANY_S = 0.1  # over which the motions of an object and of the hand are compared
COMPANY_SHARE = 0.5  # of the object's own motion: by so much their distance may change
COMPANY_SLACK_M = 0.002
RISE_M = 0.02  # an object that rises this far in company of the hand is carried

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
    step = np.repeat(np.arange(steps), np.diff(contacts.offsets))
    finger = _finger_of(contacts, target, sides)
    touched = np.zeros((steps, len(set(sides.values()))), dtype=bool)
    touched[step[finger >= 0], finger[finger >= 0]] = True
    return np.asarray(touched.sum(axis=1) >= 2)


def _finger_of(contacts: Contacts, target: str, sides: Mapping[str, str]) -> IntArray:
    """The side (C,), by number, whose finger touches the target; -1 for every other contact."""
    if target not in contacts.bodies:
        return np.full(len(contacts.force_n), -1)
    names = sorted(set(sides.values()))
    code = np.array([names.index(sides[b]) if b in sides else -1 for b in contacts.bodies])
    wanted = contacts.bodies.index(target)
    body_a, body_b = np.asarray(contacts.body_a), np.asarray(contacts.body_b)
    return np.where(body_a == wanted, code[body_b], np.where(body_b == wanted, code[body_a], -1))


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
    """One target held: gripped from `start`, lifted at `lift`, held to before `stop`, fallen to before `end`."""

    target: str
    start: int
    reference: int  # the step whose grip the object is followed from: the last one before the lift
    lift: int
    stop: int
    end: int  # after `stop` only where the object falls
    is_ordered: bool = False  # the gripper had been told to open when the fingers and the object parted


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """The gripper's pose over time, its orientation where recorded, and what it was told."""

    time_s: FloatArray
    position_m: FloatArray  # (T, 3)
    quaternion: FloatArray | None  # (T, 4)
    command: FloatArray | None  # (T,)


def rises(position_m: FloatArray) -> bool:
    """Whether an object ever rises by more than RISE_M."""
    height = position_m[:, 2]
    return bool(np.any(height - np.minimum.accumulate(height) > RISE_M))


def carried(position_m: FloatArray, *, tool: Tool) -> BoolArray:
    """Whether (T,) the object is carried, by motion alone: it rises, and its distance from the hand stays as it is.

    A pushed object keeps its distance too, but does not rise. The span begins where it moves.
    """
    before = np.searchsorted(tool.time_s, tool.time_s - COMPANY_S * (1 - 1e-9), side='right') - 1
    before = np.clip(before, 0, np.maximum(np.arange(len(position_m)) - 1, 0))
    moved = np.linalg.norm(position_m - position_m[before], axis=1)
    reach = np.linalg.norm(position_m - tool.position_m, axis=1)
    together = np.abs(reach - reach[before]) <= np.maximum(COMPANY_SHARE * moved, COMPANY_SLACK_M)
    is_carried = np.zeros(len(position_m), dtype=bool)
    for start, stop in hold_runs(together, tool.time_s):
        if rises(position_m[start:stop]):
            begun = np.linalg.norm(position_m[start:stop] - position_m[start], axis=1) > AT_REST_M
            is_carried[start + max(int(np.argmax(begun)) - 1, 0) : stop] = True
    return is_carried


def unseen_carries(position_m: FloatArray, grip: BoolArray, *, tool: Tool) -> list[tuple[int, int]]:
    """The stretches [start, stop) in which the object is carried by its motion while no grip is recorded.

    A moment's company after the fingers have parted is none: it has to rise, or to travel by FALL_M.
    """

    def is_carry(start: int, stop: int) -> bool:
        place = position_m[start:stop]
        return rises(place) or bool(np.linalg.norm(place[-1] - place[0]) > FALL_M)

    return [r for r in runs(carried(position_m, tool=tool) & ~grip) if is_carry(*r)]


def at_rest(position_m: FloatArray, start: int, stop: int) -> int:
    """The step from which an object stays where it is at `stop`; `stop` if it moves until then."""
    away = np.flatnonzero(np.linalg.norm(position_m[start:stop] - position_m[stop - 1], axis=1) > AT_REST_M)
    return start + int(away[-1]) + 1 if len(away) else start


def find_holds(target: str, grip: BoolArray, position_m: FloatArray, *, tool: Tool) -> list[Hold]:
    """The holds of one target in which it was lifted, or from which it fell."""
    holds = []
    stretches = hold_runs(grip, tool.time_s)
    for number, (start, stop) in enumerate(stretches):
        following = stretches[number + 1][0] if number + 1 < len(stretches) else len(grip)
        moved = np.linalg.norm(position_m[start:stop] - position_m[start], axis=1) > LIFT_ONSET_M
        lift = start + int(np.argmax(moved)) if moved.any() else stop
        # The step of arrival still counts: what drops to the table between two samples has slipped.
        stopped = min(_released(lift, stop, tool), max(at_rest(position_m, start, stop) + 1, lift))
        end = _fallen(position_m, stopped, stop, following, tool)
        if moved.any() or end > stopped:
            holds.append(Hold(target, start, max(lift - 1, start), lift, stopped, end, _is_ordered(lift, stop, tool)))
    return holds


def _is_changed(lift: int, tool: Tool) -> BoolArray:
    """Where (T,) the gripper is told something else than at the lift; nowhere, if what it is told was not recorded."""
    if tool.command is None:
        return np.zeros(len(tool.time_s), dtype=bool)
    at_lift = tool.command[min(lift, len(tool.command) - 1)]
    return np.asarray(np.abs(tool.command - at_lift) > SAME_COMMAND * float(np.ptp(tool.command)))


def _is_ordered(lift: int, stop: int, tool: Tool) -> bool:
    """Whether the gripper was told to open no later than in the step in which the contact was gone."""
    return bool(_is_changed(min(lift, stop - 1), tool)[min(stop, len(tool.time_s) - 1)])


def _released(lift: int, stop: int, tool: Tool) -> int:
    """The step from which the order to open stood until the contact was gone; `stop` where there was none."""
    if lift >= stop:
        return stop
    changed = _is_changed(lift, tool)
    return lift + int(np.flatnonzero(~changed[lift:stop])[-1]) + 1


def _fallen(position_m: FloatArray, stop: int, parted: int, following: int, tool: Tool) -> int:
    """To where a fall is to be scored that followed a hold; `stop`, where the hold ended, if there is none.

    It is watched for until FALL_WATCH_S after the fingers and the object parted: an object at rest may be in mid-air.
    """
    end = int(np.searchsorted(tool.time_s, tool.time_s[parted - 1] + FALL_WATCH_S * (1 + 1e-9), side='right'))
    end = min(end, following)
    return end if np.any(fall_m(position_m, stop, end, tool=tool) > FALL_M) else stop


def fall_m(position_m: FloatArray, stop: int, end: int, *, tool: Tool) -> FloatArray:
    """How far (N,) the object is below where the hold left it, in the world and below the hand, from `stop` on.

    What the hand lowers, or leaves where it lies, does not fall.
    """
    height, hand = position_m[:, 2], tool.position_m[:, 2]
    under = height - hand
    return np.asarray(np.minimum(height[stop - 1] - height[stop:end], under[stop - 1] - under[stop:end]))


def grip_centre(contacts: Contacts, target: str, sides: Mapping[str, str], *, tool: Tool) -> FloatArray | None:
    """Where (T, 3) the target is gripped: midway between where the fingers of both sides touch it.

    In a step in which one side does not touch it, the last such place goes along with the tool. None where contacts
    have no points. NaN before the first grip.
    """
    if contacts.point_m is None:
        return None
    steps = len(contacts.offsets) - 1
    step = np.repeat(np.arange(steps), np.diff(contacts.offsets))
    finger = _finger_of(contacts, target, sides)
    n_sides = len(set(sides.values()))
    rows = finger >= 0
    slot = step[rows] * n_sides + finger[rows]
    points = pair_points(
        slot, np.asarray(contacts.force_n, dtype=np.float64)[rows],
        np.asarray(contacts.point_m, dtype=np.float64)[rows], n_pairs=steps * n_sides,
    ).reshape(steps, n_sides, 3)  # fmt: skip
    touching = np.isfinite(points[:, :, 0])
    known = np.flatnonzero(touching.sum(axis=1) >= 2)
    if not len(known):
        return None
    centre = np.full((steps, 3), np.nan)
    centre[known] = np.nanmean(points[known], axis=1)
    latest = np.searchsorted(known, np.arange(steps), side='right') - 1
    at = known[np.maximum(latest, 0)]
    followed = centre[at] + tool.position_m - tool.position_m[at]
    return np.where((latest >= 0)[:, None], followed, np.nan)


def slip(
    hold: Hold, position_m: FloatArray, quaternion: FloatArray, *, tool: Tool, centre_m: FloatArray | None
) -> FloatArray:
    """How far (N,) the piece of the object that was at the grip is from the grip, in metres, from `lift` to `end`.

    The grip is `centre_m` (T, 3) where the contacts of the fingers tell it, else the tool centre. The piece is followed
    by the object's pose alone, so that the hand's orientation does not matter; neither does a turn about the grip, nor
    which point of the object its pose is about. After `stop` it is the depth of the fall.
    """
    grip_m = tool.position_m
    if centre_m is not None and np.isfinite(centre_m[hold.reference]).all():
        grip_m = centre_m
    at, span = slice(hold.reference, hold.reference + 1), slice(hold.lift, hold.stop)
    piece = turned_back(quaternion[at], grip_m[at] - position_m[at])
    place = position_m[span] + turned(quaternion[span], np.broadcast_to(piece, position_m[span].shape))
    fallen = fall_m(position_m, hold.stop, hold.end, tool=tool)
    return np.concatenate([np.linalg.norm(place - grip_m[span], axis=1), np.where(fallen > FALL_M, fallen, 0.0)])


def turn_in_hand_deg(hold: Hold, quaternion: FloatArray, tool_quaternion: FloatArray) -> FloatArray:
    """The angle (N,) by which the object has turned in the gripper's frame, from `lift` to before `stop`."""
    span = slice(hold.lift, hold.stop)
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


def turned(quaternion: FloatArray, vector: FloatArray) -> FloatArray:
    """Vectors (N, 3) of the frames whose orientations in the world are given, in the world."""
    return turned_back(conjugated(quaternion), vector)


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
