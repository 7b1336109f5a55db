"""The safety of the episodes that two arms are compared on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from robotrials.measure.safety import EpisodeSafety, Registry, Scoring, score_episode
from robotrials.record import Episode
from robotrials.verdict.analysis.arm import Arm
from robotrials.verdict.analysis.shared_cell import CellPair, SharedCells

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


def scored_cells(shared: SharedCells, new: Scores, reference: Scores) -> tuple[SharedCells, dict[int, EpisodeSafety]]:
    """The cells with only scored episodes (pairs stay whole), and the score of each by the episode's identity.

    Not by its key: the same episode id may stand in both stores.
    """
    kept = [_scored_cell(c, new, reference, is_paired=shared.is_paired) for c in shared.cells]
    cells = tuple(c for c in kept if c.new and c.reference)
    scores = {id(e): new[e.key] for c in cells for e in c.new}
    scores |= {id(e): reference[e.key] for c in cells for e in c.reference}
    return replace(shared, cells=cells), scores


def _scored_cell(cell: CellPair, new: Scores, reference: Scores, *, is_paired: bool) -> CellPair:
    if is_paired:
        pairs = [(a, b) for a, b in zip(cell.new, cell.reference, strict=True) if a.key in new and b.key in reference]
        return CellPair(cell.name, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
    return CellPair(
        cell.name, tuple(e for e in cell.new if e.key in new), tuple(e for e in cell.reference if e.key in reference)
    )
