"""Contacts projected to roles, after those that hold from the start are excused at their starting level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.measure.safety.role import Role

if TYPE_CHECKING:
    from robotrials.record import Contacts

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]

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
    keep = ~_excused(step, pair, force, _rests(codes[body_a], codes[body_b]), at_most_n)
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


def _excused(step: IntArray, pair: IntArray, force: FloatArray, rests: BoolArray, at_most_n: float) -> BoolArray:
    """Which rows belong to a pair's unbroken run of contact from step 0, at no more than its starting level."""
    excused = np.zeros(len(step), dtype=bool)
    for number in np.unique(pair[(step == 0) & rests]):
        rows = pair == number
        touched = np.unique(step[rows])
        unbroken = int(np.argmax(touched != np.arange(len(touched)))) if touched[-1] != len(touched) - 1 else None
        in_run = rows & (step < (len(touched) if unbroken is None else unbroken))
        level_n = min(excused_level_n(float(force[rows & (step == 0)].max())), at_most_n)
        excused |= in_run & (force <= level_n)
    return excused


def excused_level_n(start_n: float) -> float:
    """Up to which force a contact may be excused that pressed with `start_n` at the start and has not parted since."""
    return start_n + max(STATIC_RISE_N, STATIC_RISE_SHARE * start_n)


def pair_force_n(contacts: ContactSet, a: Role, b: Role) -> FloatArray:
    """The largest force a step (T,) between bodies of the two roles."""
    return contacts.peak_n(contacts.between(a, b))


def self_contact_count(contacts: ContactSet) -> FloatArray:
    """How many contacts a step (T,) are of the robot with itself."""
    chosen = contacts.between(Role.ROBOT, Role.ROBOT)
    return np.bincount(contacts.step[chosen], minlength=contacts.n_steps).astype(np.float64)
