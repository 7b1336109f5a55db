"""Episodes that tested no policy as far as the record says: what they could turn, read both ways.

An invalid episode is set aside, because a rig that broke says nothing of a policy. A harness that gave up without
saying why may hide failures of the policy all the same. So where counting them as failures would change a verdict or an
order, both readings are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import Interval
from robotrials.stats.dominance import PairDecision
from robotrials.verdict.analysis.contrast import Contrast
from robotrials.verdict.analysis.endpoint_pairs import judged, pair_contrasts
from robotrials.verdict.analysis.frame import ComparisonFrame
from robotrials.verdict.analysis.side import Side, success_of
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

COUNTED = (EndpointName.SUCCESS, EndpointName.TIME)


@dataclass(frozen=True, slots=True)
class BothReadings:
    """Invalid episodes set aside, as everywhere, and counted as failures."""

    n_invalid: Mapping[str, int]  # policy -> invalid episodes in compared cells
    reasons: tuple[str, ...]  # that the record gives for them
    order: tuple[str, ...]  # by episode success, best first: set aside
    order_counted: tuple[str, ...]  # counted as failures
    rates: Mapping[str, float]  # macro success, set aside
    bounds: Mapping[str, Interval]  # whatever the invalid ones were: all failures, all successes
    decisions: tuple[PairDecision, ...]
    decisions_counted: tuple[PairDecision, ...]

    @property
    def turned(self) -> tuple[tuple[PairDecision, PairDecision], ...]:
        """The pairs of which something else would be said."""
        pairs = zip(self.decisions, self.decisions_counted, strict=True)
        return tuple((a, b) for a, b in pairs if (a.verdict, a.winner) != (b.verdict, b.winner))

    @property
    def matters(self) -> bool:
        return self.order != self.order_counted or bool(self.turned)


def both_readings(
    frame: ComparisonFrame, sides: Mapping[str, Side], contrasts: Mapping[EndpointName, Sequence[Contrast]],
    plan: AnalysisPlan, primary: Sequence[EndpointName], decisions: Sequence[PairDecision],
) -> BothReadings | None:  # fmt: skip
    """What invalid episodes could turn; None where there are none among the ranked policies."""
    counted = counted_sides(frame, sides)
    n_invalid = {p: sum(side.missing.values()) for p, side in counted.items() if side.missing}
    if not n_invalid:
        return None
    pairs = [(c.a, c.b) for c in next(iter(contrasts.values()))]
    try:
        again = {
            name: pair_contrasts(counted, pairs, plan, endpoint=name)
            for name in contrasts if name in COUNTED and name in primary
        }  # fmt: skip
    except (InputError, NotEstimable):
        return None
    judgement = judged({**contrasts, **again}, plan, primary)
    set_aside, low = (_rates(own, 0.0) for own in (sides, counted))
    high = _rates(counted, 1.0)
    reasons = dict.fromkeys(e.reason for p in n_invalid for e in frame.invalid.get(p, ()) if e.reason)
    return BothReadings(
        n_invalid, tuple(reasons), _order(set_aside), _order(low), set_aside,
        {p: Interval(low[p], high[p]) for p in n_invalid}, tuple(decisions), judgement.decisions,
    )  # fmt: skip


def counted_sides(frame: ComparisonFrame, sides: Mapping[str, Side]) -> dict[str, Side]:
    """The same arms with their invalid episodes as runs that were never made, which count as failures."""
    missing = {p: Counter(_cell(frame, side, e) for e in frame.invalid.get(p, ())) for p, side in sides.items()}
    return {p: replace(side, missing=_known(missing[p], side), _kept={}) for p, side in sides.items()}


def success_order(sides: Mapping[str, Side]) -> tuple[str, ...]:
    """Highest macro success first, missing runs counted as failures; equal ones by name."""
    return _order(_rates(sides, 0.0))


def _cell(frame: ComparisonFrame, side: Side, episode: object) -> str:
    stratum = frame.stratum_of(episode)  # type: ignore[arg-type]
    return next((c for c in side.cells if c == stratum or c.startswith(f'{stratum}, ')), stratum)


def _known(found: Counter[str], side: Side) -> dict[str, int]:
    return {cell: n for cell, n in found.items() if cell in side.cells}


def _rates(sides: Mapping[str, Side], missing_as: float) -> dict[str, float]:
    """Macro success of every policy, its missing runs counted as failures or as successes."""
    found = {}
    for policy, side in sides.items():
        cells = []
        for cell in side.cells:
            values = side.shares(cell, success_of)
            n = side.missing.get(cell, 0)
            cells.append((float(values.sum()) + missing_as * n) / len(values))
        found[policy] = sum(cells) / len(cells)
    return found


def _order(rates: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(sorted(rates, key=lambda p: (-rates[p], p)))
