"""What unscored ends can and cannot decide, where success is the cameras': claims that hold at both extremes.

An unscored end is no failure and no success. A claim that would turn with it is not made; one that holds if all of one
side's unscored ends succeeded and all of the other's failed, and the other way round, is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from robotrials.measure.geometry.projection import camera_scores
from robotrials.record import Episode
from robotrials.stats import Interval
from robotrials.verdict.analysis.arm import Arm
from robotrials.verdict.analysis.endpoint_pairs import Stream, rate_pairs
from robotrials.verdict.analysis.frame import ComparisonFrame
from robotrials.verdict.analysis.shared_cell import CellPair, SharedCells, share_cells
from robotrials.verdict.analysis.verdict import PairVerdict
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName, SuccessSource

Key = tuple[str, int]


def extreme_pairs(
    frame: ComparisonFrame, plan: AnalysisPlan, stream: Stream, *, unscored: Collection[Key]
) -> list[PairVerdict]:
    """Every pair's difference of success at its less favourable extreme, with an interval that spans both."""

    def favouring(policy: str) -> list[PairVerdict]:
        def flag(episode: Episode) -> bool:
            return episode.policy == policy if episode.key in unscored else episode.is_success

        return rate_pairs(frame, plan, stream, endpoint=EndpointName.SUCCESS, flag=flag)

    by_policy = {p: favouring(p) for p in frame.policies}
    n_by_policy = {
        p: sum(e.key in unscored for es in frame.ranked_cells(p).values() for e in es) for p in frame.policies
    }
    return [
        _joined_pair(
            by_policy[pair.policy_a][k], by_policy[pair.policy_b][k],
            n=n_by_policy[pair.policy_a] + n_by_policy[pair.policy_b],
        )
        for k, pair in enumerate(next(iter(by_policy.values()), []))
    ]  # fmt: skip


def _joined_pair(for_a: PairVerdict, for_b: PairVerdict, *, n: int) -> PairVerdict:
    weaker = for_b if for_b.difference > 0 else for_a
    interval = None
    if for_a.interval is not None and for_b.interval is not None:
        low = min(for_a.interval.low, for_b.interval.low)
        interval = Interval(low, max(for_a.interval.high, for_b.interval.high))
    if for_a.difference * for_b.difference > 0 and for_a.p_value is not None and for_b.p_value is not None:
        return replace(weaker, interval=interval, p_value=max(for_a.p_value, for_b.p_value))
    why = f'{n} unscored ends could decide who is ahead' if n else weaker.withheld
    middle = (for_a.difference + for_b.difference) / 2
    return replace(weaker, difference=middle, interval=interval, p_value=None, withheld=why)


@dataclass(frozen=True, slots=True, eq=False)
class Extremes:
    """The common ground of two arms with the cameras' success, if every unscored end spoke against the new one or for
    it.
    """

    against_new: SharedCells
    for_new: SharedCells
    n_unscored: tuple[int, int]  # of the new arm and of the reference

    def within(self, cell: CellPair) -> Extremes:
        """Of one cell."""
        against, favour = (
            replace(s, cells=tuple(c for c in s.cells if c.name == cell.name)) for s in (self.against_new, self.for_new)
        )
        return replace(self, against_new=against, for_new=favour)


def camera_extremes(new: Arm, reference: Arm, plan: AnalysisPlan) -> Extremes | None:
    """Both extremes of two arms; None where the plan takes the host's success."""
    if plan.success is not SuccessSource.RECONSTRUCTION:
        return None
    told = [{k: s.success for k, s in camera_scores(arm.store, arm.valid).items()} for arm in (new, reference)]
    sides = [
        [[_as_told(e, words, unscored=u) for e in arm.valid] for u in (False, True)]
        for arm, words in zip((new, reference), told, strict=True)
    ]
    silent = [
        sum(words.get(e.key) is None for e in arm.valid) for arm, words in zip((new, reference), told, strict=True)
    ]
    pairing = plan.pairing.value
    return Extremes(
        share_cells(sides[0][0], sides[1][1], pairing=pairing), share_cells(sides[0][1], sides[1][0], pairing=pairing),
        (silent[0], silent[1]),
    )  # fmt: skip


def _as_told(episode: Episode, words: dict[Key, bool | None], *, unscored: bool) -> Episode:
    told = words.get(episode.key)
    return episode.replace(success=unscored if told is None else told)
