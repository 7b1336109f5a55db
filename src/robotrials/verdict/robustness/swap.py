"""The swap test: the same scene with another instruction. Does the policy act on what it is told at all?

RADAR names two failures of policies that don't: going for the most salient object, and for the one nearest to the
gripper. They are named here only where trials that can tell them apart bear them out.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.record import Episode, Trajectory
from robotrials.stats import Interval, wilson
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.measure.geometry import ObjectModel, RgbdView

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
