"""Where things start: SE(2) poses of objects without collisions, and the robot's first joint angles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.run.conditions.condition import (  # fmt: skip
    CONDITIONS,
    BoolArray,
    Effect,
    FloatArray,
    SingleCondition,
    check_severity,
    generator,
)
from robotrials.value import dataclass

MOST_SD_RAD = 0.25
MOST_DISPLACEMENT_M = 0.2
HIGHEST_SUPPORT_M = 0.08


@dataclass(frozen=True, slots=True)
class PlanarPose:
    """Where an object stands on the table."""

    x_m: float
    y_m: float
    yaw_rad: float


@dataclass(frozen=True, slots=True)
class Footprint:
    """An object's rectangle on the table and its nominal pose; a fixed one stays there."""

    name: str
    size_m: tuple[float, float]
    nominal: PlanarPose
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class Workspace:
    """The rectangle that every object must lie in."""

    low_m: tuple[float, float]
    high_m: tuple[float, float]

    def __post_init__(self) -> None:
        if not all(a < b for a, b in zip(self.low_m, self.high_m, strict=True)):
            raise InputError(f'a workspace needs low < high, found {self.low_m} and {self.high_m}')


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(SingleCondition):
    """SE(2) layout randomisation: at severity 1 anywhere in the workspace, below it nearer to the nominal poses."""

    KINDS: ClassVar[tuple[str, ...]] = ('layout',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.LAYOUT, Effect.RGB, Effect.DEPTH})

    severity: float
    seed: int

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> Layout:
        return cls(severity=check_severity('layout', severity), seed=seed)

    def place(
        self, objects: Sequence[Footprint], workspace: Workspace, *, clearance_m: float = 0.01, tries: int = 2000
    ) -> Mapping[str, PlanarPose]:
        """Poses without collisions, inside the workspace; InputError when none is found."""
        if len({o.name for o in objects}) != len(objects):
            raise InputError(f'objects need different names, found {[o.name for o in objects]}')
        if self.severity == 0:
            return {o.name: o.nominal for o in objects}
        rng = generator('layout', self.seed)
        placed: dict[str, PlanarPose] = {o.name: o.nominal for o in objects if o.is_fixed}
        rectangles = [_rectangle(o, o.nominal, clearance_m) for o in objects if o.is_fixed]
        # Large objects first: they have the fewest places.
        for item in sorted((o for o in objects if not o.is_fixed), key=lambda o: -o.size_m[0] * o.size_m[1]):
            for _ in range(tries):
                pose = self.draw_pose(item, workspace, rng)
                corners = _rectangle(item, pose, clearance_m)
                if _is_inside(item, pose, workspace) and not any(overlap(corners, other) for other in rectangles):
                    break
            else:
                raise InputError(
                    f'no collision-free place for {item.name} ({item.size_m[0]:.3f} x {item.size_m[1]:.3f} m) among '
                    f'{len(rectangles)} others in {workspace.low_m} to {workspace.high_m} m after {tries} tries; '
                    'use a larger workspace, fewer objects or less clearance'
                )
            placed[item.name] = pose
            rectangles.append(corners)
        return {o.name: placed[o.name] for o in objects}

    def draw_pose(self, item: Footprint, workspace: Workspace, rng: np.random.Generator) -> PlanarPose:
        """One pose between the nominal one and a uniform draw, unchecked: for hosts with their own idea of a clash."""
        x, y = rng.uniform(workspace.low_m, workspace.high_m)
        turn = rng.uniform(-math.pi, math.pi)
        s, home = self.severity, item.nominal
        return PlanarPose(
            float(home.x_m + s * (x - home.x_m)), float(home.y_m + s * (y - home.y_m)), float(home.yaw_rad + s * turn)
        )


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Displacement(SingleCondition):
    """Every free piece moved by a stated distance in a drawn direction, give or take a jitter: starts near others.

    The jitter is uniform in x and in y, and in yaw up to `turn_rad` either way. It is stated, never drawn by severity.
    """

    KINDS: ClassVar[tuple[str, ...]] = ('displacement',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.LAYOUT, Effect.RGB, Effect.DEPTH})

    severity: float
    seed: int
    distance_m: float
    jitter_m: float
    turn_rad: float

    @classmethod
    def of(cls, distance_m: float, *, jitter_m: float = 0.0, turn_rad: float = 0.0, seed: int) -> Displacement:
        """The displacement with its severity, which is 1 from MOST_DISPLACEMENT_M (or half a turn) on."""
        for name, value in (('distance_m', distance_m), ('jitter_m', jitter_m), ('turn_rad', turn_rad)):
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f'displacement: {name} is {value}, wanted a finite number >= 0')
        size = max((distance_m + jitter_m) / MOST_DISPLACEMENT_M, turn_rad / math.pi)
        return cls(severity=min(1.0, size), seed=seed, distance_m=distance_m, jitter_m=jitter_m, turn_rad=turn_rad)

    def draw_pose(self, item: Footprint, workspace: Workspace, rng: np.random.Generator) -> PlanarPose:
        """One pose at the distance from the nominal one, unchecked."""
        angle = rng.uniform(-math.pi, math.pi)
        dx, dy = rng.uniform(-self.jitter_m, self.jitter_m, size=2)
        turn = rng.uniform(-self.turn_rad, self.turn_rad)
        home = item.nominal
        return PlanarPose(
            float(home.x_m + self.distance_m * math.cos(angle) + dx),
            float(home.y_m + self.distance_m * math.sin(angle) + dy),
            float(home.yaw_rad + turn),
        )


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Support(SingleCondition):
    """What is to be moved starts on a support of this height instead of on the table; stated, never drawn."""

    KINDS: ClassVar[tuple[str, ...]] = ('support',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.LAYOUT, Effect.OBJECTS, Effect.RGB, Effect.DEPTH})

    severity: float
    seed: int
    height_m: float

    @classmethod
    def of(cls, height_m: float, *, seed: int = 0) -> Support:
        """The support with its severity, which is 1 at HIGHEST_SUPPORT_M."""
        if not 0 < height_m <= HIGHEST_SUPPORT_M:
            raise InputError(f'support: height_m is {height_m}, wanted above 0 and at most {HIGHEST_SUPPORT_M}')
        return cls(severity=height_m / HIGHEST_SUPPORT_M, seed=seed, height_m=height_m)


def _rectangle(item: Footprint, pose: PlanarPose, margin_m: float) -> FloatArray:
    half = np.array(item.size_m) / 2 + margin_m / 2
    local = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * half
    c, s = math.cos(pose.yaw_rad), math.sin(pose.yaw_rad)
    corners: FloatArray = local @ np.array([[c, s], [-s, c]]) + (pose.x_m, pose.y_m)
    return corners


def _is_inside(item: Footprint, pose: PlanarPose, workspace: Workspace) -> bool:
    corners = _rectangle(item, pose, 0.0)
    return bool((corners >= workspace.low_m).all() and (corners <= workspace.high_m).all())


def overlap(a: FloatArray, b: FloatArray) -> bool:
    """Whether two convex polygons (N, 2) overlap (separating axes)."""
    for polygon in (a, b):
        edges = np.roll(polygon, -1, axis=0) - polygon
        normals = np.stack([-edges[:, 1], edges[:, 0]], axis=1)
        on_a, on_b = a @ normals.T, b @ normals.T
        if ((on_a.max(axis=0) <= on_b.min(axis=0)) | (on_b.max(axis=0) <= on_a.min(axis=0))).any():
            return False
    return True


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class RobotState(SingleCondition):
    """q_init ~ N(q_home, sd^2 I), cut at 2.5 sd, kept within the joint limits and whatever else the host calls safe."""

    KINDS: ClassVar[tuple[str, ...]] = ('robot_state',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.ROBOT_STATE})

    severity: float
    seed: int
    sd_rad: float

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> RobotState:
        s = check_severity('robot_state', severity)
        return cls(severity=s, seed=seed, sd_rad=MOST_SD_RAD * s)

    def initial_joints(
        self,
        home_rad: ArrayLike,
        *,
        lower_rad: ArrayLike,
        upper_rad: ArrayLike,
        is_safe: Callable[[FloatArray], bool] | None = None,
        covariance: ArrayLike | None = None,
        tries: int = 1000,
    ) -> FloatArray:
        """Joint angles to start from; `covariance` (relative, unit scale) replaces independent joints."""
        home = np.asarray(home_rad, dtype=np.float64)
        low, high = np.asarray(lower_rad, dtype=np.float64), np.asarray(upper_rad, dtype=np.float64)
        if not ((low <= home) & (home <= high)).all():
            raise InputError(f'home {home.tolist()} lies outside the joint limits')
        if self.sd_rad == 0:
            return home.copy()
        root = np.eye(len(home)) if covariance is None else np.linalg.cholesky(np.asarray(covariance, dtype=float))
        rng = generator('robot_state', self.seed)

        def is_fit(joints: FloatArray) -> bool:
            in_limits: BoolArray = (joints >= low) & (joints <= high)
            return bool(in_limits.all()) and (is_safe is None or is_safe(joints))

        for _ in range(tries):
            direction: FloatArray = root @ np.clip(rng.standard_normal(len(home)), -2.5, 2.5)
            joints: FloatArray = home + self.sd_rad * direction
            # Safe at the whole ladder's end too, so that every severity takes the same direction.
            if is_fit(joints) and is_fit(home + max(self.sd_rad, MOST_SD_RAD) * direction):
                return joints
        raise InputError(f'no safe start within {tries} draws of sd {self.sd_rad:.3f} rad; use a smaller severity')
