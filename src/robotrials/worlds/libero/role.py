"""The roles of the bodies of a LIBERO scene, from the task's BDDL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from robotrials.worlds.arm.cast import BYSTANDER, FURNITURE, GRIPPER, ROBOT, STRUCTURE, TARGET, Cast

BUILDING = ('world', 'floor')


def goal_atoms(goal: Iterable[Any]) -> list[Sequence[str]]:
    """The predicates of a parsed goal, however deeply it is nested."""
    atoms: list[Sequence[str]] = []
    for part in goal:
        if isinstance(part, list | tuple) and part and all(isinstance(word, str) for word in part):
            atoms.append(part)
        elif isinstance(part, list | tuple):
            atoms += goal_atoms(part)
    return atoms


def read_cast(env: Any) -> Cast:
    """Group the bodies of a LIBERO environment and give each group its role."""
    model = env.sim.model._model
    atoms = goal_atoms(env.parsed_problem['goal_state'])
    movable = {name: model.body(thing.root_body).id for name, thing in env.objects_dict.items()}
    fixed = {name: model.body(thing.root_body).id for name, thing in env.fixtures_dict.items()}
    targets = tuple(dict.fromkeys(atom[1] for atom in atoms if atom[1] in movable))
    robot = env.robots[0]
    own = {**dict.fromkeys(robot.robot_model.bodies, ROBOT), **dict.fromkeys(robot.gripper.bodies, GRIPPER)}
    roots = {body: name for name, body in {**movable, **fixed}.items()}
    names, roles = [], {}
    for body in range(model.nbody):
        name = model.body(body).name or 'world'
        above = body
        while above and above not in roots:
            above = int(model.body_parentid[above])
        if above:
            name = roots[above]
            roles[name] = FURNITURE if name in fixed else TARGET if name in targets else BYSTANDER
        elif name in own:
            roles[name] = own[name]
        elif name.startswith('mount'):
            roles[name] = STRUCTURE  # what the arm is bolted to
        else:
            roles[name] = STRUCTURE if name in BUILDING else FURNITURE
        names.append(name)
    things = tuple(dict.fromkeys(names))
    index = {name: i for i, name in enumerate(things)}
    group = np.array([index[name] for name in names], dtype=np.int64)[model.geom_bodyid]
    destination = next((atom[2] for atom in atoms if len(atom) == 3 and atom[1] in targets), '')
    return Cast(things, group, roles, targets, destination, movable)
