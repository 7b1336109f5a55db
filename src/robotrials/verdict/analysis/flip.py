"""How many outcomes a verdict rests on: the successes that would have to be failures for a claim to fall.

A claim that one episode would undo is a claim all the same, but a reader should know. Successes of the policy that is
ahead are turned into failures, those first that weigh most: at starts where the other failed, in the smallest cells.
The count is enough to undo the claim; another choice of episodes might need one less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.analysis.endpoint_pairs import judged
from robotrials.verdict.analysis.selection import present
from robotrials.verdict.analysis.verdict import EndpointPairs
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.arm import Side
    from robotrials.verdict.analysis.endpoint_pairs import Comparisons

MOST_EPISODES = 5_000  # of a pair: beyond, no handful of episodes decides, and each try costs seconds


def flips_to_undo(analysis: Analysis, a: str, b: str) -> int | None:
    """Successes of the policy that succeeds more often whose failure would undo that claim; None without a claim."""
    pairs = present(analysis.pairs)
    success = pairs.endpoints.get(EndpointName.SUCCESS)
    if not isinstance(success, EndpointPairs) or analysis.by_cameras is not None:
        return None
    winner = success.pair(a, b).ahead
    if winner is None or not success.is_primary:
        return None
    ahead, behind = analysis.sides[winner], analysis.sides[b if winner == a else a]
    if ahead.n_episodes + behind.n_episodes > MOST_EPISODES:
        return None
    order = _by_weight(ahead, behind)
    low, high = 0, len(order)  # holds with `low` flips, falls with `high`
    while high - low > 1:
        middle = (low + high) // 2
        keys = {e.key for e in order[:middle]}
        low, high = (middle, high) if _holds(analysis, pairs, ahead, behind, keys) else (low, middle)
    return high


def _by_weight(ahead: Side, behind: Side) -> Sequence[Episode]:
    """Successes of the one ahead, the weightiest first."""
    weighed: list[tuple[bool, int, str, Episode]] = []
    for cell, group in ahead.cells.items():
        starts, others = ahead.starts(cell), behind.starts(cell)
        failed = {
            s for s, e in zip(others, behind.cells.get(cell, ()), strict=False) if s is not None and not e.is_success
        }
        for start, episode in zip(starts, group, strict=False):
            if episode.is_success:
                weighed.append((start not in failed, len(group), episode.episode_id, episode))
    return [row[-1] for row in sorted(weighed, key=lambda row: row[:-1])]


def _holds(analysis: Analysis, pairs: Comparisons, ahead: Side, behind: Side, flipped: set[tuple[str, int]]) -> bool:
    """Whether the claim is still made, by the same list of claims, with these successes as failures."""

    def value(episode: Episode) -> float:
        return float(episode.is_success and episode.key not in flipped)

    turned = contrast(ahead, behind, endpoint=EndpointName.SUCCESS, plan=analysis.plan, value=value)
    names = {ahead.name, behind.name}
    contrasts = {
        endpoint.endpoint: [
            turned if endpoint.endpoint is EndpointName.SUCCESS and {p.policy_a, p.policy_b} == names else p.contrast
            for p in endpoint.pairs
        ]
        for endpoint in pairs.tested
    }
    judgement = judged(contrasts, analysis.plan, analysis.primary, chances=analysis.chances)
    own = next(
        j for j in judgement.claims if set(j.claim.pair) == names and j.claim.endpoint == EndpointName.SUCCESS.value
    )
    return turned.ahead == ahead.name and own.p_adjusted is not None and own.p_adjusted <= analysis.plan.alpha
