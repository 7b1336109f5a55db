"""The safety part of a report, and what else a single pass over the trajectories gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trialist.analysis.option import Absent, ReportOptions
from trialist.episodes import Episode, Store
from trialist.episodes.select import Where
from trialist.errors import NotEstimable
from trialist.robustness import StartTrial, SwapTrial, start_trial, swap_trial
from trialist.safety import (
    EpisodeSafety,
    SafetySummary,
    Scoring,
    load_registry,
    pareto_frontier,
    score_episode,
    store_pairs,
    summarize_safety,
)

SIGNALS = (
    'ee_pose', 'joint_position_rad', 'joint_torque_nm', 'body_pose', 'contacts', 'gripper_command', 'gripper_position',
    'action_raw', 'inference_latency_s',
)  # fmt: skip


@dataclass(slots=True)
class TrajectoryPass:
    """What one pass over a store's trajectories gives: safety of each episode, and rows of robustness tests."""

    safety: list[EpisodeSafety] = field(default_factory=list)
    swaps: list[SwapTrial] = field(default_factory=list)
    starts: list[StartTrial] = field(default_factory=list)
    n_trajectories: int = 0
    signals: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, eq=False)
class SafetyPart:
    """Success, safety, unsafe success and severity of every policy; per task; and the Pareto front."""

    summary: SafetySummary
    by_task: SafetySummary
    frontier: Mapping[str, tuple[str, ...]]  # benchmark -> policies that no other beats in success and safety at once
    unscored_reasons: Mapping[str, int]


def pass_trajectories(
    store: Store, episodes: Sequence[Episode], options: ReportOptions, *, where: Where | None = None
) -> TrajectoryPass:
    """Read every trajectory once, and take all that a report needs of it; `episodes` are those that match `where`."""
    scoring = Scoring(options.registry or load_registry())
    found = TrajectoryPass()
    has_any = any(part.trajectories for part in store.parts())
    for episode, trajectory in store_pairs(store, where=where, episodes=episodes):
        if not episode.is_valid:
            continue
        if trajectory is not None:
            found.n_trajectories += 1
            found.signals.update(name for name in SIGNALS if getattr(trajectory, name, None) is not None)
        if has_any:
            found.safety.append(score_episode(episode, trajectory, scoring=scoring))
        if episode.is_reference:
            continue
        if episode.condition == options.baseline and (swap := swap_trial(episode, trajectory)) is not None:
            found.swaps.append(swap)
        if (
            episode.condition in (options.baseline, 'layout')
            and (start := start_trial(episode, trajectory)) is not None
        ):
            found.starts.append(start)
    return found


def safety_part(
    scores: Sequence[EpisodeSafety], options: ReportOptions, *, rng: np.random.Generator
) -> SafetyPart | Absent:
    """Summaries of scored episodes; absent, with the most frequent reasons, where none could be scored."""
    if not scores:
        return Absent(
            'no trajectory was recorded, and safety is a property of what happened on the way',
            'record trajectories (trialist run does), or import SafeVLA-Bench records',
        )
    reasons = Counter(_reason(s) for s in scores if not s.is_scored)
    if not any(s.is_scored for s in scores):
        told = '; '.join(f'{reason} ({n} episodes)' for reason, n in reasons.most_common(3))
        return Absent(
            f'no episode could be scored: {told}', 'describe the tasks in a file of your own: --registry FILE'
        )
    chosen = {'registry': options.registry, 'n_resamples': options.n_resamples, 'level': options.level}
    try:
        summary = summarize_safety(scores, rng=rng, **chosen)  # type: ignore[arg-type]
        by_task = summarize_safety(scores, rng=rng, per_task=True, **chosen)  # type: ignore[arg-type]
    except NotEstimable as error:
        return Absent(str(error))
    return SafetyPart(summary, by_task, _frontier(summary), reasons)


def _reason(score: EpisodeSafety) -> str:
    return score.reason or '; '.join(f'{spec}: {why}' for spec, why in score.unscored.items())


def _frontier(summary: SafetySummary) -> dict[str, tuple[str, ...]]:
    found = {}
    for benchmark in dict.fromkeys(cell.benchmark for cell in summary.cells):
        cells = [c for c in summary.cells if c.benchmark == benchmark]
        points = [(c.success.count / c.n, c.safety.count / c.n) for c in cells]
        found[benchmark] = tuple(cells[i].policy for i in pareto_frontier(points))
    return found
