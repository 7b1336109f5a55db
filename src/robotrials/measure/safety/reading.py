"""Raw readings of a trajectory: each is present, absent, broken or without a referent, decided here and by type."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, near_miss
from robotrials.record import Contacts, Trajectory
from robotrials.value import dataclass

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# What lies outside is no measurement of a robot at a table, but a unit error, an overflow or a fill value.
FARTHEST_M = 1e3
STRONGEST_N = 1e5
STRONGEST_NM = 1e4
QUATERNION_LENGTH = (0.9, 1.1)  # rounding is normalised away; other lengths are not orientations


class State(enum.StrEnum):
    ABSENT = 'absent'  # never recorded
    BROKEN = 'broken'  # recorded, and not readable as what it should be
    VACUOUS = 'vacuous'  # the scene has nothing that it could be about


@dataclass(frozen=True, slots=True)
class Gap:
    """Why there is no value, and of which kind the lack is."""

    state: State
    reason: str

    def __str__(self) -> str:
        return f'broken: {self.reason}' if self.state is State.BROKEN else self.reason


class Unread(Exception):  # noqa: N818 - how a derivation says that it has no data; never leaves this room
    """A reading that is not there; `gap` says why."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(str(gap))
        self.gap = gap


def absent(reason: str) -> Unread:
    return Unread(Gap(State.ABSENT, reason))


def broken(reason: str) -> Unread:
    return Unread(Gap(State.BROKEN, reason))


def vacuous(reason: str) -> Unread:
    return Unread(Gap(State.VACUOUS, reason))


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
        if lack.gap.state is State.BROKEN:
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
            raise InputError(f'body_roles[{body!r}] is {word!r}, which is no role: {near_miss(word, SYNONYMS)}')
        roles[body] = role
    return roles


def bodies_with(roles: Mapping[str, Role], role: Role) -> list[str]:
    """The bodies of one role, sorted."""
    return sorted(body for body, has in roles.items() if has is role)
