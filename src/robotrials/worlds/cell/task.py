"""The tasks: what lies where, what is asked in words, and which boxes the objects must end in.

Bin-to-bin picking follows PhAIL; the four splits and the spatial tasks follow RADAR. Directions without a viewer are as
seen from the robot's base: left is +y, behind is +x. A task's variants are its instances.

The observation's state vector: proprioception, and behind it (for scripted policies) the truth about every item.

Both layouts are public and fixed. Poses are (x, y, z, qw, qx, qy, qz) in the world's frame.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.value import dataclass
from robotrials.worlds.cell import panda as pose
from robotrials.worlds.cell.item import (
    ORDER_ITEMS,
    ItemType,
    Spot,
    StartRegion,
    block,
    cylinder,
    order_item,
    peg,
    place_apart,
    rectangle,
)
from robotrials.worlds.cell.scene import (
    BELT_CENTER_M,
    BESIDE_BELT_CENTER_M,
    BIN_INNER_M,
    FLOOR_M,
    PLATFORM_CENTER_M,
    SOURCE_CENTER_M,
    STAGE_TOP_M,
    TARGET_CENTER_M,
    Fixture,
    SceneSpec,
)

FloatArray = NDArray[np.floating[Any]]
MAX_ITEMS = 6
DEFAULT_ORDER = 4
ORDER_REGION = StartRegion(SOURCE_CENTER_M, BIN_INNER_M)
BLOCK_REGION = StartRegion(PLATFORM_CENTER_M, (0.26, 0.42))
SPREAD_REGION = StartRegion(PLATFORM_CENTER_M, (0.33, 0.53))
GAP_M = 0.085  # between the centres of neighbours
DEFAULT_THRESHOLD = 0.25
COLORS = ('red', 'green', 'blue', 'yellow')


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """One item and the pose (7,) it should end in; the target box has the item's own size."""

    item: str
    pose: FloatArray
    is_yaw_free: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class DrawnEpisode:
    """One drawn episode: the scene to compile, the start poses on the stage, the goals in order, the words."""

    scene: SceneSpec
    poses: Mapping[str, FloatArray]
    goals: tuple[Goal, ...]
    instruction: str
    is_order: bool  # bin-to-bin: anywhere in the target bin will do
    task: str = ''
    stratum: str = ''
    threshold: float | None = None  # the least IoU with the target box
    gripper_yaw_rad: float = 0.0
    region: StartRegion = ORDER_REGION  # where a layout may be spread over, and distractors laid
    fixed: tuple[str, ...] = ()  # items and fixtures whose place is the task itself
    is_tied: bool = True  # goals move with the bystanders that they refer to
    distractors: tuple[str, ...] = ()  # items that are no part of the task
    on_belt: tuple[str, ...] = ()  # items that start on the belt


Draw = Callable[[np.random.Generator, int], DrawnEpisode]


@dataclass(frozen=True, slots=True)
class Task:
    """A named task; `draw(rng, instance)` makes one episode of it."""

    name: str
    split: str
    strata: tuple[str, ...]
    instances: int
    draw: Draw | None = field(repr=False)  # None: bin-to-bin picking
    scene: str = ''  # tasks that name the same scene have the same layouts


def find_task(name: str) -> Task:
    """A task by name; UnknownName with the near one."""
    try:
        return TASKS[name]
    except KeyError:
        raise UnknownName('task', name, TASKS) from None


def check_objects(task: str, *, stratum: str, items: int | None) -> Task:
    """The task, if it has this object type ('' for its first) and can be laid out with so many items."""
    known_task = find_task(task)
    if stratum and stratum not in known_task.strata:
        raise UnknownName(f'object of task {task}', stratum, known_task.strata)
    if known_task.draw is None and items is not None and not 1 <= items <= MAX_ITEMS:
        raise InputError(f'items is {items} in task {task}, wanted 1 to {MAX_ITEMS}')
    return known_task


def draw_layout(
    task: str, *, seed: int, stratum: str = '', instance: int = 0, items: int | None = None, attempt: int = 0
) -> DrawnEpisode:
    """The layout of one episode; the same arguments give the same layout on every machine."""
    known_task = check_objects(task, stratum=stratum, items=items)
    chosen = stratum or known_task.strata[0]
    words = [*f'{known_task.scene or task}/{chosen}'.encode()]
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, instance, attempt, *words])))
    draw = known_task.draw
    layout = _draw_order(rng, chosen, items) if draw is None else draw(rng, instance % known_task.instances)
    return dataclasses.replace(layout, task=task, stratum=chosen)


def _draw_order(rng: np.random.Generator, stratum: str, items: int | None) -> DrawnEpisode:
    count = DEFAULT_ORDER if items is None else items
    item = order_item(stratum)
    noun = 'pair of scissors' if stratum == 'scissors' else stratum
    names = [f'item_{i}' for i in range(count)]
    # Room for a pad between small things; long ones are packed closer, and lie flat enough to be straddled.
    apart_m = 0.010 if item.footprint_radius_m < 0.04 else 0.004
    spots = place_apart([item] * count, ORDER_REGION, rng=rng, clearance_m=apart_m)
    z = STAGE_TOP_M + FLOOR_M + item.half_height_m
    goals = tuple(
        Goal(name, pose.yaw_pose(*_bin_place(i, count), FLOOR_M + item.half_height_m), is_yaw_free=True)
        for i, name in enumerate(names)
    )
    return DrawnEpisode(
        scene=SceneSpec(has_bins=True, items=tuple((n, item) for n in names)),
        poses=_upright(dict(zip(names, spots, strict=True)), dict.fromkeys(names, z)),
        goals=goals,
        instruction=f'move every {noun} from the blue bin to the green bin',
        is_order=True,
    )


def _bin_place(index: int, count: int) -> tuple[float, float]:
    columns = 2 if count > 1 else 1
    rows = math.ceil(count / columns)
    dx = (index // columns - (rows - 1) / 2) * (0.13 / max(rows - 1, 1))
    dy = (index % columns - (columns - 1) / 2) * 0.09
    return TARGET_CENTER_M[0] + dx, TARGET_CENTER_M[1] + dy


def _upright(spots: Mapping[str, Spot], heights_m: Mapping[str, float]) -> dict[str, FloatArray]:
    return {n: pose.yaw_pose(s.x_m, s.y_m, heights_m[n], yaw_rad=s.yaw_rad) for n, s in spots.items()}


def _mark(at: Spot, size_m: float = 0.05) -> Fixture:
    half = (size_m / 2, size_m / 2, 0.0004)
    place = tuple(pose.yaw_pose(at.x_m, at.y_m, STAGE_TOP_M, yaw_rad=at.yaw_rad))
    return Fixture('mark', (((0.0, 0.0, 0.0), half),), place, rgba='0.96 0.96 0.96 1', is_solid=False)


def _blocks_layout(
    *,
    items: Mapping[str, ItemType],
    spots: Mapping[str, Spot],
    goals: Mapping[str, FloatArray],
    instruction: str,
    fixtures: tuple[Fixture, ...] = (),
    threshold: float = DEFAULT_THRESHOLD,
    gripper_yaw_rad: float = 0.0,
    region: StartRegion = SPREAD_REGION,
    fixed: tuple[str, ...] = (),
    is_tied: bool = True,
) -> DrawnEpisode:
    heights = {n: STAGE_TOP_M + item.half_height_m for n, item in items.items()}
    return DrawnEpisode(
        scene=SceneSpec(has_bins=False, items=tuple(items.items()), fixtures=fixtures),
        poses=_upright(spots, heights),
        goals=tuple(Goal(n, p) for n, p in goals.items()),
        instruction=instruction,
        is_order=False,
        threshold=threshold,
        gripper_yaw_rad=gripper_yaw_rad,
        region=region,
        fixed=fixed,
        is_tied=is_tied,
    )


def _on_stage(spot: Spot, item: ItemType, *, above_m: float = 0.0) -> FloatArray:
    return pose.yaw_pose(spot.x_m, spot.y_m, STAGE_TOP_M + above_m + item.half_height_m, yaw_rad=spot.yaw_rad)


def _draw_single(rng: np.random.Generator, instance: int) -> DrawnEpisode:
    color = COLORS[instance]
    item = block(color=color)
    start, mark = place_apart([item, item], BLOCK_REGION, rng=rng, clearance_m=0.03)
    return _blocks_layout(
        items={f'{color}_block': item},
        spots={f'{color}_block': start},
        goals={f'{color}_block': _on_stage(mark, item)},
        instruction=f'put the {color} block on the white square',
        fixtures=(_mark(mark),),
    )


# Direction of each relation in a viewer's frame: x ahead of the viewer, y to the viewer's left.
RELATIONS: Mapping[str, tuple[float, float]] = {
    'to the left of': (0.0, 1.0),
    'to the right of': (0.0, -1.0),
    'in front of': (-1.0, 0.0),
    'behind': (1.0, 0.0),
}


def beside(anchor: Spot, relation: str, *, viewer_yaw_rad: float = 0.0, gap_m: float = GAP_M) -> Spot:
    """The spot in that relation to `anchor` for a viewer who looks along `viewer_yaw_rad`; heading as the viewer's."""
    ahead, left = RELATIONS[relation]
    c, s = math.cos(viewer_yaw_rad), math.sin(viewer_yaw_rad)
    dx, dy = gap_m * (ahead * c - left * s), gap_m * (ahead * s + left * c)
    return Spot(anchor.x_m + dx, anchor.y_m + dy, viewer_yaw_rad)


def _draw_with_room(
    rng: np.random.Generator, movers: list[ItemType], anchor: ItemType, find_goals: Callable[[Spot], list[Spot]]
) -> tuple[Spot, list[Spot], list[Spot]]:
    """An anchor near the middle whose goal spots lie on the platform, and movers away from all of them."""
    middle = StartRegion(BLOCK_REGION.center_m, (0.15, 0.26))
    for _ in range(100):
        dx, dy, yaw = rng.uniform((-0.06, -0.09, -0.4), (0.06, 0.09, 0.4))
        at = Spot(middle.center_m[0] + dx, middle.center_m[1] + dy, yaw)
        goals = find_goals(at)
        if not all(BLOCK_REGION.holds(rectangle(g, 0.02, 0.02)) for g in goals):
            continue
        half = anchor.footprint_radius_m + 0.02
        taken = [rectangle(at, half, half)] + [rectangle(g, 0.045, 0.045) for g in goals]
        try:
            return at, goals, place_apart(movers, BLOCK_REGION, rng=rng, clearance_m=0.022, taken=taken)
        except InputError:
            continue
    raise InputError('no collision-free placement of the blocks and their goals was found in 100 tries')


def _draw_two(rng: np.random.Generator, instance: int) -> DrawnEpisode:
    mover, anchor = ('red', 'green') if instance < 5 else ('blue', 'yellow')
    relation = (*RELATIONS, 'on top of')[instance % 5]
    moved, still = block(color=mover), block(color=anchor)
    goals_of: Callable[[Spot], list[Spot]] = (
        (lambda at: [at]) if relation == 'on top of' else (lambda at: [beside(at, relation)])
    )
    at, (goal,), (start,) = _draw_with_room(rng, [moved], still, goals_of)
    above = still.box_m[2] if relation == 'on top of' else 0.0
    return _blocks_layout(
        items={f'{mover}_block': moved, f'{anchor}_block': still},
        spots={f'{mover}_block': start, f'{anchor}_block': at},
        goals={f'{mover}_block': _on_stage(goal, moved, above_m=above)},
        instruction=f'put the {mover} block {relation} the {anchor} block',
    )


def _draw_three(rng: np.random.Generator, instance: int) -> DrawnEpisode:
    turn = instance % 3
    a, b, c = (('red', 'green', 'blue') * 2)[turn : turn + 3]
    if instance < 3:
        return _draw_between(rng, (a, b, c))
    if instance < 6:
        return _draw_row(rng, (a, b, c))
    if instance == 9:
        a, b, c = 'blue', 'green', 'red'
    return _draw_tower(rng, (a, b, c))


def _draw_between(rng: np.random.Generator, colors: tuple[str, str, str]) -> DrawnEpisode:
    mover, left, right = colors
    kinds = {f'{c}_block': block(color=c) for c in colors}

    def flanks(at: Spot) -> list[Spot]:
        straight = Spot(at.x_m, at.y_m, 0.0)
        return [beside(straight, 'to the left of'), beside(straight, 'to the right of')]

    at, sides, (start,) = _draw_with_room(rng, [block(color=mover)], block(color=mover), flanks)
    goal = Spot(at.x_m, at.y_m, 0.0)
    return _blocks_layout(
        items=kinds,
        spots={f'{mover}_block': start, f'{left}_block': sides[0], f'{right}_block': sides[1]},
        goals={f'{mover}_block': _on_stage(goal, kinds[f'{mover}_block'])},
        instruction=f'put the {mover} block between the {left} block and the {right} block',
    )


def _draw_row(rng: np.random.Generator, colors: tuple[str, str, str]) -> DrawnEpisode:
    left, middle, right = colors
    kinds = {f'{c}_block': block(color=c) for c in colors}

    def flanks(at: Spot) -> list[Spot]:
        return [beside(at, 'to the left of'), beside(at, 'to the right of')]

    at, sides, starts = _draw_with_room(rng, [block(color=left), block(color=right)], block(color=middle), flanks)
    return _blocks_layout(
        items=kinds,
        spots={f'{left}_block': starts[0], f'{right}_block': starts[1], f'{middle}_block': at},
        goals={
            f'{name}_block': _on_stage(spot, kinds[f'{name}_block'])
            for name, spot in zip((left, right), sides, strict=True)
        },
        instruction=(
            f'put the {left} block to the left of the {middle} block and the {right} block to the right of it'
        ),
    )


def _draw_tower(rng: np.random.Generator, colors: tuple[str, str, str]) -> DrawnEpisode:
    top, middle, bottom = colors
    kinds = {f'{c}_block': block(color=c) for c in colors}
    size = kinds[f'{bottom}_block'].box_m[2]
    movers = [kinds[f'{middle}_block'], kinds[f'{top}_block']]
    at, _, starts = _draw_with_room(rng, movers, kinds[f'{bottom}_block'], lambda at: [at])
    return _blocks_layout(
        items=kinds,
        spots={f'{middle}_block': starts[0], f'{top}_block': starts[1], f'{bottom}_block': at},
        goals={
            f'{middle}_block': _on_stage(at, movers[0], above_m=size),
            f'{top}_block': _on_stage(at, movers[1], above_m=2 * size),
        },
        instruction=f'stack the {middle} block on the {bottom} block, then the {top} block on top',
    )


def _draw_stacking(rng: np.random.Generator, instance: int) -> DrawnEpisode:
    orders = (('red', 'green', 'blue'), ('green', 'blue', 'red'), ('blue', 'red', 'green'))
    return _draw_tower(rng, orders[instance])


def _draw_spatial(rng: np.random.Generator, instance: int) -> DrawnEpisode:
    relation = tuple(RELATIONS)[instance % 4]
    color = COLORS[instance % 4]
    moved, anchor = block(color=color), cylinder()
    gripper_yaw = float(rng.uniform(0.5, 1.0) * rng.choice((-1.0, 1.0)))
    viewer, yaw = ('the gripper', gripper_yaw) if instance < 4 else ('the front camera', math.pi)
    at, (goal,), (start,) = _draw_with_room(rng, [moved], anchor, lambda at: [beside(at, relation, viewer_yaw_rad=yaw)])
    return _blocks_layout(
        items={f'{color}_block': moved, 'cylinder': anchor},
        spots={f'{color}_block': start, 'cylinder': at},
        goals={f'{color}_block': _on_stage(goal, moved)},
        instruction=f'put the {color} block {relation} the cylinder as seen from {viewer}',
        threshold=0.1,
        gripper_yaw_rad=gripper_yaw,
    )


SLOT_HOLE_M = (0.036, 0.024)
SLOT_DEPTH_M = 0.028
SLOT_TILT_RAD = math.radians(10)


def _slot_boxes() -> tuple[tuple[tuple[float, float, float], tuple[float, float, float]], ...]:
    """Floor and four walls of a slot whose mouth is at z = 0 of its frame."""
    hx, hy, wall, depth = SLOT_HOLE_M[0] / 2, SLOT_HOLE_M[1] / 2, 0.008, SLOT_DEPTH_M
    return (
        ((0.0, 0.0, -depth - 0.004), (hx + 2 * wall, hy + 2 * wall, 0.004)),
        ((hx + wall, 0.0, -depth / 2), (wall, hy + 2 * wall, depth / 2)),
        ((-hx - wall, 0.0, -depth / 2), (wall, hy + 2 * wall, depth / 2)),
        ((0.0, hy + wall, -depth / 2), (hx, wall, depth / 2)),
        ((0.0, -hy - wall, -depth / 2), (hx, wall, depth / 2)),
    )


def _draw_insertion(rng: np.random.Generator, instance: int) -> DrawnEpisode:
    item = peg(color=COLORS[instance])
    size = block(0.06)
    spots = place_apart([size, item], BLOCK_REGION, rng=rng, clearance_m=0.03)
    tilt_axis = rng.uniform(-math.pi, math.pi)
    yaw = float(rng.uniform(-0.6, 0.6))
    tilt = pose.quaternion_from_vector([math.cos(tilt_axis) * SLOT_TILT_RAD, math.sin(tilt_axis) * SLOT_TILT_RAD, 0.0])
    turn = pose.multiply(tilt, pose.yaw_pose(0, 0, 0, yaw_rad=yaw)[3:])
    mouth = np.concatenate([[spots[0].x_m, spots[0].y_m, STAGE_TOP_M + SLOT_DEPTH_M + 0.016], turn])
    seat = np.array([0.0, 0.0, -SLOT_DEPTH_M + item.half_height_m, 1.0, 0.0, 0.0, 0.0])
    return _blocks_layout(
        items={'peg': item},
        spots={'peg': spots[1]},
        goals={'peg': pose.compose(mouth, seat)},
        instruction=f'insert the {COLORS[instance]} peg into the slot',
        fixtures=(Fixture('slot', _slot_boxes(), tuple(float(v) for v in mouth)),),
        threshold=0.6,
    )


def _draw_occlusion(rng: np.random.Generator, instance: int) -> DrawnEpisode:
    """Two blocks of one colour; a screen hides one of them from the front camera, but not from the side."""
    color = COLORS[instance]
    item = block(color=color)
    y = float(rng.uniform(-0.10, 0.02)) - 0.04
    screen_x = float(rng.uniform(0.52, 0.56))
    screen = Fixture(
        'screen', (((0.0, 0.0, 0.045), (0.003, 0.045, 0.045)),), (screen_x, y, STAGE_TOP_M, 1.0, 0.0, 0.0, 0.0)
    )
    hidden = Spot(screen_x - 0.095, y, float(rng.uniform(-0.3, 0.3)))
    taken = [rectangle(Spot(screen_x - 0.06, y, 0.0), 0.11, 0.09)]
    left = StartRegion((0.50, 0.12), (0.26, 0.16))
    seen, mark = place_apart([item, item], left, rng=rng, clearance_m=0.02, taken=taken)
    return _blocks_layout(
        items={'hidden_block': item, 'seen_block': item},
        spots={'hidden_block': hidden, 'seen_block': seen},
        goals={'hidden_block': _on_stage(mark, item)},
        instruction=f'put the {color} block that the front camera cannot see on the white square',
        fixtures=(screen, _mark(mark)),
        region=StartRegion((0.50, 0.14), (0.32, 0.22)),
        fixed=('hidden_block', 'screen'),
        is_tied=False,
    )


def _draw_scale(rng: np.random.Generator, instance: int) -> DrawnEpisode:
    """Two blocks that look equally large from the front camera: the larger one is farther from it."""
    color = COLORS[instance % 4]
    camera = np.array([1.20, 0.0, 0.66])
    near_x, far_x = float(rng.uniform(0.60, 0.62)), float(rng.uniform(0.38, 0.40))
    side = 1.0 if rng.random() < 0.5 else -1.0
    near, far = Spot(near_x, -0.07 * side, 0.0), Spot(far_x, 0.07 * side, 0.0)
    small = 0.032
    distance = [float(np.linalg.norm(camera - (s.x_m, s.y_m, STAGE_TOP_M + 0.02))) for s in (near, far)]
    large = small * distance[1] / distance[0]
    kinds = {
        'small_block': block(small, color=color, name='small block'),
        'large_block': block(large, color=color, name='large block'),
    }
    which = 'large_block' if instance < 4 else 'small_block'
    taken = [rectangle(s, 0.06, 0.06) for s in (near, far)]
    (mark,) = place_apart([kinds[which]], BLOCK_REGION, rng=rng, clearance_m=0.02, taken=taken)
    return _blocks_layout(
        items=kinds,
        spots={'small_block': near, 'large_block': far},
        goals={which: _on_stage(mark, kinds[which])},
        instruction=f'put the {"larger" if instance < 4 else "smaller"} {color} block on the white square',
        fixtures=(_mark(mark),),
        fixed=('small_block', 'large_block'),
    )


BELT_REGION = StartRegion(BESIDE_BELT_CENTER_M, (0.13, 0.34))  # where the square may lie


def _draw_belt(speed_m_s: float) -> Draw:
    """A block comes along on a belt and is to be put on a square beside it, before the belt takes it away."""

    def draw(rng: np.random.Generator, instance: int) -> DrawnEpisode:
        color = COLORS[instance]
        item = block(color=color)
        across, along, yaw = rng.uniform((-0.02, 0.36, -math.pi), (0.02, 0.41, math.pi))
        (mark,) = place_apart([item], BELT_REGION, rng=rng)
        name = f'{color}_block'
        layout = _blocks_layout(
            items={name: item},
            spots={name: Spot(BELT_CENTER_M[0] + across, along, yaw)},
            goals={name: _on_stage(mark, item)},
            instruction=f'move the {color} block from the belt to the white square',
            fixtures=(_mark(mark),),
            region=BELT_REGION,
            fixed=(name,),
            is_tied=False,
        )
        scene = dataclasses.replace(layout.scene, belt_m_s=speed_m_s)
        return dataclasses.replace(layout, scene=scene, on_belt=(name,))

    return draw


CHOICES = ('red', 'green', 'blue')


def _draw_choice(color: str) -> Draw:
    """Three blocks and a square: the same scene whichever of them is asked for."""

    def draw(rng: np.random.Generator, instance: int) -> DrawnEpisode:
        kinds = {f'{c}_block': block(color=c) for c in CHOICES}
        *starts, mark = place_apart([*kinds.values(), block()], BLOCK_REGION, rng=rng, clearance_m=0.024)
        asked = f'{color}_block'
        return _blocks_layout(
            items=kinds,
            spots=dict(zip(kinds, starts, strict=True)),
            goals={asked: _on_stage(mark, kinds[asked])},
            instruction=f'put the {color} block on the white square',
            fixtures=(_mark(mark),),
            is_tied=False,
        )

    return draw


TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task('bin_to_bin', 'order picking', tuple(ORDER_ITEMS), 1, None),
        Task('single_block', 'SingleBlock', ('block',), 4, _draw_single),
        Task('two_block', 'TwoBlock', ('block',), 10, _draw_two),
        Task('three_block', 'ThreeBlock', ('block',), 10, _draw_three),
        Task('spatial', 'Spatial', ('block',), 8, _draw_spatial),
        Task('insertion', 'insertion', ('peg',), 4, _draw_insertion),
        Task('stacking', 'stacking', ('block',), 3, _draw_stacking),
        Task('occlusion', 'occlusion', ('block',), 4, _draw_occlusion),
        Task('scale', 'scale against distance', ('block',), 8, _draw_scale),
        Task('belt_slow', 'moving object', ('block',), 4, _draw_belt(0.10), scene='belt'),
        Task('belt_fast', 'moving object', ('block',), 4, _draw_belt(0.15), scene='belt'),
        *(Task(f'choose_{c}', 'instruction', ('block',), 1, _draw_choice(c), scene='choose') for c in CHOICES),
    )
}


# Proprioception: 7 joint angles in rad, then the gripper's opening, 0 closed .. 1 open.
PROPRIOCEPTION_WIDTH = 8
# Privileged: that; 7 joint velocities; measured tool pose; commanded tool pose; commanded opening; gripper in contact;
# then MAX_ITEMS slots, in the order of the goals: status, grip width in m,
# is yaw free, item pose, grasp pose of the tool, goal pose of the item.
SLOT_WIDTH = 3 + 7 * 3
SLOTS_AT = PROPRIOCEPTION_WIDTH + 7 + 7 + 7 + 1 + 1
STATE_WIDTH = SLOTS_AT + MAX_ITEMS * SLOT_WIDTH

ABSENT, TO_MOVE, PLACED, BYSTANDER, LOST = 0.0, 1.0, 2.0, 3.0, 4.0
TIP_M = 0.012  # the tool's least height above what the item lies on: the fingertips reach 9 mm below the tool


def heading(quaternion: Sequence[float]) -> float:
    """The heading of an item's long axis in the plane, however it came to lie."""
    from robotrials.worlds.cell.kernel import heading as of_four

    return of_four(*quaternion)


class Slots:
    """The items' part of the privileged state, for one episode; items in the order of their slots."""

    def __init__(self, items: Sequence[ItemType], goals: Sequence[Goal | None]) -> None:
        from robotrials.worlds.cell.kernel import write_slots

        self._write = write_slots
        taken = list(zip(items, goals, strict=True))[:MAX_ITEMS]
        self._measures = np.array(
            [(i.grip_width_m, g is not None and g.is_yaw_free, *i.grasp_m, *i.box_m) for i, g in taken], dtype=float
        ).reshape(-1, 8)
        self._turns = np.array([item.turns for item, _ in taken], dtype=np.int64)
        self._goals = np.array([[np.nan] * 7 if g is None else g.pose for _, g in taken], dtype=float).reshape(-1, 7)

    def write(self, out: FloatArray, poses: FloatArray, status: FloatArray) -> None:
        """Into `out` (MAX_ITEMS, SLOT_WIDTH): the poses (n, 7) and what became of the items (n,)."""
        n = len(self._turns)
        out[n:] = ABSENT
        self._write(out, poses[:n], self._measures, self._turns, self._goals, status[:n], TIP_M)


# Reading the privileged state: the arm's own account, then one slot for every item.


@dataclass(frozen=True, slots=True, eq=False)
class ItemView:
    """An item that is still to be moved: where it is, how to grasp it from above, where it should go."""

    slot: int
    width_m: float
    is_yaw_free: bool
    pose: FloatArray
    grasp: FloatArray
    goal: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class CellView:
    """The part of an observation's state that scripted policies use."""

    opening: float  # 0 closed .. 1 open
    tool: FloatArray
    command: FloatArray
    has_contact: bool
    items: tuple[ItemView, ...]


def read_state(state: FloatArray) -> CellView:
    """The privileged state vector, by name."""
    slots = state[SLOTS_AT:].reshape(MAX_ITEMS, SLOT_WIDTH)
    items = tuple(
        ItemView(
            slot=row,
            width_m=float(values[1]),
            is_yaw_free=bool(values[2]),
            pose=values[3:10],
            grasp=values[10:17],
            goal=values[17:24],
        )
        for row, values in enumerate(slots)
        if values[0] == TO_MOVE
    )
    return CellView(float(state[7]), state[15:22], state[22:29], bool(state[30]), items)
