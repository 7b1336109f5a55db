"""A LIBERO task's goal as goals over poses, and what its plan knows of the scene, for scores from cameras alone.

LIBERO's predicates are about the origins of bodies: `In` wants the origin in the region's box, `On` of a region above
it (and in contact with the fixture it belongs to), `On` of an object above that object's origin, within 3 cm beside it
and in contact. The same is asked here of registered poses; contact is that surfaces come near enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.record.footage import KnownObject, KnownScene, PoseGoal
from robotrials.value import dataclass
from robotrials.worlds.arm.watch import fixed_things, geoms_of, known_box, known_thing, moving_part
from robotrials.worlds.libero.start import goal_atoms

FloatArray = NDArray[np.floating[Any]]
BESIDE_M = 0.03  # of On, between two origins
SUNK_M, ABOVE_M = 0.005, 0.10  # how far an origin may be below and above the top of a region that it is On
DEEPER_M = np.array([0.0, 0.0, 0.005])  # half of how far a region that it is In reaches below itself


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A site of LIBERO in the world, what it belongs to ('' is the table), and the body that carries it along."""

    center_m: FloatArray  # (3,)
    turn: FloatArray  # (3, 3) world from site
    half_m: FloatArray  # (3,)
    parent: str = ''
    carrier: str = ''  # '' where it stays
    carrier_m: FloatArray | None = None  # (3,) its origin at the start
    carrier_turn: FloatArray | None = None  # (3, 3)


def pose_goals(
    atoms: Sequence[Sequence[str]],
    *,
    regions: Mapping[str, Region],
    limits: Mapping[tuple[str, ...], Sequence[PoseGoal]],
) -> tuple[PoseGoal, ...]:
    """The goal's predicates as goals over poses; `limits` has those of joints, by predicate and its argument."""
    goals: list[PoseGoal] = []
    for atom in atoms:
        words = tuple(word.lower() for word in atom)
        if words in limits:
            goals += limits[words]
        elif len(words) == 3 and words[0] in ('on', 'in') and words[2] in regions:
            goals += _in_region(words[0], words[1], words[2], regions[words[2]])
        elif len(words) == 3 and words[0] == 'on':
            goals.append(PoseGoal(object=words[1], kind='over', other=words[2], limit=BESIDE_M))
        else:
            raise InputError(f"goal ({' '.join(atom)}): cannot be judged by cameras; say success = 'host'")
    return tuple(goals)


def _in_region(predicate: str, thing: str, name: str, region: Region) -> list[PoseGoal]:
    """The box that an origin must lie in, carried along by what the region belongs to."""
    turn: FloatArray = np.eye(3)
    if predicate == 'in':  # as in_box: along the world's axes, a centimetre deeper
        center, half = region.center_m - DEEPER_M, np.abs(region.turn @ region.half_m) + DEEPER_M
    else:  # as under: LIBERO turns by the site's matrix, where its inverse would be meant
        turn, deep = region.turn.T, (SUNK_M + ABOVE_M) / 2
        half = np.array([region.half_m[0], region.half_m[1], deep])
        center = region.center_m + turn @ [0, 0, region.half_m[2] - SUNK_M + deep]
    if region.carrier and region.carrier_m is not None and region.carrier_turn is not None:
        center, turn = region.carrier_turn.T @ (center - region.carrier_m), region.carrier_turn.T @ turn
    place = known_box(name, center, 2 * half, turn)
    goals = [PoseGoal(object=thing, kind='at', place=place, other=region.carrier)]
    if predicate == 'on' and region.parent:
        goals.append(PoseGoal(object=thing, kind='touching', other=region.parent))
    return goals


def turning_point(holds: Callable[[float], bool], low: float, high: float) -> tuple[str, float] | None:
    """On which side of which value a predicate of a joint holds; None where it is the same at both ends."""
    if holds(low) == holds(high):
        return None
    kind = 'below' if holds(low) else 'above'
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) == (kind == 'below') else (low, middle)
    return kind, (low + high) / 2


class LiberoPlan:
    """What is known of an environment's scene before an episode: shapes, joints, regions and what stands fixed."""

    def __init__(self, env: Any) -> None:
        self._env, self._model, self._data = env, env.sim.model._model, env.sim.data._data
        self._atoms = goal_atoms(env.parsed_problem['goal_state'])
        self._movable = self._roots(env.objects_dict)
        self._fixtures = self._roots(env.fixtures_dict)
        self._parts: dict[str, tuple[int, int]] = {}  # body and joint, by name
        regions = {n: self._region(n) for atom in self._atoms for n in atom[1:] if n in env.object_sites_dict}
        self._goals = pose_goals(self._atoms, regions=regions, limits=self._limits())

    @property
    def middle_m(self) -> FloatArray:
        return np.asarray(self._env.workspace_offset, dtype=np.float64)

    @property
    def things(self) -> dict[str, list[int]]:
        """The drawn geoms of every object and part that a goal is about."""
        names = dict.fromkeys(n for g in self._goals for n in (g.object, g.other) if n)
        return {n: geoms_of(self._model, self._body(n)) for n in names if n in self._movable or n in self._parts}

    def known_scene(self) -> KnownScene:
        model, data = self._model, self._data
        objects: list[KnownObject] = []
        for name, geoms in self.things.items():
            joint = self._parts[name][1] if name in self._parts else None
            objects.append(known_thing(model, data, name, self._body(name), geoms, joint=joint))
        robot = {int(model.body_rootid[b]) for b in range(model.nbody) if model.body(b).name.startswith('robot')}
        owner = {body: name for name, body in self._fixtures.items()}
        fixed, plane_m = fixed_things(model, data, owner, skipped=tuple(robot), middle_m=self.middle_m)
        is_on_floor = all(box.name in self._fixtures for box in fixed)  # no table that is a box
        return KnownScene(
            objects=tuple(objects), poses=self._goals, fixed=tuple(fixed), floor_z_m=plane_m, is_on_floor=is_on_floor
        )

    def _roots(self, things: Mapping[str, Any]) -> dict[str, int]:
        return {name: int(self._model.body(thing.root_body).id) for name, thing in things.items()}

    def _body(self, name: str) -> int:
        return self._movable[name] if name in self._movable else self._parts[name][0]

    def _region(self, name: str) -> Region:
        data, site = self._data, self._env.object_sites_dict[name]
        number = int(self._model.site(name).id)
        turn, half = data.site_xmat[number].reshape(3, 3).copy(), np.asarray(site.size, dtype=np.float64)
        parent = site.parent_name or ''
        carrier, body = parent if parent in self._movable else '', self._movable.get(parent, 0)
        part = moving_part(self._model, int(self._model.site_bodyid[number])) if parent in self._fixtures else None
        if part is not None:
            carrier, body = self._model.body(part[0]).name, part[0]
            self._parts[carrier] = part
        return Region(
            data.site_xpos[number].copy(), turn, half, parent, carrier, data.xpos[body].copy(),
            data.xmat[body].reshape(3, 3).copy(),
        )  # fmt: skip

    def _limits(self) -> dict[tuple[str, ...], list[PoseGoal]]:
        """The joints that the goal is about, each with the value at which LIBERO's own predicate of it turns."""
        limits: dict[tuple[str, ...], list[PoseGoal]] = {}
        for atom in self._atoms:
            words = tuple(word.lower() for word in atom)
            if len(words) != 2:
                continue
            site = self._env.object_sites_dict.get(words[1])
            thing = self._env.get_object(site.parent_name if site is not None else words[1])
            joints = [self._model.joint(n) for n in (site.joints if site is not None else thing.joints)]
            if words[0] != 'close' and len(joints) > 1:  # any of several would do
                raise InputError(f"goal ({' '.join(atom)}): one of {len(joints)} joints; say success = 'host'")
            limits[words] = [self._limit(words[0], thing, int(joint.id)) for joint in joints]
        return limits

    def _limit(self, predicate: str, thing: Any, joint: int) -> PoseGoal:
        """Where the joint of a part is to be: above or below a value."""
        low, high = (float(v) for v in self._model.jnt_range[joint])
        body = int(self._model.jnt_bodyid[joint])
        name = self._model.body(body).name
        self._parts[name] = (body, joint)
        if predicate in ('turnon', 'turnoff'):  # asking for it would light the burner
            ranges = thing.object_properties['articulation'][f'default_{predicate}_ranges']
            if predicate == 'turnon':
                return PoseGoal(object=name, kind='above', limit=min(ranges))
            return PoseGoal(object=name, kind='below', limit=max(ranges))
        holds = {'open': thing.is_open, 'close': thing.is_close}.get(predicate)
        turns = None if holds is None else turning_point(lambda q: bool(holds(q)), low, high)
        if turns is None:
            raise InputError(f'goal ({predicate} {name}): where its joint is to be is not known')
        return PoseGoal(object=name, kind=turns[0], limit=turns[1])
