"""The scene behind the signals: roles, targets, bystanders, grips and holds, each worked out once and checked."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Collection, Hashable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.measure.safety.contact import (
    EXCUSED_AT_MOST_N,
    ContactSet,
    Hold,
    Tool,
    current_target,
    find_holds,
    finger_sides,
    grip_centre,
    hold_runs,
    names_finger_contact,
    opposed_grip,
    retained_contacts,
    rises,
    slip,
    turn_in_hand_deg,
    unseen_carries,
)
from robotrials.measure.safety.reading import (
    FARTHEST_M,
    NO_BYSTANDER,
    STRONGEST_NM,
    BoolArray,
    FloatArray,
    Gap,
    Role,
    State,
    Unread,
    absent,
    bodies_with,
    broken,
    check_time,
    checked_numbers,
    read_column,
    read_contacts,
    read_orientation,
    read_position,
    read_tool,
    read_truths,
    roles_of,
    vacuous,
)
from robotrials.record import Contacts, Trajectory

BUILDING = frozenset({'world', 'worldbody', 'floor', 'ground', 'groundplane'})  # bodies whose name says what they are
POSE = 'body_pose/'
POINTS = 'contact_point_m'  # under this name a recorder says that they are broken


class RawScene:
    """One trajectory with what several signals share; its properties raise Unread where readings do not suffice."""

    def __init__(
        self, trajectory: Trajectory, *, limit_nm: ArrayLike | None = None, excused: Collection[str] = (),
        resting_at_most_n: float = EXCUSED_AT_MOST_N, into_container: bool = False, is_success: bool = False,
    ) -> None:  # fmt: skip
        self.trajectory = trajectory
        self.limit_nm = limit_nm
        self.excused = tuple(excused)
        self.resting_at_most_n = resting_at_most_n
        self.into_container, self.is_success = into_container, is_success
        self._made: dict[Hashable, FloatArray] = {}
        self.roles = roles_of(trajectory.scene.body_roles)
        for body in self._in_contact():
            if body.lower() in BUILDING:
                self.roles.setdefault(body, Role.STRUCTURE)
        named = trajectory.scene.target_object
        if named and self.roles:
            self.roles.setdefault(named, Role.TARGET)
        self.time_s: FloatArray = np.asarray(trajectory.time_s, dtype=np.float64)
        self.n_steps = len(self.time_s)

    def check_time(self) -> None:
        check_time(self.trajectory)

    @property
    def dt_s(self) -> float:
        """The mean step; of a one-step trace 1 s, which no memoryless clause reads."""
        return float(self.time_s[-1] - self.time_s[0]) / (self.n_steps - 1) if self.n_steps > 1 else 1.0

    @functools.cached_property
    def contacts(self) -> Contacts:
        return read_contacts(self.trajectory)

    @functools.cached_property
    def retained(self) -> ContactSet:
        return retained_contacts(self.contacts, self.roles, at_most_n=self.resting_at_most_n)

    def position(self, body: str) -> FloatArray:
        return self.once(('position', body), lambda: read_position(self.trajectory, body))

    def orientation(self, body: str) -> FloatArray:
        return self.once(('orientation', body), lambda: read_orientation(self.trajectory, body))

    def once(self, key: Hashable, make: Callable[[], FloatArray]) -> FloatArray:
        """What several signals share, worked out for the first of them."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    # --- targets and bystanders

    @functools.cached_property
    def targets(self) -> tuple[str, ...]:
        """The bodies to be handled: all with the role target, or the one that is named; the named one first."""
        if 'target_object' in self.trajectory.broken:
            raise broken(f'target_object: {self.trajectory.broken["target_object"]}')
        named = self.trajectory.scene.target_object
        by_role = bodies_with(self.roles, Role.TARGET)
        if named and by_role and named not in by_role:
            raise broken(f'target_object is {named!r}, but the role target is that of {", ".join(by_role)}')
        if named and self.roles.get(named) is Role.ROBOT:
            raise broken(f'target_object is {named!r}, which has the role robot')
        names = tuple(dict.fromkeys([*([named] if named else []), *by_role]))
        if not names:
            raise absent('the target object is not named and 0 bodies have the role target')
        return names

    def bystanders(self) -> list[str]:
        """All bodies that are neither robot, target, furniture nor structure, and are not excused by name."""
        if not self.trajectory.scene.body_roles:
            raise absent('no role of any body was recorded')
        targets = self.targets
        unreadable = {n.removeprefix(POSE) for n in self.trajectory.broken if n.startswith(POSE)}
        bodies = {*self.trajectory.bodies, *self.roles, *self._in_contact(), *unreadable}
        names = [
            body for body in sorted(bodies)
            if self.roles.get(body) not in NO_BYSTANDER and body not in targets and not self._is_excused(body)
        ]  # fmt: skip
        if not names:
            raise vacuous('no body is a bystander: all are robot, target or furniture')
        for name in names:
            self.position(name)
        return names

    def _in_contact(self) -> tuple[str, ...]:
        contacts = self.trajectory.contacts
        return contacts.bodies if contacts is not None else ()

    def _is_excused(self, body: str) -> bool:
        return any(fnmatch.fnmatchcase(body.lower(), pattern.lower()) for pattern in self.excused)

    # --- grip and holds

    @functools.cached_property
    def _gripping(self) -> tuple[dict[str, BoolArray], str]:
        """Who is gripped (T,), by target, and what has to be said about the source.

        By contact, or by the record's flag where contacts name no fingers; and by motion, whatever those say: what
        rises in company of the hand is carried.
        """
        touched, note = self._by_touch
        grips, notes, steps = dict(touched), [note], np.arange(self.n_steps)
        for name in (name for name in self.targets if rises(self.position(name))):
            for first, last in unseen_carries(self.position(name), touched[name], tool=self.tool):
                why = f'{name} goes with the hand at steps {first} to {last - 1}, where no grip is recorded'
                notes.append(f'{why}; taken as held')
                grips[name] = grips[name] | ((steps >= first) & (steps < last))
        return grips, '; '.join(text for text in notes if text)

    @functools.cached_property
    def _by_touch(self) -> tuple[dict[str, BoolArray], str]:
        """Who is gripped (T,), by target, as contacts or the record's flag have it."""
        contacts: Contacts | None = None
        try:
            contacts = self.contacts
        except Unread as lack:
            if lack.gap.state is State.BROKEN:
                raise
        sides, flag = self.sides, self._flag()
        if contacts is not None and len(set(sides.values())) >= 2 and self._are_fingers_told(contacts, flag):
            is_broken = isinstance(flag, Gap) and flag.state is State.BROKEN
            note = f'gripper_contact: {flag}; grip is taken from contacts' if is_broken else ''
            return {name: opposed_grip(contacts, name, sides) for name in self.targets}, note
        if isinstance(flag, Gap):
            raise Unread(Gap(flag.state, f'{flag.reason}, and contacts show no two fingers'))
        return self._by_flag(flag), 'grip is the gripper_contact of the record; its contacts name no two fingers'

    def _are_fingers_told(self, contacts: Contacts, flag: BoolArray | Gap) -> bool:
        """Whether contacts tell what fingers touch; not if none ever touches anything though a grip is to be expected.

        It is where the record's flag shows one, or where a target is lifted and there is no flag to deny it.
        """
        if names_finger_contact(contacts, self.sides):
            return True
        if isinstance(flag, Gap):
            return not any(rises(self.position(name)) for name in self.targets)
        return not flag.any()

    @functools.cached_property
    def sides(self) -> dict[str, str]:
        """The bodies that are fingers, each with its side."""
        return finger_sides(self.trajectory.scene.body_roles, self.roles)

    def _flag(self) -> BoolArray | Gap:
        try:
            return read_truths(self.trajectory, 'gripper_contact')
        except Unread as lack:
            return lack.gap

    def _by_flag(self, flag: BoolArray) -> dict[str, BoolArray]:
        """A grip of one target is the flag; of several, each stretch is of the one nearest to the tool as it begins."""
        if len(self.targets) == 1:
            return {self.targets[0]: flag}
        grips = {name: np.zeros(self.n_steps, dtype=bool) for name in self.targets}
        for start, stop in hold_runs(flag, self.time_s):
            reach = {n: float(np.linalg.norm(self.position(n)[start] - self.tool_position[start])) for n in grips}
            grips[min(reach, key=lambda name: reach[name])][start:stop] = flag[start:stop]
        return grips

    @property
    def grips(self) -> dict[str, BoolArray]:
        return self._gripping[0]

    @functools.cached_property
    def grip(self) -> BoolArray:
        """Whether any target is gripped."""
        return np.asarray(np.any(list(self.grips.values()), axis=0))

    @functools.cached_property
    def current(self) -> NDArray[np.integer]:
        """The target (T,), by index, that each step is about."""
        if len(self.targets) == 1:
            return np.zeros(self.n_steps, dtype=np.int64)
        return current_target(self.targets, self.grips, first=0)

    @property
    def tool_position(self) -> FloatArray:
        return self._tool_pose[0]

    @functools.cached_property
    def _tool_pose(self) -> tuple[FloatArray, FloatArray | None]:
        return read_tool(self.trajectory)

    @functools.cached_property
    def tool(self) -> Tool:
        position, quaternion = self._tool_pose
        try:
            command: FloatArray | None = read_column(self.trajectory, 'gripper_command')
        except Unread as lack:
            if lack.gap.state is State.BROKEN:
                raise
            command = None
        return Tool(self.time_s, position, quaternion, command)

    @functools.cached_property
    def holds(self) -> list[Hold]:
        """Every hold of every target in which it was lifted."""
        if not self.grip.any():
            return []
        holds = [h for n in self.targets for h in find_holds(n, self.grips[n], self.position(n), tool=self.tool)]
        return [dataclasses.replace(h, end=h.stop) if self._is_placed(h) else h for h in holds]

    def _is_placed(self, hold: Hold) -> bool:
        """Whether a fall is how the task is done: into a container, by order or to its end.

        Success alone suffices, so that a record without the gripper's command is not better off than one with it.
        """
        return self.into_container and (self.is_success or hold.is_ordered)

    def slip(self, hold: Hold) -> FloatArray:
        """How far the held object has slipped at the grip; needs its orientation, and not the gripper's."""
        name = hold.target
        try:
            quaternion = self.orientation(name)
        except Unread as lack:
            if lack.gap.state is State.BROKEN:
                raise
            raise absent(f'the orientation of {name!r} was not recorded, and slip at the grip needs it') from None
        return slip(hold, self.position(name), quaternion, tool=self.tool, centre_m=self._centre(name))

    def _centre(self, target: str) -> FloatArray | None:
        """Where (T, 3) the fingers grip the target; None where no points of contacts were recorded."""
        if POINTS in self.trajectory.broken:
            raise broken(f'{POINTS}: {self.trajectory.broken[POINTS]}')
        contacts = self.trajectory.contacts
        if contacts is None or contacts.point_m is None:
            return None
        checked_numbers('a point of contact', np.asarray(contacts.point_m), largest=FARTHEST_M)
        return grip_centre(contacts, target, self.sides, tool=self.tool)

    def turn_deg(self, hold: Hold) -> FloatArray:
        if self.tool.quaternion is None:
            raise absent('the orientation of ee_pose was not recorded')
        return turn_in_hand_deg(hold, self.orientation(hold.target), self.tool.quaternion)

    # --- torque

    @property
    def torque_nm(self) -> FloatArray:
        return read_column(self.trajectory, 'joint_torque_nm', largest=STRONGEST_NM)

    @property
    def torque_limit_nm(self) -> FloatArray:
        if 'joint_torque_limit_nm' in self.trajectory.broken:
            raise broken(f'joint_torque_limit_nm: {self.trajectory.broken["joint_torque_limit_nm"]}')
        own = self.trajectory.joint_torque_limit_nm
        limit = own if own is not None else self.limit_nm
        if limit is None:
            raise absent('the joints have no torque limits, neither recorded nor by the benchmark')
        bound = checked_numbers('joint_torque_limit_nm', np.asarray(limit), largest=STRONGEST_NM)
        joints = self.torque_nm.shape[1]
        if bound.shape != (joints,):
            raise absent(f'{joints} joint torques but {bound.size} limits')
        if not np.all(bound > 0):
            raise broken(f'a joint torque limit is {bound.min():g}, wanted > 0')
        return bound

    def notes(self) -> tuple[str, ...]:
        """What was assumed where the record does not say."""
        notes = []
        scene = self.trajectory.scene
        unroled = [b for b in self.trajectory.bodies if b not in self.roles]
        if unroled and self.roles:
            notes.append(f'no role was recorded of {", ".join(sorted(unroled))}; taken as bystanders')
        if not scene.target_object and bodies_with(self.roles, Role.TARGET):
            notes.append('target_object was not recorded; the bodies with the role target are taken')
        if scene.target_object and scene.body_roles and scene.target_object not in scene.body_roles:
            notes.append(f'no role was recorded of {scene.target_object}, the target object')
        if self.trajectory.joint_torque_nm is not None and self.trajectory.joint_torque_limit_nm is None:
            notes.append('no torque limits were recorded; those of the benchmark are taken')
        try:
            notes.append(self._gripping[1])
            if self.holds and (self.trajectory.contacts is None or self.trajectory.contacts.point_m is None):
                notes.append('no points of contact were recorded; slip is measured at the tool centre')
        except Unread:
            pass
        return tuple(note for note in notes if note)
