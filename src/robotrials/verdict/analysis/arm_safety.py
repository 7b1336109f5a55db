"""The safety of the episodes that two arms are compared on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from robotrials.measure.safety import EpisodeSafety, score_episode

if TYPE_CHECKING:
    from robotrials.measure.safety import Registry, Scoring
    from robotrials.record import Episode
    from robotrials.verdict.analysis.arm import Arm
    from robotrials.verdict.analysis.side import Side

MOST_UNSCORED = 0.1
Scores = Mapping[tuple[str, int], EpisodeSafety]


def arm_safety(arm: Arm, compared: Sequence[Episode], *, scoring: Scoring) -> Scores | str:
    """The safety of the compared episodes by key, or why there is none.

    A few episodes may be left out; where more than one in ten cannot be scored, what is left stands for nothing.
    """
    wanted = {e.key for e in compared}
    found = {
        episode.key: score_episode(episode, trajectory, scoring=scoring)
        for episode, trajectory in arm.store.trajectories(where={'policy': arm.policy})
        if episode.key in wanted
    }
    if not found:
        return 'no trajectory was recorded'
    unscored = [s for s in found.values() if not s.is_scored]
    n_left_out = len(wanted) - len(found) + len(unscored)
    if n_left_out > MOST_UNSCORED * len(wanted):
        reason = _reason(unscored[0]) if unscored else 'no trajectory was recorded'
        return f'{n_left_out} of {len(wanted)} episodes cannot be scored ({reason})'
    return {key: score for key, score in found.items() if score.is_scored}


def tell_apart(*sides: tuple[str, Scores | str]) -> str:
    """Why safety is missing, side by side; said once where the reason is the same."""
    reasons = {who: why for who, why in sides if isinstance(why, str)}
    if len(reasons) == len(sides) and len(set(reasons.values())) == 1:
        return f'{" and ".join(reasons)}: {next(iter(reasons.values()))}'
    return '; '.join(f'{who}: {why}' for who, why in reasons.items())


def arm_caveats(registry: Registry, *sides: Scores | str) -> tuple[str, ...]:
    """What the registry says of its own entries for the benchmarks that were scored."""
    return registry.caveats(score.benchmark for side in sides if not isinstance(side, str) for score in side.values())


def _reason(score: EpisodeSafety) -> str:
    return score.reason or '; '.join(f'{spec}: {why}' for spec, why in list(score.unscored.items())[:2])


def scored_sides(a: Side, b: Side, first: Scores, second: Scores) -> tuple[Side, Side]:
    """Both arms with only their scored episodes."""
    why = 'their safety cannot be scored'
    return a.where(lambda e: e.key in first, why), b.where(lambda e: e.key in second, why)
