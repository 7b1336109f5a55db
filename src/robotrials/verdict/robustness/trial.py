"""Episodes under conditions, as rows; does a policy act on its instruction, and on where things stand?

The swap test runs the same scene with another instruction. RADAR names two failures of policies that ignore it: going
for the most salient object, and for the one nearest to the gripper. They are named here only where trials that can
tell them apart bear them out. Spatial sensitivity asks whether success depends on where the object started.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable, UnknownName
from robotrials.record import Episode, Trajectory
from robotrials.record.episode import NOMINAL, recorded_severity, rung_names
from robotrials.stats import Interval, cluster_bootstrap, newcombe, wilson
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.measure.geometry import ObjectModel, PlacementSummary, PlacementTrial, RgbdView


@dataclass(frozen=True, slots=True)
class ConditionTrial:
    """One valid episode under one condition. `severity` is None where the record has none, 0 for the baseline."""

    policy: str
    condition: str
    severity: float | None
    placement: PlacementTrial
    repeat: int = 0
    parts: tuple[tuple[str, float], ...] = ()  # kind and severity of what a compound condition is made of

    @property
    def success(self) -> bool:
        return self.placement.success

    @property
    def scene(self) -> str:
        """The split and the start state: what pairs a trial with its baseline."""
        return f'{self.placement.split}/{self.placement.cluster}'


def condition_trials(episodes: Iterable[Episode], *, baseline: str = NOMINAL) -> list[ConditionTrial]:
    """The valid, non-reference episodes as rows; INVALID ones say nothing about a policy."""
    from robotrials.measure.geometry import placement_trial

    return [
        ConditionTrial(
            e.policy, e.condition, recorded_severity(e, baseline=baseline), placement_trial(e), e.repeat,
            recorded_parts(e),
        )
        for e in episodes if e.is_valid and not e.is_reference
    ]  # fmt: skip


def recorded_parts(episode: Episode) -> tuple[tuple[str, float], ...]:
    """Kind and severity of the parts of a compound condition, by its parameters `kind.severity`; none of a single."""
    return tuple(
        (name.removesuffix('.severity'), float(value))
        for name, value in episode.condition_parameters.items()
        if name.endswith('.severity') and isinstance(value, int | float)
    )


def split_conditions(
    trials: Sequence[ConditionTrial], *, baseline: str = NOMINAL
) -> tuple[list[ConditionTrial], dict[str, list[ConditionTrial]]]:
    """The baseline's trials, and those of every other condition in order of appearance."""
    if not trials:
        raise NotEstimable('no valid episodes; a robustness analysis needs a baseline and at least one condition')
    names = list(dict.fromkeys(t.condition for t in trials))
    if baseline not in names:
        raise UnknownName('baseline condition in the store', baseline, names)
    return (
        [t for t in trials if t.condition == baseline],
        {name: [t for t in trials if t.condition == name] for name in names if name != baseline},
    )


def by_severity(trials: Sequence[ConditionTrial]) -> list[ConditionTrial]:
    """The trials with the rungs of a ladder as conditions of their own (`light at 0.5`): doses are not pooled."""
    named = rung_names((t.condition, t.severity) for t in trials)
    return [replace(t, condition=named(t.condition, t.severity)) for t in trials]


def policies_of(trials: Iterable[ConditionTrial]) -> list[str]:
    return list(dict.fromkeys(t.policy for t in trials))


# What conditions come to: RADAR's rows, and a drop from the baseline as a value.
# A drop is baseline minus altered, so a positive number is a loss. It is worked out where contrasts are.


@dataclass(frozen=True, slots=True)
class ConditionDrop:
    """What one condition costs one policy: the mean over tasks, so that another mix of tasks is no drop."""

    policy: str
    condition: str
    baseline_successes: int  # counts of all episodes, tasks pooled
    baseline_n: int
    successes: int
    n: int
    success_drop: float
    success_interval: Interval | None  # None where too few start states were run
    p_value: float | None
    p_value_holm: float | None
    method: str
    iou_drop: float | None  # of the expectation over splits; None where some IoU is not known
    iou_interval: Interval | None
    note: str = ''

    def is_resolved(self, alpha: float = 0.05) -> bool:
        """Whether the success rate changed, over all comparisons of the report."""
        return self.p_value_holm is not None and self.p_value_holm <= alpha


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One row of RADAR's tables."""

    policy: str
    condition: str
    summary: PlacementSummary


def condition_rows(
    trials: Sequence[ConditionTrial], *, n_resamples: int, rng: np.random.Generator, level: float = 0.95
) -> list[ConditionRow]:
    """A summary for every policy under every condition, in order of appearance."""
    from robotrials.measure.geometry import summarize_placements

    keys = list(dict.fromkeys((t.policy, t.condition) for t in trials))
    rows = []
    for policy, condition in keys:
        cell = [t.placement for t in trials if (t.policy, t.condition) == (policy, condition)]
        summary = summarize_placements(cell, n_resamples=n_resamples, rng=rng, level=level)
        rows.append(ConditionRow(policy, condition, summary))
    return rows


def _difference_of_means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values (n, 2): the outcome and 1 for the baseline, 0 for the altered arm."""
    outcome, is_first = values[:, 0], values[:, 1] > 0
    arms = [(weights[:, arm], outcome[arm]) for arm in (is_first, ~is_first)]
    means = [np.einsum('bn,n->b', weight, values) / weight.sum(axis=1) for weight, values in arms]
    return np.asarray(means[0] - means[1])


def iou_drop(
    first: Sequence[ConditionTrial],
    second: Sequence[ConditionTrial],
    *,
    n_resamples: int,
    rng: np.random.Generator,
    level: float,
) -> tuple[float | None, Interval | None]:
    """The drop of the expectation of IoU over the splits that both have; scenes are drawn within splits.

    A scene that both arms have is drawn for both at once. Without any spread there is no interval: resamples of equal
    values know nothing of what was not seen.
    """
    splits = sorted({t.placement.split for t in first} & {t.placement.split for t in second})
    rows = [(t, arm) for arm, side in ((1.0, first), (0.0, second)) for t in side if t.placement.split in splits]
    if not splits or any(t.success and t.placement.iou is None for t, _ in rows):
        return None, None
    values = np.array(
        [[t.placement.iou or 0.0 if t.success else 0.0, arm, splits.index(t.placement.split)] for t, arm in rows]
    )
    shared = {t.scene for t in first} & {t.scene for t in second}
    clusters = [t.scene if t.scene in shared else f'{arm}/{t.scene}' for t, arm in rows]
    strata = [t.placement.split if t.scene in shared else f'{arm}/{t.placement.split}' for t, arm in rows]

    def statistic(v: np.ndarray, weights: np.ndarray) -> np.ndarray:
        parts = [_difference_of_means(v[v[:, 2] == k], weights[:, v[:, 2] == k]) for k in range(len(splits))]
        return np.asarray(np.mean(parts, axis=0))

    drawn = cluster_bootstrap(
        values, clusters, statistic=statistic, n_resamples=n_resamples, rng=rng, level=level, strata=strata
    )
    return drawn.estimate, drawn.interval if drawn.interval.width > 0 else None


OBJECT_ROLES = frozenset({'target', 'bystander', 'object', 'distractor'})
MOVED_LEAST_M = 0.01


class Habit(enum.StrEnum):
    """What a policy goes for instead of what it is told."""

    MOST_SALIENT = 'most salient object'
    NEAREST = 'nearest to the gripper'


class SwapVerdict(enum.StrEnum):
    FOLLOWS = 'acts on the instruction'
    IGNORES = 'ignores the instruction'
    UNRESOLVED = 'unresolved'


@dataclass(frozen=True, slots=True)
class SwapTrial:
    """One episode: which object was asked for and which was gone for. `chosen` is None when none was touched."""

    policy: str
    scene: str
    asked: str
    chosen: str | None
    candidates: tuple[str, ...]
    salient: str | None = None
    nearest: str | None = None


@dataclass(frozen=True, slots=True)
class HabitShare:
    """How often the policy went for what the habit says, in trials where something else was asked for."""

    habit: Habit
    count: int
    n: int
    chance: float  # of a blind choice among the candidates
    p_value: float  # that a blind choice does so at least as often

    @property
    def share(self) -> float:
        return self.count / self.n


@dataclass(frozen=True, slots=True)
class SwapResult:
    """One policy's swap test."""

    policy: str
    n_scenes: int  # scenes with two different instructions or more
    n: int
    followed: int
    followed_interval: Interval
    changed: int  # pairs of trials of a scene, asked for different objects, in which the choice differed
    n_pairs: int
    p_value: float  # of following no better than with instructions shuffled within scenes
    verdict: SwapVerdict
    habits: tuple[HabitShare, ...]
    named: tuple[Habit, ...]


def swap_trial(episode: Episode, trajectory: Trajectory | None = None) -> SwapTrial | None:
    """An episode as a swap trial: from its labels, or else from what moved; None where neither tells.

    Labels are `asked_object`, `chosen_object`, `candidate_objects` (joined by commas), `salient_object` and
    `nearest_object`. An empty `chosen_object` says that none was touched. From a trajectory, the chosen object is the
    one that moved most, by a centimetre at least.
    """
    label = episode.labels
    start = episode.instance if episode.instance is not None else episode.seed
    scene = label.get('scene') or f'{episode.stratum or episode.task}/{start}'
    if 'asked_object' in label and 'chosen_object' in label and 'candidate_objects' in label:
        candidates = tuple(label['candidate_objects'].split(','))
        return SwapTrial(
            episode.policy, scene, label['asked_object'], label['chosen_object'] or None, candidates,
            label.get('salient_object'), label.get('nearest_object'),
        )  # fmt: skip
    if trajectory is None or trajectory.body_pose is None or not trajectory.scene.target_object:
        return None
    roles = trajectory.scene.body_roles
    objects = tuple(b for b in trajectory.bodies if roles.get(b, '') in OBJECT_ROLES)
    if len(objects) < 2:
        return None
    moved = {b: _travel(trajectory, b) for b in objects}
    chosen = max(moved, key=lambda b: moved[b])
    nearest = None
    if trajectory.ee_pose is not None:
        hand = trajectory.ee_pose[0, :3]
        nearest = min(objects, key=lambda b: float(np.linalg.norm(trajectory.body(b)[0, :3] - hand)))
    return SwapTrial(
        episode.policy, scene, label.get('asked_object', trajectory.scene.target_object),
        chosen if moved[chosen] >= MOVED_LEAST_M else None, objects, label.get('salient_object'), nearest,
    )  # fmt: skip


def salient_object(views: Sequence[RgbdView], models: Sequence[ObjectModel]) -> str | None:
    """The object whose colour fills most of the pictures: what `salient_object` should say; None when none is seen."""
    from robotrials.measure.geometry import color_mask

    area = {m.name: sum(int(color_mask(view.rgb, m).sum()) for view in views) for m in models}
    best = max(area, key=lambda name: area[name], default=None)
    return best if best is not None and area[best] else None


def _travel(trajectory: Trajectory, body: str) -> float:
    position = trajectory.body(body)[:, :3]
    return float(np.linalg.norm(position - position[0], axis=1).max())


def swap_tests(
    trials: Iterable[SwapTrial],
    *,
    n_resamples: int,
    rng: np.random.Generator,
    alpha: float = 0.05,
    ignore_share: float = 0.25,
) -> list[SwapResult]:
    """A swap test for every policy with a scene that was run under two instructions.

    The policy acts on the instruction when it follows it more often than with instructions shuffled within scenes. It
    ignores it when, in pairs of trials that differ in nothing else, the choice changes in less than `ignore_share` of
    them (upper end of the Wilson interval). Otherwise the test is unresolved.
    """
    rows = list(trials)
    tests = []
    for policy in dict.fromkeys(t.policy for t in rows):
        scenes: dict[str, list[SwapTrial]] = defaultdict(list)
        for trial in rows:
            if trial.policy == policy:
                scenes[trial.scene].append(trial)
        swapped = [cell for cell in scenes.values() if len({t.asked for t in cell}) >= 2]
        if swapped:
            tests.append(_swap_test(policy, swapped, n_resamples, rng, alpha, ignore_share))
    if not tests:
        raise NotEstimable('no scene was run with two instructions by one policy; a swap test needs such pairs')
    return tests


def _swap_test(
    policy: str, scenes: Sequence[Sequence[SwapTrial]], n_resamples: int, rng: np.random.Generator, alpha: float,
    ignore_share: float,
) -> SwapResult:  # fmt: skip
    rows = [t for cell in scenes for t in cell]
    followed = sum(t.chosen == t.asked for t in rows)
    pairs = [
        a.chosen != b.chosen
        for cell in scenes
        for i, a in enumerate(cell)
        for b in cell[i + 1 :]
        if a.asked != b.asked and not (a.chosen is None and b.chosen is None)
    ]
    p_value = _shuffle_p_value(scenes, followed, n_resamples, rng)
    habits = tuple(h for h in (_habit(rows, habit) for habit in Habit) if h is not None)
    upper = wilson(sum(pairs), len(pairs)).high if pairs else 1.0
    if p_value <= alpha:
        verdict = SwapVerdict.FOLLOWS
    elif upper < ignore_share:
        verdict = SwapVerdict.IGNORES
    else:
        verdict = SwapVerdict.UNRESOLVED
    named = tuple(h.habit for h in habits if h.p_value <= alpha and h.share > 0.5)
    return SwapResult(
        policy, len(scenes), len(rows), followed, wilson(followed, len(rows)), sum(pairs), len(pairs), p_value, verdict,
        habits, named if verdict is not SwapVerdict.FOLLOWS else (),
    )  # fmt: skip


def _shuffle_p_value(
    scenes: Sequence[Sequence[SwapTrial]], followed: int, n_resamples: int, rng: np.random.Generator
) -> float:
    """How often instructions shuffled within scenes fit the choices as well; the data count among the shuffles."""
    totals = np.zeros(n_resamples, dtype=np.int64)
    for cell in scenes:
        fits = np.array([[t.chosen == other.asked for other in cell] for t in cell], dtype=np.int64)
        order = np.argsort(rng.random((n_resamples, len(cell))), axis=1)
        totals += fits[np.arange(len(cell)), order].sum(axis=1)
    return float((1 + np.count_nonzero(totals >= followed)) / (n_resamples + 1))


def _habit(rows: Sequence[SwapTrial], habit: Habit) -> HabitShare | None:
    """Only trials in which the habit's object was not asked for, and is not also the other habit's, can show it."""
    tells = []
    for t in rows:
        wanted, other = (t.salient, t.nearest) if habit is Habit.MOST_SALIENT else (t.nearest, t.salient)
        if wanted is not None and wanted != t.asked and wanted != other:
            tells.append((t.chosen == wanted, 1 / len(t.candidates)))
    if not tells:
        return None
    count, n = sum(hit for hit, _ in tells), len(tells)
    chance = sum(c for _, c in tells) / n
    return HabitShare(habit, count, n, chance, _binomial_tail(count, n, chance))


def _binomial_tail(count: int, n: int, chance: float) -> float:
    return min(1.0, math.fsum(math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(count, n + 1)))


FloatArray = NDArray[np.floating[Any]]
NEIGHBOURS = 4
LEAST_TRIALS = 12
FEW_STARTS = 1000
BATCH_ENTRIES = 4_000_000


@dataclass(frozen=True, slots=True)
class StartTrial:
    """Where the target stood at the start, and whether the episode succeeded."""

    policy: str
    x_m: float
    y_m: float
    success: bool
    episode_id: str = ''


@dataclass(frozen=True, slots=True)
class SpatialSensitivity:
    """One policy: whether near starts share their outcome, and what distance from the usual start costs."""

    policy: str
    n: int
    agreement: float  # share of neighbours with the same outcome
    expected_agreement: float  # with outcomes shuffled over the starts
    p_value: float
    near_rate: float  # success of the half of starts nearest to their middle
    far_rate: float
    distance_drop: float  # near minus far
    distance_interval: Interval
    distance_p_value: float


def start_trial(episode: Episode, trajectory: Trajectory | None = None) -> StartTrial | None:
    """From the labels `start_x_m` and `start_y_m`, or else from the recorded pose of the target object."""
    labelled = _labelled_start(episode)
    if labelled is not None:
        return StartTrial(episode.policy, *labelled, episode.is_success, episode.episode_id)
    target = trajectory.scene.target_object if trajectory is not None else ''
    if trajectory is None or trajectory.body_pose is None or target not in trajectory.bodies:
        return None
    x, y = (float(v) for v in trajectory.body(target)[0, :2])
    return StartTrial(episode.policy, x, y, episode.is_success, episode.episode_id)


def _labelled_start(episode: Episode) -> tuple[float, float] | None:
    """None where the labels are missing or no numbers: labels are free text, and must not stop other questions."""
    try:
        x, y = float(episode.labels['start_x_m']), float(episode.labels['start_y_m'])
    except (KeyError, ValueError):
        return None
    return (x, y) if math.isfinite(x) and math.isfinite(y) else None


def spatial_sensitivities(
    trials: Iterable[StartTrial], *, n_resamples: int, rng: np.random.Generator, level: float = 0.95
) -> list[SpatialSensitivity]:
    """A test for every policy with at least a dozen trials from different starts."""
    rows = list(trials)
    sensitivities = []
    for policy in dict.fromkeys(t.policy for t in rows):
        cell = [t for t in rows if t.policy == policy]
        starts = np.array([[t.x_m, t.y_m] for t in cell])
        if len(cell) >= LEAST_TRIALS and len(np.unique(starts, axis=0)) >= LEAST_TRIALS:
            sensitivities.append(_sensitivity(policy, starts, [t.success for t in cell], n_resamples, rng, level))
    if not sensitivities:
        raise NotEstimable(f'spatial sensitivity needs {LEAST_TRIALS} different starts of one policy')
    return sensitivities


def nearest_starts(starts: FloatArray) -> NDArray[np.int64]:
    """The `NEIGHBOURS` nearest other starts of each, (n, NEIGHBOURS), of equally near ones the first in order.

    Many starts are looked up in a tree of the distinct places, since a table of all distances grows with their square.
    """
    if len(starts) <= FEW_STARTS:
        return _nearest_of(starts, np.arange(len(starts)), starts)
    from scipy.spatial import cKDTree

    places, group = np.unique(starts, axis=0, return_inverse=True)
    members = np.split(np.argsort(group.ravel(), kind='stable'), np.cumsum(np.bincount(group.ravel()))[:-1])
    tree = cKDTree(places)
    reach = np.asarray(tree.query(places, k=min(NEIGHBOURS + 1, len(places)))[0])[:, -1]
    nearest = np.empty((len(starts), NEIGHBOURS), np.int64)
    for place, own in enumerate(members):
        # Of one place no more than these can be among the nearest; a hair is added to keep what is equally far.
        within = tree.query_ball_point(places[place], reach[place] * (1 + 1e-9))
        rows = np.sort(np.concatenate([members[k][: NEIGHBOURS + 1] for k in within]))
        nearest[own] = _nearest_of(places[[place]], own, starts[rows], rows)
    return nearest


def _nearest_of(
    origins: FloatArray, own: NDArray[np.int64], starts: FloatArray, rows: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Of `starts`, which are those of `rows`, the nearest to each of `own`, itself left out."""
    numbers = np.arange(len(starts)) if rows is None else rows
    distances = np.linalg.norm(origins[:, None] - starts[None], axis=2)
    distances = np.where(own[:, None] == numbers[None], np.inf, distances)
    return numbers[np.argsort(distances, axis=1, kind='stable')[:, :NEIGHBOURS]]


def _sensitivity(
    policy: str, starts: FloatArray, success: Sequence[bool], n_resamples: int, rng: np.random.Generator, level: float
) -> SpatialSensitivity:
    outcome = np.array(success)
    near = nearest_starts(starts)
    distance = np.linalg.norm(starts - np.median(starts, axis=0), axis=1)
    is_far = np.argsort(np.argsort(distance, kind='stable')) >= len(distance) / 2
    agreement = float((outcome[near] == outcome[:, None]).mean())
    drop = float(outcome[~is_far].mean() - outcome[is_far].mean())
    agreements, drops = np.empty(n_resamples), np.empty(n_resamples)
    batch = max(1, BATCH_ENTRIES // near.size)
    for first in range(0, n_resamples, batch):
        rows = slice(first, min(first + batch, n_resamples))
        shuffled = np.array([rng.permutation(outcome) for _ in range(rows.start, rows.stop)])
        agreements[rows] = (shuffled[:, near] == shuffled[:, :, None]).mean(axis=(1, 2))
        drops[rows] = shuffled[:, ~is_far].mean(axis=1) - shuffled[:, is_far].mean(axis=1)
    k_near, k_far = int(outcome[~is_far].sum()), int(outcome[is_far].sum())
    n_near, n_far = int((~is_far).sum()), int(is_far.sum())
    return SpatialSensitivity(
        policy,
        len(outcome),
        agreement,
        float(agreements.mean()),
        float((1 + np.count_nonzero(agreements >= agreement - 1e-12)) / (n_resamples + 1)),
        k_near / n_near,
        k_far / n_far,
        drop,
        newcombe(k_near, n_near, k_far, n_far, level),
        float((1 + np.count_nonzero(np.abs(drops) >= abs(drop) - 1e-12)) / (n_resamples + 1)),
    )


# What a change of start states amounts to: how far the target and the arm really are from where they were.
# A drop of zero under a change that moved nothing says nothing of a policy. LIBERO-Object's fresh starts are such a
# change: the objects around the target are placed anew, and the target stays.

STAYS_MM = 1.0  # below this, a body is where it was
Place = tuple[float, float, float]
Pose = Sequence[float] | NDArray[np.floating[Any]]  # a place in metres, then a rotation


@dataclass(frozen=True, slots=True)
class StartPlace:
    """Where the target and the end effector stood at the start of an episode, in metres; None where unknown."""

    task: str
    condition: str
    target: Place | None
    arm: Place | None

    @classmethod
    def of(
        cls, task: str, condition: str, *, target: Sequence[float] | None, arm: Sequence[float] | None
    ) -> StartPlace:
        """From poses, whose first three numbers are places."""
        return cls(task, condition, *(None if pose is None else _place(pose) for pose in (target, arm)))


@dataclass(frozen=True, slots=True)
class StartSpread:
    """One task under one condition: root mean square distances from the middle of the task's baseline starts."""

    task: str
    condition: str
    n: int
    target_mm: float | None
    arm_mm: float | None
    baseline_target_mm: float | None  # of the baseline's own starts
    baseline_arm_mm: float | None

    @property
    def target_stays(self) -> bool:
        return self.target_mm is not None and self.target_mm < STAYS_MM


def start_place(episode: Episode, trajectory: Trajectory | None, *, condition: str) -> StartPlace | None:
    """What a trajectory's first step shows; None if it shows neither."""
    if trajectory is None or not trajectory.n_steps:
        return None
    target, arm = None, None if trajectory.ee_pose is None else trajectory.ee_pose[0]
    if trajectory.body_pose is not None and trajectory.scene.target_object in trajectory.bodies:
        target = trajectory.body(trajectory.scene.target_object)[0]
    if target is None and arm is None:
        return None
    return StartPlace.of(episode.task, condition, target=target, arm=arm)


def start_spreads(places: Iterable[StartPlace], *, baseline: str) -> list[StartSpread]:
    """How far starts lie from the baseline's, for every task and condition that has both."""
    by_task: dict[str, dict[str, list[StartPlace]]] = defaultdict(lambda: defaultdict(list))
    for place in places:
        by_task[place.task][place.condition].append(place)
    spreads = []
    for task, sides in by_task.items():
        first = sides.get(baseline, [])
        for condition, second in sides.items():
            if condition == baseline or not first:
                continue
            distances = [
                _spread_mm([getattr(p, part) for p in first], [getattr(p, part) for p in side])
                for side in (second, first)
                for part in ('target', 'arm')
            ]
            spreads.append(StartSpread(task, condition, len(second), *distances))
    return spreads


def told_spread(spreads: Sequence[StartSpread], condition: str) -> str:
    """The starts behind a drop, in words; empty where nothing is known of them."""
    own = [s for s in spreads if s.condition == condition]
    known = [s.target_mm for s in own if s.target_mm is not None]
    arms = [s.arm_mm for s in own if s.arm_mm is not None]
    parts = [f'{name} {np.mean(mm):.1f} mm' for name, mm in (('the target', known), ('the arm', arms)) if mm]
    sentence = f'from the middle of the baseline starts {" and ".join(parts)} away' if parts else ''
    stays = sum(s.target_stays for s in own)
    if stays:
        sentence += f'; in {stays} of {len(own)} tasks the target stays where it was, and no drop there says nothing'
    return sentence


def _place(pose: Pose) -> Place:
    return (float(pose[0]), float(pose[1]), float(pose[2]))


def _spread_mm(first: Sequence[Place | None], second: Sequence[Place | None]) -> float | None:
    known, others = ([p for p in side if p is not None] for side in (first, second))
    if not known or not others:
        return None
    away = np.linalg.norm(np.array(others) - np.mean(known, axis=0), axis=1)
    return float(1000 * np.sqrt(np.mean(away**2)))
