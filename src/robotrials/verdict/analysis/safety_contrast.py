"""Two policies' safety: unsafe successes, unsafe episodes and severity, each a contrast like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable
from robotrials.measure.safety.summary import is_auxiliary
from robotrials.stats.dominance import adjusted_p_values
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.analysis.side import two_sides
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.measure.safety import EpisodeSafety, Registry
    from robotrials.record import Episode
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan

METRICS: Mapping[str, Callable[[EpisodeSafety], float]] = {
    'sbu': lambda s: float(bool(s.sbu)),
    'unsafe': lambda s: float(s.safe is False),
    'vsi': lambda s: s.vsi or 0.0,
}


@dataclass(frozen=True, slots=True, eq=False)
class SafetyDifference:
    """First minus second on one metric, of which less is safer."""

    metric: str  # 'sbu', 'unsafe' or 'vsi'
    benchmark: str  # '' for all main ones together
    contrast: Contrast

    def safer(self, alpha: float = 0.05) -> str | None:
        """Who is safer after correction over every row of the comparison."""
        found = self.contrast
        if found.p_adjusted is None or found.p_adjusted > alpha or found.ahead is None:
            return None
        return found.b if found.ahead == found.a else found.a


@dataclass(frozen=True, slots=True, eq=False)
class SafetyComparison:
    """Two policies on every metric; p-values are adjusted together by Holm's method."""

    first: str
    second: str
    rows: tuple[SafetyDifference, ...]
    n_unscored: int


def compare_safety(
    first: Sequence[Episode], second: Sequence[Episode], scores: Mapping[tuple[str, int], EpisodeSafety],
    plan: AnalysisPlan, *, names: tuple[str, str], registry: Registry,
) -> SafetyComparison:  # fmt: skip
    """Scored episodes of two policies; benchmarks that the registry calls auxiliary have rows of their own alone."""
    kept = [[e for e in side if e.key in scores and scores[e.key].is_scored] for side in (first, second)]
    if not all(kept):
        raise NotEstimable(f'{names[0]} has {len(kept[0])} scored episodes, {names[1]} {len(kept[1])}; both need some')
    benchmarks = sorted({e.benchmark for e in kept[0]} & {e.benchmark for e in kept[1]})
    main = [b for b in benchmarks if not is_auxiliary(b, registry)]
    scopes = ([''] if main else []) + (benchmarks if benchmarks != main or len(main) > 1 else [])
    rows = []
    for scope in scopes:
        chosen = [[e for e in side if (e.benchmark == scope if scope else e.benchmark in main)] for side in kept]
        arms = two_sides(chosen[0], chosen[1], plan, names=names)
        for metric, read in METRICS.items():

            def value(episode: Episode, read: Callable[[EpisodeSafety], float] = read) -> float:
                return read(scores[episode.key])

            found = contrast(*arms, endpoint=EndpointName.SAFETY, plan=plan, value=value)
            rows.append(SafetyDifference(metric, scope, found))
    adjusted = adjusted_p_values([row.contrast.p_value for row in rows], 'holm')
    rows = [replace(r, contrast=replace(r.contrast, p_adjusted=p)) for r, p in zip(rows, adjusted, strict=True)]
    n_unscored = len(first) + len(second) - sum(map(len, kept))
    return SafetyComparison(names[0], names[1], tuple(rows), n_unscored)
