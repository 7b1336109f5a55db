"""What a body is to the task, so that contacts of any host can be read by role."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from robotrials.errors import InputError, near_miss


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
    found = {}
    for body, word in body_roles.items():
        role = SYNONYMS.get(word.strip().lower())
        if role is None:
            raise InputError(f'body_roles[{body!r}] is {word!r}, which is no role: {near_miss(word, SYNONYMS)}')
        found[body] = role
    return found


def bodies_with(roles: Mapping[str, Role], role: Role) -> list[str]:
    """The bodies of one role, sorted."""
    return sorted(body for body, has in roles.items() if has is role)
