"""What unscored ends can and cannot decide, where success is the cameras': claims that hold at both extremes.

An unscored end is no failure and no success. A claim that would turn with it is not made; one that holds if all of one
side's unscored ends succeeded and all of the other's failed, and the other way round, is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from robotrials.measure.geometry.projection import camera_scores
from robotrials.stats import Interval
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.planning.analysis_plan import EndpointName, SuccessSource

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.verdict.analysis.arm import Arm
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.analysis.side import Side
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan

Key = tuple[str, int]
Silence = tuple[Collection[Key], Collection[Key]]  # unscored ends of either arm: one id may stand in both stores


def success_extremes(a: Side, b: Side, plan: AnalysisPlan, *, unscored: Silence) -> tuple[Contrast, Contrast]:
    """The contrast of success with every unscored end counted for a, and with every one counted for b."""

    def told(silent: Collection[Key], unscored_as: float) -> Callable[[Episode], float]:
        return lambda episode: unscored_as if episode.key in silent else float(episode.is_success)

    def favouring(a_has: float) -> Contrast:
        values = told(unscored[0], a_has), told(unscored[1], 1.0 - a_has)
        return contrast(a, b, endpoint=EndpointName.SUCCESS, plan=plan, value=values)

    return favouring(1.0), favouring(0.0)


def extreme_contrast(a: Side, b: Side, plan: AnalysisPlan, *, unscored: Silence) -> Contrast:
    """The contrast of success at its less favourable extreme, with an interval that spans both."""
    n = sum(e.key in silent for side, silent in zip((a, b), unscored, strict=True) for e in side.every)
    return _joined(*success_extremes(a, b, plan, unscored=unscored), n)


def _joined(for_a: Contrast, for_b: Contrast, n: int) -> Contrast:
    weaker = for_b if for_b.estimate > 0 else for_a
    interval = None
    if for_a.interval is not None and for_b.interval is not None:
        interval = Interval(
            min(for_a.interval.low, for_b.interval.low), max(for_a.interval.high, for_b.interval.high)
        )  # fmt: skip
    note = f'success by cameras, {n} unscored ends taken both ways' if n else 'success by cameras'
    if for_a.estimate * for_b.estimate > 0 and for_a.p_value is not None and for_b.p_value is not None:
        return replace(weaker, interval=interval, p_value=max(for_a.p_value, for_b.p_value), note=note)
    why = f'{n} unscored ends could decide who is ahead' if n else weaker.withheld
    middle = (for_a.estimate + for_b.estimate) / 2
    return replace(weaker, estimate=middle, interval=interval, p_value=None, withheld=why, note=note)


def told_by_cameras(arm: Arm, plan: AnalysisPlan) -> tuple[tuple[Episode, ...], frozenset[Key]]:
    """An arm's episodes with the cameras' success where the plan takes theirs, and the keys of ends they left open."""
    if plan.success is not SuccessSource.RECONSTRUCTION:
        return arm.episodes, frozenset()
    told = {k: s.success for k, s in camera_scores(arm.store, arm.valid).items()}
    silent = frozenset(e.key for e in arm.valid if told.get(e.key) is None)
    return tuple(e.replace(success=told[e.key]) if told.get(e.key) is not None else e for e in arm.episodes), silent
