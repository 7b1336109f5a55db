"""What every body of a robosuite scene is to its task: robot, target, bystander or furniture."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.worlds.arm.cast import BYSTANDER, FURNITURE, GRIPPER, ROBOT, STRUCTURE, TARGET, Cast

# robosuite names the bodies of robots by what they belong to.
ROBOT_PREFIXES = {
    'robot': ROBOT,
    'gripper': GRIPPER,
    'mobilebase': ROBOT,
    'leggedbase': ROBOT,
    'fixed_mount': STRUCTURE,
}
MARKS = ('_eef_target',)  # where a controller wants the hand to be: drawn, never touched
FREE = 0  # mjtJoint


def read_cast(env: Any, targets: Sequence[str], *, destination: str = '') -> Cast:
    """Group the bodies of a robosuite environment and give each group its role.

    Objects are those of the model and, in RoboCasa's kitchens, of `env.objects`; `env.fixtures` are furniture.
    """
    model = env.sim.model._model
    own_objects: Any = getattr(env, 'objects', None)
    fixed: Any = getattr(env, 'fixtures', None)
    is_kitchen = isinstance(own_objects, Mapping)  # elsewhere `objects` is a list of some of them
    known = {thing.name: thing for thing in env.model.mujoco_objects}
    objects = _roots(model, {**known, **own_objects} if is_kitchen else known)
    fixtures = _roots(model, fixed if isinstance(fixed, Mapping) else {})
    movable = {name: body for name, body in objects.items() if _is_free(model, body)}
    meant = [name for name in objects if any(fnmatch.fnmatchcase(name, pattern) for pattern in targets)]
    for pattern in targets:
        if '*' not in pattern and pattern not in objects and not is_kitchen:
            raise InputError(f'the task is about {pattern!r}, and the scene has only {sorted(objects)}')
    roots = {body: name for name, body in {**fixtures, **objects}.items()}
    names: list[str] = []
    roles: dict[str, str] = {}
    for body in range(model.nbody):
        own = model.body(body).name or 'world'
        above = body
        while above and above not in roots:
            above = int(model.body_parentid[above])
        name = roots[above] if above else own
        if not above:
            roles[name] = _role_of_body(model, body)
        elif name in meant:
            roles[name] = TARGET
        else:
            roles[name] = BYSTANDER if name in movable else FURNITURE
        names.append(name)
    things = tuple(dict.fromkeys(names))
    index = {name: i for i, name in enumerate(things)}
    group = np.array([index[name] for name in names], dtype=np.int64)[model.geom_bodyid]
    return Cast(things, group, roles, tuple(meant), destination, movable)


def _roots(model: Any, things: Mapping[str, Any]) -> dict[str, int]:
    """Name -> root body, of those that have one."""
    found = {}
    for name, thing in things.items():
        root = getattr(thing, 'root_body', None)
        if root is not None:
            found[name] = int(model.body(root).id)
    return found


def _is_free(model: Any, body: int) -> bool:
    first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
    return any(int(kind) == FREE for kind in model.jnt_type[first : first + count]) if count else False


def _role_of_body(model: Any, body: int) -> str:
    """By its own name or, where that says nothing, by what it is fixed to: a mount on a mobile base is robot too."""
    own = model.body(body).name
    if not body or own.endswith(MARKS):
        return STRUCTURE
    while body:
        name = model.body(body).name
        role = next((role for prefix, role in ROBOT_PREFIXES.items() if name.startswith(prefix)), None)
        if role is not None:
            return role
        body = int(model.body_parentid[body])
    return FURNITURE
