"""Small inputs with a known truth: rendered boxes, simulated cohorts, results of diagnoses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.measure.geometry import Box
from robotrials.measure.geometry.box import FloatArray
from robotrials.measure.geometry.view import RgbdView
from robotrials.record import Episode, Event, EventKind, Outcome
from robotrials.value import dataclass
from robotrials.verdict.audit import (
    DataSource,
    InstanceOutcome,
    MixScore,
    Protocol,
    ReportedScore,
    RunOutcomes,
    ScoreKind,
    SourcePoint,
    SourceProtocol,
    TrainingMix,
    shortcut,
)
from robotrials.verdict.audit.datasource import write_datasource
from robotrials.verdict.audit.run_score import mixes, write_mix
from robotrials.verdict.audit.shortcut import ProbeFacts, ProbeSweep, SweepSetting

TABLE_RGB = (168, 150, 126)
SKY_DEPTH_M = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class PaintedBox:
    """A box and its colour."""

    box: Box
    color_rgb: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DepthNoise:
    """What a depth camera does to the truth: Gaussian noise, missing pixels, and steps of its resolution."""

    sigma_m: float = 0.0
    dropout: float = 0.0
    step_m: float = 0.0


def look_at(eye: ArrayLike, target: ArrayLike) -> FloatArray:
    """base-from-camera of a camera at `eye` that looks at `target`, upright: +z forward, x right, y down."""
    position = np.asarray(eye, dtype=np.float64)
    forward = np.asarray(target, dtype=np.float64) - position
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right = np.array([1.0, 0.0, 0.0]) if np.linalg.norm(right) < 1e-9 else right / np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
    pose[:3, 3] = position
    return pose


def pinhole(width_px: int, height_px: int, *, field_of_view_deg: float = 50.0) -> FloatArray:
    """Intrinsics with this vertical field of view and the principal point at the centre of the image."""
    focal = height_px / 2 / math.tan(math.radians(field_of_view_deg) / 2)
    return np.array([[focal, 0, (width_px - 1) / 2], [0, focal, (height_px - 1) / 2], [0, 0, 1]])


def render_view(
    name: str,
    base_from_camera: FloatArray,
    *,
    boxes: Sequence[PaintedBox],
    width_px: int = 320,
    height_px: int = 240,
    noise: DepthNoise | None = None,
    rng: np.random.Generator | None = None,
    table_z_m: float = 0.0,
    field_of_view_deg: float = 50.0,
) -> RgbdView:
    """What a camera sees of painted boxes on a table, shaded by one light; noise on depth if asked."""
    k = pinhole(width_px, height_px, field_of_view_deg=field_of_view_deg)
    u, v = np.meshgrid(np.arange(width_px), np.arange(height_px))
    rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones_like(u, dtype=np.float64)], axis=-1)
    direction = rays.reshape(-1, 3) @ base_from_camera[:3, :3].T
    depth, rgb = _cast(base_from_camera[:3, 3], direction, boxes, table_z_m)
    depth = _with_noise(depth, noise or DepthNoise(), rng)
    return RgbdView(name, rgb.reshape(height_px, width_px, 3), depth.reshape(height_px, width_px), k, base_from_camera)


def _cast(
    origin: FloatArray, direction: FloatArray, boxes: Sequence[PaintedBox], table_z_m: float
) -> tuple[FloatArray, NDArray[np.uint8]]:
    light = np.array([0.3, -0.4, 0.87])
    depth = np.full(len(direction), SKY_DEPTH_M)
    color = np.full((len(direction), 3), 40.0)
    with np.errstate(divide='ignore', invalid='ignore'):
        table = (table_z_m - origin[2]) / direction[:, 2]
        hit = table > 0
        depth[hit] = table[hit]
        color[hit] = np.array(TABLE_RGB) * light[2]
        for painted in boxes:
            box = painted.box
            o, d = (origin - box.center) @ box.rotation, direction @ box.rotation
            near, far = (-np.sign(d) * box.size / 2 - o) / d, (np.sign(d) * box.size / 2 - o) / d
            axis = np.argmax(near, axis=1)
            enter, leave = near.max(axis=1), far.min(axis=1)
            hit = (enter <= leave) & (enter > 0) & (enter < depth)
            depth[hit] = enter[hit]
            normal = -np.sign(d[np.arange(len(d)), axis])[:, None] * box.rotation.T[axis]
            shade = 0.35 + 0.65 * np.maximum(0, normal @ light)
            color[hit] = np.array(painted.color_rgb) * shade[hit, None]
    return depth, np.clip(np.rint(color), 0, 255).astype(np.uint8)


def _with_noise(depth: FloatArray, noise: DepthNoise, rng: np.random.Generator | None) -> FloatArray:
    if rng is None:
        return depth
    noisy = depth + noise.sigma_m * rng.standard_normal(depth.shape)
    if noise.step_m:
        noisy = np.rint(noisy / noise.step_m) * noise.step_m
    noisy[rng.random(depth.shape) < noise.dropout] = np.nan
    return noisy


# Small results of diagnoses, drawn from fixed seeds: what `robotrials audit` writes after an evening of training.


def write_shortcut(path: Path) -> None:
    """A probe on a suite of ten tasks: four checkpoints, three variants, and scores that others reported."""
    rng = np.random.default_rng(11)
    hardness = rng.random((10, 50))

    def run(name: str, skill: float, step: int | None = None) -> RunOutcomes:
        passed = hardness + rng.normal(0.0, 0.05, hardness.shape) < skill
        outcomes = [
            InstanceOutcome(f'task_{t}', f'instance={i}', int(passed[t, i]), start=f'task_{t} instance={i}')
            for t, i in np.ndindex(10, 50)
        ]
        return RunOutcomes(name, tuple(outcomes), step)

    steps = {10_000: 0.71, 20_000: 0.86, 30_000: 0.93, 40_000: 0.91}
    rows = (
        ('a foundation policy', '84.7', 'foundation'),
        ('the best', '96.4', 'other'),
        ('with RL', '98.2', 'rl-finetuned'),
    )
    diagnosis = shortcut(
        [run(f'step {step}', skill, step) for step, skill in steps.items()],
        [run('blind', 0.12), run('proprioception', 0.08), run('shuffled', 0.90)],
        reported=[ReportedScore(policy=p, score=s, unit='percent', kind=ScoreKind(k)) for p, s, k in rows],
        official=Protocol(10, 50), rng=rng, title='a suite of ten tasks',
        probe=ProbeFacts(encoder='conv', parameters=412_000, task_input='id', demonstrations=500, mid_motion=0,
                         sweep=_sweep()),
    )  # fmt: skip
    path.write_text(diagnosis.as_json(), encoding='utf-8')


def _sweep() -> ProbeSweep:
    losses = {(3e-4, 20_000): 0.0142, (3e-4, 40_000): 0.0119, (1e-3, 20_000): 0.0111, (1e-3, 40_000): 0.0098}
    return ProbeSweep(
        settings=tuple(
            SweepSetting(learning_rate=rate, augmentation=0.25, steps=steps, validation_loss=loss)
            for (rate, steps), loss in losses.items()
        )
    )


def write_datasource_case(path: Path) -> None:
    """Two tasks at three distances; the score falls with the distance."""
    rng = np.random.default_rng(12)
    points = [
        SourcePoint(
            task=task, asked_m=asked_m, n_demonstrations=120, n_tried=131,
            outcomes=tuple(int(v) for v in rng.random(24) < skill),
            nearest_m=tuple(asked_m + rng.uniform(0, 0.004, 24)), nearest_deg=tuple(rng.uniform(0, 15, 24)),
            images={'pixels': tuple(rng.uniform(0.1, 0.3, 24) + 5 * asked_m)}, n_same=0,
            n_leaked=24 if asked_m == 0 else 0, parameters=412_000,
        )
        for task in ('single_block', 'two_block')
        for asked_m, skill in ((0.0, 0.9), (0.02, 0.7), (0.1, 0.2))
    ]  # fmt: skip
    write_datasource(
        DataSource(protocol=SourceProtocol(host='tabletop', learner='probe', seed=1), points=tuple(points)), path
    )


def write_mix_case(path: Path) -> None:
    """Four tasks, trained on alone, three together and all together."""
    rng = np.random.default_rng(13)
    tasks = ('single_block', 'two_block', 'three_block', 'spatial')
    scores = [
        MixScore(
            mix=name, task=task, trained_on=sources[task],
            outcomes=tuple(int(v) for v in rng.random(24) < (0.7 if task in sources[task] else 0.05)),
        )
        for name, sources in mixes(tasks, tasks[:3]).items()
        for task in tasks
    ]  # fmt: skip
    write_mix(TrainingMix(host='tabletop', learner='probe', scores=tuple(scores)), path)


# A generator of episodes shaped like PhAIL's cohort, with effect sizes as arguments and an exact null.
# An operation's time is lognormal with an episode effect (within-episode correlation); it ends in a placement, a drop
# outside, or a safety stop; the episode ends when the items are gone, at a safety stop, or at 30 s an item.

OBJECTS = ('batteries', 'scissors', 'spoons', 'towels')
SECONDS_AN_ITEM = 30.0


@dataclass(frozen=True, slots=True)
class SimulatedPolicy:
    """How one simulated policy works. Times are in seconds; chances are per attempted operation."""

    name: str
    median_s: float
    drop_chance: float = 0.05
    stop_chance: float = 0.01
    episode_spread: float = 0.7  # standard deviation of log time between episodes
    operation_spread: float = 0.7  # and between operations of one episode
    factors: Mapping[str, float] = field(default_factory=dict)  # object -> multiplier of the median
    is_reference: bool = False
    episodes_per_cell: tuple[int, int] = (32, 46)
    items: int = 10


HUMAN = SimulatedPolicy(
    'human', 9.0, drop_chance=0.001, stop_chance=0.0, episode_spread=0.15, operation_spread=0.35,
    factors={'batteries': 0.9, 'scissors': 1.1, 'towels': 1.2}, is_reference=True, episodes_per_cell=(95, 103),
)  # fmt: skip
PAPER_LIKE = (
    HUMAN,
    SimulatedPolicy('act', 52.0, 0.057, 0.004, 1.1, 1.1, {'batteries': 0.7, 'scissors': 1.5}),
    SimulatedPolicy('groot', 49.0, 0.035, 0.010, 0.7, 0.7, {'batteries': 1.3, 'scissors': 0.9}),
    SimulatedPolicy('openpi', 50.0, 0.042, 0.012, 0.7, 0.8, {'batteries': 1.1, 'towels': 0.9}),
    SimulatedPolicy('smolvla', 170.0, 0.049, 0.080, 0.8, 0.8, {}, episodes_per_cell=(26, 34)),
)


def paper_like_cohort(
    rng: np.random.Generator, *, profiles: Sequence[SimulatedPolicy] = PAPER_LIKE, objects: Sequence[str] = OBJECTS
) -> list[Episode]:
    """Episodes of every profile on every object; camera and tote sides vary, and cells have uneven sizes."""
    return [e for p in profiles for o in objects for e in cell_episodes(rng, p, o)]


def null_pair(
    rng: np.random.Generator, *, profile: SimulatedPolicy = PAPER_LIKE[2], objects: Sequence[str] = OBJECTS
) -> tuple[list[Episode], list[Episode]]:
    """Two policies, `a` and `b`, of one profile: every difference between them is chance."""
    return effect_pair(rng, profile=profile, objects=objects)


def effect_pair(
    rng: np.random.Generator, *, profile: SimulatedPolicy = PAPER_LIKE[2], objects: Sequence[str] = OBJECTS,
    slowdown: float = 1.0, extra_drop: float = 0.0, extra_stop: float = 0.0,
) -> tuple[list[Episode], list[Episode]]:  # fmt: skip
    """Policy `a` as the profile says, `b` slower by a factor and with added chances of ghosts (1, 0, 0: the null)."""
    arms = (
        replace(profile, name='a'),
        replace(
            profile, name='b', median_s=profile.median_s * slowdown, drop_chance=profile.drop_chance + extra_drop,
            stop_chance=profile.stop_chance + extra_stop,
        ),
    )  # fmt: skip
    first, second = (paper_like_cohort(rng, profiles=[arm], objects=objects) for arm in arms)
    return first, second


def cell_episodes(
    rng: np.random.Generator, profile: SimulatedPolicy, stratum: str, *, n_episodes: int | None = None
) -> list[Episode]:
    """One cell's episodes; the number is drawn from the profile's range when it is not given."""
    low, high = profile.episodes_per_cell
    count = int(rng.integers(low, high + 1)) if n_episodes is None else n_episodes
    return [_episode(rng, profile, stratum, number) for number in range(count)]


def _episode(rng: np.random.Generator, profile: SimulatedPolicy, stratum: str, number: int) -> Episode:
    cap_s = SECONDS_AN_ITEM * profile.items
    center = math.log(profile.median_s * profile.factors.get(stratum, 1.0)) + profile.episode_spread * rng.normal()
    events: list[Event] = []
    clock_s, done, outcome = 0.0, 0, Outcome.SUCCESS
    while done < profile.items:
        clock_s += math.exp(center + profile.operation_spread * rng.normal())
        fate = rng.random()
        if clock_s > cap_s:
            clock_s, outcome = cap_s, Outcome.TIMEOUT
            break
        if fate < profile.stop_chance:
            events.append(Event(clock_s, EventKind.SAFETY_STOP))
            outcome = Outcome.SAFETY_STOP
            break
        dropped = fate < profile.stop_chance + profile.drop_chance
        events.append(Event(clock_s, EventKind.DROP_OUTSIDE if dropped else EventKind.PLACEMENT))
        done += 1
    placed = sum(e.kind is EventKind.PLACEMENT for e in events)
    lost = sum(e.kind is EventKind.DROP_OUTSIDE for e in events)
    if outcome is Outcome.SUCCESS and lost:
        outcome = Outcome.FAILURE
    return Episode(
        policy=profile.name, is_reference=profile.is_reference, task='bin-to-bin', stratum=stratum,
        trial_id='simulated', seed=number, outcome=outcome, duration_s=clock_s, time_cap_s=cap_s, items=profile.items,
        items_placed=placed, items_lost=lost, events=tuple(events), success=placed == profile.items,
        labels={'camera_side': ('left', 'right')[number % 2], 'tote_side': ('left', 'right')[(number // 2) % 2]},
    )  # fmt: skip
